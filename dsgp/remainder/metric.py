"""A covariance of all inputs at once: a Matérn with a lengthscale for each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dsgp.errors import ParameterError
from dsgp.terms import Floats

# 2ν of the available Matérn covariances.
SMOOTHNESSES = (1, 3, 5)
# Number of axes that represent the levels of one column in the search for neighbours.
_LEVEL_AXES = 8


@dataclass(frozen=True)
class Metric:
    """Hyperparameters of a Gaussian process of several inputs.

    k(x, x′) = s² ρ(r), r² = Σ_d (x_d − x′_d)² / ℓ_d² over the numbers, and 1 / ℓ_d² for each column
    of levels in which both differ (Rasmussen and Williams 2006, sec. 4.2 and 5.1).

    Attributes
    ----------
    smoothness : {1, 3, 5}
        2ν of the Matérn correlation ρ.
    variance : float
        s².
    lengthscales : ndarray of shape (D,)
        In the units of the inputs; those of levels are free of units.
    noise_variance : float
        Of a row of weight 1.
    n_levels : tuple of int
        Of the inputs that hold levels, by their numbers; the inputs before them are numbers.
    """

    smoothness: int
    variance: float
    lengthscales: Floats
    noise_variance: float
    n_levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.smoothness not in SMOOTHNESSES:
            raise ParameterError(f"smoothness must be one of {SMOOTHNESSES}: {self.smoothness!r}")
        numbers = np.array([self.variance, self.noise_variance, *self.lengthscales])
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise ParameterError(f"hyperparameters must be positive and finite, got {numbers}")

    @property
    def n_numbers(self) -> int:
        """Inputs that are numbers."""
        return len(self.lengthscales) - len(self.n_levels)

    @cached_property
    def apart(self) -> Floats:
        """1 / ℓ² of each input, (D,)."""
        return 1.0 / np.square(self.lengthscales)

    def scaled(self, inputs: Floats) -> Floats:
        """Inputs (n, D) with the numbers divided by their lengthscales, as for ``jit.nearest``."""
        x = np.ascontiguousarray(inputs, dtype=np.float64)
        factors = np.ones(x.shape[1])
        factors[: self.n_numbers] = 1.0 / self.lengthscales[: self.n_numbers]
        return x * factors

    def arguments(self, x: Floats) -> tuple[Any, ...]:
        """Return the first arguments of the functions of ``jit.nearest``."""
        return x, self.n_numbers, self.apart, self.smoothness, self.variance

    def coordinates(self, x: Floats) -> Floats:
        """Return coordinates of scaled inputs in the space in which neighbours are searched.

        Numbers are unchanged. A level is a corner of a simplex, so that distances are those of the
        metric, up to as many levels as there are axes; beyond, it is a random direction.
        """
        if not self.n_levels:
            return x
        axes = [x[:, : self.n_numbers]]
        for d, count in zip(range(self.n_numbers, x.shape[1]), self.n_levels, strict=True):
            # A level that training did not see has a negative number; it is equally far from all
            # others.
            codes = np.where(x[:, d] < 0, count, x[:, d]).astype(np.int64)
            axes.append(math.sqrt(0.5 * self.apart[d]) * _corners(count, d)[codes])
        return np.concatenate(axes, axis=1)

    def covariance(self, first: Floats, second: Floats) -> Floats:
        """Dense covariance of inputs (n, D) and (k, D), (n, k): for few rows."""
        a, b = self.scaled(first), self.scaled(second)
        square = np.zeros((len(a), len(b)))
        for d in range(a.shape[1]):
            difference = a[:, None, d] - b[None, :, d]
            if d < self.n_numbers:
                square += difference**2
            else:
                square += self.apart[d] * (difference != 0)
        r = np.sqrt(square * self.smoothness)
        polynomial = np.ones_like(r)
        if self.smoothness > 1:
            polynomial += r
        if self.smoothness == 5:
            polynomial += r**2 / 3
        return np.asarray(self.variance * polynomial * np.exp(-r))

    def in_units(self, scale: float) -> Metric:
        """Return it for a target ``scale`` times as large."""
        return replace(
            self,
            variance=self.variance * scale**2,
            noise_variance=self.noise_variance * scale**2,
        )


def _corners(n_levels: int, seed: int) -> Floats:
    """Return one unit vector per level, at right angles where there are few, and 0 at the end."""
    if n_levels <= _LEVEL_AXES:
        return np.eye(n_levels + 1, n_levels)
    directions = np.random.default_rng(seed).standard_normal((n_levels + 1, _LEVEL_AXES))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[-1] = 0.0
    return directions
