"""Tables, models and fields at addresses: fsspec's memory, and a server of this machine."""

import contextlib
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner
from upath import UPath

import dsgp
from dsgp import cli, storage
from dsgp.addresses import address_of, parts_within, place_of, upload, without_secrets
from dsgp.cli import app
from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.places import require_apart
from dsgp.rows.sinks import written_aside, written_parts
from dsgp.rows.sources import Stored, open_table, read_table

ADDRESSES = ["s3://bucket/a.parquet", "https://host/a.csv", "gs://b/dir/*.parquet"]


@pytest.fixture
def memory():
    """An empty folder of fsspec's memory."""
    place = UPath(f"memory://dsgp-{uuid4().hex}")
    place.mkdir()
    yield place
    with contextlib.suppress(FileNotFoundError):
        place.fs.rm(place.path, recursive=True)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler, folder):
    """Give the address at which a folder of this machine is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def served(tmp_path):
    """A folder and the address at which it is served."""
    with serving(_Quiet, tmp_path) as address:
        yield tmp_path, address


def frame_of(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 1, n))
    frame = pd.DataFrame({"id": [f"{i:04}" for i in range(n)], "x": x, "z": rng.uniform(size=n)})
    return frame.assign(y=np.sin(6 * x) + 0.1 * rng.standard_normal(n))


def quick():
    return dsgp.AdditiveGPRegressor(
        dsgp.kernels.Matern32(0.3, 1.0), noise_variance=0.01, learner=None
    )


def dsgp_of(*arguments):
    """Run the command, and return its output; errors are raised."""
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False).output


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_path_has_one_slash_and_means_the_address(address, kind):
    assert address_of(kind(address)) == address


@pytest.mark.parametrize("path", ["a.csv", "/tmp/a.csv", "C:/data/a.csv", "a:b.csv", "data/*.csv"])
def test_paths_are_no_addresses(path):
    assert address_of(path) is None
    assert address_of(Path(path)) is None


def test_a_folder_that_is_there_is_no_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    Path("s3:/a.csv").touch()
    assert address_of("s3:/a.csv") is None


def test_an_address_of_this_disk_is_a_path(tmp_path):
    frame_of().to_csv(tmp_path / "a b.csv", index=False)
    for address in (f"file://{tmp_path}/a%20b.csv", f"file:{tmp_path}/a%20b.csv"):
        assert place_of(address) == tmp_path / "a b.csv"
        assert len(read_table(address)) == 60


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere://bucket/a.csv", "cannot be opened"),
        ("dropbox://a.csv", "needs another package|cannot be opened"),
    ],
)
def test_what_is_lacking_is_said(address, said):
    for read in (read_table, open_table, dsgp.load):
        with pytest.raises(StorageError, match=said) as error:
            read(address)
        assert address in str(error.value)


def test_options_are_a_mapping_and_addresses_go_one_way(tmp_path):
    with pytest.raises(ParameterError, match=r"storage_options must be a mapping.* got str"):
        dsgp.load("memory://m.zarr", storage_options="anon=true")
    for address in ("memory://x/../m.zarr", "s3://bucket/../a.csv"):
        with pytest.raises(StorageError, match=r"'\.\.' in an address"):
            place_of(address)


@pytest.mark.parametrize("name", ["a#b.csv", "a?b.csv", "a[1].csv"])
def test_odd_names_are_names_but_of_web_servers(name, memory):
    (memory / name).write_text("x,y\n1,2\n")
    assert read_table(f"{memory}/{name}").shape == (1, 2)
    assert len(open_table(f"{memory}/{name}").parts) == 1


def test_a_wrong_option_is_reported_as_that(served):
    folder, address = served
    frame_of().to_csv(folder / "a.csv", index=False)
    with pytest.raises(StorageError, match=r"nonsense.*storage_options, --storage-option"):
        dsgp_of("fit", f"{address}/a.csv", "--target", "y", "--out", folder / "m.zarr",
                "--storage-option", "nonsense=1")  # fmt: skip


def test_options_of_a_path_of_this_machine_are_refused(tmp_path):
    frame_of().to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ParameterError, match="storage_options are for addresses"):
        read_table(tmp_path / "a.csv", storage_options={"anon": True})


# ---------------------------------------------------------------------- tables

ENDINGS = ["csv", "csv.gz", "parquet"]


def write(frame, folder, name):
    """Write a table into a folder of this machine."""
    if name.endswith("parquet"):
        frame.to_parquet(folder / name, row_group_size=20)
    else:
        frame.to_csv(folder / name, index=False)


def put(folder, place):
    """Copy a folder into fsspec's memory."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            place.fs.put_file(str(file), f"{place.path}/{file.relative_to(folder).as_posix()}")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_table_in_memory_is_that_of_a_disk(ending, memory, tmp_path):
    frame = frame_of()
    write(frame, tmp_path, f"a.{ending}")
    put(tmp_path, memory)
    for address in (f"{memory}/a.{ending}", memory / f"a.{ending}"):
        pd.testing.assert_frame_equal(read_table(address), read_table(tmp_path / f"a.{ending}"))
    table = Stored(
        f"{memory}/a.{ending}", drop=["id"], storage_options={"skip_instance_cache": True}
    )
    here = Stored(tmp_path / f"a.{ending}", drop=["id"])
    np.testing.assert_array_equal(
        quick().fit(table, "y").predict(frame[["x", "z"]]),
        quick().fit(here, "y").predict(frame[["x", "z"]]),
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_table_of_a_server_is_that_of_a_disk(ending, served):
    folder, address = served
    write(frame_of(), folder, f"a.{ending}")
    expected = read_table(folder / f"a.{ending}")
    pd.testing.assert_frame_equal(read_table(f"{address}/a.{ending}"), expected)
    pd.testing.assert_frame_equal(read_table(f"{address}/a.{ending}?key=1#x"), expected)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("how", ["folder", "pattern"])
@pytest.mark.parametrize("elsewhere", ["memory", "served"])
def test_parts_at_an_address_come_in_their_order(ending, how, elsewhere, request):
    place = request.getfixturevalue(elsewhere)
    folder, address = (
        place if elsewhere == "served" else (request.getfixturevalue("tmp_path"), place)
    )
    frame = frame_of()
    (folder / "parts").mkdir()
    for k in (0, 2, 10):
        write(frame[k * 4 : k * 4 + 4], folder / "parts", f"part-{k}.{ending}")
    write(frame, folder / "parts", f"_part-3.{ending}")
    if elsewhere == "memory":
        put(folder, place)
    table = open_table(f"{address}/parts" + (f"/*.{ending}" if how == "pattern" else ""))
    blocks = [block.read() for block in table.blocks(["x"], ["x"])]
    np.testing.assert_array_equal(
        np.concatenate([block["x"] for block in blocks]),
        frame["x"].to_numpy()[[0, 1, 2, 3, 8, 9, 10, 11, 40, 41, 42, 43]],
    )


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_zarr_table_at_an_address(consolidated, zarr_format, memory):
    frame = frame_of()[["x", "z", "y"]]
    ds = xr.Dataset({name: ("row", frame[name].to_numpy()) for name in frame})
    ds.to_zarr(f"{memory}/a.zarr", zarr_format=zarr_format, consolidated=consolidated)
    model = quick().fit(f"{memory}/a.zarr", "y")
    expected = quick().fit(frame[["x", "z"]], frame["y"])
    np.testing.assert_allclose(model.predict(frame), expected.predict(frame), atol=1e-10)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent.csv", "there is no file"),
        ("absent/*.csv", "no file matches"),
        ("a.txt", "cannot determine the format"),
        ("bad.parquet", "cannot be read as the Parquet file"),
        ("semicolons.csv", "seems to be separated by ';'"),
    ],
)
@pytest.mark.parametrize("elsewhere", ["memory", "served"])
def test_what_is_wrong_with_a_table_is_said_as_of_a_disk(name, said, elsewhere, request):
    place = request.getfixturevalue(elsewhere)
    folder, address = (
        place if elsewhere == "served" else (request.getfixturevalue("tmp_path"), place)
    )
    (folder / "a.txt").write_text("a")
    (folder / "bad.parquet").write_text("a")
    (folder / "semicolons.csv").write_text("x;y\n1;2\n3;4\n")
    if elsewhere == "memory":
        put(folder, place)
    with pytest.raises(DataError, match=said) as error:
        open_table(f"{address}/{name}").require(["x"])
    assert f"{address}/{name}" in str(error.value)


