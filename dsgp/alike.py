"""Numbers of one column of a table for people, all in one format."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Significant digits that the smallest number has, and digits that the largest then has at most;
# where none of these will do, all numbers have an exponent.
_CHOICES = ((3, 5), (2, 7), (1, 8))
# Significant digits of the largest, and of numbers with an exponent.
_DIGITS = 4
# Whole numbers that are written as such.
_WHOLE = 1e10
# Numbers whose thousands are set apart.
_GROUPED = 1e4


def format_alike(values: Sequence[float], digits: int = _DIGITS, least: float = 0.0) -> str:
    """Return the format in which all of some numbers can be read.

    Decimals are fixed if the largest number then has few digits and the smallest one is not lost;
    otherwise there is an exponent.

    Parameters
    ----------
    values : sequence of float
        NaN and zero do not count.
    digits : int
        Significant digits of the largest number at least.
    least : float
        Numbers in one unit that are smaller than this share of the largest may be lost.

    Returns
    -------
    str
        A format specification.

    Examples
    --------
    >>> from dsgp.alike import format_alike, written_alike
    >>> format_alike([103.3, 57.81]), format_alike([12340.0, 59.0]), format_alike([1e-3, 1e7])
    ('z.1f', ',.0f', '.3e')
    >>> written_alike([12345.6, 59.3, float("nan")])
    ['12,346', '59', '–']
    """
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not len(sizes):
        return ".0f"
    sizes = sizes[sizes >= least * sizes.max()]
    are_whole = bool((sizes == np.rint(sizes)).all())
    if are_whole and sizes.max() < _WHOLE:
        return f"{',' if sizes.max() >= _GROUPED else ''}.0f"
    largest, smallest = (_exponent(float(size)) for size in (sizes.max(), sizes.min()))
    for of_smallest, most in _CHOICES:
        decimals = max(digits - 1 - largest, of_smallest - 1 - smallest, 0)
        if max(largest + 1, 1) + decimals <= most:
            return f"z{',' if sizes.max() >= _GROUPED else ''}.{decimals}f"  # no -0.0
    return f".{digits - 1}e"


def written_alike(values: Sequence[float], digits: int = _DIGITS, least: float = 0.0) -> list[str]:
    """Write numbers in the format in which all of them can be read; NaN as a dash."""
    form = format_alike(values, digits, least)
    return ["–" if math.isnan(value) else format(value, form) for value in values]


def _exponent(size: float) -> int:
    return math.floor(math.log10(float(f"{size:.{_DIGITS}g}")))
