"""The work of ``dsgp fit``: from a table and options to a saved model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import typer

from dsgp import storage
from dsgp.addresses import Place, without_secrets
from dsgp.cli.choices import Learner, Model
from dsgp.cli.clusters import on_cluster
from dsgp.cli.holidays import Holidays
from dsgp.cli.messages import one_line
from dsgp.cli.models import Estimator, estimator_of, require_own_options
from dsgp.cli.reaching import Reach, require_model_path
from dsgp.cli.tables import is_streamed, names_of, read
from dsgp.cli.work import HOLIDAY, file_of
from dsgp.errors import DataError, ParameterError
from dsgp.places import require_apart
from dsgp.rows.sources import CsvFormat, Stored
from dsgp.rows.sources.kinds import kind_of_column


def fit(
    context: typer.Context,
    data: Path,
    target: str,
    out: Path,
    *,
    model: Model,
    columns: str | None,
    drop: Sequence[str] | None,
    drop_missing: bool,
    weight: str | None,
    further: Mapping[str, str | None],
    holidays: tuple[str | None, str, int, int],
    learner: Learner,
    csv_format: tuple[str, str, str],
    storage_options: Sequence[str] | None,
    scheduler: str | None,
    performance_report: Path | None,
    overwrite: bool,
) -> None:
    """Fit a model to a table and save it; `dsgp.cli.commands.fit` describes the options."""
    given, *of_column = holidays
    if given is None and of_column != [HOLIDAY, 0, 0]:
        raise ParameterError(
            "--holiday-column, --days-before and --days-after are of --holidays; give it, too"
        )
    require_model_path(out)
    require_apart(out, [data, file_of(given)])
    reach = Reach.of(storage_options, [data, file_of(given), out])
    source, saved = reach.place(data), reach.place(out)
    storage.check_writable(saved, overwrite)
    require_own_options(context, model, learner)
    roles = _Roles(
        target,
        weight,
        {role: name for role, name in further.items() if name is not None},
        None if columns is None else names_of(columns),
        [name for listed in drop or [] for name in names_of(listed)],
    )
    form = CsvFormat(*csv_format)
    estimator = estimator_of(model, context.params)
    added = None
    if given is not None:
        added = _Added(Holidays.of(given, reach, form), *holidays[1:])
    at_once = drop_missing or added is not None
    with on_cluster(scheduler, performance_report):
        if is_streamed(source) and not (at_once and source.is_file()):
            if added is not None:
                raise ParameterError(
                    "--holidays reads the table at once, so DATA must be one file; otherwise write "
                    "a column with the names of the holidays (dsgp.holiday_levels) into the table"
                )
            _fit_streamed(estimator, model, source, roles, drop_missing, form)
        else:
            _fit_in_memory(estimator, model, source, roles, drop_missing, form, added)
    estimator.save(saved, overwrite)
    typer.echo(f"{estimator.summary()}\n\nsaved in {without_secrets(str(out))}")


@dataclass(frozen=True)
class _Roles:
    """Which column plays which part.

    Attributes
    ----------
    target : str
    weight : str or None
    further : dict of str to str
        Columns of exposures, offsets and trials.
    inputs : list of str or None
        None takes all the others.
    dropped : list of str
    """

    target: str
    weight: str | None
    further: dict[str, str]
    inputs: list[str] | None
    dropped: list[str]

    def __post_init__(self) -> None:
        if self.inputs is not None and self.dropped:
            raise ParameterError("--columns already says which inputs are used; leave out --drop")
        for name, count in Counter([*self.non_inputs, *self.chosen]).items():
            if count > 1:
                options = ["--target", "--weight", *(f"--{role}" for role in self.further)]
                raise ParameterError(
                    f"column {name!r} is named more than once in {', '.join(options)}, --columns "
                    "and --drop; use each column once"
                )

    @property
    def non_inputs(self) -> list[str]:
        """Columns that are no inputs, since they have another part."""
        weight = [] if self.weight is None else [self.weight]
        return [self.target, *weight, *self.further.values()]

    @property
    def chosen(self) -> Sequence[str]:
        """Columns that ``--columns`` or ``--drop`` names."""
        return self.inputs or self.dropped


@dataclass(frozen=True)
class _Added:
    """The column of holidays that is added to the inputs."""

    holidays: Holidays
    column: str
    before: int
    after: int

    def to(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return inputs with the column; what other days are called is as for ``forecast``."""
        if self.column in X:
            raise ParameterError(
                f"--holidays adds the column {self.column!r}, which DATA has; choose another name, "
                "--holiday-column"
            )
        names = [str(name) for name in X if kind_of_column(str(name), X[name]).is_date]
        if len(names) != 1:
            raise ParameterError(
                f"--holidays needs one column of dates among the inputs, and there are "
                f"{', '.join(map(repr, names)) or 'none'}"
                + ("; choose by --columns or --drop" if names else "; dates of CSV are ISO 8601")
            )
        dates = X[names[0]]
        if dates.isna().any():
            raise DataError(
                f"--holidays: column {names[0]!r} has missing dates; --drop-missing leaves such "
                "rows out"
            )
        return X.assign(**{self.column: self.holidays.levels(dates, self.before, self.after)})


