"""A check of fits of rows with dates: do residuals depend on the weekday, or on the hour?"""

from __future__ import annotations

import math
import shlex
import warnings
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from dsgp.errors import DataWarning
from dsgp.models.gaussian.target import sample_of_rows
from dsgp.models.interactions.search import Fits, Found
from dsgp.terms import Floats
from dsgp.terms.inputs import PARTS

Outcome = TypeVar("Outcome")

# First word of notes on them.
DATES = "dates"
# Parts of a date that are judged, and the length in days of what repeats. What has one weekday is a
# day, and what has one hour is an hour of a day.
_CYCLES = {"weekday": 7.0, "hour": 1.0}
# A part is worth a warning from this share of the variance of the residuals on, if chance explains
# as much less often than this; with so many rows in each of its groups, and cycles in the dates.
_SHARE, _CHANCE, _FEWEST, _CYCLES_SEEN = 0.02, 1e-6, 10, 4.0


def with_calendar(fits: Fits[Outcome], found: Found[Outcome]) -> Found[Outcome]:
    """Add notes on columns of dates whose weekday or hour explains part of the residuals.

    A one-way analysis of variance of the residuals of at most 10 000 rows: a smooth function of
    dates learns its lengthscale from what is smooth, and takes what repeats within it for noise.
    """
    source = fits.source
    dates = [name for name, kind in source.kinds.items() if kind.is_date and name in source.names]
    if not dates:
        return found
    rows = sample_of_rows(source, source.names)
    if rows.y is None or not len(rows):
        return found
    by_name = dict(zip(source.names, rows.columns, strict=True))
    judged = []
    for left in fits.working(found.outcome)(rows, by_name):
        positive = left.precision > 0
        if positive.any():
            typical = float(np.median(left.precision[positive]))
            judged.append(left.score / np.sqrt(np.where(positive, left.precision, typical)))
    notes = []
    for name in dates:
        days = by_name[name]
        for part, length in _CYCLES.items():
            share = max((_explained(z, days, part, length) for z in judged), default=0.0)
            if share > 0:
                terms = f"{{{name!r}: [Smooth(), Levels(part={part!r})]}}"
                options = shlex.join(["--term", name, "--term", f"{name}: Levels(part={part})"])
                notes.append(
                    f"{DATES}: the {part} of {name!r} explains {share:.0%} of the variance that "
                    f"the terms leave: add it to the terms of that column, as in terms={terms}, or "
                    f"with {options}"
                )
    return replace(found, notes=[*found.notes, *notes])


def warn_of_calendar(notes: list[str]) -> None:
    """Warn of what ``with_calendar`` noted; called by ``fit``."""
    for note in notes:
        if note.startswith(f"{DATES}: "):
            warnings.warn(note.removeprefix(f"{DATES}: "), DataWarning, stacklevel=3)


def _explained(residuals: Floats, days: Floats, part: str, length: float) -> float:
    """Share of the residuals' variance that a part of the dates explains; 0 if that may be chance.

    Adjusted for the number of groups. Rows of one day may have more in common than their weekday:
    chance is judged by how much days of the same weekday differ (hours of days, of the same hour).
    """
    known = np.isfinite(days) & np.isfinite(residuals)
    z, days = residuals[known], days[known]
    if not len(z) or np.ptp(days) < _CYCLES_SEEN * length:
        return 0.0
    groups = PARTS[part](days).astype(np.intp)
    counts = np.bincount(groups)
    seen = counts >= _FEWEST
    kept = seen[groups]
    z, days, groups = z[kept], days[kept], groups[kept]
    k, n = int(np.count_nonzero(seen)), len(z)
    if k < 2 or n <= k:
        return 0.0
    sums = np.bincount(groups, weights=z, minlength=len(counts))[seen]
    total = float(np.sum((z - z.mean()) ** 2))
    between = float(np.sum(sums**2 / counts[seen])) - n * float(z.mean()) ** 2
    within = max(total - between, 0.0)
    share = 1.0 - (within / (n - k)) / (total / (n - 1)) if total > 0 else 0.0
    chance = _chance(between, z, np.floor(days) * len(counts) + groups, groups, k)
    return share if share > _SHARE and chance < _CHANCE and math.isfinite(share) else 0.0


def _chance(between: float, z: Floats, units: Floats, groups: NDArray[np.intp], k: int) -> float:
    """Probability that means of units, each in one of k groups, differ as much by chance."""
    _, first, inverse, sizes = np.unique(
        units, return_index=True, return_inverse=True, return_counts=True
    )
    if len(sizes) <= k:
        return 1.0
    means = np.bincount(inverse, weights=z) / sizes
    of_unit = groups[first]
    in_group = np.bincount(of_unit, weights=sizes)
    averages = np.bincount(of_unit, weights=sizes * means) / np.maximum(in_group, 1)
    within = float(np.sum(sizes * (means - averages[of_unit]) ** 2))
    if not within > 0:
        return 0.0
    ratio = (between / (k - 1)) / (within / (len(sizes) - k))
    return float(f_distribution.sf(ratio, k - 1, len(sizes) - k))
