"""Kernels of oscillations that do not last: one damped frequency, and a season whose shape drifts.

Both have state-space forms; that of a season is cut after so many harmonics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.kernels.base import Kernel, Stationary
from dsgp.kernels.matern import Matern32
from dsgp.kernels.periodic import Periodic, checked_period
from dsgp.kernels.priors import Prior, Priors
from dsgp.kernels.state_space import StateSpace, multiplied


@dataclass(frozen=True, repr=False)
class DampedOscillation(Stationary):
    r"""Kernel of a randomly driven, damped oscillator, such as sunspots or a swinging mast.

    .. math:: k(x, x') = s^2 e^{-r/\ell} \left(\cos \omega r + \frac{\sin \omega r}{\omega \ell}
              \right), \quad r = |x - x'|, \; \omega = 2\pi / p

    The solution of :math:`f'' + 2 f'/\ell + (\omega^2 + \ell^{-2}) f =` white noise; paths have one
    derivative.

    Parameters
    ----------
    period : float or {"year", "week", "day"}
        p, in the units of the input. It is given, never learned; a relative error of up to p/ℓ is
        absorbed by the damping. A name is for columns of dates in a table.
    lengthscale : float or None
        :math:`\ell`, in the units of the input, over which phase and amplitude are forgotten. None:
        chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    fixed : iterable of {"lengthscale", "variance"}
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names: ``LogNormal``, ``PenalisedComplexity``. Learners of
        additive models add their log densities; by default there are none.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.

    Examples
    --------
    >>> from dsgp.kernels import DampedOscillation
    >>> DampedOscillation(11.0, 40.0, 1.0).covariance([0.0], [5.5, 11.0]).round(3)
    array([[-0.872,  0.76 ]])
    """

    period: float | str
    lengthscale: float | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    priors: Mapping[str, Prior] = field(default_factory=Priors)

    order: ClassVar[int] = 2
    is_damped: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_period(self)

    @property
    def _frequency(self) -> float:
        return 2.0 * math.pi / _number(self)

    def natural_width(self) -> float | None:
        return None if isinstance(self.period, str) else self.period / 4

    @property
    def n_states(self) -> int:
        return 2

    def state_space(self) -> StateSpace:
        """Return the function and its slope, in units of the slope's deviation: exact."""
        lengthscale, variance = self._values()
        rate = math.hypot(self._frequency, 1.0 / lengthscale)
        drift = np.array([[0.0, rate], [-rate, -2.0 / lengthscale]])
        diffusion = np.diag([0.0, 4.0 / lengthscale * variance])
        return StateSpace(drift, diffusion, np.array([1.0, 0.0]), variance * np.eye(2))

    def _covariance_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        lengthscale, variance = self._values()
        with np.errstate(over="ignore", invalid="ignore"):
            phase = self._frequency * distance
            decay = np.exp(-distance / lengthscale)
            # sin(ωr)/(ωℓ) = (r/ℓ) sinc: accurate however slow the oscillation is relative to the
            # damping.
            swing = np.cos(phase) + distance / lengthscale * np.sinc(phase / math.pi)
        return np.where(decay > 0, variance * decay * swing, 0.0)

    def _by_log_lengthscale_at(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        lengthscale, variance = self._values()
        with np.errstate(over="ignore", invalid="ignore"):
            phase, ratio = self._frequency * distance, distance / lengthscale
            decay, sinc = np.exp(-ratio), np.sinc(phase / math.pi)
            change = ratio * (np.cos(phase) + ratio * sinc) - ratio * sinc
        return np.where(decay > 0, variance * decay * change, 0.0)


@dataclass(frozen=True, repr=False)
class QuasiPeriodic(Kernel):
    r"""Kernel of a season whose shape drifts: a periodic kernel times a Matérn 3/2 one.

    .. math:: k(x, x') = k_\mathrm{Periodic}(x, x')\, (1 + \tau) e^{-\tau}, \quad
              \tau = \sqrt{3}\, |x - x'| / (d p)

    Parameters
    ----------
    period : float or {"year", "week", "day"}
        p, in the units of the input. It is given, never learned. A name is for columns of dates in
        a table.
    lengthscale : float or None
        Lengthscale of the season: see ``Periodic``. None: chosen from the data by the model.
    variance : float or None
        :math:`s^2`, in squared units of the target. None: chosen from the data by the model.
    drift_periods : float or None
        d, the lengthscale of the drift in periods: two seasons so many periods apart have little in
        common. None: chosen from the data by the model, from 0.5 to 1000.
    fixed : iterable of {"lengthscale", "variance", "drift_periods"}
        Parameters that a learner must leave as given.
    priors : mapping of str to Prior
        Priors of parameters, by their names: ``LogNormal``, ``PenalisedComplexity``. Learners of
        additive models add their log densities; by default there are none.
    smoothness : {inf, 0.5, 1.5, 2.5, 3.5}
        As for ``Periodic``.
    error : float or None
        Largest error of the covariance, as a share of the variance, of the state-space form that
        models of several terms use, in linear time. None: they use the dense form, which is exact.

    Raises
    ------
    ParameterError
        If a parameter is not a positive number within 1e-150 to 1e150, or a fixed one is not given.

    Examples
    --------
    >>> from dsgp.kernels import QuasiPeriodic
    >>> season = QuasiPeriodic(1.0, lengthscale=0.2, variance=1.0, drift_periods=10.0)
    >>> season.covariance([0.0], [1.0, 10.0, 10.5]).round(3)
    array([[0.987, 0.483, 0.129]])
    """

    period: float | str
    lengthscale: float | None = None
    variance: float | None = None
    drift_periods: float | None = None
    fixed: Iterable[str] = field(default=())
    smoothness: float = math.inf
    priors: Mapping[str, Prior] = field(default_factory=Priors)
    error: float | None = None

    parameters: ClassVar[tuple[str, ...]] = ("lengthscale", "variance", "drift_periods")

    def __post_init__(self) -> None:
        super().__post_init__()
        season = Periodic(self.period, smoothness=self.smoothness)  # checks both parameters
        object.__setattr__(self, "period", season.period)
        object.__setattr__(self, "smoothness", season.smoothness)

    @property
    def order(self) -> int:  # type: ignore[override]
        return min(self.season.order, 2)

    @cached_property
    def season(self) -> Periodic:
        """The season that drifts."""
        return Periodic(self.period, self.lengthscale, self.variance, smoothness=self.smoothness)

    @property
    def _drift(self) -> Matern32:
        return Matern32(self._complete("drift_periods") * _number(self), 1.0)

    def natural_width(self) -> float | None:
        return self.season.natural_width()

    def limits(self, name: str) -> tuple[float, float, float]:
        return (0.5, 3.0, 1000.0) if name == "drift_periods" else super().limits(name)

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        if math.isinf(self.smoothness):  # JSON has no infinity
            del settings["smoothness"]
        return settings

    def covariance(self, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        return self.season.covariance(x, y) * self._drift.covariance(x, y)

    def by_log(self, name: str, x: ArrayLike, y: ArrayLike | None = None) -> NDArray[np.float64]:
        if name == "drift_periods":
            return self.season.covariance(x, y) * self._drift.by_log("lengthscale", x, y)
        return self.season.by_log(name, x, y) * self._drift.covariance(x, y)

    def state_space(self, error: float | None = None) -> StateSpace:
        """Return two states of each harmonic of the season, whose amplitudes drift.

        Parameters
        ----------
        error : float, optional
            Largest error of the covariance that is accepted, as a share of the variance. Default:
            that of the kernel, or 1e-4.

        Raises
        ------
        ParameterError
            If more than 60 harmonics would be needed: the dense form is exact.
        """
        accepted = self.error if error is None else error
        return multiplied([self.season.state_space(accepted), self._drift.state_space()])

    def state_space_family(self) -> Callable[[Any], StateSpace]:
        season = replace(self.season, error=self.error).state_space_family()
        return lambda kernel: multiplied([season(kernel.season), kernel._drift.state_space()])


def _number(kernel: DampedOscillation | QuasiPeriodic) -> float:
    """The period, in the units of the input."""
    return Periodic(kernel.period)._period
