"""``da.dsgp``: smoothing, gap filling and interpolation as methods of xarray's objects.

The work is done by ``GridGP``. Arrays in chunks stay lazy: here is what makes one task of a fit.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

import dsgp  # GridGP is imported when first used: what is behind it takes a second
from dsgp import memory
from dsgp.errors import DataError, DataWarning, DsgpError, ParameterError
from dsgp.grid.axes import GridAxis, axes_of, check_dims
from dsgp.grid.coordinates import Floats
from dsgp.grid.field import Field

# Bytes a cell that a fit takes at least; ``GridGP.fit`` asks for what gaps need beyond that.
_BYTES = 64
# Attributes by which other variables name those that describe them.
_DESCRIPTIONS = ("bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures")


@dataclass(frozen=True)
class _Request:
    """What is asked for of a field.

    Attributes
    ----------
    options : dict
        Of ``GridGP``.
    include_noise : bool
    mask, domain : as ``GridGP.fit`` takes them
        The domain may be "auto" too.
    keep_observed : bool
    coords : mapping of dim to array_like, or None
        Another grid; None: that of the field.
    """

    options: dict[str, Any]
    include_noise: bool
    mask: Any = None
    domain: Any = None
    keep_observed: bool = False
    coords: Mapping[str, Any] | None = None

    def with_arrays(self, given: Mapping[str, Any]) -> _Request:
        """Replace "mask", "domain", "noise" or "mean"."""
        of_fit: dict[str, Any] = {name: given[name] for name in given if name in ("mask", "domain")}
        of_model = {name: given[name] for name in given if name in ("noise", "mean")}
        return replace(self, options=self.options | of_model, **of_fit)


class _Accessor:
    """The three methods, of a DataArray or of every field of a Dataset.

    Lazy in, lazy out: with an array in chunks nothing is computed; the result is fitted when it is
    computed, as one task (a fit needs the whole field), once for mean and standard deviation if
    these are computed together (``result.compute()``).
    """

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def smooth(
        self,
        kernels: Any = None,
        noise: Any = "learn",
        *,
        include_noise: bool = False,
        mask: Any = None,
        domain: Any = None,
        **options: Any,
    ) -> xr.Dataset:
        """Separate a field from its noise: posterior mean and standard deviation of each cell.

        Missing cells are given as well; ``fill`` leaves those empty that never hold a value.

        Parameters
        ----------
        kernels, noise
            As for ``GridGP``: by default everything is learnt from the field.
        include_noise : bool
            ``std`` of a new observation instead of the field.
        mask, domain
            As for ``GridGP.fit``: which values are used, where the result is given.
        **options
            Others of ``GridGP``: ``mean``, ``scales``, ``units``, ``learner``, ``random_state``, …

        Returns
        -------
        Dataset
            ``mean`` and ``std`` on the field's grid, in its unit, order of dims and chunks. Of a
            Dataset: ``{variable}_mean`` and ``{variable}_std`` for each field, and the variables
            that are none.

        Raises
        ------
        DataError, ParameterError
            As ``GridGP`` and its ``fit``. Of a lazy field, what concerns its values is raised when
            it is computed.
        MemoryLimitError
            If a lazy field does not fit into memory.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> rng = np.random.default_rng(0)
        >>> x = np.linspace(0, 6, 40)
        >>> truth = xr.DataArray(np.outer(np.sin(x), np.cos(x)), {"lat": x, "lon": x})
        >>> noisy = truth + 0.1 * rng.standard_normal(truth.shape)
        >>> smooth = noisy.dsgp.smooth()
        >>> bool(((smooth["mean"] - truth) ** 2).mean() < 0.2 * 0.1**2)
        True
        """
        asked = {"kernels": kernels, "noise": noise, **_known(options, "smooth")}
        return self._answer(_Request(asked, include_noise, mask, domain))

    def fill(
        self,
        kernels: Any = None,
        noise: Any = "learn",
        *,
        include_noise: bool = False,
        mask: Any = None,
        domain: Any = "auto",
        keep_observed: bool = False,
        **options: Any,
    ) -> xr.Dataset:
        """Fill the gaps of a field.

        Parameters
        ----------
        kernels, noise, include_noise, mask, **options
            As for ``smooth``.
        domain : "auto", "observed", None, or DataArray of bool
            Where the result is given. "observed" leaves cells empty that are never observed along
            the dims of times (land); None gives all; "auto" is "observed" where there is a dim of
            times, and None elsewhere.
        keep_observed : bool
            ``mean`` holds the observed value where there is one, and ``std`` there the standard
            deviation of the noise: that of the observation's error.

        Returns
        -------
        Dataset
            As of ``smooth``.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``smooth``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> days = xr.date_range("2024-01-01", periods=30)
        >>> x = np.linspace(0, 6, 20)
        >>> sst = xr.DataArray(
        ...     np.sin(x + np.arange(30)[:, None] / 9), {"time": days, "lon": x})
        >>> sst = sst.where((sst.time != days[7]) & (sst.lon != x[3]))  # a day; and land
        >>> filled = sst.dsgp.fill()
        >>> int(filled["mean"].isnull().sum())  # the land
        30
        """
        asked = {"kernels": kernels, "noise": noise, **_known(options, "fill")}
        return self._answer(_Request(asked, include_noise, mask, domain, keep_observed))

    def interp(
        self,
        coords: Mapping[str, Any] | None = None,
        *,
        kernels: Any = None,
        noise: Any = "learn",
        include_noise: bool = False,
        mask: Any = None,
        **coords_kwargs: Any,
    ) -> xr.Dataset:
        """Predict a field on another grid: ``da.dsgp.interp(lat=..., lon=...)``.

        Parameters
        ----------
        coords : mapping of dim to array_like or scalar, optional
            In any order, also outside the field. A scalar drops the dim; dims that are not named
            keep the field's coordinates.
        kernels, noise, include_noise, mask
            As for ``smooth``.
        **coords_kwargs
            Coordinates by name of the dim, and further options as of ``smooth``.

        Returns
        -------
        Dataset
            ``mean`` and ``std``; of a Dataset as ``smooth`` returns it.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``smooth``; and if a coordinate is of another kind, or is given along another dim.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> x = np.linspace(0, 6, 30)
        >>> coarse = xr.DataArray(np.sin(x), {"x": x})
        >>> fine = coarse.dsgp.interp(x=np.linspace(0, 6, 101))
        >>> bool(abs(fine["mean"] - np.sin(fine.x)).max() < 0.01)
        True
        """
        dims = {str(dim) for dim in self._obj.dims}
        named = {name: value for name, value in coords_kwargs.items() if name in dims}
        others = {name: value for name, value in coords_kwargs.items() if name not in dims}
        where = {**(coords or {}), **named}
        asked = {"kernels": kernels, "noise": noise, **_known(others, "interp", dims)}
        check_dims(where, sorted(dims), "interp")
        for dim, value in where.items():
            if isinstance(value, xr.DataArray) and value.dims not in ((dim,), ()):
                raise ParameterError(
                    f"interp: expected the coordinates of {dim!r} as one list, got a DataArray "
                    f"along {value.dims}; the result is a grid: pass {dim}=....values and select "
                    "points from it by sel()"
                )
        self._require_kinds(where)
        return self._answer(_Request(asked, include_noise, mask, coords=where))

    def _require_kinds(self, where: Mapping[str, Any]) -> None:
        """Raise at coordinates that cannot be used, before anything is learnt."""
        for dim, value in where.items():
            if dim in self._obj.coords:
                GridAxis.of(self._obj.coords[dim]).numbers(value)

    def _answer(self, request: _Request) -> xr.Dataset:
        raise NotImplementedError


@xr.register_dataarray_accessor("dsgp")
class DataArrayAccessor(_Accessor):
    """``da.dsgp``: posterior of a field under a Gaussian process; see its methods.

    Registered by ``import dsgp``.

    Examples
    --------
    >>> import xarray as xr, dsgp
    >>> [name for name in dir(xr.DataArray([1.0]).dsgp) if not name.startswith("_")]
    ['fill', 'interp', 'smooth']
    """

    def _answer(self, request: _Request) -> xr.Dataset:
        da: xr.DataArray = self._obj
        return _lazy(da, request) if da.chunks is not None else _eager(da, request)


@xr.register_dataset_accessor("dsgp")
class DatasetAccessor(_Accessor):
    """``ds.dsgp``: as of a DataArray, for every variable that is a field; see ``smooth``.

    A field holds numbers and has coordinates for all of its dims. Other variables are carried
    along, with a ``DataWarning`` unless others name them as their bounds or the like. Options that
    name dims (``kernels``, ``units``, coordinates) apply to the fields that have these.
    """

    def _answer(self, request: _Request) -> xr.Dataset:
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


# ---------------------------------------------------------------------- options and variables


def _known(options: Mapping[str, Any], method: str, dims: set[str] | None = None) -> dict[str, Any]:
    """Return options, all of which ``GridGP`` has."""
    names = [*inspect.signature(dsgp.GridGP).parameters]
    for name in options:
        if name not in names:
            among = names if dims is None else [*sorted(dims), *names]
            close = difflib.get_close_matches(name, among, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            kind = "an option" if dims is None else f"one of the dims {sorted(dims)}, or an option"
            raise ParameterError(
                f"{method}: {name!r} is not {kind}; options are {', '.join(names)}{hint}"
            )
    return dict(options)


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


def _restricted(request: _Request, dims: set[str], ds: xr.Dataset) -> _Request:
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


# ---------------------------------------------------------------------- at once


def _eager(da: xr.DataArray, request: _Request) -> xr.Dataset:
    model = dsgp.GridGP(**request.options)
    domain = request.domain
    # Without a dim of times, "observed" leaves out no cell.
    auto = isinstance(domain, str) and domain == "auto"
    model.fit(da, mask=request.mask, domain="observed" if auto else domain)
    if request.coords is not None:
        return model.predict(include_noise=request.include_noise, **request.coords)
    result = model.posterior(include_noise=request.include_noise)
    if request.keep_observed:
        return with_observed(result, da, model, request.mask, request.include_noise)
    return result


def with_observed(
    result: xr.Dataset, da: xr.DataArray, model: dsgp.GridGP, mask: Any, include_noise: bool
) -> xr.Dataset:
    """Put the observed values of a field into its posterior, with the deviation of their errors."""
    field = Field.of(da, mask=mask, units=model.units)
    given = model.noise
    noise = (
        field.align(given, "noise") if isinstance(given, xr.DataArray) else model.noise_variance_
    )
    # A new observation beside the one kept has an error of its own.
    deviation = np.sqrt((2 if include_noise else 1) * np.asarray(noise))
    values = field.restore(field.values).values
    deviations = field.restore(np.broadcast_to(deviation, field.shape)).values
    seen = ~np.isnan(values) & result["mean"].notnull().values
    for name, kept in (("mean", values), ("std", deviations)):
        result[name] = result[name].copy(data=np.where(seen, kept, result[name].values))
    return result


# ---------------------------------------------------------------------- lazily


def _lazy(da: xr.DataArray, request: _Request) -> xr.Dataset:
    """Make a task of the fit, and give its result the layout of the field."""
    if da.dtype.kind not in "iuf":
        Field.of(da.isel(dict.fromkeys(da.dims, slice(0))))  # raises and names the remedy
    layout = _layout(da, request.options.get("units"))
    _check_kernels(request.options["kernels"], layout)
    if not _on_cluster():  # whose workers may have more memory, or less: they check again
        memory.require(
            f"a field of {da.size} cells",
            _BYTES * da.size,
            "write it to a zarr store and run `dsgp smooth IN.zarr --out OUT.zarr`, which works "
            "through it in pieces; or take a part, or every other cell, by da.isel(...)",
        )
    coords = dict(request.coords or {})
    shape = [
        np.size(coords[axis.name]) if axis.name in coords else len(axis) for axis in layout.axes
    ]
    flips = tuple(
        slice(None, None, -1 if axis.descending and axis.name not in coords else None)
        for axis in layout.axes
    )
    given = {"mask": request.mask, "domain": request.domain} | {
        name: request.options.get(name) for name in ("noise", "mean")
    }
    beside = {name: one for name, one in given.items() if isinstance(one, xr.DataArray)}
    for name, one in beside.items():
        layout.align(_hollow(one), name)  # raises if it does not fit
    asked = request.with_arrays(dict.fromkeys(beside))
    frames = {name: _Frame.of(one) for name, one in beside.items()}
    task = _Task(_Frame.of(da), frames, asked, shape, flips)
    named = [
        xr.Variable([f"{number} {dim}" for dim in one.dims], _in_one_chunk(one).data)
        for number, one in enumerate([da, *beside.values()])
    ]
    out = [f"out {axis.name}" for axis in layout.axes]
    both = xr.apply_ufunc(
        task,
        *named,
        input_core_dims=[one.dims for one in named],
        output_core_dims=[["moment", *out]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={
            "output_sizes": {"moment": 2, **dict(zip(out, shape, strict=True))},
        },
    ).data
    model = dsgp.GridGP()
    model.field_ = layout
    return model._dataset(both[0], both[1], coords)


@dataclass(frozen=True)
class _Frame:
    """A DataArray without its values: what a fit needs beside them, and little to send."""

    dims: tuple[Hashable, ...]
    coords: dict[Hashable, xr.Variable]
    name: Hashable
    attrs: dict[Any, Any]

    @classmethod
    def of(cls, da: xr.DataArray) -> _Frame:
        coords = {dim: da.coords[dim].variable for dim in da.dims if dim in da.coords}
        return cls(da.dims, coords, da.name, da.attrs)

    def filled(self, values: Any) -> xr.DataArray:
        return xr.DataArray(values, self.coords, self.dims, self.name, self.attrs)


@dataclass(frozen=True)
class _Task:
    """The fit of a field whose values come later; travels to workers.

    Attributes
    ----------
    frame : _Frame
    beside : dict of str to _Frame
        Of the arrays that go with it: "mask", "domain", "noise", "mean".
    request : _Request
        Without these.
    shape : list of int
        Of the result, one long along dims that are dropped.
    flips : tuple of slice
        To ascending axes.
    """

    frame: _Frame
    beside: dict[str, _Frame]
    request: _Request
    shape: list[int]
    flips: tuple[slice, ...]

    def __call__(self, values: Any, *others: Any) -> Floats:
        """Return mean and standard deviation, (2, …), along ascending axes."""
        pairs = zip(self.beside.items(), others, strict=True)
        given = {name: frame.filled(own) for (name, frame), own in pairs}
        request = self.request.with_arrays(given)
        result = _eager(self.frame.filled(values), request)
        both = np.stack([result["mean"].values, result["std"].values])
        return both.reshape(2, *self.shape)[(slice(None), *self.flips)]


def _layout(da: xr.DataArray, units: Mapping[str, str] | None) -> Field:
    """Return a field without values."""
    axes = axes_of(da, units)
    empty = np.broadcast_to(np.float64(np.nan), da.shape)
    return Field(axes, empty, None, None, da.copy(deep=False, data=empty), dict(da.chunksizes))


def _in_one_chunk(da: xr.DataArray) -> xr.DataArray:
    return da if da.chunks is None else da.chunk(dict.fromkeys(da.dims, -1))


def _check_kernels(given: Any, layout: Field) -> None:
    """Raise if kernels name another dim; whatever else is wrong with them, the fit tells."""
    for mapping in given if isinstance(given, (list, tuple)) else [given]:
        if isinstance(mapping, Mapping):
            check_dims(mapping, layout.axes, "kernels")


def _hollow(da: xr.DataArray) -> xr.DataArray:
    return da.copy(deep=False, data=np.broadcast_to(np.zeros((), da.dtype), da.shape))


def _on_cluster() -> bool:
    return import_module("dsgp.compute").active_client() is not None
