"""One contract for all kinds of terms: each against dense algebra on its prior."""

from dataclasses import dataclass

import numpy as np
import pytest

from dsgp.kernels import (
    CentredProduct,
    Constant,
    Custom,
    DampedOscillation,
    Independent,
    Margin,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    QuasiPeriodic,
    RationalQuadratic,
    SquaredExponential,
    Wiener,
)
from dsgp.terms import (
    Axis,
    DenseCells,
    GroupedAxis,
    GroupedDense,
    GroupedMarkov,
    LevelCells,
    LevelPairs,
    MarkovCells,
    MultipliedCells,
    Observations,
    SmoothByLevels,
    TensorCells,
)


@dataclass(frozen=True)
class Linear:
    """A user's own covariance, of no library: not stationary."""

    centre: float = 1.0

    def covariance(self, x, y):
        return np.outer(x - self.centre, y - self.centre) + 0.1


LINE = np.array([-1.0, 0.0, 0.1, 0.5, 2.0, 2.7, 4.0, 9.0])
NEW = np.array([-3.0, -1.0, 0.05, 0.5, 3.0, 9.0, 12.0])
PAIRS = np.array([[0, 0.0], [0, 1.0], [0, 1.5], [2, 0.5], [5, -1.0], [5, 0.0], [5, 3.0]])
NEW_PAIRS = np.array([[0, 0.7], [0, -2.0], [2, 0.5], [2, 9.0], [5, 1.0], [1, 0.0], [7, 3.0]])
# Gaps of all sizes, and inputs that almost coincide.
GAPS = np.array([-50.0, 0.0, 1e-9, 0.2, 0.21, 2.0, 2.7, 9.0, 1e3])
LEVELS, NEW_LEVELS = np.array([0.0, 1.0, 2.0, 7.0]), np.array([2.0, 0.0, 3.0, -5.0, 7.0])
# Values of both inputs where rows are, and others; levels by their numbers.
CROSSED = np.array([[0.0, 0.0], [0.0, 2.0], [1.0, 1.0], [1.5, 0.0], [1.5, 2.0], [4.0, 1.0]])
NEW_CROSSED = np.array([[0.0, 0.0], [0.7, 0.3], [9.0, -3.0], [1.5, 1.0], [4.0, 7.0]])
SMOOTH_MARGIN = Margin((-1.0, 0.0, 1.5, 4.0), (0.2, 0.4, 0.3, 0.1))
LEVEL_MARGIN = Margin((0.0, 1.0, 2.0), (0.5, 0.2, 0.3))
FACTORS = np.array([2.0, 0.0, -1.5, 1.0, 0.3, -4.0, 1e3])

