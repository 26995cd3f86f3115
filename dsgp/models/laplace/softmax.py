"""Classes of a classifier: weights of their rows, fits of more than two, and probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, ParameterError
from dsgp.laplace.mode import find_mode
from dsgp.likelihoods import Bernoulli
from dsgp.models.clock import Clock
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses
from dsgp.terms import Floats

# Number of points of the rule that averages a softmax, half of them mirrored.
_POINTS = 256
# Number of times that hyperparameters of a softmax are learned, the tolerance before the last time,
# and the largest number of rounds over the classes for a mode.
_LEARNINGS = 2
_EARLY_TOL = 0.02
_ROUNDS = 100
# Largest change of a probability in a round, as a share of the tolerance: what is learned next must
# not depend on the order of the classes.
_SETTLED = 0.01
# Number of rounds from which the next one is extrapolated.
_MEMORY = 6


def row_weights(
    responses: Responses, class_weight: Mapping[Any, float] | str | None, classes: Any
) -> Responses:
    """Multiply the weights of the rows by those of their classes."""
    return weighted_classes(responses, class_factors(responses, class_weight, classes))


def weighted_classes(responses: Responses, factors: Floats | None) -> Responses:
    """Multiply the weights of the rows by the factors of their classes."""
    if factors is None:
        return responses
    rows = responses.rows
    weight = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
    return replace(responses, rows=replace(rows, weight=weight * factors[rows.y.astype(np.intp)]))


def class_factors(
    responses: Responses, class_weight: Mapping[Any, float] | str | None, classes: Any
) -> Floats | None:
    """Factors of the weights of the rows of each class; None for 1."""
    if class_weight is None:
        return None
    rows = responses.rows
    labels = rows.y.astype(np.intp)
    weight = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
    if isinstance(class_weight, Mapping):
        known = {_plain(label) for label in classes}
        if unknown := [label for label in class_weight if label not in known]:
            raise ParameterError(
                f"class_weight names {unknown}, which are not among the classes {sorted(known)}"
            )
        bad = [w for w in class_weight.values() if not (isinstance(w, Real) and 0 < w < np.inf)]
        if bad:
            raise ParameterError(f"class_weight must be positive numbers, got {bad[0]!r}")
        return np.array([class_weight.get(_plain(label), 1.0) for label in classes])
    if class_weight == "balanced":
        total = np.bincount(labels, weights=weight, minlength=len(classes))
        balanced: Floats = weight.sum() / (len(classes) * np.maximum(total, np.finfo(float).tiny))
        return balanced
    raise ParameterError(
        'class_weight must be None, "balanced" or a mapping of labels to weights, got '
        f"{class_weight!r}"
    )


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def softmax(latents: Floats) -> Floats:
    """Probabilities of classes (C, n) for latents (C, n)."""
    probabilities = np.exp(latents - latents.max(axis=0))
    probabilities /= probabilities.sum(axis=0)
    return probabilities


def log_rest(latents: Floats, c: int) -> Floats:
    """Log of the sum of the exponentials of all latents (C, n) but one, (n,)."""
    return logsumexp(np.delete(latents, c, axis=0), axis=0)


def average_softmax(mean: Floats, variance: Floats) -> Floats:
    """Average a softmax over independent normal latents.

    Parameters
    ----------
    mean, variance : ndarray of shape (C, n)

    Returns
    -------
    ndarray of shape (C, n)
        Columns sum to 1. A row's probabilities depend on nothing but its own mean and variance.
    """
    std = np.sqrt(variance)
    total = np.zeros(mean.shape)
    points = _rule(len(mean))
    for point in points:
        away = point[:, None] * std
        total += softmax(mean + away)
        total += softmax(mean - away)
    return total / (2 * len(points))


@cache
def _rule(n_classes: int) -> Floats:
    """Quasi-random normal points, (_POINTS / 2, n_classes)."""
    exponent = (_POINTS // 2).bit_length() - 1
    uniform = qmc.Sobol(n_classes, scramble=True, seed=0).random_base2(exponent)
    return ndtri(np.clip(uniform, 1e-9, 1 - 1e-9))


# ---------------------------------------------------------------- fits of a softmax


@dataclass(frozen=True)
class ClassFits:
    """The result of fits of all classes.

    Attributes
    ----------
    outcomes : list of LaplaceOutcome, one per class
        Each that of one class against the log sum of the others, or against the rest.
    rounds : int
    change : float
        Of any probability in the last round, at most.
    """

    outcomes: list[LaplaceOutcome]
    rounds: int
    change: float


def fit_classes(
    fit: LaplaceFit,
    responses: Responses,
    n_classes: int,
    link: str,
    joint: bool,
    clock: Clock,
    known: Sequence[LaplaceOutcome | None] | None = None,
) -> ClassFits:
    """Fit f of the second of two classes; of more that of each, ``joint``ly or one by one.

    Parameters
    ----------
    fit : LaplaceFit
    responses : Responses
        With numbers of classes as targets.
    n_classes : int
    link : {"logit", "probit"}
        Of two classes, and of one class against the rest.
    joint : bool
        Whether more than two classes have a softmax.
    clock : Clock
    known : sequence of LaplaceOutcome, optional
        Fits of the same rows with some of the terms, to start from.
    """
    if n_classes > 2 and joint:
        return fit_softmax(fit, responses, n_classes, clock, known)
    labels, likelihood = responses.rows.y, Bernoulli(link=link)
    targets = [1] if n_classes == 2 else range(n_classes)
    befores = known or [None for _ in targets]
    outcomes = [
        fit(responses.with_target(labels == c), likelihood, clock, before)
        for c, before in zip(targets, befores, strict=True)
    ]
    return ClassFits(outcomes, 1, 0.0)


def fit_softmax(
    fit: LaplaceFit,
    responses: Responses,
    n_classes: int,
    clock: Clock,
    known: Sequence[LaplaceOutcome | None] | None = None,
) -> ClassFits:
    """Fit f of every class: class after class, until the probabilities of all settle.

    Given the others one class is binary, with minus their log sum as an offset. Hyperparameters
    are learned given the shares of the other classes, and once more given their functions. What
    follows each time is block coordinate ascent to the joint mode, extrapolated (Anderson): what
    is common to all classes would creep.

    Parameters
    ----------
    fit : LaplaceFit
    responses : Responses
        With numbers of classes as targets.
    n_classes : int
    clock : Clock
    known : sequence of LaplaceOutcome, optional
        Fits of the same rows with some of the terms, to start from.
    """
    labels = responses.rows.y
    weight = responses.rows.weight if len(responses.rows.weight) else None
    counts = np.bincount(labels.astype(np.intp), weights=weight, minlength=n_classes)
    latents = np.repeat(np.log(counts / counts.sum())[:, None], len(labels), axis=1)

    rounds, change = 0, np.inf
    outcomes: list[LaplaceOutcome | None] = list(known) if known else [None] * n_classes
    # Hyperparameters that are learned again need not be accurate.
    early = replace(fit, learner_tol=max(fit.learner_tol, _EARLY_TOL))
    procedures = [early] * (_LEARNINGS - 1) + [fit]
    for procedure in procedures if fit.learner is not None else [fit]:
        fitted = []
        # all are fitted given the same others, so that their order does not matter
        for c, before in enumerate(outcomes):
            class_responses = responses.with_target(labels == c, -log_rest(latents, c))
            fitted.append(procedure(class_responses, Bernoulli(), clock, before))
        clock.stage("settle")
        outcomes, latents, more, change = _settled(fit, responses, fitted)
        rounds += 1 + more
    final = []
    for c, (outcome, settled) in enumerate(zip(fitted, outcomes, strict=True)):
        assert settled is not None
        kept = replace(fit, learner=None, level=settled.level)
        class_responses = responses.with_target(labels == c, -log_rest(latents, c))
        class_responses = class_responses.with_kernels(outcome.mode.system.kernels)
        last = kept(class_responses, outcome.likelihood, clock, settled)
        final.append(replace(last, learned=outcome.learned))
    return ClassFits(final, rounds, change)


def _settled(
    fit: LaplaceFit, responses: Responses, fitted: list[LaplaceOutcome]
) -> tuple[list[LaplaceOutcome | None], Floats, int, float]:
    """Find the joint mode for the hyperparameters of fits of each class.

    Returns
    -------
    outcomes : list of LaplaceOutcome
        The fits with the modes found.
    latents : ndarray of shape (C, n)
    rounds : int
    change : float
        Of any probability in the last round, at most.
    """
    rows, labels = responses.rows, responses.rows.y
    modes = [outcome.mode for outcome in fitted]

    def latents_of(functions: Floats) -> Floats:
        return np.stack(
            [
                class_functions[-1] + rows.table.gather(class_functions[:-1])
                for class_functions in functions
            ]
        )

    # The constant of each class after its functions.
    functions = np.stack([np.append(mode.solution.mean, mode.level) for mode in modes])
    latents = latents_of(functions)
    memory = _Extrapolation()
    tol = _SETTLED * fit.tol
    rounds, change = 0, np.inf
    with one_blas_thread():
        while rounds < _ROUNDS and change > tol:
            rounds += 1
            begun, probabilities = functions.copy(), softmax(latents)
            for c, outcome in enumerate(fitted):
                class_responses = responses.with_target(labels == c, -log_rest(latents, c))
                modes[c] = find_mode(
                    class_responses.rows,
                    outcome.likelihood,
                    functions[c, -1],
                    outcome.mode.system.kernels,
                    spreads=responses.spreads,
                    start=functions[c, :-1],
                    constant=outcome.mode.constant,
                    with_pairs=responses.with_pairs,
                    solver=fit.solver,
                    tol=fit.tol,
                    max_iter=fit.max_iter,
                    newton_max_iter=fit.newton_max_iter,
                )
                functions[c] = np.append(modes[c].solution.mean, modes[c].level)
                latents[c] = modes[c].level + rows.table.gather(modes[c].solution.mean)
            change = float(np.max(np.abs(softmax(latents) - probabilities)))
            if change > tol:
                functions = memory.next(begun, functions)
                latents = latents_of(functions)
    with_modes = [replace(outcome, mode=mode) for outcome, mode in zip(fitted, modes, strict=True)]
    return list(with_modes), latents, rounds, change


class _Extrapolation:
    """Anderson extrapolation of a fixed point, by the last rounds' inputs and outputs."""

    def __init__(self) -> None:
        self._rounds: list[tuple[Floats, Floats]] = []

    def next(self, begun: Floats, output: Floats) -> Floats:
        """Return the input of the next round, from the input and the output of the last one."""
        self._rounds = [*self._rounds, (begun, output.copy())][-_MEMORY:]
        error = output - begun
        guess = output.copy()
        if len(self._rounds) > 1:
            steps = np.stack(
                [(out - into - error).ravel() for into, out in self._rounds[:-1]], axis=1
            )
            share = np.linalg.lstsq(steps, -error.ravel(), rcond=1e-8)[0]
            for weight, (_, out) in zip(share, self._rounds[:-1], strict=True):
                guess += weight * (out - output)
        return guess


# ---------------------------------------------------------------- classes


def present_classes(responses: Responses, classes: Any) -> tuple[Responses, Any, NDArray[np.intp]]:
    """Leave out classes that no row of positive weight has; the last are the others' numbers."""
    labels = responses.rows.y.astype(np.intp)
    present = np.bincount(labels, minlength=len(classes)) > 0
    numbers = np.cumsum(present) - 1
    if present.all():
        return responses, classes, numbers
    require_classes(classes[present])
    return responses.with_target(numbers[labels]), classes[present], numbers


def require_classes(classes: Any) -> None:
    """Raise ``DataError`` unless there are two classes at least."""
    if len(classes) < 2:
        only = f"only one class: {classes.tolist()[0]!r}" if len(classes) else "no class"
        raise DataError(
            "a classifier needs rows of at least 2 classes, but the target holds " + only
        )
