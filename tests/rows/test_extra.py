"""Further numbers of the rows, such as an offset, come with them from every kind of source."""

import itertools
import pickle

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp.errors import DataError
from dsgp.rows.sources import MappedSource, Rows, Stored, map_rows, matching_source, source_of
from tests.rows.kinds import (
    N_ROWS,
    ON_DISK,
    chunks_of,
    collected,
    example,
    frame_in,
    one_csv,
    parquet_folder,
    unknown,
)

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")

INPUTS = ["a", "flag"]
NAMES = {"offset": "w", "trials": "whole", "exposure": None}


def require_extra(rows: Rows, table: pd.DataFrame, inputs=INPUTS, y="y") -> None:
    assert len(rows) == len(table)
    for values, name in zip(rows.columns, inputs, strict=True):
        np.testing.assert_array_equal(values, table[name].to_numpy(np.float64))
    assert sorted(rows.extra) == ["offset", "trials"]
    for role, values in rows.extra.items():
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, table[NAMES[role]].to_numpy(np.float64))
    if y is not None:
        np.testing.assert_array_equal(rows.y, table[y])


@pytest.mark.parametrize("cuts", [[], [0, 7, 30, 57]])
@pytest.mark.parametrize("kind", ON_DISK)
def test_columns_on_disk(tmp_path, block_rows, kind, cuts):
    table = example()
    path = ON_DISK[kind](table, tmp_path / "t", cuts)
    source = source_of(path, "y", extra=NAMES)
    assert sorted(source.names) == INPUTS
    assert source.extra == ("offset", "trials")
    require_extra(collected(source), table, source.names)
    loaders = pickle.loads(pickle.dumps(list(source.chunks())))
    require_extra(Rows.join([load() for load in loaders]), table, source.names)
    new = matching_source(path, [*INPUTS, "z"], INPUTS, True, "m", extra=NAMES)
    require_extra(collected(new), table, y=None)
    nothing = matching_source(path, INPUTS, [], True, "m", extra=NAMES)
    require_extra(collected(nothing), table, [], y=None)


def as_array(table):
    return table[INPUTS].to_numpy(np.float64)


def numbers(table, function=lambda values: values):
    return {role: function(table[name]) for role, name in NAMES.items() if name}


IN_MEMORY = {
    "frame": lambda t: (t[INPUTS], t["y"], numbers(t)),
    "names": lambda t: (t, "y", NAMES),
    "arrays": lambda t: (as_array(t), t["y"].to_numpy(), numbers(t, np.asarray)),
    "lists": lambda t: (as_array(t).tolist(), t["y"].tolist(), numbers(t, pd.Series.tolist)),
    "dask numbers": lambda t: (as_array(t), t["y"], numbers(t, lambda v: da.from_array(v.values))),
    "xarray": lambda t: (xr.Dataset.from_dataframe(t), "y", NAMES),
    "xarray arrays": lambda t: (
        t[INPUTS],
        xr.DataArray(t["y"].to_numpy()),
        numbers(t, lambda v: xr.DataArray(v.to_numpy())),
    ),
    "nullable": lambda t: (t[INPUTS], t["y"], numbers(t, pd.Series.convert_dtypes)),
}


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_numbers_in_memory(block_rows, kind):
    table = example()
    X, y, extra = IN_MEMORY[kind](table)
    source = source_of(X, y, extra=extra)
    assert source.extra == ("offset", "trials")
    assert len(source.names) == 2
    require_extra(collected(source), table)
    loaders = [pickle.dumps(load) for load in source.chunks()]
    require_extra(Rows.join([pickle.loads(load)() for load in loaders]), table)


LAZY = {
    "arrays": lambda t, c: (
        da.from_array(as_array(t), chunks=(chunks_of(len(t), c), 1)),
        da.from_array(t["y"].to_numpy(), chunks=10),
        numbers(t, lambda v: da.from_array(v.to_numpy()[:, None], chunks=13)),
    ),
    "array, the rest in memory": lambda t, c: (
        da.from_array(as_array(t), chunks=(chunks_of(len(t), c), 2)),
        t["y"],
        numbers(t),
    ),
    "frame": lambda t, c: (
        frame_in(t, c)[INPUTS],
        frame_in(t, c)["y"],
        numbers(t, lambda v: frame_in(t, c)[v.name]),
    ),
    "names": lambda t, c: (frame_in(t, c), "y", NAMES),
    "a name and a series": lambda t, c: (
        frame_in(t, c)[[*INPUTS, "w"]],
        frame_in(t, c)["y"],
        {"offset": "w", "trials": frame_in(t, c)["whole"]},
    ),
    "unknown lengths": lambda t, c: (
        unknown(t[INPUTS], c),
        frame_in(t, c)["y"],
        numbers(t, lambda v: unknown(v, c)),
    ),
    "xarray": lambda t, c: (xr.Dataset.from_dataframe(t).chunk(index=10), "y", NAMES),
}


