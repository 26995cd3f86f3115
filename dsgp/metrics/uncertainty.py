"""Calibration of predictive distributions: are they as wide as they should be, and everywhere?

Plain arrays in, tables out; ``dsgp.calibration_report`` makes the arrays from a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc, bdtrik

from dsgp.alike import format_alike
from dsgp.dates import dates_of_days, days_of_dates, written_dates
from dsgp.errors import DataError
from dsgp.metrics.checks import aligned, require_share

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

# Probability of the bands in which calibrated counts fall.
_BAND = 0.95
# Rows of a group at least, on average: in smaller ones no band is narrow enough to say anything.
_FEWEST = 20
# Of the largest number of a column, what is still written with digits.
_LEAST = 1e-3
# Levels of a column that are groups of their own; the others are one.
_MOST_LEVELS = 12


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How observations lie in their predictive distributions.

    Attributes
    ----------
    pit : ndarray of shape (n,)
        Probability integral transform of each observation: uniform on (0, 1) if calibrated.
    level : float
        Probability of the intervals whose coverage is counted.
    covered : ndarray of bool of shape (n,)
        Rows whose observation is in its interval.
    histogram : pandas.DataFrame
        A row for each bin of the PIT values: ``low``, ``high``, ``count``, ``expected``, and
        ``band_low``, ``band_high``, between which a calibrated count is with 95 % (exactly,
        binomial).
    coverage : pandas.DataFrame
        A row for each group of rows, by the whole table (``by`` is "all rows"), by deciles of
        numbers and dates and by levels: ``by``, ``group``, ``middle`` (median of the number, or
        of the date as a ``Timestamp``), ``n_rows``,
        ``coverage``, ``band_low``, ``band_high`` (as above, of the share), ``p_value`` (exact,
        two-sided) and ``outside`` ("", "by chance?" outside of its band, or "yes" if that is too
        unlikely among so many groups: Bonferroni at 5 %).
    n_calibrated : int
        Rows that the intervals, whose coverage is counted, were calibrated by (conformal); 0 if
        they are those of the predictive distributions. Conformal calibration makes intervals and
        no distribution, so that PIT values are of the distributions before it.
    """

    pit: Floats
    level: float
    covered: NDArray[np.bool_]
    histogram: pd.DataFrame
    coverage: pd.DataFrame
    n_calibrated: int = 0

    @property
    def p_value(self) -> float:
        """Of uniform PIT values, by the test of Kolmogorov and Smirnov."""
        from scipy.stats import kstest  # noqa: PLC0415 — takes half a second; measures do not need it

        return float(kstest(self.pit, "uniform").pvalue)

    def _before_calibration(self) -> list[str]:
        """Say which of the numbers a calibration has changed."""
        if not self.n_calibrated:
            return []
        return [
            f"intervals are calibrated by {self.n_calibrated} rows (conformal), which does not "
            "change the distribution: PIT values are those before calibration"
        ]

    def summary(self) -> str:
        """Describe the calibration in a few lines."""
        whole, groups = self.coverage.iloc[0], self.coverage.iloc[1:]
        outside = groups[groups["outside"] != ""]
        sure = groups[groups["outside"] == "yes"]
        lines = [
            f"{len(self.pit)} rows: {whole['coverage']:.1%} are in their {self.level:.0%} interval "
            f"(calibrated: {whole['band_low']:.1%} to {whole['band_high']:.1%})",
            f"PIT values uniform: p = {self.p_value:.2g} (Kolmogorov–Smirnov)",
            *self._before_calibration(),
            f"{len(groups)} groups of rows: {len(outside)} outside their 95 % band, where "
            f"{(1 - _BAND) * len(groups):.1f} are expected by chance; {len(sure)} too far for that",
        ]
        shown = sure if len(sure) else outside
        lines += [
            f"  {row.by} {row.group}: {row.coverage:.1%} of {row.n_rows} rows "
            f"({row.band_low:.1%} to {row.band_high:.1%})"
            for row in shown.sort_values("p_value").head(10).itertuples()
        ]
        return "\n".join(lines)


