"""From cells to lines: means and spreads over runs, slopes, Pareto frontiers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from pipelines.paper.methods import BASELINE, DEFAULT, METHODS, REGRESSION
from pipelines.paper.sets import REGRESSION as SETS

Record = Mapping[str, Any]
Line = dict[str, Any]
MEASURES = ("nmse", "mnlp", "coverage", "error_rate", "mnll", "auc")
PLANES = ("nmse", "mnlp")  # errors of the runtime–error planes
FEWEST_SIZES = 3  # of a slope


def lines_of(records: Iterable[Record]) -> list[Line]:
    """Make a line of each data set, number of rows and threads, and method.

    Returns
    -------
    list of dict
        Of each measure the mean over the runs, and ``…_spread``, their standard deviation (None of
        one run). ``learn``, ``predict`` and ``total`` are processor seconds, ``wall_learn`` is by
        the clock. ``all_rows``: seconds of learning on all rows, without a start on a few.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        settings = record["settings"]
        if record["task"] in METHODS:
            names = ("data", "n", "threads", "method")
            groups.setdefault(tuple(settings[name] for name in names), []).append(record)
    lines = [_line(runs) for runs in groups.values()]
    places = {task: list(methods) for task, methods in METHODS.items()}
    # Methods in the order of the registry; the sort keeps that of the sets.
    return sorted(lines, key=lambda line: places[line["task"]].index(line["method"]))


def first_runs(records: Iterable[Record]) -> list[Line]:
    """Make lines of the first run of each, for comparisons of single runs."""
    return lines_of(
        record for record in records if record["task"] in METHODS and record["settings"]["run"] == 0
    )


def _line(runs: Sequence[Record]) -> Line:
    first, settings = runs[0], runs[0]["settings"]
    method = METHODS[first["task"]][settings["method"]]
    line: Line = {
        "task": first["task"],
        "data": settings["data"],
        "n": settings["n"],
        "n_test": first["n_test"],
        "n_columns": first["n_columns"],
        "method": settings["method"],
        "label": method.label,
        "kind": method.kind,
        "threads": settings["threads"],
        "runs": len(runs),
    }
    for name in MEASURES:
        values = [run["metrics"].get(name) for run in runs]
        known = [value for value in values if value is not None]
        # One run without the measure (an infinite MNLL) leaves no mean of all.
        complete = len(known) == len(runs)
        line[name] = fmean(known) if complete else None
        line[f"{name}_spread"] = stdev(known) if complete and len(known) > 1 else None
    spent = [run["cpu_seconds"] for run in runs]
    line["all_rows"] = fmean(seconds["fit"] for seconds in spent)
    line["learn"] = fmean(seconds["fit"] + seconds.get("start", 0.0) for seconds in spent)
    line["predict"] = fmean(seconds["predict"] for seconds in spent)
    line["total"] = line["learn"] + line["predict"]
    walls = [run["seconds"] for run in runs]
    line["wall_learn"] = fmean(wall["fit"] + wall.get("start", 0.0) for wall in walls)
    line["wall_predict"] = fmean(wall["predict"] for wall in walls)
    line["peak_memory_mb"] = max(run["peak_memory_mb"] for run in runs)
    return line


def of_set(lines: Iterable[Line], data: str, n: int) -> list[Line]:
    """Lines of a data set with so many rows, in one thread."""
    return [
        line for line in lines if line["data"] == data and line["threads"] == 1 and line["n"] == n
    ]


def slope(lines: Sequence[Line], name: str = "total") -> float | None:
    """Exponent b of seconds ∝ N^b by least squares in the logarithms; None with too few sizes."""
    points = {line["n"]: line[name] for line in lines if line[name] > 0}
    if len(points) < FEWEST_SIZES:
        return None
    n, seconds = np.log([[n, value] for n, value in points.items()]).T
    return float(np.polyfit(n, seconds, 1)[0])


def frontier(lines: Sequence[Line], measure: str) -> list[Line]:
    """Lines that no other is as good as, in seconds and error, and better in one; by seconds."""
    efficient: list[Line] = []
    least = math.inf
    for line in sorted(lines, key=lambda line: (line["total"], line[measure])):
        if line[measure] < least:
            efficient.append(line)
            least = line[measure]
    return efficient


def dominating(line: Line, others: Iterable[Line], measure: str) -> list[str]:
    """Labels of the lines that are at least as fast and as accurate, and better in one."""
    return [
        other["label"]
        for other in others
        if other["total"] <= line["total"]
        and other[measure] <= line[measure]
        and (other["total"] < line["total"] or other[measure] < line[measure])
    ]


