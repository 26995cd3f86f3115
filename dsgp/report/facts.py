"""What a page says of a fit beside its terms: data, cautions, and how to make the model again."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dsgp.dates import dates_of_days, written_dates
from dsgp.estimators.classes import ClassEstimator
from dsgp.models.calendar import DATES
from dsgp.models.cautions import BIN_ERROR
from dsgp.models.gaussian.target import RESIDUALS
from dsgp.models.remainder import NAME as REMAINDER
from dsgp.models.remainder import RemainderModel
from dsgp.models.report import count_of
from dsgp.report.words import digits_of, listed_names, number, sentence, share_of
from dsgp.terms.bound import INTERACTIONS

_PACKAGES = ("dsgp", "numpy", "scipy", "numba", "scikit-learn", "pandas", "dask", "xarray", "zarr")
# Characters of a parameter in the table; the code has all of it.
_LONG = 160
# Columns of which the page has a row each.
MOST_COLUMNS = 500
# Share of the rows.
_MANY_MISSING = 0.2


@dataclass(frozen=True)
class Column:
    """A row of the table of columns."""

    name: str
    kind: str
    values: str
    missing: str
    use: str


@dataclass(frozen=True)
class Caution:
    """A sentence or two to know before the model is trusted; ``is_warning`` of those in red."""

    text: str
    is_warning: bool = False


def parts_of(model: Any) -> list[tuple[str | None, Any]]:
    """Return the estimators of one f each, with their classes where there are more than two."""
    if not isinstance(model, ClassEstimator):
        return [(None, model)]
    if len(model.estimators_) == 1:
        return [(None, model.estimators_[0])]
    return [
        (str(label), part) for label, part in zip(model.classes_, model.estimators_, strict=True)
    ]


# ---------------------------------------------------------------- data


def columns_of(model: Any) -> list[Column]:
    """Describe the columns that the fit was given, and what became of each."""
    part = parts_of(model)[0][1]
    latent, given = part.model_.latent, part._columns
    readers: dict[str, list[Any]] = {name: [] for name in given.names}
    for _, each in parts_of(model):
        for term in each.model_.latent.terms:
            for name in term.bound.columns:
                known = [other.name for other in readers.setdefault(name, [])]
                if term.name not in known:
                    readers[name].append(term)
    inputs = set(latent.used_columns)
    of_noise = _noise_readers(part)
    columns = []
    for name in given.names:
        kind = given.kinds.get(name)
        all_readers = [*readers[name], *of_noise.get(name, ())]
        columns.append(
            Column(
                name,
                _kind_of(kind, all_readers, name),
                _values_of(kind, all_readers, name),
                f"{part.n_missing_.get(name, 0):,}",
                _use_of(part, name, readers[name], inputs, name in of_noise),
            )
        )
    return columns


def _noise_readers(part: Any) -> dict[str, list[Any]]:
    """Return the terms of a noise variance that varies, by the columns that they read."""
    readers: dict[str, list[Any]] = {}
    if getattr(part.model_, "noise", None) is not None:
        for term in part.noise_.model_.latent.terms:
            for name in term.bound.columns:
                readers.setdefault(name, []).append(term)
    return readers


def _kind_of(kind: Any, terms: Sequence[Any], name: str) -> str:
    if kind is not None and kind.is_date:
        return "date"
    if kind is not None and kind.labels:
        return f"category, {len(kind.labels):,} levels"
    levels = any(
        term.bound.value is not None and term.bound.value.column == name
        and term.bound.value in term.bound.level_inputs
        for term in terms
    )  # fmt: skip
    return "number, read as levels" if levels else "number"


def _values_of(kind: Any, terms: Sequence[Any], name: str) -> str:
    """Write the number of distinct values or bins and their range, where one term has them."""
    if kind is not None and kind.labels:
        shown = ", ".join(str(label) for label in kind.labels[:4])
        return shown + (", …" if len(kind.labels) > 4 else "")
    for term in terms:
        read, points = term.bound.value, term.cells.points
        if read is None or read.column != name or read.part or read.period or points.ndim != 1:
            continue
        if (read.centre, read.scale) != (0.0, 1.0) or not len(points):
            continue
        ends = [float(points.min()), float(points.max())]
        digits = digits_of(ends, 4)
        low, high = (
            written_dates(dates_of_days(ends), ends[1] - ends[0])
            if kind is not None and kind.is_date
            else [number(end, digits) for end in ends]
        )
        return f"{low} to {high}; {len(points):,} points"
    return "–"


def _use_of(part: Any, name: str, terms: Sequence[Any], inputs: set[str], is_of_noise: bool) -> str:
    if name in part.constant_columns_:
        return "left out: it has one value only"
    names = [term.name for term in terms]
    latent = part.model_.latent
    if isinstance(latent, RemainderModel) and name in latent.remainder.columns:
        names.append("remainder")
    if is_of_noise:
        names.append("the noise variance")
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 5 else ""
        return ", ".join(names[: 4 if more else 5]) + more
    return "projections" if name in inputs else "not used by any term"


def treatment_of(model: Any) -> list[str]:
    """Say in sentences what was done to the data before and while the model was fitted."""
    part = parts_of(model)[0][1]
    said = []
    transform = getattr(part, "transform_", None)
    if transform is not None:
        said.append(
            f"The target was transformed: {transform.described()} is modelled. Effects, noise and "
            "intercept are on that scale; predictions are in the unit of the target."
        )
    likelihood = getattr(part, "likelihood_", None)
    if likelihood is not None:
        said.append(
            f"The likelihood is {likelihood!r}: effects add up on the scale of its "
            f"{likelihood.link_name} link."
        )
    if part.n_missing_:
        listed = listed_names(f"{name} ({count:,})" for name, count in part.n_missing_.items())
        said.append(
            f"Values are missing in {listed}. A row adds nothing through a term whose input it "
            "lacks."
        )
    else:
        said.append("No input is missing in any row.")
    if part.bin_error_:
        said.append(
            "Columns with many distinct values were put into bins, which changes the functions by "
            f"about {part.bin_error_:.2g} of their posterior standard deviations."
        )
    else:
        said.append("Every distinct value is kept: there are no bins.")
    if part.constant_columns_:
        said.append(
            f"Left out, as they have one value only: {listed_names(part.constant_columns_)}."
        )
    return said


# ---------------------------------------------------------------- cautions


def cautions_of(model: Any, unclear: Sequence[str], n_terms: int) -> list[Caution]:
    """Say what to know before the model is trusted, most important first.

    Parameters
    ----------
    model : fitted estimator
    unclear : sequence of str
        Terms that cannot be distinguished from zero.
    n_terms : int
    """
    said = []
    if not model.converged_:
        said.append(
            Caution(
                "The fit stopped before it met its tolerance. The warning of the fit said what to "
                "raise (max_iter, learner_max_iter); take all numbers here as approximate.",
                True,
            )
        )
    for label, part in parts_of(model):
        of = "" if label is None else f"Class {label}: "
        if part.bin_error_ > BIN_ERROR:
            said.append(
                Caution(
                    f"{of}Bins change the functions by about {part.bin_error_:.2g} of their "
                    "posterior standard deviations. Pass more bins, or bins=None.",
                    True,
                )
            )
        said += [
            Caution(f"{of}{sentence(note.removeprefix(f'{DATES}: '))}", True)
            for note in part.learner_notes_
            if note.startswith((f"{RESIDUALS} ", f"{DATES}: "))
        ]
        # How hyperparameters were learned is for the details of the fit.
        said += [
            Caution(f"{of}{sentence(note)}")
            for note in part.learner_notes_
            if note.startswith((f"{INTERACTIONS}: ", f"{REMAINDER}: "))
        ]
    first = parts_of(model)[0][1]
    n_rows = max(first.n_rows_, 1)
    sparse = [
        f"{name} ({share_of(count / n_rows)})"
        for name, count in first.n_missing_.items()
        if count > _MANY_MISSING * n_rows
    ]
    if sparse:
        said.append(
            Caution(
                f"Missing in many rows: {listed_names(sparse)}. Rows without a value count as "
                "average in that term."
            )
        )
    if unclear:
        said.append(
            Caution(
                f"{len(unclear)} of {n_terms} terms are not clearly different from zero: "
                f"{listed_names(unclear)}. "
                "Their charts are compatible with no effect at all."
            )
        )
    said.append(
        Caution(
            "Effects describe what goes with what in these rows, the other columns held fixed. "
            "They say what causes what only where the data were collected for that."
        )
    )
    return said


# ---------------------------------------------------------------- key numbers


def headlines_of(model: Any, n_terms: int) -> list[tuple[str, str]]:
    """Return the numbers that a page begins with, and what they are."""
    part = parts_of(model)[0][1]
    facts = [
        ("rows", f"{model.n_rows_:,}"),
        ("columns", f"{model.n_features_in_:,}"),
        ("terms", f"{n_terms:,}"),
    ]
    if isinstance(model, ClassEstimator):
        return [*facts, ("classes", f"{len(model.classes_):,}")]
    if getattr(part, "likelihood_", None) is None:
        summary = dict(part._summary().lines)
        facts.append(("variance explained (training)", summary["explained variance"].split(" ")[0]))
        varies = getattr(part.model_, "noise", None) is not None
        facts.append(
            (
                "noise, typical standard deviation" if varies else "noise, standard deviation",
                number(math.sqrt(part.noise_variance_ or 0.0)),
            )
        )
    return facts


# ---------------------------------------------------------------- again


@dataclass(frozen=True)
class Again:
    """How to make the model again."""

    code: str
    parameters: list[tuple[str, str, bool]]
    versions: list[tuple[str, str]]
    seed: str
    seconds: str


def again_of(model: Any, target: str) -> Again:
    """Describe how to make a model again."""
    code = (
        f"import pandas as pd\n\nfrom dsgp import *\nfrom dsgp.kernels import *\n\n"
        f'table = pd.read_parquet("train.parquet")  # the rows of the fit, which are not kept\n'
        f"y = table.pop({target!r})\n"
        f"model = {called(model)}\n"
        f"model.fit({_inputs(model)}, y)\n"
    )
    if n_updates := getattr(model, "n_updates_", 0):
        code += (
            f"# Rows were then added, by model.update, {count_of(n_updates, 'time')}; these are "
            "not\n# kept either.\n"
        )
    return again_with(model, code)


def again_with(model: Any, code: str) -> Again:
    """Put parameters, versions, seed and seconds beside the code that makes a model again."""
    defaults = type(model)().get_params(deep=False)
    parameters = []
    for key, value in sorted(model.get_params(deep=False).items()):
        text = repr(value)
        changed = text != repr(defaults.get(key))
        parameters.append((key, text if len(text) <= _LONG else f"{text[:_LONG]}…", changed))
    seed = getattr(model, "random_state", None)
    facts = (
        f"random_state={seed!r}"
        if seed is not None
        else "random_state=None: no seed was given; where the method draws random numbers they "
        "differ from fit to fit"
        if "random_state" in defaults
        else "none is needed: the fit draws no random numbers"
    )
    seconds = getattr(model, "fit_seconds_", None) or {}
    return Again(
        code,
        parameters,
        [("Python", platform.python_version()), *_versions()],
        facts,
        ", ".join(f"{stage} {value:.3g} s" for stage, value in seconds.items()),
    )


def _inputs(model: Any) -> str:
    """Write the inputs of a fit: a spline has one column of the table."""
    names: Any = getattr(model, "feature_names_in_", ())
    return f"table[[{str(names[0])!r}]]" if len(names) == 1 else "table"


def called(model: Any, without: Sequence[str] = ()) -> str:
    """Write the call that makes an unfitted model, with all parameters that are no defaults."""
    defaults = type(model)().get_params(deep=False)
    changed = [
        f"    {key}={value!r},\n"
        for key, value in model.get_params(deep=False).items()
        if key not in without and repr(value) != repr(defaults[key])
    ]
    inside = "\n" + "".join(changed) if changed else ""
    return f"{type(model).__name__}({inside})"


def _versions() -> list[tuple[str, str]]:
    facts = []
    for package in _PACKAGES:
        try:
            facts.append((package, version(package)))
        except PackageNotFoundError:  # of a checkout that is not installed
            continue
    return facts
