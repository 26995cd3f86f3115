"""Classes of a target are found, and numbered, alike in every kind of source."""

import os
import pickle
import warnings

import dask
import dask.array as da
import distributed
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from dsgp.errors import DataError
from dsgp.rows.sources import MappedSource, Rows, Stored, classes_of, parts, source_of
from tests.rows.kinds import ON_DISK, chunks_of, collected, frame_in, one_csv, parquet_folder

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3"),
]

N_ROWS = 57
# Types that need not keep: bytes in a CSV file, whole numbers where pandas converts.
KINDS = {"text": "O", "truth": "b", "count": "i", "whole": "fi", "other": "ui"}
TARGETS = list(KINDS)


def labelled(n_rows=N_ROWS):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, n_rows)
    return pd.DataFrame(
        {
            "x": rng.standard_normal(n_rows),
            "text": np.array(["no", "a little", "ÿes"], dtype=object)[codes],
            "truth": codes > 0,
            "count": np.array([-7, 2**60, 3])[codes],
            "whole": np.array([1.0, -2.0, 1e9])[codes],
            "other": codes.astype(np.uint8),
        }
    )


def require_classes(labels, table, name) -> None:
    expected = np.unique(table[name].to_numpy())
    assert labels.dtype.kind in KINDS[name]
    np.testing.assert_array_equal(labels, expected)


def require_codes(rows: Rows, labels, table, name) -> None:
    assert rows.y.dtype == np.float64
    np.testing.assert_array_equal(labels[rows.y.astype(int)], table[name])


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("cuts", [[], [0, 7, 30, 57]])
@pytest.mark.parametrize("kind", ON_DISK)
def test_classes_on_disk(tmp_path, monkeypatch, kind, cuts, name):
    for limit in ("parts.BLOCK_ROWS", "stream.BLOCK_ROWS"):
        monkeypatch.setattr(f"dsgp.rows.sources.{limit}", 10)
    table = labelled()[["x", name]]
    path = ON_DISK[kind](table, tmp_path / "t", cuts)
    for X in (path, Stored(path, columns=["x"])):
        labels = classes_of(X, name)
        require_classes(labels, table, name)
        source = source_of(X, name, labels=labels)
        assert (source.names, source.target) == (("x",), name)
        require_codes(collected(source), labels, table, name)
        loaders = pickle.loads(pickle.dumps(list(source.chunks())))
        require_codes(Rows.join([load() for load in loaders]), labels, table, name)


