"""Strong and weak scaling on workers: the plan, the runs, and the prediction that is measured."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from dask.system import CPU_COUNT

from dsgp.errors import ParameterError
from pipelines.cells import results_aside
from pipelines.reporting import REPORT, environment, write_report
from pipelines.scaling.costs import Fitted, require_enough
from pipelines.scaling.rows import N_COLUMNS
from pipelines.scaling.run import OURS, Settings
from pipelines.scaling.running import RUNS, require_own, run_all, say
from pipelines.scaling.workers_figure import draw_workers
from pipelines.scaling.workers_report import (
    cost_lines,
    csv,
    markdown,
    predictions,
    rows_of,
    with_error,
)

PIPELINE = "scaling-workers"
MODULE = "pipelines.scaling.cell"
COSTS, TABLE, PICTURE = "costs.json", "table.csv", "workers.png"
OWN_FILES = {RUNS, REPORT, "report.md", COSTS, TABLE, PICTURE}
SIZES, QUICK_SIZES = "1e6,2e6,4e6", "5e5,2e6"


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes
    ----------
    workers : list of int
        Increasing.
    sizes : list of int
        Rows, increasing: each on all numbers of workers (strong scaling), and the least one times
        the number of workers (weak scaling).
    check : int
        Rows of the fit that is predicted before it is measured.
    """

    workers: list[int]
    sizes: list[int]
    check: int
    repeats: int
    seed: int
    model: dict[str, Any]
    scheduler: str | None = None
    out: Path = field(default=Path("results/scaling-workers"))
    overwrite: bool = False

    def cells(self) -> list[Settings]:
        """Everything that the model is fitted to, smallest first."""
        weak = {(w, w * self.sizes[0]) for w in self.workers}
        both = weak | {(w, n) for w in self.workers for n in self.sizes}
        return [
            self._settings(w, n, repeat)
            for w, n in sorted(both, key=lambda cell: (cell[1], cell[0]))
            for repeat in range(self.repeats)
        ]

    def checked(self) -> Settings:
        """The fit that is predicted: on as many workers as have a core each here."""
        fitting = [w for w in self.workers if w <= CPU_COUNT or self.scheduler is not None]
        return self._settings(max(fitting, default=min(self.workers)), self.check, 0)

    def _settings(self, workers: int, n: int, repeat: int) -> Settings:
        cluster = {"workers": workers} | ({} if self.scheduler is None else {"given": 1})
        return Settings(OURS, n, repeat, self.seed, 0, True, self.model, cluster)


def numbers_of(text: str, option: str) -> list[int]:
    """Read numbers of workers.

    Raises
    ------
    ParameterError
        If these are no whole numbers from 1 on.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ParameterError(f"{option} takes whole numbers from 1 on, such as 1,2,4; got {text!r}")
    return sorted(set(map(int, words)))


def measure_workers(plan: Plan) -> None:
    """Measure, fit the cost model, predict a size and measure it; write and show all of it."""
    cells, check = plan.cells(), plan.checked()
    if (check.n, check.cluster) in [(cell.n, cell.cluster) for cell in cells]:
        raise ParameterError(
            f"--check {check.n} is one of the fits that the model is fitted to; name another size"
        )
    require_enough([cell.n for cell in cells])
    require_own(plan.out, OWN_FILES)
    measured = _measured(plan)
    records, notes = measured(cells)
    if notes:
        # Without one of them the model would be another one, and look the same.
        raise ParameterError(f"{' '.join(notes)} The same command resumes with what is missing")
    fitted = Fitted.of(records)
    like = next(each for each in records if each["settings"]["cluster"] == check.cluster)
    predicted = fitted.predict(check.n, check.cluster["workers"], like["cores"])
    say(f"predicted before it is measured: {with_error(*predicted)} s for {check.description}")
    checked, failures = measured([check])
    report = _report(plan, records, fitted, predicted, checked)
    _write(plan.out, report, fitted)
    _show(report, plan.out)
    if failures:
        raise typer.Exit(1)


def _measured(
    plan: Plan,
) -> Callable[[list[Settings]], tuple[list[dict[str, Any]], list[str]]]:
    return lambda planned: run_all(planned, plan.out / RUNS, plan.scheduler, plan.overwrite, MODULE)


def _report(
    plan: Plan,
    records: list[dict[str, Any]],
    fitted: Fitted,
    predicted: tuple[float, float],
    checked: list[dict[str, Any]],
) -> dict[str, Any]:
    check = None
    if checked:
        wall = checked[0]["spent"]["wall"]
        check = {
            "n": plan.check,
            "workers": checked[0]["settings"]["cluster"]["workers"],
            "predicted": predicted[0],
            "standard_error": predicted[1],
            "measured": wall,
            "ratio": wall / predicted[0],
        }
    return {
        "data": {"name": "synth8d", "columns": N_COLUMNS},
        "seed": plan.seed,
        "model": plan.model,
        "cores": max(record["cores"] for record in records),
        "lines": rows_of(records, fitted.costs),
        "check": check,
        "predictions": predictions(fitted),
        **fitted.as_dict(),
        "versions": environment(),
        "machine": records[0]["machine"],
        "runs": [*records, *checked],
    }


def _write(out: Path, report: dict[str, Any], fitted: Fitted) -> None:
    """Write everything aside and move each file into its place."""
    with results_aside(out) as aside:
        kept = {
            key: report[key]
            for key in ("data", "model", "cores", "costs", "standard_errors", "scatter", "check")
        } | {"workers_peak_memory_mb": max(r["workers_peak_memory_mb"] for r in report["runs"])}
        (aside / COSTS).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
        (aside / TABLE).write_text(csv(report["lines"]), encoding="utf-8")
        (aside / "report.md").write_text(markdown(report), encoding="utf-8")
        draw_workers(report, fitted, aside / PICTURE)
        write_report(aside, PIPELINE, report)


def _show(report: dict[str, Any], out: Path) -> None:
    for line in [*cost_lines(report), f"everything is in {out}"]:
        say(line)
