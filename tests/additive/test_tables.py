"""Products with tables of pairs of bins against the dense normal matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from dsgp.additive.tables import TwoWayTables


@pytest.mark.parametrize("share", [0.0, 0.05, 0.9])
def test_products_are_those_of_the_dense_matrix(share):
    """Of pairs that are thin, sparse and dense, with entries of 0 stored in one of them."""
    rng = np.random.default_rng(0)
    sizes = [7, 12, 1, 9]
    weights = [rng.random(size) for size in sizes]
    matrix = np.diag(np.concatenate(weights))
    offsets = np.cumsum([0, *sizes])
    pairs = {}
    for e in range(4):
        for d in range(e):
            shape = (sizes[d], sizes[e])
            pairs[d, e] = rng.standard_normal(shape) * (rng.random(shape) < share)
            first, second = slice(*offsets[d : d + 2]), slice(*offsets[e : e + 2])
            matrix[first, second] = pairs[d, e]
            matrix[second, first] = pairs[d, e].T
    pairs[0, 1] = csr_array(pairs[0, 1])
    stored = np.ones((12, 9), dtype=bool)
    pairs[1, 3] = csr_array((pairs[1, 3].ravel(), np.nonzero(stored)), stored.shape)
    tables = TwoWayTables([], weights, weights, pairs, weights)
    vectors = rng.standard_normal((3, len(matrix)))
    np.testing.assert_allclose(tables.multiply(vectors), vectors @ matrix, atol=1e-13)
    assert issparse(tables.thin[0, 3]) == (share < 0.5)
