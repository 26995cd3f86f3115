"""Noise around a fitted f: the same for all rows, or with a variance that varies with the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dsgp.models.base import FittedModel
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Prefix of the roles of inputs of the noise among the further numbers of rows.
_ROLE = "noise "
# Number of values of log σ² over which predictions average.
_NODES = 9
# Smallest share of a row's information that other rows are assumed to leave: if the noise is nearly
# 0, the approximate variance of f may exceed what a single row allows.
LEAST_LEFT = 1e-3
# Steps of Newton's method for a quantile, and the relative change at which they end; it converges
# quadratically from below.
_STEPS, _CLOSE = 100, 1e-12


@dataclass(frozen=True)
class Noise:
    """Noise variance of rows of weight 1, as a mixture where it is not known exactly.

    Attributes
    ----------
    mean : float or ndarray of shape (n,)
        Expected variance.
    nodes : ndarray of shape (K, 1) or (K, n)
        Variances.
    shares : ndarray of shape (K,)
        Their probabilities.
    """

    mean: Any
    nodes: Floats
    shares: Floats

    @classmethod
    def constant(cls, variance: float) -> Noise:
        """Noise of one known variance."""
        return cls(variance, np.full((1, 1), variance), np.ones(1))

    @property
    def is_mixture(self) -> bool:
        """Whether there are several nodes."""
        return len(self.shares) > 1

    def reach(self, variance: Floats, probability: float) -> Floats:
        """Distance from the mean to a quantile of a new observation; f has this variance, (n,).

        All nodes have the same mean, so that the distribution is symmetric around it.
        """
        total = np.sqrt(variance + self.nodes)
        sign = 1.0 if probability >= 0.5 else -1.0
        upper = max(probability, 1 - probability)
        score = float(ndtri(upper))
        if not self.is_mixture:
            return np.asarray(sign * score * total[0])
        # Above the mean the distribution function is concave: Newton's method that begins below the
        # quantile stays below it.
        reach = score * total.min(axis=0)
        for _ in range(_STEPS):
            scores = reach / total
            short = upper - self.shares @ ndtr(scores)
            slope = self.shares @ (np.exp(-0.5 * scores**2) / total) / np.sqrt(2 * np.pi)
            step = np.maximum(short, 0.0) / np.maximum(slope, np.finfo(float).tiny)
            reach = reach + step
            if (step <= _CLOSE * reach).all():
                break
        return np.asarray(sign * reach)

    def log_density(self, residual: Floats, variance: Floats) -> Floats:
        """Log density of observations at a distance from the mean of f, (n,)."""
        total = variance + self.nodes
        log_densities = -0.5 * (residual**2 / total + np.log(2 * np.pi * total))
        if not self.is_mixture:
            return np.asarray(log_densities[0])
        top = log_densities.max(axis=0)
        return np.asarray(top + np.log(self.shares @ np.exp(log_densities - top)))

    def cdf(self, residual: Floats, variance: Floats) -> Floats:
        """Probability of observations below those at a distance from the mean of f, (n,)."""
        return np.asarray(self.shares @ ndtr(residual / np.sqrt(variance + self.nodes)))


@dataclass(frozen=True)
class VaryingNoise:
    r"""A noise variance that is a function of the row: log σ²(x) is a sum of terms.

    Attributes
    ----------
    latent : FittedModel
        log σ²; its intercept is that of a row where every term is at its mean.
    """

    latent: FittedModel

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it depends on."""
        return self.latent.used_columns

    @property
    def variance(self) -> float:
        """Of a row of weight 1 where every term is at its mean over the training rows."""
        return float(np.exp(self.latent.intercept))

    def beside(self, rows: Rows, by_name: dict[str, Floats]) -> Rows:
        """Return rows that carry the inputs of the noise."""
        inputs = {f"{_ROLE}{name}": by_name[name] for name in self.columns}
        return replace(rows, extra={**rows.extra, **inputs})

    def inputs(self, rows: Rows) -> dict[str, Floats]:
        """Return the inputs that ``beside`` gave rows, by their names."""
        return {name: rows.extra[f"{_ROLE}{name}"] for name in self.columns}

    def _rows(self, rows: Rows) -> Rows:
        return Rows(list(self.inputs(rows).values()), n_rows=len(rows))

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        self.latent.prepare(with_std)

    def typical(self, rows: Rows) -> Floats:
        """The variance by which training rows were weighted, exp of the mean of log σ², (n,)."""
        return np.exp(self.latent.moments(self._rows(rows), False)[0])

    def at(self, rows: Rows) -> Noise:
        """Return the noise of rows, with what is unknown of its variance."""
        log_mean, log_variance = self.latent.moments(self._rows(rows), True)
        assert log_variance is not None
        points, shares = _hermite()
        nodes = np.exp(log_mean + points[:, None] * np.sqrt(log_variance))
        return Noise(np.exp(log_mean + 0.5 * log_variance), nodes, shares)

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> tuple[Floats, bool]:
        """Draw variances from their joint posterior, (n_samples, n); and whether solves ended."""
        solved = self.latent.sample([self._rows(some) for some in rows], n_samples, random, tol)
        return np.exp(solved.values), solved.converged


@cache
def _hermite() -> tuple[Floats, Floats]:
    """Nodes and probabilities of the Gauss–Hermite rule of a standard normal variable."""
    points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    return points, weights / weights.sum()
