"""A fitted sum of terms and, beside it, a function of all columns at once: the remainder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp import memory
from dsgp.additive import Equations
from dsgp.compute import one_blas_thread, run
from dsgp.errors import DataError
from dsgp.kernels import Kernel
from dsgp.models.additive import AdditiveModel, Solved, row_blocks
from dsgp.models.posterior import Posterior
from dsgp.models.term import FittedTerm
from dsgp.remainder import Metric, NeighbourFunction
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

NAME = "remainder"
# Seconds of compiled work of a row, by 64 neighbours.
_PREDICT = 1.5e-4


@dataclass(frozen=True)
class FittedRemainder:
    """A function of several columns, in the user's units.

    Attributes
    ----------
    columns : tuple of str
        Numbers first, and columns of levels after them.
    offsets, spreads : ndarray of shape (D,)
        A number x is (x − offset) / spread to the function; levels are as they are.
    function : NeighbourFunction
        In the unit of the target.
    """

    columns: tuple[str, ...]
    offsets: Floats
    spreads: Floats
    function: NeighbourFunction

    @property
    def kernel_text(self) -> str:
        """The covariance, for people."""
        return f"Matérn {self.function.metric.smoothness}/2"

    @property
    def lengthscales(self) -> dict[str, float]:
        """By column, in its units; of levels without units."""
        values = self.function.metric.lengthscales * self.spreads
        return dict(zip(self.columns, map(float, values), strict=True))

    def inputs(self, by_name: dict[str, Floats]) -> Floats:
        """Turn columns into inputs of the function, (n, D)."""
        n_levels = self.function.metric.n_levels
        for name in self.columns[: len(self.columns) - len(n_levels)]:
            if gaps := int(np.count_nonzero(np.isnan(by_name[name]))):
                raise DataError(
                    f"input column {name!r} is missing in {gaps} of {len(by_name[name])} rows, and "
                    "the remainder needs it: fill it, or fit with remainder=[...] of other columns"
                )
        columns = [by_name[name] for name in self.columns]
        return inputs_of(columns, self.offsets, self.spreads, n_levels)

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return settings and arrays, from which ``restored`` makes it again."""
        one, metric = self.function, self.function.metric
        settings = {
            "columns": list(self.columns),
            "smoothness": metric.smoothness,
            "variance": metric.variance,
            "noise_variance": metric.noise_variance,
            "n_levels": list(metric.n_levels),
            "n_neighbours": one.n_neighbours,
            "centre": one.centre,
            "share": one.share,
        }
        arrays = {
            "inputs": one.inputs,
            "target": one.target,
            "relative_noise": one.relative_noise,
            "lengthscales": metric.lengthscales,
            "offsets": self.offsets,
            "spreads": self.spreads,
        }
        return settings, arrays

    @classmethod
    def restored(cls, settings: dict[str, Any], arrays: dict[str, Any]) -> FittedRemainder:
        """Undo ``stored``; the schema of stores has checked what is there."""
        metric = Metric(
            smoothness=settings["smoothness"],
            variance=settings["variance"],
            lengthscales=arrays["lengthscales"],
            noise_variance=settings["noise_variance"],
            n_levels=tuple(map(int, settings["n_levels"])),
        )
        function = NeighbourFunction(
            arrays["inputs"], arrays["target"], arrays["relative_noise"], metric,
            int(settings["n_neighbours"]), float(settings["centre"]), float(settings["share"]),
        )  # fmt: skip
        return cls(tuple(settings["columns"]), arrays["offsets"], arrays["spreads"], function)


def inputs_of(
    columns: Sequence[Floats], offsets: Floats, spreads: Floats, n_levels: Sequence[int]
) -> Floats:
    """Return standardised columns side by side, (n, D).

    A missing level, of the columns at the end that hold levels, is the last of their numbers.
    """
    out = np.empty((len(columns[0]), len(columns)))
    for d, values in enumerate(columns):
        np.subtract(values, offsets[d], out=out[:, d])
        out[:, d] /= spreads[d]
    for d, count in enumerate(n_levels, len(columns) - len(n_levels)):
        out[np.isnan(out[:, d]), d] = count - 1
    return out


