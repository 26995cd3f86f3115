"""Laplace's approximate marginal likelihood of an additive model by its values at nodes.

With F̂ the mode of Ω(F) = Σ w log p(y | f) − ½ Fᵀ K̃⁻¹ F (Gilboa et al., eq. ``laobj``) and W the
weights of the rows there,

    log p(y) ≈ Ω(F̂) − ½ log det(I + K̃ G),    G = Cᵀ Zᵀ W Z C,

with the determinant of all terms together, or, as in the paper's eq. ``mdl``, that of the terms as
if independent. The mode moves with the hyperparameters and W with the mode: both are in the
gradient. The rows are summed by bins, one pass per Newton step; all other work depends on the
number of nodes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsgp.additive import TwoWayTables
from dsgp.kernels import Constant, Kernel
from dsgp.laplace.linearised import Linearised, PairTables
from dsgp.laplace.rows import ResponseRows
from dsgp.learning.basis import Basis, Nodes
from dsgp.learning.node_posterior import NodePosterior
from dsgp.likelihoods import Likelihood
from dsgp.terms import Axis, Cells, Floats

# Prior variance of the constant that is learned with the terms, around the level of the rows, in
# units of the variance of a term. It is so large that the prior is not informative.
_LEVEL_VARIANCE = 100.0
# The single cell of the constant.
CONSTANT: Cells = Axis(np.zeros(1))
# Halvings of a step before the Newton iteration gives up.
_HALVINGS = 40
# Share of Ω by which rounding alone may make it fall.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class NodeModel:
    """Rows on bins, nodes among the bins, and the likelihood: what a mode is computed from.

    Attributes
    ----------
    rows : ResponseRows
        Their codes are bins.
    spreads : list of ndarray of shape (n_bins,)
        Variance of the inputs in each bin.
    basis : Basis
        Of the terms, and of a constant as the last one where ``constant``.
    likelihood : Likelihood
    level : float
        A constant that is known.
    constant : float
        If positive, another constant is to be found in addition. Its prior variance is this factor
        times one that is not informative on the scale of a logarithm.
    """

    rows: ResponseRows
    spreads: list[Floats]
    basis: Basis
    likelihood: Likelihood
    level: float
    constant: float

    def tables(self, linearised: Linearised, flat: Floats) -> TwoWayTables:
        """Weights of the rows by bins, and Zᵀ(W f + ∇) around functions at the bins.

        The constant, if there is one, is a term with a single bin, the last entry of ``flat``.
        """
        table = self.rows.table
        weights, information = table.parts(linearised.weight), table.parts(linearised.gradient)
        cells, spreads = list(table.cells), list(self.spreads)
        pairs = dict(linearised.pairs)
        if self.constant:
            d, ones = table.n_terms, table.parts(linearised.ones)
            pairs |= {(e, d): ones[e][:, None] for e in range(d)}
            cells.append(CONSTANT)
            weights.append(np.array([linearised.total_weight]))
            information.append(np.array([linearised.total_gradient]))
            spreads.append(np.zeros(1))
        tables = TwoWayTables(cells, weights, information, pairs, spreads)
        if not tables.n_terms:
            return tables
        # These rows are needed only once, so that the matrix of all pairs, which ``multiply``
        # makes, would not be worth its cost.
        parts = np.split(flat[None], tables.offsets[1:-1], axis=1)
        both = [tables.row(d, parts)[0] + part for d, part in enumerate(information)]
        return TwoWayTables(cells, weights, both, pairs, spreads)

    def kernels(self, kernels: list[Kernel]) -> list[Kernel]:
        """Append the kernel of the constant."""
        return [*kernels, *([constant_kernel(self.constant)] if self.constant else [])]

    def at(self, values: Floats) -> tuple[Floats, float]:
        """Functions at the bins, and the constant, for values at the nodes."""
        flat = self.basis.at_bins(values) if self.basis.size else np.zeros(0)
        return flat, self.level + (float(flat[-1]) if self.constant else 0.0)

    def linearised(self, values: Floats) -> Linearised:
        """Sum the likelihood over the rows: one pass."""
        flat, level = self.at(values)
        terms = flat[:-1] if self.constant else flat
        return self.rows.linearised(self.likelihood, level, terms, with_pairs=True)

    def nodes(self, values: Floats, linearised: Linearised) -> Nodes:
        """Statistics of the next Newton step at the nodes."""
        return self.basis.nodes(self.tables(linearised, self.at(values)[0]))


def constant_kernel(unit: float) -> Kernel:
    """Prior of the constant."""
    return Constant(_LEVEL_VARIANCE * unit, fixed=("variance",))


@dataclass(frozen=True)
class NodeMode:
    """The mode at given hyperparameters, and Laplace's approximation there.

    Attributes
    ----------
    model : NodeModel
    values : ndarray of shape (Σ M_d,)
        F̂ at the nodes.
    linearised : Linearised
        The likelihood there.
    posterior : NodePosterior
        Of the linearised model.
    objective : float
        Ω(F̂).
    gain : float
        What the next Newton step would add to Ω.
    passes : int
    """

    model: NodeModel
    values: Floats
    linearised: Linearised
    posterior: NodePosterior
    objective: float
    gain: float
    passes: int

    def evidence(self, *, alone: bool = False) -> float:
        """Log marginal likelihood; ``alone`` with the determinant of independent terms."""
        log_det = self.posterior.log_det_alone if alone else self.posterior.log_det
        return self.objective + max(self.gain, 0.0) - 0.5 * log_det

    def variance_tables(self, *, alone: bool = False) -> PairTables:
        """Posterior variance of a row's f, as tables of its bins."""
        model, posterior, basis = self.model, self.posterior, self.model.basis
        n_terms = model.rows.table.n_terms

        def at_bins(d: int, e: int) -> Floats:
            block = posterior.covariance(d, e, alone=alone)
            left, right = basis.splines[d], basis.splines[e]
            block = block if left is None else left @ block
            return block if right is None else block @ right.T

        alone_variances = [posterior.variances(d, alone=alone) for d in range(n_terms)]
        constant = 0.0
        if model.constant:
            constant = float(posterior.covariance(n_terms, n_terms, alone=alone)[0, 0])
        crossed: list[Floats] = []
        if model.constant and not alone:
            crossed = [2 * at_bins(d, n_terms)[:, 0] for d in range(n_terms)]
        pairs = {} if alone else {(d, e): 2 * at_bins(d, e) for d, e in self.linearised.pairs}
        return PairTables(
            constant,
            np.concatenate(alone_variances) if alone_variances else np.zeros(0),
            pairs,
            np.concatenate(crossed) if crossed else None,
        )

    def moved(self, variance: PairTables) -> Floats:
        """Derivative of −½ log det by F through W, in white coordinates and solved for.

        −½ Σ w v ∂W/∂f ∂f/∂θ is the inner product of this, t, with the derivative of the mode:
        the dual of t times ∂K_d times the dual of F̂, term by term.
        """
        model = self.model
        flat, level = model.at(self.values)
        terms = flat[:-1] if model.constant else flat
        sums, total = model.rows.curvature_change(model.likelihood, level, terms, variance)
        parts = model.rows.table.parts(sums)
        if model.constant:
            parts.append(np.array([total]))
        at_nodes = model.basis.at_nodes(parts) if parts else np.zeros(0)
        return -0.5 * self.posterior.solve(self.posterior.whiten(at_nodes))

    def through_mode(self, moved: Floats) -> list[dict[str, float]]:
        """Part of the evidence's gradient, by logs of parameters, due to the mode's change."""
        posterior = self.posterior
        weights = posterior.whites(self.values) if len(self.values) else self.values
        duals, moved_duals = posterior.duals(weights), posterior.duals(moved)
        gradients = []
        for d, (kernel, part, dual, moved_dual) in enumerate(
            zip(posterior.kernels, posterior.basis.parts, duals, moved_duals, strict=True)
        ):
            by_log = {}
            for name in kernel.parameters:
                if name == "variance":
                    by_log[name] = float(moved[part] @ weights[part])
                else:
                    by_log[name] = float(moved_dual @ posterior.derivative(d, name) @ dual)
            gradients.append(by_log)
        return gradients

    def gradient(self, *, alone: bool = False) -> list[dict[str, float]]:
        """Gradient of the evidence by logs of parameters of every term (and the constant's)."""
        fixed = self.posterior.gradients(alone=alone)
        moving = self.through_mode(self.moved(self.variance_tables(alone=alone)))
        return [
            {name: value + by[name] for name, value in at_fixed_mode.items()}
            for at_fixed_mode, by in zip(fixed, moving, strict=True)
        ]


