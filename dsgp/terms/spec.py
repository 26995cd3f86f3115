"""Terms as a user writes them: ``Smooth``, ``Levels``, ``Linear``.

A kind of term says in ``bind`` what it reads of its columns, once the types of these are known. Its
class is in the registry, by which stores, YAML and the command line find it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Constant, Independent, Kernel, Periodic, Wiener, kernel_of
from dsgp.kernels import from_settings as kernel_from_settings
from dsgp.terms.bound import BoundTerm
from dsgp.terms.forms import FORMS, family_of, leaves_of
from dsgp.terms.inputs import PARTS, PERIODS, Input

TERMS: dict[str, type[Term]] = {}
"""All kinds of terms by the names of their classes."""


class Column(Protocol):
    """What binding needs to know of a column."""

    @property
    def is_date(self) -> bool: ...

    @property
    def labels(self) -> tuple[Any, ...]:
        """Labels of its levels; empty for numbers and dates."""


class Term(ABC):
    """Base of all kinds of terms: frozen dataclasses that name their columns."""

    column: str | None
    name: str | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        TERMS[cls.__name__] = cls

    def __repr__(self) -> str:
        stated = {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)  # type: ignore[arg-type]
            if getattr(self, attribute.name) not in (None, attribute.default, ())
        }
        words = [
            f"{value!r}" if name == "column" else f"{name}={value!r}"
            for name, value in stated.items()
        ]
        return f"{type(self).__name__}({', '.join(words)})"

    @property
    def label(self) -> str:
        """What the term is called: the name given, or that of its column with what it is."""
        return self.name if self.name is not None else self._label()

    @abstractmethod
    def _label(self) -> str:
        """Return the name of a term without one."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""

    @property
    def level_columns(self) -> tuple[str, ...]:
        """Columns whose values are levels, whatever their type."""
        return ()

    @abstractmethod
    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        """Return the term with its columns and kernel known.

        Parameters
        ----------
        columns : mapping of str to Column
        default : Kernel
            Kernel of a smooth function without one.

        Raises
        ------
        ParameterError, DataError
            If the term does not fit the types of its columns.
        """

    def of_column(self, column: str) -> Self:
        """Return the term of a column, where it names none."""
        if self.column not in (None, column):
            raise ParameterError(
                f"terms has {self!r} for column {column!r}, but it names {self.column!r}"
            )
        return replace(self, column=column)  # type: ignore[type-var]

    def to_settings(self) -> dict[str, Any]:
        """Return the term as values that JSON can hold."""
        values = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}  # type: ignore[arg-type]
        kernel = values.get("kernel")
        if isinstance(kernel, Kernel):
            values["kernel"] = kernel.to_settings()
        return {"term": type(self).__name__, **values}

    def _column(self) -> str:
        if self.column is None:
            raise ParameterError(
                f"{self!r} names no column: terms takes a list of terms that name theirs, such as "
                f"{type(self).__name__}('age'), or a mapping from columns to terms"
            )
        return self.column


