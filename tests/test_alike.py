"""Numbers of one column in one format."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.alike import format_alike, written_alike


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([103.3, 72.26, 57.81], ["103.3", "72.3", "57.8"]),
        ([25.12, 107.7, 1.72], ["25.12", "107.70", "1.72"]),
        ([32609.6, 59.31], ["32,610", "59"]),
        ([1990.0, 2024.0], ["1990", "2024"]),
        ([11650.4, 388000.2], ["11,650", "388,000"]),
        ([0.002247, 1.052e7], ["2.247e-03", "1.052e+07"]),
        ([3.0, 12.0, 0.0, np.nan], ["3", "12", "0", "–"]),
        ([np.nan], ["–"]),
    ],
)
def test_a_column_has_one_format(values, expected):
    assert written_alike(values) == expected


def test_what_is_small_beside_the_largest_may_be_lost():
    assert written_alike([4660.4, 3.7e-5], least=1e-3) == ["4660", "0"]
    assert "e" in format_alike([4660.4, 3.7e-5])


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_no_number_is_lost(values):
    for value, text in zip(values, written_alike(values), strict=True):
        assert float(text.replace(",", "")) == pytest.approx(value, rel=0.5)
        assert len(text) <= 11
