"""From single runs to a line a size: medians, slopes, tables."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np

from pipelines.scaling.run import OURS

SLOPE_FROM = {"from_1e5": 100_000, "from_1e6": 1_000_000}

Line = dict[str, Any]


def summarise(records: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Make a line of each method and size: medians over its runs, and the largest memory.

    Returns
    -------
    list of dict
        ``fit_net`` is the wall time of the fit less that of one bare pass over the data, where
        these are made while fitting; ``cpu_net`` the same in processor time.
    """
    runs: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for record in records:
        settings = record["settings"]
        runs.setdefault((settings["method"], settings["n"]), []).append(record)
    return [_line(method, n, runs[method, n]) for method, n in runs]


def _line(method: str, n: int, runs: list[Mapping[str, Any]]) -> Line:
    def middle(*path: str) -> float | None:
        return _median(_at(run, path) for run in runs)

    def net(clock: str) -> float | None:
        return _median(
            run[clock]["fit"] - (run[clock]["generate"] if run["settings"]["streamed"] else 0)
            for run in runs
        )

    stages = runs[0]["stages"]
    return {
        "method": method,
        "n": n,
        "runs": len(runs),
        "streamed": runs[0]["settings"]["streamed"],
        "generate": middle("seconds", "generate"),
        "fit": middle("seconds", "fit"),
        "fit_range": [pick(run["seconds"]["fit"] for run in runs) for pick in (min, max)],
        "fit_net": net("seconds"),
        "predict": middle("seconds", "predict"),
        "cpu_generate": middle("cpu_seconds", "generate"),
        "cpu_fit": middle("cpu_seconds", "fit"),
        "cpu_net": net("cpu_seconds"),
        "cpu_predict": middle("cpu_seconds", "predict"),
        "stages": {stage: middle("stages", stage) for stage in stages},
        "learner_iterations": middle("learner_iterations"),
        "solver_iterations": middle("solver_iterations"),
        "converged": all(run.get("converged", True) for run in runs),
        "peak_memory_mb": _largest(run["peak_memory_mb"] for run in runs),
        "workers_peak_memory_mb": _largest(run.get("workers_peak_memory_mb") for run in runs),
        **{name: middle("metrics", name) for name in runs[0]["metrics"]},
    }


def _at(run: Mapping[str, Any], path: Iterable[str]) -> Any:
    value: Any = run
    for name in path:
        value = value.get(name)
    return value


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def slopes(lines: Iterable[Line]) -> dict[str, dict[str, float]]:
    """Exponents b of processor time ∝ N^b of the fit, by method, where there are two sizes.

    Returns
    -------
    dict of dict
        ``total_from_1e5``, ``total_from_1e6``: of the whole fit; ``net_from_…``: less making the
        data.
    """
    slopes_by_method: dict[str, dict[str, float]] = {}
    lines = list(lines)
    for method in dict.fromkeys(line["method"] for line in lines):
        method_lines = [line for line in lines if line["method"] == method]
        slopes_by_method[method] = {
            f"{label}_{span}": slope
            for label, name in (("total", "cpu_fit"), ("net", "cpu_net"))
            for span, least in SLOPE_FROM.items()
            if (slope := _slope(method_lines, name, least)) is not None
        }
    return slopes_by_method


def _slope(lines: Iterable[Line], name: str, least: int) -> float | None:
    points = [(line["n"], line[name]) for line in lines if line["n"] >= least and line[name] > 0]
    if len({n for n, _ in points}) < 2:
        return None
    n, seconds = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(n, seconds, 1)[0])


# ---- tables

HEADER = (
    "rows", "method", "fit s", "net s", "CPU s", "generate s", "predict s", "peak MB",
    "RMSE of f", "MNLP − truth", "coverage", "NMSE", "steps",
)  # fmt: skip


def table_of(lines: Iterable[Line]) -> list[list[str]]:
    """Format the lines; the columns are those of ``HEADER``, by size and with ours first."""

    def order(line: Line) -> tuple[int, bool]:
        return line["n"], line["method"] != OURS

    return [
        [
            f"{line['n']:,}",
            line["method"] + ("" if line["converged"] else " (NOT converged)"),
            _seconds(line["fit"]),
            _seconds(line["fit_net"]),
            _seconds(line["cpu_fit"]),
            _seconds(line["generate"]),
            _seconds(line["predict"]),
            _number(line["peak_memory_mb"], ".0f"),
            _number(line["rmse_f"], ".3g"),
            _number(line["mnlp_excess"], ".2g"),
            _number(line["coverage_f"], ".1%"),
            _number(line["nmse"], ".4g"),
            _number(line["learner_iterations"], ".0f"),
        ]
        for line in sorted(lines, key=order)
    ]


def markdown(lines: list[Line], notes: Iterable[str]) -> str:
    """Return the report as a page: the table, the stages of our fit, slopes and notes."""
    ours = [line for line in lines if line["method"] == OURS]
    text = ["# Scaling of dsgp on synth8d", "", *markdown_table(HEADER, table_of(lines))]
    if stages := list(dict.fromkeys(stage for line in ours for stage in line["stages"])):
        rows = [
            [f"{line['n']:,}", *(_seconds(line["stages"].get(stage)) for stage in stages)]
            for line in ours
        ]
        text += ["", "## Seconds of the fit by stage", ""]
        text += markdown_table(["rows", *stages], rows)
    text += ["", *slope_lines(lines), *notes]
    return "\n".join(text) + "\n"


def slope_lines(lines: list[Line]) -> list[str]:
    """Say the slopes in words."""
    return [
        f"{method}: processor time of the fit ∝ N^{exponents[f'total_{span}']:.2f} from "
        f"{least:,} rows (N^{exponents[f'net_{span}']:.2f} without making the data)."
        for method, exponents in slopes(lines).items()
        for span, least in SLOPE_FROM.items()
        if f"total_{span}" in exponents and f"net_{span}" in exponents
    ]


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table."""
    header = list(header)
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
