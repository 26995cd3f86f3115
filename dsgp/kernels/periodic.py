"""Covariances of periodic functions, such as longitude or the time of the year."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import ParameterError
from dsgp.kernels.base import Stationary
from dsgp.kernels.matern import Matern12, Matern32, Matern52, Matern72
from dsgp.kernels.priors import Prior, Priors
from dsgp.kernels.spectral import SquaredExponential
from dsgp.kernels.state_space import StateSpace

_PLANAR = {
    0.5: Matern12,
    1.5: Matern32,
    2.5: Matern52,
    3.5: Matern72,
    math.inf: SquaredExponential,
}


# Names of periods of dates, for columns of dates in tables.
PERIOD_NAMES = ("year", "week", "day")
# Largest number of harmonics of a state-space form, and the number of points of a period from which
# they are computed.
MOST_HARMONICS, _SAMPLES = 60, 4096
# Default error of that form.
_ERROR = 1e-4


@dataclass(frozen=True, repr=False)
class Periodic(Stationary):
    r"""Kernel of periodic functions: a kernel of the plane, on a circle.

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
        p, in the units of the input. It is given, never learned. A name is for columns of dates in
        a table.
    lengthscale : float or None
        :math:`\ell`, in the units of the input: that of neighbouring points, where the chord is
        the distance. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names: ``LogNormal``, ``PenalisedComplexity``. Learners of
        additive models add their log densities; by default there are none.
    smoothness : {inf, 0.5, 1.5, 2.5, 3.5}
        ν of the Matérn kernel of the plane; infinite for the squared exponential.
    error : float or None
        Largest error of the covariance, as a share of the variance, of the state-space form that
        models of several terms use, in linear time. None: they use the dense form, which is exact.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, a fixed one is not given, or
        the smoothness is not one of these.

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
    priors: Mapping[str, Prior] = field(default_factory=Priors)
    error: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_period(self)
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
                f"{self!r} has no period in numbers: the period of a date is known in a table only"
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

    def state_space(self, error: float | None = None) -> StateSpace:
        """Return the harmonics of the function, each a noise-free rotation.

        The series of harmonics of the covariance is truncated, and the variance kept.

        Parameters
        ----------
        error : float, optional
            Largest error of the covariance that is accepted, as a share of the variance. Default:
            that of the kernel, or 1e-4.

        Raises
        ------
        ParameterError
            If more than 60 harmonics would be needed: the dense form is exact.

        Examples
        --------
        >>> from dsgp.kernels import Periodic
        >>> space = Periodic(period=1.0, lengthscale=0.2, variance=1.0).state_space(error=1e-3)
        >>> len(space.drift), bool(space.error < 1e-3)
        (7, True)
        """
        number, left = self._harmonics(error)
        if number is None:
            raise ParameterError(
                f"{self!r} has harmonics beyond the {MOST_HARMONICS}th with {left}; accept more, "
                "or take the dense form, which is exact"
            )
        return self._of_harmonics(number)

    def state_space_family(self) -> Callable[[Any], StateSpace]:
        # A search may pass lengthscales that need more harmonics than the limit, and must continue.
        number = self._harmonics(None)[0] or MOST_HARMONICS + 1
        return lambda kernel: kernel._of_harmonics(number)

    def _harmonics(self, error: float | None) -> tuple[int | None, str]:
        """Return how many harmonics meet an error, None if too many; and the error of the most."""
        if error is None:
            error = _ERROR if self.error is None else self.error
        # The truncated part counts at most twice: it is missing in the sum, and the others are
        # scaled to keep the variance.
        left = 2.0 * (1.0 - np.cumsum(self._shares()))
        enough = np.flatnonzero(left[: MOST_HARMONICS + 1] <= error)
        beyond = (
            f"{max(left[MOST_HARMONICS], 0.0):.2g} of its variance, and error={error:g} is accepted"
        )
        return (int(enough[0]) + 1 if len(enough) else None), beyond

    def _shares(self) -> NDArray[np.float64]:
        """Share of the variance that each harmonic has, from the constant on."""
        angle = np.arange(_SAMPLES) * (self._period / _SAMPLES)
        spectrum = np.fft.rfft(self.covariance([0.0], angle)[0]).real / _SAMPLES
        shares: NDArray[np.float64] = np.maximum(spectrum, 0.0) / self.std**2
        shares[1:-1] *= 2.0
        return shares

    def _of_harmonics(self, number: int) -> StateSpace:
        """Return the process of the constant and the first harmonics, ``number`` in all."""
        shares = self._shares()
        kept = shares[:number]
        variances = self.std**2 * kept / kept.sum()
        size = 2 * number - 1
        drift, observation = np.zeros((size, size)), np.zeros(size)
        for k in range(1, number):
            turn = 2.0 * math.pi * k / self._period
            drift[2 * k - 1, 2 * k], drift[2 * k, 2 * k - 1] = -turn, turn
        observation[0] = 1.0
        observation[1::2] = 1.0
        spread = np.diag(np.concatenate([variances[:1], np.repeat(variances[1:], 2)]))
        unseen = max(float(2.0 * (1.0 - shares[:number].sum())), 0.0)
        return StateSpace(drift, np.zeros((size, size)), observation, spread, error=unseen)

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


def checked_period(kernel: Any) -> None:
    """Make the period of a kernel a float, unless it is that of dates by name.

    Raises
    ------
    ParameterError
        If it is neither a positive number nor a name.
    """
    if not isinstance(kernel.period, str):
        kernel._require_number("period")
    elif kernel.period not in PERIOD_NAMES:
        raise ParameterError(
            f"{type(kernel).__name__}: period must be a number or one of {PERIOD_NAMES}, got "
            f"{kernel.period!r}"
        )
