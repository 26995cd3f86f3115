"""Numbers that stand for missing values: those of attributes, and those that no attribute mentions.

By CF and NUG, fill values are of the packed numbers as stored, and so are valid ranges, unless they
are of a wider type than these.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import DataError, DataWarning
from dsgp.grid.coordinates import Floats
from dsgp.rows.coded import Extremes, is_known_code

# Names of attributes of single values; the last are those of GDAL and its readers.
FILLS = ("_FillValue", "missing_value", "fill_value", "nodata", "nodatavals")
RANGES = ("valid_range", "valid_min", "valid_max")
PACKING = ("scale_factor", "add_offset", "_Unsigned")


@dataclass(frozen=True)
class Codes:
    """Missing values and packing of a variable, by its attributes and encoding.

    Attributes
    ----------
    fills : tuple of (str, float, float)
        Attribute, value in the field's unit, and how far values may be from it.
    lowest, highest : tuple of (str, float, float), or None
        The same for the ends of the valid range.
    scale, offset : float
        From values as they come to the field's unit; 1 and 0 if they were decoded.
    n_unsigned : float
        Added to negative values before: 0, or 2 to the number of bits.
    """

    fills: tuple[tuple[str, float, float], ...] = ()
    lowest: tuple[str, float, float] | None = None
    highest: tuple[str, float, float] | None = None
    scale: float = 1.0
    offset: float = 0.0
    n_unsigned: float = 0.0

    @classmethod
    def of(cls, variable: xr.DataArray | xr.Variable) -> Self:
        """Read the attributes and encoding of a variable, decoded or not.

        Examples
        --------
        >>> import xarray as xr
        >>> packed = xr.Variable("x", np.array([-32768, 250, 9000], "i2"), {
        ...     "_FillValue": np.int16(-32768), "scale_factor": 0.1, "valid_max": np.int16(4000)})
        >>> codes = Codes.of(packed)
        >>> values = codes.decoded(packed.values)
        >>> codes.blank(values)
        Counter({'_FillValue (-3276.8)': 1, 'above valid_max (400)': 1})
        >>> values
        array([nan, 25., nan])
        """
        attrs, encoding = variable.attrs, variable.encoding
        raw = any(key in attrs for key in PACKING)  # opened with mask_and_scale=False
        packing = attrs if raw else encoding
        scale, offset = (
            float(np.asarray(packing.get(key, default)).ravel()[0])
            for key, default in (("scale_factor", 1.0), ("add_offset", 0.0))
        )
        stored = variable.dtype if raw else np.dtype(encoding.get("dtype", variable.dtype))
        signed = str(packing.get("_Unsigned", "")).lower() == "true" and stored.kind == "i"
        n_unsigned = 2.0 ** (8 * stored.itemsize) if signed else 0.0
        is_packed = (scale, offset) != (1.0, 0.0)
        # Half a step of integers, for the rounding of unpacked numbers.
        slack = abs(scale) / 2 if is_packed and stored.kind in "iu" else 0.0

        def unpacked(value: Any, is_wide: bool = False) -> tuple[float, float]:
            number = float(value)
            if is_wide or not is_packed:
                number += n_unsigned * (number < 0 and not is_wide)
                with np.errstate(over="ignore"):
                    # The value in the narrow float type: 1e20 in float32 is another number.
                    kept = number if variable.dtype.kind != "f" else variable.dtype.type(number)
                return float(kept), 0.0
            number += n_unsigned * (number < 0)
            return number * scale + offset, slack or 1e-6 * abs(number * scale)

        fills = {
            (name, *unpacked(value)): None
            for name in FILLS
            for source in (attrs, encoding)
            # In zarr, the fill value is what unwritten chunks hold: often 0, and not a code.
            if source is attrs or name != "fill_value"
            for value in _numbers(source.get(name))
        }
        ends: dict[str, list[tuple[str, float, float]]] = {"lowest": [], "highest": []}
        for name in RANGES:
            bounds = _numbers(attrs.get(name, encoding.get(name)))
            wide = np.asarray(attrs.get(name, 0)).dtype.kind == "f" and stored.kind in "iu"
            if name == "valid_range" and len(bounds) == 2:
                ends["lowest"].append((name, *unpacked(bounds[0], wide)))
                ends["highest"].append((name, *unpacked(bounds[1], wide)))
            elif name != "valid_range" and len(bounds) == 1:
                side = "lowest" if name == "valid_min" else "highest"
                ends[side].append((name, *unpacked(bounds[0], wide)))
        lowest = max(ends["lowest"], key=lambda end: end[1], default=None)
        highest = min(ends["highest"], key=lambda end: end[1], default=None)
        if lowest and highest and lowest[1] > highest[1]:  # an empty valid range is ignored
            lowest = highest = None
        if not raw:
            scale, offset, n_unsigned = 1.0, 0.0, 0.0
        return cls(tuple(fills), lowest, highest, scale, offset, n_unsigned)

    def decoded(self, values: Any) -> Floats:
        """Return numbers in the field's unit, codes and all, as a new array of float64."""
        numbers = np.array(values, dtype=np.float64, order="C")
        if self.n_unsigned:
            numbers[numbers < 0] += self.n_unsigned
        if (self.scale, self.offset) != (1.0, 0.0):
            numbers *= self.scale
            numbers += self.offset
        return numbers

    def blank(self, values: Floats) -> Counter[str]:
        """Put NaN for missing values, in place; count these by reason."""
        counts: Counter[str] = Counter()

        def clear(which: NDArray[np.bool_], reason: str) -> None:
            n = int(np.count_nonzero(which))
            if n:
                values[which] = np.nan
                counts[reason] += n

        for name, value, slack in self.fills:
            away = values == value if not slack else np.abs(values - value) < slack
            clear(away, f"{name} ({value:.7g})")
        if self.lowest:
            name, value, slack = self.lowest
            clear(values < value - slack, f"below {name} ({value:.7g})")
        if self.highest:
            name, value, slack = self.highest
            clear(values > value + slack, f"above {name} ({value:.7g})")
        return counts


