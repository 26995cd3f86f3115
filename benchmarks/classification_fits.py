"""What the benchmarks of classification measure: one fit, judged against labels and the truth.

``python -m benchmarks.classification_fits TASK`` does one of ``TASKS`` in a process of its own,
whose memory is then its own: options as JSON on the standard input, the outcome on the output.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning as SolverWarning
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.svm import SVC

from benchmarks.pursuit import Seconds, timed
from dsgp import AdditiveGPClassifier, GeneralizedAdditiveGP
from dsgp.errors import ConvergenceWarning, DsgpError
from dsgp.kernels import Matern, Matern32, Matern52, Matern72
from dsgp.likelihoods import Bernoulli, Poisson
from dsgp.metrics import calibration_error, coverage, error_rate, mnll
from pipelines.datasets import (
    CountSplit,
    LabelledSplit,
    Split,
    _interpolate,
    additive_functions,
    load_counts,
    load_labels,
    synth8d_moments,
)
from pipelines.datasets.synthetic import LOG_RATE_STD, N_COLUMNS
from pipelines.peers import Mgcv, PeerFit
from pipelines.scaling.run import own_peak_memory_mb

Floats = NDArray[np.float64]

ROOT = Path(__file__).resolve().parents[1]
BINARY, POISSON = "synth8d-binary", "synth8d-poisson"
KERNELS: dict[str, type[Matern]] = {
    "matern32": Matern32,
    "matern52": Matern52,
    "matern72": Matern72,
}
LEVEL = 0.95
WARM_UP_ROWS = 20_000  # enough to take the way that more rows take
ENOUGH = 20.0  # processor seconds of repeats
# Baselines may say 0 or 1 outright; ours are scored as they are.
SMALLEST = 1e-12


# ---------------------------------------------------------------------- seconds


@dataclass(frozen=True)
class Repeats:
    """Seconds of the same call, several times."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @classmethod
    def of(cls, measured: list[Seconds]) -> Repeats:
        return cls(tuple(each.cpu for each in measured), tuple(each.wall for each in measured))

    @property
    def best(self) -> Seconds:
        return Seconds(min(self.cpu), min(self.wall))

    @property
    def median(self) -> Seconds:
        return Seconds(median(self.cpu), median(self.wall))


# ---------------------------------------------------------------------- labels


@dataclass(frozen=True)
class Scores:
    """Of the probabilities of test labels; MNLL in nats, ECE over bins of equal count."""

    error: float
    mnll: float
    ece: float

    @classmethod
    def of(cls, y: NDArray[Any], probability: Floats, classes: NDArray[Any]) -> Scores:
        predicted = classes[probability.argmax(axis=1)]
        return cls(
            error_rate(y, predicted),
            mnll(y, probability, classes),
            calibration_error(y, probability, classes),
        )


def inputs(split: Split) -> tuple[Floats, Floats]:
    """Return training and test inputs as arrays."""
    return split.X_train.to_numpy(dtype=float), split.X_test.to_numpy(dtype=float)


def fit_and_score(model: Any, split: LabelledSplit) -> tuple[Scores, Seconds, Seconds]:
    """Fit a classifier and score it: seconds of the fit, and of the probabilities."""
    X, X_test = inputs(split)
    ours = type(model).__module__.startswith("dsgp")
    with warnings.catch_warnings():
        if not ours:
            warnings.simplefilter("ignore", FutureWarning)  # of scikit-learn's next release
            warnings.simplefilter("ignore", SolverWarning)
        _, fit = timed(lambda: model.fit(X, split.y_train))
    probability, predict = timed(lambda: model.predict_proba(X_test))
    if not ours:
        probability = np.clip(probability, SMALLEST, 1 - SMALLEST)
        probability /= probability.sum(axis=1)[:, None]
    return Scores.of(split.y_test, probability, model.classes_), fit, predict


def baselines() -> dict[str, Any]:
    """Return scikit-learn's classifiers by what they are, not fitted."""
    splines = SplineTransformer(
        n_knots=20, degree=3, knots="quantile", extrapolation="linear", include_bias=False
    )
    logit = LogisticRegressionCV(
        Cs=np.logspace(-2, 4, 7),
        cv=3,
        scoring="neg_log_loss",
        solver="newton-cholesky",
        max_iter=200,
    )
    trees = {"max_iter": 1000, "early_stopping": True, "random_state": 0}
    return {
        "additive spline logit": make_pipeline(splines, logit),
        "additive boosted trees": HistGradientBoostingClassifier(
            interaction_cst="no_interactions", **trees
        ),
        "boosted trees": HistGradientBoostingClassifier(**trees),
    }


