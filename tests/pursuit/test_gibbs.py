"""The sampler against its own joint distribution, a grid, dense algebra; then what it is for."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from dask import config
from scipy.interpolate import CubicSpline

from dsgp.errors import ParameterError
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit.chain import Chain, Model, Priors
from dsgp.pursuit.gibbs import evaluate, moments, sample
from dsgp.pursuit.projection import Rows
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.splines import natural_splines, place_nodes
from dsgp.sampling.diagnostics import effective_sample_size, split_rhat
from dsgp.sampling.slices import Ellipse

ONES = np.empty(0)


def waves(n=400, n_inputs=3, seed=0, weight=ONES):
    """Rows of two ridge functions, the function without noise, and starts near the truth."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, n_inputs))
    w = np.zeros((2, n_inputs))
    w[0, :2], w[1, :2] = [0.8, 0.6], [-0.6, 0.8]
    signal = np.sin(2 * inputs @ w[0]) + np.cos(1.5 * inputs @ w[1])
    signal -= signal.mean()
    scale = np.full(n, 0.2) if not weight.size else 0.2 / np.sqrt(np.maximum(weight, 1e-3))
    return Rows(inputs, signal + scale * rng.standard_normal(n), weight), signal, w + 0.05


def agree(draws, exact, tolerance=4.5):
    """Whether the mean of draws (one chain) is as near the exact one as their number says."""
    error = np.std(draws) / np.sqrt(effective_sample_size(draws))
    assert abs(np.mean(draws) - exact) < tolerance * error, (np.mean(draws), exact, error)


# ------------------------------------------------------------------ exactness


def test_slice_updates_leave_any_density_as_it_is():
    rng = np.random.default_rng(0)

    def banana(theta):  # x ~ N(0, 1), y | x ~ N(x², 0.3²)
        return -0.5 * theta[0] ** 2 - 0.5 * ((theta[1] - theta[0] ** 2) / 0.3) ** 2

    ellipse = Ellipse(np.array([0.3, 1.0]), np.array([[1.0, 0.3], [0.3, 2.0]]))
    theta, value = np.zeros(2), 0.0
    draws = np.empty((20_000, 2))
    for i in range(len(draws)):
        theta, value, _ = ellipse.update(theta, value, banana, rng)
        assert value == banana(theta)
        draws[i] = theta
    agree(draws[:, 0], 0.0)
    agree(draws[:, 0] ** 2, 1.0)
    agree(draws[:, 1], 1.0)
    agree(draws[:, 1] ** 2, 3.0 + 0.09)
    agree(draws[:, 0] ** 2 * draws[:, 1], 3.0)


