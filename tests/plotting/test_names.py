"""Figures show the names of columns, levels and classes as they are."""

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, Smooth, Tensor
from dsgp.metrics import calibration_of
from dsgp.plotting import (
    plot_calibration_report,
    plot_classification,
    plot_components,
    plot_slices,
)
from dsgp.plotting.captions import breaking_between
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import write_below

# Matplotlib hides labels that begin with "_" and reads "$…$" as a formula; grey lines are others.
LEVELS = ["$1-$2", "_hidden", "others"]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.uniform(-1, 1, 240), "_g": np.repeat(LEVELS, 80)})


def test_legends_of_curves_name_every_level(rows):
    y = rows["x"] * (rows["_g"] == "others") + 0.01 * np.arange(240) % 0.07
    model = AdditiveGPRegressor(terms=[Smooth("x", by="_g")]).fit(rows, y)
    legend = plot_components(model, n_points=5).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == LEVELS
    assert not any(text.get_parse_math() for text in legend.get_texts())
    colours = [line.get_color() for line in legend.get_lines()]
    assert colours == [line.get_color() for line in plot_components(model).axes[0].lines[1:]]


def test_legends_of_slices_name_every_level(rows):
    y = rows["x"] * (rows["_g"] == "others") + 0.01 * np.arange(240) % 0.07
    model = AdditiveGPRegressor(terms=[Tensor("x", "_g")]).fit(rows, y)
    legend = plot_slices(model, ("x", "_g"), n_points=5).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [f"_g = {g}" for g in LEVELS]
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_legends_of_classes_name_every_class():
    probability = np.full((9, 3), 0.2) + 0.4 * np.repeat(np.eye(3), 3, axis=0)
    figure = plot_classification(np.repeat(LEVELS, 3), probability, classes=LEVELS)
    (legend,) = figure.legends
    assert [text.get_text().split(":")[0] for text in legend.get_texts()][:3] == LEVELS


def test_calibration_reports_show_names_and_themselves():
    pit = np.random.default_rng(0).random(60)
    by = {"$a$": np.repeat(LEVELS, 20)}
    figure = plot_calibration_report(calibration_of(pit, by=by))
    assert isinstance(figure, DisplayedFigure)  # which notebooks show
    ax = figure.axes[1]
    assert ax.get_title() == "$a$"
    assert not any(text.get_parse_math() for text in (ax.title, *ax.get_xticklabels()))


def test_medians_of_large_numbers_do_not_overlap():
    random = np.random.default_rng(0)
    rows = {"price": random.lognormal(12, 0.5, 400), "change": random.normal(0, 1, 400)}
    figure = plot_calibration_report(calibration_of(random.random(400), by=rows))
    figure.canvas.draw()
    for ax in figure.axes[1:]:
        names = [text.get_text() for text in ax.get_xticklabels()]
        assert not any("e" in name for name in names)
        if ax.get_title() == "price":
            assert all(text.get_rotation() > 0 for text in ax.get_xticklabels())


def test_medians_of_dates_are_dates():
    at = {"at": np.arange("2021-01-01", "2021-12-27", dtype="datetime64[D]")}
    figure = plot_calibration_report(calibration_of(np.full(360, 0.5), by=at, n_groups=2))
    names = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert names == ["2021-03-31", "2021-09-27"]


def test_captions_break_between_words():
    parts = ["words of one line", "a part that is longer than a line of this figure"]
    figure = DisplayedFigure((2.0, 2.0))
    write_below(figure, breaking_between(parts), 2.0)
    assert figure.get_supxlabel().split() == "; ".join(parts).split()
