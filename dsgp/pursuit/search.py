"""The search for projections: add the best, refit all, stop by the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.linalg import LinAlgError

from dsgp.kernels import Matern
from dsgp.pursuit.hyperparameters import with_hyperparameters, with_parameters
from dsgp.pursuit.joint import Frame, State, improved, opened, renewed, rescaled, with_values
from dsgp.pursuit.moments import ranges
from dsgp.pursuit.response import Response
from dsgp.pursuit.ridges import FEWEST_NODES, Ridge, Ridges, nodes_for
from dsgp.pursuit.rows import MATRICES, Block, RowSet
from dsgp.pursuit.starts import best_start, random_directions
from dsgp.terms import Floats

# Limits of "auto": the number of projections, and the number of parameters of all of them. The cost
# grows with the squares of both.
AUTO_LIMIT, AUTO_PARAMETERS = 64, 2048
# A round adds this share of the number of projections, and is repeated with fewer if the evidence
# does not gain this many nats per projection. After the given number of failed rounds in a row the
# search ends. Later levels have many rows, and rarely need what the first level did not find: there
# one failed round is enough.
_SHARE, _GAIN, _PATIENCE = 0.5, 3.0, 2
# Number of attempts at the first terms: three with a single level, one if levels of more rows
# follow, because of the time they take; and the number of these terms.
_BEGINNINGS, _FIRST_TERMS = (3, 1), 5
# From this number of projections on, a round also tries as many from new random directions, until
# that has failed this many times.
_FRESH_FROM, _FRESH_LOSSES = 8, 2
_FRESH_LENGTHSCALE, _FRESH_VARIANCE, _FRESH_NOISE = 2.0, 0.3, 0.5
# Rounds of fewer projections are refitted twice before they are judged.
_LARGE = 32
# With a likelihood, steps are many, and most of what later levels try is dropped again. Limits of
# the projections added there, as a share of those present: in a round, and in all rounds together.
_LATER_SHARE, _LATER_GROWTH = 0.25, 0.5
# In a refit: evaluations of the kernels' evidence, and Gauss–Newton steps before and after them.
_SEARCH_ITERATIONS, _STEPS = 8, 6
# Further steps after the last refit if it has not converged: with a single level, and with several.
_LAST_STEPS = (20, 1)
# Gain in nats per parameter, and in all, below which the steps end: a fraction of the posterior
# uncertainty.
_GAIN_OF_STEP, _LEAST_GAIN = 0.02, 0.5
_POLISHES, _POLISH_GAIN = 2, 2.0


@dataclass(frozen=True)
class Level:
    """Rows of one level of the search.

    Attributes
    ----------
    rows : RowSet
        All rows of the level, by which terms are judged.
    search : Block
        Some of them, in memory, from which directions begin and nodes are placed.
    """

    rows: RowSet
    search: Block


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    state : State
    trace : list of (int, float)
        Terms and log evidence after each round of the last level.
    failed : bool
        Whether a round ended because float64 could not solve its equations.
    limited : bool
        Whether the search ended at the limit of "auto", not by the evidence.
    """

    state: State
    trace: list[tuple[int, float]]
    failed: bool
    limited: bool


@dataclass(frozen=True)
class Options:
    """Options of a search.

    Attributes
    ----------
    kernel : kernel
        Its type is that of all functions.
    n_projections : int or None
        None: as many as increase the evidence.
    n_starts : int
        Directions fitted for each new term.
    noise_variance : float
        Of a row of weight 1: fixed with ``fixed_noise``, otherwise an initial value.
    fixed_noise : bool
    response : Response, optional
        The likelihood; then the noise variance is 1 and fixed.
    """

    kernel: Matern
    n_projections: int | None = None
    n_starts: int = 10
    noise_variance: float = 0.5
    fixed_noise: bool = False
    response: Response | None = None


Watch = Callable[[int, float], None]