def read_values(variable: xr.DataArray | xr.Variable) -> Floats:
    """Return the values of a variable as float64 in its unit; declared missing ones are NaN."""
    codes = Codes.of(variable)
    values = codes.decoded(variable.values)
    codes.blank(values)
    return values


def has_gaps(da: xr.DataArray) -> bool:
    """Whether a value is NaN, or missing by the attributes; reads the values."""
    if da.dtype.kind not in "iuf":
        return bool(da.isnull().any())
    return bool(np.isnan(read_values(da)).any())


def report_blanks(counts: Mapping[str, int], n_left: int, name: object) -> None:
    """Warn of cells that are missing by the attributes.

    Parameters
    ----------
    counts : mapping of reason to number of cells
    n_left : int
        Cells that still hold a value.
    name : object
        Of the variable.

    Raises
    ------
    DataError
        If a valid range excludes more than half of the values: it must be for other values.
    """
    if not counts:
        return
    outside = {reason: n for reason, n in counts.items() if " valid_" in reason}
    n_outside = sum(outside.values())
    if n_outside > n_left:
        raise DataError(
            f"{_called(name)}: {n_outside} of {n_outside + n_left} values are {_listed(outside)}; "
            "expected most values within. If the values were computed from others, to which this "
            "attribute belongs, delete it: del da.attrs[...]; else choose the values that are "
            "valid: da.where(...)"
        )
    warnings.warn(
        f"{_called(name)}: {sum(counts.values())} cells are treated as missing, because of "
        f"attributes: {_listed(counts)}",
        DataWarning,
        stacklevel=4,
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in counts.items())


def _called(name: object) -> str:
    return "the field" if name is None else f"field {str(name)!r}"


def _numbers(value: Any) -> list[Any]:
    """Return those of an attribute, which may be a list, text or nothing at all."""
    numbers = []
    for one in [] if value is None else np.ravel(np.asarray(value, dtype=object)):
        try:
            if not np.isnan(float(one)):
                numbers.append(float(one))
        except (TypeError, ValueError):
            continue  # for example missing_value = "none"
    return numbers


# ---------------------------------------------------------------------- undeclared codes


def report_codes(extremes: Extremes, name: object, is_chosen: bool) -> None:
    """Raise or warn if values look like codes for missing ones.

    Parameters
    ----------
    extremes : Extremes
    name : object
        Of the variable.
    is_chosen : bool
        Whether the user chose the values, by a mask: then only warn.

    Raises
    ------
    DataError
        If a code is in use for missing values.
    """
    codes = extremes.codes()
    if not codes:
        return
    least, most = extremes.inner(codes)
    parts = [f"{n} of the values are exactly {value:.7g}" for value, n in codes.items()]
    message = (
        f"{_called(name)}: {' and '.join(parts)}, and all others lie from {least:.7g} to "
        f"{most:.7g}; if that is a code for missing values, make it NaN: "
        f"da.where(da != {next(iter(codes)):.7g})"
    )
    if is_chosen or not any(map(is_known_code, codes)):
        warnings.warn(message, DataWarning, stacklevel=4)
        return
    raise DataError(
        f"{message}, or set the attribute missing_value; if they are measured values, confirm that "
        "by a mask: mask=da.notnull()"
    )
