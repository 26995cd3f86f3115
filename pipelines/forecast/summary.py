"""From cells to tables by horizon, a report and figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import PercentFormatter

from pipelines.forecast.cell import LEVELS
from pipelines.forecast.methods import METHODS
from pipelines.reporting import DPI, markdown_table

Arrays = Mapping[str, Any]
WITHIN = {level: f"within{level:g}" for level in LEVELS}
MEASURES = ("mase", "crps", "mnlp", "width", *WITHIN.values())
# Of colour-blind readers' palette (Okabe and Ito 2008), with a dash for each baseline.
STYLES: dict[str, dict[str, Any]] = {
    "matern12": {"color": "#0072b2", "linewidth": 2.2},
    "walk": {"color": "#e69f00", "linewidth": 2.2},
    "matern32": {"color": "#56b4e9", "linewidth": 1.6},
    "matern52": {"color": "#009e73", "linewidth": 1.6},
    "naive": {"color": "#58626b", "linewidth": 1.4, "linestyle": ":"},
    "ets": {"color": "#d55e00", "linewidth": 1.4, "linestyle": "--"},
    "arima": {"color": "#cc79a7", "linewidth": 1.6, "linestyle": "-."},
}


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def bands_of(horizon: int) -> list[tuple[int, int]]:
    """Steps ahead whose measures are averaged, from and to."""
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
        # A single step is its only band and the whole horizon at once.
        for first, last in dict.fromkeys([*bands_of(record["horizon"]), (1, record["horizon"])]):
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


def markdown(
    records: Sequence[Mapping[str, Any]],
    lines: pd.DataFrame,
    notes: Sequence[str],
    command: str,
) -> str:
    """Write the report."""
    out = ["# Backtests of forecasts", "", f"`{command}`", ""]
    for name, part in lines.groupby("series", sort=False):
        record = next(one for one in records if one["settings"]["series"] == name)
        scale = "the logarithm" if record["log"] else "the series"
        origins = f"{record['n_origins']} origins from {record['first_origin'][:10]} to "
        out += [
            f"## {name}",
            "",
            record["about"],
            "",
            f"Each forecast sees {record['window']} steps and predicts {record['horizon']}, from "
            f"{origins}{record['last_origin'][:10]}. MASE, and the width of 95 % intervals in the "
            f"same unit: by the mean absolute difference of {record['season']} steps in the past. "
            f"CRPS and MNLP are those of {scale}.",
            "",
            *_whole(part, record["horizon"]),
            "",
            *_by_band(part, "mase", "MASE", "{:.3f}"),
            "",
            *_by_band(part, WITHIN[LEVELS[-1]], f"{_percent(LEVELS[-1])} cover", "{:.1%}"),
            "",
            f"![Errors and coverage by steps ahead]({name}-horizon.png)",
            "",
            f"![Forecasts from the last origin]({name}-forecast.png)",
            "",
        ]
    return "\n".join([*out, *(f"* {note}" for note in notes), ""])


def _whole(part: pd.DataFrame, horizon: int) -> list[str]:
    """Means over all steps, and what they cost."""
    header = ["model", "MASE", "CRPS", "MNLP", *(f"{_percent(level)} cover" for level in LEVELS)]
    rows = []
    for line in part[(part["from"] == 1) & (part["to"] == horizon)].to_dict("records"):
        error = "" if pd.isna(line["mase_error"]) else f" ± {line['mase_error']:.3f}"
        rows.append(
            [
                METHODS[line["method"]].label,
                f"{line['mase']:.3f}{error}",
                f"{line['crps']:.4g}",
                f"{line['mnlp']:.3f}",
                *(f"{line[WITHIN[level]]:.1%}" for level in LEVELS),
                f"{line['width']:.2f}",
                f"{line['cpu_seconds']:.3g}",
            ]
        )
    return markdown_table([*header, "width of 95 %", "CPU s"], rows)


def _by_band(part: pd.DataFrame, measure: str, heading: str, form: str) -> list[str]:
    """One measure by steps ahead, a column for each band of them."""
    bands = list(dict.fromkeys(zip(part["from"], part["to"], strict=True)))
    bands = bands[:-1] or bands  # without the whole horizon
    words = [f"{first}–{last}" if first < last else str(last) for first, last in bands]
    rows = []
    for method, lines in part.groupby("method", sort=False):
        by_band = {(line["from"], line["to"]): line for line in lines.to_dict("records")}
        rows.append(
            [METHODS[str(method)].label, *(form.format(by_band[band][measure]) for band in bands)]
        )
    return markdown_table([f"{heading}, steps ahead", *words], rows)


def draw(records: Sequence[Mapping[str, Any]], costs: Sequence[Arrays], folder: Path) -> None:
    """Draw coverage and error by steps ahead, and the last forecast of each series."""
    for name in dict.fromkeys(record["settings"]["series"] for record in records):
        cells = [
            (record["settings"]["method"], arrays)
            for record, arrays in zip(records, costs, strict=True)
            if record["settings"]["series"] == name
        ]
        origin = next(
            record["last_origin"] for record in records if record["settings"]["series"] == name
        )
        for kind, figure in (
            ("horizon", _by_horizon(name, cells)),
            ("forecast", _last(name, origin, cells)),
        ):
            figure.savefig(folder / f"{name}-{kind}.png", dpi=DPI)
            plt.close(figure)


def _by_horizon(name: str, cells: Sequence[tuple[str, Arrays]]) -> Any:
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    titles = ["absolute error (MASE)"]
    titles += [f"coverage of {_percent(level)} intervals" for level in LEVELS]
    for axis, key, title in zip(axes, ["mase", *WITHIN.values()], titles, strict=True):
        for method, arrays in cells:
            values = arrays[key].mean(axis=0)
            width = max(len(values) // 8, 1)
            smooth = pd.Series(values).rolling(width, center=True, min_periods=1).mean()
            steps = np.arange(1, len(values) + 1)
            axis.plot(steps, smooth, label=METHODS[method].label, **STYLES[method])
        axis.set_title(title, loc="left", fontsize="medium")
        axis.set_xlabel("steps ahead")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylim(bottom=0)
    for axis, level in zip(axes[1:], LEVELS, strict=True):
        axis.axhline(level, color="black", linewidth=1, label="nominal")
        axis.set_ylim(min(0.6, axis.get_ylim()[0]), 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    n = len(cells[0][1]["mase"])
    figure.suptitle(f"{name}: means over {n} origins, smoothed over an eighth of the horizon")
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _last(name: str, origin: str, cells: Sequence[tuple[str, Arrays]]) -> Any:
    n = len(cells)
    figure, axes = plt.subplots(
        n, 1, figsize=(10, 1.2 + 1.9 * n), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (method, arrays) in zip(np.atleast_1d(axes), cells, strict=True):
        past, future = arrays["past"], arrays["future"]
        shown = min(len(past), len(future))
        ahead = np.arange(1, len(future) + 1)
        for level, shade in zip(LEVELS[::-1], (0.2, 0.35), strict=True):
            axis.fill_between(
                ahead,
                arrays[f"lower{level:g}"][-1],
                arrays[f"upper{level:g}"][-1],
                color="tab:blue",
                alpha=shade,
                linewidth=0,
                label=f"{_percent(level)} interval",
            )
        axis.plot(ahead, arrays["median"][-1], color="tab:blue", linewidth=1.2, label="median")
        steps, observed = np.arange(1 - shown, len(future) + 1), np.concatenate([past, future])
        axis.plot(
            steps, observed[-len(steps) :], ".", color="black", markersize=3, label="observed"
        )
        axis.axvline(0.5, color="grey", linewidth=0.8)
        axis.set_xlim(steps[0] - 1, steps[-1] + 1)
        # Wider intervals are cut, so that the others are seen.
        extent = np.ptp(observed[-len(steps) :])
        axis.set_ylim(future.min() - extent, future.max() + extent)
        axis.set_title(METHODS[method].label, loc="left", fontsize="medium")
        axis.spines[["top", "right"]].set_visible(False)
    np.atleast_1d(axes)[-1].set_xlabel(f"steps from the last origin, {origin[:10]}")
    figure.suptitle(f"{name}: forecasts from the last origin")
    handles, labels = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
