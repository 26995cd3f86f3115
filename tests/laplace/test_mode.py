"""The mode on rows against dense algebra and scikit-learn, where it is easy and where it is not."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from scipy.special import expit, logit, ndtr
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import Kernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from dsgp.additive import AdditiveSystem
from dsgp.additive.variance import DenseCovariance
from dsgp.estimators import AdditiveGPClassifier, GeneralizedAdditiveGP
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.laplace import mode as mode_module
from dsgp.laplace.mode import find_mode
from dsgp.likelihoods import Bernoulli, Gamma, NegativeBinomial, Poisson, StudentT
from tests.laplace.dense import KERNELS, LIKELIHOODS, Laplace, example

EVERY = pytest.mark.parametrize("name", LIKELIHOODS)
SOLVER = pytest.mark.parametrize("solver", ["multigrid", "cg", "backfitting"])
TWO = [Matern52(1.0, 2.0), Matern32(1.0, 1.0)]
pytestmark = pytest.mark.filterwarnings("error")


def mode_of(given, **options):
    usual = {
        "spreads": None,
        "start": None,
        "with_pairs": False,
        "solver": "multigrid",
        "tol": 1e-8,
        "max_iter": 5000,
        "newton_max_iter": 200,
    }
    return find_mode(given.rows, given.likelihood, given.level, given.kernels, **usual | options)


def require_rising(mode):
    trace = np.array(mode.trace)
    assert np.isfinite(trace).all()
    assert np.all(np.diff(trace) >= -1e-12 * np.abs(trace[1:]))


def require_mode(given, mode, within=1e-6):
    """It is stationary: f_d = K_d Zᵀ∇."""
    require_rising(mode)
    assert mode.converged
    assert mode.solution.converged
    assert given.off_stationary(mode.solution.mean) < within


# ------------------------------------------------------------------ the exact mode


@EVERY
@SOLVER
@pytest.mark.parametrize("with_pairs", [False, True], ids=["rows", "pairs"])
def test_mode_is_the_dense_one(name, solver, with_pairs):
    given = example(name, 80, points=None, seed=4)
    mode = mode_of(given, solver=solver, with_pairs=with_pairs)
    require_mode(given, mode)
    np.testing.assert_allclose(mode.solution.mean, given.functions(), atol=1e-7)
    assert mode.objective == pytest.approx(given.mode[2], rel=1e-12)


@EVERY
def test_determinant_and_variance_are_the_dense_ones(name):
    given = example(name, 80, seed=5)
    mode = mode_of(given)
    covariance = DenseCovariance.of(mode.system, mode.system.equations)
    assert covariance.log_det == pytest.approx(given.log_det(), rel=1e-7)
    new = np.random.default_rng(0).standard_normal((20, len(given.kernels)))
    new[::5, 0] = np.nan
    expected = given.predict(new)[1]
    np.testing.assert_allclose(covariance.variance(list(new.T)), expected, rtol=1e-6)


@EVERY
def test_a_warm_start_changes_nothing(name):
    given = example(name, 80, seed=6)
    start = np.random.default_rng(0).standard_normal(given.table.size)
    mode = mode_of(given, start=start)
    require_mode(given, mode)
    np.testing.assert_allclose(mode.solution.mean, given.functions(), atol=1e-7)


def test_from_the_mode_it_takes_fewer_steps():
    given = example("poisson", points=None)
    first = mode_of(given)
    again = mode_of(given, start=first.solution.mean)
    assert len(again.trace) < len(first.trace)
    np.testing.assert_allclose(again.solution.mean, first.solution.mean, atol=1e-8)


def test_steps_share_smoothers_while_weights_are_near(monkeypatch):
    given = example("poisson", 60, seed=3)
    made = []
    solvers = AdditiveSystem.solvers
    counted = cached_property(lambda system: made.append(1) or solvers.func(system))
    counted.__set_name__(AdditiveSystem, "solvers")
    monkeypatch.setattr(AdditiveSystem, "solvers", counted)
    found = {}
    for near in (1.0, 2.0):
        monkeypatch.setattr(mode_module, "_NEAR", near)
        made.clear()
        found[near] = mode_of(given)
        require_mode(given, found[near])
        assert (len(made) < len(found[near].trace)) == (near > 1)
    np.testing.assert_allclose(
        found[2.0].solution.mean, found[1.0].solution.mean, rtol=0, atol=1e-7
    )


def test_shift_is_seen_by_the_likelihood_only():
    given = example("gamma", points=None, missing=0.0)
    shift = 0.3 * np.random.default_rng(0).standard_normal(given.table.size)
    mode = mode_of(given, shift=shift)
    moved = replace(given, offset=given.offset + given.table.gather(shift))
    np.testing.assert_allclose(mode.solution.mean, moved.functions(), atol=1e-7)


def test_missing_inputs_add_nothing():
    """A row without any input sees the level only."""
    given = example("poisson", points=None)
    given.X[:5] = np.nan
    mode = mode_of(given)
    require_mode(given, mode)
    assert np.all(given.table.gather(mode.solution.mean)[:5] == 0)


# ------------------------------------------------------------------ the posterior's averages


def averaged(function, mean, variance):
    """By the trapezoidal rule, exact to rounding for such functions."""
    z = np.linspace(-12, 12, 4001)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    return function(mean[:, None] + np.sqrt(variance)[:, None] * z) @ density


@pytest.mark.parametrize(("link", "inverse"), [("logit", expit), ("probit", ndtr)])
def test_probabilities_are_averaged_over_the_dense_posterior(link, inverse):
    given = example(link, kernels=KERNELS[1:3], shifted=False)
    kernels = dict(zip(("x0", "x1"), given.kernels, strict=True))
    model = AdditiveGPClassifier(
        terms=kernels, link=link, intercept=given.level, learner=None, bins=None, tol=1e-9,
        missing="ignore",
    )  # fmt: skip
    model.fit(given.X, given.y, sample_weight=given.weight)
    new = np.random.default_rng(1).standard_normal((30, 2))
    mean, variance = given.predict(new)
    expected = averaged(inverse, given.level + mean, variance)
    np.testing.assert_allclose(model.predict_proba(new)[:, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(model.decision_function(new), logit(expected), atol=1e-6)
    latent = model.estimators_[0].predict_latent(new)
    np.testing.assert_allclose(latent, given.level + mean, atol=1e-6)
    assert model.log_marginal_likelihood_ == pytest.approx(given.evidence(), rel=1e-8)


@pytest.mark.parametrize("name", ["poisson", "binomial", "gamma"])
def test_mean_response_is_averaged_over_the_dense_posterior(name):
    given = example(name, kernels=KERNELS[1:3])
    model = GeneralizedAdditiveGP(
        given.likelihood,
        terms=dict(zip(("x0", "x1"), given.kernels, strict=True)),
        intercept=given.level, learner=None, bins=None, tol=1e-9, missing="ignore",
    )  # fmt: skip
    given.offset = given.offset if name == "binomial" else np.log(np.arange(1.0, 151.0))
    shifts = {"offset": given.offset}
    if name != "binomial":
        shifts = {"exposure": np.exp(given.offset)}
    trials = given.trials if len(given.trials) else None
    model.fit(given.X, given.y, sample_weight=given.weight, trials=trials, **shifts)
    assert model.log_marginal_likelihood_ == pytest.approx(given.evidence(), rel=1e-8)
    new = np.random.default_rng(1).standard_normal((30, 2))
    mean, variance = given.predict(new)
    latent = given.level + mean
    highest = given.level + given.predict(given.X[given.weight > 0])[0].max()
    # On a log link f counts as no higher than rows have it, or three above its mean.
    most = np.full(len(new), np.inf) if name == "binomial" else np.maximum(highest, latent + 3)

    def response(f):
        return given.likelihood.inverse_link(np.minimum(f, most[:, None]))

    expected = averaged(response, latent, variance)
    # Where f is held there is a kink, which quadratures see to fewer digits.
    rtol = 1e-6 if name == "binomial" else 1e-4
    np.testing.assert_allclose(model.predict(new), expected, rtol=rtol)
    median = given.likelihood.inverse_link(latent)
    np.testing.assert_allclose(model.predict(new, statistic="median"), median, rtol=1e-6)


# ------------------------------------------------------------------ scikit-learn


class Additive(Kernel):
    """Sum of scikit-learn's Matérn kernels, each of a single column."""

    def __init__(self, kernels=()):
        self.kernels = kernels

    def _own(self, kernel):
        return SklearnMatern(kernel.lengthscale, nu=kernel.smoothness)

    def __call__(self, X, Y=None, eval_gradient=False):
        assert not eval_gradient
        Y = X if Y is None else Y
        columns = enumerate(self.kernels)
        return sum(k.variance * self._own(k)(X[:, [d]], Y[:, [d]]) for d, k in columns)

    def diag(self, X):
        return np.full(len(X), sum(k.variance for k in self.kernels))

    def is_stationary(self):
        return True


