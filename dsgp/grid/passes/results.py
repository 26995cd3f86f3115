"""The store of the result: made with the source's coordinates, checked, and moved into place."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import ZstdCodec

from dsgp.addresses import Place
from dsgp.grid.marks import require_replaceable
from dsgp.grid.outputs import Labels
from dsgp.grid.passes.plan import Plan
from dsgp.grid.passes.source import StoredField
from dsgp.grid.variables import DESCRIPTIONS
from dsgp.places import cannot_write, move_into_place, require_apart, require_folder


def create(path: Path, source: StoredField, plan: Plan, labels: Labels) -> None:
    """Write all but the values: coordinates and attributes of the source, and empty arrays."""
    # Coordinates are copied as they are stored, whatever their calendar.
    with source.open(mask_and_scale=False, decode_coords="all") as raw:
        variable = raw[source.variable]
        grid_mapping = variable.encoding.get("grid_mapping")
        coordinates = xr.Dataset(coords=variable.coords, attrs=raw.attrs).drop_encoding().load()
    for one in coordinates.variables.values():
        if "_FillValue" not in one.attrs:
            one.encoding["_FillValue"] = None  # xarray would add one
    labels.require_free(coordinates.variables)
    coordinates.attrs = labels.of_file(coordinates.attrs, (labels.mean, labels.std))
    with source.open() as dataset:
        attributes = {
            name: _plain(value)
            for name, value in dataset.variables[source.variable].attrs.items()
            if name not in DESCRIPTIONS
        }
    if grid_mapping in coordinates.variables:
        attributes["grid_mapping"] = grid_mapping
    outputs = {
        labels.mean: labels.of_mean(attributes),
        labels.std: labels.of_std(attributes, source.variable),
    }
    coordinates.to_zarr(path, mode="w", zarr_format=3, consolidated=False)
    group = zarr.open_group(str(path), mode="r+")
    for name, described in outputs.items():
        group.create_array(
            name,
            shape=plan.shape,
            chunks=plan.output_chunks,
            dtype=plan.dtype,
            compressors=ZstdCodec(level=1, checksum=True),
            fill_value=np.nan,
            dimension_names=source.layout.dims,
            attributes=described,
        )
    with warnings.catch_warnings():  # zarr warns that its third format does not have this yet
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(str(path))  # without this xarray would warn


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def incomplete(path: Path, names: Mapping[str, str]) -> list[str]:
    """Return the chains whose results lack a chunk."""
    group = zarr.open_group(str(path), mode="r")
    arrays: dict[str, Any] = {chain: group[name] for chain, name in names.items()}
    return [chain for chain, one in arrays.items() if one.nchunks_initialized != one.nchunks]


def check_free(out: Path, folder: Path, source: str | Place, overwrite: bool) -> None:
    """Raise ``StorageError`` if the result, or what lies between passes, could not be put there."""
    for place in (out, folder):
        require_apart(place, [source], "out")
    require_folder(out)
    require_replaceable(out, overwrite, "overwrite=True")


def install(result: Path, out: Path) -> None:
    """Move the result into place, and remove what was there."""
    replaced = result.with_name("replaced")
    try:
        move_into_place(result, out, replaced)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise cannot_write(out, error) from error
