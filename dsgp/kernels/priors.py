"""Priors of single hyperparameters, which a learner adds to the log marginal likelihood.

Densities are those of the logarithm of the parameter, in which learners search.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

from dsgp.errors import ParameterError


class Prior(ABC):
    """Prior of a positive parameter."""

    KINDS: ClassVar[dict[str, type[Prior]]] = {}
    """By the names of their classes."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Prior.KINDS[cls.__name__] = cls

    @abstractmethod
    def log_density(self, name: str, value: float) -> float:
        """Log density of log ``value`` of the parameter called ``name``."""

    @abstractmethod
    def slope(self, name: str, value: float) -> float:
        """Derivative of that by log ``value``."""

    @abstractmethod
    def bend(self, name: str, value: float) -> float:
        """Second derivative by log ``value``, which is not positive."""

    @abstractmethod
    def scaled(self, name: str, factor: float) -> Self:
        """Return the prior of the parameter of ``factor`` times the function."""

    def require(self, name: str) -> None:
        """Raise ``ParameterError`` if it is not a prior for the parameter called ``name``."""
        del name  # any parameter may have one

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold; ``prior_of`` undoes it."""
        return {"type": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class LogNormal(Prior):
    r"""Log-normal prior: :math:`\log \theta \sim N(\log m, s^2)`.

    Parameters
    ----------
    median : float
        m, in the unit of the parameter: half of the prior is below.
    spread : float
        s: two thirds of the prior are within a factor of :math:`e^s`.

    Examples
    --------
    >>> from dsgp.kernels import LogNormal, Matern52
    >>> Matern52(priors={"lengthscale": LogNormal(median=10.0, spread=0.5)})
    Matern52(priors={'lengthscale': LogNormal(median=10.0, spread=0.5)})
    """

    median: float
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name in ("median", "spread"):
            _require_positive(self, name)

    def log_density(self, name: str, value: float) -> float:
        distance = (math.log(value) - math.log(self.median)) / self.spread
        return -0.5 * (distance**2 + math.log(2 * math.pi)) - math.log(self.spread)

    def slope(self, name: str, value: float) -> float:
        return (math.log(self.median) - math.log(value)) / self.spread**2

    def bend(self, name: str, value: float) -> float:
        return -1.0 / self.spread**2

    def scaled(self, name: str, factor: float) -> Self:
        if not name.startswith("variance"):
            return self
        return type(self)(self.median * factor**2, self.spread)


@dataclass(frozen=True)
class PenalisedComplexity(Prior):
    r"""Prior that prefers the simpler function: a longer lengthscale, a smaller variance.

    .. math:: P(\ell < \text{limit}) = p, \quad \pi(\ell) \propto \ell^{-3/2} e^{-\lambda
              \ell^{-1/2}}, \qquad P(s > \text{limit}) = p, \quad \pi(s) \propto e^{-\lambda s}

    Parameters
    ----------
    limit : float
        For a lengthscale, the shortest plausible one, in units of the input; for a variance, the
        largest plausible *standard deviation* s of the function, in units of the target.
    probability : float
        p, the prior probability beyond the limit.

    References
    ----------
    Simpson and others, *Penalising model component complexity*, Statistical Science 32 (2017).
    Fuglstad and others, *Constructing priors that penalize the complexity of Gaussian random
    fields*, JASA 114 (2019), in one dimension.

    Examples
    --------
    >>> from dsgp.kernels import Matern52, PenalisedComplexity
    >>> priors = {"lengthscale": PenalisedComplexity(2.0), "variance": PenalisedComplexity(5.0)}
    >>> Matern52(priors=priors).priors["variance"].probability
    0.05
    """

    limit: float
    probability: float = 0.05

    def __post_init__(self) -> None:
        for name in ("limit", "probability"):
            _require_positive(self, name)
        if not self.probability < 1:
            raise ParameterError(
                f"PenalisedComplexity: probability must be below 1, got {self.probability!r}"
            )

    def require(self, name: str) -> None:
        if not name.startswith(("lengthscale", "variance")):
            raise ParameterError(
                f"PenalisedComplexity is for lengthscales and variances, and {name!r} is neither: "
                "use LogNormal"
            )

    def log_density(self, name: str, value: float) -> float:
        simple, rate = self._simplicity(name, value), self._rate(name)
        return math.log(rate * simple / 2) - rate * simple

    def slope(self, name: str, value: float) -> float:
        sign = 1.0 if name.startswith("variance") else -1.0
        return 0.5 * sign * (1.0 - self._rate(name) * self._simplicity(name, value))

    def bend(self, name: str, value: float) -> float:
        return -0.25 * self._rate(name) * self._simplicity(name, value)

    def scaled(self, name: str, factor: float) -> Self:
        if not name.startswith("variance"):
            return self
        return type(self)(self.limit * factor, self.probability)

    def _simplicity(self, name: str, value: float) -> float:
        """Distance from the simplest function, whose density is exponential: s, or ℓ^(−½)."""
        return math.sqrt(value) if name.startswith("variance") else 1.0 / math.sqrt(value)

    def _rate(self, name: str) -> float:
        beyond = -math.log(self.probability)
        if name.startswith("variance"):
            return beyond / self.limit
        return beyond * math.sqrt(self.limit)


class Priors(dict[str, Prior]):
    """Priors by the names of parameters; never changed, so that kernels are values."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted((name, repr(prior)) for name, prior in self.items())))


def prior_of(given: Any) -> Prior:
    """Return a prior from itself, or from its settings.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(given, Prior):
        return given
    settings = dict(given) if isinstance(given, dict) else {}
    kind = Prior.KINDS.get(settings.pop("type", None))
    if kind is None:
        raise ParameterError(
            f"a prior must be one of {', '.join(sorted(Prior.KINDS))}, got {given!r}"
        )
    try:
        return kind(**settings)
    except TypeError as error:
        raise ParameterError(f"the settings of a {kind.__name__} do not fit it: {error}") from error


def _require_positive(prior: Prior, name: str) -> None:
    value = getattr(prior, name)
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and float(value) > 0):
        raise ParameterError(
            f"{type(prior).__name__}: {name} must be a positive number, got {value!r}"
        )
    object.__setattr__(prior, name, float(value))
