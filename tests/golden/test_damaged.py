"""Damaged and malicious stores are refused, quickly, by an error that says what is wrong."""

import json
import os
import socket
import threading
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from upath import UPath

import dsgp
from dsgp.errors import StorageError
from tests.golden import damage

N_RANDOM = 60


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return damage.stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def known(paths):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {path: damage.answers(dsgp.load(path)) for path in paths}


@pytest.fixture
def store(paths, tmp_path):
    """A copy to be damaged of a small model of rows with weights."""
    path = tmp_path / "m.zarr"
    dsgp.load(next(path for path in paths if path.stem == "additive")).save(path)
    return path


@pytest.mark.filterwarnings("ignore")
def test_random_damage_is_refused_or_changes_nothing(paths, known, tmp_path):
    for number in range(N_RANDOM):
        damage.case(paths, known, np.random.default_rng([2026, number]), tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_every_file_is_missed_if_it_is_deleted(paths, known):
    for path in paths:
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            name = str(file.relative_to(path))
            verdict = damage.damage_bytes(path, known[path], None, name, "delete")
            assert verdict == "refused"


def test_an_added_file_is_refused(store):
    (store / "terms" / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"'terms/notes.txt' is not one of the files"):
        dsgp.load(store)


def test_deleted_weights_of_rows_are_refused(store):
    for file in sorted((store / "equations" / "row_weight").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.raises(StorageError, match=r"'equations/row_weight/.*' is missing"):
        dsgp.load(store)


@pytest.mark.parametrize("digit", ["format_version", "noise_variance_", "tol"])
def test_a_flipped_digit_of_a_setting_is_refused(store, digit):
    text = (store / "zarr.json").read_text()
    at = text.index(f'"{digit}": ') + len(digit) + 4
    last = next(k for k in range(at, len(text)) if text[k] in ",\n") - 1
    flipped = text[:last] + chr(ord(text[last]) ^ 1) + text[last + 1 :]
    (store / "zarr.json").write_text(flipped)
    with pytest.raises(StorageError, match=digit):
        dsgp.load(store)


@pytest.mark.parametrize("what", ["fifo", "socket", "device", "folder", "circle"])
@pytest.mark.parametrize("name", ["zarr.json", "terms/term0/dual/zarr.json"])
def test_what_is_no_regular_file_is_never_opened(store, name, what):
    file = store / name
    file.unlink()
    if what == "fifo":
        os.mkfifo(file)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            here = os.open(file.parent, os.O_RDONLY)  # addresses of sockets are short
            made.bind(f"/proc/self/fd/{here}/{file.name}")
            os.close(here)
    elif what == "device":
        file.symlink_to("/dev/zero")
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to(store)
    ended = []

    def load():
        try:
            dsgp.load(store)
        except StorageError as error:
            ended.append(str(error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(10)
    assert ended, "it hangs"
    if what not in ("folder", "circle"):
        assert f"{name} is not a regular file" in ended[0]


def bomb(store, name, **changed):
    """Change the metadata of a node, and make checksums that agree with it."""
    document = json.loads((store / name).read_text())
    (store / name).write_text(json.dumps(document | changed))
    damage.sealed_files(store)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"shape": [10**12]}, "lacks a chunk"),
        ({"shape": [2**63]}, "shape"),
        ({"shape": [-1]}, "shape"),
        ({"shape": ["60"]}, "shape"),
        ({"data_type": "complex128"}, "data_type"),
        ({"codecs": [{"name": "gzip", "configuration": {"level": 1}}]}, "codecs"),
        ({"storage_transformers": [{"name": "x"}]}, "storage_transformers"),
        ({"zarr_format": 2}, "zarr_format"),
        ({"node_type": "thing"}, "belongs to no array"),
    ],
)
def test_metadata_of_arrays_are_checked_before_anything_is_allocated(store, changed, says):
    bomb(store, "terms/term0/dual/zarr.json", **changed)
    with pytest.raises(StorageError, match=says):
        dsgp.load(store)


