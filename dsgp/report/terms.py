"""The terms of one fitted f: a chart of each, what it does in words, and tables of many levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp.estimators.shares import variance_shares
from dsgp.models.effects import Effect, effects_of, is_coefficient, written_effects
from dsgp.models.lengthscales import written_lengthscales
from dsgp.models.remainder import NAME as REMAINDER
from dsgp.models.report import kernel_name
from dsgp.models.term import FittedTerm
from dsgp.plotting.style import normal_quantile
from dsgp.report.drawing import Drawing, Level, Picture, panels_of_terms, short_name
from dsgp.report.level_charts import shares_chart
from dsgp.report.rendering import Chart, Charts
from dsgp.report.words import as_factors, p_value_of, share_of, with_minus

SHARE_LEVEL = 0.9


@dataclass(frozen=True)
class Term:
    """What a page says of one term.

    Attributes
    ----------
    name, kind, kernel, lengthscale, points, edf : str
    share, interval : str
        Of the variance of f.
    ends, factors : str
        The effect from lowest to highest, and as factors where the scale is that of a logarithm.
    p_value, verdict : str
    chart : Chart or None
        None beyond the charts that a page holds.
    notes : tuple of str
        What the chart shows, and what it leaves out.
    levels : tuple of Level
        All levels, where the chart does not have them; of very many the farthest from zero.
    n_levels : int
        Of all.
    """

    name: str
    kind: str
    kernel: str
    lengthscale: str
    points: str
    edf: str
    share: str
    interval: str
    ends: str
    factors: str
    p_value: str
    verdict: str
    chart: Chart | None = None
    notes: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    n_levels: int = 0


@dataclass(frozen=True)
class Terms:
    """The terms of one f, those that vary most first, and what they have of its variance."""

    terms: list[Term]
    importance: Chart | None
    kinds: list[tuple[str, str]]


def terms_of(model: Any, drawn: Charts, *, effect: str, level: float, most: int) -> Terms:
    """Describe and draw the terms of a fitted model of one f.

    Parameters
    ----------
    model : fitted estimator
        Of one f.
    drawn : Charts
        Charts are added to it.
    effect : str
        What a function is an effect on, for the axes.
    level : float
        Of bands.
    most : int
        Charts of terms at most, those of the largest.
    """
    latent = model.model_.latent
    if not latent.names:
        return Terms([], None, [])
    shares = variance_shares(model, level=SHARE_LEVEL)
    kinds = variance_shares(model, by="kind", level=SHARE_LEVEL)
    effects = effects_of(latent)
    ends = dict(zip(latent.names, written_effects(effects, model.terms_), strict=True))
    kernels = [term.kernel for term in model.terms_]
    names = [term.name for term in model.terms_]
    lengthscales = dict(zip(names, written_lengthscales(kernels), strict=True))
    by_name = dict(zip(latent.names, effects, strict=True))
    fitted = {term.name: term for term in model.terms_}
    # Shares are about the sum: a term that others mostly cancel is large, and its share is not.
    sizes = dict(zip(latent.names, latent.variances, strict=True))
    order = sorted(latent.names, key=lambda name: -sizes[name])
    shown = [fitted[name] for name in order[:most] if name in fitted]
    panels = {
        panel.term.name: panel for panel in panels_of_terms(model, shown, normal_quantile(level))
    }
    drawing = Drawing(model, drawn, effect, level)
    terms = []
    for name in order:
        row = shares.loc[name]
        facts = _facts_of(model, name, fitted.get(name), by_name[name])
        facts |= {
            "ends": _with_unit(ends[name], fitted.get(name)),
            "lengthscale": lengthscales.get(name, "–"),
            "kind": _singular(str(row["kind"])),
            "share": share_of(row["share"]),
            "interval": f"{share_of(row['low'])} to {share_of(row['high'])}",
        }
        picture = drawing.of(panels[name]) if name in panels else Picture()
        terms.append(
            Term(
                **facts,
                chart=picture.chart,
                notes=picture.notes,
                levels=picture.levels,
                n_levels=picture.n_levels,
            )
        )
    written = [
        (str(kind), f"{share_of(row.share)} ({share_of(row.low)} to {share_of(row.high)})")
        for kind, row in zip(kinds.index, kinds.itertuples(), strict=True)
    ]
    return Terms(terms, _importance(drawn, shares), written)


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def _facts_of(model: Any, name: str, term: FittedTerm | None, effect: Effect) -> dict[str, str]:
    """Return what is written of a term in the table."""
    facts = {
        "name": name,
        "factors": "",
        "p_value": p_value_of(effect.p_value),
        "verdict": effect.verdict,
    }
    if term is None:
        kernel = model.model_.latent.remainder.kernel_text if name == REMAINDER else "–"
        blank = dict.fromkeys(("points", "edf"), "–")
        return facts | blank | {"kernel": str(kernel)}
    if not is_coefficient(term):
        facts["factors"] = as_factors(model, effect.lowest, effect.highest)
    return facts | {
        "kernel": kernel_name(term),
        "points": f"{len(term.cells):,}",
        "edf": f"{term.effective_dof:.1f}",
    }


def _with_unit(ends: str, term: FittedTerm | None) -> str:
    """Write minus signs, and the unit of a coefficient."""
    written = with_minus(ends)
    multiplier = None if term is None else term.bound.multiplier
    if term is None or multiplier is None or not is_coefficient(term):
        return written
    return f"{written} per unit of {multiplier.column}"


def _importance(drawn: Charts, shares: Any, most: int = 25) -> Chart:
    """Bars of the shares of the largest terms, and of all others together."""
    shares = shares.sort_values("share", ascending=False, kind="stable")
    some, rest = shares.iloc[:most], shares.iloc[most:]
    names = [short_name(str(name), 34) for name in some.index]
    share, low, high = (some[name].to_numpy(float) for name in ("share", "low", "high"))
    if len(rest):
        names.append(f"{len(rest)} other terms")
        share = np.append(share, float(rest["share"].sum()))
        low, high = np.append(low, np.nan), np.append(high, np.nan)
    return drawn.add(shares_chart(names, share, low, high, SHARE_LEVEL, "f"))
