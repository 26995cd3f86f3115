"""Projections that were found: columns as inputs of functions, and uncertainty of directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dsgp.jit.projection import project_rows
from dsgp.jit.ridge import fill_design
from dsgp.kernels import Matern, Matern52
from dsgp.pursuit.joint import State, direction_factor
from dsgp.pursuit.levels import Prepared
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import standardised
from dsgp.terms import Floats

# Deviations stay finite up to here: standardised inputs are clipped to this.
_FAR = 1e50
_DESIGN_ROWS = 1024  # per product
# Arrays of a model that ``Projections`` consists of.
ARRAYS = ("low", "high", "centre", "scale", "directions", "nodes", "sizes", "values", "factor")


@dataclass(frozen=True)
class Projections:
    """Directions with the linearised model around them.

    Attributes
    ----------
    low, high : ndarray of shape (D,)
        Range of the columns used in the training rows, or infinite. A row beyond is taken to its
        nearest point within: functions of projections that cancel each other there do not beyond.
    centre, scale : ndarray of shape (D,)
        Of these columns; a projection is that of (x − centre) / scale.
    directions : ndarray of shape (M, D)
    nodes : ndarray of shape (Σ K,)
        Of the functions, one after the other.
    sizes : ndarray of int, shape (M,)
        Nodes of each.
    values : ndarray of shape (Σ K,)
        The functions there, in standard units of the target.
    factor : ndarray of shape (Σ K + M D, M r)
        See ``pursuit.joint.direction_factor``.
    """

    low: Floats
    high: Floats
    centre: Floats
    scale: Floats
    directions: Floats
    nodes: Floats
    sizes: Floats
    values: Floats
    factor: Floats

    def __post_init__(self) -> None:
        """Check that the arrays belong together: compiled loops do not."""
        n_terms, n_features = self.directions.shape
        sizes = np.asarray(self.sizes, dtype=np.int64)
        n_parameters = int(sizes.sum()) + n_terms * n_features
        fits = (
            self.low.shape == self.high.shape == (n_features,)
            and self.centre.shape == self.scale.shape == (n_features,)
            and sizes.shape == (n_terms,)
            and (sizes >= 2).all()
            and self.nodes.shape == self.values.shape == (int(sizes.sum()),)
            and (self.factor.ndim == 2 and len(self.factor) == n_parameters)
        )
        if not fits:
            raise ValueError("the arrays of the projections do not belong together")
        for name in ARRAYS[2:]:
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} of the projections is not finite")
        steps = np.diff(self.nodes)
        if not (np.delete(steps, np.cumsum(sizes)[:-1] - 1) > 0).all():
            raise ValueError("the nodes of the projections do not increase")

    @classmethod
    def of(cls, prepared: Prepared, state: State, boxed: bool) -> Projections:
        """Keep what predictions need of a state; ``boxed`` within the range of the columns."""
        standard, ends, ridges = prepared.standard, prepared.ends, state.ridges
        if not boxed:  # a box does not rotate with the inputs
            ends = np.full_like(ends, np.inf) * [-1, 1]
        return cls(
            low=ends[:, 0],
            high=ends[:, 1],
            centre=standard.centre,
            scale=standard.scale,
            directions=ridges.directions,
            nodes=ridges.nodes,
            sizes=np.diff(ridges.starts),
            values=ridges.values,
            factor=direction_factor(state) if len(ridges) else np.empty((0, 0)),
        )

    @cached_property
    def ridges(self) -> Ridges:
        """The functions as splines; their kernels play no part."""
        ends = np.cumsum(self.sizes)[:-1]
        terms = tuple(
            Ridge(direction, nodes, values, Matern52())
            for direction, nodes, values in zip(
                self.directions,
                np.split(self.nodes, ends),
                np.split(self.values, ends),
                strict=True,
            )
        )
        return Ridges(terms, self.directions.shape[1])

    def standard(self, columns: list[Floats], within: bool = True) -> Floats:
        """Standardise columns, (n, D); ``within`` the range of the training rows."""
        if within:
            ends = zip(columns, self.low, self.high, strict=True)
            columns = [np.clip(column, low, high) for column, low, high in ends]
        return standardised(columns, self.centre, self.scale)

    def __call__(self, columns: list[Floats]) -> list[Floats]:
        """Project columns: M arrays of shape (n,). The same row always has the same projections."""
        return self._projected(self.standard(columns)) if len(self.directions) else []

    def beyond(self, columns: list[Floats]) -> tuple[NDArray[np.intp], list[Floats]]:
        """Rows that are not within the training rows' range, and their projections as they are."""
        outside = np.zeros(len(columns[0]), dtype=bool)
        for column, low, high in zip(columns, self.low, self.high, strict=True):
            outside |= (column < low) | (column > high)
        rows = np.flatnonzero(outside)
        inputs = self.standard([column[rows] for column in columns], within=False)
        return rows, self._projected(np.clip(inputs, -_FAR, _FAR))

    def _projected(self, inputs: Floats) -> list[Floats]:
        out = np.empty((len(inputs), len(self.directions)))
        project_rows(inputs, self.directions, out)
        return list(np.ascontiguousarray(out.T))

    def deviations(self, columns: list[Floats]) -> Floats:
        """Independent standard deviations of f by the directions, (n, M r), in standard units.

        Their sum of squares is a variance, and the product of two rows a covariance.
        """
        inputs = np.clip(self.standard(columns), -_FAR, _FAR)
        ridges = self.ridges
        flat, starts = ridges.cardinal
        deviations = np.empty((len(inputs), self.factor.shape[1]))
        design = np.empty((min(_DESIGN_ROWS, len(inputs)), ridges.n_parameters + 1))
        for start in range(0, len(inputs), _DESIGN_ROWS):
            rows = slice(start, min(start + _DESIGN_ROWS, len(inputs)))
            part = design[: rows.stop - rows.start]
            fill_design(
                inputs[rows],
                np.zeros(len(part)),
                np.empty(0),
                ridges.directions,
                ridges.nodes,
                ridges.starts,
                flat,
                starts,
                ridges.functions,
                part,
            )
            np.matmul(part[:, :-1], self.factor, out=deviations[rows])
        return deviations


def held(kernels: dict[str, Matern]) -> dict[str, Matern]:
    """Return kernels that keep their lengthscales.

    Directions were chosen for the functions that they have: shorter lengthscales along them would
    fit noise that the choice has sought out.
    """
    return {name: replace(kernel, fixed=("lengthscale",)) for name, kernel in kernels.items()}


def kernels_of(state: State, squared_unit: float = 1.0) -> dict[str, Matern]:
    """Return the kernel of each projection of a state, variances times ``squared_unit``."""
    return {
        f"projection {m + 1}": term.kernel.with_parameters(
            variance=squared_unit * float(term.kernel.variance or 0)
        )
        for m, term in enumerate(state.ridges.terms)
    }
