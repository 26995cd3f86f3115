"""Covariances of interactions: products of kernels of two inputs, each centred on its margin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import REGISTRY, Kernel
from dsgp.kernels.combined import Product
from dsgp.kernels.effects import Independent

Floats = NDArray[np.float64]

# Number of points that represent the distribution of an input with more distinct values.
MARGIN_POINTS = 64
# Number of inputs up to which a covariance is kept for the next call; there are fewer nodes than
# that.
_FEW_INPUTS = 128
# Rounding error of the sum of shares that have been divided by their sum.
_SUMMED = 1e-9


@dataclass(frozen=True)
class Margin:
    """How the rows are distributed along one input.

    Attributes
    ----------
    points : tuple of float
        Distinct values, or means of bins.
    shares : tuple of float
        Of the rows at each; they sum to 1.
    """

    points: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        points, shares = np.asarray(self.points, float), np.asarray(self.shares, float)
        if len(points) != len(shares) or not len(points):
            raise ParameterError("a margin must have a share for each of its points, one at least")
        if not (np.isfinite(points).all() and (shares > 0).all()):
            raise ParameterError("points of a margin must be finite, and their shares positive")
        object.__setattr__(self, "points", tuple(points.tolist()))
        total = float(shares.sum())
        if abs(total - 1.0) > _SUMMED:  # shares that are read back must keep their bits
            shares = shares / total
        object.__setattr__(self, "shares", tuple(shares.tolist()))


@dataclass(frozen=True, repr=False)
class CentredProduct(Product):
    r"""Covariance of a function of two inputs without a main effect of either.

    .. math:: k(x, x') = s^2 \, \hat k_1(x_1, x_1') \, \hat k_2(x_2, x_2')

    Each factor is a kernel conditioned on a zero mean over the margin w of its input, and divided
    by its mean variance there (Durrande et al. 2013):

    .. math::
        \tilde k(x, x') = k(x, x') - \frac{(k w)(x) \, (k w)(x')}{w^\top k w}, \qquad
        \hat k = \tilde k / \textstyle\sum_i w_i \tilde k(g_i, g_i)

    Every draw averages to 0 over each input, for any value of the other one, so that curves of
    single inputs and interactions have nothing in common, and s² is the mean variance of the
    interaction over rows whose inputs are independent. The inputs are rows of two numbers; a level
    is its number, and its kernel ``Independent``. Made by the term ``Tensor``.

    Parameters
    ----------
    parts : tuple of two kernels
        Variances other than that of the first are 1 and fixed.
    margins : tuple of two Margin
        Empty until they are known.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import CentredProduct, Independent, Margin, Matern52
    >>> few = Margin((0.0, 1.0), (0.5, 0.5))
    >>> kernel = CentredProduct((Matern52(1.0, 2.0), Independent(1.0)), (few, few))
    >>> kernel.covariance(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).round(6)
    array([[ 2., -2., -2.],
           [-2.,  2.,  2.],
           [-2.,  2.,  2.]])
    """

    parts: tuple[Kernel, ...]
    margins: tuple[Margin, ...] = ()
    fixed: Iterable[str] = field(default=(), init=False)
    sign: ClassVar[str] = " × "

    def _prepared(self, parts: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        if len(parts) != 2:
            raise ParameterError(f"an interaction has two kernels, got {len(parts)}")
        for part in parts:
            variances = [name for name in part.parameters if name.startswith("variance")]
            if variances != ["variance"]:
                raise ParameterError(
                    f"{part!r} has {len(variances)} variances, and a kernel of an interaction "
                    "must have one: use a single kernel, and a term for each of a sum"
                )
        return super()._prepared(parts)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Levels have nothing between them to be resolved.
        orders = [part.order for part in self.parts if not isinstance(part, Independent)]
        object.__setattr__(self, "order", min(orders, default=4))
        if len(self.margins) not in (0, 2):
            raise ParameterError(f"an interaction has two margins, got {len(self.margins)}")

    def __repr__(self) -> str:
        first, second = self.parts
        free = tuple(name for name in second.fixed if name != "variance")
        shown = replace(second, variance=None, fixed=free)
        return f"{first!r} × {shown!r}"

    def to_settings(self) -> dict[str, Any]:
        margins = [{"points": m.points, "shares": m.shares} for m in self.margins]
        return super().to_settings() | {"margins": margins}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        parts = []
        for part in settings["parts"]:
            part_settings = dict(part)
            parts.append(REGISTRY[part_settings.pop("type")].from_settings(part_settings))
        margins = tuple(
            Margin(tuple(one["points"]), tuple(one["shares"])) for one in settings["margins"]
        )
        return cls(tuple(parts), margins)

    # ------------------------------------------------------------------ search

    def natural_width_of(self, name: str) -> float | None:
        number, _ = self._part(name)
        return self.parts[number].natural_width()

    @property
    def is_layered(self) -> bool:
        return False

    # ------------------------------------------------------------------ matrices

    @property
    def std(self) -> float:
        """Root of the mean prior variance s²."""
        return math.sqrt(self._complete("variance_1"))

    def factor(self, number: int, x: Floats, y: Floats | None = None) -> Floats:
        """k̂ of one input, 0 or 1, between two sets of its values, or within one, (n, k)."""
        return self._centred(number).covariance(x, y)

    def slope_factors(self, name: str, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """Factors of ``by_log`` among values of each input: their product times s² is that.

        Parameters
        ----------
        name : str
            A parameter.
        first, second : ndarray of shape (n,) and (k,)

        Returns
        -------
        two ndarray of shape (n, n) and (k, k)
        """
        number, name_in_part = self._part(name)
        values = (first, second)
        factors = [self.factor(k, values[k]) for k in (0, 1)]
        if name_in_part != "variance":
            factors[number] = self._centred(number).by_log(name_in_part, values[number])
        return factors[0], factors[1]

    def _centred(self, number: int) -> _Centred:
        if len(self.margins) != 2:
            raise ParameterError(f"{self!r} has no margins yet: they are set in a fit")
        return _centred(self.parts[number], self.margins[number])

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> Floats:
        first, second = _columns(x, y)
        product = self.factor(0, first[0], second[0]) * self.factor(1, first[1], second[1])
        product *= self.std**2
        return product

    def diagonal(self, x: ArrayLike) -> Floats:
        (first, second), _ = _columns(x)
        return self.std**2 * (self._centred(0).diagonal(first) * self._centred(1).diagonal(second))

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> Floats:
        number, name_in_part = self._part(name)
        if name_in_part == "variance":
            return self.covariance(x, y)
        first, second = _columns(x, y)
        slope = self._centred(number).by_log(name_in_part, first[number], second[number])
        other = 1 - number
        slope *= self.factor(other, first[other], second[other])
        slope *= self.std**2
        return slope


_Inputs = tuple[Floats, Floats]


def _columns(
    x: ArrayLike, y: ArrayLike | None = None
) -> tuple[_Inputs, _Inputs | tuple[None, None]]:
    """Return both inputs of the rows of x and of y; None for those of y where it is x."""
    first = np.asarray(x, float)
    second = first if y is None else np.asarray(y, float)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != 2 or second.shape[1] != 2:
        raise ParameterError(
            f"inputs of an interaction are rows of two numbers, got shapes {first.shape} and "
            f"{second.shape}"
        )
    of_second = (None, None) if second is first else (second[:, 0], second[:, 1])
    return (first[:, 0], first[:, 1]), of_second


class _Centred:
    """One factor k̂ of an interaction.

    Its covariance among the last few inputs is kept: an evaluation of a likelihood and its gradient
    needs it three times.
    """

    def __init__(self, part: Kernel, margin: Margin) -> None:
        self.part = part
        self.points, self.shares = np.array(margin.points), np.array(margin.shares)
        prior = part.covariance(self.points, self.points)
        self._at_points = prior @ self.shares
        self._total = float(self.shares @ self._at_points)
        variances = np.diag(prior) - self._at_points**2 / self._total
        self._mean = float(self.shares @ variances)
        self._kept: tuple[bytes, Floats, Floats] | None = None

    def _averages(self, x: Floats) -> Floats:
        """(k w)(x), (n,)."""
        return self.part.covariance(x, self.points) @ self.shares

    def _within(self, x: Floats) -> tuple[Floats, Floats]:
        """Return averages and covariance of some inputs, as arrays that must not be changed."""
        kept, few = self._kept, len(x) <= _FEW_INPUTS
        key = x.tobytes() if few else b""
        if few and kept is not None and kept[0] == key:
            return kept[1], kept[2]
        averages = self._averages(x)
        covariance = self._between(self.part.covariance(x), averages, averages)
        if few:
            self._kept = (key, averages, covariance)
        return averages, covariance

    def _between(self, whole: Floats, of_x: Floats, of_y: Floats) -> Floats:
        """Centre and scale a covariance (n, k), which may be the part's own array."""
        centred = np.outer(of_x / self._total, of_y)
        np.subtract(whole, centred, out=centred)
        centred /= self._mean
        return centred

    def covariance(self, x: Floats, y: Floats | None = None) -> Floats:
        if y is None:
            return self._within(x)[1].copy()
        return self._between(self.part.covariance(x, y), self._averages(x), self._averages(y))

    def diagonal(self, x: Floats) -> Floats:
        left = self.part.diagonal(x) - self._averages(x) ** 2 / self._total
        return np.maximum(left, 0.0) / self._mean

    def by_log(self, name: str, x: Floats, y: Floats | None = None) -> Floats:
        part, shares, total = self.part, self.shares, self._total
        margin_slope = part.by_log(name, self.points, self.points)
        slope_at_points = margin_slope @ shares
        total_slope = float(shares @ slope_at_points)
        at = self._at_points
        mean_slope = float(
            shares
            @ (
                np.diag(margin_slope)
                - 2 * at * slope_at_points / total
                + at**2 * total_slope / total**2
            )
        )
        slope_x = part.by_log(name, x, self.points) @ shares
        if y is None:
            of_x, covariance = self._within(x)
            of_y, slope_y = of_x, slope_x
        else:
            of_x, of_y = self._averages(x), self._averages(y)
            covariance = self._between(part.covariance(x, y), of_x, of_y)
            slope_y = part.by_log(name, y, self.points) @ shares
        slope = part.by_log(name, x, y)
        slope -= (np.outer(slope_x, of_y) + np.outer(of_x, slope_y)) / total
        slope += np.outer(of_x, of_y) * (total_slope / total**2)
        return (slope - covariance * mean_slope) / self._mean


@lru_cache(maxsize=256)
def _centred(part: Kernel, margin: Margin) -> _Centred:
    return _Centred(part, margin)
