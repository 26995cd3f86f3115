"""What a page says of a field in words and tables: data, covariance, how it was solved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from dsgp.estimators.grid import GridGP
from dsgp.grid.axes import GridAxis
from dsgp.grid.points import amplitude
from dsgp.kernels import Periodic
from dsgp.report.grid_left import Left
from dsgp.report.grid_maps import distance_unit, names_of
from dsgp.report.grid_view import GridView
from dsgp.report.words import number, share_of
from dsgp.terms import Floats

_METHODS = {
    "kronecker": "exact, by Kronecker products of the axes",
    "fibres": "exact, by state-space smoothing along the longest axis",
    "dense": "exact, by dense algebra of the observed cells",
    "conjugate gradients": "iterative, by conjugate gradients: exact to the tolerance",
    "tiles": "tile by tile, each with a halo of cells around it: an approximation",
}
_VARIANCES = {
    "exact": "exact",
    "spectral": "as if the covariances of all scales had the same eigenvectors",
    "local": "an upper bound: each cell is given its most informative observed cells only",
    "calibrated": "from few observed cells per cell, times what posterior draws leave of that",
    "draws": "scatter of posterior draws, which is random",
}


@dataclass(frozen=True)
class Dim:
    """A row of the table of dims."""

    name: str
    kind: str
    size: str
    values: str
    step: str
    chunks: str


@dataclass(frozen=True)
class Component:
    """A row of the table of what the field consists of; ``along`` has a cell for each dim."""

    name: str
    std: str
    share: str
    along: list[str]


@dataclass(frozen=True)
class Counts:
    """How many cells there are of each sort.

    Attributes
    ----------
    n_cells, n_observed : int
    n_inside : int or None
        Cells that have a posterior; None if that is not known.
    n_filled : int or None
        Of these, cells without an observation.
    shares : ndarray or None
        Share of observed cells at each step of the series, of those that have a posterior.
    """

    n_cells: int
    n_observed: int
    n_inside: int | None = None
    n_filled: int | None = None
    shares: Floats | None = None

    @classmethod
    def of(cls, model: GridGP, view: GridView) -> Counts:
        """Count the cells of a model that holds its field."""
        n_cells = math.prod(len(axis) for axis in model._axes)
        if not hasattr(model, "field_"):
            return cls(n_cells, model.n_observed_)
        field = model.field_
        shape = field.shape
        inside = np.broadcast_to(True if field.domain is None else field.domain, shape)
        seen = np.broadcast_to(True if field.observed is None else field.observed, shape) & inside
        n_inside = int(np.count_nonzero(inside))
        shares = None
        if view.series_dim is not None and len(shape) > 1:
            d = field.dims.index(view.series_dim)
            others = tuple(k for k in range(len(shape)) if k != d)
            all_of = inside.sum(axis=others)
            shares = seen.sum(axis=others) / np.maximum(all_of, 1)
            if field.axes[d].descending:
                shares = shares[::-1]
        return cls(
            n_cells, model.n_observed_, n_inside, n_inside - int(np.count_nonzero(seen)), shares
        )


def dims_of(model: GridGP, view: GridView) -> list[Dim]:
    """Describe the dims of the field."""
    chunks = dict(model.field_.chunks) if hasattr(model, "field_") else {}
    rows = []
    for axis in model._axes:
        coordinate = view.posterior.coords[axis.name]
        ends = names_of(coordinate[[0, -1] if len(axis) > 1 else [0]])
        rows.append(
            Dim(
                axis.name,
                _kind_of(axis),
                f"{axis.n_outer:,}",
                " to ".join(ends),
                _step_of(axis),
                _chunks_of(chunks.get(axis.name, ())),
            )
        )
    return rows


def _step_of(axis: GridAxis) -> str:
    if len(axis) == 1:
        return "–"
    if axis.step is not None:
        return _with_unit(axis.step, axis)
    steps = np.diff(axis.points)
    least, most = (number(float(step), 3) for step in (steps.min(), steps.max()))
    return f"{least} to {_with_unit(float(steps.max()), axis)}" if least != most else most


def _kind_of(axis: GridAxis) -> str:
    kinds = {"datetime": "dates", "timedelta": "durations", "number": "numbers"}
    kind = kinds.get(axis.kind, f"dates, calendar {axis.calendar}")
    if axis.is_closed:
        return "longitudes round the globe"
    return "longitudes" if axis.circle is not None else kind


def _chunks_of(sizes: Sequence[int]) -> str:
    if not sizes:
        return "–"
    return f"{len(sizes):,} of up to {max(sizes):,}"


def _with_unit(value: float, axis: GridAxis, digits: int = 3) -> str:
    return f"{number(value, digits)}{distance_unit(axis, value)}"


def treatment_of(model: GridGP, counts: Counts) -> list[str]:
    """Say in sentences what was done to the field before and while the model was fitted."""
    said = [_observed_of(counts)]
    field = getattr(model, "field_", None)
    if field is not None:
        for reason, count in field.left_out.items():
            said.append(f"Values of {count:,} cells were left out: {reason}.")
        n_empty = counts.n_cells - (counts.n_inside or 0)
        if n_empty:
            share = share_of(n_empty / counts.n_cells)
            said.append(
                f"{n_empty:,} cells ({share}) lie outside the domain and stay empty: land, for "
                "instance."
            )
        units = field.template.attrs.get("units")
        if units:
            said.append(f"Values are in {units}.")
    if model.transform_ is not None:
        said.append(
            f"The field was transformed: {model.transform_.described()} is modelled. Kernels and "
            "noise are on that scale; maps and curves are in the units of the field."
        )
    said.append(_mean_of(model))
    for axis in model._axes:
        if axis.is_time:
            said.append(f"Along {axis.name}, lengthscales are in {axis.unit}.")
        if axis.repeated:
            said.append(
                f"Along {axis.name} the first and the last cell are one place, whose values were "
                "used once."
            )
    return said


def _observed_of(counts: Counts) -> str:
    share = share_of(counts.n_observed / counts.n_cells)
    said = f"{counts.n_observed:,} of {counts.n_cells:,} cells are observed ({share})"
    if counts.n_filled is None:
        return f"{said}."
    if not counts.n_filled:
        return f"{said}; so is every cell that has a posterior."
    return f"{said}; {counts.n_filled:,} missing cells are filled."


def _mean_of(model: GridGP) -> str:
    if isinstance(model.mean_, xr.DataArray):
        kind = model.mean if isinstance(model.mean, str) else "a given field"
        least, most = float(model.mean_.min()), float(model.mean_.max())
        return f"The prior mean varies ({kind}): from {number(least)} to {number(most)}."
    learned = isinstance(model.mean, str) and model.mean == "constant"
    how = "estimated" if learned else "given"
    return f"The prior mean is {number(float(model.mean_), 4)} everywhere, {how}."


# ---------------------------------------------------------------------- covariance


def components_of(model: GridGP) -> list[Component]:
    """Describe the parts of the covariance: kernels, a climatology, and the noise."""
    kernels = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    names = [axis.name for axis in model._axes]
    terms = [[kernel[name] for name in names] for kernel in kernels]
    labels = ["field" if len(terms) == 1 else f"field, part {c + 1}" for c in range(len(terms))]
    inner = getattr(model, "_model", None)
    if inner is not None and inner.n_effects:
        effects = [list(term) for term in inner.terms[: inner.n_effects]]
        spec = str(model.mean)
        before = [f"mean of each cell along {spec.partition('.')[0]}", f"climatology, {spec}"]
        terms, labels = [*effects, *terms], [*before[: len(effects)], *labels]
    variances = [float(amplitude(term)) for term in terms]
    noise = _noise_of(model)
    total = sum(variances) + noise
    rows = [
        Component(
            label,
            number(math.sqrt(variance)),
            share_of(variance / total),
            [_along(kernel, axis) for kernel, axis in zip(term, model._axes, strict=True)],
        )
        for label, term, variance in zip(labels, terms, variances, strict=True)
    ]
    given = "noise (given for each cell; its mean)" if model.noise_variance_ is None else "noise"
    independent = ["independent"] * len(names)
    return [*rows, Component(given, number(math.sqrt(noise)), share_of(noise / total), independent)]


def _noise_of(model: GridGP) -> float:
    if model.noise_variance_ is not None:
        return float(model.noise_variance_)
    inner = model._model
    return float(np.mean(np.asarray(inner.noise)[inner.observed]))


def _along(kernel: Any, axis: GridAxis) -> str:
    """Write the lengthscale of a kernel, in the unit of the coordinate and in steps."""
    if len(axis) == 1:  # nothing depends on it
        return "–"
    length = float(kernel.lengthscale)
    steps = number(length / float(np.median(np.diff(axis.points))), 2)
    facts = f"{_with_unit(length, axis)} = {steps} steps"
    kind = type(kernel).__name__
    if isinstance(kernel, Periodic):
        kind += f", period {_with_unit(float(kernel.period), axis)}"
    return f"{facts} ({kind})"


def solved_of(model: GridGP, left: Left | None) -> list[tuple[str, str, str]]:
    """Say how the model was learned and solved: (name, value, meaning)."""
    rows = [("method", model.method_, _METHODS.get(model.method_, ""))]
    if model.solver_iterations_:
        rows.append(
            (
                "iterations", f"{model.solver_iterations_:,}",
                f"relative residual {model.residual_:.1e}, tolerance {model.tol:.0e}"
                + ("" if model.converged_ else ": NOT converged"),
            )
        )  # fmt: skip
    error = model.variance_error_
    how = _VARIANCES.get(model.variance_method_, "")
    if error is not None:
        how += f"; standard deviations are about {max(error, 0.0):.1%} " + (
            "too large on average, at six cells that were checked"
            if model.variance_method_ == "local"
            else "off"
        )
    rows.append(("standard deviations", model.variance_method_, how))
    if left is not None:
        rows.append(
            (
                "variance explained", share_of(left.explained),
                "of the observed cells, by the posterior mean: of cells that the model was fitted "
                "to",
            )
        )  # fmt: skip
    if model.log_marginal_likelihood_ is not None:
        approximate = model.method_ == "conjugate gradients"
        rows.append(
            (
                "log marginal likelihood", number(model.log_marginal_likelihood_, 6),
                "of the same field, larger is better"
                + (" (Vecchia's approximation)" if approximate else ""),
            )
        )  # fmt: skip
    learned = "nothing was learned"
    rows.append(
        (
            "kernels and noise", "given" if model.learner is None else "learned",
            learned if model.learner is None else f"from {model.learnt_from_}",
        )
    )  # fmt: skip
    return rows


def headlines_of_grid(model: GridGP, counts: Counts, left: Left | None) -> list[tuple[str, str]]:
    """Return the numbers that a page begins with, and what they are."""
    facts = [("cells", f"{counts.n_cells:,}")]
    if counts.n_inside is None or counts.n_filled is None:
        facts.append(("observed", share_of(counts.n_observed / counts.n_cells)))
    else:
        if counts.n_inside < counts.n_cells:
            facts.append(("cells with a posterior", f"{counts.n_inside:,}"))
        facts.append(("of these observed", share_of(1 - counts.n_filled / counts.n_inside)))
        facts.append(("of these filled", share_of(counts.n_filled / counts.n_inside)))
    if left is not None:
        facts.append(("variance explained (observed cells)", share_of(left.explained)))
    scale = "" if model.transform_ is None else f" ({model.transform_.name} scale)"
    facts.append((f"noise, standard deviation{scale}", number(math.sqrt(_noise_of(model)))))
    return facts
