r"""The effect of each term of a fitted f, from its lowest to its highest value, and tests of zero.

A band of the half width z(x) = c s(x), s the posterior standard deviation of a centred function,
holds the whole function with the probability that \|f(x) − m(x)\| / s(x) stays below c at all x.
Zero lies in it everywhere if c ≥ max \|m(x)\| / s(x). The p-value of a term is the probability that
the posterior has beyond the narrowest such band (a contour probability: Box and Tiao 1965, Held
2004): below 0.05 where the 95 % band for the whole function leaves zero somewhere.

Deviations are drawn in the coarse spaces of multigrid, as in ``shares``. Those of finer details are
drawn independently at every point, so that each has the variance that ``components`` reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from dsgp.additive import AdditiveSystem
from dsgp.additive.multigrid import CoarseSpace
from dsgp.alike import format_alike
from dsgp.compute import one_blas_thread
from dsgp.models.additive import AdditiveModel
from dsgp.models.base import FittedModel
from dsgp.models.remainder import RemainderModel
from dsgp.models.shares import coarse_deviations, some_members
from dsgp.models.term import FittedTerm
from dsgp.terms import Floats

DRAWS = 1000
# Largest number of points of a term at which it is compared with zero: beyond, the levels with most
# rows are used, or values that are evenly spread.
_MOST_POINTS = 400
# Largest number of members of a mixture that share the draws.
_MEMBERS = 8
# Where the effect of a straight line is read, in standard deviations from the middle of its column.
_REACH = 2.0
LEVEL = 0.05
# Share of a variance below which there is no sign of details finer than the coarse spaces.
_ROUNDING = 1e-3
# Digits of the largest effect of a table at least, and the share of it that still has some.
_DIGITS, _LEAST = 3, 0.01


@dataclass(frozen=True)
class Effect:
    """The range of the effect of one term on f.

    Attributes
    ----------
    lowest, highest : float
        Of the centred function over its values in the training rows; of a straight line two
        standard deviations of its column on either side of the middle; of another function that a
        column multiplies, of its coefficient. NaN of a remainder.
    p_value : float
        See the module; NaN where there is nothing to compare.
    """

    lowest: float
    highest: float
    p_value: float

    @property
    def verdict(self) -> str:
        """Whether the data show that the term differs from zero, in a word."""
        if np.isnan(self.p_value):
            return "–"
        return "yes" if self.p_value < LEVEL else "unclear"


_UNKNOWN = Effect(np.nan, np.nan, np.nan)


def written_effects(effects: Sequence[Effect], terms: Sequence[FittedTerm]) -> list[str]:
    """Write from where to where each effect goes, all in one format; "–" where that is not known.

    Coefficients have units of their own, and a format each. Further effects than terms are those
    of a remainder.
    """
    own = [k < len(terms) and is_coefficient(terms[k]) for k in range(len(effects))]
    sizes = [max(abs(effect.lowest), abs(effect.highest)) for effect in effects]
    together = [size for size, is_own in zip(sizes, own, strict=True) if not is_own]
    shared = format_alike(together, _DIGITS, _LEAST)
    forms = [
        format_alike([size], _DIGITS) if is_own else shared
        for size, is_own in zip(sizes, own, strict=True)
    ]
    return [
        "–" if np.isnan(effect.lowest) else f"{effect.lowest:+{form}} to {effect.highest:+{form}}"
        for effect, form in zip(effects, forms, strict=True)
    ]


def effects_of(latent: FittedModel, n_draws: int = DRAWS, seed: int = 0) -> list[Effect]:
    """Return the effect of each term, in the order of ``latent.names``.

    Parameters
    ----------
    latent : FittedModel
    n_draws : int
        The smallest p-value is one over so many, and one.
    seed : int
        Of the draws: the same model has the same effects.
    """
    structure = latent.structure if isinstance(latent, RemainderModel) else latent
    terms = list(structure.terms)
    if not terms:
        return [_UNKNOWN] * len(latent.names)
    points = [_points_of(term) for term in terms]
    with one_blas_thread():
        ends = [_ends_of(term) for term in terms]
        means = [term.mean(at) - _centre_of(term) for term, at in zip(terms, points, strict=True)]
        stds = [np.sqrt(structure.posterior.centred_variance(k, at)) for k, at in enumerate(points)]
        farthest = _farthest(structure, points, means, stds, n_draws, np.random.default_rng(seed))
    effects = [
        Effect(low, high, _p_value(mean, std, drawn))
        for (low, high), mean, std, drawn in zip(ends, means, stds, farthest, strict=True)
    ]
    return effects + [_UNKNOWN] * (len(latent.names) - len(effects))


def is_coefficient(term: FittedTerm) -> bool:
    """Whether a column multiplies the function, which then is not an effect by itself."""
    return term.bound.multiplier is not None and term.bound.family != "constant"


def _centre_of(term: FittedTerm) -> float:
    """What is subtracted from the function; from a coefficient, or the slope of a line, nothing."""
    return term.centre if term.bound.multiplier is None else 0.0


def _ends_of(term: FittedTerm) -> tuple[float, float]:
    """The lowest and the highest value at the cells."""
    values = term.cells.multiply(term.kernel, term.dual) - _centre_of(term)
    if term.bound.family == "constant" and term.bound.multiplier is not None:
        reach = _REACH * abs(float(values[0]))
        return -reach, reach
    return float(values.min()), float(values.max())


def _points_of(term: FittedTerm) -> Floats:
    """Cells at which a term is compared with zero."""
    points = term.cells.points
    if len(points) <= _MOST_POINTS:
        return points
    if term.bound.level_inputs:
        return points[np.sort(np.argsort(-term.weight, kind="stable")[:_MOST_POINTS])]
    return points[np.linspace(0, len(points) - 1, _MOST_POINTS).round().astype(int)]


def _p_value(mean: Floats, std: Floats, farthest: Floats) -> float:
    known = std > 0
    if not known.any():
        return np.nan
    apart = float(np.max(np.abs(mean[known]) / std[known]))
    return float((1 + np.count_nonzero(farthest >= apart)) / (1 + len(farthest)))


def _farthest(
    model: FittedModel,
    points: list[Floats],
    means: list[Floats],
    stds: list[Floats],
    n_draws: int,
    random: np.random.Generator,
) -> list[Floats]:
    """Draws of the largest deviation of each term, in standard deviations, (n_draws,) each."""
    members = some_members(model.conditional, min(_MEMBERS, n_draws))
    counts = [len(part) for part in np.array_split(np.arange(n_draws), len(members))]
    drawn: list[list[Floats]] = [[] for _ in points]
    for member, count, stream in zip(members, counts, random.spawn(len(members)), strict=True):
        of_member = _deviations_of(member, points, means, stds, count, stream)
        for one, values in zip(drawn, of_member, strict=True):
            one.append(values)
    return [np.concatenate(values) for values in drawn]


def _deviations_of(
    model: AdditiveModel,
    points: list[Floats],
    means: list[Floats],
    stds: list[Floats],
    n_draws: int,
    random: np.random.Generator,
) -> list[Floats]:
    """Largest deviations of the draws of one model from the means of all."""
    system = AdditiveSystem(
        model.equations,
        [term.kernel for term in model.terms],
        model.row_variance,
        model.least_precision,
        constant=model.constant,
    )
    coarse = CoarseSpace(system)
    numbers = coarse_deviations(coarse, n_draws, random)
    covariance = cho_solve(coarse.factor, np.eye(len(coarse.factor[0])), check_finite=False)
    total = max(coarse.total, np.finfo(float).tiny)
    out = []
    for k, (term, space, rows, at, mean, std) in enumerate(
        zip(model.terms, coarse.spaces, coarse.rows, points, means, stds, strict=True)
    ):
        features = space.at(term.cells, term.kernel, at)
        if term.bound.multiplier is None:
            features = features - (coarse.sums[rows] / total)[:, None]
        deviation = numbers[:, rows] @ features + (term.mean(at) - _centre_of(term) - mean)
        held = np.einsum("cn,cn->n", features, covariance[rows, rows] @ features)
        fine = model.posterior.centred_variance(k, at) - held
        # Values below rounding errors, and below the accuracy of the variances, do not count as a
        # function.
        fine[fine < _ROUNDING * (held + fine)] = 0.0
        deviation += np.sqrt(fine) * random.standard_normal(deviation.shape)
        scaled = np.divide(deviation, std, out=np.zeros_like(deviation), where=std > 0)
        out.append(np.abs(scaled).max(axis=1))
    return out
