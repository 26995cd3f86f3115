"""Hyperparameters drawn with all functions integrated out: slice updates of the evidence at nodes.

The log marginal likelihood is that of the learner (``learning.evidence``): every term is held by
its values at nodes, with a spline between. Where all points are nodes it is exact; beyond it is as
good as the nodes resolve the kernels, which ``HyperDraws`` reports. The part of the functions that
bins and nodes do not represent would count as noise: it is subtracted as it is at the initial
values, and later changes of it are not corrected. The constant beside the terms is integrated out
too. An evaluation costs a Cholesky factor of the nodes, whatever the number of rows.

A sweep updates the hyperparameters of one term after the other and the noise, twice, and then all
of them together, along ellipses that have the curvature at the initial values, and later the
covariance of the warm-up.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from dsgp.additive import MAX_ITER, AdditiveSystem, TwoWayTables
from dsgp.additive.multigrid import multigrid
from dsgp.additive.tables import BINS
from dsgp.learning.basis import Basis, Nodes
from dsgp.learning.node_posterior import NodePosterior
from dsgp.learning.nodes import are_too_many, eliminated_of, enough_nodes, open_variances
from dsgp.sampling.parameters import HyperModel
from dsgp.sampling.slices import Adapted, Ellipse
from dsgp.sampling.state import (
    ChainState,
    adapted_of,
    of_adapted,
    of_generator,
    put_into_generator,
)
from dsgp.terms import LOG_2PI, Floats

# Lengthscales are drawn below their best values too: nodes must resolve lengthscales shorter by
# this factor.
_SHORTER = 0.6
# Tolerance of the initial solve, in prior standard deviations.
_SOLVE_TOL = 1e-4
# Step of the differences for the curvature, and bounds of the standard deviations that follow from
# it.
_STEP = 0.05
_NARROWEST, _WIDEST = 1e-3, 1.5
_TINY = np.finfo(float).tiny


class NodeEvidence:
    """The log density of hyperparameters and targets, all functions integrated out.

    Parameters
    ----------
    model : HyperModel
    tables : TwoWayTables
    counts : list of int
        Nodes of each term.
    """

    def __init__(self, model: HyperModel, tables: TwoWayTables, counts: list[int]) -> None:
        self.model, self.tables = model, tables
        self.basis = Basis.of(tables, counts, eliminated_of(tables))
        self.nodes: Nodes = self.basis.nodes(tables)
        self.ones = self.basis.at_nodes(tables.ones)
        self.excess = self._excess()

    @classmethod
    def of(cls, model: HyperModel) -> NodeEvidence | None:
        """Choose nodes that resolve the initial kernels; None if that is not possible.

        It is not if the levels are too many for a factor of all nodes, if functions are too rough
        for the budget, or if float64 cannot factor a prior.
        """
        equations = model.equations
        if are_too_many(equations.layout.cells):
            return None
        kernels = model.kernels(model.start)
        tables = equations.tables(max((BINS[kernel.order] for kernel in kernels), default=1))
        shorter = [
            kernel.with_parameters(
                **{
                    name: _SHORTER * (kernel.value(name) or 1.0)
                    for name in kernel.free
                    if name.startswith("lengthscale")
                }
            )
            for kernel in kernels
        ]
        try:
            for tried in (shorter, kernels):
                counts = enough_nodes(tables, tried, model.noise_variance)
                if counts is not None:
                    return cls(model, tables, counts)
        except LinAlgError:
            pass
        return None

    @property
    def is_exact(self) -> bool:
        """Whether every distinct value of the rows is a node."""
        binned = any(bool(spread.any()) for spread in self.tables.spreads)
        return self.basis.size == self.model.equations.layout.size and not binned

    def _excess(self) -> float:
        """Weighted squares of the functions that bins and nodes do not represent, initially.

        They would be drawn as noise: as in the learner, they are subtracted.
        """
        equations, start = self.model.equations, self.model.start
        noise, kernels = math.exp(start[-1]), self.model.kernels(start)
        mean = NodePosterior(self.nodes, kernels, noise).mean
        left = equations.quadratic - 2 * self.nodes.information @ mean + self.nodes.squares(mean)
        system = AdditiveSystem(equations, kernels, noise, constant=0.0)
        solution = multigrid(system, tol=_SOLVE_TOL, max_iter=MAX_ITER["multigrid"])
        return max(float(left) - equations.squares(solution.mean), 0.0)

    def log_likelihood(self, theta: Floats) -> float:
        """Log marginal likelihood; −inf where float64 cannot resolve it."""
        equations, noise = self.model.equations, math.exp(theta[-1])
        try:
            with np.errstate(all="ignore"):
                posterior = NodePosterior(self.nodes, self.model.kernels(theta), noise)
        except (LinAlgError, ValueError):
            return -math.inf
        value = -0.5 * (
            equations.n_rows * (LOG_2PI + math.log(noise))
            - equations.log_weight
            + posterior.log_det
            + (equations.quadratic - self.excess) / noise
            - float(np.sum(posterior.whitened * posterior.weights))
        )
        value += self._of_constant(posterior)
        return value if math.isfinite(value) else -math.inf

    def _of_constant(self, posterior: NodePosterior) -> float:
        """Change of the log likelihood by integrating the constant out."""
        if self.model.constant is None:
            return 0.0
        equations, noise = self.model.equations, posterior.noise_variance
        ones = posterior.whiten(self.ones) / noise
        total = equations.total_weight / noise
        left = total - float(np.sum(ones * posterior.solve(ones)))
        precision = max(left, _TINY * total) + self.model.constant
        information = equations.total_information / noise
        information -= float(np.sum(ones * posterior.weights))
        prior = math.log(self.model.constant) if self.model.constant else LOG_2PI
        return 0.5 * (prior - math.log(precision) + information**2 / precision)

    def log_density(self, theta: Floats) -> float:
        """Log posterior density up to a constant."""
        prior = self.model.log_prior(theta)
        return prior if prior == -math.inf else prior + self.log_likelihood(theta)

    def left_open(self, theta: Floats) -> float:
        """Prior variance that the nodes do not represent, as a share of the noise variance."""
        if self.is_exact:
            return 0.0
        kernels, noise = self.model.kernels(theta), math.exp(theta[-1])
        return float(sum(open_variances(self.tables, self.basis, kernels, noise)))

    def curvature(self) -> Floats:
        """Estimate the covariance of the free numbers of θ, from differences at the start."""
        start, free = self.model.start, self.model.free
        centre = self.log_density(start)
        hessian = np.zeros((len(free), len(free)))

        def at(*moves: tuple[int, float]) -> float:
            theta = start.copy()
            for k, step in moves:
                theta[free[k]] += step
            value = self.log_density(theta)
            return value if value > -math.inf else centre - 1.0

        for k in range(len(free)):
            up, down = at((k, _STEP)), at((k, -_STEP))
            hessian[k, k] = (2 * centre - up - down) / _STEP**2
            for j in range(k):
                corners = [
                    sign_k * sign_j * at((k, sign_k * _STEP), (j, sign_j * _STEP))
                    for sign_k in (1, -1)
                    for sign_j in (1, -1)
                ]
                hessian[k, j] = hessian[j, k] = -sum(corners) / (4 * _STEP**2)
        values, vectors = np.linalg.eigh(hessian)
        values = np.clip(values, _WIDEST**-2, _NARROWEST**-2)
        return (vectors / values) @ vectors.T


class CollapsedChain:
    """One Markov chain of hyperparameters; see the module.

    Parameters
    ----------
    evidence : NodeEvidence
    covariance : ndarray of shape (n_free, n_free)
        Initial covariance of the free numbers of θ.
    random : Generator
        Of this chain alone.

    Attributes
    ----------
    theta : ndarray of shape (n_parameters,)
    log_likelihood : float
        Log marginal likelihood of the state.
    evaluations : int
    """

    def __init__(
        self, evidence: NodeEvidence, covariance: Floats, random: np.random.Generator
    ) -> None:
        self.model, self.evidence, self.random = evidence.model, evidence, random
        self.theta = self.model.start
        self.free = self.model.free
        self.adapted = Adapted(self.theta[self.free], covariance)
        self.blocks = self._blocks()
        self.value = -math.inf
        self.evaluations = 0

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the state."""
        return self.value - self.model.log_prior(self.theta)

    def settle(self) -> None:
        """Spread the chains about the initial values."""
        self.value = self.evidence.log_density(self.theta)
        factor = self.adapted.ellipse.factor
        for _ in range(20):  # until the draw is within the bounds
            theta = self.theta.copy()
            theta[self.free] += factor @ self.random.standard_normal(len(self.free))
            value = self.evidence.log_density(theta)
            if value > -math.inf:
                self.theta, self.value = theta, value
                return

    def state(self) -> ChainState:
        """Return all that the chain has and the evidence does not."""
        arrays = {"theta": self.theta.copy(), "value": np.array([self.value])}
        numbers = {"random": of_generator(self.random), "evaluations": self.evaluations}
        return ChainState(numbers, arrays | of_adapted(self.adapted, "adapted"))

    def restore(self, state: ChainState) -> None:
        """Continue from a state."""
        self.theta = state.arrays["theta"].copy()
        self.value = float(state.arrays["value"][0])
        put_into_generator(self.random, state.numbers["random"])
        self.evaluations = state.numbers["evaluations"]
        self.adapted = adapted_of(state.arrays, "adapted")
        self.blocks = self._blocks()

    def adapt(self, last: bool) -> None:
        """Learn from the state after a sweep of the warm-up."""
        before = self.adapted.ellipse
        self.adapted.add(self.theta[self.free], last)
        if self.adapted.ellipse is not before:
            self.blocks = self._blocks()

    def _blocks(self) -> list[tuple[NDArray[np.intp], Ellipse]]:
        """Numbers of θ that are drawn together, with their ellipses, in the order of a sweep.

        The parameters of each term are updated twice, which is worth the time.
        """
        mean, covariance = self.adapted.ellipse.mean, self.adapted.ellipse.covariance
        several = [np.arange(part.start, part.stop) for part in self.model.parts]
        if not self.model.noise.is_fixed:
            several.append(self.free[-1:])
        blocks = [(k, Ellipse(mean[k], covariance[np.ix_(k, k)])) for k in several if len(k)]
        joint = [(self.free, self.adapted.ellipse)] if len(blocks) > 1 else []
        return [*blocks, *blocks, *joint]

    def sweep(self) -> None:
        """Draw the numbers of one block after the other."""
        for chosen, ellipse in self.blocks:
            self.theta[chosen], self.value, tries = ellipse.update(
                self.theta[chosen], self.value, partial(self._value, chosen), self.random
            )
            self.evaluations += tries

    def _value(self, chosen: NDArray[np.intp], values: Floats) -> float:
        theta = self.theta.copy()
        theta[chosen] = values
        return self.evidence.log_density(theta)
