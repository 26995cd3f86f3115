"""From a configuration to the steps of a chain."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel

from dsgp.errors import ParameterError
from pipelines.datasets import Split, default_seed
from pipelines.run.baselines import fit_baseline, require
from pipelines.run.chain import Step, Work
from pipelines.run.checking import require_possible
from pipelines.run.comparing import report
from pipelines.run.config import Config
from pipelines.run.encoding import encode
from pipelines.run.evaluating import evaluate
from pipelines.run.fitting import (
    build_additive,
    build_pursuit,
    fit_additive,
    fit_pursuit,
    fit_residual,
    fit_scored,
    fit_scoring,
)
from pipelines.run.loading import fingerprint, load, write_given
from pipelines.run.sections import Encode, Evaluation, Load, Model, Pursuit


def plan_of(config: Config) -> list[Step]:
    """Return the steps of a configuration, each after those it needs.

    Models that begin with the same stages share them.

    Raises
    ------
    ParameterError
        If a baseline is not there, or as ``require_possible``.
    """
    for name, model in config.models.items():
        if model.baseline is not None:
            try:
                require(model.baseline, config.task)
            except ParameterError as error:
                raise ParameterError(f"models.{name}.baseline: {error}") from error
    require_possible(config)
    complete = not any(
        stage is not None and stage.missing == "ignore"
        for model in config.models.values()
        for stage in (model.additive, model.scoring)
    )
    load_seed = config.load.seed
    if load_seed is None:
        load_seed = default_seed(config.load.data, config.task)
    loading = Step(
        "load",
        None,
        {
            **_options(config.load),
            "seed": load_seed,
            "task": config.task,
            "complete": complete,
            "files": fingerprint(config.load),
        },
        {},
        partial(load, options=config.load, task=config.task, seed=load_seed, complete=complete),
    )
    encoding = Step(
        "encode",
        None,
        _options(config.encode),
        {"load": loading},
        partial(encode, options=config.encode),
    )
    known: dict[str, Step] = {}
    steps = [loading, encoding]
    evaluations: dict[str, Step] = {}
    for name, model in config.models.items():
        needs = {"encode": encoding}
        for stage, options, body in _fits(model, config):
            step = Step(stage, name, options, dict(needs), body)
            needs[stage] = known.setdefault(step.key, step)
            if needs[stage] is step:
                steps.append(step)
        evaluations[name] = Step(
            "evaluation",
            name,
            _options(config.evaluation),
            needs,
            partial(evaluate, options=config.evaluation, model=name),
        )
        steps.append(evaluations[name])
    needed = {"encode": encoding}
    for name, evaluation in evaluations.items():
        for stage, step in evaluation.needs.items():
            if stage != "encode":
                needed[f"{name}/{stage}"] = step
        needed[f"{name}/evaluation"] = evaluation
    # Stages of a model may be those of another, so its list is an option of the report.
    models = {name: [*list(step.needs)[1:], "evaluation"] for name, step in evaluations.items()}
    steps.append(
        Step(
            "report",
            None,
            {
                **_options(config.report),
                "name": config.name,
                "models": models,
                "level": config.evaluation.level,
            },
            needed,
            partial(
                report,
                name=config.name or config.load.data,
                models=models,
                figures=config.report.figures,
                level=config.evaluation.level,
                config=config.model_dump(mode="json", exclude_unset=True),
            ),
        )
    )
    return steps


def plan_of_one(
    source: Split | Load,
    model: Any,
    stage: str,
    task: str,
    level: float,
    seed: int,
    complete: bool = True,
) -> list[Step]:
    """Return the steps for one estimator, up to its evaluation.

    Such steps are for a folder that they have for themselves: their keys do not know the data.

    Parameters
    ----------
    source : Split or Load
        Rows that are there already, or that are to be loaded.
    model : estimator
    stage : {"additive", "pursuit", "scoring"}
        The one that it is fitted by.
    task : {"regression", "classification"}
    level : float
        Of intervals.
    seed : int
        Of the split of rows that are to be loaded.
    complete : bool
        Whether every input must be there, likewise.
    """
    bodies: dict[str, Callable[..., None]] = {
        "additive": fit_additive,
        "pursuit": fit_pursuit,
        "scoring": fit_scored,
    }
    body: Body
    if isinstance(source, Load):
        body = partial(load, options=source, task=task, seed=seed, complete=complete)
        options = Encode(categories="error")
    else:
        body = partial(write_given, split=source, task=task)
        options = Encode(in_memory=True)
    loading = Step("load", None, {}, {}, body)
    encoding = Step("encode", None, {}, {"load": loading}, partial(encode, options=options))
    fit = Step(stage, "model", {}, {"encode": encoding}, partial(bodies[stage], model=model))
    evaluation = Step(
        "evaluation",
        "model",
        {},
        {"encode": encoding, stage: fit},
        partial(evaluate, options=Evaluation(level=level), model=type(model).__name__),
    )
    return [loading, encoding, fit, evaluation]


Body = Callable[[Work], None]


def _fits(model: Model, config: Config) -> list[tuple[str, Mapping[str, Any], Body]]:
    """Stage, options and body of every fit of a model."""
    fits: list[tuple[str, Mapping[str, Any], Body]] = []
    if model.baseline is not None:
        body = partial(fit_baseline, name=model.baseline)
        return [("baseline", {"name": model.baseline}, body)]
    if model.additive is not None:
        additive, options = build_additive(model.additive, config.seed), _options(model.additive)
        if model.additive.method is not None:
            options["seed"] = config.seed
        fits.append(("additive", options, partial(fit_additive, model=additive)))
    if model.pursuit is not None:
        fits.append(_pursuit(model.pursuit, config.seed))
    if model.scoring is not None:
        scoring = partial(fit_scoring, options=model.scoring, seed=config.seed)
        options = {**_options(model.scoring), "seed": config.seed}
        fits.append(("scoring", options, scoring))
    return fits


def _pursuit(options: Pursuit, seed: int) -> tuple[str, Mapping[str, Any], Body]:
    body = fit_residual if options.fit_to == "residual" else fit_pursuit
    return (
        "pursuit",
        {**_options(options), "seed": seed},
        partial(body, model=build_pursuit(options, seed)),
    )


def _options(section: BaseModel) -> dict[str, Any]:
    return section.model_dump(mode="json")