@pytest.mark.parametrize("read", [read_table, open_table, dsgp.load])
def test_a_server_that_does_not_answer_is_reported_as_that(read):
    with pytest.raises(StorageError, match=r"cannot be read: Cannot connect to host 127\.0\.0\.1"):
        read("http://127.0.0.1:9/a.csv")


class _Bare(_Quiet):
    """A server that lists nothing, and whose folder 'closed' it refuses."""

    def list_directory(self, path):
        self.send_error(403 if "closed" in str(path) else 404)

    def do_HEAD(self):
        self.send_error(403) if "closed" in self.path else super().do_HEAD()

    def do_GET(self):
        self.send_error(403) if "closed" in self.path else super().do_GET()


@pytest.fixture
def bare(tmp_path):
    with serving(_Bare, tmp_path) as address:
        yield tmp_path, address


@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:.*shortest.*")
def test_a_store_of_a_server_without_listings(bare):
    folder, address = bare
    field_of().to_zarr(folder / "f.zarr", consolidated=True)
    dsgp_of("smooth", f"{address}/f.zarr", *SMOOTH, "--out", folder / "o.zarr")
    assert xr.open_zarr(folder / "o.zarr")["t"].shape == (12, 14)
    ds = field_of().fillna(0.0)
    ds.to_zarr(folder / "g.zarr", consolidated=True)
    kernel = dsgp.kernels.Matern32(3.0, 1.0)
    model = dsgp.GridGP({"lat": kernel, "lon": kernel}, noise_variance=0.01, learner=None)
    model.smooth_store(f"{address}/g.zarr", "t", folder / "p.zarr", memory=1e6)
    assert xr.open_zarr(folder / "p.zarr")["mean"].shape == (12, 14)


