"""Panels of classes and their probabilities: calibration, ROC, confusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import confusion_matrix, roc_curve

from dsgp.errors import DataError
from dsgp.metrics import (
    CalibrationCurve,
    brier,
    calibration_curve,
    calibration_error,
    error_rate,
    mnll,
    roc_auc,
)
from dsgp.metrics.classification import class_columns
from dsgp.plotting.style import (
    ACCENT,
    FAINT,
    GREY,
    INK,
    frame,
    label,
    normal_quantile,
    short_name,
)
from dsgp.terms import Floats

_LINE = "#30363c"  # what a perfect model would have
_COLOURS = (
    INK, ACCENT, "#3c8d5a", "#d99a2b", "#7a4f9a", "#4aa6b5", "#8c6239", "#d277a4", "#6f7a84",
    "#a3b136",
)  # fmt: skip
_RIGHT = LinearSegmentedColormap.from_list("right", ["#e3edf6", "#4a8ac4", "#1f5a94"])
_WRONG = LinearSegmentedColormap.from_list("wrong", ["#f6d9d3", "#c1432e"])
_MANY = 0.2  # share of a class given to another that has the strongest red
_EXCLUDED = 0.02  # a class less probable than this is no part of its curve among many
_NUMBERED = 20  # classes at most whose counts are written into the matrix
_ZOOMS = (0.01, 0.02, 0.05, 0.1, 0.2)  # sides of the corner that is shown enlarged
_BARS = 40
_DOT: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0}
BINARY_DOTS = ({"color": INK, **_DOT}, {"color": ACCENT, **_DOT})
TOP_DOTS: tuple[dict[str, Any], ...] = (
    {"color": _LINE, **_DOT},
    {"color": _LINE, "markersize": 4.5, "markerfacecolor": "white"},
)
_HALF: dict[str, Any] = {
    "color": _LINE, "marker": "D", "markersize": 5.5, "markerfacecolor": "white",
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """Labels as numbers of columns, and the probabilities.

    Attributes
    ----------
    codes : ndarray of int of shape (n_rows,)
    columns : ndarray of shape (n_rows, n_classes)
    names : list of str
    areas : dict of int to float
        Area under the ROC curve of each class that came.
    colours : dict of int to str
        Of the classes with a colour of their own: where there are more than ten of them, those with
        the smallest areas.
    """

    codes: NDArray[np.int64]
    columns: Floats
    names: list[str]
    areas: dict[int, float]
    colours: dict[int, str]

    @property
    def binary(self) -> bool:
        return len(self.names) == 2

    @property
    def curves(self) -> list[int]:
        """Classes with a curve, those in colour last."""
        return [1] if self.binary else sorted(self.areas, key=lambda k: k in self.colours)

    def colour(self, k: int) -> str:
        return INK if self.binary else self.colours.get(k, GREY)


def score(
    y: ArrayLike, probability: ArrayLike, classes: Sequence[Any] | ArrayLike | None
) -> Scored:
    """Check labels and probabilities, and give colours to the classes."""
    codes, columns, names = class_columns(y, probability, classes)
    roc_auc(y, columns, names)  # refuses labels that are all the same
    present = np.unique(codes).tolist()
    areas = {k: roc_auc(codes == k, columns[:, k]) for k in present}
    worst = sorted(areas, key=areas.__getitem__)[: len(_COLOURS)]
    colours = dict(zip(sorted(worst), _COLOURS, strict=False))
    return Scored(codes, columns, [str(name) for name in names.tolist()], areas, colours)


# ---- calibration


def draw_calibration(ax: Axes, scored: Scored, n_bins: int | None, level: float) -> None:
    """Draw observed shares against predicted probabilities, with the scores as a title."""
    normal_quantile(level)  # refuses a level that is none
    n_rows = len(scored.codes)
    bins = int(np.clip(n_rows // 50, 5, 20)) if n_bins is None else n_bins
    ax.plot([0, 1], [0, 1], color=_LINE, linewidth=0.9, zorder=1, label="calibrated")
    if scored.binary:
        came, p = scored.codes == 1, scored.columns[:, 1]
    else:
        top = scored.columns.argmax(axis=1)
        came, p = scored.codes == top, scored.columns[np.arange(n_rows), top]
        for k in scored.curves:
            _draw_class(ax, scored, k, n_bins)
    _draw_bins(ax, calibration_curve(came, p, n_bins=bins, level=level), scored.binary)
    scores = [
        f"log loss {_likelihood(scored)}",
        f"Brier score {brier(scored.codes, scored.columns):.3g}",
        f"calibration error {_calibration_error(scored, n_bins):.2g}",
    ]
    ax.set_title(",  ".join(scores), fontsize=8.5)
    of = f" of class {scored.names[1]}" if scored.binary else ""
    ax.set_xlabel(label(f"predicted probability{of}", 48), fontsize=9.5, parse_math=False)
    ax.set_ylabel("observed share", fontsize=9.5)
    _square(ax)


def _calibration_error(scored: Scored, n_bins: int | None) -> float:
    """By the bins of the measure unless others were requested: one number everywhere."""
    if n_bins is None:
        return calibration_error(scored.codes, scored.columns)
    return calibration_error(scored.codes, scored.columns, n_bins=n_bins)


def _draw_class(ax: Axes, scored: Scored, k: int, n_bins: int | None) -> None:
    """Curve of one class, over the rows where its probability is not nearly zero."""
    likely = scored.columns[:, k] >= _EXCLUDED
    n_likely = int(np.count_nonzero(likely))
    if n_likely:
        bins = int(np.clip(n_likely // 15, 3, 15)) if n_bins is None else n_bins
        curve = calibration_curve(scored.codes[likely] == k, scored.columns[likely, k], n_bins=bins)
        ax.plot(
            curve.predicted, curve.observed, "o-", color=scored.colour(k), linewidth=1.1,
            markersize=2.8, markeredgewidth=0, alpha=0.85, zorder=2, label=scored.names[k],
        )  # fmt: skip


def _draw_bins(ax: Axes, curve: CalibrationCurve, binary: bool) -> None:
    """Dots with their intervals; red, or hollow, where the interval misses the prediction."""
    missed = (curve.predicted < curve.low) | (curve.predicted > curve.high)
    reach = np.array([curve.observed - curve.low, curve.high - curve.observed])
    held_look, missed_look = BINARY_DOTS if binary else TOP_DOTS
    for bins, look, name in ((~missed, held_look, "held"), (missed, missed_look, "missed")):
        if bins.any():
            ax.errorbar(
                curve.predicted[bins], curve.observed[bins], reach[:, bins], fmt="o",
                elinewidth=1.0, zorder=4, label=name, **look,
            )  # fmt: skip


def draw_probabilities(ax: Axes, above: Axes, scored: Scored) -> None:
    """Rows by their probability, below a calibration curve: second class up, first one down."""
    above.set(xlabel="", aspect="auto")
    above.tick_params(labelbottom=False)
    ax.sharex(above)
    edges = np.linspace(0, 1, _BARS + 1)
    most = 0.0
    for k, sign, colour in ((1, 1, INK), (0, -1, GREY)):
        count, _ = np.histogram(scored.columns[scored.codes == k, 1], edges)
        ax.bar(
            edges[:-1], sign * count, 1 / _BARS, align="edge", color=colour,
            edgecolor="white", linewidth=0.4, label=scored.names[k],
        )  # fmt: skip
        most = max(most, float(count.max()))
    ax.axhline(0, color=FAINT, linewidth=0.8)
    ax.set_ylim(-1.1 * most, 1.1 * most)
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    ax.set_ylabel("rows", fontsize=9.5)
    ax.set_xlabel(
        label(f"predicted probability of class {scored.names[1]}", 48),
        fontsize=9.5,
        parse_math=False,
    )
    frame(ax)


# ---- ROC


def draw_roc(ax: Axes, scored: Scored) -> None:
    """Draw one curve per class, and the corner that they hug enlarged."""
    drawn = [ax]
    worst = min(scored.areas.values())
    # A curve that leaves the corner's square by its diagonal has an area of 1 − side² / 2.
    zoom = next((side for side in _ZOOMS if side >= 1.2 * np.sqrt(2 * (1 - worst))), None)
    if zoom is not None:
        corner = ax.inset_axes((0.4, 0.1, 0.56, 0.56))
        drawn.append(corner)
    for k in scored.curves:
        false, true, _ = roc_curve(scored.codes == k, scored.columns[:, k])
        for each in drawn:
            each.plot(
                false, true, color=scored.colour(k), linewidth=1.4 if scored.binary else 1.1,
                solid_joinstyle="miter", label=scored.names[k], zorder=2,
            )  # fmt: skip
    if scored.binary:
        predicted = scored.columns[:, 1] > 0.5
        at_half = (np.mean(predicted[scored.codes == 0]), np.mean(predicted[scored.codes == 1]))
        for each in drawn:
            each.plot(*at_half, zorder=5, label="half", **_HALF)
            each.annotate("½", at_half, (6, -9), textcoords="offset points", fontsize=8.5, zorder=5)
    if zoom is None:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.9, linestyle="--", zorder=1, label="guess")
    area = roc_auc(scored.codes, scored.columns)
    mean = "" if scored.binary else "mean "
    at_what = " at probability ½" if scored.binary else ""
    ax.set_title(
        f"{mean}area under the curve {area:.4g},\n"
        f"{_error(scored):.2%} of {len(scored.codes):,} rows wrong{at_what}",
        fontsize=8.5,
    )
    ax.set_xlabel("false positive rate", fontsize=9.5)
    ax.set_ylabel("true positive rate", fontsize=9.5)
    _square(ax)
    if zoom is not None:
        _enlarge(ax, corner, zoom)


def _enlarge(ax: Axes, corner: Axes, side: float) -> None:
    margin = 0.03 * side
    corner.set(xlim=(-margin, side), ylim=(1 - side, 1 + margin))
    corner.set_xticks([0, side / 2, side])
    corner.set_yticks([1 - side, 1 - side / 2, 1])
    corner.tick_params(labelsize=7, color=FAINT, length=2)
    corner.spines[:].set(color=GREY, linewidth=0.8)
    ax.indicate_inset((0, 1 - side, side, side), corner, edgecolor=GREY, linewidth=0.8, alpha=1.0)


# ---- confusion


def draw_confusion(ax: Axes, scored: Scored) -> None:
    """Draw how many rows of each class were given to each: right ones blue, wrong ones red."""
    n_classes = len(scored.names)
    predicted = scored.columns.argmax(axis=1)
    count = confusion_matrix(scored.codes, predicted, labels=np.arange(n_classes))
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    right = np.eye(n_classes, dtype=bool)
    colours = np.ones((n_classes, n_classes, 4))
    colours[right] = _RIGHT(share[right])
    wrong = ~right & (count > 0)
    if wrong.any():
        colours[wrong] = _WRONG(share[wrong] / _MANY)
    ax.imshow(colours, interpolation="nearest")
    ax.set_xticks(np.arange(n_classes + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(n_classes + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#e6e9ec", linewidth=0.6)
    if n_classes <= _NUMBERED:
        size = 8 if n_classes <= 10 else 6
        for (row, column), number in np.ndenumerate(count):
            if number:
                dark = np.dot(colours[row, column, :3], [0.3, 0.59, 0.11]) < 0.55
                ax.text(
                    column, row, f"{number:,}", ha="center", va="center", fontsize=size,
                    color="white" if dark else _LINE,
                )  # fmt: skip
    shown = np.arange(0, n_classes, -(-n_classes // 30))  # a name every few rows if there are many
    names = [short_name(scored.names[k], 10) for k in shown]
    long = max(map(len, names)) > 3
    ax.set_xticks(shown, names, rotation=40 if long else 0, ha="right" if long else "center")
    ax.set_yticks(shown, names)
    for text in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        text.set_parse_math(False)
        text.set_rotation_mode("anchor")
    ax.tick_params(labelsize=8 if n_classes <= 10 else 6.5, length=0)
    ax.tick_params(which="minor", length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("predicted", fontsize=9.5)
    ax.set_ylabel("observed", fontsize=9.5)
    n_wrong = int(count[~right].sum())
    ax.set_title(f"{n_wrong:,} of {count.sum():,} rows wrong", fontsize=8.5)


# ---- scores, frames and legends


def _likelihood(scored: Scored) -> str:
    try:
        return f"{mnll(scored.codes, scored.columns):.3g}"
    except DataError:  # a label that came had probability 0
        return "∞"


def _error(scored: Scored) -> float:
    return error_rate(scored.codes, scored.columns.argmax(axis=1))


def _square(ax: Axes) -> None:
    """One scale of shares from 0 to 1 for both axes, with room for what lies at the ends."""
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(np.linspace(0, 1, 6))
    frame(ax)
