"""A transform of a field: what ``GridGP`` models instead of it, and the way back to its unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtri

from dsgp.errors import DataError, ParameterError
from dsgp.grid.field import Field
from dsgp.grid.metadata import together
from dsgp.grid.targets import Targets
from dsgp.models.gaussian.target import is_rounding, of_skewness
from dsgp.rows.encode import Sketch
from dsgp.terms import Floats
from dsgp.transforms import Choice, Transform, kind_of

# Residuals by which skewness is judged, at most.
_JUDGED = 10_000


def transformed(field: Field, choice: Choice) -> tuple[Field, Transform | None, float]:
    """Return the field that is modelled, its transform, and Σ log dz/dy over the observed cells.

    Raises
    ------
    DataError
        If an observed cell has a value without a transform, with their number.
    """
    if choice is None:
        return field, None, 0.0
    kind = kind_of(choice)
    values = field.values if field.observed is None else field.values[field.observed]
    values = values.reshape(-1)
    if refused := int(np.count_nonzero(~kind.allows(values))):
        raise DataError(
            f'transform="log" needs a positive field, and it is 0 or negative in {refused} of '
            f'{values.size} observed cells; transform="yeo-johnson" takes numbers of any sign, '
            "and mask= leaves cells out"
        )
    if isinstance(kind, Transform):
        transform = kind
    else:
        sketch = Sketch.of(values)
        transform = kind.learned(sketch.values, sketch.counts)
    made = replace(field, values=transform.forward(field.values))
    return made, transform, math.fsum(transform.log_slope(values))


def mean_seen(mean: Any, transform: Transform | None) -> Any:
    """Return a prior mean, given in the field's unit, on the scale of the transform."""
    if transform is None or isinstance(mean, str):
        return mean
    if isinstance(mean, Real) and not isinstance(mean, bool):
        if not transform.allows(float(mean)):
            raise ParameterError(f"mean: {mean!r} has no logarithm; give a positive number")
        return float(transform.forward(float(mean)))
    if isinstance(mean, xr.DataArray) and mean.dtype.kind in "iuf":
        if refused := int(np.count_nonzero(~transform.allows(mean.values))):
            raise DataError(
                f"mean: 0 or negative at {refused} of {mean.size} places, where there is no "
                "logarithm; give positive numbers"
            )
        return mean.copy(data=transform.forward(mean.values))
    return mean


def in_units(
    transform: Transform | None, mean: Floats, std: Floats, probabilities: Sequence[float]
) -> tuple[Floats, Floats, list[Floats]]:
    """Mean, standard deviation and quantiles of a field where its transform is normal."""
    if transform is None:
        from_normal = [mean + std * float(ndtri(p)) for p in probabilities]
        return mean, std, from_normal
    variance = std * std
    average, deviation = transform.moments(mean, variance)
    return average, deviation, [transform.quantile(mean, variance, p) for p in probabilities]


def of_skewed_field(residuals: Floats, field: Field) -> list[str]:
    """Say that what is left of a field is strongly skewed; an empty list if it is not."""
    seen = slice(None) if field.observed is None else field.observed
    flat = residuals[seen].reshape(-1)
    flat = flat[np.isfinite(flat)]
    values = field.values[seen]
    if is_rounding(flat, values):
        return []
    every = max(1, -(-flat.size // _JUDGED))
    name = field.template.name
    what = "the field" if name is None else f"the field {name!r}"
    return of_skewness(flat[::every], bool(values.min() > 0), what, "transform")


def dataset_of(
    field: Field,
    transform: Transform | None,
    mean: Floats,
    std: Floats,
    targets: Targets | None,
    probabilities: Sequence[float],
) -> xr.Dataset:
    """Mean, deviation and quantiles in the field's unit and layout."""
    mean, std, ends = in_units(transform, mean, std, probabilities)
    attrs = {k: v for k, v in field.template.attrs.items() if k == "units"}
    variables = {
        "mean": field.restore(mean, name="mean", targets=targets),
        "std": field.restore(std, name="std", attrs=attrs, targets=targets),
    }
    if ends:
        along = field.restore(
            np.stack(ends), name="quantiles", targets=targets, leading=("quantile",)
        )
        variables["quantiles"] = along.assign_coords(quantile=list(probabilities))
    if transform is not None:
        for variable in variables.values():
            variable.attrs["transform"] = transform.described()
    return together(variables)
