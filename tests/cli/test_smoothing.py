"""``dsgp smooth`` does what ``GridGP`` does; every bad file or option ends in one clear line."""

import os

import numpy as np
import pytest
import xarray as xr
from distributed import LocalCluster

import dsgp
from dsgp import cli, compute
from dsgp.cli import fields
from dsgp.errors import ParameterError
from dsgp.kernels import Matern52, Periodic, SquaredExponential
from tests.cli.commands import smooth

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")


def field(gaps=True, seed=0):
    """Six days of a field with a cloud and land, whose latitudes descend; and what goes with it."""
    rng = np.random.default_rng(seed)
    grid = {
        "time": xr.date_range("2024-01-01", periods=6),
        "lat": ("lat", np.arange(50.0, 44.0, -1), {"units": "degrees_north"}),
        "lon": np.arange(7.0),
    }
    t, y, x = np.meshgrid(np.arange(6), np.arange(6), np.arange(7), indexing="ij")
    values = 15 + np.sin(t / 3 + y / 4) + np.cos(x / 3) + 0.2 * rng.standard_normal(t.shape)
    ds = xr.Dataset(coords=grid, attrs={"title": "a cruise"})
    ds["sst"] = (("time", "lat", "lon"), values, {"units": "degC", "long_name": "temperature"})
    if gaps:
        ds["sst"][:, 2, 2] = np.nan
        ds["sst"][2, 1:3, 3:6] = np.nan
    return ds


def saved(ds, path):
    if path.suffix == ".nc":
        ds.to_netcdf(path)
    else:
        ds.to_zarr(path, zarr_format=3)
    return str(path)


def posterior(ds, include_noise=False, domain="observed", mask=None, **options):
    model = dsgp.GridGP(
        options.pop("kernels", None), options.pop("noise_variance", None), **options
    )
    model.fit(ds["sst"], mask=mask, domain=domain)
    return model, model.posterior(include_noise)


def require_same(path, expected, exact=True):
    with xr.open_dataset(path) as opened:
        got = opened.rename(sst="mean", sst_std="std")
        for name in ("mean", "std"):
            assert got[name].dims == expected[name].dims
            compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
            compare(got[name].values, expected[name].values)
            assert got[name].attrs["units"] == "degC"
        for name, coordinate in expected.coords.items():
            xr.testing.assert_equal(got.coords[name].variable, coordinate.variable)
        assert got.attrs["title"] == "a cruise"
        assert got.lat.attrs == {"units": "degrees_north"}


@pytest.fixture
def command(capsys):
    """Run ``main`` as the shell would; return exit code, stdout and stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main(["smooth", *map(str, arguments)])
        return end.value.code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Files that no test changes: with gaps, complete, and a model of the first."""
    folder = tmp_path_factory.mktemp("stores")
    saved(field(), folder / "gaps.zarr")
    saved(field(gaps=False), folder / "complete.zarr")
    posterior(field())[0].save(folder / "model.zarr")
    return folder


# ---------------------------------------------------------------- what it does


@pytest.mark.parametrize("ending", [".zarr", ".nc"])
def test_it_writes_what_the_library_gives(tmp_path, ending):
    ds = field()
    data = saved(ds, tmp_path / f"in{ending}")
    out = tmp_path / f"out{ending}"
    result = smooth(data, "--out", out)
    model, expected = posterior(ds)
    require_same(out, expected)
    assert model.summary() in result.stdout
    assert (
        f"mean (sst) and standard deviation (sst_std) of 246 cells saved in {out}" in result.stdout
    )  # but for land
    assert sorted(os.listdir(tmp_path)) == [f"in{ending}", f"out{ending}"]


def test_options_are_passed_on(stores, tmp_path):
    ds = field()
    ds["error"] = 0.03 + 0.001 * ds.lon
    ds["sea"] = ((ds.lat > 45) & (ds.lon > 0)).astype("i1")
    ds["use"] = ds.time < ds.time[5]
    data = saved(ds, tmp_path / "in.nc")
    options = [
        "--kernel",
        "time=matern52",
        "--kernel",
        "lon=periodic:360",
        "--noise-variance",
        "error",
    ]
    options += ["--kernel", "lat=squared-exponential", "--mean", "time", "--scales", 1]
    options += ["--domain", "sea", "--mask", "use", "--include-noise", "--random-state", 5]
    smooth(data, "--variable", "sst", "--out", tmp_path / "out.zarr", *options)
    _, expected = posterior(
        ds,
        include_noise=True,
        domain=ds["sea"] == 1,
        mask=ds["use"],
        kernels={"time": Matern52(), "lon": Periodic(360.0), "lat": SquaredExponential()},
        noise_variance=ds["error"],
        mean="time",
        scales=1,
        random_state=5,
    )
    require_same(tmp_path / "out.zarr", expected)


