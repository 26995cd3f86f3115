"""The specification of a remainder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, Self

from dsgp.errors import ParameterError
from dsgp.remainder.metric import SMOOTHNESSES
from dsgp.rows.sources import Wanted


@dataclass(frozen=True)
class Remainder:
    """A Gaussian process of several columns jointly, for what the other terms do not explain.

    It has a Matérn covariance with one lengthscale per column of numbers, and for each column of
    levels a distance between different levels; it is computed by Vecchia's approximation on nearest
    neighbours.

    Parameters
    ----------
    columns : sequence of str, optional
        None: all columns of the table that vary.
    n_neighbours : int
        Number of training rows on which a prediction is conditioned; the notes of the fit report
        how much twice as many would change predictions. The work grows with the cube.
    smoothness : {None, "1/2", "3/2", "5/2"}
        ν of the covariance; None: the one with the largest likelihood.
    n_sampled : int
        Number of rows from whose densities hyperparameters are learned, each given its neighbours
        among all rows.
    if_it_gains : bool
        Whether to leave it out where it gains fewer than 4 nats of log likelihood over noise.

    Examples
    --------
    >>> from dsgp import Remainder
    >>> Remainder(["age", "income"], n_neighbours=100).n_neighbours
    100
    """

    columns: tuple[str, ...] | None = None
    n_neighbours: int = 64
    smoothness: str | None = None
    n_sampled: int = 2000
    if_it_gains: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or (
            self.columns is not None
            and not (self.columns and all(isinstance(name, str) for name in self.columns))
        ):
            raise ParameterError(
                f"columns of a remainder must be a list of names of columns, got {self.columns!r}"
            )
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(dict.fromkeys(self.columns)))
        for name in ("n_neighbours", "n_sampled"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
                raise ParameterError(f"{name} of a remainder must be a positive int, got {value!r}")
            object.__setattr__(self, name, int(value))
        if not isinstance(self.if_it_gains, bool):
            raise ParameterError(
                f"if_it_gains of a remainder must be True or False, got {self.if_it_gains!r}"
            )
        if self.smoothness is not None and self.twice_smoothness not in SMOOTHNESSES:
            raise ParameterError(
                f"smoothness of a remainder must be '1/2', '3/2' or '5/2', got {self.smoothness!r}"
            )

    @property
    def twice_smoothness(self) -> int | None:
        """2ν, or None where it is learned."""
        if self.smoothness is None:
            return None
        return {f"{twice}/2": twice for twice in SMOOTHNESSES}.get(str(self.smoothness), 0)

    @classmethod
    def of(cls, value: Any) -> Self | None:
        """Return the specification for a value of ``remainder=``; None if that is False.

        Raises
        ------
        ParameterError
            If it is not a valid specification.
        """
        if value is None or value is False:
            return None
        if value is True:
            return cls()
        if isinstance(value, str) and value == "auto":
            return cls(if_it_gains=True)
        if isinstance(value, cls):
            return value
        if isinstance(value, (list, tuple)):
            return cls(tuple(value))
        raise ParameterError(
            'remainder must be True, False, "auto", a list of columns or a dsgp.Remainder, '
            f"got {value!r}"
        )

    def widened(self, wanted: Wanted) -> Wanted:
        """Return the requirements on the columns of a table, including those of the remainder."""
        if wanted.columns is None or self.columns is None:
            return replace(wanted, columns=None)
        return replace(wanted, columns=tuple(dict.fromkeys([*wanted.columns, *self.columns])))

    def to_settings(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        columns = None if self.columns is None else list(self.columns)
        return asdict(self) | {"columns": columns}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Undo ``to_settings``."""
        return cls(**settings)
