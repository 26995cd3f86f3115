"""The samplers of hyperparameters against dense algebra, and what they must leave invariant."""

import math
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from dsgp import AdditiveGPRegressor
from dsgp.additive import RowEquations
from dsgp.kernels import Matern32, Matern52, Matern72
from dsgp.priors import HyperPriors
from dsgp.rows.table import RowTable
from dsgp.sampling.chains import collapsed, gibbs
from dsgp.sampling.collapsed import CollapsedChain, NodeEvidence
from dsgp.sampling.diagnostics import effective_sample_size
from dsgp.sampling.gibbs import GibbsChain, PartialResidual
from dsgp.sampling.parameters import HyperModel
from dsgp.sampling.plain import PlainGibbsChain
from dsgp.terms import Axis

NARROW = HyperPriors(
    lengthscale_mean=-0.5,
    lengthscale_std=0.5,
    variance_shape=4.0,
    variance_rate=3.0,
    noise_shape=4.0,
    noise_rate=1.0,
)


def rows_of(n_rows=25, seed=0):
    random = np.random.default_rng(seed)
    columns = random.uniform(0, 1, (2, n_rows))
    columns[1] = np.round(columns[1] * 9)  # ties
    pairs = [Axis.from_column(column) for column in columns]
    axes, codes = tuple(axis for axis, _ in pairs), np.stack([code for _, code in pairs])
    weight = random.uniform(0.5, 1.5, n_rows)
    return RowTable(("a", "b"), axes, codes), weight


def model_of(table, y, weight, priors=NARROW, constant=1.0):
    return HyperModel.of(
        RowEquations.of(table, y, weight),
        [Matern52(0.3, 1.0), Matern32(2.0, 1.0)],
        0.3,
        (1e-6, 1e2),
        priors,
        constant,
    )


def dense(model, theta, table, weight):
    """Covariance of the targets given hyperparameters, functions and constant integrated out."""
    total = np.diag(math.exp(theta[-1]) / weight) + 1 / model.constant
    for kernel, cells, code in zip(model.kernels(theta), table.cells, table.codes, strict=True):
        total += kernel.covariance(cells.points)[np.ix_(code, code)]
    return total


def prior_draw(model, random):
    terms = [term.draw(random) for term in model.terms]
    return np.concatenate([*terms, [math.log(model.noise.draw(random))]])


def targets(model, theta, table, weight, random):
    return np.linalg.cholesky(dense(model, theta, table, weight)) @ random.standard_normal(
        table.n_rows
    )


# ---------------------------------------------------------------- densities


def test_the_evidence_at_all_nodes_is_the_dense_one():
    table, weight = rows_of()
    random = np.random.default_rng(1)
    model = model_of(table, random.standard_normal(25), weight)
    evidence = NodeEvidence.of(model)
    assert evidence.is_exact
    y = np.zeros(25)
    for _ in range(3):
        theta = prior_draw(model, random)
        y = targets(model, theta, table, weight, random)
        again = replace(model, equations=RowEquations.of(table, y, weight))
        evidence = NodeEvidence.of(again)
        covariance = dense(model, theta, table, weight)
        expected = -0.5 * (
            y @ np.linalg.solve(covariance, y)
            + np.linalg.slogdet(covariance)[1]
            + 25 * math.log(2 * math.pi)
        )
        assert evidence.log_likelihood(theta) == pytest.approx(expected, abs=1e-5)


def test_a_flat_constant_takes_nothing_but_the_level():
    table, weight = rows_of()
    random = np.random.default_rng(1)
    y = random.standard_normal(25)
    values = []
    for level in (0.0, 3.0):
        evidence = NodeEvidence.of(model_of(table, y + level, weight, constant=0.0))
        theta = evidence.model.start
        values.append([evidence.log_likelihood(theta), evidence.log_likelihood(theta + 0.1)])
    np.testing.assert_allclose(values[0], values[1], atol=1e-6)


def test_functions_are_drawn_from_their_dense_conditional():
    table, weight = rows_of()
    random = np.random.default_rng(2)
    y = random.standard_normal(25)
    model = model_of(table, y, weight)
    chain = GibbsChain(model, np.random.default_rng(3))
    theta, noise = chain.theta, chain.noise_variance
    other = random.standard_normal(len(table.cells[1]))
    n = len(table.cells[0])
    Z = np.eye(n)[table.codes[0]]
    left = y - other[table.codes[1]]
    # Posterior of (constant, f) given the other term.
    prior = model.kernels(theta)[0].covariance(table.cells[0].points)
    design = np.column_stack([np.ones(25), Z])
    inverse = np.zeros((n + 1, n + 1))
    inverse[0, 0], inverse[1:, 1:] = model.constant, np.linalg.inv(prior + 1e-10 * np.eye(n))
    covariance = np.linalg.inv(inverse + (design.T * weight / noise) @ design)
    mean = covariance @ (design.T @ (weight * left / noise))
    equations = model.equations
    information = Z.T @ (weight * left)
    residual = PartialResidual(
        information,
        equations.layout.part(equations.weight, 0),
        equations.layout.part(equations.ones, 0),
        float(weight @ left),
    )
    drawn = []
    for _ in range(4000):
        f = chain._draw_function(0, table.cells[0], residual)
        drawn.append([chain.constant, *f])
    drawn = np.array(drawn)
    stds = np.sqrt(np.diag(covariance))
    assert np.abs((drawn.mean(axis=0) - mean) / stds).max() < 4 / math.sqrt(4000)
    np.testing.assert_allclose(
        np.cov(drawn.T) / np.outer(stds, stds), covariance / np.outer(stds, stds), atol=0.08
    )