@pytest.mark.parametrize("kind", LAZY)
@settings(max_examples=6)
@given(cuts=st.lists(st.integers(0, N_ROWS), max_size=4).map(sorted))
def test_numbers_of_dask_collections(kind, cuts):
    table = example()
    X, y, extra = LAZY[kind](table, cuts)
    source = source_of(X, y, extra=extra)
    assert sorted(source.extra) == ["offset", "trials"]
    require_extra(collected(source), table)
    delayed = dask.compute(*(load.delayed for load in source.chunks()), scheduler="threads")
    require_extra(Rows.join(delayed), table)


def test_one_number_for_all_rows():
    table = example()
    for X, y in ((table[INPUTS], table["y"]), (frame_in(table, [0, 20])[[*INPUTS, "y"]], "y")):
        rows = collected(source_of(X, y, extra={"offset": 2}))
        np.testing.assert_array_equal(rows.extra["offset"], np.full(N_ROWS, 2.0))


def test_one_column_in_several_roles(tmp_path):
    table = example()
    extra = {"exposure": "w", "offset": "w"}
    for X in (table, frame_in(table, [20]), parquet_folder(table, tmp_path / "t", [20])):
        source = source_of(X, "y", "w", extra=extra)
        assert "w" not in source.names
        rows = collected(source)
        for values in (rows.weight, *rows.extra.values()):
            np.testing.assert_array_equal(values, table["w"])


def test_a_table_to_predict_has_the_columns_beside_its_inputs(tmp_path):
    table = example()[["w", "flag", "a"]]
    kinds = {
        "the table": table,
        "the dask dataframe": frame_in(table, [20]),
        "'.*t.csv.gz'": one_csv(table, tmp_path / "t", []),
    }
    for kind, X in kinds.items():
        # By position, the named columns are not counted.
        source = matching_source(X, ["x0", "x1"], ["x1"], False, "m", extra={"offset": "w"})
        rows = collected(source)
        np.testing.assert_array_equal(rows.columns, [table["a"]])
        np.testing.assert_array_equal(rows.extra["offset"], table["w"])
        # A model may have the column among its inputs.
        source = matching_source(X, ["w", "a"], ["w"], True, "m", extra={"offset": "w"})
        rows = collected(source)
        np.testing.assert_array_equal(rows.columns, [rows.extra["offset"]])
        for named in (False, True):
            with pytest.raises(DataError, match=rf"^{kind} has no column 'hours'; it has 'w', 'fl"):
                matching_source(X, ["a"], ["a"], named, "m", extra={"exposure": "hours"})
    for X in (as_array(table), da.from_array(as_array(table))):
        with pytest.raises(DataError, match=r"^the .* has no column 'w': pass an array"):
            matching_source(X, ["x0", "x1"], ["x0"], False, "m", extra={"exposure": "w"})


def test_columns_without_text_names_beside_one_with(tmp_path):
    table = example()[[*INPUTS, "w"]].set_axis([0, 1, "w"], axis=1)
    for X in (table, frame_in(table, [20])):
        source = source_of(X, np.zeros(N_ROWS) if X is table else "w", extra={"offset": "w"})
        assert source.names == ("x0", "x1")
        np.testing.assert_array_equal(collected(source).columns[0], table[0])


@given(cuts=st.lists(st.integers(0, N_ROWS), max_size=4).map(sorted))
def test_numbers_are_cut_and_joined_with_their_rows(cuts):
    table = example()
    rows = collected(source_of(table, "y", extra=NAMES))
    ends = [0, *cuts, N_ROWS]
    pieces = [rows.part(slice(*pair)) for pair in itertools.pairwise(ends)]
    require_extra(Rows.join(pieces), table)
    assert Rows([np.zeros(3)], None, None, 3).extra == {}
    assert Rows([np.zeros(3)]).part(slice(2)).extra == {}


@pytest.mark.parametrize("cuts", [[], [0, 20]])
def test_maps_keep_the_numbers(cuts):
    table = example()
    for X in (table, frame_in(table, cuts)):
        source = MappedSource(source_of(X, "y", extra=NAMES), ("a",), lambda columns: columns[:1])
        assert source.extra == ("offset", "trials")
        require_extra(collected(source), table, ["a"])


