"""Sums of kernels of two inputs, by either way of adding them up."""

import numpy as np
import pytest

from dsgp.kernels import CentredProduct, Margin, Matern32, Matern52
from dsgp.terms import TensorCells, tensor


@pytest.mark.parametrize("per_cell", [0, 10**9], ids=["cells", "tables"])
def test_sums_of_pairs_are_the_same_cell_by_cell_and_by_tables(monkeypatch, per_cell):
    monkeypatch.setattr(tensor, "_PER_CELL", per_cell)
    monkeypatch.setattr(tensor, "_AT_ONCE", 70)  # a few inputs at a time
    random = np.random.default_rng(0)
    points = np.unique(random.random((23, 2)), axis=0)
    margins = tuple(Margin(tuple(points[:, k]), (1 / 23,) * 23) for k in (0, 1))
    kernel = CentredProduct((Matern32(0.3, 2.0), Matern52(0.5)), margins)
    inputs, vectors = random.random((11, 2)), random.standard_normal((3, 23))
    out = np.ones((11, 3))
    TensorCells(points).kernel_sums(kernel, vectors).add_to(inputs, out)
    np.testing.assert_allclose(
        out, 1 + kernel.covariance(inputs, points) @ vectors.T, rtol=0, atol=1e-12
    )
