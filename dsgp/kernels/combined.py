"""Sums and products of kernels."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import REGISTRY, Kernel
from dsgp.kernels.custom import kernel_of
from dsgp.kernels.priors import Priors
from dsgp.kernels.state_space import StateSpace, added, multiplied


class _Combined(Kernel):
    """Kernels put together; a parameter of the first is called ``lengthscale_1``, and so on."""

    parts: tuple[Kernel, ...]
    sign: ClassVar[str]

    def __post_init__(self) -> None:
        parts = self._prepared(tuple(kernel_of(part) for part in self.parts))
        if len(parts) < 2:
            raise ParameterError(f"{type(self).__name__} takes two kernels at least, got {parts}")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(
            self,
            "parameters",
            tuple(f"{name}_{k}" for k, part in enumerate(parts, 1) for name in part.parameters),
        )
        fixed = tuple(f"{name}_{k}" for k, part in enumerate(parts, 1) for name in part.fixed)
        priors = Priors(
            {
                f"{name}_{k}": prior
                for k, part in enumerate(parts, 1)
                for name, prior in part.priors.items()
            }
        )
        object.__setattr__(self, "priors", priors)
        object.__setattr__(self, "order", min(part.order for part in parts))
        object.__setattr__(self, "fixed", fixed)

    @classmethod
    def of(cls, first: Any, second: Any) -> Self:
        """Combine two kernels; a kernel that is already of this kind gets one more part."""
        pieces: list[Kernel] = []
        for one in (kernel_of(first), kernel_of(second)):
            pieces += one.parts if isinstance(one, cls) else [one]
        return cls(tuple(pieces))  # type: ignore[call-arg]

    def _prepared(self, parts: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        return parts

    def __repr__(self) -> str:
        return self.sign.join(
            f"({part!r})" if isinstance(part, _Combined) else repr(part) for part in self.parts
        )

    def _part(self, name: str) -> tuple[int, str]:
        """Return the number of the part, from 0, that a parameter is of, and its name there."""
        name_in_part, _, number = name.rpartition("_")
        return int(number) - 1, name_in_part

    def value(self, name: str) -> float | None:
        number, name_in_part = self._part(name)
        return self.parts[number].value(name_in_part)

    def _processes(self, kernel: _Combined) -> list[StateSpace]:
        """Processes of another kernel's parts, each of the same states as that of this one."""
        return [
            part.state_space_family()(other)
            for part, other in zip(self.parts, kernel.parts, strict=True)
        ]

    def natural_width(self) -> float | None:
        widths = [width for part in self.parts if (width := part.natural_width()) is not None]
        return min(widths, default=None)

    def limits(self, name: str) -> tuple[float, float, float]:
        number, name_in_part = self._part(name)
        return self.parts[number].limits(name_in_part)

    def with_parameters(self, **values: float) -> Self:
        changes: dict[int, dict[str, float]] = {}
        for name, value in values.items():
            number, name_in_part = self._part(name)
            changes.setdefault(number, {})[name_in_part] = value
        parts = [
            part.with_parameters(**changes[k]) if k in changes else part
            for k, part in enumerate(self.parts)
        ]
        return replace(self, parts=tuple(parts))

    def to_settings(self) -> dict[str, Any]:
        return {
            "type": type(self).__name__,
            "parts": [part.to_settings() for part in self.parts],
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        parts = []
        for part in settings["parts"]:
            part_settings = dict(part)
            parts.append(REGISTRY[part_settings.pop("type")].from_settings(part_settings))
        return cls(tuple(parts))  # type: ignore[call-arg]

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        number, name_in_part = self._part(name)
        return self._with_derivative(number, self.parts[number].by_log(name_in_part, x, y), x, y)

    @abstractmethod
    def _with_derivative(
        self,
        number: int,
        derivative: NDArray[np.float64],
        x: ArrayLike,
        y: ArrayLike | None,
    ) -> NDArray[np.float64]:
        """Return the derivative of the whole, from that of one part."""


@dataclass(frozen=True, repr=False)
class Sum(_Combined):
    """Covariance of a sum of independent functions; made by ``+``.

    Parameters
    ----------
    parts : tuple of kernels

    Examples
    --------
    >>> from dsgp.kernels import Matern12, Matern52
    >>> both = Matern52(10.0, 1.0) + Matern12(1.0, 0.5)
    >>> both.parameters
    ('lengthscale_1', 'variance_1', 'lengthscale_2', 'variance_2')
    >>> both.covariance([0.0, 1.0]).round(3)
    array([[1.5  , 1.176],
           [1.176, 1.5  ]])
    """

    parts: tuple[Kernel, ...]
    fixed: Iterable[str] = field(default=(), init=False)
    sign: ClassVar[str] = " + "

    def scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(part.scaled(factor) for part in self.parts))

    @property
    def std(self) -> float:
        return math.hypot(*(part.std for part in self.parts))

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        total = self.parts[0].covariance(x, y)
        for part in self.parts[1:]:
            total = total + part.covariance(x, y)
        return total

    def state_space(self) -> StateSpace:
        """Return the sum of the processes, if all parts have one."""
        return added([part.state_space() for part in self.parts])

    @property
    def n_states(self) -> int | None:
        states = [part.n_states for part in self.parts]
        return None if None in states else sum(filter(None, states))

    def state_space_family(self) -> Callable[[Any], StateSpace]:
        return lambda kernel: added(self._processes(kernel))

    def diagonal(self, x: ArrayLike) -> NDArray[np.float64]:
        return np.sum([part.diagonal(x) for part in self.parts], axis=0)

    def _with_derivative(
        self,
        number: int,
        derivative: NDArray[np.float64],
        x: ArrayLike,
        y: ArrayLike | None,
    ) -> NDArray[np.float64]:
        return derivative


