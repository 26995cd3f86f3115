"""Columns of any type as float64, and error messages for those that are not numbers.

This is the one place where values of a table become numbers: inputs, targets, weights and the
like, of numpy, pandas, Arrow and dask alike.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from numbers import Complex, Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.terms import Floats

# Python's types of dates and durations; those of pandas inherit from them.
_DATES = (datetime.date, datetime.time, np.datetime64, pd.Period)
_DURATIONS = (datetime.timedelta, np.timedelta64)
# Text that means a missing value.
_NOTHING = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?")
_AT_MOST = 12  # columns described in one error


def numbers_of(what: str, values: Any) -> Floats:
    """Return the values of one column as float64, (n_rows,), missing ones as NaN.

    Numbers are integers, floats of any byte order, truth values, decimals, and objects of these.

    Parameters
    ----------
    what : str
        The column for messages, e.g. ``input column 'age'``.
    values : pandas.Series, ndarray or array_like
        Of one dimension, or none.

    Raises
    ------
    DataError
        If a value is no real number: text, a date or duration (NaT too), a category, complex.

    Examples
    --------
    >>> from decimal import Decimal
    >>> from dsgp.rows.sources import numbers_of
    >>> numbers_of("input column 'price'", [Decimal("1.50"), None, True])
    array([1.5, nan, 1. ])
    """
    values = _column(values)
    require_numbers(what, values)
    if isinstance(values.dtype, pd.ArrowDtype) and pa.types.is_null(values.dtype.pyarrow_dtype):
        return np.full(len(values), np.nan)
    if isinstance(values, pd.Series) and not pd.api.types.is_object_dtype(values.dtype):
        # Missing values of pandas' nullable integer and boolean types become NaN here.
        values = values.to_numpy(dtype=np.float64, na_value=np.nan)
    elif pd.api.types.is_object_dtype(values.dtype):
        objects = np.array(values, dtype=object)
        objects[_missing(objects)] = np.nan
        try:
            values = objects.astype(np.float64)
        except OverflowError as error:
            raise DataError(f"{what} has a value beyond what float64 can hold") from error
    return np.asarray(values, dtype=np.float64, order="C")


def require_numbers(what: str, values: Any) -> None:
    """Raise ``DataError`` unless all values of a column are numbers or missing.

    The message names the type of the column, the first value that is not a number, how many there
    are, and what to do.
    """
    values = _column(values)
    kind = values.dtype
    if pd.api.types.is_object_dtype(kind):
        _require_objects(what, np.ravel(np.asarray(values, dtype=object)))
    elif (refuse := _refusal(kind)) is not None:
        raise refuse(what, kind, values)


def require_number_type(what: str, kind: Any) -> None:
    """Raise ``DataError`` if no column of a type holds real numbers: dates, durations, complex.

    For what is known before values are: errors for other types say more when the values are read.
    """
    refuse = None if pd.api.types.is_object_dtype(kind) else _refusal(kind)
    if refuse in (_dates, _durations, _complex):
        raise refuse(what, kind, None)


def together(errors: Sequence[DataError]) -> DataError:
    """Combine the errors of several columns."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error) for error in errors[:_AT_MOST]]
    more = [f"and {len(errors) - _AT_MOST} more"] if len(errors) > _AT_MOST else []
    listed = ";\n".join([*lines, *more])
    return DataError(f"{len(errors)} columns cannot be used:\n{listed}")


def each_checked(checks: Iterable[Callable[[], Any]]) -> None:
    """Run the check of every column, and raise all problems as one error."""
    errors = []
    for check in checks:
        try:
            check()
        except DataError as error:
            errors.append(error)
    if errors:
        raise together(errors)


def _missing(objects: NDArray[Any]) -> NDArray[np.bool_]:
    try:
        return np.asarray(pd.isna(objects))
    except InvalidOperation:  # a signalling NaN, which must not be compared
        quiet = [
            None if isinstance(value, Decimal) and value.is_snan() else value
            for value in objects.ravel()
        ]
        return np.asarray(pd.isna(np.array(quiet, dtype=object))).reshape(objects.shape)


def _column(values: Any) -> Any:
    if isinstance(values, pd.Series):
        return values
    if isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        return pd.Series(values)
    return np.asarray(values)


Refusal = Callable[[str, Any, Any], DataError]


def _refusal(kind: Any) -> Refusal | None:
    """Return the error for a column of a type, or None if its values are numbers."""
    if isinstance(kind, pd.ArrowDtype):
        arrow = kind.pyarrow_dtype
        if pa.types.is_dictionary(arrow):
            return _categories
        if pa.types.is_duration(arrow):
            return _durations
        if pa.types.is_temporal(arrow):
            return _dates
        if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
            return _text
        numeric = [pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal]
        numeric += [pa.types.is_boolean, pa.types.is_null]
        return None if any(is_one(arrow) for is_one in numeric) else _other
    if isinstance(kind, np.dtype):
        refusals: dict[str, Refusal | None] = dict.fromkeys("biuf", None)
        refusals |= {"c": _complex, "M": _dates, "m": _durations}
        return (refusals | dict.fromkeys("SUT", _text)).get(kind.kind, _other)
    if isinstance(kind, pd.CategoricalDtype):
        return _categories
    if isinstance(kind, (pd.DatetimeTZDtype, pd.PeriodDtype)):
        return _dates
    if pd.api.types.is_string_dtype(kind):
        return _text
    if pd.api.types.is_complex_dtype(kind):
        return _complex
    numeric_or_truth = pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind)
    return None if numeric_or_truth else _other