def node_mode(
    model: NodeModel,
    kernels: list[Kernel],
    values: Floats,
    *,
    tol: float,
    max_iter: int,
) -> NodeMode:
    """Find the mode by Newton's method from given values at the nodes.

    A step is halved until Ω does not fall.

    Parameters
    ----------
    model : NodeModel
    kernels : list of kernels, one per term
        Without that of the constant.
    values : ndarray of shape (Σ M_d,)
    tol : float
        It ends when a step would gain less than this many nats.
    max_iter : int
        Largest number of steps.
    """
    kernels = model.kernels(kernels)
    linearised = model.linearised(values)
    posterior = NodePosterior(model.nodes(values, linearised), kernels, 1.0)
    weights = posterior.whites(values) if len(values) else values
    objective = linearised.log_density - 0.5 * float(weights @ weights)
    passes = 1
    while True:
        slope = posterior.whiten(model.basis.at_nodes(_gradients(model, linearised))) - weights
        step = posterior.weights - weights
        gain = 0.5 * float(step @ slope)
        if gain <= tol or passes > max_iter:
            break
        size = 1.0
        for _ in range(_HALVINGS):
            tried_weights = weights + size * step
            tried_values = posterior.values(tried_weights)
            tried = model.linearised(tried_values)
            passes += 1
            value = tried.log_density - 0.5 * float(tried_weights @ tried_weights)
            if value >= objective - _ROUNDING * abs(objective):
                break
            size *= 0.5
        else:
            break
        if not math.isfinite(value):
            break
        values, linearised, weights, objective = tried_values, tried, tried_weights, value
        posterior = NodePosterior(model.nodes(values, linearised), kernels, 1.0)
    return NodeMode(model, values, linearised, posterior, objective, gain, passes)


def _gradients(model: NodeModel, linearised: Linearised) -> list[Floats]:
    parts = model.rows.table.parts(linearised.gradient)
    return [*parts, np.array([linearised.total_gradient])] if model.constant else parts
