"""``dsgp predict --keep`` copies columns as they are, in every format."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from dsgp import AdditiveGPRegressor
from dsgp.kernels import Matern52
from dsgp.rows.sources import parts
from tests.cli.commands import completed, invoke

LARGE = 2**63 - 25  # neighbours are one float64


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    x = np.linspace(0, 1, 20)
    fitted = AdditiveGPRegressor(Matern52(0.5, 1.0), noise_variance=0.01, learner=None)
    fitted.fit(pd.DataFrame({"x": x}), np.sin(6 * x))
    path = tmp_path_factory.mktemp("model") / "m.zarr"
    fitted.save(path)
    return path


@pytest.fixture(params=[3, 1000])
def blocks(request, monkeypatch):
    """Tables in one block, and in several."""
    monkeypatch.setattr(parts, "BLOCK_ROWS", request.param)
    monkeypatch.setattr(parts, "CSV_BYTES", 60 * request.param)


def predict(model, data, out, keep, *further):
    completed("predict", model, data, "--out", out, "--keep", keep, *further)


TYPED = pa.table(
    {
        "x": pa.array([0.1 * k for k in range(8)]),
        "id": pa.array([LARGE, None, LARGE + 1, 7, 8, 9, 10, 11], pa.int64()),
        "unsigned": pa.array([2**64 - 1, 2**64 - 2, *range(6)], pa.uint64()),
        "code": ["007", "", None, "0", "1e5", "NA", ' a"b', "7"],
        "kind": pa.array(["u", "v", None, "u", "u", "v", "v", "w"]).dictionary_encode(),
        "price": pa.array([Decimal("1.50"), None, *[Decimal("0.05")] * 6], pa.decimal128(20, 2)),
        "day": pa.array([dt.date(2020, 2, k + 1) for k in range(7)] + [None]),
        "at": pa.array([dt.datetime(2020, 1, 1, 12, 30, k) for k in range(8)], pa.timestamp("ns")),
        "flag": [True, None, False, True, True, False, True, True],
        "tags": [[1, None], [], None, [3], [4], [5], [6], [7]],
        "pair": [{"a": 1, "b": "é"}] * 8,
        "narrow": pa.array([0.1, None, *range(6)], pa.float32()),
    }
)
KEPT = TYPED.column_names[1:]


@pytest.mark.parametrize("out", ["p.parquet", "folder"])
def test_arrow_types_are_kept_as_they_are(tmp_path, model, blocks, out):
    pq.write_table(TYPED, tmp_path / "t.parquet", row_group_size=3)
    predict(model, tmp_path / "t.parquet", tmp_path / out, ",".join(KEPT))
    table = pq.read_table(tmp_path / out)
    assert table.column_names == [*KEPT, "mean", "std", "lower", "upper"]
    for name in KEPT:
        assert table.schema.field(name).type == TYPED.schema.field(name).type
        assert table[name].to_pylist() == TYPED[name].to_pylist()


def test_types_are_written_to_csv_as_the_values_they_are(tmp_path, model, blocks):
    pq.write_table(TYPED, tmp_path / "t.parquet", row_group_size=3)
    predict(model, tmp_path / "t.parquet", tmp_path / "p.csv", ",".join(KEPT))
    text = pd.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False)
    assert text["id"].tolist()[:4] == [str(LARGE), "", str(LARGE + 1), "7"]
    assert text["unsigned"].tolist()[:2] == [str(2**64 - 1), str(2**64 - 2)]
    assert text["code"].tolist() == ["007", "", "", "0", "1e5", "NA", ' a"b', "7"]
    assert text["kind"].tolist() == ["u", "v", "", "u", "u", "v", "v", "w"]
    assert text["price"].tolist()[:3] == ["1.50", "", "0.05"]
    assert text["day"].tolist()[::7] == ["2020-02-01", ""]
    assert text["at"][1].startswith("2020-01-01 12:30:01")
    assert text["flag"].tolist()[:3] == ["True", "", "False"]
    assert [json.loads(value) for value in text["tags"][[0, 1, 3]]] == [[1, None], [], [3]]
    assert json.loads(text["pair"][0]) == {"a": 1, "b": "é"}
    assert text["narrow"].tolist()[:2] == ["0.1", ""]


TEXT = f"""x,id,code,sparse,text,empty,huge
0.1,{LARGE},007,1,1.50,,{2**64 - 1}
0.2,{LARGE + 1},01,,abc,,0
 0.3,-5,1,2,"a ""b"", c",,1
