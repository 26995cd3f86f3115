"""Score tests of "this term is zero": from the model without it, not from its own estimate.

With P the projection matrix of the model without the term (its covariance inverted, the constant
projected out) and K the covariance of the term at the rows, the score of its variance at 0 is

    q = ½ yᵀ P K P y  (Zhang and Lin 2003),

up to terms without y. P y is normal with covariance P where the term is zero, so that q / yᵀPy is a
ratio of sums of χ² variables, weighted by the eigenvalues of K^½ P K^½, and its tail is computed.
It needs the ratios of the other variances, not the noise variance. K is taken on some nodes of the
term, which changes what the test is sensitive to, but not its distribution where the term is zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigvalsh

from dsgp.additive import AdditiveSystem, Equations
from dsgp.additive.multigrid import CoarseSpace, multigrid
from dsgp.additive.posterior import together_of
from dsgp.additive.quadratic_forms import tail_of_ratio, tail_of_sum
from dsgp.kernels import Kernel
from dsgp.learning.nodes import NODES
from dsgp.learning.prior_factors import prior_factor
from dsgp.learning.search import search_for, without_starts
from dsgp.terms import Cells, Codes, Floats

# Lengthscales of the kernels tried, in widths of the bulk of the rows. A term that is zero has no
# lengthscale of its own.
LENGTHSCALES = (2.0, 0.5, 0.125)
# Largest number of nodes of a term. If there are more levels, or more curves than have a few nodes
# each, those with the most rows are used.
MOST_NODES = 480
_FEWEST_NODES = 8
# Tolerance of the solves, in prior standard deviations of the widest term. Quadratic forms are
# accurate to its square.
_TOLERANCE = 1e-4
_MAX_ITER = 500
# Smallest share of the information on a term that the other terms and the constant must leave.
_LEAST_LEFT = 1e-7


@dataclass(frozen=True)
class Score:
    """The score of a term at its nodes, from the rows and a model without the term.

    Attributes
    ----------
    nodes : Cells
    score : ndarray of shape (n_nodes,)
        u = Cᵀ Zᵀ P y, C the interpolation from nodes to cells.
    information : ndarray of shape (n_nodes, n_nodes)
        Cᵀ Zᵀ P Z C: the covariance of u where the term is zero.
    alone : ndarray of shape (n_nodes, n_nodes)
        Cᵀ Zᵀ W Z C: the same if the constant and the other terms were known.
    squares : float
        yᵀ P y.
    rank : int
        Of P.
    error_bound : float
        Of the solves, in prior standard deviations of the widest of the other terms.
    """

    nodes: Cells
    score: Floats
    information: Floats
    alone: Floats
    squares: float
    rank: float
    error_bound: float


class KernelTest(NamedTuple):
    """The test with one kernel.

    Attributes
    ----------
    kernel : Kernel
    statistic : float
        q over its expectation if the term is zero.
    p_value : float
        NaN if constant and other terms leave no information on the term.
    """

    kernel: Kernel
    statistic: float
    p_value: float


def score_of(
    equations: Equations,
    term: int,
    kernel: Kernel,
    others: Sequence[Kernel],
    noise_variance: float,
) -> Score:
    """Compute the score of a term at its nodes.

    Parameters
    ----------
    equations : Equations
        Of all terms.
    term : int
    kernel : Kernel
        Of the term; only its order counts, by which the nodes are chosen.
    others : sequence of kernels
        Of the other terms, in their order.
    noise_variance : float
        Of a row of weight 1; only the ratios of the others' variances to it count.
    """
    layout = equations.layout
    cells = layout.cells[term]
    codes, nodes, spline = _nodes_of(cells, layout.part(equations.weight, term), kernel)
    whole = AdditiveSystem(equations, [], noise_variance, constant=0.0)
    first, last = layout.offsets[term : term + 2]
    n_nodes = spline.shape[1]
    within, weighed = np.empty((n_nodes, n_nodes)), np.empty((n_nodes, n_nodes))
    beside = np.empty((n_nodes, layout.size - (last - first)))
    weight = layout.part(whole.weight, term)[codes]
    together = together_of(whole)
    for start in range(0, n_nodes, together):
        some = spline[:, start : start + together].T
        flat = np.zeros((len(some), layout.size))
        flat[:, first + codes] = some
        product = whole.multiply(flat)
        here = slice(start, start + len(some))
        within[here] = product[:, first + codes] @ spline
        weighed[here] = (some * weight) @ spline
        beside[here] = np.delete(product, slice(first, last), axis=1)
    information = whole.information
    score = layout.part(information, term)[codes] @ spline
    total = equations.total_information / noise_variance
    squares = equations.quadratic / noise_variance - total**2 / whole.total_weight
    bound = 0.0
    if others:
        system = AdditiveSystem(equations.without(term), list(others), noise_variance, constant=0.0)
        solved, residual, bound = _solved(system, np.vstack([beside, system.information]))
        # Forms b' A⁻¹ c, correct to second order in the remaining residual of b.
        within -= solved[:-1] @ beside.T + residual[:-1] @ solved[:-1].T
        score = score - solved[:-1] @ system.information - residual[:-1] @ solved[-1]
        squares -= float(solved[-1] @ (system.information + residual[-1]))
    within = (within + within.T) / 2
    return Score(nodes, score, within, weighed, squares, equations.n_rows - 1, bound)


def _nodes_of(cells: Cells, weight: Floats, kernel: Kernel) -> tuple[Codes, Cells, Floats]:
    """Return the codes of cells that count, nodes among them, and the splines of the nodes there.

    The splines are (n_codes, n_nodes).
    """
    codes = np.arange(len(cells))
    if cells.n_curves > MOST_NODES // _FEWEST_NODES:
        levels = cells.points[cells.chosen(weight, MOST_NODES // _FEWEST_NODES), 0]
        codes = np.flatnonzero(np.isin(cells.points[:, 0], levels))
    elif not cells.is_interpolated and len(cells) > MOST_NODES:
        codes = np.asarray(cells.chosen(weight, MOST_NODES))
    kept = cells if len(codes) == len(cells) else cells.subset(codes)
    wanted = MOST_NODES
    if kept.is_interpolated:
        wanted = min(kept.n_lines * NODES[kernel.order], MOST_NODES)
    chosen = kept.nodes(weight[codes], wanted)
    spline = kept.interpolation(chosen)
    if spline is None:
        return codes, kept, np.eye(len(kept))
    return codes, kept.subset(chosen), spline


def _solved(system: AdditiveSystem, rhs: Floats) -> tuple[Floats, Floats, float]:
    """Solve for several right-hand sides: solutions, residuals, and a bound on the errors."""
    # Error bounds are in prior standard deviations of the widest term.
    unit = max(kernel.std for kernel in system.kernels)
    coarse = cache(partial(CoarseSpace, system))
    together = together_of(system)
    means, residuals, bound = np.empty(rhs.shape), np.empty(rhs.shape), 0.0
    for start in range(0, len(rhs), together):
        some = slice(start, start + together)
        solution = multigrid(
            system, unit * rhs[some], tol=_TOLERANCE, max_iter=_MAX_ITER, coarse=coarse
        )
        means[some] = solution.mean / unit
        residuals[some] = rhs[some] - solution.dual / unit - system.multiply(means[some])
        bound = max(bound, solution.error_bound)
    return means, residuals, bound


def kernels_tried(kernel: Kernel, cells: Cells, weight: Floats) -> list[Kernel]:
    """Return kernels with parameters that depend on the inputs alone, at several lengthscales.

    Where no lengthscale is free there is one kernel.
    """
    search = search_for(without_starts(kernel), cells, weight, 1)
    values = {
        name: value
        for name in search.names
        if name.startswith("lengthscale") and (value := search.middle.value(name)) is not None
    }
    if not values:
        return [search.middle]
    return [
        search.middle.with_parameters(**{name: factor * own for name, own in values.items()})
        for factor in LENGTHSCALES
    ]


def kernel_test(score: Score, kernel: Kernel, *, known_noise: bool) -> KernelTest:
    """Test one kernel; where the noise variance is known, q itself is referred to its tail."""
    factor = prior_factor(kernel, score.nodes)
    # The sums of the weights are the expectations of uᵀKu with and without the other terms.
    weights = np.maximum(eigvalsh(factor.T @ score.information @ factor), 0.0)
    weights = np.sort(weights)[-score.rank :]
    alone = float(np.sum(factor * (score.alone @ factor)))
    expected, squares = float(weights.sum()), float(np.sum((factor.T @ score.score) ** 2))
    if not expected > _LEAST_LEFT * alone:
        return KernelTest(kernel, math.nan, math.nan)
    if known_noise:
        return KernelTest(kernel, squares / expected, tail_of_sum(weights, squares))
    if score.squares <= 0:  # the other terms and the constant fit the rows exactly
        return KernelTest(kernel, math.nan, math.nan)
    ratio = squares / score.squares
    p_value = tail_of_ratio(weights, ratio, score.rank)
    return KernelTest(kernel, ratio * score.rank / expected, p_value)


def combined(p_values: Sequence[float]) -> float:
    """Combine p-values of tests that depend on one another: Cauchy combination (Liu and Xie 2020).

    The mean of cot(π p) has a standard Cauchy tail whatever the dependence is, ever more so as p
    falls.

    Examples
    --------
    >>> from dsgp.learning.score_tests import combined
    >>> round(combined([0.03, 0.03, 0.03]), 6), round(combined([1e-12, 0.5]) * 1e12, 3)
    (0.03, 2.0)
    """
    p = np.clip(np.asarray(p_values), 1e-300, 1 - 1e-12)
    return math.atan2(1.0, float(np.mean(1 / np.tan(math.pi * p)))) / math.pi
