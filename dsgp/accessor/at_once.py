"""The fit of a field in memory, by ``GridGP``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

import dsgp  # GridGP is imported when first used: what is behind it takes a second
from dsgp.accessor.request import Request
from dsgp.grid.axes import axes_of
from dsgp.grid.field import Field
from dsgp.grid.targets import Targets


def at_once(da: xr.DataArray, request: Request) -> xr.Dataset:
    """Fit a field and answer."""
    if request.coords is not None:  # what cannot be answered is said before anything is learned
        layout = layout_of(da, request.options.get("units"))
        Targets.of(layout.axes, request.coords).require_memory(layout.shape)
    model = dsgp.GridGP(**request.options)
    model.fit(da, mask=request.mask, domain=request.domain)
    if request.coords is not None:
        return model.predict(
            include_noise=request.include_noise, quantiles=request.quantiles, **request.coords
        )
    result = model.posterior(include_noise=request.include_noise, quantiles=request.quantiles)
    if request.keep_observed:
        return with_observed(result, model, request.include_noise)
    return result


def with_observed(result: xr.Dataset, model: dsgp.GridGP, include_noise: bool) -> xr.Dataset:
    """Put the observed values of a field into its posterior, with the deviation of their errors."""
    field = model.field_
    noise: Any = model.noise_variance_
    if isinstance(model.noise_variance, xr.DataArray):
        noise = field.align(model.noise_variance, "noise_variance")
    # A new observation beside the one kept has an error of its own.
    deviation = np.sqrt((2 if include_noise else 1) * np.asarray(noise))
    observed = field.values
    if model.transform_ is not None:
        observed, deviation = (
            model.transform_.inverse(field.values),
            model.transform_.moments(field.values, deviation**2)[1],
        )
    values = field.restore(observed).values
    deviations = field.restore(np.broadcast_to(deviation, field.shape)).values
    seen = ~np.isnan(values) & result["mean"].notnull().values
    for name, kept in (("mean", values), ("std", deviations)):
        result[name] = result[name].copy(data=np.where(seen, kept, result[name].values))
    return result


def layout_of(da: xr.DataArray, units: Mapping[str, str] | None) -> Field:
    """Return a field without values."""
    axes = axes_of(da, units)
    empty = np.broadcast_to(np.float64(np.nan), da.shape)
    return Field(axes, empty, None, None, da.copy(deep=False, data=empty), dict(da.chunksizes))
