"""A summary of a fitted model: a table of its terms and lines of text, plain or as HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from html import escape

import pandas as pd

from dsgp.alike import written_alike
from dsgp.models.shares import rounded_percent

# Terms beyond which they are in the order of their size, and not in that of their columns.
MOST_IN_ORDER = 20
# Of the largest prior standard deviation, what is still written with digits.
_LEAST = 1e-3
# Columns of the table.
OF_F, INTERVAL, LEVEL = "of f", "90 % interval", 0.9
EFFECT, P_VALUE, NOT_ZERO = "effect", "p", "not zero"
STD, SHARE = "std", "share"
_FORMATS = {
    "edf": lambda value: "–" if math.isnan(value) else f"{value:.1f}",
    SHARE: "{:.1%}".format,
    OF_F: rounded_percent,
}
_OF_F_LEGEND = (
    "of f: Cov(term, f) / Var(f) over the training rows, which adds up to 100 % and is negative",
    "if a term mostly cancels others; the mean and the 90 % interval of posterior draws;",
)
_EFFECT_LEGEND = (
    "effect: the centred function from its lowest to its highest value, of a straight line two",
    "standard deviations of its column on either side, of a function times a column its",
    "coefficient; p: posterior probability outside the narrowest band for the whole function that",
    "holds zero everywhere; not zero: whether p is below 0.05",
)
LEGEND = (
    "lengthscale (in days for dates) and std (prior standard deviation of the function) are in the",
    "data's units; points: distinct values or bins; edf: effective degrees of freedom;",
    "share: variance of the term / variance of the target (shares add up to more or less than",
    "100 % if terms correlate);",
    *_OF_F_LEGEND,
    *_EFFECT_LEGEND,
)


RESPONSE_LEGEND = (
    "lengthscale is in the column's units (in days for dates), std (prior standard deviation of",
    "the function) on the scale of the link function; points: distinct values or bins; edf:",
    "effective degrees of freedom; share: variance of the term / variance of f over the rows",
    "(shares add up to more or less than 100 % if terms correlate);",
    *_OF_F_LEGEND,
    "rows are weighted by how informative they are about f;",
    *_EFFECT_LEGEND,
)
PROJECTED_LEGEND = (
    "lengthscale: in standard deviations of the projection; std: prior standard deviation of the",
    "function, in units of the target; points: distinct values or bins; edf: effective degrees of",
    "freedom; share: variance of the function / variance of the target (functions may cancel, and",
    "shares add up to more than 100 %); direction: the largest weights of the standardised inputs;",
    *_OF_F_LEGEND,
    *_EFFECT_LEGEND,
)
PROJECTED_RESPONSE_LEGEND = (
    "lengthscale: in standard deviations of the projection; std: prior standard deviation of the",
    "function, on the scale of the link; points: distinct values or bins; edf: effective degrees",
    "of freedom; share: variance of the function / variance of f over the rows, weighted by how",
    "informative they are (functions may cancel, and shares add up to more than 100 %); direction:",
    "the largest weights of the standardised inputs;",
    *_OF_F_LEGEND,
    *_EFFECT_LEGEND,
)


class SummaryText(str):
    """The text of a summary, which notebooks show as a table.

    Parameters
    ----------
    text, html : str
    """

    html: str

    def __new__(cls, text: str, html: str) -> SummaryText:
        made = super().__new__(cls, text)
        made.html = html
        return made

    def __reduce__(self) -> tuple[type[SummaryText], tuple[str, str]]:
        return SummaryText, (str(self), self.html)

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True)
class Summary:
    """What is reported of a model; a class of models may replace some of it, or add to it.

    Attributes
    ----------
    heading : str
    terms : pandas.DataFrame
        One row per term.
    legend : tuple of str
        Lines that explain its columns.
    lines : list of (label, text)
        The rest. A line without a label continues the line before it.
    nothing : str
        Shown if there is no term.
    """

    heading: str
    terms: pd.DataFrame
    legend: tuple[str, ...]
    lines: list[tuple[str, str]]
    nothing: str = "(no term: every column is constant)"

    @property
    def _stds(self) -> list[str]:
        return written_alike(self.terms[STD].tolist(), least=_LEAST)

    def in_order(self) -> Summary:
        """Return it with the terms that vary most first, if there are many."""
        if len(self.terms) <= MOST_IN_ORDER:
            return self
        terms = self.terms.sort_values(SHARE, ascending=False, kind="stable", na_position="last")
        return replace(self, heading=f"{self.heading}; those that vary most first", terms=terms)

    def text(self) -> str:
        """Return it as plain text."""
        table = self.terms.assign(std=self._stds).to_string(formatters=_FORMATS, na_rep="–")
        return "\n".join(
            [
                self.heading,
                "",
                table if len(self.terms) else self.nothing,
                "",
                *self.legend,
                "",
                *(f"{label:<20} {text}" for label, text in self.lines),
            ]
        )

    def html(self) -> str:
        """Return it as HTML for a notebook: the table, and the lines folded below it."""
        head = "".join(f"<th>{escape(str(name))}</th>" for name in ["term", *self.terms.columns])
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(str(name))}</th>'
            + "".join(
                f"<td>{escape(_written(column, value))}</td>"
                for column, value in zip(self.terms.columns, values, strict=True)
            )
            + "</tr>"
            for name, values in zip(
                self.terms.index,
                self.terms.assign(std=self._stds).itertuples(index=False),
                strict=True,
            )
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        lines = "\n".join(f"{label:<20} {text}" for label, text in self.lines)
        return (
            f"<p><strong>{escape(self.heading)}</strong></p>"
            f"{table if len(self.terms) else f'<p>{escape(self.nothing)}</p>'}"
            f"<details><summary>What the columns mean</summary>"
            f"<p>{escape(' '.join(self.legend))}</p></details>"
            f"<details><summary>The fit</summary><pre>{escape(lines)}</pre></details>"
        )

    def both(self) -> SummaryText:
        """Return plain text and HTML, with many terms in order."""
        summary = self.in_order()
        return SummaryText(summary.text(), summary.html())


def _written(column: str, value: object) -> str:
    if isinstance(value, float) and column in _FORMATS:
        return str(_FORMATS[column](value))
    return "–" if isinstance(value, float) and math.isnan(value) else str(value)
