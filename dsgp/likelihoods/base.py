"""The protocol of a likelihood, and what all of them share.

A likelihood provides the density of a row given its latent, and averages over a Gaussian latent. It
does not depend on kernels, offsets or weights of rows: the caller adds and multiplies those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.likelihoods.logconcave import latent_mode, log_concave_integral
from dsgp.likelihoods.quadrature import blocks

Array = NDArray[np.float64]
# Exponents are clipped here: exp(LARGEST_EXPONENT) and the square of its square root stay finite.
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Likelihood(ABC):
    """Density of one target value given its latent f, on the scale of the link.

    All arrays are float64 and broadcast against each other. Exposure is an offset log(exposure)
    that the caller adds to f.

    Attributes
    ----------
    name : str
        Name of the class for `by_name`.
    information : {"observed", "expected"}
        What ``derivatives`` returns as the weight: the negative second derivative, or its
        expectation over y where the former can be negative.
    has_level : bool
        Whether a constant in f is not equivalent to a parameter.
    """

    name: ClassVar[str]
    information: ClassVar[str] = "observed"
    has_level: ClassVar[bool] = True
    _positive: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def link_name(self) -> str:
        """One of ``"logit"``, ``"probit"``, ``"log"``, ``"identity"``."""

    @property
    def noise_variance(self) -> float | None:
        """Variance of an observation of weight 1 around f; None where rows do not share one."""
        return None

    @property
    def free(self) -> tuple[str, ...]:
        """Hyperparameters that a learner can set, in the order of ``unconstrained``."""
        return self._positive

    # ------------------------------------------------------------------ the density

    @abstractmethod
    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        """Refuse targets outside the support, naming the first such row.

        Parameters
        ----------
        y : array_like of shape (n,)
        trials : array_like of shape (n,), optional
            For the binomial only.
        name : str
            Name of the target's column, for the message.
        first_row : int
            Number of the first row, when `y` is a block of a larger table.

        Raises
        ------
        DataError
            If a value is outside the support.
        """

    @abstractmethod
    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        """Log density or probability of y given f, with every constant."""

    @abstractmethod
    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        """Gradient d log p/df, weight W = −d² log p/df² ≥ 0, and its slope dW/df."""

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        """Derivatives of the log density and of the weight by the unconstrained parameters.

        Returns
        -------
        density, weight : ndarray of shape (n_parameters, n)
            In the order of ``unconstrained()``.
        """
        shape = np.broadcast_shapes(np.shape(y), np.shape(f))
        return np.zeros((0, *shape)), np.zeros((0, *shape))

    @abstractmethod
    def inverse_link(self, f: ArrayLike) -> Array:
        """Mean of y given f: per trial for a binomial, per unit of exposure for a rate."""

    @abstractmethod
    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        """Draw y at the latents f, of any shape."""

    # ------------------------------------------------------------------ a Gaussian latent

    @abstractmethod
    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Average of the inverse link under f ~ N(mean, variance)."""

    @abstractmethod
    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        """Variance of a new observation under f ~ N(mean, variance)."""

    @abstractmethod
    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Variance of the inverse link under f ~ N(mean, variance)."""

    def log_predictive(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        """Logarithm of ∫ p(y | f) N(f; mean, variance) df, to about 1e-12.

        The density must be log-concave in f; classes where it is not have their own method.
        """
        y, mean, variance, size = broadcast(y, mean, variance, 1.0 if trials is None else trials)
        result = np.empty(mean.shape)
        flat = [a.ravel() for a in (y, mean, np.sqrt(variance), size)]
        out = result.reshape(-1)
        for rows in blocks(out.size, 512):
            out[rows] = self._log_predictive_block(*(a[rows] for a in flat))
        return result

    def _log_predictive_block(self, y: Array, mean: Array, std: Array, size: Array) -> Array:
        # In z = (f − mean) / std, so that a variance of 0 is not a special case.
        likely = self.working_start(y, size)
        mode, width = latent_mode(
            lambda f, rows: self.derivatives(y[rows], f, size[rows]), likely, mean, std
        )

        def log_integrand(z: Array, rows: NDArray[np.int64]) -> Array:
            f = mean[rows, None] + std[rows, None] * z
            return self.log_density(y[rows, None], f, size[rows, None]) - 0.5 * z * z

        return log_concave_integral(log_integrand, mode, width) - 0.5 * np.log(2 * np.pi)

    @abstractmethod
    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """Central interval of a new observation: quantiles of the averaged distribution.

        Parameters
        ----------
        mean, variance : array_like of shape (n,)
            Mean and variance of the latent f.
        level : float
            Probability of the interval, within (0, 1).
        trials : array_like of shape (n,), optional
            For the binomial only.

        Returns
        -------
        lower, upper : ndarray of shape (n,)
            The smallest values whose cumulative probabilities reach (1 − level)/2 and
            (1 + level)/2; whole numbers for counts and categories.

        Raises
        ------
        ParameterError
            If `level` is outside (0, 1).
        """

    @abstractmethod
    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        """Probability that a new observation is at most y, averaged over f ~ N(mean, variance).

        Parameters
        ----------
        y : array_like of shape (n,)
            Any numbers; for counts and categories they need not be whole.
        mean, variance : array_like of shape (n,)
            Mean and variance of the latent f.
        trials : array_like of shape (n,), optional
            For the binomial only.

        Returns
        -------
        ndarray of shape (n,)
        """

    def class_probabilities(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        """Averaged probability of each category, shape (n, K); categorical targets only."""
        raise ParameterError(
            f"{type(self).__name__} has no categories; class_probabilities is for Bernoulli and "
            "Ordered: use response_mean or log_predictive"
        )

    # ------------------------------------------------------------------ initial values

    @abstractmethod
    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        """Constant latent with the largest likelihood.

        Targets at the edge of their support (all zero, all one) count half an observation more, so
        that the answer is finite.
        """

    @abstractmethod
    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        """Latent of each row near its own likelihood's maximum, always finite."""

    def absorbed(self, level: float) -> tuple[Self, float]:
        """Take a constant of f into the parameters, as far as they can, and return the rest."""
        return self, level

    def completed(self, y: ArrayLike, weight: ArrayLike | None = None) -> Self:
        """Return a copy whose missing hyperparameters are set from the data."""
        return self

    def _newton_start(
        self,
        constant: float,
        y: Array,
        weight: Array,
        offset: Array,
        trials: ArrayLike | None = None,
    ) -> float:
        """Maximise Σ w log p(y | constant + offset) from a guess, halving steps that overshoot."""

        def value(c: float) -> float:
            return float(np.sum(weight * self.log_density(y, c + offset, trials)))

        best = value(constant)
        for _ in range(100):
            gradient, curvature, _slope = self.derivatives(y, constant + offset, trials)
            total = float(np.sum(weight * curvature))
            step = float(np.clip(np.sum(weight * gradient) / max(total, 1e-300), -5.0, 5.0))
            trial = value(constant + step)
            while trial < best and abs(step) > 1e-12:
                step *= 0.5
                trial = value(constant + step)
            if trial < best:
                break
            constant, best = constant + step, trial
            if abs(step) < 1e-10 * (1 + abs(constant)):
                break
        return constant

    # ------------------------------------------------------------------ parameters

    def unconstrained(self) -> Array:
        """Free parameters on the whole real line, shape (n_parameters,): their logarithms."""
        return np.log(np.array([getattr(self, name) for name in self._positive], dtype=float))

    def limits(self, unit: float) -> tuple[Array, Array]:
        """Bounds for a learner, in the order of ``unconstrained``; none by default.

        Parameters
        ----------
        unit : float
            Variance of the targets, where the link is the identity.
        """
        size = len(self.unconstrained())
        return np.full(size, -np.inf), np.full(size, np.inf)

    def from_unconstrained(self, values: ArrayLike) -> Self:
        """Return a copy with the parameters that ``unconstrained`` would give as `values`."""
        parameters = np.exp(np.asarray(values, dtype=float))
        return self.with_parameters(**dict(zip(self._positive, parameters.tolist(), strict=True)))

    def with_parameters(self, **values: Any) -> Self:
        """Return a copy with other hyperparameters."""
        return replace(self, **values)

    def to_settings(self) -> dict[str, Any]:
        """Name and hyperparameters as plain values that JSON can hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"name": self.name, **values}


def clipped_exp(f: Array) -> Array:
    """Exponential of f that neither overflows nor warns."""
    return np.exp(np.minimum(f, LARGEST_EXPONENT))


def broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    """Return the values as float arrays of one shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(v, dtype=float) for v in values)))


def prepared(
    y: ArrayLike, weight: ArrayLike | None, offset: ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return target, weight (default 1) and offset (default 0) of one shape."""
    y = np.asarray(y, dtype=float)
    w = np.ones_like(y) if weight is None else np.broadcast_to(np.asarray(weight, float), y.shape)
    o = np.zeros_like(y) if offset is None else np.broadcast_to(np.asarray(offset, float), y.shape)
    return y, w, o
