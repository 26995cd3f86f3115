"""Tables of pairs of codes, dense and sparse, against a sum row by row."""

import numpy as np
import pytest
from scipy.sparse import issparse

from dsgp.additive.pair_counts import PairCounts


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_add_up_and_rows_without_a_value_are_left_out(is_sparse, weighted):
    random = np.random.default_rng(0)
    shape, n = (4, 7), 60
    first, second = (random.integers(0, size + 1, n).astype(np.uint16) for size in shape)
    weight = random.random(n) if weighted else np.empty(0)
    expected = np.zeros((shape[0] + 1, shape[1] + 1))
    np.add.at(expected, (first, second), weight if weighted else 1.0)
    counts = PairCounts(shape, is_sparse=is_sparse)
    for rows in (slice(0, 25), slice(25, 25), slice(25, n)):
        counts.add(first[rows], second[rows], weight[rows])
    table = counts.table()
    assert issparse(table) == is_sparse
    np.testing.assert_allclose(
        table.toarray() if is_sparse else table, expected[:-1, :-1], rtol=1e-14
    )


def test_without_rows_a_sparse_table_is_empty():
    table = PairCounts((3, 2), is_sparse=True).table()
    assert table.shape == (3, 2)
    assert table.nnz == 0
