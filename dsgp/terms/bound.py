"""A term that knows its columns: from rows to inputs, and from distinct inputs to cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsgp.kernels import Kernel
from dsgp.terms.axis import Axis
from dsgp.terms.base import Cells, Floats
from dsgp.terms.dense import DenseCells, Factored
from dsgp.terms.grouped import GroupedAxis, GroupedDense, GroupedMarkov
from dsgp.terms.inputs import Input
from dsgp.terms.levels import LevelCells
from dsgp.terms.markov import MarkovCells
from dsgp.terms.multiplied import MultipliedCells
from dsgp.terms.tensor import LevelPairs, SmoothByLevels, TensorCells

# The cells of each family of terms: for one function, and for a function of each level of a group.
# A kind of term with cells of its own adds its family here.
CELLS: dict[tuple[str, bool], type[Any]] = {
    ("axis", False): Axis,
    ("axis", True): GroupedAxis,
    ("dense", False): DenseCells,
    ("dense", True): GroupedDense,
    ("markov", False): MarkovCells,
    ("markov", True): GroupedMarkov,
    ("levels", False): LevelCells,
    ("constant", False): LevelCells,
    ("tensor", False): TensorCells,
    ("tensor by levels", False): SmoothByLevels,
    ("tensor of levels", False): LevelPairs,
}
# Roles of terms in reports, by their family; families that are not listed are main effects.
MAIN_EFFECTS, INTERACTIONS, PROJECTIONS = "main effects", "interactions", "projections"
ROLES: dict[str, str] = {
    "tensor": INTERACTIONS,
    "tensor by levels": INTERACTIONS,
    "tensor of levels": INTERACTIONS,
}


@dataclass(frozen=True)
class BoundTerm:
    """A term whose columns and kernel are known.

    Attributes
    ----------
    name : str
    kernel : Kernel
        Its parameters may be missing.
    family : str
        The kind of its cells, a key of ``CELLS``; "constant" is one number.
    value : Input or None
        The input along which the function varies, or the level; None for a constant.
    group : Input or None
        The input whose levels have a function each.
    multiplier : Input or None
        The input that the function is multiplied by.
    other : Input or None
        The second input of an interaction.
    bins : int or None
        Number of bins of each smooth input of an interaction, if given.
    kind : str
        What the term is called, for people.
    """

    name: str
    kernel: Kernel
    family: str
    value: Input | None = None
    group: Input | None = None
    multiplier: Input | None = None
    kind: str = "Smooth"
    other: Input | None = None
    bins: int | None = None

    @classmethod
    def of_column(cls, name: str, kernel: Kernel) -> BoundTerm:
        """Return the function of one column of numbers."""
        return cls(name, kernel, "axis", Input(name))

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Its inputs, in the order of the inputs of its cells."""
        return tuple(
            term_input
            for term_input in (self.group, self.value, self.other, self.multiplier)
            if term_input is not None
        )

    @property
    def level_axes(self) -> tuple[int, ...]:
        """Which of the joined inputs hold levels."""
        first = 1 if self.value is None else 0  # the value comes first, see ``joined``
        levels = self.level_inputs
        return tuple(first + k for k, one in enumerate(self.inputs) if one in levels)

    @property
    def level_inputs(self) -> tuple[Input, ...]:
        """Inputs whose values are levels."""
        levels = [self.group]
        if self.family in ("levels", "tensor of levels"):
            levels.append(self.value)
        if self.family in ("tensor by levels", "tensor of levels"):
            levels.append(self.other)
        return tuple(term_input for term_input in levels if term_input is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads, each once."""
        return tuple(dict.fromkeys(term_input.column for term_input in self.inputs))

    @property
    def role(self) -> str:
        """The role of the term in reports, in the plural: terms of one role come together.

        A curve for each level of a group, or a coefficient that a column multiplies, includes an
        effect of its first input and counts as a main effect.
        """
        return ROLES.get(self.family, MAIN_EFFECTS)

    @property
    def is_dense(self) -> bool:
        """Whether its cells have a dense covariance."""
        return issubclass(CELLS[self.family, self.group is not None], Factored)

    @property
    def is_plain(self) -> bool:
        """Whether it is a function along the axis of the column of its name, unchanged."""
        along_column = self.family == "axis" and self.value == Input(self.name)
        return along_column and self.group is self.multiplier is None

    def with_kernel(self, kernel: Kernel) -> BoundTerm:
        """Return the term with another kernel."""
        return replace(self, kernel=kernel)

    def read(self, columns: Mapping[str, Floats]) -> list[Floats]:
        """Return each of ``inputs``, (n,)."""
        return [term_input.of(columns[term_input.column]) for term_input in self.inputs]

    def joined(self, inputs: list[Floats]) -> Floats:
        """Join ``inputs`` to the inputs of cells: (n,), or (n, k)."""
        if self.value is None:
            inputs = [np.zeros(len(inputs[0])), *inputs]
        return inputs[0] if len(inputs) == 1 else np.column_stack(inputs)

    def cells(self, points: Floats) -> Cells:
        """Make cells of distinct inputs, without the multiplier."""
        inner: Cells = CELLS[self.family, self.group is not None](points)
        return inner if self.multiplier is None else MultipliedCells(inner)

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold, without its kernel."""
        roles = {"value": self.value, "group": self.group, "multiplier": self.multiplier}
        if self.other is not None:
            roles["other"] = self.other
        return {
            "family": self.family,
            "kind": self.kind,
            **{
                role: None if term_input is None else term_input.to_settings()
                for role, term_input in roles.items()
            },
        }

    @classmethod
    def from_settings(cls, name: str, kernel: Kernel, settings: dict[str, Any]) -> BoundTerm:
        """Undo ``to_settings``."""
        roles: dict[str, Any] = {
            role: None if settings.get(role) is None else Input.from_settings(settings[role])
            for role in ("value", "group", "multiplier", "other")
        }
        return cls(name, kernel, settings["family"], **roles, kind=settings["kind"])
