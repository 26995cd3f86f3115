"""The marginal likelihood by nodes against the dense one, and what is learned from it."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dsgp.additive import RowEquations
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.learning.basis import Basis
from dsgp.learning.evidence import Rows, evidence
from dsgp.learning.marginal import marginal
from dsgp.learning.search import search_for
from tests.additive.dense import Problem, inputs, table_of

KERNELS = (Matern12, Matern32, Matern52, Matern72)


def problem(n=300, correlation=0.5, seed=0, points=25, missing=0.0):
    """Few distinct values a column: nodes can be all of them."""
    rng = np.random.default_rng(seed)
    X = np.clip(np.round(4 * inputs(n, 4, correlation, seed)), -12, points - 13) / 4
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 3 + 0.3 * rng.standard_normal(n)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    weight = rng.uniform(0.5, 2.0, n)
    weight[::11] = 0.0
    kernels = [
        make(lengthscale, variance)
        for make, lengthscale, variance in zip(
            KERNELS, (2.0, 0.7, 1.5, 3.0), (0.3, 1.0, 2.0, 0.1), strict=True
        )
    ]
    return Problem(X, y - y.mean(), weight, kernels, 0.1)


def rows_of(equations):
    return Rows(equations.quadratic, equations.n_rows, equations.log_weight)


def nodes_of(given, counts=(100,) * 4):
    tables = given.equations.tables(100)
    return Basis.of(tables, list(counts)).nodes(tables)


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_with_a_node_a_value_it_is_the_dense_marginal_likelihood(noise, missing):
    given = problem(missing=missing)
    given.noise = noise
    found = evidence(nodes_of(given), rows_of(given.equations), given.kernels, noise)
    # The jitter of the nodes is what is left.
    assert found.value == pytest.approx(given.log_marginal_likelihood, abs=1e-6 / noise)
    np.testing.assert_allclose(found.mean, given.tables, atol=1e-6)


@pytest.mark.parametrize("counts", [(100,) * 4, (8, 12, 100, 9)])
def test_gradient_against_finite_differences(counts):
    given = problem(points=30)
    nodes, rows = nodes_of(given, counts), rows_of(given.equations)

    def value(logs):
        lengths, variances, noise = logs[:4], logs[4:8], logs[8]
        kernels = [
            type(kernel)(math.exp(length), math.exp(variance))
            for kernel, length, variance in zip(given.kernels, lengths, variances, strict=True)
        ]
        return evidence(nodes, rows, kernels, math.exp(noise))

    at = np.log(
        [*(k.lengthscale for k in given.kernels), *(k.variance for k in given.kernels), given.noise]
    )
    found = value(at)
    gradient = [own[name] for name in ("lengthscale", "variance") for own in found.by_log]
    gradient.append(found.by_log_noise)
    step = 1e-4
    expected = [
        (value(at + step * unit).value - value(at - step * unit).value) / (2 * step)
        for unit in np.eye(9)
    ]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-4)


def searches_of(equations, kernels):
    layout = equations.layout
    return [
        search_for(kernel, axis, weight, len(kernels))
        for kernel, axis, weight in zip(
            kernels, layout.cells, layout.parts(equations.weight), strict=True
        )
    ]


def learn(equations, kernels, noise=0.1, noise_bounds=(1e-6, 1e2), n_bins=256, watch=None):
    return marginal(
        equations.tables(n_bins),
        rows_of(equations),
        searches_of(equations, kernels),
        noise,
        noise_bounds=noise_bounds,
        tol=1e-2,
        max_iter=200,
        watch=watch or (lambda value: None),
    )


def smooth_problem(n, make, correlation=0.5, seed=0):
    """Two columns that matter and one that does not; the target has variance 1."""
    X = inputs(n, 3, correlation, seed)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 3
    y += 0.3 * np.random.default_rng(seed).standard_normal(n)
    y = (y - y.mean()) / y.std()
    return X, y, RowEquations.of(table_of(X), y), [make()] * 3


@pytest.mark.parametrize(
    ("make", "correlation"), [(Matern32, 0.9), (Matern52, 0.0), (Matern72, 0.9)]
)
def test_learned_hyperparameters_are_best_by_the_dense_likelihood(make, correlation):
    X, y, equations, kernels = smooth_problem(500, make, correlation)
    told = []
    learned = learn(equations, kernels, watch=told.append)
    assert learned.converged
    assert learned.resolved
    assert len(told) == learned.evaluations
    # The last search begins where the others ended, on nodes at least as many.
    assert max(told) >= learned.trace[-1] - 1e-9

    searches = searches_of(equations, kernels)
    bounds = np.array(
        [(search.lower[k], search.upper[k]) for search in searches for k in range(2)]
        + [(math.log(1e-6), math.log(1e2))]
    )

    def loss(logs):
        """Dense log marginal likelihood and its gradient, from their definitions."""
        terms = [make(*np.exp(logs[2 * d : 2 * d + 2])) for d in range(3)]
        priors = [kernel.covariance(x) for kernel, x in zip(terms, X.T, strict=True)]
        noise = math.exp(logs[-1])
        inverse = np.linalg.inv(sum(priors) + noise * np.eye(len(y)))
        alpha = inverse @ y
        log_det = -np.linalg.slogdet(inverse)[1]
        value = -0.5 * (y @ alpha + log_det + len(y) * np.log(2 * np.pi))
        score = 0.5 * (np.outer(alpha, alpha) - inverse)
        gradient = []
        for kernel, x, prior in zip(terms, X.T, priors, strict=True):
            gradient += [np.sum(score * kernel.by_log_lengthscale(x)), np.sum(score * prior)]
        return -value, -np.array([*gradient, noise * np.trace(score)])

    at = [np.log([k.lengthscale, k.variance]) for k in learned.kernels]
    at = np.array([*np.concatenate(at), math.log(learned.noise_variance)])
    found = -loss(at)[0]
    assert learned.trace[-1] == pytest.approx(found, abs=0.5)
    options = {"maxiter": 40}
    for start in (at, np.array([0.0, -1.0] * 3 + [-2.0])):
        best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        assert found > -best.fun - 1.0


def test_an_irrelevant_column_fades():
    _, _, equations, kernels = smooth_problem(2000, Matern52)
    learned = learn(equations, kernels)
    variances = [kernel.variance for kernel in learned.kernels]
    # Nothing of it is left in the fit: its variance is small or its function is flat.
    assert variances[2] < 1e-2 * min(variances[:2])
    assert learned.noise_variance == pytest.approx(_noise(2000), rel=0.1)


def _noise(n):
    X = inputs(n, 3, 0.5, 0)
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 3
    noise = 0.3 * np.random.default_rng(0).standard_normal(n)
    return noise.var() / (y + noise).var()


def test_fixed_parameters_stay():
    _, _, equations, _ = smooth_problem(300, Matern52)
    kernels = [
        Matern52(lengthscale=0.8, variance=1.0, fixed=("lengthscale", "variance")),
        Matern52(lengthscale=0.6, fixed="lengthscale"),
        Matern52(),
    ]
    learned = learn(equations, kernels, noise=0.07, noise_bounds=(0.07, 0.07))
    assert learned.kernels[0].lengthscale == 0.8
    assert learned.kernels[0].variance == 1.0
    assert learned.kernels[1].lengthscale == 0.6
    assert learned.kernels[1].variance != 1 / 3
    assert learned.noise_variance == pytest.approx(0.07, rel=1e-12)
    everything = [k.with_parameters(fixed=("lengthscale", "variance")) for k in learned.kernels]
    again = learn(equations, everything, noise=0.07, noise_bounds=(0.07, 0.07))
    assert again.kernels == everything


def walk(window=None):
    """A Brownian path, beside little noise and a column that does not matter."""
    rng = np.random.default_rng(0)
    n = 20_000
    path = np.cumsum(rng.standard_normal(n))
    if window:
        path -= np.convolve(path, np.ones(window) / window, "same")
    y = path / path.std() + 0.01 * rng.standard_normal(n)
    X = np.column_stack([np.arange(n) / n, rng.standard_normal(n)])
    equations = RowEquations.of(table_of(X), (y - y.mean()) / y.std())
    return learn(equations, [Matern12()] * 2, n_bins=512)


def test_rough_data_are_reported_where_bins_are_too_few():
    learned = walk()
    assert learned.noise_variance < 2e-4 or not learned.resolved


def test_rough_data_finer_than_the_first_nodes_are_reported():
    learned = walk(window=201)
    assert learned.noise_variance < 0.1 or not learned.resolved


def test_smooth_data_are_resolved():
    _, _, equations, kernels = smooth_problem(2000, Matern52)
    learned = learn(equations, kernels)
    assert learned.resolved
    assert sum(learned.open_variance) < 0.02


def test_weights_and_targets_in_proportion_change_nothing_but_the_scale():
    given = problem()
    searches = [Matern32(), Matern52(), Matern52(), Matern72()]
    first = learn(given.equations, searches)
    rows = RowEquations.of(given.table, given.y, np.where(given.weight > 0, given.weight, 0.0))
    second = learn(rows, searches)
    assert first.kernels == second.kernels
    kept = given.weight > 0
    without = RowEquations.of(table_of(given.X[kept]), given.y[kept], given.weight[kept])
    third = learn(without, searches)
    assert third.trace[-1] == pytest.approx(first.trace[-1], abs=1e-3)
