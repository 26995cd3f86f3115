"""What is kept and shown of a noise variance that varies, by the estimator that learns it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from dsgp import storage
from dsgp.errors import ParameterError
from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.estimators.generalized import GeneralizedAdditiveGP
from dsgp.estimators.given_terms import GivenTerms
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian.varying import SQUARED_NORMAL, VaryingOutcome
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.noise import VaryingNoise
from dsgp.models.response_model import ResponseModel
from dsgp.models.summary import Summary
from dsgp.rows.sources import Wanted

# Key of the noise in a stored model.
_KEY = "noise"
# Share of the training rows whose noise the summary describes.
_BULK = 0.9


class WithNoiseTerms(GaussianEstimator):
    """An estimator with ``noise_terms`` among its parameters."""

    noise_terms: bool | Mapping[str, Any] | Sequence[Any] | None

    @property
    def noise_(self) -> GeneralizedAdditiveGP:
        """The fitted noise variance: a model of its logarithm, with terms, components and plots."""
        noise: GeneralizedAdditiveGP | None = self.__dict__.get("_noise_estimator")
        if noise is None:
            raise AttributeError(
                "there is no noise_: the model was fitted with one noise variance for all rows; "
                "noise_terms=True makes the noise variance a function of the columns"
            )
        return noise

    def _noise_asked(self) -> GivenTerms | None:
        """Check and take ``noise_terms``; None where the noise is constant."""
        asked = self.noise_terms
        if asked is None or asked is False:
            return None
        if isinstance(asked, str) or not (
            asked is True or isinstance(asked, (Mapping, list, tuple))
        ):
            raise ParameterError(
                "noise_terms must be None (one noise variance), True (a term of every column), a "
                f"mapping of columns to terms, or a list of terms, got {asked!r}"
            )
        return GivenTerms.of(None, None if asked is True else asked)

    def _take_noise(self, varying: VaryingOutcome | None, columns: Columns) -> None:
        """Take over the noise of a fit; of a constant one forget that of an earlier fit."""
        self.__dict__.pop("_noise_estimator", None)
        if varying is None:
            return
        asked = self.noise_terms
        estimator = GeneralizedAdditiveGP(
            SQUARED_NORMAL,
            terms=None if isinstance(asked, bool) else asked,
            bins=self.get_params(deep=False)["bins"],
            missing=self.missing,
            missing_values=self.get_params(deep=False)["missing_values"],
            random_state=self.random_state,
        )
        outcome = varying.outcome
        model = ResponseModel.of(outcome, varying.noise.latent)
        facts = FitFacts.of_laplace(outcome, "marginal")
        estimator._take(model, facts, columns, {})
        estimator._take_mode(outcome)
        estimator._take_no_interactions()
        self._noise_estimator = estimator

    # ------------------------------------------------------------------ reporting and storing

    def _summary(self) -> Summary:
        summary = super()._summary()
        noise = self.model_.noise
        if noise is None:
            return summary
        latent = noise.latent
        names = ", ".join(
            f"{term.name} (edf {term.effective_dof:.1f}, std of log variance "
            f"{math.sqrt(term.explained_variance):.2g})"
            for term in latent.terms
        )
        lines = [
            (
                label,
                f"{text} where the noise terms are at their means" if _is_noise(label) else text,
            )
            for label, text in summary.lines
        ]
        return replace(
            summary,
            lines=[
                *lines,
                ("noise terms", names or "no term varies"),
                ("", "of the logarithm of the noise variance; see noise_.summary()"),
            ],
        )

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        settings, tree = super()._described()
        if self.model_.noise is None:
            return settings, tree
        noise, arrays = self.noise_._described()
        return {**settings, _KEY: noise}, {**tree, _KEY: arrays}

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        kept = settings.get(_KEY)
        if kept is None:
            return super()._restore(settings, tree)
        noise = GeneralizedAdditiveGP._restore(kept, tree[_KEY])
        model = super()._restore(
            settings, {name: node for name, node in tree.items() if name != _KEY}
        )
        held: GaussianModel = model.model_
        model.model_ = replace(held, noise=VaryingNoise(noise.model_.latent))
        model._noise_estimator = noise
        return model


def _is_noise(label: str) -> bool:
    return label == "noise std"


def both_wanted(wanted: Wanted, noise: GivenTerms | None) -> Wanted:
    """Return what terms and noise terms ask of the columns of a table."""
    if noise is None:
        return wanted
    levels = {**noise.wanted.levels, **wanted.levels}
    columns = wanted.columns
    if columns is not None and noise.listed is not None and noise.wanted.columns is not None:
        columns = tuple(dict.fromkeys([*columns, *noise.wanted.columns]))
    elif columns is not None and noise.by_column:
        columns = tuple(dict.fromkeys([*columns, *noise.by_column]))
    return replace(wanted, levels=levels, columns=columns)
