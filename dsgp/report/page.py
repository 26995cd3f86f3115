"""One page of HTML for a fitted model: what it holds, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, StrictUndefined
from sklearn.utils.validation import check_is_fitted

from dsgp.addresses import place_of
from dsgp.errors import ParameterError
from dsgp.estimators.classes import ClassEstimator
from dsgp.estimators.functions import FunctionEstimator
from dsgp.estimators.grid import GridGP
from dsgp.estimators.spline import SmoothingSpline
from dsgp.models.checks import require_level
from dsgp.places import made_aside
from dsgp.plotting.panels import link_of
from dsgp.report.facts import (
    MOST_COLUMNS,
    Caution,
    Column,
    again_of,
    cautions_of,
    columns_of,
    headlines_of,
    parts_of,
    treatment_of,
)
from dsgp.report.grid import grid_page
from dsgp.report.grid_held_out import held_out_cells
from dsgp.report.grid_view import GridView
from dsgp.report.held_out import held_out_of
from dsgp.report.measures import HeldOut
from dsgp.report.rendering import Charts, scripts, versions
from dsgp.report.spline import (
    cautions_of_spline,
    columns_of_spline,
    function_of,
    headlines_of_spline,
    treatment_of_spline,
)
from dsgp.report.terms import Terms, terms_of
from dsgp.report.words import factor_of

# What is written in pages, by which they are known as ours.
MADE_BY = "dsgp report"
# Notes on held-out rows that are warnings.
_WARNED_OF = ("too narrow", "worse than")
# Charts of terms on a page at most, of all classes together.
MOST_CHARTS = 100


@dataclass(frozen=True)
class _Part:
    """The terms of one f, and how its sections are named."""

    of: str
    suffix: str
    terms: Terms
    legend: str


def report_page(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    target: str | None = None,
    title: str | None = None,
    level: float = 0.95,
    extra: Mapping[str, Any] | None = None,
) -> str:
    """Return the page of a fitted model as text; see ``write_report``."""
    check_is_fitted(model)
    if not isinstance(model, (FunctionEstimator, ClassEstimator, SmoothingSpline)):
        raise ParameterError(
            f"a report is of a model of terms, such as AdditiveGPRegressor, a SmoothingSpline or a "
            f"GridGP, got {type(model).__name__}; its summary() describes it in text"
        )
    require_level("level", level)
    if (X is None) != (y is None):
        raise ParameterError(
            "held-out rows need both X and y: pass the table and its targets, or neither"
        )
    given = {role: value for role, value in (extra or {}).items() if value is not None}
    if X is None and given:
        raise ParameterError(f"{', '.join(given)} belong to held-out rows: pass X and y, too")
    if target is None:
        target = y if isinstance(y, str) else getattr(y, "name", None) or "the target"
    drawn = Charts()
    held_out = None if X is None else held_out_of(model, X, y, given, drawn, target)
    if isinstance(model, SmoothingSpline):
        return _spline_page(model, target, title, level, held_out, drawn)
    estimators = parts_of(model)
    effect = _effect(model, target)
    parts = []
    for k, (label, part) in enumerate(estimators):
        terms = terms_of(
            part, drawn, effect=effect, level=level, most=max(MOST_CHARTS // len(estimators), 1)
        )
        of = "" if label is None else f": class {label}"
        parts.append(_Part(of, f"-{k}" if k else "", terms, _legend(terms)))
    return _rendered(model, target, title, level, held_out, parts, drawn)


def _legend(terms: Terms) -> str:
    n_without = sum(term.chart is None for term in terms.terms)
    names = [term.name for term in terms.terms if term.chart is None]
    if not n_without or names == ["remainder"]:
        return ""
    return f"The {n_without} smallest terms have no chart here; model.components(X) evaluates them."


def _effect(model: Any, target: str) -> str:
    part = parts_of(model)[0][1]
    link = link_of(part)
    transform = getattr(part, "transform_", None)
    if link is not None:
        return f"effect on f ({link} link)"
    return f"effect on {target}" + ("" if transform is None else f" ({transform.name})")


def _rendered(
    model: Any,
    target: str,
    title: str | None,
    level: float,
    held_out: HeldOut | None,
    parts: list[_Part],
    drawn: Charts,
) -> str:
    all_terms = [term for part in parts for term in part.terms.terms]
    first = parts_of(model)[0][1]
    link, transform = link_of(first), getattr(first, "transform_", None)
    unclear = list(dict.fromkeys(term.name for term in all_terms if term.verdict == "unclear"))
    if len(parts) > 1:  # a term is zero where it is of no class
        clear = {term.name for term in all_terms if term.verdict == "yes"}
        unclear = [name for name in unclear if name not in clear]
    n_terms = len({term.name for term in all_terms})
    return _page(
        model,
        target,
        title,
        held_out,
        drawn,
        lead=_lead(model, target),
        headlines=headlines_of(model, n_terms),
        cautions=cautions_of(model, unclear, n_terms),
        sections=[
            item
            for part in parts
            for item in (
                (f"importance{part.suffix}", f"What matters{part.of}"),
                (f"terms{part.suffix}", f"Terms{part.of}"),
            )
        ],
        columns=columns_of(model),
        treatment=treatment_of(model),
        again=again_of(model, target),
        parts=parts,
        factor=factor_of(first),
        scale=_scale(link, transform),
        formula="f = intercept + one function of each term"
        + (f", and {link}(mean) = f" if link is not None else ""),
        effect_of=f"f, {_scale(link, transform)}" if link or transform else target,
        level=f"{level:.0%}",
    )


def _spline_page(
    model: SmoothingSpline,
    target: str,
    title: str | None,
    level: float,
    held_out: HeldOut | None,
    drawn: Charts,
) -> str:
    columns = columns_of_spline(model)
    return _page(
        model,
        target,
        title,
        held_out,
        drawn,
        lead=f"How {target} depends on {columns[0].name}, learned from {model.n_rows_:,} rows.",
        headlines=headlines_of_spline(model),
        cautions=cautions_of_spline(model),
        sections=[("function", "The function")],
        columns=columns,
        treatment=treatment_of_spline(model),
        again=again_of(model, target),
        function=function_of(model, drawn, target, level),
    )


def grid_report_page(
    model: GridGP,
    held_out: Any = None,
    *,
    posterior: Any = None,
    observed: Any = None,
    target: str | None = None,
    title: str | None = None,
    level: float = 0.95,
) -> str:
    """Return the page of a fitted model of a field as text; see ``GridGP.report``."""
    check_is_fitted(model)
    require_level("level", level)
    view = GridView.of(model, posterior, observed)
    if target is None:
        target = view.quantity
    drawn = Charts()
    accuracy = None if held_out is None else held_out_cells(model, view, held_out, drawn, target)
    parts = grid_page(model, view, drawn, target, level)
    return _page(model, target, title, accuracy, drawn, unit="cells", **parts)


def _page(
    model: Any,
    target: str,
    title: str | None,
    held_out: HeldOut | None,
    drawn: Charts,
    *,
    headlines: list[tuple[str, str]],
    cautions: list[Caution],
    sections: list[tuple[str, str]],
    columns: list[Column],
    unit: str = "rows",
    **more: Any,
) -> str:
    """Write what pages of all models have around what is of one kind of model."""
    if held_out is not None:
        headlines = [*headlines, held_out.headline]
        cautions = [
            *(Caution(note, any(text in note for text in _WARNED_OF)) for note in held_out.notes),
            *cautions,
        ]
    else:
        cautions = [
            *cautions,
            Caution(
                f"How well the model predicts new {unit} is not part of this page: it was made "
                f"without held-out {unit}."
            ),
        ]
    source = files("dsgp.report") / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string((source / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title or f"{type(model).__name__} of {target}",
        made_by=MADE_BY,
        drawn_by=versions()
        + (f", maps by Matplotlib {mpl.__version__}" if more.get("grid") else ""),
        date=datetime.now(UTC).strftime("%d %B %Y"),
        style=(source / "style.css").read_text(encoding="utf-8"),
        script=(source / "page.js").read_text(encoding="utf-8"),
        library=scripts(),
        specs=drawn.specs,
        headlines=headlines,
        sections=[
            ("notes", "What to know first"),
            *([("held-out", "Accuracy")] if held_out is not None else []),
            *sections,
            ("data", "Data"),
            ("fit", "Fit"),
            ("again", "Make it again"),
        ],
        cautions=cautions,
        held_out=held_out,
        columns=columns[:MOST_COLUMNS],
        n_more_columns=max(len(columns) - MOST_COLUMNS, 0),
        summary=str(model.summary()),
        **{"parts": [], "function": None, "grid": None, **more},
    )


def _scale(link: str | None, transform: Any) -> str:
    if link is not None:
        return f"on the scale of the {link} link"
    if transform is not None:
        return f"on the scale of the transform {transform.name}"
    return "which is the prediction"


def _lead(model: Any, target: str) -> str:
    what = f"How {target} depends on {model.n_features_in_:,} columns"
    if isinstance(model, ClassEstimator):
        shown = [str(label) for label in model.classes_]
        if len(shown) == 2:
            return (
                f"{what}: effects above zero make “{shown[1]}” more probable, against “{shown[0]}”."
            )
        return f"{what}: the classes are {', '.join(shown[:12])}{', …' if len(shown) > 12 else ''}."
    return f"{what}, learned from {model.n_rows_:,} rows."


def write_report(
    model: Any,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    target: str | None = None,
    title: str | None = None,
    level: float = 0.95,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write the page of a fitted model; ``report`` of estimators describes the parameters.

    Parameters
    ----------
    model, X, y, target, title, level
        As for ``AdditiveGPRegressor.report``.
    path : str or Path
        A file that ends in ``.html``. What is there is replaced.
    extra : mapping
        Offset, exposure and trials of the held-out rows.
    """
    require_ending(path)
    _write(path, report_page(model, X, y, target=target, title=title, level=level, extra=extra))


def write_grid_report(
    model: GridGP, path: str | Path, held_out: Any = None, **options: Any
) -> None:
    """Write the page of a fitted model of a field; ``GridGP.report`` describes the parameters."""
    require_ending(path)
    _write(path, grid_report_page(model, held_out, **options))


def _write(path: str | Path, text: str) -> None:
    with made_aside(place_of(str(path))) as aside:
        aside.write_text(text, encoding="utf-8")


def require_ending(path: str | Path) -> None:
    """Raise ``ParameterError`` if a page cannot be saved under a name."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"a report is saved as .html, got {str(path)!r}")
