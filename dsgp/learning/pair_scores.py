r"""What an interaction of two columns would gain, from a two-way table of a model's residuals.

A table holds, for each pair of coarse bins, the precision n of its rows and their score s, the
derivative of the log likelihood by f: Σ w/σ² and Σ w (y − f)/σ² with Gaussian noise. An interaction
is φ₁(a)ᵀ B φ₂(b) with features of each column that average to 0 over its rows, and the entries of B
independent with variance v, so that with M = Φᵀ diag(n) Φ = Q diag(m) Qᵀ and c = Qᵀ Φᵀ s

.. math:: L(v) = \tfrac12 \sum_i \Bigl( \frac{v c_i^2}{1 + v m_i} - \log(1 + v m_i) \Bigr)

is the gain of log marginal likelihood, with all else fixed. Main effects are already subtracted,
which leaves scores of less variance than M where columns are correlated: gains are somewhat too
small. The gain with unknown main effects of the two columns follows from the same table: with Z the
indicators of the bins of each column, whose span is projected out,

.. math:: M = \Phi^\top (N - N Z (Z^\top N Z)^+ Z^\top N) \Phi, \quad
          c = Q^\top \Phi^\top (s - N Z (Z^\top N Z)^+ Z^\top s).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from dsgp.kernels import CentredProduct, Independent, Kernel, Margin, Matern52
from dsgp.terms import Floats

# Lengthscales tried for smooth columns, in shares of their rows: one for a single hump, one for
# finer waves.
_SCALES = (0.6, 0.15)
# Share of a column's prior variance that its features represent.
_HELD = 0.98
# Main effects whose precision is below this share of the largest are not determined by the rows.
_DETERMINED = 1e-10
# Prior variances tried, in units of the precision of the rows on one feature.
_RATIOS = np.geomspace(1e-4, 1e4, 49)


@dataclass(frozen=True)
class PairedColumn:
    """A column of coarse bins, or of levels, as one side of interactions.

    Attributes
    ----------
    shares : ndarray of shape (n_bins,)
        Of the rows in each bin.
    is_level : bool
    """

    shares: Floats
    is_level: bool

    def features(self) -> list[Floats]:
        """Features at the bins, (n_bins, n_features), for each of ``_SCALES``; one of levels."""
        filled = self.shares > 0
        # The position of a bin along a smooth column is the share of rows below its middle.
        places = np.cumsum(self.shares) - self.shares / 2
        points = np.arange(float(len(self.shares))) if self.is_level else places
        margin = Margin(tuple(points[filled]), tuple(self.shares[filled]))
        kernels: list[Kernel] = [Independent(1.0)]
        if not self.is_level:
            kernels = [Matern52(scale, 1.0) for scale in _SCALES]
        out = []
        for kernel in kernels:
            pair = CentredProduct((kernel, Independent()), (margin, _ANY))
            out.append(_features(pair.factor(0, points[filled]), filled))
        return out


# The margin of the side that is not used.
_ANY = Margin((0.0, 1.0), (0.5, 0.5))


def _features(prior: Floats, filled: np.ndarray) -> Floats:
    """Φ with Φ Φᵀ the prior, without what is beyond the share that is held; 0 in empty bins."""
    values, vectors = eigh(prior)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    number = 1 + int(np.searchsorted(np.cumsum(values), _HELD * values.sum()))
    out = np.zeros((len(filled), min(number, len(values))))
    out[filled] = vectors[:, :number] * np.sqrt(values[:number])
    return out


def gain(
    precision: Floats,
    score: Floats,
    first: Sequence[Floats],
    other: Sequence[Floats],
    *,
    main_effects_known: bool = True,
) -> tuple[float, float]:
    """Largest gain of an interaction of two columns, in nats, and its variance there.

    Parameters
    ----------
    precision, score : ndarray of shape (n_first, n_other)
    first, other : sequence of ndarray
        Features of each column, one array a scale.
    main_effects_known : bool
        Treat main effects as known; otherwise they are unknown, with a flat prior.

    Returns
    -------
    gain, variance : float
        The variance is 0 where no interaction gains anything.
    """
    best = (0.0, 0.0)
    main = None if main_effects_known else _MainEffects.of(precision, score)
    for k in range(max(len(first), len(other))):
        found = _gain(precision, score, first[k % len(first)], other[k % len(other)], main)
        best = max(best, found)
    return best


class _MainEffects(NamedTuple):
    """Main effects of the bins of two columns, from their two-way table.

    Attributes
    ----------
    half : ndarray of shape (n_first + n_other, rank)
        H with H Hᵀ the pseudo-inverse of Zᵀ N Z.
    values : ndarray of shape (rank,)
        Hᵀ Zᵀ s.
    """

    half: Floats
    values: Floats

    @classmethod
    def of(cls, precision: Floats, score: Floats) -> _MainEffects:
        rows, columns = precision.sum(axis=1), precision.sum(axis=0)
        normal = np.block([[np.diag(rows), precision], [precision.T, np.diag(columns)]])
        values, vectors = eigh(normal, check_finite=False)
        determined = values > _DETERMINED * max(float(values[-1]), np.finfo(float).tiny)
        half = vectors[:, determined] / np.sqrt(values[determined])
        return cls(half, half.T @ np.concatenate([score.sum(axis=1), score.sum(axis=0)]))

    def shared(self, precision: Floats, first: Floats, other: Floats) -> Floats:
        """Φᵀ N Z H, (n_features, rank)."""
        by_first = np.einsum("ap,aq->pqa", first, precision @ other)
        by_other = np.einsum("bp,bq->pqb", precision.T @ first, other)
        return np.concatenate([by_first, by_other], axis=2).reshape(-1, len(self.half)) @ self.half


def effect(
    precision: Floats,
    score: Floats,
    first: Sequence[Floats],
    other: Sequence[Floats],
    *,
    main_effects_known: bool = True,
) -> Floats:
    """Posterior mean of the interaction that gains most, in each pair of bins, with all else fixed.

    Φ₁ B Φ₂ᵀ with vec B = (M + I / v)⁻¹ Q c, at the scales and the variance v of ``gain``.

    Returns
    -------
    ndarray of shape (n_first, n_other)
    """
    best, mean = (0.0, 0.0), np.zeros(precision.shape)
    main = None if main_effects_known else _MainEffects.of(precision, score)
    for k in range(max(len(first), len(other))):
        sides = first[k % len(first)], other[k % len(other)]
        found = _gain(precision, score, *sides, main)
        if found > best:
            best = found
            values, vectors, c = _directions(precision, score, *sides, main)
            solved = vectors @ (c * found[1] / (1.0 + found[1] * values))
            mean = sides[0] @ solved.reshape(sides[0].shape[1], -1) @ sides[1].T
    return mean


def _directions(
    precision: Floats, score: Floats, first: Floats, other: Floats, main: _MainEffects | None
) -> tuple[Floats, Floats, Floats]:
    """Eigenvalues m and eigenvectors Q of M, and c."""
    size = first.shape[1] * other.shape[1]
    b = (first.T @ score @ other).ravel()
    of_first = np.einsum("ap,aq->apq", first, first).reshape(len(first), -1)
    of_other = np.einsum("bp,bq->bpq", other, other).reshape(len(other), -1)
    blocks = of_first.T @ precision @ of_other
    shape = (first.shape[1], first.shape[1], other.shape[1], other.shape[1])
    matrix = blocks.reshape(shape).transpose(0, 2, 1, 3).reshape(size, size)
    if main is not None:
        shared = main.shared(precision, first, other)
        matrix -= shared @ shared.T
        b -= shared @ main.values
    values, vectors = eigh(matrix, check_finite=False)
    return np.maximum(values, 0.0), vectors, vectors.T @ b


def _gain(
    precision: Floats, score: Floats, first: Floats, other: Floats, main: _MainEffects | None
) -> tuple[float, float]:
    if not first.shape[1] * other.shape[1]:
        return 0.0, 0.0
    values, _, c = _directions(precision, score, first, other, main)
    largest = float(values[-1])
    if largest <= 0:
        return 0.0, 0.0
    variances = _RATIOS / largest
    ratios = 1.0 + np.outer(variances, values)  # of prior to posterior variances
    gains = 0.5 * np.sum(variances[:, None] * c**2 / ratios - np.log(ratios), axis=1)
    at = int(np.argmax(gains))
    return max((float(gains[at]), float(variances[at])), (0.0, 0.0))
