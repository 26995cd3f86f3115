"""Posteriors of fields in files of their own, as the field is stored: names, types, compression."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import typer
import xarray as xr

from dsgp.addresses import without_secrets
from dsgp.cli.fields import is_netcdf
from dsgp.errors import StorageError
from dsgp.grid.outputs import Labels

# What a coordinate is stored as; the rest of an encoding is of one file format.
_OF_COORDINATES = ("units", "calendar", "dtype", "scale_factor", "add_offset")
_COMPRESSION = ("zlib", "complevel", "shuffle", "fletcher32", "compression", "blosc_shuffle")


def command_line(context: typer.Context) -> str:
    """Return the command as it could have been typed, with the options that were."""
    words: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params.get(name)
        values = value if isinstance(value, (list, tuple)) else [value]
        if name == "storage_option":  # what gives access
            values = [f"{str(one).partition('=')[0]}=…" for one in values or ()]
        if parameter.param_type_name == "argument":
            words += [without_secrets(str(one)) for one in values]
        elif str(context.get_parameter_source(name)).endswith("COMMANDLINE"):
            for one in values:
                options += [parameter.opts[0]] + (
                    [] if isinstance(one, bool) else [without_secrets(str(one))]
                )
    return f"{context.command_path} {shlex.join([*words, *options])}"


def write(
    result: xr.Dataset, source: xr.Dataset, variable: str, path: Path, labels: Labels
) -> None:
    """Write a posterior, with what describes the coordinates of the source.

    Parameters
    ----------
    result : Dataset of ``mean`` and ``std``, with or without ``quantiles``
    source : Dataset
        Whose global attributes, bounds and grid mapping go along.
    variable : str
        The field in it, whose attributes, type, chunks and compression the result has.
    path : Path
        A folder or file to write, by its extension.
    labels : Labels
    """
    netcdf = is_netcdf(path)
    field = source[variable]
    stored = _encoding_of(field, netcdf)
    names = {"mean": labels.mean, "std": labels.std, "quantiles": labels.quantiles}
    named = result.rename({old: new for old, new in names.items() if old in result})
    named[labels.mean].attrs = labels.of_mean(result["mean"].attrs)
    named[labels.std].attrs = labels.of_std(field.attrs, variable)
    if labels.quantiles in named:
        named[labels.quantiles].attrs = labels.of_quantiles(field.attrs, variable)
    described = _with_descriptions(named, source, field)
    encoding: dict[Any, dict[str, Any]] = {
        name: _of_coordinate(one, netcdf) if name in described.coords else stored
        for name, one in described.variables.items()
    }
    if labels.quantiles in encoding:  # a dim more
        kept = ((key, value) for key, value in stored.items() if not key.startswith("chunk"))
        encoding[labels.quantiles] = dict(kept)
    plain = described.drop_encoding()
    plain.attrs = labels.of_file(source.attrs, named.data_vars)
    with warnings.catch_warnings():  # of zarr, that its third format has no such metadata yet
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        try:
            if netcdf:
                plain.to_netcdf(path, encoding=encoding)
            else:
                plain.to_zarr(path, mode="w", zarr_format=3, consolidated=True, encoding=encoding)
        # Of what the formats cannot hold, such as attributes that are objects.
        except (TypeError, ValueError) as error:
            raise StorageError(f"cannot write {path.name!r}: {error}") from error


def _with_descriptions(named: xr.Dataset, source: xr.Dataset, field: xr.DataArray) -> xr.Dataset:
    """Add bounds and grid mapping of the source, and the attributes that name them."""
    bounds = {
        name: str(_said(source[name], "bounds"))
        for name in named.coords
        if name in source.variables and _said(source[name], "bounds") in source.variables
    }
    mapping = _said(field, "grid_mapping")
    wanted = {*bounds.values(), *([mapping] if mapping in source.variables else [])}
    described = named.assign_coords({name: source[name].variable for name in wanted})
    for name, of in bounds.items():
        described[name].attrs["bounds"] = of
    if mapping in described.coords:
        for name in named.data_vars:
            described[name].attrs["grid_mapping"] = mapping
    return described


def _said(da: xr.DataArray, key: str) -> Any:
    return da.attrs.get(key, da.encoding.get(key))


def _of_coordinate(variable: xr.Variable, netcdf: bool) -> dict[str, Any]:
    kept = {key: variable.encoding[key] for key in _OF_COORDINATES if key in variable.encoding}
    dtype = np.dtype(kept.get("dtype", variable.dtype))
    if dtype.kind == "f" and dtype.itemsize < 4 and netcdf:
        kept["dtype"] = "float32"  # netCDF has no halves
    elif "dtype" in kept and dtype.kind in "iuf":
        kept["dtype"] = dtype.newbyteorder("=")
    return kept | ({"_FillValue": None} if variable.dtype.kind == "f" else {})


def type_of(field: xr.DataArray) -> str:
    """Return the type of floats that has the digits of a field as it is stored."""
    stored = np.dtype(field.encoding.get("dtype", field.dtype))
    narrow = stored.itemsize <= (4 if stored.kind == "f" else 2)
    return "float32" if narrow else "float64"


def _encoding_of(field: xr.DataArray, netcdf: bool) -> dict[str, Any]:
    """Return type, chunks and compression of the source, in the words of the format."""
    encoding: Mapping[Any, Any] = field.encoding
    made: dict[str, Any] = {"dtype": type_of(field), "_FillValue": np.nan}
    chunks = encoding.get("chunks") or encoding.get("chunksizes")
    if chunks and len(chunks) == field.ndim:
        made["chunksizes" if netcdf else "chunks"] = tuple(
            min(int(chunk), n) for chunk, n in zip(chunks, field.shape, strict=True)
        )
    if netcdf:
        made |= {key: encoding[key] for key in _COMPRESSION if encoding.get(key) is not None}
        if encoding.get("compressors") or encoding.get("compressor"):
            made |= {"zlib": True, "complevel": 4, "shuffle": True}
    return made  # zarr compresses as it does by default
