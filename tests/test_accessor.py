"""The accessor gives what ``GridGP`` gives, and lazily where the field is lazy."""

import subprocess
import sys
import warnings
from contextlib import contextmanager

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client

import dsgp
from dsgp import memory
from dsgp.errors import DataError, DataWarning, MemoryLimitError, ParameterError
from dsgp.kernels import Matern32, Matern52

KEPT = {"noise_variance": 0.04, "kernels": None, "learner": None}


def kept(*dims):
    """Options with which nothing is learnt."""
    kernels = {dim: Matern52(lengthscale=3.0, variance=1.0) for dim in dims}
    return {"kernels": kernels, "noise_variance": 0.04, "learner": None}


def field(gaps=True, time=True, seed=0):
    """A field with a cloud and land, whose latitudes descend."""
    rng = np.random.default_rng(seed)
    days = xr.date_range("2024-01-01", periods=6)
    grid = {"time": days, "lat": np.arange(50.0, 44.0, -1), "lon": np.arange(7.0)}
    t, y, x = np.meshgrid(*(np.arange(len(values)) for values in grid.values()), indexing="ij")
    values = 15 + np.sin(t / 3 + y / 4) + np.cos(x / 3) + 0.2 * rng.standard_normal(t.shape)
    da = xr.DataArray(values, grid, name="sst", attrs={"units": "degC"})
    da.coords["season"] = ("time", ["winter"] * 6)
    if gaps:
        da = da.where((da.lat != 48) | (da.lon != 2))
        da[2, 1:3, 3:6] = np.nan
    return da if time else da.isel(time=0, drop=True)


@contextmanager
def computing_raises():
    def refuse(*_args, **_options):
        raise RuntimeError("something was computed")

    with dask.config.set(scheduler=refuse):
        yield


@pytest.fixture
def fits(monkeypatch):
    """Shapes of the fields that were fitted."""
    seen = []
    fit = dsgp.GridGP.fit

    def counted(self, da, *args, **options):
        seen.append(da.shape)
        return fit(self, da, *args, **options)

    monkeypatch.setattr(dsgp.GridGP, "fit", counted)
    return seen


# ---------------------------------------------------------------- at once


@pytest.mark.parametrize("gaps", [False, True])
def test_smooth_is_the_posterior_of_a_grid_gp(gaps):
    da = field(gaps)
    options = kept(*da.dims) | {"mean": "time", "random_state": 3}
    got = da.dsgp.smooth(include_noise=True, **options)
    expected = dsgp.GridGP(**options).fit(da).posterior(include_noise=True)
    xr.testing.assert_identical(got, expected)
    assert got["mean"].dims == da.dims
    assert got["mean"].attrs["units"] == "degC"
    assert got["mean"].notnull().all()


def test_mask_and_domain_are_those_of_fit():
    da = field()
    sea = (da.lat != 48) | (da.lon != 2)
    early = da.time < da.time[4]
    got = da.dsgp.smooth(mask=early, domain=sea, **kept(*da.dims))
    expected = dsgp.GridGP(**kept(*da.dims)).fit(da, mask=early, domain=sea).posterior()
    xr.testing.assert_identical(got, expected)
    assert (got["mean"].isnull() == ~sea).all()


def test_fill_leaves_land_empty_where_there_is_time():
    da = field()
    land = (da.lat == 48) & (da.lon == 2)
    filled = da.dsgp.fill(**kept(*da.dims))
    for moment in ("mean", "std"):
        assert (filled[moment].isnull() == land).all()
    everywhere = da.dsgp.fill(domain=None, **kept(*da.dims))
    assert everywhere["mean"].notnull().all()
    xr.testing.assert_allclose(filled, everywhere.where(~land))
    map_ = field(time=False)
    assert map_.dsgp.fill(**kept(*map_.dims))["mean"].notnull().all()


def test_fill_can_keep_what_was_observed_with_the_error_of_the_noise():
    da = field()
    use = da.time != da.time[5]
    filled = da.dsgp.fill(mask=use, **kept(*da.dims))
    result = da.dsgp.fill(mask=use, keep_observed=True, **kept(*da.dims))
    seen = da.notnull() & use
    np.testing.assert_array_equal(result["mean"].values[seen], da.values[seen])
    np.testing.assert_allclose(result["std"].values[seen], 0.2)
    for moment in ("mean", "std"):
        np.testing.assert_array_equal(result[moment].values[~seen], filled[moment].values[~seen])
    each = (0.01 + 0.01 * da.lat * (da.lon + 1) / 50).transpose("lon", "lat")
    options = kept(*da.dims) | {"noise_variance": each}
    result = da.dsgp.fill(keep_observed=True, **options)
    seen = da.notnull().values
    expected = np.sqrt(np.broadcast_to(each.transpose("lat", "lon"), da.shape)[seen])
    np.testing.assert_allclose(result["std"].values[seen], expected)
    noisy = da.dsgp.fill(keep_observed=True, include_noise=True, **kept(*da.dims))
    np.testing.assert_allclose(noisy["std"].values[seen], 0.2 * np.sqrt(2))