def _fit_streamed(
    estimator: Estimator,
    model: Model,
    source: Place,
    roles: _Roles,
    drop_missing: bool,
    form: CsvFormat,
) -> None:
    if drop_missing:
        remedy = "; --missing ignore uses the values that such rows have"
        raise ParameterError(
            "--drop-missing reads the table at once, so DATA must be one file"
            + ("" if model is Model.pursuit else remedy)
        )
    plain = not roles.chosen and form == CsvFormat()
    table = source if plain else Stored(source, roles.inputs, roles.dropped, form)
    estimator.fit(table, y=roles.target, sample_weight=roles.weight, **roles.further)


def _fit_in_memory(
    estimator: Estimator,
    model: Model,
    data: Place,
    roles: _Roles,
    drop_missing: bool,
    form: CsvFormat,
    added: _Added | None,
) -> None:
    table = read(data, [*roles.non_inputs, *roles.chosen], roles.inputs is not None, form)
    table = table.drop(columns=roles.dropped)
    if drop_missing:
        table = _complete_rows(table)
    X = table[roles.inputs] if roles.inputs else table.drop(columns=roles.non_inputs)
    if added is not None:
        X = added.to(X)
    y = table[roles.target]
    weight = None if roles.weight is None else table[roles.weight]
    further = {role: table[name] for role, name in roles.further.items()}
    try:
        estimator.fit(X, y, weight, **further)
    except DataError as error:
        remedy = ""
        if model is not Model.classifier and not pd.api.types.is_numeric_dtype(y):
            remedy = " (--model classifier takes labels of any kind)"
        elif "is not numeric" in str(error) or "seems to name the rows" in str(error):
            remedy = _to_leave_out(roles)
        elif X.isna().any(axis=None) or table[roles.non_inputs].isna().any(axis=None):
            remedy = " (--drop-missing leaves such rows out)"
        raise DataError(f"{error}{remedy}") from error


def _to_leave_out(roles: _Roles) -> str:
    return "" if roles.inputs else " (--drop COLUMN, or --columns with the others)"


def _complete_rows(table: pd.DataFrame) -> pd.DataFrame:
    # An empty cell between commas is missing, in a column of text as well.
    table = table.replace("", pd.NA)
    complete = table.dropna()
    if len(complete) == 0:
        raise DataError("no row is complete: every row has a missing value")
    if lost := len(table) - len(complete):
        gaps = ", ".join(f"{name!r}" for name in table.columns[table.isna().any()])
        one_line(
            "Warning",
            f"{lost} of {len(table)} rows are left out, because they have missing values in {gaps}",
        )
    return complete
