"""The squared exponential covariance, whose paths have all derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import Stationary
from dsgp.kernels.priors import Prior, Priors
from dsgp.kernels.state_space import StateSpace, from_spectrum, largest_error, scaled_process

# Largest number of terms of the series of a denominator: with more, its roots lose their digits.
MOST_TERMS = 12


@dataclass(frozen=True, repr=False)
class SquaredExponential(Stationary):
    r"""Squared exponential (Gaussian, RBF) kernel, the limit of Matérn for infinite smoothness.

    .. math:: k(x, x') = s^2 \exp\left(-\frac{(x - x')^2}{2 \ell^2}\right)

    For the axes of a grid and the columns of a table. It has no exact state-space form;
    ``state_space`` has approximate ones.

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
    error : float or None
        Largest error of the covariance, as a share of the variance, of the state-space form that
        models of several terms use, in linear time. None: they use the dense form, which is exact.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.

    Examples
    --------
    >>> from dsgp.kernels import SquaredExponential
    >>> SquaredExponential(lengthscale=1.0, variance=2.0).covariance([0.0, 1.0]).round(4)
    array([[2.    , 1.2131],
           [1.2131, 2.    ]])
    """

    lengthscale: float | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    priors: Mapping[str, Prior] = field(default_factory=Priors)
    error: float | None = None

    order: ClassVar[int] = 4

    def state_space(self, order: int | None = None, error: float | None = None) -> StateSpace:
        """Return an approximate Gauss–Markov process, with its ``error``.

        The exponential series in the denominator of the spectral density is truncated after
        ``order`` terms (Hartikainen and Särkkä 2010), and the variance is kept.

        Parameters
        ----------
        order : int, optional
            Number of components of the state, 1 to 12. Default: 6, or as required by the error of
            the kernel.
        error : float, optional
            Instead of the order: the largest error of the covariance that is accepted, as a share
            of the variance; the smallest such order is used. Default: that of the kernel.

        Raises
        ------
        ParameterError
            If the order is out of range, or no order has the error: the dense form is exact.

        Examples
        --------
        >>> from dsgp.kernels import SquaredExponential
        >>> kernel = SquaredExponential(lengthscale=2.0, variance=1.0)
        >>> round(kernel.state_space().error, 4), len(kernel.state_space(error=1e-3).drift)
        (0.0043, 8)
        """
        if order is not None and error is not None:
            raise ParameterError("state_space takes an order or an error, not both")
        lengthscale, variance = self._values()
        error = self.error if order is None and error is None else error
        if error is None:
            space = _unit_process(6 if order is None else require_order(order))
        else:
            orders = (k for k in range(1, MOST_TERMS + 1) if _unit_process(k).error <= error)
            enough = next(orders, None)
            if enough is None:
                raise ParameterError(
                    f"error={error!r}: the least error of the covariance is "
                    f"{_unit_process(MOST_TERMS).error:.2g} of the variance, of order "
                    f"{MOST_TERMS}; use that, or the dense form, which is exact"
                )
            space = _unit_process(enough)
        return scaled_process(space, lengthscale, variance)

    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        half = self._half_square(distance)
        return np.exp(-half, out=half) * self._values()[1]

    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        half = self._half_square(distance)
        return 2.0 * half * np.exp(-half) * self._values()[1]

    def _half_square(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """½ (r/ℓ)²."""
        with np.errstate(over="ignore"):
            scaled = distance / self._values()[0]
        # exp(-800) is 0 in float64; the square must not overflow against it.
        np.minimum(scaled, 40.0, out=scaled)
        return 0.5 * scaled**2


def require_order(order: int) -> int:
    """Return an order, or raise ``ParameterError`` if it is out of range."""
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool):
        raise ParameterError(f"order must be an integer from 1 to {MOST_TERMS}, got {order!r}")
    if not 1 <= order <= MOST_TERMS:
        raise ParameterError(f"order must be an integer from 1 to {MOST_TERMS}, got {order!r}")
    return int(order)


@cache
def _unit_process(order: int) -> StateSpace:
    """Lengthscale and variance of 1."""
    # Σ (ω²/2)^k / k!, with ω² = −s²: its roots in s, of negative real part.
    coefficients = [1.0 / math.factorial(k) for k in range(order + 1)]
    roots = np.sqrt(-2.0 * np.roots(coefficients[::-1]).astype(complex))
    space = from_spectrum(np.where(roots.real > 0, -roots, roots))
    distances = np.linspace(0.0, 10.0, 2001)
    error = largest_error(space, np.exp(-0.5 * distances**2), distances)
    return replace(space, error=error)