@dataclass(frozen=True, repr=False)
class Product(_Combined):
    """Covariance of a product of independent functions; made by ``*``.

    A product has only one variance: that of the first part. The others are 1 and fixed;
    where they were given, the first is multiplied by them.

    Parameters
    ----------
    parts : tuple of kernels

    Examples
    --------
    >>> from dsgp.kernels import Matern52, Periodic
    >>> season = Periodic(1.0, lengthscale=0.3, variance=2.0) * Matern52(lengthscale=10.0)
    >>> season.free
    ('lengthscale_1', 'variance_1', 'lengthscale_2')
    >>> season.covariance([0.0], [0.0, 1.0, 10.5]).round(3)
    array([[2.   , 1.984, 0.565]])
    """

    parts: tuple[Kernel, ...]
    fixed: Iterable[str] = field(default=(), init=False)
    sign: ClassVar[str] = " * "

    def _prepared(self, parts: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        first, *others = parts
        factor, prepared = 1.0, []
        for part in others:
            value = part.value("variance") if "variance" in part.parameters else None
            factor *= 1.0 if value is None else value
            if "variance" in part.priors:
                raise ParameterError(
                    f"Product: the variance of {part!r} counts in that of the first kernel; give "
                    "the prior there"
                )
            if "variance" in part.parameters:
                fixed = tuple(dict.fromkeys([*part.fixed, "variance"]))
                part = replace(part, variance=1.0, fixed=fixed)
            prepared.append(part)
        return (first if factor == 1.0 else first.scaled(math.sqrt(factor)), *prepared)

    @property
    def std(self) -> float:
        return math.prod(part.std for part in self.parts)

    def scaled(self, factor: float) -> Self:
        return replace(self, parts=(self.parts[0].scaled(factor), *self.parts[1:]))

    def state_space(self) -> StateSpace:
        """Return the product of the processes, if all parts have a stationary one."""
        return multiplied([part.state_space() for part in self.parts])

    @property
    def n_states(self) -> int | None:
        states = [part.n_states for part in self.parts]
        return None if None in states else math.prod(filter(None, states))

    def state_space_family(self) -> Callable[[Any], StateSpace]:
        return lambda kernel: multiplied(self._processes(kernel))

    def diagonal(self, x: ArrayLike) -> NDArray[np.float64]:
        return np.prod([part.diagonal(x) for part in self.parts], axis=0)

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        total = self.parts[0].covariance(x, y)
        for part in self.parts[1:]:
            total = total * part.covariance(x, y)
        return total

    def _with_derivative(
        self,
        number: int,
        derivative: NDArray[np.float64],
        x: ArrayLike,
        y: ArrayLike | None,
    ) -> NDArray[np.float64]:
        for k, part in enumerate(self.parts):
            if k != number:
                derivative = derivative * part.covariance(x, y)
        return derivative