def pursue(
    levels: Sequence[Level],
    frame: Frame,
    options: Options,
    random: np.random.Generator,
    watch: Watch = lambda terms, evidence: None,
    start: State | None = None,
) -> Found:
    """Find ridge functions for the rows of the last level.

    Parameters
    ----------
    levels : sequence of Level
        Each has the rows of the one before and more, so that few steps are left where they are
        expensive.
    frame : Frame
    options : Options
    random : Generator
    watch : callable
        Called with the number of terms and the evidence after each refit.
    start : State, optional
        State for nearly the same rows, with whose projections the search begins.
    """
    log = Log(watch)
    state = State.of(
        levels[0].rows,
        Ridges((), levels[0].search.inputs.shape[1]),
        frame,
        np.full(frame.size, float(frame.size)),
        options.noise_variance,
        options.fixed_noise,
        options.response,
    ).weighed()
    for number, level in enumerate(levels):
        if number:
            state = entered(level, state, log)
            log.trace = [(len(state.ridges), state.evidence)]
        elif start is not None and len(start.ridges):
            state = _continued(level, replace(state, precision=start.precision), start, log)
        else:
            state = _begun(level, state, options, _BEGINNINGS[len(levels) > 1], random, log)
        log.limited = False
        limit = projections_at_most(state.ridges.n_features, options.n_projections)
        grown = _grown(
            level, state, options, limit, 1 if number else _PATIENCE, random, log, number > 0
        )
        if grown is not state or not number:
            state = polished(level, grown, log)
            if options.n_projections is None:
                state = pruned(level, state)
            log.add(state)
    if state.gain > step_tolerance(state):
        steps = _LAST_STEPS[len(levels) > 1]
        state = improved(levels[-1].rows, state, steps, step_tolerance(state))
        state = rescaled(state).weighed()
    return Found(state, log.trace, log.failed, log.limited)


def _begun(
    level: Level,
    state: State,
    options: Options,
    times: int,
    random: np.random.Generator,
    log: Log,
) -> State:
    """Find the first terms several times, and return those with the highest evidence.

    Later terms are found in addition to these, and seldom make up for bad first ones.
    """
    limit = projections_at_most(state.ridges.n_features, options.n_projections)
    tries = []
    for _ in range(times):
        log.trace = [(len(state.ridges), state.evidence)]
        begun = _grown(level, state, options, min(limit, _FIRST_TERMS), 1, random, log)
        tries.append((begun, log.trace))
    best, log.trace = max(tries, key=lambda tried: tried[0].evidence)
    return best


def _continued(level: Level, state: State, start: State, log: Log) -> State:
    """Refit projections that were found with nearly the same rows."""
    begun = State.of(
        level.rows,
        start.ridges,
        state.frame,
        start.precision,
        state.noise_variance if state.fixed_noise else start.noise_variance,
        state.fixed_noise,
        state.response,
    )
    begun = with_values(level.rows, begun)
    refit = _refitted_often(level, begun, 1)
    log.failed |= refit is None
    log.trace = [(len(state.ridges), state.evidence)]
    return begun.weighed() if refit is None else refit


@dataclass
class Log:
    """The course of a search."""

    watch: Watch
    trace: list[tuple[int, float]] = field(default_factory=list)
    failed: bool = False
    limited: bool = False

    def add(self, state: State) -> None:
        """Record a state."""
        self.trace.append((len(state.ridges), state.evidence))
        self.watch(*self.trace[-1])


def entered(level: Level, state: State, log: Log) -> State:
    """Transfer a state to the rows of the next level, in as few passes as possible."""
    low, high = ranges(level.rows, state.ridges)
    begun = replace(state, moments=replace(state.moments, low=low, high=high))
    try:
        return refitted(level, begun, renew_first=True)
    except LinAlgError:  # the directions of the level before are kept
        log.failed = True
        return with_values(level.rows, state.at(level.rows, state.ridges))


