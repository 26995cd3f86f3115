"""Files of fields, opened lazily: one or several, a group, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import xarray as xr

from dsgp.addresses import Place, exists, is_remote, local_copy, matches, name_of, zarr_options
from dsgp.errors import DataError
from dsgp.rows.sources import FILE_TYPES

NETCDF = (".nc", ".nc4", ".netcdf")
# What xarray says of them is that it cannot decode them; there are no equal months or years.
_UNEQUAL = {"months since": "MS", "month since": "MS", "years since": "YS", "year since": "YS"}


def expanded(places: Sequence[Place]) -> list[Place]:
    """Return the files that are meant, each once: patterns (``data/*.nc``) give those they fit."""
    files: list[Place] = []
    for place in places:
        is_pattern = has_magic(str(place) if isinstance(place, Path) else place.path)
        if exists(place):
            files.append(place)
            continue
        matching_files: list[Place] = []
        if is_pattern and isinstance(place, Path):
            matching_files = [Path(match) for match in sorted(glob(str(place)))]
        elif is_pattern and not isinstance(place, Path):
            matching_files = [*sorted(matches(place), key=str)]
        if not matching_files:
            what = "no file matches the pattern" if is_pattern else "there is no"
            raise DataError(f"{what} {str(place)!r}; check the path")
        files.extend(matching_files)
    return list(dict.fromkeys(files))


@contextmanager
def opened(places: Sequence[Place], group: str | None = None) -> Iterator[xr.Dataset]:
    """Open stores or files lazily: bounds and grid mappings become coordinates.

    Several are joined along the dims in whose coordinates they differ (times, as a rule); what does
    not vary along these is taken from the first. Files of netCDF at addresses are copied to a
    temporary folder first.
    """
    with ExitStack() as stack:
        parts = []
        for place in places:
            file = stack.enter_context(local_copy(place)) if _is_file(place) else place
            parts.append(stack.enter_context(_open(file, group, in_chunks=len(places) > 1)))
        yield parts[0] if len(parts) == 1 else _joined(parts, list(map(str, places)))


def _is_file(place: Place) -> bool:
    return is_remote(place) and name_of(place).lower().endswith(NETCDF)


def _open(place: Place, group: str | None, in_chunks: bool) -> xr.Dataset:
    path = str(place)
    options: dict[str, Any] = zarr_options(place) if is_remote(place) or place.is_dir() else {}
    if group is not None:
        options["group"] = group
    chunks: dict[str, Any] | None = {} if in_chunks else None
    try:
        return xr.open_dataset(path, chunks=chunks, decode_coords="all", **options)
    # Its engines raise many types; all mean the same here.
    except Exception as error:
        said = str(error)
        for unit, step in _UNEQUAL.items():
            if unit in said:
                raise DataError(
                    f"{path!r} counts its times in {unit.split()[0]}, which differ in length, and "
                    "xarray does not make dates of them. Write dates: ds = xarray.open_dataset("
                    f"{path!r}, decode_times=False); ds['time'] = xarray.date_range('1990-01-01', "
                    f"periods=ds.sizes['time'], freq={step!r}), with its own first date; "
                    "ds.to_netcdf(...)"
                ) from error
        if path.lower().endswith(FILE_TYPES):
            raise DataError(
                f"{path!r} is a table; expected a field, a zarr store or a netCDF file. dsgp fit "
                "takes tables; if the rows are cells of a grid, make a field of them: "
                "table.set_index(['time', 'lat', 'lon']).to_xarray().to_netcdf(...)"
            ) from error
        reason = said.partition("\n")[0].rstrip(".")
        remedy = "; files .nc need a reader: pip install netCDF4" if path.endswith(NETCDF) else ""
        if group is not None:
            remedy += f"; --group {group!r} must be one of its groups, which are paths such as a/b"
        raise DataError(
            f"xarray cannot read {path!r} ({reason}); expected a zarr store or a netCDF file"
            f"{remedy}"
        ) from error


def _joined(parts: Sequence[xr.Dataset], paths: Sequence[str]) -> xr.Dataset:
    try:
        joined = xr.combine_by_coords(
            parts,
            data_vars="minimal",
            coords="minimal",
            compat="override",
            join="exact",
            combine_attrs="override",
        )
    except (ValueError, TypeError, xr.MergeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise DataError(
            f"the {len(paths)} files, {paths[0]!r} to {paths[-1]!r}, do not join into one field "
            f"({reason}); expected the same variables and coordinates, except for one dim, such as "
            "time, along which they follow each other without overlap"
        ) from error
    assert isinstance(joined, xr.Dataset)
    return joined
