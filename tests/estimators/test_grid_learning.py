"""What GridGP learns, what it keeps, its means and scales, and what it says about them."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP, load
from dsgp.errors import ParameterError
from dsgp.grid import fit_cells, fit_effects
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
    model = GridGP({"a": fixed}, 0.07, fixed_noise=True, scales=1).fit(da)
    assert model.kernels_["a"] == fixed
    assert model.noise_variance_ == 0.07
    assert model.kernels_["b"].lengthscale != pytest.approx(0.5)
    kept = GridGP(TRUTH, NOISE, learner=None, scales=1).fit(da)
    assert kept.kernels_ == TRUTH
    assert kept.noise_variance_ == NOISE
    assert kept.learnt_from_ == "nothing: given"


@pytest.mark.parametrize("missing", [False, True])
def test_a_noise_variance_is_where_the_search_starts(missing):
    da = drawn(missing=missing)
    plain = GridGP(scales=1).fit(da)
    started = GridGP(noise_variance=3 * NOISE, scales=1).fit(da)
    assert started.noise_variance_ == pytest.approx(plain.noise_variance_, rel=0.02)
    kept = GridGP(noise_variance=3 * NOISE, fixed_noise=True, scales=1).fit(da)
    assert kept.noise_variance_ == 3 * NOISE
    assert kept.log_marginal_likelihood_ < plain.log_marginal_likelihood_ - 1


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
def test_scales_are_as_many_as_the_likelihood_says(missing):
    """A field of one scale has one, whether cells are missing or not."""
    da = drawn(missing)[:14, :14]
    assert isinstance(GridGP().fit(da).kernels_, dict)
    for scales in (1, 2):
        own = GridGP(scales=scales).fit(da).kernels_
        terms = own if isinstance(own, list) else [own]
        assert len(terms) == scales
        assert all(set(term) == {"a", "b"} for term in terms)


def test_two_scales_are_at_least_as_likely_as_one():
    da = drawn(missing=True)[:18, :12]
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
    if isinstance(spec, str) and spec == "constant":
        spec = float(da.mean())  # as an unknown: tests/grid/test_constant.py
        model = GridGP(kernels, 0.1, mean=spec, learner=None, units={"time": "days"}).fit(da)
    days = (TIMES - TIMES[0]).days.to_numpy(float)
    dense = Dense([days, np.arange(5.0)], [tuple(kernels[0].values())], 0.1, da.notnull().values)
    residual = (da - mean).fillna(0).values
    posterior = model.posterior()
    close(posterior["mean"], dense.posterior(residual)[0] + mean.values)
    uncertain = isinstance(spec, str) and spec.startswith("time")
    variance = dense.variance()
    expected_variance = variance
    if uncertain:  # that of the averages beside it
        groups = da.time.dt.month if spec == "time.month" else xr.zeros_like(da.time, int)
        count = da.notnull().groupby(groups.rename("g")).sum()
        share = (1 / np.maximum(count, 1)).sel(g=groups.rename("g")).transpose(*da.dims).values
        expected_variance = variance + share * (0.1 + variance**2 / dense.prior[0, 0])
    close(posterior["std"] ** 2, expected_variance)
    close(model.log_marginal_likelihood_, dense.log_likelihood(residual))
    shown = model.mean_
    close(np.broadcast_to(shown, da.shape), mean.values)
    # Far beyond the data, predictions are the mean.
    far = model.predict(time=["2100-06-01"])
    prior = np.sqrt(dense.prior[0, 0])
    if uncertain:
        assert (far["std"] > prior).all()
    else:
        close(far["std"], np.full((1, 5), prior), 1e-6)
    if isinstance(spec, str) and spec == "time":
        close(far["mean"][0], da.mean("time"), 1e-6)
    if isinstance(spec, str) and spec == "time.month":
        june = da[da.time.dt.month == 6].mean("time").fillna(da.mean("time"))
        close(far["mean"][0], june, 1e-6)
    draws = model.sample(200)
    z = (draws.mean("sample") - posterior["mean"]) / posterior["std"] * np.sqrt(200)
    assert float(abs(z).max()) < 5


def two_years(season, seed=0):
    """Two years of months on a few cells; a third of them hidden, and one month everywhere."""
    random = np.random.default_rng(seed)
    days, x = (TIMES - TIMES[0]).days.to_numpy(float), np.arange(5.0)
    roots = [
        np.linalg.cholesky(Matern32(length, 1.0).covariance(own) + 1e-9 * np.eye(len(own)))
        for own, length in ((days, 90.0), (x, 4.0))
    ]
    field = roots[0] @ random.standard_normal((24, 5)) @ roots[1].T
    field += season * np.cos(2 * np.pi * np.arange(24) / 12)[:, None]
    truth = xr.DataArray(10 + field, {"time": TIMES, "x": x})
    hidden = random.random(truth.shape) < 0.3
    hidden[5:8] = True
    noisy = truth + 0.1 * random.standard_normal(truth.shape)
    return truth, noisy.where(~xr.DataArray(hidden, truth.coords))


@pytest.mark.parametrize("season", [0.0, 8.0])
def test_a_climatology_of_two_years_is_as_good_as_none_or_better(season):
    errors, covered = {}, []
    for mean in ("constant", "time.month"):
        squares = []
        for seed in range(3):
            truth, da = two_years(season, seed)
            posterior = GridGP(mean=mean, scales=1).fit(da).posterior()
            error = posterior["mean"] - truth
            squares.append(float((error**2).where(da.isnull()).mean()))
            if mean != "constant":
                covered.append(float((abs(error) < 1.96 * posterior["std"]).mean()))
        errors[mean] = np.sqrt(np.mean(squares))
    assert errors["time.month"] < (1.1 if season == 0 else 0.85) * errors["constant"]
    assert 0.85 < np.mean(covered) <= 1.0


def test_seasons_of_many_cells_show_in_whole_series(monkeypatch):
    """Vecchia's likelihood sees near cells only: none a year away."""
    monkeypatch.setattr(fit_cells, "DENSE", 300)
    monkeypatch.setattr(fit_effects, "_CELLS", 300)
    random = np.random.default_rng(0)
    months, x = np.arange(60.0), np.arange(4.0)
    roots = [
        np.linalg.cholesky(Matern52(length, 1.0).covariance(own) + 1e-9 * np.eye(len(own)))
        for own, length in ((months, 3.0), (x, 4.0), (x, 4.0))
    ]
    field = np.einsum("ta,yb,xc,abc->tyx", *roots, random.standard_normal((60, 4, 4)))
    field += 3.0 * np.cos(2 * np.pi * months / 12)[:, None, None] * (1 + 0.05 * x)
    times = xr.date_range("2001-01-01", periods=60, freq="MS")
    truth = xr.DataArray(10 + field, {"time": times, "y": x, "x": x})
    hidden = random.random(truth.shape) < 0.3
    hidden[-8:] = True
    da = (truth + 0.1 * random.standard_normal(truth.shape)).where(~hidden)
    assert da.count() > 300
    posterior = GridGP(mean="time.month", scales=1).fit(da, domain=None).posterior()
    error = (posterior["mean"] - truth)[-6:]
    assert float(np.sqrt((error**2).mean())) < 1.2  # of the field 1.0, with the season 2.3
    assert 0.85 < float((abs(error) < 1.96 * posterior["std"][-6:]).mean()) <= 1.0


