"""Hyperparameters by Laplace's approximate marginal likelihood.

At a mode the likelihood is that of a Gaussian *working model* with weights W, whose evidence costs
no pass over the rows. Its gradient by the hyperparameters lacks the effect of the mode, which moves
W: that is computed at the mode and added as a straight line (``Tilt``). A new mode is found at the
maximum of this surrogate, a handful of times. A surrogate equals the true evidence in value and
gradient at its mode, so that a fixed point is a stationary point of the evidence; it is trusted
within bounds that shrink where the true evidence does not follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError

from dsgp.additive import TwoWayTables
from dsgp.kernels import Kernel
from dsgp.laplace.binned import BinnedRows, counts_of
from dsgp.laplace.evidence import CONSTANT, NodeMode, NodeModel, node_mode
from dsgp.laplace.surrogate import Promise, State, best_of_surrogate, largest_move, scanned
from dsgp.learning.basis import Basis
from dsgp.learning.lengthscales import SCAN_GAIN
from dsgp.learning.nodes import RESOLUTION, eliminated_of, more_nodes, open_variances, spread_nodes
from dsgp.learning.search import Search
from dsgp.likelihoods import Likelihood
from dsgp.terms import Cells, Floats

# Initial number of nodes of a term. A row is less informative than one with little Gaussian noise.
NODES = {1: 64, 2: 32, 3: 24, 4: 20}
# Hyperparameters are first learned from this many rows; further rows then change them little.
FIRST_ROWS = 32_768
# Trust radius of a surrogate, in logs of hyperparameters: initial, largest and smallest.
_RADIUS, _MOST, _LEAST = 2.0, 3.0, 1e-3
# Shares of the gain promised by the surrogate: with less than the first the radius shrinks, with
# more than the second it grows.
_POOR, _GOOD = 0.1, 0.7
# Newton's iteration ends when a step gains less than this share of the smallest gain that a step of
# the surrogate must promise.
_NEWTON_SHARE = 0.01
_SCANS = 2
# Number of times that terms get more nodes.
_GROWTHS = 2


@dataclass(frozen=True)
class Learned:
    """Hyperparameters found, and the mode at them.

    Attributes
    ----------
    kernels : list of kernels, one per term
    likelihood : Likelihood
    level : float
        The constant.
    mode : NodeMode or None
        None where nothing was learned at nodes, or its functions are not needed any more.
    trace : list of float
        The evidence of all rows, with the log density of the kernels' priors, whenever it was the
        best so far.
    evaluations : int
        Modes found, on all levels of rows.
    passes : int
        Passes over the rows of the last level.
    converged : bool
    n_nodes : list of int
        Nodes of each term.
    open_variance : list of float
        Prior variance of each term that its nodes do not represent, averaged over the weights W,
        times their mean. Half the number of rows times their sum is how much of the evidence's
        determinant the nodes may lack (the trace term of Titsias' bound).
    resolved : bool
        Whether that is small enough for the result to be used.
    at_points : bool
        Whether the hyperparameters were learned again on every point (``laplace.working``), and
        kernels, likelihood, level and trace are of that search.
    """

    kernels: list[Kernel]
    likelihood: Likelihood
    level: float
    mode: NodeMode | None
    trace: list[float]
    evaluations: int
    passes: int
    converged: bool
    n_nodes: list[int]
    open_variance: list[float]
    resolved: bool
    at_points: bool = False

    def functions(self, cells: tuple[Cells, ...]) -> Floats:
        """Return the functions of all terms at other cells of theirs, one after the other."""
        assert self.mode is not None
        basis = self.mode.model.basis
        functions = []
        for term_cells, nodes, part in zip(cells, basis.cells, basis.parts, strict=False):
            functions.append(nodes.interpolated(self.mode.values[part], term_cells))
        return np.concatenate(functions) if functions else np.zeros(0)


# ---------------------------------------------------------------- the search


def learn(
    binned: BinnedRows,
    likelihood: Likelihood,
    searches: list[Search],
    level: float,
    *,
    constant: float,
    alone: bool,
    tol: float,
    max_iter: int,
    random: np.random.Generator,
    unit: float = 1.0,
    watch: Callable[[float], None] = lambda value: None,
) -> Learned:
    """Maximise Laplace's evidence over kernels, likelihood and a constant.

    Parameters
    ----------
    binned : BinnedRows
    likelihood : Likelihood
        Its free parameters are initial values.
    searches : list of Search, one per term
    level : float
        A constant on the link scale.
    constant : float
        If positive, another constant is to be found in addition; see ``NodeModel``.
    alone : bool
        Use the determinant of terms as if they were independent (the paper's eq. ``mdl``).
    tol : float
        It ends when the surrogate promises a gain of fewer nats.
    max_iter : int
        Largest number of modes at each level of rows.
    random : Generator
        Chooses the rows of the first level.
    unit : float
        Variance that the terms are to explain.
    watch : callable
        Called with the evidence at every mode.
    """
    n_rows = binned.rows.n_rows
    levels = [binned]
    if n_rows > 2 * FIRST_ROWS:
        chosen = np.sort(random.choice(n_rows, FIRST_ROWS, replace=False))
        levels.insert(0, binned.some(chosen))
    search = _Search(searches, alone, tol, max_iter, unit, watch)
    state = None
    for rows in levels:
        state = search.level(rows, likelihood, level, constant, state)
        likelihood = state.mode.model.likelihood
    assert state is not None
    mode = state.mode
    open_variance = _open_per_row(state, binned)[: len(searches)]
    return Learned(
        kernels=state.kernels,
        likelihood=likelihood,
        level=mode.model.at(mode.values)[1],
        mode=mode,
        trace=search.trace,
        evaluations=search.evaluations,
        passes=search.passes,
        converged=search.converged,
        n_nodes=[len(nodes) for nodes in mode.model.basis.cells[: len(searches)]],
        open_variance=open_variance,
        resolved=sum(open_variance) <= 4 * RESOLUTION,
    )


class _Search:
    """The search of one fit, over levels of rows."""

    def __init__(
        self,
        searches: list[Search],
        alone: bool,
        tol: float,
        max_iter: int,
        unit: float,
        watch: Callable[[float], None],
    ) -> None:
        self.searches, self.alone, self.tol, self.max_iter = searches, alone, tol, max_iter
        self.unit, self.watch = unit, watch
        self.evaluations = self.passes = 0
        self.trace: list[float] = []
        self.converged = False

    def level(
        self,
        binned: BinnedRows,
        likelihood: Likelihood,
        level: float,
        constant: float,
        before: State | None,
    ) -> State:
        """Search on some rows, starting at the result of fewer rows."""
        self.trace, self.passes = [], 0
        kernels = [search.middle for search in self.searches]
        model = NodeModel(
            binned.rows, binned.spreads, Basis([], [], []), likelihood, level, constant
        )
        if before is None:
            counts = _first_nodes(kernels, binned)
            model = _with_nodes(model, counts)
            values = np.zeros(model.basis.size)
        else:
            model = replace(before.mode.model, rows=binned.rows, likelihood=likelihood)
            kernels, values = before.kernels, before.mode.values
        scans = _SCANS if before is None else 0
        for growths in range(_GROWTHS + 1):
            state = self._ascend(model, kernels, values, scans)
            scans = 0
            model = state.mode.model
            counts = [len(nodes) for nodes in model.basis.cells]
            excess = _open_per_row(state, binned)
            terms = len(self.searches)
            more = more_nodes(state.tables, counts[:terms], state.kernels, excess[:terms])
            model = _with_nodes(model, more)
            # A bin of many rows may be chosen as several nodes, so that asking for more nodes may
            # not give more.
            if growths == _GROWTHS or model.basis.size <= state.mode.model.basis.size:
                break
            kernels = state.kernels
            values = _at_nodes(state.mode, model.basis)
            self.trace = []  # values with other nodes are not comparable
        return state

    def _mode(self, model: NodeModel, kernels: list[Kernel], values: Floats, tol: float) -> State:
        mode = node_mode(model, kernels, values, tol=tol, max_iter=100)
        self.evaluations += 1
        self.passes += mode.passes
        value = mode.evidence(alone=self.alone) + sum(kernel.log_prior for kernel in kernels)
        self.watch(value)
        flat = model.at(mode.values)[0]
        return State(kernels, mode, value, model.tables(mode.linearised, flat))

    def _ascend(self, model: NodeModel, kernels: list[Kernel], values: Floats, scans: int) -> State:
        tol = self.tol * _NEWTON_SHARE
        state = self._mode(model, kernels, values, max(tol, 1.0))
        radius = _RADIUS
        self.trace.append(state.value)
        self.converged = False
        for _ in range(self.max_iter):
            promised = self._promise(state, radius)
            kernels, likelihood = promised.kernels, promised.likelihood
            if promised.gain <= self.tol:
                if state.mode.gain > tol:
                    state = self._refined(state, tol)
                    continue
                if scans and (others := scanned(state, self.searches)) != state.kernels:
                    scans -= 1
                    tried = self._mode(state.mode.model, others, state.mode.values, tol)
                    better = self._promise(tried, _RADIUS).kernels
                    tried = self._mode(tried.mode.model, better, tried.predicted(better), tol)
                    if tried.value > state.value + SCAN_GAIN:
                        state = tried
                        self.trace.append(state.value)
                        continue
                self.converged = True
                break
            moved = replace(state.mode.model, likelihood=likelihood)
            try:
                tried = self._mode(moved, kernels, state.predicted(kernels), tol)
            except LinAlgError:
                tried = replace(state, value=-math.inf)
            if tried.value <= state.value and state.mode.gain > tol:
                state = self._refined(state, tol)
                continue
            ratio = (tried.value - state.value) / promised.gain
            if ratio > _GOOD:
                radius = min(2 * radius, _MOST)
            if ratio < _POOR:
                radius = 0.25 * min(radius, largest_move(state, kernels, likelihood))
            if tried.value > state.value:
                state = tried
                self.trace.append(state.value)
            elif radius < _LEAST:
                self.converged = promised.gain <= 10 * self.tol
                break
        return state

    def _promise(self, state: State, radius: float) -> Promise:
        return best_of_surrogate(
            state, self.searches, radius, alone=self.alone, tol=self.tol, unit=self.unit
        )

    def _refined(self, state: State, tol: float) -> State:
        """Find the first mode again, which was rough, to the tolerance of all others."""
        state = self._mode(state.mode.model, state.kernels, state.mode.values, tol)
        self.trace[-1] = state.value
        return state


def _with_nodes(model: NodeModel, counts: list[int]) -> NodeModel:
    """Choose nodes among the bins, by the rows there."""
    table = model.rows.table
    cells, weights = list(table.cells), counts_of(model.rows)
    if model.constant:
        cells.append(CONSTANT)
        weights.append(np.ones(1))
        counts = [*counts[: table.n_terms], 1]
    nothing = [np.zeros(len(term_cells)) for term_cells in cells]
    tables = TwoWayTables(cells, weights, nothing, {}, nothing)
    return replace(model, basis=Basis.of(tables, counts, eliminated_of(tables)))


def _first_nodes(kernels: list[Kernel], binned: BinnedRows) -> list[int]:
    """Nodes that the terms begin with; cells that are no points of a line are all nodes."""
    return spread_nodes(kernels, binned.rows.table.cells, NODES)


def _at_nodes(mode: NodeMode, basis: Basis) -> Floats:
    """Interpolate the functions of a mode at other nodes."""
    values, before = np.empty(basis.size), mode.model.basis
    for old, part, new, where in zip(
        before.cells, before.parts, basis.cells, basis.parts, strict=True
    ):
        values[where] = old.interpolated(mode.values[part], new)
    return values


def _open_per_row(state: State, binned: BinnedRows) -> list[float]:
    """Prior variance that each term's nodes do not represent, times the mean weight W of a row."""
    mode, tables = state.mode, state.tables
    variances = open_variances(tables, mode.model.basis, mode.posterior.kernels, 1.0)
    return [
        value * float(weight.sum()) / binned.rows.total_weight
        for value, weight in zip(variances, tables.weights, strict=True)
    ]
