"""Every kind of source gives the rows of the table in memory, bit by bit, or names its fault."""

import itertools
import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.rows import sinks
from dsgp.rows.sources import (
    Rows,
    Stored,
    is_lazy,
    map_rows,
    matching_source,
    open_table,
    parts,
    source_of,
)
from tests.rows.kinds import (
    N_ROWS,
    ON_DISK,
    chunks_of,
    collected,
    csv_glob,
    example,
    frame_in,
    one_csv,
    parquet_folder,
    unknown,
)

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

INPUTS = ["a", "whole", "flag"]


def require_same(rows: Rows, table: pd.DataFrame, inputs=INPUTS, y="y", weight="w") -> None:
    assert len(rows) == len(table)
    for values, name in zip(rows.columns, inputs, strict=True):
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, table[name].to_numpy(np.float64, na_value=np.nan))
    for values, name in ((rows.y, y), (rows.weight, weight)):
        assert (values is None) == (name is None)
        if name is not None:
            np.testing.assert_array_equal(values, table[name])


# ---------------------------------------------------------------- kinds of tables


@pytest.mark.parametrize("cuts", [[], [20], [0, 7, 30, 57]])
@pytest.mark.parametrize("kind", ON_DISK)
def test_tables_on_disk_are_those_in_memory(tmp_path, block_rows, kind, cuts):
    table = example()
    path = ON_DISK[kind](table, tmp_path / "t", cuts)
    source = source_of(path, "y", "w")
    assert sorted(source.names) == sorted(INPUTS)
    assert (source.named, source.target, source.weighted) == (True, "y", True)
    for _ in range(2):  # every pass gives the same
        require_same(collected(source), table, source.names)
    assert max(len(load()) for load in source.chunks()) <= 2 * block_rows
    loaders = pickle.loads(pickle.dumps(list(source.chunks())))
    require_same(Rows.join([load() for load in loaders]), table, source.names)
    plain = source_of(Stored(path, columns=["flag", "a"]), "y")
    require_same(collected(plain), table, ["flag", "a"], weight=None)
    dropped = source_of(Stored(path, drop=["w", "whole"]), "y")
    assert sorted(dropped.names) == ["a", "flag"]
    new = matching_source(path, [*INPUTS, "z"], ["flag", "a"], True, "m")
    require_same(collected(new), table, ["flag", "a"], y=None, weight=None)
    nothing = matching_source(path, INPUTS, [], True, "m")
    assert sum(len(load()) for load in nothing.chunks()) == len(table)


def as_array(table):
    return table[INPUTS].to_numpy(np.float64)


