"""Learning the terms of a mean, such as a climatology, beside the field's.

What repeats after a year shows in series of many years at one place. Vecchia's likelihood is not
informative about it: each cell is conditioned on its nearest ones, which share the season.
Therefore the terms are learned by the exact likelihood of whole series at a few pairs of
neighbouring places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dsgp.grid.fit import GridEvidenceLike, Hyperparameters, maximise
from dsgp.grid.missing import Bools
from dsgp.grid.points import amplitude
from dsgp.kernels import Stationary
from dsgp.terms import Floats

# Cells of the sample, and the least number of pairs of places.
_CELLS, _PAIRS = 900, 3
# A place is used if it has at least this share of the observations of the fullest place.
_FULL = 0.5
# The field may have absorbed the season. Initial values, as shares of its variance and of its
# lengthscale along the dim.
_SHARES = ((1.0, 1.0), (0.3, 0.3))

Evidence = Callable[[Hyperparameters], GridEvidenceLike]
Terms = Sequence[Sequence[Stationary]]


def with_effects(
    evidence: Evidence,
    optimum: Hyperparameters,
    start: Hyperparameters,
    effects: Terms,
    points: Sequence[Floats],
    variance: float,
    n_cells: int,
) -> tuple[Hyperparameters, float]:
    """Maximise a likelihood from the optimum without a mean, with the terms of the mean added.

    Parameters
    ----------
    evidence : callable
        Exact.
    optimum, start : Hyperparameters
        That optimum, and the initial value of the search with as many terms.
    effects : sequence of terms
        With all parameters.
    points : sequence of D ndarrays
    variance : float
        Of the observed cells.
    n_cells : int

    Returns
    -------
    hyperparameters : Hyperparameters
        The likeliest that were found.
    value : float
        The log likelihood there.
    """
    d = dim_of(effects)
    begins = [_scaled(optimum.terms, d, height, length) for height, length in _SHARES]
    reached = []
    for terms in (*begins, start.terms):
        begin = replace(optimum, terms=(*map(tuple, effects), *terms))
        reached.append(
            maximise(evidence, begin, points, variance, n_cells, what="learning the mean")
        )
    return max(reached, key=lambda one: one[1])


def effects_of_sample(
    evidence: Evidence,
    optimum: Hyperparameters,
    start: Hyperparameters,
    effects: Terms,
    points: Sequence[Floats],
    variance: float,
) -> list[Hyperparameters]:
    """Learn the terms of a mean from ``sample_of_effects``, and hold them from then on.

    Returns initial values for a search by the whole field: with the field's terms from the sample,
    which has few distances, and with those of the optimum without a mean.
    """
    best, _ = with_effects(evidence, optimum, start, effects, points, variance, _CELLS)
    n_effects, d = len(effects), dim_of(effects)
    lengths = np.zeros((len(best.terms), len(points)), dtype=bool)
    lengths[1:n_effects, d] = True
    heights = (np.arange(len(best.terms)) < n_effects) & (np.arange(len(best.terms)) > 0)
    from_sample = replace(best, held=(*lengths.ravel().tolist(), *heights.tolist(), False))
    others = _scaled(optimum.terms, d, 1.0, 1.0)
    return [
        from_sample,
        replace(from_sample, terms=(*best.terms[:n_effects], *others), noise=optimum.noise),
    ]


def dim_of(effects: Terms) -> int:
    """Return the dim along which a mean is taken: its first term does not vary there."""
    return next(d for d, kernel in enumerate(effects[0]) if "lengthscale" in kernel.fixed)


def sample_of_effects(observed: Bools, effects: Terms, seed: int) -> Bools:
    """Choose observed cells: series at pairs of places, thinned at random where they are long.

    The first of each pair is drawn at random, the second is the nearest one in steps.
    """
    d = dim_of(effects)
    series = np.moveaxis(observed, d, -1)
    by_place = series.reshape(-1, observed.shape[d])
    counts = by_place.sum(axis=1)
    random = np.random.default_rng([seed, 3])
    full = np.flatnonzero(counts >= max(_FULL * counts.max(), 1))
    n_pairs = max(_CELLS // (2 * int(counts.max())), _PAIRS)
    chosen = set(random.choice(full, min(n_pairs, len(full)), replace=False).tolist())
    where = np.stack(np.unravel_index(full, series.shape[:-1]), axis=1) if series.ndim > 1 else None
    for place in sorted(chosen) if where is not None else ():
        index = np.array(np.unravel_index(place, series.shape[:-1]))
        apart = np.abs(where - index).sum(axis=1)
        chosen.add(int(full[np.argmin(np.where(apart == 0, np.inf, apart))]))
    kept = np.zeros_like(by_place)
    limit = max(_CELLS // len(chosen), 1)
    for place in sorted(chosen):
        kept[place, random.permutation(np.flatnonzero(by_place[place]))[:limit]] = True
    return np.moveaxis(kept.reshape(series.shape), -1, d)


def _scaled(terms: Terms, d: int, height: float, length: float) -> list[tuple[Stationary, ...]]:
    scaled = []
    for term in terms:
        kernels = list(term)
        if "lengthscale" not in kernels[d].fixed:
            kernels[d] = kernels[d].with_parameters(
                lengthscale=length * float(kernels[d].lengthscale or 1.0)
            )
        if all("variance" not in kernel.fixed for kernel in term):
            kernels[0] = kernels[0].with_parameters(variance=height * amplitude(term))
        scaled.append(tuple(kernels))
    return scaled
