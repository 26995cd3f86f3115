"""Methods by name: the paper's, our defaults, and those of other libraries."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import ParameterError
from dsgp.kernels import Matern72
from pipelines.datasets import Floats, LabelledSplit, Split
from pipelines.peers.gp import Fic, FullGP, FullGPLaplace, GPPeer, Ivm, Spgp, Svm
from pipelines.scaling.run import Clock

PAPER, DEFAULT, BASELINE = "paper", "default", "baseline"
REGRESSION, CLASSIFICATION = "regression", "classification"
# Draws of the samplers, and sweeps before; fewer with --quick.
DRAWS, WARMUP = 100, 50
QUICK_DRAWS, QUICK_WARMUP = 20, 10
ITERATIONS, CLASS_ITERATIONS = 10, 25  # the paper's, of learning


@dataclass(frozen=True, eq=False)
class Answer:
    """Predictions for the test rows, and what they cost.

    Attributes
    ----------
    mean : ndarray of shape (n_test,)
        Of the target; of labels the probability of class 1.
    std : ndarray of shape (n_test,) or None
        Of a new observation, with the noise; None of labels.
    seconds, cpu_seconds : dict of str to float
        ``fit`` and ``predict``; where learning begins on a few rows, ``start`` is that.
    details : dict
    """

    mean: Floats
    std: Floats | None
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : str
        In tables and figures.
    kind : {"paper", "default", "baseline"}
    make : callable
        Of the seed, of whether it is quick, and of the number of rows; returns an estimator of
        dsgp or a peer.
    stochastic : bool
        Whether the seed decides on the result, so that several runs are averaged.
    what : str
        What it is, for the report.
    most_rows : int or None
        More are not tried.
    """

    label: str
    kind: str
    make: Callable[[int, bool, int], Any]
    stochastic: bool
    what: str
    most_rows: int | None = None

    def lacking(self) -> str | None:
        """Say what is not installed, with the remedy; None if nothing."""
        return self.make(0, True, 1).lacking() if self.kind == BASELINE else None

    def answer(self, split: Split, seed: int, quick: bool) -> Answer:
        """Fit to the training rows, and predict the test rows."""
        made = self.make(seed, quick, len(split.y_train))
        if self.kind == BASELINE:
            return _by_peer(made, split)
        return _by_dsgp(made, split)


def _by_peer(peer: GPPeer, split: Split) -> Answer:
    X, X_test = (part.to_numpy(dtype=np.float64) for part in (split.X_train, split.X_test))
    done = peer.fit_predict(X, np.asarray(split.y_train, dtype=np.float64), X_test)
    std = None if done.std is None else np.sqrt(done.std**2 + (done.noise_variance or 0.0))
    return Answer(done.mean, std, done.seconds, done.cpu_seconds, dict(done.details))


def _by_dsgp(model: Any, split: Split) -> Answer:
    clock = Clock()
    with clock.stage("fit"):
        model.fit(split.X_train, split.y_train)
    std = None
    with clock.stage("predict"):
        if isinstance(split, LabelledSplit):
            mean = model.predict_proba(split.X_test)[:, 1]
        else:
            mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
            std = np.asarray(std)
    details: dict[str, Any] = {"converged": bool(model.converged_)}
    if hasattr(model, "projections_"):
        details["projections"] = len(model.projections_)
    if pairs := getattr(model, "interactions_", None):
        details["pairs"] = len(pairs)
    return Answer(np.asarray(mean), std, clock.seconds, clock.cpu_seconds, details)


def _draws(quick: bool) -> dict[str, Any]:
    draws, warmup = (QUICK_DRAWS, QUICK_WARMUP) if quick else (DRAWS, WARMUP)
    return {"method": "gibbs", "n_draws": draws, "n_warmup": warmup, "n_chains": 1}


