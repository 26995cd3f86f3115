"""Functions finer than a fiftieth of their column: found, or said not to be; noise stays noise."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GeneralizedPursuitGP,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import ConvergenceWarning, DataWarning
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, SquaredExponential
from dsgp.terms import Smooth


def waves(x, cycles):
    return np.sin(2 * np.pi * cycles * x)


def rmse(model, X, truth):
    return float(np.sqrt(np.mean((model.predict(X) - truth) ** 2)))


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


T = np.arange(1000.0)[:, None]
WAVE = 2 * np.sin(2 * np.pi * T[:, 0] / 40)
Y = WAVE + 0.3 * np.random.default_rng(0).standard_normal(1000)


@pytest.mark.parametrize("make", [Matern12, Matern32, Matern52, Matern72])
def test_wave_of_a_25th_of_the_column(make):
    model = AdditiveGPRegressor(make()).fit(T, Y)
    assert model.converged_
    assert rmse(model, T, WAVE) < (0.26 if make is Matern12 else 0.13)
    given = make(20.0, 2.0, fixed=("lengthscale", "variance"))
    right = AdditiveGPRegressor(given, noise_variance=0.09, learner=None).fit(T, Y)
    assert model.log_marginal_likelihood_ > right.log_marginal_likelihood_


@pytest.mark.parametrize("learner", ["marginal", "vbem"])
@pytest.mark.parametrize("period", [6, 10, 25])
def test_periods_down_to_some_points(period, learner):
    truth = 2 * np.sin(2 * np.pi * T[:, 0] / period)
    y = truth + 0.3 * np.random.default_rng(period).standard_normal(1000)
    model = AdditiveGPRegressor(learner=learner).fit(T, y)
    assert model.converged_
    assert rmse(model, T, truth) < 0.3
    assert 0.1 * period < model.kernels_["x0"].lengthscale < period


@pytest.mark.parametrize("fixed", [(), ("lengthscale",), ("variance",)])
def test_right_start_is_kept(fixed):
    kernel = Matern52(20.0, 2.0, fixed=fixed)
    model = AdditiveGPRegressor(kernel, noise_variance=0.09).fit(T, Y)
    start = AdditiveGPRegressor(Matern52(20.0, 2.0), noise_variance=0.09, learner=None).fit(T, Y)
    assert model.log_marginal_likelihood_ >= start.log_marginal_likelihood_
    assert rmse(model, T, WAVE) < 0.13
    for name in fixed:
        assert getattr(model.kernels_["x0"], name) == pytest.approx(getattr(kernel, name))


def test_start_beside_a_column_that_is_smooth():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(800, 2))
    truth = 0.1 * waves(X[:, 0], 60) + np.sin(4 * X[:, 1])
    y = truth + 0.15 * rng.standard_normal(800)  # too weak for the screen to be sure
    terms = {"x0": Matern52(0.005, 0.01), "x1": Matern52()}
    model = AdditiveGPRegressor(terms=terms, noise_variance=0.02).fit(X, y)
    free = AdditiveGPRegressor().fit(X, y)
    assert model.log_marginal_likelihood_ >= free.log_marginal_likelihood_ - 0.5


def test_missing_values_coded_as_a_number():
    rng = np.random.default_rng(0)
    for truth, limit in ((lambda x: np.sin(8 * x), 0.03), (lambda x: waves(x, 80), 0.09)):
        x = rng.uniform(size=3000)
        y = truth(x) + 0.2 * rng.standard_normal(3000)
        x[::5] = -9999.0
        with pytest.warns(DataWarning, match="exactly -9999"):
            model = AdditiveGPRegressor().fit(x[:, None], y)
        kept = np.arange(3000) % 5 > 0
        assert model.converged_
        assert rmse(model, x[kept, None], truth(x[kept])) < limit


def test_fine_wave_on_a_trend_in_one_column():
    truth = 2 * np.sin(2 * np.pi * T[:, 0] / 20) + T[:, 0] / 100
    y = truth + 0.3 * np.random.default_rng(0).standard_normal(1000)
    assert rmse(AdditiveGPRegressor().fit(T, y), T, truth) < 0.2


@pytest.mark.parametrize("weighted", [False, True])
def test_fine_waves_in_two_columns_of_five(weighted):
    """With ties in one of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 5))
    X[:, 0] = np.round(X[:, 0], 3)
    truth = waves(X[:, 0], 100) + 0.7 * waves(X[:, 1], 150) + np.sin(4 * X[:, 2]) + X[:, 3]
    weight = rng.uniform(0.1, 2.0, 4000) if weighted else np.ones(4000)
    y = truth + 0.3 * rng.standard_normal(4000) / np.sqrt(weight)
    model = AdditiveGPRegressor().fit(X, y, sample_weight=weight if weighted else None)
    assert model.converged_
    assert rmse(model, X, truth) < 0.2
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.15)