@pytest.mark.parametrize("relevance", [False, True])
def test_joint_distribution(relevance):
    """Draws of everything given the target and of the target given everything are of the prior.

    Geweke (2004): the marginal distributions must be those that the priors say.
    """
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((6, 2))
    weight = np.array([0.5, 1.0, 2.0, 1.0, 1.0, 0.0])
    priors = Priors(
        precision=2.0,
        relevance=relevance,
        relevance_shape=3.0,
        variance_mean=-0.5,
        variance_std=0.7,
        noise_shape=3.0,
        noise_rate=1.0,
    )
    chain = Chain(
        Model(Rows(inputs, np.zeros(6), weight), Matern32(), priors),
        rng.standard_normal((2, 2)),
        np.array([0.5, 0.7]),
        0.5,
        rng,
    )
    # w and −w are alike: centred ellipses go from one to the other.
    chain.ellipses = [Ellipse(np.array([0.0, 0.0, -0.5]), np.diag([0.6, 0.4, 0.5]))] * 2
    seen = weight > 0

    def prior(n):
        """Draws from the prior: w, log s², σ², α, f, each with the draws along its first axis."""
        alpha = rng.gamma(3.0, 2.0 / 3.0, (n, 2)) if relevance else np.full((n, 2), 2.0)
        w = rng.standard_normal((n, 2, 2)) / np.sqrt(alpha)[:, None, :]
        logs = -0.5 + 0.7 * rng.standard_normal((n, 2))
        noise = 1.0 / rng.gamma(3.0, size=n)
        along = w @ inputs.T
        tau = math.sqrt(3) * np.abs(along[..., :, None] - along[..., None, :])
        covariances = np.exp(logs)[..., None, None] * (1 + tau) * np.exp(-tau)
        roots = np.linalg.cholesky(covariances + 1e-10 * np.eye(6))
        f = (roots @ rng.standard_normal((n, 2, 6, 1)))[..., 0]
        return w, logs, noise, alpha, f

    def numbers(w, logs, noise, alpha, f):
        total = f.sum(axis=0)
        return [
            np.abs(w[0]).sum(),
            np.cos(3 * w[1, 0]),
            logs[0],
            logs[1] ** 2,
            np.log(noise),
            np.log(alpha[0]),
            np.log(alpha @ (w**2).sum(axis=0)),
            np.tanh(f[0, 0] * f[0, 1]),
            np.log(total[seen] @ total[seen]),
            np.tanh(total[5]),  # a row without weight
            np.tanh(f[0, 2] * f[1, 2]),
            logs[0] * np.log(noise),
        ]

    start = [part[0] for part in prior(1)]
    chain.theta[:, :2], chain.theta[:, 2], noise, chain.precision, chain.functions = start
    chain.noise_variance = float(noise)
    draws = []
    for _ in range(3000):
        noise = np.zeros(6)
        noise[seen] = rng.standard_normal(5) * np.sqrt(chain.noise_variance / weight[seen])
        target = chain.functions.sum(axis=0) + noise
        chain.model = Model(Rows(inputs, target, weight), Matern32(), priors)
        chain.sweep()
        draws.append(
            numbers(
                chain.theta[:, :2],
                chain.theta[:, 2],
                chain.noise_variance,
                chain.precision,
                chain.functions,
            )
        )
    expected = np.array([numbers(*draw) for draw in zip(*prior(20_000), strict=True)])
    for column, exact in zip(np.array(draws).T, expected.T, strict=True):
        error = np.hypot(
            np.std(column) / np.sqrt(effective_sample_size(column)), exact.std() / 20_000**0.5
        )
        assert abs(column.mean() - exact.mean()) <= 4 * error + 1e-12


def test_directions_are_those_of_a_grid():
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal((25, 2))
    target = np.sin(inputs @ [0.9, 0.6]) + 0.5 * rng.standard_normal(25)
    # As good as fixed: the variance at 1 and the noise at 0.25.
    priors = Priors(
        precision=1.0, variance_mean=0.0, variance_std=1e-4, noise_shape=1e8, noise_rate=2.5e7
    )
    rows = Rows(inputs, target, ONES)
    draws = sample(
        rows,
        [[0.9, 0.6]],
        [1.0],
        0.25,
        kernel=Matern52(),
        priors=priors,
        n_samples=4000,
        n_warmup=300,
        n_chains=2,
        n_nodes=4,
        random=rng,
    )
    np.testing.assert_allclose(draws.noise_variance, 0.25, rtol=1e-3)
    model = Model(rows, Matern52(), priors)
    # w and −w are alike: half the plane will do.
    steps = np.linspace(-4.0, 4.0, 81)
    grid = np.array([[a, b] for a in steps for b in steps if a > 1e-9 or (abs(a) < 1e-9 < b)])
    logs = np.array(
        [model.log_marginal(np.append(w, 0.0), target, 0.25) - 0.5 * float(w @ w) for w in grid]
    )
    share = np.exp(logs - logs.max())
    share /= share.sum()
    w = draws.directions[:, 0]
    for number in (
        lambda w: np.cos(2 * np.arctan2(w[:, 1], w[:, 0])),
        lambda w: np.sin(2 * np.arctan2(w[:, 1], w[:, 0])),
        lambda w: np.cos(4 * np.arctan2(w[:, 1], w[:, 0])),
        lambda w: np.hypot(*w.T),
    ):
        agree(number(w), share @ number(grid))
    assert draws.evaluations < 6