@dataclass(frozen=True, repr=False)
class Smooth(Term):
    """A smooth function of a column.

    Parameters
    ----------
    column : str, optional
        Numbers, or dates (in days). It may be left out where ``terms`` maps the column to the term.
    kernel : kernel, optional
        Its covariance; by default that of the model. Any kernel of ``dsgp.kernels``,
        sums and products of these, or an object with a method ``covariance(x, y)``.
    by : str, optional
        A column of categories: one function per level, with common hyperparameters (together with
        ``Smooth(column)`` they are deviations from a common function). A column of numbers: the
        function is multiplied by it (a varying coefficient). It must differ from ``column`` unless
        the kernel is periodic: a season may grow with time.
    name : str, optional
        Name of the term; by default that of its column, with ``by`` and a periodic kernel.
    form : {"state-space", "dense"}, optional
        Form of the algebra: in linear time, or by a dense factor that grows with the detail of the
        function. By default the state-space form if it is exact with at most 16 components, or if
        the kernel has an ``error``; otherwise the dense form.

    Examples
    --------
    >>> from dsgp.kernels import Periodic
    >>> from dsgp.terms import Smooth
    >>> Smooth("carat", by="clarity").label
    'carat by clarity'
    >>> Smooth("date", Periodic("year")).label
    'date (year)'
    """

    column: str | None = None
    kernel: Any = None
    by: str | None = None
    name: str | None = None
    form: str | None = None

    def __post_init__(self) -> None:
        if self.form not in (None, *FORMS):
            raise ParameterError(f"Smooth: form must be one of {FORMS}, got {self.form!r}")
        if self.column is not None and not isinstance(self.column, str):
            if self.kernel is not None:
                raise ParameterError(f"Smooth: column must be text, got {self.column!r}")
            object.__setattr__(self, "kernel", self.column)  # as in Smooth(Matern52())
            object.__setattr__(self, "column", None)
        if self.kernel is not None:
            object.__setattr__(self, "kernel", kernel_of(self.kernel))
        # A season that grows with time is not a function of time alone, so it may use the same
        # column.
        _require_other_column(self, may_be_same=_period_of(self.kernel) is not None)

    def _label(self) -> str:
        period = _period_of(self.kernel)
        folded = "" if period is None else f" ({period if isinstance(period, str) else 'season'})"
        return self._column() + folded + ("" if self.by is None else f" by {self.by}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self._column(), *(() if self.by is None else (self.by,)))

    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        column, kernel = self._column(), default if self.kernel is None else self.kernel
        kind = columns[column]
        if kind.labels:
            raise DataError(
                f"input column {column!r} holds categories, for which Smooth has no function: use "
                f"Levels({column!r})"
            )
        if isinstance(period := getattr(kernel, "period", None), str) and not kind.is_date:
            raise ParameterError(
                f"{type(kernel).__name__}({period!r}) is for dates, and input column {column!r} "
                "has none: give the period as a number, in the column's units"
            )
        if _has_part(kernel, Wiener):
            raise ParameterError(
                f"{kernel!r}: a Wiener process has no lengthscale, by which a model chooses the "
                f"nodes of a function; fit column {column!r} by SmoothingSpline, or use "
                "Matern52(), whose paths have as many derivatives"
            )
        kernel = with_days(kernel)
        is_folded = isinstance(kernel, Periodic)
        value = Input(column, period=period if is_folded else None)
        group = multiplier = None
        if self.by is not None:
            if columns[self.by].labels:
                group = Input(self.by)
            elif columns[self.by].is_date:
                raise DataError(
                    f"by={self.by!r} is a column of dates; a function is multiplied by numbers, or "
                    "made for each level of a category"
                )
            else:
                multiplier = Input(self.by)
        family = family_of(kernel, self.form, column)
        return BoundTerm(self.label, kernel, family, value, group, multiplier, "Smooth")


@dataclass(frozen=True, repr=False)
class Default(Term):
    """The term that a column has by its type: levels of categories, else a smooth function.

    Parameters
    ----------
    column : str
    name : str, optional
        What the term is called; by default its column.
    """

    column: str | None = None
    name: str | None = None

    def _label(self) -> str:
        return self._column()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self._column(),)

    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        make = Levels if columns[self._column()].labels else Smooth
        return make(self._column(), name=self.name).bind(columns, default)


