"""``ds.dsgp``: the methods of every field of a Dataset, and what is no field."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import xarray as xr

from dsgp.accessor.methods import Accessor
from dsgp.accessor.request import Request
from dsgp.errors import DataError, DataWarning, DsgpError

# Attributes by which other variables name those that describe them.
_DESCRIPTIONS = ("bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures")


class DatasetAccessor(Accessor):
    """``ds.dsgp``: as of a DataArray, for every variable that is a field; see ``smooth``.

    A field holds numbers and has coordinates for all of its dims. Other variables are carried
    along, with a ``DataWarning`` unless others name them as their bounds or the like. Options that
    name dims (``kernels``, ``units``, coordinates) apply to the fields that have these.
    """

    def _answer(self, request: Request) -> xr.Dataset:
        ds: xr.Dataset = self._obj
        fields, left = _fields_of(ds)
        if not fields:
            raise DataError(
                "no variable of the Dataset is a field: expected numbers with a coordinate along "
                f"each dim, got {list(map(str, ds.data_vars))}"
            )
        if left:
            warnings.warn(
                f"{', '.join(map(repr, left))}: no numbers with a coordinate along each dim; "
                "carried along as they are",
                DataWarning,
                stacklevel=3,
            )
        moved = set(request.coords or {})
        found = {
            name: variable
            for name, variable in ds.data_vars.items()
            if name not in fields and not moved & set(variable.dims)
        }
        for name in fields:
            da = ds[name]
            try:
                part = da.dsgp._answer(_restricted(request, set(map(str, da.dims)), ds))
            except DsgpError as error:
                raise type(error)(f"variable {name!r}: {error}") from error
            found |= {f"{name}_{moment}": part[moment] for moment in ("mean", "std")}
        return xr.Dataset(found, attrs=ds.attrs)


def _fields_of(ds: xr.Dataset) -> tuple[list[Hashable], list[Hashable]]:
    """Return names of the fields, and of other variables that no variable claims."""
    claimed: set[str] = set()
    for variable in ds.variables.values():
        for source in (variable.attrs, variable.encoding):
            for key in _DESCRIPTIONS:
                claimed |= set(str(source.get(key, "")).split())
    found: tuple[list[Hashable], list[Hashable]] = ([], [])
    for name, da in ds.data_vars.items():
        placed = bool(da.dims) and all(dim in ds.coords for dim in da.dims)
        if name not in claimed:
            found[not (placed and da.dtype.kind in "iuf")].append(name)
    return found


def _restricted(request: Request, dims: set[str], ds: xr.Dataset) -> Request:
    """Drop what concerns dims that a field lacks and other fields have."""
    elsewhere = set(map(str, ds.dims)) - dims

    def own(value: Any) -> Any:
        if isinstance(value, Mapping):
            kept = {name: one for name, one in value.items() if name not in elsewhere}
            return kept if kept or not value else None
        return [own(one) for one in value] if isinstance(value, (list, tuple)) else value

    options = {
        name: own(value) if name in ("kernels", "units") else value
        for name, value in request.options.items()
    }
    coords = None if request.coords is None else own(request.coords) or {}
    return replace(request, options=options, coords=coords)