CASES = {
    "axis": (Axis(LINE), Matern52(1.3, 2.0), NEW),
    "axis-rough": (Axis(LINE), Matern12(0.7, 0.4), NEW),
    "one-point": (Axis(LINE[:1]), Matern32(0.7, 0.4), NEW),
    "squared-exponential": (DenseCells(LINE), SquaredExponential(1.3, 2.0), NEW),
    "rational": (DenseCells(LINE), RationalQuadratic(0.8, 2.0, 0.7), NEW),
    "periodic": (DenseCells(LINE), Periodic(5.0, 0.8, 1.1, smoothness=1.5), NEW),
    "sum": (DenseCells(LINE), Matern52(5.0, 1.0) + Matern12(0.3, 0.2), NEW),
    "product": (DenseCells(LINE), Periodic(3.0, 0.6, 1.2) * Matern32(4.0, 1.0), NEW),
    "oscillation": (DenseCells(LINE), DampedOscillation(1.5, 2.0, 1.2), NEW),
    "quasi-periodic": (DenseCells(LINE), QuasiPeriodic(3.0, 0.6, 1.2, 2.0), NEW),
    "wiener": (DenseCells(LINE), Wiener(2, 1.0, 0.3, origin=-1.5), NEW),
    "markov-oscillation": (MarkovCells(LINE), DampedOscillation(1.5, 2.0, 1.2), NEW),
    "markov-sum": (
        MarkovCells(GAPS),
        DampedOscillation(1.5, 20.0, 1.2) + Matern52(1.0, 0.7) + Matern12(0.3, 0.2),
        NEW,
    ),
    "markov-product": (MarkovCells(LINE), DampedOscillation(2.0, 3.0, 1.2) * Matern32(4.0), NEW),
    "markov-one-point": (MarkovCells(LINE[:1]), DampedOscillation(1.5, 2.0, 1.2), NEW),
    "markov-smooth": (MarkovCells(GAPS), SquaredExponential(1.3, 2.0), NEW),
    "markov-periodic": (MarkovCells(LINE), Periodic(5.0, 0.8, 1.1), NEW),
    "markov-quasi-periodic": (MarkovCells(LINE), QuasiPeriodic(3.0, 0.6, 1.2, 2.0), NEW),
    "custom": (DenseCells(LINE), Custom(Linear(), 0.3), NEW),
    "levels": (LevelCells(LEVELS), Independent(1.7), NEW_LEVELS),
    "one-level": (LevelCells(LEVELS[:1]), Independent(1.7), NEW_LEVELS),
    "constant": (LevelCells(LEVELS[:1]), Constant(1.7), np.zeros(3)),
    "curves": (GroupedAxis(PAIRS), Matern32(0.9, 1.4), NEW_PAIRS),
    "curves-smooth": (GroupedAxis(PAIRS), Matern52(0.9, 1.4), NEW_PAIRS),
    "curves-dense": (GroupedDense(PAIRS), SquaredExponential(0.9, 1.4), NEW_PAIRS),
    "curves-markov": (GroupedMarkov(PAIRS), DampedOscillation(1.5, 2.0, 1.2), NEW_PAIRS),
    "curves-markov-smooth": (GroupedMarkov(PAIRS), SquaredExponential(0.9, 1.4), NEW_PAIRS),
    "varying": (MultipliedCells(Axis(LINE)), Matern52(1.3, 2.0), np.column_stack([NEW, FACTORS])),
    "slopes": (
        MultipliedCells(LevelCells(LEVELS)),
        Independent(1.7),
        np.column_stack([NEW_LEVELS, FACTORS[:5]]),
    ),
    "line": (
        MultipliedCells(LevelCells(LEVELS[:1])),
        Constant(0.4),
        np.column_stack([np.zeros(7), FACTORS]),
    ),
    "varying-curves": (
        MultipliedCells(GroupedAxis(PAIRS)),
        Matern32(0.9, 1.4),
        np.column_stack([NEW_PAIRS, FACTORS]),
    ),
}
CASES |= {
    "surface": (
        TensorCells(CROSSED),
        CentredProduct(
            (Matern52(1.3, 2.0), Matern32(0.8)), (SMOOTH_MARGIN, Margin((0.0, 1.0, 2.5), (1, 2, 1)))
        ),
        NEW_CROSSED,
    ),
    "seasonal-surface": (
        TensorCells(CROSSED),
        CentredProduct((Matern12(1.3, 2.0), Periodic(5.0, 0.9)), (SMOOTH_MARGIN, LEVEL_MARGIN)),
        NEW_CROSSED,
    ),
    "departures": (
        SmoothByLevels(CROSSED),
        CentredProduct(
            (RationalQuadratic(1.3, 2.0, 0.7), Independent()), (SMOOTH_MARGIN, LEVEL_MARGIN)
        ),
        NEW_CROSSED,
    ),
    "pairs-of-levels": (
        LevelPairs(np.floor(CROSSED)),
        CentredProduct(
            (Independent(0.7), Independent()),
            (Margin((0.0, 1.0, 4.0), (0.2, 0.4, 0.4)), LEVEL_MARGIN),
        ),
        NEW_CROSSED,
    ),
}
pytestmark = pytest.mark.parametrize("name", CASES)


def case(name):
    cells, kernel, new = CASES[name]
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 20.0, len(cells))
    if len(cells) > 2:
        weight[1] = 0.0  # nothing was observed there
    target = np.where(weight > 0, rng.standard_normal(len(cells)), 0.0)
    prior = cells.prior(kernel, cells.points, cells.points)
    return cells, kernel, new, prior, weight, target


