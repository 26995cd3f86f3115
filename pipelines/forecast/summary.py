"""From cells to tables by horizon, a report and figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import ndtri

from pipelines.forecast.cell import LEVELS
from pipelines.forecast.methods import METHODS
from pipelines.forecast.series import SERIES
from pipelines.reporting import DPI

Arrays = Mapping[str, Any]
MEASURES = ("mase", "crps", "mnlp", *(f"within{level:g}" for level in LEVELS))
HEADINGS = {
    "mase": ("MASE", "{:.3f}"),
    "crps": ("CRPS of the log", "{:.4f}"),
    "mnlp": ("MNLP of the log", "{:.3f}"),
    "within0.8": ("80 % cover", "{:.1%}"),
    "within0.95": ("95 % cover", "{:.1%}"),
}


def bands_of(horizon: int) -> list[tuple[int, int]]:
    """Steps ahead that are put together, from and to."""
    ends = [end for end in (1, 7, 28, 90) if end <= horizon] or [horizon]
    if ends[-1] != horizon:
        ends.append(horizon)
    starts = [1, *(end + 1 for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def lines_of(records: Sequence[Mapping[str, Any]], costs: Sequence[Arrays]) -> pd.DataFrame:
    """Return a line of each series, method and band of steps, with a standard error of MASE.

    That is of means over origins, whose forecasts are dependent from step to step.
    """
    lines = []
    for record, arrays in zip(records, costs, strict=True):
        settings = record["settings"]
        for first, last in [*bands_of(record["horizon"]), (1, record["horizon"])]:
            part = slice(first - 1, last)
            by_origin = arrays["mase"][:, part].mean(axis=1)
            n = len(by_origin)
            lines.append(
                {
                    "series": settings["series"],
                    "method": settings["method"],
                    "from": first,
                    "to": last,
                    "n_origins": n,
                    **{name: float(arrays[name][:, part].mean()) for name in MEASURES},
                    "mase_error": float(by_origin.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
                    "cpu_seconds": record["cpu_seconds"],
                }
            )
    return pd.DataFrame(lines)


def markdown(lines: pd.DataFrame, notes: Sequence[str], command: str) -> str:
    """Write the report."""
    out = ["# Backtests of forecasts", "", f"`{command}`", ""]
    for name, part in lines.groupby("series", sort=False):
        about = (SERIES[str(name)].__doc__ or "").splitlines()[0]
        out += [f"## {name}", "", about, ""]
        out += ["| steps ahead | model | " + " | ".join(h for h, _ in HEADINGS.values()) + " |"]
        out += ["|---|---|" + "---:|" * len(HEADINGS)]
        for line in part.sort_values(["to", "from"], kind="stable").to_dict("records"):
            numbers = [form.format(line[key]) for key, (_, form) in HEADINGS.items()]
            steps = f"{line['from']}–{line['to']}" if line["from"] < line["to"] else line["to"]
            label = METHODS[line["method"]].label
            out.append(f"| {steps} | {label} | " + " | ".join(numbers) + " |")
        seconds = part.drop_duplicates("method")
        told = ", ".join(
            f"{METHODS[m].label} {s:.3g}"
            for m, s in zip(seconds["method"], seconds["cpu_seconds"], strict=True)
        )
        out += ["", f"{int(part['n_origins'].max())} origins. CPU seconds of all: {told}.", ""]
        out += [f"![by horizon]({name}-horizon.png)", "", f"![forecast]({name}-forecast.png)", ""]
    return "\n".join([*out, *(f"* {note}" for note in notes), ""])


def draw(records: Sequence[Mapping[str, Any]], costs: Sequence[Arrays], folder: Path) -> list[str]:
    """Draw coverage and error by steps ahead, and the last forecast of each series."""
    files = []
    for name in dict.fromkeys(record["settings"]["series"] for record in records):
        cells = [
            (METHODS[record["settings"]["method"]].label, arrays)
            for record, arrays in zip(records, costs, strict=True)
            if record["settings"]["series"] == name
        ]
        for kind, picture in (("horizon", _by_horizon), ("forecast", _last)):
            drawn = picture(name, cells)
            files.append(f"{name}-{kind}.png")
            drawn.savefig(folder / files[-1], dpi=DPI)
            plt.close(drawn)
    return files


def _by_horizon(name: str, cells: Sequence[tuple[str, Arrays]]) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    titles = ["MASE", *(f"coverage of {level:.0%} intervals" for level in LEVELS)]
    keys = ["mase", *(f"within{level:g}" for level in LEVELS)]
    for axis, key, title in zip(axes, keys, titles, strict=True):
        for label, arrays in cells:
            values = arrays[key].mean(axis=0)
            width = max(len(values) // 12, 1)
            smooth = pd.Series(values).rolling(width, center=True, min_periods=1).mean()
            axis.plot(np.arange(1, len(values) + 1), smooth, label=label)
        axis.set(title=title, xlabel="steps ahead")
        axis.grid(alpha=0.3)
    for axis, level in zip(axes[1:], LEVELS, strict=True):
        axis.axhline(level, color="black", linestyle="--", linewidth=1)
        axis.set_ylim(min(0.5, axis.get_ylim()[0]), 1.02)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    figure.suptitle(f"{name}: means over origins, running over a twelfth of the horizon")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _last(name: str, cells: Sequence[tuple[str, Arrays]]) -> Any:
    series = len(cells)
    figure, axes = plt.subplots(
        series, 1, figsize=(10, 2.2 * series), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (label, arrays) in zip(np.atleast_1d(axes), cells, strict=True):
        past, future = arrays["past"], arrays["future"]
        shown = min(len(past), 2 * len(future))
        ahead = np.arange(1, len(future) + 1)
        mean, std = arrays["mean"][-1], arrays["std"][-1]
        for level, shade in zip(LEVELS[::-1], (0.2, 0.35), strict=True):
            half = ndtri(0.5 + level / 2) * std
            axis.fill_between(
                ahead,
                np.exp(mean - half),
                np.exp(mean + half),
                color="tab:blue",
                alpha=shade,
                linewidth=0,
                label=f"{level:.0%} interval",
            )
        axis.plot(np.arange(1 - shown, 1), past[-shown:], color="grey", linewidth=1, label="past")
        axis.plot(ahead, np.exp(mean), color="tab:blue", linewidth=1.2, label="median")
        axis.plot(ahead, future, color="black", linewidth=0.9, label="observed")
        axis.set_title(label, loc="left", fontsize="medium")
    np.atleast_1d(axes)[-1].set_xlabel("steps from the origin")
    figure.suptitle(f"{name}: forecasts from the last origin")
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