@pytest.mark.parametrize("read", [read_table, open_table, dsgp.load])
def test_what_a_server_refuses_is_not_said_to_be_absent(bare, read):
    _, address = bare
    with pytest.raises(StorageError, match=r"cannot be read: 403"):
        read(f"{address}/closed/a.csv")
    with pytest.raises((DataError, StorageError), match=r"there is no"):
        read(f"{address}/absent/a.csv")


@pytest.mark.parametrize("listed", ["m.zarr/../evil", "m.zarr/a/../../evil", "evil", "m.zarr"])
def test_what_is_listed_elsewhere_is_not_written_here(listed):
    with pytest.raises(StorageError, match="does not lie in it"):
        parts_within(Path("/store", listed), Path("/store/m.zarr"))
    assert parts_within(Path("/store/m.zarr/a/0"), Path("/store/m.zarr")) == ("a", "0")


@pytest.mark.parametrize("kind", [str, Path])
def test_passwords_and_queries_are_left_out_of_messages(kind):
    assert without_secrets(str(kind("sftp://me:word@host/a.nc"))) == "sftp://host/a.nc"
    assert without_secrets(str(kind("https://host/a.nc?key=1"))) == "https://host/a.nc"
    for plain in ("sst.nc", "s3://bucket/a?.csv", "a#b.nc"):
        assert without_secrets(plain) == plain


# ---------------------------------------------------------------------- models


def test_a_model_goes_to_an_address_and_comes_back(memory):
    frame = frame_of()
    model = quick().fit(frame[["x", "z"]], frame["y"])
    address = f"{memory}/models/m.zarr"
    model.save(address)
    np.testing.assert_array_equal(dsgp.load(address).predict(frame), model.predict(frame))
    assert storage.format_version(address) == storage.FORMAT_VERSION
    with pytest.raises(StorageError, match="exists; choose another path"):
        model.save(address)
    other = quick().fit(frame[["x"]], frame["y"])
    other.save(address, overwrite=True)
    np.testing.assert_array_equal(
        dsgp.load(address).predict(frame[["x"]]), other.predict(frame[["x"]])
    )


