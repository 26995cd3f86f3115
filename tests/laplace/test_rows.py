"""Sums over rows against the sums themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from dsgp import compute
from dsgp.laplace import rows as laplace_rows
from dsgp.laplace.linearised import PairTables
from dsgp.rows import table as row_tables
from tests.laplace.dense import LIKELIHOODS, example


def one_hot(table):
    """Z of every term, (n_rows, n_points): rows that miss the input are 0."""
    return [
        (code[:, None] == np.arange(len(axis))).astype(float)
        for code, axis in zip(table.codes, table.cells, strict=True)
    ]


@pytest.fixture(params=["together", "in blocks and tasks"])
def layout(request, monkeypatch):
    if request.param != "together":
        monkeypatch.setattr(row_tables, "BLOCK", 37)
        monkeypatch.setattr(laplace_rows, "_TASK_ROWS", 10)
        monkeypatch.setattr(compute, "WORTH_A_GRAPH", 0.0)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_all_rows(name, weighted):
    given = example(name, weighted=weighted, shifted=weighted)
    rows, Z = given.rows, one_hot(given.table)
    flat = np.random.default_rng(0).standard_normal(given.table.size)
    f = sum(z @ part for z, part in zip(Z, given.table.parts(flat), strict=True))
    latent = given.latent(f)
    np.testing.assert_allclose(rows.latent(given.level, flat), latent, rtol=1e-12)
    value, gradient, weight = given._linearised(f)
    for with_pairs in (False, True):
        found = rows.linearised(given.likelihood, given.level, flat, with_pairs=with_pairs)
        assert found.log_density == pytest.approx(value, rel=1e-12)
        assert found.total_gradient == pytest.approx(gradient.sum(), abs=1e-9)
        assert found.total_weight == pytest.approx(weight.sum(), rel=1e-12)
        np.testing.assert_allclose(
            found.gradient, np.hstack([z.T @ gradient for z in Z]), atol=1e-9
        )
        np.testing.assert_allclose(found.weight, np.hstack([z.T @ weight for z in Z]), atol=1e-9)
        if with_pairs:
            assert set(found.pairs) == {(d, e) for e in range(4) for d in range(e)}
            for (d, e), pair in found.pairs.items():
                np.testing.assert_allclose(pair, Z[d].T @ (weight[:, None] * Z[e]), atol=1e-9)
        else:
            np.testing.assert_allclose(found.row_weight, weight, rtol=1e-12)
        equations = rows.equations(found, flat, None)
        whole = np.hstack(Z)
        expected = whole.T @ (weight * f + gradient)
        np.testing.assert_allclose(equations.information, expected, atol=1e-8)
        matrix = whole.T @ (weight[:, None] * whole)
        np.testing.assert_allclose(equations.multiply(flat), matrix @ flat, atol=1e-8)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("name", ["logit", "poisson", "gamma", "ordered_probit"])
def test_change_of_the_curvature_by_points(name):
    given = example(name)
    rows, Z = given.rows, one_hot(given.table)
    rng = np.random.default_rng(1)
    flat = rng.standard_normal(given.table.size)
    sizes = [len(axis) for axis in given.table.cells]
    pairs = {(d, e): rng.standard_normal((sizes[d], sizes[e])) for d, e in [(0, 1), (1, 3)]}
    tables = PairTables(0.7, rng.standard_normal(given.table.size), pairs)
    v = 0.7 + sum(z @ part for z, part in zip(Z, given.table.parts(tables.alone), strict=True))
    v += sum(np.einsum("ip,pq,iq->i", Z[d], pair, Z[e]) for (d, e), pair in pairs.items())
    np.testing.assert_allclose(rows.variances(tables), v, rtol=1e-10, atol=1e-12)
    f = given.table.gather(flat)
    step = 1e-5
    slope = (given._linearised(f + step)[2] - given._linearised(f - step)[2]) / (2 * step)
    sums, total = rows.curvature_change(given.likelihood, given.level, flat, tables)
    np.testing.assert_allclose(sums, np.hstack([z.T @ (v * slope) for z in Z]), atol=1e-5)
    assert total == pytest.approx((v * slope).sum(), abs=1e-5)


@drawn(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans())
@settings(max_examples=25)
def test_some_rows_are_those_rows(seed, block, weighted):
    given = example("binomial", 60, weighted=weighted)
    chosen = np.flatnonzero(np.random.default_rng(seed).uniform(size=60) < 0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tables, "BLOCK", block)
        some = given.rows.some(chosen)
    assert np.array_equal(some.table.codes, given.table.codes[:, chosen])
    assert np.array_equal(some.y, given.y[chosen])
    assert np.array_equal(some.offset, given.offset[chosen])
    assert np.array_equal(some.trials, given.trials[chosen])
    assert np.array_equal(some.weight, given.weight[chosen] if weighted else [])


@pytest.mark.parametrize("name", ["logit", "binomial", "poisson", "gamma", "student_t"])
def test_level_is_the_likeliest_constant(name):
    given = example(name)
    level = given.rows.level(given.likelihood)
    values = [
        replace(given, level=level + step)._linearised(np.zeros(len(given.y)))[0]
        for step in (-1e-3, 0.0, 1e-3)
    ]
    assert values[1] == max(values)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
@pytest.mark.parametrize("shift", [-1e5, -800.0, 800.0, 1e5])
def test_level_beside_exposures_that_overflow(name, shift):
    given = example(name, shifted=False)
    far = replace(given, offset=np.full(len(given.y), shift))
    expected = given.rows.level(given.likelihood)
    assert far.rows.level(given.likelihood) + shift == pytest.approx(expected, abs=1e-6)
