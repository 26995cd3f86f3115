"""The interface of every fitted sum of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.models.additive import AdditiveModel, Solved
from dsgp.models.posterior import Posterior
from dsgp.models.term import FittedTerm
from dsgp.rows.sources import Rows
from dsgp.terms import Floats


class FittedModel(Protocol):
    """A fitted f: ``AdditiveModel`` in columns, ``ProjectedModel``, or one of draws.

    Those are ``MixtureModel`` (of hyperparameters) and ``DrawsModel`` (of projections).
    Rows hold ``used_columns``, in their order. See ``AdditiveModel`` for shapes and errors.
    """

    @property
    def terms(self) -> list[FittedTerm]:
        """Fitted functions."""

    @property
    def names(self) -> list[str]:
        """Their names."""

    @property
    def roles(self) -> list[str]:
        """Role of each of them in reports: main effects, interactions, projections, …"""

    @property
    def variances(self) -> list[float]:
        """Variance of each over the training rows."""

    @property
    def kernels(self) -> dict[str, Kernel]:
        """Their kernels, by name."""

    @property
    def equations(self) -> Equations:
        """What is kept of the training rows."""

    @property
    def conditional(self) -> Sequence[AdditiveModel]:
        """Models given hyperparameters, of equal weight: itself, or those of some draws."""

    @property
    def intercept(self) -> float:
        """The mean of f where every centred term is 0."""

    @property
    def information_scale(self) -> float:
        """The equations' targets are in this unit."""

    @property
    def row_variance(self) -> float:
        """Noise variance of a row of weight 1, with what bins add."""

    @property
    def posterior(self) -> Posterior:
        """What variances need; made when first needed."""

    @property
    def std_note(self) -> str:
        """How standard deviations are computed, for people."""

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Inputs of the terms at some rows."""

    def unseen(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term."""

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""

    def moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean and variance of f, (n,) each."""

    def component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each centred term, (n, n_terms) each."""

    def by_blocks(self, block: Callable[[slice], None], n_rows: int, with_std: bool) -> None:
        """Call a function for blocks of rows, on threads where that pays."""

    def covariance(self, rows: Sequence[Rows]) -> Solved:
        """Joint posterior covariance of f, (n, n)."""

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Joint draws of f, (n_samples, n)."""

    def sample_components(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Joint draws of every centred term, (n_samples, n, n_terms)."""

    def component_draws(
        self,
        columns: list[Floats],
        n_rows: int,
        n_samples: int,
        random: np.random.Generator,
        tol: float,
    ) -> Solved:
        """Likewise, of each term at inputs of its own."""
