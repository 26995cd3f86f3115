"""A transform of the target, before a fit: learned, checked, and its Jacobian summed up."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from dsgp.additive.streaming import LOGICAL_BLOCK
from dsgp.additive.survey import of_positive_weight
from dsgp.compute import over_blocks, over_chunks
from dsgp.errors import DataError, DataWarning
from dsgp.rows.encode import Sketch
from dsgp.rows.sources import RetargetedSource, Rows, Source
from dsgp.terms import Floats
from dsgp.transforms import Choice, Transform, kind_of

# Largest number of rows by which residuals are judged, and the smallest number for which there is a
# warning.
_JUDGED, _FEWEST = 10_000, 50
_HOURS_OF_A_WEEK = 168
# Residuals whose standard deviation is a smaller share of the largest value are rounding errors.
_ROUNDING = 1e-9
# First word of notes on them.
RESIDUALS = "residuals"
# Residuals are strongly skewed if two measures are beyond these: the third moment, and a measure by
# quantiles, which a few outliers or heavy tails on both sides do not affect. The latter must also
# exceed the given multiple of its standard error for a normal sample, 1.04 / √n.
_MOMENT, _QUANTILES, _ERRORS = 1.0, 0.2, 6.2
# Tail probability of these quantiles: within the bulk, residuals whose size varies with the mean
# look symmetric.
_TAIL = 0.025


@dataclass(frozen=True)
class Target:
    """The target of a model, transformed or not.

    Attributes
    ----------
    transform : Transform or None
    log_jacobian : float
        Σ log dz/dy over the rows of positive weight: a log likelihood of z and this are one of y.
    """

    transform: Transform | None
    log_jacobian: float = 0.0

    @classmethod
    def of(cls, source: Source, choice: Choice) -> Target:
        """Learn the transform of a source's target, in two passes over its rows.

        Raises
        ------
        DataError
            If the target has values without a transform, with their number.
        """
        if choice is None:
            return cls(None)
        kind = kind_of(choice)
        lengths, refused, sketch = [], 0, None
        for n_rows, n_refused, part in over_chunks(
            source.chunks(), partial(_surveyed, kind), "sketch"
        ):
            lengths.append(n_rows)
            refused += n_refused
            sketch = part if sketch is None else sketch.merge(part)
        if refused:
            raise DataError(
                f'target_transform="log" needs a positive target, and {source.target!r} is 0 or '
                f"negative in {refused} of {sum(lengths)} rows; "
                'target_transform="yeo-johnson" takes numbers of any sign'
            )
        if sketch is None or not len(sketch.values):
            # For a table without rows that count; the fit reports that.
            return cls(kind if isinstance(kind, Transform) else None)
        transform = (
            kind if isinstance(kind, Transform) else kind.learned(sketch.values, sketch.counts)
        )
        slopes = partial(_log_slopes, transform)
        sums = over_blocks(source.chunks(), lengths, LOGICAL_BLOCK, slopes, "sums")
        return cls(transform, math.fsum(sums))

    def of_rows(self, source: Source) -> Source:
        """Return a source with the target of the model."""
        if self.transform is None:
            return source
        return RetargetedSource(source, self.transform.forward)


def _surveyed(kind: Any, rows: Rows) -> tuple[int, int, Sketch]:
    kept = of_positive_weight(rows)
    assert kept.y is not None
    allowed = kind.allows(kept.y)
    return len(rows), int(np.count_nonzero(~allowed)), Sketch.of(kept.y)


def _log_slopes(transform: Transform, rows: Rows) -> float:
    kept = of_positive_weight(rows)
    assert kept.y is not None
    return float(transform.log_slope(kept.y).sum())


# ---------------------------------------------------------------- residuals


def is_skewed(residuals: Floats) -> bool:
    """Return whether residuals are strongly skewed, whatever their tails are.

    Their third standardised moment is beyond 1, and so is, with the same sign, their skewness by
    quantiles, (q₉₇.₅ + q₂.₅ − 2 q₅₀) / (q₉₇.₅ − q₂.₅), beyond 0.2 and beyond 6.2/√n. Those of an
    exponential distribution are 2 and 0.62.
    """
    n = len(residuals)
    if n < _FEWEST:
        return False
    low, middle, high = np.quantile(residuals, [_TAIL, 0.5, 1 - _TAIL])
    if not high > low:
        return False
    by_quantiles = (high - middle - (middle - low)) / (high - low)
    centred = (residuals - residuals.mean()) / (high - low)
    moment = float(np.mean(centred**3)) / float(np.mean(centred**2)) ** 1.5
    limit = max(_QUANTILES, _ERRORS / math.sqrt(n))
    return bool(min(moment / _MOMENT, by_quantiles / limit) > 1) or bool(
        max(moment / _MOMENT, by_quantiles / limit) < -1
    )


def is_rounding(residuals: Floats, observed: Floats) -> bool:
    """Return whether residuals are within the rounding errors of what was observed."""
    largest = max(abs(observed.min()), abs(observed.max()))
    return not np.std(residuals) > _ROUNDING * largest


def of_skewness(residuals: Floats, positive: bool, what: str, parameter: str) -> list[str]:
    """Say that residuals are strongly skewed, and what to do; an empty list if they are not.

    Parameters
    ----------
    residuals : ndarray of shape (n,)
    positive : bool
        Whether all values of the target are positive.
    what : str
        Name of the target.
    parameter : str
        The parameter that chooses a transform.
    """
    if not is_skewed(residuals):
        return []
    choices = ["log", "yeo-johnson"] if positive else ["yeo-johnson"]
    both = " or ".join(f'{parameter}="{choice}"' for choice in choices)
    return [
        f"{RESIDUALS} of {what} are strongly skewed, so that intervals are wrong at both ends: "
        f"{both} models it on a scale where they are closer to a normal distribution"
    ]


def warn_of_skewness(notes: list[str]) -> None:
    """Warn of what ``of_skewness`` said; called by what ``fit``s call."""
    for note in notes:
        warnings.warn(f"the {note}", DataWarning, stacklevel=4)


def sample_of_rows(source: Source, columns: Sequence[str]) -> Rows:
    """Return some rows of positive weight and some of the columns, evenly spread over the source.

    If rows stream, they are from the first chunk: another pass would cost as much as a fit.
    """
    loaders = source.chunks() if source.in_memory else islice(source.chunks(), 1)
    positions = [source.names.index(name) for name in columns]
    every = 1
    if source.in_memory and source.n_rows is not None:
        every = -(-source.n_rows // _JUDGED)
        while math.gcd(every, _HOURS_OF_A_WEEK) > 1:  # all weekdays and hours of regular dates
            every += 1
    return Rows.join(list(over_chunks(loaders, partial(_thinned, positions, every), "read")))


def _thinned(positions: list[int], every: int, rows: Rows) -> Rows:
    some = of_positive_weight(rows)
    every = max(every, -(-len(some) // _JUDGED))
    part = some.part(slice(None, None, every))
    assert part.y is not None
    return replace(
        part,
        columns=[np.ascontiguousarray(part.columns[j]) for j in positions],
        y=np.array(part.y),
        weight=None if part.weight is None else np.array(part.weight),
        n_rows=len(part),
    )