# ---------------------------------------------------------------- invariance


def statistics_of(theta, y):
    # Not the level of y: it moves too slowly with the functions for a test of its mean.
    return [*theta, *theta**2, math.log(y.var()), y[1] - y[2]]


def scores(simulated, chain):
    """Standard scores of the means of a chain against those of independent draws."""
    simulated, chain = np.array(simulated), np.array(chain)
    found = []
    for independent, dependent in zip(simulated.T, chain.T, strict=True):
        size = effective_sample_size(dependent[None])
        error = math.sqrt(independent.var() / len(independent) + dependent.var() / size)
        found.append((independent.mean() - dependent.mean()) / error)
    return np.array(found)


@pytest.mark.parametrize("method", ["gibbs", "plain-gibbs", "collapsed"])
def test_chains_leave_the_joint_distribution_as_it_is(method):
    """Geweke 2004: alternate with draws of the targets, the hyperparameters have their prior."""
    table, weight = rows_of()
    random = np.random.default_rng(4)
    model = model_of(table, np.zeros(25), weight)
    simulated = []
    for _ in range(4000):
        theta = prior_draw(model, random)
        simulated.append(statistics_of(theta, targets(model, theta, table, weight, random)))
    theta = prior_draw(model, random)
    y = targets(model, theta, table, weight, random)
    kind = PlainGibbsChain if method == "plain-gibbs" else GibbsChain
    chain, counts = kind(model, random), [len(cells) for cells in table.cells]
    chain.settle()
    if method == "collapsed":
        evidence = NodeEvidence.of(model)
        chain = CollapsedChain(evidence, 0.3 * np.eye(5), random)
    chain.theta = theta
    succeeding = []
    for _ in range({"gibbs": 1000, "plain-gibbs": 1000, "collapsed": 400}[method]):
        again = replace(model, equations=RowEquations.of(table, y, weight))
        if method != "collapsed":
            chain.model = again
            chain.sweep()
            f = table.gather(chain.functions) + chain.constant
            y = f + random.standard_normal(25) * np.sqrt(chain.noise_variance / weight)
        else:
            chain.evidence = NodeEvidence(again, again.equations.tables(512), counts)
            chain.value = chain.evidence.log_density(chain.theta)
            chain.sweep()
            y = targets(model, chain.theta, table, weight, random)
        succeeding.append(statistics_of(chain.theta, y))
    assert np.abs(scores(simulated, succeeding)).max() < 4


