"""Panels of levels: their effects, sorted, with intervals; curves of them are next door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dsgp.compute import one_blas_thread
from dsgp.models.term import FittedTerm
from dsgp.plotting.panels import draw_intervals, wider
from dsgp.plotting.style import FAINT, INK, label, short_name, short_names
from dsgp.terms import Floats

# Levels that have their names beside them, at most; above so many the names are small and upright.
_NAMED, _SLANTED = 24, 10
NAME_LENGTH = 16


@dataclass(frozen=True)
class LevelsPanel:
    """Effects of levels, in ascending order; of parts of dates in the order of these.

    Attributes
    ----------
    term : FittedTerm
    names : list of str
    weight, mean, low, high : ndarray of shape (n_levels,)
        Borders are those of the wider intervals, if there are two of each.
    inner : ndarray of shape (2, n_levels), optional
        Borders of the narrower ones.
    """

    term: FittedTerm
    names: list[str]
    weight: Floats
    mean: Floats
    low: Floats
    high: Floats
    few: bool = True
    inner: Floats | None = None

    @property
    def cell_inputs(self) -> Floats:
        """Inputs of the term's cells that the panel shows."""
        return self.term.cells.points

    def widened(self, factor: float, keep: bool) -> LevelsPanel:
        """Return the panel with wider intervals; ``keep`` the old ones within them."""
        (low, high), inner = wider(self.mean, self.low, self.high, factor)
        return replace(self, low=low, high=high, inner=inner if keep else None)

    @property
    def is_clear(self) -> bool:
        """Whether the interval of an effect excludes zero."""
        return bool(np.any((self.low > 0) | (self.high < 0)))

    def draw(self, ax: Axes, level: float) -> None:
        """Draw a point with its interval for each level, lowest first."""
        place = np.arange(len(self.mean), dtype=np.float64)
        many = len(place) > _NAMED
        colour, size = INK if self.is_clear else FAINT, 1.2 if many else 2.4
        draw_intervals(ax, self, place, level, colour, size=size, thin=many)

    @property
    def effects(self) -> Floats:
        """All effects that are drawn."""
        return self.mean

    @property
    def room_below(self) -> float:
        """Inches that names take below the panel, beyond those of numbers."""
        longest = max(map(len, short_names(self.names, NAME_LENGTH)))
        return 0.05 * longest if len(self.names) <= _NAMED else 0.0

    def write_inputs(self, ax: Axes, width: int) -> None:
        """Write the names of the levels where they are few, else how many there are."""
        n = len(self.mean)
        if n > _NAMED:
            ends = (
                f"{short_name(self.names[k], NAME_LENGTH)} {self.mean[k]:+.2g}" for k in (0, -1)
            )
            text = f"{n} levels, from {' to '.join(ends)}".replace("-", "−")
            ax.set_xlabel(label(text, width), fontsize=7.5, parse_math=False)
            ax.set_xticks([])
        else:
            ax.set_xticks(np.arange(n), short_names(self.names, NAME_LENGTH))
            ax.tick_params(
                axis="x",
                labelrotation=60 if n <= _SLANTED else 90,
                labelsize=7 if n <= _SLANTED else 6,
            )
            for tick in ax.get_xticklabels():
                tick.set_horizontalalignment("right")
                tick.set_verticalalignment("top" if n <= _SLANTED else "center")
                tick.set_rotation_mode("anchor")
                tick.set_parse_math(False)
        ax.set_xlim(-0.7, n - 0.3)


def levels_panel(model: Any, term: FittedTerm, z: float) -> LevelsPanel:
    """Evaluate the effects of all levels of a term."""
    points = term.cells.points
    mean, std = moments(model, term, points)
    value = term.bound.value
    assert value is not None
    # Days of the week and the like have an order of their own.
    order = np.arange(len(mean)) if value.part else np.argsort(mean, kind="stable")
    column = points if points.ndim == 1 else points[:, 0]
    kind = model._columns.kinds.get(value.column)
    labels = () if kind is None else kind.labels
    names = [value.label(float(column[k]), labels) for k in order]
    mean, reach = mean[order], z * std[order]
    return LevelsPanel(term, names, term.weight[order], mean, mean - reach, mean + reach)


def moments(model: Any, term: FittedTerm, inputs: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of a centred component at inputs."""
    position = [fitted_term.name for fitted_term in model.terms_].index(term.name)
    with one_blas_thread():
        variance = model._rows_model.posterior.centred_variance(position, inputs)
    return term.mean(inputs) - term.centre, np.sqrt(variance)
