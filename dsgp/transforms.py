"""Transforms of positive and skewed targets: what a Gaussian model sees instead of their values.

A model of z = g(y) has normal predictions of z; here these become means, deviations, quantiles and
covariances of y, in its own unit, without linearising g. Nothing here knows of rows or grids.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from dsgp.errors import ParameterError

Floats = NDArray[np.float64]

# Nodes of Gauss–Hermite quadrature: exact to rounding for the exponential of a normal variable with
# a standard deviation up to 5, and the inverses here grow no faster. Where the two branches of Yeo
# and Johnson meet, their third derivative jumps: that causes errors of about 1e-5 standard
# deviations.
_NODES = 64
# Number of values that are averaged together: their nodes take a few megabytes.
_BLOCK = 8192
# Interquartile range of a normal distribution, in standard deviations.
_QUARTILES = 1.349
# Powers closer to 0 equal logarithms to all digits.
_LOGARITHM = 1e-12


class Transform(ABC):
    """A smooth increasing function z = g(y) onto the whole real line.

    As every z has a y, a normal z gives y a proper density, and moments that exist. The mean of y
    is not g⁻¹ of the mean of z: ``moments`` averages over the distribution of z, exactly or by
    quadrature. The median and other quantiles are g⁻¹ of those of z.
    """

    name: ClassVar[str]

    # ------------------------------------------------------------------ one value

    @abstractmethod
    def forward(self, y: ArrayLike) -> Floats:
        """Return z = g(y); NaN stays NaN."""

    @abstractmethod
    def inverse(self, z: ArrayLike) -> Floats:
        """Return y = g⁻¹(z), infinite beyond what float64 holds."""

    @abstractmethod
    def log_slope(self, y: ArrayLike) -> Floats:
        """Log of dz/dy, the Jacobian: log p(y) = log p(z) + log dz/dy."""

    @staticmethod
    @abstractmethod
    def allows(y: ArrayLike) -> NDArray[np.bool_]:
        """Return which values have a transform; NaN counts as one that has."""

    # ------------------------------------------------------------------ a normal z

    def median(self, mean: ArrayLike) -> Floats:
        """Median of y where z is normal: g⁻¹ of its mean."""
        return self.inverse(mean)

    def quantile(self, mean: ArrayLike, variance: ArrayLike, probability: ArrayLike) -> Floats:
        """Quantiles of y where z ~ N(mean, variance); the arguments broadcast."""
        return self.inverse(np.asarray(mean) + ndtri(probability) * np.sqrt(variance))

    def moments(
        self, mean: ArrayLike, variance: ArrayLike, noise: ArrayLike = 0.0
    ) -> tuple[Floats, Floats]:
        r"""Mean and standard deviation of what is expected of y given f.

        .. math:: \mu(f) = E[g^{-1}(f + \varepsilon) \mid f], \quad
                  f \sim N(m, v), \quad \varepsilon \sim N(0, s^2)

        Without noise, μ(f) = g⁻¹(f). The mean of μ is that of y, with its noise; the standard
        deviation is that which f leaves to μ. By Mehler's formula, with the coefficients c_k of
        g⁻¹(m + √(v + s²) x) in orthonormal Hermite polynomials, its square is
        Σ_{k≥1} c_k² (v / (v + s²))^k.

        Parameters
        ----------
        mean, variance : array_like that broadcast
            m and v.
        noise : array_like that broadcasts
            s².

        Returns
        -------
        mean, std : ndarray, in the unit of y
        """
        mean, variance, noise = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in (mean, variance, noise))
        )
        average, deviation = np.empty(mean.shape), np.empty(mean.shape)
        flat = [value.reshape(-1) for value in (mean, variance, noise)]
        outs = average.reshape(-1), deviation.reshape(-1)
        _, _, weights = _quadrature()
        for part in _blocks(flat[0].size):
            m, v, s = (value[part] for value in flat)
            values, unit = self._at_nodes(m, v + s)
            if s.any():
                squares = self._coefficients(values)[:, 1:] ** 2
                share = np.divide(v, v + s, out=np.zeros_like(v), where=v > 0)
                square = np.einsum("ik,ik->i", squares, _powers(share))
            else:
                square = (values - (values @ weights)[:, None]) ** 2 @ weights
            outs[0][part] = unit * (values @ weights)
            outs[1][part] = np.where(v > 0, unit, 0.0 * m) * np.sqrt(square)
        return average, deviation

    def average(self, f: ArrayLike, noise: ArrayLike) -> Floats:
        """Return μ(f), what is expected of y given f and noise of a variance that broadcasts."""
        if not np.any(np.asarray(noise) > 0):
            return self.inverse(f)
        f = np.asarray(f, dtype=np.float64)
        variance = np.broadcast_to(np.asarray(noise, dtype=np.float64), f.shape).reshape(-1)
        out, flat = np.empty(f.shape), f.reshape(-1)
        _, _, weights = _quadrature()
        for part in _blocks(flat.size):
            values, unit = self._at_nodes(flat[part], variance[part])
            out.reshape(-1)[part] = unit * (values @ weights)
        return out

    def covariance(
        self, mean: ArrayLike, covariance: ArrayLike, noise: float = 0.0, own: float = 0.0
    ) -> Floats:
        """Covariance of μ(f) at several places, f jointly normal.

        Parameters
        ----------
        mean : array_like of shape (n,)
        covariance : array_like of shape (n, n)
            Of f.
        noise : float
            As for ``moments``.
        own : float
            Independent variance of every place: that of the noise, for new observations (``noise``
            is 0 then).

        Returns
        -------
        ndarray of shape (n, n), in squared units of y
        """
        mean, joint = np.asarray(mean, dtype=np.float64), np.array(covariance, dtype=np.float64)
        joint[np.diag_indices(len(joint))] += own
        total = np.diag(joint) + noise
        values, unit = self._at_nodes(mean, total)
        root = np.sqrt(np.where(total > 0, total, 1.0))
        correlation = joint / root[:, None] / root
        out, power = np.zeros_like(joint), np.ones_like(joint)
        for column in (unit[:, None] * self._coefficients(values)).T[1:]:
            power *= correlation
            out += power * (column[:, None] * column)
        return out

    def _at_nodes(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """g⁻¹ of N(mean, variance) at the nodes, (n, k), and the unit that each row is in, (n,).

        Where it goes beyond float64 the unit is infinite, as are mean and deviation.
        """
        nodes, _, _ = _quadrature()
        values = self.inverse(mean[:, None] + np.sqrt(variance)[..., None] * nodes)
        unit = np.abs(values).max(axis=1)
        beyond = np.isinf(unit)
        values[beyond] = np.sign(self.inverse(mean[beyond]))[:, None]
        unit = np.where(unit > 0, unit, 1.0)
        return values / np.where(beyond, 1.0, unit)[:, None], unit

    @staticmethod
    def _coefficients(values: Floats) -> Floats:
        """Coefficients in orthonormal Hermite polynomials, (n, k), of values at the nodes."""
        return np.asarray(values @ _quadrature()[1])

    # ------------------------------------------------------------------ keeping

    def settings(self) -> dict[str, Any]:
        """Return name and parameters, as JSON can hold them; see ``from_settings``."""
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    @abstractmethod
    def learned(cls, values: Floats, counts: Floats) -> Self:
        """Return the transform of a sample, value by value with its number of rows."""

    @abstractmethod
    def described(self) -> str:
        """Return a short description."""


@dataclass(frozen=True)
class Log(Transform):
    """z = log(y), of positive values: errors are relative, and y is log-normal.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.transforms import Log
    >>> mean, std = Log().moments(0.0, 1.0)
    >>> bool(np.isclose(mean, np.exp(0.5))), float(Log().median(0.0))
    (True, 1.0)
    """

    name: ClassVar[str] = "log"

    def forward(self, y: ArrayLike) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):  # ``allows`` reports such values
            return np.asarray(np.log(np.asarray(y, dtype=np.float64)))

    def inverse(self, z: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(np.asarray(z, dtype=np.float64)))

    def log_slope(self, y: ArrayLike) -> Floats:
        return -self.forward(y)

    @staticmethod
    def allows(y: ArrayLike) -> NDArray[np.bool_]:
        return ~(np.asarray(y) <= 0)

    def moments(
        self, mean: ArrayLike, variance: ArrayLike, noise: ArrayLike = 0.0
    ) -> tuple[Floats, Floats]:
        """As for ``Transform``, in closed form: those of a log-normal variable."""
        mean, variance, noise = np.broadcast_arrays(
            *(np.asarray(value, dtype=np.float64) for value in (mean, variance, noise))
        )
        level = mean + (variance + noise) / 2
        # log(exp(v) - 1), so that neither small nor large variances lose digits.
        with np.errstate(divide="ignore"):  # a variance of 0 gives a deviation of 0
            small = np.log(np.expm1(np.minimum(variance, 1.0)))
        large = variance + np.log1p(-np.exp(-np.maximum(variance, 1.0)))
        spread = np.where(variance < 1, small, large)
        return self.inverse(level), self.inverse(level + spread / 2)

    def average(self, f: ArrayLike, noise: ArrayLike) -> Floats:
        """As for ``Transform``, in closed form."""
        return self.inverse(np.asarray(f) + np.asarray(noise) / 2)

    def covariance(
        self, mean: ArrayLike, covariance: ArrayLike, noise: float = 0.0, own: float = 0.0
    ) -> Floats:
        """As for ``Transform``, in closed form."""
        joint = np.array(covariance, dtype=np.float64)
        joint[np.diag_indices(len(joint))] += own
        with np.errstate(over="ignore", invalid="ignore"):
            average = np.exp(np.asarray(mean) + (np.diag(joint) + noise) / 2)
            return np.asarray(average[:, None] * average * np.expm1(joint))

    @classmethod
    def learned(cls, values: Floats, counts: Floats) -> Self:
        """Return the logarithm, which has nothing to learn."""
        return cls()

    def described(self) -> str:
        return "the logarithm"


@dataclass(frozen=True)
class YeoJohnson(Transform):
    r"""The power transform of Yeo and Johnson, of values of any sign.

    .. math:: z = \frac{(1 + u)^\lambda - 1}{\lambda} \ (u \ge 0), \quad
              z = -\frac{(1 - u)^{2 - \lambda} - 1}{2 - \lambda} \ (u < 0), \quad
              u = \frac{y - \text{location}}{\text{scale}}

    with the logarithm where a power is 0. λ = 1 changes nothing; a smaller λ shortens a long upper
    tail, a larger one a long lower tail.

    Parameters
    ----------
    power : float
        λ, from 0 to 2: only there is every z the transform of some y.
    location : float
    scale : float
        Positive.

    References
    ----------
    Yeo and Johnson (2000), *A new family of power transformations to improve normality or
    symmetry*, Biometrika 87, 954–959.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.transforms import YeoJohnson
    >>> y = np.random.default_rng(0).gamma(2.0, size=1000)
    >>> transform = YeoJohnson.learned(y, np.ones(1000))
    >>> bool(transform.power < 0.5)
    True
    >>> bool(np.allclose(transform.inverse(transform.forward(y)), y))
    True
    """

    power: float
    location: float = 0.0
    scale: float = 1.0
    name: ClassVar[str] = "yeo-johnson"

    def __post_init__(self) -> None:
        """Raise ``ParameterError`` if a parameter is out of its range."""
        for name, value in asdict(self).items():
            if not (isinstance(value, Real) and math.isfinite(value)):
                raise ParameterError(f"{name} of YeoJohnson must be a finite number, got {value!r}")
        if not 0 <= self.power <= 2:
            raise ParameterError(f"power of YeoJohnson must be from 0 to 2, got {self.power!r}")
        if not self.scale > 0:
            raise ParameterError(f"scale of YeoJohnson must be positive, got {self.scale!r}")

    def forward(self, y: ArrayLike) -> Floats:
        u = self._standard(y)
        size = np.log1p(np.abs(u))
        return np.where(u < 0, -_raised(size, 2 - self.power), _raised(size, self.power))

    def inverse(self, z: ArrayLike) -> Floats:
        z = np.asarray(z, dtype=np.float64)
        size = np.abs(z)
        with np.errstate(over="ignore"):
            u = np.where(z < 0, -_lowered(size, 2 - self.power), _lowered(size, self.power))
            return np.asarray(self.location + self.scale * u)

    def log_slope(self, y: ArrayLike) -> Floats:
        u = self._standard(y)
        return np.asarray(
            (self.power - 1) * np.sign(u) * np.log1p(np.abs(u)) - math.log(self.scale)
        )

    @staticmethod
    def allows(y: ArrayLike) -> NDArray[np.bool_]:
        return np.ones(np.shape(y), dtype=bool)

    @classmethod
    def learned(cls, values: Floats, counts: Floats) -> Self:
        r"""Learn λ from a sample: the one under which z is most likely normal.

        .. math:: -\tfrac n2 \log \operatorname{var} z + \sum_i \log dz_i / dy_i

        is largest, the profile of the likelihood over mean and variance of z. u counts from the
        median in standard deviations (by the quartiles), or, where no value is negative and that
        is more likely, from 0 in medians of the positive values.

        Parameters
        ----------
        values, counts : ndarray of shape (n,)
            Distinct values and how often each occurs.
        """
        best: tuple[float, Self] | None = None
        for location, scale in _frames(values, counts):
            profile = _profile(cls, location, scale, values, counts)
            power = _largest(profile)
            attempt = profile(power), cls(power, location, scale)
            if best is None or attempt[0] > best[0]:
                best = attempt
        assert best is not None
        return best[1]

    def described(self) -> str:
        return (
            f"Yeo–Johnson, power {self.power:.3g} of (y - {self.location:.4g}) / {self.scale:.4g}"
        )

    def _standard(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, dtype=np.float64) - self.location) / self.scale


Choice = str | Transform | None
_KINDS: dict[str, type[Log] | type[YeoJohnson]] = {kind.name: kind for kind in (Log, YeoJohnson)}
NAMES = tuple(_KINDS)


def require_transform(parameter: str, value: Any) -> None:
    """Raise ``ParameterError`` unless a parameter's value is one of the transforms."""
    if value is not None and not isinstance(value, Transform) and value not in NAMES:
        choices = ", ".join(f'"{name}"' for name in NAMES)
        raise ParameterError(
            f"{parameter} must be None, {choices}, or a transform of dsgp.transforms, got {value!r}"
        )


