"""The tables behind each figure and each page of the report."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from pipelines.grid.corners import FULL, OURS, SLOPE_FROM, Timing, slopes_of
from pipelines.paper import published
from pipelines.paper.cell import CORNERS, IMAGE
from pipelines.paper.methods import CLASSES, METHODS
from pipelines.paper.plan import SPEEDUP_SETS
from pipelines.paper.sets import CLASSIFICATION
from pipelines.paper.summary import (
    Line,
    Record,
    comparison,
    counts,
    first_runs,
    lines_of,
    of_set,
    slope,
    speedups,
    verdicts,
)

# Of tables, and of figures that are drawn of them.
NAMES = (
    "runtime", "class-runtime", "slopes", "speedup", "comparison", "pareto", "pareto-nmse",
    "pareto-mnlp", "verdicts", "classification", "kronecker", "image",
)  # fmt: skip
SIZED = {"runtime": "synth-8d", "class-runtime": "synth-8d-binary"}


def tables_of(
    records: Sequence[Record], compared: Mapping[str, int], speedup_rows: int
) -> dict[str, pd.DataFrame]:
    """Make every table that there are cells for.

    Parameters
    ----------
    records : sequence of dict
        Of all cells.
    compared : mapping of str to int
        Training rows of the data sets that are compared.
    speedup_rows : int
        Rows of the comparison by threads.

    Returns
    -------
    dict of str to DataFrame
        ``runtime``, ``slopes``, ``speedup``, ``comparison``, ``pareto``, ``verdicts``,
        ``classification``, ``class-runtime``, ``kronecker``, ``image``; those without rows are
        left out.
    """
    lines = lines_of(records)
    tables = {
        **{name: pd.DataFrame(_sizes(lines, data)) for name, data in SIZED.items()},
        "slopes": pd.DataFrame([*_slopes(lines), *_kronecker_slopes(records)]),
        "speedup": pd.DataFrame(speedups(first_runs(records), SPEEDUP_SETS, speedup_rows)),
        "comparison": pd.DataFrame([line for some in comparison(lines, compared) for line in some]),
        "pareto": pd.DataFrame(_counts(lines, compared)),
        "verdicts": pd.DataFrame(_flat(verdicts(lines, compared))),
        "classification": pd.DataFrame(_classes(lines, compared)),
        "kronecker": pd.DataFrame([asdict(timing) for timing in timings_of(records)]),
        "image": pd.DataFrame(
            [
                {name: value for name, value in line.items() if name != "fitted"}
                for record in records
                if record["task"] == IMAGE
                for line in record["lines"]
            ]
        ),
    }
    return {name: table for name, table in tables.items() if len(table)}


def timings_of(records: Sequence[Record]) -> list[Timing]:
    """Timings of the corners, as their figure takes them."""
    return [
        Timing(**timing)
        for record in records
        if record["task"] == CORNERS
        for timing in record["timings"]
    ]


def _sizes(lines: Sequence[Line], data: str) -> list[Line]:
    some = [line for line in lines if line["data"] == data and line["threads"] == 1]
    # One size alone is of a comparison.
    return some if len({line["n"] for line in some}) > 1 else []


def _slopes(lines: Sequence[Line]) -> list[dict[str, Any]]:
    rows = []
    for name, data in SIZED.items():
        some = _sizes(lines, data)
        for method in dict.fromkeys(line["method"] for line in some):
            sized = [line for line in some if line["method"] == method]
            task = sized[0]["task"]
            theirs: Mapping[str, Any] = (
                published.SLOPES if name == "runtime" else published.CLASS_SLOPES
            )
            rows.append(
                {
                    "figure": name,
                    "method": method,
                    "label": METHODS[task][method].label,
                    "from": min(line["n"] for line in sized),
                    "to": max(line["n"] for line in sized),
                    "slope": slope(sized),
                    "slope_on_all_rows": slope(sized, "all_rows"),
                    "paper": theirs.get(method),
                }
            )
    return [row for row in rows if row["slope"] is not None]


def _kronecker_slopes(records: Sequence[Record]) -> list[dict[str, Any]]:
    timings = timings_of(records)
    ends = {
        name: [
            timing.n for timing in timings if timing.method == name and timing.n >= SLOPE_FROM[name]
        ]
        for name in (OURS, FULL)
    }
    return [
        {
            "figure": "kronecker",
            "method": name,
            "label": name,
            "from": min(ends[name]),
            "to": max(ends[name]),
            "slope": value,
            "slope_on_all_rows": value,
            "paper": published.KRONECKER_SLOPES[name],
        }
        for name, value in slopes_of(timings).items()
    ]


def _counts(lines: Sequence[Line], compared: Mapping[str, int]) -> list[dict[str, Any]]:
    theirs = published.PARETO_COUNTS
    return [{**row, "paper": theirs.get(row["method"])} for row in counts(lines, compared)]


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lists as text."""
    return [
        {
            "data": row["data"],
            "measure": row["measure"],
            "efficient": ", ".join(row["efficient"]),
            "dominated": "; ".join(
                f"{label} by {', '.join(by)}" for label, by in row["dominated"].items()
            ),
        }
        for row in rows
    ]


def _classes(lines: Sequence[Line], compared: Mapping[str, int]) -> list[dict[str, Any]]:
    rows = []
    for data in filter(compared.get, CLASSIFICATION):
        some = of_set(lines, data, compared[data])
        for name in CLASSES:
            line = next((line for line in some if line["method"] == name), None)
            theirs = published.CLASS_RESULTS[data].get(name)
            if line is None and theirs is None:
                continue
            row: dict[str, Any] = {"data": data, "method": name, "label": CLASSES[name].label}
            for key in (
                "n", "n_test", "runs", "error_rate", "error_rate_spread", "mnll", "mnll_spread",
                "learn", "predict", "total", "wall_learn", "peak_memory_mb",
            ):  # fmt: skip
                row[key] = None if line is None else line[key]
            for key in ("error_rate", "mnll", "seconds"):
                row[f"paper_{key}"] = None if theirs is None else getattr(theirs, key)
            rows.append(row)
    # Without any cell of ours there is no table.
    return rows if any(row["n"] for row in rows) else []
