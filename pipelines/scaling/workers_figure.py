"""The picture of scaling on workers: strong, efficiency, weak, with what the cost model says."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    PercentFormatter,
    ScalarFormatter,
)

from dsgp.plotting.style import ACCENT, GREY, INK, frame
from pipelines.reporting import DPI
from pipelines.scaling.costs import Fitted

COLOURS = (INK, ACCENT, "#3a8f5c", "#b98a1d", "#7a5ea8")
Line = Mapping[str, Any]


def draw_workers(report: Mapping[str, Any], fitted: Fitted, path: Path) -> None:
    """Draw wall time and efficiency against workers, and as many rows for each worker.

    Points are measured; those of more workers than cores are hollow. Lines are predicted.
    """
    fig = Figure((10.2, 3.8), layout="constrained")
    strong, efficiency, weak = fig.subplots(1, 3)
    lines = report["lines"]
    cores = {line["workers"]: line["cores"] for line in sorted(lines, key=_workers)}
    numbers = list(cores)
    sizes = _strong_sizes(lines, numbers)
    for n, colour in zip(sizes, cycle(COLOURS), strict=False):
        these = [line for line in lines if line["n"] == n]
        _points(strong, these, "wall", colour, f"{n:,} rows")
        _points(efficiency, these, "efficiency", colour, "")
        walls = _predicted(fitted, cores, [n] * len(numbers))
        strong.plot(numbers, walls, "--", color=colour, linewidth=1)
        share = walls[0] / walls * numbers[0] / np.array(numbers)
        efficiency.plot(numbers, share, "--", color=colour, linewidth=1)
    each = min(line["n"] for line in lines)
    grown = [line for line in lines if line["n"] == each * line["workers"]]  # rows of a worker
    _points(weak, grown, "wall", INK, "")
    walls = _predicted(fitted, cores, [each * w for w in numbers])
    weak.plot(numbers, walls, "--", color=INK, linewidth=1)
    for ax, title, label in (
        (strong, "strong scaling: the same rows", "wall seconds"),
        (efficiency, "efficiency of strong scaling", "speedup / workers"),
        (weak, f"weak scaling: {each:,} rows per worker", "wall seconds"),
    ):
        _finish(ax, lines, title, label)
    strong.set_yscale("log")
    walls = [line["wall"] for line in lines]
    strong.set_ylim(min(walls) / 1.5, max(walls) * 1.5)
    strong.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    strong.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    strong.yaxis.set_minor_formatter(NullFormatter())
    efficiency.yaxis.set_major_formatter(PercentFormatter(1))
    _legend(fig, strong, any(line["oversubscribed"] for line in lines))
    fig.savefig(path, dpi=DPI)


def _strong_sizes(lines: list[Line], numbers: list[int]) -> list[int]:
    """Sizes that were fitted with every number of workers."""
    sizes = sorted({line["n"] for line in lines})
    return [n for n in sizes if sum(line["n"] == n for line in lines) == len(numbers)]


def _workers(line: Line) -> int:
    number: int = line["workers"]
    return number


def _predicted(fitted: Fitted, cores: dict[int, int], rows: list[int]) -> Any:
    """Wall seconds on each number of workers, which have so many cores with the driver."""
    pairs = zip(rows, cores, strict=True)
    return np.array([fitted.costs.wall(n, workers, cores[workers]) for n, workers in pairs])


def _points(ax: Axes, lines: list[Line], name: str, colour: str, label: str) -> None:
    ax.plot([], [], "o", color=colour, markersize=5, label=label or None)
    for line in lines:
        face = "white" if line["oversubscribed"] else colour
        ax.plot(
            line["workers"], line[name], "o", color=colour, markerfacecolor=face, markersize=5,
            zorder=3,
        )  # fmt: skip


def _finish(ax: Axes, lines: list[Line], title: str, label: str) -> None:
    numbers = sorted({line["workers"] for line in lines})
    shared = [line["workers"] for line in lines if line["oversubscribed"]]
    ax.set_xscale("log", base=2)
    ax.set_xlim(numbers[0] / 1.25, numbers[-1] * 1.25)
    ax.xaxis.set_major_locator(FixedLocator(numbers))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_formatter(NullFormatter())
    if shared:
        ax.axvspan(
            min(shared) / 1.25, numbers[-1] * 1.25, color=GREY, alpha=0.15, linewidth=0, zorder=0
        )
    ax.set_ylim(0 if label != "wall seconds" or "weak" in title else None)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("workers of one thread", fontsize=9)
    ax.set_ylabel(label, fontsize=9)
    frame(ax)


def _legend(fig: Figure, ax: Axes, oversubscribed: bool) -> None:
    ax.plot([], [], "--", color=INK, linewidth=1, label="predicted by the cost model")
    if oversubscribed:
        ax.plot(
            [], [], "o", color=INK, markerfacecolor="white", markersize=5,
            label="more workers than cores",
        )  # fmt: skip
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False
    )