@dataclass(frozen=True, repr=False)
class Levels(Term):
    """An effect of each level of a column, drawn from one normal distribution (random effects).

    Parameters
    ----------
    column : str, optional
        Text, categories, booleans, or numbers that stand for levels; or dates, with ``part``. It
        may be left out where ``terms`` maps the column to the term.
    part : {"weekday", "month", "quarter", "year", "day", "hour"}, optional
        Part of a date, whose values are the levels.
    by : str, optional
        Another column, of numbers, by which the effects are multiplied: one slope per level.
    missing : {"error", "ignore", "level"}, optional
        What a missing level is: an error, no effect, or a level of its own; by default as the
        model's ``missing``.
    variance : float, optional
        Variance of the effects, in squared units of the target: the initial value of the learner.
    fixed : iterable of {"variance"}
    name : str, optional
        Name of the term.

    Examples
    --------
    >>> from dsgp.terms import Levels
    >>> Levels("date", part="weekday").label
    'date (weekday)'
    """

    column: str | None = None
    part: str | None = None
    by: str | None = None
    missing: str | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    name: str | None = None

    def __post_init__(self) -> None:
        if self.part is not None and self.part not in PARTS:
            raise ParameterError(f"Levels: part must be one of {tuple(PARTS)}, got {self.part!r}")
        if self.missing not in (None, "error", "ignore", "level"):
            raise ParameterError(
                f"Levels: missing must be 'error', 'ignore' or 'level', got {self.missing!r}"
            )
        kernel = Independent(self.variance, self.fixed)
        object.__setattr__(self, "fixed", tuple(kernel.fixed))
        _require_other_column(self)

    def _label(self) -> str:
        part = "" if self.part is None else f" ({self.part})"
        return self._column() + part + ("" if self.by is None else f" times {self.by}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self._column(), *(() if self.by is None else (self.by,)))

    @property
    def level_columns(self) -> tuple[str, ...]:
        return (self._column(),) if self.part is None else ()

    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        column = self._column()
        if self.part is not None and not columns[column].is_date:
            raise ParameterError(f"{self!r}: input column {column!r} holds no dates")
        if self.part is None and columns[column].is_date:
            raise ParameterError(
                f"{self!r}: input column {column!r} holds dates; say which part of them is a "
                f"level, of {tuple(PARTS)}"
            )
        multiplier = None
        if self.by is not None:
            if columns[self.by].labels or columns[self.by].is_date:
                raise DataError(f"{self!r}: input column {self.by!r} must hold numbers")
            multiplier = Input(self.by)
        return BoundTerm(
            self.label,
            Independent(self.variance, self.fixed),
            "levels",
            Input(column, part=self.part),
            None,
            multiplier,
            "Levels",
        )


@dataclass(frozen=True, repr=False)
class Linear(Term):
    """A straight line in a column, through its mean.

    Parameters
    ----------
    column : str, optional
        Numbers, or dates (in days). It may be left out where ``terms`` maps the column to the term.
    variance : float, optional
        Variance of the slope times the column's standard deviation, in squared units of the target:
        the initial value of the learner.
    fixed : iterable of {"variance"}
    name : str, optional
        Name of the term.
    """

    column: str | None = None
    variance: float | None = None
    fixed: Iterable[str] = field(default=())
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fixed", tuple(Constant(self.variance, self.fixed).fixed))

    def _label(self) -> str:
        return f"{self._column()} (line)"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self._column(),)

    def bind(self, columns: Mapping[str, Any], default: Kernel) -> BoundTerm:
        column = self._column()
        if columns[column].labels:
            raise DataError(f"{self!r}: input column {column!r} holds categories: use Levels")
        return BoundTerm(
            self.label,
            Constant(self.variance, self.fixed),
            "constant",
            None,
            None,
            Input(column),
            "Linear",
        )


def _require_other_column(term: Smooth | Levels, *, may_be_same: bool = False) -> None:
    """Refuse a function of a column that is multiplied by, or made for each level of, the same."""
    if term.by is not None and not isinstance(term.by, str):
        raise ParameterError(
            f"{type(term).__name__}: by must be the name of one column, got {term.by!r}"
        )
    if term.by is None or term.by != term.column or may_be_same:
        return
    if isinstance(term, Smooth):
        why = (
            "a column times a function of itself is one more function of that column, without a "
            "value at 0, and each level of a category by itself is a number"
        )
    else:
        why = "the effect of a level times the number of that level is one more effect of it"
    kind = type(term).__name__
    raise ParameterError(
        f"{term!r}: by names its own column {term.column!r}, but {why}: use "
        f"{kind}({term.column!r}) without by, or name another column"
    )


def _period_of(kernel: Any) -> float | str | None:
    """Period of a kernel that is periodic as a whole."""
    return kernel.period if isinstance(kernel, Periodic) else None


def _has_part(kernel: Kernel, kind: type[Kernel]) -> bool:
    return any(isinstance(part, kind) for part in leaves_of(kernel))


def with_days(kernel: Kernel) -> Kernel:
    """Return the kernel with periods of dates in days."""
    if isinstance(period := getattr(kernel, "period", None), str):
        return replace(kernel, period=PERIODS[period][0])
    parts = getattr(kernel, "parts", None)
    if parts is None:
        return kernel
    return replace(kernel, parts=tuple(with_days(part) for part in parts))


def from_settings(settings: Mapping[str, Any]) -> Term:
    """Make a term from what its ``to_settings`` returned."""
    values = dict(settings)
    name = values.pop("term", None)
    make = TERMS.get(name) if isinstance(name, str) else None
    if make is None:
        raise ParameterError(f"the settings name a term {name!r}; there are {sorted(TERMS)}")
    if isinstance(values.get("kernel"), Mapping):
        values["kernel"] = kernel_from_settings(values["kernel"])
    try:
        return make(**values)
    except TypeError as error:
        raise ParameterError(f"the settings of a term {name} do not fit it: {error}") from error
