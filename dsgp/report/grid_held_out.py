"""How well a field is predicted at cells, or at places between them, that the fit did not use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm

from dsgp import memory
from dsgp.errors import DataError, StorageError
from dsgp.estimators.grid import GridGP
from dsgp.estimators.grid_transform import in_units
from dsgp.grid.coded import read_values
from dsgp.grid.targets import Targets
from dsgp.report.grid_view import GridView
from dsgp.report.held_out_numbers import of_numbers
from dsgp.report.measures import HeldOut
from dsgp.report.rendering import Charts
from dsgp.terms import LOG_2PI, Floats

# Places between the cells that are predicted at most, and numbers that a held-out value takes.
_MOST_BETWEEN, _NUMBERS_A_CELL = 20_000, 24


@dataclass(frozen=True)
class _Predicted:
    """Predictions of new observations, normal on the scale that is modelled.

    Attributes
    ----------
    model : GridGP
    mean, variance : ndarray of shape (n,)
        On the scale of the transform, if there is one; the variance has the noise.
    """

    model: GridGP
    mean: Floats
    variance: Floats

    def predict(self, _: Any) -> Floats:
        """Return means in the units of the field."""
        return in_units(self.model.transform_, self.mean, np.sqrt(self.variance), [])[0]

    def _standardised(self, y: Floats) -> Floats:
        transform = self.model.transform_
        z = y if transform is None else transform.forward(y)
        return np.asarray((z - self.mean) / np.sqrt(self.variance))

    def pit(self, _: Any, y: Floats) -> Floats:
        """Return the predictive probabilities of smaller observations."""
        return np.asarray(norm.cdf(self._standardised(y)))

    def log_predictive_density(self, _: Any, y: Floats) -> Floats:
        """Return log densities of the observations, in the units of the field."""
        transform = self.model.transform_
        slope = 0.0 if transform is None else transform.log_slope(y)
        z = self._standardised(y)
        return np.asarray(slope - 0.5 * (z**2 + np.log(self.variance) + LOG_2PI))


def held_out_cells(
    model: GridGP, view: GridView, held_out: Any, drawn: Charts, target: str
) -> HeldOut:
    """Compare predictions with observations that the model was not fitted to.

    Parameters
    ----------
    model : GridGP
        That holds its field.
    view : GridView
    held_out : DataArray
        With a coordinate for each dim of the field: on its grid, on another one, or at points.
        NaN where there is no observation. Cells that the fit used are left out.
    drawn : Charts
        Charts are added to it.
    target : str

    Raises
    ------
    StorageError
        If the model does not hold its field.
    DataError
        If a coordinate is absent or cannot be used, or no value is left to compare with.
    MemoryLimitError
        If the values are too many.
    """
    if not hasattr(model, "field_"):
        raise StorageError(
            "held-out cells need a model that holds its field, and this one smoothed a field on "
            "disk; fit a part of the field in memory to judge the model"
        )
    y, coords = _values_of(model, held_out)
    positions = _positions(model, coords)
    on_grid = (positions >= 0).all(axis=0)
    flat = np.full(len(y), -1)
    shape = model.field_.shape
    flat[on_grid] = np.ravel_multi_index(tuple(positions[:, on_grid]), shape)
    used = on_grid & model._model.observed.reshape(-1)[flat]
    notes = []
    if n_used := int(np.count_nonzero(used)):
        notes.append(f"{n_used:,} of the cells given were used by the fit and are left out.")
    between = np.flatnonzero(~on_grid)
    if len(between) > _MOST_BETWEEN:
        notes.append(
            f"{_MOST_BETWEEN:,} of {len(between):,} places between the cells of the field were "
            "compared, evenly spread."
        )
        between = between[np.linspace(0, len(between) - 1, _MOST_BETWEEN).round().astype(int)]
    cells = np.flatnonzero(on_grid & ~used)
    mean, variance = _at_cells(model, view, flat[cells])
    if len(between):
        elsewhere = _between(model, {name: values[between] for name, values in coords.items()})
        mean, variance = np.append(mean, elsewhere[0]), np.append(variance, elsewhere[1])
    y = y[np.append(cells, between).astype(int)]
    known = np.isfinite(mean) & np.isfinite(variance)
    if n_unknown := int(np.count_nonzero(~known)):
        notes.append(
            f"{n_unknown:,} held-out values lie where the model has no posterior or no noise "
            "variance, and are left out."
        )
    if not known.any():
        raise DataError(
            "no held-out value is left to compare with: all are missing, were used by the fit, or "
            "lie where the model has no posterior; pass observations that the fit did not use"
        )
    model_of_cells = _Predicted(model, mean[known], variance[known])
    found = of_numbers(model_of_cells, None, y[known], {}, drawn, target, unit="cells")
    notes.append(
        "Held-out cells beside observed ones are easier to predict than the inside of large gaps: "
        "the accuracy is that of gaps like those that were held out."
    )
    return HeldOut(
        **{**found, "notes": [*notes, *found["notes"]]},
        n_rows=int(np.count_nonzero(known)),
        unit="cells",
    )


def _values_of(model: GridGP, held_out: Any) -> tuple[Floats, dict[str, NDArray[Any]]]:
    """Return the observations, and a coordinate of each along every dim of the field."""
    if not isinstance(held_out, xr.DataArray) or held_out.dtype.kind not in "iuf":
        got = getattr(held_out, "dtype", type(held_out).__name__)
        raise DataError(f"held_out: expected a DataArray of numbers, got {got}")
    memory.require(
        f"the accuracy on {held_out.size:,} held-out cells",
        8.0 * _NUMBERS_A_CELL * held_out.size,
        "pass fewer of them, such as one time step",
    )
    values = read_values(held_out)
    where = np.nonzero(np.isfinite(values))
    coords = {}
    for axis in model._axes:
        if axis.name not in held_out.coords:
            raise DataError(
                f"held_out: expected a coordinate {axis.name!r}, as the field has, got "
                f"{sorted(map(str, held_out.coords))}"
            )
        coordinate = held_out.coords[axis.name]
        index = tuple(where[held_out.dims.index(dim)] for dim in coordinate.dims)
        at = coordinate.values[index] if index else np.repeat(coordinate.values, len(where[0]))
        coords[axis.name] = np.asarray(at)
    y = values[where]
    transform = model.transform_
    if transform is not None and not transform.allows(y).all():
        n = int(np.count_nonzero(~transform.allows(y)))
        raise DataError(
            f"held_out: {n} of {len(y)} values have no {transform.name}, which the field was "
            "transformed by; leave them out: da.where(...)"
        )
    return y, coords


def _positions(model: GridGP, coords: dict[str, NDArray[Any]]) -> NDArray[np.intp]:
    """Index of each value into the points of every axis, −1 between them; (n_dims, n)."""
    return np.stack(
        [
            axis.find(coords[axis.name]) if len(coords[axis.name]) else np.zeros(0, np.intp)
            for axis in model._axes
        ]
    )


def _at_cells(model: GridGP, view: GridView, flat: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Mean and variance of new observations at cells of the field, on the scale of the model."""
    inner, field = model._model, model.field_
    if not len(flat):
        return np.zeros(0), np.zeros(0)
    if model.transform_ is None:
        parts = [
            field.align(view.posterior[name], name).reshape(-1)[flat] for name in ("mean", "std")
        ]
        mean, variance = parts[0], parts[1] ** 2
    else:
        every = inner.posterior()
        mean, variance = (part.reshape(-1)[flat] for part in every)
        if field.domain is not None:
            inside = np.broadcast_to(field.domain, field.shape).reshape(-1)[flat]
            mean = np.where(inside, mean, np.nan)
    noise = np.broadcast_to(np.asarray(inner.noise, dtype=float), field.shape).reshape(-1)[flat]
    return mean, variance + noise


def _between(model: GridGP, coords: dict[str, NDArray[Any]]) -> tuple[Floats, Floats]:
    """Mean and variance of new observations at places between the cells."""
    if model.noise_variance_ is None:  # known of the cells only
        nothing = np.full(len(next(iter(coords.values()))), np.nan)
        return nothing, nothing
    points = {name: xr.DataArray(values, dims="place") for name, values in coords.items()}
    targets = Targets.of(model.field_.axes, points)
    targets.require_memory(model.field_.shape)
    mean, variance = model._model.predict(targets, include_noise=True)
    return mean.reshape(-1), variance.reshape(-1)
