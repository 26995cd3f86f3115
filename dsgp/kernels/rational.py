"""The rational quadratic covariance: a mixture of squared exponentials of many lengthscales."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.kernels.base import Stationary
from dsgp.kernels.priors import Prior, Priors


@dataclass(frozen=True, repr=False)
class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel.

    .. math:: k(x, x') = s^2 \left(1 + \frac{(x - x')^2}{2 \alpha \ell^2}\right)^{-\alpha}

    The squared exponential for :math:`\alpha \to \infty`; a small :math:`\alpha` lets functions
    vary over many scales (Rasmussen and Williams 2006, eq. 4.19). It has no state-space form.

    Parameters
    ----------
    lengthscale : float or None
        :math:`\ell`, in the units of the input. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    alpha : float or None
        :math:`\alpha`, without unit. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance", "alpha"}
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names: ``LogNormal``, ``PenalisedComplexity``. Learners of
        additive models add their log densities; by default there are none.

    Examples
    --------
    >>> from dsgp.kernels import RationalQuadratic
    >>> RationalQuadratic(1.0, 2.0, alpha=0.5).covariance([0.0, 1.0]).round(4)
    array([[2.    , 1.4142],
           [1.4142, 2.    ]])
    """

    lengthscale: float | None = None
    variance: float | None = None
    alpha: float | None = None
    fixed: Iterable[str] = field(default=())
    priors: Mapping[str, Prior] = field(default_factory=Priors)

    parameters: ClassVar[tuple[str, ...]] = ("lengthscale", "variance", "alpha")
    order: ClassVar[int] = 4

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        if name != "alpha":
            return super().by_log(name, x, y)
        alpha, ratio = self._complete("alpha"), self._ratio(self._distances(x, y))
        change = alpha * (ratio / (1.0 + ratio) - np.log1p(ratio))
        return self._power(ratio) * change

    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._power(self._ratio(distance))

    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        ratio = self._ratio(distance)
        return self._power(ratio) * (2.0 * self._complete("alpha") * ratio / (1.0 + ratio))

    def _ratio(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """(r/ℓ)² / 2α."""
        with np.errstate(over="ignore"):
            scaled = distance / self._complete("lengthscale")
        np.minimum(scaled, 1e70, out=scaled)  # the square of a larger number overflows
        return scaled**2 / (2.0 * self._complete("alpha"))

    def _power(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._complete("variance") * np.exp(-self._complete("alpha") * np.log1p(ratio))
