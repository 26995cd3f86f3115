"""Slice updates of a few numbers, along ellipses of any Student t distribution.

Elliptical slice sampling (Murray, Adams & MacKay 2010) takes its ellipses from the prior. With
thousands of rows the posterior of a direction is a thousand times narrower, and not in all
directions alike: along its length and log s² it is wide. A step then is as small as the narrowest
width, and mixing is too slow to be of use. The generalised form (Nishihara, Murray & Adams 2014)
takes the ellipses from any Student t distribution T and slices π/T instead of the likelihood, which
leaves the posterior π invariant whatever T is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from dsgp.terms import Floats

# Degrees of freedom of the ellipses: heavy tails reach values that the warm-up has not visited.
_FREEDOM = 5.0
# An interval that has been shrunk this often is a point.
_MOST_SHRINKS = 200
# Draws of a warm-up between adaptations, and the number of draws, per parameter, that the initial
# covariance counts for beside them.
_ADAPT_EVERY, _TRUST = 5, 2.0


class Ellipse:
    """A multivariate Student t distribution, and slice updates along its ellipses.

    Parameters
    ----------
    mean : ndarray of shape (d,)
    covariance : ndarray of shape (d, d)
        The scale matrix; positive definite.
    """

    def __init__(self, mean: Floats, covariance: Floats) -> None:
        self.mean = mean
        self.covariance = covariance
        self.factor = np.linalg.cholesky(covariance)

    def square(self, theta: Floats) -> float:
        """(θ − μ)ᵀ Σ⁻¹ (θ − μ)."""
        scaled = solve_triangular(self.factor, theta - self.mean, lower=True, check_finite=False)
        return float(scaled @ scaled)

    def log_density(self, theta: Floats) -> float:
        """Log density up to a constant."""
        return -0.5 * (_FREEDOM + len(theta)) * math.log1p(self.square(theta) / _FREEDOM)

    def update(
        self,
        theta: Floats,
        value: float,
        log_density: Callable[[Floats], float],
        random: np.random.Generator,
    ) -> tuple[Floats, float, int]:
        """Take a step that leaves a density invariant (Nishihara, Murray & Adams 2014, Alg. 2).

        Parameters
        ----------
        theta : ndarray of shape (d,)
        value : float
            ``log_density(theta)``.
        log_density : callable
        random : Generator

        Returns
        -------
        theta, its log density, and how many densities were computed
        """
        # T is a scale mixture of normals: given its scale, the ellipse is a normal one.
        shape = 0.5 * (_FREEDOM + len(theta))
        scale = 0.5 * (_FREEDOM + self.square(theta)) / random.gamma(shape)
        other = math.sqrt(scale) * (self.factor @ random.standard_normal(len(theta)))
        height = value - self.log_density(theta) - random.exponential()
        angle = random.uniform(0.0, 2 * math.pi)
        low, high = angle - 2 * math.pi, angle
        for tries in range(1, _MOST_SHRINKS + 1):
            new = self.mean + (theta - self.mean) * math.cos(angle) + other * math.sin(angle)
            new_value = log_density(new)
            if new_value - self.log_density(new) > height:
                return new, new_value, tries
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = random.uniform(low, high)
        return theta, value, _MOST_SHRINKS


class Adapted:
    """A scale matrix that becomes that of the later half of a warm-up.

    Parameters
    ----------
    mean : ndarray of shape (d,)
    covariance : ndarray of shape (d, d)
        The initial one. It counts for some draws beside those of the warm-up.
    """

    def __init__(self, mean: Floats, covariance: Floats) -> None:
        self.begun = covariance
        self.ellipse = Ellipse(mean.copy(), covariance)  # a view would change with the state
        self.history: list[Floats] = []

    def add(self, theta: Floats, last: bool) -> None:
        """Learn from a draw of the warm-up; after the last one nothing changes."""
        self.history.append(theta.copy())
        if len(self.history) % _ADAPT_EVERY and not last:
            return
        draws = np.array(self.history[len(self.history) // 2 :])
        mean = draws.mean(axis=0)
        deviations = draws - mean
        trust = _TRUST * len(theta)
        blended = trust * self.begun + deviations.T @ deviations
        self.ellipse = Ellipse(mean, blended / (trust + len(draws)))
        if last:
            self.history = []
