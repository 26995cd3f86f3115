"""Class labels of some rows: the distinct ones, and their numbers.

Labels are strings, booleans or numbers; those of one target are of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from dsgp.errors import DataError
from dsgp.rows.encode import require_finite
from dsgp.rows.sources.memory import require_length
from dsgp.terms import Floats

Labels = NDArray[Any]

# Types that pandas infers for Python objects, and the types in which they are kept.
_TYPES: dict[str, type] = {
    "string": object,
    "boolean": bool,
    "integer": np.int64,
    "floating": np.float64,
    "mixed-integer-float": np.float64,
    "empty": object,
}


def labels_of(y: Any, name: str = "y", first_row: int = 0, *, warn: bool = False) -> Labels:
    """Check the classes of some rows and return them, (n_rows,), as objects where they are text.

    Parameters
    ----------
    y : array_like
    name : str
        Of the target, for messages, where y has none.
    first_row : int
        Number of the first value's row, likewise.
    warn : bool
        Whether to warn of a column vector.

    Raises
    ------
    DataError
        If a class is missing, or they are not all strings, all booleans or all numbers.
    ValueError
        If y has more than one column, as scikit-learn.
    """
    if isinstance(y, pd.Series) and y.name is not None:
        name = str(y.name)
    if np.ma.isMaskedArray(y):
        raise DataError(
            f"the target {name!r} is a masked array: fill the masked values, or drop their rows"
        )
    if isinstance(y, (list, tuple)):
        y = np.array(y, dtype=object)  # numpy would convert 1 beside "a" to "1"
    elif isinstance(y, (pd.Series, pd.api.extensions.ExtensionArray)):
        y = np.asarray(y)
    values = np.asarray(column_or_1d(y, warn=warn))
    if values.dtype.kind in "UT":
        values = values.astype(object)
    _require_present(values, name, first_row)
    if values.dtype.kind == "O":
        kind = _TYPES.get(pd.api.types.infer_dtype(values, skipna=False))
        if kind is None:
            raise _mixed(name, values)
        try:
            values = values.astype(kind)
        except OverflowError as error:
            raise DataError(f"the target {name!r} has labels beyond 64 bits: {error}") from error
    elif values.dtype.kind not in "biuf":
        raise DataError(
            f"the target {name!r} has type {values.dtype}; classes are strings, booleans or "
            "numbers: convert it"
        )
    if values.dtype.kind == "f":
        require_finite(f"the target {name!r}", values, first_row)
    return values


def _require_present(values: Labels, name: str, first_row: int) -> None:
    missing = pd.isna(values)
    if values.dtype.kind == "O":  # in CSV files, empty text means missing
        missing[~missing] = values[~missing] == ""
    if missing.any():
        row = int(np.argmax(missing))
        kind = "NaN (missing)" if pd.isna(values[row]) else "empty text"
        raise DataError(
            f"the target {name!r} contains {kind} in row {first_row + row} (counted from 0) and "
            f"has no class in {int(missing.sum())} of {len(values)} rows; every row must have one: "
            "drop those rows or fill them"
        )


def distinct(values: Labels, name: str) -> Labels:
    """Return the labels among the classes of some rows, sorted.

    Raises
    ------
    DataError
        If they are fractions, as in a target for regression.
    """
    # Objects are text: hashing takes a fraction of the time of sorting.
    labels = np.sort(pd.unique(values)) if values.dtype.kind == "O" else np.unique(values)
    if labels.dtype.kind == "f" and (fractions := labels[labels != np.floor(labels)]).size:
        raise DataError(
            f"Unknown label type: continuous. The target {name!r} has values such as "
            f"{fractions[0]:g}, but classes are strings, booleans or whole numbers: convert it, or "
            "fit a regression"
        )
    return labels


def merged(pieces: Sequence[Labels], name: str) -> Labels:
    """Merge the labels of several blocks, sorted; blocks without labels are ignored.

    Raises
    ------
    DataError
        If they are of several kinds.
    """
    pieces = [labels for labels in pieces if len(labels)]
    if not pieces:
        return np.empty(0)
    if len({_kind(labels) for labels in pieces}) > 1:
        raise _mixed(name, np.concatenate([labels[:1].astype(object) for labels in pieces]))
    return np.unique(np.concatenate(pieces))


def codes_of(y: Any, labels: Labels, n_rows: int, name: str = "y", first_row: int = 0) -> Floats:
    """Return the number of each row's class among the labels, as float64, (n_rows,).

    Parameters
    ----------
    y : array_like
    labels : ndarray
        Sorted, each once.
    n_rows : int
    name : str
    first_row : int
        As for ``labels_of``.

    Raises
    ------
    DataError
        If a class is not among the labels, or as ``labels_of``, or the length is another.
    """
    if isinstance(y, pd.Series) and y.name is not None:
        name = str(y.name)
    values = labels_of(y, name, first_row)
    require_length("y", len(values), n_rows)
    if _kind(values) == _kind(labels):
        same = object if _kind(values) == "text" else None
        codes = pd.Index(labels, dtype=same).get_indexer(pd.Index(values, dtype=same))
    else:
        codes = np.full(n_rows, -1)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        shown = ", ".join(map(repr, labels[:12].tolist()))
        more = f", … ({len(labels)} in all)" if len(labels) > 12 else ""
        raise DataError(
            f"unseen class {values[row : row + 1].tolist()[0]!r} in row {first_row + row} (counted "
            f"from 0) of the target {name!r}; classes are {shown}{more}"
        )
    return codes.astype(np.float64)


def _kind(values: Labels) -> str:
    return {"b": "boolean", "i": "number", "u": "number", "f": "number"}.get(
        values.dtype.kind, "text"
    )


def _mixed(name: str, values: Labels) -> DataError:
    types = ", ".join(sorted({type(value).__name__ for value in values.tolist()}))
    return DataError(
        f"the target {name!r} holds values of type {types}; classes must be strings, booleans or "
        "numbers, and all of one kind: convert them"
    )
