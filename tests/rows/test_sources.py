"""Tables of every kind become columns; files that are not what they say are refused."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.errors import DataError
from dsgp.rows.sources import columns_of, matching_columns, read_table, target_of, weights_of

FRAME = pd.DataFrame({"a": [1.5, 2.0, -3.0], "b": [1, 2, 3], "y": [True, False, True]})


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.parquet", "t.pq", "T.CSV", "x.csv.parquet"]
)
def test_a_file_comes_back_as_it_was(tmp_path, name):
    path = tmp_path / name
    if ".csv" in name.lower() and not name.endswith("parquet"):
        FRAME.to_csv(path, index=False)
    else:
        FRAME.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    assert list(read_table(path, ["y", "a"])) == ["y", "a"]


def test_csv_numbers_are_read_to_the_last_digit(tmp_path):
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    pd.DataFrame({"v": values}).to_csv(tmp_path / "v.csv", index=False)
    np.testing.assert_array_equal(read_table(tmp_path / "v.csv")["v"], values)


@pytest.mark.parametrize("label", ["a", "b"])  # pandas writes b, 1, 2, 3, as a range
def test_row_labels_that_pandas_stored_are_columns(tmp_path, label):
    FRAME.set_index(label).to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(table[list("aby")], FRAME)
    assert list(read_table(tmp_path / "t.parquet", ["y", label])) == ["y", label]


def text(content):
    return lambda path: path.write_text(content)


BROKEN = {
    "more fields than names": ("t.csv", text("a,b,y\n1,2,3,4\n"), "Expected 3 columns, got 4"),
    "fewer fields than names": ("t.csv", text("a,b,y\n1,2\n"), "Expected 3 columns, got 2"),
    "row labels without a name": ("t.csv", text(FRAME.to_csv()), "no name for column 1"),
    "duplicate": ("t.csv", text("a,a\n1,2\n"), "duplicate column name 'a'"),
    "empty": ("t.csv", text(""), "Empty CSV file"),
    "binary": ("t.csv", lambda p: p.write_bytes(bytes(range(256)) * 9), "CSV file that its name"),
    "csv as parquet": ("t.parquet", text("a,b\n1,2\n"), "Parquet file that its name says"),
    "empty parquet": ("t.parquet", text(""), "Parquet file that its name says"),
    "not gzip": ("t.csv.gz", text("a,b\n1,2\n"), "CSV file that its name says"),
    "truncated gzip": (
        "t.csv.gz",
        lambda p: p.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-40]),
        "CSV file that its name says",
    ),
    "unknown format": ("t.xlsx", text("a"), "its name must end in one of .csv"),
    "a folder": ("t.csv", lambda p: p.mkdir(), "is a folder"),
    "absent": ("t.csv", lambda p: None, "there is no file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_with_its_fault(tmp_path, case):
    name, make, message = BROKEN[case]
    make(tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        read_table(tmp_path / name)
    if case != "duplicate":
        assert str(tmp_path / name) in str(caught.value)


def test_a_missing_column_is_named_with_those_there(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"no column 'z'; it has 'a', 'b', 'y'"):
        read_table(tmp_path / "t.csv", ["a", "z"])


def test_columns_are_converted_one_by_one():
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, False, None], dtype="boolean"),
            "single": np.array([1.5, 2.5, 3.5], dtype=np.float32),
            "object": np.array([1, 2.5, None], dtype=object),
        }
    )
    columns = columns_of(frame)
    np.testing.assert_array_equal(columns.column("whole"), [1, np.nan, 3])
    np.testing.assert_array_equal(columns.column("flag"), [1, 0, np.nan])
    np.testing.assert_array_equal(columns.column("single", slice(1, 3)), [2.5, 3.5])
    np.testing.assert_array_equal(columns.column("object"), [1, 2.5, np.nan])
    assert all(columns.column(name).dtype == np.float64 for name in columns.names)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["x", "y"], "'x'"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "datetime64"),
        (pd.Categorical(["u", "v"]), "category"),
        ([1 + 2j, 3], "Complex"),
        (np.array([1, "2"], dtype=object), "object"),
    ],
)
def test_columns_that_are_no_numbers_are_named(values, kind):
    with pytest.raises(DataError, match=rf"(?s){kind}.*|.*{kind}") as caught:
        columns_of(pd.DataFrame({"good": [1.0, 2.0], "bad": values}))
    assert "'bad'" in str(caught.value)


def test_arrays_and_unnamed_frames_are_numbered():
    assert columns_of(np.zeros((2, 3))).names == ("x0", "x1", "x2")
    frame = columns_of(pd.DataFrame(np.zeros((2, 2))))
    assert (frame.names, frame.named) == (("x0", "x1"), False)
    with pytest.raises(TypeError, match="string names"):
        columns_of(pd.DataFrame({"a": [1.0], 2: [3.0]}))


@given(order=st.permutations(["a", "b", "c", "d"]), extra=st.booleans())
def test_frames_are_matched_by_name_in_any_order(order, extra):
    frame = pd.DataFrame({name: [float(ord(name))] for name in order})
    if extra:
        frame.insert(1, "note", "text")
    columns = matching_columns(frame, ["b", "c", "d"], ["b", "d"], True, "the model")
    assert columns.names == ("b", "d")
    assert [columns.column(name)[0] for name in "bd"] == [ord("b"), ord("d")]


def test_a_needed_column_that_occurs_twice_is_refused():
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "a"])
    assert matching_columns(frame, ["a", "b"], ["b"], True, "m").column("b")[0] == 2.0
    with pytest.raises(DataError, match="duplicate column name 'a'"):
        matching_columns(frame, ["a", "b"], ["a"], True, "m")


def test_targets_and_weights():
    np.testing.assert_array_equal(target_of([1, 2], 2), [1.0, 2.0])
    np.testing.assert_array_equal(weights_of(None, 2), [1.0, 1.0])
    np.testing.assert_array_equal(weights_of(3.0, 2), [3.0, 3.0])
    with pytest.raises(DataError, match=r"the weight 'n' is negative in row 1 .*: -2"):
        weights_of(pd.Series([1.0, -2.0], name="n"), 2)
    with pytest.raises(DataError, match="X has 3 rows but y has 2"):
        target_of([1, 2], 3)
    with pytest.raises(DataError, match="'price' is not numeric"):
        target_of(pd.Series(["1", "2"], name="price"), 2)