def test_the_prior_is_a_covariance(name):
    cells, kernel, new, prior, _, _ = case(name)
    np.testing.assert_allclose(prior, prior.T)
    assert np.linalg.eigvalsh(prior)[0] > -1e-9 * np.abs(prior).max()
    own = np.diag(cells.prior(kernel, new, new))
    np.testing.assert_allclose(cells.prior_variance(kernel, new), own, rtol=1e-12)
    assert len(cells) == len(cells.points)


def test_products_solves_and_posterior_are_dense_ones(name):
    cells, kernel, _, prior, weight, target = case(name)
    vector = np.random.default_rng(1).standard_normal(len(cells))
    product = cells.multiply(kernel, vector)
    np.testing.assert_allclose(product, prior @ vector, atol=1e-9)
    of_each = cells.multiply_each(kernel, np.stack([-vector, vector]))
    np.testing.assert_array_equal(of_each, [-product, product])
    covariance = prior - prior @ np.linalg.solve(
        np.eye(len(cells)) + weight[:, None] * prior, weight[:, None] * prior
    )
    mean, dual = cells.solver(kernel, weight).solve(vector)
    np.testing.assert_allclose(mean, covariance @ vector, atol=1e-8)
    np.testing.assert_allclose(prior @ dual, mean, atol=1e-8)
    posterior = cells.posterior(kernel, Observations(target, weight))
    np.testing.assert_allclose(posterior.mean, covariance @ (weight * target), atol=1e-8)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), atol=1e-8)
    np.testing.assert_allclose(prior @ posterior.dual, posterior.mean, atol=1e-8)
    log_det = np.linalg.slogdet(np.eye(len(cells)) + weight[:, None] * prior)[1]
    assert posterior.log_det == pytest.approx(log_det, abs=1e-8)


def test_evidence_and_its_gradient(name):
    cells, kernel, _, prior, weight, target = case(name)
    # Two rows in the last cell: their scatter is in the likelihood too.
    codes = np.concatenate([np.flatnonzero(weight), [len(cells) - 1]])
    rows_weight = np.append(weight[weight > 0], 1.5)
    y = np.append(target[weight > 0], 0.3)

    def value(kernel, factor=1.0):
        prior = cells.prior(kernel, cells.points, cells.points)[np.ix_(codes, codes)]
        matrix = prior + np.diag(factor / rows_weight)
        return -0.5 * (
            y @ np.linalg.solve(matrix, y)
            + np.linalg.slogdet(matrix)[1]
            + len(y) * np.log(2 * np.pi)
        )

    seen = Observations.from_rows(codes, len(cells), y, rows_weight)
    evidence = cells.posterior(kernel, seen).evidence
    assert evidence.value == pytest.approx(value(kernel), abs=1e-8)
    assert cells.log_marginal_likelihood(kernel, seen) == pytest.approx(evidence.value, abs=1e-9)
    step = 1e-5
    assert set(evidence.by_log) == set(kernel.parameters)
    for parameter in kernel.parameters:
        up, down = (
            value(kernel.with_parameters(**{parameter: kernel.value(parameter) * np.exp(s)}))
            for s in (step, -step)
        )
        expected = (up - down) / (2 * step)
        assert evidence.by_log[parameter] == pytest.approx(expected, abs=1e-5), parameter
        up, down = (
            cells.prior(
                kernel.with_parameters(**{parameter: kernel.value(parameter) * np.exp(s)}),
                cells.points,
                cells.points,
            )
            for s in (step, -step)
        )
        np.testing.assert_allclose(
            cells.prior_by_log(kernel, parameter), (up - down) / (2 * step), atol=1e-6
        )
    noise = (value(kernel, np.exp(step)) - value(kernel, np.exp(-step))) / (2 * step)
    assert evidence.by_log_noise == pytest.approx(noise, abs=1e-5)