def require_quantiles(quantiles: Any) -> tuple[float, ...]:
    """Return probabilities, or raise ``ParameterError`` if they are not valid."""
    listed = () if quantiles is None else np.atleast_1d(quantiles)
    for value in listed:
        if not (isinstance(value, Real) and 0 < float(value) < 1):
            raise ParameterError(
                f"quantiles must be probabilities between 0 and 1, such as [0.05, 0.5, 0.95], got "
                f"{quantiles!r}"
            )
    return tuple(float(value) for value in listed)


def description_of(choice: str | Transform) -> str:
    """Return a short description of a choice, learned or not yet."""
    return choice if isinstance(choice, str) else choice.described()


def kind_of(choice: str | Transform) -> type[Transform] | Transform:
    """Return what such a parameter stands for: a class that learns, or one learned."""
    return choice if isinstance(choice, Transform) else _KINDS[choice]


def from_settings(settings: Mapping[str, Any] | None) -> Transform | None:
    """Undo ``settings``; None stays None.

    Raises
    ------
    ParameterError
        If it is none of the transforms.
    """
    if settings is None:
        return None
    parameters = dict(settings)
    name = parameters.pop("name", None)
    if name not in _KINDS:
        raise ParameterError(f"there is no transform {name!r}; expected one of {NAMES}")
    try:
        return _KINDS[name](**parameters)
    except TypeError as error:
        raise ParameterError(f"settings of transform {name!r}: {error}") from error