IN_MEMORY = {
    "frame": lambda t: (t[INPUTS], t["y"], t["w"]),
    "frame, names": lambda t: (t, "y", "w"),
    "arrays": lambda t: (as_array(t), t["y"].to_numpy(), t["w"].to_numpy()),
    "lists": lambda t: (as_array(t).tolist(), t["y"].tolist(), t["w"].tolist()),
    "array, dask target": lambda t: (as_array(t), da.from_array(t["y"].to_numpy()), t["w"]),
    "xarray": lambda t: (xr.Dataset.from_dataframe(t), "y", "w"),
    "nullable": lambda t: (t[INPUTS].convert_dtypes(), t["y"].convert_dtypes(), t["w"]),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_tables_in_memory_come_in_blocks(block_rows, kind):
    table = example()
    source = source_of(*IN_MEMORY[kind](table))
    require_same(collected(source), table)
    assert source.names == (tuple(INPUTS) if source.named else ("x0", "x1", "x2"))
    assert max(len(load()) for load in source.chunks()) <= block_rows
    loaders = [pickle.dumps(load) for load in source.chunks()]
    require_same(Rows.join([pickle.loads(load)() for load in loaders]), table)


LAZY = {
    "arrays": lambda t, c: (
        da.from_array(as_array(t), chunks=(chunks_of(len(t), c), 1)),
        da.from_array(t["y"].to_numpy(), chunks=10),
        da.from_array(t[["w"]].to_numpy(), chunks=-1),
    ),
    "array, the rest in memory": lambda t, c: (
        da.from_array(as_array(t), chunks=(chunks_of(len(t), c), 2)),
        t["y"].to_numpy(),
        t["w"],
    ),
    "frame": lambda t, c: (frame_in(t, c)[INPUTS], frame_in(t, c)["y"], frame_in(t, c)["w"]),
    "frame, names": lambda t, c: (frame_in(t, c), "y", "w"),
    "unknown lengths": lambda t, c: (
        unknown(t[INPUTS], c),
        frame_in(t, c)["y"],
        unknown(t["w"], c),
    ),
    "xarray": lambda t, c: (xr.Dataset.from_dataframe(t).chunk(index=10), "y", "w"),
}


@pytest.mark.parametrize("kind", LAZY)
@settings(max_examples=8)
@given(cuts=st.lists(st.integers(0, N_ROWS), max_size=5).map(sorted))
def test_dask_collections_are_those_in_memory(kind, cuts):
    table = example()
    source = source_of(*LAZY[kind](table, cuts))
    require_same(collected(source), table)
    assert source.weighted
    delayed = dask.compute(*(load.delayed for load in source.chunks()), scheduler="threads")
    require_same(Rows.join(delayed), table)


def test_new_rows_are_matched_as_in_memory():
    table = example()
    lazy = frame_in(table[["y", "flag", "w", "whole", "a"]], [20])
    by_name = matching_source(lazy, INPUTS, ["whole", "a"], True, "m")
    require_same(collected(by_name), table, ["whole", "a"], None, None)
    assert by_name.names == ("whole", "a")
    names = ["x0", "x1", "x2"]
    for X in (da.from_array(as_array(table), chunks=(20, 3)), lazy[INPUTS], table[INPUTS]):
        by_position = matching_source(X, names, ["x2", "x0"], False, "m")
        require_same(collected(by_position), table, ["flag", "a"], None, None)
        assert by_position.names == ("x2", "x0")
        with pytest.raises(DataError, match="X has 3 features, but m is expecting 2 features"):
            matching_source(X, ["x0", "x1"], ["x0"], False, "m")
    with pytest.raises(DataError, match=r"names should match(?s:.*)no column 'z'"):
        matching_source(lazy, ["a", "z"], ["z"], True, "m")
    empty = matching_source(lazy, INPUTS, [], True, "m")
    assert sum(len(load()) for load in empty.chunks()) == len(table)


def test_files_are_matched_by_position_for_a_model_without_names(tmp_path):
    table = example()
    path = csv_glob(table[INPUTS], tmp_path / "t", [30])
    source = matching_source(path, ["x0", "x1", "x2"], ["x2", "x0"], False, "m")
    require_same(collected(source), table, ["flag", "a"], None, None)
    with pytest.raises(DataError, match="X has 3 features, but m is expecting 1 features"):
        matching_source(path, ["x0"], ["x0"], False, "m")
    with pytest.raises(DataError, match=r"names should match(?s:.*)p0.csv' has no column 'z'"):
        matching_source(path, ["a", "z"], ["z"], True, "m")


def test_parts_come_in_the_order_of_their_numbers(tmp_path):
    table = example()
    folder = parquet_folder(table, tmp_path / "t", list(range(4, 56, 4)))
    assert [part.label for part in open_table(folder).parts][-1] == "part 'part.13.parquet'"
    require_same(collected(source_of(folder, "y", "w")), table)


def test_row_labels_that_pandas_stored_are_columns_or_nothing(tmp_path):
    table = example()[INPUTS].assign(y=0.5, row=np.arange(3, 3 + 2 * N_ROWS, 2))
    table.set_index("row").to_parquet(tmp_path / "t.parquet", row_group_size=10)
    rows = collected(source_of(tmp_path / "t.parquet", "y"))
    require_same(rows, table, [*INPUTS, "row"], weight=None)
    table.drop(columns="row").iloc[::-1].to_parquet(tmp_path / "u.parquet")
    assert source_of(tmp_path / "u.parquet", "y").names == tuple(INPUTS)


def test_numbers_of_a_csv_file_need_not_look_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "CSV_BYTES", 4000)
    n = 300_000  # more than Arrow looks at to infer the types
    table = pd.DataFrame({"a": np.r_[np.arange(n), 0.5], "y": np.r_[np.zeros(n), 1.5]})
    table.astype({"a": object}).to_csv(tmp_path / "t.csv", index=False)
    require_same(collected(source_of(tmp_path / "t.csv", "y")), table, ["a"], weight=None)


