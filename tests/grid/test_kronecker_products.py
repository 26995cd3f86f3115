"""Kronecker products and contractions against ``numpy.kron``, eigenbases against their matrix."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError
from dsgp.grid.eigen import AxisCovariance, Eigenbasis
from dsgp.grid.kronecker import kron_mvprod
from dsgp.grid.products import Workspace, grams, marginals, multiply
from dsgp.grid.spectrum import Spectrum
from dsgp.kernels import Matern12, Matern52, Periodic, SquaredExponential

sizes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.booleans()), min_size=1, max_size=5)  # fmt: skip  # noqa: E501


@settings(max_examples=80, deadline=None)
@given(sizes, st.booleans(), st.booleans())
def test_products_agree_with_the_whole_matrix(sizes, transposed, narrow):
    rng = np.random.default_rng(0)
    dtype = np.float32 if narrow else np.float64
    x = rng.standard_normal([columns for _, columns, _ in sizes]).astype(dtype)
    matrices = [
        None if alone else (rng.standard_normal((c, r)).T if transposed else rng.random((r, c)))
        for r, c, alone in sizes
    ]
    whole = reduce(
        np.kron,
        [np.eye(n) if m is None else m for m, n in zip(matrices, x.shape, strict=True)],
    )
    before = x.copy()
    out = kron_mvprod(matrices, x)
    assert out.dtype == dtype
    assert not np.may_share_memory(out, x)
    tolerance = 1e-4 if narrow else 1e-12
    np.testing.assert_allclose(out.ravel(), whole @ x.ravel(), atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "shape", [(300,), (2,) * 12, (300, 20), (3, 300, 4), (3, 300, 40), (40, 3, 2), (20, 2, 30, 3)]
)
def test_products_of_large_and_small_axes(shape):
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    matrices = [rng.standard_normal((n, n)) for n in shape]
    expected = x
    for d, matrix in enumerate(matrices):
        expected = np.moveaxis(np.tensordot(matrix, expected, (1, d)), 0, d)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(kron_mvprod(matrices, x), expected, atol=1e-13 * scale)
    turned = np.ascontiguousarray(x.T).T  # not in C order
    np.testing.assert_allclose(kron_mvprod(matrices, turned), expected, atol=1e-13 * scale)


def test_chained_products_take_two_arrays():
    rng = np.random.default_rng(0)
    workspace = Workspace()
    matrices = [rng.standard_normal((20, 20)) for _ in range(3)]
    x = rng.standard_normal((20, 20, 20))
    first = multiply(matrices, x, workspace)
    expected = kron_mvprod(matrices, kron_mvprod(matrices, x))
    second = multiply(matrices, first, workspace)
    np.testing.assert_array_equal(second, expected)
    assert len(workspace._arrays) == 2


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"grid of shape \(2, 3\) needs one matrix per axis"):
        kron_mvprod([np.eye(2), np.eye(2)], np.ones((2, 3)))
    with pytest.raises(DataError, match="one matrix per axis"):
        kron_mvprod([np.eye(2)], np.ones((2, 3)))


@pytest.mark.parametrize(
    "shape", [(7,), (1, 5), (6, 5), (3, 40, 2), (2, 3, 4, 5), (2,) * 9, (30, 40, 50), (2, 50, 2, 2)]
)
def test_sums_over_all_axes_but_one(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    for d, (gram, total) in enumerate(zip(grams(x), marginals(x, shape), strict=True)):
        rows = np.moveaxis(x, d, 0).reshape(shape[d], -1)
        np.testing.assert_allclose(gram, rows @ rows.T, atol=1e-12 * x.size)
        np.testing.assert_allclose(total, rows.sum(axis=1), atol=1e-12 * x.size)


# ---------------------------------------------------------------------- eigenbases


@pytest.mark.parametrize("size", [1, 2, 3, 10, 11])
@pytest.mark.parametrize("kernel", [Matern52(0.4, 1.0), SquaredExponential(0.3, 1.0)])
@pytest.mark.parametrize("equispaced", [True, False])
def test_a_basis_diagonalises_its_matrix(size, kernel, equispaced):
    rng = np.random.default_rng(0)
    x = np.linspace(1.0, 2.0, size) if equispaced else np.sort(rng.uniform(0, 1, size))
    covariance = kernel.covariance(x)
    basis = Eigenbasis.of(covariance)
    np.testing.assert_allclose(basis.vectors.T @ basis.vectors, np.eye(size), atol=1e-13)
    np.testing.assert_allclose(
        basis.vectors * basis.values @ basis.vectors.T, covariance, atol=1e-13
    )
    assert (basis.values >= 0).all()
    values = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    np.testing.assert_allclose(np.sort(basis.values), values, atol=1e-13)
    if size > 2:
        assert (basis.n_symmetric is not None) == equispaced

    slope, weights = kernel.by_log_lengthscale(x), rng.standard_normal((size, size))
    expected = np.sum((basis.vectors.T @ slope @ basis.vectors) * weights)
    assert basis.contract(slope, weights) == pytest.approx(expected, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    "x",
    [np.arange(12.0) * 0.1, np.arange(50_000.0, 50_020.0), np.array([3.0]), np.linspace(-7, 1, 9)],
)
@pytest.mark.parametrize("kernel", [Matern12(0.3, 4.0), Periodic(10.0, 2.0, 1.0)])
def test_equispaced_axes_have_the_matrices_of_any_other(x, kernel):
    axis = AxisCovariance(x, kernel)
    unit = kernel.with_parameters(variance=1.0)
    rebuilt = axis.basis.vectors * axis.basis.values @ axis.basis.vectors.T
    np.testing.assert_allclose(rebuilt, unit.covariance(x), atol=1e-13)
    np.testing.assert_allclose(axis.slope, unit.by_log_lengthscale(x), atol=1e-13)


def test_what_is_no_covariance_is_refused():
    with pytest.raises(DataError, match="square"):
        Eigenbasis.of(np.ones((2, 3)))
    with pytest.raises(DataError, match="finite"):
        Eigenbasis.of([[np.nan]])


# ---------------------------------------------------------------------- spectra


@pytest.mark.parametrize("ratio", [1e-12, 1.0, 1e40, 1e190])
@pytest.mark.parametrize("shape", [(50_000,), (300, 301), (5, 4, 3), (2,) * 17])
def test_log_determinants_stay_in_range(ratio, shape):
    rng = np.random.default_rng(0)
    values = [rng.uniform(0.0, 2.0, size) for size in shape]
    spectrum = Spectrum(values, ratio)
    every = ratio * reduce(np.multiply.outer, values)
    zeros = np.zeros(shape)
    quadratic, log_det = spectrum.log_likelihood_sums(zeros, 1.0)
    assert quadratic == 0.0
    assert log_det == pytest.approx(np.log1p(every).sum(), rel=1e-12, abs=1e-10)
    sums = spectrum.sums(zeros, 1.0)
    assert sums.log_det == log_det
    for d, trace in enumerate(sums.traces):
        others = tuple(e for e in range(len(shape)) if e != d)
        np.testing.assert_allclose(trace, (every / (1 + every)).sum(axis=others), rtol=1e-11)
    np.testing.assert_allclose(spectrum.fill(np.copy, np.empty(shape)), every, rtol=1e-13)