def _grown(
    level: Level,
    state: State,
    options: Options,
    limit: int,
    patience: int,
    random: np.random.Generator,
    log: Log,
    later: bool = False,
) -> State:
    """Add terms, up to a limit, while they increase the evidence."""
    share, failures, fresh_left = _SHARE, 0, _FRESH_LOSSES
    light = later and options.response is not None and len(state.ridges) > 0
    most = limit
    if light:
        share, fresh_left = _LATER_SHARE, 0
        most = min(limit, len(state.ridges) + math.ceil(_LATER_GROWTH * len(state.ridges)))
    while (room := most - len(state.ridges)) > 0 and failures < patience:
        if options.n_projections is None and state.ridges.n_parameters >= AUTO_PARAMETERS:
            break
        n_terms = min(max(1, math.ceil(share * len(state.ridges))), room)
        more = _with_best(level, state, options, n_terms, random)
        if len(more.ridges) == len(state.ridges):
            return state  # nothing is left to explain
        tries = [more]
        if fresh_left and not failures and len(more.ridges) >= _FRESH_FROM:
            tries.append(_fresh(level, state, options, len(more.ridges), random))
        rounds = 2 if len(more.ridges) < _LARGE and not light else 1
        done = [_refitted_often(level, tried, rounds) for tried in tries]
        best = max(done, key=lambda tried: -math.inf if tried is None else tried.evidence)
        log.failed |= None in done
        if best is None:
            return state
        if len(done) > 1 and best is done[0]:
            fresh_left -= 1
        log.add(best)
        added = len(best.ridges) - len(state.ridges)
        if options.n_projections is None:
            better = best.evidence > state.evidence + _GAIN * max(added, 1)
        else:
            better = added > 0
        if better:
            state, failures = best, 0
        else:
            share, failures = 0.5 * share, failures + 1
    log.limited = options.n_projections is None and failures < patience
    return state