def comparison(lines: Sequence[Line], compared: Mapping[str, int]) -> list[list[Line]]:
    """Lines of each of the seven data sets that are compared, with all measures.

    Parameters
    ----------
    lines : sequence of dict
    compared : mapping of str to int
        Training rows of the data sets that are compared.
    """
    of_sets = []
    for data in filter(compared.get, SETS):
        some = [
            line
            for line in of_set(lines, data, compared[data])
            if all(line[name] is not None for name in PLANES)
        ]
        if some:
            of_sets.append(some)
    return of_sets


def counts(lines: Sequence[Line], compared: Mapping[str, int]) -> list[dict[str, Any]]:
    """Count on how many data sets each method is on the frontier, by plane.

    A second count is among the methods of the paper only.
    """
    of_sets = comparison(lines, compared)
    out = []
    for name, method in METHODS[REGRESSION].items():
        row: dict[str, Any] = {"method": name, "label": method.label, "sets": 0}
        row["sets"] = sum(any(line["method"] == name for line in some) for some in of_sets)
        for measure in PLANES:
            efficient = [frontier(some, measure) for some in of_sets]
            row[measure] = sum(name in {line["method"] for line in best} for best in efficient)
            papers = [[line for line in some if line["kind"] != DEFAULT] for some in of_sets]
            row[f"{measure}_paper"] = sum(
                name in {line["method"] for line in frontier(some, measure)} for some in papers
            )
        out.append(row)
    return [row for row in out if row["sets"]]


def verdicts(lines: Sequence[Line], compared: Mapping[str, int]) -> list[dict[str, Any]]:
    """Say for each data set and plane which defaults are efficient, and which a baseline dominates.

    Returns
    -------
    list of dict
        ``data``, ``measure``, ``efficient`` (labels of defaults on the frontier), ``dominated``
        (label of a default: baselines that are as fast and as accurate).
    """
    rows = []
    for some in comparison(lines, compared):
        defaults = [line for line in some if line["kind"] == DEFAULT]
        baselines = [line for line in some if line["kind"] == BASELINE]
        for measure in PLANES:
            best = frontier(some, measure)
            dominated = {
                line["label"]: by
                for line in defaults
                if (by := dominating(line, baselines, measure))
            }
            rows.append(
                {
                    "data": some[0]["data"],
                    "measure": measure,
                    "efficient": [line["label"] for line in best if line["kind"] == DEFAULT],
                    "dominated": dominated,
                }
            )
    return rows


def speedups(lines: Sequence[Line], sets: Sequence[str], n: int) -> list[dict[str, Any]]:
    """Wall seconds of learning of a Full-GP in one thread, over those of each method.

    Returns
    -------
    list of dict
        ``data``, ``label``, ``threads``, ``speedup``, ``measured``: False where a number of
        threads is predicted, by a serial part and one that is divided among the threads, as the
        measurements with one and two threads have them.
    """
    rows = []
    for data in sets:
        some = [line for line in lines if line["data"] == data and line["n"] == n]
        full = [line for line in some if line["method"] == "full-gp" and line["threads"] == 1]
        if not full:
            continue
        for name in dict.fromkeys(line["method"] for line in some):
            walls = {line["threads"]: line["wall_learn"] for line in some if line["method"] == name}
            if len(walls) == 1 and name != "full-gp":
                continue  # it is of another figure
            label = next(line["label"] for line in some if line["method"] == name)
            predicted = predicted_walls(walls)
            for threads, wall in sorted((walls | predicted).items()):
                rows.append(
                    {
                        "data": data, "method": name, "label": label, "threads": threads,
                        "seconds": wall, "speedup": full[0]["wall_learn"] / wall,
                        "measured": threads in walls,
                    }
                )  # fmt: skip
    return rows


PREDICTED_THREADS = (4, 8)


def predicted_walls(walls: Mapping[int, float]) -> dict[int, float]:
    """Wall seconds with more threads than were measured: serial + parallel / threads (Amdahl).

    Where two threads were not faster than one, all of it counts as serial.

    Examples
    --------
    >>> predicted_walls({1: 10.0, 2: 6.0})
    {4: 4.0, 8: 3.0}
    >>> predicted_walls({1: 10.0, 2: 11.0})
    {4: 10.0, 8: 10.0}
    """
    if not {1, 2} <= set(walls):
        return {}
    parallel = min(max(2 * (walls[1] - walls[2]), 0.0), walls[1])
    return {k: walls[1] - parallel + parallel / k for k in PREDICTED_THREADS}
