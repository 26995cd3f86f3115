"""Pictures of terms: from evaluated panels to charts, and tables of levels that these leave out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp.models.effects import is_coefficient
from dsgp.models.term import FittedTerm
from dsgp.plotting.curve_panels import CurvesPanel, curves_panel
from dsgp.plotting.inputs import seen_inputs
from dsgp.plotting.level_panels import LevelsPanel, levels_panel
from dsgp.plotting.pair_panels import MapPanel, pair_panel
from dsgp.plotting.panels import Panel, bin_edges, panels_of
from dsgp.report.curve_charts import curve, curves, few_values
from dsgp.report.level_charts import levels, surface, table_of_levels
from dsgp.report.marks import Spec, axis_of, date_axis, distinct
from dsgp.report.rendering import Chart, Charts
from dsgp.report.words import number, signed_alike, significant
from dsgp.terms import Floats
from dsgp.terms.inputs import MONTHS, WEEKDAYS, Input

# Values along a curve, at least and at most; between them so many for a degree of freedom.
_POINTS, _MOST_POINTS, _PER_DEGREE = 100, 400, 4
# Levels in a chart; of more those with the lowest and the highest effects.
MOST_LEVELS = 30
# Levels in a table; of more likewise.
_MOST_LISTED = 3000
# Every how many of a map's values there is a cell.
_EVERY = 2
_DAY = 86_400_000  # milliseconds


@dataclass(frozen=True)
class Level:
    """A row of a table of levels."""

    name: str
    rows: str
    effect: str
    low: str
    high: str


def short_name(name: str, width: int) -> str:
    """Shorten a name in its middle."""
    if len(name) <= width:
        return name
    return f"{name[: width // 2]}…{name[-(width - width // 2 - 1) :]}"


AnyPanel = Panel | LevelsPanel | CurvesPanel | MapPanel


def panels_of_terms(model: Any, terms: list[FittedTerm], z: float) -> list[AnyPanel]:
    """Evaluate terms; each curve is cut in its tails by itself, as its chart has its own scale."""
    panels: list[AnyPanel] = []
    for term in terms:
        if term.bound.other is not None:
            panels.append(pair_panel(model, term, _POINTS, z))
        elif term.bound.group is not None:
            panels.append(curves_panel(model, term, _POINTS, z))
        elif term.bound.family in ("axis", "markov", "dense", "constant"):
            wanted = math.ceil(_PER_DEGREE * term.effective_dof)
            n_points = min(max(wanted, _POINTS), _MOST_POINTS)
            panels += panels_of(model, [term], seen_inputs(model, [term], None), n_points, z)
        else:
            panels.append(levels_panel(model, term, z))
    return panels


@dataclass(frozen=True)
class Picture:
    """A chart, what to know of it, and the levels that it leaves out."""

    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    n_levels: int = 0


@dataclass(frozen=True)
class Drawing:
    """Draws panels."""

    model: Any
    drawn: Charts
    effect: str
    level: float

    def of(self, panel: AnyPanel) -> Picture:
        """Draw the chart of a term."""
        if isinstance(panel, MapPanel):
            return self._map(panel)
        if isinstance(panel, CurvesPanel):
            return self._curves(panel)
        if isinstance(panel, LevelsPanel):
            return self._levels(panel)
        return self._curve(panel)

    def _axis(self, read: Input | None, title: str, inputs: Floats) -> tuple[Spec, float]:
        """Return the encoding of inputs along an axis, and what they are multiplied by."""
        kind = None if read is None else self.model._columns.kinds.get(read.column)
        if read is None or kind is None or not kind.is_date or read.part is not None:
            return axis_of(None, title, inputs), 1.0
        if read.period == "year":
            return axis_of(_ticks(_month_starts(), MONTHS, 3), title), 1.0
        if read.period == "week":
            return axis_of(_ticks([k + 0.5 for k in range(7)], WEEKDAYS, 3), title), 1.0
        if read.period == "day":
            hours = [f"{hour}:00" for hour in range(0, 25, 4)]
            return axis_of(_ticks([k / 6 for k in range(7)], hours, 5), title), 1.0
        return date_axis(title, float(np.ptp(inputs))), float(_DAY)

    def _y(self, term: FittedTerm) -> str:
        multiplier = term.bound.multiplier
        if is_coefficient(term) and multiplier is not None:
            return f"{self.effect}, per unit of {multiplier.column}"
        return self.effect

    def _curve(self, panel: Panel) -> Picture:
        bound = panel.term.bound
        read = bound.value or bound.multiplier
        axis, unit = self._axis(read, _title(read, panel.term.name), panel.inputs)
        y = self._y(panel.term)
        shared: dict[str, Any] = {
            "axis": axis,
            "y": y,
            "level": self.level,
            "is_clear": panel.is_clear,
        }
        x = unit * panel.inputs
        notes = [] if panel.is_clear else [self._grey]
        if panel.few:
            spec = few_values(x, panel.mean, panel.low, panel.high, **shared)
            return Picture(self.drawn.add(spec), tuple(notes))
        low, high = float(panel.inputs[0]), float(panel.inputs[-1])
        inside = (panel.points >= low) & (panel.points <= high)
        bars = (np.zeros(0), np.zeros(0))
        if bound.family != "constant" and inside.any():
            edges = bin_edges(panel.points[inside], low, high)
            counts, edges = np.histogram(panel.points[inside], edges, weights=panel.weight[inside])
            bars = unit * np.clip(edges, low, high), counts.astype(np.float64)
        weight = float(panel.weight[~inside].sum() / panel.weight.sum())
        if weight > 0 and bound.family != "constant":
            notes.append(
                f"{weight:.2%} of the rows lie beyond what is drawn, in long tails, where the "
                "curve is little known. The effect above, from lowest to highest, includes them."
            )
        spec = curve(x, panel.mean, panel.low, panel.high, bars, **shared)
        return Picture(self.drawn.add(spec), tuple(notes))

    @property
    def _grey(self) -> str:
        return (
            f"Grey: the {self.level:.0%} band holds zero everywhere, so there is no clear effect."
        )

    def _levels(self, panel: LevelsPanel) -> Picture:
        n = len(panel.mean)
        shown = np.arange(n)
        notes = [] if panel.is_clear else [self._grey]
        listed: tuple[Level, ...] = ()
        half = MOST_LEVELS // 2
        if n > MOST_LEVELS:
            ranked = np.argsort(panel.mean, kind="stable")
            shown = np.concatenate([ranked[:half], ranked[-half:]])
            rest = "all" if n <= _MOST_LISTED else f"the {_MOST_LISTED:,} farthest from zero"
            notes.append(
                f"The {half} lowest and the {half} highest of {n:,} levels; on a screen, the table "
                f"below has {rest}."
            )
            listed = _listed(panel)
        names = [short_name(panel.names[k], 26) for k in shown]
        mean, low, high = panel.mean[shown], panel.low[shown], panel.high[shown]
        if listed:  # a gap where the others would be
            names.insert(half, "…")
            mean, low, high = (np.insert(each, half, np.nan) for each in (mean, low, high))
        spec = levels(
            names, mean, low, high,
            x=self._y(panel.term), name=panel.term.name, level=self.level, is_clear=panel.is_clear,
        )  # fmt: skip
        return Picture(self.drawn.add(spec), tuple(notes), listed, n)

    def _curves(self, panel: CurvesPanel) -> Picture:
        bound = panel.term.bound
        reads = [read for read in (bound.value, bound.other, bound.multiplier) if read is not None]
        along = [read for read in reads if panel.along.startswith(read.column)]
        some = panel.curves
        axis, unit = self._axis(along[0] if along else None, panel.along, some[0].inputs)
        spec = curves(
            distinct([short_name(one.name, 18) for one in some]),
            [unit * one.inputs for one in some], [one.mean for one in some],
            [one.low for one in some], [one.high for one in some],
            axis=axis, y=self._y(panel.term), level=self.level,
        )  # fmt: skip
        notes = [f"A curve for each value of {panel.by}."]
        if len(some) < panel.n_levels:
            notes = [f"The {len(some)} of {panel.n_levels:,} values of {panel.by} with most rows."]
        if not panel.is_clear:
            notes.append("No clear effect: all bands hold zero everywhere.")
        return Picture(self.drawn.add(spec), tuple(notes))

    def _map(self, panel: MapPanel) -> Picture:
        bound = panel.term.bound
        titles = (_title(bound.value, ""), _title(bound.other, ""))
        notes = [f"Pale: the {self.level:.0%} band holds zero. Grey: no rows near."]
        y = self._y(panel.term)
        if panel.names[0]:
            short = tuple([short_name(name, 18) for name in names] for names in panel.names)
            spec = table_of_levels(
                (short[0], short[1]), panel.mean, panel.low, panel.high,
                titles=titles, y=y, level=self.level,
            )  # fmt: skip
            return Picture(self.drawn.add(spec), tuple(notes))
        axes, inputs = [], []
        for read, values, title in zip(
            (bound.value, bound.other), (panel.first, panel.other), titles, strict=True
        ):
            axis, unit = self._axis(read, title, values)
            axes.append(axis)
            inputs.append(unit * values[::_EVERY])
        some = (slice(None, None, _EVERY),) * 2
        if not np.isfinite(panel.mean[some]).any():  # rows in few places, between those kept
            some, inputs = (slice(None),) * 2, [panel.first, panel.other]
        spec = surface(
            inputs[0], inputs[1], panel.mean[some], panel.low[some], panel.high[some],
            axes=(axes[0], axes[1]), y=y, level=self.level,
        )  # fmt: skip
        return Picture(self.drawn.add(spec, as_pixels=True), tuple(notes))


def _listed(panel: LevelsPanel) -> tuple[Level, ...]:
    """Rows of a table of levels, lowest effects first; of very many the farthest from zero."""
    chosen = np.argsort(-np.abs(panel.mean), kind="stable")[:_MOST_LISTED]
    chosen = chosen[np.argsort(panel.mean[chosen], kind="stable")]
    total = float(panel.weight.sum())
    numbers = np.stack([panel.mean[chosen], panel.low[chosen], panel.high[chosen]], axis=1)
    written = signed_alike(numbers.ravel().tolist())
    return tuple(
        Level(
            panel.names[k],
            _fine_share(float(panel.weight[k] / total)),
            *written[3 * position : 3 * position + 3],
        )
        for position, k in enumerate(chosen)
    )


def _fine_share(share: float) -> str:
    return f"{100 * share:.2g}%"


def _title(read: Input | None, otherwise: str) -> str:
    """Name an axis by what is read along it."""
    if read is None or otherwise.startswith("projection"):
        return otherwise
    if read.part is not None:
        return f"{read.column} ({read.part})"
    if read.period is not None:
        return f"{read.column} (within {_period(read.period)})"
    return read.column


def _period(period: float | str) -> str:
    return f"the {period}" if isinstance(period, str) else f"a period of {number(float(period))}"


def _month_starts() -> Floats:
    """Days of a leap year at which months begin."""
    return np.cumsum([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30]).astype(np.float64)


def _ticks(values: Sequence[float] | Floats, names: Sequence[str], length: int) -> Spec:
    """Return an axis with names of some places: no text of a user is part of the expression."""
    places = [significant(float(value)) for value in values]
    shown = " : ".join(
        f"abs(datum.value - {place}) < 1e-3 ? '{name[:length]}'"
        for place, name in zip(places, names, strict=True)
    )
    return {"axis": {"values": places, "labelExpr": f"{shown} : ''"}}
