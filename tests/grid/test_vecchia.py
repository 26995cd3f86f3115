"""Vecchia's factor and likelihood against dense algebra, and against regressions one by one."""

import tracemalloc

import numpy as np
import pytest

from dsgp.grid import covariance, vecchia
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.missing import CellSystem, at_cells
from dsgp.grid.vecchia import Cells, Factor, candidates_of, earlier_neighbours, log_likelihood
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic
from tests.grid.dense import CASES, Dense, close, gaps, problem, uneven


class Case:
    """The cells of a dense problem in their order of elimination."""

    def __init__(self, dense, y, n_neighbours=None):
        self.dense = dense
        self.prior = SeparableSum(tuple(dense.points), tuple(dense.terms))
        self.cells = Cells.of(dense.observed, self.prior, seed=3)
        n = len(self.cells)
        self.noise = at_cells(dense.noise, self.cells)
        self.y = y.ravel()[self.cells.flat]
        self.matrix = dense.prior[np.ix_(self.cells.flat, self.cells.flat)] + np.diag(self.noise)
        self.neighbours = earlier_neighbours(self.cells, self.prior, n_neighbours or n)

    def likelihood(self, rows=None, weight=None, prior=None, factor=1.0):
        rows = np.arange(len(self.cells)) if rows is None else rows
        weight = np.ones(len(rows)) if weight is None else weight
        return log_likelihood(
            self.cells,
            prior or self.prior,
            factor * self.noise,
            self.y,
            self.neighbours,
            rows,
            weight,
        )


def one_by_one(matrix, y, neighbours):
    """Regress each cell on its neighbours: unit lower triangle, variances, log densities."""
    lower, variances, densities = np.eye(len(y)), [], []
    for i, own in enumerate(neighbours):
        near = own[own >= 0]
        weights = np.linalg.solve(matrix[np.ix_(near, near)], matrix[near, i])
        lower[i, near] = -weights
        variances.append(matrix[i, i] - matrix[i, near] @ weights)
        error = y[i] - weights @ y[near]
        densities.append(-0.5 * (np.log(2 * np.pi * variances[-1]) + error**2 / variances[-1]))
    return lower, np.array(variances), np.array(densities)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_all_earlier_cells_as_neighbours_make_it_exact(name, missing):
    dense, y = problem(name, missing)
    case = Case(dense, y)
    factor = Factor.of(case.cells, case.prior, case.noise, case.neighbours)
    close(factor.apply(case.y), np.linalg.solve(case.matrix, case.y))
    close(factor.log_likelihood(case.y), dense.log_likelihood(y))
    evidence = case.likelihood()
    lengthscales, amplitudes, noise = dense.gradient(y)
    close(evidence.value, dense.log_likelihood(y))
    close(evidence.by_log_lengthscale, lengthscales)
    close(evidence.by_log_variance, amplitudes)
    close(evidence.by_log_noise, noise)


@pytest.mark.parametrize("name", ["one dim, uneven, two scales", "three dims, two scales"])
def test_few_neighbours_are_regressions_one_by_one(name):
    dense, y = problem(name)
    case = Case(dense, y, n_neighbours=4)
    lower, variances, densities = one_by_one(case.matrix, case.y, case.neighbours)
    factor = Factor.of(case.cells, case.prior, case.noise, case.neighbours)
    close(factor.variance, variances, 1e-11)
    close(factor.apply(case.y), lower.T @ ((lower @ case.y) / variances), 1e-11)
    close(factor.log_likelihood(case.y), densities.sum(), 1e-11)
    rows = np.array([0, 3, 3, 17, 18])
    weight = np.array([1.0, 0.5, 2.0, 7.0, 3.0])
    close(case.likelihood(rows, weight).value, weight @ densities[rows], 1e-11)


