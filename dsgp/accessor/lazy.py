"""The fit of a field in chunks: one task, whose result has the layout of the field."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from dsgp import memory
from dsgp.accessor.at_once import at_once, layout_of
from dsgp.accessor.request import Request
from dsgp.clients import active_client
from dsgp.grid.axes import check_dims
from dsgp.grid.coded import FILLS, PACKING, RANGES
from dsgp.grid.coordinates import Floats
from dsgp.grid.field import Field
from dsgp.grid.metadata import together
from dsgp.grid.targets import Targets
from dsgp.transforms import description_of

# Bytes a cell that a fit takes at least; ``GridGP.fit`` asks for what gaps need beyond that.
_BYTES = 64
# Of an encoding, what marks missing values.
_OF_CODES = (*FILLS, *RANGES, *PACKING, "dtype")


def lazily(da: xr.DataArray, request: Request) -> xr.Dataset:
    """Make a task of the fit, and give its result the layout of the field."""
    if da.dtype.kind not in "iuf":
        Field.of(da.isel(dict.fromkeys(da.dims, slice(0))))  # raises and names the remedy
    layout = layout_of(da, request.options.get("units"))
    _check_kernels(request.options["kernels"], layout)
    if not _on_cluster():  # whose workers may have more memory, or less: they check again
        memory.require(
            f"a field of {da.size} cells",
            _BYTES * da.size,
            "write it to a zarr store and run `dsgp smooth IN.zarr --out OUT.zarr`, which "
            "processes it in pieces; or select a part, or every other cell, with da.isel(...)",
        )
    targets = Targets.of(layout.axes, request.coords or {})
    if not _on_cluster():
        targets.require_memory(layout.shape)
    options = {"mask": request.mask, "domain": request.domain} | {
        name: request.options.get(name) for name in ("noise_variance", "mean")
    }
    beside = {name: one for name, one in options.items() if isinstance(one, xr.DataArray)}
    for name, one in beside.items():
        layout.align(_hollow(one), name)  # raises if it does not fit
    asked = request.with_arrays(dict.fromkeys(beside))
    frames = {name: _Frame.of(one) for name, one in beside.items()}
    task = _Task(_Frame.of(da), frames, asked)
    named = [
        xr.Variable([f"{number} {dim}" for dim in one.dims], _in_one_chunk(one).data)
        for number, one in enumerate([da, *beside.values()])
    ]
    out = [f"out {dim}" for dim in targets.dims]
    both = xr.apply_ufunc(
        task,
        *named,
        input_core_dims=[one.dims for one in named],
        output_core_dims=[["moment", *out]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={
            "output_sizes": {
                "moment": 2 + len(request.quantiles),
                **dict(zip(out, targets.shape, strict=True)),
            },
        },
    ).data
    attrs = layout.template.attrs
    units = {key: value for key, value in attrs.items() if key == "units"}
    given_coords = request.coords is not None
    where = targets if given_coords else None
    made = {
        name: layout.placed(values, name, where, unit_attrs)
        for name, values, unit_attrs in (("mean", both[0], None), ("std", both[1], units))
    }
    if request.quantiles:
        along = layout.placed(both[2:], "quantiles", where, leading=("quantile",))
        made["quantiles"] = along.assign_coords(quantile=list(request.quantiles))
    if request.options.get("transform") is not None:  # its parameters are learned later
        for one in made.values():
            one.attrs["transform"] = description_of(request.options["transform"])
    return together(made)


@dataclass(frozen=True)
class _Frame:
    """A DataArray without its values: what a fit needs beside them, and little to send."""

    dims: tuple[Hashable, ...]
    coords: dict[Hashable, xr.Variable]
    name: Hashable
    attrs: dict[Any, Any]
    encoding: dict[Any, Any]

    @classmethod
    def of(cls, da: xr.DataArray) -> _Frame:
        coords = {dim: da.coords[dim].variable for dim in da.dims if dim in da.coords}
        encoding = {key: da.encoding[key] for key in _OF_CODES if key in da.encoding}
        return cls(da.dims, coords, da.name, da.attrs, encoding)

    def filled(self, values: Any) -> xr.DataArray:
        da = xr.DataArray(values, self.coords, self.dims, self.name, self.attrs)
        da.encoding = self.encoding
        return da


@dataclass(frozen=True)
class _Task:
    """The fit of a field whose values come later; travels to workers.

    Attributes
    ----------
    frame : _Frame
    beside : dict of str to _Frame
        Of the arrays that go with it: "mask", "domain", "noise_variance", "mean".
    request : Request
        Without these.
    """

    frame: _Frame
    beside: dict[str, _Frame]
    request: Request

    def __call__(self, values: Any, *others: Any) -> Floats:
        """Return mean, standard deviation and quantiles, (2 + k, …), in the result's layout."""
        pairs = zip(self.beside.items(), others, strict=True)
        arrays = {name: frame.filled(array) for (name, frame), array in pairs}
        request = self.request.with_arrays(arrays)
        result = at_once(self.frame.filled(values), request)
        quantiles = result["quantiles"].values if self.request.quantiles else ()
        return np.stack([result["mean"].values, result["std"].values, *quantiles])


def _in_one_chunk(da: xr.DataArray) -> xr.DataArray:
    return da if da.chunks is None else da.chunk(dict.fromkeys(da.dims, -1))


def _check_kernels(kernels: Any, layout: Field) -> None:
    """Raise if kernels name another dim; the fit checks everything else."""
    for mapping in kernels if isinstance(kernels, (list, tuple)) else [kernels]:
        if isinstance(mapping, Mapping):
            check_dims(mapping, layout.axes, "kernels")


def _hollow(da: xr.DataArray) -> xr.DataArray:
    return da.copy(deep=False, data=np.broadcast_to(np.zeros((), da.dtype), da.shape))


def _on_cluster() -> bool:
    return active_client() is not None
