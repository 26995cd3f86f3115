"""Priors of hyperparameters: densities, and what learners make of them."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GridGP,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import ParameterError
from dsgp.kernels import (
    LogNormal,
    Matern12,
    Matern32,
    Matern52,
    PenalisedComplexity,
    QuasiPeriodic,
    SquaredExponential,
    Wiener,
    from_settings,
)

PRIORS = [
    ("lengthscale", LogNormal(2.0, 0.7)),
    ("variance", LogNormal(0.3, 1.5)),
    ("lengthscale", PenalisedComplexity(2.0, 0.1)),
    ("variance", PenalisedComplexity(1.5, 0.01)),
]
each_prior = pytest.mark.parametrize(("name", "prior"), PRIORS)


@each_prior
def test_densities_integrate_to_one_and_have_these_slopes(name, prior):
    def density(log_value):
        return np.exp(prior.log_density(name, np.exp(log_value)))

    assert quad(density, -25, 25, limit=400)[0] == pytest.approx(1.0, abs=1e-4)
    for value in (0.05, 1.0, 30.0):
        step = 1e-4
        up, here, down = (prior.log_density(name, value * np.exp(s)) for s in (step, 0, -step))
        assert prior.slope(name, value) == pytest.approx((up - down) / (2 * step), abs=1e-6)
        bend = (up - 2 * here + down) / step**2
        assert prior.bend(name, value) == pytest.approx(bend, abs=1e-5)


def test_probabilities_are_those_that_were_asked_for():
    lengthscale, variance = PenalisedComplexity(2.0, 0.1), PenalisedComplexity(1.5, 0.01)
    below = quad(
        lambda t: np.exp(lengthscale.log_density("lengthscale", np.exp(t))), -25, np.log(2)
    )
    assert below[0] == pytest.approx(0.1, abs=1e-6)
    above = quad(lambda t: np.exp(variance.log_density("variance", np.exp(t))), 2 * np.log(1.5), 25)
    assert above[0] == pytest.approx(0.01, abs=1e-6)
    density = stats.norm(np.log(2.0), 0.7).logpdf(np.log(5.0))
    assert LogNormal(2.0, 0.7).log_density("lengthscale", 5.0) == pytest.approx(density)


@each_prior
def test_another_unit_of_the_target_moves_priors_of_variances_only(name, prior):
    kernel = Matern52(3.0, 0.7, priors={name: prior})
    other = kernel.scaled(10.0)
    assert other.variance == pytest.approx(70.0)
    assert other.log_prior == pytest.approx(kernel.log_prior)
    assert (other == kernel.with_parameters(variance=other.variance)) == (name == "lengthscale")


def test_kernels_with_priors_are_values_and_go_through_settings():
    kernel = QuasiPeriodic(
        7.0, priors={"lengthscale": PenalisedComplexity(2.0), "drift_periods": LogNormal(5.0)}
    )
    again = from_settings(kernel.to_settings())
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert "priors" in repr(kernel)
    assert "priors" not in Matern52().to_settings()
    both = Matern32(1.0, 1.0, priors={"variance": LogNormal(2.0)}) + Matern12(
        0.1, 0.5, priors={"lengthscale": LogNormal(0.2)}
    )
    assert list(both.priors) == ["variance_1", "lengthscale_2"]
    assert from_settings(both.to_settings()) == both
    assert both.log_prior == pytest.approx(sum(part.log_prior for part in both.parts))
    assert both.scaled(3.0).log_prior == pytest.approx(both.log_prior)
    assert both.with_parameters(lengthscale_2=0.3).log_prior != both.log_prior


def test_what_is_no_prior():
    for priors, message in (
        ({"length": LogNormal(1.0)}, "priors names 'length'; it can name"),
        ({"lengthscale": 2.0}, "a prior must be one of LogNormal, PenalisedComplexity"),
        ({"lengthscale": {"type": "Normal"}}, "a prior must be one of"),
        ([LogNormal(1.0)], "priors must map names"),
    ):
        with pytest.raises(ParameterError, match=message):
            Matern52(priors=priors)
    with pytest.raises(ParameterError, match="lengthscale is fixed and has a prior"):
        Matern52(1.0, fixed="lengthscale", priors={"lengthscale": LogNormal(1.0)})
    with pytest.raises(ParameterError, match="is neither: use LogNormal"):
        QuasiPeriodic(7.0, priors={"drift_periods": PenalisedComplexity(1.0)})
    for value in (0.0, -1.0, np.inf, "1", True):
        with pytest.raises(ParameterError, match="median must be a positive number"):
            LogNormal(value)
    with pytest.raises(ParameterError, match="probability must be below 1"):
        PenalisedComplexity(1.0, 1.0)


# ---- in models


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(0, 10, n), "b": rng.uniform(0, 10, n)})
    y = 50 * (np.sin(X["a"]) + 0.2 * X["b"] + 0.3 * rng.standard_normal(n))
    return X, y.to_numpy()


def test_a_wiener_process_has_none():
    with pytest.raises(ParameterError, match="no model uses priors"):
        Wiener(2, priors={"variance": LogNormal(1.0)})


@pytest.mark.parametrize("learner", ["marginal", "vbem"])
def test_one_term_ends_at_the_largest_posterior(learner):
    X, y = table()
    priors = {"lengthscale": LogNormal(0.5, 0.1), "variance": PenalisedComplexity(20.0, 0.01)}
    model = AdditiveGPRegressor(
        Matern52(priors=priors), learner=learner, learner_tol=1e-4, bins=None
    ).fit(X[["a"]], y)
    x, centred = X["a"].to_numpy(), y - y.mean()

    def negative(logs):
        kernel = Matern52(np.exp(logs[0]), np.exp(logs[1]), priors=priors)
        covariance = kernel.covariance(x) + np.exp(logs[2]) * np.eye(len(x))
        _, log_det = np.linalg.slogdet(covariance)
        fit = centred @ np.linalg.solve(covariance, centred)
        return 0.5 * (log_det + fit) - kernel.log_prior

    kernel = model.kernels_["a"]
    start = np.log([kernel.lengthscale, kernel.variance, model.noise_variance_])
    best = minimize(negative, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6})
    np.testing.assert_allclose(start, best.x, atol=0.05)
    plain = AdditiveGPRegressor(learner=learner, bins=None).fit(X[["a"]], y).kernels_["a"]
    assert kernel.lengthscale < 0.8 * plain.lengthscale
    assert kernel.priors == priors


def test_several_terms_use_theirs_and_the_model_is_kept(tmp_path):
    X, y = table()
    terms = {"a": Matern52(priors={"lengthscale": LogNormal(0.3, 0.05)}), "b": SquaredExponential()}
    model = AdditiveGPRegressor(terms=terms).fit(X, y)
    assert model.kernels_["a"].lengthscale == pytest.approx(0.3, rel=0.2)
    model.save(tmp_path / "m.zarr")
    again = dsgp.load(tmp_path / "m.zarr")
    assert again.kernels_ == model.kernels_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def counts_and_classes():
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 10, 120)
    f = np.sin(1.5 * x)
    return x[:, None], rng.poisson(np.exp(0.5 * f)), rng.uniform(size=120) < 1 / (1 + np.exp(-f))


@pytest.mark.parametrize("learner", ["marginal", "independent"])
@pytest.mark.parametrize("kind", ["poisson", "classifier"])
def test_other_likelihoods_end_at_the_largest_posterior(kind, learner):
    """Against the evidence of fits with given hyperparameters all around."""
    X, counts, classes = counts_and_classes()
    # Long enough for the nodes of a search to resolve it.
    priors = {"lengthscale": LogNormal(3.0, 0.1), "variance": PenalisedComplexity(0.5, 0.01)}
    # The constant is given: while learning it has a prior of its own.
    settings = {"learner_tol": 1e-6, "bins": None, "intercept": 0.0}

    def fitted(kernel, learner):
        if kind == "poisson":
            model = GeneralizedAdditiveGP("poisson", kernel, learner=learner, **settings)
            return model.fit(X, counts)
        return AdditiveGPClassifier(kernel, learner=learner, **settings).fit(X, classes)

    def kernel_of(model):
        return next(iter(dict(model.kernels_).values()))

    def objective(logs):
        lengthscale, variance = np.exp(logs)
        given = Matern52(lengthscale, variance)
        value = fitted(given, None).log_marginal_likelihood_
        return value + Matern52(lengthscale, variance, priors=priors).log_prior

    kernel = kernel_of(fitted(Matern52(priors=priors), learner))
    assert kernel.priors == priors
    here = np.log([kernel.lengthscale, kernel.variance])
    value, step = objective(here), 0.05
    for k in range(2):
        move = step * np.eye(2)[k]
        up, down = objective(here + move), objective(here - move)
        # Newton's step to where finite differences of the log posterior vanish.
        bend = (2 * value - up - down) / step**2
        assert bend > 0
        assert abs((up - down) / (2 * step) / bend) < 0.05
    for move in ([1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1], [1, -1], [-1, 1]):
        assert objective(here + 0.6 * np.array(move)) < value
    plain = kernel_of(fitted(Matern52(), learner))
    assert abs(np.log(kernel.lengthscale / 3)) < 0.5 * abs(np.log(plain.lengthscale / 3))


def test_where_priors_do_not_count_they_are_refused():
    X, y = table()
    kernel = Matern52(1.0, 1.0, priors={"lengthscale": LogNormal(1.0)})
    told = "has priors, which only learners that maximise a marginal likelihood use"
    with pytest.raises(ParameterError, match=told):
        AdditiveGPRegressor(kernel, noise_variance=1.0, learner=None).fit(X, y)
    with pytest.raises(ParameterError, match=told):
        GeneralizedAdditiveGP("poisson", kernel, learner=None).fit(X, np.ones(len(X)))
    with pytest.raises(ParameterError, match=told):
        AdditiveGPRegressor(terms={"a": kernel}, learner="em").fit(X, y)
    with pytest.raises(ParameterError, match=told):
        AdditiveGPRegressor(terms={"a": kernel}, method="gibbs").fit(X, y)
    with pytest.raises(ParameterError, match=told):
        ProjectionPursuitGPRegressor(terms={"a": kernel}).fit(X, y)
    with pytest.raises(ParameterError, match="priors of projections are those of the search"):
        ProjectionPursuitGPRegressor(Matern52(priors=kernel.priors)).fit(X, y)
    field = GridGP({"x": kernel})
    with pytest.raises(ParameterError, match="priors of a grid's hyperparameters"):
        field.fit(xr.DataArray(np.arange(5.0), {"x": np.arange(5.0)}))