def synth_labels(n: int, n_test: int) -> LabelledSplit:
    """Draw synth8d-binary with its own seed."""
    return load_labels(BINARY, n=n, n_test=n_test)


def bayes(split: LabelledSplit) -> Scores:
    """Score the true probabilities."""
    p = split.probability_test
    assert p is not None
    return Scores.of(split.y_test, np.column_stack([1 - p, p]), split.classes)


def warm_up(n: int = WARM_UP_ROWS, kernel: Matern | None = None) -> None:
    """Load or compile the loops, so that no measurement is charged for it."""
    split = synth_labels(min(n, WARM_UP_ROWS), 100)
    X, X_test = inputs(split)
    model = AdditiveGPClassifier(kernel).fit(X, split.y_train)
    model.predict_proba(X_test)
    model.estimators_[0].predict_latent(X_test, return_std=True)


@dataclass(frozen=True)
class Contender:
    """One method of those that take turns, on the same rows.

    Attributes
    ----------
    name : str
    n : int
        Training rows.
    fit, predict : Repeats
        The latter with uncertainty, at the test points.
    scores : Scores
    details : dict
    """

    name: str
    n: int
    fit: Repeats
    predict: Repeats
    scores: Scores
    details: dict[str, Any]

    @property
    def total(self) -> Repeats:
        """Fit and prediction together."""
        return Repeats(
            tuple(map(sum, zip(self.fit.cpu, self.predict.cpu, strict=True))),
            tuple(map(sum, zip(self.fit.wall, self.predict.wall, strict=True))),
        )


def beside_mgcv(
    n: int, n_test: int, kernels: list[str | None], size: int, repeats: int
) -> list[Contender]:
    """Fit each kernel of ours (None: the default one) and mgcv's splines by turns."""
    split = synth_labels(n, n_test)
    X, X_test = inputs(split)
    seconds: dict[str, list[tuple[Seconds, Seconds]]] = {}
    scores: dict[str, Scores] = {}
    details: dict[str, dict[str, Any]] = {}
    peer = Mgcv(size, "binomial")
    for _ in range(repeats):
        for kernel in kernels:
            name = "dsgp, default" if kernel is None else f"dsgp, {kernel}"
            model = AdditiveGPClassifier(None if kernel is None else KERNELS[kernel]())
            scores[name], *measured = fit_and_score(model, split)
            seconds.setdefault(name, []).append((measured[0], measured[1]))
            details[name] = {"modes": model.n_iter_, "converged": model.converged_}
        name = f"mgcv, k = {size}"
        found = peer.fit_predict(X, split.y_train.astype(float), X_test)
        seconds.setdefault(name, []).append(peer_seconds(found))
        assert found.std is not None
        p = Bernoulli().class_probabilities(found.mean, found.std**2)
        scores[name] = Scores.of(split.y_test, p, split.classes)
        details[name] = found.details
    return [
        Contender(
            name,
            n,
            Repeats.of([fit for fit, _ in measured]),
            Repeats.of([predict for _, predict in measured]),
            scores[name],
            details[name],
        )
        for name, measured in seconds.items()
    ]


def peer_seconds(found: PeerFit) -> tuple[Seconds, Seconds]:
    """Return seconds of mgcv's fit and prediction.

    Of one thread and all of them the fit takes the smaller processor and the smaller wall time.
    """
    cpu, wall = found.cpu_seconds["fit"], found.seconds["fit"]
    one = found.details.get("fit_cpu_seconds_one_thread")
    return (
        Seconds(cpu if one is None else min(cpu, float(one)), wall),
        Seconds(found.cpu_seconds["predict"], found.seconds["predict"]),
    )


# ---------------------------------------------------------------------- tasks


