"""Greedy projection pursuit, the paper's PPGPR-greedy (Section "Efficient Projected Additive GP").

y = Σ_m f_m(x·w_m) + ε (Equations ppadd to ppr), one term after the other: each direction, with the
variance of its function and of the noise, maximises the one-dimensional marginal likelihood of the
residual of the terms before; its posterior mean is subtracted; no term is changed later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsgp.compute import one_blas_thread, run
from dsgp.errors import ParameterError
from dsgp.kernels import Matern
from dsgp.learning.search import NOISE, NOISE_START
from dsgp.pursuit.projection import Rows
from dsgp.pursuit.projection_fit import (
    ProjectionFit,
    fit_projection,
    linear_start,
    random_starts,
)
from dsgp.terms import Floats

# Largest number of terms of the automatic choice.
AUTO_LIMIT = 64
# Share of the rows that are held out to choose the number of terms, and their smallest number;
# never more than a third of the rows.
_HELD_OUT, _FEWEST_HELD_OUT = 0.1, 10
# Number of rows from which they are put into bins along a projection, and the number of bins.
_MANY_ROWS, _BINS = 20_000, 4096
# Every start gets this many iterations; the best ones are then optimised to convergence.
_RACE, _FINALISTS = 12, 2
# Precision of the prior of directions. Without it a term may have a lengthscale shorter than the
# distance of rows, and thereby fit half of the noise: on pumadyn8-nm with a gain of 500 nats,
# because 8 numbers decided which rows are neighbours. With it, a lengthscale of 0.1 costs 15 nats.
_PRECISION = 0.3
# Relative to the target's mean square: smaller residuals are rounding errors.
_NOTHING = 1e-14
_EVALUATION = 5e-7  # seconds per row


class Step(NamedTuple):
    """The result of adding one term.

    Attributes
    ----------
    terms : int
    evidence : float
        Log marginal likelihood of the residual that the term was fitted to.
    validation : float
        NMSE of the sum of the terms so far on the rows held out; NaN where none are.
    """

    terms: int
    evidence: float
    validation: float


@dataclass(frozen=True)
class GreedyFit:
    """Projections found one by one.

    Attributes
    ----------
    directions : ndarray of shape (M, D)
        Scaled so that each projection has a weighted standard deviation of 1, with the sign that
        makes the weight of the most important input positive.
    kernels : list of M kernels
        With their lengthscales along these projections.
    noise_variance : float
        Of a row of weight 1, as learned with the last term.
    trace : list of Step
        Steps of the search for the number of terms if that was automatic, including terms that were
        dropped later.
    n_searched : int
        Number of rows of positive weight in that search.
    fitted : ndarray of shape (n,)
        Sum of the posterior means at the rows.
    """

    directions: Floats
    kernels: list[Matern]
    noise_variance: float
    trace: list[Step]
    n_searched: int
    fitted: Floats


def greedy(
    rows: Rows,
    kernel: Matern,
    *,
    n_projections: int | None = None,
    n_starts: int = 4,
    noise_variance: float | None = None,
    patience: int = 2,
    tolerance: float = 0.005,
    random: np.random.Generator,
    watch: Callable[[Step], None] = lambda step: None,
) -> GreedyFit:
    """Find projections one by one, each for the residual of those before.

    Parameters
    ----------
    rows : Rows
        Inputs in standard units, (n, D), and a centred target of variance about 1, (n,).
    kernel : kernel
        Its type, Matérn 3/2 or smoother, and a fixed variance are those of all terms.
    n_projections : int, optional
        Number of terms; fewer if nothing is left to explain. None: as many as lower the NMSE on a
        tenth of the rows, held out; as many are then fitted to all rows, each from the direction
        found before and from the linear one.
    n_starts : int
        Number of initial directions of each term: that of a linear regression, as in the paper, and
        random ones.
    noise_variance : float, optional
        Of a row of weight 1, kept as it is. None: learned with every term.
    patience : int
        Number of consecutive terms without a gain on the held-out rows, after which the automatic
        choice ends.
    tolerance : float
        A gain lowers the NMSE by more than this share of it.
    random : Generator
        The result is the same for the same generator, whatever the number of threads.
    watch : callable
        Called with each step.

    Returns
    -------
    GreedyFit

    Notes
    -----
    From 20 000 rows on, projections are put into 4096 bins: see ``projected_evidence``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Matern52
    >>> from dsgp.pursuit.greedy import greedy
    >>> from dsgp.pursuit.projection import Rows
    >>> random = np.random.default_rng(0)
    >>> inputs = random.standard_normal((300, 3))
    >>> target = np.sin(2 * inputs @ [0.6, 0.8, 0.0]) + 0.1 * random.standard_normal(300)
    >>> found = greedy(Rows(inputs, target, np.empty(0)), Matern52(), random=random)
    >>> abs(found.directions[0]).round(1)
    array([0.6, 0.8, 0. ])
    """
    for name, value, least in (("n_starts", n_starts, 1), ("patience", patience, 1)):
        if value < least:
            raise ParameterError(f"{name} must be at least {least}, got {value!r}")
    if n_projections is not None and n_projections < 0:
        raise ParameterError(f"n_projections must be at least 0 or None, got {n_projections!r}")
    with one_blas_thread():
        if n_projections is not None:
            pursuit = _Pursuit(rows, kernel, n_starts, random, noise_variance)
            while len(pursuit.fits) < n_projections and pursuit.extend():
                watch(pursuit.trace[-1])
            return pursuit.result(pursuit)
        search, terms = _chosen_terms(
            rows, kernel, n_starts, noise_variance, patience, tolerance, random, watch
        )
        final = _Pursuit(rows, kernel, 1, random, noise_variance)
        for term in terms:
            if not final.extend(term):
                break
        return final.result(search)


def _chosen_terms(
    rows: Rows,
    kernel: Matern,
    n_starts: int,
    noise_variance: float | None,
    patience: int,
    tolerance: float,
    random: np.random.Generator,
    watch: Callable[[Step], None],
) -> tuple[_Pursuit, list[_Term]]:
    """Add terms while they improve held-out predictions; return the search, and those that do."""
    held_out = _held_out(rows, random)
    weight = rows.weight if rows.weight.size else np.ones(len(rows))
    # A row of weight 0 gets a prediction but has no influence.
    part = replace(rows, weight=np.where(held_out, 0.0, weight))
    validation = np.where(held_out, weight, 0.0)
    search = _Pursuit(part, kernel, n_starts, random, noise_variance, validation)
    best, score, failures = 0, 1.0, 0
    while failures < patience and held_out.any() and len(search.fits) < AUTO_LIMIT:
        if not search.extend():
            break
        watch(search.trace[-1])
        if search.trace[-1].validation < (1 - tolerance) * score:
            best, score, failures = len(search.fits), search.trace[-1].validation, 0
        else:
            failures += 1
    return search, search.fits[:best]


def _held_out(rows: Rows, random: np.random.Generator) -> NDArray[np.bool_]:
    """Choose rows of positive weight for validation."""
    seen = np.flatnonzero(rows.weight > 0) if rows.weight.size else np.arange(len(rows))
    count = max(round(_HELD_OUT * len(seen)), min(_FEWEST_HELD_OUT, len(seen) // 3))
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[random.choice(seen, count, replace=False)] = True
    return chosen


class _Pursuit:
    """Terms found so far, and their residual."""

    def __init__(
        self,
        rows: Rows,
        kernel: Matern,
        n_starts: int,
        random: np.random.Generator,
        noise_variance: float | None = None,
        validation: Floats | None = None,
    ) -> None:
        self.rows = rows
        self.kernel = kernel
        self.n_starts = n_starts
        self.random = random
        self.noise_variance = noise_variance
        self.validation = validation  # weights of the held-out rows
        self.n_bins = _BINS if len(rows) >= _MANY_ROWS else None
        self.mean_square = float(rows.share @ rows.target**2)
        fixed = noise_variance
        self.noise_bounds = NOISE if fixed is None else (fixed, fixed)
        # Only the last fit keeps arrays as long as the rows.
        self.fits: list[_Term] = []
        self.trace: list[Step] = []
        self.fitted = np.zeros(len(rows))

    def extend(self, known: _Term | None = None) -> bool:
        """Add a term to fit the residual; return whether there was anything to fit.

        A term ``known`` from other rows is a further initial value.
        """
        residual = self.rows.target - self.fitted
        left = float(self.rows.share @ residual**2)
        # If all weights are 0 the shares are equal, but there is nothing to fit.
        something = self.rows.inputs.shape[1] > 0 and self.rows.n_positive > 0
        if left <= _NOTHING * self.mean_square or not something:
            return False
        # Not ``replace``: cached properties of the inputs are copied.
        rows = Rows(self.rows.inputs, residual, self.rows.weight)
        for name in ("share", "centre", "deviation", "correlation", "n_positive", "log_weight"):
            rows.__dict__[name] = getattr(self.rows, name)
        starts = linear_start(rows)[None]
        if self.n_starts > 1:
            drawn = random_starts(starts.shape[1], self.n_starts - 1, self.random)
            starts = np.vstack([starts, drawn / rows.scale])
        # A constant input is not informative, and must not count in the length of a direction.
        starts = np.where(rows.deviation > 0, starts, 0.0)
        noise = NOISE_START * left if self.noise_variance is None else self.noise_variance
        begins = [_Term(start, self.kernel, noise) for start in starts]
        if known is not None:
            begins.append(known)
        fit = self._best(rows, begins)
        self.fitted += fit.fitted
        self.fits.append(_Term(fit.direction, fit.kernel, fit.noise_variance))
        self.trace.append(Step(len(self.fits), fit.evidence.value, self._score()))
        return True

    def _best(self, rows: Rows, begins: list[_Term]) -> ProjectionFit:
        def fits(begins: list[_Term], max_iter: int) -> list[ProjectionFit]:
            tasks = [
                partial(
                    fit_projection,
                    rows,
                    *begin,
                    n_bins=self.n_bins,
                    relevance=_PRECISION * rows.scale**2,
                    noise_bounds=self.noise_bounds,
                    max_iter=max_iter,
                )
                for begin in begins
            ]
            # In this process: every task would have to send all rows.
            work = _EVALUATION * len(rows) * max_iter * len(tasks)
            fitted = run(tasks, work, in_place=True)
            # The first of equal ones, because sorted() is stable.
            return sorted(fitted, key=lambda fit: -fit.value)

        if len(begins) > 1:
            raced = fits(begins, _RACE)[:_FINALISTS]
            begins = [_Term(fit.direction, fit.kernel, fit.noise_variance) for fit in raced]
        return fits(begins, 100)[0]

    def _score(self) -> float:
        if self.validation is None:
            return math.nan
        total = float(self.validation @ self.rows.target**2)
        errors = float(self.validation @ (self.rows.target - self.fitted) ** 2)
        return errors / total if total > 0 else 1.0

    def result(self, search: _Pursuit) -> GreedyFit:
        directions = np.empty((len(self.fits), self.rows.inputs.shape[1]))
        kernels = []
        for m, fit in enumerate(self.fits):
            scaled = fit.direction * self.rows.scale
            spread = math.sqrt(max(float(scaled @ self.rows.correlation @ scaled), 0.0))
            # If no input varies, a direction has no length.
            spread = spread if spread > 0 else 1.0
            # x·w and −x·w are equivalent: the sign makes the largest weight positive.
            sign = 1.0 if scaled[np.argmax(np.abs(scaled))] >= 0 else -1.0
            directions[m] = sign * fit.direction / spread
            kernels.append(fit.kernel.with_parameters(lengthscale=1 / spread))
        noise = self.fits[-1].noise_variance if self.fits else self.mean_square
        noise = noise if self.noise_variance is None else self.noise_variance
        return GreedyFit(
            directions, kernels, noise, search.trace, search.rows.n_positive, self.fitted
        )


class _Term(NamedTuple):
    """A fitted projection, its kernel with lengthscale 1, or initial values of one."""

    direction: Floats
    kernel: Matern
    noise_variance: float