0.4,0,2,,+1,,2
0.5,12,3,3,NA,,3
"""


@pytest.mark.parametrize("name", ["t.csv", "*.csv"])
def test_the_text_of_a_csv_file_is_copied(tmp_path, model, blocks, name):
    (tmp_path / "t.csv").write_text(TEXT)
    kept = "x,id,code,sparse,text,empty,huge"
    predict(model, tmp_path / name, tmp_path / "p.csv.gz", kept)
    as_text = {"dtype": str, "keep_default_na": False}
    expected = pd.read_csv(tmp_path / "t.csv", **as_text)
    text = pd.read_csv(tmp_path / "p.csv.gz", **as_text)
    pd.testing.assert_frame_equal(text[kept.split(",")], expected)

    predict(model, tmp_path / name, tmp_path / "p.parquet", kept)
    table = pq.read_table(tmp_path / "p.parquet")
    kinds = {name: str(table.schema.field(name).type) for name in kept.split(",")}
    assert kinds == {
        "x": "string",
        "id": "int64",
        "code": "string",
        "sparse": "int64",
        "text": "string",
        "empty": "string",
        "huge": "uint64",
    }
    assert table["id"].to_pylist() == [LARGE, LARGE + 1, -5, 0, 12]
    assert table["sparse"].to_pylist() == [1, None, 2, None, 3]
    assert table["code"].to_pylist() == ["007", "01", "1", "2", "3"]
    assert table["text"].to_pylist() == ["1.50", "abc", 'a "b", c', "+1", "NA"]
    assert table["huge"].to_pylist()[0] == 2**64 - 1
    # The input is read as a number beside its text.
    np.testing.assert_array_equal(table["mean"], pd.read_csv(tmp_path / "p.csv.gz")["mean"])
    assert np.ptp(table["mean"]) > 0.1


def test_parts_of_other_types_are_reconciled_or_refused(tmp_path, model):
    folder = tmp_path / "t"
    folder.mkdir()
    ids = [pa.array([None]), pa.array([5], pa.int32()), pa.array([LARGE], pa.int64())]
    for number, column in enumerate(ids):
        pq.write_table(pa.table({"x": [0.5], "id": column}), folder / f"{number}.parquet")
    predict(model, folder, tmp_path / "p.parquet", "id")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field("id").type == pa.int64()
    assert table["id"].to_pylist() == [None, 5, LARGE]

    pq.write_table(pa.table({"x": [0.5], "id": [0.5]}), folder / "3.parquet")
    result = invoke("predict", model, folder, "--out", tmp_path / "q.parquet", "--keep", "id")
    assert "'id'" in str(result.exception)
    assert "write the parts with the same types" in str(result.exception)
    assert not (tmp_path / "q.parquet").exists()


def test_arrays_of_a_store_are_kept(tmp_path, model):
    group = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    group.create_array("x", data=np.array([0.25, 0.5]))
    group.create_array("id", data=np.array([2**64 - 1, 2**64 - 2], np.uint64))
    group.create_array("name", data=np.array(["é", "007"]))
    group.create_array("swapped", data=np.array([1, 2], ">i4"))
    predict(model, tmp_path / "t.zarr", tmp_path / "p.parquet", "id,name,swapped")
    kept = pq.read_table(tmp_path / "p.parquet").select(["id", "name", "swapped"])
    expected = {"id": [2**64 - 1, 2**64 - 2], "name": ["é", "007"], "swapped": [1, 2]}
    assert kept.to_pydict() == expected


def test_labels_of_rows_that_pandas_stored_are_kept(tmp_path, model):
    frame = pd.DataFrame({"x": [0.1, 0.2]}, index=pd.RangeIndex(5, 7, name="id"))
    frame.to_parquet(tmp_path / "t.parquet")
    predict(model, tmp_path / "t.parquet", tmp_path / "p.parquet", "id")
    assert pq.read_table(tmp_path / "p.parquet")["id"].to_pylist() == [5, 6]


DATED = "day,open,n,at\n" + "".join(
    f"2024-01-{k:02d},{'true' if k % 3 else 'False'},{k % 4},2024-01-01T{k:02d}:00:00\n"
    for k in range(1, 21)
)


def test_dates_and_truths_that_are_inputs_too_are_predicted_and_copied(tmp_path, blocks):
    (tmp_path / "t.csv").write_text(DATED)
    fitted = AdditiveGPRegressor().fit(pd.read_csv(tmp_path / "t.csv", parse_dates=[0, 3]), "n")
    fitted.save(tmp_path / "m.zarr")
    kept = "day,open,at"
    predict(tmp_path / "m.zarr", tmp_path / "t.csv", tmp_path / "p.csv", kept)
    predict(tmp_path / "m.zarr", tmp_path / "t.csv", tmp_path / "q.csv", "n")
    as_text = pd.read_csv(tmp_path / "p.csv", dtype=str)
    expected = pd.read_csv(tmp_path / "t.csv", dtype=str)[kept.split(",")]
    pd.testing.assert_frame_equal(as_text[kept.split(",")], expected)
    assert as_text["mean"].tolist() == pd.read_csv(tmp_path / "q.csv", dtype=str)["mean"].tolist()