def scale(n: int, n_test: int, repeats: int, kernel: str | None = None) -> dict[str, Any]:
    """Fit one size of synth8d-binary with default settings."""
    given = None if kernel is None else KERNELS[kernel]()
    warm_up(n, given)
    split = synth_labels(n, n_test)
    X, X_test = inputs(split)
    before = own_peak_memory_mb()
    seconds: list[Seconds] = []
    peak = before
    while not seconds or (len(seconds) < repeats and sum(s.cpu for s in seconds) < ENOUGH):
        model = AdditiveGPClassifier(given)
        _, taken = timed(partial(model.fit, X, split.y_train))
        if not seconds:
            peak = own_peak_memory_mb()
        seconds.append(taken)
    probability, predict = timed(lambda: model.predict_proba(X_test))
    mean, std = model.estimators_[0].predict_latent(X_test, return_std=True)
    assert split.f_test is not None
    return {
        "n": n,
        "n_test": n_test,
        "fit": asdict(Repeats.of(seconds)),
        "predict": asdict(predict),
        "modes": model.n_iter_,
        "newton_steps": model.newton_iterations_,
        "converged": model.converged_,
        "scores": asdict(Scores.of(split.y_test, probability, model.classes_)),
        "bayes": asdict(bayes(split)),
        "rmse_f": rms(mean - split.f_test),
        "coverage_f": coverage(split.f_test, mean, std, LEVEL),
        "memory_before_mb": before,
        "peak_memory_mb": peak,
    }


def learn(n: int, iterations: int) -> dict[str, Any]:
    """Fit until the learner has taken so many iterations.

    It ends by itself where rounding hides what a step gains. Then the fit is made again, and all
    of it counts.
    """
    warm_up(n)
    split = synth_labels(n, 1000)
    taken: list[int] = []
    seconds: list[Seconds] = []
    while sum(taken) < iterations:
        model = AdditiveGPClassifier(learner_max_iter=iterations, learner_tol=1e-12)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ConvergenceWarning
            )  # it has not converged: nor should it
            scores, fit, _ = fit_and_score(model, split)
        taken.append(model.n_iter_)
        seconds.append(fit)
    total = Seconds(sum(each.cpu for each in seconds), sum(each.wall for each in seconds))
    return {"n": n, "modes": taken, "fit": asdict(total), "scores": asdict(scores)}