@pytest.mark.parametrize("n_nodes", [0, 5])
def test_functions_are_drawn_from_their_posterior(n_nodes):
    rng = np.random.default_rng(2)
    inputs = np.round(rng.standard_normal((12, 2)), 0)  # ties
    weight = rng.uniform(0.5, 2.0, 12)
    weight[3:5] = 0.0
    target = rng.standard_normal(12)
    model = Model(Rows(inputs, target, weight), Matern52(), Priors())
    w = np.array([1.0, 0.5])
    chain = Chain(model, w[None], np.array([0.8]), 0.3, rng)
    residual = chain._residual(0)
    places, values = [], []
    for _ in range(10_000):
        nodes, at_nodes = chain._draw_function(0, residual, n_nodes)
        values.append(np.append(chain.functions[0], at_nodes))
    places = np.append(inputs @ w, nodes)
    kernel, seen = Matern52(1.0, 0.8), weight > 0
    known = kernel.covariance(inputs[seen] @ w) + np.diag(0.3 / weight[seen])
    cross = kernel.covariance(places, inputs[seen] @ w)
    mean = cross @ np.linalg.solve(known, target[seen])
    covariance = kernel.covariance(places) - cross @ np.linalg.solve(known, cross.T)
    deviation = np.sqrt(np.diag(covariance))
    assert (np.abs(np.mean(values, axis=0) - mean) < 5 * deviation / 10_000**0.5).all()
    np.testing.assert_allclose(
        np.cov(np.array(values).T), covariance, atol=0.05 * deviation.max() ** 2
    )


def test_bins_change_the_marginal_likelihood_little():
    rows, _, starts = waves(3000, weight=np.random.default_rng(0).uniform(0, 2, 3000))
    exact, binned = (Model(rows, Matern52(), Priors(), bins) for bins in (None, 1000))
    few = Model(rows, Matern52(), Priors(), 10)  # made narrower
    theta = np.append(starts[0], 0.0)
    value = exact.log_marginal(theta, rows.target, 0.5)
    assert len(binned.along(theta[:3])[0]) <= 1000
    assert binned.log_marginal(theta, rows.target, 0.5) == pytest.approx(value, abs=0.3)
    assert few.log_marginal(theta, rows.target, 0.5) == pytest.approx(value, abs=0.3)
    for model in (exact, binned):
        assert model.log_marginal(np.append(1e308 * theta[:3], 0), rows.target, 0.5) == -np.inf
        assert model.log_marginal(np.append(theta[:3], 1e3), rows.target, 0.5) == -np.inf
    for direction in (np.zeros(3), 1e12 * theta[:3]):
        axis, codes = binned.along(direction)
        np.testing.assert_allclose(axis.points[codes], rows.inputs @ direction, rtol=1e-9)


# ------------------------------------------------------------------ parts


def test_splines_are_natural_and_like_ridges():
    rng = np.random.default_rng(0)
    nodes = np.sort(rng.uniform(0, 5, (2, 3, 9)), axis=2)
    values = rng.standard_normal((2, 3, 9))
    splines = natural_splines(nodes, values)
    for s in range(2):
        for m in range(3):
            expected = CubicSpline(nodes[s, m], values[s, m], bc_type="natural").c[::-1].T
            np.testing.assert_allclose(splines[s, m], expected, rtol=1e-8, atol=1e-8)


def test_nodes_increase_and_cover_the_points():
    rng = np.random.default_rng(0)
    for points in (
        np.sort(rng.standard_normal(500)),
        np.sort(rng.standard_cauchy(500)),
        np.append(np.linspace(0, 1e-6, 100), 1.0),
        np.array([0.0]),
        np.array([1.0, 2.0]),
    ):
        nodes = place_nodes(points, points[0], points[-1], 20)
        assert nodes.shape == (20,)
        assert (np.diff(nodes) > 0).all()
        assert nodes[0] < points[0]
        assert points[-1] < nodes[-1]


def test_diagnostics_know_good_chains_from_bad_ones():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4, 1000))
    assert split_rhat(draws) == pytest.approx(1.0, abs=0.01)
    assert effective_sample_size(draws) == pytest.approx(4000, rel=0.15)
    for phi in (0.5, 0.9, -0.5):
        series = rng.standard_normal((4, 5000))
        for t in range(1, 5000):
            series[:, t] += phi * series[:, t - 1]
        expected = 20_000 * (1 - phi) / (1 + phi)
        assert effective_sample_size(series) == pytest.approx(expected, rel=0.2)
        # of ranks: any increasing function of the draws has the same
        assert effective_sample_size(np.exp(series)) == effective_sample_size(series)
    shifted = draws + np.arange(4)[:, None]
    assert split_rhat(shifted) > 1.5
    assert effective_sample_size(shifted) < 20
    assert split_rhat(draws * np.array([1, 1, 1, 5])[:, None]) > 1.1  # folded
    assert split_rhat(np.linspace(0, 1, 100)[None]) > 1.5  # one chain that wanders
    assert split_rhat(np.ones((2, 10))) == 1.0
    assert effective_sample_size(np.ones((2, 10))) == 20
    assert np.isnan(split_rhat(np.ones((2, 3))))
    assert np.isnan(effective_sample_size(np.ones((2, 3))))