def test_correlated_columns_keep_their_functions():
    rng = np.random.default_rng(0)
    Z = (
        rng.standard_normal((3000, 3))
        @ np.linalg.cholesky(0.8 * np.ones((3, 3)) + 0.2 * np.eye(3)).T
    )
    truth = np.sin(40 * Z[:, 0]) + np.sin(Z[:, 1]) + 0.3 * Z[:, 2] ** 2
    model = AdditiveGPRegressor().fit(Z, truth + 0.3 * rng.standard_normal(3000))
    assert rmse(model, Z, truth) < 0.12


def test_missing_inputs_beside_a_wave():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1500, 2))
    truth = waves(X[:, 0], 60)
    X[::3, 0] = np.nan
    truth = np.where(np.isnan(X[:, 0]), 0.0, truth) + X[:, 1]
    model = AdditiveGPRegressor(missing="ignore").fit(X, truth + 0.1 * rng.standard_normal(1500))
    assert rmse(model, X, truth) < 0.1


@pytest.fixture(scope="module")
def many_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100_000, 2))
    truth = waves(X[:, 0], 400) + np.sin(5 * X[:, 1])
    return X, truth, truth + 0.5 * rng.standard_normal(100_000)


def test_hundreds_of_waves_within_bins(many_rows):
    X, truth, y = many_rows
    model = AdditiveGPRegressor().fit(X, y)
    assert model.converged_
    assert rmse(model, X, truth) < 0.1
    assert model.noise_variance_ == pytest.approx(0.25, rel=0.03)


def test_hundreds_of_waves_in_rows_that_stream(many_rows):
    X, truth, y = many_rows
    chunks = da.from_array(X, chunks=(30_000, 2)), da.from_array(y, chunks=30_000)
    model = AdditiveGPRegressor(Matern32()).fit(*chunks)
    assert model.converged_
    assert rmse(model, X, truth) < 0.1


def test_bins_that_hide_waves_are_said(many_rows):
    X, _, y = many_rows
    with pytest.warns(ConvergenceWarning, match=r"column 'x0' .* within\s+the bins \(bins=256\)"):
        model = AdditiveGPRegressor(bins=256).fit(X, y)
    assert not model.converged_
    with pytest.warns(ConvergenceWarning, match="column 'x0'"):
        counted = GeneralizedAdditiveGP("gaussian", bins=256).fit(X, y)
    assert not counted.converged_
    # Who gives the hyperparameters has not asked for more.
    kernels = Matern52(0.5, 1.0)
    AdditiveGPRegressor(kernels, noise_variance=0.5, learner=None, bins=256).fit(X, y)


RESPONSES = {
    "poisson": lambda f, rng: rng.poisson(np.exp(f + 0.5)),
    "gamma": lambda f, rng: rng.gamma(4.0, np.exp(f) / 4),
    "bernoulli": lambda f, rng: (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-2 * f))) * 1.0,
    "negative_binomial": lambda f, rng: rng.poisson(
        np.exp(f + 0.5) * rng.gamma(3.0, 1 / 3, len(f))
    ),
    "student_t": lambda f, rng: f + 0.3 * rng.standard_t(4, len(f)),
}


