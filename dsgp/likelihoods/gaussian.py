"""Real targets with the identity link, and the Gaussian of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from dsgp.likelihoods.base import Likelihood, broadcast, prepared
from dsgp.likelihoods.checks import check_level, check_positive, refuse_rows

Array = NDArray[np.float64]
# Smallest learned scale, in standard deviations of the targets.
SMALLEST_SCALE = 1e-3
# Largest target: they are squared.
_LARGEST = 1e60


@dataclass(frozen=True)
class RealLikelihood(Likelihood):
    """What the likelihoods of real targets share: the identity link and its averages."""

    _positive: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "scale")

    @property
    def link_name(self) -> str:
        """Always ``"identity"``."""
        return "identity"

    def limits(self, unit: float) -> tuple[Array, Array]:
        """Keep the scale above what float64 can resolve relative to that of the targets."""
        return np.array([np.log(SMALLEST_SCALE) + 0.5 * np.log(unit)]), np.array([np.inf])

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        refuse_rows(
            ~(np.abs(y) <= _LARGEST),
            y,
            name,
            first_row,
            f"numbers of a size of at most {_LARGEST:.0e}",
            "leave out missing targets, and rescale large ones",
        )

    def inverse_link(self, f: ArrayLike) -> Array:
        return np.array(f, dtype=float)

    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return broadcast(mean, variance)[0].copy()

    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return broadcast(mean, variance)[1].copy()

    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        return np.array(y, dtype=float)


@dataclass(frozen=True)
class Gaussian(RealLikelihood):
    r"""Real targets with normal noise, for comparison with the conjugate model.

    .. math:: p(y \mid f) = N(y; f, s^2)

    Parameters
    ----------
    scale : float
        Standard deviation s of the noise, in the units of y.

    Raises
    ------
    ParameterError
        If `scale` is not a positive number.

    Examples
    --------
    >>> from dsgp.likelihoods import Gaussian
    >>> Gaussian(scale=0.5).response_variance([1.0], [0.75])
    array([1.])
    """

    name: ClassVar[str] = "gaussian"

    @property
    def noise_variance(self) -> float:
        """The square of the scale."""
        return self.scale**2

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        return self.log_predictive(y, f, 0.0)

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        gradient = (np.asarray(y, dtype=float) - np.asarray(f, dtype=float)) / self.scale**2
        return gradient, np.full_like(gradient, 1 / self.scale**2), np.zeros_like(gradient)

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        score = (np.asarray(y, dtype=float) - np.asarray(f, dtype=float)) / self.scale
        density = score * score - 1
        return density[None], np.full_like(density, -2 / self.scale**2)[None]

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        return random.normal(np.asarray(f, dtype=float), self.scale)

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        return self.mean_variance(mean, variance) + self.scale**2

    def log_predictive(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        total = np.asarray(variance, dtype=float) + self.scale**2
        difference = np.asarray(y, dtype=float) - np.asarray(mean, dtype=float)
        return -0.5 * (difference * difference / total + np.log(2 * np.pi * total))

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        reach = ndtri(0.5 * (1 + check_level(level))) * np.sqrt(
            self.response_variance(mean, variance)
        )
        mean = np.asarray(mean, dtype=float)
        return mean - reach, mean + reach

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        std = np.sqrt(self.response_variance(mean, variance))
        return np.asarray(ndtr((np.asarray(y, dtype=float) - np.asarray(mean, float)) / std))

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        return float(np.average(y - o, weights=w))
