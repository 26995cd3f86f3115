"""The compiled loops over cells against plain numpy."""

import numpy as np
import pytest

from dsgp.grid import covariance
from dsgp.grid.covariance import SeparableSum
from dsgp.jit import vecchia
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from tests.grid.dense import CASES, Dense, close, uneven


def read(tables, cells, which):
    """Upper triangle of the covariances of cells, or of one factor's derivative."""
    n = len(cells)
    index = np.ascontiguousarray(cells.T.astype(np.int64))
    part, line, out = (np.full((n, n), np.nan) for _ in range(3))
    if which is None:
        vecchia._covariances(tables, index, n, part, line, out)
    else:
        vecchia._along(tables, tables.slope, tables.slope_polynomial, *which, index, n, out)
    return out[np.triu_indices(n)]


def check_tables(points, terms):
    dense = Dense(points, terms, 1.0)
    cells = np.argwhere(np.ones(dense.shape, bool))
    chosen = np.random.default_rng(0).permutation(len(cells))[:30]
    upper = np.triu_indices(len(chosen))
    tables = SeparableSum(tuple(points), tuple(terms)).tables()
    pairs = np.ix_(chosen, chosen)
    close(read(tables, cells[chosen], None), dense.prior[pairs][upper], 1e-12)
    for c, term in enumerate(terms):
        for d, kernel in enumerate(term):
            line = Dense([points[d]], [(kernel,)], 1.0)
            slope = line.between(line.points, line.points, (0, 0))
            at = cells[chosen, d]
            expected = slope[np.ix_(at, at)][upper]
            if expected.any():
                close(read(tables, cells[chosen], (c, d)), expected, 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_tables_hold_covariances_and_their_derivatives(name):
    check_tables(*CASES[name])


def test_computed_tables_of_long_axes_do_too(monkeypatch):
    monkeypatch.setattr(covariance, "LONG", 5)
    points = [uneven(8, 0, 2), np.linspace(0, 1, 4), uneven(6, 1, 2), uneven(7, 0, 1)]
    terms = [
        (Matern12(0.3, 2.0), Matern32(0.5, 1.0), Matern52(0.5, 0.5), Matern72(0.6, 1.0)),
        (Matern72(1.0, 0.3), Matern12(0.5, 1.0), Matern12(2.0, 0.5), Matern32(0.1, 1.0)),
    ]
    prior = SeparableSum(tuple(points), tuple(terms))
    assert prior.tables().stride.tolist() == [-1, 0, -1, -1]
    check_tables(points, terms)


def test_computed_covariances_vanish_far_away(monkeypatch):
    monkeypatch.setattr(covariance, "LONG", 2)
    points = (np.array([0.0, 1.0, 1e200]),)
    tables = SeparableSum(points, ((Matern72(1e-3, 1.0),),)).tables()
    np.testing.assert_array_equal(read(tables, np.arange(3)[:, None], None), [1, 0, 0, 1, 0, 1])


@pytest.mark.parametrize("wrap", [False, True])
def test_neighbours_are_the_first_of_smaller_rank(wrap):
    shape, random = (6, 8), np.random.default_rng(0)
    rank = np.full(48, -1, np.int32)
    flat = random.permutation(48)[:30]
    rank[flat] = np.arange(30)
    cells = np.stack(np.unravel_index(flat, shape), 1).astype(np.int32)
    offsets = np.argwhere(np.ones((5, 5), bool)) - 2
    offsets = random.permutation(offsets).astype(np.int32)
    wraps = np.array([False, wrap])
    for limit in (-1, 12):
        out = np.empty((30, 4), np.int32)
        rows = np.arange(30)
        vecchia.earlier_neighbours(
            cells, rank, np.array(shape), wraps, offsets, rows, 0, 30, limit, out
        )
        for i, own in enumerate(out.tolist()):
            places = cells[i] + offsets
            if wrap:
                places[:, 1] %= 8
            inside = ((places >= 0) & (places < shape)).all(axis=1)
            ranks = rank[np.ravel_multi_index(places[inside].T, shape)]
            expected = [r for r in ranks.tolist() if 0 <= r < (i if limit < 0 else limit)][:4]
            assert own == expected + [-1] * (4 - len(expected))


def test_the_best_earlier_cells_are_those_of_largest_covariance():
    points, terms = CASES["three dims, two scales"]
    dense = Dense(points, terms, 1.0)
    cells = np.argwhere(np.ones(dense.shape, bool))
    order = np.random.default_rng(0).permutation(len(cells))[:60]
    out = np.empty((60, 7), np.int32)
    tables = SeparableSum(tuple(points), tuple(terms)).tables()
    vecchia.best_earlier(cells[order].astype(np.int32), tables, np.arange(60), 0, 60, out)
    matrix = dense.prior[np.ix_(order, order)]
    for i in range(60):
        found = out[i][out[i] >= 0]
        assert len(found) == len(set(found.tolist())) == min(i, 7)
        best = np.sort(matrix[i, :i])[::-1][:7]
        np.testing.assert_allclose(matrix[i, found], best, rtol=1e-12)  # in order


def test_small_factors_and_solves():
    random = np.random.default_rng(0)
    matrix = random.standard_normal((6, 6))
    matrix = matrix @ matrix.T + np.eye(6)
    upper, vector = matrix.copy(), random.standard_normal(6)
    vecchia._cholesky(upper, 5)  # the leading block alone
    expected = np.linalg.cholesky(matrix[:5, :5]).T
    close(np.triu(upper[:5, :5]), expected, 1e-13)
    forward, backward = vector.copy(), vector.copy()
    vecchia._forward(upper, 5, forward)
    vecchia._backward(upper, 5, backward)
    close(forward[:5], np.linalg.solve(expected.T, vector[:5]), 1e-12)
    close(backward[:5], np.linalg.solve(expected, vector[:5]), 1e-12)


def test_a_sparse_factor_is_applied_as_its_matrix():
    random = np.random.default_rng(0)
    n, m = 12, 3
    neighbours = np.full((n, m), -1, np.int32)
    unit = np.eye(n)
    coefficients = random.standard_normal((n, m))
    for i in range(n):
        own = random.permutation(i)[:m]
        neighbours[i, : len(own)] = own
        unit[i, own] = -coefficients[i, : len(own)]
    variance, vector = random.uniform(0.5, 2, n), random.standard_normal(n)
    half, out = np.empty(n), np.empty(n)
    vecchia.apply(neighbours, coefficients, variance, vector, half, out)
    close(out, unit.T @ ((unit @ vector) / variance), 1e-13)


def test_lists_of_neighbours_are_merged_with_each_once():
    first = np.array([[4, 2, -1], [-1, -1, -1], [1, 2, 3]], np.int32)
    second = np.array([[2, 7], [5, -1], [3, 1]], np.int32)
    out = np.empty((3, 5), np.int32)
    vecchia.merge(first, second, out)
    assert out.tolist() == [[4, 2, 7, -1, -1], [5, -1, -1, -1, -1], [1, 2, 3, -1, -1]]


@pytest.mark.parametrize("long", [1, 10**6])
def test_the_most_informative_candidates_are_taken_one_after_the_other(long, monkeypatch):
    monkeypatch.setattr(covariance, "LONG", long)
    points = [uneven(7, 0, 2), np.linspace(0, 1, 6)]
    terms = [(Matern32(0.7, 2.0), Matern52(0.6, 1.0)), (Matern12(0.2, 0.3), Matern32(0.2, 1.0))]
    dense = Dense(points, terms, 1.0)
    random = np.random.default_rng(0)
    order = random.permutation(42)[:25]  # observed
    cells = np.stack(np.unravel_index(order, (7, 6)), 1).astype(np.int32)
    noise = random.uniform(0.01, 0.5, 25)
    targets = np.argwhere(np.ones((7, 6), bool)).astype(np.int32)
    candidates = np.array([random.permutation(25)[:12] for _ in targets], np.int32)
    candidates[::3, 8:] = -1
    tables = SeparableSum(tuple(points), tuple(terms)).tables()
    found = np.empty(42)
    vecchia.variance_given_best(targets, cells, candidates, noise, tables, 4, 0, 42, found)
    matrix = dense.prior[np.ix_(order, order)] + np.diag(noise)

    def variance(i, some):
        cross = dense.prior[i, order[some]]
        return dense.prior[i, i] - cross @ np.linalg.solve(matrix[np.ix_(some, some)], cross)

    for i, own in enumerate(candidates):
        chosen, left = [], own[own >= 0].tolist()
        for _ in range(4):
            best = min(left, key=lambda k: variance(i, [*chosen, k]))
            chosen.append(best)
            left.remove(best)
        assert found[i] == pytest.approx(variance(i, chosen), rel=1e-9)
