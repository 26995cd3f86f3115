"""Transformed fields: equal to transforming by hand, and in the field's unit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import dsgp
from dsgp import GridGP
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.transforms import Log, YeoJohnson

SIGMA = 0.4
PROBABILITIES = [0.1, 0.5, 0.9]


def chlorophyll(gappy=False, n=14, seed=0, steps=1):
    """A positive field with relative noise, and the field without it."""
    rng = np.random.default_rng(seed)
    x, t = np.linspace(0, 3, n), xr.date_range("2020-01-01", periods=max(steps, 1), freq="MS")
    f = np.sin(2 * x)[:, None] + np.cos(1.5 * x)
    if steps > 1:
        f = f + 0.5 * np.sin(np.arange(steps) * np.pi / 6)[:, None, None]
    values = np.exp(f + SIGMA * rng.standard_normal(f.shape))
    if gappy:
        values[rng.uniform(size=values.shape) < 0.3] = np.nan
    coords = ({"time": t} if steps > 1 else {}) | {"lat": x[::-1], "lon": x}
    attrs = {"units": "mg m-3"}
    da = xr.DataArray(values, coords, name="chl", attrs=attrs)
    return da, da.copy(data=np.exp(f))


@pytest.fixture(scope="module", params=["complete", "gappy", "noise by cell"])
def pair(request):
    """A field, its model by ``transform="log"``, and one of the logarithm by hand."""
    da, _ = chlorophyll(request.param != "complete")
    noise = None
    if request.param == "noise by cell":
        noise = xr.full_like(da, SIGMA**2)
    return (
        da,
        GridGP(noise_variance=noise, transform="log").fit(da),
        GridGP(noise_variance=noise).fit(np.log(da)),
    )


def test_it_is_the_model_of_the_logarithm(pair):
    da, model, by_hand = pair
    for mine, other, noise in (
        (model.posterior(quantiles=PROBABILITIES), by_hand.posterior(), 0.0),
        (model.posterior(include_noise=True), by_hand.posterior(include_noise=True), 1.0),
    ):
        mean = np.exp(other["mean"] + other["std"] ** 2 / 2)
        np.testing.assert_allclose(mine["mean"], mean, rtol=1e-10)
        np.testing.assert_allclose(mine["std"], mean * np.sqrt(np.expm1(other["std"] ** 2)))
        assert mine["mean"].attrs["units"] == mine["std"].attrs["units"] == "mg m-3"
        assert "logarithm" in mine["mean"].attrs["transform"]
        if not noise:
            assert mine["quantiles"].dims == ("quantile", "lat", "lon")
            for p in PROBABILITIES:
                expected = stats.lognorm(other["std"], scale=np.exp(other["mean"])).ppf(p)
                np.testing.assert_allclose(mine["quantiles"].sel(quantile=p), expected)
    where = {"lat": [0.11, 1.3], "lon": 0.5}
    other = by_hand.predict(**where)
    mine = model.predict(quantiles=[0.5], **where)
    np.testing.assert_allclose(mine["mean"], np.exp(other["mean"] + other["std"] ** 2 / 2))
    np.testing.assert_allclose(mine["quantiles"][0], np.exp(other["mean"]))
    np.testing.assert_allclose(model.sample(2, 1), np.exp(by_hand.sample(2, 1)))
    jacobian = -float(np.log(da).sum())
    assert model.log_marginal_likelihood_ == pytest.approx(
        by_hand.log_marginal_likelihood_ + jacobian
    )
    assert model.mean_ == pytest.approx(np.exp(by_hand.mean_))
    assert "the logarithm of the field" in model.summary()


def test_saved_and_loaded(pair, tmp_path):
    _, model, _ = pair
    model.save(tmp_path / "model.zarr")
    loaded = dsgp.load(tmp_path / "model.zarr")
    xr.testing.assert_allclose(
        loaded.posterior(quantiles=[0.3]), model.posterior(quantiles=[0.3]), rtol=1e-9
    )
    assert loaded.transform == loaded.transform_ == Log()


def test_intervals_cover_and_means_are_means():
    hits, ratios = [], []
    for seed in range(5):
        da, truth = chlorophyll(True, seed=seed)
        model = GridGP(transform="log", scales=1).fit(da)
        ends = model.posterior(quantiles=[0.05, 0.95])["quantiles"]
        hits.append(float(((ends[0] < truth) & (truth < ends[1])).mean()))
        new = model.posterior(include_noise=True)["mean"]
        rng = np.random.default_rng(100 + seed)
        later = truth * np.exp(SIGMA * rng.standard_normal(truth.shape))
        ratios.append(float((later / new).mean()))
    assert np.mean(hits) == pytest.approx(0.9, abs=0.08)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("choice", ["log", "yeo-johnson"])
def test_accessor_eager_lazy_and_of_datasets(choice):
    da, _ = chlorophyll(True)
    options = {"transform": choice, "quantiles": PROBABILITIES}
    eager = da.dsgp.smooth(**options)
    lazy = da.chunk({"lat": 9}).dsgp.smooth(**options)
    assert all(one.chunks is not None for one in lazy.data_vars.values())
    assert "transform" in lazy["mean"].attrs
    xr.testing.assert_allclose(lazy.compute(), eager, rtol=1e-10)
    assert lazy["quantiles"].dims == ("quantile", "lat", "lon")
    both = xr.Dataset({"chl": da}).dsgp.smooth(**options)
    xr.testing.assert_allclose(both["chl_quantiles"], eager["quantiles"].rename("chl_quantiles"))
    there = da.dsgp.interp(lat=[1.0], **options)
    assert there["quantiles"].sizes["lat"] == 1
    filled = da.dsgp.fill(keep_observed=True, domain=None, **options)
    np.testing.assert_allclose(filled["mean"].where(da.notnull()), da)
    assert int(filled["mean"].isnull().sum()) == 0
    assert bool((filled["mean"] > 0).all()) or choice != "log"


def test_climatologies_act_on_the_scale_of_the_transform():
    da, _ = chlorophyll(steps=24, n=3)
    model = GridGP(transform="log", scales=1, mean="time.month").fit(da)
    by_hand = GridGP(scales=1, mean="time.month").fit(np.log(da))
    np.testing.assert_allclose(model.mean_, np.exp(by_hand.mean_))
    # Numbers are in the field's unit.
    given = GridGP(transform="log", scales=1, mean=2.0).fit(da)
    np.testing.assert_allclose(
        given.posterior(quantiles=[0.5])["quantiles"][0],
        np.exp(GridGP(scales=1, mean=np.log(2.0)).fit(np.log(da)).posterior()["mean"]),
    )
    field = xr.full_like(da, 2.0)
    np.testing.assert_allclose(
        GridGP(transform="log", scales=1, mean=field).fit(da).posterior()["mean"],
        given.posterior()["mean"],
    )
    assert given.mean_ == pytest.approx(2.0)


@pytest.mark.parametrize("unit", [1e-12, 1e8])
@pytest.mark.parametrize("choice", ["log", "yeo-johnson"])
def test_units_do_not_matter(choice, unit):
    da, _ = chlorophyll()
    one = GridGP(transform=choice).fit(da).posterior()
    other = GridGP(transform=choice).fit(unit * da).posterior()
    for name in ("mean", "std"):
        np.testing.assert_allclose(other[name], unit * one[name], rtol=1e-2)


def test_zeros_are_counted_and_yeo_johnson_takes_them():
    da, _ = chlorophyll(True)
    rain = da.where(~(da < da.quantile(0.2)), 0.0).where(da.notnull())
    zeros, observed = int((rain == 0).sum()), int(rain.notnull().sum())
    with pytest.raises(DataError, match=f"in {zeros} of {observed} observed.*yeo-johnson"):
        rain.dsgp.smooth(transform="log")
    GridGP(transform="log").fit(rain, mask=rain > 0)
    result = rain.dsgp.smooth(transform="yeo-johnson")
    assert bool(np.isfinite(result["mean"]).all())
    with pytest.raises(ParameterError, match=r"mean: -1\.0 has no logarithm"):
        GridGP(transform="log", mean=-1.0).fit(da)
    with pytest.raises(DataError, match=r"mean: 0 or negative at \d+ of"):
        GridGP(transform="log", mean=da * 0).fit(da)


def test_refusals(tmp_path):
    da, _ = chlorophyll()
    with pytest.raises(ParameterError, match="transform must be None"):
        GridGP(transform="sqrt").fit(da)
    with pytest.raises(ParameterError, match="quantiles must be probabilities"):
        da.dsgp.smooth(quantiles=[5])
    da.to_dataset().to_zarr(tmp_path / "a.zarr", consolidated=False)
    with pytest.raises(ParameterError, match="on disk is smoothed as it is"):
        GridGP(transform="log").smooth_store(tmp_path / "a.zarr", "chl", tmp_path / "b.zarr")


def test_a_given_transform_is_kept():
    da, _ = chlorophyll()
    transform = YeoJohnson(0.3, 0.0, 2.0)
    assert GridGP(transform=transform).fit(da).transform_ == transform


def test_quantiles_without_a_transform_are_normal():
    da, _ = chlorophyll()
    result = np.log(da).dsgp.smooth(quantiles=[0.975])
    expected = result["mean"] + stats.norm.ppf(0.975) * result["std"]
    np.testing.assert_allclose(result["quantiles"][0], expected)


def test_strongly_skewed_residuals_are_reported_and_normal_ones_are_not():
    rng = np.random.default_rng(0)
    x = np.arange(20.0)
    smooth = np.sin(x / 5)[:, None] + np.cos(x / 6)
    for gaps in (0.0, 0.2):
        hidden = rng.uniform(size=smooth.shape) < gaps
        skewed = smooth + rng.exponential(size=smooth.shape)
        normal = smooth + rng.standard_normal(smooth.shape)
        fields = [
            xr.DataArray(np.where(hidden, np.nan, one), {"lat": x, "lon": x}, name="rain")
            for one in (skewed + 3, skewed - 3, normal)
        ]
        with pytest.warns(DataWarning, match="'rain' are strongly skewed.*\"log\" or transform="):
            GridGP(scales=1).fit(fields[0])
        with pytest.warns(DataWarning, match="'rain' are.*ends: transform=\"yeo-johnson\" models"):
            GridGP(scales=1).fit(fields[1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            GridGP(scales=1).fit(fields[2])
            GridGP(transform="log", scales=1).fit(fields[0])
