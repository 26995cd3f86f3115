"""A user's own covariance function as a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import Kernel

# Inputs at which an object is tested when it becomes a kernel.
_TRIED = np.array([0.0, 0.5, 2.0])
# Number of inputs whose covariances are computed together where only their variances are needed.
_BLOCK = 64


@dataclass(frozen=True, repr=False)
class Custom(Kernel):
    r"""A variance that is learned times the covariance function of an object.

    .. math:: k(x, x') = s^2 c(x, x')

    A kernel whose own parameters are to be learned is a class that inherits from
    ``dsgp.kernels.Kernel``.

    Parameters
    ----------
    function : object with a method ``covariance(x, y)``
        It takes two arrays (n,) and (k,) and returns an array (n, k): symmetric and positive
        semidefinite for all inputs.
    variance : float or None
        :math:`s^2`, by which the covariances are multiplied. None: chosen from the data.
    fixed : iterable of {"variance"}
        Parameters that a learner must leave as given.

    Raises
    ------
    ParameterError
        If the object has no such method, or what it returns has another shape or is not a
        covariance.
    """

    function: Any
    variance: float | None = None
    fixed: Iterable[str] = field(default=())

    parameters: ClassVar[tuple[str, ...]] = ("variance",)
    order: ClassVar[int] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        tried = self._evaluated(_TRIED, _TRIED)
        if not np.allclose(tried, tried.T, rtol=1e-8) or not (
            np.linalg.eigvalsh(tried)[0] >= -1e-8 * np.abs(tried).max()
        ):
            raise ParameterError(
                f"{self.function!r}.covariance is not a covariance function: for the inputs "
                f"{_TRIED.tolist()} it returns {tried.tolist()}, which is not symmetric and "
                "positive semidefinite"
            )

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        first = np.asarray(x, dtype=float)
        second = first if y is None else np.asarray(y, dtype=float)
        return self._complete("variance") * self._evaluated(first, second)

    @property
    def std(self) -> float:
        # The largest at the inputs of the test: the variance at others may be different.
        scale = float(np.diag(self._evaluated(_TRIED, _TRIED)).max())
        return float(np.sqrt(self._complete("variance") * scale))

    def diagonal(self, x: ArrayLike) -> NDArray[np.float64]:
        inputs = np.asarray(x, dtype=float)
        parts = [inputs[start : start + _BLOCK] for start in range(0, len(inputs), _BLOCK)]
        return np.concatenate([np.diag(self.covariance(part)) for part in parts] or [inputs])

    def _evaluated(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        covariance = np.asarray(self.function.covariance(x, y), dtype=float)
        if covariance.shape != (len(x), len(y)) or not np.isfinite(covariance).all():
            raise ParameterError(
                f"{self.function!r}.covariance(x, y) must return finite numbers of shape "
                f"({len(x)}, {len(y)}) for so many inputs, got shape {covariance.shape}"
            )
        return covariance

    def to_settings(self) -> dict[str, Any]:
        raise ParameterError(
            f"the covariance of {self.function!r} is code, which a store cannot hold; to save the "
            "model, make it a class that inherits from dsgp.kernels.Kernel"
        )

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        raise ParameterError("a kernel of a user's own object cannot be restored")


def kernel_of(candidate: Any) -> Kernel:
    """Return a kernel as it is, and a user's own object with ``covariance`` as one.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(candidate, Kernel):
        return candidate
    if isinstance(candidate, type) or not callable(getattr(candidate, "covariance", None)):
        hint = " (did you forget the brackets?)" if isinstance(candidate, type) else ""
        raise ParameterError(
            "a kernel must be one of dsgp.kernels, such as Matern52(), or an object with a method "
            f"covariance(x, y) that takes arrays (n,) and (k,) and returns (n, k); got "
            f"{candidate!r}{hint}"
        )
    return Custom(candidate)