@dataclass(frozen=True)
class RemainderModel:
    """A sum of terms with a remainder: see ``base.FittedModel``.

    Means are those of the joint posterior. The terms vary as in a fit to which the remainder is
    noise. What they may be wrong by in a row and its neighbours alike, the remainder takes back, as
    far as the neighbours tell of it; beside that it varies as given its neighbours and the terms.

    Attributes
    ----------
    structure : AdditiveModel
        The terms, whose mean is that of the joint posterior.
    remainder : FittedRemainder
    """

    structure: AdditiveModel
    remainder: FittedRemainder

    # ------------------------------------------------------------------ of the terms

    @property
    def terms(self) -> list[FittedTerm]:
        """Fitted functions, without the remainder."""
        return self.structure.terms

    @property
    def names(self) -> list[str]:
        """Names of the terms, and of the remainder."""
        return [*self.structure.names, NAME]

    @property
    def roles(self) -> list[str]:
        """What the terms are to a reader, and the remainder."""
        return [*self.structure.roles, NAME]

    @property
    def variances(self) -> list[float]:
        """Variance of each over the training rows."""
        return [*self.structure.variances, self.remainder.function.share]

    @property
    def conditional(self) -> Sequence[AdditiveModel]:
        """The terms given hyperparameters, without the remainder."""
        return self.structure.conditional

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernel of each term."""
        return self.structure.kernels

    @property
    def equations(self) -> Equations:
        """What is kept of the training rows."""
        return self.structure.equations

    @property
    def intercept(self) -> float:
        """The mean of f where every centred term is 0."""
        return self.structure.intercept + self.remainder.function.centre

    @property
    def information_scale(self) -> float:
        """The equations' targets are in this unit."""
        return self.structure.information_scale

    @property
    def row_variance(self) -> float:
        """Noise variance of a row of weight 1."""
        return self.remainder.function.metric.noise_variance

    @property
    def posterior(self) -> Posterior:
        """What variances of the terms need."""
        return self.structure.posterior

    @property
    def std_note(self) -> str:
        """How standard deviations are computed, for people."""
        count = self.remainder.function.n_neighbours
        return (
            f"{self.structure.std_note} of the terms, to which the remainder is noise, and that of "
            f"the remainder given {count} neighbours"
        )

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        return tuple(dict.fromkeys([*self.structure.used_columns, *self.remainder.columns]))

    def _split(self, rows: Rows) -> tuple[Rows, Floats]:
        """Return the rows as the terms see them, and the inputs of the remainder."""
        by_name = dict(zip(self.used_columns, rows.columns, strict=True))
        columns = [by_name[name] for name in self.structure.used_columns]
        return replace(rows, columns=columns, n_rows=len(rows)), self.remainder.inputs(by_name)

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Inputs of the terms at some rows."""
        return self.structure.inputs(columns[: len(self.structure.used_columns)])

    def unseen(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term."""
        return self.structure.unseen(self._split(rows)[0])

    # ------------------------------------------------------------------ moments

    def prepare(self, with_std: bool) -> None:
        """Make once what all tasks of a prediction share."""
        self.structure.prepare(with_std)
        self.remainder.function.finder  # noqa: B018

    def moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean and variance of f, (n,) each."""
        of_terms, inputs = self._split(rows)
        mean, variance = self.structure.moments(of_terms, with_variance)
        further, left, taken = self.remainder.function.moments(inputs)
        mean += further
        return mean, None if variance is None else (1 - taken) ** 2 * variance + left

    def component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each centred term, and of the remainder at the end."""
        of_terms, inputs = self._split(rows)
        mean, std = self.structure.component_moments(of_terms)
        further, left, taken = self.remainder.function.moments(inputs)
        further = further - self.remainder.function.centre
        _, variance = self.structure.moments(of_terms, True)
        assert variance is not None
        left += taken**2 * variance
        return np.column_stack([mean, further]), np.column_stack([std, np.sqrt(left)])

    def by_blocks(self, block: Callable[[slice], None], n_rows: int, with_std: bool) -> None:
        """Call a function for blocks of rows, on threads where that pays."""
        self.prepare(with_std)
        tasks = [partial(block, part) for part in row_blocks(n_rows)]
        with one_blas_thread():
            run(tasks, _PREDICT * n_rows, in_place=True)

    # ------------------------------------------------------------------ joint answers

    def _all_inputs(self, pieces: Sequence[Rows]) -> tuple[list[Rows], Floats]:
        split = [self._split(piece) for piece in pieces]
        inputs = np.concatenate([some for _, some in split])
        memory.require(
            f"the joint distribution of the remainder at {len(inputs)} rows",
            8.0 * 4 * len(inputs) ** 2,
            "pass fewer rows",
        )
        return [rows for rows, _ in split], inputs

    def covariance(self, rows: Sequence[Rows]) -> Solved:
        """Joint posterior covariance of f, (n, n)."""
        of_terms, inputs = self._all_inputs(rows)
        solved = self.structure.covariance(of_terms)
        kept = 1 - self.remainder.function.moments(inputs)[2]
        values = kept[:, None] * solved.values * kept + self.remainder.function.covariance(inputs)
        return solved._replace(values=values)

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Joint draws of f, (n_samples, n)."""
        of_terms, inputs = self._all_inputs(rows)
        solved = self.structure.sample(of_terms, n_samples, random, tol)
        further = self.remainder.function.sample(inputs, n_samples, random)
        further -= self._taken(of_terms, inputs, solved.values)
        return solved._replace(values=solved.values + further)

    def _taken(self, rows: list[Rows], inputs: Floats, drawn: Floats) -> Floats:
        """What the remainder takes back of how draws of the sum of the terms deviate."""
        mean = np.concatenate([self.structure.moments(some, False)[0] for some in rows])
        return np.asarray(self.remainder.function.moments(inputs)[2] * (drawn - mean))

    def sample_components(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Joint draws of every centred term and of the remainder, (n_samples, n, n_terms + 1)."""
        of_terms, inputs = self._all_inputs(rows)
        solved = self.structure.sample_components(of_terms, n_samples, random, tol)
        further = self.remainder.function.sample(inputs, n_samples, random)
        total = self.structure.intercept + solved.values.sum(axis=2)
        further -= self._taken(of_terms, inputs, total) + self.remainder.function.centre
        return solved._replace(values=np.concatenate([solved.values, further[..., None]], axis=2))

    def component_draws(
        self,
        columns: list[Floats],
        n_rows: int,
        n_samples: int,
        random: np.random.Generator,
        tol: float,
    ) -> Solved:
        """Joint draws of the terms, each at inputs of its own; not of the remainder."""
        return self.structure.component_draws(columns, n_rows, n_samples, random, tol)