def test_a_huge_shape_is_not_allocated(store):
    huge = [10**12]
    grid = {"name": "regular", "configuration": {"chunk_shape": huge}}
    bomb(store, "terms/term0/dual/zarr.json", shape=huge, chunk_grid=grid)
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(StorageError, match=r"shape .* cannot be in chunks of \d+ bytes"):
        dsgp.load(store)
    assert time.process_time() - began < damage.LIMIT
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["zarr.json", "terms/term0/dual/zarr.json"])
def test_deep_nesting_is_refused(store, name):
    (store / name).write_text('{"attributes": ' + "[" * 10**6 + "]" * 10**6 + "}")
    with pytest.raises(StorageError, match=r"zarr\.json"):
        dsgp.load(store)


def test_settings_nested_deeply_are_refused(store):
    settings = json.loads((store / "zarr.json").read_text())["attributes"]["settings"]
    terms = ["smooth"]
    for _ in range(900):
        terms = [terms]
    settings["parameters"]["terms"] = {"listed_terms": terms}
    damage.sealed(store / "zarr.json", settings)
    with pytest.raises(StorageError, match=r"m\.zarr"):
        dsgp.load(store)


@pytest.mark.parametrize("number", ["1e999", "Infinity", "NaN"])
def test_numbers_that_json_has_not_are_refused(store, number):
    text = (store / "zarr.json").read_text()
    (store / "zarr.json").write_text(
        text.replace('"noise_variance_": 0.01', f'"noise_variance_": {number}')
    )
    with pytest.raises(StorageError, match=r"zarr\.json is not JSON that dsgp writes"):
        dsgp.load(store)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("fitted", "intercept_"), "0.3", "fitted.intercept_: Input should be a valid number"),
        (("fitted", "noise_variance_"), -1.0, "noise_variance_: .* greater than or equal to 0"),
        (("fitted", "_row_variance"), 0.0, "_row_variance: .* greater than 0"),
        (("equations", "n_rows"), 2.5, "equations.n_rows"),
        (("parameters", "tol"), "small", "parameters: tol"),
        (("parameters", "extra"), 1, "parameters: extra"),
        (("terms", 0, "centre"), None, "terms.0.centre"),
        (("columns",), "age", "columns"),
    ],
)
def test_settings_of_other_types_are_refused(store, path, value, says):
    settings = json.loads((store / "zarr.json").read_text())["attributes"]["settings"]
    inner = settings
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    damage.sealed(store / "zarr.json", settings)
    with pytest.raises(StorageError, match=says):
        dsgp.load(store)


@pytest.mark.parametrize(
    ("array", "change", "says"),
    [
        ("field/values", lambda a: a[:-1], "'field/values' has shape"),
        ("field/values", lambda a: np.full_like(a, np.nan), "numbers in observed cells"),
        ("noise", lambda a: np.full_like(a, np.nan), "'noise' has numbers in observed cells"),
        ("noise", lambda a: a[0], "'noise' has shape"),
        ("mean/table", lambda a: a[..., None], "'mean/table' has shape"),
        ("field/points/0", lambda a: a[::-1], "'field/points/0' .* not increasing"),
        ("dual", lambda a: np.full_like(a, np.inf), "'dual' has numbers that are not finite"),
        ("field/observed", lambda a: a.astype(float), "'field/observed' is of type float64"),
    ],
)
def test_arrays_of_a_field_are_checked_against_each_other(paths, tmp_path, array, change, says):
    source = next(path for path in paths if path.stem == "grid-noise")
    kind, settings, tree = dsgp.storage.read(source)
    *within, name = array.split("/")
    inner = tree
    for key in within:
        inner = inner[key]
    inner[name] = np.ascontiguousarray(change(inner[name]))
    dsgp.storage.write(tmp_path / "m.zarr", kind, settings, tree)
    with pytest.raises(StorageError, match=says):
        dsgp.load(tmp_path / "m.zarr")


def test_a_store_at_an_address_is_checked_too(store):
    place = UPath(f"memory://{store.parent.name}.zarr")
    dsgp.load(store).save(place)
    assert damage.same(damage.answers(dsgp.load(place)), damage.answers(dsgp.load(store)))
    chunk = place / "terms" / "term0" / "dual" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageError, match=r"'terms/term0/dual/c/0' is not as it was saved"):
        dsgp.load(place)
    chunk.unlink()
    with pytest.raises(StorageError, match=r"'terms/term0/dual/c/0' is missing"):
        dsgp.load(place)
