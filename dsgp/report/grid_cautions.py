"""What to know of a model of a field before it is trusted."""

from __future__ import annotations

import math

import numpy as np

from dsgp.estimators.grid import GridGP
from dsgp.plotting.maps import is_latitude
from dsgp.report.facts import Caution
from dsgp.report.grid_facts import Counts
from dsgp.report.grid_left import Left
from dsgp.report.grid_view import GridView
from dsgp.report.words import sentence

# Latitudes beyond which a degree of longitude is much shorter than one of latitude.
_FAR_NORTH = 70.0
# Errors of standard deviations, and parts of the field's extent, that are worth a sentence.
_LARGE_ERROR, _WHOLE = 0.1, 1.0


def cautions_of_grid(
    model: GridGP, view: GridView, counts: Counts, left: Left | None
) -> list[Caution]:
    """Say what to know before the model is trusted, most important first."""
    said = []
    if not model.converged_:
        said.append(
            Caution(
                f"The solver did not converge (relative residual {model.residual_:.1e}): the "
                "posterior mean is approximate. Fit with more iterations (max_iter).",
                True,
            )
        )
    if left is not None:
        said += [Caution(sentence(note), True) for note in left.notes]
    error = model.variance_error_
    if error is not None and error > _LARGE_ERROR:
        said.append(
            Caution(
                f"Standard deviations have an error of about {error:.0%}. Maps of them may have "
                "steps between neighbouring cells, or grain, that are no feature of the field."
            )
        )
    if left is not None and math.isnan(left.explained) and model.learner is not None:
        said.append(
            Caution(
                "All observed cells have the same value: lengthscales and noise could not be "
                "learned, and standard deviations have no meaning. Give kernels, noise_variance "
                "and learner=None.",
                True,
            )
        )
    else:
        said += _of_lengths(model)
    if counts.shares is not None and (n_none := int(np.count_nonzero(counts.shares == 0))):
        said.append(
            Caution(
                f"Nothing is observed at {n_none:,} of {len(counts.shares):,} steps along "
                f"{view.series_dim}: there the field comes from the other steps."
            )
        )
    if left is not None and left.n_far:
        said.append(
            Caution(
                f"{left.n_far:,} observed cells lie more than {left.limit:g} standard deviations "
                f"of the noise from the posterior mean, most at {left.farthest}. Outliers pull the "
                "field, because noise is Gaussian: check them, or leave them out by a mask."
            )
        )
    for axis in model._axes:
        if is_latitude(view.posterior["mean"], axis.name) and _has_circle(model):
            highest = float(np.abs(axis.points).max())
            if highest > _FAR_NORTH:
                said.append(
                    Caution(
                        f"Along {axis.name} the field reaches {highest:g}°. Distances are in "
                        "degrees: the model does not know that meridians converge, and near the "
                        "poles a projected grid is better."
                    )
                )
    said.append(
        Caution(
            "Standard deviations treat the learned lengthscales, variances and the noise as known, "
            "and the covariance as the same everywhere in the field."
        )
    )
    return said


def _has_circle(model: GridGP) -> bool:
    return any(axis.circle is not None for axis in model._axes)


def _of_lengths(model: GridGP) -> list[Caution]:
    """Name parts of the field that are rougher than the grid, or hardly change along a dim."""
    kernels = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    rough, flat = [], []
    for axis in model._axes:
        if len(axis) < 2:
            continue
        step = float(np.median(np.diff(axis.points)))
        extent = float(axis.points[-1] - axis.points[0])
        for c, kernel in enumerate(kernels):
            part = f" (part {c + 1})" if len(kernels) > 1 else ""
            length = float(kernel[axis.name].lengthscale or 0.0)
            if length < step:
                rough.append(f"{axis.name}{part}")
            elif length > _WHOLE * extent and not axis.is_closed:
                flat.append(f"{axis.name}{part}")
    said = []
    if rough:
        said.append(
            Caution(
                f"The lengthscale is shorter than the step of the grid along {', '.join(rough)}: "
                "that part of the field is nearly independent from cell to cell, so that it can "
                "be confused with noise, and nothing is known of it between cells."
            )
        )
    if flat:
        said.append(
            Caution(
                f"The lengthscale is longer than the field along {', '.join(flat)}: that part of "
                "the field hardly changes along it, and the lengthscale is only roughly known."
            )
        )
    return said
