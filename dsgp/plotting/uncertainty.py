"""A picture of a calibration report: PIT values, and coverage by groups of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dsgp.dates import days_of_dates, written_dates
from dsgp.errors import ParameterError
from dsgp.metrics.uncertainty import CalibrationReport
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import ACCENT, FAINT, GREY, INK, frame, label, write_below
from dsgp.terms import Floats

_WIDTH, _HEIGHT = 2.9, 2.3
# Rows in a marker's own band that axes show beside: half of the width between groups.
_HALF = 0.42
# Characters of a number that stands upright beside four others; longer ones are slanted.
_UPRIGHT = 5
_PLAIN = 1e7


def plot_calibration_report(report: CalibrationReport, *, max_columns: int = 8) -> Figure:
    """Draw PIT values and coverage by groups, with the bands for a calibrated model.

    First the histogram of the probability integral transforms: flat within the grey band if the
    predictive distributions are right, high at both ends if they are too narrow, in the middle if
    too wide. Then, for each column, the share of rows of each group in their interval, against the
    grey band of calibrated rows (95 %, exactly binomial); red where a group is further out than
    chance among so many groups explains, hollow where it is outside and chance may explain it.

    Parameters
    ----------
    report : CalibrationReport
        The result of ``calibration_report``.
    max_columns : int
        Maximum number of columns, those that are furthest from calibrated.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.metrics import calibration_of
    >>> from dsgp.plotting import plot_calibration_report
    >>> pit = np.random.default_rng(0).random(500)
    >>> figure = plot_calibration_report(calibration_of(pit, by={"x": np.arange(500)}))
    >>> len(figure.axes)
    2
    """
    if max_columns < 1:
        raise ParameterError(f"max_columns must be at least 1, got {max_columns!r}")
    groups = report.coverage[report.coverage["by"] != "all rows"]
    worst = groups.groupby("by", sort=False)["p_value"].min().sort_values(kind="stable")
    names = list(worst.index[:max_columns])
    n_panels = 1 + len(names)
    n_across = min(3, n_panels)
    n_down = math.ceil(n_panels / n_across)
    width = _WIDTH * n_across
    fig = DisplayedFigure((width, _HEIGHT * n_down + 0.7), layout="constrained")
    axes = fig.subplots(n_down, n_across, squeeze=False).ravel()
    _draw_histogram(axes[0], report)
    low = min(groups["coverage"].min(), groups["band_low"].min()) if len(groups) else 0.0
    for ax, name in zip(axes[1:], names, strict=False):
        _draw_coverage(ax, groups[groups["by"] == name], report.level)
        ax.set_ylim(max(low - 0.03, -0.01), 1.01)
    for ax in axes[n_panels:]:
        ax.set_visible(False)
    left_out = len(worst) - len(names)
    before = " PIT values are those before calibration." if report.n_calibrated else ""
    rest = f" {left_out} columns that are nearer to calibrated are not shown." if left_out else ""
    write_below(
        fig,
        f"{len(report.pit)} rows, {report.coverage.iloc[0]['coverage']:.1%} of them in their "
        f"{report.level:.0%} interval. Grey: where calibrated rows are, with 95 % probability. "
        "Red: further out than chance among all groups explains; hollow: outside, perhaps by "
        f"chance.{before}{rest}",
        width,
    )
    return fig


def _draw_histogram(ax: Axes, report: CalibrationReport) -> None:
    table = report.histogram
    first = table.iloc[0]
    ax.axhspan(first["band_low"], first["band_high"], color=GREY, alpha=0.45, lw=0)
    ax.axhline(first["expected"], color=FAINT, lw=0.8)
    ax.bar(
        table["low"],
        table["count"],
        table["high"] - table["low"],
        align="edge",
        color=INK,
        alpha=0.6,
        edgecolor="white",
        linewidth=0.5,
    )
    ax.set_xlim(0, 1)
    ax.set_title("all rows", fontsize=9)
    ax.set_xlabel("PIT: predictive probability of lower values", fontsize=8)
    ax.set_ylabel("rows", fontsize=8)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    frame(ax)


def _draw_coverage(ax: Axes, table: pd.DataFrame, level: float) -> None:
    places = np.arange(len(table))
    ax.bar(
        places,
        table["band_high"] - table["band_low"],
        2 * _HALF,
        table["band_low"],
        color=GREY,
        alpha=0.45,
        linewidth=0,
    )
    ax.axhline(level, color=FAINT, lw=0.8)
    shares, outside = table["coverage"].to_numpy(), table["outside"].to_numpy()
    for kind, colour, fill in (
        ("", INK, INK),
        ("by chance?", INK, "white"),
        ("yes", ACCENT, ACCENT),
    ):
        chosen = outside == kind
        ax.plot(
            places[chosen], shares[chosen], "o", ms=4.5, color=colour, markerfacecolor=fill, mew=1.2
        )
    _write_groups(ax, table)
    ax.set_title(label(str(table["by"].iloc[0]), 34), fontsize=9, parse_math=False)
    ax.set_ylabel("rows in their interval", fontsize=8)
    # Steps of 2.5 % would be written as 92 %, 95 %, 98 %.
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.4g}%")
    frame(ax)


def _write_groups(ax: Axes, table: pd.DataFrame) -> None:
    """Name the groups: medians of numbers or dates, some of them, or all levels."""
    middles = table["middle"].to_numpy()
    if not pd.isna(middles).all():
        step = max(1, math.ceil(len(table) / 5))
        shown = range(0, len(table), step)
        written = _medians(table["group"], middles)
        names = [written[k] for k in shown]
        if max(map(len, names)) > _UPRIGHT:
            ax.set_xticks(list(shown), names, rotation=35, ha="right", rotation_mode="anchor")
        else:
            ax.set_xticks(list(shown), names)
        ax.set_xlabel("median of the group", fontsize=8)
        return
    names = [label(str(name), 14) for name in table["group"]]
    ax.set_xticks(
        range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", parse_math=False
    )


def _medians(groups: pd.Series, middles: NDArray[Any]) -> list[str]:
    """Write the medians of groups; a group of missing values has its name."""
    known = ~pd.isna(middles)
    if isinstance(middles[known][0], (pd.Timestamp, np.datetime64)):
        dates = pd.DatetimeIndex(middles[known]).to_numpy()
        apart = np.diff(days_of_dates(dates))
        texts = written_dates(dates, float(apart.min(initial=np.inf)))
    else:
        numbers = middles[known].astype(np.float64)
        texts = [_written(float(value), numbers) for value in numbers]
    names = groups.astype(str).to_numpy(dtype=object)
    names[known] = texts
    return names.tolist()


def _written(value: float, known: Floats) -> str:
    """Write the median of a group with as many digits as distinguish it from the others."""
    digits = next(
        (n for n in (3, 4, 5, 6) if len({f"{other:.{n}g}" for other in known}) == len(known)), 6
    )
    rounded = float(f"{value:.{digits}g}")
    # Without an exponent where that is hardly longer: 1150 for 1.15e+03.
    plain = rounded.is_integer() and abs(rounded) < _PLAIN
    text = f"{rounded:.0f}" if plain else f"{rounded:.{digits}g}"
    return text.replace("-", "−", 1 if value < 0 else 0)
