"""Further rows added to those of a fit, and rows so far that fade."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsgp.additive import RowEquations
from dsgp.additive.joining import faded, in_units, without_faded
from dsgp.models.clock import Watch
from dsgp.models.gaussian.growing.by_bins import with_summed_rows
from dsgp.models.gaussian.growing.distinct import with_distinct_values
from dsgp.models.gaussian.growing.into_bins import put_into_bins
from dsgp.models.gaussian.rows import Training, exact_is_cheap
from dsgp.rows.sources import Source

# Rows and cells whose weight has faded to this share of the largest have no effect in float64.
_LEAST_WEIGHT = 1e-18


def grown(
    training: Training,
    source: Source,
    bins: str | int | None,
    share: float = 1.0,
    watch: Watch = lambda stage, rows: None,
) -> Training:
    """Add the rows of a source to those of a fit.

    Where every distinct value is kept, so are those of the further rows. Where there are bins, they
    keep their edges; there are new ones beyond the range so far, and for levels that were never
    seen.

    Parameters
    ----------
    training : Training
    source : Source
        Its columns are those that the terms read, the terms that were left out too.
    bins : "auto", int or None
        The parameter of the estimator.
    share : float
        Share of its weight with which an earlier row counts from now on.
    watch : callable
        As for ``prepare``.

    Raises
    ------
    DataError
        As for ``prepare``; and if a term that was left out, as its inputs did not vary, now has
        some that do.
    MemoryLimitError
        If the rows would not fit.
    """
    if share != 1.0:
        training = _faded(training, share)
    if training.cuts is not None:
        return with_summed_rows(training, training.cuts, source, bins, watch)
    training = with_distinct_values(training, source)
    n_rows = training.equations.n_rows
    if isinstance(training.equations, RowEquations):
        n_rows = training.equations.table.n_rows
    if bins == "auto" and not exact_is_cheap(int(n_rows), len(training.names), training.terms):
        return put_into_bins(training, bins)
    return training


def normalised(training: Training) -> Training:
    """Return training rows in units where target and weights are about 1 again."""
    equations = training.equations
    weight = equations.total_weight / equations.n_rows
    mean = equations.total_information / equations.total_weight
    scale = float(np.sqrt(variance_of(training))) / training.scale or 1.0
    return replace(
        training,
        equations=in_units(equations, mean, scale, 1 / weight),
        offset=training.offset + training.scale * mean,
        scale=training.scale * scale,
        weight_scale=training.weight_scale * weight,
    )


def variance_of(training: Training) -> float:
    """Weighted variance of the target over the rows, in the user's units."""
    equations = training.equations
    mean = equations.total_information / equations.total_weight
    square = equations.quadratic / equations.total_weight
    return float(max(square - mean**2, 0.0)) * training.scale**2


def _faded(training: Training, share: float) -> Training:
    """Reduce the weights of all rows, and drop those that have no effect in float64."""
    equations, kept = without_faded(faded(training.equations, share), _LEAST_WEIGHT)
    spreads, places = training.spreads, training.places
    if spreads is not None:
        spreads = [spread[some] for spread, some in zip(spreads, kept, strict=True)]
    if places is not None:
        places = [place[some] for place, some in zip(places, kept, strict=True)]
    return replace(training, equations=equations, spreads=spreads, places=places)
