"""The store of the result: made with the source's coordinates, checked, and moved into place."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import ZstdCodec

from dsgp.errors import StorageError
from dsgp.grid.coded import FILLS, PACKING, RANGES
from dsgp.grid.marks import mark, require_replaceable
from dsgp.grid.passes.plan import MEAN, VARIANCE, Plan
from dsgp.grid.passes.source import StoredField
from dsgp.grid.passes.tasks import OUTPUTS
from dsgp.places import move_into_place, require_apart

# Of the values as they were stored: no longer true.
_NOT_KEPT = {"actual_range", *RANGES, *FILLS, *PACKING}


def create(path: Path, source: StoredField, plan: Plan) -> None:
    """Write everything but the values: coordinates and attributes of the source, empty arrays."""
    # Coordinates are copied as they are stored, whatever their calendar.
    with source.open(mask_and_scale=False, decode_coords="all") as raw:
        variable = raw[source.variable]
        grid_mapping = variable.encoding.get("grid_mapping")
        coordinates = xr.Dataset(coords=variable.coords, attrs=raw.attrs).drop_encoding().load()
    for one in coordinates.variables.values():
        if "_FillValue" not in one.attrs:
            one.encoding["_FillValue"] = None  # xarray would add one
    coordinates.attrs |= mark(OUTPUTS.values())
    with source.open() as dataset:
        attributes = {
            name: _plain(value)
            for name, value in dataset.variables[source.variable].attrs.items()
            if name not in _NOT_KEPT | {"coordinates"}
        }
    if grid_mapping:
        attributes["grid_mapping"] = grid_mapping
    coordinates.to_zarr(path, mode="w", zarr_format=3, consolidated=False)
    group = zarr.open_group(str(path), mode="r+")
    for chain, name in OUTPUTS.items():
        group.create_array(
            name,
            shape=plan.shape,
            chunks=plan.output_chunks,
            dtype=plan.dtype,
            compressors=ZstdCodec(level=1, checksum=True),
            fill_value=np.nan,
            dimension_names=source.layout.dims,
            attributes=attributes if chain == MEAN else _of_std(attributes, source.variable),
        )
    with warnings.catch_warnings():  # of zarr, that its third format does not have it yet
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(str(path))  # xarray warns where it is not


def _of_std(attributes: dict[str, Any], variable: str) -> dict[str, Any]:
    kept = {name: value for name, value in attributes.items() if name != "standard_name"}
    kept["long_name"] = f"standard deviation of {attributes.get('long_name', variable)}"
    return kept


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def incomplete(path: Path) -> list[str]:
    """Return the chains of whose result a chunk is not there."""
    group = zarr.open_group(str(path), mode="r")
    arrays: dict[str, Any] = {chain: group[OUTPUTS[chain]] for chain in (MEAN, VARIANCE)}
    return [name for name, one in arrays.items() if one.nchunks_initialized != one.nchunks]


def check_free(out: Path, folder: Path, source: str | Path, overwrite: bool) -> None:
    """Raise ``StorageError`` if the result, or what lies between passes, could not be put there."""
    for place in (out, folder):
        require_apart(place, [source], "out")
    if not out.parent.is_dir():
        raise StorageError(f"cannot write {str(out)!r}: there is no folder {str(out.parent)!r}")
    require_replaceable(out, overwrite, "overwrite=True")


def install(result: Path, out: Path) -> None:
    """Move the result into place; what was there goes."""
    replaced = result.with_name("replaced")
    try:
        move_into_place(result, out, replaced)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
