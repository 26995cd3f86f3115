"""CSV files of other places: read as they are said to be written, or with a hint what they are."""

import datetime as dt
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dsgp import read_table
from dsgp.errors import DataError, ParameterError
from dsgp.rows.sources import CsvFormat, Stored, classes_of, open_table, source_of
from dsgp.rows.sources.arrow import parsed
from tests.rows.kinds import collected

FRAME = pd.DataFrame({"größe": [1.5, -2.25, 3.0], "n": [1, 2, 3], "ort": ["Köln", "b", "c"]})
WRITTEN = {
    "semicolons": ({"sep": ";"}, {"delimiter": ";"}),
    "tabs": ({"sep": "\t"}, {"delimiter": "tab"}),
    "decimal comma": ({"sep": ";", "decimal": ","}, {"delimiter": ";", "decimal": ","}),
    "quoted decimals": ({"decimal": ","}, {"decimal": ","}),
    "UTF-16": ({"encoding": "utf-16"}, {"encoding": "utf-16"}),
    "big-endian UTF-16": ({"encoding": "utf-16-be"}, {"encoding": "utf-16-be"}),
    "latin-1": ({"encoding": "latin-1"}, {"encoding": "latin-1"}),
    "Windows": ({"encoding": "cp1252", "sep": ";"}, {"encoding": "cp1252", "delimiter": ";"}),
    "byte order mark": ({"encoding": "utf-8-sig"}, {}),
}


@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_files_of_other_places_are_read_as_said(tmp_path, case, ending):
    written, said = WRITTEN[case]
    path = tmp_path / f"t{ending}"
    FRAME.to_csv(path, index=False, **written)
    pd.testing.assert_frame_equal(read_table(path, **said), FRAME)
    stored = Stored(path, drop=["ort"], format=CsvFormat(**said))
    rows = collected(source_of(stored, "n"))
    np.testing.assert_array_equal(rows.columns[0], FRAME["größe"])
    assert classes_of(stored, "ort").tolist() == ["Köln", "b", "c"]


SEEMS = {
    "semicolons": ("a;y\n1;2\n", r"separated by ';': delimiter=';' \(--delimiter ';'\)$"),
    "one line": ("a;y\n", "separated by ';'"),
    "tabs": ("a\ty\n1\t2\n", r"separated by '\\t': delimiter='tab' \(--delimiter tab\)"),
    "bars": ("a|y\n1|2\n", "separated by '|'"),
    "decimal comma": ("a;y\n1,5;2\n2,5;3\n", r"separated by ';'.* decimal=',' \(--decimal ,\)"),
    "decimal comma in each": ("a;y\n1,5;2,0\n", "separated by ';'.* with decimal commas"),
    "quoted": ('"a,b";y\n1;2\n', "separated by ';'"),
    "UTF-16": ("a,y\n1,2\n".encode("utf-16"), r"seems to be in UTF-16.*--encoding utf-16"),
    "without a mark": ("a,y\n1,2\n".encode("utf-16-le"), "seems to be in UTF-16"),
    "latin-1 header": ("größe,y\n1,2\n".encode("latin-1"), "not in UTF-8: name its encoding"),
    "latin-1 row": ("a,y\nKöln,2\n".encode("latin-1"), "not in UTF-8: name its encoding"),
}


@pytest.mark.parametrize("case", SEEMS)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_file_that_seems_to_be_written_otherwise_is_reported(tmp_path, case, zipped):
    content, message = SEEMS[case]
    content = content.encode() if isinstance(content, str) else content
    path = tmp_path / ("t.csv.gz" if zipped else "t.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=message.replace("|", r"\|")):
        read_table(path, ["a", "y"])
    for place in (path, str(tmp_path / "t.*")):
        with pytest.raises(DataError, match=message.replace("|", r"\|")):
            collected(source_of(place, "y"))


def test_a_wrong_format_is_reported(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2\n")
    with pytest.raises(DataError, match="seems to be separated by ','"):
        read_table(path, ["a"], delimiter=";")
    path.write_text("größe;y\n1,5;2\n2,5;3\n")
    with pytest.raises(DataError, match=r"'1,5' in row 0 .* 2 of 2 values .*--decimal ,"):
        collected(source_of(Stored(path, format=CsvFormat(delimiter=";")), "y"))
    with pytest.raises(DataError, match="UTF-16"):
        read_table(path, encoding="utf-16")


def test_a_plain_file_gets_no_hint(tmp_path):
    for text in ("a,y\n1,2\n", "a,text\n1,x;y\n2,z\n", "a\n1\n2\n", 'a,"b;c"\n1,2\n', ""):
        (tmp_path / "t.csv").write_text(text)
        assert CsvFormat().hint(tmp_path / "t.csv") == ""
    (tmp_path / "t.csv").write_text("a,y\n" + "1,2\n" * 40000)
    assert CsvFormat().hint(tmp_path / "t.csv") == ""


@pytest.mark.parametrize(
    "said", [{"delimiter": ""}, {"delimiter": ";;"}, {"decimal": ";"}, {"encoding": "klingon"}]
)
def test_formats_that_there_are_not_are_refused(said):
    with pytest.raises(ParameterError, match=next(iter(said))):
        CsvFormat(**said)


def test_other_files_have_no_delimiter(tmp_path):
    FRAME.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ParameterError, match="for CSV files only"):
        read_table(tmp_path / "t.parquet", delimiter=";")
    with pytest.raises(ParameterError, match="for CSV files only"):
        open_table(tmp_path / "t.parquet", CsvFormat(decimal=","))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named_with_its_order(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes("x,y\n1,2\n3,4\n".encode(encoding))
    for said in ("utf-8", "utf-16"):
        with pytest.raises(DataError, match=rf"--encoding {encoding}\)") as error:
            read_table(path, ["x"], encoding=said)
        assert str(error.value).isprintable()
    assert read_table(path, encoding=encoding).shape == (2, 2)


def test_text_is_parsed_as_the_types_of_the_first_rows():
    text = pa.table({"at": ["2024-01-02", "NA", " 2024-03-01"], "on": ["true", "False", ""]})
    kinds = {"at": pa.date32(), "on": pa.bool_(), "absent": pa.float64()}
    read = parsed(text, kinds, ",")
    assert read["at"].to_pylist() == [dt.date(2024, 1, 2), None, dt.date(2024, 3, 1)]
    assert read["on"].to_pylist() == [True, False, None]
    numbers = parsed(
        pa.table({"x": ["1,5", "2"], "level": ["a", "1"]}),
        dict.fromkeys(("x", "level"), pa.float64()),
        ",",
    )
    assert numbers["x"].to_pylist() == [1.5, 2.0]
    assert numbers["level"].to_pylist() == ["a", "1"]
    with pytest.raises(DataError, match=r"'at' is not of one type.*soon"):
        parsed(pa.table({"at": ["2024-01-02", "soon"]}), kinds, ".")