def calibration_of(
    pit: ArrayLike,
    *,
    level: float = 0.95,
    by: Mapping[str, ArrayLike] | None = None,
    covered: ArrayLike | None = None,
    n_groups: int = 10,
    n_bins: int = 20,
) -> CalibrationReport:
    """Judge probability integral transforms: their histogram, and coverage by groups of rows.

    Parameters
    ----------
    pit : array-like of shape (n,)
        Predictive probabilities of values up to the observed ones; randomised for counts.
    level : float
        Of the intervals whose coverage is counted.
    by : mapping of str to array-like of shape (n,), optional
        What rows are grouped by: deciles of numbers and of dates (datetime64), levels of anything
        else.
    covered : array-like of bool of shape (n,), optional
        Rows whose observation is in its interval; by default those whose PIT value is in the
        central part of that probability.
    n_groups : int
        Groups of a number at most, of as many rows each; fewer where they would have less than 20.
    n_bins : int
        Bins of the histogram.

    Returns
    -------
    CalibrationReport

    Raises
    ------
    DataError
        If there is no row, a PIT value is not between 0 and 1, or shapes differ.

    References
    ----------
    Gneiting, Balabdaoui and Raftery, *Probabilistic forecasts, calibration and sharpness*, JRSS B
    69 (2007), section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.metrics import calibration_of
    >>> pit = np.random.default_rng(0).random(1000)
    >>> report = calibration_of(pit, level=0.9, by={"x": np.arange(1000)})
    >>> len(report.coverage), bool(report.p_value > 0.01)
    (11, True)
    """
    require_share(level)
    (values,) = aligned(pit)
    if values.ndim != 1:
        raise DataError(f"pit: expected shape (n,), got {values.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("pit: expected probabilities between 0 and 1")
    if covered is None:
        inside = np.abs(2 * values - 1) <= level
    else:
        inside = np.asarray(covered, dtype=bool)
        if inside.shape != values.shape:
            raise DataError(f"covered: expected shape {values.shape}, got {inside.shape}")
    rows = [_group("all rows", "", np.nan, inside, level)]
    for name, numbers in (by or {}).items():
        column = np.asarray(numbers)
        if column.shape != values.shape:
            raise DataError(f"by {name!r}: expected shape {values.shape}, got {column.shape}")
        for label, middle, chosen in _groups(column, n_groups):
            rows.append(_group(name, label, middle, inside[chosen], level))
    coverage = pd.DataFrame(rows)
    n_groups_all = max(len(coverage) - 1, 1)
    apart = (coverage["coverage"] < coverage["band_low"]) | (
        coverage["coverage"] > coverage["band_high"]
    )
    limit = np.full(len(coverage), (1 - _BAND) / n_groups_all)
    limit[0] = 1 - _BAND
    coverage["outside"] = np.where(
        apart & (coverage["p_value"] < limit), "yes", np.where(apart, "by chance?", "")
    )
    return CalibrationReport(values, level, inside, _histogram(values, n_bins), coverage)


def _band(n: int, share: float) -> tuple[float, float]:
    """Counts of n trials between which a calibrated one is: quantiles of the binomial law."""
    tails = np.array([(1 - _BAND) / 2, (1 + _BAND) / 2])
    # The smallest count that reaches a probability; rounding may have it one too large.
    counts = np.ceil(bdtrik(tails, n, share))
    lower = np.maximum(counts - 1, 0)
    low, high = np.where(bdtr(lower, n, share) >= tails, lower, counts)
    return float(low), float(high)


def _histogram(pit: Floats, n_bins: int) -> pd.DataFrame:
    count, edges = np.histogram(pit, n_bins, (0.0, 1.0))
    low, high = _band(len(pit), 1 / n_bins)
    return pd.DataFrame(
        {
            "low": edges[:-1],
            "high": edges[1:],
            "count": count,
            "expected": len(pit) / n_bins,
            "band_low": low,
            "band_high": high,
        }
    )


def _group(
    by: str, group: str, middle: Any, inside: NDArray[np.bool_], level: float
) -> dict[str, object]:
    n, k = len(inside), int(inside.sum())
    low, high = _band(n, level)
    tails = bdtr(k, n, level), bdtrc(k - 1, n, level) if k else 1.0
    return {
        "by": by,
        "group": group,
        "middle": middle,
        "n_rows": n,
        "coverage": k / n,
        "band_low": low / n,
        "band_high": high / n,
        "p_value": min(1.0, 2 * float(min(tails))),
    }


def _groups(column: NDArray[np.generic], n_groups: int) -> list[tuple[str, Any, Places]]:
    """Label, middle and rows of each group of a column."""
    if column.dtype.kind == "M":
        return _deciles(days_of_dates(column), n_groups, are_dates=True)
    if column.dtype.kind in "iuf":
        return _deciles(column.astype(np.float64), n_groups, are_dates=False)
    return _levels(column.astype(object))


def _deciles(numbers: Floats, n_groups: int, are_dates: bool) -> list[tuple[str, Any, Places]]:
    """Groups of as many numbers each, or of dates in days."""
    known = np.flatnonzero(~np.isnan(numbers))
    found: list[tuple[str, Any, Places]] = []
    if len(known):
        values = numbers[known]
        count = max(1, min(n_groups, len(known) // _FEWEST))
        ends = np.unique(np.quantile(values, np.linspace(0, 1, count + 1)[1:-1]))
        places = np.searchsorted(ends, values, side="left")
        chosen = [known[places == place] for place in np.unique(places)]
        low, high, middle = (
            np.array([of(numbers[rows]) for rows in chosen]) for of in (np.min, np.max, np.median)
        )
        middles = [*pd.DatetimeIndex(dates_of_days(middle))] if are_dates else middle.tolist()
        found = list(zip(_ranges(low, high, are_dates), middles, chosen, strict=True))
    gaps = np.flatnonzero(np.isnan(numbers))
    return [*found, ("missing", np.nan, gaps)] if len(gaps) else found


def _ranges(low: Floats, high: Floats, are_dates: bool) -> list[str]:
    """Write where groups begin and end."""
    if are_dates:
        apart = np.diff(low) if len(low) > 1 else high - low
        first, last = (
            written_dates(dates_of_days(ends), float(apart.min())) for ends in (low, high)
        )
    else:
        form = _format_of(low, high)
        first, last = ([format(end, form) for end in ends] for ends in (low, high))
    return [
        start if is_one else f"{start} to {stop}"
        for start, stop, is_one in zip(first, last, low == high, strict=True)
    ]


def _format_of(low: Floats, high: Floats) -> str:
    """Return a format that distinguishes the beginnings of groups."""
    form = ""
    for digits in range(4, 16):
        form = format_alike([*low, *high], digits, _LEAST)
        if len({format(end, form) for end in low}) == len(low):
            break
    return form


def _levels(column: NDArray[np.object_]) -> list[tuple[str, Any, Places]]:
    codes, labels = pd.factorize(column.astype(str))
    counts = np.bincount(codes)
    order = np.argsort(-counts, kind="stable")
    kept, rest = order[:_MOST_LEVELS], order[_MOST_LEVELS:]
    found = [(str(labels[k]), np.nan, np.flatnonzero(codes == k)) for k in kept]
    if len(rest):
        others = f"{len(rest)} other levels"
        found.append((others, np.nan, np.flatnonzero(np.isin(codes, rest))))
    return found
