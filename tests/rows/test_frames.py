"""Tables of every library are matched by the names of their columns."""

from decimal import Decimal

import dask.array as da
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
from sklearn.compose import ColumnTransformer

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor
from dsgp.errors import DataError
from dsgp.kernels import Matern52
from dsgp.rows.sources import classes_of, plain_table, source_of
from tests.rows.kinds import collected

FRAME = pd.DataFrame(
    {"b": [1.0, 2.0, 3.0, 4.0], "n": ["u", "v", "w", "x"], "a": [4, 1, 3, 2], "y": [0, 1, 1, 0]}
)


class OfCapsule:
    """A table that only speaks Arrow's protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class OfInterchange:
    """A table that only speaks the data frame interchange protocol."""

    def __init__(self, table):
        self.table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.table.__dataframe__(nan_as_null, allow_copy)


def duck(frame):
    frame = frame.copy()  # DuckDB finds it by its name
    return duckdb.sql("select * from frame")


def recorded(frame):
    types = [(name, ">f8" if frame[name].dtype != object else "U1") for name in frame]
    types = [(name, kind if name != "n" else "U1") for name, kind in types]
    return np.array([tuple(row) for row in frame.itertuples(index=False)], dtype=types)


def numeric(frame):
    return frame[[name for name in frame if name != "n"]]


TABLES = {
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "duckdb": duck,
    "capsule": lambda frame: OfCapsule(pa.Table.from_pandas(frame, preserve_index=False)),
    "interchange": lambda frame: OfInterchange(pa.Table.from_pandas(frame, preserve_index=False)),
    "mapping": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "mapping of lists": lambda frame: frame.to_dict("list"),
    "mapping of series": lambda frame: {n: frame[n].set_axis([9, 8, 7, 6]) for n in frame},
    "mapping of dask": lambda frame: {
        name: da.from_array(frame[name].to_numpy(), chunks=3) for name in numeric(frame)
    },
    "records": recorded,
    "records of pandas": lambda frame: frame.to_records(index=False),
    "records of dask": lambda frame: da.from_array(recorded(frame), chunks=3),
    "dataset": lambda frame: xr.Dataset.from_dataframe(frame.rename_axis("row")),
    "DataArray": lambda frame: xr.DataArray(
        numeric(frame).to_numpy(float),
        dims=("row", "column"),
        coords={"row": np.arange(len(frame))[::-1], "column": list(numeric(frame))},
    ),
    "DataArray of dask": lambda frame: xr.DataArray(
        da.from_array(numeric(frame).to_numpy(float), chunks=(3, 1)),
        dims=("row", "column"),
        coords={"column": list(numeric(frame))},
    ),
    "dask frame": lambda frame: dd.from_pandas(frame, npartitions=2),
    "pandas": lambda frame: frame,
}


@pytest.mark.parametrize("case", TABLES)
def test_columns_are_found_by_name_whatever_the_order(case):
    table = TABLES[case](FRAME)
    rows = collected(source_of(table, names=["a", "b"], named=True))
    np.testing.assert_array_equal(rows.columns[0], FRAME["a"])
    np.testing.assert_array_equal(rows.columns[1], FRAME["b"])
    fitted = source_of(TABLES[case](FRAME[["b", "a", "y"]]), "y")
    assert (fitted.names, fitted.named) == (("b", "a"), True)
    assert collected(fitted).y.tolist() == FRAME["y"].tolist()
    assert classes_of(table, "y").tolist() == [0, 1]
    with pytest.raises(DataError, match="'z'"):
        collected(source_of(table, names=["a", "z"], named=True))


@pytest.mark.parametrize("case", ["polars", "arrow", "duckdb", "mapping", "records", "DataArray"])
def test_a_model_of_a_pandas_frame_answers_another_table_alike(case):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (60, 2)), columns=["a", "b"])
    y = pd.Series(np.sin(6 * frame["a"]), name="y")
    model = AdditiveGPRegressor(Matern52(0.5, 1.0), noise_variance=0.01, learner=None)
    model.fit(frame, y)
    expected = model.predict(frame, return_std=True)
    table = TABLES[case](frame[["b", "a"]])
    np.testing.assert_array_equal(model.predict(table, return_std=True), expected)
    if case == "polars":
        again = model.fit(table, pl.Series(y), sample_weight=pl.Series([1.0] * 60))
        np.testing.assert_allclose(again.predict(frame), expected[0], rtol=0, atol=1e-6)
        assert again.feature_names_in_.tolist() == ["b", "a"]
        assert again.score(table, pl.Series(y)) > 0.9


@pytest.mark.parametrize(
    "labels",
    [pl.Series(["u", "v", "u", "v"]), pa.array([1, 0, 1, 0]), pa.chunked_array([[True], [False]])],
)
def test_labels_of_other_libraries(labels):
    assert classes_of(FRAME, labels).tolist() == sorted(
        set(labels.to_pylist() if hasattr(labels, "to_pylist") else labels)
    )
    model = AdditiveGPClassifier(Matern52(1.0, 1.0), learner=None)
    model.fit(FRAME[["b"]][: len(labels)], labels)
    assert model.predict(pl.DataFrame({"b": [1.0]})).shape == (1,)


def test_missing_and_further_types_of_other_libraries():
    table = pl.DataFrame(
        {
            "whole": [1, None, 3],
            "flag": [True, None, False],
            "price": pl.Series([Decimal("1.25"), None, Decimal("2.50")]),
            "narrow": pl.Series([1, 2, None], dtype=pl.UInt8),
        }
    )
    for X in (table, table.to_arrow()):
        rows = collected(source_of(X, [1.0, 2.0, 3.0], missing="ignore"))
        np.testing.assert_array_equal(
            rows.columns, [[1, np.nan, 3], [1, np.nan, 0], [1.25, np.nan, 2.5], [1, 2, np.nan]]
        )
    with pytest.raises(
        DataError, match=r"^4 columns .*\n.*'whole' contains NaN \(missing\) in row 1"
    ):
        collected(source_of(table, [1.0, 2.0, 3.0]))
    wrong = {
        "date": (pl.Series(["2020-01-01"]).str.to_date(), "holds dates"),
        "duration": (pl.Series([1]).cast(pl.Duration("us")), "holds durations"),
        "category": (pl.Series(["1"], dtype=pl.Categorical), "categories"),
        "text": (pl.Series(["1"]), "numbers as text"),
        "dictionary": (pa.array([1]).dictionary_encode(), "categories"),
    }
    for name, (values, message) in wrong.items():
        column = pa.table({name: values.to_arrow() if isinstance(values, pl.Series) else values})
        with pytest.raises(DataError, match=f"'{name}' .*{message}"):
            source_of(column, [1.0])


def test_names_that_cannot_be_read_are_refused():
    class Unknown:
        columns = ("a", "b")

        def __array__(self, dtype=None, copy=None):
            return np.ones((2, 2))

    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise RuntimeError("gone")

    with pytest.raises(DataError, match=r"Unknown, whose columns have names .*to_pandas"):
        source_of(Unknown(), [1.0, 2.0])
    with pytest.raises(DataError, match=r"Broken whose columns cannot be read \(gone\)"):
        source_of(Broken(), [1.0, 2.0])
    with pytest.raises(DataError, match="column 'b' has shape"):
        source_of({"a": [1.0], "b": [[1.0]]}, [1.0])
    with pytest.raises(DataError, match="different lengths: 'a' 1, 'b' 2"):
        source_of({"a": [1.0], "b": [1.0, 2.0]}, [1.0])
    with pytest.raises(DataError, match="duplicate column name 'a'"):
        source_of(xr.DataArray(np.ones((1, 2)), dims=("r", "c"), coords={"c": ["a", "a"]}), [1.0])


def test_arrays_without_names_stay_as_they_are():
    for X in (np.ones((2, 2)), da.ones((2, 2)), [[1.0]], xr.DataArray(np.ones((2, 2))), "t.csv"):
        assert plain_table(X) is X


def test_an_output_of_scikit_learn_in_polars_is_matched():
    steps = ColumnTransformer(
        [("keep", "passthrough", ["a", "b"])], verbose_feature_names_out=False
    )
    out = steps.set_output(transform="polars").fit_transform(pl.from_pandas(FRAME))
    assert source_of(out, [1.0] * 4).names == ("a", "b")
