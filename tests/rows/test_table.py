"""Gather and scatter against one-hot matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.axis import Axis
from dsgp.errors import DataError
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable


@given(
    n=st.integers(1, 40),
    n_terms=st.integers(1, 4),
    points=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_gather_and_scatter_are_products_with_one_hot_matrices(n, n_terms, points, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, points, (n, n_terms)).astype(float)
    axes, codes = zip(*[encode("c", column) for column in X.T], strict=True)
    table = RowTable(tuple("abcd"[:n_terms]), axes, np.array(codes))
    pick = np.hstack([np.eye(len(axis))[code] for axis, code in zip(axes, codes, strict=True)])
    flat, rows, weight = rng.normal(size=table.size), rng.normal(size=n), rng.uniform(size=n)
    np.testing.assert_allclose(table.gather(flat, np.empty(n)), pick @ flat, atol=1e-12)
    scattered = np.concatenate(
        [table.scatter(d, rows, weight, np.empty(len(axis))) for d, axis in enumerate(axes)]
    )
    np.testing.assert_allclose(scattered, pick.T @ (weight * rows), atol=1e-12)
    total = rows.copy()
    table.gather_add(0, table.part(flat, 0), -2.0, total)
    np.testing.assert_allclose(total, rows - 2 * table.part(flat, 0)[codes[0]], atol=1e-12)
    start = n // 3
    out = np.full(n, 7.0)
    table.gather(flat, out, start, n)
    np.testing.assert_allclose(out[start:], (pick @ flat)[start:], atol=1e-12)
    assert (out[:start] == 7.0).all()


def test_codes_give_the_column_back():
    column = np.array([3.0, -1.0, 3.0, 0.0, -0.0])
    axis, codes = encode("c", column)
    np.testing.assert_array_equal(axis.points, [-1.0, 0.0, 3.0])
    np.testing.assert_array_equal(axis.points[codes], column)


def test_a_value_that_is_not_finite_is_named():
    with pytest.raises(DataError, match=r"input column 'c' contains infinity in row 1"):
        encode("c", np.array([0.0, np.inf]))


def test_parts_must_agree():
    with pytest.raises(DataError, match="2 names, 1 axes"):
        RowTable(("a", "b"), (Axis([0.0]),), np.zeros((1, 3), np.int32))
