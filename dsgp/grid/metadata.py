"""Attributes and encodings of a field that also hold for a result."""

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

# Attributes about the values, which may not hold for another field of the same units.
_OF_VALUES = {"actual_range", *RANGES, *FILLS, *PACKING}
# Encodings that round numbers are wrong for a mean, and more so for a standard deviation; so are
# those that pack them. All others (compression, chunks of the store) suit any field of that shape.
_ROUNDING = ("least_significant_digit", "significant_digits", "quantize_mode")
# These suit one type of numbers only.
_OF_DTYPE = ("dtype", *FILLS)
# Codecs of one version of zarr, which the other cannot write; filters may round.
_CODECS = ("compressor", "compressors", "filters", "serializer")
# How an array is cut on disk.
_CUTS = ("chunks", "shards", "preferred_chunks", "chunksizes")
# About the observations, not about results.
_OF_OBSERVATIONS = ("ancillary_variables",)


def kept_attributes(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return attributes of a field that hold for its mean."""
    return {key: value for key, value in attrs.items() if key not in _OF_VALUES}


def kept_encoding(encoding: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the encoding that suits floats of the same shape, neither packed nor rounded."""
    stored = np.dtype(encoding["dtype"]) if "dtype" in encoding else None
    packed = any(key in encoding for key in PACKING)
    drop: tuple[str, ...] = PACKING + _ROUNDING + _CODECS + RANGES
    if packed or (stored is not None and stored.kind != "f"):
        drop += _OF_DTYPE
    kept = {key: value for key, value in encoding.items() if key not in drop}
    if "dtype" in kept and stored is not None:
        # Half precision has three digits, and netCDF does not have it.
        kept["dtype"] = np.dtype("f4") if stored.itemsize < 4 else stored.newbyteorder("=")
        if stored.itemsize < 4:
            kept = {key: value for key, value in kept.items() if key not in FILLS}
    return kept


def tidied(out: xr.DataArray) -> xr.DataArray:
    """Return a result with only the metadata, also of its coordinates, that holds for it.

    No attribute names a variable that is absent, and chunks of a store are only kept if those of
    dask fit them: xarray would refuse to write others.
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
    """Make a Dataset of results of one field, without coordinates that have the same names."""
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
    """Return attributes, and those of the source that name variables which the result has."""
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
    """Remove attributes and encoding of a variable that do not hold for a result."""

    def stays(key: Any, value: Any) -> bool:
        return key not in DESCRIPTIONS or (key not in never and _names(value, present))

    variable.attrs = {key: value for key, value in variable.attrs.items() if stays(key, value)}
    encoding = {key: value for key, value in variable.encoding.items() if stays(key, value)}
    encoding = {key: value for key, value in encoding.items() if key not in _CODECS}
    if variable.chunks is not None and not _fit(variable.chunks, encoding):
        encoding = {key: value for key, value in encoding.items() if key not in _CUTS}
    variable.encoding = encoding


def _names(value: Any, present: Container[Hashable]) -> bool:
    """Whether an attribute such as "area: cell_area" names only variables that exist."""
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