@pytest.mark.parametrize(
    ("text", "mean"), [("zero", "zero"), ("14.5", 14.5), ("time.month", "time.month")]
)
def test_means(stores, tmp_path, text, mean):
    out = tmp_path / "out.zarr"
    smooth(
        stores / "complete.zarr",
        "--out",
        out,
        "--mean",
        text,
        "--noise-variance",
        "0.04",
        "--fixed-noise",
    )
    require_same(
        out, posterior(field(gaps=False), mean=mean, noise_variance=0.04, fixed_noise=True)[1]
    )


def test_a_mean_can_be_a_variable(tmp_path):
    ds = field(gaps=False)
    ds["usual"] = ds["sst"].mean("time")
    data = saved(ds, tmp_path / "in.zarr")
    smooth(data, "--variable", "sst", "--out", tmp_path / "out.zarr", "--mean", "usual")
    require_same(tmp_path / "out.zarr", posterior(ds, mean=ds["usual"])[1])


def test_gaps_alone_can_be_filled(stores, tmp_path):
    out = tmp_path / "out.zarr"
    smooth(stores / "gaps.zarr", "--out", out, "--keep-observed", "--domain", "all")
    require_same(out, field()["sst"].dsgp.fill(keep_observed=True, domain=None))


def test_a_saved_model_is_used_again(stores, tmp_path):
    first, second = tmp_path / "a.zarr", tmp_path / "b.zarr"
    model_path = tmp_path / "model.zarr"
    result = smooth(stores / "gaps.zarr", "--out", first, "--save-model", model_path)
    assert f"model saved in {model_path}" in result.stdout
    model = dsgp.load(model_path)
    require_same(first, model.posterior())
    # Another field, whose own unit of time would be hours.
    ds = field(seed=1)
    ds["time"] = xr.date_range("2024-03-01", periods=6, freq="12h")
    data = saved(ds, tmp_path / "other.zarr")
    result = smooth(data, "--out", second, "--model", model_path)
    _, expected = posterior(
        ds,
        kernels=model.kernels_,
        noise_variance=model.noise_variance_,
        units={"time": "days"},
        learner=None,
    )
    require_same(second, expected)
    assert "learned from: nothing: given" in result.stdout


def test_the_kernel_of_a_complete_field_is_not_doubled_for_one_with_gaps(stores, tmp_path):
    model, _ = posterior(field(gaps=False))
    model.save(tmp_path / "model.zarr")
    out = tmp_path / "out.zarr"
    smooth(stores / "gaps.zarr", "--out", out, "--model", tmp_path / "model.zarr")
    options = {"noise_variance": model.noise_variance_, "learner": None}
    require_same(out, posterior(field(), kernels=[model.kernels_], **options)[1])


def test_type_chunks_calendar_and_bounds_are_kept(tmp_path):
    ds = field(gaps=False)
    ds["time_bnds"] = (("time", "nv"), np.zeros((6, 2)))
    ds["time"].attrs["bounds"] = "time_bnds"
    ds["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude"})
    ds["sst"].attrs["grid_mapping"] = "crs"
    encoding = {
        "sst": {"dtype": "f4", "chunksizes": (2, 6, 7), "zlib": True},
        "time": {"units": "hours since 2000-01-01", "calendar": "standard"},
    }
    ds.to_netcdf(tmp_path / "in.nc", encoding=encoding)
    for name in ("out.zarr", "out.nc"):
        smooth(tmp_path / "in.nc", "--out", tmp_path / name)
        with xr.open_dataset(tmp_path / name, decode_coords="all") as got:
            assert got["sst"].dtype == got["sst_std"].dtype == np.float32
            own = got["sst"].encoding
            assert own.get("zlib", name.endswith("zarr"))
            assert got["sst"].encoding["grid_mapping"] == "crs"
            assert (own.get("chunks") or own["chunksizes"]) == (2, 6, 7)
            assert got.time.encoding["units"] == "hours since 2000-01-01"
            assert "time_bnds" in got.coords
            assert "crs" in got.coords


def test_a_store_of_zarrs_second_format_is_read(tmp_path):
    ds = field(gaps=False)
    ds.to_zarr(tmp_path / "in", zarr_format=2, consolidated=False)
    smooth(tmp_path / "in", "--out", tmp_path / "out.zarr")
    require_same(tmp_path / "out.zarr", posterior(ds)[1])


# ---------------------------------------------------------------- in pieces


def large(seed=0):
    ds = field(gaps=False, seed=seed)
    return ds.drop_encoding()


