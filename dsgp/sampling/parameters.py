"""Hyperparameters as vectors of logs, and their priors.

Everything is in units where the target has variance 1 and the weights mean 1, as the equations of a
fit are. The logs of the free parameters of all terms come one after the other, that of the noise
variance last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.learning.search import SHORTEST, search_for
from dsgp.priors import HyperPriors
from dsgp.terms import Cells, Floats

# Standard deviation of the log of a parameter that has no unit.
_UNITLESS_STD = 1.0
# Largest number of draws of a prior until one is within its bounds.
_MOST_TRIES = 10_000


@dataclass(frozen=True)
class TermPrior:
    """Prior of the free parameters of one kernel, in their logs θ.

    Attributes
    ----------
    kernel : Kernel
        With all its parameters; those that are not free stay.
    names : tuple of str
        Free parameters.
    centre, std : ndarray of shape (n_names,)
        Of the normal priors; those of variances are unused.
    is_variance : ndarray of bool, shape (n_names,)
        Parameters whose inverse has a gamma prior.
    lower, upper : ndarray of shape (n_names,)
    shape, rate : float
        Of the gamma priors.
    """

    kernel: Kernel
    names: tuple[str, ...]
    centre: Floats
    std: Floats
    is_variance: NDArray[np.bool_]
    lower: Floats
    upper: Floats
    shape: float
    rate: float

    @classmethod
    def of(
        cls, kernel: Kernel, cells: Cells, weight: Floats, n_terms: int, priors: HyperPriors
    ) -> TermPrior:
        """Place the priors where the inputs of a term are.

        Parameters
        ----------
        kernel : Kernel
            With all its parameters.
        cells : Cells
        weight : ndarray of shape (n_cells,)
            Of the rows in each cell.
        n_terms : int
        priors : HyperPriors
        """
        scale = cells.scale(weight)
        shortest = None if scale is None else min(SHORTEST * scale.width, scale.spacing)
        search = search_for(kernel, cells, weight, n_terms, shortest=shortest or None)
        lengthscales = [name for name in kernel.parameters if name.startswith("lengthscale")]
        centre, std, is_variance = [], [], []
        for name in search.names:
            is_variance.append(name.startswith("variance"))
            if name in lengthscales:
                centre.append(math.log(search.widths[name]) + priors.lengthscale_mean)
                std.append(priors.lengthscale_std)
            else:
                centre.append(0.0 if is_variance[-1] else math.log(kernel.limits(name)[1]))
                std.append(_UNITLESS_STD)
        return cls(
            search.start,
            search.names,
            np.array(centre),
            np.array(std),
            np.array(is_variance, dtype=bool),
            search.lower,
            search.upper,
            priors.variance_shape,
            priors.variance_rate,
        )

    @property
    def start(self) -> Floats:
        """Logs of the free parameters of ``kernel``."""
        return np.array([math.log(self.kernel.value(name) or 1.0) for name in self.names])

    def kernel_of(self, theta: Floats) -> Kernel:
        """Return the kernel with other values of its free parameters."""
        values = np.exp(np.clip(theta, self.lower, self.upper))
        return self.kernel.with_parameters(
            **{name: float(value) for name, value in zip(self.names, values, strict=True)}
        )

    def log_density(self, theta: Floats) -> float:
        """Log prior density of θ up to a constant; −inf beyond the bounds."""
        if not ((theta >= self.lower) & (theta <= self.upper)).all():
            return -math.inf
        normal = -0.5 * ((theta - self.centre) / self.std) ** 2
        # τ = e^−θ ~ Gamma(shape, rate), with the Jacobian of the logarithm.
        gamma = -self.shape * theta - self.rate * np.exp(-theta)
        return float(np.sum(np.where(self.is_variance, gamma, normal)))

    def draw(self, random: np.random.Generator) -> Floats:
        """Draw θ from its prior."""
        theta = np.empty(len(self.names))
        for k, is_variance in enumerate(self.is_variance):
            for _ in range(_MOST_TRIES):
                if is_variance:
                    theta[k] = -math.log(max(random.gamma(self.shape) / self.rate, 1e-300))
                else:
                    theta[k] = random.normal(self.centre[k], self.std[k])
                if self.lower[k] <= theta[k] <= self.upper[k]:
                    break
            theta[k] = np.clip(theta[k], self.lower[k], self.upper[k])
        return theta


@dataclass(frozen=True)
class NoisePrior:
    """Prior of the noise variance: 1/σ² ~ Gamma(shape, rate), within bounds of σ².

    Attributes
    ----------
    shape, rate : float
    lower, upper : float
        The same where σ² is known.
    """

    shape: float
    rate: float
    lower: float
    upper: float

    @property
    def is_fixed(self) -> bool:
        """Whether σ² is known."""
        return not self.lower < self.upper

    def log_density(self, log_variance: float) -> float:
        """Log prior density of log σ² up to a constant; −inf beyond the bounds."""
        if not math.log(self.lower) <= log_variance <= math.log(self.upper):
            return -math.inf
        return -self.shape * log_variance - self.rate * math.exp(-log_variance)

    def draw(self, random: np.random.Generator, squares: float = 0.0, n_rows: float = 0) -> float:
        """Draw σ² given residuals: their weighted sum of squares and their number."""
        if self.is_fixed:
            return self.lower
        shape, rate = self.shape + 0.5 * n_rows, self.rate + 0.5 * squares
        variance = self.upper
        for _ in range(_MOST_TRIES):
            variance = rate / max(random.gamma(shape), 1e-300)
            if self.lower <= variance <= self.upper:
                break
        return float(np.clip(variance, self.lower, self.upper))


@dataclass(frozen=True)
class HyperModel:
    """An additive model with priors of its hyperparameters.

    Attributes
    ----------
    equations : Equations
    terms : tuple of TermPrior
    noise : NoisePrior
    noise_variance : float
        Initial value of the chains.
    constant : float or None
        As for ``AdditiveSystem``: precision of the prior of a constant beside the terms, 0 for a
        flat one. None: there is no constant.
    """

    equations: Equations
    terms: tuple[TermPrior, ...]
    noise: NoisePrior
    noise_variance: float
    constant: float | None = 0.0

    @classmethod
    def of(
        cls,
        equations: Equations,
        kernels: list[Kernel],
        noise_variance: float,
        noise_bounds: tuple[float, float],
        priors: HyperPriors,
        constant: float | None = 0.0,
    ) -> Self:
        """Place the priors; chains begin at the kernels and the noise variance given.

        Equal ``noise_bounds`` keep the noise variance as it is.
        """
        layout = equations.layout
        low, high = noise_bounds
        if low < high:
            low, high = min(low, noise_variance), max(high, noise_variance)
        return cls(
            equations,
            tuple(
                TermPrior.of(kernel, cells, weight, layout.n_terms, priors)
                for kernel, cells, weight in zip(
                    kernels, layout.cells, layout.parts(equations.weight), strict=True
                )
            ),
            NoisePrior(priors.noise_shape, priors.noise_rate, low, high),
            noise_variance,
            constant,
        )

    @cached_property
    def parts(self) -> list[slice]:
        """Where the parameters of each term are in a vector θ."""
        ends = np.cumsum([0, *(len(term.names) for term in self.terms)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    @property
    def size(self) -> int:
        """Length of a vector θ: the noise is its last number."""
        return sum(len(term.names) for term in self.terms) + 1

    @cached_property
    def free(self) -> NDArray[np.intp]:
        """Numbers of θ that are drawn."""
        return np.arange(self.size - self.noise.is_fixed)

    @property
    def start(self) -> Floats:
        """θ where chains begin."""
        logs = [term.start for term in self.terms]
        return np.concatenate([*logs, [math.log(self.noise_variance)]])

    def kernels(self, theta: Floats) -> list[Kernel]:
        """Return the kernels of θ."""
        return [
            term.kernel_of(theta[part]) for term, part in zip(self.terms, self.parts, strict=True)
        ]

    def log_prior(self, theta: Floats) -> float:
        """Log prior density of θ up to a constant."""
        total = 0.0 if self.noise.is_fixed else self.noise.log_density(theta[-1])
        for term, part in zip(self.terms, self.parts, strict=True):
            total += term.log_density(theta[part])
        return total