def test_the_gradient_with_few_neighbours_is_that_of_finite_differences():
    dense, y = problem("three dims, two scales")
    case = Case(dense, y, n_neighbours=6)
    rows = np.arange(0, len(case.cells), 3)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(rows))
    evidence = case.likelihood(rows, weight)

    def value(bump, size):
        kernels = [
            [
                kernel.with_parameters(
                    lengthscale=kernel.lengthscale * np.exp(size * (bump == (c, d))),
                    variance=kernel.variance * np.exp(size * (bump == (c, None) and d == 0)),
                )
                for d, kernel in enumerate(term)
            ]
            for c, term in enumerate(case.prior.terms)
        ]
        prior = SeparableSum(case.prior.points, tuple(map(tuple, kernels)))
        return case.likelihood(rows, weight, prior, np.exp(size * (bump == "noise"))).value

    h = 1e-5
    places = [(c, d) for c in range(2) for d in (0, 1, 2, None)]
    for bump in [*places, "noise"]:
        slope = (value(bump, h) - value(bump, -h)) / (2 * h)
        if bump == "noise":
            found = evidence.by_log_noise
        else:
            c, d = bump
            found = evidence.by_log_variance[c] if d is None else evidence.by_log_lengthscale[c, d]
        assert found == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_computed_tables_make_it_exact_too(monkeypatch):
    monkeypatch.setattr(covariance, "LONG", 5)
    points = [uneven(9, 0, 3), uneven(7, 0, 1)]
    terms = [
        (Matern32(0.9, 1.5), Matern52(0.8, 1.0)),
        (Matern12(0.2, 0.3), Matern12(2.0, 0.5)),
    ]
    dense = Dense(points, terms, 0.1, gaps((9, 7)))
    y = np.random.default_rng(0).standard_normal((9, 7))
    case = Case(dense, y)
    assert case.prior.tables().stride.tolist() == [-1, -1]
    evidence = case.likelihood()
    lengthscales, amplitudes, noise = dense.gradient(y)
    close(evidence.value, dense.log_likelihood(y))
    close(evidence.by_log_lengthscale, lengthscales)
    close(evidence.by_log_variance, amplitudes)
    close(evidence.by_log_noise, noise)


# ---------------------------------------------------------------------- neighbours


@pytest.mark.parametrize("closed", [False, True])
def test_neighbours_far_down_the_order_are_those_of_largest_covariance(closed, monkeypatch):
    monkeypatch.setattr(vecchia, "_FIRST", 10)  # the others are found along the list of steps
    longitude = np.arange(0.0, 360.0, 30.0)
    around = Periodic(360.0, 70.0, 1.0, smoothness=1.5) if closed else Matern32(70.0, 1.0)
    points = [np.linspace(0, 9, 10), longitude]
    terms = [(Matern32(3.0, 1.0), around), (Matern12(2.0, 0.1), around)]
    dense = Dense(points, terms, 0.1, gaps((10, 12)))
    case = Case(dense, np.zeros((10, 12)), n_neighbours=5)
    assert case.cells.wrap.tolist() == [False, closed]
    matrix = case.matrix - np.diag(case.noise)
    for i in range(10, len(case.cells)):
        best = np.sort(matrix[i, :i])[::-1][:5]
        np.testing.assert_allclose(np.sort(matrix[i, case.neighbours[i]])[::-1], best, rtol=1e-9)


@pytest.mark.parametrize("closed", [False, True])
def test_cells_beyond_the_list_of_steps_have_the_nearest_earlier_ones(closed, monkeypatch):
    monkeypatch.setattr(vecchia, "_FIRST", 10)
    monkeypatch.setattr(vecchia, "_OFFSETS", 40)  # too few for the first cells
    around = Periodic(360.0, 70.0, 1.0) if closed else Matern32(70.0, 1.0)
    points = [np.linspace(0, 29, 30), np.arange(0.0, 360.0, 9.0)]
    terms = [(Matern32(4.0, 1.0), around), (Matern32(2.0, 0.1), around)]
    dense = Dense(points, terms, 0.1, gaps((30, 40), share=0.5))
    case = Case(dense, np.zeros((30, 40)), n_neighbours=6)
    n = len(case.cells)
    steps = np.abs(case.cells.index[:, None] - case.cells.index[None]).astype(float)
    if closed:
        steps[..., 1] = np.minimum(steps[..., 1], 40 - steps[..., 1])
    distance = np.hypot(steps[..., 0] / 4.0, steps[..., 1] * 9.0 / 70.0)
    filled = 0
    for i in range(10, n):
        own = case.neighbours[i]
        assert len(np.unique(own)) == 6
        assert 0 <= own.min() <= own.max() < i
        nearest = np.sort(distance[i, :i])[:6]
        filled += np.allclose(np.sort(distance[i, own]), nearest)
    assert filled > 100


