"""``dsgp forecast``: the dates that follow those of a saved model, as ``predict`` has them."""

import numpy as np
import pandas as pd
import pytest

from dsgp import (
    AdditiveGPRegressor,
    Levels,
    Linear,
    Smooth,
    SmoothingSpline,
    holiday_levels,
)
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern12, Periodic
from tests.cli.commands import invoke

DAYS = pd.date_range("2021-06-01", "2022-11-30")
CHRISTMAS = {"Christmas": ["2020-12-25", "2021-12-25"]}
TREND = Smooth("day", kernel=Matern12(lengthscale=200.0, variance=1.0))


def fitted(X, *terms, bins=None):
    y = np.random.default_rng(0).normal(size=len(X)) + 0.01 * np.arange(len(X))
    y = y + (20.0 * (X["holiday"] == "Christmas") if "holiday" in X else 0.0)
    return AdditiveGPRegressor(terms=terms, learner=None, noise_variance=1.0, bins=bins).fit(
        X, y
    ), y


@pytest.fixture
def made(tmp_path):
    shuffled = DAYS[np.random.default_rng(1).permutation(len(DAYS))].delete([3, 9])
    model, y = fitted(pd.DataFrame({"day": shuffled}), TREND)
    model.save(tmp_path / "m.zarr")
    pd.DataFrame({"day": shuffled, "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path, model


def test_the_dates_that_follow_as_predict_has_them(made):
    folder, model = made
    arguments = ["forecast", folder / "m.zarr", "--ahead", 40, "--out", folder / "a.csv"]
    result = invoke(*arguments, "--level", 0.8, "--statistic", "median", "--quantile", 0.1)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(folder / "a.csv", parse_dates=["day"])
    assert list(table) == ["day", "median", "std", "lower", "upper", "quantile_0.1"]
    ahead = pd.DataFrame({"day": pd.date_range("2022-12-01", periods=40)})
    assert (table["day"] == ahead["day"]).all()
    median, std = model.predict(ahead, return_std=True, statistic="median")
    low, high = model.predict_interval(ahead, 0.8, include_noise=True)
    expected = np.column_stack([median, std, low, high, low])
    np.testing.assert_allclose(table.iloc[:, 1:], expected, rtol=1e-9)
    assert (high - low)[-1] > (high - low)[0]


def test_a_spline_of_dates_is_predicted_and_forecast_as_calibrated(tmp_path):
    y = np.sin(np.arange(120) / 9) + 0.1 * np.random.default_rng(0).normal(size=120)
    X = pd.DataFrame({"day": DAYS[:120]})
    model = SmoothingSpline().fit(X[:90], y[:90]).calibrate(X[90:], y[90:])
    model.save(tmp_path / "m.zarr")
    ahead = pd.DataFrame({"day": DAYS[90:95]})
    ahead.to_csv(tmp_path / "rows.csv", index=False)
    for name, *options in (
        ("predict", tmp_path / "rows.csv", "--statistic", "median"),
        ("forecast", "--ahead", 5, "--statistic", "median"),
    ):
        out = tmp_path / f"{name}.csv"
        result = invoke(name, tmp_path / "m.zarr", *options, "--quantile", 0.5, "--out", out)
        assert result.exit_code == 0, result.output
        found = pd.read_csv(out)
        assert list(found.columns[-5:]) == ["median", "std", "lower", "upper", "quantile_0.5"]
        mean, std = model.predict(ahead, return_std=True)
        low, high = model.predict_interval(ahead, include_noise=True)
        expected = np.column_stack([mean, std, low, high, mean])
        np.testing.assert_allclose(found.iloc[:, -5:], expected, rtol=1e-9)
    assert list(found["day"]) == [str(day.date()) for day in ahead["day"]]


def test_other_dates_by_options_and_a_history(made):
    folder, _ = made
    arguments = ["forecast", folder / "m.zarr", "--ahead", 2, "--overwrite"]
    arguments += ["--out", folder / "a.parquet"]
    for options, expected in (
        (["--after", "2023-03-31"], "2023-04-02"),
        (["--freq", "7D"], "2022-12-14"),
        (["--history", folder / "rows.csv"], "2022-12-02"),
    ):
        assert invoke(*arguments, *options).exit_code == 0
        assert str(pd.read_parquet(folder / "a.parquet")["day"].iloc[1].date()) == expected
    assert "leave out --after" in str(
        invoke(*arguments, "--history", folder / "rows.csv", "--after", "2023-01-01").exception
    )
    with pytest.warns(DataWarning, match="not one of the frequency 'W-SUN'"):
        invoke(*arguments, "--freq", "W")
    with pytest.warns(DataWarning, match="longer than the series"):
        invoke("forecast", folder / "m.zarr", "--ahead", 600, "--out", folder / "b.csv")


def test_a_picture_with_what_was_observed(made):
    folder, _ = made
    arguments = ["forecast", folder / "m.zarr", "--ahead", 30, "--overwrite"]
    arguments += ["--out", folder / "a.csv", "--plot"]
    history = ["--history", folder / "rows.csv", "--target", "y"]
    assert invoke(*arguments, folder / "a.png", *history).exit_code == 0
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    refused = invoke(*arguments, folder / "a.txt")
    assert "--plot must end in" in str(refused.exception)
    (folder / "a.csv").unlink()
    refused = invoke(*arguments, folder / "none" / "a.png")
    assert "there is no folder" in str(refused.exception)
    assert not (folder / "a.csv").exists()  # said before anything is written


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_holidays_to_come_are_named_as_in_the_fit(tmp_path, zone):
    days = DAYS.tz_localize(zone)
    X = pd.DataFrame({"day": days})
    known = {"Christmas": [*CHRISTMAS["Christmas"], "2022-12-25"]}
    X["holiday"] = holiday_levels(days, known, before=1, after=2)
    model, _ = fitted(X, TREND, Levels("holiday", variance=100.0))
    model.save(tmp_path / "m.zarr")
    ahead = pd.date_range("2022-12-01", periods=30, tz=zone)
    file = tmp_path / "holidays.csv"
    pd.DataFrame({"date": ["2022-12-25"], "holiday": "Christmas"}).to_csv(file, index=False)
    arguments = ["forecast", tmp_path / "m.zarr", "--ahead", 30, "--out", tmp_path / "a.parquet"]
    result = invoke(*arguments, "--holidays", file)
    assert result.exit_code == 0, result.output
    table = pd.read_parquet(tmp_path / "a.parquet")
    expected = pd.DataFrame({"day": ahead})
    expected["holiday"] = holiday_levels(ahead, known, before=1, after=2)
    assert table["holiday"].tolist() == expected["holiday"].tolist()
    np.testing.assert_allclose(table["mean"], model.predict(expected), rtol=1e-9)
    assert table["mean"].idxmax() == 24
    for options, message in (
        ([], "the column 'holiday' besides the dates 'day'.*--holidays FILE"),
        (["--holidays", file, "--no-holiday", "usual"], "no level 'usual'.*'none'"),
        (["--holidays", file, "--holiday-column", "h"], "no column 'h'"),
    ):
        with pytest.raises(ParameterError, match=message):
            raise invoke(*arguments, "--overwrite", *options).exception
    pd.DataFrame({"date": ["2022-12-25"], "holiday": "Noel"}).to_csv(file, index=False)
    with pytest.raises(ParameterError, match="none of its holidays, 'Noel', is a level"):
        raise invoke(*arguments, "--overwrite", "--holidays", file).exception
    pd.DataFrame({"date": ["2022-12-25"], "holiday": ""}).to_csv(file, index=False)
    with pytest.raises(DataError, match="row 1 has no holiday"):
        raise invoke(*arguments, "--overwrite", "--holidays", file).exception


def test_what_a_date_does_not_say_is_named(tmp_path):
    X = pd.DataFrame({"day": DAYS, "price": np.arange(len(DAYS)) % 7.0})
    arguments = ["forecast", tmp_path / "m.zarr", "--ahead", 3, "--out", tmp_path / "a.csv"]
    seasons = Smooth("day", kernel=Periodic("week", lengthscale=1.0, variance=1.0))
    for terms, message in (
        (
            (TREND, Linear("price", variance=1.0)),
            "the column 'price' besides the dates 'day'.*dsgp predict",
        ),
        (
            (Linear("price", variance=1.0),),
            "no column of dates among its inputs, which are 'price'",
        ),
        ((seasons,), "does not hold the last date.*--after DATE"),
    ):
        model, _ = fitted(X, *terms)
        model.save(tmp_path / "m.zarr", True)
        with pytest.raises(ParameterError, match=message):
            raise invoke(*arguments).exception
        assert not (tmp_path / "a.csv").exists()


def test_options_that_would_change_nothing_are_refused(made):
    folder, _ = made
    arguments = ["forecast", folder / "m.zarr", "--ahead", 3, "--out", folder / "a.csv"]
    for options, message in (
        (["--target", "y"], "--target is a column of --history"),
        (["--no-holiday", "no"], "--no-holiday are of --holidays; give it, too"),
        (["--holiday-column", "h"], "--no-holiday are of --holidays; give it, too"),
        (["--ahead", 10**8], "end beyond the dates that pandas and Python can hold"),
    ):
        with pytest.raises(ParameterError, match=message):
            raise invoke(*arguments, *options).exception


def test_of_dates_in_bins_the_last_one_is_kept_and_not_their_distance(tmp_path):
    model, _ = fitted(pd.DataFrame({"day": DAYS}), TREND, bins=40)
    model.save(tmp_path / "m.zarr")
    arguments = ["forecast", tmp_path / "m.zarr", "--ahead", 3, "--out", tmp_path / "a.csv"]
    with pytest.raises(ParameterError, match="--freq"):
        raise invoke(*arguments).exception
    assert invoke(*arguments, "--freq", "D").exit_code == 0
    assert pd.read_csv(tmp_path / "a.csv")["day"].tolist()[0] == "2022-12-01"


def test_years_far_from_ours(tmp_path):
    years = pd.to_datetime([f"{year}-12-31" for year in range(1650, 1720)])
    model, _ = fitted(pd.DataFrame({"day": years}), TREND)
    model.save(tmp_path / "m.zarr")
    arguments = ["forecast", tmp_path / "m.zarr", "--ahead", 2, "--out", tmp_path / "a.csv"]
    assert invoke(*arguments).exit_code == 0
    assert pd.read_csv(tmp_path / "a.csv")["day"].tolist() == ["1720-12-31", "1721-12-31"]
    # A date is the same day beside others that nanoseconds cannot hold.
    days = pd.DataFrame({"day": pd.to_datetime(["1650-06-01 00:00", "1719-12-31 06:00"])})
    np.testing.assert_array_equal(model.predict(days)[1:], model.predict(days[1:]))