@pytest.mark.parametrize("likelihood", RESPONSES)
def test_fifty_cycles_under_any_likelihood(likelihood):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=2500)
    f = 1.5 * waves(x, 50)
    model = GeneralizedAdditiveGP(likelihood).fit(x[:, None], RESPONSES[likelihood](f, rng))
    assert model.converged_
    assert np.corrcoef(model.predict_latent(x[:, None]), f)[0, 1] > 0.92
    if likelihood == "gamma":
        assert model.likelihood_.shape == pytest.approx(4.0, rel=0.15)
    if likelihood == "student_t":
        assert model.likelihood_.scale == pytest.approx(0.3, rel=0.15)


def test_right_start_is_kept_under_a_likelihood():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(size=2000))[:, None]
    f = 1.5 * waves(x[:, 0], 50)
    y = rng.poisson(np.exp(f))
    start = Matern52(0.006, 1.5)
    model = GeneralizedAdditiveGP("poisson", start).fit(x, y)
    fixed = GeneralizedAdditiveGP("poisson", start, learner=None).fit(x, y)
    assert model.log_marginal_likelihood_ > fixed.log_marginal_likelihood_ - 1e-6
    kept = GeneralizedAdditiveGP("poisson", Matern52(0.006, fixed="lengthscale")).fit(x, y)
    assert np.corrcoef(kept.predict_latent(x), f)[0, 1] > 0.95


def test_classes_that_alternate():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1500, 1))
    labels = np.where(waves(x[:, 0], 40) > 0, "up", "down")
    labels[rng.uniform(size=1500) < 0.05] = "other"
    model = AdditiveGPClassifier().fit(x, labels)
    assert np.mean(model.predict(x) == labels) > 0.88


def test_final_fits_of_pursuit():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 1))
    truth = 2 * X[:, 0] + 0.8 * waves(X[:, 0], 20)
    y = truth + 0.3 * rng.standard_normal(1500)
    model = ProjectionPursuitGPRegressor(random_state=0).fit(X, y)
    assert rmse(model, X, truth) < 0.1
    kept = ProjectionPursuitGPRegressor(random_state=0, noise_variance=0.09, fixed_noise=True)
    assert kept.fit(X, y).noise_variance_ == pytest.approx(0.09)
    counts = rng.poisson(np.exp(1 + truth / 2))
    counted = GeneralizedPursuitGP("poisson", random_state=0).fit(X, counts)
    assert np.corrcoef(counted.predict_latent(X), truth)[0, 1] > 0.9


def curves_by_group(n, n_groups, radians, seed=0):
    """A wave of another phase in each group."""
    rng = np.random.default_rng(seed)
    group, x = rng.integers(n_groups, size=n), rng.uniform(size=n)
    truth = np.sin(radians * x + rng.uniform(0, 2 * np.pi, n_groups)[group])
    X = pd.DataFrame({"x": x, "group": [f"g{g}" for g in group]})
    return X, truth, truth + 0.3 * rng.standard_normal(n)


def varying_coefficient(n, radians, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.uniform(size=n), "z": rng.standard_normal(n)})
    truth = X.z.to_numpy() * np.sin(radians * X.x.to_numpy())
    return X, truth, truth + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("n_groups", [5, 20])
def test_fine_curves_by_group(n_groups):
    X, truth, y = curves_by_group(4000, n_groups, 200.0)
    model = AdditiveGPRegressor(terms=[Smooth("x", by="group")]).fit(X, y)
    assert model.converged_
    assert rmse(model, X, truth) < 0.25
    assert 0.05 < model.noise_variance_ < 0.13


@pytest.mark.parametrize("kernel", [None, SquaredExponential()])
def test_fine_varying_coefficient(kernel):
    X, truth, y = varying_coefficient(900, 100.0)
    model = AdditiveGPRegressor(terms=[Smooth("x", kernel, by="z")]).fit(X, y)
    assert model.converged_
    assert rmse(model, X, truth) < 0.2


