"""Pictures of the benchmark: stages, time, memory and accuracy against the number of rows."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from dsgp.plotting.style import ACCENT, FAINT, GREY, INK, frame
from pipelines.reporting import DPI
from pipelines.scaling.run import LEVEL, OURS
from pipelines.scaling.summary import Line, slopes

PEER_COLOURS = (ACCENT, "#3a8f5c", "#b98a1d", "#7a5ea8", FAINT)
STAGE_COLOURS = (INK, "#6b9ac4", ACCENT, "#e0a458", "#3a8f5c", "#7a5ea8", "#8c6d5a", "#c98bb0")

VISIBLE = 0.005  # share of a bar


def draw(lines: list[Line], folder: Path) -> None:
    """Write stages.png, time.png, memory.png and accuracy.png."""
    pictures: dict[str, Callable[[list[Line]], Figure]] = {
        "stages": draw_stages,
        "time": draw_time,
        "memory": draw_memory,
        "accuracy": draw_accuracy,
    }
    for name, picture in pictures.items():
        picture(lines).savefig(folder / f"{name}.png", dpi=DPI)


def draw_stages(lines: list[Line]) -> Figure:
    """Draw what share of our fit each stage takes, with the seconds of the whole above."""
    ours = [line for line in lines if line["method"] == OURS]
    stages = list(dict.fromkeys(stage for line in ours for stage in line["stages"]))
    fig = Figure((1.6 + 0.95 * len(ours) + 1.6, 3.4), layout="constrained")
    ax = fig.subplots()
    places = np.arange(len(ours))
    whole = np.array([line["fit"] for line in ours])
    base = np.zeros(len(ours))
    for stage, colour in zip(stages, cycle(STAGE_COLOURS), strict=False):
        share = np.array([line["stages"].get(stage, 0.0) for line in ours]) / whole
        if (share < VISIBLE).all():
            continue
        ax.bar(places, share, bottom=base, width=0.62, color=colour, label=stage)
        base += share
    if (base < 1 - VISIBLE).any():
        rest = np.maximum(1 - base, 0)
        name = "other" if stages else "whole fit"
        ax.bar(places, rest, bottom=base, width=0.62, color=GREY, label=name)
    for place, seconds in zip(places, whole, strict=True):
        label = f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"
        ax.annotate(label, (place, 1), (0, 3), textcoords="offset points", ha="center", fontsize=8)
    ax.set_xticks(places, [_rows(line["n"]) for line in ours])
    ax.set_xlim(-0.6, len(ours) - 0.4)
    ax.set_ylim(0, 1.08)
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set_yticks(np.linspace(0, 1, 5))
    ax.set_xlabel("training rows", fontsize=9)
    ax.set_ylabel("share of the fit's wall time", fontsize=9)
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(
        handles[::-1], labels[::-1], loc="outside right center", fontsize=8, frameon=False
    )  # top to bottom, as the bars are
    frame(ax)
    return fig


def draw_time(lines: list[Line]) -> Figure:
    """Draw wall and processor time of the fit, the peers beside, and the slope in the title."""
    fig = Figure((8.0, 3.9), layout="constrained")
    panels = fig.subplots(1, 2, sharey=True)
    for ax, name, label in zip(
        panels, ("fit", "cpu_fit"), ("wall seconds", "processor seconds"), strict=True
    ):
        _curves(ax, lines, name)
        ax.set_yscale("log")
        ax.set_ylabel(f"{label} of the fit", fontsize=9)
        ax.tick_params(labelleft=True)
    streamed = [line for line in lines if line["method"] == OURS and line["streamed"]]
    if streamed:
        panels[1].plot(
            [line["n"] for line in streamed], [line["cpu_net"] for line in streamed],
            "o:", color=INK, markerfacecolor="white", markersize=4, linewidth=1.2,
            label="dsgp without making the data",
        )  # fmt: skip
    _linear_guide(panels[1], lines)
    our_slopes = slopes(lines).get(OURS, {})
    orders = [
        rf"$N^{{{our_slopes[name]:.2f}}}$ from $10^{power}$ rows"
        for name, power in (("total_from_1e5", 5), ("total_from_1e6", 6))
        if name in our_slopes
    ]
    if orders:
        panels[1].set_title("dsgp: " + ", ".join(orders), fontsize=9)
    _legend_below(fig, panels[1])
    return fig


def draw_memory(lines: list[Line]) -> Figure:
    """Draw the largest resident memory of each run."""
    fig = Figure((5.4, 3.7), layout="constrained")
    ax = fig.subplots()
    _curves(ax, lines, "peak_memory_mb")
    workers = [line for line in lines if line["workers_peak_memory_mb"] is not None]
    if workers:
        ax.plot(
            [line["n"] for line in workers], [line["workers_peak_memory_mb"] for line in workers],
            "s--", color=INK, markersize=4, linewidth=1.2, label="largest worker",
        )  # fmt: skip
    ax.set_ylim(0, 1.08 * ax.dataLim.ymax)
    ax.set_ylabel("peak memory (MB)", fontsize=9)
    _legend_below(fig, ax)
    return fig


def draw_accuracy(lines: list[Line]) -> Figure:
    """Draw the error of f, the density's loss against the truth, and the coverage of the band."""
    fig = Figure((9.0, 3.6), layout="constrained")
    panels = fig.subplots(1, 3)
    for ax, name, label in zip(
        panels,
        ("rmse_f", "mnlp_excess", "coverage_f"),
        (
            "root mean squared error of f",
            "mean −log density of y, less the truth's (nats)",
            f"share of f within its {LEVEL:.0%} band",
        ),
        strict=True,
    ):
        _curves(ax, lines, name)
        ax.set_ylabel(label, fontsize=9)
    panels[0].set_yscale("log")
    if all(line["mnlp_excess"] is None or line["mnlp_excess"] > 0 for line in lines):
        panels[1].set_yscale("log")
    panels[2].axhline(LEVEL, color=FAINT, linewidth=1, linestyle="--", zorder=0)
    panels[2].set_ylim(0, 1.02)
    panels[2].yaxis.set_major_formatter(PercentFormatter(1))
    _legend_below(fig, panels[0])
    return fig