def test_predictions_at_new_inputs(name):
    cells, kernel, new, prior, weight, target = case(name)
    cross = cells.prior(kernel, new, cells.points)
    mean, variance = cells.posterior(kernel, Observations(target, weight)).predict(new)
    inner = np.linalg.solve(np.eye(len(cells)) + weight[:, None] * prior, np.diag(weight))
    np.testing.assert_allclose(mean, cross @ (inner @ target), atol=1e-8 * _size(cross))
    expected = np.diag(cells.prior(kernel, new, new)) - np.einsum(
        "iu,uv,iv->i", cross, inner, cross
    )
    np.testing.assert_allclose(variance, expected, atol=1e-8 * _size(cross) ** 2)
    vectors = np.random.default_rng(2).standard_normal((3, len(cells)))
    out = np.ones((len(new), 3))
    cells.kernel_sums(kernel, vectors).add_to(new, out)
    np.testing.assert_allclose(out, 1.0 + cross @ vectors.T, atol=1e-8 * _size(cross))


def _size(cross):
    return max(1.0, float(np.abs(cross).max()))


def test_samples_have_the_moments_of_the_prior(name):
    cells, kernel, new, _, _, _ = case(name)
    joint, codes, new_codes = cells.with_inputs(new)
    where = np.concatenate([codes, new_codes])
    rng = np.random.default_rng(3)
    draws = np.array([joint.sample(kernel, rng)[where] for _ in range(4000)])
    multipliers = cells.multipliers(new)
    if multipliers is not None:
        draws[:, len(cells) :] *= multipliers
    inputs = np.concatenate([cells.points, new])
    expected = cells.prior(kernel, inputs, inputs)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected))) + 1e-12
    found = draws.T @ draws / len(draws)
    assert np.abs((found - expected) / scale).max() < 0.12


def test_subsets_bins_and_nodes(name):
    cells, kernel, _, prior, weight, _ = case(name)
    weight = np.maximum(weight, 0.1)
    some = np.arange(0, len(cells), 2)
    np.testing.assert_array_equal(cells.subset(some).points, cells.points[some])
    bins = cells.bins(weight, 3)
    assert (np.diff(np.unique(bins)) == 1).all()
    assert bins[0] == 0
    assert len(bins) == len(cells)
    merged, spread = cells.merged(bins, weight)
    assert len(merged) == bins.max() + 1 == len(spread)
    assert (spread >= 0).all()
    same, nothing = cells.merged(np.arange(len(cells)), weight)
    np.testing.assert_array_equal(same.points, cells.points)
    assert not nothing.any()
    for chosen in (cells.chosen(weight, 3), cells.nodes(weight, 4), cells.nodes(weight, 100)):
        assert (np.diff(chosen) > 0).all()
        assert 0 <= chosen[0] <= chosen[-1] < len(cells)
    nodes = cells.nodes(weight, 4)
    matrix = cells.interpolation(nodes)
    values = np.random.default_rng(4).standard_normal(len(nodes))
    if matrix is None:
        assert len(nodes) == len(cells)
    else:
        np.testing.assert_allclose((matrix @ values)[nodes], values, atol=1e-12)
    carried = cells.subset(nodes).interpolated(values, cells)
    np.testing.assert_allclose(carried[nodes], values, atol=1e-12)
    shift = cells.bin_shift(kernel, np.ones(len(cells)), weight, np.zeros(len(cells)))
    assert not shift.bias.any()
    assert shift.noise == pytest.approx(0, abs=1e-12)
    assert shift.rest == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(
        cells.variance_within_bins(kernel, np.zeros(len(cells))), 0.0, atol=1e-12
    )
    if cells.is_diagonal:
        np.testing.assert_array_equal(prior, kernel.std**2 * np.eye(len(cells)))


def test_missing_inputs_are_seen(name):
    cells, _, new, _, _, _ = case(name)
    gap = np.array(new, dtype=float)
    gap[0] = np.nan
    assert cells.is_missing(gap).tolist() == [True] + [False] * (len(new) - 1)


def test_neighbours_are_along_curves_with_nothing_in_common(name):
    cells, kernel, _ = CASES[name]
    neighbours = cells.neighbours
    if neighbours is None:
        assert cells.line is None
        return
    same = neighbours.curve[:, None] == neighbours.curve[None, :]
    assert (cells.prior(kernel, cells.points, cells.points)[~same] == 0).all()
    assert (np.diff(neighbours.curve) >= 0).all()
    assert (np.diff(neighbours.position)[np.diff(neighbours.curve) == 0] > 0).all()
    assert len(np.unique(neighbours.curve)) == cells.n_curves
