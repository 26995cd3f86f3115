"""A field as plain arrays and JSON, for ``storage``, and back: values, axes, the user's layout."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import DataWarning
from dsgp.grid.axes import GridAxis
from dsgp.grid.coordinates import is_cftime
from dsgp.grid.field import Field


def pack(field: Field) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert a field to arrays and JSON.

    Parameters
    ----------
    field : Field

    Returns
    -------
    settings : dict
        Axes, names, attributes, chunks, as JSON can hold them. Arrays among the attributes become
        lists; of the encoding, only numbers and text are kept (compressor objects are not).
    tree : dict
        Names to arrays, or to further dicts.

    Warns
    -----
    DataWarning
        If a coordinate holds other objects than text and dates; it is left out.
    """
    kept: dict[str, Any] = {}
    coords: dict[str, NDArray[Any]] = {}
    for name, coordinate in field.template.coords.items():
        plain = _pack_coordinate(coordinate)
        if plain is None:
            warnings.warn(
                f"coordinate {name!r} of type {coordinate.dtype} is not saved with the field; "
                "numbers, text and dates are",
                DataWarning,
                stacklevel=2,
            )
            continue
        settings, array = plain
        label = f"coordinate_{len(kept)}"  # names can hold anything, but a path in zarr cannot
        kept[label] = {"name": name, **settings}
        if array is not None:
            coords[label] = array
    tree: dict[str, Any] = {"values": field.values, "coords": coords}
    tree["points"] = {str(d): axis.points for d, axis in enumerate(field.axes)}
    tree |= {
        name: array
        for name, array in (("observed", field.observed), ("domain", field.domain))
        if array is not None
    }
    template = field.template
    return {
        "axes": [axis.settings() for axis in field.axes],
        "coords": kept,
        "name": _json(template.name),
        "attrs": _json(template.attrs),
        "encoding": {
            str(key): str(value) if key == "dtype" else _json(value)
            for key, value in template.encoding.items()
            if key == "dtype" or isinstance(value, (int, float, str, bool, tuple, np.generic))
        },
        "chunks": {str(dim): list(sizes) for dim, sizes in field.chunks.items()},
        "left_out": dict(field.left_out),
    }, tree


def unpack(settings: Mapping[str, Any], tree: Mapping[str, Any]) -> Field:
    """Rebuild a field from what ``pack`` returned."""
    axes = tuple(
        GridAxis.from_settings(axis, tree["points"][str(d)])
        for d, axis in enumerate(settings["axes"])
    )
    arrays = tree.get("coords", {})
    coords = {
        entry["name"]: _unpack_coordinate(entry, arrays.get(label))
        for label, entry in settings["coords"].items()
    }
    template = xr.DataArray(
        np.broadcast_to(np.float64(np.nan), [axis.n_outer for axis in axes]),
        dims=[axis.name for axis in axes],
        coords=coords,
        name=settings["name"],
        attrs=settings["attrs"],
    )
    # JSON only has lists; a backend needs sizes of chunks as a tuple.
    template.encoding = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in settings["encoding"].items()
    }
    if "dtype" in template.encoding:
        template.encoding["dtype"] = np.dtype(template.encoding["dtype"])
    return Field(
        axes,
        tree["values"],
        tree.get("observed"),
        tree.get("domain"),
        template,
        {dim: tuple(sizes) for dim, sizes in settings["chunks"].items()},
        settings.get("left_out", {}),  # stores of earlier versions lack it
    )


def _pack_coordinate(
    coordinate: xr.DataArray,
) -> tuple[dict[str, Any], NDArray[Any] | None] | None:
    """Return settings and numbers of a coordinate; None if it is none of the kinds stored."""
    values = coordinate.values
    settings: dict[str, Any] = {
        "dims": list(map(str, coordinate.dims)),
        "attrs": _json(coordinate.attrs),
        "dtype": values.dtype.str,
    }
    if values.dtype.kind in "biuf":
        return settings, values
    if values.dtype.kind in "mM":
        return settings, np.asarray(values.view(np.int64))
    flat = values.ravel().tolist()
    if all(isinstance(value, str) for value in flat):
        return settings | {"text": values.tolist()}, None
    if flat and all(is_cftime(value) for value in flat):
        # Counted from one of them, with whose calendar and year zero xarray makes them again.
        zero = flat[0]
        count = [_microseconds(value - zero) for value in flat]
        cftime = {
            "calendar": zero.calendar,
            "units": f"microseconds since {zero.strftime('%Y-%m-%d %H:%M:%S')}"
            f".{zero.microsecond:06d}",
        }
        return settings | {"cftime": cftime}, np.array(count, np.int64).reshape(values.shape)
    return None


def _microseconds(delta: Any) -> int:
    return int((delta.days * 86400 + delta.seconds) * 10**6 + delta.microseconds)


def _unpack_coordinate(entry: Mapping[str, Any], array: NDArray[Any] | None) -> xr.Variable:
    dims, attrs = entry["dims"], entry["attrs"]
    if array is None:
        return xr.Variable(dims, np.array(entry["text"], dtype=entry["dtype"]), attrs)
    if "cftime" in entry:
        coded = xr.Dataset({"x": xr.Variable(dims, array, entry["cftime"])})
        coder = xr.coders.CFDatetimeCoder(use_cftime=True)
        dates = xr.decode_cf(coded, decode_times=coder)["x"].variable
        return xr.Variable(dims, dates.values, attrs)
    kind = np.dtype(entry["dtype"])
    values = array.view(kind.newbyteorder("=")) if kind.kind in "mM" else array
    return xr.Variable(dims, values, attrs)


def _json(value: Any) -> Any:
    """Convert attributes to values of JSON; those without such a form become text."""
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, np.generic):
        return _json(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no NaN
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
