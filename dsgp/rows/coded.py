"""Numbers that seem to stand for a missing value without being declared: −999, 1e20, …"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from dsgp.errors import DataWarning
from dsgp.terms import Floats

# Common codes; 9.96921e36, for example, is netCDF's default.
_KNOWN = np.array(
    [99, 999, 9999, 99999, 999999, 99.99, 999.9, 999.99, 9999.9, 9999.99]
    + [2.0**7, 2.0**8, 2.0**15, 2.0**16, 2.0**31, 2.0**32, 2.0**63]
    + [2.0**n - 1 for n in (7, 8, 15, 16, 31, 32)]
    + [1e10, 1e15, 1e20, 1e30, 1e34, 1e35, 1e36, 1e37, 9.96921e36, 3.4e38, 1.7e308]
)
# A value counts as extreme at this many ranges of the other values from them: if it is a common
# code, and if it is not, …
_FAR_KNOWN, _FAR = 1.0, 5.0
# … and as repeated if this many cells hold it.
_MANY, _SHARE, _SHARE_OF_COLUMN = 3, 1e-3, 5e-3
# Codes from this size on are not measured values of any table.
_HUGE = 1e10
# Number of distinct values that are looked at from either end.
_DEPTH = 4

IsCode = Callable[[float, int, float, float], bool]


@dataclass
class Extremes:
    """The lowest and highest values of a field or column, and how many cells hold each.

    Attributes
    ----------
    low, high : dict of value to number of cells
        From either end, up to the first value that only one cell holds, and five at most.
    n_values : int
    """

    low: Counter[float] = field(default_factory=Counter)
    high: Counter[float] = field(default_factory=Counter)
    n_values: int = 0

    def add(self, values: Floats) -> Self:
        """Add the values of a block; NaN is none."""
        seen = ~np.isnan(values)
        values = values[seen] if not seen.all() else values.ravel()
        self.n_values += values.size
        for counts, best in ((self.low, np.min), (self.high, np.max)):
            rest = values
            for _ in range(_DEPTH + 1):
                end = float(best(rest)) if rest.size else np.nan
                if not np.isfinite(end):
                    break
                same = rest == end
                n = int(np.count_nonzero(same))
                counts[end] += n
                # a single common code may recur in another block
                if n < 2 and not is_known_code(end):
                    break
                rest = rest[~same]
        return self

    def merge(self, other: Self) -> Self:
        """Return those of two parts together."""
        low, high = self.low + other.low, self.high + other.high
        return type(self)(low, high, self.n_values + other.n_values)

    def codes(self, is_code: IsCode | None = None) -> dict[float, int]:
        """Return exact values far from all others that many cells hold.

        The arguments of ``is_code`` are a value, the number of cells that hold it, its distance
        from all others, and the range of these.
        """
        is_code = self._is_code if is_code is None else is_code
        low, high = sorted(self.low), sorted(self.high, reverse=True)
        best: dict[float, int] = {}
        for a in range(min(len(low), _DEPTH + 1)):
            for b in range(min(len(high), _DEPTH + 1)):
                inner = high[b] - low[a]
                if a + b <= len(best) or inner < 0:
                    continue
                codes = {value: self.low[value] for value in low[:a]}
                codes |= {value: self.high[value] for value in high[:b]}
                if all(
                    is_code(value, n, max(low[a] - value, value - high[b]), inner)
                    for value, n in codes.items()
                ):
                    best = codes
        return best

    def _is_code(self, value: float, n: int, distance: float, inner: float) -> bool:
        """Whether a value that n cells hold is a code, by its distance from all others."""
        if is_known_code(value):
            return n > 1 and distance > _FAR_KNOWN * inner
        enough = n >= max(_MANY, _SHARE * self.n_values)
        return enough and distance > _FAR * inner > 0

    def codes_of_column(self) -> dict[float, int]:
        """Return the same for a column of a table, in which few levels and caps are common.

        Neither 0, ±1 nor one of two values is a code. Among levels only common codes count, and a
        positive value, which may be measured, counts only at a great distance.
        """

        def is_code(value: float, n: int, distance: float, inner: float) -> bool:
            if abs(value) <= 1 or inner <= 0:
                return False
            if is_known_code(value):
                far = 1.0 if value < 0 or value >= _HUGE else 2 * _FAR if self._has_levels else _FAR
                return n > 1 and distance > far * inner
            enough = n >= max(_MANY, _SHARE_OF_COLUMN * self.n_values)
            return enough and not self._has_levels and distance > 2 * _FAR * inner

        return self.codes(is_code)

    @property
    def _has_levels(self) -> bool:
        """Whether every value at either end occurs more than once."""
        return min([*self.low.values(), *self.high.values()]) > 1

    def inner(self, codes: Mapping[float, int]) -> tuple[float, float]:
        """Return the range of all other values."""
        return (
            min(value for value in self.low if value not in codes),
            max(value for value in self.high if value not in codes),
        )


def is_known_code(value: float) -> bool:
    """Whether a number is commonly used for missing values: −999, 1e20, the ends of integers, …"""
    return bool(np.isclose(abs(value), _KNOWN, rtol=3e-6, atol=0.0).any())


def report_columns(extremes: Mapping[str, Extremes], can_be_missing: bool = True) -> set[str]:
    """Warn of columns of a table in which some values look like codes for missing ones.

    Parameters
    ----------
    extremes : mapping of str to Extremes
        By the name of the column for messages, e.g. ``input column 'age'``.
    can_be_missing : bool
        Whether the model takes missing inputs.

    Returns
    -------
    set of str
        The columns that were warned of.
    """
    reported = set()
    for what, ends in extremes.items():
        codes = ends.codes_of_column()
        if not codes:
            continue
        least, most = ends.inner(codes)
        counts = " and ".join(f"{n} values are exactly {value:.7g}" for value, n in codes.items())
        listed = ", ".join(f"{value:.7g}" for value in codes)
        remedy = "leave such rows out"
        if what.startswith("input") and can_be_missing:
            options = " ".join(f"--missing-value={value:.7g}" for value in codes)
            remedy = (
                f"set missing_values=[{listed}] with missing='ignore' ({options} --missing "
                f"ignore), or {remedy}"
            )
        warnings.warn(
            f"{what}: {counts}, and all others lie from {least:.7g} to {most:.7g}; if that is a "
            f"code for missing values, {remedy}",
            DataWarning,
            stacklevel=2,
        )
        reported.add(what)
    return reported