def test_cells_are_ordered_by_the_seed():
    dense, _ = problem("two dims")
    prior = SeparableSum(tuple(dense.points), tuple(dense.terms))
    first, again, other = (Cells.of(dense.observed, prior, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.flat, again.flat)
    assert (first.flat != other.flat).any()
    np.testing.assert_array_equal(np.sort(first.flat), np.flatnonzero(dense.observed))
    np.testing.assert_array_equal(np.ravel_multi_index(first.index.T, first.shape), first.flat)
    np.testing.assert_array_equal(first.rank[first.flat], np.arange(len(first)))
    assert (np.delete(first.rank, first.flat) == -1).all()


def test_candidates_are_the_nearest_cells_and_thinner_ones_around():
    points = [np.arange(30.0), np.arange(40.0)]
    observed = np.ones((30, 40), bool)
    observed[10:20, 10:30] = False
    terms = [(Matern32(3.0, 1.0), Matern32(3.0, 1.0))]
    dense = Dense(points, terms, 0.1, observed)
    case = Case(dense, np.zeros((30, 40)), n_neighbours=2)
    n, place = len(case.cells), case.cells.index.astype(float)
    targets = np.argwhere(np.ones((30, 40), bool))[::7].astype(np.int32)
    near = candidates_of(case.cells, case.prior, targets, 3)
    assert near.shape[0] == len(targets)
    assert near.max() < n
    for target, own in zip(targets, near, strict=True):
        own = own[own >= 0]
        assert len(np.unique(own)) == len(own)
        r = np.abs(place - target) * np.sqrt(3) / 3.0
        covariance = ((1 + r) * np.exp(-r)).prod(axis=1)
        for limit in [n // share for share in vecchia._SHARES]:
            best = np.sort(covariance[:limit])[::-1][:3]
            found = np.sort(covariance[own[own < limit]])[::-1][:3]
            np.testing.assert_allclose(found, best, rtol=1e-9)


def test_targets_deep_in_a_gap_have_candidates_as_well(monkeypatch):
    # The list of steps, in the shortest lengthscales, ends far before the next observed cell.
    monkeypatch.setattr(vecchia, "_OFFSETS", 300)
    points = [np.arange(60.0), np.arange(70.0)]
    observed = np.ones((60, 70), bool)
    observed[5:55, 5:65] = False
    terms = ((Matern32(1.5, 0.2),) * 2, (Matern32(80.0, 1.0),) * 2)
    prior = SeparableSum(tuple(points), terms)
    system = CellSystem(prior, observed, 0.01)
    where = np.zeros((60, 70), bool)
    where[30, 35] = where[20, 40] = True
    local = system.local_variance(where=where)[where]
    for place, found in zip(np.argwhere(where).astype(float), local, strict=True):
        exact = system.variance_at(place.tolist())
        assert 0.999 * exact <= found <= 1.7 * exact < 0.5 * prior.variance
    targets = np.argwhere(where).astype(np.int32)
    near = candidates_of(system.cells, prior, targets, 10)
    assert all(len(np.unique(own[own >= 0])) == (own >= 0).sum() >= 10 for own in near)


def test_an_observed_target_starts_with_itself_and_all_cells_are_each_once():
    dense, y = problem("two dims")
    case = Case(dense, y)
    near = candidates_of(case.cells, case.prior, case.cells.index, 3)
    np.testing.assert_array_equal(near[:, 0], np.arange(len(case.cells)))
    for own in candidates_of(case.cells, case.prior, case.cells.index, 10**6):
        assert sorted(own[own >= 0].tolist()) == list(range(len(case.cells)))


@pytest.mark.parametrize("length", [1e-6, 1e-3, 1.0, 1e3, 1e9, 1e150])
def test_searches_take_little_memory_whatever_the_lengthscales(length):
    shape = (60, 90, 50, 40)
    prior = SeparableSum(tuple(np.arange(float(n)) for n in shape), ((Matern32(length, 1.0),) * 4,))
    tracemalloc.start()
    offsets = vecchia._offsets(prior, np.zeros(4, bool))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e8
    assert len(offsets) == 20000
    # Nearest first, and every cell once.
    assert offsets[0].tolist() == [0, 0, 0, 0]
    assert len(np.unique(offsets, axis=0)) == 20000
    if 1e-3 < length < 1e9:
        distance = (offsets**2).sum(axis=1)
        assert sorted(distance[:9].tolist()) == [0] + [1] * 8


def test_one_lonely_cell_has_no_neighbours():
    observed = np.zeros((3, 4), bool)
    observed[1, 2] = True
    points, terms = [np.arange(3.0), np.arange(4.0)], [(Matern32(1.0, 2.0), Matern32(1.0, 1.0))]
    dense = Dense(points, terms, 0.5, observed)
    case = Case(dense, np.full((3, 4), 1.5))
    assert case.neighbours.tolist() == [[-1]]
    expected = -0.5 * (np.log(2 * np.pi * 2.5) + 1.5**2 / 2.5)
    assert case.likelihood().value == pytest.approx(expected, rel=1e-13)


def test_threads_change_no_bit(monkeypatch):
    dense, y = problem("three dims, two scales")
    found = []
    for work in (0.0, np.inf):
        monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", work)
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", 4)
        case = Case(dense, y, n_neighbours=8)
        evidence = case.likelihood()
        factor = Factor.of(case.cells, case.prior, case.noise, case.neighbours)
        found.append((evidence.value, *evidence.by_log_lengthscale.ravel(), *factor.apply(case.y)))
    assert found[0] == found[1]