FAULTS = {
    "NaN": (np.nan, r"the offset 'w' contains NaN \(missing\) in row {row} \(counted from 0\)"),
    "infinity": (np.inf, r"the offset 'w' contains infinity in row {row} "),
    "text": ("ten", "the offset 'w' is not numeric .*'ten' in row {row} "),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_names_part_column_and_row(tmp_path, case):
    value, message = FAULTS[case]
    table = example()[["a", "w", "y"]].astype({"w": object if case == "text" else float})
    table.loc[40, "w"] = value
    with pytest.raises(DataError, match=message.format(row=40)):
        source_of(table, "y", extra={"offset": "w"})
    if case == "text":
        return  # all of the column would be text
    with pytest.raises(DataError, match="^block 2 of the dask.*" + message.format(row=10)):
        collected(source_of(frame_in(table, [0, 30]), "y", extra={"offset": "w"}))
    folder = parquet_folder(table, tmp_path / "t", [30])
    with pytest.raises(DataError, match="^part 'part.1.parq.*" + message.format(row=10)):
        collected(source_of(folder, "y", extra={"offset": "w"}))


GAPS = [1, None, 2] * 19
UNFIT = {
    "length": (np.zeros(9), r"offset must have shape \(57,\), one value per row, got \(9,\)"),
    "shape": (np.zeros((57, 2)), r"offset must have shape \(57,\)"),
    "text": (["1"] * 57, r"offset is not numeric \(type <U1\): it holds numbers as text"),
    "objects": ([None, {}] * 28 + [0], "offset is not numeric .*28 of 57 values are not numbers"),
    "complex": (np.full(57, 1j), "Complex data not supported: offset must be real"),
    "masked": (np.ma.zeros(57), "offset is a masked array"),
    "gap": (pd.array(GAPS, dtype="Int64"), r"offset contains NaN \(missing\) in row 1 "),
    "gap in a column": (pd.Series(GAPS, dtype="Int64"), r"'offset' contains NaN .* in row 1 "),
}


@pytest.mark.parametrize("case", UNFIT)
def test_numbers_that_do_not_fit(case):
    values, message = UNFIT[case]
    table = example()
    with pytest.raises(DataError, match=message):
        source_of(table[INPUTS], table["y"], extra={"offset": values})


def test_lengths_agree_block_by_block(tmp_path):
    table = example()
    X, y = da.zeros((10, 2), chunks=(5, 2)), da.zeros(10)
    for values in (np.zeros(9), da.zeros(9)):
        with pytest.raises(DataError, match="X has 10 rows but offset has 9"):
            source_of(X, y, extra={"offset": values})
    with pytest.raises(DataError, match=r"offset has shape \(10, 2\)"):
        source_of(X, y, extra={"offset": X})
    frame = frame_in(table, [0, 20])[[*INPUTS, "y"]]
    with pytest.raises(DataError, match="X has 3 blocks but offset has 2"):
        source_of(frame, "y", extra={"offset": frame_in(table, [20])["w"]})
    with pytest.raises(DataError, match="offset is in memory, but the lengths"):
        source_of(frame, "y", extra={"offset": table["w"]})
    with pytest.raises(DataError, match="block 0 of the dask dataframe: X has no row but 'offset'"):
        collected(source_of(frame, "y", extra={"offset": frame_in(table, [10, 20])["w"]}))
    path = one_csv(table, tmp_path / "t", [])
    with pytest.raises(DataError, match="offset must be the name of a column, because X is the"):
        source_of(path, "y", extra={"offset": table["w"]})
    with pytest.raises(DataError, match="'w' cannot be an input as well as the target, a weight"):
        source_of(Stored(path, columns=["a", "w"]), "y", extra={"offset": "w"})
    twice = pd.concat([table, table[["w"]]], axis=1)
    with pytest.raises(DataError, match="duplicate column name 'w'"):
        source_of(twice, "y", extra={"offset": "w"})


# ---------------------------------------------------------------- functions of blocks


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("cuts", [[], [0, 7, 7, 57]])
def test_functions_of_blocks_take_their_numbers(kind, cuts):
    table = example()
    X, _, extra = LAZY[kind](table, cuts)
    plain = {"one": 3.0, "none": None}

    def function(block, extra):
        assert sorted(extra) == ["offset", "one", "trials"]
        source = matching_source(block, INPUTS, [], hasattr(block, "columns"), "m", extra=extra)
        rows = Rows.join([load() for load in source.chunks()])
        return np.c_[rows.extra["offset"], rows.extra["trials"], rows.extra["one"]]

    found = map_rows(X, function, 3, extra | plain)
    expected = (table["w"], table["whole"].astype(float), np.full(N_ROWS, 3.0))
    for values, column in zip(dask.compute(*found), expected, strict=True):
        np.testing.assert_array_equal(values, column)


def test_an_empty_block_has_no_numbers():
    table = example()
    (values,) = map_rows(
        frame_in(table, [0])[INPUTS],
        lambda block, extra: np.zeros((len(block), 1)),
        1,
        {"offset": frame_in(table, [9])["w"]},
    )
    with pytest.raises(DataError, match="block 0 of the dask dataframe: X has no row but 'offset'"):
        values.compute()
