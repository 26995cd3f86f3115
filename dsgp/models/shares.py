r"""Shares of the variance of a fitted f that its terms have, by draws from the posterior.

Over the training rows i, of weights w_i that add up to w,

    share of term k = Cov(f_k, f) / Var(f),    Cov(g, h) = Σ w_i g_i h_i / w − ḡ h̄,

adds up to 1 over the terms, and is a term's variance plus half of what correlated terms have in
common with it: negative where a term mostly cancels others. A draw of all functions has a share
of each term, and the mean and the quantiles of these are reported.

Draws are a posterior mean, which is exact, plus deviations in the coarse spaces of multigrid, where
the posterior is a normal distribution of some hundred numbers: no draw passes over the rows. The
deviations of finer details, which hardly correlate between terms, count by their expectation: σ²
for each degree of freedom that the coarse spaces do not represent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from dsgp.additive import AdditiveSystem
from dsgp.additive.evidence import coarse_mean_field
from dsgp.additive.multigrid import CoarseSpace, TermSpace
from dsgp.compute import one_blas_thread
from dsgp.models.additive import AdditiveModel, centred_mean
from dsgp.models.base import FittedModel
from dsgp.models.remainder import RemainderModel
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# Number of draws for a summary, and largest number of members of a mixture that share them.
DRAWS, _MEMBERS = 400, 16
# Draws that are in memory at a time if there is a remainder, for every term at every example.
_DRAWN_TOGETHER = 100
# Number of cells whose features are computed at a time.
_TOGETHER = 4096
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Shares:
    """Draws of the shares of all terms.

    Attributes
    ----------
    names, roles : list of str
        Of the terms; roles group them in reports, see ``BoundTerm.role``.
    values : ndarray of shape (n_draws, n_terms)
        Rows add up to 1, or are 0 where f does not vary.
    """

    names: list[str]
    roles: list[str]
    values: Floats

    @classmethod
    def of(
        cls, latent: FittedModel, n_draws: int = DRAWS, random: np.random.Generator | None = None
    ) -> Shares:
        """Draw the shares of a fitted f; without a generator always the same."""
        names, roles = latent.names, latent.roles
        if not names:
            return cls(names, roles, np.zeros((n_draws, 0)))
        random = np.random.default_rng(0) if random is None else random
        if isinstance(latent, RemainderModel):
            return cls(names, roles, beside_remainder(latent, n_draws, random))
        members = some_members(latent.conditional, min(_MEMBERS, n_draws))
        counts = [len(part) for part in np.array_split(np.arange(n_draws), len(members))]
        with one_blas_thread():
            drawn = [
                _drawn(member, count, stream)
                for member, count, stream in zip(
                    members, counts, random.spawn(len(members)), strict=True
                )
            ]
        return cls(names, roles, _as_shares(np.concatenate(drawn)))

    def by_role(self) -> Shares:
        """Return the shares of the terms of each role together, in the order of their first."""
        names = list(dict.fromkeys(self.roles))
        columns = [
            self.values[:, [own == role for own in self.roles]].sum(axis=1) for role in names
        ]
        return Shares(names, names, np.stack(columns, axis=1) if columns else self.values)

    @property
    def mean(self) -> Floats:
        """Posterior means, (n_terms,); they add up to 1."""
        return np.asarray(self.values.mean(axis=0))

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Ends of the central intervals of a probability, (n_terms,) each."""
        low, high = np.quantile(self.values, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return low, high

    def lines(self, level: float) -> list[tuple[str, str]]:
        """Lines of a summary: shares of each role, where there is more than one."""
        roles = self.by_role()
        if len(roles.names) < 2:
            return []
        rows = zip(roles.names, roles.mean, *roles.interval(level), strict=True)
        return [
            (
                "" if position else "of f by kind",
                f"{name} {rounded_percent(mean)} "
                f"({rounded_percent(low)} to {rounded_percent(high)})",
            )
            for position, (name, mean, low, high) in enumerate(rows)
        ]


def rounded_percent(share: float) -> str:
    """Write a share as a percentage with one decimal; zero has no sign."""
    return "–" if np.isnan(share) else f"{round(share, 3) + 0.0:.1%}"


def _as_shares(covariances: Floats) -> Floats:
    """Divide covariances with f (n_draws, n_terms) by their sum, the variance of f."""
    total = covariances.sum(axis=1, keepdims=True)
    return np.divide(covariances, total, where=total > 0, out=covariances * 0.0)


def some_members(members: Sequence[AdditiveModel], number: int) -> list[AdditiveModel]:
    """Some of the models, evenly spread."""
    chosen = np.linspace(0, len(members) - 1, min(number, len(members))).round().astype(int)
    return [members[r] for r in chosen]


def _drawn(model: AdditiveModel, n_draws: int, random: np.random.Generator) -> Floats:
    """Draws of w Cov(f_k, f) of all terms, (n_draws, n_terms)."""
    kernels = [term.kernel for term in model.terms]
    system = AdditiveSystem(
        model.equations, kernels, model.row_variance, model.least_precision, constant=model.constant
    )
    coarse = CoarseSpace(system)
    of_means, with_features = _of_means(model, coarse)
    deviations = coarse_deviations(coarse, n_draws, random)
    total = max(model.equations.total_weight, _TINY)
    centred = coarse.normal - np.outer(coarse.sums, coarse.sums) / total
    of_all = with_features.sum(axis=0) + deviations @ centred
    held = coarse_mean_field(coarse, system).dofs
    drawn = np.empty((n_draws, len(model.terms)))
    for k, (rows, term) in enumerate(zip(coarse.rows, model.terms, strict=True)):
        drawn[:, k] = of_means[k] + deviations @ with_features[k]
        drawn[:, k] += np.einsum("sc,sc->s", deviations[:, rows], of_all[:, rows])
        drawn[:, k] += model.row_variance * max(term.effective_dof - float(held[k]), 0.0)
    return drawn


def coarse_deviations(coarse: CoarseSpace, n_draws: int, random: np.random.Generator) -> Floats:
    """Draw how f deviates from its mean, in coordinates of the coarse spaces."""
    factor, _ = coarse.factor
    normal = random.standard_normal((n_draws, len(factor)))
    return np.asarray(
        solve_triangular(factor, normal.T, lower=True, trans="T", check_finite=False).T
    )


def _of_means(model: AdditiveModel, coarse: CoarseSpace) -> tuple[Floats, Floats]:
    """Covariances, times w, of the posterior means m_k with that of f and with coarse features.

    Returns
    -------
    of_means : ndarray of shape (n_terms,)
    with_features : ndarray of shape (n_terms, n_coarse)
    """
    equations, layout = model.equations, model.equations.layout
    total = max(equations.total_weight, _TINY)
    of_means = np.zeros(layout.n_terms)
    with_features = np.zeros((layout.n_terms, coarse.rows[-1].stop))
    means = [term.cells.multiply(term.kernel, term.dual) for term in model.terms]
    together = np.concatenate(means)
    for k, mean in enumerate(means):
        alone = np.zeros(layout.size)
        alone[layout.offsets[k] : layout.offsets[k + 1]] = mean
        # ZᵀWZ m_k less the part of a constant.
        product = equations.multiply(alone[None])[0]
        product -= float(np.sum(alone * equations.ones)) / total * equations.ones
        of_means[k] = float(np.sum(product * together))
        for term, space, rows, part in zip(
            model.terms, coarse.spaces, coarse.rows, layout.parts(product), strict=True
        ):
            points = term.cells.points
            for start in range(0, len(points), _TOGETHER):
                some = slice(start, start + _TOGETHER)
                features = space.at(term.cells, term.kernel, points[some])
                with_features[k, rows] += features @ part[some]
    return of_means, with_features


def beside_remainder(model: RemainderModel, n_draws: int, random: np.random.Generator) -> Floats:
    """Draws of the shares of all terms and of a remainder, over some of the training rows.

    The rows, evenly spread, are those that the remainder keeps.
    """
    structure, function = model.structure, model.remainder.function
    some = model.remainder.places_of_examples
    inputs = function.inputs[some]
    rows = Rows(list(model.remainder.examples.T), n_rows=len(some))
    system = AdditiveSystem(
        structure.equations,
        [term.kernel for term in structure.terms],
        structure.row_variance,
        structure.least_precision,
        constant=structure.constant,
    )
    weight = 1 / function.relative_noise[some]
    at_rows = structure.inputs(rows.columns)
    covariances = np.zeros((n_draws, len(model.names)))
    with one_blas_thread():
        deviations = np.zeros((n_draws, 0))
        features: list[tuple[slice, Floats]] = []
        if structure.terms:
            coarse = CoarseSpace(system)
            deviations = coarse_deviations(coarse, n_draws, random)
            features = [
                (part, _features_at(term, space, at))
                for term, space, part, at in zip(
                    structure.terms, coarse.spaces, coarse.rows, at_rows, strict=True
                )
            ]
        means = [centred_mean(term, at) for term, at in zip(structure.terms, at_rows, strict=True)]
        taken = function.moments(inputs)[2]
        rest = function.sample(inputs, n_draws, random)
        for start in range(0, n_draws, _DRAWN_TOGETHER):
            batch = slice(start, start + _DRAWN_TOGETHER)
            drawn = np.empty((len(model.names), len(rest[batch]), len(some)))
            for values, (part, at_examples) in zip(drawn, features, strict=False):
                np.matmul(deviations[batch, part], at_examples, out=values)
            # The remainder compensates deviations of the terms, as far as its neighbours determine
            # it; their level is that of the constant, which is not part of these draws.
            together = drawn[:-1].sum(axis=0)
            together -= np.average(together, axis=1, weights=weight)[:, None]
            drawn[-1] = rest[batch] - taken * together
            for values, mean in zip(drawn, means, strict=False):
                values += mean
            drawn -= np.average(drawn, axis=2, weights=weight)[:, :, None]
            covariances[batch] = np.einsum("n,ksn,sn->sk", weight, drawn, drawn.sum(axis=0))
    return _as_shares(covariances)


def _features_at(term: FittedTerm, space: TermSpace, inputs: Floats) -> Floats:
    """Effect of each number of a coarse space on rows, (n_numbers, n); 0 where one is missing."""
    seen = ~term.cells.is_missing(inputs)
    features = space.at(term.cells, term.kernel, inputs[seen])
    multipliers = term.cells.multipliers(inputs[seen])
    if multipliers is not None:
        features = features * multipliers
    out = np.zeros((len(features), len(inputs)))
    out[:, seen] = features
    return out