def test_fine_curves_by_group_of_counts():
    X, truth, _ = curves_by_group(3000, 6, 150.0)
    y = np.random.default_rng(1).poisson(3 * np.exp(truth))
    model = GeneralizedAdditiveGP("poisson", terms=[Smooth("x", by="group")]).fit(X, y)
    assert model.converged_
    assert np.corrcoef(np.log(model.predict(X)), truth)[0, 1] > 0.9


def test_fine_functions_of_curves_and_coefficients_within_bins():
    X, truth, y = varying_coefficient(60_000, 3000.0)
    model = AdditiveGPRegressor(terms=[Smooth("x", by="z")]).fit(X, y)
    assert model.converged_
    assert rmse(model, X, truth) < 0.15
    X, truth, y = curves_by_group(60_000, 4, 1000.0)
    model = AdditiveGPRegressor(terms=[Smooth("x", by="group")]).fit(X, y)
    assert model.converged_
    assert rmse(model, X, truth) < 0.2


@pytest.mark.parametrize("table", ["curves", "varying"])
def test_bins_that_hide_waves_of_curves_and_coefficients_are_said(table):
    if table == "curves":
        (X, _, y), terms = curves_by_group(60_000, 20, 1500.0), [Smooth("x", by="group")]
    else:
        (X, _, y), terms = varying_coefficient(60_000, 3000.0), [Smooth("x", by="z")]
    with pytest.warns(ConvergenceWarning, match="x by .*within the bins"):
        model = AdditiveGPRegressor(terms=terms, bins=64).fit(X, y)
    assert not model.converged_


