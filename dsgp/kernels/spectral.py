"""The squared exponential covariance, whose paths have all derivatives: dense form only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dsgp.kernels.base import Stationary


@dataclass(frozen=True, repr=False)
class SquaredExponential(Stationary):
    r"""Squared exponential (Gaussian, RBF) kernel: the limit of Matérn for endless smoothness.

    .. math:: k(x, x') = s^2 \exp\left(-\frac{(x - x')^2}{2 \ell^2}\right)

    For the axes of a grid and the columns of a table; it has no exact state-space form.

    Parameters
    ----------
    lengthscale : float or None
        :math:`\ell`, in the units of the input. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.

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

    order: ClassVar[int] = 4

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
