"""``--holidays`` of the commands: a column of holidays that tables lack."""

import sys

import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import holiday_levels
from dsgp.cli.work import file_of
from dsgp.errors import DataError, ParameterError
from tests.cli.commands import run
from tests.estimators.country import package_of


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Sales of two years with a holiday and the day after it, the holidays, and a model."""
    folder = tmp_path_factory.mktemp("shop")
    random = np.random.default_rng(0)
    day = pd.date_range("2021-01-01", periods=730)
    price = random.uniform(1, 2, 730)
    may = {"May Day": [f"{year}-05-01" for year in range(2021, 2024)]}
    rest = {"Rest": [f"{year}-{month:02}-15" for year in (2021, 2022) for month in range(1, 13)]}
    named = may | rest
    holiday = holiday_levels(day, named, after=1)
    y = price + 5.0 * (holiday == "Rest") - 3.0 * (holiday == "Rest +1")
    table = pd.DataFrame({"day": day, "price": price, "y": y + 0.1 * random.standard_normal(730)})
    table.to_csv(folder / "sales.csv", index=False)
    table.drop(columns="price").to_csv(folder / "series.csv", index=False)
    rows = [(on, name) for name, dates in named.items() for on in dates]
    pd.DataFrame(rows, columns=["date", "holiday"]).to_csv(folder / "holidays.csv", index=False)
    fit = ["fit", folder / "sales.csv", "--target", "y", "--holidays", folder / "holidays.csv"]
    result = run(*fit, "--days-after", 1, "--term", "day: Linear", "--out", folder / "m.zarr")
    assert result.exit_code == 0, result.output
    return folder, table.assign(holiday=holiday)


def test_fit_adds_holidays_and_so_do_the_other_commands(shop):
    folder, table = shop
    model = dsgp.load(folder / "m.zarr")
    assert list(model.feature_names_in_) == ["day", "price", "holiday"]
    given = ["--holidays", folder / "holidays.csv"]
    for command, expected in (
        ("predict", model.predict(table)),
        ("explain", model.explain(table)["prediction"]),
    ):
        out = folder / f"{command}.csv"
        run(command, folder / "m.zarr", folder / "sales.csv", "--out", out, *given)
        found = pd.read_csv(out)
        column = "mean" if command == "predict" else "prediction"
        np.testing.assert_allclose(found[column], expected, rtol=1e-9)
    result = run("evaluate", folder / "m.zarr", folder / "sales.csv", "--target", "y", *given)
    error = np.sqrt(np.mean((table["y"] - model.predict(table)) ** 2))
    assert f"root mean squared error: {error:.6g}" in result.output
    assert error < 0.2
    with pytest.raises(DataError, match=r"no column 'holiday'.* pass the same --holidays here"):
        run("evaluate", folder / "m.zarr", folder / "sales.csv", "--target", "y")
    with pytest.raises(DataError, match=r"no column 'holiday'.* pass the same --holidays here"):
        run("predict", folder / "m.zarr", folder / "sales.csv", "--out", folder / "none.csv")


def test_an_update_adds_holidays(shop):
    folder, table = shop
    days = {"day": pd.date_range("2023-01-01", periods=200), "price": 1.5, "y": 1.5}
    table = pd.DataFrame(days)
    table.to_csv(folder / "more.csv", index=False)
    update = ["update", folder / "m.zarr", folder / "more.csv", "--target", "y"]
    with pytest.raises(DataError, match=r"no column 'holiday'.* pass the same --holidays here"):
        run(*update, "--out", folder / "m2.zarr")
    run(*update, "--out", folder / "m2.zarr", "--holidays", folder / "holidays.csv")
    named = pd.read_csv(folder / "holidays.csv").groupby("holiday")["date"].apply(list)
    table["holiday"] = holiday_levels(table["day"], named.to_dict(), after=1)
    assert (table["holiday"] == "May Day +1").sum() == 1
    expected = dsgp.load(folder / "m.zarr").update(table, "y").predict(table)
    np.testing.assert_array_equal(dsgp.load(folder / "m2.zarr").predict(table), expected)


def test_a_column_of_the_table_is_not_replaced_by_holidays(shop):
    folder, table = shop
    table.to_csv(folder / "named.csv", index=False)
    with pytest.raises(ParameterError, match="adds the column 'holiday', which DATA has: leave"):
        run(
            "predict", folder / "m.zarr", folder / "named.csv", "--out", folder / "none.csv",
            "--holidays", folder / "holidays.csv",
        )  # fmt: skip
    with pytest.raises(ParameterError, match="--holiday-column is of --holidays; give it, too"):
        run(
            "predict", folder / "m.zarr", folder / "named.csv", "--out", folder / "none.csv",
            "--holiday-column", "price",
        )  # fmt: skip


def test_a_date_that_is_missing_has_no_holiday(shop):
    folder, table = shop
    table = table.assign(day=table["day"].mask(table.index == 3))
    table[["day", "price", "y"]].to_csv(folder / "gap.csv", index=False)
    given = ["--holidays", folder / "holidays.csv"]
    with pytest.raises(DataError, match=r"column 'day' is missing in row 3 \(counted from 0"):
        run("evaluate", folder / "m.zarr", folder / "gap.csv", "--target", "y", *given)


def test_holidays_of_a_country_need_the_package(shop, monkeypatch):
    folder, _ = shop

    monkeypatch.setitem(sys.modules, "holidays", package_of("XX", {(5, 1): "May Day"}))
    fit = ["fit", folder / "series.csv", "--target", "y", "--holidays", "XX"]
    fit += ["--term", "day: Linear", "--out", folder / "xx.zarr"]
    assert run(*fit).exit_code == 0
    ahead = ["forecast", folder / "xx.zarr", "--ahead", 150, "--out", folder / "ahead.csv"]
    assert run(*ahead, "--after", "2022-12-31", "--freq", "D", "--holidays", "XX").exit_code == 0
    named = pd.read_csv(folder / "ahead.csv").set_index("day")["holiday"]
    assert named[named != "none"].index.tolist() == ["2023-05-01"]
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ParameterError, match=r'--holidays XX: .* pip install "\.\[holidays\]"'):
        run(*fit, "--overwrite")


def test_a_country_is_neither_a_path_nor_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "US").mkdir()
    (tmp_path / "days").touch()
    for text in ("days", "days.csv", "folder/days", "s3://bucket/days"):
        assert file_of(text) is not None
    for text in ("US", "DE", None):
        assert file_of(text) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--holiday-column", "price"], "adds the column 'price', which DATA has"),
        (["--drop", "day"], "needs one column of dates among the inputs, and there are none"),
    ],
)
def test_fit_says_what_holidays_need(shop, options, message):
    folder, _ = shop
    fit = ["fit", folder / "sales.csv", "--target", "y", "--out", folder / "none.zarr"]
    with pytest.raises(ParameterError, match=message):
        run(*fit, "--holidays", folder / "holidays.csv", *options)
    with pytest.raises(ParameterError, match="are of --holidays; give it, too"):
        run(*fit, "--days-after", 1)
    with pytest.raises(ParameterError, match="DATA must be one file"):
        run("fit", f"{folder}/s*.csv", *fit[2:], "--holidays", folder / "holidays.csv")
    with pytest.raises(ParameterError, match="reads no column 'h'; it reads 'day', 'price'"):
        run(
            "predict", folder / "m.zarr", folder / "sales.csv", "--out", folder / "none.csv",
            "--holidays", folder / "holidays.csv", "--holiday-column", "h",
        )  # fmt: skip


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_holidays_are_read_as_the_table_is_or_as_usual(tmp_path, encoding):
    named = pd.DataFrame({"date": ["2021-01-06"], "holiday": ["Dreikönig"]})
    named.to_csv(tmp_path / "h.csv", index=False, sep=";", encoding="latin-1")
    named.to_csv(tmp_path / "usual.csv", index=False)
    table = pd.DataFrame({"day": pd.date_range("2021-01-01", periods=30), "y": 1.0})
    table["y"] += np.arange(30) % 3
    table.to_csv(tmp_path / "t.csv", index=False, sep=";")
    file = "h.csv" if encoding == "latin-1" else "usual.csv"
    run(
        "fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.zarr",
        "--holidays", tmp_path / file, "--delimiter", ";", "--encoding", encoding,
    )  # fmt: skip
    assert dsgp.load(tmp_path / "m.zarr")._columns.kinds["holiday"].labels == ("Dreikönig", "none")
    with pytest.raises(DataError, match="--encoding"):
        run(
            "forecast", tmp_path / "m.zarr", "--ahead", 3, "--out", tmp_path / "f.csv",
            "--holidays", tmp_path / "h.csv",
        )  # fmt: skip