# ---------------------------------------------------------------- powers


def _raised(size: Floats, power: float) -> Floats:
    """((1 + u)^power − 1) / power of log(1 + u)."""
    return size if abs(power) < _LOGARITHM else np.expm1(power * size) / power


def _lowered(z: Floats, power: float) -> Floats:
    """Return u, undoing ``_raised``."""
    return np.expm1(z if abs(power) < _LOGARITHM else np.log1p(power * z) / power)


# ---------------------------------------------------------------- learning


def _frames(values: Floats, counts: Floats) -> Iterator[tuple[float, float]]:
    """Locations and scales that powers may count from."""
    low, middle, high = (_sample_quantile(values, counts, p) for p in (0.25, 0.5, 0.75))
    spread = (high - low) / _QUARTILES
    if not spread > 0:
        largest = float(np.abs(values - middle).max(initial=0.0))
        share = (values - middle) / largest if largest > 0 else np.zeros_like(values)
        spread = largest * math.sqrt(np.average(share**2, weights=counts)) or 1.0
    yield middle, spread
    positive = values > 0
    if positive.any() and not (values < 0).any():
        yield 0.0, _sample_quantile(values[positive], counts[positive], 0.5)


def _sample_quantile(values: Floats, counts: Floats, probability: float) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(total, probability * total[-1])])


