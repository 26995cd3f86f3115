"""Predictions at points: exact against dense algebra, in every backend, in xarray's layout."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP
from dsgp.errors import DataError, MemoryLimitError, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic, SquaredExponential

KERNELS = {
    "time": Matern32(3.0, 1.5),
    "lat": SquaredExponential(1.5),
    "lon": Periodic(12.0, 4.0, smoothness=1.5),
}
SECOND = {"time": Matern12(1.0, 0.4), "lat": Matern52(0.7), "lon": Matern32(2.0)}
NOISE = 0.05


def example(gaps=False, seed=0):
    """A field of 5 days, 4 latitudes that descend and 6 longitudes."""
    rng = np.random.default_rng(seed)
    da = xr.DataArray(
        rng.standard_normal((5, 4, 6)),
        {
            "time": xr.date_range("2020-01-01", periods=5),
            "lat": [45.0, 44.0, 42.5, 42.0],
            "lon": np.arange(0, 12, 2.0),
        },
        attrs={"units": "K"},
    )
    return da.where(rng.random(da.shape) > 0.3) if gaps else da


def points(n=7, seed=1):
    """Places of some observations, one of them far away, one on a cell."""
    rng = np.random.default_rng(seed)
    time = xr.DataArray(
        np.datetime64("2020-01-01", "ns") + (rng.uniform(-1, 6, n) * 24).astype("m8[h]"),
        dims="obs",
        coords={"obs": np.arange(100, 100 + n), "ship": ("obs", list("abcdefg"[:n]))},
    )
    lat, lon = (xr.DataArray(rng.uniform(*ends, n), dims="obs") for ends in ((41, 46), (-3, 14)))
    lat[0], lon[0], time[0] = 42.5, 4.0, np.datetime64("2020-01-03")
    lat[1] = 80.0
    return {"time": time, "lat": lat, "lon": lon}


def days(time):
    return (np.asarray(time) - np.datetime64("2020-01-01")) / np.timedelta64(1, "D")


def dense(da, terms, where, mean):
    """The posterior at points by the covariance matrix of all observed cells."""
    table = da.to_series().dropna().reset_index()
    cells = {"time": days(table["time"]), "lat": table["lat"], "lon": table["lon"]}
    new = {**where, "time": days(where["time"])}

    def covariance(a, b):
        total = 0.0
        for term in terms:
            part = 1.0
            for dim, kernel in term.items():
                filled = kernel if kernel.variance else kernel.with_parameters(variance=1.0)
                part = part * filled.covariance(np.asarray(a[dim]), np.asarray(b[dim]))
            total = total + part
        return total

    seen = covariance(cells, cells) + NOISE * np.eye(len(table))
    cross = covariance(new, cells)
    expected = mean + cross @ np.linalg.solve(seen, table[0] - mean)
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(seen, cross.T))
    prior = covariance(
        {dim: one[:1] for dim, one in new.items()},
        cells | {dim: np.asarray(one)[:1] for dim, one in new.items()},
    )[0, 0]
    return expected, np.sqrt(prior - explained)


def fitted(da, terms=KERNELS, **options):
    terms = [terms] if isinstance(terms, dict) else terms
    full = [
        {dim: k if k.variance else k.with_parameters(variance=1.0) for dim, k in term.items()}
        for term in terms
    ]
    return GridGP(full, NOISE, learner=None, mean=0.3, **options).fit(da.rename(None))


@pytest.mark.parametrize(
    ("gaps", "terms", "method"),
    [
        (False, [KERNELS], "kronecker"),
        (True, [KERNELS], "dense"),
        (False, [KERNELS, SECOND], "dense"),
        (True, [KERNELS, SECOND], "dense"),
    ],
)
def test_points_are_those_of_the_dense_process(gaps, terms, method):
    da, where = example(gaps), points()
    model = fitted(da, terms)
    assert model.method_ == method
    got = model.predict(**where)
    mean, std = dense(da, terms, where, 0.3)
    np.testing.assert_allclose(got["mean"], mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got["std"], std, rtol=1e-6)
    assert got["mean"].dims == ("obs",)
    assert list(got.obs) == list(range(100, 107))
    assert "".join(got.ship.values) == "abcdefg"
    xr.testing.assert_equal(got.lat.drop_vars(["obs", "ship", "time", "lon", "lat"]),
                            where["lat"].drop_vars("obs", errors="ignore"))  # fmt: skip
    assert got["mean"].attrs["units"] == "K"


def test_points_along_a_long_axis(monkeypatch):
    monkeypatch.setattr("dsgp.grid.systems.LONG", 4)
    terms = [{**KERNELS, "lat": Matern52(1.5), "time": Matern52(3.0, 1.5)}]
    da, where = example(), points()
    da = xr.concat([da.assign_coords(time=da.time + np.timedelta64(5 * k, "D")) for k in range(3)],
                   dim="time")  # fmt: skip
    model = fitted(da, terms)
    assert model.method_ == "fibres"
    mean, std = dense(da, terms, where, 0.3)
    got = model.predict(**where)
    np.testing.assert_allclose(got["mean"], mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got["std"], std, rtol=1e-6)
    # The long axis as a grid, the others as points.
    mixed = model.predict(lat=where["lat"], lon=where["lon"])
    grid = model.predict(lat=where["lat"].values, lon=where["lon"].values)
    expected = grid.sel(lat=where["lat"], lon=where["lon"])
    np.testing.assert_allclose(mixed["mean"], expected["mean"].transpose(*mixed["mean"].dims))
    np.testing.assert_allclose(mixed["std"], expected["std"].transpose(*mixed["std"].dims), 1e-6)


@pytest.mark.parametrize("long", [4, 4096])
def test_points_by_conjugate_gradients(monkeypatch, long):
    monkeypatch.setattr("dsgp.grid.systems.DENSE_CELLS", 10)
    monkeypatch.setattr("dsgp.grid.covariance.LONG", long)
    monkeypatch.setattr("dsgp.grid.missing.LONG", long)
    da, where = example(gaps=True), points()
    terms = [{dim: Matern32(2.0) for dim in da.dims}, SECOND]
    terms[0]["time"] = Matern32(2.0, 1.0)
    model = fitted(da, terms, n_neighbours=200, tol=1e-12)
    assert (model.method_, model.variance_method_) == ("conjugate gradients", "local")
    mean, std = dense(da, terms, where, 0.3)
    got = model.predict(**where)
    np.testing.assert_allclose(got["mean"], mean, rtol=1e-6, atol=1e-8)
    # Given the 90 cells that are candidates of each point, which are nearly all there are.
    np.testing.assert_allclose(got["std"], std, rtol=2e-3)
    assert (got["std"] >= std - 1e-9).all()
    mixed = model.predict(time=where["time"], lat=where["lat"])
    grid = model.predict(time=np.unique(where["time"]), lat=where["lat"].values)
    expected = grid.sel(time=where["time"], lat=where["lat"])
    for name in ("mean", "std"):
        np.testing.assert_allclose(mixed[name], expected[name], rtol=1e-6)


@pytest.mark.parametrize("variance", ["calibrated", "draws"])
def test_calibrated_variances_at_points_are_those_of_the_cells_there(variance):
    da = example(gaps=True)
    model = fitted(da, [SECOND], variance=variance)
    cells = GridGP(**{**model.get_params(), "variance": "calibrated"}).fit(da)
    on_grid = cells.posterior()["std"]
    where = {dim: xr.DataArray(da[dim].values[[1, 3, 2]], dims="obs") for dim in da.dims}
    got = model.predict(**where)["std"]
    np.testing.assert_allclose(got, on_grid.sel(where), rtol=1e-9)


MIXED = {
    "grid": {"lat": [42.2, 44.0]},
    "points and a grid": {"lat": 2, "lon": 2},
    "the field's own dim": {"lat": ("time",)},
    "two dims": {"lat": ("y", "x"), "lon": ("y", "x")},
    "unequal dims": {"lat": ("y", "x"), "lon": ("x",)},
    "scalar beside points": {"time": 0, "lat": ("obs",), "lon": ("obs",)},
    "renamed": {"lat": ("station",)},
    "points of all, outer of none": {"time": ("obs",), "lat": ("obs",), "lon": ("obs",)},
}


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("mean", [0.3, "time", "time.day", "lat"])
def test_layout_is_that_of_xarrays_indexing(kind, mean):
    """Targets on cells of the field: what ``sel`` takes out of the posterior on the grid."""
    da = example()
    model = GridGP(KERNELS, NOISE, learner=None, mean=mean).fit(da)
    model.fit(da)
    rng = np.random.default_rng(2)
    sizes = {"y": 2, "x": 3, "obs": 4, "station": 3, "time": 5}
    where = {}
    for dim, dims in MIXED[kind].items():
        if dims == 0:
            where[dim] = da[dim].values[2]
        elif dims == 2:
            where[dim] = xr.DataArray(da[dim].values[[2, 0]], dims="obs")
        elif isinstance(dims, tuple):
            index = rng.integers(da.sizes[dim], size=[sizes[one] for one in dims])
            where[dim] = xr.DataArray(da[dim].values[index], dims=dims)
        else:
            where[dim] = da[dim].values[[3, 1]]
    expected = model.posterior().sel(where)
    got = model.predict(**where)
    for name in ("mean", "std"):
        assert got[name].dims == expected[name].dims
        assert set(got[name].coords) == set(expected[name].coords)
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-7, atol=1e-9)
        for key in expected[name].coords:
            np.testing.assert_array_equal(got[name][key], expected[name][key])


def test_accessor_answers_at_points_also_lazily():
    da, where = example(gaps=True), points()
    kernels = {**SECOND, "lat": Matern52(0.7, 1.0)}
    options = {"kernels": [kernels], "noise_variance": NOISE, "learner": None}
    got = da.dsgp.interp(**where, **options)
    lazy = da.chunk(lat=2).dsgp.interp(**where, **options)
    assert lazy["mean"].chunks is not None
    assert lazy["mean"].dims == ("obs",)
    xr.testing.assert_identical(lazy.compute(), got)
    pair = xr.Dataset({"a": da, "b": da.isel(time=0, drop=True)})
    both = pair.dsgp.interp(**where, **options)
    xr.testing.assert_allclose(both["a_mean"].drop_attrs(), got["mean"].drop_attrs())
    assert both["b_mean"].dims == ("obs",)


def test_blocks_of_points_do_not_show(monkeypatch):
    where = points()
    complete, gappy = fitted(example()), fitted(example(gaps=True), variance="local")
    expected = complete.predict(**where), gappy.predict(**where)
    monkeypatch.setattr("dsgp.grid.scattered._BLOCK", 1)
    monkeypatch.setattr("dsgp.grid.missing._TARGETS", 2)
    for model, before in zip((complete, gappy), expected, strict=True):
        xr.testing.assert_allclose(model.predict(**where), before, rtol=1e-12)


def test_sizes_are_checked_before_anything_is_learnt(monkeypatch):
    monkeypatch.setattr("dsgp.memory.available", lambda: 2**28)
    monkeypatch.setattr("dsgp.estimators.grid.GridGP.fit", lambda *a, **k: pytest.fail("fitted"))
    many = {"lat": np.linspace(42, 45, 5000), "lon": np.linspace(0, 11, 5000)}
    for da in (example(), example().chunk(lat=1)):
        with pytest.raises(MemoryLimitError, match=r"cells \(time 5, lat 5000, lon 5000\).*share"):
            da.dsgp.interp(many)


def test_many_points_take_memory_for_points_only(monkeypatch):
    monkeypatch.setattr("dsgp.memory.available", lambda: 2**26)
    n = 20_000
    rng = np.random.default_rng(0)
    where = {
        "lat": xr.DataArray(rng.uniform(42, 45, n), dims="obs"),
        "lon": xr.DataArray(rng.uniform(0, 11, n), dims="obs"),
        "time": xr.DataArray(np.full(n, np.datetime64("2020-01-02")), dims="obs"),
    }
    got = fitted(example()).predict(**where)
    assert got["mean"].shape == (n,)
    assert np.isfinite(got["std"]).all()


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        (
            {"lat": xr.DataArray([42.0, 43.0], dims="obs"), "lon": xr.DataArray([1.0], dims="obs")},
            DataError,
            "dim 'obs' has 2 points for 'lat' and 1 for 'lon'",
        ),
        (
            {
                "lat": xr.DataArray([42.0], {"obs": ["a"]}),
                "lon": xr.DataArray([1.0], {"obs": ["b"]}),
            },
            DataError,
            "'lat' and 'lon' have different labels along 'obs'",
        ),
        ({"lat": xr.DataArray([42.0], dims="time")}, DataError, "dim 'time' has 5 points"),
        ({"lat": np.ones((2, 2))}, DataError, "dim 'lat'.*one list"),
        ({"lat": xr.DataArray([np.nan], dims="obs")}, DataError, "'lat' is nan at position 0"),
    ],
)
def test_points_that_do_not_go_together_are_refused(where, error, message):
    with pytest.raises(error, match=message):
        fitted(example()).predict(**where)


def test_draws_are_of_grids():
    where = points()
    with pytest.raises(ParameterError, match=r"sample draws on grids.*sel"):
        fitted(example()).sample(2, **where)
