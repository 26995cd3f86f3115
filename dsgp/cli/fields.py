"""Fields in files: opening, choosing a variable, and writing mean and std aside into place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from dsgp.addresses import Place, require_writable
from dsgp.cli.sources import NETCDF
from dsgp.errors import DataError, ParameterError
from dsgp.grid.axes import why_no_field
from dsgp.grid.marks import require_replaceable
from dsgp.grid.variables import described, is_category, is_flag, is_placed
from dsgp.places import made_aside, require_folder

_SIZES = {"": 1} | {
    f"{prefix}{unit}": (1000 if unit == "b" else 1024) ** power
    for power, prefix in enumerate(("", "k", "m", "g", "t"))
    for unit in (("b", "ib") if prefix else ("b",))
}


def bytes_of(text: str) -> float:
    """Read a size such as 1GiB, 500MB or 2e9."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        size = float(match[1]) * _SIZES[match[2]] if match else 0.0
    except (KeyError, ValueError):
        size = 0.0
    if not 0 < size < float("inf"):
        raise ParameterError(f"--memory must be a size such as 1GiB, 500MB or 2e9, got {text!r}")
    return size


def chosen(dataset: xr.Dataset, variable: str | None, path: str, option: str = "--variable") -> str:
    """Return the variable that is meant by an option, or the only one that can be."""
    suited = _suited(dataset)
    if variable is None:
        if len(suited) == 1:
            return suited[0]
        if not suited:
            raise DataError(
                f"{path!r} has no variable of numbers with a coordinate along each dim; it has "
                f"{_listed(dataset)}{why_no_field(dataset)}"
            )
        raise DataError(
            f"{path!r} has {len(suited)} variables to choose from; name one: {option} "
            + " | ".join(suited)
        )
    if variable not in dataset.data_vars:
        raise DataError(f"{path!r} has no variable {variable!r}; it has {_listed(dataset)}")
    return variable


def _suited(dataset: xr.Dataset) -> list[str]:
    """Return names of the fields; if there are none, those of variables that could be one."""
    aside = described(dataset)
    placed = [name for name in dataset.data_vars if is_placed(dataset, name)]
    quantities = [n for n in placed if n not in aside and not is_flag(dataset[n])] or placed
    fields = [name for name in quantities if not is_category(dataset[name])] or quantities
    return sorted(map(str, fields))  # a store lists its arrays in any order


def _listed(dataset: xr.Dataset) -> str:
    dims_by_name = {str(name): tuple(map(str, da.dims)) for name, da in dataset.data_vars.items()}
    return ", ".join(f"{name!r} {dims}" for name, dims in sorted(dims_by_name.items())) or "none"


def companion(dataset: xr.Dataset, name: str, option: str) -> xr.DataArray:
    """Return a variable that goes with the field."""
    if name not in dataset.variables:
        raise ParameterError(
            f"{option}: the file has no variable {name!r}; it has {_listed(dataset)}"
        )
    return loaded(dataset[name], option)


def loaded(da: xr.DataArray, where: str) -> xr.DataArray:
    """Return a variable with its values in memory; ``where`` it is, for messages."""
    try:
        return da.load()
    except MemoryError:
        raise
    # Codecs raise many types for what is damaged; all mean the same here.
    except Exception as error:
        raise DataError(
            f"variable {str(da.name)!r} of {where!r} cannot be read ({type(error).__name__}: "
            f"{error}): a part of it is damaged; write the file again"
        ) from error


def mask_of(dataset: xr.Dataset, text: str, option: str) -> xr.DataArray:
    """Return the mask of NAME, where that is 1 or true, or of NAME=VALUE, where it is equal."""
    name, equals, number = text.partition("=")
    if not equals or text in dataset.variables:
        return as_mask(companion(dataset, text, option), option)
    da = companion(dataset, name, option)
    try:
        value = float(number)
    except ValueError:
        raise ParameterError(
            f"{option} {text!r}: expected NAME or NAME=NUMBER, such as {name}=0"
        ) from None
    if da.dtype.kind not in "biuf":
        raise DataError(f"{option}: variable {name!r} of type {da.dtype} must hold numbers")
    return da == value


def noise_of(dataset: xr.Dataset, da: xr.DataArray, text: str) -> xr.DataArray:
    """Return the noise variances of NAME, or of NAME^2, whose values are standard deviations.

    Raises
    ------
    ParameterError
        If NAME by its units or its standard name holds standard deviations, and is not squared.
    """
    name, square, _ = text.partition("^2")
    variances = companion(dataset, name, "--noise-variance")
    if square:
        return variances**2
    units, field_units = (str(one.attrs.get("units", "")).strip() for one in (variances, da))
    is_error = str(variances.attrs.get("standard_name", "")).endswith("standard_error")
    if is_error or (units == field_units and units not in ("", "1")):
        found = (
            f"is in {units!r}, as the field is" if units == field_units else "is a standard error"
        )
        raise ParameterError(
            f"--noise-variance {name!r} {found}: it seems to hold standard deviations; expected "
            f"variances, in squared units. Square it: --noise-variance '{name}^2'"
        )
    return variances


def as_mask(da: xr.DataArray, option: str) -> xr.DataArray:
    """Return a variable of True and False; netCDF has 1 and 0 for these."""
    if da.dtype == np.bool_:
        return da
    values = da.values
    if da.dtype.kind in "iuf" and np.isin(values[~np.isnan(values)], (0, 1)).all():
        return da.copy(data=values == 1)
    raise DataError(
        f"{option}: variable {da.name!r} of type {da.dtype} must hold 0 and 1 only; say which "
        f"number is meant: {option} {da.name}=1"
    )


# ---------------------------------------------------------------------- writing


def is_netcdf(out: Place) -> bool:
    """Return whether a file is to be written, not a zarr store."""
    return out.suffix.lower() in NETCDF


@contextmanager
def place_for(out: Place, overwrite: bool) -> Iterator[Path]:
    """Give a path aside; what is there at the end is put at ``out``.

    Raises
    ------
    ParameterError
        If the ending is neither of a zarr store nor of a netCDF file.
    StorageError
        If something is there already, or the place cannot be written; before the block runs.
    """
    check_place(out, overwrite)
    with made_aside(out) as made:
        yield made


def check_place(out: Place, overwrite: bool) -> None:
    """Raise what ``place_for`` does before its block runs."""
    if out.suffix.lower() != ".zarr" and not is_netcdf(out):
        raise ParameterError(f"--out {str(out)!r} must end in .zarr or .nc")
    require_replaceable(out, overwrite, "--overwrite")
    if isinstance(out, Path):
        require_folder(out)
    else:
        require_writable(out)
