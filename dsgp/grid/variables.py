"""Which variables of a Dataset are fields, and which are flags, categories, bounds and the like."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import xarray as xr

# Attributes by which other variables name those that describe them.
DESCRIPTIONS = (
    "bounds", "climatology", "grid_mapping", "ancillary_variables", "cell_measures",
    "formula_terms", "geometry", "node_coordinates", "coordinates",
)  # fmt: skip
_FLAGS = ("flag_values", "flag_meanings", "flag_masks")
_FLAG_NAMES = ("status_flag", "quality_flag", "number_of_observations")
_SCALES = ("scale_factor", "add_offset")
# Units that do not define a scale.
_NO_UNITS = ("", "1", "none", "n/a", "-")


def described(ds: xr.Dataset) -> set[str]:
    """Return names of variables that others name as their bounds, grid mapping or the like."""
    names: set[str] = set()
    for variable in ds.variables.values():
        for source in (variable.attrs, variable.encoding):
            for key in DESCRIPTIONS:
                names |= set(str(source.get(key, "")).split())
    return names


def is_placed(ds: xr.Dataset, name: Hashable) -> bool:
    """Whether a variable holds numbers and has a coordinate along each of one or more dims."""
    da = ds[name]
    return bool(da.dims) and all(dim in ds.coords for dim in da.dims) and da.dtype.kind in "iuf"


def is_flag(da: xr.DataArray) -> bool:
    """Whether attributes say that numbers are flags, which have no average."""
    modifier = str(da.attrs.get("standard_name", "")).split()
    return any(key in da.attrs for key in _FLAGS) or any(name in modifier for name in _FLAG_NAMES)


def is_category(da: xr.DataArray) -> bool:
    """Whether numbers look like codes of categories: integers as stored, without unit or scale.

    Examples
    --------
    >>> import xarray as xr
    >>> is_category(xr.DataArray([1, 2])), is_category(xr.DataArray([1.0, 2.0]))
    (True, False)
    >>> is_category(xr.DataArray([281, 282], attrs={"units": "K"}))
    False
    """
    stored = np.dtype(da.encoding.get("dtype", da.dtype))
    scaled = any(key in source for source in (da.attrs, da.encoding) for key in _SCALES)
    units = str(da.attrs.get("units", "")).strip().lower()
    return stored.kind in "iu" and not scaled and units in _NO_UNITS