def test_a_name_that_looks_like_a_pattern_takes_no_other_model_away(memory):
    frame = frame_of()
    model = quick().fit(frame[["x"]], frame["y"])
    model.save(f"{memory}/ma.zarr")
    for name in ("m*.zarr", "m?.zarr", "m[a].zarr"):
        with pytest.raises(StorageError, match="mark a pattern; choose another name"):
            model.save(f"{memory}/{name}", overwrite=True)
    np.testing.assert_array_equal(
        dsgp.load(f"{memory}/ma.zarr").predict(frame[["x"]]), model.predict(frame[["x"]])
    )


@pytest.mark.parametrize("elsewhere", [True, False])
def test_nothing_goes_into_a_store_with_which_it_would_be_lost(elsewhere, memory, tmp_path):
    frame = frame_of()
    model = quick().fit(frame[["x"]], frame["y"])
    place = memory if elsewhere else tmp_path
    model.save(place / "m.zarr")
    for name in ("m.zarr/inner.zarr", "m.zarr/terms/inner.zarr"):
        with pytest.raises(StorageError, match="lies in the zarr store"):
            model.save(place / name)
    with (
        pytest.raises(StorageError, match="lies in the zarr store"),
        written_aside(place / "m.zarr" / "p.csv", overwrite=False),
    ):
        pass


def test_what_is_no_model_stays(memory):
    (memory / "notes.zarr").mkdir()
    (memory / "notes.zarr" / "a.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a dsgp store, so it is not overwritten"):
        storage.check_writable(memory / "notes.zarr", overwrite=True)
    with pytest.raises(StorageError, match="is not a dsgp store"):
        dsgp.load(memory / "notes.zarr")
    assert (memory / "notes.zarr" / "a.txt").read_text() == "mine"


def test_a_model_of_a_server_is_read_and_never_written(served):
    folder, address = served
    frame = frame_of()
    model = quick().fit(frame[["x", "z"]], frame["y"])
    model.save(folder / "m.zarr")
    np.testing.assert_array_equal(
        dsgp.load(f"{address}/m.zarr").predict(frame), model.predict(frame)
    )
    with pytest.raises(StorageError, match=r"cannot write to .*a path on this machine"):
        storage.check_writable(f"{address}/other.zarr")
    with pytest.raises(StorageError, match="there is no"):
        dsgp.load(f"{address}/other.zarr")


def test_what_breaks_on_its_way_up_is_taken_away(memory, tmp_path, monkeypatch):
    made = tmp_path / "made"
    (made / "t").mkdir(parents=True)
    (made / "zarr.json").write_text("{}")
    (made / "t" / "0").write_text("a")
    seen = []
    put_files = type(memory.fs).put

    def breaking(fs, local, remote, **options):
        seen.append([Path(name).name for name in local])
        if local[0].endswith("zarr.json"):
            raise OSError("the line is dead")
        return put_files(fs, local, remote, **options)

    monkeypatch.setattr(type(memory.fs), "put", breaking)
    with pytest.raises(StorageError, match="the line is dead"):
        upload(made, memory / "s.zarr")
    assert seen == [["0"], ["zarr.json"]]  # the root is last
    assert not (memory / "s.zarr").exists()


def test_a_file_that_does_not_go_up_is_kept_and_the_one_before_too(memory, monkeypatch):
    (memory / "p.csv").write_text("mean,std,lower,upper\n")

    def breaking(*_, **__):
        raise OSError("the line is dead")

    monkeypatch.setattr(type(memory.fs), "put_file", breaking)
    with (
        pytest.raises(StorageError, match="the line is dead; the result is kept at") as error,
        written_aside(memory / "p.csv", overwrite=True) as aside,
    ):
        aside.write_text("hours of work")
    kept = Path(str(error.value).rpartition("kept at ")[2].strip("'"))
    assert kept.read_text() == "hours of work"
    assert (memory / "p.csv").read_text() == "mean,std,lower,upper\n"
    shutil.rmtree(kept.parent)


