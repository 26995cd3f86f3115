"""Residuals that depend on the weekday or the hour of a date are reported, and no others."""

import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f_oneway

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Levels,
    Smooth,
)
from dsgp.errors import DataWarning
from dsgp.models.calendar import _explained


def days_of(n, seed=0, start="2023-01-02", freq="D"):
    random = np.random.default_rng(seed)
    days = pd.date_range(start, periods=n, freq=freq)
    return pd.DataFrame({"day": days, "x": random.uniform(size=n)}), random


def trend(n):
    return np.sin(np.arange(n) / 60)


def test_a_weekly_pattern_is_named_with_its_remedy():
    table, random = days_of(700)
    weekend = table["day"].dt.day_of_week >= 5
    y = trend(700) + 0.4 * weekend + 0.3 * random.standard_normal(700)
    with pytest.warns(DataWarning, match=r"the weekday of 'day' explains \d+% .* --term 'day: L"):
        model = AdditiveGPRegressor().fit(table, y)
    assert any(note.startswith("dates: the weekday of 'day'") for note in model.learner_notes_)
    assert "the weekday of 'day' explains" in model.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        terms = {"day": [Smooth(), Levels(part="weekday")]}
        AdditiveGPRegressor(terms=terms).fit(table, y)


def test_the_remedy_is_quoted_for_the_shell():
    table, random = days_of(400)
    y = 1.0 * (table["day"].dt.day_of_week >= 5) + 0.3 * random.standard_normal(400)
    with pytest.warns(DataWarning, match="the weekday of 'day of sale'") as caught:
        AdditiveGPRegressor().fit(table.rename(columns={"day": "day of sale"}), y)
    options = str(caught[0].message).partition(" or with ")[2]
    assert shlex.split(options) == [
        *("--term", "day of sale"),
        *("--term", "day of sale: Levels(part=weekday)"),
    ]


def test_counts_and_classes_are_judged_too():
    table, random = days_of(900)
    weekend = table["day"].dt.day_of_week >= 5
    with pytest.warns(DataWarning, match="the weekday of 'day' explains"):
        GeneralizedAdditiveGP("poisson").fit(
            table.assign(size=2.0), random.poisson(2 * np.exp(0.6 * weekend)), exposure="size"
        )
    for labels in (
        random.uniform(size=900) < 0.3 + 0.4 * weekend,
        np.where(random.uniform(size=900) < 0.4, "a", np.where(weekend, "b", "c")),
    ):
        with pytest.warns(DataWarning, match="the weekday of 'day' explains"):
            AdditiveGPClassifier().fit(table, labels)


def test_hours_of_a_long_table_are_seen_whatever_their_stride():
    n = 70_000  # a sample of every seventh hour has all hours, and one of every eighth three
    table, random = days_of(n, freq="h")
    y = np.sin(2 * np.pi * table["day"].dt.hour / 24) + random.standard_normal(n)
    with pytest.warns(DataWarning, match="the hour of 'day' explains"):
        AdditiveGPRegressor().fit(table, y)


@pytest.mark.parametrize("seed", range(3))
def test_chance_is_no_pattern(seed):
    table, random = days_of(500, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdditiveGPRegressor().fit(table, trend(500) + random.standard_normal(500))


def test_what_rows_of_one_day_have_in_common_is_no_weekday():
    random = np.random.default_rng(1)
    days = np.repeat(np.arange(35.0), 200)
    common = np.repeat(random.standard_normal(35), 200)
    z = common + random.standard_normal(len(days))
    groups = np.floor((days + 3) % 7)
    means = [common[groups == k].mean() for k in range(7)]
    assert np.var(means) > 0.1 * np.var(z)
    assert _explained(z, days, "weekday", 7.0) == 0.0
    assert _explained(z + 4 * (groups == 2), days, "weekday", 7.0) > 0.3
    # The same of the hours of days.
    hours = np.repeat(np.arange(24 * 6) / 24 + 1e-6, 60)
    z = np.repeat(random.standard_normal(24 * 6), 60) + random.standard_normal(len(hours))
    assert _explained(z, hours, "hour", 1.0) == 0.0
    assert _explained(z + 4 * (hours % 1 > 0.7), hours, "hour", 1.0) > 0.3


def test_the_share_is_that_of_an_analysis_of_variance():
    random = np.random.default_rng(0)
    days = np.sort(random.uniform(0, 700, 600))
    groups = np.floor((days + 3) % 7)
    z = random.standard_normal(600)
    assert _explained(z, days, "weekday", 7.0) == 0.0
    z += 0.7 * (groups == 2)
    parts = [z[groups == k] for k in range(7)]
    left = sum(np.sum((part - part.mean()) ** 2) for part in parts) / (600 - 7)
    assert f_oneway(*parts).pvalue < 1e-6
    assert _explained(z, days, "weekday", 7.0) == pytest.approx(1 - left / np.var(z, ddof=1))
    assert _explained(np.where(groups == 1, np.nan, z), days, "weekday", 7.0) > 0.03
    assert _explained(z[:3], days[:3], "weekday", 7.0) == 0.0
    assert _explained(np.zeros(600), days, "weekday", 7.0) == 0.0
    assert _explained(1.0 * (groups == 2), days, "weekday", 7.0) == pytest.approx(1.0)
