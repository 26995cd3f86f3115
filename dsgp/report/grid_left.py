"""What the posterior mean leaves of the observed cells: explained variance, and outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsgp.estimators.grid import GridGP
from dsgp.estimators.grid_transform import of_skewed_field
from dsgp.report.grid_maps import names_of
from dsgp.report.grid_view import GridView

# Standard deviations of the noise beyond which a cell is an outlier.
_FAR = 5.0


@dataclass(frozen=True)
class Left:
    """Residuals of the observed cells, on the scale that is modelled.

    Attributes
    ----------
    explained : float
        Share of the variance of the observed cells; NaN if all have one value.
    n_far : int
        Cells far from the posterior mean, in standard deviations of the noise.
    limit : float
        What is far.
    farthest : str
        The place of the farthest cell.
    notes : list of str
        That residuals are strongly skewed, where no transform was asked for.
    """

    explained: float
    n_far: int
    limit: float
    farthest: str
    notes: list[str]


def left_of(model: GridGP, view: GridView) -> Left | None:
    """Return what is left; None for a model that does not hold its field."""
    if not hasattr(model, "field_"):
        return None
    inner, field = model._model, model.field_
    seen = inner.observed
    y = inner.residuals()
    left = np.where(seen, inner.left(y), 0.0)
    notes = of_skewed_field(left, field) if model.transform_ is None else []
    values = field.values[seen]
    spread = float(np.sum((values - values.mean()) ** 2))
    explained = 1 - float(np.sum(left**2)) / spread if np.ptp(values) > 0 else float("nan")
    far = np.abs(left) / np.sqrt(np.where(seen, inner.noise, 1.0))
    place = np.unravel_index(int(far.argmax()), far.shape)
    names = []
    for axis, k in zip(field.axes, place, strict=True):
        position = axis.n_outer - 1 - int(k) if axis.descending else int(k)
        coordinate = view.posterior.coords[axis.name]
        names.append(f"{axis.name} {names_of(coordinate[[position]])[0]}")
    n_far = int(np.count_nonzero(far > _FAR))
    return Left(explained, n_far, _FAR, ", ".join(names), notes)
