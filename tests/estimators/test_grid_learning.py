"""What GridGP learns, what it keeps, its means and scales, and what it says about them."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP
from dsgp.errors import ParameterError
from dsgp.kernels import Matern32, Matern52, Periodic, SquaredExponential
from tests.grid.dense import Dense, close, gaps, uneven

POINTS = [np.linspace(0, 10, 30), uneven(26, 0, 5)]
TRUTH = {"a": Matern32(1.5, 2.0), "b": Matern52(0.8, 1.0)}
NOISE = 0.09


def drawn(missing=False, seed=0):
    """A field drawn from its prior, with noise."""
    random = np.random.default_rng(seed)
    lower = [
        np.linalg.cholesky(Dense([own], [(kernel,)], 0.0).prior + 1e-10 * np.eye(len(own)))
        for own, kernel in zip(POINTS, TRUTH.values(), strict=True)
    ]
    shape = tuple(map(len, POINTS))
    y = lower[0] @ random.standard_normal(shape) @ lower[1].T
    y += np.sqrt(NOISE) * random.standard_normal(shape)
    da = xr.DataArray(y, {"a": POINTS[0], "b": POINTS[1]})
    return da.where(gaps(shape)) if missing else da


@pytest.mark.parametrize("missing", [False, True])
def test_the_hyperparameters_of_a_drawn_field_come_back(missing):
    da = drawn(missing)
    given = {"a": Matern32(), "b": Matern52()}
    model = GridGP(given, mean="zero", scales=1).fit(da)
    for name, kernel in TRUTH.items():
        assert 0.55 < model.kernels_[name].lengthscale / kernel.lengthscale < 1.8
    assert 0.4 < model.kernels_["a"].variance / 2.0 < 2.5
    assert model.kernels_["b"].variance == 1.0
    assert 0.7 < model.noise_variance_ / NOISE < 1.4
    observed = da.notnull().values
    truth = Dense(POINTS, [tuple(TRUTH.values())], NOISE, observed).log_likelihood(da.values)
    assert model.log_marginal_likelihood_ >= truth
    assert model.learner == "marginal"
    assert given == {"a": Matern32(), "b": Matern52()}


def test_what_is_fixed_or_given_is_kept():
    da = drawn(missing=True)
    fixed = Matern32(1.1, 1.7, fixed=("lengthscale", "variance"))
    model = GridGP({"a": fixed}, 0.07, scales=1).fit(da)
    assert model.kernels_["a"] == fixed
    assert model.noise_variance_ == 0.07
    assert model.kernels_["b"].lengthscale != pytest.approx(0.5)
    kept = GridGP(TRUTH, NOISE, learner=None, scales=1).fit(da)
    assert kept.kernels_ == TRUTH
    assert kept.noise_variance_ == NOISE
    assert kept.learnt_from_ == "nothing: given"


def test_the_amplitude_goes_to_the_first_dim():
    kernels = {"a": Matern32(1.5), "b": Matern52(0.8, 2.0)}
    model = GridGP(kernels, NOISE, learner=None).fit(drawn())
    assert model.kernels_ == TRUTH


def test_dims_not_named_have_matern_32():
    model = GridGP({"b": SquaredExponential()}).fit(drawn())
    assert isinstance(model.kernels_["a"], Matern32)
    assert isinstance(model.kernels_["b"], SquaredExponential)


@pytest.mark.parametrize("missing", [False, True])
def test_keeping_what_is_given_means_one_kernel_not_two(missing):
    """A single mapping under learner=None is the prior, with gaps as without."""
    da = drawn(missing)
    model = GridGP(TRUTH, NOISE, learner=None, mean="zero").fit(da)
    assert model.kernels_ == TRUTH
    dense = Dense(POINTS, [tuple(TRUTH.values())], NOISE, da.notnull().values)
    close(model.log_marginal_likelihood_, dense.log_likelihood(da.values))


@pytest.mark.parametrize("missing", [False, True])
def test_scales_are_one_or_with_gaps_two(missing):
    da = drawn(missing)[:14, :14]
    own = GridGP().fit(da).kernels_
    assert isinstance(own, list) == missing
    for scales in (1, 3):
        own = GridGP(scales=scales).fit(da).kernels_
        terms = own if isinstance(own, list) else [own]
        assert len(terms) == scales
        assert all(set(term) == {"a", "b"} for term in terms)


def test_two_scales_are_at_least_as_likely_as_one():
    da = drawn(missing=True)[:, :15]
    one, two = (GridGP(scales=scales).fit(da) for scales in (1, 2))
    assert two.log_marginal_likelihood_ > one.log_marginal_likelihood_ - 0.1


# ---------------------------------------------------------------------- means

TIMES = xr.date_range("2001-01-15", periods=24, freq="MS")


def monthly():
    random = np.random.default_rng(0)
    y = random.standard_normal((24, 5)) + 3 * np.arange(5) + 10 * (np.arange(24) % 12)[:, None]
    da = xr.DataArray(y, {"time": TIMES, "x": np.arange(5.0)})
    return da.where(gaps(da.shape))


def expected_mean(spec, da):
    """In the shape of the field, from xarray alone."""
    if isinstance(spec, xr.DataArray):
        return spec.broadcast_like(da).transpose(*da.dims)
    if spec == "zero":
        return xr.zeros_like(da).fillna(0)
    if spec == "constant":
        return 0 * da.fillna(0) + float(da.mean())
    if spec == "time":
        return da.mean("time").broadcast_like(da)
    if spec == "time.month":
        own = da.groupby("time.month").mean().sel(month=da.time.dt.month).drop_vars("month")
        return own.fillna(da.mean("time")).transpose(*da.dims)
    return xr.zeros_like(da).fillna(0) + spec


@pytest.mark.parametrize(
    "spec",
    ["constant", "zero", 7.5, "time", "time.month", xr.DataArray(np.arange(5.0) ** 2, dims="x")],
    ids=["constant", "zero", "number", "time", "month", "given"],
)
def test_means_are_taken_off_and_put_back(spec):
    da = monthly()
    kernels = [{"time": Matern32(60.0, 1.0), "x": Matern32(2.0, 1.0)}]
    model = GridGP(kernels, 0.1, mean=spec, learner=None, units={"time": "days"}).fit(da)
    mean = expected_mean(spec, da)
    days = (TIMES - TIMES[0]).days.to_numpy(float)
    dense = Dense([days, np.arange(5.0)], [tuple(kernels[0].values())], 0.1, da.notnull().values)
    residual = (da - mean).fillna(0).values
    posterior = model.posterior()
    close(posterior["mean"], dense.posterior(residual)[0] + mean.values)
    close(posterior["std"] ** 2, dense.variance())
    close(model.log_marginal_likelihood_, dense.log_likelihood(residual))
    shown = model.mean_
    close(np.broadcast_to(shown, da.shape), mean.values)
    # Far beyond the data, predictions are the mean.
    far = model.predict(time=["2100-06-01"])
    prior = np.sqrt(dense.prior[0, 0])
    close(far["std"], np.full((1, 5), prior), 1e-6)
    if isinstance(spec, str) and spec == "time":
        close(far["mean"][0], da.mean("time"), 1e-6)
    if isinstance(spec, str) and spec == "time.month":
        june = da[da.time.dt.month == 6].mean("time").fillna(da.mean("time"))
        close(far["mean"][0], june, 1e-6)
    draws = model.sample(200)
    z = (draws.mean("sample") - posterior["mean"]) / posterior["std"] * np.sqrt(200)
    assert float(abs(z).max()) < 5


# ---------------------------------------------------------------------- words


def test_the_summary_tells_what_was_done():
    da = monthly()
    model = GridGP().fit(da)
    text = model.summary()
    assert text.startswith("GridGP of time 24, x 5: ")
    assert f"{int(da.notnull().sum())} of 120 cells observed" in text
    assert "method: dense; variance: exact" in text
    for c, term in enumerate(model.kernels_):
        assert f"kernel {c + 1} of 2: standard deviation {term['time'].variance ** 0.5:.4g}" in text
        assert f"time: Matern32, lengthscale {term['time'].lengthscale:.4g} days" in text
        assert f"x: Matern32, lengthscale {term['x'].lengthscale:.4g}\n" in text
    assert f"noise: standard deviation {model.noise_variance_**0.5:.4g}" in text
    assert f"log marginal likelihood: {model.log_marginal_likelihood_:.6g}" in text
    complete = GridGP(scales=1).fit(drawn())
    assert "method: kronecker; variance: exact" in complete.summary()
    assert "kernel: standard deviation" in complete.summary()


def test_stopping_short_is_in_the_summary(monkeypatch):
    monkeypatch.setattr("dsgp.grid.systems.DENSE_CELLS", 0)
    model = GridGP(TRUTH, NOISE, learner=None, scales=1, max_iter=2, tol=1e-10, n_neighbours=3)
    with pytest.warns(UserWarning, match="conjugate gradients stopped"):
        model.fit(drawn(missing=True))
    assert not model.converged_
    assert model.solver_iterations_ == 2
    assert "NOT CONVERGED" in model.summary()
    assert "(Vecchia)" in model.summary()


def test_units_of_times_are_told_and_chosen():
    da = monthly()
    assert GridGP().fit(da).units_ == {"time": "days since 2001-02-01", "x": ""}
    in_hours = GridGP(units={"time": "hours"}).fit(da)
    in_days = GridGP().fit(da)
    assert in_hours.units_["time"].startswith("hours since")
    for hours, days in zip(in_hours.kernels_, in_days.kernels_, strict=True):
        ratio = hours["time"].lengthscale / days["time"].lengthscale
        assert ratio == pytest.approx(24, rel=0.05)


# ---------------------------------------------------------------------- nothing to keep


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'a'.*has no lengthscale"),
        ({"kernels": {"a": Matern32(1.0, 1.0)}}, "'b'.*has no lengthscale"),
        ({"kernels": {"a": Matern32(1.0), "b": Matern32(1.0)}}, "no kernel has a variance"),
        ({"kernels": TRUTH}, "give noise="),
    ],
)
def test_keeping_what_is_not_given_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        GridGP(**options, learner=None).fit(drawn())


def test_a_period_that_meets_itself_is_refused():
    longitude = np.arange(0.0, 361.0, 30.0)
    da = xr.DataArray(np.cos(np.radians(longitude)), {"lon": longitude})
    with pytest.raises(ValueError, match="the same one under a period of 360"):
        GridGP({"lon": Periodic(360.0)}).fit(da)
