"""A chain of one model whose results are one flat folder: regression and classification.

The stages run in a folder beside the results, which vanishes with it: such a run leaves all or
nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from dsgp import ProjectionPursuitGPRegressor
from dsgp.compute import connected
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from pipelines.datasets import Split, default_seed
from pipelines.reporting import (
    Stopwatch,
    describe_model,
    draw_model,
    draw_predictions,
    environment,
    gathered_warnings,
    output_folder,
    peak_memory_mb,
    plain_errors,
    show,
    write_report,
)
from pipelines.run.chain import execute, reasons
from pipelines.run.encoding import Encoded
from pipelines.run.evaluating import METRICS, PREDICTIONS
from pipelines.run.fitting import MODEL
from pipelines.run.folders import read_json
from pipelines.run.loading import is_streamed, name_of, named_split
from pipelines.run.plan import plan_of_one
from pipelines.run.sections import Load
from pipelines.run.tables import TRAIN

LEVEL = 0.95
# Of the fit's folder, beside the model.
REPORTED = ("terms.csv", "summary.txt")
# Options of the command line that say what is loaded.
LOADED = ("data", "target", "n", "n_test", "delimiter", "decimal", "encoding")


def run_from_command_line(
    options: Mapping[str, Any],
    task: str,
    build: Callable[[str, dict[str, Any], int], Any],
    table_of: Callable[[dict[str, Any]], dict[str, str]],
    own_options: Mapping[str, tuple[str, ...]],
) -> None:
    """Load, fit, test, write and print, as the options of a command line say.

    Parameters
    ----------
    options : mapping
        All of them.
    task : {"regression", "classification"}
    build : callable
        Makes the estimator from the name of the model, the options and a seed.
    table_of : callable
        Lines to print from a report.
    own_options : mapping of str to tuple of str
        Names of models, with the options that no other has.
    """
    shown = {n: value for n, value in options.items() if n not in ("overwrite", "scheduler")}
    shown |= {name: str(value) for name, value in shown.items() if isinstance(value, Path)}
    exit_on_termination()
    with plain_errors():
        clock = Stopwatch()
        data, kind, out = options["data"], options["model"], options["out"]
        seed = default_seed(data, task) if options["seed"] is None else options["seed"]
        _require_own(kind, shown, own_options)
        model = build(kind, shown, seed)
        asked = _load_options(options)
        complete = options["missing"] != "ignore"
        source: Split | Load = asked
        if not is_streamed(asked):
            with clock.stage("load"), gathered_warnings():
                source = named_split(asked, task, seed, complete)
        name = _name_of(source)
        suffix = "" if kind == "additive" else f"-{kind}"
        out = Path("results") / f"{name}{suffix}" if out is None else out
        with connected(options["scheduler"]):
            report = run_one(
                source,
                model,
                out,
                seed=seed,
                options=shown,
                overwrite=options["overwrite"],
                clock=clock,
                inputs=asked.files,
                complete=complete,
            )
        show(report, f"{name}: {type(model).__name__}", table_of(report), out)


def _require_own(
    model: str, options: Mapping[str, Any], own_options: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse a model that is not there, and options of another one."""
    if model not in own_options:
        raise ParameterError(f"model must be one of {', '.join(own_options)}, got {model!r}")
    for other, names in own_options.items():
        for name in names:
            if other != model and options[name] not in (None, False):
                raise ParameterError(
                    f"--{name.replace('_', '-')} is an option of --model {other}, and this is "
                    f"--model {model}; leave it out"
                )