def test_a_coordinate_is_a_column_when_asked_for(tmp_path):
    table = xr.Dataset.from_dataframe(example().rename_axis("row")).set_coords("w")
    table.to_zarr(tmp_path / "t")
    assert sorted(source_of(tmp_path / "t", "y").names) == sorted(INPUTS)
    assert source_of(table, "y").names == tuple(INPUTS)
    rows = collected(source_of(Stored(tmp_path / "t", columns=["row", "w"]), "y"))
    np.testing.assert_array_equal(rows.columns[0], np.arange(N_ROWS))
    np.testing.assert_array_equal(rows.columns[1], table["w"])


@given(cuts=st.lists(st.integers(0, N_ROWS), max_size=4).map(sorted))
def test_rows_are_cut_and_joined(cuts):
    table = example()
    rows = collected(source_of(table, "y", "w"))
    ends = [0, *cuts, N_ROWS]
    pieces = [rows.part(slice(*pair)) for pair in itertools.pairwise(ends)]
    assert all(
        np.shares_memory(piece.columns[0], rows.columns[0]) for piece in pieces if len(piece)
    )
    require_same(Rows.join(pieces), table)
    assert [len(Rows([], n_rows=9).part(slice(*pair))) for pair in ((2, 5), (8, 20))] == [3, 1]


# ---------------------------------------------------------------- missing values


@pytest.mark.parametrize("kind", ["parquet folder", "csv glob", "zarr 3"])
def test_inputs_may_be_missing_on_request(tmp_path, block_rows, kind):
    table = example()
    table["flag"] = table["flag"].astype(float)
    table.loc[[3, 40], "flag"] = np.nan
    table.loc[30:, "a"] = np.nan  # no value in all of a part
    path = ON_DISK[kind](table, tmp_path / "t", [30])
    source = source_of(path, "y", "w", missing="ignore")
    require_same(collected(source), table, source.names)
    with pytest.raises(DataError, match=r"column '(a|flag)' contains NaN .* row \d+"):
        collected(source_of(path, "y", "w"))


def test_truth_values_and_counts_may_be_missing_in_a_part(tmp_path):
    table = example().astype({"whole": "Int64", "flag": "boolean"})
    table.loc[40:, ["whole", "flag"]] = pd.NA
    folder = parquet_folder(table, tmp_path / "t", [40])
    require_same(collected(source_of(folder, "y", "w", missing="ignore")), table)


@pytest.mark.parametrize("missing", ["error", "ignore"])
@pytest.mark.parametrize(("name", "value"), [("a", np.inf), ("y", np.nan), ("w", np.nan)])
def test_other_values_must_be_there(name, value, missing):
    table = example()
    table.loc[40, name] = value
    with pytest.raises(DataError, match=rf"'{name}' contains \w+ .*in row 40 .counted"):
        collected(source_of(table, "y", "w", missing=missing))
    lazy = frame_in(table, [5, 30])
    with pytest.raises(
        DataError, match=rf"block 2 of the dask dataframe: .*'{name}' contains .* row 10"
    ):
        collected(source_of(lazy, "y", "w", missing=missing))