def test_predictions_go_to_an_address(memory):
    table = pd.DataFrame({"mean": [1.0], "std": [0.1], "lower": [0.8], "upper": [1.2]})
    with written_aside(memory / "p.csv", overwrite=False) as aside:
        table.to_csv(aside, index=False)
        assert not (memory / "p.csv").exists()
    with written_parts(memory / "parts") as add:
        add(table, 0)
        add(table, 1)
    assert (memory / "p.csv").read_text().startswith("mean,std")
    names = sorted(part.name for part in (memory / "parts").iterdir())
    assert names == ["part-00000.parquet", "part-00001.parquet"]
    for again in (
        written_aside(memory / "p.csv", overwrite=False),
        written_parts(memory / "parts"),
    ):
        with pytest.raises(StorageError, match="exists; choose another path, or --overwrite"):
            again.__enter__()
    (memory / "parts" / "other.txt").write_text("mine")
    with pytest.raises(StorageError, match="it does not hold predictions"):
        written_parts(memory / "parts", overwrite=True).__enter__()
    with pytest.raises(KeyError), written_aside(memory / "q.csv", overwrite=False):
        raise KeyError
    assert not (memory / "q.csv").exists()


@pytest.mark.parametrize(
    ("out", "source", "how"),
    [
        ("memory://b/p.csv", "memory://b/*.csv", "is"),
        ("memory:/b/a.zarr", "memory://b/a.zarr", "is"),
        ("memory://b/a1.csv", "memory://b/a?.csv", "is"),
        ("memory://b/a1.csv", "memory://b/[ab]1.csv", "is"),
        ("MEMORY://b//x/../a.csv", "memory://b/./a.csv", "is"),
        ("sftp://me:word@h/a.csv", "sftp://h/a.csv", "is"),
        ("memory://b/a.zarr/x.zarr", "memory://b/a.zarr", "lies in"),
        ("memory://b", "memory://b/a.zarr", "contains"),
    ],
)
def test_nothing_goes_onto_an_input_at_an_address(out, source, how):
    with pytest.raises(StorageError, match=f" {how} the input "):
        require_apart(out, [source])
    require_apart("memory://b/tables/m.zarr", ["memory://b/tables"])
    require_apart("memory://b/sub/p.csv", ["memory://b/*.csv"])


# ---------------------------------------------------------------------- commands


