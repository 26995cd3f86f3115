"""Stores are whole or not there; strangers are refused; old formats stay readable."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import dsgp
from dsgp import storage
from dsgp.errors import StorageError

TREE = {"points": np.linspace(0, 1, 5), "deep": {"zeros": np.zeros(3), "codes": np.arange(4)}}
GOLDEN = Path(__file__).parent / "data" / "additive-format-2.zarr"


def test_a_tree_comes_back_as_it_was(tmp_path):
    storage.write(tmp_path / "s.zarr", "Thing", {"a": [1, None, "x"], "b": {"c": 0.1}}, TREE)
    kind, settings, tree = storage.read(tmp_path / "s.zarr")
    assert (kind, settings) == ("Thing", {"a": [1, None, "x"], "b": {"c": 0.1}})
    np.testing.assert_array_equal(tree["points"], TREE["points"])
    np.testing.assert_array_equal(tree["deep"]["zeros"], np.zeros(3))
    np.testing.assert_array_equal(tree["deep"]["codes"], np.arange(4))
    assert storage.format_version(tmp_path / "s.zarr") == storage.FORMAT_VERSION
    assert os.listdir(tmp_path) == ["s.zarr"]


def test_nothing_is_replaced_unasked(tmp_path):
    path = tmp_path / "s.zarr"
    storage.write(path, "Thing", {}, TREE)
    with pytest.raises(StorageError, match=r"exists; choose another path, or overwrite it"):
        storage.write(path, "Thing", {}, TREE)
    storage.write(path, "Other", {}, {}, overwrite=True)
    assert storage.read(path) == ("Other", {}, {})
    assert os.listdir(tmp_path) == ["s.zarr"]


@pytest.mark.parametrize("stranger", ["file", "folder", "zarr of another"])
def test_what_is_not_ours_is_never_overwritten(tmp_path, stranger):
    path = tmp_path / "s.zarr"
    if stranger == "file":
        path.write_text("precious")
    else:
        path.mkdir()
        (path / "precious.txt").write_text("precious")
    if stranger == "zarr of another":
        (path / "zarr.json").write_text(json.dumps({"attributes": {"format": "other"}}))
    with pytest.raises(StorageError, match="is not a dsgp store"):
        storage.write(path, "Thing", {}, TREE, overwrite=True)
    assert path.exists()
    with pytest.raises(StorageError, match="is not a dsgp store"):
        storage.read(path)


def test_an_interrupted_write_leaves_the_old_store(tmp_path, monkeypatch):
    path = tmp_path / "s.zarr"
    storage.write(path, "Thing", {"version": "old"}, TREE)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "_write_tree", fail)
    with pytest.raises(StorageError, match=r"cannot write .* No space left on device"):
        storage.write(path, "Thing", {"version": "new"}, TREE, overwrite=True)
    assert storage.read(path)[1] == {"version": "old"}
    assert os.listdir(tmp_path) == ["s.zarr"]


def test_a_place_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(StorageError, match="there is no folder"):
        storage.write(tmp_path / "no" / "s.zarr", "Thing", {}, TREE)
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StorageError, match="there is no folder"):
        storage.write(blocker / "s.zarr", "Thing", {}, TREE)


def test_settings_must_be_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        storage.write(tmp_path / "s.zarr", "Thing", {"a": float("nan")}, TREE)
    assert os.listdir(tmp_path) == []


def test_a_later_format_is_refused(tmp_path):
    path = tmp_path / "s.zarr"
    storage.write(path, "Thing", {}, TREE)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"]["format_version"] = 99
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(StorageError, match="format version 99; this release reads up to 3"):
        storage.read(path)


@pytest.mark.parametrize("damage", ["missing chunk", "flipped bit", "truncated"])
def test_a_damaged_array_is_noticed(tmp_path, damage):
    path = tmp_path / "s.zarr"
    storage.write(path, "Thing", {}, TREE)
    chunk = path / "points" / "c" / "0"
    if damage == "missing chunk":
        chunk.unlink()
    elif damage == "truncated":
        chunk.write_bytes(chunk.read_bytes()[:-3])
    else:
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 4
        chunk.write_bytes(content)
    with pytest.raises(StorageError):
        storage.read(path)


def test_a_store_of_an_unknown_kind_is_no_model(tmp_path):
    storage.write(tmp_path / "s.zarr", "Thing", {}, TREE)
    with pytest.raises(StorageError, match="holds a Thing, not a model"):
        dsgp.load(tmp_path / "s.zarr")
    with pytest.raises(StorageError, match="there is no"):
        dsgp.load(tmp_path / "absent.zarr")


def test_a_model_of_format_2_predicts_what_it_did(tmp_path):
    """``data/make_golden.py`` made the store and the numbers."""
    model = dsgp.load(GOLDEN)
    expected = np.load(GOLDEN.with_suffix(".npz"))
    mean, std = model.predict(expected["X"], return_std=True, include_noise=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-10)
    # What is not known of the constant is in it now: all that this takes is in the store.
    inputs = list(expected["X"].T)
    known = np.sqrt(
        std**2 - model.model_.latent.posterior.constant.deviation(inputs, len(mean)) ** 2
    )
    np.testing.assert_allclose(known, expected["std"], rtol=1e-8)
    assert np.all(std > expected["std"])
    shutil.copytree(GOLDEN, tmp_path / "copy.zarr")
    assert dsgp.load(tmp_path / "copy.zarr").summary() == model.summary()


def test_a_model_with_a_foreign_kernel_is_refused(tmp_path):
    path = tmp_path / "m.zarr"
    shutil.copytree(GOLDEN, path)
    metadata = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(metadata.replace('"Matern32"', '"os.system"'))
    with pytest.raises(StorageError, match=r"kernel 'os.system' that this release does not have"):
        dsgp.load(path)


def test_a_model_of_format_1_is_refused_with_a_remedy(tmp_path):
    path = tmp_path / "m.zarr"
    shutil.copytree(GOLDEN, path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"]["format_version"] = 1
    del metadata["attributes"]["settings"]["equations"]
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(StorageError, match=r"format version 1, .* fit it again"):
        dsgp.load(path)