def test_a_field_larger_than_the_memory_is_worked_through_in_pieces(tmp_path):
    ds = large()
    data = saved(ds.chunk(time=2), tmp_path / "in.zarr")
    whole, pieces = tmp_path / "whole.zarr", tmp_path / "pieces.zarr"
    smooth(data, "--out", whole)
    result = smooth(data, "--out", pieces, "--memory", "12kB")
    assert "in pieces: " in result.stdout
    assert "mean (sst) and standard deviation (sst_std) of 252 cells saved" in result.stdout
    with xr.open_dataset(whole) as one, xr.open_dataset(pieces) as other:
        for name in ("sst", "sst_std"):
            assert one[name].dims == other[name].dims
            np.testing.assert_allclose(other[name], one[name], rtol=1e-6)
    # Either kind of result can be replaced by either.
    smooth(data, "--out", pieces, "--overwrite")
    smooth(data, "--out", whole, "--overwrite", "--memory", "12kB")


@pytest.mark.parametrize("way", [[], ["--memory", "12kB"]], ids=["in memory", "in pieces"])
def test_a_page_about_the_model_is_written_beside_the_field(stores, tmp_path, command, way):
    pytest.importorskip("vl_convert")
    page = tmp_path / "page.html"
    options = ["--out", tmp_path / "a.zarr", "--noise-variance", "0.04", "--report", page, *way]
    data = stores / ("complete.zarr" if way else "gaps.zarr")
    assert "report saved in" in smooth(data, "--variable", "sst", *options).output
    text = page.read_text(encoding="utf-8")
    assert "GridGP of temperature (degC)" in text
    assert "Observed, 2024-01-04" in text
    for wrong, message in (
        (["--report", page], "--overwrite"),
        (["--report", tmp_path / "page.pdf"], "saved as .html"),
        (["--report", data / "page.html"], "--report"),
        (["--report", tmp_path / "none" / "page.html"], "there is no folder"),
        *([(["--report", tmp_path / "b.html", "--include-noise"], "--include-noise")] * bool(way)),
    ):
        given = [data, "--variable", "sst", "--out", tmp_path / "b.zarr", *way, *wrong]
        code, _, err = command(*given)
        assert code == 1
        assert message in err
        assert not (tmp_path / "b.zarr").exists()


def test_workers_of_a_cluster_do_the_pieces(tmp_path):
    data = saved(large().chunk(time=2), tmp_path / "in.zarr")
    out = tmp_path / "out.zarr"
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        smooth(data, "--out", out, "--memory", "12kB", "--scheduler", cluster.scheduler_address)
    smooth(data, "--out", tmp_path / "threads.zarr", "--memory", "12kB")
    with xr.open_dataset(out) as one, xr.open_dataset(tmp_path / "threads.zarr") as other:
        assert one.attrs.pop("history") != other.attrs.pop("history")  # of another command
        xr.testing.assert_identical(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "out.nc"], "--out must end in .zarr"),
        (["--out", "out.zarr", "--mask", "sst"], "no --mask; give more --memory"),
        (["--out", "out.zarr", "--keep-observed"], "no --keep-observed"),
        (["--out", "out.zarr", "--save-model", "m.zarr"], "no --save-model"),
        (["--out", "out.zarr", "--domain", "sea"], "--domain can be auto, observed, hull or all"),
        (["--out", "out.zarr", "--mean", "time"], "a field on disk can have one noise variance"),
        (["--out", "out.zarr"], "a tile of one chunk"),
    ],
)
def test_what_pieces_cannot_have_is_reported(
    stores, tmp_path, monkeypatch, command, options, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(stores / "gaps.zarr", "--memory", "12kB", *options)
    assert (code, out) == (1, "")
    assert message in err
    assert [line.partition(":")[0] for line in err.splitlines()][-1] == "Error"
    assert err.count("Error") == 1
    assert not os.listdir(tmp_path)


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variable", "t"], "has no variable 't'; it has 'sst' ('time', 'lat', 'lon')"),
        (["--kernel", "time"], "expected DIM=KERNEL, for instance time=matern52"),
        (["--kernel", "x=matern32"], "'x' is not a dim of 'sst', whose dims are time, lat, lon"),
        (["--kernel", "lon=rbf"], "there is no kernel 'rbf'; expected matern12, "),
        (["--kernel", "lon=periodic"], "expected periodic:PERIOD with a positive number"),
        (["--kernel", "lon=periodic:-1"], "expected periodic:PERIOD with a positive number"),
        (["--kernel", "lon=matern32:3"], "there is no kernel 'matern32:3'"),
        (["--kernel", "lon=matern32", "--kernel", "lon=matern12"], "names the dim 'lon' twice"),
        (["--noise-variance", "0"], "noise_variance must be"),
        (["--noise-variance", "error"], "--noise-variance: the file has no variable 'error'"),
        (["--mean", "weird"], "mean: expected"),
        (["--mask", "cloud"], "--mask: the file has no variable 'cloud'"),
        (["--mask", "sst"], "must hold 0 and 1 only"),
        (["--domain", "land"], "--domain: the file has no variable 'land'"),
        (["--scales", "0"], "scales must be a positive integer"),
        (["--memory", "much"], "--memory must be a size such as 1GiB"),
        (["--memory", "12kB", "--scheduler", "tcp://127.0.0.1:9"], "there is no dask scheduler"),
        (["--model", "none.zarr"], "there is no 'none.zarr'"),
        (["--model", "MODEL", "--scales", "2"], "--model has its own kernels; leave out --scales"),
        (["--model", "MODEL", "--kernel", "lon=matern12"], "leave out --kernel"),
        (["--out", "out.csv"], "must end in .zarr or .nc"),
        (["--out", "nowhere/out.zarr"], "there is no folder"),
        (["--save-model", "nowhere/m.zarr"], "there is no folder"),
    ],
)
def test_mistakes_end_in_one_line(stores, tmp_path, monkeypatch, command, options, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compute, "_PATIENCE", "100ms")
    options = [stores / "model.zarr" if option == "MODEL" else option for option in options]
    code, out, err = command(stores / "gaps.zarr", "--out", "out.zarr", *options)
    assert (code, out) == (1, ""), err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not os.listdir(tmp_path)


