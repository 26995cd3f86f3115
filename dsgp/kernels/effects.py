"""Covariances of effects: of levels that have nothing in common, and of one number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.kernels.base import Kernel


class _Effect(Kernel):
    """A kernel whose only parameter is a variance; the inputs are numbers of levels."""

    parameters: ClassVar[tuple[str, ...]] = ("variance",)
    order: ClassVar[int] = 4  # levels have nothing between them to be resolved
    variance: float | None


@dataclass(frozen=True, repr=False)
class Independent(_Effect):
    r"""Effects of levels, independent of one another (random effects).

    .. math:: k(x, x') = s^2 \text{ if } x = x', \text{ else } 0

    Parameters
    ----------
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"variance"}
        Parameters that a learner must leave as given.

    Examples
    --------
    >>> from dsgp.kernels import Independent
    >>> Independent(variance=2.0).covariance([0.0, 1.0], [1.0, 5.0])
    array([[0., 0.],
           [2., 0.]])
    """

    variance: float | None = None
    fixed: Iterable[str] = field(default=())

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        first = np.asarray(x, dtype=float)
        second = first if y is None else np.asarray(y, dtype=float)
        return np.where(first[:, None] == second[None, :], self._complete("variance"), 0.0)


@dataclass(frozen=True, repr=False)
class Constant(_Effect):
    r"""One number, the same everywhere; times a column it is a straight line.

    .. math:: k(x, x') = s^2

    Parameters
    ----------
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"variance"}
        Parameters that a learner must leave as given.

    Examples
    --------
    >>> from dsgp.kernels import Constant
    >>> Constant(variance=2.0).covariance([0.0, 1.0])
    array([[2., 2.],
           [2., 2.]])
    """

    variance: float | None = None
    fixed: Iterable[str] = field(default=())

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        shape: Any = (len(np.asarray(x)), len(np.asarray(x if y is None else y)))
        return np.full(shape, self._complete("variance"))
