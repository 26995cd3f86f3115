"""Dates that come next, and the holidays among dates."""

import datetime
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from dsgp import future_dates, holiday_levels
from dsgp.errors import DataError, DataWarning, ParameterError
from tests.estimators.country import package_of

EASTER = {"Easter": ["2023-04-09", "2024-03-31"], "May Day": ["2023-05-01", "2024-05-01"]}


@pytest.mark.parametrize(("freq", "second"), [("D", "2024-03-02"), ("MS", "2024-04-01")])
def test_dates_that_follow(freq, second):
    known = pd.to_datetime(["2024-02-29", "2023-01-01"])
    found = future_dates(known, 3, freq)
    assert len(found) == 3
    assert found[0] > known[0]
    assert str(found[1].date()) == second
    zoned = future_dates(known.tz_localize("Europe/Berlin"), 1)
    assert str(zoned.tz) == "Europe/Berlin"


@pytest.mark.parametrize(
    "freq", ["D", "B", "7D", "W-MON", "MS", "ME", "QS", "YS", "h", "15min", pd.DateOffset(months=1)]
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_distance_is_that_of_the_dates_whatever_their_order_gaps_and_ties(freq, zone):
    # From the 15th on for the offset of months: over the changes of the clock and a leap year.
    whole = pd.date_range("2023-09-15", periods=240, freq=freq, tz=zone)
    known = whole[:200].delete([3, 4, 50, 121])
    shuffled = np.random.default_rng(0).permutation(np.r_[np.arange(len(known)), 5, 5, 9])
    expected = [str(date) for date in whole[200:240]]
    assert [str(date) for date in future_dates(known[shuffled], 40)] == expected


@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
def test_months_shorter_than_the_day_of_the_month_change_one_date_only(zone):
    known = pd.to_datetime(["2020-10-30 12:00", "2020-11-30 12:00", "2020-12-30 12:00"])
    found = future_dates(known.tz_localize(zone), 4)
    expected = ["2021-01-30", "2021-02-28", "2021-03-30", "2021-04-30"]
    assert list(found) == [pd.Timestamp(f"{day} 12:00", tz=zone) for day in expected]


def test_dates_without_a_common_distance_need_one():
    known = pd.to_datetime(["2020-01-01", "2020-01-05", "2020-02-11", "2020-02-17"])
    with pytest.raises(DataError, match="pass freq"):
        future_dates(known, 3)
    assert str(future_dates(known, 1, "D")[0].date()) == "2020-02-18"


def test_a_frequency_that_the_last_date_is_not_of_warns():
    mondays = pd.date_range("2024-01-01", periods=9, freq="W-MON")
    with pytest.warns(DataWarning, match="Monday 2024-02-26, is not one .* Sunday 2024-03-03"):
        future_dates(mondays, 2, "W")


def test_numbers_are_no_dates_and_periods_are():
    with pytest.raises(DataError, match="are numbers"):
        future_dates(np.arange(9), 2)
    months = pd.period_range("2023-01", periods=9, freq="M")
    assert str(future_dates(months, 2)[1].date()) == "2023-11-01"


def test_what_no_dates_follow():
    with pytest.raises(ParameterError, match="later dates"):
        future_dates("2024-01-01", 3, "-1D")
    with pytest.raises(ParameterError, match="freq"):
        future_dates("2024-01-01", 3, "no such")
    with pytest.raises(ParameterError, match="periods"):
        future_dates("2024-01-01", 0)
    with pytest.raises(ParameterError, match="fewer periods"):
        future_dates(["2020-10-30", "2020-11-30", "2020-12-30"], 100_000)
    with pytest.raises(DataError, match="missing"):
        future_dates([None, "2024-01-01"], 1)


def test_holidays_move_and_have_neighbours():
    days = pd.date_range("2024-03-29", "2024-05-02")
    found = pd.Series(holiday_levels(days, EASTER, before=2, after=1), index=days)
    assert found["2024-03-31"] == "Easter"
    assert found["2024-03-29"] == "Easter -2"
    assert found["2024-04-01"] == "Easter +1"
    assert (found == "none").sum() == len(days) - 4 - 4
    turned = {day: name for name, on in EASTER.items() for day in on}
    assert holiday_levels(days, turned, before=2, after=1).tolist() == found.tolist()


def test_holidays_that_end_before_the_dates_warn():
    yearly = {"Christmas": ["2021-12-25", "2022-12-25"], "Flood": ["2022-07-01"]}
    with pytest.warns(DataWarning, match=r"reach 2023-12-31: 'Christmas' \(2022-12-25\)"):
        holiday_levels(pd.date_range("2022-01-01", "2023-12-31"), yearly)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holiday_levels(pd.date_range("2022-01-01", "2023-12-24"), yearly)
        holiday_levels(pd.date_range("2020-12-26", "2022-12-24"), yearly)
        # A new holiday, and one that is not yearly, are no list that begins late.
        old = {"Old": [f"{year}-01-01" for year in range(2010, 2024)]}
        holiday_levels(pd.date_range("2010-01-01", "2022-12-24"), yearly | old)
        holiday_levels(pd.date_range("2010-01-01", "2022-12-24"), {"Flood": ["2022-07-01"]})
    with pytest.warns(DataWarning, match="begins after the dates do, which start on 2020-12-01"):
        holiday_levels(pd.date_range("2020-12-01", "2022-12-24"), yearly)


def test_one_date_of_a_holiday_and_names_that_are_missing():
    days = pd.date_range("2022-12-24", "2022-12-25")
    for one in (pd.Timestamp("2022-12-25"), datetime.date(2022, 12, 25)):
        assert holiday_levels(days, {"Christmas": one}).tolist() == ["none", "Christmas"]
    with pytest.raises(DataError, match="name of '2022-12-25' is missing"):
        holiday_levels(days, {"2022-12-25": float("nan")})


def test_a_holiday_goes_before_the_neighbour_of_another():
    near = {"a": ["2024-01-01"], "b": ["2024-01-02"]}
    days = pd.date_range("2023-12-31", periods=4)
    found = holiday_levels(days, near, before=1, after=1).tolist()
    assert found == ["a -1", "a", "b", "b +1"]


def test_countries_are_those_of_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", package_of("XX", {(1, 1): "New Year"}))
    days = pd.date_range("2023-12-31", periods=2)
    assert holiday_levels(days, "XX", before=1).tolist() == ["New Year -1", "New Year"]
    with pytest.raises(ParameterError, match="no country 'YY'; pass a code of ISO 3166"):
        holiday_levels(days, "YY")
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ImportError, match="pip install holidays"):
        holiday_levels(days, "XX")


def test_names_of_a_country_are_the_same_in_all_locales_and_years(monkeypatch):
    names = {
        (5, 1): "May Day; Eid (perhaps)", (5, 2): "Eid (in lieu, perhaps)", (6, 1): "Eid (in lieu)"
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "holidays", package_of("XX", names))
    days = pd.to_datetime(["2023-05-01", "2023-05-02", "2023-06-01"])
    found = holiday_levels(days, "XX").tolist()
    # The first of those on a date, in the order of the alphabet.
    assert found == ["Eid", "Eid (in lieu)", "Eid (in lieu)"]