def test_a_climatology_is_saved_and_shown(tmp_path):
    truth, da = two_years(8.0)
    model = GridGP(mean="time.month", scales=1).fit(da)
    assert set(model.kernels_) == {"time", "x"}
    shown = model.mean_.mean("x")
    assert float(shown[0] - shown[6]) == pytest.approx(16, abs=4)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.mean == "time.month"
    later = {"time": ["2004-01-15", "2004-07-15"]}
    xr.testing.assert_allclose(again.predict(**later), model.predict(**later))
    ahead = model.predict(**later)["mean"].mean("x")
    assert float(ahead[0] - ahead[1]) > 8


def test_averages_of_noise_say_how_uncertain_they_are():
    noise = np.random.default_rng(0).standard_normal((36, 40))
    months = xr.date_range("2001-01-01", periods=36, freq="MS")
    da = xr.DataArray(noise, {"time": months, "x": np.arange(40.0)})
    kernels = {"time": Matern32(60.0, 1e-4), "x": Matern32(2.0, 1.0)}
    averages = GridGP(kernels, 1.0, mean="time.month", learner=None).fit(da).posterior()
    covered = abs(averages["mean"]) < 1.96 * averages["std"]
    assert float(covered.mean()) == pytest.approx(0.95, abs=0.03)
    assert float(averages["std"].mean()) == pytest.approx(1 / np.sqrt(3), rel=0.02)


# ---------------------------------------------------------------------- words


def test_the_summary_says_what_was_done():
    da = monthly()
    model = GridGP().fit(da)
    text = model.summary()
    assert text.startswith("GridGP of time 24, x 5: ")
    assert f"{int(da.notnull().sum())} of 120 cells observed" in text
    assert "method: dense; variance: exact" in text
    terms = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    for c, term in enumerate(terms):
        name = "kernel" if len(terms) == 1 else f"kernel {c + 1} of {len(terms)}"
        assert f"{name}: standard deviation {term['time'].variance ** 0.5:.4g}" in text
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


def test_units_of_times_are_reported_and_chosen():
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
        ({"kernels": TRUTH}, "give noise_variance="),
    ],
)
def test_keeping_what_is_not_given_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        GridGP(**options, learner=None).fit(drawn())


def test_a_period_that_meets_itself_is_refused():
    phase = np.arange(0.0, 361.0, 30.0)  # of longitudes the repeated column is recognised
    da = xr.DataArray(np.cos(np.radians(phase)), {"phase": phase})
    with pytest.raises(ValueError, match="the same one under a period of 360"):
        GridGP({"phase": Periodic(360.0)}).fit(da)
