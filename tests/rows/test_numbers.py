"""Values of any type become float64, or are refused with what they are and how many."""

import datetime as dt
from decimal import Decimal

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dsgp.errors import DataError
from dsgp.rows.sources import columns_of, numbers_of, source_of, target_of, weights_of
from dsgp.rows.sources.memory import extra_of

NUMBERS = {
    "big-endian": (np.array([1.5, -2], ">f4"), [1.5, -2]),
    "big-endian integers": (np.array([1, -2], ">i8"), [1, -2]),
    "unsigned": (np.array([2**64 - 1, 0], np.uint64), [2.0**64, 0]),
    "half": (np.array([1.5, 2], np.float16), [1.5, 2]),
    "truth values": (np.array([True, False]), [1, 0]),
    "decimals": ([Decimal("1.50"), Decimal("NaN"), None], [1.5, np.nan, np.nan]),
    "signalling": ([Decimal("sNaN"), Decimal(2)], [np.nan, 2]),
    "objects": (np.array([1, 2.5, True, None, pd.NaT], object), [1, 2.5, 1, np.nan, np.nan]),
    "nothing": ([None, None], [np.nan, np.nan]),
    "Int64": (pd.array([2**62, None], dtype="Int64"), [2.0**62, np.nan]),
    "boolean": (pd.Series([True, None], dtype="boolean"), [1, np.nan]),
    "sparse": (pd.Series(pd.arrays.SparseArray([1.0, 0, np.nan])), [1, 0, np.nan]),
    "arrow integers": (pd.Series([3, None], dtype="int32[pyarrow]"), [3, np.nan]),
    "arrow truth": (pd.Series([True, None], dtype="bool[pyarrow]"), [1, np.nan]),
    "arrow null": (pd.Series([None, None], dtype=pd.ArrowDtype(pa.null())), [np.nan, np.nan]),
    "arrow decimals": (
        pd.Series([Decimal("-1.25"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        [-1.25, np.nan],
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_of_every_type_are_taken(case):
    values, expected = NUMBERS[case]
    numbers = numbers_of("input column 'a'", values)
    assert numbers.dtype == np.dtype("=f8")
    np.testing.assert_array_equal(numbers, expected)


DATES = {
    "numpy": np.array(["2020-01-01", "NaT"], "M8[D]"),
    "big-endian": np.array(["2020-01-01", "NaT"], ">M8[ns]"),
    "pandas": pd.Series(pd.to_datetime(["2020-01-01", None])),
    "with a zone": pd.Series(pd.to_datetime(["2020-01-01", None], utc=True)),
    "periods": pd.Series(pd.period_range("2020-01", periods=2, freq="M")),
    "arrow dates": pd.Series([dt.date(2020, 1, 1), None], dtype=pd.ArrowDtype(pa.date32())),
    "arrow times": pd.Series([None, dt.datetime(2020, 1, 1)], dtype="timestamp[us][pyarrow]"),
    "objects": np.array([None, dt.date(2020, 1, 1)], object),
    "stamps": np.array([1.0, pd.Timestamp(0)], object),
}
DURATIONS = {
    "numpy": np.array([1, "NaT"], "m8[s]"),
    "big-endian": np.array([1, "NaT"], ">m8[D]"),
    "pandas": pd.Series(pd.to_timedelta([1, None], unit="s")),
    "arrow": pd.Series([dt.timedelta(1), None], dtype=pd.ArrowDtype(pa.duration("us"))),
    "objects": [dt.timedelta(1), None],
}
TIMES = {f"dates {key}": (values, "holds dates") for key, values in DATES.items()} | {
    f"durations {key}": (values, "holds durations") for key, values in DURATIONS.items()
}


@pytest.mark.parametrize("case", TIMES)
def test_dates_and_durations_are_refused_wherever_they_come(case):
    values, message = TIMES[case]
    message += r" \(type .*convert it to numbers.*timedelta64\(1, 'D'\)"
    as_column = pd.DataFrame({"t": values})
    for refused in (
        lambda: numbers_of("input column 't'", values),
        lambda: columns_of(as_column),
        lambda: target_of(values, 2),
        lambda: weights_of(values, 2),
        lambda: extra_of(values, 2, "offset"),
        lambda: columns_of(np.asarray(values).reshape(-1, 1)),
    ):
        with pytest.raises(DataError, match=message):
            refused()


@pytest.mark.parametrize("role", ["X", "y", "sample_weight", "extra"])
@pytest.mark.parametrize("kind", ["M8[ns]", "m8[s]", ">M8[us]"])
def test_no_missing_date_of_dask_becomes_a_number(role, kind):
    times = da.from_array(np.array([1, 2, "NaT", 4], kind), chunks=2)
    given = {"X": da.ones((4, 1), chunks=(2, 1)), "y": da.ones(4, chunks=2)}
    given[role] = {"offset": times} if role == "extra" else times
    given["X"] = times[:, None] if role == "X" else given["X"]
    with pytest.raises(DataError, match="holds d"):
        [load() for load in source_of(**given).chunks()]


def test_no_missing_date_of_a_dask_frame_becomes_a_number():
    frame = pd.DataFrame({"a": pd.to_datetime(["2020-01-01", None]), "y": [1.0, 2.0]})
    with pytest.raises(DataError, match="input column 'a' holds dates"):
        [load() for load in source_of(dd.from_pandas(frame, npartitions=1), "y").chunks()]


REFUSED = {
    "numbers as text": (
        pd.Series(["1", "2.5", "", None]),
        r"holds numbers as text \('1' in row 0, counted from 0\), in 2 of 4 rows.*to_numeric",
    ),
    "text": (pd.Series(["1", "tall", "low"]), r"'tall' in row 1 .* 2 of 3 values are not numbers"),
    "one token": (pd.Series(["1", "?", "?"]), r"2 of 3 values are not numbers, all of them '\?'"),
    "decimal comma": (pd.Series(["1,5", "2", "3.000,25"]), r"2 of 3 values .*--decimal ,"),
    "bytes": (np.array([b"1", b"x"]), r"'x' in row 1 .* 1 of 2 values are not numbers"),
    "mixed": (np.array([1, "2"], object), r"numbers as text \('2' in row 1.* in 1 of 2 rows"),
    "empty text": (["", ""], "is text without any value"),
    "categories": (pd.Series([1, 2, None], dtype="category"), r"\(1, 2, …\), in 2 of 3 rows"),
    "dictionary": (
        pd.Series([1, 2], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.int64()))),
        r"categories \(1, 2, …\), in 2 of 2 rows; where these are amounts, convert",
    ),
    "lists": (pd.Series([[1.0], None]), r"\[1.0\] in row 0 .* 1 of 2 values are not numbers"),
    "intervals": (pd.Series(pd.interval_range(0, 2)), r"Interval.* 2 of 2 values are not numbers"),
    "complex": ([1j, 2], "Complex data not supported"),
    "beyond": ([10**400], "beyond what float64 can hold"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_number_is_reported_with_its_type_and_count(case):
    values, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        numbers_of("input column 'a'", values)


def test_all_unusable_columns_are_named_at_once():
    frame = pd.DataFrame(
        {"a": [1.0, 2.0], "when": pd.to_datetime(["2020", "2021"]), "site": ["n", "s"]}
    )
    with pytest.raises(DataError, match=r"^2 columns cannot be used:\n.*'when'.*;\n.*'site'"):
        columns_of(frame)
    with pytest.raises(DataError, match=r"^2 columns cannot be used:\n.*'x0'.*\n.*'x1'"):
        columns_of(np.array([["n", 1j, 1.0]], object))
    gaps = pd.DataFrame({"a": [1.0, np.nan], "b": [1.0, 2.0], "c": [np.inf, 1.0]})
    (load,) = source_of(gaps, [1.0, 2.0]).chunks()
    with pytest.raises(DataError, match=r"^2 columns cannot be used:\n.*'a' .*NaN.*\n.*'c' .*inf"):
        load()