def test_files_that_are_no_fields_are_reported(tmp_path, command):
    (tmp_path / "text.nc").write_text("no netCDF")
    two = field().assign(salt=lambda ds: ds["sst"] + 1)
    bare = xr.Dataset({"a": ("x", [1.0, 2.0]), "b": ("y", [True, False])})
    for data, message in [
        (tmp_path / "none.nc", "there is no "),
        (tmp_path / "text.nc", "xarray cannot read"),
        (
            saved(two, tmp_path / "two.zarr"),
            "2 variables to choose from; name one: --variable salt | sst",
        ),
        (saved(bare, tmp_path / "bare.zarr"), "no variable of numbers with a coordinate along"),
    ]:
        code, out, err = command(data, "--out", tmp_path / "out.zarr")
        assert (code, out) == (1, "")
        assert message in err
        assert len(err.splitlines()) == 1


def test_what_is_there_is_not_lost(stores, tmp_path, command):
    data = stores / "complete.zarr"
    for name in ("out.zarr", "out.nc"):
        out = tmp_path / name
        smooth(data, "--out", out)
        code, _, err = command(data, "--out", out)
        assert code == 1
        assert "exists; choose another path, or --overwrite" in err
        smooth(data, "--out", out, "--overwrite", "--include-noise")
        require_same(out, posterior(field(gaps=False), include_noise=True)[1])
    code, _, err = command(data, "--out", data, "--overwrite")
    assert code == 1
    assert "is the input" in err


def test_a_failed_fit_leaves_what_was_there(stores, tmp_path, command):
    out = tmp_path / "out.zarr"
    smooth(stores / "complete.zarr", "--out", out)
    ds = field() * np.nan
    data = saved(ds, tmp_path / "nothing.zarr")
    code, _, err = command(data, "--out", out, "--overwrite")
    assert code == 1
    assert "no cell of the field is observed" in err
    require_same(out, posterior(field(gaps=False))[1])
    assert sorted(os.listdir(tmp_path)) == ["nothing.zarr", "out.zarr"]


@pytest.mark.parametrize(
    ("text", "size"), [("1GiB", 2**30), ("500MB", 5e8), ("2e9", 2e9), ("1.5 kib", 1536), ("8b", 8)]
)
def test_sizes(text, size):
    assert fields.bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1.2.3GB", "5 parsecs", "-1GB", "0", "1e999"])
def test_sizes_that_are_none(text):
    with pytest.raises(ParameterError, match="--memory must be a size"):
        fields.bytes_of(text)


def test_gaps_in_pieces_are_filled_tile_by_tile(stores, tmp_path):
    smooth(stores / "gaps.zarr", "--out", tmp_path / "tiles.zarr", "--memory", "600kB")
    smooth(stores / "gaps.zarr", "--out", tmp_path / "whole.zarr")
    with (
        xr.open_zarr(tmp_path / "tiles.zarr", consolidated=False) as tiles,
        xr.open_zarr(tmp_path / "whole.zarr") as whole,
    ):
        assert (tiles["sst"].isnull() == whole["sst"].isnull()).all()
        apart = abs(tiles["sst"] - whole["sst"]) / whole["sst_std"]
        assert float(apart.mean()) < 0.3
