"""Columns of a table as projections, and the additive model in projections that were found."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dsgp.axis import Floats
from dsgp.errors import DataWarning
from dsgp.estimators.draws import DrawsPredictor
from dsgp.estimators.fitting import Outcome, Procedure
from dsgp.estimators.inference import Clock, Found
from dsgp.estimators.summary import Summary
from dsgp.jit.projection import project_rows
from dsgp.jit.ridge import fill_design
from dsgp.kernels import Matern52
from dsgp.pursuit.joint import State, direction_factor
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import Standard
from dsgp.rows.sources import MappedSource, Source

_LEGEND = (
    "direction: the largest weights of the standardised inputs; a projection has variance 1, and",
    "lengthscales are in its standard deviations",
)
# Where deviations stay finite: no standardised input counts as farther away.
_FAR = 1e50
# Arrays of a model that ``Projections`` is made of.
ARRAYS = ("centre", "scale", "directions", "nodes", "sizes", "values", "factor")


@dataclass(frozen=True)
class Projections:
    """Directions with the linearised model around them.

    Attributes
    ----------
    centre, scale : ndarray of shape (D,)
        Of the columns used; a projection is that of (x − centre) / scale.
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

    centre: Floats
    scale: Floats
    directions: Floats
    nodes: Floats
    sizes: Floats
    values: Floats
    factor: Floats

    @classmethod
    def of(cls, state: State, centre: Floats, scale: Floats) -> Projections:
        """Keep what predictions need of a state."""
        ridges = state.ridges
        sizes = np.diff(ridges.starts)
        factor = direction_factor(state) if len(ridges) else np.empty((0, 0))
        return cls(centre, scale, ridges.directions, ridges.nodes, sizes, ridges.values, factor)

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

    def standard(self, columns: list[Floats]) -> Floats:
        """Standardise columns, (n, D)."""
        out = np.empty((len(columns[0]), len(columns)))
        for j, column in enumerate(columns):
            np.subtract(column, self.centre[j], out=out[:, j])
            out[:, j] /= self.scale[j]
        return out

    def __call__(self, columns: list[Floats]) -> list[Floats]:
        """Project columns: M arrays of shape (n,). The same row always has the same projections."""
        if not len(self.directions):
            return []
        inputs = self.standard(columns)
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
        design = np.empty((len(inputs), ridges.n_parameters + 1))
        fill_design(
            inputs,
            np.zeros(len(inputs)),
            np.empty(0),
            ridges.directions,
            ridges.nodes,
            ridges.starts,
            flat,
            starts,
            ridges.functions,
            design,
        )
        found: Floats = design[:, :-1] @ self.factor
        return found


@dataclass(frozen=True)
class _Project:
    """From all columns of a source to projections; it travels to workers."""

    used: list[int]
    projections: Projections

    def __call__(self, columns: list[Floats]) -> list[Floats]:
        return self.projections([columns[j] for j in self.used])


def projected_outcome(
    source: Source, standard: Standard, state: State, procedure: Procedure, clock: Clock
) -> Outcome:
    """Compute the joint posterior of the functions for the directions found."""
    names = tuple(f"projection {m + 1}" for m in range(len(state.ridges)))
    kernels = dict(zip(names, (term.kernel for term in state.ridges.terms), strict=True))
    project = _Project(standard.varying, Projections.of(state, standard.centre, standard.scale))
    mapped = MappedSource(source, names, project)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said already
        training = procedure.prepare(mapped, kernels, clock)
    ratio = (standard.spread / training.scale) ** 2
    noise = state.noise_variance * standard.spread**2 * standard.weight_scale
    noise /= training.noise_scale
    kept = [kernels[name] for name in training.equations.layout.names]
    found = Found(
        [kernel.with_parameters(variance=ratio * float(kernel.variance or 0.0)) for kernel in kept],
        noise,
        (noise, noise),
        None,
    )
    return procedure.finish(mapped, training, found, clock)


