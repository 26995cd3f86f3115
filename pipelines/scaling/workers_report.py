"""Tables of scaling on workers, and what the cost model predicts, always labelled so."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from csv import DictWriter
from statistics import median
from typing import Any

from pipelines.scaling.costs import Costs, Fitted, modelled
from pipelines.scaling.summary import markdown_table

PREDICTED_ROWS = (10**9, 10**10)
PREDICTED_WORKERS = 100
# Of the table of how many workers a job needs.
TABLE_ROWS = (10**8, 10**9, 10**10, 10**11)
TABLE_WORKERS = (2, 10, 100)

Line = dict[str, Any]


def rows_of(records: Iterable[Mapping[str, Any]], costs: Costs) -> list[Line]:
    """Make a line of each number of workers and rows: medians over its repeats.

    Returns
    -------
    list of dict
        ``speedup`` and ``efficiency`` are against the fewest workers that fitted as many rows.
    """
    runs: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for record in records:
        settings = record["settings"]
        runs.setdefault((settings["n"], settings["cluster"]["workers"]), []).append(record)
    lines = [_line(n, workers, runs[n, workers], costs) for n, workers in sorted(runs)]
    for line in lines:
        first = next(each for each in lines if each["n"] == line["n"])
        line["speedup"] = first["wall"] / line["wall"]
        line["efficiency"] = line["speedup"] * first["workers"] / line["workers"]
    return lines


def _line(n: int, workers: int, runs: Sequence[Mapping[str, Any]], costs: Costs) -> Line:
    def middle(name: str) -> float:
        return float(median(run["spent"][name] for run in runs))

    of_workers = float(median(sum(run["spent"]["workers"]) for run in runs))
    return {
        "n": n,
        "workers": workers,
        "runs": len(runs),
        "cores": runs[0]["cores"],
        "oversubscribed": workers > runs[0]["cores"],
        "wall": middle("wall"),
        "modelled": modelled(costs, runs[0]),
        "driver": middle("driver"),
        "of_workers": of_workers,
        "share_on_workers": of_workers / (of_workers + middle("driver")),
        "reading": middle("reading"),
        "computing": middle("computing"),
        "tasks": middle("tasks"),
        "sent_mb": middle("sent_bytes") / 1e6,
        "peak_memory_mb": max(run["workers_peak_memory_mb"] for run in runs),
    }


def predictions(fitted: Fitted) -> list[Line]:
    """Predict the large fits, on workers with a core each."""
    found = []
    for n in PREDICTED_ROWS:
        wall, error = fitted.predict(n, PREDICTED_WORKERS)
        found.append(
            {
                "n": n,
                "workers": PREDICTED_WORKERS,
                "predicted": wall,
                "standard_error": error,
                "predicted_of_workers": fitted.costs.of_workers(n),
                "predicted_of_driver": fitted.costs.serial + fitted.costs.of_driver(n),
                "predicted_most_useful_workers": fitted.costs.most_useful_workers(n),
            }
        )
    return found


def with_error(value: float, error: float) -> str:
    """Say a value with its standard error."""
    return f"{value:.3g} ± {error:.1g}" if math.isfinite(error) else f"{value:.3g} ± ?"


def csv(lines: Sequence[Line]) -> str:
    """Return the lines as a table of text."""
    text = io.StringIO()
    writer = DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


HEADER = (
    "rows", "workers", "wall s", "model s", "speedup", "efficiency", "driver CPU s",
    "workers CPU s", "on workers", "reading s", "tasks", "sent MB", "peak MB",
)  # fmt: skip


def table_of(lines: Iterable[Line]) -> list[list[str]]:
    """Format the lines; workers that share cores have a star."""
    return [
        [
            f"{line['n']:,}",
            f"{line['workers']}{' *' if line['oversubscribed'] else ''}",
            f"{line['wall']:.2f}",
            f"{line['modelled']:.2f}",
            f"{line['speedup']:.2f}",
            f"{line['efficiency']:.0%}",
            f"{line['driver']:.2f}",
            f"{line['of_workers']:.2f}",
            f"{line['share_on_workers']:.0%}",
            f"{line['reading']:.2f}",
            f"{line['tasks']:.0f}",
            f"{line['sent_mb']:.1f}",
            f"{line['peak_memory_mb']:.0f}",
        ]
        for line in lines
    ]


def cost_lines(report: Mapping[str, Any]) -> list[str]:
    """Say in words how many cores there are, what was checked, and what is predicted."""
    cores = max(line["cores"] for line in report["lines"])
    said = [f"There are {cores} cores for driver and workers."]
    if any(line["oversubscribed"] for line in report["lines"]):
        said.append("* more workers than cores: these share them, and can gain nothing.")
    if check := report["check"]:
        said.append(
            f"Check: {check['n']:,} rows on {check['workers']} workers were predicted to take "
            f"{with_error(check['predicted'], check['standard_error'])} s before they were "
            f"measured: {check['measured']:.3g} s, {check['ratio']:.2f} times the prediction."
        )
    for each in report["predictions"]:
        said.append(
            f"PREDICTION, not measured: {each['n']:.0e} rows on {each['workers']} workers with a "
            f"core each take {with_error(each['predicted'], each['standard_error'])} s; the driver "
            f"is the limit from {each['predicted_most_useful_workers']} workers on."
        )
    return said


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report as a page."""
    costs, errors = report["costs"], report["standard_errors"]
    rows = [
        [name, f"{value:.3g}", f"{errors[name]:.1g}" if math.isfinite(errors[name]) else "?"]
        for name, value in costs.items()
    ]
    text = [
        "# Scaling of dsgp on workers, synth8d", "",
        *markdown_table(HEADER, table_of(report["lines"])), "",
        *(f"{line}\n" for line in cost_lines(report)),
        "## Cost model", "",
        f"Measured wall times scatter by {report['scatter']:.0%} around the model's.", "",
        *markdown_table(("cost", "value", "standard error"), rows), "",
        "## How many workers (predicted)", "",
        *workers_table(Costs(**costs)),
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def workers_table(costs: Costs) -> list[str]:
    """Lines of the table of how many workers a job needs, all of it predicted."""
    header = [
        "rows", "workers' processor seconds",
        *(f"on {workers} workers" for workers in TABLE_WORKERS), "workers that are of use",
    ]  # fmt: skip
    rows = []
    for n in TABLE_ROWS:
        walls = [_duration(costs.wall(n, workers)) for workers in TABLE_WORKERS]
        most = costs.most_useful_workers(n)
        seconds = f"{costs.of_workers(n):,.0f}"
        rows.append([f"10{_power(n)}", seconds, *walls, f"up to {most}"])
    return markdown_table(header, rows)


def _power(n: int) -> str:
    return str(round(math.log10(n))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"