def test_logit_agrees_with_scikit_learn():
    given = example("logit", 200, points=None, missing=0.0, weighted=False, shifted=False)
    kernels = tuple(given.kernels[:3])  # scikit-learn's ν = 7/2 takes Bessel functions
    given = replace(given, X=given.X[:, :3], kernels=list(kernels), level=0.0)
    peer = GaussianProcessClassifier(Additive(kernels), optimizer=None, max_iter_predict=1000)
    peer.fit(given.X, given.y)
    mode = mode_of(given)
    latent = given.table.gather(mode.solution.mean)
    np.testing.assert_allclose(latent, peer.base_estimator_.f_cached, atol=1e-6)
    model = AdditiveGPClassifier(
        terms=dict(zip(("x0", "x1", "x2"), kernels, strict=True)),
        intercept=0.0, learner=None, bins=None, tol=1e-9,
    ).fit(given.X, given.y)  # fmt: skip
    np.testing.assert_allclose(model.estimators_[0].predict_latent(given.X), latent, atol=1e-6)
    ours, theirs = model.log_marginal_likelihood_, peer.log_marginal_likelihood_value_
    assert ours == pytest.approx(theirs, rel=1e-8)
    # Its averages are Williams and Barber's approximation, good to about 1e-3.
    new = np.random.default_rng(2).standard_normal((50, 3))
    assert np.abs(model.predict_proba(new) - peer.predict_proba(new)).max() < 5e-3


