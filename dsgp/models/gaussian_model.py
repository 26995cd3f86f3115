"""A fitted f with Gaussian noise around it, of a target or of a transform of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from dsgp.errors import DataError
from dsgp.models.additive import Solved
from dsgp.models.base import FittedModel
from dsgp.models.gaussian.basis import Basis
from dsgp.models.noise import LEAST_LEFT, Noise, VaryingNoise
from dsgp.rows.sources import Rows
from dsgp.terms import Floats
from dsgp.transforms import Transform


@dataclass(frozen=True)
class GaussianModel:
    """Predictions in the unit of the target.

    With a transform g, y = g⁻¹(f + ε). Nothing is linearised: the expectation of y given f is an
    average over the noise ε, and its moments are those over f.

    Attributes
    ----------
    latent : FittedModel
        f, on the scale of the transform.
    noise_variance : float
        Of ε, in a row of weight 1; where it varies, in one where its terms are at their means.
    transform : Transform or None
    basis : Basis or None
        Sums to which further rows can be added; None if that is not possible.
    noise : VaryingNoise or None
        What the noise variance depends on, where it varies; rows carry the inputs of it.
    """

    latent: FittedModel
    noise_variance: float
    transform: Transform | None = None
    basis: Basis | None = None
    noise: VaryingNoise | None = None

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        self.latent.prepare(with_std)
        if self.noise is not None and with_std:
            self.noise.prepare(with_std)

    def needs_variance(self, return_std: bool, statistic: str) -> bool:
        """Return whether ``predicted`` needs the variance of f."""
        return return_std or (self.transform is not None and statistic == "mean")

    def noise_at(self, rows: Rows) -> Noise:
        """Return the noise of rows of weight 1."""
        if self.noise is None:
            return Noise.constant(self.noise_variance)
        return self.noise.at(rows)

    def predicted(
        self, rows: Rows, *, return_std: bool, include_noise: bool, statistic: str
    ) -> list[Floats]:
        """Mean or median of the target at some rows, and on request its standard deviation."""
        mean, variance = self.latent.moments(rows, self.needs_variance(return_std, statistic))
        if variance is None:
            return [mean if self.transform is None else self.transform.median(mean)]
        known = self.transform is None and not include_noise
        noise = 0.0 if known else self.noise_at(rows).mean
        total = variance + noise if include_noise else variance
        if self.transform is None:
            return [mean, np.sqrt(total)]
        average, std = self.transform.moments(mean, total, 0.0 if include_noise else noise)
        middle = self.transform.median(mean) if statistic == "median" else average
        return [middle, std] if return_std else [middle]

    def expected(self, rows: Rows) -> Floats:
        """Mean of the target at some rows, (n,)."""
        return self.predicted(rows, return_std=False, include_noise=False, statistic="mean")[0]

    def scale_at(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a new observation, on the scale of the transform."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        return mean, np.sqrt(variance + self.noise_at(rows).mean)

    def quantiles_at(
        self, rows: Rows, probabilities: Sequence[float], include_noise: bool
    ) -> list[Floats]:
        """Quantiles of what is expected of the target, or of a new observation, (n,) each."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        if include_noise:
            noise = self.noise_at(rows)
            ends = [mean + noise.reach(variance, p) for p in probabilities]
            return ends if self.transform is None else [*map(self.transform.inverse, ends)]
        std = np.sqrt(variance)
        ends = [mean + float(ndtri(p)) * std for p in probabilities]
        if self.transform is None:
            return ends
        # An average over the noise increases with f: its quantiles are those of f.
        noise_variance = self.noise_at(rows).mean
        return [self.transform.average(end, noise_variance) for end in ends]

    def interval_at(self, rows: Rows, level: float, include_noise: bool) -> list[Floats]:
        """Ends of an interval of what is expected of the target, or of a new observation."""
        return self.quantiles_at(rows, [0.5 - level / 2, 0.5 + level / 2], include_noise)

    def log_density_at(self, rows: Rows, observed: Floats) -> Floats:
        """Log density of observations of weight 1, (n,); NaN where one has no transform."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        if self.transform is not None:
            observed = np.where(self.transform.allows(observed), observed, np.nan)
        jacobian, observed = self._transformed(observed)
        return np.asarray(jacobian + self.noise_at(rows).log_density(observed - mean, variance))

    def cdf_at(self, rows: Rows, observed: Floats) -> Floats:
        """Predictive probability of values up to the observed ones, (n,)."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        _, observed = self._transformed(observed)
        return self.noise_at(rows).cdf(observed - mean, variance)

    def standardised_at(self, rows: Rows, observed: Floats) -> Floats:
        """Residuals over the standard deviations of new observations, on the transform's scale."""
        mean, std = self.scale_at(rows)
        return (self._transformed(observed)[1] - mean) / std

    def widened_at(self, rows: Rows, factor: float) -> list[Floats]:
        """Ends of the interval so many standard deviations of a new observation around its mean."""
        mean, std = self.scale_at(rows)
        ends = [mean - factor * std, mean + factor * std]
        return ends if self.transform is None else [*map(self.transform.inverse, ends)]

    def require_transformable(self, observed: Floats) -> None:
        """Raise ``DataError`` if an observation has no transform, and thus no density."""
        if self.transform is not None and not self.transform.allows(observed).all():
            refused = int(np.count_nonzero(~self.transform.allows(observed)))
            raise DataError(
                f"y is 0 or negative in {refused} of {len(observed)} rows, and the model is for "
                f"{self.transform.described()} of the target: such values have no density"
            )

    def leave_one_out_at(
        self, rows: Rows, observed: Floats, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Log density of each training row given all others, and what the others leave, (n,) each.

        Rasmussen and Williams 2006, sec. 5.4.2. The first is NaN where a row has weight 0; what is
        left is not positive where a row alone determines f. Where noise varies, and is next
        to nothing in a row, that happens by the error of the variance: so much is left then.
        """
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        jacobian, observed = self._transformed(observed)
        noise = self.noise_variance if self.noise is None else self.noise.typical(rows)
        left = 1.0 - weight * variance / noise
        kept = left if self.noise is None else np.maximum(left, LEAST_LEFT)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = noise / (weight * kept)
            square = ((observed - mean) / kept) ** 2 / spread
            density = jacobian - 0.5 * (square + np.log(2 * np.pi * spread))
        return np.where(weight > 0, density, np.nan), left

    def _transformed(self, observed: Floats) -> tuple[Any, Floats]:
        """Log slope of the transform at observations, and their values on its scale."""
        if self.transform is None:
            return 0.0, observed
        return self.transform.log_slope(observed), self.transform.forward(observed)

    def covariance(self, rows: Sequence[Rows], include_noise: bool) -> Solved:
        """Joint posterior covariance of what is expected of the target, or of observations."""
        solved = self.latent.covariance(rows)
        latent = solved.values
        noise: Any = self.noise_variance
        if self.noise is not None:
            noise = np.concatenate([self.noise.at(some).mean for some in rows])
        if self.transform is None:
            if include_noise:
                latent[np.diag_indices(len(latent))] += noise
            return solved
        mean = np.concatenate([self.latent.moments(some, False)[0] for some in rows])
        if include_noise:
            return solved._replace(values=self.transform.covariance(mean, latent, own=noise))
        return solved._replace(values=self.transform.covariance(mean, latent, noise))

    def sample(
        self,
        rows: Sequence[Rows],
        n_samples: int,
        random: np.random.Generator,
        tol: float,
        include_noise: bool,
    ) -> Solved:
        """Draw what is expected of the target, or new observations, (n_samples, n)."""
        solved = self.latent.sample(rows, n_samples, random, tol)
        drawn = solved.values
        noise: Any = self.noise_variance
        if solved.noise_variance is not None:  # each draw has its own
            noise = solved.noise_variance[:, None]
        if self.noise is not None and (include_noise or self.transform is not None):
            noise, converged = self.noise.sample(rows, n_samples, random, tol)
            solved = solved._replace(converged=solved.converged and converged)
        if include_noise:
            drawn += np.sqrt(noise) * random.standard_normal(drawn.shape)
        if self.transform is None:
            return solved
        if include_noise:
            return solved._replace(values=self.transform.inverse(drawn))
        average_noise = noise if self.noise is not None else self._averaged(solved)
        return solved._replace(values=self.transform.average(drawn, average_noise))

    def _averaged(self, solved: Solved) -> Any:
        """Noise variance over which draws of f are averaged."""
        return self.noise_variance
