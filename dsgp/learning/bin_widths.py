"""Structure within the bins of a column, which a table of sums by these bins no longer has.

Like ``learning.scales`` for residuals, but before there is a model: for targets, by parts of bins.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from dsgp.learning.scales import FEWEST_DIFFERENCES, SIGNIFICANCE
from dsgp.terms import Floats

# Bins must resolve the finest scale whose differences within bins are at least this share of the
# strongest ones, by this many bins per block.
_STRONG = 0.1
_BINS_PER_BLOCK = 2
_ROUNDING = 1e-10
_TINY = np.finfo(float).tiny
# A bin with more rows than this has a meaningful scatter around its line.
_FEWEST_ROWS = 3


# Largest share of a difference's variance that the straight line of a bin may explain by chance.
_LINE = 0.5


def bins_too_wide(
    weights: Floats, information: Floats, squares: Floats, n_rows: Floats, n_columns: int
) -> int:
    """Screen a target within the bins of one column.

    Parameters
    ----------
    weights, information : ndarray of shape (n_bins, n_cells)
        Σ w z² and Σ w z y by equal parts of the bins; z is 1, or a multiplier less its mean.
    squares : ndarray of shape (n_bins,)
        Σ w y².
    n_rows : ndarray of shape (n_bins,)
        Rows of positive weight, less one if the mean of the targets in the bin is subtracted.
    n_columns : int
        How many are screened.

    Returns
    -------
    int
        Into how many parts each bin must be cut for the structure there; 1 where there is none.

    Notes
    -----
    As ``structure``, less each bin's own straight line. What the line leaves of the squares of a
    bin, over its degrees of freedom, is the noise variance there, so that the square of a
    difference over its variance has the mean 1 if the rows of a bin are alike, however few.
    """
    n_cells = weights.shape[1]
    if n_cells < 2:
        return 1
    total = np.maximum(weights.sum(axis=1), _TINY)
    mean = information.sum(axis=1) / total
    position = np.arange(n_cells) - (weights @ np.arange(n_cells) / total)[:, None]
    rest = information - weights * mean[:, None]
    moment = weights * position
    spread = np.maximum(np.sum(moment * position, axis=1), _TINY)
    slope = np.sum(rest * position, axis=1) / spread
    rest = rest - moment * slope[:, None]
    left = squares - total * mean**2
    # Rounding errors of targets far from 0 do not count as variance.
    varies = (left > _ROUNDING * total * mean**2) & (n_rows > _FEWEST_ROWS)
    noise = np.maximum(left - slope**2 * spread, _ROUNDING * left) / np.maximum(n_rows - 2, 1)
    n_levels = n_cells.bit_length() - 1
    significant, amplitudes = False, np.zeros(n_levels)
    for level in range(n_levels):
        even, odd = weights[:, ::2], weights[:, 1::2]
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = rest[:, ::2] / even - rest[:, 1::2] / odd
            distance = moment[:, ::2] / even - moment[:, 1::2] / odd
            variance = 1 / even + 1 / odd
            by_line = distance**2 / spread[:, None]
            seen = (even > 0) & (odd > 0) & varies[:, None] & (by_line <= _LINE * variance)
            expected = noise[:, None] * (variance - by_line)
            total_squares = float(np.sum((difference**2 / expected)[seen]))
        n_pairs = int(np.count_nonzero(seen))
        if n_pairs >= FEWEST_DIFFERENCES:
            amplitudes[level] = float(np.mean((difference**2 - expected)[seen]))
            tail = chi2.sf(total_squares, n_pairs)
            significant |= bool(tail < SIGNIFICANCE / (n_levels * max(n_columns, 1)))
        weights, rest = even + odd, rest[:, ::2] + rest[:, 1::2]
        moment = moment[:, ::2] + moment[:, 1::2]
    if not significant or amplitudes.max() <= 0:
        return 1
    finest = int(np.argmax(amplitudes >= _STRONG * amplitudes.max()))
    return _BINS_PER_BLOCK * n_cells // 2**finest
