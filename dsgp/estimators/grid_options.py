"""Options of ``GridGP``: checks, and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from dsgp.errors import DataError, ParameterError
from dsgp.grid.axes import GridAxis, check_dims, check_period
from dsgp.grid.covariance import LONG
from dsgp.grid.field import Field
from dsgp.grid.fit import NoiseStart
from dsgp.kernels import Matern32, Periodic, Stationary
from dsgp.terms import Floats
from dsgp.transforms import require_transform

Kernels = Mapping[str, Stationary]

# Scales that are tried where their number is not given.
MOST_SCALES = 3
# Of several scales, each starts at so much of the one before where lengthscales are given.
_NEXT_SCALE = 0.2
_VARIANCES = ("auto", "exact", "spectral", "local", "calibrated", "draws")


def check_options(model: Any) -> None:
    """Raise ``ParameterError`` if an option of a ``GridGP`` is out of its range."""
    for name, least in (("n_neighbours", 1), ("n_draws", 2), ("max_iter", 1)):
        value = getattr(model, name)
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ParameterError(f"{name} must be an integer of at least {least}, got {value!r}")
    require_seed(model.random_state)
    require_transform("transform", model.transform)
    number = isinstance(model.scales, (int, np.integer)) and not isinstance(model.scales, bool)
    if not (model.scales >= 1 if number else model.scales in (None, "auto")):
        raise ParameterError(f'scales must be a positive integer or "auto", got {model.scales!r}')
    if not (isinstance(model.tol, Real) and 0 < float(model.tol) < 1):
        raise ParameterError(f"tol must be between 0 and 1, got {model.tol!r}")
    if model.variance not in _VARIANCES:
        raise ParameterError(f"variance must be one of {_VARIANCES}, got {model.variance!r}")
    if model.units is not None and not isinstance(model.units, Mapping):
        raise ParameterError(
            f"units must map dims of times to 'days', 'hours', …; got {model.units!r}"
        )
    if model.learner not in ("marginal", None):
        raise ParameterError(f'learner must be "marginal" or None, got {model.learner!r}')
    if not isinstance(model.fixed_noise, (bool, np.bool_)):
        raise ParameterError(f"fixed_noise must be True or False, got {model.fixed_noise!r}")
    noise = model.noise_variance
    if isinstance(noise, xr.DataArray):
        return
    if noise is None:
        if model.fixed_noise:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")
        return
    if not (isinstance(noise, Real) and not isinstance(noise, bool) and 0 < float(noise) < np.inf):
        raise ParameterError(
            "noise_variance must be a positive number, a DataArray of variances per cell, or "
            f"None, which is learned; got {_short(noise)}"
        )


def sums_of(
    kernels: Any, scales: int | str | None, axes: Sequence[GridAxis], learner: str | None
) -> list[list[list[Stationary]]]:
    """Return the sums of kernels among which the learner chooses, by their number of terms.

    Where the number is given, those before the last are where its search starts from. Where
    lengthscales are given, they say which scales the field has.
    """
    number = None if isinstance(scales, str) else scales
    plain = kernels is None or isinstance(kernels, Mapping)
    if not plain or learner is None or _lengthscales(kernels or {}):
        return [terms_of(kernels, number, axes)]
    return [terms_of(kernels, k, axes) for k in range(1, (number or MOST_SCALES) + 1)]


def terms_of(kernels: Any, scales: int | None, axes: Sequence[GridAxis]) -> list[list[Stationary]]:
    """Return the kernels of every term and axis, as they start; by default one term."""
    if kernels is None or isinstance(kernels, Mapping):
        mappings = _scaled(kernels or {}, scales or 1)
    else:
        if not isinstance(kernels, Sequence) or isinstance(kernels, str):
            raise ParameterError(
                f"kernels must map dims to kernels, or be a list of such mappings; got {kernels!r}"
            )
        mappings = list(kernels)
        if not mappings:
            raise ParameterError("kernels: got an empty list; leave it out for the default")
        if scales is not None and scales != len(mappings):
            raise ParameterError(
                f"scales={scales}, and kernels has {len(mappings)} terms; leave scales out"
            )
    terms = []
    for mapping in mappings:
        if not isinstance(mapping, Mapping):
            raise ParameterError(
                f"kernels must map dims to kernels, or be a list of such mappings; got {mapping!r}"
            )
        check_dims(mapping, axes, "kernels")
        term = []
        for axis in axes:
            kernel = mapping.get(axis.name, default_kernel(axis))
            if not isinstance(kernel, Stationary):
                raise ParameterError(
                    f"kernels: dim {axis.name!r} has {kernel!r}, which is not a kernel for grids; "
                    "use one of dsgp.kernels with a lengthscale and a variance, such as Matern32()"
                )
            if kernel.priors:
                raise ParameterError(
                    f"kernels: dim {axis.name!r} has {kernel!r}, and priors of a grid's "
                    "hyperparameters are not used: leave them out"
                )
            if kernel.parameters != Stationary.parameters:
                raise ParameterError(
                    f"kernels: dim {axis.name!r} has {kernel!r}, which has {kernel.parameters}; "
                    "kernels of a grid have a lengthscale and a variance only"
                )
            if isinstance(kernel, Periodic):
                if isinstance(kernel.period, str):
                    raise ParameterError(
                        f"kernels: dim {axis.name!r} has {kernel!r}, and named periods are for "
                        "tables only; give the period in the units of the dim"
                    )
                check_period(axis, kernel.period)
            term.append(kernel)
        terms.append(term)
    return terms


def default_kernel(axis: GridAxis) -> Stationary:
    """Return the kernel of a dim that is not named: periodic for longitudes round the globe."""
    if axis.is_closed and len(axis) <= LONG:
        assert axis.circle is not None
        return Periodic(axis.circle, smoothness=1.5)
    return Matern32()


def noise_start(model: Any) -> NoiseStart:
    """Return where a noise variance that all cells share starts, and whether it stays there."""
    noise = model.noise_variance
    return NoiseStart(None if noise is None else float(noise), bool(model.fixed_noise))


def noise_of_cells(noise: xr.DataArray, field: Field) -> Floats:
    """Return the noise variance that is known of each cell; NaN where none is needed."""
    variances = np.broadcast_to(field.align(noise, "noise_variance"), field.shape).astype(float)
    seen = np.ones(field.shape, bool) if field.observed is None else field.observed
    bad = seen & ~(np.isfinite(variances) & (variances > 0))
    if bad.any():
        raise DataError(
            "noise_variance: expected a positive, finite variance at each observed cell, got "
            f"others at {int(bad.sum())} of {int(seen.sum())}; leave these cells out by mask="
        )
    return np.where(np.isfinite(variances) & (variances > 0), variances, np.nan)


def require_seed(seed: Any) -> None:
    """Raise ``ParameterError`` if a random state is no number to start from."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ParameterError(f"random_state must be an integer of at least 0, got {seed!r}")


def _lengthscales(mapping: Kernels) -> bool:
    return any(isinstance(kernel, Stationary) and kernel.lengthscale for kernel in mapping.values())


def _scaled(mapping: Kernels, n_terms: int) -> list[Kernels]:
    """Return the terms of a sum that one mapping of kernels stands for."""
    return [
        {
            dim: kernel.with_parameters(lengthscale=kernel.lengthscale * _NEXT_SCALE**c)
            if isinstance(kernel, Stationary)
            and kernel.lengthscale
            and "lengthscale" not in kernel.fixed
            else kernel
            for dim, kernel in mapping.items()
        }
        for c in range(n_terms)
    ]


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}: xr.DataArray(noise, coords=da.coords)"
    return repr(value)