class ProjectedPredictor(DrawsPredictor):
    """A fitted additive model in projections of the columns.

    Its ``fit`` calls ``_keep_projections`` after ``_keep``, and keeps ``evidence_`` (Laplace's
    approximation) and ``evidence_trace_``.
    """

    _plain_attributes: ClassVar[tuple[str, ...]] = (
        *DrawsPredictor._plain_attributes,
        "evidence_",
        "evidence_trace_",
        "search_gain_",
        "_used",
    )
    _array_attributes: ClassVar[tuple[str, ...]] = (
        *DrawsPredictor._array_attributes,
        "_relevance",
        *(f"_{name}" for name in ARRAYS),
    )

    # Parameters of the estimator.
    method: str
    direction_uncertainty: bool

    evidence_: float
    search_gain_: float
    evidence_trace_: list[list[float]]

    def _keep_projections(self, found: Projections, used: list[int], relevance: Floats) -> None:
        """Take over projections of some of the columns, and how much each of these matters."""
        self._used = list(used)
        self._relevance = relevance
        for name in ARRAYS:
            setattr(self, f"_{name}", getattr(found, name))
        self.__dict__["_projections"] = found  # instead of those of an earlier fit

    # ------------------------------------------------------------------ what was found

    @property
    def n_projections_(self) -> int:
        """Number of projections."""
        check_is_fitted(self)
        return len(self._projections.directions)

    @property
    def projections_(self) -> pd.DataFrame:
        """Weights of the standardised inputs in each projection."""
        check_is_fitted(self)
        names = [f"projection {m + 1}" for m in range(len(self._projections.directions))]
        return pd.DataFrame(self._projections.directions, index=names, columns=self._used_names)

    @property
    def relevance_(self) -> pd.Series:
        """Share of each input in the mean squared gradient of f."""
        check_is_fitted(self)
        found = pd.Series(0.0, index=list(self._columns), name="relevance")
        found[self._used_names] = self._relevance
        return found

    @property
    def _used_names(self) -> list[str]:
        return [self._columns[j] for j in self._used]

    @cached_property
    def _projections(self) -> Projections:
        return Projections(**{name: getattr(self, f"_{name}") for name in ARRAYS})

    @property
    def used_columns_(self) -> tuple[str, ...]:
        """Columns that a prediction depends on; a table to predict needs no others."""
        return tuple(self._used_names) if self.terms_ else ()

    # ------------------------------------------------------------------ predicting

    def _inputs(self, columns: list[Floats]) -> list[Floats]:
        return self._projections(columns) if self.terms_ else []

    def _standard(self, columns: list[Floats]) -> Floats:
        return self._projections.standard(columns)

    def _prepare(self, with_std: bool) -> None:
        super()._prepare(with_std)
        if self.terms_:
            self._projections.ridges.functions  # noqa: B018

    def _deviations(self, columns: list[Floats]) -> Floats | None:
        if not self.direction_uncertainty:
            return None
        found = math.sqrt(self.target_variance_) * self._projections.deviations(columns)
        # Far from the rows the linearised model, a line in the directions, knows no bounds, while f
        # returns to its prior whatever the directions: they add no more than its variance.
        most = math.sqrt(sum(term.kernel.std**2 for term in self.terms_))
        size = np.linalg.norm(found, axis=1, keepdims=True)
        found *= most / np.maximum(size, most)
        return found

    # ------------------------------------------------------------------ telling

    def _summary(self) -> Summary:
        told = super()._summary()
        kept = [line for line in told.lines if line[0] != "learner"]
        method = self.method if self._draws is None else "refit"
        search = (
            f"{method}, {len(self.evidence_trace_)} rounds; log evidence {self.evidence_:.6g} "
            "(Laplace), directions integrated out; the last step gained "
            f"{self.search_gain_:.2g} nats"
        )
        return replace(
            told,
            terms=told.terms.assign(direction=_tell_directions(self.projections_)),
            legend=(*told.legend, *_LEGEND),
            lines=[
                *kept,
                ("search", search),
                ("relevance", _tell_relevance(self.relevance_)),
                *self._tell_draws(),
            ],
        )


def _tell_directions(weights: pd.DataFrame) -> list[str]:
    """Write down the largest weights of each projection."""
    return [
        " ".join(
            f"{row[name]:+.2f} {name}"
            for name in row.abs().sort_values(ascending=False, kind="stable").index[:3]
        )
        for _, row in weights.iterrows()
    ]


def _tell_relevance(shares: pd.Series) -> str:
    """Write down the inputs that matter most."""
    ranked = shares.sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{name} {share:.1%}" for name, share in ranked.head(8).items())
    rest = f", {len(ranked) - 8} others {ranked.iloc[8:].sum():.1%}"
    return listed + (rest if len(ranked) > 8 else "")
