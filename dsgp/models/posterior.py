"""Variances of a fitted sum of terms, its constant unknown too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from dsgp.additive import AdditiveSystem
from dsgp.additive.constant import UnknownConstant, unknown_constant
from dsgp.additive.multigrid import CoarseSpace
from dsgp.additive.variance import Covariance, covariance_of
from dsgp.terms import Floats


@dataclass(frozen=True)
class Posterior:
    """The system of a fitted model in the user's units, and its variances.

    Attributes
    ----------
    system : AdditiveSystem
    covariance : Covariance or None
        Of the terms, were the constant known; None where there is no term.
    constant : UnknownConstant or None
        What its uncertainty adds; None where the user gave it.
    """

    system: AdditiveSystem
    covariance: Covariance | None
    constant: UnknownConstant | None

    @classmethod
    def of(cls, system: AdditiveSystem, constant: float | None) -> Posterior:
        """Make it; ``constant`` as for ``AdditiveSystem``."""
        coarse = cache(partial(CoarseSpace, system))
        covariance = covariance_of(system, coarse) if system.kernels else None
        unknown = None
        if constant is not None:
            unknown = unknown_constant(system, covariance, constant, coarse)
        return cls(system, covariance, unknown)

    def variance(self, inputs: list[Floats], n_rows: int) -> Floats:
        """Of constant and terms together at rows given by the inputs of the terms, (n,)."""
        variance = self.given_constant(inputs, n_rows)
        if self.constant is not None:
            variance += self.constant.deviation(inputs, n_rows) ** 2
        return variance

    def given_constant(self, inputs: list[Floats], n_rows: int) -> Floats:
        """Variance of the sum of the terms, were the constant known, (n,)."""
        return np.zeros(n_rows) if self.covariance is None else self.covariance.variance(inputs)

    def centred_variance(self, term: int, inputs: Floats) -> Floats:
        """Of one term minus its weighted mean over the training rows, (n,)."""
        return self.centred_variance_of([term], [inputs])

    def centred_variance_of(self, terms: Sequence[int], columns: Sequence[Floats]) -> Floats:
        """Of a sum of some terms, each minus its weighted mean over the training rows, (n,).

        ``columns`` are the inputs of these terms.
        """
        assert self.covariance is not None
        variance = self.covariance.centred_variance_of(terms, columns)
        if self.constant is not None:
            deviations = map(self.constant.centred_deviation, terms, columns)
            variance = variance + np.sum(list(deviations), axis=0) ** 2
        return variance
