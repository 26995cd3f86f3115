"""A fitted sum of functions and a constant: its moments, draws and covariances at rows.

A model does not depend on a table: its arguments are ``Rows`` with the columns that it names, and
its results are arrays. A transform of the target, or a likelihood, is in ``gaussian_model`` and
``response_model``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsgp import memory
from dsgp.additive import MAX_ITER, AdditiveSystem, Equations
from dsgp.additive.posterior import (
    joint_covariance,
    joint_samples,
    together_of,
    vector_bytes,
)
from dsgp.compute import one_blas_thread, run
from dsgp.kernels import Kernel
from dsgp.models.posterior import Posterior
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

_ROW_BLOCK = 4_096  # rows per prediction task
# Seconds of compiled work per row and term.
_PREDICT = 1e-7
_PREDICT_STD = 1e-6
# Smallest tolerance that float64 can meet.
_FINEST = 1e-11


class Solved(NamedTuple):
    """Results of solves, and whether all of them met their tolerance.

    Samples of a model whose noise variance is uncertain have one each, (n_samples,).
    """

    values: Floats
    converged: bool
    noise_variance: Floats | None = None


@dataclass(frozen=True)
class AdditiveModel:
    """A fitted sum of functions of columns, and a constant.

    Attributes
    ----------
    terms : list of FittedTerm
    equations : Equations
        Of the training rows: variances, covariances and draws need them.
    intercept : float
        The sum where every centred term is 0.
    constant : float or None
        Precision of the prior of the constant, as for ``AdditiveSystem``; None if it is known.
    row_variance : float
        Noise variance of a row of weight 1, with what bins add.
    information_scale : float
        The equations' targets are in this unit.
    least_precision : float
        As for ``AdditiveSystem``.
    """

    terms: list[FittedTerm]
    equations: Equations
    intercept: float
    constant: float | None
    row_variance: float
    information_scale: float
    least_precision: float = 0.0

    @property
    def names(self) -> list[str]:
        """Names of the terms."""
        return [term.name for term in self.terms]

    @property
    def roles(self) -> list[str]:
        """Role of each term in reports."""
        return [term.bound.role for term in self.terms]

    @property
    def variances(self) -> list[float]:
        """Variance of each term over the training rows."""
        return [term.explained_variance for term in self.terms]

    @property
    def conditional(self) -> Sequence[AdditiveModel]:
        """Models given hyperparameters: itself."""
        return [self]

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernel of each term."""
        return {term.name: term.kernel for term in self.terms}

    @cached_property
    def posterior(self) -> Posterior:
        """What variances, covariances and samples need; made when first needed."""
        system = AdditiveSystem(
            self.equations,
            [term.kernel for term in self.terms],
            self.row_variance,
            self.least_precision,
        )
        with one_blas_thread():
            return Posterior.of(system, self.constant)

    @property
    def std_note(self) -> str:
        """How standard deviations are computed, for people."""
        covariance = self.posterior.covariance
        return "exact" if covariance is None else covariance.name

    # ------------------------------------------------------------------ inputs

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term.bound.columns))

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Convert ``used_columns`` of some rows to the inputs of the terms, in their order.

        Called for blocks of rows, by several threads. Where an input is NaN its term gives nothing.
        """
        by_name = dict(zip(self.used_columns, columns, strict=True))
        return [term.bound.joined(term.bound.read(by_name)) for term in self.terms]

    def deviations(self, columns: list[Floats]) -> Floats | None:
        """Deviations of f beyond those of constant and terms, (n, k), in units of the target.

        Each column is a function of the row, times a standard normal variable of its own. None of
        a model whose inputs are known.
        """
        return None

    def unseen(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term."""
        counts = np.zeros(len(self.terms), dtype=np.intp)
        if any(term.cells.has_levels for term in self.terms):
            for position, inputs in enumerate(self.inputs(rows.columns)):
                cells = self.terms[position].cells
                if cells.has_levels:
                    known = cells.is_known(inputs) | cells.is_missing(inputs)
                    counts[position] = np.count_nonzero(~known)
        return counts

    # ------------------------------------------------------------------ moments

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        for term in self.terms:
            term.mean  # noqa: B018
        if with_std:
            self.posterior  # noqa: B018

    def moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean of f at some rows, and on request its variance, without the noise; new arrays."""
        inputs = self.inputs(rows.columns)
        mean = np.full(len(rows), self.intercept)
        for term, values in zip(self.terms, inputs, strict=True):
            mean += centred_mean(term, values)
        if not with_variance:
            return mean, None
        return mean, self._variance(rows, inputs)

    def _variance(self, rows: Rows, inputs: list[Floats]) -> Floats:
        """Variance of f at some rows, without the noise; a new array."""
        variance = self.posterior.variance(inputs, len(rows))
        deviations = self.deviations(rows.columns)
        if deviations is not None:
            variance += np.einsum("ij,ij->i", deviations, deviations)
        return variance

    def component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each centred term at some rows, (n, n_terms)."""
        shape = (len(rows), len(self.terms))
        mean, std = np.empty(shape), np.zeros(shape)
        inputs = self.inputs(rows.columns)
        for position, (term, values) in enumerate(zip(self.terms, inputs, strict=True)):
            mean[:, position] = centred_mean(term, values)
            seen = ~term.cells.is_missing(values)
            centred = self.posterior.centred_variance(position, values[seen])
            std[seen, position] = np.sqrt(centred)
        return mean, std

    def by_blocks(self, block: Callable[[slice], None], n_rows: int, with_std: bool) -> None:
        """Call a function for blocks of rows, on threads where that pays."""
        self.prepare(with_std)
        tasks = [partial(block, part) for part in row_blocks(n_rows)]
        work = _PREDICT_STD if with_std else _PREDICT
        with one_blas_thread():
            run(tasks, work * n_rows * len(self.terms), in_place=True)

    # ------------------------------------------------------------------ joint answers

    def covariance(self, rows: Sequence[Rows]) -> Solved:
        """Joint posterior covariance of f at some rows, (n, n), exact: one solve per row.

        Parameters
        ----------
        rows : sequence of Rows
            In any pieces.

        Raises
        ------
        MemoryLimitError
            If the tables of so many rows would not fit.
        """
        pieces = list(_in_blocks(rows))
        joined, posterior = self._joined_inputs(pieces), self.posterior
        n_rows = len(joined)
        memory.require(
            f"the covariance of {n_rows} rows",
            8.0 * n_rows * (25 * posterior.system.layout.size + 6 * n_rows),
            "pass fewer rows",
        )
        covariance, converged = np.zeros((n_rows, n_rows)), True
        with one_blas_thread():
            if self.terms:
                variance = posterior.given_constant(joined.columns, n_rows)
                smallest = variance[variance > 0].min(initial=np.inf)
                largest = max(term.kernel.std**2 for term in self.terms)
                covariance, converged = joint_covariance(
                    posterior.system,
                    joined.columns,
                    tol=max(math.sqrt(1e-4 * min(smallest, largest)), _FINEST),
                    max_iter=MAX_ITER["multigrid"],
                )
            deviations = [self._all_deviations(piece) for piece in pieces]
            known = [each for each in deviations if each is not None]
            if known:
                stacked = np.concatenate(known)
                covariance += stacked @ stacked.T
        return Solved(covariance, converged)

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Draw f from the joint posterior, exactly, by perturbing the data and solving.

        Parameters
        ----------
        rows : sequence of Rows
        n_samples : int
        random : Generator
        tol : float
            Of the posterior mean, in prior standard deviations; draws are ten times closer.

        Returns
        -------
        Solved
            Values of shape (n_samples, n_rows).

        Raises
        ------
        MemoryLimitError
            If so many draws would not fit.
        """
        pieces = list(_in_blocks(rows))
        joined = self._joined_inputs(pieces)
        level = self.intercept - sum(term.centre for term in self.terms)
        system = self.posterior.system
        memory.require(
            f"{n_samples} samples at {len(joined)} rows",
            8.0 * (3 * n_samples + len(self.terms)) * len(joined)
            + together_of(system) * vector_bytes(system),
            "ask for fewer samples or rows",
        )
        drawn, converged = np.zeros((n_samples, len(joined))), True
        with one_blas_thread():
            deviated = self._deviated(pieces, n_samples, random)
            if self.terms:
                drawn, converged = joint_samples(
                    system,
                    system.information * self.information_scale,
                    joined.columns,
                    n_samples,
                    random,
                    tol=0.1 * tol,
                    max_iter=MAX_ITER["multigrid"],
                )
        if deviated is not None:
            drawn += deviated
        return Solved(level + drawn, converged)

    def sample_components(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Draw every term from the joint posterior, minus its weighted mean over training rows.

        Parameters, errors
            As for ``sample``.

        Returns
        -------
        Solved
            Values of shape (n_samples, n_rows, n_terms).
        """
        joined = self._joined_inputs(list(_in_blocks(rows)))
        return self.component_draws(joined.columns, len(joined), n_samples, random, tol)

    def component_draws(
        self,
        columns: list[Floats],
        n_rows: int,
        n_samples: int,
        random: np.random.Generator,
        tol: float,
    ) -> Solved:
        """Draw the centred terms, each at inputs of its own.

        Parameters
        ----------
        columns : list of ndarray, one per term
            ``n_rows`` inputs of each; where one is missing the draw is minus its mean alone.
        n_rows, n_samples, random, tol
            As for ``sample``.

        Returns
        -------
        Solved
            Values of shape (n_samples, n_rows, n_terms).
        """
        n_terms = len(self.terms)
        posterior, system = self.posterior, self.posterior.system
        memory.require(
            f"{n_samples} samples of {n_terms} terms at {n_rows} rows",
            8.0 * (2 * n_samples * (n_rows + system.layout.size) * n_terms)
            + together_of(system) * vector_bytes(system),
            "ask for fewer samples or rows",
        )
        # The cells are included: the mean over the training rows is that of a draw there.
        extended = [
            np.concatenate([inputs, term.cells.points])
            for inputs, term in zip(columns, self.terms, strict=True)
        ]
        longest = max(map(len, extended), default=0)
        drawn, converged = np.zeros((0, n_samples, longest)), True
        normal = np.random.default_rng(random.integers(2**63)).standard_normal(n_samples)
        with one_blas_thread():
            if n_terms:
                drawn, converged = joint_samples(
                    system,
                    system.information * self.information_scale,
                    [_padded(inputs, longest) for inputs in extended],
                    n_samples,
                    random,
                    tol=0.1 * tol,
                    max_iter=MAX_ITER["multigrid"],
                    by_term=True,
                )
        out = np.zeros((n_samples, n_rows, n_terms))
        for d, term in enumerate(self.terms):
            at_cells = drawn[d][:, n_rows : len(extended[d])]
            share = system.equations.share(d)
            out[:, :, d] = drawn[d][:, :n_rows] - (at_cells @ share)[:, None]
            constant = posterior.constant
            if constant is not None:  # the term depends on the constant, which is unknown
                seen = ~term.cells.is_missing(columns[d])
                moved = np.zeros(n_rows)
                moved[seen] = constant.centred_deviation(d, columns[d][seen])
                out[:, :, d] -= np.outer(normal, moved)
        return Solved(out, converged)

    def _joined_inputs(self, pieces: list[Rows]) -> Rows:
        """Inputs of the terms at all rows together, made block by block as for predictions."""
        return Rows.join([replace(piece, columns=self.inputs(piece.columns)) for piece in pieces])

    def _all_deviations(self, rows: Rows) -> Floats | None:
        """What f may deviate by beyond the terms' posterior given the constant, (n, k)."""
        known = []
        constant = self.posterior.constant
        if constant is not None:
            deviation = constant.deviation(self.inputs(rows.columns), len(rows))
            known.append(deviation[:, None])
        deviations = self.deviations(rows.columns)
        if deviations is not None:
            known.append(deviations)
        return np.concatenate(known, axis=1) if known else None

    def _deviated(
        self, pieces: list[Rows], n_samples: int, random: np.random.Generator
    ) -> Floats | None:
        """Draw ``_all_deviations`` at all rows, (n_samples, n_rows)."""
        drawn: list[Floats] = []
        normal: Floats | None = None
        for piece in pieces:
            deviations = self._all_deviations(piece)
            if deviations is None:
                return None
            if normal is None:  # from a separate generator: a draw does not depend on their number
                apart = np.random.default_rng(random.integers(2**63))
                normal = apart.standard_normal((n_samples, deviations.shape[1]))
            # Not by BLAS, whose rounding depends on the number of samples.
            drawn.append(np.einsum("sk,nk->sn", normal, deviations))
        return np.concatenate(drawn, axis=1)


def row_blocks(n_rows: int) -> list[slice]:
    """Cut rows into the blocks of predictions."""
    return [slice(start, min(start + _ROW_BLOCK, n_rows)) for start in range(0, n_rows, _ROW_BLOCK)]


def _in_blocks(rows: Sequence[Rows]) -> Iterator[Rows]:
    """Rows in blocks as those of predictions."""
    for some in rows:
        yield from map(some.part, row_blocks(len(some)) or [slice(0, 0)])


def _padded(inputs: Floats, length: int) -> Floats:
    """Append missing inputs."""
    gaps = np.full((length - len(inputs), *inputs.shape[1:]), np.nan)
    return np.concatenate([inputs, gaps])


def centred_mean(term: FittedTerm, inputs: Floats) -> Floats:
    """Centred mean of a term; where its input is missing the function itself is 0."""
    seen = ~term.cells.is_missing(inputs)
    if seen.all():
        return term.mean(inputs) - term.centre
    out = np.full(len(inputs), -term.centre)
    out[seen] += term.mean(inputs[seen])
    return out
