"""The paper's sampler, Additive-MCMC (Section sec:MCMC): one term after the other given the others.

A sweep visits the terms. With r_d the targets less the constant and all other terms it draws

1. θ_d given r_d and σ², f_d integrated out: slice updates along ellipses on the 1-D marginal
   likelihood, O(n) per evaluation;
2. the constant and f_d together given θ_d. f_d is a draw of its prior, plus the posterior mean
   given the targets less that draw and a draw of the noise (Durbin & Koopman 2002): the law is that
   of forward filtering, backward sampling, and it works for every kind of term;

and then σ² given all functions, from its inverse gamma distribution. Steps 1 and 2 draw (θ_d, f_d)
together. If θ_d is drawn given f_d, as in the plain Gibbs sampler of ``sampling.plain``, it hardly
moves where there are many points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dsgp.sampling.parameters import HyperModel, TermPrior
from dsgp.sampling.slices import Adapted
from dsgp.sampling.state import (
    ChainState,
    adapted_of,
    of_adapted,
    of_generator,
    put_into_generator,
)
from dsgp.terms import LOG_2PI, Cells, Floats, Observations, Solver

# Sweeps in which the functions adapt to the initial hyperparameters, before these move.
_SETTLE = 5
# Slice updates of the parameters of a term per visit; a second one is worth its time.
_UPDATES = 2
# Initial standard deviations of the logs of hyperparameters, for the first ellipses.
_GUESS = 0.4
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class PartialResidual:
    """The targets less all other terms, summed over the rows in each cell of a term.

    Attributes
    ----------
    information : ndarray of shape (n_cells,)
        Z_dᵀ W (y − Σ_{e≠d} f_e): the constant is not subtracted.
    weight : ndarray of shape (n_cells,)
    ones : ndarray of shape (n_cells,)
        The information of a target of ones.
    total : float
        Weighted sum of the targets less the other terms.
    """

    information: Floats
    weight: Floats
    ones: Floats
    total: float

    def observations(self, constant: float, noise_variance: float) -> Observations:
        """Return the targets less the constant as means at the cells."""
        target = np.zeros(len(self.weight))
        left = self.information - constant * self.ones
        np.divide(left, self.weight, out=target, where=self.weight > 0)
        return Observations(target, self.weight / noise_variance)


class GibbsChain:
    """One Markov chain of the sampler by terms.

    Parameters
    ----------
    model : HyperModel
    random : Generator
        Of this chain alone.

    Attributes
    ----------
    theta : ndarray of shape (n_parameters,)
        Logs of the hyperparameters, as for ``HyperModel``.
    functions : ndarray of shape (Σ U_d,)
        Values of all terms at their cells.
    constant : float
    log_likelihood : float
        Log density of the targets given functions, constant and noise, after the last sweep.
    evaluations : int
        Likelihoods of one term computed.
    """

    def __init__(self, model: HyperModel, random: np.random.Generator) -> None:
        self.model, self.random = model, random
        self.theta = model.start
        self.functions = np.zeros(model.equations.layout.size)
        self.constant = 0.0
        self.log_likelihood = -math.inf
        self.evaluations = 0
        self.adapted: list[Adapted] = []

    def settle(self) -> None:
        """Draw functions at the initial hyperparameters, and spread the chains about these."""
        for _ in range(_SETTLE):
            self.sweep(with_parameters=False)
        for part in self.model.parts:
            size = part.stop - part.start
            self.adapted.append(Adapted(self.theta[part], np.eye(size) * _GUESS**2))
        for part, term, adapted in zip(
            self.model.parts, self.model.terms, self.adapted, strict=True
        ):
            step = adapted.ellipse.factor @ self.random.standard_normal(part.stop - part.start)
            self.theta[part] = np.clip(self.theta[part] + step, term.lower, term.upper)

    def adapt(self, last: bool) -> None:
        """Learn from the state after a sweep of the warm-up."""
        for part, adapted in zip(self.model.parts, self.adapted, strict=True):
            adapted.add(self.theta[part], last)

    def state(self) -> ChainState:
        """Return all that the chain has and the model does not."""
        arrays = {
            "theta": self.theta.copy(),
            "functions": self.functions.copy(),
            "numbers": np.array([self.constant, self.log_likelihood]),
        }
        for d, adapted in enumerate(self.adapted):
            arrays |= of_adapted(adapted, f"adapted{d}")
        numbers = {
            "random": of_generator(self.random),
            "evaluations": self.evaluations,
            "n_adapted": len(self.adapted),
        }
        return ChainState(numbers, arrays)

    def restore(self, state: ChainState) -> None:
        """Continue from a state."""
        self.theta = state.arrays["theta"].copy()
        self.functions = state.arrays["functions"].copy()
        self.constant, self.log_likelihood = map(float, state.arrays["numbers"])
        put_into_generator(self.random, state.numbers["random"])
        self.evaluations = state.numbers["evaluations"]
        self.adapted = [
            adapted_of(state.arrays, f"adapted{d}") for d in range(state.numbers["n_adapted"])
        ]

    @property
    def noise_variance(self) -> float:
        """σ² of the state."""
        return math.exp(self.theta[-1])

    def sweep(self, with_parameters: bool = True) -> None:
        """Draw everything once; without parameters only the functions and the constant."""
        equations = self.model.equations
        layout = equations.layout
        fitted = equations.fitted(self.functions)
        parts = layout.parts(self.functions)
        ones = layout.parts(equations.ones)
        weights = layout.parts(equations.weight)
        # Σ w of the contributions of each term to the rows.
        sums = np.array([float(np.sum(a * b)) for a, b in zip(ones, parts, strict=True)])
        for d, cells in enumerate(layout.cells):
            information = fitted.residual(d) + weights[d] * parts[d]
            others = equations.total_information - (float(np.sum(sums)) - sums[d])
            residual = PartialResidual(information, weights[d], ones[d], others)
            drawn = self._draw_term(d, cells, residual, with_parameters)
            fitted.add(d, drawn - parts[d])
            parts[d][:] = drawn
            sums[d] = float(np.sum(ones[d] * drawn))
        total = float(np.sum(sums))
        if not layout.n_terms:
            self._draw_constant(equations.total_information, equations.total_weight)
        c = self.constant
        squares = equations.squares(self.functions) - 2 * c * (equations.total_information - total)
        squares = max(squares + c * c * equations.total_weight, 0.0)
        if with_parameters:
            variance = self.model.noise.draw(self.random, squares, equations.n_rows)
            self.theta[-1] = math.log(variance)
        self.log_likelihood = -0.5 * (
            equations.n_rows * (LOG_2PI + self.theta[-1])
            - equations.log_weight
            + squares / self.noise_variance
        )

    def _draw_term(
        self, d: int, cells: Cells, residual: PartialResidual, with_parameters: bool
    ) -> Floats:
        """Draw θ_d, the constant and f_d given all other terms and the noise; return f_d."""
        if with_parameters and self.model.terms[d].names:
            self._draw_parameters(d, cells, residual)
        return self._draw_function(d, cells, residual)

    def _draw_parameters(self, d: int, cells: Cells, residual: PartialResidual) -> None:
        """Draw θ_d given all other terms, the constant and the noise; f_d is integrated out."""
        seen = residual.observations(self.constant, self.noise_variance)
        self._slice(d, partial(log_conditional, self.model.terms[d], cells, seen))

    def _slice(self, d: int, log_density: Callable[[Floats], float]) -> None:
        """Move θ_d by slice updates that leave a density invariant."""
        part = self.model.parts[d]
        theta = self.theta[part]
        value = log_density(theta)
        for _ in range(_UPDATES):
            theta, value, tries = self.adapted[d].ellipse.update(
                theta, value, log_density, self.random
            )
            self.evaluations += tries
        self.theta[part] = theta

    def _draw_function(self, d: int, cells: Cells, residual: PartialResidual) -> Floats:
        """Draw the constant and f_d given all other terms, the kernel and the noise."""
        noise = self.noise_variance
        kernel = self.model.terms[d].kernel_of(self.theta[self.model.parts[d]])
        weight = residual.weight
        solver = cells.solver(kernel, weight / noise)
        self._draw_constant_beside(solver, residual)
        prior = cells.sample(kernel, self.random)
        perturbed = np.sqrt(weight * noise) * self.random.standard_normal(len(cells))
        left = residual.information - self.constant * residual.ones - weight * prior - perturbed
        return np.asarray(prior + solver.solve(left / noise)[0])

    def _draw_constant_beside(self, solver: Solver, residual: PartialResidual) -> None:
        """Draw the constant given all other terms, f_d integrated out."""
        if self.model.constant is None:
            return
        # The response of f_d to a target of ones.
        response, _ = solver.solve(residual.ones / self.noise_variance)
        self._draw_constant(
            residual.total - float(np.sum(response * residual.information)),
            self.model.equations.total_weight - float(np.sum(response * residual.ones)),
        )

    def _draw_constant(self, information: float, weight: float) -> None:
        """Draw the constant; its information and weight are without the noise variance."""
        if self.model.constant is None:
            return
        precision = max(weight, _TINY) / self.noise_variance + self.model.constant
        mean = information / self.noise_variance / precision
        self.constant = mean + self.random.standard_normal() / math.sqrt(precision)


def log_conditional(term: TermPrior, cells: Cells, seen: Observations, theta: Floats) -> float:
    """Log density of (θ_d, r_d) up to a constant, f_d integrated out; −inf where it overflows."""
    prior = term.log_density(theta)
    if prior == -math.inf:
        return -math.inf
    with np.errstate(all="ignore"):
        quadratic, log_det = cells.likelihood_terms(term.kernel_of(theta), seen)
    value = prior - 0.5 * (quadratic + log_det)
    return value if math.isfinite(value) else -math.inf