# ------------------------------------------------------------------ the sampler


def run(rows, starts, **options):
    settings = {"n_samples": 100, "n_warmup": 60, "random": np.random.default_rng(0)} | options
    return sample(rows, starts, np.full(len(starts), 0.5), 0.1, **settings)


def test_what_is_drawn_is_the_truth_with_its_uncertainty():
    rows, signal, starts = waves()
    test, _, _ = waves(seed=1)
    truth = np.sin(2 * test.inputs[:, :2] @ [0.8, 0.6]) + np.cos(
        1.5 * test.inputs[:, :2] @ [-0.6, 0.8]
    )
    told = []
    draws = run(rows, starts, n_samples=200, n_warmup=100, n_chains=2, watch=told.append)
    assert told[-1] == 200
    assert all(a < b for a, b in pairwise(told))
    assert len(draws) == 200
    assert draws.directions.shape == (200, 2, 3)
    assert draws.nodes.shape == draws.values.shape == (200, 2, 48)
    assert draws.variances.shape == (200, 2)
    assert draws.precision.shape == (200, 3)
    assert draws.log_likelihood.shape == draws.interpolation_error.shape == (200,)
    assert draws.noise_variance.mean() == pytest.approx(0.04, rel=0.25)
    assert (draws.interpolation_error < 0.05 * np.sqrt(draws.noise_variance)).all()
    units = draws.directions / np.linalg.norm(draws.directions, axis=2)[..., None]
    assert (np.abs(units[:, 0] @ [0.8, 0.6, 0.0]) > 0.99).all()
    functions = evaluate(draws, test.inputs)
    assert functions.shape == (200, 400)
    shift = np.mean(truth) - np.mean(functions)  # the target was centred
    error = functions.mean(axis=0) + shift - truth
    inner = np.abs(test.inputs[:, :2]).max(axis=1) < 2
    assert np.sqrt(np.mean(error[inner] ** 2)) < 0.08
    # intervals of the function
    low, high = np.quantile(functions, [0.05, 0.95], axis=0) + shift
    assert 0.75 < np.mean((low < truth) & (truth < high)) < 0.99
    for rhat, size in draws.diagnostics.values():
        assert 0.9 < rhat < 2.0
        assert 2 < size <= 800
    # draws are as other ridges are
    terms = tuple(
        Ridge(draws.directions[7, m], draws.nodes[7, m], draws.values[7, m], Matern52(1.0, 1.0))
        for m in range(2)
    )
    expected = Ridges(terms, 3).evaluate(test.inputs)[0].sum(axis=1)
    np.testing.assert_allclose(functions[7], expected, atol=1e-9)


def test_likelihoods_kept_are_those_of_the_draws():
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 150)
    weight[:10] = 0.0
    rows, _, starts = waves(150, weight=weight)
    draws = run(rows, starts, n_samples=6, n_nodes=150)
    seen = weight > 0
    variance = draws.noise_variance[:, None] / weight[seen]
    error = (rows.target - evaluate(draws, rows.inputs))[:, seen]
    expected = -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance).sum(axis=1)
    np.testing.assert_allclose(draws.log_likelihood, expected, atol=0.05)


