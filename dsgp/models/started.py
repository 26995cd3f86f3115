"""The common base of models by draws: the initial model of their chains."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dsgp.additive import Equations
from dsgp.kernels import Kernel
from dsgp.models.additive import AdditiveModel
from dsgp.rows.sources import Rows
from dsgp.terms import Floats


class StartedModel:
    """Columns, names and units, as the start has them.

    Attributes
    ----------
    start : AdditiveModel
        The model that the chains began at.
    """

    start: AdditiveModel

    @property
    def names(self) -> list[str]:
        """Names of the terms."""
        return self.start.names

    @property
    def roles(self) -> list[str]:
        """Role of each term in reports."""
        return self.start.roles

    @property
    def variances(self) -> list[float]:
        """Variance of each term over the training rows."""
        return self.start.variances

    @property
    def conditional(self) -> Sequence[AdditiveModel]:
        """Models given hyperparameters: the start."""
        return [self.start]

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernel of each term that the chains began at."""
        return self.start.kernels

    @property
    def equations(self) -> Equations:
        """Those of the start."""
        return self.start.equations

    @property
    def information_scale(self) -> float:
        """That of the start."""
        return self.start.information_scale

    @property
    def row_variance(self) -> float:
        """That of the start."""
        return self.start.row_variance

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that a prediction depends on."""
        return self.start.used_columns

    def inputs(self, columns: list[Floats]) -> list[Floats]:
        """Inputs of the terms at some rows."""
        return self.start.inputs(columns)

    def unseen(self, rows: Rows) -> NDArray[np.intp]:
        """Count rows with a level that no training row had, for each term."""
        return self.start.unseen(rows)

    @abstractmethod
    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""

    def by_blocks(self, block: Callable[[slice], None], n_rows: int, with_std: bool) -> None:
        """Call a function for blocks of rows, on threads where that pays."""
        self.prepare(with_std)
        self.start.by_blocks(block, n_rows, False)
