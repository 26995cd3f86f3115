"""The fit of ``GridGP`` to a field in memory: from options and a DataArray to a fitted model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from dsgp import memory
from dsgp.errors import DataError, DataWarning
from dsgp.estimators.grid_options import check_options, noise_of_cells, noise_start, sums_of
from dsgp.estimators.grid_transform import mean_seen, of_skewed_field, transformed
from dsgp.grid.coded import has_gaps, read_values
from dsgp.grid.domain import domain_of, require_choice
from dsgp.grid.effects import effects_of
from dsgp.grid.field import Field
from dsgp.grid.fit import NoiseStart
from dsgp.grid.learning import GridLearner, bytes_with_gaps, warn_of_short
from dsgp.grid.means import Mean
from dsgp.grid.model import Conditioning, FieldModel, Solving, residuals_of
from dsgp.grid.systems import require_few
from dsgp.kernels import Stationary
from dsgp.models.gaussian.target import warn_of_skewness
from dsgp.terms import Floats
from dsgp.transforms import Transform


@dataclass(frozen=True)
class FittedField:
    """A model of a field, and how it was found.

    Attributes
    ----------
    model : FieldModel
    conditioning : Conditioning
        Its log marginal likelihood is that of the field, transformed or not.
    transform : Transform or None
    learnt_from : str
    """

    model: FieldModel
    conditioning: Conditioning
    transform: Transform | None
    learnt_from: str


def fit_field(options: Any, da: xr.DataArray, mask: Any, domain: Any) -> FittedField:
    """Learn hyperparameters and condition on a field; ``options`` is a ``GridGP``, see there."""
    check_options(options)
    if not isinstance(da, xr.DataArray):
        raise DataError(f"GridGP takes a DataArray, got {type(da).__name__}; xr.DataArray(...)")
    memory.require(
        f"a field of {da.size} cells",
        8.0 * da.size * (8 if _surely_complete(da, options) else 10 + 1.5 * options.n_neighbours),
        "use a part of it, or smooth it from disk to disk: GridGP.smooth_store, dsgp smooth",
    )
    if isinstance(domain, str):
        require_choice(domain)
    region = None if isinstance(domain, str) else domain
    field = Field.of(da, mask=mask, domain=region, units=options.units)
    noise: NoiseStart | Floats
    if isinstance(options.noise_variance, xr.DataArray):
        noise = noise_of_cells(options.noise_variance, field)
    else:
        noise = noise_start(options)
    if options.variance == "exact" and field.observed is not None:
        require_few(field.n_observed)
    field, transform, log_jacobian = transformed(field, options.transform)
    mean = Mean.of(mean_seen(options.mean, transform), field)
    constant_is_unknown = isinstance(options.mean, str) and options.mean == "constant"
    sums = sums_of(options.kernels, options.scales, field.axes, options.learner)
    effects = _climatology(options, field, sums[0][0])
    if effects:
        mean, constant_is_unknown = Mean.of("constant", field), True
    y = residuals_of(field, mean)
    if isinstance(domain, str):  # after all that may be refused: it may warn
        usable = None if mask is None else field.align_bool(mask, "mask")
        known = None if mask is None else field.align(~np.isnan(read_values(da)), "the field")
        field = replace(field, domain=domain_of(domain, field, usable, known))
    if options.learner is not None and _has_one_value(field):
        warnings.warn(
            f"all {field.n_observed} observed cells have the same value: lengthscales and noise "
            "cannot be learned, and std has no meaning; give kernels, noise_variance= and "
            "learner=None",
            DataWarning,
            stacklevel=3,
        )
    learner = GridLearner(
        options.learner is None,
        options.scales,
        options.n_neighbours,
        options.random_state,
        constant_is_unknown,
    )
    learned = learner.of_field(field, y, sums, effects, noise)
    hyperparameters = learned.hyperparameters
    if options.learner is not None:
        warn_of_short(
            replace(hyperparameters, terms=hyperparameters.terms[len(effects) :]), field.axes
        )
    model = FieldModel(
        field,
        mean,
        hyperparameters.terms,
        noise if isinstance(noise, np.ndarray) else hyperparameters.noise,
        solving_of(options),
        n_effects=len(effects),
        constant_is_unknown=constant_is_unknown,
    )
    conditioning = model.condition()
    value = conditioning.log_marginal_likelihood + log_jacobian
    conditioning = replace(conditioning, log_marginal_likelihood=value)
    if transform is None:
        warn_of_skewness(of_skewed_field(model.left(y), field))
    return FittedField(model, conditioning, transform, learned.source)


def solving_of(options: Any) -> Solving:
    """Return the options of a ``GridGP`` that say how its systems are solved."""
    return Solving(
        options.variance,
        options.n_neighbours,
        options.n_draws,
        options.tol,
        options.max_iter,
        options.random_state,
    )


def _surely_complete(da: xr.DataArray, options: Any) -> bool:
    return da.chunks is None and options.scales in (None, "auto", 1) and not has_gaps(da)


def _has_one_value(field: Field) -> bool:
    values = field.values if field.observed is None else field.values[field.observed]
    return not np.ptp(values)


def _climatology(
    options: Any, field: Field, kernels: Sequence[Stationary]
) -> tuple[tuple[Stationary, ...], ...]:
    """Make terms of the covariance of a climatology, which then is an unknown."""
    if options.learner is None:
        return ()
    variance = float(np.nanvar(field.values)) or 1.0
    effects = effects_of(options.mean, field.axes, kernels, variance)
    n_bytes = bytes_with_gaps(field.values.size, options.n_neighbours)
    return effects if n_bytes <= memory.available() else ()