def _profile(
    kind: type[YeoJohnson], location: float, scale: float, values: Floats, counts: Floats
) -> Callable[[float], float]:
    """Log likelihood of a power, mean and variance of z at their best; per row."""
    share = counts / counts.sum()

    def profile(power: float) -> float:
        transform = kind(float(power), location, scale)
        z = transform.forward(values)
        variance = float(share @ (z - share @ z) ** 2)
        if not variance > 0:
            return -math.inf
        return float(share @ transform.log_slope(values)) - 0.5 * math.log(variance)

    return profile


def _largest(profile: Callable[[float], float]) -> float:
    """The power from 0 to 2 that is most likely."""
    if not math.isfinite(profile(1.0)):  # a constant
        return 1.0
    optimum = minimize_scalar(
        lambda power: -profile(power), bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-5}
    )
    # A bounded search only comes near an end.
    return max((0.0, float(optimum.x), 2.0), key=profile)


# ---------------------------------------------------------------- quadrature


@cache
def _quadrature() -> tuple[Floats, Floats, Floats]:
    """Nodes of a standard normal variable, what projects values there on polynomials, weights.

    The k-th column of the projection is w_j h_k(x_j), h_k the orthonormal Hermite polynomial.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    polynomials = np.empty((_NODES, _NODES))
    polynomials[:, 0] = 1.0
    polynomials[:, 1] = nodes
    for k in range(1, _NODES - 1):
        last, before = polynomials[:, k], polynomials[:, k - 1]
        polynomials[:, k + 1] = (nodes * last - math.sqrt(k) * before) / math.sqrt(k + 1)
    weights = weights / weights.sum()
    return nodes, polynomials * weights[:, None], weights


def _powers(share: Floats) -> Floats:
    """Powers 1, 2, … of shares, (n, ``_NODES`` − 1)."""
    return np.asarray(share[:, None] ** np.arange(1, _NODES))


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, _BLOCK):
        yield slice(start, min(start + _BLOCK, size))