def test_moments_are_those_of_the_draws():
    rows, _, starts = waves(200, weight=np.random.default_rng(1).uniform(0, 2, 200))
    draws = run(rows, starts, n_samples=12, n_warmup=10)
    functions = evaluate(draws, rows.inputs)
    np.testing.assert_array_equal(evaluate(draws, rows.inputs, [7, 7, 2]), functions[[7, 7, 2]])
    mean, variance = moments(draws, rows.inputs)
    np.testing.assert_allclose(mean, functions.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(variance, functions.var(axis=0, ddof=1), atol=1e-12)
    assert draws.level == pytest.approx(float(rows.share @ mean), abs=1e-12)
    by_term, spread = moments(draws, rows.inputs, by_term=True)
    np.testing.assert_allclose(by_term.sum(axis=1) + draws.level, mean, atol=1e-12)
    np.testing.assert_allclose(rows.share @ by_term, 0.0, atol=1e-12)
    assert spread.shape == (200, 2)


def test_noise_may_be_fixed():
    rows, _, starts = waves(100)
    draws = run(rows, starts, n_samples=4, n_warmup=4, priors=Priors(fixed_noise=True))
    assert (draws.noise_variance == 0.1).all()


def test_the_number_of_threads_does_not_matter():
    rows, _, starts = waves(200)
    results = []
    for threads in (1, 3):
        with config.set(num_workers=threads):
            results.append(run(rows, starts, n_samples=9, n_warmup=10, n_chains=3))
    for name in ("directions", "values", "noise_variance", "log_likelihood"):
        np.testing.assert_array_equal(getattr(results[0], name), getattr(results[1], name))
    chains = results[0].noise_variance.reshape(3, -1)
    assert len(np.unique(chains[:, 0])) == 3
    fewer = run(rows, starts, n_samples=3, n_warmup=10, n_chains=3)
    np.testing.assert_array_equal(fewer.noise_variance, chains[:, 0])


def test_thinning_keeps_every_other_sweep():
    rows, _, starts = waves(100)
    told = []
    draws = run(rows, starts, n_samples=4, n_warmup=10, n_chains=1, thin=3, watch=told.append)
    assert told[-1] == 22
    assert len(draws) == 4
    assert draws.n_chains == 1
    # and as many draws for each chain as make so many in all
    assert len(run(rows, starts, n_samples=4, n_warmup=0, n_chains=3)) == 6


def test_relevance_finds_the_inputs_that_matter():
    rows, _, starts = waves(400, n_inputs=6)
    draws = run(rows, starts, priors=Priors(relevance=True))
    precision = np.median(draws.precision, axis=0)
    assert precision[2:].min() > 3 * precision[:2].max()
    fixed = run(rows, starts, n_samples=4, n_warmup=4)
    assert (fixed.precision == 6.0).all()


def test_bins_draw_from_nearly_the_same_posterior():
    rows, _, starts = waves(3000)
    means = []
    for n_bins in (None, 1500):
        draws = run(rows, starts, n_bins=n_bins, n_samples=60)
        means.append(evaluate(draws, rows.inputs).mean(axis=0))
    assert np.std(means[0] - means[1]) < 0.03


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("n_inputs", [1, 3])
def test_few_rows(n, n_inputs):
    rng = np.random.default_rng(n)
    rows = Rows(rng.standard_normal((n, n_inputs)), rng.standard_normal(n), ONES)
    draws = run(rows, rng.standard_normal((2, n_inputs)), n_samples=10, n_warmup=20)
    assert np.isfinite(evaluate(draws, rng.standard_normal((4, n_inputs)))).all()


def test_hard_rows_are_taken():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((60, 2))
    for rows in (
        Rows(inputs, np.zeros(60), ONES),
        Rows(inputs, rng.standard_normal(60), np.zeros(60)),
        Rows(np.ones((60, 2)), rng.standard_normal(60), ONES),
    ):
        draws = run(rows, np.ones((2, 2)), n_samples=10, n_warmup=20)
        assert np.isfinite(evaluate(draws, inputs)).all()
        assert (draws.noise_variance > 0).all()


def test_no_terms_leave_noise():
    rows, _, _ = waves(100)
    draws = run(rows, np.empty((0, 3)), n_samples=1000)
    assert draws.directions.shape == (1000, 0, 3)
    assert (evaluate(draws, rows.inputs) == 0).all()
    assert draws.noise_variance.mean() == pytest.approx(np.mean(rows.target**2), rel=0.05)


def test_what_cannot_be_used_is_refused():
    rows, _, starts = waves(20)
    for name in ("n_samples", "n_chains", "thin", "n_nodes"):
        with pytest.raises(ParameterError, match=name):
            run(rows, starts, **{name: 0})
    draw = partial(sample, rows, random=np.random.default_rng(0))
    with pytest.raises(ParameterError, match="variances"):
        draw(starts, [1.0], 0.1)
    with pytest.raises(ParameterError, match="noise_variance"):
        draw(starts, [1.0, 1.0], 0.0)
    with pytest.raises(ParameterError, match="inputs"):
        evaluate(run(rows, starts, n_samples=2, n_warmup=0), np.zeros((3, 2)))
