"""One contract for every likelihood, against scipy.stats, finite differences and brute force."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from dsgp import likelihoods
from dsgp.errors import DataError, ParameterError
from dsgp.likelihoods import (
    Bernoulli,
    Binomial,
    Gamma,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Ordered,
    Poisson,
    StudentT,
)
from dsgp.likelihoods.quadrature import expected_logistic, log_expected_logistic


@dataclass
class Case:
    """A likelihood, some targets, and the same distribution from elsewhere."""

    likelihood: Any
    y: np.ndarray
    law: Callable[..., Any]  # (f, trials) to an object with logpmf or logpdf, cdf, mean, var
    trials: np.ndarray | None = None
    discrete: bool = True
    edge: np.ndarray | None = None  # targets at the edge of the support
    extreme: np.ndarray | None = None
    bad: tuple[float, ...] = ()

    @property
    def one_trial(self) -> float | None:
        return None if self.trials is None else float(self.trials[0])


class Categories:
    """Distribution of codes whose cumulative probabilities are F(cutpoint − f)."""

    def __init__(self, cuts, base, f):
        f = np.asarray(f, dtype=float)[..., None]
        self.cumulative = np.concatenate((base.cdf(np.array(cuts) - f), np.ones_like(f)), axis=-1)
        beyond = np.concatenate((base.sf(np.array(cuts) - f), np.zeros_like(f)), axis=-1)
        before = np.concatenate((np.zeros_like(f), self.cumulative[..., :-1]), axis=-1)
        after = np.concatenate((np.ones_like(f), beyond[..., :-1]), axis=-1)
        self.p = np.where(before > 0.5, after - beyond, self.cumulative - before)
        self.codes = np.arange(self.p.shape[-1])

    def _take(self, table, y):
        y = np.asarray(y, dtype=int)
        table = np.broadcast_to(
            table, (*np.broadcast_shapes(y.shape, table.shape[:-1]), table.shape[-1])
        )
        y = np.broadcast_to(y, table.shape[:-1])
        return np.take_along_axis(table, y[..., None], axis=-1)[..., 0]

    def logpmf(self, y):
        return np.log(self._take(self.p, y))

    def cdf(self, y):
        return self._take(self.cumulative, y)

    def mean(self):
        return self.p @ self.codes

    def var(self):
        return self.p @ self.codes**2 - self.mean() ** 2


BINARY = np.array([0.0, 1.0, 1.0])
COUNTS = np.array([0.0, 1.0, 3.0, 20.0])
BIG = np.array([0.0, 1.0, 1e9])
CUTS = (-1.2, 0.1, 2.0)
LOGISTIC, NORMAL = stats.logistic, stats.norm


def binomial_case(link, base):
    return Case(
        Binomial(link),
        np.array([0.0, 3.0, 12.0, 7.0]),
        lambda f, n: stats.binom(1 if n is None else n, base.cdf(f)),
        trials=np.array([12.0, 12.0, 12.0, 9.0]),
        edge=np.array([12.0, 12.0, 12.0, 9.0]),
        extreme=np.array([0.0, 1.0, 12.0, 9.0]),
        bad=(-1.0, 13.0, 2.5, np.nan, np.inf),
    )


def bernoulli_case(link, base):
    return Case(
        Bernoulli(link),
        BINARY,
        lambda f, n: stats.bernoulli(base.cdf(f)),
        edge=np.ones(4),
        extreme=BINARY,
        bad=(-1.0, 2.0, 0.5, np.nan),
    )


def ordered_case(link, base):
    return Case(
        Ordered(CUTS, link),
        np.array([0.0, 1.0, 2.0, 3.0, 2.0]),
        lambda f, n: Categories(CUTS, base, f),
        edge=np.full(4, 3.0),
        extreme=np.arange(4.0),
        bad=(-1.0, 4.0, 0.5, np.nan),
    )


def negative_binomial_case(alpha):
    return Case(
        NegativeBinomial(alpha),
        COUNTS,
        lambda f, n: stats.nbinom(1 / alpha, 1 / (1 + alpha * np.exp(f))),
        edge=np.zeros(4),
        extreme=BIG,
        bad=(-1.0, 0.5, np.nan, np.inf),
    )


POSITIVE = np.array([0.2, 1.0, 3.5])
REAL = np.array([-1.3, 0.2, 4.0])
CASES = {
    "bernoulli-logit": bernoulli_case("logit", LOGISTIC),
    "bernoulli-probit": bernoulli_case("probit", NORMAL),
    "binomial-logit": binomial_case("logit", LOGISTIC),
    "binomial-probit": binomial_case("probit", NORMAL),
    "poisson": Case(
        Poisson(),
        COUNTS,
        lambda f, n: stats.poisson(np.exp(f)),
        edge=np.zeros(4),
        extreme=BIG,
        bad=(-1.0, 0.5, np.nan, np.inf),
    ),
    "negative_binomial": negative_binomial_case(0.7),
    "negative_binomial-small": negative_binomial_case(0.01),
    "gamma": Case(
        Gamma(2.5),
        POSITIVE,
        lambda f, n: stats.gamma(2.5, scale=np.exp(f) / 2.5),
        discrete=False,
        extreme=np.array([1e-9, 1.0, 1e9]),
        bad=(0.0, -1.0, np.nan, np.inf),
    ),
    "gamma-rough": Case(
        Gamma(0.6),
        POSITIVE,
        lambda f, n: stats.gamma(0.6, scale=np.exp(f) / 0.6),
        discrete=False,
        extreme=POSITIVE,
        bad=(0.0,),
    ),
    "ordered-logit": ordered_case("logit", LOGISTIC),
    "ordered-probit": ordered_case("probit", NORMAL),
    "student_t": Case(
        StudentT(scale=0.8, dof=4.0),
        REAL,
        lambda f, n: stats.t(4.0, loc=f, scale=0.8),
        discrete=False,
        extreme=np.array([-1e9, 0.0, 1e3]),
        bad=(np.nan, np.inf),
    ),
    "gaussian": Case(
        Gaussian(0.5),
        REAL,
        lambda f, n: stats.norm(f, 0.5),
        discrete=False,
        extreme=np.array([-1e9, 0.0, 1e3]),
        bad=(np.nan, np.inf),
    ),
}
LATENTS = np.array([-4.0, -1.0, 0.3, 2.0])
MEANS = np.array([-3.0, -0.4, 0.0, 1.7])
VARIANCES = (0.0, 1e-6, 0.09, 1.0, 6.0)


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def crossed(case):
    """Every target at every latent: y and trials of shape (n_y, 1), f of shape (n_f,)."""
    trials = None if case.trials is None else case.trials[:, None]
    return case.y[:, None], LATENTS, trials


def law_logs(case, law, y):
    return law.logpmf(y) if case.discrete else law.logpdf(y)


def brute(mean, variance, reach=12.0):
    """Latents and log weights of a fine trapezoidal rule."""
    z = np.linspace(-reach, reach, 24001)
    logs = -0.5 * z * z + np.log((z[1] - z[0]) / np.sqrt(2 * np.pi))
    return mean + np.sqrt(variance) * z, logs


def test_log_density_is_that_of_scipy(case):
    y, f, trials = crossed(case)
    expected = law_logs(case, case.law(f, trials), np.broadcast_to(y, (y.size, f.size)))
    np.testing.assert_allclose(
        case.likelihood.log_density(y, f, trials), expected, rtol=1e-11, atol=1e-12
    )


def test_derivatives_are_finite_differences(case):
    y, f, trials = crossed(case)
    h = 1e-4

    def along(function):
        near, far = (function(f + k * h) - function(f - k * h) for k in (1, 2))
        return (8 * near - far) / (12 * h)

    likelihood = case.likelihood
    gradient, weight, slope = likelihood.derivatives(y, f, trials)
    by_f = along(lambda f: likelihood.log_density(y, f, trials))
    np.testing.assert_allclose(gradient, by_f, rtol=1e-8, atol=1e-9)
    by_f = along(lambda f: likelihood.derivatives(y, f, trials)[1])
    np.testing.assert_allclose(slope, by_f, rtol=1e-8, atol=1e-9)
    if likelihood.information == "observed":
        by_f = along(lambda f: likelihood.derivatives(y, f, trials)[0])
        np.testing.assert_allclose(weight, -by_f, rtol=1e-8, atol=1e-9)


def test_expected_information_is_that_of_student_t():
    likelihood = StudentT(scale=0.8, dof=4.0)
    y, logs = np.linspace(-400, 400, 800001), stats.t(4.0, scale=0.8)
    square = likelihood.derivatives(y, 0.0)[0] ** 2 * logs.pdf(y) * (y[1] - y[0])
    np.testing.assert_allclose(likelihood.derivatives(0.0, 0.0)[1], square.sum(), rtol=1e-6)


def test_by_parameters_are_finite_differences(case):
    y, f, trials = crossed(case)
    likelihood, h = case.likelihood, 1e-4
    centre = likelihood.unconstrained()
    density, weight = likelihood.by_parameters(y, f, trials)
    assert density.shape == weight.shape == (centre.size, y.size, f.size)
    assert len(likelihood.free) == centre.size
    for j in range(centre.size):
        values = []
        for k in (1, 2):
            step = k * h * np.eye(centre.size)[j]
            up, down = (likelihood.from_unconstrained(centre + s * step) for s in (1, -1))
            values.append(
                (
                    up.log_density(y, f, trials) - down.log_density(y, f, trials),
                    up.derivatives(y, f, trials)[1] - down.derivatives(y, f, trials)[1],
                )
            )
        for got, near, far in zip((density[j], weight[j]), *values, strict=True):
            np.testing.assert_allclose(got, (8 * near - far) / (12 * h), rtol=1e-7, atol=1e-8)


def test_weights_survive_where_the_density_is_far_away(case):
    trials = None if case.trials is None else case.trials[: case.extreme.size, None]
    f = np.array([-1e3, -700.0, -50.0, 50.0, 700.0, 1e3])
    likelihood = case.likelihood
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = case.extreme[:, None]
        results = [likelihood.log_density(y, f, trials), *likelihood.derivatives(y, f, trials)]
        results += list(likelihood.by_parameters(y, f, trials))
        for variance in (0.0, 1.0):
            results.append(likelihood.log_predictive(y, f[1:-1], variance, trials))
            results.append(likelihood.response_mean(f, variance))
            results.append(likelihood.response_variance(f, variance, trials))
            results.append(likelihood.mean_variance(f, variance))
        results += [likelihood.working_start(y, trials), likelihood.inverse_link(f)]
    assert all(np.isfinite(r).all() for r in results)
    assert (results[2] >= 0).all()


def test_response_moments_are_integrals(case):
    likelihood, trials = case.likelihood, case.one_trial
    for variance in VARIANCES[1:]:
        for mean in MEANS:
            f, logs = brute(mean, variance)
            law, g = case.law(f, trials), likelihood.inverse_link(f)
            scale = 1.0 if trials is None else trials
            weight = np.exp(logs)
            expected = weight @ g
            np.testing.assert_allclose(law.mean(), scale * g, rtol=1e-9, atol=1e-12)
            spread = weight @ (g - expected) ** 2
            got = likelihood.response_mean(mean, variance)
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-15)
            got = likelihood.mean_variance(mean, variance)
            np.testing.assert_allclose(got, spread, rtol=1e-8)
            got = likelihood.response_variance(mean, variance, trials)
            np.testing.assert_allclose(got, weight @ law.var() + scale**2 * spread, rtol=1e-8)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize(
    ("mean", "variance"), [(-30.0, 4.0), (-12.0, 9.0), (-15.0, 0.5), (9.0, 1.0)]
)
def test_mean_variance_keeps_its_digits_in_the_tails(link, mean, variance):
    f, logs = brute(-abs(mean), variance, 40.0)
    g, weight = Bernoulli(link).inverse_link(f), np.exp(logs)
    expected = weight @ (g - weight @ g) ** 2
    got = Bernoulli(link).mean_variance(mean, variance)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


@pytest.mark.parametrize("variance", [1e-6, 0.09, 1.0, 6.0, 200.0])
def test_log_predictive_is_an_integral(case, variance):
    for y, n in zip(case.y, [None] * 9 if case.trials is None else case.trials, strict=False):
        for mean in MEANS:
            f, logs = brute(mean, variance, 30.0)
            expected = logsumexp(case.likelihood.log_density(y, f, n) + logs)
            got = case.likelihood.log_predictive(y, mean, variance, n)
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


def test_log_predictive_without_variance_is_the_density(case):
    y, f, trials = crossed(case)
    np.testing.assert_allclose(
        case.likelihood.log_predictive(y, f, 0.0, trials),
        case.likelihood.log_density(y, f, trials),
        rtol=1e-9,
        atol=1e-10,
    )


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(1e-6)])
def test_log_predictive_of_a_huge_count(likelihood):
    y, mean, std = 1e9, np.log(1e9) + 0.5, 0.8
    width = 8 / np.sqrt(y / (1 + 1e-6 * y * bool(likelihood.free)))
    f = np.linspace(np.log(y) - width, np.log(y) + width, 4001)
    terms = likelihood.log_density(y, f) + stats.norm.logpdf(f, mean, std)
    expected = logsumexp(terms) + np.log(f[1] - f[0])
    np.testing.assert_allclose(likelihood.log_predictive(y, mean, std**2), expected, rtol=1e-7)


@pytest.mark.parametrize("variance", [0.0, 0.01, 0.5, 9.0])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_holds_the_quantiles(case, variance, level):
    likelihood, n = case.likelihood, case.one_trial
    means = np.append(MEANS, 4.0)
    ends = likelihood.interval(means, np.full(5, variance), level, None if n is None else [n] * 5)
    for end, tail in zip(ends, (0.5 - level / 2, 0.5 + level / 2), strict=True):
        assert end.shape == means.shape
        for mean, value in zip(means, end, strict=True):
            f, logs = brute(mean, variance)
            law, weight = case.law(f, n), np.exp(logs)
            if case.discrete:
                assert weight @ law.cdf(value) >= tail - 1e-9
                assert value == 0 or weight @ law.cdf(value - 1) < tail + 1e-9
            else:
                np.testing.assert_allclose(weight @ law.cdf(value), tail, atol=2e-9)


@pytest.mark.parametrize("variance", [0.0, 0.5, 9.0, 100.0])
def test_response_cdf_is_the_averaged_probability(case, variance):
    likelihood, n = case.likelihood, case.one_trial
    values = np.unique(case.y)
    for mean in MEANS:
        f, logs = brute(mean, variance)
        law, weight = case.law(f, n), np.exp(logs)
        shape = (np.full(len(values), mean), np.full(len(values), variance))
        trials = None if n is None else np.full(len(values), n)
        found = likelihood.response_cdf(values, *shape, trials)
        expected = [weight @ law.cdf(value) for value in values]
        np.testing.assert_allclose(found, expected, atol=2e-9)
        if case.discrete:
            assert (likelihood.response_cdf(values + 0.5, *shape, trials) == found).all()
            assert (likelihood.response_cdf(-np.ones_like(values), *shape, trials) == 0).all()


def test_a_fixed_shape_is_not_learned():
    fixed = Gamma(0.5, fixed_shape=True)
    assert fixed.free == ()
    assert len(fixed.unconstrained()) == 0
    assert fixed.from_unconstrained([]) == fixed
    assert fixed.by_parameters([1.0], [0.0])[0].shape == (0, 1)
    assert Gamma(0.5).log_density([2.0], [1.0]) == fixed.log_density([2.0], [1.0])
    # The square of a normal variable of variance e.
    expected = stats.chi2(1, scale=np.e).logpdf(2.0)
    np.testing.assert_allclose(fixed.log_density([2.0], [1.0]), expected)


def test_interval_of_huge_counts_is_exact():
    mean, std = np.array([np.log(1e9), 5.0]), np.array([1e-5, 3.0])
    lower, upper = Poisson().interval(mean, std**2, 0.9)
    for ends, tail in ((lower, 0.05), (upper, 0.95)):
        for k, m, s in zip(ends, mean, std, strict=True):
            z = np.linspace(-9, 9, 20001)
            weight = np.exp(-0.5 * z * z) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
            cdf = [weight @ stats.poisson(np.exp(m + s * z)).cdf(k - i) for i in (0, 1)]
            assert cdf[1] - 1e-9 < tail <= cdf[0] + 1e-9


def test_interval_of_extreme_latents_is_ordered(case):
    mean, variance = np.meshgrid([-300.0, -30.0, 0.0, 30.0, 300.0], [0.0, 1e-8, 1.0, 1e4])
    trials = None if case.trials is None else np.full(mean.shape, 1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lower, upper = case.likelihood.interval(mean, variance, 0.99, trials)
    assert np.isfinite(lower).all()
    assert np.isfinite(upper).all()
    assert (lower <= upper).all()


def test_no_rows_give_no_rows(case):
    none = np.empty(0)
    trials = None if case.trials is None else none
    likelihood = case.likelihood
    likelihood.check_target(none, trials)
    assert likelihood.log_predictive(none, none, none, trials).shape == (0,)
    assert likelihood.response_variance(none, none, trials).shape == (0,)
    assert likelihood.interval(none, none, 0.9, trials)[0].shape == (0,)


def test_interval_refuses_a_level(case):
    with pytest.raises(ParameterError, match="level must be within 0 and 1"):
        case.likelihood.interval([0.0], [1.0], 95)


def test_samples_have_the_moments(case):
    random, size = np.random.default_rng(3), 40000
    for f in (-1.0, 1.2):
        law = case.law(np.array(f), case.one_trial)
        trials = None if case.trials is None else np.full((2, size // 2), case.one_trial)
        draws = case.likelihood.sample(np.full((2, size // 2), f), random, trials)
        assert draws.shape == (2, size // 2)
        case.likelihood.check_target(draws.ravel(), None if trials is None else trials.ravel())
        error = np.sqrt(law.var() / size)
        assert abs(draws.mean() - law.mean()) < 5 * error
        assert abs(draws.var() / law.var() - 1) < (
            0.5 if case.likelihood.name == "student_t" else 0.1
        )


@pytest.mark.parametrize("with_offset", [False, True])
def test_start_is_the_best_constant(case, with_offset):
    random = np.random.default_rng(5)
    size = 60
    offset = random.normal(0.0, 0.8, size) if with_offset else None
    weight = random.uniform(0.2, 3.0, size)
    trials = None if case.trials is None else np.full(size, case.one_trial)
    shift = np.zeros(size) if offset is None else offset
    y = case.likelihood.sample(0.4 + shift, random, trials)
    got = case.likelihood.start(y, weight, offset, trials)

    def loss(constant):
        return -np.sum(weight * case.likelihood.log_density(y, constant + shift, trials))

    best = minimize_scalar(loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-10})
    assert loss(got) <= best.fun + 1e-10 * abs(best.fun)
    np.testing.assert_allclose(got, best.x, atol=2e-5)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c.edge is not None])
def test_start_is_finite_at_the_edge(name, mirrored):
    case = CASES[name]
    y = np.zeros_like(case.edge) if mirrored else case.edge
    for offset in (None, np.array([0.0, 1.0, -1.0, 2.0])):
        constant = case.likelihood.start(y, None, offset, case.trials)
        assert np.isfinite(constant)
        assert abs(constant) < 12


def test_working_start_is_near_each_maximum(case):
    start = case.likelihood.working_start(case.y, case.trials)
    gradient, weight, _slope = case.likelihood.derivatives(case.y, start, case.trials)
    assert np.isfinite(start).all()
    assert (np.abs(gradient) / np.maximum(weight, 1e-3) < 3).all()


def test_check_target_names_the_first_bad_row(case):
    trials = None if case.trials is None else np.full(4, 12.0)
    case.likelihood.check_target(case.y[:4], None if trials is None else trials[: case.y[:4].size])
    for bad in case.bad:
        y = np.array([case.y[1], case.y[1], bad, bad])
        with pytest.raises(DataError, match=r"deaths must hold .*but row 102 is .*; ") as caught:
            case.likelihood.check_target(y, trials, name="deaths", first_row=100)
        assert str(bad) in str(caught.value)


@pytest.mark.parametrize("trials", [0.0, -2.0, 1.5, np.nan, np.inf])
def test_check_target_refuses_trials(trials):
    with pytest.raises(DataError, match="trials of y must hold whole numbers of at least 1"):
        Binomial().check_target([0.0, 0.0], [1.0, trials])


def test_settings_survive_json(case):
    settings = json.loads(json.dumps(case.likelihood.to_settings()))
    assert likelihoods.from_settings(settings) == case.likelihood


def test_unconstrained_parameters_come_back(case):
    again = case.likelihood.from_unconstrained(case.likelihood.unconstrained())
    np.testing.assert_allclose(again.unconstrained(), case.likelihood.unconstrained(), rtol=1e-12)


def test_names_make_their_likelihoods():
    assert set(likelihoods.names) == {c.likelihood.name for c in CASES.values()}
    for name in likelihoods.names:
        assert likelihoods.by_name(name).name == name
    with pytest.raises(ParameterError, match=r"'poisson'.*got 'poison'"):
        likelihoods.by_name("poison")
    with pytest.raises(ParameterError, match="poisson has no hyperparameters 'scale'"):
        likelihoods.from_settings({"name": "poisson", "scale": 1.0})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli("cloglog"), "link must be one of 'logit', 'probit', got 'cloglog'"),
        (lambda: NegativeBinomial(0.0), "dispersion must be a number"),
        (lambda: Gamma(shape=-1.0), "shape must be a number"),
        (lambda: StudentT(scale=np.nan), "scale must be a number"),
        (lambda: StudentT(dof=0.1), "dof must be at least 0.5"),
        (lambda: Gaussian(scale="1"), "scale must be a number"),
        (lambda: Ordered((1.0, 1.0)), "cutpoints must be one or more increasing"),
        (lambda: Ordered((0.0, 1.0), n_levels=5), "3 levels, but n_levels is 5"),
        (lambda: Ordered(n_levels=1), "n_levels must be a whole number of at least 2"),
        (lambda: Ordered().log_density([0.0], [0.0]), "no cutpoints yet"),
        (lambda: Poisson().class_probabilities([0.0], [1.0]), "Poisson has no categories"),
    ],
)
def test_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


@pytest.mark.parametrize(
    "name", ["bernoulli-logit", "bernoulli-probit", "ordered-logit", "ordered-probit"]
)
def test_class_probabilities_agree_with_the_predictive(name):
    likelihood, variance = CASES[name].likelihood, np.array([0.0, 0.5, 1.0, 30.0])
    got = likelihood.class_probabilities(MEANS, variance)
    codes = np.arange(got.shape[1], dtype=float)[:, None]
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-13)
    predictive = np.exp(likelihood.log_predictive(codes, MEANS, variance))
    np.testing.assert_allclose(got.T, predictive, rtol=1e-10)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_ordered_is_completed_from_the_shares(link):
    y = np.repeat([0.0, 1.0, 2.0], [2, 5, 3])
    likelihood = Ordered(link=link).completed(y)
    np.testing.assert_allclose(likelihood.class_probabilities([0.0], [0.0]), [[0.2, 0.5, 0.3]])
    assert likelihood.completed(y) is likelihood
    empty = Ordered(link=link, n_levels=5).completed(np.array([1.0, 3.0, 3.0]))
    assert empty.n_levels == 5
    assert np.isfinite(empty.unconstrained()).all()


def test_ordered_keeps_its_digits_between_close_cutpoints():
    mean = np.array([-30.0, 0.0, 3.0])
    close = Ordered((0.0, 1e-9)).log_predictive(1.0, mean, 0.5)
    # The density of the threshold times the gap, at leading order.
    slope = [np.log(mpmath_slope(m, 0.5)) for m in mean]
    np.testing.assert_allclose(close, slope + np.log(1e-9), rtol=1e-7)


def mpmath_slope(mean, variance):
    with mpmath.workdps(30):
        std = mpmath.sqrt(variance)

        def integrand(z):
            return mpmath.npdf(z) * mpmath.sech((mean + std * z) / 2) ** 2 / 4

        return float(mpmath.quad(integrand, np.linspace(-16, 16, 33).tolist()))


@pytest.mark.parametrize("variance", [1e-6, 0.3, 4.0, 400.0, 1e4])
def test_logistic_average_is_exact(variance):
    """Against a fine rule in extended precision; relative accuracy in both tails."""
    std = np.sqrt(np.longdouble(variance))
    for mean in (0.0, -0.7, 2.0, -9.0, 25.0, -0.5 * variance, -0.8 * variance, -3 * variance - 5):
        # The peak of σ(f) N(f) lies between the mean and mean + variance; σ has its poles at ±πi.
        step = min(0.1, 0.1 * std)
        z = np.arange(-14, np.sqrt(variance) + 14, step / std, dtype=np.longdouble)
        logs = -np.logaddexp(0, -(mean + std * z)) - z * z / 2
        top = logs.max()
        exact = top + np.log(np.exp(logs - top).sum() * step / std / np.sqrt(2 * np.pi))
        got = log_expected_logistic(mean, variance)
        np.testing.assert_allclose(got, float(exact), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(expected_logistic(mean, variance), np.exp(got), rtol=1e-12)


# Beyond 680 exponentials are held where they are, so that they cannot overflow.
finite = st.floats(-600, 600)


@given(f=finite, g=finite, share=st.floats(0.0, 1.0), pick=st.integers(0, 9))
def test_log_density_is_concave_where_it_says_so(f, g, share, pick):
    for case in CASES.values():
        if case.likelihood.information == "expected":
            continue
        y = case.y[pick % case.y.size]
        n = None if case.trials is None else case.trials[pick % case.y.size]
        ends = case.likelihood.log_density(y, np.array([f, g]), n)
        middle = case.likelihood.log_density(y, share * f + (1 - share) * g, n)
        chord = share * ends[0] + (1 - share) * ends[1]
        assert middle >= chord - 1e-9 * (1 + np.abs(ends).max())
        assert case.likelihood.derivatives(y, f, n)[1] >= 0


@given(mean=st.floats(-50, 50), variance=st.floats(0, 1e4))
def test_averages_stay_within_the_range(mean, variance):
    for link in ("logit", "probit"):
        p = Bernoulli(link).response_mean(mean, variance)
        spread = Bernoulli(link).mean_variance(mean, variance)
        assert 0 <= p <= 1
        assert 0 <= spread <= p * (1 - p) + 1e-15


def test_every_class_is_a_likelihood():
    assert all(isinstance(c.likelihood, Likelihood) for c in CASES.values())
