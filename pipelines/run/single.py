"""A chain of one model whose results are one flat folder: regression and classification.

The stages run in a folder beside the results, which vanishes with it: such a run leaves all or
nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pipelines.datasets import LabelledSplit, Split
from pipelines.reporting import (
    Stopwatch,
    describe_model,
    draw_model,
    draw_predictions,
    environment,
    output_folder,
    peak_memory_mb,
    write_report,
)
from pipelines.run.chain import execute, reasons
from pipelines.run.encoding import Encoded
from pipelines.run.evaluating import METRICS, PREDICTIONS
from pipelines.run.fitting import MODEL
from pipelines.run.folders import read_json
from pipelines.run.plan import plan_of_one
from pipelines.run.tables import TRAIN

LEVEL = 0.95
# Of the fit's folder, beside the model.
TOLD = ("terms.csv", "summary.txt")


def run_one(
    pipeline: str,
    split: Split,
    model: Any,
    out: str | Path,
    *,
    stage: str,
    task: str,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    clock: Stopwatch | None = None,
) -> dict[str, Any]:
    """Fit, predict, measure and write everything to a folder.

    Parameters
    ----------
    pipeline : str
        Whose results these are.
    split : Split
    model : estimator, not fitted
        It is fitted in place.
    out : str or Path
        Folder to be, which appears when all is done. See ``output_folder`` for what it replaces.
    stage : {"additive", "pursuit", "scoring"}
        The one that the model is fitted by.
    task : {"regression", "classification"}
    seed : int, optional
    options : dict, optional
        Kept in the report.
    overwrite : bool
        Replace the results of other data.
    clock : Stopwatch, optional
        With the time of loading.

    Returns
    -------
    dict
        What report.json holds.
    """
    clock = Stopwatch() if clock is None else clock
    steps = plan_of_one(split, model, stage, task, LEVEL)
    with output_folder(out, pipeline, split.name, overwrite=overwrite) as folder:
        work = folder.parent / "stages"
        work.mkdir()
        stale = reasons(steps, work)
        done = {step.stage: manifest for step, manifest in execute(steps, work, stale, {})}
        places = {step.stage: work / step.place for step in steps}
        for name in (MODEL, *TOLD):
            (places[stage] / name).rename(folder / name)
        (places["evaluation"] / PREDICTIONS).rename(folder / PREDICTIONS)
        metrics = read_json(places["evaluation"] / METRICS)
        encoded = Encoded.of(places["encode"])
        for part, its_stage in (("fit", stage), ("predict", "evaluation")):
            clock.seconds[part] = done[its_stage]["parts"][part]
        clock.seconds["save"] = (
            sum(done[name]["parts"]["save"] for name in (stage, "evaluation"))
            + done["load"]["seconds"]
            + done["encode"]["seconds"]
        )
        with clock.stage("plot"):
            draw_model(model, folder, split.target)
            draw_predictions(
                pd.read_parquet(folder / PREDICTIONS),
                folder,
                task,
                target=split.target,
                level=LEVEL,
                target_mean=encoded.facts["target_mean"],
                classes=encoded.classes if task == "classification" else None,
            )
        return write_report(
            folder,
            pipeline,
            {
                "data": _told_of(split, encoded),
                "metrics": metrics,
                **describe_model(model),
                "warnings": done[stage]["warnings"],
                "seconds": clock.seconds,
                "cpu_seconds": clock.cpu_seconds,
                "peak_memory_mb": peak_memory_mb(),
                "versions": environment(),
                "seed": seed,
                "options": dict(options or {}),
            },
        )


def _told_of(split: Split, encoded: Encoded) -> dict[str, Any]:
    told = {
        "name": split.name,
        "n_train": len(split.y_train),
        "n_test": len(split.y_test),
        "columns": list(split.X_train.columns),
        "target": split.target,
    }
    if not isinstance(split, LabelledSplit):
        return {**told, "noise_variance": split.noise_variance}
    codes = encoded.column(TRAIN, encoded.target)
    counts = {str(label): int((codes == code).sum()) for code, label in enumerate(encoded.classes)}
    return {**told, "classes": counts, "n_left_out": split.n_left_out}
