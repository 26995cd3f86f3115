"""Half-integer Matérn covariances: dense form, and state-space form in damped coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb, gammainc

from dsgp.errors import ParameterError
from dsgp.kernels.base import Stationary, is_allowed
from dsgp.kernels.priors import Prior, Priors
from dsgp.kernels.state_space import StateSpace, checked_steps

# Number of covariances that are computed at once, so that each step finds them in the cache.
_AT_ONCE = 2**15


@dataclass(frozen=True, repr=False)
class Matern(Stationary, is_base=True):
    r"""Base of the half-integer Matérn kernels, smoothness :math:`\nu = m - 1/2`.

    .. math:: k(x, x') = s^2 e^{-\tau} \sum_k c_k \tau^k, \quad
              \tau = |x - x'| \sqrt{2\nu} / \ell

    *Damped coordinates.* With :math:`\lambda = \sqrt{2\nu}/\ell` and :math:`\tau = \lambda x`
    the process obeys :math:`(d/d\tau + 1)^m f = ` white noise. The state
    :math:`u_k = (d/d\tau + 1)^k f`, k < m, therefore moves by
    :math:`\Phi(\tau) = e^{-\tau} e^{S\tau}` with S the upward shift: an upper triangular Toeplitz
    matrix, about half the work of the companion form in every product. The function itself is
    :math:`u_0` and its slope is :math:`\lambda (u_1 - u_0)`.

    Parameters
    ----------
    lengthscale : float or None
        :math:`\ell`, in the units of the input. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names: ``LogNormal``, ``PenalisedComplexity``. Learners of
        additive models add their log densities; by default there are none.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.
    """

    lengthscale: float | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    priors: Mapping[str, Prior] = field(default_factory=Priors)

    order: ClassVar[int]

    def __post_init__(self) -> None:
        if type(self) is Matern:
            raise ParameterError("Matern is the base of the kernels; use Matern12 … Matern72")
        super().__post_init__()

    def with_parameters(self, **values: float) -> Self:
        for name, value in values.items():
            if name not in self.parameters or type(value) is not float or not is_allowed(value):
                return super().with_parameters(**values)
        # Nothing else needs to be checked. A search along a lengthscale makes thousands of copies.
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **values)
        return copy

    def scaled(self, factor: float) -> Self:
        if self.priors or self.variance is None:
            return super().scaled(factor)
        return self.with_parameters(variance=float(self.variance) * factor**2)

    @property
    def smoothness(self) -> float:
        """ν, half an odd number: the process has order − 1 derivatives."""
        return self.order - 0.5

    # ------------------------------------------------------------------ dense form

    @property
    def coefficients(self) -> list[float]:
        """c_k of the correlation e^{-τ} Σ c_k τ^k, k < m."""
        return list(_dense_coefficients(self.order))

    @property
    def slope_coefficients(self) -> list[float]:
        """c_k, k <= m, of its derivative by log ℓ, −τ dk/dτ, in the same form."""
        c = _dense_coefficients(self.order)
        slope = [k * c[k] for k in range(1, self.order)] + [0.0]
        return [0.0, *(a - b for a, b in zip(c, slope, strict=True))]

    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._dense(distance, self.coefficients)

    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._dense(distance, self.slope_coefficients)

    def _dense(
        self, distance: NDArray[np.float64], coefficients: list[float]
    ) -> NDArray[np.float64]:
        """Return s² e^{-τ} Σ c_k τ^k in the place of the distances, if these are contiguous."""
        lengthscale, variance = self._values()
        flat = distance.reshape(-1)  # a copy if they are not
        factor = math.sqrt(2 * self.smoothness) / lengthscale
        scratch = np.empty(min(_AT_ONCE, flat.size))
        for start in range(0, flat.size, _AT_ONCE):
            tau = flat[start : start + _AT_ONCE]
            decay = scratch[: len(tau)]
            with np.errstate(over="ignore"):
                tau *= factor
            np.exp(np.negative(tau, out=decay), out=decay)
            # Where the decay has underflowed, tau must not overflow against it.
            np.minimum(tau, 1e4, out=tau)
            _horner(coefficients, tau)
            tau *= decay
            tau *= variance
        return flat.reshape(distance.shape)

    # ------------------------------------------------------------------ state-space form

    @property
    def rate(self) -> float:
        """λ = sqrt(2ν) / ℓ: one unit of input is λ units of τ."""
        return math.sqrt(2 * self.order - 1) / self._complete("lengthscale")

    @property
    def inverse_factorials(self) -> tuple[float, ...]:
        """1/k! for k < m: the coefficients of exp(Sτ). Its length gives compiled loops m."""
        return _inverse_factorials(self.order)

    def stationary_covariance(self) -> NDArray[np.float64]:
        """P∞ of the damped state, shape (m, m); its entry [0, 0] is the variance."""
        return self._complete("variance") * _unit_stationary_covariance(self.order)

    @property
    def n_states(self) -> int:
        return self.order

    def state_space(self) -> StateSpace:
        """Return the process in damped coordinates: exact."""
        stationary, size = self.stationary_covariance(), self.order
        drift = self.rate * (np.eye(size, k=1) - np.eye(size))
        diffusion = np.zeros((size, size))
        diffusion[-1, -1] = 2.0 * self.rate * stationary[-1, -1]
        return _MaternSpace(drift, diffusion, np.eye(size)[0], stationary)


@dataclass(frozen=True, eq=False)
class _MaternSpace(StateSpace):
    """A Matérn process in damped coordinates; Φ and Q have closed forms."""

    @property
    def _rate(self) -> float:
        return -float(self.drift[0, 0])

    def transition(self, step: ArrayLike) -> NDArray[np.float64]:
        """e^{-τ} e^{Sτ}."""
        tau = self._rate * checked_steps(step)[..., None, None]
        size = len(self.drift)
        decay = np.exp(-tau)
        # Where the decay has underflowed, no power may overflow against it.
        tau = np.minimum(tau, 1e3)
        phi = np.zeros((*tau.shape[:-2], size, size))
        for k in range(size):
            phi += tau**k / math.factorial(k) * np.eye(size, k=k)
        return np.asarray(decay * phi)

    def process_noise(self, step: ArrayLike) -> NDArray[np.float64]:
        """Integral of e^{-2u} u^{a+b} / (a! b!) for components m−1−a and m−1−b: incomplete Γ."""
        steps = checked_steps(step)
        power = np.arange(len(self.drift))[::-1]
        total = power[:, None] + power
        strength = 2.0 * self.initial_covariance[-1, -1]
        tau = self._rate * steps[..., None, None]
        return np.asarray(
            strength * comb(total, power) / 2.0 ** (total + 1) * gammainc(total + 1.0, 2.0 * tau)
        )


def _horner(coefficients: list[float], x: NDArray[np.float64]) -> None:
    """Overwrite x with Σ c_k x^k."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    x[...] = value


@cache
def _dense_coefficients(order: int) -> tuple[float, ...]:
    """Return c_k of e^{-τ} Σ c_k τ^k (Rasmussen and Williams 2006, eq. 4.16)."""
    p = order - 1
    return tuple(
        math.factorial(p)
        / math.factorial(2 * p)
        * math.factorial(2 * p - k)
        / (math.factorial(p - k) * math.factorial(k))
        * 2.0**k
        for k in range(order)
    )


@cache
def _inverse_factorials(order: int) -> tuple[float, ...]:
    return tuple(1.0 / math.factorial(k) for k in range(order))


@cache
def _unit_stationary_covariance(order: int) -> NDArray[np.float64]:
    """Return P∞ of a process of variance 1, a read-only array that many kernels share."""
    # u_i is white noise filtered by e^{-s} s^a / a!, a = m-1-i, so that its covariance with
    # u_j is the integral of two such filters: C(a+b, a) / 2^{a+b+1}.
    a = np.arange(order)[::-1]
    total = a[:, None] + a[None, :]
    stationary = comb(total, a[:, None]) / 2.0**total
    stationary /= stationary[0, 0]
    stationary.flags.writeable = False
    return np.asarray(stationary)


@dataclass(frozen=True, repr=False)
class Matern12(Matern):
    """Matérn 1/2, the exponential covariance: continuous paths without a slope."""

    order: ClassVar[int] = 1


@dataclass(frozen=True, repr=False)
class Matern32(Matern):
    """Matérn 3/2: paths with one derivative."""

    order: ClassVar[int] = 2


@dataclass(frozen=True, repr=False)
class Matern52(Matern):
    """Matérn 5/2: paths with two derivatives."""

    order: ClassVar[int] = 3


@dataclass(frozen=True, repr=False)
class Matern72(Matern):
    """Matérn 7/2: paths with three derivatives."""

    order: ClassVar[int] = 4
