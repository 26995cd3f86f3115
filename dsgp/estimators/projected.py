"""Columns of a table as projections, and the additive model in projections that were found."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import DataWarning
from dsgp.estimators.draws import DrawsPredictor
from dsgp.estimators.fitting import Outcome, Procedure
from dsgp.estimators.inference import Clock, Found
from dsgp.estimators.predicting import AdditivePredictor
from dsgp.estimators.summary import Summary
from dsgp.estimators.training import plain_terms
from dsgp.jit.projection import project_rows
from dsgp.jit.ridge import fill_design
from dsgp.kernels import Matern, Matern52
from dsgp.learning.search import NOISE
from dsgp.pursuit.joint import State, direction_factor
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import Standard, standardised
from dsgp.rows.sources import MappedSource, Rows, Source
from dsgp.terms import Floats

_LEGEND = (
    "lengthscale: in standard deviations of the projection; std: prior standard deviation of the",
    "function, in units of the target; points: distinct values or bins; edf: effective degrees of",
    "freedom; share: variance of the function / variance of the target (functions may cancel, and",
    "shares add up to more than 100 %); direction: the largest weights of the standardised inputs",
)
# Where deviations stay finite: no standardised input counts as farther away.
_FAR = 1e50
# Where functions of the final fit are learned again: tolerance in nats, and iterations at most.
FINAL_TOL, FINAL_MAX_ITER = 0.1, 200
_TOLD = 0.02  # weights that are told of, as a share of the largest
_DESIGN_ROWS = 1024  # of one product
# Arrays of a model that ``Projections`` is made of.
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
    def of(cls, state: State, centre: Floats, scale: Floats, ends: Floats) -> Projections:
        """Keep what predictions need of a state."""
        ridges = state.ridges
        sizes = np.diff(ridges.starts)
        factor = direction_factor(state) if len(ridges) else np.empty((0, 0))
        return cls(
            ends[:, 0],
            ends[:, 1],
            centre,
            scale,
            ridges.directions,
            ridges.nodes,
            sizes,
            ridges.values,
            factor,
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
        found = np.empty((len(inputs), self.factor.shape[1]))
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
            np.matmul(part[:, :-1], self.factor, out=found[rows])
        return found


@dataclass(frozen=True)
class _Project:
    """From all columns of a source to projections; it travels to workers."""

    used: list[int]
    projections: Projections

    def __call__(self, columns: list[Floats]) -> list[Floats]:
        return self.projections([columns[j] for j in self.used])


def projected_source(
    source: Source,
    standard: Standard,
    projections: Projections,
    state: State,
    squared_unit: float = 1.0,
) -> tuple[MappedSource, dict[str, Matern]]:
    """Return a source's rows with projections as columns, and the kernels of these.

    Variances of the kernels are those of the state times ``squared_unit``.
    """
    names = tuple(f"projection {m + 1}" for m in range(len(state.ridges)))
    kernels = {
        name: term.kernel.with_parameters(variance=squared_unit * float(term.kernel.variance or 0))
        for name, term in zip(names, state.ridges.terms, strict=True)
    }
    project = _Project(standard.varying, projections)
    return MappedSource(source, names, project), kernels


def projected_outcome(
    source: Source,
    standard: Standard,
    projections: Projections,
    state: State,
    procedure: Procedure,
    clock: Clock,
    fixed_noise: bool,
) -> Outcome:
    """Compute the joint posterior of the functions for the directions found.

    The search has smooth functions: where they leave structure, hyperparameters are learned again.
    """
    mapped, kernels = projected_source(source, standard, projections, state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said already
        training = procedure.prepare(mapped, plain_terms(kernels), clock)
    ratio = (standard.spread / training.scale) ** 2
    noise = state.noise_variance * standard.spread**2 * standard.weight_scale
    noise /= training.noise_scale
    n_rows = training.equations.n_rows
    if not state.fixed_noise and not len(state.ridges) and n_rows > 1:
        noise *= n_rows / (n_rows - 1)  # the constant takes up one, and there is nothing else
    bounds = (noise, noise) if fixed_noise else (min(NOISE[0], noise), NOISE[1])
    kept = [kernels[name] for name in training.equations.layout.names]
    found = Found(
        [kernel.with_parameters(variance=ratio * float(kernel.variance or 0.0)) for kernel in kept],
        noise,
        (noise, noise),
        None,
    )
    return procedure.finish(mapped, training, found, clock, bounds)


class ProjectedFunctions(AdditivePredictor):
    """A fitted additive model in projections of the columns, whatever its target is.

    Its ``fit`` calls ``_keep_projections`` after ``_keep``, and keeps ``evidence_`` (Laplace's
    approximation) and ``evidence_trace_``. A class that inherits from another predictor too names
    the attributes of both.
    """

    _projected_plain: ClassVar[tuple[str, ...]] = (
        "evidence_",
        "evidence_trace_",
        "search_gain_",
        "search_limited_",
        "_used",
    )
    _projected_arrays: ClassVar[tuple[str, ...]] = (
        "_relevance",
        *(f"_{name}" for name in ARRAYS),
    )

    missing = "error"  # a projection needs all its inputs
    method = "refit"

    # A parameter of the estimator.
    direction_uncertainty: bool

    evidence_: float
    search_gain_: float
    search_limited_: bool
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

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        model = super()._restore(settings, tree)
        used = len(model._projections.centre)
        names = model._used_names
        if not (len(names) == used == len(model._relevance)):
            raise ValueError("the columns used and the projections do not agree")
        return model

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

    def _prepare(self, with_std: bool) -> None:
        super()._prepare(with_std)
        if self.terms_:
            self._projections.ridges.functions  # noqa: B018

    def _variance(self, rows: Rows, inputs: list[Floats]) -> Floats:
        variance = super()._variance(rows, inputs)
        if not self.terms_:
            return variance
        # Beyond the training rows the mean stays what it is at their edge; how little is known does
        # not.
        outside, there = self._projections.beyond(rows.columns)
        if len(outside):
            known = self._posterior.variance(there, len(outside))
            variance[outside] = np.maximum(variance[outside], known)
        return variance

    @property
    def _unit(self) -> float:
        """Unit of the functions of ``_projections``, in that of the terms."""
        return math.sqrt(self.target_variance_)

    def _deviations(self, columns: list[Floats]) -> Floats | None:
        if not self.direction_uncertainty or not self.terms_:
            return None
        found = self._unit * self._projections.deviations(columns)
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
        search = (
            f"{self._searched_by}, {len(self.evidence_trace_)} rounds; log evidence "
            f"{self.evidence_:.6g} (Laplace), directions integrated out; the last step gained "
            f"{self.search_gain_:.2g} nats"
        )
        if self.search_limited_:
            search += "; ended at the limit of projections, not by the evidence"
        return replace(
            told,
            terms=told.terms.assign(direction=_tell_directions(self.projections_)),
            heading=f"{type(self).__name__}: {self.n_rows_} rows, projections: {len(self.terms_)}",
            legend=_LEGEND,
            nothing="(no projection: a constant explains the target as well)",
            lines=[
                *kept,
                ("search", search),
                ("relevance", _tell_relevance(self.relevance_)),
            ],
        )

    @property
    def _searched_by(self) -> str:
        """How projections were found."""
        return self.method


class ProjectedPredictor(ProjectedFunctions, DrawsPredictor):
    """A fitted additive model in projections of the columns, which may have kept draws."""

    _plain_attributes: ClassVar[tuple[str, ...]] = (
        *DrawsPredictor._plain_attributes,
        *ProjectedFunctions._projected_plain,
    )
    _array_attributes: ClassVar[tuple[str, ...]] = (
        *DrawsPredictor._array_attributes,
        *ProjectedFunctions._projected_arrays,
    )

    def _standard(self, columns: list[Floats]) -> Floats:
        return self._projections.standard(columns)

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        model = super()._restore(settings, tree)
        used = len(model._projections.centre)
        if model._draws is not None and model._draws.directions.shape[2:] != (used,):
            raise ValueError("the draws and the projections do not agree")
        return model

    @property
    def _searched_by(self) -> str:
        return self.method if self._draws is None else "refit"

    def _summary(self) -> Summary:
        told = super()._summary()
        return replace(told, lines=[*told.lines, *self._tell_draws()])


def _tell_directions(weights: pd.DataFrame) -> list[str]:
    """Write down the largest weights of each projection."""
    return [
        " ".join(
            f"{row[name]:+.2f} {name}"
            for name in row.abs().sort_values(ascending=False, kind="stable").index[:3]
            if abs(row[name]) >= _TOLD * row.abs().max()
        )
        for _, row in weights.iterrows()
    ]


def _tell_relevance(shares: pd.Series) -> str:
    """Write down the inputs that matter most."""
    ranked = shares.sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{name} {share:.1%}" for name, share in ranked.head(8).items())
    rest = f", {len(ranked) - 8} others {ranked.iloc[8:].sum():.1%}"
    return listed + (rest if len(ranked) > 8 else "")