def test_dense_kernel_whose_bins_are_too_wide_says_so():
    """More bins would take minutes: the covariance of a dense kernel is worked on as a whole."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=20_000)
    y = np.sin(2500 * x) + 0.3 * rng.standard_normal(20_000)
    model = AdditiveGPRegressor(terms=[Smooth("x", SquaredExponential())])
    with pytest.warns(ConvergenceWarning, match="within the bins"):
        model.fit(pd.DataFrame({"x": x}), y)
    assert not model.converged_


@pytest.mark.parametrize(("n", "n_tables", "bins"), [(1500, 5, "auto"), (60_000, 1, 64)])
def test_smooth_curves_and_coefficients_are_left_alone(n, n_tables, bins):
    """Groups with noise of their own, uneven inputs, multipliers with heavy tails."""
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        n_groups = int(rng.integers(3, 25))
        group, x = rng.integers(n_groups, size=n), rng.lognormal(size=n)
        z = rng.lognormal(size=n)
        bent, turn = rng.uniform(0.5, 3, n_groups), rng.uniform(0, 6, n_groups)
        near = np.minimum(x, 5.0)
        y = np.sin(bent[group] * near + turn[group]) + z * np.cos(near)
        y += rng.uniform(0.2, 0.5, n_groups)[group] * rng.standard_normal(n)
        X = pd.DataFrame({"x": x, "z": z, "group": [f"g{g}" for g in group]})
        terms = [Smooth("x", by="group"), Smooth("x", by="z")]
        assert AdditiveGPRegressor(terms=terms, bins=bins).fit(X, y).converged_


def test_noise_is_left_alone(monkeypatch):
    """Fits of noise are those that they were without looking for structure."""
    results = {}
    for looking in (True, False):
        if not looking:
            for name in ("gaussian.fit.left_structure", "laplace.fit.left_structure"):
                monkeypatch.setattr(f"dsgp.models.{name}", lambda *_, **__: None)
        results[looking] = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            X = rng.uniform(size=(200, 3))
            y = rng.standard_normal(200) if seed % 2 else rng.standard_t(4, 200)
            results[looking].append(AdditiveGPRegressor().fit(X, y).log_marginal_likelihood_)
        rng = np.random.default_rng(0)
        counts = rng.poisson(2.0, 500)
        model = GeneralizedAdditiveGP("poisson").fit(rng.uniform(size=(500, 3)), counts)
        results[looking].append(model.log_marginal_likelihood_)
    assert results[True] == results[False]


def test_targets_without_noise_and_far_units():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1000)
    truth = waves(x, 60)
    assert rmse(AdditiveGPRegressor().fit(x[:, None], truth), x[:, None], truth) < 1e-3
    far = AdditiveGPRegressor().fit(1e9 * x[:, None] + 1e12, 1e8 * truth + 1e10)
    assert rmse(far, 1e9 * x[:, None] + 1e12, 1e8 * truth + 1e10) < 1e6


def dense_optimum(t, y, length, noise):
    """Log marginal likelihood of centred targets by dense algebra, from one start."""
    distance = np.sqrt(5) * np.abs(t[:, None] - t)

    def negative(logs):
        scaled = distance / np.exp(logs[0])
        kernel = np.exp(logs[1]) * (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
        factor = np.linalg.cholesky(kernel + np.exp(logs[2]) * np.eye(len(t)))
        white = np.linalg.solve(factor, y)
        log_det = 2 * np.log(np.diag(factor)).sum()
        return 0.5 * (white @ white + log_det + len(t) * np.log(2 * np.pi))

    start = np.log([length, np.var(y), noise])
    bounds = [(-2, 5), (-9, 5), (-11, 3)]
    return -minimize(negative, start, bounds=bounds).fun


@pytest.mark.parametrize(("n_rows", "period", "noise"), [(40, 7.0, 0.2), (25, 5.0, 0.1)])
def test_a_clear_wave_in_few_rows_is_not_taken_for_noise(n_rows, period, noise):
    rng = np.random.default_rng(n_rows)
    t = np.arange(float(n_rows))
    y = np.sin(2 * np.pi * t / period) + noise * rng.standard_normal(n_rows)
    model = AdditiveGPRegressor(Matern52()).fit(pd.DataFrame({"t": t}), y)
    best = max(dense_optimum(t, y - y.mean(), length, 0.1) for length in (1.0, 3.0, 10.0, 50.0))
    assert model.log_marginal_likelihood_ > best - 0.5
    assert model.noise_variance_ < 0.1
    assert model.converged_


def test_a_clear_wave_beside_other_columns_in_few_rows():
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.uniform(0, 100, (100, 3)), columns=["a", "b", "c"])
    y = np.sin(2 * np.pi * X["a"] / 5) + X["a"] / 50 + np.sin(X["c"] / 33)
    y += 0.02 * rng.standard_normal(100)
    by_points = AdditiveGPRegressor(Matern52(), learner="vbem").fit(X, y)
    model = AdditiveGPRegressor(Matern52()).fit(X, y)
    assert model.log_marginal_likelihood_ > by_points.log_marginal_likelihood_ - 0.5
    assert model.noise_variance_ < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_few_rows_of_noise_are_no_wave(seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": np.arange(60.0), "b": rng.uniform(size=60)})
    model = AdditiveGPRegressor(Matern52()).fit(X, rng.standard_normal(60))
    assert model.noise_variance_ > 0.4


def test_few_rows_of_many_columns_are_explained_by_the_one_that_can():
    """All terms together have an optimum at which each explains a little: 34 nats below."""
    rng = np.random.default_rng(5899454)
    X = rng.uniform(0, 20, (20, 5))
    X[:, 0] = np.arange(20) if rng.integers(2) else X[:, 0]
    y = np.sin(2 * np.pi * X[:, 0] / 10) + X[:, 0] / 10 + 0.01 * rng.standard_normal(20)
    table = pd.DataFrame(X, columns=list("abcde"))
    by_points = AdditiveGPRegressor(SquaredExponential(), learner="vbem").fit(table, y)
    model = AdditiveGPRegressor(SquaredExponential()).fit(table, y)
    assert model.log_marginal_likelihood_ > by_points.log_marginal_likelihood_ - 0.5
    assert model.noise_variance_ < 0.01
    assert max(model.kernels_[name].variance for name in "bcde") < 0.01
