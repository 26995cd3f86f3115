"""Ink, labels and numbers that all pictures share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from scipy.special import ndtri

from dsgp.errors import ParameterError
from dsgp.terms import Floats

INK = "#1f5a94"
FAINT = "#8a949e"  # of what the data do not distinguish from zero
GREY = "#b9c0c7"
ACCENT = "#c1432e"
TEXT = "#58626b"  # captions
# Of curves in one panel, for colour-blind readers too (Okabe and Ito 2008, without yellow).
CURVES = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31"),
)
# From below to above zero: blue and orange, for colour-blind readers too, and white
# between, in steps that look alike (straight lines in CIELAB).
DIVERGING = LinearSegmentedColormap.from_list(
    "below and above zero",
    [
        *("#005393", "#2e65a0", "#5279ac", "#708db9", "#8ca1c6", "#a8b7d3", "#c3ccdf", "#dee3ec"),
        "#f9f9f9",
        *("#f6e2da", "#f0cbbb", "#e9b59d", "#e19f80", "#d78863", "#cc7247", "#c05c2b", "#b24509"),
    ],
)
# Of values and of standard deviations: lightness changes evenly along both.
SEQUENTIAL, DEVIATION = "viridis", "magma_r"


def limits(values: Floats) -> tuple[float, float]:
    """Ends of an axis that holds the values, with a margin."""
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def tidy(ax: Axes, x_ticks: int = 4) -> None:
    """Few ticks, powers of ten aside, no box."""
    for axis, n_ticks in ((ax.xaxis, x_ticks), (ax.yaxis, 5)):
        axis.set_major_locator(MaxNLocator(n_ticks, steps=[1, 2, 5, 10], min_n_ticks=2))
        formatter = ScalarFormatter(useMathText=True)
        formatter.set_powerlimits((-3, 5))
        axis.set_major_formatter(formatter)
        axis.get_offset_text().set_fontsize(7)
    ax.yaxis.get_offset_text().set_horizontalalignment("right")  # clear of the title
    frame(ax)


def frame(ax: Axes) -> None:
    """Leave the left and the lower line of the box only."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(labelsize=7.5, color=FAINT, length=2.5)


def write_below(fig: Figure | SubFigure, text: str, inches: float) -> None:
    """Write a caption below a figure, wrapped to its width."""
    width = characters(0.95 * inches, 7.5)
    # Parts that do not break, but for those that are longer than a line.
    words = [
        w if len(w) <= width else w.replace("\N{NO-BREAK SPACE}", " ") for w in text.split(" ")
    ]
    lines = textwrap.wrap(" ".join(words), width, break_on_hyphens=False)
    text = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    fig.supxlabel(text, fontsize=7.5, color=TEXT, parse_math=False)


def characters(inches: float, size: float) -> int:
    """Characters of a line of text of a size in points."""
    return max(8, int(inches * 72 / (0.58 * size)))


def label(name: str, width: int) -> str:
    """Break a name into two lines of ``width`` at most, shortened in the middle if need be."""
    name = str(name)
    if len(name) <= width:
        return name
    if len(name) > 2 * width:
        name = f"{name[: width - 1]}…{name[-width:]}"
    # The last break that leaves a second line short enough, else wherever it fits.
    breaks = [match.end() for match in re.finditer(r"[\s_./-]|[a-z](?=[A-Z])", name[:width])]
    fitting = [at for at in breaks if len(name) - at <= width]
    at = fitting[-1] if fitting else width
    return f"{name[:at].rstrip()}\n{name[at:]}"


def percent(share: float) -> str:
    """Write a share as a percentage; below zero is a term that takes back what others give."""
    if share <= -0.0005:
        return f"−{percent(-share)}"
    if share < 0.0005:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:,.0%}"


def span(low: float, high: float) -> str:
    """Write two numbers, with as many digits as their distance has a use for."""
    size, apart = max(abs(low), abs(high)), (high - low) or max(abs(low), abs(high))
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e6:
        return f"{power_of_ten(low)} to {power_of_ten(high)}"
    decimals = int(np.clip(1 - np.floor(np.log10(apart)), 0, 6))
    return " to ".join(
        f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−") for value in (low, high)
    )


def power_of_ten(value: float) -> str:
    """Write a number as mantissa and power of ten."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return rf"${mantissa}\times 10^{{{int(exponent)}}}$"


def short_name(name: str, width: int) -> str:
    """One line of a name, without its middle if need be."""
    half = width // 2
    return name if len(name) <= width else f"{name[: width - half - 1]}…{name[-half:]}"


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Names in one line each, of at most the given length, but long enough that they differ."""
    names = [str(name) for name in names]
    for length in range(width, 2 * width + 1):
        shortened = [short_name(name, length) for name in names]
        if len(set(shortened)) == len(set(names)):
            break
    return shortened


def name_artists(
    parent: Axes | Figure, artists: Sequence[Artist], names: Sequence[str], **style: Any
) -> Legend:
    """Draw a legend that shows names as they are: Matplotlib hides "_x" and reads "$x$"."""
    legend = parent.legend(artists, [str(k) for k in range(len(names))], **style)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)
        text.set_parse_math(False)
    return legend


def write_title(ax: Axes, name: str, words: str, width: int) -> None:
    """Write a name above a panel, in two lines of a width at most, and below it a line of words."""
    ax.set_title(label(name, width), fontsize=9, pad=15, parse_math=False)
    ax.annotate(
        words, (0.5, 1.0), (0, 3), xycoords="axes fraction", textcoords="offset points",
        ha="center", va="bottom", fontsize=7.5, color=TEXT, annotation_clip=False,
    )  # fmt: skip


def normal_quantile(level: float) -> float:
    """Half the width of a central interval, in standard deviations."""
    if not 0 < level < 1:
        raise ParameterError(f"level must be a share between 0 and 1, such as 0.95, got {level!r}")
    return float(ndtri((1 + level) / 2))