def svc(n: int) -> dict[str, Any]:
    """Fit scikit-learn's support vector machine with probabilities."""
    split = synth_labels(n, 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        machine = SVC(C=1.0, gamma="scale", probability=True, random_state=0, cache_size=1000)
        scores, fit, _ = fit_and_score(make_pipeline(StandardScaler(), machine), split)
    return {"n": n, "fit": asdict(fit), "scores": asdict(scores)}


def poisson(n: int, n_test: int) -> dict[str, Any]:
    """Fit synth8d-poisson, and compare every component with the true one."""
    few = load_counts(POISSON, n=min(n, WARM_UP_ROWS), n_test=100)
    GeneralizedAdditiveGP("poisson").fit(
        inputs(few)[0], few.y_train, exposure=few.exposure_train
    ).components(inputs(few)[1])
    split = load_counts(POISSON, n=n, n_test=n_test)
    X, X_test = inputs(split)
    before = own_peak_memory_mb()
    model = GeneralizedAdditiveGP("poisson")
    _, fit = timed(lambda: model.fit(X, split.y_train, exposure=split.exposure_train))
    peak = own_peak_memory_mb()
    (mean, std), predict = timed(lambda: model.predict_latent(X_test, return_std=True))
    # Components are centred by the weights of the rows at the mode, and so is the truth.
    weight = split.exposure_train * np.exp(model.predict_latent(X))
    truth = true_components(X_test) - np.average(true_components(X), axis=0, weights=weight)
    found = model.components(X_test)
    components = {
        term: {
            "rmse": rms(each - true),
            "coverage": coverage(true, each, deviation, LEVEL),
            "std": float(true.std()),
        }
        for term, each, deviation, true in zip(
            found["term"].values.tolist(),
            found["mean"].values.T,
            found["std"].values.T,
            truth.T,
            strict=True,
        )
    }
    density = model.log_predictive_density(X_test, split.y_test, exposure=split.exposure_test)
    return {
        "name": "dsgp, default",
        "n": n,
        "fit": asdict(fit),
        "predict": asdict(predict),
        "modes": model.n_iter_,
        "converged": model.converged_,
        "nll": -float(np.mean(density)),
        **_against_truth(split, mean, std),
        "components": components,
        "memory_before_mb": before,
        "peak_memory_mb": peak,
    }


def poisson_mgcv(n: int, n_test: int, size: int) -> dict[str, Any]:
    """Fit the same rows with mgcv."""
    split = load_counts(POISSON, n=n, n_test=n_test)
    X, X_test = inputs(split)
    found = Mgcv(size, "poisson").fit_predict(
        X, split.y_train, X_test, offset=np.log(split.exposure_train)
    )
    assert found.std is not None
    shift = np.log(split.exposure_test)
    density = Poisson().log_predictive(split.y_test, found.mean + shift, found.std**2)
    fit, predict = peer_seconds(found)
    return {
        "name": f"mgcv, k = {size}",
        "n": n,
        "fit": asdict(fit),
        "predict": asdict(predict),
        "nll": -float(np.mean(density)),
        **_against_truth(split, found.mean, found.std),
        "memory_before_mb": found.details.get("memory_before_mb"),
        "peak_memory_mb": found.peak_memory_mb,
        "details": found.details,
    }


def true_components(X: Floats) -> Floats:
    """Return the functions whose sum is the logarithm of synth8d-poisson's rate, not centred."""
    grid, functions = additive_functions(N_COLUMNS)
    _, spread = synth8d_moments(3)
    columns = [_interpolate(grid, f, X[:, d]) for d, f in enumerate(functions)]
    return LOG_RATE_STD / spread * np.column_stack(columns)


def _against_truth(split: CountSplit, mean: Floats, std: Floats) -> dict[str, float]:
    f = split.f_test
    assert f is not None
    truth = Poisson().log_density(split.y_test, f + np.log(split.exposure_test))
    return {
        "nll_truth": -float(np.mean(truth)),
        "rmse_f": rms(mean - f),
        "coverage_f": coverage(f, mean, std, LEVEL),
    }


def rms(values: Floats) -> float:
    return math.sqrt(np.mean(values**2))


# ---------------------------------------------------------------------- processes

TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task for task in (scale, learn, svc, poisson, poisson_mgcv)
}


def apart(task: str, limit: float | None = None, **options: Any) -> dict[str, Any]:
    """Do a task in a process of its own.

    Raises
    ------
    TimeoutExpired
        After `limit` wall seconds; the process is ended.
    DsgpError
        When it fails.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.classification_fits", task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        text=True,
    )
    try:
        out, _ = process.communicate(json.dumps(options), timeout=limit)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        raise DsgpError(f"{task} {options} failed with status {process.returncode}: see above")
    outcome: dict[str, Any] = json.loads(out)
    return outcome


@dataclass(frozen=True)
class Machine:
    """Cost of the support vector machine on `n` rows.

    Attributes
    ----------
    n : int
    cpu_seconds : float
    measured : dict of int to float
        Processor seconds by rows.
    exponent : float or None
        By which the seconds of the most rows measured were extrapolated; None where `n` rows were
        measured.
    """

    n: int
    cpu_seconds: float
    measured: dict[int, float]
    exponent: float | None


def cost_of_svc(
    n: int, fewer: int, limit: float | None, run: Callable[..., dict[str, Any]] = apart
) -> Machine:
    """Measure it whole; where it takes longer than `limit`, extrapolate from `fewer` rows."""
    try:
        seconds = run("svc", limit, n=n)["fit"]["cpu"]
    except subprocess.TimeoutExpired:
        sizes = (fewer // 2, fewer)
        few = {size: run("svc", n=size)["fit"]["cpu"] for size in sizes}
        exponent = math.log(few[sizes[1]] / few[sizes[0]]) / math.log(sizes[1] / sizes[0])
        return Machine(n, few[sizes[1]] * (n / sizes[1]) ** exponent, few, exponent)
    return Machine(n, seconds, {n: seconds}, None)


def main() -> None:
    """Do the task that the command line names."""
    task = TASKS[sys.argv[1]]
    started = time.perf_counter()
    outcome = task(**json.load(sys.stdin))
    json.dump({**outcome, "process_seconds": time.perf_counter() - started}, sys.stdout)


if __name__ == "__main__":
    main()
