"""What all kernels share: their parameters, and dense matrices. State-space forms are elsewhere."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import Field, fields, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError

PARAMETERS = ("lengthscale", "variance")
# Beyond these, rates, squares and their products leave the range of float64.
SMALLEST, LARGEST = 1e-150, 1e150


class Kernel(ABC):
    r"""Base of all kernels: a covariance of the function that depends on a distance alone.

    A kernel is a frozen dataclass with at least the three attributes below. It fills two matrices,
    from the distances of its inputs.

    Attributes
    ----------
    lengthscale : float or None
        :math:`\ell`, in the units of the input. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : tuple of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.
    """

    lengthscale: float | None
    variance: float | None
    fixed: Iterable[str]

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        fixed = (self.fixed,) if isinstance(self.fixed, str) else tuple(self.fixed)
        object.__setattr__(self, "fixed", fixed)
        for name in PARAMETERS:
            if getattr(self, name) is not None:
                self._require_number(name)
        for name in fixed:
            if name not in PARAMETERS:
                raise ParameterError(
                    f"{type(self).__name__}: fixed names {name!r}; it can name {PARAMETERS}"
                )
            if getattr(self, name) is None:
                raise ParameterError(
                    f"{type(self).__name__}: {name} is marked fixed but has no value; give it one"
                )

    def _require_number(self, name: str) -> None:
        """Make an attribute a float, or raise ``ParameterError``."""
        value = getattr(self, name)
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not (number and SMALLEST <= float(value) <= LARGEST):
            raise ParameterError(
                f"{type(self).__name__}: {name} must be a number from {SMALLEST:g} to "
                f"{LARGEST:g}, got {value!r}"
            )
        object.__setattr__(self, name, float(value))

    def __repr__(self) -> str:
        given = {
            own.name: getattr(self, own.name)
            for own in fields(self)
            if getattr(self, own.name) not in (None, own.default)
        }
        words = [
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in given.items()
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    @property
    def std(self) -> float:
        """Prior standard deviation s of the function."""
        return math.sqrt(self._values()[1])

    def with_parameters(self, **values: float) -> Self:
        """Return a copy with other ``lengthscale`` or ``variance``."""
        return replace(self, **values)

    def to_settings(self) -> dict[str, Any]:
        """Return the kernel as values that JSON can hold; ``from_settings`` undoes it.

        Examples
        --------
        >>> from dsgp.kernels import Matern32
        >>> Matern32(lengthscale=2.0).to_settings()
        {'type': 'Matern32', 'lengthscale': 2.0, 'variance': None, 'fixed': []}
        """
        own = {own.name: getattr(self, own.name) for own in fields(self)}
        return {"type": type(self).__name__, **own, "fixed": list(self.fixed)}

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
        return self._covariance_at(self._distances(x, y))

    def by_log_lengthscale(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        """Derivative of ``covariance`` by log ℓ, of the same shape."""
        return self._by_log_lengthscale_at(self._distances(x, y))

    def _distances(self, x: ArrayLike, y: ArrayLike | None) -> NDArray[np.float64]:
        """Distances of all pairs of inputs, in a new array (n, k)."""
        x = np.asarray(x, dtype=float)
        y = x if y is None else np.asarray(y, dtype=float)
        with np.errstate(over="ignore"):  # infinitely far apart: independent
            return np.abs(x[:, None] - y[None, :])

    @abstractmethod
    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the covariance at distances, which may be written over."""

    @abstractmethod
    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of ``_covariance_at`` by log ℓ."""

    def _values(self) -> tuple[float, float]:
        if self.lengthscale is None or self.variance is None:
            raise ParameterError(
                f"{self!r} has no {'lengthscale' if self.lengthscale is None else 'variance'} yet; "
                "give it one, or take the kernel from a fitted model's kernels_"
            )
        return self.lengthscale, self.variance
