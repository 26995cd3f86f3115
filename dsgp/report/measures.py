"""What a page says of held-out rows: measures and figures."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from dsgp.report.rendering import Chart


@dataclass(frozen=True)
class Measure:
    """A measure of all held-out rows, and that of predicting a constant."""

    name: str
    value: str
    constant: str
    meaning: str


@dataclass(frozen=True)
class Figure:
    """A chart with its title, and what to look for."""

    title: str
    chart: Chart
    text: str


@dataclass(frozen=True)
class HeldOut:
    """What a page says of held-out rows.

    Attributes
    ----------
    n_rows : int
        Or cells of a grid; ``unit`` says which.
    headline : tuple of (str, str)
        The most informative measure: its name and its value.
    measures : list of Measure
    coverage : list of (nominal, observed)
        Of intervals, as text.
    figures : list of Figure
    notes : list of str
        What to be careful of, in whole sentences.
    table : DataFrame or None
        Rows by their class and the class predicted.
    unit : {"rows", "cells"}
    """

    n_rows: int
    headline: tuple[str, str]
    measures: list[Measure]
    coverage: list[tuple[str, str]]
    figures: list[Figure]
    notes: list[str]
    table: pd.DataFrame | None = None
    unit: str = "rows"
