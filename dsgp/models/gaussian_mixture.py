"""A fitted f with Gaussian noise whose hyperparameters are draws: averages over the draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from dsgp.models.additive import Solved
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.mixture import MixtureModel
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Number of halvings of the bracket of a quantile, which is then as small as rounding.
_HALVINGS = 60


@dataclass(frozen=True)
class GaussianMixture(GaussianModel):
    """Predictions in the unit of the target, as averages over draws of hyperparameters.

    Intervals are quantiles of the mixture of the conditional distributions, and log densities are
    logs of average densities.

    Attributes
    ----------
    latent : MixtureModel
    noise_variance : float
        Its mean over all draws.
    transform : Transform or None
    """

    latent: MixtureModel

    @cached_property
    def members(self) -> list[GaussianModel]:
        """The conditional models, of equal weight."""
        return [
            GaussianModel(latent, float(noise), self.transform)
            for latent, noise in zip(self.latent.members, self.latent.noise_variances, strict=True)
        ]

    def needs_variance(self, return_std: bool, statistic: str) -> bool:
        """Return whether ``predicted`` needs the variance of f."""
        return return_std or statistic == "median" or self.transform is not None

    def predicted(
        self, rows: Rows, *, return_std: bool, include_noise: bool, statistic: str
    ) -> list[Floats]:
        """Mean or median of the target, and on request its standard deviation."""
        if not self.needs_variance(return_std, statistic):
            return [self.latent.moments(rows, False)[0]]
        answers = [
            member.predicted(rows, return_std=True, include_noise=include_noise, statistic="mean")
            for member in self.members
        ]
        means = np.stack([mean for mean, _ in answers])
        middle = means.mean(axis=0)
        if statistic == "median":
            middle = self.quantiles_at(rows, [0.5], True)[0]
        if not return_std:
            return [middle]
        squares = np.mean([std**2 for _, std in answers], axis=0)
        return [middle, np.sqrt(squares + means.var(axis=0))]

    def scale_at(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new observation, on the scale of the transform."""
        means, variances = self.latent.member_moments(rows, True)
        assert variances is not None
        squares = np.mean(variances + self.latent.noise_variances[:, None], axis=0)
        return means.mean(axis=0), np.sqrt(squares + means.var(axis=0))

    def cdf_at(self, rows: Rows, observed: Floats) -> Floats:
        """Predictive probability of values up to the observed ones, (n,)."""
        return np.mean([member.cdf_at(rows, observed) for member in self.members], axis=0)

    def quantiles_at(
        self, rows: Rows, probabilities: Sequence[float], include_noise: bool
    ) -> list[Floats]:
        """Quantiles of the average of the members' distributions, by bisection."""
        means, variances = self.latent.member_moments(rows, True)
        assert variances is not None
        noise = self.latent.noise_variances[:, None]
        stds = np.sqrt(variances + noise if include_noise else variances)
        stds = np.maximum(stds, np.finfo(float).tiny)
        ends = [_quantile(p, means, stds) for p in probabilities]
        if self.transform is None:
            return ends
        if include_noise:
            return [self.transform.inverse(end) for end in ends]
        # The average over the noise increases with f, at the mean noise variance.
        return [self.transform.average(end, self.noise_variance) for end in ends]

    def log_density_at(self, rows: Rows, observed: Floats) -> Floats:
        """Log density of observations of weight 1, (n,); NaN where one has no transform."""
        densities = [member.log_density_at(rows, observed) for member in self.members]
        return np.asarray(logsumexp(densities, axis=0) - np.log(len(densities)))

    def leave_one_out_at(
        self, rows: Rows, observed: Floats, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Log density of each training row given all others, and its information they leave, (n,).

        p(y_i | y_-i) is the harmonic mean of p(y_i | y_-i, θ) over draws of θ given all rows.
        """
        answers = [member.leave_one_out_at(rows, observed, weight) for member in self.members]
        densities = np.stack([density for density, _ in answers])
        left = np.min([left for _, left in answers], axis=0)
        return np.asarray(np.log(len(densities)) - logsumexp(-densities, axis=0)), left

    def covariance(self, rows: Sequence[Rows], include_noise: bool) -> Solved:
        """Joint covariance of the expected target, or of observations."""
        means, converged = [], True
        total = np.zeros(2 * (sum(map(len, rows)),))
        for member in self.members:
            solved = member.covariance(rows, include_noise)
            total += solved.values / len(self.members)
            converged &= solved.converged
            means.append(np.concatenate([member.expected(some) for some in rows]))
        scatter = np.cov(np.stack(means), rowvar=False, ddof=0)
        return Solved(total + scatter.reshape(total.shape), converged)

    def _averaged(self, solved: Solved) -> Any:
        """Noise variance of each draw, (n_samples, 1)."""
        assert solved.noise_variance is not None
        return solved.noise_variance[:, None]


def _quantile(p: float, means: Floats, stds: Floats) -> Floats:
    """Quantile of the average of normal distributions (R, n), (n,)."""
    ends = means + ndtri(p) * stds
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        share = ndtr((middle - means) / stds).mean(axis=0)
        low, high = np.where(share < p, middle, low), np.where(share < p, high, middle)
    return np.asarray(0.5 * (low + high))