IN_MEMORY = {
    "names": lambda t, name: (t, name),
    "series": lambda t, name: (t[["x"]], t[name]),
    "arrays": lambda t, name: (t[["x"]].to_numpy(), t[name].to_numpy()),
    "text of numpy": lambda t, name: (t[["x"]], np.array(t[name].tolist())),
    "lists": lambda t, name: (t[["x"]].to_numpy().tolist(), t[name].tolist()),
    "objects": lambda t, name: (t[["x"]], t[name].astype(object)),
    "categories": lambda t, name: (t[["x"]], pd.Categorical(t[name])),
    "column of categories": lambda t, name: (t.astype({name: "category"}), name),
    "nullable": lambda t, name: (t.convert_dtypes(), name),
    "array of pandas": lambda t, name: (t[["x"]], t[name].convert_dtypes().array),
    "xarray": lambda t, name: (xr.Dataset.from_dataframe(t), name),
    "array of xarray": lambda t, name: (t[["x"]], xr.DataArray(t[name].to_numpy())),
    "dask target": lambda t, name: (t[["x"]], da.from_array(t[name].to_numpy(), chunks=9)),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_classes_in_memory(kind, name, block_rows):
    table = labelled()[["x", name]]
    X, y = IN_MEMORY[kind](table, name)
    labels = classes_of(X, y)
    np.testing.assert_array_equal(labels, np.unique(table[name]))
    source = source_of(X, y, labels=labels)
    require_codes(collected(source), labels, table, name)
    loaders = [pickle.dumps(load) for load in source.chunks()]
    require_codes(Rows.join([pickle.loads(load)() for load in loaders]), labels, table, name)


LAZY = {
    "arrays": lambda t, name, c: (
        da.from_array(t[["x"]].to_numpy(), chunks=(chunks_of(len(t), c), 1)),
        da.from_array(t[name].to_numpy(), chunks=10),
    ),
    "column": lambda t, name, c: (
        da.from_array(t[["x"]].to_numpy(), chunks=(chunks_of(len(t), c), 1)),
        da.from_array(t[[name]].to_numpy(), chunks=10),
    ),
    "target in memory": lambda t, name, c: (
        da.from_array(t[["x"]].to_numpy(), chunks=(chunks_of(len(t), c), 1)),
        t[name],
    ),
    "series": lambda t, name, c: (frame_in(t, c)[["x"]], frame_in(t, c)[name]),
    "names": lambda t, name, c: (frame_in(t, c), name),
    "categories": lambda t, name, c: (frame_in(t.astype({name: "category"}), c), name),
    "nullable": lambda t, name, c: (frame_in(t.convert_dtypes(), c), name),
    "xarray": lambda t, name, c: (xr.Dataset.from_dataframe(t).chunk(index=10), name),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", LAZY)
@settings(max_examples=4)
@given(cuts=st.lists(st.integers(0, N_ROWS), max_size=4).map(sorted))
def test_classes_of_dask_collections(kind, name, cuts):
    table = labelled()[["x", name]]
    X, y = LAZY[kind](table, name, cuts)
    labels = classes_of(X, y)
    require_classes(labels, table, name)
    source = source_of(X, y, labels=labels)
    require_codes(collected(source), labels, table, name)
    delayed = dask.compute(*(load.delayed for load in source.chunks()), scheduler="threads")
    require_codes(Rows.join(delayed), labels, table, name)


def process(_block):
    return np.array([os.getpid()])


def test_blocks_go_to_the_active_client():
    target = da.zeros(3, chunks=1).map_blocks(process, dtype=np.int64, meta=np.empty(0, np.int64))
    with distributed.Client(
        processes=True, dashboard_address=None, n_workers=1, threads_per_worker=1
    ) as client:
        (there,) = client.run(os.getpid).values()
        np.testing.assert_array_equal(classes_of(None, target), [there])
    np.testing.assert_array_equal(classes_of(None, target), [os.getpid()])


def test_a_block_of_one_column_is_loaded_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "BLOCK_ROWS", 9)
    original, seen = parts.ParquetPart._read, []

    def read(self, groups, columns, *rest):
        seen.append((len(groups), columns))
        return original(self, groups, columns, *rest)

    monkeypatch.setattr(parts.ParquetPart, "_read", read)
    labels = classes_of(parquet_folder(labelled(), tmp_path / "t", [20]), "text")
    assert len(labels) == 3
    assert seen == [(1, ["text"])] * 8


def test_numbers_need_not_be_of_one_type_in_all_parts(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    for number, values in enumerate(([1, 2], [2.0, 3.0], [0, 1])):
        pd.DataFrame({"x": 0.5, "y": values}).to_csv(folder / f"{number}.csv", index=False)
    labels = classes_of(folder, "y")
    np.testing.assert_array_equal(labels, [0, 1, 2, 3])
    rows = collected(source_of(folder, "y", labels=labels))
    np.testing.assert_array_equal(rows.y, [1, 2, 2, 3, 0, 1])


def test_unused_categories_are_no_classes():
    y = pd.Categorical(["b", "a", "b"], categories=["c", "b", "a"])
    np.testing.assert_array_equal(classes_of(None, y), ["a", "b"])


def test_a_map_keeps_the_classes():
    table = labelled()
    labels = classes_of(table, "text")
    source = source_of(table[["x", "text"]], "text", labels=labels)
    mapped = MappedSource(source, ("x",), lambda columns: columns)
    require_codes(collected(mapped), labels, table, "text")


def test_a_column_vector_is_warned_of_once():
    y = np.array([[1], [0], [1]])
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed when a 1d"):
        labels = classes_of(None, y)
    np.testing.assert_array_equal(labels, [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            collected(source_of(np.eye(3), y, labels=labels)).y, [1, 0, 1]
        )


def test_a_class_that_is_not_among_the_labels(tmp_path):
    table = labelled()[["x", "text"]]
    table.loc[40, "text"] = "perhaps"
    labels = np.array(["a little", "no", "ÿes"])
    message = (
        r"unseen class 'perhaps' in row {row} \(counted from 0\) of the target 'text'; classes are "
        "'a little', 'no', 'ÿes'$"
    )
    with pytest.raises(DataError, match="^" + message.format(row=40)):
        source_of(table, "text", labels=labels)
    with pytest.raises(DataError, match="^block 2 of the dask .*: " + message.format(row=10)):
        collected(source_of(frame_in(table, [0, 30]), "text", labels=labels))
    folder = parquet_folder(table, tmp_path / "t", [30])
    with pytest.raises(DataError, match="^part 'part.1.parquet': " + message.format(row=10)):
        collected(source_of(folder, "text", labels=labels))


@pytest.mark.parametrize(
    ("labels", "y", "message"),
    [
        ([1, 2], [1, 3], "unseen class 3 in row 1 .*; classes are 1, 2$"),
        ([1, 2], ["1", "2"], "unseen class '1' in row 0 .*; classes are 1, 2$"),
        ([False, True], [1, 0], "unseen class 1 in row 0 .*; classes are False, True$"),
        ([1.0], [1.0, 1.5], "unseen class 1.5 in row 1 "),
        (np.arange(40), [99, 0], r"classes are 0, .*, 11, … \(40 in all\)$"),
        ([1, 2], [1, 2, 1], "X has 2 rows but y has 3"),
    ],
)
def test_labels_are_compared_by_kind_and_value(labels, y, message):
    with pytest.raises(DataError, match=message):
        source_of(np.eye(2), y, labels=np.asarray(labels))


MISSING = {
    "NaN": (np.array([1.0, np.nan]), r"contains NaN \(missing\) in row 1 "),
    "None": (["a", None], r"contains NaN \(missing\) in row 1 .* no class in 1 of 2 rows"),
    "NaN beside text": (np.array(["a", np.nan], dtype=object), r"NaN \(missing\) in row 1 "),
    "NA": (["a", pd.NA], r"contains NaN \(missing\) in row 1 "),
    "of pandas": (pd.array([True, None], dtype="boolean"), r"NaN \(missing\) in row 1 "),
    "category": (pd.Categorical(["a", None]), r"NaN \(missing\) in row 1 "),
    "text": (np.array(["a", ""]), "contains empty text in row 1 "),
    "infinity": (np.array([1.0, np.inf]), "contains infinity in row 1 "),
}


@pytest.mark.parametrize("case", MISSING)
def test_every_row_has_a_class(case):
    y, message = MISSING[case]
    lazy = da.from_array(np.asarray(y), chunks=2)
    for function in (
        lambda: classes_of(None, y),
        lambda: source_of(np.eye(2), y, labels=np.array(["a"])),
        lambda: classes_of(pd.DataFrame({"y": y}), "y"),
        lambda: classes_of(None, lazy),
        lambda: collected(source_of(da.ones((2, 1)), lazy, labels=np.array(["a"]))),
    ):
        with pytest.raises(DataError, match=rf"the target 'y' {message}|{message}"):
            function()


def test_missing_classes_on_disk(tmp_path):
    table = labelled()[["x", "text", "count"]].astype({"count": "Int64"})
    table.loc[40, ["text", "count"]] = None
    frame = frame_in(table, [30])
    folder = parquet_folder(table, tmp_path / "t", [30])
    path = one_csv(table, tmp_path / "u", [])
    for name in ("text", "count"):
        for X, part, row in (
            (folder, "part 'part.1.parquet'", 10),
            (path, "'.*t.csv.gz'", 40),
            (frame, "block 1 of the target", 10),
        ):
            message = rf"^{part}: the target '{name}' contains .* in row {row} "
            with pytest.raises(DataError, match=message):
                classes_of(X, name)


UNFIT = {
    "mixed": (["a", 1], "values of type int, str; classes must be .* all of one kind"),
    "truth and count": (np.array([True, 2], dtype=object), "values of type bool, int"),
    "continuous": (np.linspace(0.0, 1.0, 9), "Unknown label type: continuous"),
    "fractions": (np.array([0.5, 1.5]), "Unknown label type: continuous"),
    "dates": (pd.to_datetime(["2020-01-01", "2021-01-01"]), "type datetime64"),
    "bytes": (np.array([b"a", b"b"]), "type .S1; classes are"),
    "huge": ([2**70, 1], "beyond 64 bits"),
    "masked": (np.ma.array([1, 2]), "is a masked array"),
    "nothing": ([], r"is empty: 0 sample\(s\)"),
    "none": (None, "the target y is None"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_targets_without_classes(case):
    y, message = UNFIT[case]
    with pytest.raises(DataError, match=message):
        classes_of(None, y)


def test_targets_of_two_columns():
    with pytest.raises(ValueError, match="y should be a 1d array, got an array of shape"):
        classes_of(None, np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"y has shape \(3, 2\); one value per row"):
        classes_of(None, da.zeros((3, 2)))


def test_targets_without_classes_in_blocks(tmp_path):
    table = labelled()
    folder = parquet_folder(table, tmp_path / "t", [30])
    continuous = r"^part 'part.0.parquet': Unknown label type: continuous. The target 'x' has val"
    with pytest.raises(DataError, match=continuous):
        classes_of(folder, "x")
    with pytest.raises(DataError, match=r"^block \d of the target: Unknown label type: continuous"):
        classes_of(frame_in(table, [20]), "x")
    table.assign(text=1).to_parquet(folder / "part.7.parquet")
    with pytest.raises(DataError, match="'text' holds values of type int, str; classes must be"):
        classes_of(folder, "text")
    mixed = da.concatenate([da.from_array(np.array(["a"], dtype=object), chunks=1), da.ones(1)])
    with pytest.raises(DataError, match="'y' holds values of type float, str; classes must be"):
        classes_of(None, mixed)
    with pytest.raises(DataError, match=r"'y' is empty: 0 sample\(s\)"):
        classes_of(None, da.zeros(0))


def test_a_column_that_is_not_there(tmp_path):
    table = labelled()
    path = one_csv(table, tmp_path / "t", [])
    for X, what in (
        (table, "the table"),
        (frame_in(table, [9]), "the dask dataframe"),
        (path, "'.*t.csv.gz'"),
        (xr.Dataset.from_dataframe(table), "the table"),
    ):
        with pytest.raises(DataError, match=rf"^{what} has no column 'z'; it has 'x', 'text'"):
            classes_of(X, "z")
    for X in (table.to_numpy(), da.zeros((3, 2))):
        with pytest.raises(DataError, match=r"has no column 'z': pass an array"):
            classes_of(X, "z")
    with pytest.raises(DataError, match="y must be the name of a column, because X is the path"):
        classes_of(path, table["text"])
