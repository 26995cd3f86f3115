"""What all kernels share: their parameters, and dense matrices. State-space forms are elsewhere.

A new kernel is one file: a frozen dataclass that inherits from ``Kernel`` (or ``Stationary``) and
fills a covariance matrix. Its class is in the registry from then on, by which stores, YAML and the
command line find it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields, replace
from inspect import isabstract
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.priors import Prior, Priors, prior_of
from dsgp.kernels.state_space import StateSpace

# Beyond these bounds, rates, squares and their products leave the range of float64.
SMALLEST, LARGEST = 1e-150, 1e150
# Step in the logarithm of a parameter for derivatives by differences.
_STEP = 1e-5

REGISTRY: dict[str, type[Kernel]] = {}
"""All kernels by the names of their classes."""


class Kernel(ABC):
    r"""Base of all kernels: the covariance of a function at two inputs.

    A kernel is a frozen dataclass; its parameters are attributes, and None where they are to be
    chosen from the data.

    Attributes
    ----------
    fixed : tuple of str
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names. Kernels that users define have none unless they have a
        field for them.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.
    """

    parameters: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")
    """Names of what can be learned: positive numbers. One that begins with "lengthscale" is in the
    units of the input, one that begins with "variance" in squared units of the target, and any
    other has no unit."""

    order: ClassVar[int] = 3
    """Derivatives that the function has, plus one; 4 at most. It says how fine the grids must be
    that hold the function."""

    fixed: Iterable[str]

    is_damped: ClassVar[bool] = False
    """Whether a lengthscale says over what an oscillation is forgotten, which may be many of the
    natural widths, and not what shape the function has within one."""
    error: float | None = None
    """Error by which models of several terms may take an approximate state-space form."""

    priors: Mapping[str, Prior] = Priors()

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, *, is_base: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not is_base and not isabstract(cls) and not cls.__name__.startswith("_"):
            REGISTRY[cls.__name__] = cls

    def __post_init__(self) -> None:
        fixed = (self.fixed,) if isinstance(self.fixed, str) else tuple(self.fixed)
        object.__setattr__(self, "fixed", fixed)
        for name in self.parameters:
            if self.value(name) is not None:
                self._require_number(name)
        if self.error is not None:
            self._require_number("error")
        for name in fixed:
            if name not in self.parameters:
                raise ParameterError(
                    f"{type(self).__name__}: fixed names {name!r}; it can name {self.parameters}"
                )
            if self.value(name) is None:
                raise ParameterError(
                    f"{type(self).__name__}: {name} is marked fixed but has no value; give it one"
                )
        self._check_priors()

    def _check_priors(self) -> None:
        """Convert the priors to ``Priors``, or raise ``ParameterError``."""
        if not self.priors:
            return
        if not isinstance(self.priors, Mapping):
            raise ParameterError(
                f"{type(self).__name__}: priors must map names of parameters to priors, got "
                f"{self.priors!r}"
            )
        priors = Priors({name: prior_of(prior) for name, prior in self.priors.items()})
        for name, prior in priors.items():
            if name not in self.parameters:
                raise ParameterError(
                    f"{type(self).__name__}: priors names {name!r}; it can name {self.parameters}"
                )
            if name in self.fixed:
                raise ParameterError(
                    f"{type(self).__name__}: {name} is fixed and has a prior; give one of them"
                )
            prior.require(name)
        object.__setattr__(self, "priors", priors)

    def _require_number(self, name: str) -> None:
        """Convert an attribute to a float, or raise ``ParameterError``."""
        value = getattr(self, name)
        if type(value) is float and is_allowed(value):
            return  # the common case: a learner makes many kernels
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and is_allowed(float(value))):
            raise ParameterError(
                f"{type(self).__name__}: {name} must be a number from {SMALLEST:g} to "
                f"{LARGEST:g}, got {value!r}"
            )
        object.__setattr__(self, name, float(value))

    def __repr__(self) -> str:
        stated = {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)
            if getattr(self, attribute.name) not in (None, attribute.default, {})
        }
        words = [
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in stated.items()
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    def __add__(self, other: Any) -> Kernel:
        """Covariance of the sum of two independent functions."""
        return REGISTRY["Sum"].of(self, other)  # type: ignore[attr-defined]

    def __mul__(self, other: Any) -> Kernel:
        """Covariance of the product of two independent functions."""
        return REGISTRY["Product"].of(self, other)  # type: ignore[attr-defined]

    # ------------------------------------------------------------------ parameters

    def value(self, name: str) -> float | None:
        """Return the value of a parameter, or None if it has no value yet."""
        value: float | None = getattr(self, name)
        return value

    @property
    def free(self) -> tuple[str, ...]:
        """Parameters that a learner may change."""
        return tuple(name for name in self.parameters if name not in self.fixed)

    @property
    def missing(self) -> tuple[str, ...]:
        """Parameters without a value."""
        return tuple(name for name in self.parameters if self.value(name) is None)

    @property
    def std(self) -> float:
        """Prior standard deviation s of the function, the largest over all inputs."""
        return math.sqrt(self._complete("variance"))

    def diagonal(self, x: ArrayLike) -> NDArray[np.float64]:
        """Prior variances at inputs, (n,): the diagonal of ``covariance(x)``."""
        return np.full(len(np.asarray(x)), self.std**2)

    def natural_width(self) -> float | None:
        """Width of an input over which the function varies, where the kernel itself says so."""
        return None

    def natural_width_of(self, name: str) -> float | None:
        """Natural width of the input of one lengthscale, by the name of the lengthscale."""
        return self.natural_width()

    @property
    def is_layered(self) -> bool:
        """Whether several lengthscales are of one input, from long to short."""
        return True

    def limits(self, name: str) -> tuple[float, float, float]:
        """Least value, initial value and greatest value of a parameter that has no unit."""
        return 0.05, 1.0, 50.0

    def with_parameters(self, **values: float) -> Self:
        """Return a copy with other values of some ``parameters``."""
        return replace(self, **values)

    def scaled(self, factor: float) -> Self:
        """Return the kernel of ``factor`` times the function."""
        variances = {
            name: float(value) * factor**2
            for name in self.parameters
            if name.startswith("variance") and (value := self.value(name)) is not None
        }
        scaled = self.with_parameters(**variances) if variances else self
        if not self.priors:
            return scaled
        priors = {name: prior.scaled(name, factor) for name, prior in self.priors.items()}
        return replace(scaled, priors=priors)

    @property
    def log_prior(self) -> float:
        """Log density of the priors at the values of their parameters; 0 without priors."""
        return sum(
            prior.log_density(name, self._complete(name)) for name, prior in self.priors.items()
        )

    def log_prior_slopes(self) -> dict[str, tuple[float, float]]:
        """First and second derivatives of ``log_prior`` by the logs of parameters with a prior."""
        return {
            name: (prior.slope(name, value), prior.bend(name, value))
            for name, prior in self.priors.items()
            for value in [self._complete(name)]
        }

    def to_settings(self) -> dict[str, Any]:
        """Return the kernel as values that JSON can hold; ``from_settings`` undoes it.

        Examples
        --------
        >>> from dsgp.kernels import Matern32
        >>> Matern32(lengthscale=2.0).to_settings()
        {'type': 'Matern32', 'lengthscale': 2.0, 'variance': None, 'fixed': []}
        """
        settings = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        settings |= {"fixed": list(self.fixed)}
        if settings.get("error", 0) is None:
            del settings["error"]
        if settings.pop("priors", None):
            priors = {name: prior.to_settings() for name, prior in self.priors.items()}
            settings["priors"] = priors
        return {"type": type(self).__name__, **settings}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Undo ``to_settings``, of a kernel of this class; ``settings`` without its type."""
        return cls(**settings)

    # ------------------------------------------------------------------ matrices

    @abstractmethod
    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        """Dense covariance matrix between two sets of inputs.

        Parameters
        ----------
        x : array_like of shape (n,)
        y : array_like of shape (k,), optional
            Defaults to ``x``.

        Returns
        -------
        ndarray of shape (n, k), in squared units of the target

        Examples
        --------
        >>> from dsgp.kernels import Matern12
        >>> Matern12(lengthscale=1.0, variance=2.0).covariance([0.0, 1.0]).round(4)
        array([[2.    , 0.7358],
               [0.7358, 2.    ]])
        """

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        """Derivative of ``covariance`` by the log of a parameter, of the same shape.

        By default central differences, accurate to some 1e-10 of the variance.
        """
        if name == "variance":
            return self.covariance(x, y)
        value = self._complete(name)
        up, down = (
            self.with_parameters(**{name: value * math.exp(step)}).covariance(x, y)
            for step in (_STEP, -_STEP)
        )
        return (up - down) / (2 * _STEP)

    # ------------------------------------------------------------------ state-space form

    def state_space(self) -> StateSpace:
        """Return the Gauss–Markov process that has this covariance, with its Φ and Q.

        The form may be an approximation, whose ``error`` it has.

        Raises
        ------
        ParameterError
            If there is none.
        """
        raise ParameterError(
            f"{self!r} has no state-space form; kernels with one are Matern12 … Matern72, "
            "DampedOscillation, Wiener, approximately SquaredExponential, Periodic and "
            "QuasiPeriodic, and sums and products of these"
        )

    @property
    def n_states(self) -> int | None:
        """Number of components of an exact stationary state-space form; None if there is none."""
        return None

    def state_space_family(self) -> Callable[[Any], StateSpace]:
        """Return how kernels of this kind become processes of the same states as this one's.

        For derivatives by parameters, by which the states of an approximate form could change.
        """
        return type(self).state_space

    def drift(self) -> NDArray[np.float64]:
        """F of the state-space form, (m, m), per unit of the input."""
        return self.state_space().drift

    def diffusion(self) -> NDArray[np.float64]:
        """D of the state-space form, (m, m): covariance of the driving noise per unit of input."""
        return self.state_space().diffusion

    def observation(self) -> NDArray[np.float64]:
        """Return h of the state-space form, (m,): the function is hᵀ u."""
        return self.state_space().observation

    def stationary_covariance(self) -> NDArray[np.float64]:
        """P∞ of the state-space form, (m, m)."""
        return self.state_space().stationary_covariance

    def transition(self, step: ArrayLike) -> NDArray[np.float64]:
        """Φ over steps of any shape, in the units of the input: that shape, with (m, m) behind."""
        return self.state_space().transition(step)

    def process_noise(self, step: ArrayLike) -> NDArray[np.float64]:
        """Q over steps of any shape, in the units of the input: that shape, with (m, m) behind."""
        return self.state_space().process_noise(step)

    def _complete(self, name: str) -> float:
        """Return the value of a parameter, or raise ``ParameterError`` if it has none yet."""
        value = self.value(name)
        if value is None:
            missing = [parameter for parameter in self.parameters if self.value(parameter) is None]
            raise ParameterError(
                f"{self!r} has no {' and no '.join(missing)} yet; give values, or use the kernel "
                "from a fitted model's kernels_"
            )
        return value