# ------------------------------------------------------------------ hard cases


@SOLVER
def test_separable_classes_with_a_wide_prior(solver):
    X = np.random.default_rng(0).standard_normal((100, 2))
    y = (X[:, 0] > 0).astype(float)
    given = Laplace(X, y, [Matern52(1.0, 1e3), Matern32(1.0, 1e2)], Bernoulli())
    require_mode(given, mode_of(given, solver=solver, tol=1e-6), 1e-4)


@pytest.mark.parametrize("solver", ["multigrid", "cg"])
def test_a_billion_beside_nothing(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.where(rng.uniform(size=60) < 0.1, 1e9, 0.0)
    given = Laplace(X, y, [Matern12(1.0, 10.0)] * 2, Poisson(), Poisson().start(y))
    require_mode(given, mode_of(given, solver=solver, tol=1e-4), 1e-2)


@SOLVER
@pytest.mark.parametrize("size", [40.0, 700.0, 1e5])
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_confident_rows_whose_weights_vanish(solver, size, right, link):
    """The logit's weight underflows; the probit's does where the row is right."""
    if link == "probit" and not right and size > 1e3:
        pytest.skip("f has to cross a thousand prior standard deviations")
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 2))
    offset = np.where(rng.uniform(size=50) < 0.5, size, -size)
    y = ((offset > 0) == right).astype(float)
    given = Laplace(X, y, TWO, Bernoulli(link), offset=offset)
    mode = mode_of(given, solver=solver, tol=1e-5)
    require_mode(given, mode, 1e-3)
    assert np.isfinite(mode.solution.dual).all()


