"""A sum of functions whose hyperparameters are draws: an average of additive models.

Each of some draws has its conditional ``AdditiveModel``: kernels, noise variance and dual vectors
are its own, cells and equations are shared. Means are averages of the conditional means; variances
are averages of the conditional variances plus the variance of the conditional means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dsgp import memory
from dsgp.additive.tables import BINS
from dsgp.additive.variance import covariance_bytes
from dsgp.compute import run
from dsgp.models.additive import AdditiveModel, Solved
from dsgp.models.drawn import DrawnParameters
from dsgp.models.posterior import Posterior
from dsgp.models.started import StartedModel
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats, Function

_POSTERIOR = 1e-5  # seconds of compiled work per cell
_REMEDY = "fewer rows or bins, or method=None"
_ARRAYS = ("duals", "shifts", "centres", "row_variances")


@dataclass(frozen=True)
class MixtureModel(StartedModel):
    """An average over draws of hyperparameters; its terms are those that the chains began at.

    Attributes
    ----------
    start : AdditiveModel
        By the hyperparameters that the chains began at.
    draws : DrawnParameters
        All draws; R of them, evenly spread, have a model.
    duals : ndarray of shape (R, Σ U_d)
        K_d⁻¹ f_d of all terms, as for ``FittedTerm``.
    shifts : ndarray of shape (R,)
        The constant less that of the start, in units of the equations' targets.
    centres : ndarray of shape (R, n_terms)
        Weighted means of the functions over the training rows.
    row_variances : ndarray of shape (R,)
        As for ``AdditiveModel``.
    """

    start: AdditiveModel
    draws: DrawnParameters
    duals: Floats
    shifts: Floats
    centres: Floats
    row_variances: Floats

    def __post_init__(self) -> None:
        """Check that the parts belong together: compiled loops do not."""
        n = len(self.duals)
        shapes = [values.shape for values in (self.shifts, self.centres, self.row_variances)]
        expected = [(n,), (n, len(self.start.terms)), (n,)]
        if shapes != expected or self.duals.shape[1:] != (self.equations.layout.size,) or not n:
            raise ValueError("the draws and the terms do not agree")

    @cached_property
    def members(self) -> list[AdditiveModel]:
        """The conditional models, of equal weight."""
        # Counted here, so that the members share the counts by bins and do not each keep their own.
        orders = [term.kernel.order for term in self.start.terms]
        if orders:
            self.equations.tables(max(BINS[order] for order in orders))
        return [self._member(r) for r in range(len(self.duals))]

    @property
    def conditional(self) -> Sequence[AdditiveModel]:
        """The conditional models."""
        return self.members

    @cached_property
    def noise_variances(self) -> Floats:
        """σ² of the members, (R,)."""
        return self.draws.noise_variances(len(self.duals))

    def _member(self, r: int) -> AdditiveModel:
        start = self.start
        kernels = self.draws.kernels([term.kernel for term in start.terms], len(self.duals), r)
        parts = start.equations.layout.parts(self.duals[r])
        ratio = start.row_variance / float(self.row_variances[r])
        terms = [
            replace(
                term,
                kernel=kernel,
                bound=term.bound.with_kernel(kernel),
                dual=dual,
                weight=term.weight * ratio,
                centre=float(centre),
            )
            for term, kernel, dual, centre in zip(
                start.terms, kernels, parts, self.centres[r], strict=True
            )
        ]
        shift = float(self.shifts[r])
        level = start.intercept - sum(term.centre for term in start.terms)
        level += start.information_scale * shift
        return replace(
            start,
            terms=terms,
            equations=start.equations.less(shift),
            intercept=level + sum(term.centre for term in terms),
            row_variance=float(self.row_variances[r]),
        )

    # ------------------------------------------------------------------ terms

    @cached_property
    def terms(self) -> list[FittedTerm]:
        """Terms of the start, whose means are those over the draws."""
        return [MixedTerm.of(self, d) for d in range(len(self.start.terms))]

    @cached_property
    def intercept(self) -> float:
        """The mean where every centred term is 0."""
        return float(np.mean([member.intercept for member in self.members]))

    @cached_property
    def posterior(self) -> Posterior:
        """Variances over all draws; the system is that of the start."""
        self.prepare(with_std=True)
        mine = self.start.posterior
        return MixedPosterior(mine.system, mine.covariance, mine.constant, self.members)

    @property
    def std_note(self) -> str:
        """How standard deviations are computed, for people."""
        return f"{self.members[0].std_note}; over {len(self.members)} draws of hyperparameters"

    # ------------------------------------------------------------------ moments

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share.

        Raises
        ------
        MemoryLimitError
            If the variances of all draws would not fit.
        """
        waiting = self.members
        if with_std:
            waiting = [each for each in waiting if "posterior" not in each.__dict__]
            kernels = [term.kernel for term in self.start.terms]
            memory.require(
                f"standard deviations by {len(self.members)} draws of hyperparameters",
                len(waiting) * covariance_bytes(self.equations, kernels),
                _REMEDY,
            )
        seconds = _POSTERIOR * len(waiting) * self.equations.layout.size
        run([partial(each.prepare, with_std) for each in waiting], seconds, in_place=True)

    def member_moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean and variance of f at some rows by each draw, (R, n)."""
        pairs = [member.moments(rows, with_variance) for member in self.members]
        means = np.stack([mean for mean, _ in pairs])
        if not with_variance:
            return means, None
        return means, np.stack([variance for _, variance in pairs if variance is not None])

    def moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean of f at some rows, and on request its variance."""
        means, variances = self.member_moments(rows, with_variance)
        if variances is None:
            return means.mean(axis=0), None
        return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)

    def component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each centred term at some rows, (n, n_terms)."""
        means, stds = zip(*(member.component_moments(rows) for member in self.members), strict=True)
        return np.mean(means, axis=0), np.sqrt(
            np.mean(np.square(stds), axis=0) + np.var(means, axis=0)
        )

    # ------------------------------------------------------------------ joint predictions

    def covariance(self, rows: Sequence[Rows]) -> Solved:
        """Joint covariance of f at some rows, (n, n)."""
        means = np.stack(
            [
                np.concatenate([member.moments(some, False)[0] for some in rows])
                for member in self.members
            ]
        )
        total, converged = np.cov(means, rowvar=False, ddof=0).reshape(2 * means.shape[1:]), True
        for member in self.members:
            solved = member.covariance(rows)
            total = total + solved.values / len(self.members)
            converged &= solved.converged
        return Solved(total, converged)

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Draw f, each time by another draw of hyperparameters while there are enough.

        Returns
        -------
        Solved
            Values of shape (n_samples, n_rows), and the noise variance of each draw.
        """
        return self._by_members(
            n_samples, random, lambda member, n, own: member.sample(rows, n, own, tol)
        )

    def sample_components(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Draw every centred term, (n_samples, n_rows, n_terms)."""
        return self._by_members(
            n_samples, random, lambda member, n, own: member.sample_components(rows, n, own, tol)
        )

    def component_draws(
        self,
        columns: list[Floats],
        n_rows: int,
        n_samples: int,
        random: np.random.Generator,
        tol: float,
    ) -> Solved:
        """Draw the centred terms, each at inputs of its own; see ``AdditiveModel``."""
        return self._by_members(
            n_samples,
            random,
            lambda member, n, own: member.component_draws(columns, n_rows, n, own, tol),
        )

    def _by_members(
        self,
        n_samples: int,
        random: np.random.Generator,
        drawn: Callable[[AdditiveModel, int, np.random.Generator], Solved],
    ) -> Solved:
        """Share samples among the members, in an order that does not depend on their number."""
        n_members = len(self.members)
        order, *streams = random.spawn(n_members + 1)
        rounds = -(-n_samples // n_members)
        chosen = np.concatenate([order.permutation(n_members) for _ in range(rounds)])[:n_samples]
        values: Any = None
        converged = True
        for r in np.unique(chosen):
            places = np.flatnonzero(chosen == r)
            solved = drawn(self.members[r], len(places), streams[r])
            if values is None:
                values = np.empty((n_samples, *solved.values.shape[1:]))
            values[places] = solved.values
            converged &= solved.converged
        return Solved(values, converged, self.noise_variances[chosen])

    # ------------------------------------------------------------------ storage

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values that JSON can hold, and arrays, that ``restored`` takes."""
        numbers, arrays = self.draws.stored()
        return numbers, arrays | {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restored(
        cls, start: AdditiveModel, numbers: dict[str, Any], arrays: dict[str, Any]
    ) -> MixtureModel:
        """Undo ``stored``."""
        draws = DrawnParameters.restored(numbers, arrays)
        return cls(start, draws, *(arrays[name] for name in _ARRAYS))


@dataclass(frozen=True)
class MixedTerm(FittedTerm):
    """A term of the start whose mean function is that over the draws.

    Attributes
    ----------
    parts : list of FittedTerm
        The term by each draw.
    """

    parts: tuple[FittedTerm, ...] = ()

    @classmethod
    def of(cls, model: MixtureModel, position: int) -> MixedTerm:
        """Average one term over the draws."""
        term = model.start.terms[position]
        values = {field.name: getattr(term, field.name) for field in fields(FittedTerm)}
        values["centre"] = float(model.centres[:, position].mean())
        return cls(**values, parts=tuple(member.terms[position] for member in model.members))

    @cached_property
    def mean(self) -> Function:
        """The mean over the draws as a function of the input, not centred."""
        functions = [term.mean for term in self.parts]
        return lambda inputs: np.mean([function(inputs) for function in functions], axis=0)


@dataclass(frozen=True)
class MixedPosterior(Posterior):
    """Variances over draws of hyperparameters.

    Attributes
    ----------
    members : list of AdditiveModel
    """

    members: list[AdditiveModel]

    def centred_variance_of(self, terms: Sequence[int], columns: Sequence[Floats]) -> Floats:
        """Of a sum of some terms minus its weighted mean over the training rows, (n,)."""
        means = []
        for member in self.members:
            some = [member.terms[term] for term in terms]
            pairs = zip(some, columns, strict=True)
            means.append(np.sum([each.mean(at) - each.centre for each, at in pairs], axis=0))
        variances = [each.posterior.centred_variance_of(terms, columns) for each in self.members]
        return np.asarray(np.mean(variances, axis=0) + np.var(means, axis=0))
