"""A picture of a forecast shows its numbers at their dates, after what was observed."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import date2num

from dsgp.errors import DataError
from dsgp.plotting import plot_forecast

AHEAD = pd.date_range("2024-03-30", periods=4, tz="Europe/Berlin")
MEDIAN, LOW, HIGH = np.arange(4.0), np.arange(4.0) - 1, np.arange(4.0) + 2


def test_numbers_are_at_their_dates_by_the_clock():
    past = pd.date_range(end="2024-03-29", periods=9, tz="Europe/Berlin")
    figure = plot_forecast(
        AHEAD, MEDIAN, LOW, HIGH, observed=(past, np.ones(9)), level=0.8, target="visits"
    )
    ax = figure.axes[0]
    dots, _, line = ax.lines
    expected = date2num(AHEAD.tz_localize(None))
    np.testing.assert_array_equal(date2num(line.get_xdata()), expected)
    np.testing.assert_array_equal(line.get_ydata(), MEDIAN)
    assert len(dots.get_xdata()) == 9
    band = ax.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1, band.x0, band.x1) == (LOW.min(), HIGH.max(), *expected[[0, -1]])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["observed", "80 % interval of an observation", "median"]
    assert ax.get_ylabel() == "visits"


def test_as_many_numbers_as_dates():
    with pytest.raises(DataError, match=r"shape \(4,\)"):
        plot_forecast(AHEAD, MEDIAN[:3], LOW, HIGH)
    with pytest.raises(DataError, match="9 observed values"):
        plot_forecast(AHEAD, MEDIAN, LOW, HIGH, observed=(pd.date_range("2024", periods=9), MEDIAN))
