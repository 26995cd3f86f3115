"""The states along an axis for EM: their expected statistics, and expected log densities by θ.

The latent variables are the function and its derivatives at every point, z_t = (f, f′, …) of
section ``sec:gmp``; hyperparameters are not part of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsgp.jit.chain import expected_log_density
from dsgp.kernels import Matern
from dsgp.terms.base import LOG_2PI, Floats


class ExpectedDensity(NamedTuple):
    """E log p(states | kernel), and its derivatives by the logs of the kernel's parameters."""

    value: float
    by_log: dict[str, float]


@dataclass(frozen=True)
class ExpectedChain:
    """Expected sufficient statistics of the states along an axis (E-step of section ``sec:gpvb``).

    The states u are in the damped coordinates of the kernel, and e_t = u_t − Φ_t u_{t−1}. The
    three moments of each step hold those of u_t and u_{t−1} and E[u_t u_{t−1}ᵀ], which is
    Φ_t E[u_{t−1} u_{t−1}ᵀ] + E[e_t u_{t−1}ᵀ]; unlike these they keep their digits where points are
    close.

    Attributes
    ----------
    kernel : Matern
        The kernel of the posterior.
    tau : ndarray of shape (n,)
        Step to each point, times the rate of the kernel.
    first : ndarray of shape (m, m)
        E[u_0 u_0ᵀ].
    noise, cross, previous : ndarray of shape (n, m, m)
        E[e_t e_tᵀ], E[e_t u_{t−1}ᵀ] and E[u_{t−1} u_{t−1}ᵀ]; those of the first point are not used.
    """

    kernel: Matern
    tau: Floats
    first: Floats
    noise: Floats
    cross: Floats
    previous: Floats

    def log_density(self, kernel: Matern) -> ExpectedDensity:
        r"""Expected log density of all states under a kernel of the same order.

        The states are the function and its derivatives by τ of the posterior's kernel; other
        units of the input add a constant.

        .. math:: E \log p(z_1) + \sum_{t>1} E \log p(z_t | z_{t-1})
        """
        n, m = len(self.tau), self.kernel.order
        (variance,) = kernel.stationary_covariance()[:1, 0]
        unit = kernel.stationary_covariance() / variance
        log_ratio = math.log(kernel.rate / self.kernel.rate)
        log_det, trace, by_log_det, by_trace = expected_log_density(
            kernel.inverse_factorials,
            unit,
            self.tau,
            log_ratio,
            self.first,
            self.noise,
            self.cross,
            self.previous,
        )
        # The determinant of M is a change of volume, ρ^{-m (m − 1) / 2} for each state.
        volume = n * m * (m - 1) / 2
        quadratic = trace / variance
        value = -0.5 * (n * m * (LOG_2PI + math.log(variance)) + log_det + quadratic)
        by_rate = -0.5 * (by_log_det + by_trace / variance) - volume
        return ExpectedDensity(
            value - volume * log_ratio,
            {"lengthscale": -by_rate, "variance": -0.5 * (n * m - quadratic)},
        )


def empty_statistics(n: int, m: int) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return arrays for τ, the first moment and those of the steps."""
    return (
        np.empty(n),
        np.empty((m, m)),
        np.zeros((n, m, m)),
        np.zeros((n, m, m)),
        np.zeros((n, m, m)),
    )


def of_path(kernel: Matern, tau: Floats, states: Floats, moved: Floats) -> ExpectedChain:
    """Return the chain of known states (n, m), from these and their process noise (n, m)."""
    before = np.zeros_like(states)
    before[1:] = states[:-1]

    def products(left: Floats, right: Floats) -> Floats:
        return left[:, :, None] * right[:, None, :]

    first = np.outer(states[0], states[0])
    return ExpectedChain(
        kernel,
        tau,
        first,
        products(moved, moved),
        products(moved, before),
        products(before, before),
    )
