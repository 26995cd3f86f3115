"""Attributes and encodings that are true of a result: what may stay of those of the field."""

from __future__ import annotations

import warnings
from collections.abc import Container, Hashable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import xarray as xr

from dsgp.errors import DataWarning
from dsgp.grid.coded import FILLS, PACKING, RANGES
from dsgp.grid.variables import DESCRIPTIONS

# Statements on the values, which another field of the same units need not obey.
_OF_VALUES = {"actual_range", *RANGES, *FILLS, *PACKING}
# Encodings that round numbers: wrong for a mean, and more so for a standard deviation. So are those
# that pack them. The rest (compression, chunks of the store) suits any field of that shape.
_ROUNDING = ("least_significant_digit", "significant_digits", "quantize_mode")
# These suit one type of numbers only.
_OF_DTYPE = ("dtype", *FILLS)
# Codecs of one version of zarr, which the other cannot write; and filters may round.
_CODECS = ("compressor", "compressors", "filters", "serializer")
# How an array is cut on disk.
_CUTS = ("chunks", "shards", "preferred_chunks", "chunksizes")
# Of the observations, not of what is made of them.
_OF_OBSERVATIONS = ("ancillary_variables",)


def kept_attributes(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return attributes of a field that hold for its mean."""
    return {key: value for key, value in attrs.items() if key not in _OF_VALUES}


def kept_encoding(encoding: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what suits floats of the same shape, neither packed nor rounded to halves."""
    stored = np.dtype(encoding["dtype"]) if "dtype" in encoding else None
    packed = any(key in encoding for key in PACKING)
    drop: tuple[str, ...] = PACKING + _ROUNDING + _CODECS + RANGES
    if packed or (stored is not None and stored.kind != "f"):
        drop += _OF_DTYPE
    kept = {key: value for key, value in encoding.items() if key not in drop}
    if "dtype" in kept and stored is not None:
        # Halves hold three digits, and netCDF has none.
        kept["dtype"] = np.dtype("f4") if stored.itemsize < 4 else stored.newbyteorder("=")
        if stored.itemsize < 4:
            kept = {key: value for key, value in kept.items() if key not in FILLS}
    return kept


def tidied(out: xr.DataArray) -> xr.DataArray:
    """Return a result whose metadata, and that of its coordinates, is true of it.

    No attribute names a variable that is not there, and no chunks of a store are kept that those
    of dask do not fit: xarray would refuse to write them.
    """
    present = set(out.coords)
    _tidy(out.variable, present, _OF_OBSERVATIONS)
    changed = {}
    for name, coordinate in out.coords.items():
        variable = coordinate.variable.copy(deep=False)
        before = variable.attrs, variable.encoding
        _tidy(variable, present)
        if (variable.attrs, variable.encoding) != before:
            changed[name] = variable
    return out.assign_coords(changed) if changed else out


def together(results: Mapping[str, xr.DataArray]) -> xr.Dataset:
    """Make a Dataset of results of one field; coordinates with their names have no place in it."""
    coords = next(iter(results.values())).coords
    taken = [name for name in results if name in coords]
    if taken:
        warnings.warn(
            f"coordinates {', '.join(map(repr, taken))} are left out, as the results have these "
            f"names; to keep them, rename them first: da.rename({taken[0]}=...)",
            DataWarning,
            stacklevel=4,
        )
    return xr.Dataset({name: one.drop_vars(taken) for name, one in results.items()})


def restored_links(
    attrs: Mapping[Any, Any], source: xr.Variable, present: Container[Hashable]
) -> dict[Any, Any]:
    """Return attributes with those of the source that name variables which are there again."""
    links = {
        key: value
        for of in (source.encoding, source.attrs)
        for key, value in of.items()
        if key in DESCRIPTIONS
        and key not in (*_OF_OBSERVATIONS, "coordinates")
        and _names(value, present)
    }
    return links | dict(attrs)


def _tidy(variable: xr.Variable, present: Container[Hashable], never: tuple[str, ...] = ()) -> None:
    """Replace attributes and encoding of a variable by what may stay of them."""

    def stays(key: Any, value: Any) -> bool:
        return key not in DESCRIPTIONS or (key not in never and _names(value, present))

    variable.attrs = {key: value for key, value in variable.attrs.items() if stays(key, value)}
    encoding = {key: value for key, value in variable.encoding.items() if stays(key, value)}
    encoding = {key: value for key, value in encoding.items() if key not in _CODECS}
    if variable.chunks is not None and not _fit(variable.chunks, encoding):
        encoding = {key: value for key, value in encoding.items() if key not in _CUTS}
    variable.encoding = encoding


def _names(value: Any, present: Container[Hashable]) -> bool:
    """Whether an attribute such as "area: cell_area" names only variables that are there."""
    return all(name in present for name in str(value).split() if not name.endswith(":"))


def _fit(chunks: tuple[tuple[int, ...], ...], encoding: Mapping[Any, Any]) -> bool:
    """Whether no chunk on disk, or shard, is in two of dask's."""
    for key in ("chunks", "shards"):
        sizes = encoding.get(key)
        if sizes is None:
            continue
        if len(sizes) != len(chunks):
            return False
        for size, lengths in zip(sizes, chunks, strict=True):
            if any(end % int(size) for end in accumulate(lengths[:-1])):
                return False
    return True
