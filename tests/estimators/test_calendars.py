"""Dates that come next, and the holidays among dates."""

import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from dsgp import future_dates, holiday_levels
from dsgp.errors import DataError, ParameterError

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


def test_what_no_dates_follow():
    with pytest.raises(ParameterError, match="freq"):
        future_dates("2024-01-01", 3, "no such")
    with pytest.raises(ParameterError, match="periods"):
        future_dates("2024-01-01", 0)
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


def test_a_holiday_goes_before_the_neighbour_of_another():
    near = {"a": ["2024-01-01"], "b": ["2024-01-02"]}
    days = pd.date_range("2023-12-31", periods=4)
    found = holiday_levels(days, near, before=1, after=1).tolist()
    assert found == ["a -1", "a", "b", "b +1"]


def test_countries_are_those_of_the_package(monkeypatch):
    def country_holidays(country, years):
        if country != "XX":
            raise NotImplementedError
        return {pd.Timestamp(year, 1, 1).date(): "New Year" for year in years}

    monkeypatch.setitem(sys.modules, "holidays", SimpleNamespace(country_holidays=country_holidays))
    days = pd.date_range("2023-12-31", periods=2)
    assert holiday_levels(days, "XX", before=1).tolist() == ["New Year -1", "New Year"]
    with pytest.raises(ParameterError, match="no country 'YY'"):
        holiday_levels(days, "YY")
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ImportError, match="pip install holidays"):
        holiday_levels(days, "XX")
