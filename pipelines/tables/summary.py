"""From cells to tables: a line for each job and method, differences row by row, shares."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipelines.datasets import Floats
from pipelines.reporting import markdown_table
from pipelines.run.measures import LABELS
from pipelines.tables.methods import METHODS, REFERENCE

Record = Mapping[str, Any]
MEASURES = {"regression": "nmse", "classification": "mnll"}
# Of the report's tables: column of a line, heading, format.
COLUMNS = {
    "error": ("", "{:.4f}"),
    "standard_error": ("standard error", "{:.4f}"),
    "mnlp": ("MNLP", "{:.3f}"),
    "error_rate": ("error rate", "{:.4f}"),
    "auc": ("area under ROC", "{:.4f}"),
    "coverage": ("95 % cover", "{:.1%}"),
    "cpu_fit": ("CPU s fit", "{:.3g}"),
    "cpu_predict": ("CPU s predict", "{:.2g}"),
    "peak_memory_mb": ("peak MB", "{:.0f}"),
    "n_pairs": ("pairs", "{:.0f}"),
}
SHOWN_SHARES = 12


def ratio(loss: Floats, scale: Floats) -> tuple[float, float]:
    """Σ loss / Σ scale, and its standard error over the rows (delta method).

    Parameters
    ----------
    loss, scale : ndarray of shape (n_rows,)
        Losses may be differences of two methods', whose error is then that of paired rows.
    """
    value = float(loss.sum() / scale.sum())
    left = loss - value * scale
    return value, float(np.sqrt(np.sum(left**2)) / scale.sum())


def lines_of(records: Sequence[Record], folder: Path) -> list[dict[str, Any]]:
    """Make a line of each cell; ``difference`` is its error less that of the additive model."""
    costs = {_key(record): _costs(record, folder) for record in records}
    lines = []
    for record in records:
        job, method = _key(record)
        loss, scale = costs[job, method]
        metrics = record["metrics"]
        error, standard_error = ratio(loss, scale)
        line: dict[str, Any] = {
            "job": job,
            "method": method,
            "n_train": record["n_train"],
            "n_test": record["n_test"],
            "n_columns": record["n_columns"],
            "measure": MEASURES[record["task"]],
            "error": error,
            "standard_error": standard_error,
            **{name: metrics.get(name) for name in ("mnlp", "coverage", "rmse")},
            **{name: metrics.get(name) for name in ("error_rate", "auc", "brier")},
            "cpu_fit": record["cpu_seconds"]["fit"],
            "cpu_predict": record["cpu_seconds"]["predict"],
            "wall_fit": record["seconds"]["fit"],
            "peak_memory_mb": record["peak_memory_mb"],
            "memory_before_fit_mb": record["memory_before_fit_mb"],
            "n_pairs": len(record["details"].get("interactions", [])) or None,
            "difference": None,
            "difference_error": None,
        }
        reference = costs.get((job, REFERENCE))
        if reference is not None and method != REFERENCE:
            line["difference"], line["difference_error"] = ratio(loss - reference[0], scale)
        lines.append(line)
    return lines


def _key(record: Record) -> tuple[str, str]:
    return record["settings"]["job"], record["settings"]["method"]


def _costs(record: Record, folder: Path) -> tuple[Floats, Floats]:
    with np.load(folder / record["rows_file"]) as arrays:
        return arrays["loss"], arrays["scale"]


def shares_of(records: Sequence[Record]) -> pd.DataFrame:
    """Shares of variance of every term of every cell that has them."""
    rows = [
        {"job": _key(record)[0], "method": _key(record)[1], **share}
        for record in records
        for share in record["shares"] or []
    ]
    return pd.DataFrame(rows, columns=["job", "method", "term", "kind", "share"])


def markdown(
    lines: Sequence[Mapping[str, Any]], shares: pd.DataFrame, notes: Sequence[str], command: str
) -> str:
    """Write the report: errors of all jobs, then each job by itself."""
    out = ["# Jobs on real tables", "", f"`{command}`", ""]
    out += ["NMSE of the test rows; of labels (MNLL) the mean negative log likelihood.", ""]
    out += _overview(lines)
    for job in dict.fromkeys(line["job"] for line in lines):
        some = [line for line in lines if line["job"] == job]
        out += _of_job(job, some, shares[shares["job"] == job])
    if notes:
        out += ["", "## Notes", "", *(f"* {note}" for note in notes)]
    return "\n".join(out) + "\n"


def _overview(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    methods = [name for name in METHODS if any(line["method"] == name for line in lines)]
    rows = []
    for job in dict.fromkeys(line["job"] for line in lines):
        by_method = {line["method"]: line for line in lines if line["job"] == job}
        first = next(iter(by_method.values()))
        best = min(line["error"] for line in by_method.values())
        cells = [f"{job} ({first['measure'].upper()})", f"{first['n_train']:,}".replace(",", " ")]
        for name in methods:
            if name not in by_method:
                cells.append("–")
                continue
            text = f"{by_method[name]['error']:.4f}"
            cells.append(f"**{text}**" if by_method[name]["error"] == best else text)
        rows.append(cells)
    return markdown_table(["job", "rows", *(METHODS[name].label for name in methods)], rows)


def _of_job(job: str, lines: Sequence[Mapping[str, Any]], shares: pd.DataFrame) -> list[str]:
    first = lines[0]
    shown = [name for name in COLUMNS if any(line[name] is not None for line in lines)]
    header = ["method", *(COLUMNS[name][0] or LABELS[first["measure"]] for name in shown)]
    header.append(f"less {METHODS[REFERENCE].label}")
    rows = []
    for line in lines:
        cells = [METHODS[line["method"]].label]
        for name in shown:
            cells.append("–" if line[name] is None else COLUMNS[name][1].format(line[name]))
        last = "–"
        if line["difference"] is not None:
            last = f"{line['difference']:+.4f} ± {line['difference_error']:.4f}"
        rows.append([*cells, last])
    out = ["", f"## {job}", ""]
    out += [
        f"{first['n_train']} training rows, {first['n_test']} test rows, {first['n_columns']} "
        "columns.",
        "",
        *markdown_table(header, rows),
    ]
    for method, table in shares.groupby("method", sort=False):
        kinds = table.groupby("kind", sort=False)["share"].sum()
        listed = ", ".join(f"{kind} {share:.1%}" for kind, share in kinds.items())
        top = ", ".join(
            f"{row.term} {row.share:.1%}" for row in table.head(SHOWN_SHARES).itertuples()
        )
        out += ["", f"Shares of variance, {METHODS[str(method)].label}: {listed}. Largest: {top}."]
    return out