def is_allowed(value: float) -> bool:
    """Whether a parameter may have such a value."""
    return SMALLEST <= value <= LARGEST


class Stationary(Kernel):
    r"""Base of kernels with a lengthscale and a variance that depend on a distance alone.

    Attributes
    ----------
    lengthscale : float or None
        :math:`\ell`, in the units of the input. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : tuple of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    """

    lengthscale: float | None
    variance: float | None

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        return self._covariance_at(self._distances(x, y))

    def by_log_lengthscale(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        """Derivative of ``covariance`` by log ℓ, of the same shape."""
        return self._by_log_lengthscale_at(self._distances(x, y))

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        return (
            self.by_log_lengthscale(x, y) if name == "lengthscale" else super().by_log(name, x, y)
        )

    def _distances(self, x: ArrayLike, y: ArrayLike | None) -> NDArray[np.float64]:
        """Distances of all pairs of inputs, in a new array (n, k)."""
        x = np.asarray(x, dtype=float)
        y = x if y is None else np.asarray(y, dtype=float)
        with np.errstate(over="ignore"):  # infinitely far apart means independent
            distance = x[:, None] - y[None, :]
        return np.abs(distance, out=distance)

    @abstractmethod
    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariance at distances, which may be written over."""

    @abstractmethod
    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of ``_covariance_at`` by log ℓ."""

    def _values(self) -> tuple[float, float]:
        return self._complete("lengthscale"), self._complete("variance")
