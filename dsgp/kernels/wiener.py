"""Wiener processes and their integrals: the priors of smoothing splines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import comb

from dsgp.errors import ParameterError
from dsgp.kernels.base import Kernel
from dsgp.kernels.priors import Prior, Priors
from dsgp.kernels.state_space import StateSpace


@dataclass(frozen=True, repr=False)
class Wiener(Kernel):
    r"""Wiener process, integrated m − 1 times: the prior of a smoothing spline.

    .. math:: k(x, x') = s^2 \int_0^{\min(a, a')} \frac{(a - u)^{m-1} (a' - u)^{m-1}}{(m-1)!^2} du,
              \quad a = |x - x_0| / \ell

    for two inputs on the same side of the origin :math:`x_0`, and 0 for others. The function and
    its m − 1 derivatives are 0 at the origin; together with a polynomial of degree m − 1, which has
    a flat prior, it is the spline of degree 2m − 1 that ``SmoothingSpline`` fits in linear time.
    Only :math:`s^2 / \ell^{2m-1}` matters.

    Models of several terms refuse it: its variance has no limit, and it has no lengthscale, by
    which they choose the nodes of a function.

    Parameters
    ----------
    smoothing_order : {2, 1, 3}
        m: 1 for piecewise linear functions, 2 for cubic splines, 3 for quintic splines.
    lengthscale : float or None
        :math:`\ell`, the unit of the input to which the variance refers.
    variance : float or None
        :math:`s^2`, in squared units of the target: with m = 1 that of the change over a
        lengthscale.
    origin : float
        :math:`x_0`, in the units of the input. Take one that is not far from the inputs.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    priors : mapping
        Must be empty: no model uses any.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, a fixed one is not given, or
        there are priors.

    Examples
    --------
    >>> from dsgp.kernels import Wiener
    >>> Wiener(1, lengthscale=1.0, variance=2.0).covariance([1.0, 3.0])
    array([[2., 2.],
           [2., 6.]])
    """

    smoothing_order: int = 2
    lengthscale: float | None = None
    variance: float | None = None
    origin: float = 0.0
    fixed: Iterable[str] = field(default=())
    priors: Mapping[str, Prior] = field(default_factory=Priors)

    parameters: ClassVar[tuple[str, ...]] = ("lengthscale", "variance")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.priors:
            raise ParameterError(
                "Wiener: no model uses priors of its parameters, because only their ratio "
                "matters: leave priors out; SmoothingSpline(smoothing=…) keeps a known ratio"
            )
        whole = isinstance(self.smoothing_order, (int, np.integer))
        if not whole or isinstance(self.smoothing_order, bool) or self.smoothing_order not in _ALL:
            raise ParameterError(
                f"Wiener: smoothing_order must be one of {_ALL}, got {self.smoothing_order!r}"
            )
        object.__setattr__(self, "smoothing_order", int(self.smoothing_order))
        origin: Any = self.origin
        if isinstance(origin, bool) or not isinstance(origin, (int, float, np.number)):
            raise ParameterError(f"Wiener: origin must be a number, got {origin!r}")
        if not math.isfinite(origin):
            raise ParameterError(f"Wiener: origin must be finite, got {origin!r}")
        object.__setattr__(self, "origin", float(origin))

    @property
    def order(self) -> int:  # type: ignore[override]
        return self.smoothing_order

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        first = self._from_origin(x)
        second = first if y is None else self._from_origin(y)
        same = np.sign(first)[:, None] == np.sign(second)
        near = np.minimum(np.abs(first)[:, None], np.abs(second))
        gap = np.abs(np.abs(first)[:, None] - np.abs(second))
        return np.asarray(np.where(same, self._complete("variance") * self._moment(near, gap), 0.0))

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        if name == "lengthscale":
            return -(2 * self.order - 1) * self.covariance(x, y)
        return super().by_log(name, x, y)

    def diagonal(self, x: ArrayLike) -> NDArray[np.float64]:
        near = np.abs(self._from_origin(x))
        return np.asarray(self._complete("variance") * self._moment(near, 0.0))

    def state_space(self) -> StateSpace:
        """Return the function and its derivatives to the right of the origin: exact."""
        size, length = self.order, self._complete("lengthscale")
        diffusion = np.zeros((size, size))
        diffusion[-1, -1] = self._complete("variance") / length
        return StateSpace(
            np.eye(size, k=1) / length,
            diffusion,
            np.eye(size)[0],
            np.zeros((size, size)),
            is_stationary=False,
        )

    def _from_origin(self, x: ArrayLike) -> NDArray[np.float64]:
        return (np.asarray(x, dtype=float) - self.origin) / self._complete("lengthscale")

    def _moment(self, near: NDArray[np.float64], gap: Any) -> NDArray[np.float64]:
        """∫ (a − u)^{m−1} (a' − u)^{m−1} du / (m−1)!² for the nearer input and their distance."""
        last = self.order - 1
        total = np.zeros(np.broadcast(near, gap).shape)
        for k in range(last + 1):
            power = 2 * last - k + 1
            total = total + comb(last, k) * gap**k * near**power / power
        return np.asarray(total / math.factorial(last) ** 2)


_ALL = (1, 2, 3)