@pytest.mark.parametrize(
    ("method", "replications", "numbers"),
    [
        ("gibbs", 60, {"n_draws": 40, "n_warmup": 10}),
        ("collapsed", 48, {"n_draws": 15, "n_warmup": 10}),
    ],
)
def test_ranks_of_the_truth_among_draws_are_uniform(method, replications, numbers):
    """Simulation-based calibration (Talts et al. 2018), small."""
    table, weight = rows_of(12)
    random = np.random.default_rng(5)
    model = model_of(table, np.zeros(12), weight)
    ranks = []
    for replication in range(replications):
        theta = prior_draw(model, random)
        y = targets(model, theta, table, weight, random)
        again = replace(model, equations=RowEquations.of(table, y, weight))
        of, sampler = (
            (NodeEvidence.of(again), collapsed) if method == "collapsed" else (again, gibbs)
        )
        draws = sampler(of, **numbers, n_chains=1, seed=replication)
        thinned = draws.theta[0, :: numbers["n_draws"] // 5]
        ranks.append((thinned < theta).sum(axis=0))
    expected = replications / 6
    for rank in np.array(ranks).T:  # of 6 values each
        counts = np.bincount(rank, minlength=6)
        statistic = float(np.sum((counts - expected) ** 2) / expected)
        assert chi2.sf(statistic, 5) > 1e-3


def test_both_samplers_agree():
    table, weight = rows_of(60, seed=6)
    random = np.random.default_rng(7)
    x = table.cells[0].points[table.codes[0]]
    y = np.sin(6 * x) + 0.3 * random.standard_normal(60)
    model = model_of(table, (y - y.mean()) / y.std(), weight, HyperPriors(), 0.0)
    numbers = {"n_draws": 400, "n_warmup": 100, "n_chains": 2, "seed": 8}
    by_terms = gibbs(model, **numbers)
    integrated = collapsed(NodeEvidence.of(model), **numbers)
    for k in range(model.size):
        pair = by_terms.theta[..., k], integrated.theta[..., k]
        errors = [chains.var() / effective_sample_size(chains) for chains in pair]
        assert abs(pair[0].mean() - pair[1].mean()) < 4 * math.sqrt(sum(errors))
        assert 0.7 < pair[0].std() / pair[1].std() < 1.4


@pytest.mark.parametrize("method", ["gibbs", "collapsed"])
def test_a_chain_that_travels_goes_on_as_if_it_had_not(method):
    table, weight = rows_of()
    model = model_of(table, np.random.default_rng(0).standard_normal(25), weight)
    random = np.random.default_rng(1)
    if method == "gibbs":
        chain = GibbsChain(model, random)
    else:
        chain = CollapsedChain(NodeEvidence.of(model), 0.1 * np.eye(5), random)
    chain.settle()
    chain.sweep()
    chain.adapt(last=False)
    other = pickle.loads(pickle.dumps(chain))
    for each in (chain, other):
        for _ in range(3):
            each.sweep()
            each.adapt(last=False)
    np.testing.assert_array_equal(chain.theta, other.theta)


# ---------------------------------------------------------------- priors and parts


def test_priors_are_drawn_as_their_density_says():
    table, weight = rows_of()
    model = model_of(table, np.zeros(25), weight)
    random = np.random.default_rng(9)
    drawn = np.array([prior_draw(model, random) for _ in range(4000)])
    for k in (0, 1, 4):  # a lengthscale, a variance, the noise
        grid = np.linspace(drawn[:, k].min() - 1, drawn[:, k].max() + 1, 400)
        density = np.array([math.exp(model.log_prior(with_value(model.start, k, g))) for g in grid])
        density /= density.sum()
        expected = float(density @ grid)
        spread = math.sqrt(float(density @ (grid - expected) ** 2))
        assert abs(drawn[:, k].mean() - expected) < 4 * spread / math.sqrt(4000)
        assert drawn[:, k].std() == pytest.approx(spread, rel=0.1)


def with_value(theta, k, value):
    theta = theta.copy()
    theta[k] = value
    return theta


def test_fixed_parameters_and_noise_stay():
    table, weight = rows_of()
    model = HyperModel.of(
        RowEquations.of(table, np.random.default_rng(0).standard_normal(25), weight),
        [
            Matern52(0.3, 1.0, fixed="lengthscale"),
            Matern32(2.0, 1.0, fixed=("lengthscale", "variance")),
        ],
        0.3,
        (0.3, 0.3),
        HyperPriors(),
    )
    assert model.size == 2
    numbers = {"n_draws": 6, "n_warmup": 4, "n_chains": 2, "seed": 0}
    for draws in (gibbs(model, **numbers), collapsed(NodeEvidence.of(model), **numbers)):
        np.testing.assert_allclose(np.exp(draws.theta[..., 1]), 0.3)
        assert draws.theta[..., 0].std() > 0


def test_what_bins_leave_of_the_functions_is_not_drawn_as_noise(monkeypatch):
    """With more distinct values than bins the profile of the noise is that of dense algebra."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (700, 2))
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + 0.05 * rng.standard_normal(700)
    made = []
    original = NodeEvidence.of

    def kept(model):
        made.append(original(model))
        return made[-1]

    monkeypatch.setattr(NodeEvidence, "of", kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AdditiveGPRegressor(
            Matern72(), method="collapsed", n_draws=2, n_warmup=1, n_chains=1, random_state=0
        ).fit(X, y)
    (evidence,) = made
    assert not evidence.is_exact
    kernels, start = evidence.model.kernels(evidence.model.start), evidence.model.start
    prior = sum(kernel.covariance(X[:, d]) for d, kernel in enumerate(kernels))
    target, ones = (y - y.mean()) / y.std(), np.ones(700)

    def dense(shift):
        whole = prior + np.exp(start[-1] + shift) * np.eye(700)
        solved = np.linalg.solve(whole, np.column_stack([target, ones]))
        about = target @ solved[:, 0] - (ones @ solved[:, 0]) ** 2 / (ones @ solved[:, 1])
        return -0.5 * (about + np.linalg.slogdet(whole)[1] + np.log(ones @ solved[:, 1]))

    def ours(shift):
        theta = start.copy()
        theta[-1] += shift
        return evidence.log_likelihood(theta)

    for shift in (-0.1, 0.1):
        expected = dense(shift) - dense(0.0)
        assert ours(shift) - ours(0.0) == pytest.approx(expected, abs=0.3)
