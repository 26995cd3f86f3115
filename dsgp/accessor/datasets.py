"""``ds.dsgp``: the methods of the fields of a Dataset; all else stays what it is."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from dsgp.accessor.arrays import answer
from dsgp.accessor.methods import Accessor
from dsgp.accessor.request import Request
from dsgp.errors import DataError, DataWarning, DsgpError, ParameterError
from dsgp.grid.axes import why_no_field
from dsgp.grid.coded import has_gaps
from dsgp.grid.metadata import restored_links
from dsgp.grid.variables import described, is_category, is_flag, is_placed


class DatasetAccessor(Accessor):
    """``ds.dsgp``: as for a DataArray, for every variable that the operation concerns.

    A field holds numbers and has coordinates along all of its dims. It is replaced by
    ``{variable}_mean`` and ``{variable}_std``. Everything else stays as it is, values, type,
    attributes and encoding:

    * variables that are not fields: text, dates, booleans, variables without a coordinate along a
      dim, and those that others name as bounds, grid mapping, ancillary variables or the like;
    * flags (with ``flag_values``, ``flag_meanings`` or ``flag_masks``), and integers with neither
      units nor scale, which are treated as categories, with a ``DataWarning``;
    * for ``fill``, variables without gaps, if they are in memory: it is not known whether a lazy
      one has gaps before it is computed, so that it counts as one with gaps;
    * for ``interp``, variables that have none of the dims to be interpolated. A variable that has
      one of them and is not a field is left out, with a ``DataWarning``.

    ``variables="sst"``, or a list, says which are the fields instead, whatever they hold; all
    others stay as they are. Options that name dims (``kernels``, ``units``, ``mean``, coordinates,
    arrays) apply to the fields that have these.

    Examples
    --------
    >>> import numpy as np, xarray as xr, dsgp
    >>> x = np.linspace(0, 6, 30)
    >>> ds = xr.Dataset({"sst": ("x", np.sin(x)), "quality": ("x", np.arange(30) % 3)}, {"x": x})
    >>> ds["quality"].attrs["flag_values"] = [0, 1, 2]
    >>> sorted(ds.dsgp.smooth())
    ['quality', 'sst_mean', 'sst_std']
    >>> sorted(ds.dsgp.smooth(variables="quality"))
    ['quality_mean', 'quality_std', 'sst']
    """

    def _answer(self, request: Request) -> xr.Dataset:
        ds: xr.Dataset = self._obj
        moved = set(request.coords or {})
        fields = _chosen(ds, request) if request.variables is not None else _fields_of(ds, request)
        if moved:
            fields = [name for name in fields if moved & set(ds[name].dims)]
            _warn_of_lost(ds, moved, fields)
        result: dict[Hashable, xr.DataArray] = {}
        # Of coordinates, too, what lies along a dim that is interpolated has no place any more.
        left = ds.drop_vars([name for name, one in ds.variables.items() if moved & set(one.dims)])
        for name, variable in ds.data_vars.items():
            if name not in fields:
                if name in left:
                    result[name] = left[name]
                continue
            dims = set(map(str, variable.dims))
            # These come back with the coordinates of the Dataset.
            clear = variable.drop_vars([one for one in ("mean", "std") if one in variable.coords])
            try:
                moments = ("mean", "std", *(("quantiles",) if request.quantiles else ()))
                for moment in moments:  # before hours of work
                    _require_free(ds, f"{name}_{moment}")
                part = answer(clear, _restricted(request, dims, ds, name))
                for key, one in part.data_vars.items():
                    result[_require_free(ds, f"{name}_{key}")] = one
            except DsgpError as error:
                raise type(error)(f"variable {name!r}: {error}") from error
        made = xr.Dataset(result, left.coords, ds.attrs)
        made.encoding = ds.encoding
        return _linked(made, ds, fields)


def _linked(made: xr.Dataset, ds: xr.Dataset, fields: list[Hashable]) -> xr.Dataset:
    """Let results and new coordinates name the variables that describe them, which are there."""
    for name in fields:
        links = restored_links({}, ds[name].variable, made.variables)
        for key in made.data_vars:
            if key not in ds.variables and str(key).startswith(f"{name}_"):
                encoding = made[key].encoding
                made[key].attrs |= {link: to for link, to in links.items() if link not in encoding}
    return made


# ---------------------------------------------------------------------- which are fields


def _chosen(ds: xr.Dataset, request: Request) -> list[Hashable]:
    """Return the variables that are named, all of which must be there."""
    named = request.variables
    names = [named] if isinstance(named, str) or not isinstance(named, Iterable) else list(named)
    for name in names:
        if name not in ds.data_vars:
            raise ParameterError(
                f"variables: the Dataset has no variable {name!r}; it has "
                f"{', '.join(map(repr, ds.data_vars)) or 'none'}"
            )
    return names


def _fields_of(ds: xr.Dataset, request: Request) -> list[Hashable]:
    """Return names of the fields that have to be computed; warn of what may be meant as one."""
    aside = described(ds)
    free = [name for name in ds.data_vars if name not in aside]
    placed = [name for name in free if is_placed(ds, name)]
    quantities = [name for name in placed if not is_flag(ds[name])]
    fields = [name for name in quantities if not is_category(ds[name])]
    if not fields:
        raise DataError(
            "no variable of the Dataset is a field: expected numbers with a coordinate along "
            f"each dim, and no flags or categories, got {list(map(str, ds.data_vars))}; name those "
            f"that are meant: variables=[...]{why_no_field(ds)}"
        )
    others = [name for name in free if ds[name].dims and name not in placed]
    if others:
        _warn(
            f"{_quoted(others)}: not numbers with a coordinate along each dim; returned unchanged"
        )
    categories = [name for name in quantities if name not in fields]
    if categories:
        _warn(
            f"{_quoted(categories)}: integers without units, treated as categories and returned "
            "unchanged; to treat them as fields, name all that are: variables=[...]"
        )
    if request.fills:
        fields = [name for name in fields if _may_have_gaps(ds[name], request.mask)]
    return fields


def _may_have_gaps(da: xr.DataArray, mask: Any) -> bool:
    """Whether something is to be filled; of a lazy array, whether something may be."""
    if mask is not None and not np.all(mask):
        return True
    return bool(da.chunks is not None) or has_gaps(da)


def _warn_of_lost(ds: xr.Dataset, moved: set[str], fields: list[Hashable]) -> None:
    aside = described(ds)
    lost = [
        name
        for name, one in ds.data_vars.items()
        if moved & set(one.dims) and name not in fields and name not in aside
    ]
    if lost:
        _warn(
            f"{_quoted(lost)}: not a field, and along the interpolated {_quoted(sorted(moved))}; "
            "left out (ds.interp(..., method='nearest') has them)"
        )


def _require_free(ds: xr.Dataset, name: str) -> str:
    """Raise ``ParameterError`` if a result has the name of a variable that is there."""
    if name in ds.variables:
        raise ParameterError(
            f"the result would be called {name!r}, and the Dataset has a variable of that name: "
            f"rename it, ds.rename({name}=...), or use the field alone, ds[...].dsgp"
        )
    return name


def _quoted(names: Iterable[Hashable]) -> str:
    return ", ".join(map(repr, names))


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=5)


def _restricted(request: Request, dims: set[str], ds: xr.Dataset, name: Hashable) -> Request:
    """Drop what concerns dims that a field lacks and other variables have."""
    elsewhere = set(map(str, ds.dims)) - dims

    def of_field(value: Any) -> Any:
        if isinstance(value, Mapping):
            kept = {dim: one for dim, one in value.items() if dim not in elsewhere}
            return kept if kept or not value else None
        if isinstance(value, (list, tuple)):
            return [of_field(one) or {} for one in value]
        return value

    options = {
        key: of_field(value) if key in ("kernels", "units") else value
        for key, value in request.options.items()
    }
    if isinstance(options.get("mean"), str) and options["mean"].partition(".")[0] in elsewhere:
        options["mean"] = "constant"
    # What is given for cells of another shape says nothing of these.
    instead = {"noise_variance": None, "mean": "constant", "mask": None, "domain": None}
    arrays = {"mask": request.mask, "domain": request.domain} | options
    for key in instead:
        array = arrays.get(key)
        if isinstance(array, xr.DataArray) and elsewhere & set(map(str, array.dims)):
            further = sorted(elsewhere & set(map(str, array.dims)))
            _warn(f"{key} does not apply to {name!r}, which has no dim {_quoted(further)}")
            arrays[key] = instead[key]
    options |= {key: arrays[key] for key in ("noise_variance", "mean") if key in options}
    coords = None if request.coords is None else of_field(request.coords) or {}
    return replace(
        request, options=options, coords=coords, mask=arrays["mask"], domain=arrays["domain"]
    )