def test_interp_predicts_another_grid():
    da = field()
    where = {"lon": [5.5, 0.5], "time": "2024-01-02T12:00"}
    got = da.dsgp.interp(where, lat=[47.5], **kept(*da.dims))
    model = dsgp.GridGP(**kept(*da.dims)).fit(da)
    xr.testing.assert_identical(got, model.predict(lat=[47.5], **where))
    assert got["mean"].dims == ("lat", "lon")
    np.testing.assert_array_equal(got.lon, [5.5, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda da: da.dsgp.smooth(men="zero"), "'men' is not an option.*did you mean 'mean'"),
        (lambda da: da.dsgp.interp(latt=[1]), "'latt' is not one of the dims.*mean 'lat'"),
        (lambda da: da.dsgp.interp({"x": [1]}), "'x' is not a dim of the field"),
        (lambda da: da.dsgp.smooth({"x": Matern32()}), "'x' is not a dim of the field"),
    ],
)
def test_unknown_names_are_reported(call, message):
    with pytest.raises(ParameterError, match=message):
        call(field())


# ---------------------------------------------------------------- lazily

CHUNKS = [{"time": 2}, {"time": 4, "lat": 3, "lon": (5, 2)}, {}]


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_lazy_in_lazy_out(chunks, fits):
    da = field()
    lazy = da.chunk(chunks)
    eager = da.dsgp.fill(**kept(*da.dims))
    fits.clear()
    with computing_raises():
        result = lazy.dsgp.fill(**kept(*da.dims))
    assert not fits
    assert result["mean"].chunks == result["std"].chunks == lazy.chunks
    done = result.compute()
    assert fits == [da.shape]
    xr.testing.assert_identical(done, eager)


def test_mean_and_std_share_the_fit_also_on_the_way_to_a_store(tmp_path, fits):
    da = field(gaps=False)
    result = da.chunk({"time": 2}).dsgp.smooth(**kept(*da.dims))
    dask.compute(result["mean"], result["std"] ** 2, result["mean"][0].mean())
    assert len(fits) == 1
    fits.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr
        result.to_zarr(tmp_path / "out.zarr")
    assert len(fits) == 1
    with xr.open_zarr(tmp_path / "out.zarr") as stored:
        assert stored.chunksizes["time"] == (2, 2, 2)
        np.testing.assert_array_equal(stored["mean"], da.dsgp.smooth(**kept(*da.dims))["mean"])


def test_what_goes_with_a_lazy_field_is_lazy_too():
    da = field()
    noise = (0.01 + 0.001 * da.lon * da.lat).transpose("lon", "lat")
    sea = ((da.lat != 48) | (da.lon != 2)).isel(lat=slice(None, None, -1))
    mean = da.mean("time").fillna(15.0)
    options = kept(*da.dims) | {"noise_variance": noise, "mean": mean}
    expected = da.dsgp.smooth(mask=da > 13.5, domain=sea, **options)
    with computing_raises(), warnings.catch_warnings():
        warnings.simplefilter("error")
        lazy = da.chunk(time=3, lon=4)
        options |= {"noise_variance": noise.chunk(lat=2), "mean": mean.chunk()}
        result = lazy.dsgp.smooth(mask=lazy > 13.5, domain=sea.chunk(lat=1), **options)
    xr.testing.assert_identical(result.compute(), expected)


def test_interp_is_lazy():
    da = field()
    where = {"lon": [5.5, 0.5, 2.0], "time": "2024-01-02T12:00"}
    expected = da.dsgp.interp(where, **kept(*da.dims))
    with computing_raises():
        result = da.chunk(lat=2, lon=3).dsgp.interp(where, **kept(*da.dims))
    assert result.chunksizes["lat"] == (2, 2, 2)
    xr.testing.assert_identical(result.compute(), expected)


def test_a_lazy_field_says_at_once_what_needs_no_values():
    lazy = field().chunk()
    with computing_raises():
        with pytest.raises(ParameterError, match="'x' is not a dim"):
            lazy.dsgp.smooth({"x": Matern32()})
        with pytest.raises(DataError, match="mask: expected dims among"):
            lazy.dsgp.smooth(mask=lazy.rename(lon="x") > 0)
        with pytest.raises(DataError, match="dtype"):
            (lazy > 0).dsgp.smooth()
        with pytest.raises(DataError, match="'lat' has no coordinate"):
            lazy.drop_vars("lat").dsgp.smooth()
        bad = lazy.where(lazy < 0)
        result = bad.dsgp.smooth()
    with pytest.raises(DataError, match="no cell of the field is observed"):
        result.compute()


