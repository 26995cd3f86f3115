"""Priors of hyperparameters, for models that draw them instead of maximising the likelihood."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from dsgp.errors import ParameterError


@dataclass(frozen=True)
class HyperPriors:
    r"""Priors of the kernels' parameters and of the noise, free of units.

    .. math:: \log(\ell_d / w_d) \sim \mathcal N(\mu_\ell, v_\ell), \quad
              v_y / s_d^2 \sim \Gamma(\alpha_\tau, \beta_\tau), \quad
              v_y / \sigma^2 \sim \Gamma(\alpha_n, \beta_n)

    They are those of the paper (Section ``sec:MCMC``), for a target of variance 1 and inputs of
    width 1: w_d is the distance between the 10 % and the 90 % quantile of the rows along the input
    of term d, and v_y the variance of the target (or of its transform). The same values therefore
    fit data in any units. The defaults are weakly informative.

    Parameters
    ----------
    lengthscale_mean : float
        μ_ℓ, the mean of log(ℓ/w). 0: a lengthscale is about as long as the rows are spread.
    lengthscale_std : float
        √v_ℓ.
    variance_shape, variance_rate : float
        α_τ and β_τ, of a term's signal precision τ = v_y/s². With the defaults half of the prior is
        below s² = 0.07 v_y, and a tenth above 0.5 v_y.
    noise_shape, noise_rate : float
        α_n and β_n, of the noise precision. With the defaults half of the prior is below
        σ² = 0.02 v_y, and a tenth above 0.6 v_y.

    Raises
    ------
    ParameterError
        If a number is not finite, or one other than ``lengthscale_mean`` is not positive.

    Notes
    -----
    A periodic kernel has its own width, which replaces w_d. If a kernel has several lengthscales,
    each is expected at an eighth of the one before. Parameters without a unit (the exponent of a
    rational quadratic) have log-normal priors with a standard deviation of 1 around the initial
    value of a learner. All priors are truncated at the bounds of a learner.

    Examples
    --------
    >>> from dsgp.priors import HyperPriors
    >>> HyperPriors(lengthscale_mean=0.5).lengthscale_std
    1.5
    """

    lengthscale_mean: float = 0.0
    lengthscale_std: float = 1.5
    variance_shape: float = 1.0
    variance_rate: float = 0.05
    noise_shape: float = 0.5
    noise_rate: float = 0.005

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            number = isinstance(value, Real) and not isinstance(value, bool)
            positive = number and (name == "lengthscale_mean" or float(value) > 0)
            if not (positive and math.isfinite(value)):
                what = "finite number" if name == "lengthscale_mean" else "positive finite number"
                raise ParameterError(f"HyperPriors: {name} must be a {what}, got {value!r}")
            object.__setattr__(self, name, float(value))

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold; ``HyperPriors(**settings)`` undoes it."""
        return asdict(self)
