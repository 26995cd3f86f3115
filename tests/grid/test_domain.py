"""Which cells a fill gives: those seen at some time, the hull of the data, and what is said."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import dsgp
from dsgp.errors import DataWarning, ParameterError
from dsgp.grid.axes import GridAxis
from dsgp.grid.domain import hull_of
from dsgp.kernels import Matern32

LEARNT = {"noise_variance": 0.01, "learner": None, "scales": 1}


def kernels(*dims):
    first, *others = dims
    return {first: Matern32(3.0, 1.0), **{dim: Matern32(3.0) for dim in others}}


def between(cells, cell):
    """Whether a cell is an average of others: a linear programme of its weights."""
    done = linprog(
        np.zeros(len(cells)),
        A_eq=np.vstack([cells.T, np.ones(len(cells))]),
        b_eq=np.append(cell, 1.0),
        bounds=(0, None),
    )
    return done.status == 0


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_hull_holds_the_averages_of_observed_cells(data):
    shape = data.draw(st.sampled_from([(7,), (5, 4), (1, 6, 3), (3, 3, 3), (2, 2, 2, 3)]))
    n = int(np.prod(shape))
    flat = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6))
    seen = np.zeros(shape, bool)
    seen.reshape(-1)[flat] = True
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    axes = [GridAxis(f"x{d}", np.cumsum(rng.integers(1, 9, n) * 0.5)) for d, n in enumerate(shape)]
    cells = np.argwhere(np.ones(shape, bool))
    places = np.stack([axes[d].points[cells[:, d]] for d in range(len(shape))], axis=1)
    expected = [between(places[seen.ravel()], cell) for cell in places]
    np.testing.assert_array_equal(hull_of(seen, axes).ravel(), expected)


def test_hull_of_many_dims_is_a_box():
    seen = np.zeros((3,) * 5, bool)
    rng = np.random.default_rng(0)
    seen[tuple(rng.integers(0, 2, (5, 40)))] = True
    hull = hull_of(seen, [GridAxis(f"x{d}", np.arange(3.0)) for d in range(5)])
    assert hull[:2, :2, :2, :2, :2].all()
    assert hull.sum() == 2**5


def day(n_steps=1, seed=0):
    """A sea with clouds, of one day or several; the corner beyond the diagonal is never seen."""
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(8.0), np.arange(9.0)
    values = np.sin(lat[:, None] / 3) + np.cos(lon / 3) + np.zeros((n_steps, 1, 1))
    da = xr.DataArray(
        values + 0.05 * rng.standard_normal(values.shape),
        {"time": xr.date_range("2020-01-01", periods=n_steps), "lat": lat, "lon": lon},
    )
    clouds = (da.lat > 1) & (da.lat < 5) & (da.lon > 1) & (da.lon < 6)
    return da.where(~clouds & (da.lat + da.lon < 13))


@pytest.mark.parametrize("layout", ["one step", "no time", "lazy", "descending"])
def test_gaps_of_one_step_are_filled_inside_the_hull(layout):
    da = day()
    if layout == "no time":
        da = da.isel(time=0, drop=True)
    elif layout == "lazy":
        da = da.chunk(lat=4)
    elif layout == "descending":
        da = da.isel(lat=slice(None, None, -1))
    options = {"kernels": kernels(*da.dims), **LEARNT}
    with pytest.warns(DataWarning, match=r"12 of 72 places have no value and are filled.*6 beyond"):
        got = da.dsgp.fill(**options).compute()
    assert got["mean"].notnull().values.ravel().sum() == 66
    assert got["mean"].where(da.lat + da.lon >= 13).isnull().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent = da.dsgp.fill(domain="hull", **options).compute()
        everywhere = da.dsgp.fill(domain=None, **options).compute()
    xr.testing.assert_identical(silent, got)
    assert everywhere["mean"].notnull().all()
    xr.testing.assert_allclose(everywhere.where(got["mean"].notnull()), got)


def test_several_steps_leave_empty_what_is_never_seen_and_say_so():
    da = day(3)
    options = {"kernels": kernels(*da.dims), **LEARNT}
    with pytest.warns(DataWarning, match=r"18 of 72 places have no value at any time.*None"):
        got = da.dsgp.fill(**options)
    assert int(got["mean"].isnull().sum()) == 3 * 18
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xr.testing.assert_identical(da.dsgp.fill(domain="observed", **options), got)
        assert da.dsgp.fill(domain=None, **options)["mean"].notnull().all()
        complete = da.fillna(0.0)
        assert (
            complete.dsgp.fill(**{**options, "kernels": kernels(*da.dims)})["mean"].notnull().all()
        )


def test_tracks_leave_most_empty_and_say_how_many():
    da = day(4).where(False)
    for k in range(4):
        da[k, :, 2 * k] = 1.0 + 0.1 * np.arange(8)
    options = {"kernels": kernels(*da.dims), **LEARNT}
    with pytest.warns(DataWarning, match="40 of 72 places have no value at any time"):
        da.dsgp.fill(**options)
    inside = da.dsgp.fill(domain="hull", **options)["mean"].notnull()
    assert inside.sel(lon=slice(0, 6)).all()
    assert not inside.sel(lon=slice(7, None)).any()


def test_a_mask_that_knows_land_from_gaps_keeps_land_empty():
    da = day()
    options = {"kernels": kernels(*da.dims), **LEARNT}
    sea = (da.isel(time=0, drop=True).lat > 0) & (da.lon != 3)  # land within the cloud, too
    got = da.dsgp.fill(mask=sea | da.notnull(), domain="hull", **options)["mean"]
    assert got.isel(lat=slice(2, 5)).sel(lon=3).isnull().all()
    assert got.isel(lat=slice(2, 5)).sel(lon=4).notnull().all()
    good = da < 1.9  # flags of quality: what they leave out holds a value
    assert bool((da.notnull() & ~good).any())
    filled = da.dsgp.fill(mask=good, domain="hull", **options)["mean"]
    assert filled.where(da.notnull(), 0.0).notnull().all()
    assert filled.isel(lat=slice(2, 5)).sel(lon=3).notnull().all()


def test_stores_have_the_domain_of_memory(tmp_path):
    options = {"learner": None, "mean": 1.0, "tol": 1e-10}
    for da, choice in ((day(), "auto"), (day(3), "auto"), (day(3), "hull")):
        da = da.isel(lat=slice(None, None, -1))
        model = dsgp.GridGP(kernels(*da.dims), 0.01, **options)
        source, out = tmp_path / f"{da.sizes['time']}{choice}", tmp_path / f"{choice}{len(da)}.zarr"
        da.to_dataset(name="t").to_zarr(source, consolidated=False)
        if choice == "auto":
            with pytest.warns(DataWarning, match=r"of 72 places have no value"):
                model.smooth_store(source, "t", out, domain=choice)
        else:
            model.smooth_store(source, "t", out, domain=choice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            expected = dsgp.GridGP(kernels(*da.dims), 0.01, **options).fit(da, domain=choice)
        found = xr.open_zarr(out, consolidated=False)["mean"]
        np.testing.assert_allclose(found, expected.posterior()["mean"], rtol=1e-6)


def test_a_domain_that_is_no_choice_is_refused():
    with pytest.raises(ParameterError, match=r'"auto", "observed", "hull" or None, got \'sea\''):
        dsgp.GridGP().fit(day(), domain="sea")