REGRESSIONS = {
    "full-gp": Method(
        "Full-GP", BASELINE, lambda seed, quick, n: FullGP(), False,
        "exact Gaussian process, squared-exponential kernel with a lengthscale per column "
        "(GPyTorch); hyperparameters are learned on 1500 random rows, then by five evaluations on "
        "all rows", 10_000,
    ),
    "spgp": Method(
        "SPGP", BASELINE,
        lambda seed, quick, n: Spgp(size=50 if quick else 500, seed=seed), True,
        "sparse pseudo-input Gaussian process with 500 rows, chosen at random, as active set "
        "(GPyTorch)",
    ),
    "additive-vb": Method(
        "Additive-VB", PAPER,
        lambda seed, quick, n: AdditiveGPRegressor(
            Matern72(), learner="vbem", learner_max_iter=ITERATIONS
        ), False,
        "`AdditiveGPRegressor(Matern72(), learner=\"vbem\", learner_max_iter=10)`",
    ),
    "additive-mcmc": Method(
        "Additive-MCMC", PAPER,
        lambda seed, quick, n: AdditiveGPRegressor(Matern72(), random_state=seed, **_draws(quick)),
        True, "`AdditiveGPRegressor(Matern72(), method=\"gibbs\", n_draws=100, n_warmup=50)`",
    ),
    "ppgpr-greedy": Method(
        "PPGPR-Greedy", PAPER,
        lambda seed, quick, n: ProjectionPursuitGPRegressor(
            Matern72(), method="greedy", n_projections=ITERATIONS, random_state=seed
        ), True,
        "`ProjectionPursuitGPRegressor(Matern72(), method=\"greedy\", n_projections=10)`",
    ),
    "ppgpr-mcmc": Method(
        "PPGPR-MCMC", PAPER,
        lambda seed, quick, n: ProjectionPursuitGPRegressor(
            Matern72(), n_projections=2 if quick else "auto", random_state=seed, **_draws(quick)
        ), True,
        "`ProjectionPursuitGPRegressor(Matern72(), method=\"gibbs\", n_draws=100, n_warmup=50)`",
    ),
    "additive": Method(
        "dsgp additive", DEFAULT,
        lambda seed, quick, n: AdditiveGPRegressor(random_state=seed), False,
        "`AdditiveGPRegressor()`: marginal likelihood, multigrid",
    ),
    "pursuit": Method(
        "dsgp pursuit", DEFAULT,
        lambda seed, quick, n: ProjectionPursuitGPRegressor(random_state=seed), True,
        "`ProjectionPursuitGPRegressor()`: directions refitted together",
    ),
    "remainder": Method(
        "dsgp remainder", DEFAULT,
        lambda seed, quick, n: AdditiveGPRegressor(
            interactions="auto", remainder="auto", random_state=seed
        ), True,
        "`AdditiveGPRegressor(interactions=\"auto\", remainder=\"auto\")`",
    ),
}  # fmt: skip
CLASSES = {
    "full-gp": Method(
        "Full-GP", BASELINE, lambda seed, quick, n: FullGPLaplace(), False,
        "Gaussian process by Laplace's approximation (scikit-learn)", 4000,
    ),
    "fic": Method(
        "FIC-50", BASELINE, lambda seed, quick, n: Fic(size=50, seed=seed), True,
        "sparse Gaussian process with an active set of 50 rows (GPyTorch, variational; 20 passes "
        "over the rows or 1500 steps of Adam, whichever is more)",
    ),
    "fic-tenth": Method(
        "FIC-0.1N", BASELINE,
        lambda seed, quick, n: Fic(size=max(n // 10, 1), steps=400, batch=2048, seed=seed), True,
        "the same with a tenth of the rows as active set; fewer and larger steps", 16_000,
    ),
    "ivm": Method(
        "IVM-50", BASELINE, lambda seed, quick, n: Ivm(size=50), False,
        "informative vector machine with an active set of 50 rows (ours)",
    ),
    "ivm-random": Method(
        "IVM-50 (random)", BASELINE,
        lambda seed, quick, n: Ivm(size=50, learn_on="random", seed=seed), True,
        "the same, but hyperparameters are learned on 50 random rows instead of the active set",
    ),
    "svm": Method(
        "SVM", BASELINE, lambda seed, quick, n: Svm(seed=seed), True,
        "support vector machine, probabilities by Platt's method; its two parameters by five-fold "
        "cross-validation on at most 4000 rows (scikit-learn)",
    ),
    "additive-la": Method(
        "Additive-LA", PAPER,
        lambda seed, quick, n: AdditiveGPClassifier(Matern72(), learner_max_iter=CLASS_ITERATIONS),
        False, "`AdditiveGPClassifier(Matern72(), learner_max_iter=25)`",
    ),
    "additive": Method(
        "dsgp interactions", DEFAULT,
        lambda seed, quick, n: AdditiveGPClassifier(interactions="auto", random_state=seed), False,
        "`AdditiveGPClassifier(interactions=\"auto\")`",
    ),
    "pursuit": Method(
        "dsgp pursuit", DEFAULT,
        lambda seed, quick, n: ProjectionPursuitGPClassifier(random_state=seed), True,
        "`ProjectionPursuitGPClassifier()`",
    ),
}  # fmt: skip
METHODS = {REGRESSION: REGRESSIONS, CLASSIFICATION: CLASSES}


def method_named(task: str, name: str) -> Method:
    """Return a method.

    Raises
    ------
    ParameterError
        If there is none of that name for the task.
    """
    if name not in METHODS[task]:
        raise ParameterError(
            f"there is no method {name!r} of {task}; there are: {', '.join(METHODS[task])}"
        )
    return METHODS[task][name]