def test_a_lazy_field_larger_than_memory_is_refused_with_the_command(monkeypatch):
    lazy = field().chunk()
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    with computing_raises(), pytest.raises(MemoryLimitError, match=r"dsgp smooth IN\.zarr"):
        lazy.dsgp.smooth()


def test_gaps_that_need_more_memory_are_met_when_computed(monkeypatch):
    lazy = field().chunk()
    monkeypatch.setattr(memory, "available", lambda: 250 * lazy.size)
    result = lazy.dsgp.smooth(**kept(*lazy.dims))
    with pytest.raises(MemoryLimitError, match=f"a field of {lazy.size} cells"):
        result.compute()


def test_a_worker_fits_as_the_caller_does(fits):
    da = field()
    expected = da.dsgp.fill(**kept(*da.dims))
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        result = da.chunk(time=2).dsgp.fill(**kept(*da.dims))
        done = client.compute(result).result(timeout=60)
    xr.testing.assert_allclose(done, expected)


# ---------------------------------------------------------------- Datasets


def dataset():
    da = field()
    ds = xr.Dataset({"sst": da, "level": da.mean("lon") / 3})
    ds["time_bnds"] = (("time", "nv"), np.zeros((6, 2)))
    ds["crs"] = ((), 0, {"grid_mapping_name": "latitude_longitude"})
    ds["sst"].attrs["grid_mapping"] = "crs"
    ds["time"].attrs["bounds"] = "time_bnds"
    ds.attrs["title"] = "a cruise"
    return ds


def test_every_field_of_a_dataset_is_smoothed():
    ds = dataset()
    ds["level"] = ds["level"].where(ds.lat != ds.lat[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ds.dsgp.fill(domain="observed", **kept("time", "lat", "lon"))
    assert set(result.data_vars) == {
        "sst_mean", "sst_std", "level_mean", "level_std", "time_bnds", "crs",
    }  # fmt: skip
    assert result.attrs == ds.attrs
    for name, dims in (("sst", ("time", "lat", "lon")), ("level", ("time", "lat"))):
        alone = ds[name].dsgp.fill(domain="observed", **kept(*dims))
        for moment in ("mean", "std"):
            xr.testing.assert_equal(
                result[f"{name}_{moment}"].drop_vars("season"), alone[moment].drop_vars("season")
            )


def test_what_is_no_field_is_carried_along_with_a_warning():
    ds = dataset()
    ds["station"] = ("lat", list("abcdef"))
    ds["flag"] = ds["sst"] > 15
    with (
        pytest.warns(DataWarning, match="'station', 'flag': not numbers.*returned unchanged"),
        pytest.warns(DataWarning, match="'flag': not a field, .*interpolated 'lon'; left out"),
    ):
        result = ds.dsgp.interp(lon=[1.5], **kept("time", "lat", "lon"))
    assert "station" in result
    assert "flag" not in result  # on the old longitudes
    assert result["sst_mean"].sizes["lon"] == 1
    assert result["level"].identical(ds["level"])


def test_a_dataset_is_lazy_too(fits):
    ds = dataset()[["sst", "level"]].chunk(time=2)
    with computing_raises():
        result = ds.dsgp.smooth(**kept("time", "lat", "lon"))
    assert not fits
    result.compute()
    assert len(fits) == 2


def test_errors_of_a_dataset_name_the_variable():
    ds = dataset()
    with pytest.raises(DataError, match="no variable of the Dataset is a field"):
        ds[["crs"]].dsgp.smooth()
    ds["level"] = ds["level"] * np.nan
    with pytest.raises(DataError, match="variable 'level': no cell"):
        ds[["level"]].dsgp.smooth()
    with pytest.raises(ParameterError, match="'x' is not a dim"):
        ds.dsgp.smooth({"x": Matern32()})
    with pytest.raises(ParameterError, match="interp: 'x' is not a dim"):
        ds.dsgp.interp({"x": [0]})


# ---------------------------------------------------------------- registration


@pytest.mark.parametrize("order", ["dsgp, xarray", "xarray, dsgp"])
def test_importing_the_package_registers_it(order):
    code = (
        f"import {order}, sys; print(*{{'sklearn', 'zarr', 'dask'}} & set(sys.modules)); "
        "xarray.DataArray([1.0]).dsgp.smooth, xarray.Dataset().dsgp.smooth"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
