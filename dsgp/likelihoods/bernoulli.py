"""Binary targets, with the logit or the probit link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.likelihoods.binomial import Binomial
from dsgp.likelihoods.checks import refuse_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bernoulli(Binomial):
    r"""Binary targets, 0 or 1.

    .. math:: p(y = 1 \mid f) = \sigma(f) = 1/(1 + e^{-f}) \text{ or } \Phi(f)

    Averages over a Gaussian latent are closed: Φ(m/√(1 + v)) for the probit, and for the logit
    the mixture of `quadrature.logistic_mixture`, exact to 2e-14.

    Parameters
    ----------
    link : {"logit", "probit"}

    Raises
    ------
    ParameterError
        If the link is another.

    Examples
    --------
    >>> from dsgp.likelihoods import Bernoulli
    >>> Bernoulli().response_mean([1.0], [4.0]).round(6)
    array([0.647726])
    >>> Bernoulli("probit").class_probabilities([0.0, 2.0], [1.0, 3.0]).round(4)
    array([[0.5   , 0.5   ],
           [0.1587, 0.8413]])
    """

    name: ClassVar[str] = "bernoulli"

    def check_target(
        self, y: ArrayLike, trials: ArrayLike | None = None, name: str = "y", first_row: int = 0
    ) -> None:
        y = np.asarray(y, dtype=float)
        refuse_rows(
            (y != 0) & (y != 1),
            y,
            name,
            first_row,
            "0 or 1",
            "code the two classes so, or use the binomial for counts of successes",
        )

    def class_probabilities(self, mean: ArrayLike, variance: ArrayLike) -> Array:
        mean = np.asarray(mean, dtype=float)
        both = [self.response_mean(s * mean, variance) for s in (-1.0, 1.0)]
        return np.stack(both, axis=-1)