def _require_objects(what: str, values: NDArray[Any]) -> None:
    present = values[~_missing(values)]
    strange = [value for value in present if not isinstance(value, (Real, np.bool_, Decimal))]
    if not strange:
        return
    first = strange[0]
    if isinstance(first, _DATES) or hasattr(first, "calendar"):  # the latter for cftime
        raise _dates(what, f"object, of {type(first).__name__}", values)
    if isinstance(first, _DURATIONS):
        raise _durations(what, f"object, of {type(first).__name__}", values)
    if all(isinstance(value, (str, bytes)) for value in strange):
        raise _text(what, "object", values)
    if isinstance(first, Complex):
        raise _complex(what, "object", values)
    raise _other(what, "object", values)


def _complex(what: str, kind: Any, values: Any) -> DataError:
    return DataError(f"Complex data not supported: {what} must be real numbers")


def _dates(what: str, kind: Any, values: Any) -> DataError:
    return DataError(
        f"{what} holds dates (type {kind}): convert it to numbers, e.g. days since the first: "
        "(t - t.min()) / numpy.timedelta64(1, 'D'), where missing ones (NaT) become NaN"
    )


def _durations(what: str, kind: Any, values: Any) -> DataError:
    return DataError(
        f"{what} holds durations (type {kind}): convert it to numbers of a unit, e.g. days: "
        "t / numpy.timedelta64(1, 'D'), where missing ones (NaT) become NaN"
    )


def _categories(what: str, kind: Any, values: pd.Series) -> DataError:
    known = values.dropna()
    labels = pd.unique(known)[:3].tolist()
    shown = ", ".join(map(repr, labels))
    numbers = all(isinstance(label, (Real, Decimal)) for label in labels)
    amounts = "; where these are amounts, convert: t.astype(float)" if numbers else ""
    return DataError(
        f"{what} is not numeric (type {kind}): it holds categories ({shown}, …), in {len(known)} "
        f"of {len(values)} rows{amounts}; otherwise make a column of 0 and 1 per category: "
        "pandas.get_dummies"
    )


def _text(what: str, kind: Any, values: Any) -> DataError:
    objects = np.ravel(np.asarray(values, dtype=object))
    rows = np.flatnonzero([isinstance(value, (str, bytes)) for value in objects])
    texts = [_decoded(objects[row]) for row in rows]
    parsed = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").isna().to_numpy()
    nothing = np.array([text.strip().lower() in _NOTHING for text in texts], dtype=bool)
    wrong = np.flatnonzero(parsed & ~nothing)
    start = f"{what} is not numeric (type {kind}):"
    if not wrong.size:
        if nothing.all():
            return DataError(f"{what} is text without any value (type {kind}): leave it out")
        some = int(np.argmin(nothing))
        return DataError(
            f"{start} it holds numbers as text ({texts[some]!r} in row {rows[some]}, counted from "
            f"0), in {int((~nothing).sum())} of {len(objects)} rows; convert it to numbers, e.g. "
            "pandas.to_numeric"
        )
    offending = [texts[k] for k in wrong]
    first = f"{start} {offending[0]!r} in row {rows[wrong[0]]} (counted from 0) is no number"
    how_many = f"{len(offending)} of {len(objects)} values are not numbers"
    if all(_DECIMAL_COMMA.fullmatch(text.strip()) for text in offending):
        return DataError(
            f"{first}; {how_many}, but numbers with a decimal comma: read the file with "
            "decimal=',' (--decimal ,)"
        )
    if len(offending) > 1 and len(set(offending)) == 1:
        how_many += f", all of them {offending[0]!r} (make that NaN if it means missing)"
    return DataError(f"{first}; {how_many}; {_remedy(what)}")


def _remedy(what: str) -> str:
    leave = ", or leave it out" if what.startswith("input column") else ""
    return f"convert it to numbers{leave}"


def _decoded(text: str | bytes) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


class _NoNumberError(DataError, TypeError):
    """An object that is no number: scikit-learn's conventions ask for a ``TypeError`` there."""


def _other(what: str, kind: Any, values: Any) -> DataError:
    objects = list(values)
    wrong = [
        row
        for row, value in enumerate(objects)
        if not (np.ndim(value) == 0 and pd.isna(value))
        and not isinstance(value, (Real, np.bool_, Decimal))
    ]
    value = objects[wrong[0]] if wrong else None
    return _NoNumberError(
        f"{what} is not numeric (type {kind}): {value!r} in row {wrong[0] if wrong else 0} "
        "(counted from 0) is no number (float() argument must be a string or a real number, not "
        f"{type(value).__name__}); {len(wrong)} of {len(objects)} values are not numbers; "
        f"{_remedy(what)}"
    )
