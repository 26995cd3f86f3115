"""Learning from fields with gaps or noise by cell, and the number of scales of a field.

By Vecchia's likelihood of a sample of the cells, or by dense algebra of a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from dsgp.grid.covariance import SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.fit import (
    DENSE,
    Hyperparameters,
    degrees,
    maximise,
    noise_alone,
    raised_from,
    step_of,
)
from dsgp.grid.fit_effects import effects_of_sample, sample_of_effects, with_effects
from dsgp.grid.missing import Bools, CellSystem
from dsgp.grid.points import amplitude
from dsgp.grid.vecchia import VecchiaEvidence
from dsgp.kernels import Stationary
from dsgp.terms import Floats

# A learner stops when an iteration gains less than this, in nats of the sample.
_GAIN = 0.3
# Cells and neighbours in the stages by which fields with gaps are learned.
_FIRST, _SECOND = (2000, 15), (10000, 30)
_MAX_ITER = 40
# Among these cells, this many are the first in the order of elimination: they alone are informative
# about long distances.
_KEPT = 1000
# Nats per parameter by which one scale more must be likelier, in the first stage and by the exact
# likelihood. Without a further scale, twice the gain has a χ² distribution: 2 % gain as much by
# chance. In the second stage it is half the log of the number of cells (Schwarz).
_WORTH = 1.5
# Nats by which another initial value must be likelier than the usual one.
_PREFERRED = 3.0
# Initial values of a further scale: lengthscales as a share of the shortest, variance as a share of
# the noise.
_SHORTER, _OF_NOISE = 0.2, 0.5

Evidence = Callable[[Hyperparameters], VecchiaEvidence]
# The end of a search, the log likelihood there, and what was searched.
Ascent = tuple[Hyperparameters, float, Evidence]


@dataclass(frozen=True, eq=False)
class Piece:
    """A field with gaps, or a part of one, to learn from.

    Attributes
    ----------
    points : sequence of D ndarrays
    y : ndarray of shape (G_1, …, G_D)
        Residuals; missing cells are not read.
    observed : ndarray of bool, of that shape
    noise_shape : float or ndarray that broadcasts to it
        Noise variances up to the factor ``noise`` of the hyperparameters.
    """

    points: Sequence[Floats]
    y: Floats
    observed: Bools
    noise_shape: float | Floats = 1.0


def learn_cells(
    starts: Sequence[Hyperparameters],
    pieces: Sequence[Piece],
    points: Sequence[Floats],
    *,
    n_neighbours: int,
    seed: int,
    unknown_constant: bool = False,
    all_scales: bool = False,
    effects: Sequence[Sequence[Stationary]] = (),
) -> Hyperparameters:
    """Learn from a field with gaps, or with noise that differs between cells.

    Up to ``DENSE`` observed cells: by the exact likelihood. More: by Vecchia's, of a weighted
    sample of cells given their neighbours, in two stages; the neighbours are those of largest
    covariance under the hyperparameters that a search starts from. Several pieces count as
    independent.

    Parameters
    ----------
    starts : sequence of Hyperparameters
        Each has more terms than the one before. The first is taken unless the next is likelier by
        some nats for each parameter more, and so on: see ``_WORTH``.
    pieces : sequence of Piece
    points : sequence of D ndarrays
        The axes of the whole field.
    n_neighbours : int
    seed : int
    unknown_constant : bool
        As for ``learn_complete``.
    all_scales : bool
        Take the last, whatever it gains; those before are where its search starts from.
    effects : sequence of terms
        Of a mean, which go in front of the others: see ``fit_effects``.
    """
    counts = [int(np.count_nonzero(piece.observed)) for piece in pieces]
    n = sum(counts)
    squares = float(sum(np.sum(piece.y[piece.observed] ** 2) for piece in pieces))
    variance = squares / degrees(n, unknown_constant)
    if n <= DENSE:
        exact = _dense_evidence(pieces, unknown_constant)
        search = _Search(lambda _: exact, points, variance, n, None)
        chosen = search.choose(starts, all_scales)
        if effects:
            start = _of_size(starts, chosen[0])
            hyperparameters, value = with_effects(
                exact, chosen[0], start, effects, points, variance, n
            )
            chosen = hyperparameters, value, exact
        hyperparameters, value, _ = search.raised(*chosen)
        return noise_alone(exact, hyperparameters, value, variance)
    samples = [
        _Sample(pieces, counts, n_rows, min(neighbours, n_neighbours), seed)
        for n_rows, neighbours in (_FIRST, _SECOND)
    ]
    first, second = (
        _Search(sample.evidence_from, points, variance, min(n, size[0]), k)
        for k, (sample, size) in enumerate(zip(samples, (_FIRST, _SECOND), strict=True))
    )
    begun = first.sums(starts, all_scales)
    best: Ascent | None = None
    for begin in begun[-1:] if all_scales else begun:
        reached = second.once(begin)
        if best is not None and not second.worth(reached, best):
            break
        best = reached
    assert best is not None
    if effects:
        few = replace(pieces[0], observed=sample_of_effects(pieces[0].observed, effects, seed))
        series = _dense_evidence([few], unknown_constant)
        start = _of_size(starts, best[0])
        begins = effects_of_sample(series, best[0], start, effects, points, variance)
        best = second.best([second.settled(begin) for begin in begins])
    hyperparameters, value, evidence = second.raised(*best)
    return replace(noise_alone(evidence, hyperparameters, value, variance), held=())


@dataclass(frozen=True, eq=False)
class _Search:
    """Searches that maximise one kind of likelihood.

    Attributes
    ----------
    evidence_from : callable
        Returns the likelihood for a search that starts from some hyperparameters.
    stage : int or None
        Of two; None: there is one.
    """

    evidence_from: Callable[[Hyperparameters], Evidence]
    points: Sequence[Floats]
    variance: float
    n: int
    stage: int | None

    def once(self, start: Hyperparameters, evidence: Evidence | None = None) -> Ascent:
        """Search from one initial value, by the likelihood for it or by another."""
        evidence = self.evidence_from(start) if evidence is None else evidence
        sampled = {} if self.stage is None else {"gain": _GAIN, "max_iter": _MAX_ITER}
        hyperparameters, value = maximise(
            evidence,
            start,
            self.points,
            self.variance,
            self.n,
            what="learning" if self.stage is None else f"learning, stage {self.stage + 1} of 2",
            **sampled,  # type: ignore[arg-type]
        )
        return hyperparameters, value, evidence

    def settled(self, start: Hyperparameters) -> Ascent:
        """Search, and again with the neighbours chosen at the result."""
        hyperparameters, value, evidence = self.once(start)
        return (
            (hyperparameters, value, evidence) if self.stage is None else self.once(hyperparameters)
        )

    def raised(self, hyperparameters: Hyperparameters, value: float, evidence: Evidence) -> Ascent:
        """Try again from longer lengthscales where some are below the step of their axis."""
        start = raised_from(hyperparameters, self.points)
        reached = hyperparameters, value, evidence
        if start is None:
            return reached
        other = self.settled(start)
        return other if self.gain(other, reached) > 0 else reached

    def gain(self, one: Ascent, other: Ascent) -> float:
        """Log likelihood of one optimum minus that of another, of the same cells.

        Vecchia's likelihoods are not comparable if each cell is given other neighbours: both
        optima are judged with the neighbours of either, and the differences are averaged.
        """
        if one[2] is other[2]:
            return one[1] - other[1]
        return 0.5 * (one[1] - one[2](other[0]).value + other[2](one[0]).value - other[1])

    def worth(self, more: Ascent, fewer: Ascent) -> bool:
        """Whether further scales are worth their parameters."""
        n_more = int(more[0].mask().sum() - fewer[0].mask().sum())
        least = 0.5 * np.log(self.n) if self.stage == 1 else _WORTH
        return bool(self.gain(more, fewer) > least * n_more)

    def best(self, ascents: Iterable[Ascent]) -> Ascent:
        """Return the likeliest of some optima, the first of equals."""
        return reduce(lambda best, one: one if self.gain(one, best) > 0 else best, ascents)

    def choose(self, starts: Sequence[Hyperparameters], all_scales: bool) -> Ascent:
        """Return the optimum with as many scales as are worth their parameters."""
        best: Ascent | None = None
        for start in starts:
            reached = self.likelier(start, best)
            if best is not None and not all_scales and not self.worth(reached, best):
                break
            best = reached
        assert best is not None
        return best

    def sums(self, starts: Sequence[Hyperparameters], all_scales: bool) -> list[Hyperparameters]:
        """Return initial values of the second stage: one scale, or several.

        This stage decides whether a field has one scale or several; the second one how many.
        """
        reached = [self.likelier(starts[0], None)]
        for start in starts[1:]:
            reached.append(self.likelier(start, reached[-1]))
            if len(reached) == 2 and not all_scales and not self.worth(reached[1], reached[0]):
                return [reached[0][0]]
        return [one[0] for one in (reached[1:] or reached)]

    def likelier(self, start: Hyperparameters, fewer: Ascent | None) -> Ascent:
        """Search from an initial value, and from the optimum of one scale less plus a short one.

        The former is preferred, as it is spread over all scales.
        """
        reached = self.settled(start)
        if fewer is not None:
            other = self.settled(_with_shorter(fewer[0], start, self.points))
            if self.gain(other, reached) > _PREFERRED:
                return other
        return reached


def _of_size(
    starts: Sequence[Hyperparameters], hyperparameters: Hyperparameters
) -> Hyperparameters:
    return next(one for one in starts if len(one.terms) == len(hyperparameters.terms))


def _with_shorter(
    optimum: Hyperparameters, start: Hyperparameters, points: Sequence[Floats]
) -> Hyperparameters:
    """Return initial values with one scale more: the optimum of the others, and a short one."""
    last = start.terms[-1]
    shortest = min(optimum.terms, key=lambda term: sum(np.log(k.lengthscale or 1.0) for k in term))
    term = tuple(
        kernel
        if "lengthscale" in kernel.fixed
        else kernel.with_parameters(
            lengthscale=max(_SHORTER * float(short.lengthscale or 1.0), step_of(axis_points))
        )
        for kernel, short, axis_points in zip(last, shortest, points, strict=True)
    )
    if "variance" not in term[0].fixed:
        height = min(_OF_NOISE * optimum.noise, 0.5 * amplitude(shortest))
        term = (term[0].with_parameters(variance=height), *term[1:])
    return replace(optimum, terms=(*optimum.terms, term))


def _dense_evidence(pieces: Sequence[Piece], unknown_constant: bool) -> Evidence:
    def evidence(hyperparameters: Hyperparameters) -> VecchiaEvidence:
        return _added(
            [
                DenseSystem(
                    SeparableSum(tuple(piece.points), hyperparameters.terms),
                    piece.observed,
                    hyperparameters.noise * piece.noise_shape,
                ).evidence(piece.y, unknown_constant)
                for piece in pieces
            ]
        )

    return evidence


@dataclass(frozen=True, eq=False)
class _Sample:
    """Some cells of every piece, conditioned on their neighbours."""

    pieces: Sequence[Piece]
    counts: Sequence[int]
    n_rows: int
    n_neighbours: int
    seed: int

    def evidence_from(self, start: Hyperparameters) -> Evidence:
        """Return the likelihood, with the neighbours of largest covariance under ``start``."""
        n = sum(self.counts)
        # A sum over the sample itself: its gain, not that of all cells, decides when to stop.
        scale = min(self.n_rows / n, 1.0)
        sampled = []
        for piece, count in zip(self.pieces, self.counts, strict=True):
            rows, weight = sample_rows(count, max(self.n_rows * count // n, 1), self.seed)
            base = CellSystem(
                SeparableSum(tuple(piece.points), start.terms),
                piece.observed,
                piece.noise_shape,
                n_neighbours=self.n_neighbours,
                seed=self.seed,
                rows=rows,
            )
            sampled.append((piece, base, rows, weight * scale))

        def evidence(hyperparameters: Hyperparameters) -> VecchiaEvidence:
            return _added(
                [
                    base.with_prior(
                        SeparableSum(tuple(piece.points), hyperparameters.terms),
                        hyperparameters.noise,
                    ).evidence(piece.y, rows, weight)
                    for piece, base, rows, weight in sampled
                ]
            )

        return evidence


def _added(parts: Sequence[VecchiaEvidence]) -> VecchiaEvidence:
    return VecchiaEvidence(
        float(sum(part.value for part in parts)),
        np.sum([part.by_log_lengthscale for part in parts], axis=0),
        np.sum([part.by_log_variance for part in parts], axis=0),
        float(sum(part.by_log_noise for part in parts)),
    )


def sample_rows(n: int, n_rows: int, seed: int) -> tuple[np.ndarray, Floats]:
    """Take the first cells in the order of elimination and a sample of the others, with weights."""
    if n <= n_rows:
        return np.arange(n), np.ones(n)
    kept = min(_KEPT, n_rows // 2, n)
    random = np.random.default_rng([seed, n_rows])
    others = kept + np.sort(random.choice(n - kept, n_rows - kept, replace=False))
    weight = np.full(n_rows, (n - kept) / (n_rows - kept))
    weight[:kept] = 1.0
    return np.concatenate([np.arange(kept), others]), weight
