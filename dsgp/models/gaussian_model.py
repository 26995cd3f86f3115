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
from dsgp.rows.sources import Rows
from dsgp.terms import Floats
from dsgp.transforms import Transform


@dataclass(frozen=True)
class GaussianModel:
    """Answers in the unit of the target.

    With a transform g, y = g⁻¹(f + ε). Nothing is linearised: what is expected of y given f is an
    average over the noise ε, and its moments are those over f.

    Attributes
    ----------
    latent : FittedModel
        f, on the scale of the transform.
    noise_variance : float
        Of ε, in a row of weight 1.
    transform : Transform or None
    basis : Basis or None
        What further rows can be added to; None where that cannot be.
    """

    latent: FittedModel
    noise_variance: float
    transform: Transform | None = None
    basis: Basis | None = None

    def prepare(self, with_std: bool) -> None:
        """Make once what all tasks of a prediction share."""
        self.latent.prepare(with_std)

    def needs_variance(self, return_std: bool, statistic: str) -> bool:
        """Tell whether ``predicted`` needs the variance of f."""
        return return_std or (self.transform is not None and statistic == "mean")

    def predicted(
        self, rows: Rows, *, return_std: bool, include_noise: bool, statistic: str
    ) -> list[Floats]:
        """Mean or median of the target at some rows, and on request its standard deviation."""
        mean, variance = self.latent.moments(rows, self.needs_variance(return_std, statistic))
        return self.point(
            mean,
            variance,
            return_std=return_std,
            include_noise=include_noise,
            statistic=statistic,
        )

    def expected(self, rows: Rows) -> Floats:
        """Mean of the target at some rows, (n,)."""
        return self.predicted(rows, return_std=False, include_noise=False, statistic="mean")[0]

    def point(
        self,
        mean: Floats,
        variance: Floats | None,
        *,
        return_std: bool,
        include_noise: bool,
        statistic: str,
    ) -> list[Floats]:
        """Mean or median of the target, and on request its standard deviation, from those of f."""
        if self.transform is None:
            if variance is None:
                return [mean]
            return [mean, np.sqrt(self._total(variance, include_noise))]
        if variance is None:
            return [self.transform.median(mean)]
        noise = 0.0 if include_noise else self.noise_variance
        average, std = self.transform.moments(mean, self._total(variance, include_noise), noise)
        middle = self.transform.median(mean) if statistic == "median" else average
        return [middle, std] if return_std else [middle]

    def interval(
        self, mean: Floats, variance: Floats, level: float, include_noise: bool
    ) -> list[Floats]:
        """Ends of an interval of what is expected of the target, or of a new observation."""
        half = float(ndtri(0.5 + level / 2)) * np.sqrt(self._total(variance, include_noise))
        ends = [mean - half, mean + half]
        if self.transform is None:
            return ends
        if include_noise:
            return [self.transform.inverse(end) for end in ends]
        # An average over the noise grows with f: its quantiles are those of f.
        return [self.transform.average(end, self.noise_variance) for end in ends]

    def interval_at(self, rows: Rows, level: float, include_noise: bool) -> list[Floats]:
        """Ends of such an interval at some rows."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        return self.interval(mean, variance, level, include_noise)

    def log_density_at(self, rows: Rows, observed: Floats) -> Floats:
        """Log density of observations of weight 1, (n,); NaN where one has no transform."""
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        if self.transform is not None:
            observed = np.where(self.transform.allows(observed), observed, np.nan)
        jacobian, observed = self._transformed(observed)
        total = self._total(variance, True)
        square = (observed - mean) ** 2 / total
        return np.asarray(jacobian - 0.5 * (square + np.log(2 * np.pi * total)))

    def require_transformable(self, observed: Floats) -> None:
        """Raise ``DataError`` if an observation has no transform, and thus no density."""
        if self.transform is not None and not self.transform.allows(observed).all():
            refused = int(np.count_nonzero(~self.transform.allows(observed)))
            raise DataError(
                f"y is 0 or negative in {refused} of {len(observed)} rows, and the model is of "
                f"{self.transform.described()}: such values have no density"
            )

    def leave_one_out_at(
        self, rows: Rows, observed: Floats, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Log density of each training row given all others, and what the others leave, (n,) each.

        Rasmussen and Williams 2006, sec. 5.4.2. The first is NaN where a row has weight 0; what is
        left is not positive where a row tells all of f by itself.
        """
        mean, variance = self.latent.moments(rows, True)
        assert variance is not None
        jacobian, observed = self._transformed(observed)
        left = 1.0 - weight * variance / self.noise_variance
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = self.noise_variance / (weight * left)
            square = ((observed - mean) / left) ** 2 / spread
            density = jacobian - 0.5 * (square + np.log(2 * np.pi * spread))
        return np.where(weight > 0, density, np.nan), left

    def _transformed(self, observed: Floats) -> tuple[Any, Floats]:
        """Log slope of the transform at observations, and what they are on its scale."""
        if self.transform is None:
            return 0.0, observed
        return self.transform.log_slope(observed), self.transform.forward(observed)

    def _total(self, variance: Floats, include_noise: bool) -> Floats:
        return variance + self.noise_variance if include_noise else variance

    def covariance(self, rows: Sequence[Rows], include_noise: bool) -> Solved:
        """Joint posterior covariance of what is expected of the target, or of observations."""
        solved = self.latent.covariance(rows)
        latent, noise = solved.values, self.noise_variance
        if self.transform is None:
            if include_noise:
                latent += np.eye(len(latent)) * noise
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
        if include_noise:
            noise: Any = self.noise_variance
            if solved.noise_variance is not None:  # a draw has its own
                noise = solved.noise_variance[:, None]
            drawn += np.sqrt(noise) * random.standard_normal(drawn.shape)
        if self.transform is None:
            return solved
        if include_noise:
            return solved._replace(values=self.transform.inverse(drawn))
        return solved._replace(values=self._averaged(drawn, solved.noise_variance))

    def _averaged(self, drawn: Floats, noise_variances: Floats | None) -> Floats:
        """What is expected of the target given draws of f, (n_samples, n)."""
        assert self.transform is not None
        return self.transform.average(drawn, self.noise_variance)
