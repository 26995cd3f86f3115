"""The plain Gibbs sampler: hyperparameters of a term given its function (Section sec:MCMC).

As ``sampling.gibbs``, but for the order and the conditional: of each term first the constant and
the whole chain of states z_d = (f_d, f_d′, …) are drawn given θ_d, and then θ_d given z_d, by slice
updates of

    log p(θ_d) + log p(z_d1 | θ_d) + Σ_t log p(z_dt | z_d,t−1, θ_d),

the Markov factorisation of the prior, in O(n). The rows do not enter it. It is what the paper's
FFBS suggests, and serves as a reference: n states of m components determine the variance of the
process noise to a relative sqrt(2 / (n m)), so that a draw of θ_d moves as little, however little
informative the rows are about it. Effects of levels are their own states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from dsgp.errors import ParameterError
from dsgp.kernels import Kernel, Matern
from dsgp.sampling.gibbs import GibbsChain, PartialResidual
from dsgp.sampling.parameters import HyperModel, TermPrior
from dsgp.terms import Axis, Cells, ExpectedChain, Floats

METHOD = "plain-gibbs"


class PlainGibbsChain(GibbsChain):
    """One Markov chain of the plain sampler; parameters and attributes are those of GibbsChain."""

    def _draw_term(
        self, d: int, cells: Cells, residual: PartialResidual, with_parameters: bool
    ) -> Floats:
        term = self.model.terms[d]
        if not with_parameters or not term.names:
            return self._draw_function(d, cells, residual)
        if not isinstance(cells, Axis):
            drawn = self._draw_function(d, cells, residual)
            self._slice(d, partial(_of_levels, term, len(drawn), float(np.sum(drawn**2))))
            return drawn
        kernel = term.kernel_of(self.theta[self.model.parts[d]])
        assert isinstance(kernel, Matern)
        noise = self.noise_variance
        self._draw_constant_beside(cells.solver(kernel, residual.weight / noise), residual)
        seen = residual.observations(self.constant, noise)
        drawn, chain = cells.draw_states(kernel, seen, self.random)
        self._slice(d, partial(_of_density, term, partial(_of_states, chain)))
        return drawn


def require_states(model: HyperModel) -> None:
    """Raise unless the states of every term whose parameters are drawn are known.

    Raises
    ------
    ParameterError
        If they are not, with the name of the first such term.
    """
    layout = model.equations.layout
    for name, cells, term in zip(layout.names, layout.cells, model.terms, strict=True):
        chain = type(cells) is Axis and isinstance(term.kernel, Matern)
        if term.names and not chain and not cells.is_diagonal:
            raise ParameterError(
                f'method="{METHOD}" draws the parameters of a term given its states, which only '
                "levels and Matérn functions of one column without `by` have, and the term "
                f'{name!r} with the kernel {term.kernel!r} is neither: use method="gibbs", or '
                "name its parameters as fixed"
            )


def _of_density(term: TermPrior, density: Callable[[Kernel], float], theta: Floats) -> float:
    """Log density of (θ_d, z_d) up to a constant; −inf where it overflows."""
    prior = term.log_density(theta)
    if prior == -math.inf:
        return -math.inf
    with np.errstate(all="ignore"):
        value = prior + density(term.kernel_of(theta))
    return value if math.isfinite(value) else -math.inf


def _of_states(chain: ExpectedChain, kernel: Kernel) -> float:
    """Log density of states that are known."""
    assert isinstance(kernel, Matern)
    return chain.log_density(kernel).value


def _of_levels(term: TermPrior, number: int, squares: float, theta: Floats) -> float:
    """Log density of (θ_d, f_d) up to a constant, f_d independent effects."""
    return _of_density(
        term,
        lambda kernel: -0.5 * (number * math.log(kernel.std**2) + squares / kernel.std**2),
        theta,
    )
