"""Gather and scatter against one-hot matrices, in memory and block by block."""

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from dsgp.errors import DataError
from dsgp.rows import table as module
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable
from dsgp.terms import Axis


@given(
    n=st.integers(1, 40),
    n_terms=st.integers(1, 4),
    points=st.integers(1, 9),
    missing=st.sampled_from([0.0, 0.3]),
    block=st.sampled_from([1, 7, 2**18]),
    seed=st.integers(0, 99),
)
def test_gather_and_scatter_are_products_with_one_hot_matrices(
    n, n_terms, points, missing, block, seed
):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, points, (n, n_terms)).astype(float)
    X[1:][rng.uniform(size=(n - 1, n_terms)) < missing] = np.nan
    axes, codes = zip(*[encode(column) for column in X.T], strict=True)
    table = RowTable(tuple("abcd"[:n_terms]), axes, np.array(codes))
    pick = np.hstack([(x[:, None] == axis.points) for x, axis in zip(X.T, axes, strict=True)])
    flat, rows = rng.normal(size=table.size), rng.normal(size=n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        assert [part for part, _ in table.blocks()] == [
            slice(k, min(k + block, n)) for k in range(0, n, block)
        ]
        np.testing.assert_allclose(table.gather(flat), pick @ flat, atol=1e-12)
        scattered = np.concatenate([table.scatter(d, rows) for d in range(n_terms)])
        np.testing.assert_allclose(scattered, pick.T @ rows, atol=1e-12)
        total = rows.copy()
        table.gather_add(0, table.part(flat, 0), -2.0, total)
        first = pick[:, : len(axes[0])] @ table.part(flat, 0)
        np.testing.assert_allclose(total, rows - 2 * first, atol=1e-12)


def test_parts_are_views_of_any_number_of_vectors():
    table = RowTable(("a", "b"), (Axis([0.0, 1.0]), Axis([0.0, 1.0, 2.0])), np.zeros((2, 3), int))
    flat = np.arange(10.0).reshape(2, 5)
    first, second = table.parts(flat)
    np.testing.assert_array_equal(first, flat[:, :2])
    second[1, 2] = -1.0
    assert flat[1, 4] == -1.0
    assert table.size == 5


def test_codes_on_disk_come_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (2, 37)).astype(np.uint16)
    stored = zarr.create_array(tmp_path / "c.zarr", shape=codes.shape, chunks=(2, 10), dtype="u2")
    stored[:] = codes
    axes = (Axis(np.arange(5.0)),) * 2
    flat, rows = rng.normal(size=10), rng.normal(size=37)
    here, there = (RowTable(("a", "b"), axes, kept) for kept in (codes, stored))
    np.testing.assert_array_equal(here.gather(flat), there.gather(flat))
    np.testing.assert_array_equal(here.scatter(1, rows), there.scatter(1, rows))


def test_parts_must_agree():
    with pytest.raises(DataError, match="2 names, 1 tables"):
        RowTable(("a", "b"), (Axis([0.0]),), np.zeros((1, 3), np.int32))