def test_tables_and_models_of_commands(memory, tmp_path):
    frame = frame_of()
    write(frame, tmp_path, "a.csv")
    put(tmp_path, memory)
    fit = ["--target", "y", "--drop", "id", "--learner", "none", "--lengthscale", "0.3",
           "--variance", "1", "--noise-variance", "0.01"]  # fmt: skip
    said = dsgp_of("fit", f"{memory}/a.csv", *fit, "--out", f"{memory}/m.zarr")
    assert f"saved in {memory}/m.zarr" in said
    dsgp_of("fit", tmp_path / "a.csv", *fit, "--out", tmp_path / "m.zarr")
    predict = ["--keep", "id", "--storage-option", "skip_instance_cache=true"]
    dsgp_of("predict", f"{memory}/m.zarr", f"{memory}/a.csv", *predict, "--out", f"{memory}/p.csv")
    dsgp_of(
        "predict",
        tmp_path / "m.zarr",
        tmp_path / "a.csv",
        *predict[:2],
        "--out",
        tmp_path / "p.csv",
    )
    assert (memory / "p.csv").read_text() == (tmp_path / "p.csv").read_text()
    assert "AdditiveGPRegressor" in dsgp_of("info", f"{memory}/m.zarr")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["anon"], "expected KEY=VALUE"),
        (["=x"], "expected KEY=VALUE"),
        (["a=1", "a=2"], "twice"),
        (["a=1"], "there is none"),
    ],
)
def test_storage_options_that_are_none(given, said, tmp_path):
    frame_of().to_csv(tmp_path / "a.csv", index=False)
    options = [word for one in given for word in ("--storage-option", one)]
    with pytest.raises(ParameterError, match=said):
        dsgp_of("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "m.zarr", *options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "s3://b/a.csv", "--target", "y", "--out", "m.zarr"],
        ["fit", "a.csv", "--target", "y", "--out", "s3://b/m.zarr"],
        ["predict", "s3://b/m.zarr", "a.csv", "--out", "p.csv"],
        ["predict", "m.zarr", "a.csv", "--out", "s3://b/p.csv"],
        ["smooth", "s3://b/a.nc", "--out", "o.zarr"],
        ["smooth", "a.nc", "--out", "s3://b/o.zarr"],
        ["info", "s3://b/m.zarr"],
    ],
)
def test_commands_name_the_package_that_is_lacking(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    inputs = [path for path in ("a.csv", "a.nc", "m.zarr") if path in arguments[1:3]]
    for path in inputs:  # local ones, none of which is read
        (tmp_path / path).touch()
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 1
    message = capsys.readouterr().err
    assert next(one for one in arguments if "://" in one) in message
    assert "needs another package: Install s3fs" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == inputs


def field_of():
    rng = np.random.default_rng(0)
    lat, lon = np.arange(12.0), np.arange(14.0)
    values = np.sin(lat[:, None] / 3) + np.cos(lon / 4) + 0.05 * rng.standard_normal((12, 14))
    values[3:5, 2:6] = np.nan
    da = xr.DataArray(values, {"lat": lat, "lon": lon}, name="t", attrs={"units": "K"})
    return da.to_dataset()


SMOOTH = ["--kernel", "lat=matern32", "--scales", "1"]


@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:.*shortest.*")
@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_fields_of_commands(ending, memory, served):
    folder, address = served
    ds = field_of()
    ds.to_zarr(folder / "f.zarr") if ending == "zarr" else ds.to_netcdf(folder / "f.nc")
    put(folder, memory)
    dsgp_of("smooth", folder / f"f.{ending}", *SMOOTH, "--out", folder / "here.zarr")
    expected = xr.open_zarr(folder / "here.zarr")
    told = ["--storage-option", "skip_instance_cache=true"]
    dsgp_of("smooth", f"{memory}/f.{ending}", *SMOOTH, "--out", f"{memory}/out.zarr", *told,
            "--save-model", f"{memory}/m.zarr")  # fmt: skip
    made = xr.open_zarr(f"{memory}/out.zarr")
    xr.testing.assert_identical(made.drop_attrs(), expected.drop_attrs())
    assert "skip_instance_cache=…" in made.attrs["history"]
    asked = "?key=secret" if ending == "nc" else ""
    dsgp_of("smooth", f"{address}/f.{ending}{asked}", "--model", f"{memory}/m.zarr",
            "--out", f"{memory}/again.nc")  # fmt: skip
    put_back = folder / "again.nc"
    memory.fs.get_file(f"{memory.path}/again.nc", str(put_back))
    with xr.open_dataset(put_back) as again:
        np.testing.assert_allclose(again["t"], expected["t"], atol=1e-6)
        assert "secret" not in again.attrs["history"]
    with pytest.raises(StorageError, match=r"exists; choose another path, or --overwrite"):
        dsgp_of("smooth", f"{memory}/f.{ending}", *SMOOTH, "--out", f"{memory}/out.zarr")
    dsgp_of("smooth", f"{memory}/f.{ending}", *SMOOTH, "--out", f"{memory}/out.zarr", "--overwrite")


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_field_at_an_address_in_pieces(consolidated, memory, tmp_path):
    ds = field_of().fillna(0.0)
    ds.to_zarr(f"{memory}/f.zarr", consolidated=consolidated)
    ds.to_zarr(tmp_path / "f.zarr", consolidated=consolidated)
    model = dsgp.GridGP(
        {dim: dsgp.kernels.Matern32(3.0, 1.0) for dim in ("lat", "lon")},
        noise_variance=0.01,
        learner=None,
    )
    model.smooth_store(f"{memory}/f.zarr", "t", tmp_path / "out.zarr", memory=1e6)
    model.smooth_store(tmp_path / "f.zarr", "t", tmp_path / "expected.zarr", memory=1e6)
    xr.testing.assert_equal(
        xr.open_zarr(tmp_path / "out.zarr"), xr.open_zarr(tmp_path / "expected.zarr")
    )
    with pytest.raises(StorageError, match="cannot write to the address"):
        model.smooth_store(tmp_path / "f.zarr", "t", f"{memory}/out.zarr")
