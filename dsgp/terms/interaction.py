"""The term of an interaction: the joint effect of two columns beyond their main effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import CentredProduct, Independent, Kernel, Periodic, Wiener, kernel_of
from dsgp.terms.bound import BoundTerm
from dsgp.terms.forms import leaves_of
from dsgp.terms.inputs import PARTS, Input
from dsgp.terms.spec import Term, with_days

# Default and largest number of bins of each smooth column.
PAIR_BINS, MOST_PAIR_BINS = 24, 64
# Families of the cells of an interaction, by how many of the two columns are levels.
FAMILIES = ("tensor", "tensor by levels", "tensor of levels")


@dataclass(frozen=True, repr=False)
class Tensor(Term):
    """Interaction of two columns: their joint effect beyond the sum of their main effects.

    It is a smooth surface for two columns of numbers or dates, one curve per level for a column of
    numbers and a category, or one effect per pair of levels. Its prior has no main effects:
    averaged over the rows of either column it is 0 for any value of the other one, so that terms of
    the single columns keep their meaning.

    Parameters
    ----------
    column, other : str
        The columns. ``column`` may be left out where ``terms`` maps it to the term.
    kernel, other_kernel : kernel, optional
        Kernels of the columns of numbers or dates; by default that of the model. Columns of levels
        have none.
    part, other_part : {"weekday", "month", "quarter", "year", "day", "hour"}, optional
        Part of a column of dates, whose values are the levels.
    bins : int, optional
        Number of bins per column of numbers or dates if rows are binned, 4 to 64; by default 24.
    name : str, optional
        Name of the term; by default those of both columns.

    Notes
    -----
    Distinct values of each column are kept if they are few, otherwise ``bins`` bins per column;
    with a category of many levels, the other column has fewer bins. For very many levels,
    ``Smooth(column, by=other)`` has one curve per level, which includes the main effect.

    Examples
    --------
    >>> from dsgp.terms import Tensor
    >>> Tensor("hour", "day").label
    'hour × day'
    """

    column: str | None = None
    other: str | None = None
    kernel: Any = None
    other_kernel: Any = None
    part: str | None = None
    other_part: str | None = None
    bins: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for name in ("column", "other"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise ParameterError(f"Tensor: {name} must be text, got {getattr(self, name)!r}")
        for name in ("kernel", "other_kernel"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, kernel_of(getattr(self, name)))
        for name in ("part", "other_part"):
            if getattr(self, name) not in (None, *PARTS):
                raise ParameterError(
                    f"Tensor: {name} must be one of {tuple(PARTS)}, got {getattr(self, name)!r}"
                )
        is_count = isinstance(self.bins, int) and not isinstance(self.bins, bool)
        if self.bins is not None and not (is_count and 4 <= self.bins <= MOST_PAIR_BINS):
            raise ParameterError(
                f"Tensor: bins must be a number from 4 to {MOST_PAIR_BINS}, got {self.bins!r}"
            )
        if self.column is not None and self.column == self.other:
            differ = (self.part, self.kernel) != (self.other_part, self.other_kernel)
            if not differ:
                raise ParameterError(
                    f"{self!r} has column {self.column!r} twice, which has no interaction with "
                    "itself: use Smooth or Levels for its effect, or name two columns"
                )

    def _label(self) -> str:
        def of(column: str, part: str | None) -> str:
            return column + ("" if part is None else f" ({part})")

        return f"{of(self._column(), self.part)} × {of(self._other(), self.other_part)}"

    def _other(self) -> str:
        if self.other is None:
            raise ParameterError(f"{self!r} names one column: an interaction needs two")
        return self.other

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self._column(), self._other()]))

    def to_settings(self) -> dict[str, Any]:
        settings = super().to_settings()
        if isinstance(self.other_kernel, Kernel):
            settings["other_kernel"] = self.other_kernel.to_settings()
        return settings

    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        sides = [
            self._side(columns, self._column(), self.kernel, self.part, default),
            self._side(columns, self._other(), self.other_kernel, self.other_part, default),
        ]
        # The levels of a curve come second.
        sides.sort(key=lambda side: isinstance(side[1], Independent))
        (value, first), (other, second) = sides
        if value == other:
            raise ParameterError(f"{self!r} has the same values of column {value.column!r} twice")
        n_levels = sum(isinstance(kernel, Independent) for kernel in (first, second))
        return BoundTerm(
            self.label,
            CentredProduct((first, second)),
            FAMILIES[n_levels],
            value,
            other=other,
            bins=self.bins,
            kind="Tensor",
        )

    def _side(
        self,
        columns: Mapping[str, Any],
        column: str,
        kernel: Any,
        part: str | None,
        default: Kernel,
    ) -> tuple[Input, Kernel]:
        """Return the input of a column, and its kernel."""
        kind = columns[column]
        if part is not None and not kind.is_date:
            raise ParameterError(f"{self!r}: input column {column!r} holds no dates")
        if kind.labels or part is not None:
            if kernel is not None:
                raise DataError(
                    f"{self!r}: input column {column!r} holds levels, which have no kernel"
                )
            return Input(column, part=part), Independent()
        kernel = default if kernel is None else kernel
        period = getattr(kernel, "period", None)
        if isinstance(period, str) and not kind.is_date:
            raise ParameterError(
                f"{type(kernel).__name__}({period!r}) is for dates, and input column {column!r} "
                "has none: give the period as a number, in the column's units"
            )
        if any(isinstance(leaf, Wiener) for leaf in leaves_of(kernel)):
            raise ParameterError(
                f"{self!r}: a Wiener process has no lengthscale; use Matern52() or another kernel"
            )
        folded = period if isinstance(kernel, Periodic) else None
        return Input(column, period=folded), with_days(kernel)
