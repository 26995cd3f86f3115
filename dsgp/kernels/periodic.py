"""Covariances of periodic functions, such as longitude or the time of the year: dense form only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import Stationary
from dsgp.kernels.matern import Matern12, Matern32, Matern52, Matern72
from dsgp.kernels.spectral import SquaredExponential

_PLANAR = {
    0.5: Matern12,
    1.5: Matern32,
    2.5: Matern52,
    3.5: Matern72,
    math.inf: SquaredExponential,
}


# Of dates, in tables.
PERIOD_NAMES = ("year", "week", "day")


@dataclass(frozen=True, repr=False)
class Periodic(Stationary):
    r"""Kernel of functions that repeat: a kernel of the plane, on a circle.

    .. math:: k(x, x') = k_\nu(c), \quad
              c = \frac{p}{\pi} \left|\sin \frac{\pi (x - x')}{p}\right|

    The input runs round a circle of circumference p, and c is the chord between two inputs. A
    covariance of the plane stays one on a circle in it: the squared exponential, which gives the
    usual periodic kernel (scikit-learn's ``ExpSineSquared`` with ``length_scale`` 2πℓ/p), and
    Matérn for a function with fewer derivatives.

    For the axes of a grid (longitude, the hour of the day, the day of the year) and the columns of
    a table.

    Parameters
    ----------
    period : float or {"year", "week", "day"}
        p, in the units of the input. It is given, never learnt. A name is of dates, in a table.
    lengthscale : float or None
        :math:`\ell`, in the units of the input: that of neighbouring points, where the chord is
        the distance. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    smoothness : {inf, 0.5, 1.5, 2.5, 3.5}
        ν of the Matérn kernel of the plane; infinite for the squared exponential.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, a fixed one is not given, or
        the smoothness is another one.

    Examples
    --------
    >>> from dsgp.kernels import Periodic
    >>> longitude = Periodic(period=360.0, lengthscale=30.0, variance=1.0)
    >>> longitude.covariance([0.0], [10.0, 350.0, 90.0]).round(4)
    array([[0.9461, 0.9461, 0.0261]])
    """

    period: float | str
    lengthscale: float | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    smoothness: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.period, str):
            self._require_number("period")
        elif self.period not in PERIOD_NAMES:
            raise ParameterError(
                f"Periodic: period must be a number or one of {PERIOD_NAMES}, got {self.period!r}"
            )
        known = isinstance(self.smoothness, (int, float, np.floating))
        if not known or self.smoothness not in _PLANAR:
            raise ParameterError(
                f"Periodic: smoothness must be one of {tuple(_PLANAR)}, got {self.smoothness!r}"
            )
        object.__setattr__(self, "smoothness", float(self.smoothness))

    @property
    def order(self) -> int:  # type: ignore[override]
        return int(min(self.smoothness + 0.5, 4))

    @property
    def _period(self) -> float:
        if isinstance(self.period, str):
            raise ParameterError(
                f"{self!r} has no period in numbers: that of a date is known in a table only"
            )
        return self.period

    def natural_width(self) -> float | None:
        return None if isinstance(self.period, str) else self.period / 8

    def to_settings(self) -> dict[str, Any]:
        # JSON has no infinity.
        smooth = {} if math.isinf(self.smoothness) else {"smoothness": self.smoothness}
        return {k: v for k, v in super().to_settings().items() if k != "smoothness"} | smooth

    @property
    def _planar(self) -> Stationary:
        """The kernel of the plane, as a function of the chord."""
        return _PLANAR[self.smoothness](*self._values())

    def _distances(self, x: ArrayLike, y: ArrayLike | None) -> NDArray[np.float64]:
        """Chords of all pairs of inputs, (n, k)."""
        # Remainders are exact: inputs many periods away lose nothing.
        period = self._period
        first = np.fmod(np.asarray(x, dtype=float), period)
        second = first if y is None else np.fmod(np.asarray(y, dtype=float), period)
        arc = np.fmod(np.abs(first[:, None] - second[None, :]), period)
        np.minimum(arc, period - arc, out=arc)
        arc *= math.pi / period
        np.sin(arc, out=arc)
        arc *= period / math.pi
        return arc

    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._planar._covariance_at(distance)

    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._planar._by_log_lengthscale_at(distance)
