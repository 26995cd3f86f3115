"""The paper's figures from lines: seconds against rows, speedup, bars, runtime–error planes."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from dsgp.plotting.style import CURVES, FAINT, GREY, TEXT, frame, write_below
from pipelines.paper.cell import FIGURES
from pipelines.paper.methods import DEFAULT, METHODS, REGRESSIONS
from pipelines.paper.summary import (
    Line,
    Record,
    comparison,
    first_runs,
    frontier,
    lines_of,
    of_set,
    slope,
    speedups,
)
from pipelines.reporting import DPI

MARKERS = "osD^v<PX*"
COLOURS = (*CURVES, "#7f3c8d")  # as many as there are methods of a task
FULL = "full-gp"
ERRORS = {"nmse": "NMSE", "mnlp": "MNLP (nats)"}


def write_figure(figure: Figure, folder: Path, name: str) -> list[str]:
    """Write a figure as PNG and SVG; return the names of the files."""
    for ending in FIGURES:
        figure.savefig(folder / f"{name}{ending}", dpi=DPI, metadata=_METADATA.get(ending))
    return [f"{name}{ending}" for ending in FIGURES]


_METADATA = {".svg": {"Date": None}}  # the same numbers make the same file


def _style(task: str, method: str) -> dict[str, Any]:
    """Colour and marker of a method, the same in all figures; our defaults have filled ones."""
    names = list(METHODS[task])
    position = names.index(method)
    colour = COLOURS[position]
    is_default = METHODS[task][method].kind == DEFAULT
    return {
        "color": colour,
        "marker": MARKERS[position],
        "markerfacecolor": colour if is_default else "white",
        "markeredgecolor": colour,
    }


# ---- seconds against rows


def draw_runtime(lines: Sequence[Line], data: str, overlay: Mapping[str, int]) -> Figure:
    """Draw processor seconds of learning and prediction against the number of rows.

    Parameters
    ----------
    lines : sequence of dict
    data : str
        A set that is drawn, with several sizes.
    overlay : mapping of str to int
        Sets, with their training rows, whose seconds are drawn as single marks.
    """
    task = "classification" if data.endswith("binary") else "regression"
    some = [line for line in lines if line["data"] == data and line["threads"] == 1]
    fig = Figure((7.0, 4.6), layout="constrained")
    ax = fig.subplots()
    for name, method in METHODS[task].items():
        points = sorted((line["n"], line["total"]) for line in some if line["method"] == name)
        if not points:
            continue
        n, seconds = np.array(points).T
        exponent = slope([line for line in some if line["method"] == name], "all_rows")
        text = method.label + ("" if exponent is None else f", $N^{{{exponent:.2f}}}$")
        style = _style(task, name)
        ax.plot(n, seconds, linewidth=1.3, markersize=4.5, label=text, **style)
        for other, n_rows in overlay.items():
            for line in of_set(lines, other, n_rows):
                if line["method"] == name:
                    ax.plot(line["n"], line["total"], **style | {"marker": "x"}, markersize=7)
    _log_rows(ax, [line["n"] for line in some])
    ax.set_yscale("log")
    ax.set_ylabel("processor seconds of learning and prediction", fontsize=9)
    fig.legend(loc="outside right center", fontsize=8, frameon=False)
    columns = some[0]["n_columns"]
    caption = (
        f"Seconds in one thread against training rows, {columns} columns. The power of N beside a "
        "name: how seconds of learning grow with the number of rows N."
    )
    if overlay:
        caption += f" Crosses: {', '.join(overlay)}."
    write_below(fig, caption, fig.get_figwidth())
    return fig


def _log_rows(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log")
    ax.set_xlim(min(sizes) / 1.25, max(sizes) * 1.25)
    ax.xaxis.set_major_locator(FixedLocator(_round_sizes(min(sizes), max(sizes))))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}".replace(",", "\u202f")))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("training rows", fontsize=9)
    frame(ax)


def _round_sizes(low: float, high: float) -> list[float]:
    values = [a * 10.0**k for k in range(1, 8) for a in (1, 2, 5)]
    return [value for value in values if low / 1.1 <= value <= high * 1.1]


# ---- speedup


def draw_speedup(lines: Sequence[Line], sets: Sequence[str], n: int) -> Figure:
    """Draw how many times faster than a Full-GP each method learns, by columns and threads."""
    rows = speedups(lines, sets, n)
    data_sets = list(dict.fromkeys(row["data"] for row in rows if row["method"] != FULL))
    fig = Figure((4.2 * len(data_sets) + 0.4, 3.9), layout="constrained")
    panels = fig.subplots(1, len(data_sets), sharey=True, squeeze=False)[0]
    for ax, data in zip(panels, data_sets, strict=True):
        own = [row for row in rows if row["data"] == data and row["method"] != FULL]
        methods = list(dict.fromkeys(row["method"] for row in own))
        threads = sorted({row["threads"] for row in own})
        width = 0.8 / len(threads)
        for place, method in enumerate(methods):
            colour = _style("regression", method)["color"]
            for k, count in enumerate(threads):
                row = next(
                    (r for r in own if r["method"] == method and r["threads"] == count), None
                )
                if row is None:
                    continue
                measured = row["measured"]
                at = place + (k - (len(threads) - 1) / 2) * width
                ax.bar(
                    at, row["speedup"], 0.92 * width, color=colour if measured else "white",
                    edgecolor=colour, hatch=None if measured else "////", linewidth=0.8,
                )  # fmt: skip
                ax.annotate(
                    str(count), (at, row["speedup"]), (0, 2), textcoords="offset points",
                    ha="center", fontsize=6.5, color=TEXT,
                )  # fmt: skip
        labels = [REGRESSIONS[method].label.replace(" ", "\n") for method in methods]
        ax.set_xticks(range(len(methods)), [label.replace("-", "-\n") for label in labels])
        ax.set_yscale("log")
        ax.axhline(1, color=FAINT, linewidth=0.8)
        ax.set_title(data, fontsize=9)
        frame(ax)
    panels[0].set_ylabel("times as fast as a Full-GP in one thread", fontsize=9)
    write_below(
        fig,
        f"Learning on {n} rows, by the clock; the number above a bar is that of threads. Full "
        "bars were measured, hatched ones are predicted from the measurements with one and two "
        "threads (a serial part, and one that is divided).",
        fig.get_figwidth(),
    )
    return fig


# ---- the seven sets


def draw_comparison(lines: Sequence[Line], compared: Mapping[str, int]) -> Figure:
    """Draw the speedup, MNLP and NMSE of each method on each data set, with their spread."""
    of_sets = comparison(lines, compared)
    fig = Figure((10.5, 8.2), layout="constrained")
    panels = fig.subplots(3, 1, sharex=True)
    shown = [name for name in REGRESSIONS if any(_by(some, name) for some in of_sets)]
    width = 0.84 / len(shown)
    for k, name in enumerate(shown):
        style = _style("regression", name)
        is_default = REGRESSIONS[name].kind == DEFAULT
        for place, some in enumerate(of_sets):
            line, full = _by(some, name), _by(some, FULL)
            if line is None:
                continue
            at = place + (k - (len(shown) - 1) / 2) * width
            look = {
                "color": style["color"],
                "edgecolor": style["color"],
                "alpha": 1.0 if is_default else 0.55,
                "width": 0.9 * width,
            }
            label = REGRESSIONS[name].label if place == 0 else None
            if full is not None:
                panels[0].bar(at, full["total"] / line["total"], label=label, **look)
            elif place == 0:
                panels[0].bar(at, np.nan, label=label, **look)
            for ax, measure in zip(panels[1:], ("mnlp", "nmse"), strict=True):
                ax.bar(at, line[measure], **look)
                if line[f"{measure}_spread"]:
                    ax.errorbar(
                        at, line[measure], line[f"{measure}_spread"], color=TEXT, linewidth=0.8
                    )
    panels[0].set_yscale("log")
    panels[0].axhline(1, color=FAINT, linewidth=0.8)
    panels[0].set_ylabel("times as fast as Full-GP", fontsize=9)
    panels[1].set_ylabel("MNLP (nats)", fontsize=9)
    panels[1].axhline(0, color=FAINT, linewidth=0.8)
    panels[2].set_yscale("log")
    panels[2].set_ylabel("NMSE", fontsize=9)
    panels[2].set_xticks(range(len(of_sets)), [some[0]["data"] for some in of_sets])
    for ax in panels:
        frame(ax)
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    write_below(
        fig,
        "Above: how many times faster than a Full-GP (processor seconds of learning and "
        "prediction in one thread); more is better. Below: the mean negative log predictive "
        "density of the standardised target, and the normalised mean squared error; less is "
        "better. Strong colours: the defaults of dsgp; pale ones: the paper's methods and those of "
        "other libraries. Thin lines: standard deviation over the runs of methods that draw "
        "random numbers.",
        fig.get_figwidth(),
    )
    return fig


def _by(lines: Sequence[Line], method: str) -> Line | None:
    return next((line for line in lines if line["method"] == method), None)


def draw_plane(lines: Sequence[Line], compared: Mapping[str, int], measure: str) -> Figure:
    """Draw error against seconds, a panel a data set, and the Pareto frontier."""
    of_sets = comparison(lines, compared)
    n_columns = min(4, len(of_sets) + 1)
    n_rows = -(-(len(of_sets) + 1) // n_columns)
    fig = Figure((2.7 * n_columns, 2.5 * n_rows + 0.5), layout="constrained")
    panels = fig.subplots(n_rows, n_columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for ax, some in zip(panels, of_sets, strict=False):
        best = frontier(some, measure)
        ax.plot(
            [line["total"] for line in best], [line[measure] for line in best],
            drawstyle="steps-post", color=GREY, linewidth=1.6, zorder=1,
        )  # fmt: skip
        for line in some:
            style = _style("regression", line["method"])
            (handle,) = ax.plot(
                line["total"], line[measure], linestyle="none", markersize=6, **style
            )
            handles.setdefault(line["method"], handle)
        ax.set_xscale("log")
        _few_ticks(ax.xaxis, [line["total"] for line in some])
        if measure == "nmse":
            ax.set_yscale("log")
            _few_ticks(ax.yaxis, [line[measure] for line in some])
        ax.set_title(some[0]["data"], fontsize=9)
        frame(ax)
    for ax in panels[len(of_sets) :]:
        ax.set_axis_off()
    names = [name for name in REGRESSIONS if name in handles]
    panels[len(of_sets)].legend(
        [handles[name] for name in names], [REGRESSIONS[name].label for name in names],
        loc="center", fontsize=8, frameon=False,
    )  # fmt: skip
    fig.supylabel(ERRORS[measure], fontsize=9)
    write_below(
        fig,
        "Across: processor seconds of learning and prediction in one thread; less is better on "
        "both axes. Grey: the Pareto frontier, on which no other method is both faster and more "
        "accurate. Filled markers are the defaults of dsgp.",
        fig.get_figwidth(),
    )
    return fig


def _few_ticks(axis: Axis, values: Sequence[float]) -> None:
    """Put round numbers on a logarithmic axis, from decades to tenths of one."""
    low, high = min(values), max(values)
    for subs in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [
            a * 10.0**k
            for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for a in subs
        ]
        inside = [tick for tick in ticks if low / 1.15 <= tick <= high * 1.15]
        if len(inside) > 2:
            break
    if len(inside) < 3:  # within a few per cent, where a logarithm is nearly a straight line
        even = MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        inside = [float(tick) for tick in even if low / 1.05 <= tick <= high * 1.05]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


Drawing = Callable[[], Figure]


def drawings(
    records: Sequence[Record], compared: Mapping[str, int], speedup_rows: int
) -> dict[str, Drawing]:
    """Say which figures the cells are enough for, and how each is made.

    Parameters
    ----------
    records : sequence of dict
    compared : mapping of str to int
        Training rows of the data sets that are compared.
    speedup_rows : int
    """
    lines, single = lines_of(records), first_runs(records)
    made: dict[str, Drawing] = {}
    overlay = {data: n for data, n in compared.items() if data == "pumadyn8-nm"}
    if _has_sizes(lines, "synth-8d"):
        made["runtime"] = lambda: draw_runtime(lines, "synth-8d", overlay)
    if _has_sizes(lines, "synth-8d-binary"):
        made["class-runtime"] = lambda: draw_runtime(lines, "synth-8d-binary", {})
    sets = ("synth-8d", "synth-32d")
    if any(row["method"] != FULL for row in speedups(single, sets, speedup_rows)):
        made["speedup"] = lambda: draw_speedup(single, sets, speedup_rows)
    if comparison(lines, compared):
        made["comparison"] = lambda: draw_comparison(lines, compared)
        made["pareto-nmse"] = lambda: draw_plane(lines, compared, "nmse")
        made["pareto-mnlp"] = lambda: draw_plane(lines, compared, "mnlp")
    return made


def _has_sizes(lines: Sequence[Line], data: str) -> bool:
    sizes = {line["n"] for line in lines if line["data"] == data and line["threads"] == 1}
    return len(sizes) > 1