def projections_at_most(n_features: int, n_projections: int | None) -> int:
    """Return the largest number of projections of a search."""
    if n_projections is not None:
        return n_projections
    return max(1, min(AUTO_LIMIT, AUTO_PARAMETERS // (FEWEST_NODES + n_features)))


def _refitted_often(level: Level, state: State, rounds: int) -> State | None:
    """Refit; None if float64 cannot solve the equations."""
    try:
        for _ in range(rounds):
            state = refitted(level, state)
        return state if math.isfinite(state.evidence) else None
    except LinAlgError:
        return None


def _fresh(
    level: Level, state: State, options: Options, n_terms: int, random: np.random.Generator
) -> State:
    """Start with as many ridge functions of random directions, to be fitted together.

    Terms found one after the other may end where no single one can be improved, though others would
    be better together: products of inputs need several.
    """
    block, frame = level.search, state.frame
    precision = np.full(frame.size, 1.0)
    scale = 1.0 if state.response is None else state.response.left(block)
    new = []
    for direction in random_directions(block, frame, precision, n_terms, random):
        std = math.sqrt(frame.variance(direction))
        if not std > 0:
            continue
        projection = block.inputs @ direction / std
        nodes = nodes_for(
            projection, float(projection.min()), float(projection.max()), _FRESH_LENGTHSCALE
        )
        prior = options.kernel.with_parameters(
            lengthscale=_FRESH_LENGTHSCALE, variance=_FRESH_VARIANCE * scale
        )
        new.append(Ridge(direction / std, nodes, np.zeros(len(nodes)), prior))
    begun = State.of(
        level.rows,
        Ridges(tuple(new), block.inputs.shape[1]),
        frame,
        precision,
        state.noise_variance if state.fixed_noise else _FRESH_NOISE,
        state.fixed_noise,
        state.response,
    )
    return with_values(level.rows, begun)


def _with_best(
    level: Level, state: State, options: Options, n_terms: int, random: np.random.Generator
) -> State:
    """Add ridge functions, each fitted to the residual of the ones before."""
    ridges, precision, response = state.ridges, state.precision, state.response
    block = _without(level.search, ridges, response)
    for _ in range(n_terms):
        new = best_start(
            block, state.frame, precision, options.kernel, options.n_starts, random, response
        )
        if not len(new):
            break
        block = _without(block, new, response)
        ridges = ridges.joined(new)
        if state.frame.relevance:
            precision = opened(precision, new.directions[0])
    return replace(state.at(level.rows, ridges), precision=precision)


def _without(block: Block, ridges: Ridges, response: Response | None) -> Block:
    """Subtract functions from the target, or add them to the offset of a likelihood."""
    f = ridges.evaluate(block.inputs)[0].sum(axis=1)
    if response is None:
        return replace(block, target=block.target - f)
    return replace(block, offset=block.offset + f)


def step_tolerance(state: State) -> float:
    """Gain of a step, in nats, below which the directions and functions have converged."""
    return max(_LEAST_GAIN, _GAIN_OF_STEP * state.ridges.n_parameters)


def refitted(level: Level, state: State, renew_first: bool = False) -> State:
    """Take Gauss–Newton steps on all terms, update noise and relevance, learn all parameters."""
    tol = step_tolerance(state)
    if not renew_first:
        state = improved(level.rows, state, _STEPS, tol).weighed()
    state = renewed(level.rows, state, level.search.inputs)
    state = with_hyperparameters(level.rows, state, _SEARCH_ITERATIONS)
    state = rescaled(improved(level.rows, state, _STEPS, tol)).weighed()
    return with_parameters(level.rows, state, level.search)


def polished(level: Level, state: State, log: Log) -> State:
    """Refit until the evidence no longer increases."""
    for _ in range(_POLISHES if len(state.ridges) else 0):
        better = _refitted_often(level, state, 1)
        gain = -math.inf if better is None else better.evidence - state.evidence
        log.failed |= better is None
        if better is not None and gain > 0:
            state = better
        if gain < _POLISH_GAIN:
            break
    return state


def pruned(level: Level, state: State) -> State:
    """Drop terms, those that explain least first, while the evidence does not fall."""
    while len(state.ridges):
        matrix = state.moments.matrix
        explained = [
            float(term.values @ matrix[part, part] @ term.values)
            for term, part in zip(state.ridges.terms, state.ridges.parts, strict=True)
        ]
        kept = np.arange(len(explained)) != int(np.argmin(explained))
        fewer = with_values(level.rows, state.at(level.rows, state.ridges.kept(kept)))
        smaller = _refitted_often(level, fewer, 1)
        if smaller is None or smaller.evidence < state.evidence:
            break
        state = smaller
    return state


def from_directions(
    level: Level,
    frame: Frame,
    directions: Floats,
    kernels: Sequence[Matern],
    noise_variance: float,
    fixed_noise: bool,
) -> State:
    """Return the state of directions and kernels from another method."""
    terms = []
    for direction, kernel in zip(directions, kernels, strict=True):
        projection = level.search.inputs @ direction
        low, high = float(projection.min()), float(projection.max())
        nodes = nodes_for(projection, low, high, float(kernel.lengthscale or 1.0))
        terms.append(Ridge(direction, nodes, np.zeros(len(nodes)), kernel))
    state = State.of(
        level.rows,
        Ridges(tuple(terms), level.search.inputs.shape[1]),
        frame,
        np.full(frame.size, float(frame.size)),
        noise_variance,
        fixed_noise,
    )
    return with_values(level.rows, state)


def ordered(level: Level, state: State) -> State:
    """Sort the terms by what they explain, each with its largest weight positive."""
    ridges, matrix = state.ridges, state.moments.matrix
    explained = [
        -float(term.values @ matrix[part, part] @ term.values)
        for term, part in zip(ridges.terms, ridges.parts, strict=True)
    ]
    terms = []
    for position in np.argsort(explained, kind="stable"):
        term = ridges.terms[position]
        if term.direction[np.argmax(np.abs(term.direction))] < 0:
            term = Ridge(-term.direction, -term.nodes[::-1], term.values[::-1].copy(), term.kernel)
        terms.append(term)
    return state.at(level.rows, replace(ridges, terms=tuple(terms)))


def relevance(level: Level, state: State) -> Floats:
    """Share of each input in the mean squared gradient of f, (D,), in standard units."""
    block = level.search
    _, slope = state.ridges.evaluate(block.inputs)
    squares = np.average((slope @ state.ridges.directions) ** 2, axis=0, weights=block.weight)
    total = float(squares.sum())
    return squares / total if total > 0 else squares


def search_bytes(n_features: int, n_projections: int | None) -> float:
    """Estimate the memory that a search takes beside the rows."""
    most = projections_at_most(n_features, n_projections)
    size = most * (2 * FEWEST_NODES + n_features)
    if n_projections is None:  # the last round may exceed the limit by half
        size = min(size, AUTO_PARAMETERS + AUTO_PARAMETERS // 2)
    return MATRICES * 8.0 * size**2
