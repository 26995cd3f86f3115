"""What an estimator whose hyperparameters are draws shows of them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import xarray as xr

from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.models.drawn import LIKELIHOODS
from dsgp.models.mixture import MixtureModel
from dsgp.models.summary import Summary


class DrawnEstimator(GaussianEstimator):
    """An estimator with Gaussian noise, whose hyperparameters may be draws."""

    def _mixture(self, name: str) -> MixtureModel:
        latent = self._fitted.latent
        if not isinstance(latent, MixtureModel):
            raise AttributeError(
                f"there is no {name}: only method='gibbs', 'plain-gibbs' and 'collapsed' draw"
            )
        return latent

    @property
    def draws_(self) -> xr.Dataset:
        """Draws of all hyperparameters by chain, in the units of the data."""
        return self._mixture("draws_").draws.dataset()

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of every hyperparameter that was drawn."""
        return self._mixture("diagnostics_").draws.diagnostics()

    def inference_data(self) -> Any:
        """Return the draws for ArviZ: its summaries, diagnostics and figures.

        Returns
        -------
        arviz.InferenceData
            ``posterior`` with a variable per parameter (``lengthscale``, ``variance``, …, with the
            terms that have it as a dimension) and ``noise_variance``, and ``sample_stats`` with the
            log likelihood of each draw, by chain and draw.

        Raises
        ------
        AttributeError
            If nothing was drawn.
        ImportError
            If ArviZ is not installed.
        """
        draws = self._mixture("inference_data").draws
        try:
            arviz = import_module("arviz")
        except ImportError as error:
            raise ImportError(
                'inference_data needs ArviZ: pip install ".[mcmc]" (draws_ and diagnostics_ do '
                "not need it)"
            ) from error
        data = draws.dataset()
        likelihood = LIKELIHOODS[draws.method]
        known = [likelihood, *(["noise_variance"] if draws.fixed_noise else [])]
        return arviz.InferenceData(
            posterior=data.drop_vars(known),
            sample_stats=data[[likelihood]].rename({likelihood: "lp"}),
        )

    def _summary(self) -> Summary:
        latent = self._fitted.latent
        summary = super()._summary()
        if not isinstance(latent, MixtureModel):
            return summary
        return replace(summary, lines=[*summary.lines, *latent.draws.lines(len(latent.members))])
