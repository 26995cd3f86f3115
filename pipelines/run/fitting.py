"""The stages that fit: additive, pursuit and local scoring, each on the encoded table.

Least squares of labels are those of the codes 0 and 1: they give local scoring kernels to start
from, or projections, and are not evaluated.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dsgp
from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.errors import ParameterError
from dsgp.kernels import Matern, Matern32, Matern52
from dsgp.rows.sinks import table_writer
from dsgp.rows.sources import Stored
from pipelines.reporting import terms_table
from pipelines.run.chain import Work
from pipelines.run.encoding import Encoded
from pipelines.run.folders import write_json
from pipelines.run.sections import ADDITIVE_ONLY, LABELS_ONLY, Additive, Kernel, Pursuit, Scoring
from pipelines.run.tables import EXPOSURE, ROW_BLOCK, TRAIN
from pipelines.run.view import View

MODEL = "model.zarr"
INPUTS = "inputs.json"
DERIVED = "derived.parquet"


def build_additive(options: Additive, seed: int) -> AdditiveGPRegressor:
    """Make the estimator that the options ask for."""
    parameters = _parameters(options) | {"priors": None}
    if options.method is not None:
        parameters |= {"priors": options.priors.build(), "random_state": seed}
    return AdditiveGPRegressor(**parameters, verbose=True)


def build_pursuit(options: Pursuit, seed: int) -> ProjectionPursuitGPRegressor:
    """Make the estimator that the options ask for."""
    parameters = _parameters(options)
    del parameters["fit_to"]
    return ProjectionPursuitGPRegressor(**parameters, random_state=seed, verbose=True)


def _parameters(options: Additive | Pursuit | Scoring) -> dict[str, Any]:
    parameters = {name: getattr(options, name) for name in type(options).model_fields}
    parameters["kernel"] = None if options.kernel is None else options.kernel.build()
    if "terms" in parameters:
        parameters["terms"] = _terms(parameters["terms"])
    if isinstance(parameters.get("noise_terms"), Mapping):
        parameters["noise_terms"] = _terms(parameters["noise_terms"])
    return parameters


def _terms(terms: Mapping[str, Any]) -> dict[str, Any] | None:
    return {
        name: term.build() if isinstance(term, Kernel) else term for name, term in terms.items()
    } or None


# ---- least squares


def fit_additive(work: Work, model: AdditiveGPRegressor) -> None:
    """Fit a function of every column by least squares."""
    encoded = Encoded.of(work.needs["encode"])
    X, y = _numeric_target(encoded)
    with work.clock.stage("fit", shown=False):
        model.fit(X, y)
    save(work, model)


def fit_pursuit(work: Work, model: ProjectionPursuitGPRegressor) -> None:
    """Fit functions of projections by least squares."""
    encoded = Encoded.of(work.needs["encode"])
    X, y = _numeric_target(encoded)
    with work.clock.stage("fit", shown=False):
        model.fit(X, y)
    save(work, model)


def fit_residual(work: Work, model: ProjectionPursuitGPRegressor) -> None:
    """Fit functions of projections to what an additive mean leaves of the target."""
    encoded = Encoded.of(work.needs["encode"])
    additive = dsgp.load(work.needs["additive"] / MODEL)

    def derive(frame: pd.DataFrame) -> pd.DataFrame:
        mean = np.asarray(additive.predict(frame[encoded.inputs]))
        rest = np.asarray(frame[encoded.numeric_target], dtype=np.float64) - mean
        return frame[encoded.inputs].assign(**{encoded.target: rest})

    with (
        work.clock.stage("fit", shown=False),
        _derived(work.folder, encoded, derive, encoded.inputs) as (X, y),
    ):
        model.fit(X, y)
    save(work, model)


def _numeric_target(encoded: Encoded) -> tuple[Any, Any]:
    """Inputs and target, of two classes as 0 and 1."""
    if encoded.task == "classification" and len(encoded.classes) > 2:
        raise ParameterError(
            f"least squares of labels takes two classes, and {encoded.target!r} has "
            f"{len(encoded.classes)}; leave additive and pursuit out, or use scoring with "
            "structure: pursuit"
        )
    return encoded.training(encoded.numeric_target)


@contextmanager
def _derived(
    folder: Path,
    encoded: Encoded,
    derive: Callable[[pd.DataFrame], pd.DataFrame],
    inputs: list[str],
) -> Iterator[tuple[Any, Any]]:
    """Give training rows with other columns, or another target, as ``fit`` takes them.

    On disk they are written block by block, for the time of the fit.
    """
    parts = map(derive, encoded.blocks(TRAIN, ROW_BLOCK))
    if encoded.in_memory:
        frame = pd.concat(parts, ignore_index=True)
        yield frame[inputs], frame[encoded.target].to_numpy()
        return
    path = folder / DERIVED
    try:
        with table_writer(DERIVED, path) as write:
            for part in parts:
                write(part)
        yield Stored(path, columns=inputs), encoded.target
    finally:
        path.unlink(missing_ok=True)


# ---- local scoring


def fit_scoring(work: Work, options: Scoring, seed: int) -> None:
    """Fit labels or counts by local scoring, in columns, projections, or both."""
    encoded = Encoded.of(work.needs["encode"])
    view = View.made(work.needs, encoded)
    starts = _starts(work.needs, options, encoded.task)
    fit_scored(work, build_scoring(options, encoded.task, seed, starts), view)


def fit_scored(work: Work, model: Any, view: View | None = None) -> None:
    """Fit an estimator of labels or counts, in the columns or another view of them."""
    encoded = Encoded.of(work.needs["encode"])
    view = View.of_columns(encoded) if view is None else view
    write_json(work.folder / INPUTS, view.settings())
    exposure = {}
    if encoded.has_exposure:
        exposure["exposure"] = encoded.column(TRAIN, EXPOSURE) if encoded.in_memory else EXPOSURE

    def derive(frame: pd.DataFrame) -> pd.DataFrame:
        non_inputs = [name for name in (encoded.target, EXPOSURE) if name in frame]
        return pd.concat([view(frame), frame[non_inputs]], axis=1)

    with work.clock.stage("fit", shown=False):
        if view.is_plain:
            X, y = encoded.training(encoded.target)
            model.fit(X, y, **exposure)
        else:
            with _derived(work.folder, encoded, derive, view.names) as (X, y):
                model.fit(X, y, **exposure)
    save(work, model)


def build_scoring(
    options: Scoring, task: str, seed: int, starts: dict[str, Matern] | None = None
) -> Any:
    """Make the estimator that the options ask for.

    Parameters
    ----------
    options : Scoring
    task : {"classification", "counts"}
    seed : int
    starts : dict of str to kernel, optional
        Of columns that the options do not name.
    """
    parameters = _parameters(options)
    structure, likelihood = parameters.pop("structure"), parameters.pop("likelihood")
    n_projections = parameters.pop("n_projections")
    pursuit = structure == "pursuit"
    if pursuit:
        for name in ADDITIVE_ONLY:
            del parameters[name]
        parameters["n_projections"] = n_projections or "auto"
    else:
        parameters["terms"] = {**(starts or {}), **(parameters["terms"] or {})} or None
    if task == "counts":
        for name in LABELS_ONLY:
            parameters.pop(name, None)
        of_counts = dsgp.GeneralizedPursuitGP if pursuit else dsgp.GeneralizedAdditiveGP
        return of_counts(likelihood or "poisson", **parameters, random_state=seed, verbose=True)
    if pursuit:
        return dsgp.ProjectionPursuitGPClassifier(**parameters, random_state=seed, verbose=True)
    parameters["multi_class"] = parameters["multi_class"] or "softmax"
    return dsgp.AdditiveGPClassifier(**parameters, random_state=seed, verbose=True)


def _starts(needs: dict[str, Path], options: Scoring, task: str) -> dict[str, Matern] | None:
    """Kernels of local scoring, with the lengthscales of the least-squares fit.

    Its variances are on another scale, and the type is the business of local scoring.
    """
    if "additive" not in needs:
        return None
    prior: Matern
    if options.kernel is not None:
        prior = options.kernel.build()
    else:
        prior = Matern32() if task == "classification" else Matern52()
    if prior.lengthscale is not None:
        return None
    fitted = dsgp.load(needs["additive"] / MODEL)
    return {
        term.name: type(prior)(term.kernel.lengthscale, prior.variance, fixed=prior.fixed)
        for term in fitted.terms_
        if term.bound.is_plain
    }


def save(work: Work, model: Any) -> None:
    """Write the model, its summary and its terms."""
    with work.clock.stage("save"):
        model.save(work.folder / MODEL)
        terms_table(model).to_csv(work.folder / "terms.csv", index=False)
        (work.folder / "summary.txt").write_text(model.summary() + "\n", encoding="utf-8")
