"""Ordered categories: a latent cut by increasing cutpoints, with the logit or the probit link."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr, ndtri

from dsgp.errors import ParameterError
from dsgp.likelihoods.base import Likelihood, broadcast, prepared
from dsgp.likelihoods.checks import check_choice, check_level, refuse_rows
from dsgp.likelihoods.logistic import log_logistic, logistic_pair
from dsgp.likelihoods.probit import log_normal_mass, normal_mass_derivatives
from dsgp.likelihoods.quadrature import (
    centred_variance,
    expected_logistic,
    log_expected_logistic,
    wide_variance,
)

Array = NDArray[np.float64]

# Replaces the infinite outer cutpoints: its square is finite.
FAR = 1e30


@dataclass(frozen=True)
class Ordered(Likelihood):
    r"""Categories 0 … K − 1 in their order: the proportional-odds model, or the ordered probit.

    .. math:: P(y \le k \mid f) = F(c_{k+1} - f), \quad c_1 < \dots < c_{K-1}, \quad
              F = \sigma \text{ or } \Phi

    The mean of y is its expected code. The unconstrained parameters are the first cutpoint and
    the logarithms of the gaps between neighbours.

    Parameters
    ----------
    cutpoints : iterable of K − 1 increasing floats, optional
        On the scale of the latent. None: set from the shares of the categories by ``completed``.
    link : {"logit", "probit"}
    n_levels : int, optional
        K, where `cutpoints` is not given and the data may lack the last category.

    Raises
    ------
    ParameterError
        If the cutpoints do not increase or disagree with `n_levels`, or the link is another.

    References
    ----------
    McCullagh (1980), *Regression models for ordinal data*, JRSS B 42, 109–142.

    Examples
    --------
    >>> from dsgp.likelihoods import Ordered
    >>> likelihood = Ordered(cutpoints=(-1.0, 1.0))
    >>> likelihood.class_probabilities([0.0], [0.0]).round(4)
    array([[0.2689, 0.4621, 0.2689]])
    >>> Ordered().completed([0.0, 1.0, 1.0, 2.0])
    Ordered(cutpoints=(-1.09..., 1.09...), link='logit', n_levels=3)
    """

    name: ClassVar[str] = "ordered"
    has_level: ClassVar[bool] = False  # the cutpoints include one

    cutpoints: Iterable[float] | None = None
    link: str = "logit"
    n_levels: int | None = None

    def __post_init__(self) -> None:
        check_choice(self, "link", ("logit", "probit"))
        levels = self.n_levels
        if levels is not None and (levels != int(levels) or levels < 2):
            raise ParameterError(
                f"Ordered: n_levels must be a whole number of at least 2, got {levels!r}"
            )
        if self.cutpoints is None:
            return
        cuts = tuple(float(c) for c in self.cutpoints)
        increasing = all(a < b for a, b in pairwise(cuts))
        if not (cuts and increasing and np.all(np.abs(cuts) < 1e15)):
            raise ParameterError(
                f"Ordered: cutpoints must be one or more increasing finite numbers, got {cuts!r}"
            )
        if levels is not None and levels != len(cuts) + 1:
            raise ParameterError(
                f"Ordered: {len(cuts)} cutpoints make {len(cuts) + 1} levels, but n_levels is "
                f"{levels}; give one of them"
            )
        object.__setattr__(self, "cutpoints", cuts)
        object.__setattr__(self, "n_levels", len(cuts) + 1)

    @property
    def link_name(self) -> str:
        """The link as given."""
        return self.link

    @property
    def free(self) -> tuple[str, ...]:
        """``"cutpoint_1"`` and the gaps ``"gap_2"`` …; none before the cutpoints are known."""
        if self.cutpoints is None:
            return ()
        return ("cutpoint_1", *(f"gap_{k}" for k in range(2, self._cuts().size + 1)))

    def _cuts(self) -> Array:
        if self.cutpoints is None:
            raise ParameterError(
                "Ordered has no cutpoints yet; give them, or set them from the data by completed(y)"
            )
        return np.array(self.cutpoints, dtype=float)

    def absorbed(self, level: float) -> tuple[Self, float]:
        """Move the cutpoints by a constant of f, of which nothing remains."""
        assert self.cutpoints is not None
        return replace(self, cutpoints=tuple(cut - level for cut in self.cutpoints)), 0.0

    def completed(self, y: ArrayLike, weight: ArrayLike | None = None) -> Self:
        """Return a copy with cutpoints from the shares of the categories.

        A category without rows counts as half an observation, so that all cutpoints are finite.

        Parameters
        ----------
        y : array_like of shape (n,)
            Codes.
        weight : array_like of shape (n,), optional
        """
        if self.cutpoints is not None:
            return self
        self.check_target(y)
        y, w, _offset = prepared(y, weight, None)
        codes = y.astype(np.int64)
        levels = self.n_levels or max(int(codes.max(initial=0)) + 1, 2)
        count = np.bincount(codes.ravel(), weights=w.ravel(), minlength=levels)
        count = np.where(count > 0, count, 0.5)
        share = np.cumsum(count)[:-1] / count.sum()
        cuts = logit(share) if self.link == "logit" else ndtri(share)
        return replace(self, cutpoints=tuple(cuts.tolist()), n_levels=levels)

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        top = np.inf if self.n_levels is None else self.n_levels - 1
        # Without a given number of levels, a stray code would request as much memory.
        ceiling = min(top, 1e4)
        refuse_rows(
            ~((y >= 0) & (y <= ceiling) & (y == np.floor(y))),
            y,
            name,
            first_row,
            f"codes of ordered levels, whole numbers from 0 to {ceiling:g}",
            "code the levels in their order, or set n_levels",
        )

    # ------------------------------------------------------------------ the density

    def _ends(self, y: ArrayLike, f: ArrayLike) -> tuple[Array, Array]:
        """Cutpoints below and above each row's category, less f."""
        cuts = np.concatenate(([-FAR], self._cuts(), [FAR]))
        codes = np.asarray(y, dtype=float).astype(np.int64)
        f = np.asarray(f, dtype=float)
        return cuts[codes] - f, cuts[codes + 1] - f

    def log_density(self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None) -> Array:
        below, above = self._ends(y, f)
        if self.link == "logit":
            # σ(b) − σ(a) = σ(b) σ(−a) (1 − e^{a − b}), without cancellation.
            share = np.log(-np.expm1(below - above))
            return log_logistic(above) + log_logistic(-below) + share
        return log_normal_mass(below, above)

    def derivatives(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array, Array]:
        below, above = self._ends(y, f)
        if self.link == "logit":
            (pa, qa), (pb, qb) = logistic_pair(below), logistic_pair(above)
            slope = pa * qa * (pa - qa) + pb * qb * (pb - qb)
            return pa - qb, pa * qa + pb * qb, slope
        gradient, weight, by_below, by_above, _a, _b = normal_mass_derivatives(below, above)
        return gradient, weight, -(by_below + by_above)

    def by_parameters(
        self, y: ArrayLike, f: ArrayLike, trials: ArrayLike | None = None
    ) -> tuple[Array, Array]:
        below, above = self._ends(y, f)
        if self.link == "logit":
            (pa, qa), (pb, qb) = logistic_pair(below), logistic_pair(above)
            gap = 1 / np.expm1(np.minimum(above - below, 700.0))
            density_a, density_b = -pa - gap, qb + gap
            weight_a, weight_b = pa * qa * (qa - pa), pb * qb * (qb - pb)
        else:
            _g, _w, weight_a, weight_b, density_a, density_b = normal_mass_derivatives(below, above)
        cuts = self._cuts()
        codes = np.broadcast_to(np.asarray(y, dtype=float), below.shape)
        # The j-th parameter moves the cutpoints j, j + 1, …; a gap by its own length.
        moves = np.concatenate(([1.0], np.diff(cuts)))
        density, weight = np.zeros((2, cuts.size, *below.shape))
        for j, move in enumerate(moves):
            a, b = codes >= j + 1, (codes >= j) & (codes < cuts.size)
            density[j] = move * (np.where(a, density_a, 0.0) + np.where(b, density_b, 0.0))
            weight[j] = move * (np.where(a, weight_a, 0.0) + np.where(b, weight_b, 0.0))
        return density, weight

    def _distribution(self, x: Array) -> Array:
        return expit(x) if self.link == "logit" else ndtr(x)

    def inverse_link(self, f: ArrayLike) -> Array:
        """Expected code: the sum over cutpoints of P(y beyond it)."""
        f = np.asarray(f, dtype=float)
        return sum((self._distribution(f - c) for c in self._cuts()), np.zeros_like(f))

    def sample(
        self, f: ArrayLike, random: np.random.Generator, trials: ArrayLike | None = None
    ) -> Array:
        f = np.asarray(f, dtype=float)
        uniform = random.random(f.shape)
        beyond = ((uniform > self._distribution(c - f)).astype(float) for c in self._cuts())
        return sum(beyond, np.zeros_like(f))

    # ------------------------------------------------------------------ a Gaussian latent

    def _beyond(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        """P(y > k), k < K − 1, averaged over the latent; shape (K − 1, n)."""
        mean, variance = np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)
        if self.link == "logit":
            return np.stack([expected_logistic(mean - c, variance) for c in self._cuts()])
        return np.stack([ndtr((mean - c) / np.sqrt(1 + variance)) for c in self._cuts()])

    def class_probabilities(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        beyond = self._beyond(mean, variance)
        one, none = np.ones_like(beyond[:1]), np.zeros_like(beyond[:1])
        return np.moveaxis(-np.diff(np.concatenate((one, beyond, none)), axis=0), 0, -1)

    def response_mean(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        return self._beyond(mean, variance).sum(axis=0)

    def response_variance(
        self, mean: ArrayLike, variance: ArrayLike, trials: ArrayLike | None = None
    ) -> Array:
        probabilities = self.class_probabilities(mean, variance)
        codes = np.arange(probabilities.shape[-1])
        distance = codes - self.response_mean(mean, variance)[..., None]
        return (probabilities * distance * distance).sum(axis=-1)

    def mean_variance(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        mean, variance = broadcast(mean, variance)
        m, v = mean.ravel(), variance.ravel()
        result, narrow = np.empty_like(m), v <= 1
        result[narrow] = centred_variance(self.inverse_link, m[narrow], v[narrow], 32)
        result[~narrow] = wide_variance(self.inverse_link, m[~narrow], v[~narrow])
        return result.reshape(mean.shape)

    def log_predictive(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        below, above = self._ends(y, mean)
        if self.link == "probit":
            spread = np.sqrt(1 + variance)
            return log_normal_mass(below / spread, above / spread)
        # Of the two tails, the one in which both ends are small.
        upper = above + below > 0
        far, near = np.where(upper, -above, below), np.where(upper, -below, above)
        log_near = log_expected_logistic(near, variance)
        log_ratio = log_expected_logistic(far, variance) - log_near
        result = log_near + np.log(-np.expm1(np.minimum(log_ratio, -1e-300)))
        close = log_ratio > -1e-3  # for cutpoints so close that the difference has lost digits
        if close.any():
            result[close] = super().log_predictive(y[close], mean[close], variance[close])
        return result

    def interval(
        self,
        mean: ArrayLike,
        variance: ArrayLike,
        level: float,
        trials: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        level = check_level(level)
        beyond = self._beyond(*broadcast(mean, variance))
        lower, upper = (
            (1 - beyond < 0.5 * (1 + side * level)).sum(axis=0).astype(float) for side in (-1, 1)
        )
        return lower, upper

    def response_cdf(
        self,
        y: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        trials: ArrayLike | None = None,
    ) -> Array:
        y, mean, variance = broadcast(y, mean, variance)
        beyond = self._beyond(mean, variance)
        # With K categories, beyond[k] is the probability of one above k.
        at_most = np.concatenate([np.zeros((1, *y.shape)), 1 - beyond, np.ones((1, *y.shape))])
        place = np.clip(np.floor(y), -1, len(beyond)).astype(np.intp) + 1
        return np.asarray(np.take_along_axis(at_most, place[None], axis=0)[0])

    # ------------------------------------------------------------------ initial values

    def start(
        self,
        y: ArrayLike,
        weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        trials: ArrayLike | None = None,
    ) -> float:
        y, w, o = prepared(y, weight, offset)
        cuts, rows = self._cuts(), w > 0
        total = float(w.sum())
        centre = float(np.sum(w * o) / total)
        reach = np.log(2 * total + 1) if self.link == "logit" else -ndtri(0.5 / (total + 1))
        if np.all(y[rows] == 0):
            return float(cuts[0] - reach) - centre
        if np.all(y[rows] == cuts.size):
            return float(cuts[-1] + reach) - centre
        guess = float(np.sum(w * self.working_start(y)) / total) - centre
        return self._newton_start(guess, y, w, o)

    def working_start(self, y: ArrayLike, trials: ArrayLike | None = None) -> Array:
        cuts = self._cuts()
        middles = 0.5 * (cuts[1:] + cuts[:-1])
        likely = np.concatenate(([cuts[0] - 2.0], middles, [cuts[-1] + 2.0]))
        return likely[np.asarray(y, dtype=float).astype(np.int64)]

    # ------------------------------------------------------------------ parameters

    def unconstrained(self) -> Array:
        """First cutpoint and the logarithms of the gaps, shape (K − 1,)."""
        cuts = self._cuts()
        return np.concatenate((cuts[:1], np.log(np.diff(cuts))))

    def from_unconstrained(self, values: ArrayLike) -> Self:
        """Return a copy with the cutpoints that `values` stand for."""
        values = np.asarray(values, dtype=float)
        cuts = values[0] + np.concatenate(([0.0], np.cumsum(np.exp(values[1:]))))
        return replace(self, cutpoints=tuple(cuts.tolist()), n_levels=None)

    def with_parameters(self, **values: Any) -> Self:
        if "cutpoints" in values:
            values.setdefault("n_levels", None)
        return super().with_parameters(**values)

    def to_settings(self) -> dict[str, Any]:
        cuts = None if self.cutpoints is None else self._cuts().tolist()
        return {**super().to_settings(), "cutpoints": cuts}
