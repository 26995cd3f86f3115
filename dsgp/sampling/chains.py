"""Chains side by side, and their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from dsgp.compute import one_blas_thread, run
from dsgp.sampling.checkpoint import Checkpoint, Kept
from dsgp.sampling.collapsed import CollapsedChain, NodeEvidence
from dsgp.sampling.gibbs import GibbsChain
from dsgp.sampling.parameters import HyperModel
from dsgp.sampling.plain import PlainGibbsChain
from dsgp.sampling.state import ChainState
from dsgp.terms import Floats

# Number of parts of a run, after each of which progress is reported.
_SEGMENTS = 20
# Approximate seconds of a sweep: per point of a term, and per node cubed.
_POINT, _NODE = 1e-6, 2e-9
# Number of draws at which the resolution of the nodes is checked.
_JUDGED = 20


class Chain(Protocol):
    """A Markov chain of hyperparameters."""

    theta: Floats

    @property
    def log_likelihood(self) -> float:
        """Of the state."""

    @property
    def model(self) -> HyperModel:
        """The model whose posterior is drawn."""

    def settle(self) -> None:
        """Begin the chain."""

    def sweep(self) -> None:
        """Draw everything once."""

    def adapt(self, last: bool) -> None:
        """Learn from a sweep of the warm-up."""

    def state(self) -> ChainState:
        """Return all that the chain has and its model does not."""

    def restore(self, state: ChainState) -> None:
        """Continue from a state."""


@dataclass(frozen=True)
class HyperDraws:
    """Draws of hyperparameters.

    Attributes
    ----------
    theta : ndarray of shape (n_chains, n_draws, n_parameters)
        Logs, as for ``HyperModel``.
    log_likelihood : ndarray of shape (n_chains, n_draws)
        Given functions and noise of "gibbs" and "plain-gibbs"; the marginal one of "collapsed".
    n_warmup : int
        Sweeps of each chain before.
    n_nodes : int
        Nodes of all terms in the evidence; 0 where the likelihood needs none.
    left_open : float
        Prior variance that the nodes do not represent, as a share of the noise variance, the
        largest of some draws; 0 where the likelihood is exact.
    """

    theta: Floats
    log_likelihood: Floats
    n_warmup: int
    n_nodes: int = 0
    left_open: float = 0.0


def gibbs(
    model: HyperModel,
    *,
    n_draws: int,
    n_warmup: int,
    n_chains: int,
    seed: int,
    watch: Callable[[int], None] = lambda sweeps: None,
    plain: bool = False,
    checkpoint: Checkpoint | None = None,
) -> HyperDraws:
    """Draw hyperparameters and functions in turn, term by term; see ``sampling.gibbs``.

    Parameters
    ----------
    model : HyperModel
    n_draws : int
        Of all chains together; rounded up to as many for each.
    n_warmup : int
        Sweeps of each chain before.
    n_chains : int
        Independent chains, as tasks. Chain k draws from a generator of [seed, k]: the result does
        not depend on how many run at once, or where.
    seed : int
    watch : callable
        Called with the number of sweeps that all chains have done.
    plain : bool
        Draw the hyperparameters of a term given its function; see ``sampling.plain``.
    checkpoint : Checkpoint, optional
        Where the chains are saved during the run, and from where they resume.
    """
    kind = PlainGibbsChain if plain else GibbsChain
    makers = [partial(_made, partial(kind, model), seed, k) for k in range(n_chains)]
    equations = model.equations
    seconds = _POINT * (equations.layout.size + equations.n_rows * equations.layout.n_terms)
    return _collected(makers, n_draws, n_warmup, seconds, watch, checkpoint)


def collapsed(
    evidence: NodeEvidence,
    *,
    n_draws: int,
    n_warmup: int,
    n_chains: int,
    seed: int,
    watch: Callable[[int], None] = lambda sweeps: None,
    checkpoint: Checkpoint | None = None,
) -> HyperDraws:
    """Draw hyperparameters with all functions integrated out; see ``sampling.collapsed``.

    Parameters and result are those of ``gibbs``.
    """
    covariance = evidence.curvature()
    make = partial(CollapsedChain, evidence, covariance)
    makers = [partial(_made, make, seed, k) for k in range(n_chains)]
    seconds = _NODE * evidence.basis.kept_size**3 * 4 * evidence.model.size
    draws = _collected(makers, n_draws, n_warmup, seconds, watch, checkpoint)
    some = draws.theta.reshape(-1, draws.theta.shape[2])
    some = some[np.linspace(0, len(some) - 1, _JUDGED).round().astype(int)]
    left_open = max(evidence.left_open(theta) for theta in some)
    return replace(draws, n_nodes=evidence.basis.size, left_open=left_open)


def _made(make: Callable[[np.random.Generator], Chain], seed: int, chain: int) -> Chain:
    return make(np.random.default_rng([seed, chain]))


def _collected(
    makers: Sequence[Callable[[], Chain]],
    n_draws: int,
    n_warmup: int,
    seconds: float,
    watch: Callable[[int], None],
    checkpoint: Checkpoint | None,
) -> HyperDraws:
    """Advance all chains side by side, and put their draws together."""
    n_kept = -(-n_draws // len(makers))
    n_sweeps = n_warmup + n_kept
    chains = (checkpoint.load() if checkpoint else None) or [Kept() for _ in makers]
    done = chains[0].sweeps
    ends = np.unique(np.linspace(done, n_sweeps, _SEGMENTS + 1).round().astype(int))
    ends = ends[ends > done]
    watch(min(done, n_sweeps))
    for end in ends:
        tasks = [
            partial(_advanced, make, each, int(end), n_warmup)
            for make, each in zip(makers, chains, strict=True)
        ]
        chains = run(tasks, seconds * len(chains) * (int(end) - chains[0].sweeps))
        if checkpoint:
            checkpoint.save(chains)
        watch(int(end))
    return HyperDraws(
        np.array([each.theta[:n_kept] for each in chains]),
        np.array([each.log_likelihood[:n_kept] for each in chains]),
        n_warmup,
    )


def _advanced(make: Callable[[], Chain], kept: Kept, end: int, n_warmup: int) -> Kept:
    """Advance a chain until ``end`` sweeps are done; only its state travels back."""
    chain = make()
    theta, log_likelihood = list(kept.theta), list(kept.log_likelihood)
    # Also here, because a worker is a process of its own.
    with one_blas_thread():
        if kept.state is None:
            chain.settle()
        else:
            chain.restore(kept.state)
        for done in range(kept.sweeps + 1, end + 1):
            chain.sweep()
            if done <= n_warmup:
                chain.adapt(last=done == n_warmup)
            else:
                theta.append(chain.theta.copy())
                log_likelihood.append(chain.log_likelihood)
        return Kept(chain.state(), theta, log_likelihood, end)
