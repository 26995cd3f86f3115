"""A fitted f with a likelihood: predictions on the scale of the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import logit, ndtri

from dsgp.likelihoods import Likelihood, from_settings
from dsgp.likelihoods.lognormal import supported_moments
from dsgp.models.base import FittedModel
from dsgp.models.laplace.outcome import LaplaceOutcome
from dsgp.terms import Floats

# Latents at which every density is at its edge: a mean of 0, or a trial that is certainly 0 or 1.
_EDGE = 700.0
# Level of an interval whose ends are both the median.
_MEDIAN = 1e-12


@dataclass(frozen=True)
class ResponseModel:
    """A likelihood around a fitted f.

    Mean and variance below are those of f with its offset; ``trials`` those of a binomial target,
    (n,) or None; ``shift`` what the offset adds to f, (n,) or a number.

    Attributes
    ----------
    latent : FittedModel
    settings : mapping
        Of the likelihood, with its fitted parameters.
    facts : mapping
        ``highest`` (the largest f of a training row), ``exact_determinant``, ``passes`` (of the
        learner), ``target`` (its name) and ``offset`` (whether there was one).
    """

    latent: FittedModel
    settings: Mapping[str, Any]
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, outcome: LaplaceOutcome, latent: FittedModel | None = None) -> ResponseModel:
        """Return the model of an outcome; ``latent`` is f if it differs from the outcome's."""
        learned = outcome.learned
        return cls(
            outcome.model() if latent is None else latent,
            outcome.likelihood.to_settings(),
            {
                "highest": outcome.highest,
                "exact_determinant": outcome.exact_determinant,
                "passes": 0 if learned is None else learned.passes,
                "target": outcome.responses.target,
                "offset": len(outcome.responses.rows.offset) > 0,
            },
        )

    @cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood."""
        return from_settings(dict(self.settings))

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        self.latent.prepare(with_std)

    def supported(self, mean: Floats, variance: Floats, shift: Any) -> tuple[Floats, Floats]:
        """Moments of f for averages of the response; with a log link, without an unknown tail."""
        highest = self.facts.get("highest")  # stores of earlier versions lack it
        if self.likelihood.link_name != "log" or highest is None:
            return mean, variance
        return supported_moments(mean, variance, highest + shift)

    def point(
        self,
        mean: Floats,
        variance: Floats,
        trials: Floats | None,
        shift: Any,
        *,
        return_std: bool,
        include_noise: bool,
        statistic: str,
    ) -> list[Floats]:
        """Mean response, averaged over f or at its median, and on request a standard deviation."""
        likelihood = self.likelihood
        scale = 1.0 if trials is None else trials
        moments = self.supported(mean, variance, shift)
        if statistic == "median":
            response = [scale * likelihood.inverse_link(mean)]
        else:
            response = [scale * likelihood.response_mean(*moments)]
        if not return_std:
            return response
        if include_noise:
            return [*response, np.sqrt(likelihood.response_variance(*moments, trials))]
        return [*response, scale * np.sqrt(likelihood.mean_variance(*moments))]

    def interval(
        self,
        mean: Floats,
        variance: Floats,
        trials: Floats | None,
        level: float,
        include_noise: bool,
    ) -> list[Floats]:
        """Ends of an interval of the mean response given f, or of a new observation."""
        likelihood = self.likelihood
        if include_noise:
            return list(likelihood.interval(mean, variance, level, trials))
        # The link is monotone: quantiles of f map to those of the mean.
        reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(variance)
        ends = likelihood.inverse_link(mean - reach), likelihood.inverse_link(mean + reach)
        scale = 1.0 if trials is None else trials
        return [scale * end for end in ends]

    def quantile(
        self,
        mean: Floats,
        variance: Floats,
        trials: Floats | None,
        probability: float,
        include_noise: bool,
    ) -> Floats:
        """Quantile of the mean response given f, or of a new observation."""
        upper = probability >= 0.5
        # The ends of an interval are quantiles; the median is the interval of level 0.
        level = max(abs(2 * probability - 1), _MEDIAN)
        return self.interval(mean, variance, trials, level, include_noise)[int(upper)]

    def explained(
        self,
        y: Floats,
        mean: Floats,
        variance: Floats,
        trials: Floats | None,
        shift: Floats,
        weight: Floats,
    ) -> float:
        """Share of the deviance that is explained, D²; NaN where observations do not differ."""
        likelihood = self.likelihood
        constant = shift + likelihood.start(y, weight, shift, trials)
        null = likelihood.log_density(y, constant, trials)
        if likelihood.name == "ordered":
            best: Any = 0.0
            model = likelihood.log_predictive(y, mean, variance)
        else:
            best = likelihood.log_density(
                y, self._linked(y if trials is None else y / trials), trials
            )
            average = likelihood.response_mean(*self.supported(mean, variance, shift))
            model = likelihood.log_density(y, self._linked(average), trials)
        total = float(np.sum(weight * (best - null)))
        return 1.0 - float(np.sum(weight * (best - model))) / total if total > 0 else np.nan

    def _linked(self, mean: Floats) -> Floats:
        """Latent of a mean (of one trial); finite at the edges."""
        name = self.likelihood.link_name
        with np.errstate(divide="ignore"):
            link = {"log": np.log, "logit": logit, "probit": ndtri, "identity": np.asarray}
            latent = link[name](mean)
        return latent if name == "identity" else np.clip(latent, -_EDGE, _EDGE)