@pytest.mark.parametrize(
    ("likelihood", "y", "offset"),
    [
        (Poisson(), 0.0, -1e5),
        (NegativeBinomial(dispersion=2.0), 0.0, -1e5),
        (Gamma(shape=2.0), 1e-100, -230.0),
        (Gamma(shape=2.0), 1e100, 230.0),
        (LIKELIHOODS["ordered"], 0.0, -1e5),
        (LIKELIHOODS["ordered"], 3.0, 1e5),
    ],
)
def test_latents_far_away(likelihood, y, offset):
    X = np.random.default_rng(2).standard_normal((40, 2))
    given = Laplace(X, np.full(40, y), TWO, likelihood, offset=np.full(40, offset))
    require_mode(given, mode_of(given))


def test_gross_outliers_under_student_t():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((100, 2))
    y = np.where(rng.uniform(size=100) < 0.1, 1e6, np.sin(X[:, 0]))
    given = Laplace(X, y, TWO, StudentT(scale=0.1))
    mode = mode_of(given, tol=1e-4, newton_max_iter=500)
    require_mode(given, mode, 5e-3)
    assert np.abs(mode.solution.mean).max() < 10


def test_weights_over_many_orders():
    rng = np.random.default_rng(4)
    given = example("negative_binomial", 100, points=None, kernels=TWO)
    given.weight = 10 ** rng.uniform(-12, 6, 100)
    given.weight[::9] = 0.0
    require_mode(given, mode_of(given, tol=1e-6), 1e-4)


def test_a_solution_that_rounding_spoils_is_not_called_converged():
    """W is of the order e^100 where it starts: no solver gets anywhere."""
    rng = np.random.default_rng(5)
    given = Laplace(rng.standard_normal((60, 2)), rng.poisson(3.0, 60) * 1.0, TWO, Poisson())
    start = 60 * rng.standard_normal(given.table.size)
    with np.errstate(all="ignore"):
        mode = mode_of(given, solver="cg", start=start)
    if mode.converged and mode.solution.converged:
        assert given.off_stationary(mode.solution.mean) < 1e-5


def test_too_few_steps_are_reported():
    given = example("poisson", 100, points=None)
    mode = mode_of(given, newton_max_iter=1)
    assert not mode.converged
    assert len(mode.trace) == 1
    assert mode.step > 1e-8


# ------------------------------------------------------------------ any rows


@st.composite
def small_problems(draw):
    """Few rows: ties, constant targets, one row, one column or none, any weights."""
    n = draw(st.integers(1, 12))
    n_terms = draw(st.integers(0, 3))
    name = draw(st.sampled_from(sorted(LIKELIHOODS)))
    likelihood = LIKELIHOODS[name]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    decimals = draw(st.sampled_from([0, 1, 8]))
    X = np.round(rng.standard_normal((n, n_terms)), decimals)
    X[rng.uniform(size=X.shape) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    X[0] = np.nan_to_num(X[0])  # a column of nothing has no axis
    trials = rng.integers(1, 5, n) * 1.0 if name == "binomial" else np.empty(0)
    y = likelihood.sample(rng.standard_normal(n), rng, trials if len(trials) else None)
    if draw(st.booleans()):
        y, trials = np.full(n, y[0]), trials[:1].repeat(n)
    weight = np.empty(0)
    if draw(st.booleans()):
        weight = 10 ** rng.uniform(-6, 3, n)
    makes = draw(st.lists(st.sampled_from([Matern12, Matern32, Matern52]), min_size=3, max_size=3))
    kernels = [make(10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-2, 1)) for make in makes]
    return Laplace(X, y, kernels[:n_terms], likelihood, 0.1, weight, trials=trials)


@drawn(small_problems(), st.sampled_from(["multigrid", "cg"]), st.booleans())
@settings(max_examples=150)
def test_any_small_table(given, solver, with_pairs):
    mode = mode_of(given, solver=solver, with_pairs=with_pairs, tol=1e-7, newton_max_iter=1000)
    require_mode(given, mode, 1e-4)
