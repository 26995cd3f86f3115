"""Kinds of columns (numbers, dates or levels), and their conversion to float64.

Dates become days since 1970-01-01, and levels their positions among the labels of the fit. A level
that is not among these gets a negative number of its own, so that it differs from all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dsgp.errors import DataError
from dsgp.rows.sources.numbers import numbers_of, require_numbers
from dsgp.terms import Floats

# Text that looks like a date: 31.12.2024, 12/31/24 8:00, 31 Dec 2024, December 31, 2024.
_DATE = re.compile(
    r"\d{1,4}([-./])\d{1,2}\1\d{1,4}\b.*|\d{1,2}[-. ]+[^\W\d]{3,}[-. ,]+\d{2,4}\b.*"
    r"|[^\W\d]{3,}\.? \d{1,2},? \d{4}\b.*"
)
_DAY = 86_400 * 10**9  # nanoseconds
# A column of more levels than this share of the rows, and than the second number, looks like an
# identifier of rows.
_SHARE_OF_ROWS = 0.5
_FEW_LEVELS = 20
# Share of a column's distinct texts that look like numbers, above which the column counts as
# numbers.
_SHARE_OF_NUMBERS = 0.5


@dataclass(frozen=True)
class Kind:
    """A column of numbers."""

    def check(self, what: str, values: Any) -> None:
        """Raise ``DataError`` unless values of the column, or its type, are of this kind."""
        require_numbers(what, values)

    def encode(self, what: str, values: Any) -> Floats:
        """Return values of the column as float64, missing ones as NaN."""
        return numbers_of(what, values)

    @property
    def is_number(self) -> bool:
        return type(self) is Kind

    @property
    def is_date(self) -> bool:
        return False

    @property
    def labels(self) -> tuple[Any, ...]:
        return ()

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return {"kind": "number"}


@dataclass(frozen=True)
class Dates(Kind):
    """A column of dates or times.

    Attributes
    ----------
    zone : str or None
        The time zone in which they are read; None where they have none.
    """

    zone: str | None = None

    @property
    def is_date(self) -> bool:
        return True

    def check(self, what: str, values: Any) -> None:
        self._series(what, values)

    def encode(self, what: str, values: Any) -> Floats:
        series = self._series(what, values)
        if series.dt.tz is not None:
            series = series.dt.tz_convert(self.zone).dt.tz_localize(None)
        try:
            instants, per_day = series.astype("datetime64[ns]"), _DAY
        except pd.errors.OutOfBoundsDatetime:  # of years before 1678 or after 2261
            instants, per_day = series.astype("datetime64[us]"), _DAY // 1000
        days = instants.to_numpy().astype(np.int64) / per_day
        return np.where(instants.isna().to_numpy(), np.nan, days)

    def _series(self, what: str, values: Any) -> Any:
        series = values if isinstance(values, pd.Series) else pd.Series(values)
        if len(series) == 0 and not _holds_dates(series):
            series = series.astype("datetime64[ns]")
        if not _holds_dates(series):
            raise DataError(
                f"{what} held dates when the model was fitted, and now has type {series.dtype}: "
                "convert it, e.g. pandas.to_datetime"
            )
        series = _as_dates(series)
        zone = None if series.dt.tz is None else str(series.dt.tz)
        if (zone is None) != (self.zone is None):
            now, then = (
                ("no time zone" if time_zone is None else f"the time zone {time_zone}")
                for time_zone in (zone, self.zone)
            )
            raise DataError(
                f"{what} has {now}, but had {then} when the model was fitted: make both alike, "
                "e.g. by tz_localize or tz_convert"
            )
        return series

    def to_settings(self) -> dict[str, Any]:
        return {"kind": "date", "zone": self.zone}


@dataclass(frozen=True)
class Categories(Kind):
    """A column of levels.

    Attributes
    ----------
    names : tuple of str, bool, int or float
        Sorted, each once.
    missing : {"error", "ignore", "level"} or None
        Treatment of a missing level; None is the treatment of other missing inputs.
    """

    names: tuple[Any, ...]
    missing: str | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        labels = self.names if self.missing != "level" else (*self.names, "(missing)")
        return labels

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(np.array(self.names, dtype=object))

    def check(self, what: str, values: Any) -> None:
        """Check that the values are levels at all; which ones is only known after encoding."""

    def encode(self, what: str, values: Any) -> Floats:
        labels = labels_of_levels(what, values)
        codes = self._index.get_indexer(labels).astype(np.float64)
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            gaps = pd.isna(labels[unknown])
            codes[unknown[gaps]] = float(len(self.names)) if self.missing == "level" else np.nan
            fresh = unknown[~gaps]
            self._require_alike(what, labels[fresh])
            codes[fresh] = [_number_of(label) for label in labels[fresh]]
        return codes

    def _require_alike(self, what: str, labels: Any) -> None:
        """Raise ``DataError`` where levels are of another type than those of the fit."""
        if not len(labels) or not self.names:
            return
        types = {isinstance(label, str) for label in self.names}
        if {isinstance(label, str) for label in labels} - types:
            raise DataError(
                f"{what} has the level {labels[0]!r}, of type {type(labels[0]).__name__}, but "
                f"levels such as {self.names[0]!r} when the model was fitted: convert the column"
            )

    def to_settings(self) -> dict[str, Any]:
        names = [name.item() if isinstance(name, np.generic) else name for name in self.names]
        return {"kind": "levels", "names": names, "missing": self.missing}


Kinds = dict[str, Kind]
NUMBER = Kind()


def kind_from_settings(settings: Mapping[str, Any]) -> Kind:
    """Undo ``Kind.to_settings``."""
    if settings["kind"] == "date":
        return Dates(settings["zone"])
    if settings["kind"] == "levels":
        return Categories(tuple(settings["names"]), settings["missing"])
    return NUMBER


def _number_of(label: Any) -> float:
    """Negative number of a level that was never seen, the same wherever it occurs."""
    digest = blake2b(f"{type(label).__name__}:{label}".encode(), digest_size=6).digest()
    return -1.0 - float(int.from_bytes(digest))


def labels_of_levels(what: str, values: Any) -> Any:
    """Return the labels of some rows as objects, (n,): text, booleans, numbers; None for missing.

    Raises
    ------
    DataError
        If a value is none of these.
    """
    series = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values).ravel())
    if isinstance(series.dtype, pd.CategoricalDtype):
        category_labels = labels_of_levels(what, pd.Series(series.cat.categories))
        codes = series.cat.codes.to_numpy()
        return np.concatenate([category_labels, [None]])[codes]
    if isinstance(series.dtype, pd.ArrowDtype) and pa.types.is_dictionary(
        series.dtype.pyarrow_dtype
    ):
        series = pd.Series(series.array._pa_array.cast(series.dtype.pyarrow_dtype.value_type))
    if pd.api.types.is_bool_dtype(series.dtype) and not pd.api.types.is_object_dtype(series.dtype):
        labels = series.astype(object).to_numpy(copy=True)
    elif pd.api.types.is_numeric_dtype(series.dtype):
        labels = _plain_numbers(series.to_numpy(dtype=np.float64, na_value=np.nan))
    else:
        labels = series.astype(object).to_numpy(copy=True)
    gaps = pd.isna(labels)
    gaps[~gaps] = labels[~gaps] == ""  # in CSV files, empty text means missing
    labels[gaps] = None
    strange = [
        label
        for label in pd.unique(labels[~gaps])
        if not isinstance(label, (str, bool, int, float, np.bool_, np.integer, np.floating))
    ]
    if strange:
        raise DataError(
            f"{what} holds {strange[0]!r}, of type {type(strange[0]).__name__}: levels are text, "
            "booleans or numbers; convert it"
        )
    return labels


def _plain_numbers(values: Floats) -> Any:
    """Return numbers as objects, whole ones as int: 1 and 1.0 are one level, called 1."""
    out = values.astype(object)
    finite = np.isfinite(values)
    whole = np.flatnonzero(finite)[values[finite] == np.floor(values[finite])]
    small = whole[np.abs(values[whole]) < 2.0**53]
    out[small] = values[small].astype(np.int64).astype(object)
    return out


def distinct_levels(what: str, values: Any) -> Any:
    """Return the labels among those of some rows, each once, without the missing one."""
    distinct = pd.unique(labels_of_levels(what, values))
    return distinct[~pd.isna(distinct)]


def merged_levels(what: str, pieces: Sequence[Any]) -> tuple[Any, ...]:
    """Sort the labels of several blocks, each once.

    Raises
    ------
    DataError
        If text and numbers are mixed.
    """
    labels = pd.unique(np.concatenate([np.empty(0, dtype=object), *pieces]))
    texts = [isinstance(label, str) for label in labels]
    if any(texts) and not all(texts):
        number = next(label for label in labels if not isinstance(label, str))
        raise DataError(
            f"{what} mixes text and other values (such as {number!r}) as levels: convert it to text"
        )
    return tuple(sorted(labels.tolist()))


# ---------------------------------------------------------------- what a column holds


@dataclass(frozen=True)
class Wanted:
    """The user's requirements on the columns of a training table.

    Attributes
    ----------
    levels : dict of str to str or None
        Columns that are levels whatever their type, and the treatment of a missing level.
    columns : tuple of str, optional
        Those that are needed; None means all inputs.
    before : mapping of str to Kind
        Kinds of columns in earlier rows. A few rows may not show them: all values of a column may
        be missing, or its only level may look like a number.
    reason : str
        Why the columns are needed, for messages.
    """

    levels: dict[str, str | None] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    before: Mapping[str, Kind] = field(default_factory=dict)
    reason: str = "terms names"


def kind_of_column(what: str, values: Any, *, by_type: bool = False) -> Kind:
    """Return the kind of a column by its type, and by its values if they are Python objects.

    The labels of levels are not yet found: ``Categories(())``. With ``by_type`` there are no values
    to look at, and objects are treated as text.
    """
    series = values if isinstance(values, pd.Series) else pd.Series(values)
    dtype = series.dtype
    if _holds_dates(series):
        zone = getattr(_as_dates(series).dt, "tz", None)
        return Dates(None if zone is None else str(zone))
    if isinstance(dtype, pd.ArrowDtype):
        arrow = dtype.pyarrow_dtype
        text = [pa.types.is_dictionary, pa.types.is_boolean]
        text += [pa.types.is_string, pa.types.is_large_string]
        return Categories(()) if any(is_one(arrow) for is_one in text) else NUMBER
    if isinstance(dtype, pd.CategoricalDtype):
        return Categories(())
    if by_type and (pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype)):
        return Categories(())
    if pd.api.types.is_object_dtype(dtype):
        known = pd.api.types.infer_dtype(series, skipna=True)
        if known == "boolean":
            return Categories(())
        return _of_text(series) if known == "string" else NUMBER
    if pd.api.types.is_bool_dtype(dtype):
        return Categories(())
    if pd.api.types.is_string_dtype(dtype):
        return _of_text(series)
    return NUMBER


def _of_text(series: Any) -> Kind:
    """Return levels; or numbers if the text looks like these, as which it is then refused.

    Whole numbers are levels if all of the text is such; with fractions, or a few words among the
    numbers, they are more likely to be amounts.
    """
    texts = pd.Series(pd.unique(series.dropna()), dtype=object)
    texts = texts[texts.str.strip() != ""].str.strip()
    if not len(texts):
        return NUMBER
    plain = texts.str.replace(r"(?<=\d),(?=\d)", ".", regex=True)
    share = float(pd.to_numeric(plain, errors="coerce").notna().mean())
    if share <= _SHARE_OF_NUMBERS or texts.str.fullmatch(r"\d+").all():
        return Categories(())
    return NUMBER


def _holds_dates(series: Any) -> bool:
    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):
        arrow = dtype.pyarrow_dtype
        return bool(pa.types.is_timestamp(arrow) or pa.types.is_date(arrow))
    if isinstance(dtype, pd.PeriodDtype):
        return True
    if pd.api.types.is_object_dtype(dtype):
        return pd.api.types.infer_dtype(series, skipna=True) in ("datetime", "date", "datetime64")
    return bool(pd.api.types.is_datetime64_any_dtype(dtype))


def _as_dates(series: Any) -> Any:
    if isinstance(series.dtype, pd.PeriodDtype):
        return series.dt.to_timestamp()
    if isinstance(series.dtype, pd.ArrowDtype) or pd.api.types.is_object_dtype(series.dtype):
        return pd.to_datetime(series)
    return series


def require_few_levels(name: str, kind: Kind, n_rows: int | None, asked: bool) -> None:
    """Raise ``DataError`` if a column of levels that was not requested names the rows."""
    n_levels = len(kind.labels)
    if asked or n_rows is None or n_levels <= max(_SHARE_OF_ROWS * n_rows, _FEW_LEVELS):
        return
    if all(str(label).isdecimal() for label in kind.labels):
        raise DataError(
            f"input column {name!r} is not numeric: it holds numbers as text, {n_levels} different "
            f"ones in {n_rows} rows; convert it to numbers, e.g. pandas.to_numeric, or request an "
            f"effect per value, terms={{{name!r}: Levels()}}"
        )
    if all(_DATE.fullmatch(str(label)) for label in kind.labels):
        raise DataError(
            f"input column {name!r} is text that seems to hold dates, such as "
            f"{str(kind.labels[0])!r}: convert it, e.g. pandas.to_datetime(column, format=...); in "
            "a file, write dates as 2024-12-31"
        )
    raise DataError(
        f"input column {name!r} is text with {n_levels} different values in {n_rows} rows, so that "
        "it seems to name the rows rather than to group them: leave it out, or request an effect "
        f"per value, terms={{{name!r}: Levels()}}"
    )


def with_labels(kind: Kind, labels: tuple[Any, ...], missing: str | None) -> Kind:
    """Return a kind of levels with its labels."""
    assert isinstance(kind, Categories)
    return replace(kind, names=labels, missing=missing)