# ---------------------------------------------------------------- faults, by part and column


def part_of(folder, number=2):
    return folder / f"part.{number}.parquet"


def rewritten(**columns):
    def change(folder):
        table = pd.read_parquet(part_of(folder))
        table.assign(**columns).to_parquet(part_of(folder), index=False)

    return change


def without(name):
    def change(folder):
        pd.read_parquet(part_of(folder)).drop(columns=name).to_parquet(part_of(folder), index=False)

    return change


def spoiled(name, value):
    def change(folder):
        table = pd.read_parquet(part_of(folder))
        table.loc[4, name] = value
        table.to_parquet(part_of(folder), index=False, row_group_size=3)

    return change


FAULTS = {
    "column absent": (without("a"), "lacks 'a', compared with part 'part.0.parquet'"),
    "column added": (rewritten(z=1.0), "has 'z' as well, compared with"),
    "renamed": (lambda f: (without("a")(f), rewritten(A=1.0)(f)), "lacks 'a' and has 'A' as well"),
    "text": (rewritten(a="ten"), "input column 'a' is not numeric .*'ten' in row 0"),
    "dates": (rewritten(a=pd.Timestamp(0)), "input column 'a' holds dates"),
    "text target": (rewritten(y="ten"), "target 'y' is not numeric"),
    "text weight": (rewritten(w="ten"), "the weight 'w' is not numeric .*'ten' in row 0"),
    "NaN": (spoiled("a", np.nan), r"input column 'a' contains NaN \(missing\) in row 4 "),
    "infinity": (spoiled("a", -np.inf), "input column 'a' contains infinity in row 4 "),
    "NaN target": (spoiled("y", np.nan), "target 'y' contains NaN .* row 4 "),
    "NaN weight": (spoiled("w", np.nan), "weight 'w' contains NaN .* row 4 "),
    "negative": (spoiled("w", -1.0), r"weight 'w' is negative in row 4 .*: -1"),
    "too heavy": (spoiled("w", 1e150), "weight 'w' goes beyond 1e-100 to 1e100"),
    "no parquet": (lambda f: part_of(f).write_text("a,b"), "cannot be read as the Parquet file"),
    "empty file": (lambda f: part_of(f).write_text(""), "cannot be read as the Parquet file"),
    "twice": (
        lambda f: pq.write_table(pa.table([[1.0], [2.0]], names=["a", "a"]), part_of(f)),
        "duplicate column name 'a'",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_names_part_and_column(tmp_path, monkeypatch, case):
    monkeypatch.setattr(parts, "BLOCK_ROWS", 3)
    change, message = FAULTS[case]
    folder = parquet_folder(example(), tmp_path / "t", [10, 20, 30])
    change(folder)
    with pytest.raises(DataError, match=rf"^part 'part.2.parquet':? .*{message}"):
        collected(source_of(folder, "y", "w"))


def test_a_part_that_lacks_a_column_asked_for(tmp_path):
    folder = parquet_folder(example(), tmp_path / "t", [10, 20, 30])
    without("a")(folder)
    assert source_of(Stored(folder, columns=["flag"]), "y").names == ("flag",)
    with pytest.raises(DataError, match=r"part 'part.2.parquet' has no column 'a'; it has"):
        source_of(Stored(folder, columns=["a"]), "y")


def test_a_csv_value_of_another_type_is_found(tmp_path):
    folder = tmp_path / "t"
    csv_glob(example(), folder, [30])
    with open(folder / "p1.csv", "a") as file:
        file.writelines(["1.5,1,True,1.0,1.0\n"] * 200_000 + ["ten,1,True,1.0,1.0\n"])
    message = r"p1.csv': column 'a' is not of one type: .*'ten' in line 200029"
    with pytest.raises(DataError, match=message):
        collected(source_of(str(folder / "*.csv"), "y", "w"))


def empty_csv(folder):
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.csv").write_text("a,y\n")
    return folder


def make(**files):
    def create(folder):
        folder.mkdir()
        for name, content in files.items():
            path = folder / name.replace("__", "/").replace("_csv", ".csv").replace("_pq", ".pq")
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return folder

    return create


def bad_zarr(**arrays):
    def create(folder):
        group = zarr.open_group(str(folder), mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=np.asarray(values))
        return folder

    return create


def packed(folder):
    encoding = {"a": {"scale_factor": 0.1, "dtype": "int16"}}
    table = xr.Dataset({"a": ("row", np.arange(3.0)), "y": ("row", np.arange(3.0))})
    table.to_zarr(folder, encoding=encoding)
    return folder


def damaged(folder):
    bad_zarr(a=[1.0, 2.0], y=[1.0, 2.0])(folder)
    (folder / "a" / "c" / "0").write_bytes(b"junk")
    return folder


PLACES = {
    "absent": (lambda f: f / "t.csv", "there is no file"),
    "no match": (lambda f: f / "*.csv", r"no file matches '.*\*.csv'"),
    "empty folder": (lambda f: f.mkdir() or f, "is a folder without any file .csv"),
    "no row": (empty_csv, "is an empty table: it has columns 'a', 'y' but no row"),
    "mixed": (make(a_csv="a,y\n1,2\n", b_pq=""), "has both CSV and Parquet files"),
    "by columns": (make(**{"k=1__a_csv": "a,y\n1,2\n"}), "keeps the column 'k' in the names"),
    "only a target": (make(a_csv="y\n1\n"), r"no input column \(0 feature\(s\)\) besides 'y'"),
    "no target": (make(a_csv="a,b\n1,2\n"), "part 'a.csv' has no column 'y'; it has 'a', 'b'"),
    "semicolons": (make(a_csv="a;y\n1;2\n"), "it seems to be separated by ';'"),
    "unequal arrays": (bad_zarr(a=[1.0, 2.0], y=[1.0]), r"array 'y' has shape \(1,\)"),
    "matrix": (bad_zarr(a=[1.0], y=[[1.0]]), r"array 'y' has shape \(1, 1\), but 'a' has \(1,\)"),
    "no array": (bad_zarr(), "has no array"),
    "no zarr": (make(**{"zarr.json": "junk"}), "cannot be read as a zarr group"),
    "packed": (packed, "column 'a' is stored in a code .*scale_factor"),
    "damaged": (damaged, "column 'a' cannot be read"),
    "zarr text": (bad_zarr(a=["u", "v"], y=[1.0, 2.0]), "column 'a' is not numeric"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", PLACES)
def test_places_without_a_usable_table(tmp_path, case):
    create, message = PLACES[case]
    with pytest.raises(DataError, match=message):
        collected(source_of(create(tmp_path / "t"), "y"))


def arrays(n_x, n_y, chunks):
    return da.zeros((n_x, 2), chunks=(chunks, 2)), da.zeros(n_y, chunks=chunks)


UNFIT = {
    "lengths": (lambda t: arrays(10, 9, 5), "X has 10 rows but y has 9"),
    "lengths in memory": (
        lambda t: (da.zeros((10, 2)), np.zeros(9)),
        "X has 10 rows but y has 9",
    ),
    "blocks": (
        lambda t: (frame_in(t[INPUTS], [10]), frame_in(t, [10, 20])["y"]),
        "X has 2 blocks but y has 3",
    ),
    "lengths of blocks": (
        lambda t: (frame_in(t[INPUTS], [10]), frame_in(t, [20])["y"]),
        "block 0 of the dask dataframe: X has 10 rows but y has 20",
    ),
    "an empty block": (
        lambda t: (frame_in(t[INPUTS], [0]), frame_in(t, [20])["y"]),
        "block 0 of the dask dataframe: X has no row but 'y' has 20",
    ),
    "unknown lengths": (
        lambda t: (frame_in(t[INPUTS], [10]), t["y"]),
        "y is in memory, but the lengths of the blocks",
    ),
    "one dimension": (lambda t: (da.zeros(10), da.zeros(10)), r"X has shape \(10,\)"),
    "two targets": (lambda t: (da.zeros((9, 2)), da.zeros((9, 2))), r"y has shape \(9, 2\)"),
    "no row": (lambda t: arrays(0, 0, 5), "the dask array is empty"),
    "no column": (lambda t: (da.zeros((9, 0)), da.zeros(9)), "no input column"),
    "absent": (lambda t: (frame_in(t, []), "z"), "has no column 'z'; it has 'a'"),
    "name for an array": (lambda t: (da.zeros((9, 1)), "z"), "dask array has no column 'z'"),
    "absent in memory": (lambda t: (t, "z"), "the table has no column 'z'; it has 'a'"),
    "array for a path": (lambda t: ("t.csv", t["y"]), "y must be the name of a column"),
    "delayed": (lambda t: (dask.delayed(t), "y"), "pass a dask array or a dask data frame"),
    "dimensions": (
        lambda t: (xr.Dataset({"a": ("i", [1.0]), "y": ("j", [1.0])}), "y"),
        "dimensions 'i', 'j'; columns are variables of one",
    ),
    "no target": (lambda t: (t, None), "the target y is None"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_together(case):
    make_both, message = UNFIT[case]
    with pytest.raises(DataError, match=message):
        collected(source_of(*make_both(example())))


def test_input_and_target_at_once(tmp_path):
    path = one_csv(example(), tmp_path / "t", [])
    with pytest.raises(DataError, match="'y' cannot be an input as well"):
        source_of(Stored(path, columns=["a", "y"]), "y")


# ---------------------------------------------------------------- dask in, dask out


def test_kinds_are_distinguished():
    assert is_lazy(da.zeros(3))
    assert is_lazy(frame_in(example(), []))
    assert not is_lazy(example())


@pytest.mark.parametrize("cuts", [[], [20], [0, 7, 7, 57]])
def test_functions_of_rows_stay_lazy_and_run_once_a_block(cuts):
    table = example()[["a", "w"]]
    calls = []

    def function(block):
        calls.append(len(block))
        values = np.asarray(block)
        return np.c_[values[:, 0] + values[:, 1], values[:, 1]]

    array = da.from_array(table.to_numpy(), chunks=(chunks_of(N_ROWS, cuts), 1))
    for X in (array, frame_in(table, cuts)):
        calls.clear()
        total, weight = map_rows(X, function, 2)
        assert not calls
        assert isinstance(total, da.Array)
        results = dask.compute(total, weight, scheduler="sync")
        np.testing.assert_array_equal(results[0], table["a"] + table["w"])
        np.testing.assert_array_equal(results[1], table["w"])
        assert sorted(calls) == sorted(n for n in chunks_of(N_ROWS, cuts) if n)
    (total,) = map_rows(xr.Dataset({"a": ("row", array[:, 0])}), lambda block: block.to_numpy(), 1)
    np.testing.assert_array_equal(total, table["a"])
    lengths = tuple(n for n in array.chunks[0] if n)
    assert map_rows(array, function, 2)[0].chunks == (lengths,)


def test_a_failing_function_names_the_block():
    def function(block):
        raise DataError("no")

    (values,) = map_rows(da.zeros((6, 2), chunks=(3, 1)), function, 1)
    with pytest.raises(DataError, match=r"^block 1 of the dask array: no"):
        values[3:].compute()


# ---------------------------------------------------------------- where rows go


def numbered_part(number):
    values = [number, number + 0.5]
    return pd.DataFrame({"v": values} | dict.fromkeys(sinks.MOMENTS, values))


def test_parts_appear_all_at_once(tmp_path):
    folder = tmp_path / "out"
    with sinks.written_parts(folder) as write:
        for number in range(12):
            write(numbered_part(number), number)
        assert not folder.exists()
    assert sorted(part.name for part in folder.iterdir())[-1] == "part-00011.parquet"
    values = pd.read_parquet(folder)["v"]
    np.testing.assert_array_equal(values, np.arange(24) / 2)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, DataError, OSError(28, "full")])
@pytest.mark.parametrize("before", [False, True])
def test_an_interrupted_writer_leaves_what_was_there(tmp_path, error, before):
    folder = tmp_path / "out"
    if before:
        with sinks.written_parts(folder) as write:
            write(numbered_part(7), 0)
    expected = StorageError if isinstance(error, OSError) else error

    def interrupted():
        with sinks.written_parts(folder, overwrite=True) as write:
            write(numbered_part(1), 0)
            raise error

    with pytest.raises(expected):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if before else [])
    if before:
        assert pd.read_parquet(folder)["v"][0] == 7


def test_only_parts_are_overwritten(tmp_path):
    folder = tmp_path / "out"
    with sinks.written_parts(folder) as write:
        write(numbered_part(1), 0)
        write(numbered_part(1), 1)
    with pytest.raises(StorageError, match=r"exists; .*--overwrite"), sinks.written_parts(folder):
        pass
    with sinks.written_parts(folder, overwrite=True) as write:
        write(numbered_part(2), 0)
    assert len(list(folder.iterdir())) == 1
    (folder / "mine.txt").touch()
    with (
        pytest.raises(StorageError, match=r"exists; choose another path, or delete it yourself"),
        sinks.written_parts(folder, overwrite=True),
    ):
        pass
    with (
        pytest.raises(StorageError, match="there is no folder"),
        sinks.written_parts(tmp_path / "no" / "out"),
    ):
        pass
    with pytest.raises(ParameterError), sinks.written_aside(tmp_path / "t.xlsx", False):
        pass


def test_parts_have_the_types_of_the_first(tmp_path):
    with sinks.written_parts(tmp_path / "out") as write:
        write(pd.DataFrame({"v": [1.5]}), 0)
        write(pd.DataFrame({"v": [1]}), 1)
    types = {pq.read_schema(path).field("v").type for path in (tmp_path / "out").iterdir()}
    assert types == {pa.float64()}
    with sinks.written_parts(tmp_path / "other") as write:
        write(pd.DataFrame({"v": [1.5]}), 0)
        with pytest.raises(DataError, match="changes its type between blocks"):
            write(pd.DataFrame({"v": ["text"]}), 1)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_a_file_is_written_block_by_block(tmp_path, name):
    path = tmp_path / name
    with sinks.table_writer(name, path) as write:
        for number in range(3):
            write(numbered_part(number))
    values = open_table(path)
    blocks = [block.read() for block in values.blocks(["v"], ["v"])]
    np.testing.assert_array_equal(pd.concat(blocks)["v"], np.arange(6) / 2)


# ---------------------------------------------------------------- types of dask frames


def _never(part):
    raise AssertionError("a partition was computed")


@pytest.mark.parametrize(
    ("column", "values", "match"),
    [
        ("a", pd.to_datetime(["2020-01-01"] * 3), r"input column 'a' holds dates"),
        ("a", pd.to_timedelta([1, 2, 3]), r"input column 'a' holds durations"),
        ("y", pd.to_datetime(["2020-01-01"] * 3), r"the target 'y' holds dates"),
        ("w", np.ones(3) * 1j, r"Complex data not supported: column 'w'"),
    ],
)
def test_types_of_a_dask_frame_are_checked_before_anything_is_computed(column, values, match):
    table = pd.DataFrame({"a": [1.0, 2, 3], "y": [1.0, 2, 3], "w": [1.0, 1, 1]})
    table[column] = values
    lazy = dd.from_pandas(table, npartitions=1).map_partitions(_never, meta=table)
    with pytest.raises(DataError, match=match):
        source_of(lazy, "y", "w")