def _legend_below(fig: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    columns = min(len(labels), max(2, int(fig.get_figwidth() / 1.6)))
    fig.legend(
        handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )


def _curves(ax: Axes, lines: list[Line], name: str) -> None:
    """Draw a quantity against N, a curve a method, ours on top."""
    methods = sorted(dict.fromkeys(line["method"] for line in lines), key=lambda m: m != OURS)
    colours = cycle(PEER_COLOURS)
    for method in methods:
        ours = method == OURS
        points = sorted(
            (line["n"], line[name])
            for line in lines
            if line["method"] == method and line[name] is not None
        )
        colour = INK if ours else next(colours)
        ax.plot(
            [n for n, _ in points], [value for _, value in points],
            "o-" if ours else "^-", color=colour, label=method, zorder=3 if ours else 2,
            linewidth=1.6 if ours else 1.1, markersize=4.5,
        )  # fmt: skip
    ax.set_xscale("log")
    sizes = [line["n"] for line in lines]
    ax.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    ax.xaxis.set_major_locator(LogLocator(numticks=12))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("training rows N", fontsize=9)
    frame(ax)


def _linear_guide(ax: Axes, lines: list[Line]) -> None:
    """Draw a faint line of slope one through our largest run."""
    ours = [line for line in lines if line["method"] == OURS and line["cpu_fit"] > 0]
    if len(ours) < 2:
        return
    last = max(ours, key=lambda line: line["n"])
    ends = np.array([max(min(line["n"] for line in ours), last["n"] / 1e3), last["n"]])
    ax.plot(ends, last["cpu_fit"] * ends / last["n"], "--", color=GREY, zorder=1, label="∝ N")


def _rows(n: int) -> str:
    mantissa, exponent = f"{n:.2e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if float(mantissa) == 1 else rf"${float(mantissa):g}\times {power}$"
