"""A fitted sum of functions of projections of columns, and of functions of other columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsgp.models.additive import AdditiveModel
from dsgp.models.pursuit.projections import Projections
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats
from dsgp.terms.bound import PROJECTIONS


@dataclass(frozen=True)
class ProjectedModel(AdditiveModel):
    """A fitted sum whose first terms are functions of projections.

    Attributes
    ----------
    projections : Projections
    projected : tuple of str
        Columns that the projections are of.
    unit : float
        Unit of the functions of ``projections``, in that of the terms.
    direction_uncertainty : bool
        Whether the uncertainty of the directions counts.
    """

    projections: Projections | None = None
    projected: tuple[str, ...] = ()
    unit: float = 1.0
    direction_uncertainty: bool = True

    @classmethod
    def around(
        cls,
        model: AdditiveModel,
        projections: Projections,
        projected: tuple[str, ...],
        unit: float,
        direction_uncertainty: bool,
    ) -> ProjectedModel:
        """Return an additive model in projections as one in the columns that these are of."""
        shared = {name: getattr(model, name) for name in AdditiveModel.__dataclass_fields__}
        return cls(
            **shared,
            projections=projections,
            projected=projected,
            unit=unit,
            direction_uncertainty=direction_uncertainty,
        )

    @property
    def n_projections(self) -> int:
        """Number of projections."""
        assert self.projections is not None
        return len(self.projections.directions)

    @property
    def roles(self) -> list[str]:
        """Role of each term in reports: functions of projections come first."""
        return [PROJECTIONS] * self.n_projections + [term.bound.role for term in self.others]

    @property
    def others(self) -> list[FittedTerm]:
        """Terms that are no functions of projections."""
        return self.terms[self.n_projections :]

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        if not self.terms:
            return ()
        others = (name for term in self.others for name in term.bound.columns)
        return tuple(dict.fromkeys([*self.projected, *others]))

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Convert ``used_columns`` of some rows to the inputs of the terms, in their order."""
        if not self.terms:
            return []
        assert self.projections is not None
        return self.projections(self._of_projections(columns)) + self._of_others(columns)

    def _of_projections(self, columns: list[Floats]) -> list[Floats]:
        """Columns that the projections are of; they come first."""
        return columns[: len(self.projected)]

    def _of_others(self, columns: list[Floats]) -> list[Floats]:
        """Inputs of the terms that are no functions of projections."""
        if not self.others:
            return []
        by_name = dict(zip(self.used_columns, columns, strict=True))
        return [term.bound.joined(term.bound.read(by_name)) for term in self.others]

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        super().prepare(with_std)
        if self.n_projections:
            assert self.projections is not None
            self.projections.ridges.functions  # noqa: B018

    def _variance(self, rows: Rows, inputs: list[Floats]) -> Floats:
        variance = super()._variance(rows, inputs)
        if not self.n_projections:
            return variance
        # Beyond the training rows, the mean is constant, as at their edge, but the uncertainty is
        # not.
        assert self.projections is not None
        outside, there = self.projections.beyond(self._of_projections(rows.columns))
        if len(outside):
            others = [values[outside] for values in inputs[self.n_projections :]]
            known = self.posterior.variance(there + others, len(outside))
            variance[outside] = np.maximum(variance[outside], known)
        return variance

    def deviations(self, columns: list[Floats]) -> Floats | None:
        """Deviations of f due to uncertain directions, (n, k), in units of the target.

        To first order around the best directions (Laplace's approximation).
        """
        if not self.direction_uncertainty or not self.n_projections:
            return None
        assert self.projections is not None
        deviations = self.unit * self.projections.deviations(self._of_projections(columns))
        # Far from the rows, the linearised model is an unbounded line in the directions, while f
        # returns to its prior whatever the directions are: they add at most its variance.
        along = self.terms[: self.n_projections]
        most = math.sqrt(sum(term.kernel.std**2 for term in along))
        size = np.linalg.norm(deviations, axis=1, keepdims=True)
        deviations *= most / np.maximum(size, most)
        return deviations