def _load_options(options: Mapping[str, Any]) -> Load:
    """Only those that are checked by the data sets, whose messages name the command line's."""
    columns, folder = options["columns"], options["data_dir"]
    return Load.model_construct(
        **{name: options[name] for name in LOADED},
        columns=None if columns is None else _names(columns),
        drop=[name for entry in options["drop"] or () for name in _names(entry)],
        data_dir=None if folder is None else Path(folder),
    )


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def run_one(
    source: Split | Load,
    model: Any,
    out: str | Path,
    *,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    clock: Stopwatch | None = None,
    inputs: Iterable[str | Path | None] = (),
    complete: bool = True,
) -> dict[str, Any]:
    """Fit, predict, measure and write everything to a folder.

    Parameters
    ----------
    source : Split or Load
        The rows, or a table on disk from which they stream.
    model : estimator, not fitted
        Additive or by projection pursuit, of a target or of labels. It is fitted in place.
    out : str or Path
        Folder to be, which appears when all is done. See ``output_folder`` for what it replaces.
    seed : int, optional
        Of the split, where the rows stream (0 without).
    options : dict, optional
        Kept in the report.
    overwrite : bool
        Replace the results of other data.
    clock : Stopwatch, optional
        With the time of loading.
    inputs : iterable of str or Path
        Files that the folder may not hold.
    complete : bool
        Whether every input must be there, where the rows stream.

    Returns
    -------
    dict
        What report.json holds.
    """
    clock = Stopwatch() if clock is None else clock
    task = "classification" if is_classifier(model) else "regression"
    stage = "scoring"
    if task == "regression":
        stage = "pursuit" if isinstance(model, ProjectionPursuitGPRegressor) else "additive"
    steps = plan_of_one(source, model, stage, task, LEVEL, seed or 0, complete)
    name = _name_of(source)
    with output_folder(out, task, name, overwrite=overwrite, inputs=inputs) as folder:
        work = folder.parent / "stages"
        work.mkdir()
        stale = reasons(steps, work)
        done = {step.stage: manifest for step, manifest in execute(steps, work, stale, {})}
        places = {step.stage: work / step.place for step in steps}
        for file in (MODEL, *REPORTED):
            (places[stage] / file).rename(folder / file)
        (places["evaluation"] / PREDICTIONS).rename(folder / PREDICTIONS)
        metrics = read_json(places["evaluation"] / METRICS)
        encoded = Encoded.of(places["encode"])
        before = done["load"]["seconds"] + done["encode"]["seconds"]
        if isinstance(source, Load):
            clock.seconds["load"] = before
            before = 0.0
        for part, its_stage in (("fit", stage), ("predict", "evaluation")):
            clock.seconds[part] = done[its_stage]["parts"][part]
        clock.seconds["save"] = before + sum(
            done[its_stage]["parts"]["save"] for its_stage in (stage, "evaluation")
        )
        with clock.stage("plot"):
            draw_model(model, folder, encoded.target)
            draw_predictions(
                pd.read_parquet(folder / PREDICTIONS),
                folder,
                task,
                target=encoded.target,
                level=LEVEL,
                target_mean=encoded.facts["target_mean"],
                classes=encoded.classes if task == "classification" else None,
            )
        return write_report(
            folder,
            task,
            {
                "data": _facts_of_data(encoded),
                "metrics": metrics,
                **describe_model(model),
                "warnings": [message for entry in done.values() for message in entry["warnings"]],
                "seconds": clock.seconds,
                "cpu_seconds": clock.cpu_seconds,
                "peak_memory_mb": peak_memory_mb(),
                "versions": environment(),
                "seed": seed,
                "options": dict(options or {}),
            },
        )


def _name_of(source: Split | Load) -> str:
    return name_of(source) if isinstance(source, Load) else source.name


def _facts_of_data(encoded: Encoded) -> dict[str, Any]:
    facts = encoded.facts
    data = {
        "name": facts["name"],
        "n_train": facts["n_train"],
        "n_test": facts["n_test"],
        "columns": encoded.inputs,
        "target": encoded.target,
    }
    if encoded.task == "regression":
        return {**data, "noise_variance": facts["noise_variance"]}
    codes = np.bincount(encoded.codes(TRAIN), minlength=len(encoded.classes)).tolist()
    counts = dict(zip(map(str, encoded.classes.tolist()), codes, strict=True))
    return {**data, "classes": counts, "n_left_out": facts["n_left_out"]}
