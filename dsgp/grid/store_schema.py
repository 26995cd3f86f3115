"""Schemas of the settings, and declarations of the arrays, of a stored model of a field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dsgp.errors import StorageError
from dsgp.storage.schemas import Array, Open, check_arrays, validated

_Count = Annotated[int, Field(ge=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]


class AxisSettings(Open):
    """As ``GridAxis.settings``; stores of earlier versions lack some."""

    name: str
    kind: str = "number"
    unit: str | None = None
    descending: bool = False
    step: _Positive | None = None
    epoch: str | None = None
    calendar: str | None = None
    rounding: _NotNegative = 0.0
    circle: _Positive | None = None
    repeated: bool = False


class CoordinateSettings(Open):
    """A coordinate of the user's, by label of its array."""

    name: str
    dims: list[str]
    attrs: dict[str, Any]
    dtype: Annotated[str, Field(pattern=r"^[<>|=][biufmMUOT]\d*(\[\w+\])?$")]
    text: Any = None
    cftime: dict[str, str] | None = None


class FieldSettings(Open):
    """As ``grid.stored.pack`` makes them."""

    axes: Annotated[list[AxisSettings], Field(min_length=1)]
    coords: dict[str, CoordinateSettings]
    name: Any
    attrs: dict[str, Any]
    encoding: dict[str, Any]
    chunks: dict[str, list[_Count]]
    left_out: Annotated[dict[str, _Count], Field(default_factory=dict)]


class MeanSettings(Open):
    """As ``Mean.settings``."""

    spec: str
    constant: float
    group: str | None
    labels: list[int | str]


class GridFitted(Open):
    """The results of a fit of ``GridGP``."""

    noise_variance_: _NotNegative | None
    log_marginal_likelihood_: float | None
    units_: dict[str, str]
    method_: str
    variance_method_: str
    variance_error_: float | None
    solver_iterations_: _Count
    residual_: _NotNegative
    converged_: bool
    n_observed_: _Count


class GridSettings(Open):
    """Of a ``GridGP``."""

    options: dict[str, Any]
    units: dict[str, str] | None
    field: FieldSettings
    transform: dict[str, Any] | None = None
    mean: MeanSettings
    terms: list[list[dict[str, Any]]]
    noise: str | _NotNegative
    fitted: GridFitted
    constant_is_unknown: bool = False
    n_effects: _Count = 0
    mean_text: str | None = None


def check_grid(settings: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Raise ``StorageError`` if settings and arrays are not those of a model of a field."""
    checked = validated(GridSettings, settings, "settings")
    check_arrays(tree, _declared(checked))
    n_axes = len(checked.field.axes)
    if any(len(term) != n_axes for term in checked.terms):
        raise StorageError(f"settings: terms: each must have a kernel for each of {n_axes} axes")
    if checked.n_effects > len(checked.terms):
        raise StorageError("settings: n_effects: more than there are terms")
    values, observed = tree["field"]["values"], tree["field"].get("observed")
    _require_where(observed, np.isfinite(values), "field/values", "finite")
    if "noise" in tree:
        noise = tree["noise"]
        good = np.isfinite(noise) & (noise >= 0)
        _require_where(observed, good, "noise", "finite and not negative")
    elif checked.fitted.noise_variance_ is None:
        raise StorageError(
            "settings: fitted.noise_variance_: neither a number nor an array 'noise'"
        )


def _require_where(observed: NDArray[Any] | None, good: NDArray[Any], name: str, what: str) -> None:
    if not (good if observed is None else good | ~observed).all():
        raise StorageError(f"array {name!r} has numbers in observed cells that are not {what}")


def _declared(checked: GridSettings) -> dict[str, Array]:
    axes = checked.field.axes
    lengths = tuple(f"points of {axis.name}" for axis in axes)
    declared = {
        f"field/points/{d}": Array((length,), values="increasing")
        for d, length in enumerate(lengths)
    }
    n_labels = len(checked.mean.labels)
    table = tuple((length, 1, n_labels + 1) for length in lengths)
    some = tuple((length, 1) for length in lengths)
    for label, coordinate in checked.field.coords.items():
        if coordinate.text is None:
            at = f"field/coords/{label}"
            declared[at] = Array(None, "biuf", "any")
    return declared | {
        "field/values": Array(lengths, values="any"),
        "field/observed": Array(lengths, "b", "any", optional=True),
        "field/domain": Array(some, "b", "any", optional=True),
        "mean/table": Array(table, values="any"),
        "mean/codes": Array((lengths,), "iu", "any", below=max(n_labels, 1), optional=True),
        "mean/shares": Array(table, values="any", optional=True),
        "dual": Array(lengths, optional=True),
        "noise": Array(lengths, values="any", optional=True),
    }
