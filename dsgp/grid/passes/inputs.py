"""Inputs of a job besides the field: eigenbases, noise and mean, checked and as stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import DataError, ParameterError
from dsgp.grid.passes.source import StoredField


class Basis(Protocol):
    """Eigenvectors and eigenvalues of one axis's covariance."""

    @property
    def vectors(self) -> NDArray[np.float64]: ...
    @property
    def values(self) -> NDArray[np.float64]: ...


def checked(
    source: StoredField, bases: Sequence[Basis], noise_variance: float, mean: ArrayLike
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]], NDArray[np.float64]]:
    """Return vectors, values and mean in the order in which the field is stored."""
    dims, shape = source.layout.dims, source.shape
    if not (math.isfinite(noise_variance) and noise_variance > 0):
        raise ParameterError(f"noise_variance must be positive and finite; got {noise_variance}")
    if len(bases) != len(shape):
        raise DataError(f"expected one basis per dim of the field, {dims}; got {len(bases)}")
    vectors, values = [], []
    for dim, n, flip, basis in zip(dims, shape, source.flips, bases, strict=True):
        columns = np.asarray(basis.vectors, dtype=np.float64)
        numbers = np.asarray(basis.values, dtype=np.float64)
        if columns.shape != (n, n) or numbers.shape != (n,):
            raise DataError(
                f"the basis of dim {dim!r} must have vectors of shape ({n}, {n}) and {n} values; "
                f"got {columns.shape} and {numbers.shape}"
            )
        if not (np.isfinite(columns).all() and np.isfinite(numbers).all() and numbers.min() >= 0):
            raise DataError(f"the basis of dim {dim!r} must be finite and its values at least 0")
        # For an axis that is stored in descending order, the eigenvectors are reversed.
        vectors.append(np.ascontiguousarray(columns[::-1] if flip else columns))
        values.append(numbers)
    prior = np.asarray(mean, dtype=np.float64)
    prior = prior.reshape((1,) * len(shape)) if prior.ndim == 0 else prior
    if prior.ndim != len(shape) or any(
        m not in (1, n) for m, n in zip(prior.shape, shape, strict=True)
    ):
        raise DataError(
            f"mean must be a number, or an array of shape {shape} with 1 for any of them; "
            f"got {prior.shape}"
        )
    if not np.isfinite(prior).all():
        raise DataError("mean must be finite; it has missing or infinite values")
    prior = prior[tuple(slice(None, None, -1 if flip else 1) for flip in source.flips)]
    return vectors, values, np.ascontiguousarray(prior)


def same_covariance(
    vectors: NDArray[np.float64],
    values: NDArray[np.float64],
    other_vectors: NDArray[np.float64],
    other_values: NDArray[np.float64],
) -> bool:
    """Compare by a product: an eigenbasis computed again may differ in its last digits and signs.

    The stored one is used.
    """
    if vectors.shape != other_vectors.shape:
        return False
    probe = np.random.default_rng(0).standard_normal(len(values))
    one = vectors @ (values * (vectors.T @ probe))
    other = other_vectors @ (other_values * (other_vectors.T @ probe))
    return bool(np.abs(one - other).max() <= 1e-9 * np.abs(one).max())
