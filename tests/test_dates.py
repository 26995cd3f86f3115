"""Dates as text: against pandas."""

import numpy as np
import pandas as pd
import pytest

from dsgp.dates import dates_of_days, days_of_dates, written_dates


def test_days_and_dates_are_inverse_to_the_millisecond():
    dates = pd.to_datetime(
        ["1969-12-31 23:59:59.999", "2024-02-29 06:00", None, "1800-01-01"], format="ISO8601"
    )
    days = days_of_dates(dates)
    np.testing.assert_allclose(
        days[[0, 1, 3]],
        [(date - pd.Timestamp(0)) / pd.Timedelta(1, "D") for date in dates[[0, 1, 3]]],
    )
    assert np.isnan(days[2])
    assert pd.DatetimeIndex(dates_of_days(days)).equals(pd.DatetimeIndex(dates).as_unit("ms"))


@pytest.mark.parametrize(
    ("shortest", "expected"),
    [
        (1.0, ["2021-11-29", "2021-11-29"]),
        (0.9, ["2021-11-29 00:00", "2021-11-29 18:30"]),
        (1 / 1440, ["2021-11-29 00:00", "2021-11-29 18:30"]),
        (0.0, ["2021-11-29 00:00:00", "2021-11-29 18:30:07"]),
    ],
)
def test_dates_are_written_to_the_unit_that_matters(shortest, expected):
    dates = np.array(["2021-11-29", "2021-11-29 18:30:07"], dtype="datetime64[ns]")
    assert written_dates(dates, shortest) == expected
    days = dates.astype("datetime64[D]")
    assert written_dates(days, 0.0) == ["2021-11-29", "2021-11-29"]
