"""A fitted sum of terms and, beside it, a function of all columns at once: the remainder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp import memory
from dsgp.additive import Equations
from dsgp.compute import one_blas_thread, run, run_alone
from dsgp.errors import DataError
from dsgp.kernels import Kernel
from dsgp.models.additive import AdditiveModel, Solved, row_blocks
from dsgp.models.posterior import Posterior
from dsgp.models.term import FittedTerm
from dsgp.remainder import Metric, NeighbourFunction
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

NAME = "remainder"
# Number of training rows over which shares of variance are computed.
_EXAMPLES = 1000
# Seconds of compiled work per row, with 64 neighbours.
_PREDICT = 1.5e-4


@dataclass(frozen=True)
class RemainderInputs:
    """How columns become the inputs of a remainder.

    Attributes
    ----------
    columns : tuple of str
        Numbers first, and columns of levels after them.
    offsets, spreads : ndarray of shape (n_numbers,)
        A number x is (x − offset) / spread to the function.
    levels : tuple of ndarray
        Levels that training rows have, of each column of levels, increasing. To the function they
        are 0, 1, …; a missing level is one more, and one that no training row had is −1.
    """

    columns: tuple[str, ...]
    offsets: Floats
    spreads: Floats
    levels: tuple[Floats, ...]

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Different levels of each column of levels, the missing one among them."""
        return tuple(len(known) + 1 for known in self.levels)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers."""
        return self.columns[: len(self.offsets)]

    def __call__(self, by_name: Mapping[str, Floats]) -> Floats:
        """Return the inputs of rows, (n, D).

        Raises
        ------
        DataError
            If a number is missing.
        """
        for name in self.numbers:
            if gaps := int(np.count_nonzero(np.isnan(by_name[name]))):
                raise DataError(
                    f"input column {name!r} is missing in {gaps} of {len(by_name[name])} rows, and "
                    "the remainder needs it: fill it, or fit with remainder=[...] of other columns"
                )
        out = np.empty((len(by_name[self.columns[0]]), len(self.columns)))
        for d, name in enumerate(self.numbers):
            np.subtract(by_name[name], self.offsets[d], out=out[:, d])
            out[:, d] /= self.spreads[d]
        names = self.columns[len(self.offsets) :]
        for d, (name, known) in enumerate(zip(names, self.levels, strict=True), len(self.offsets)):
            out[:, d] = _places(by_name[name], known)
        return out


def _places(values: Floats, known: Floats) -> Floats:
    missing = np.isnan(values)
    places = np.minimum(np.searchsorted(known, values), max(len(known) - 1, 0))
    if len(known):
        found = known[places] == values
    else:
        found = np.zeros(len(values), dtype=bool)
    return np.where(missing, float(len(known)), np.where(found, places, -1.0))


@dataclass(frozen=True)
class FittedRemainder:
    """A function of several columns, in the user's units.

    Attributes
    ----------
    inputs : RemainderInputs
    function : NeighbourFunction
        In the unit of the target.
    examples : ndarray of shape (k, n_columns)
        Some of the training rows, evenly spread, in the columns that the terms beside it read.
    """

    inputs: RemainderInputs
    function: NeighbourFunction
    examples: Floats

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it is a function of."""
        return self.inputs.columns

    @property
    def kernel_text(self) -> str:
        """The covariance, for people."""
        return f"Matérn {self.function.metric.smoothness}/2"

    @property
    def places_of_examples(self) -> NDArray[np.intp]:
        """Training rows that the examples are."""
        return example_places(len(self.function.target))

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
            "offsets": self.inputs.offsets,
            "spreads": self.inputs.spreads,
        }
        if self.inputs.levels:
            arrays["levels"] = np.concatenate(self.inputs.levels)
        if self.examples.shape[1]:
            arrays["examples"] = self.examples
        return settings, arrays

    @classmethod
    def restored(cls, settings: dict[str, Any], arrays: dict[str, Any]) -> FittedRemainder:
        """Undo ``stored``; the schema of stores has checked what is there."""
        n_levels = tuple(map(int, settings["n_levels"]))
        metric = Metric(
            smoothness=settings["smoothness"],
            variance=settings["variance"],
            lengthscales=arrays["lengthscales"],
            noise_variance=settings["noise_variance"],
            n_levels=n_levels,
        )
        function = NeighbourFunction(
            arrays["inputs"], arrays["target"], arrays["relative_noise"], metric,
            int(settings["n_neighbours"]), float(settings["centre"]), float(settings["share"]),
        )  # fmt: skip
        ends = np.cumsum([count - 1 for count in n_levels])[:-1]
        levels = np.split(arrays["levels"], ends) if n_levels else []
        inputs = RemainderInputs(
            tuple(settings["columns"]), arrays["offsets"], arrays["spreads"], tuple(levels)
        )
        count = len(example_places(len(function.target)))
        return cls(inputs, function, arrays.get("examples", np.zeros((count, 0))))


def example_places(n_rows: int) -> NDArray[np.intp]:
    """Rows that stand for all of so many, evenly spread."""
    return np.linspace(0, n_rows - 1, min(n_rows, _EXAMPLES)).astype(np.intp)


@dataclass(frozen=True)
class RemainderModel:
    """A sum of terms with a remainder: see ``base.FittedModel``.

    Means are those of the joint posterior. The terms vary as in a fit in which the remainder is
    noise. The remainder compensates their deviations that a row and its neighbours share, as far as
    the neighbours determine it; in addition it varies as given its neighbours and the terms.

    Attributes
    ----------
    structure : AdditiveModel
        The terms, whose mean is that of the joint posterior.
    remainder : FittedRemainder
    """

    structure: AdditiveModel
    remainder: FittedRemainder

    # ------------------------------------------------------------------ the terms

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
        """Role of each term in reports, and of the remainder."""
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
        """Noise variance of a row of mean weight."""
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
        """Return the rows with the columns of the terms, and the inputs of the remainder."""
        by_name = dict(zip(self.used_columns, rows.columns, strict=True))
        columns = [by_name[name] for name in self.structure.used_columns]
        return replace(rows, columns=columns, n_rows=len(rows)), self.remainder.inputs(by_name)

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Inputs of the terms at some rows."""
        return self.structure.inputs(columns[: len(self.structure.used_columns)])

    def unseen(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term and the remainder.

        For the remainder of columns that no term reads.
        """
        of_terms, inputs = self._split(rows)
        own = [
            d
            for d, name in enumerate(self.remainder.columns)
            if d >= len(self.remainder.inputs.offsets) and name not in self.structure.used_columns
        ]
        count = np.count_nonzero((inputs[:, own] < 0).any(axis=1))
        return np.append(self.structure.unseen(of_terms), count)

    # ------------------------------------------------------------------ moments

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        self.structure.prepare(with_std)
        self.remainder.function.prepare()

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
        parts = row_blocks(n_rows)
        tasks = [partial(block, part) for part in parts]
        # a search for neighbours must not use threads at the same time as others
        if len(parts) > 1:
            tasks = [partial(run_alone, task) for task in tasks]
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
        """The part of the deviations of draws of the terms' sum that the remainder compensates."""
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
