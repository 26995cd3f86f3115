"""Noise whose variance varies with the row, learned alternately with the mean.

Given the mean, log σ² is a generalized additive model of squared residuals; given log σ², the mean
is a fit to weighted rows. Both are fits as there are without the other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from dsgp.additive.survey import of_positive_weight
from dsgp.compute import over_chunks
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError
from dsgp.learning.search import NOISE
from dsgp.likelihoods import Gamma
from dsgp.models.base import FittedModel
from dsgp.models.clock import Clock
from dsgp.models.gaussian.beyond import Whole
from dsgp.models.gaussian.interactions import GaussianFits
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.target import Target
from dsgp.models.interactions.search import Found
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.models.laplace.rows import Responses
from dsgp.models.noise import LEAST_LEFT, VaryingNoise
from dsgp.rows.sources import ReweightedSource, Rows, Source
from dsgp.terms import BoundTerm, Floats

# Distribution of a squared normal residual, with its mean as parameter.
SQUARED_NORMAL = Gamma(shape=0.5, fixed_shape=True)
# Largest number of rounds, and the gain of the leave-one-out density, in nats per row, at which
# they end.
_ROUNDS, _SETTLED = 12, 1e-3
# Excess of the mean squared error, and the number of its standard errors, from which the mean
# counts as worse.
_WORSE, _SURELY = 0.02, 3.0
# Smallest share of its own information that the other rows must leave of a row whose error is
# compared.
_HALF = 0.5


@dataclass(frozen=True)
class VaryingOutcome:
    """The result of a fit with varying noise.

    Attributes
    ----------
    whole : Whole
        The mean, fitted to rows weighted by the noise.
    outcome : LaplaceOutcome
        Of log σ².
    noise : VaryingNoise
    converged : bool
        Whether mean and noise settled.
    notes : list of str
    excess : float
        Share by which squared leave-one-out errors of the mean are larger than with constant noise;
        0 where chance explains it.
    """

    whole: Whole
    outcome: LaplaceOutcome
    noise: VaryingNoise
    converged: bool
    notes: list[str]
    excess: float = 0.0

    def as_whole(self) -> Whole:
        """Return the mean, whose facts describe the noise, too."""
        facts = self.whole.facts.with_notes(self.notes)
        converged = facts.converged and self.converged
        return replace(self.whole, facts=replace(facts, converged=converged))

    def warn(self) -> None:
        """Warn of what did not converge; called by ``fit``."""
        if not self.converged:
            warnings.warn(
                f"mean and noise variance had not settled after {_ROUNDS} rounds, or the "
                "hyperparameters of the noise terms had not converged: see learner_notes_",
                ConvergenceWarning,
                stacklevel=3,
            )
        if self.excess > 0:
            warnings.warn(
                f"noise terms make the mean worse: squared leave-one-out errors of the training "
                f"rows are {self.excess:.0%} larger than with constant noise. Rows with little "
                "noise count most for the mean, and its terms cannot express what the others "
                "hold: add interactions= or a remainder=, or leave noise_terms out if the mean "
                "matters more than the width of intervals",
                DataWarning,
                stacklevel=3,
            )


@dataclass(frozen=True)
class _Judged:
    """Residuals of the rows of positive weight, in their order."""

    squares: Floats
    left: Floats
    density: float

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        return cls(
            np.concatenate([part.squares for part in parts]),
            np.concatenate([part.left for part in parts]),
            math.fsum(part.density for part in parts),
        )

    @property
    def errors(self) -> Floats:
        """Squared leave-one-out errors of the mean, times the rows' weights, (n,).

        NaN where a row has little left of itself: there they are sensitive to what is approximated.
        """
        return np.where(self.left >= _HALF, self.squares / self.left, np.nan)


@dataclass(frozen=True)
class VaryingFit:
    """A fit in which mean and noise alternate.

    Attributes
    ----------
    laplace : LaplaceFit
        Of log σ².
    """

    laplace: LaplaceFit

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self | None:
        """Check and take the parameters of an estimator; None where the noise is constant.

        Raises
        ------
        ParameterError
            If noise terms do not go with other parameters.
        """
        asked = parameters["noise_terms"]
        if asked is None or asked is False:
            return None
        if parameters["method"] is not None:
            raise ParameterError(
                f"method={parameters['method']!r} draws the hyperparameters of the terms and one "
                "noise variance, and noise_terms= makes the noise a function: leave one of them out"
            )
        if parameters["learner"] is None or parameters["fixed_noise"]:
            kept = "learner=None" if parameters["learner"] is None else "fixed_noise=True"
            raise ParameterError(
                f"{kept} keeps the noise variance as given, and noise_terms= learns it row by row: "
                "leave one of them out (known variances are weights, sample_weight=1/variance)"
            )
        return cls(
            LaplaceFit.of(
                {
                    "intercept": None,
                    "solver": "multigrid",
                    "learner": "marginal",
                    "bins": parameters["bins"],
                    "tol": 1e-4,
                    "max_iter": None,
                    "newton_max_iter": 100,
                    "learner_tol": 1e-3,
                    "learner_max_iter": 50,
                    "random_state": None,
                    "verbose": parameters["verbose"],
                }
            )
        )

    def __call__(
        self,
        fitted: Callable[[Source, Whole | None], Whole],
        source: Source,
        target: Target,
        terms: list[BoundTerm],
        clock: Clock,
    ) -> VaryingOutcome:
        """Fit mean and noise alternately, until leave-one-out predictions no longer improve.

        Parameters
        ----------
        fitted : callable
            Fits the mean to the rows of a source, given an earlier fit to start from.
        source : Source
        target : Target
            What the model sees of the target.
        terms : list of BoundTerm
            Of log σ².
        clock : Clock

        Raises
        ------
        DataError
            If the mean leaves nothing of any row.
        """
        whole = fitted(source, None)
        rows, names = target.of_rows(source), tuple(source.names)
        clock.stage("read rows of the noise")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # there was a warning already
            responses = self.laplace.prepare(rows, terms, clock)
        # Bins that are too wide for the target may be narrow enough for its squared residuals.
        responses = replace(responses, too_wide={}, target=f"squared residuals of {source.target}")
        judged = _judged(whole, None, rows)
        n_rows, constant, errors = len(judged.squares), judged.density, judged.errors
        # If the rows have no noise at all, the likelihood increases as the variance falls to 0: no
        # variance is below what a constant one could be.
        least = NOISE[0] * whole.found.outcome.training.noise_scale
        best: VaryingOutcome | None = None
        outcome, settled, before, n_rounds = None, False, -np.inf, 0
        while not settled and n_rounds < _ROUNDS:
            n_rounds += 1
            clock.stage("learn the noise")
            outcome = self._noise(responses, judged, least, outcome, clock)
            model = outcome.model()
            model.prepare(with_std=False)
            weigh = partial(_precision, model, names, model.intercept)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # the first fit has warned already
                whole = fitted(ReweightedSource(source, weigh), whole)
            level = math.log(max(whole.noise_variance, np.finfo(float).tiny))
            noise = VaryingNoise(replace(model, intercept=level))
            judged = _judged(whole, noise, rows)
            if best is None or judged.density > before:
                excess = _excess(judged.errors, errors)
                best = VaryingOutcome(whole, outcome, noise, True, [], excess)
            settled = judged.density < before + _SETTLED * n_rows
            before = max(before, judged.density)
        assert best is not None
        note = (
            f"noise terms in {n_rounds} rounds: leave-one-out log densities of training rows "
            f"{before / n_rows:.4g} on average, {constant / n_rows:.4g} with constant noise"
        )
        if best.excess > 0:
            note += (
                f"; squared leave-one-out errors of the mean are {best.excess:.0%} larger than "
                "with it"
            )
        converged = settled and best.outcome.converged
        return replace(best, converged=converged, notes=[note, *best.outcome.notes()])

    def _noise(
        self,
        responses: Responses,
        judged: _Judged,
        least: float,
        before: LaplaceOutcome | None,
        clock: Clock,
    ) -> LaplaceOutcome:
        """Fit log σ² to squared residuals, each of which counts by what it has left.

        They are taken to be ``least`` at least; that of a row of weight 1 is its variance.
        """
        average = float(np.average(judged.squares, weights=judged.left))
        if not average > 0:
            raise DataError(
                "the mean fits every row exactly, so that there is no noise whose variance could "
                "vary: leave noise_terms out"
            )
        y = np.maximum(judged.squares, least)
        rows = replace(responses.rows, y=y, weight=judged.left)
        return self.laplace(replace(responses, rows=rows), SQUARED_NORMAL, clock, before)


def _excess(errors: Floats, constant: Floats) -> float:
    """Share by which squared errors are larger than others of the same rows; 0 if by chance."""
    known = np.isfinite(errors) & np.isfinite(constant)
    if np.count_nonzero(known) < 2:
        return 0.0
    excess, base = (errors - constant)[known], float(constant[known].mean())
    surely = _SURELY * float(np.std(excess)) / math.sqrt(len(excess))
    share = float(excess.mean()) / max(base, np.finfo(float).tiny)
    return share if share > _WORSE and float(excess.mean()) > surely else 0.0


def refitted(
    fits: GaussianFits, found: Found[GaussianOutcome], terms: list[BoundTerm]
) -> Found[GaussianOutcome]:
    """Fit terms and the interactions that were found to rows with other weights."""
    names = {term.name for term in terms}
    pairs = [term.bound for term in found.outcome.terms() if term.name not in names]
    return replace(found, outcome=fits.fitted(terms, pairs, found.outcome))


def _precision(model: FittedModel, names: tuple[str, ...], level: float, rows: Rows) -> Floats:
    """Precision of rows as a multiple of that where the noise terms are at their means."""
    by_name = dict(zip(names, rows.columns, strict=True))
    inputs = Rows([by_name[name] for name in model.used_columns], n_rows=len(rows))
    return np.exp(level - model.moments(inputs, False)[0])


def _judged(whole: Whole, noise: VaryingNoise | None, source: Source) -> _Judged:
    """Residuals of all rows, in one pass."""
    whole.latent.prepare(with_std=True)
    judge = partial(_judged_rows, whole, noise, tuple(source.names))
    return _Judged.join(list(over_chunks(source.chunks(), judge, "judge")))


def _judged_rows(
    whole: Whole, noise: VaryingNoise | None, names: tuple[str, ...], rows: Rows
) -> _Judged:
    r"""Squared residuals, corrected for what each row contributes to its own fit.

    .. math:: r_i^2 w_i / (1 - h_i), \quad h_i = w_i v_i / \sigma_i^2

    estimates σ² without bias, and counts as 1 − h_i of a squared normal variable: then gradients by
    log σ² are those of the marginal likelihood of the rows, with f integrated out.
    """
    rows = of_positive_weight(rows)
    assert rows.y is not None
    by_name = dict(zip(names, rows.columns, strict=True))
    latent = whole.latent
    used = replace(rows, columns=[by_name[name] for name in latent.used_columns], n_rows=len(rows))
    if noise is not None:
        used = noise.beside(used, by_name)
    mean, variance, sigma = np.empty((3, len(rows)))

    def block(part: slice) -> None:
        some = used.part(part)
        mean[part], variance[part] = latent.moments(some, True)
        sigma[part] = whole.noise_variance if noise is None else noise.typical(some)

    latent.by_blocks(block, len(rows), True)
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    left = np.maximum(1.0 - weight * variance / sigma, LEAST_LEFT)
    squares = weight * (rows.y - mean) ** 2 / left
    density = -0.5 * (squares / sigma + np.log(2 * np.pi * sigma / (weight * left)))
    return _Judged(squares, left, float(density.sum()))
