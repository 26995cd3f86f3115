"""Summaries of fitted additive models, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from dsgp.kernels import Kernel, Product, Sum
from dsgp.models.additive import AdditiveModel
from dsgp.models.base import FittedModel
from dsgp.models.effects import Effect, effects_of, written_effects
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.lengthscales import fine_lines, written_lengthscales
from dsgp.models.pursuit.outcome import SearchFacts
from dsgp.models.remainder import NAME as REMAINDER
from dsgp.models.remainder import RemainderModel
from dsgp.models.response_model import ResponseModel
from dsgp.models.shares import Shares, rounded_percent
from dsgp.models.summary import (
    EFFECT,
    INTERVAL,
    LEGEND,
    LEVEL,
    NOT_ZERO,
    OF_F,
    P_VALUE,
    RESPONSE_LEGEND,
    Summary,
)
from dsgp.models.term import FittedTerm
from dsgp.terms.bound import INTERACTIONS

_LEAST_SHOWN = 0.02  # of the weights, as a share of the largest


def of_gaussian(
    title: str, model: GaussianModel, facts: FitFacts, parameters: Mapping[str, Any]
) -> Summary:
    """Describe a model with Gaussian noise.

    Parameters
    ----------
    title : str
        Its name.
    model : GaussianModel
    facts : FitFacts
    parameters : mapping
        Of the estimator.
    """
    lines = []
    if model.transform is not None:
        lines = [
            (
                "transform",
                f"{model.transform.described()} of the target is modelled: terms, noise and "
                "intercept are on its scale;",
            ),
            ("", "the log likelihood is that of the target, and predictions are in its unit"),
        ]
    if model.basis is not None and model.basis.n_updates:
        times = count_of(model.basis.n_updates, "update")
        lines.append(("updates", f"rows were added to those of the fit in {times}"))
    shares = Shares.of(model.latent)
    return Summary(
        f"{title}: {facts.n_rows} rows, {count_of(len(model.latent.terms), 'term')}",
        terms_table(model.latent, facts.target_variance, shares),
        LEGEND,
        lines + shares.lines(LEVEL) + _gaussian_lines(model.latent, facts, parameters),
    )


def of_response(
    title: str, model: ResponseModel, facts: FitFacts, n_steps: int, parameters: Mapping[str, Any]
) -> Summary:
    """Describe a model with a likelihood; ``n_steps`` are those of Newton's method."""
    latent, likelihood, known = model.latent, model.likelihood, model.facts
    offset = ", with an offset or exposure" if known["offset"] else ""
    exact = "exact determinant" if known["exact_determinant"] else "determinant on coarse spaces"
    fields = {
        "target": f"{known['target']}{offset}",
        "likelihood": f"{likelihood!r}, {likelihood.link_name} link",
        "intercept": f"{latent.intercept:.6g} on the scale of the link",
        "effective dof": f"{facts.effective_dof:.1f} of all terms together",
        "log likelihood": f"{facts.log_marginal_likelihood:.6g} (marginal, by Laplace; {exact})",
        "mode": f"{count_of(n_steps, 'Newton step')}; {parameters['solver']}, error of any "
        f"component at most {facts.error_bound:.2g} prior std (tol {parameters['tol']:g})",
        "learner": f"{facts.learner}, {count_of(facts.n_iter, 'mode')}"
        if facts.learner
        else "none: hyperparameters as given",
        "converged": "yes" if facts.converged else "NO",
        "bins": f"change the function by about {facts.bin_error:.2g} posterior std "
        f"(bins={parameters['bins']!r})"
        if facts.bin_error
        else "none: every distinct value is a point",
        "std of f": latent.std_note,
    }
    shares = Shares.of(latent)
    return Summary(
        f"{title}: {facts.n_rows} rows, {count_of(len(latent.terms), 'term')}",
        terms_table(latent, facts.target_variance, shares),
        RESPONSE_LEGEND,
        [
            *shares.lines(LEVEL),
            *fields.items(),
            *_form_lines(latent),
            *fine_lines(latent),
            *_column_lines(facts),
        ],
    )


def with_projections(
    summary: Summary,
    title: str,
    fitted: Projected,
    legend: tuple[str, ...],
    method: str,
) -> Summary:
    """Add to a summary what the projections are, and how they were found.

    ``method`` is what the projections were found by.
    """
    facts = fitted.search_facts
    search = (
        f"{method}, {len(facts.evidence_trace)} rounds; log evidence {facts.evidence:.6g} "
        f"(Laplace), directions integrated out; the last step gained {facts.search_gain:.2g} nats"
    )
    if facts.search_limited:
        search += "; ended at the limit of projections, not by the evidence"
    directions = _directions_of(fitted.weights)
    n_others = len(summary.terms) - len(directions)
    others = f", other terms: {n_others}" if n_others else ""
    n_rows = fitted.n_rows
    return replace(
        summary,
        terms=summary.terms.assign(direction=[*directions, *([""] * n_others)]),
        heading=f"{title}: {n_rows} rows, projections: {len(directions)}{others}",
        legend=legend,
        nothing="(no projection: a constant explains the target as well)",
        lines=[
            *(line for line in summary.lines if line[0] != "learner"),
            ("search", search),
            ("relevance", _relevance_of(fitted.relevance)),
        ],
    )


@dataclass(frozen=True)
class Projected:
    """What is reported of projections.

    Attributes
    ----------
    n_rows : int
    weights : pandas.DataFrame
        One row per projection, one column per input.
    relevance : pandas.Series
        Share of each input.
    search_facts : SearchFacts
    """

    n_rows: int
    weights: pd.DataFrame
    relevance: pd.Series
    search_facts: SearchFacts


def _directions_of(weights: pd.DataFrame) -> list[str]:
    """Return the largest weights of each projection as text."""
    return [
        " ".join(
            f"{row[name]:+.2f} {name}"
            for name in row.abs().sort_values(ascending=False, kind="stable").index[:3]
            if abs(row[name]) >= _LEAST_SHOWN * row.abs().max()
        )
        for _, row in weights.iterrows()
    ]


def _relevance_of(shares: pd.Series) -> str:
    """Return the most important inputs as text."""
    ranked = shares.sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{name} {share:.1%}" for name, share in ranked.head(8).items())
    rest = f", {len(ranked) - 8} others {ranked.iloc[8:].sum():.1%}"
    return listed + (rest if len(ranked) > 8 else "")


def terms_table(latent: FittedModel, target_variance: float, shares: Shares) -> pd.DataFrame:
    """One row per term: kernel, hyperparameters, effective degrees of freedom, variance shares."""
    low, high = shares.interval(LEVEL)
    effects = effects_of(latent)
    ends = written_effects(effects, latent.terms)
    lengthscales = written_lengthscales([term.kernel for term in latent.terms])
    table = pd.DataFrame(
        [
            {
                "term": term.name,
                "kernel": kernel_name(term),
                "lengthscale": lengthscale,
                "std": term.kernel.std,
                "points": len(term.cells),
                "edf": term.effective_dof,
                "share": term.explained_variance / target_variance,
                **_effect_texts(effect, end),
                OF_F: mean,
                INTERVAL: f"{rounded_percent(first)} to {rounded_percent(last)}",
            }
            for term, effect, end, lengthscale, mean, first, last in zip(
                latent.terms, effects, ends, lengthscales, shares.mean, low, high, strict=False
            )
        ]
        + _remainder_row(latent, target_variance, shares),
        columns=[
            *("term", "kernel", "lengthscale", "std", "points", "edf", "share"),
            *(EFFECT, P_VALUE, NOT_ZERO, OF_F, INTERVAL),
        ],
    )
    return table.set_index("term")


def _effect_texts(effect: Effect, ends: str) -> dict[str, str]:
    """Return the effect of a term as text, and whether it is zero."""
    if math.isnan(effect.lowest):
        return dict.fromkeys((EFFECT, P_VALUE, NOT_ZERO), "–")
    p_value = "–" if math.isnan(effect.p_value) else f"{effect.p_value:.3f}"
    return {
        EFFECT: ends,
        P_VALUE: p_value if effect.p_value >= 0.001 or p_value == "–" else "<0.001",
        NOT_ZERO: effect.verdict,
    }


def _remainder_row(
    latent: FittedModel, target_variance: float, shares: Shares
) -> list[dict[str, Any]]:
    if not isinstance(latent, RemainderModel):
        return []
    one = latent.remainder
    low, high = (rounded_percent(float(ends[-1])) for ends in shares.interval(LEVEL))
    row = {
        "term": REMAINDER,
        "kernel": one.kernel_text,
        "lengthscale": "–",
        "std": math.sqrt(one.function.metric.variance),
        "points": len(one.function.target),
        "edf": math.nan,
        "share": one.function.share / target_variance,
        **dict.fromkeys((EFFECT, P_VALUE, NOT_ZERO), "–"),
        OF_F: float(shares.mean[-1]),
        INTERVAL: f"{low} to {high}",
    }
    return [row]


def kernel_name(term: FittedTerm) -> str:
    """Return the name of the kernel of a term, or its kind where that determines the kernel."""
    if term.bound.kind != "Smooth":
        return str(term.bound.kind)
    return _name_of(term.kernel)


def _name_of(kernel: Kernel) -> str:
    if isinstance(kernel, (Sum, Product)):
        return kernel.sign.join(_name_of(part) for part in kernel.parts)
    return type(kernel).__name__


def _gaussian_lines(
    latent: FittedModel, facts: FitFacts, parameters: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Noise, likelihood, solver and approximations."""
    fields = {
        "intercept": f"{latent.intercept:.6g}",
        "noise std": f"{math.sqrt(facts.noise_variance or 0.0):.6g}",
        "explained variance": f"{_explained(latent, facts):.1%} of the target's",
        "effective dof": f"{facts.effective_dof:.1f} of all terms together",
        "log likelihood": f"{facts.log_marginal_likelihood:.6g} (marginal"
        + (", of the terms without the remainder)" if isinstance(latent, RemainderModel) else ")"),
        "solver": f"{parameters['solver']}, {count_of(facts.solver_iterations)}; error of any "
        f"component at most {facts.error_bound:.2g} prior std (tol {parameters['tol']:g})",
        "learner": f"{facts.learner}, {facts.n_iter} evaluations"
        if facts.learner == "marginal"
        else f"{facts.learner}, {count_of(facts.n_iter)}"
        if facts.learner
        else "none: hyperparameters as given",
        "converged": "yes" if facts.converged else "NO",
        "bins": f"change the function by about {facts.bin_error:.2g} posterior std, and add "
        f"{facts.bin_noise:.2g} of the noise variance to that of the rows "
        f"(bins={parameters['bins']!r})"
        if facts.bin_error
        else "none: every distinct value is a point",
        "std of predictions": latent.std_note,
    }
    return [
        *fields.items(),
        *_form_lines(latent),
        *fine_lines(latent),
        *_column_lines(facts, _remainder_lines(latent)),
    ]


def _remainder_lines(latent: FittedModel) -> list[tuple[str, str]]:
    """List the inputs of the remainder by their lengthscales, the shortest first.

    In standard deviations of the column; for levels, the distance between two different ones.
    """
    if not isinstance(latent, RemainderModel):
        return []
    one = latent.remainder
    lengths = dict(zip(one.columns, one.function.metric.lengthscales, strict=True))
    ranked = sorted(lengths, key=lambda name: lengths[name])
    listed = ", ".join(f"{name} {lengths[name]:.2g}" for name in ranked[:8])
    rest = f" and longer ones in {len(ranked) - 8} others" if len(ranked) > 8 else ""
    return [(REMAINDER, f"lengthscales by standard deviations of the inputs: {listed}{rest}")]


def _form_lines(latent: FittedModel) -> list[tuple[str, str]]:
    """List the kernels other than Matérn that are in state-space form, with its error."""
    lines: list[tuple[str, str]] = []
    for term in latent.terms:
        if term.bound.family == "markov":
            space = term.kernel.state_space_family()(term.kernel)
            error = f"covariance within {space.error:.2g} of its variance"
            lines.append(
                (
                    "" if lines else "kernels",
                    f"{term.name} in state-space form: {count_of(len(space.drift), 'state')}, "
                    f"{error if space.error else 'exact'}",
                )
            )
    return lines


def _column_lines(facts: FitFacts, before: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Notes of the learner, missing values, and columns left out, after lines on the same."""
    by_label: dict[str, list[str]] = {"nodes": [], "notes": [], INTERACTIONS: [], REMAINDER: []}
    for label, text in before:
        by_label[label].append(text)
    for note in facts.learner_notes:
        first = note.partition(": ")[0]
        own = "nodes" if "nodes per term" in note else "notes"
        label = first if first in (INTERACTIONS, REMAINDER) else own
        by_label[label].append(note.removeprefix(f"{label}: "))
    lines = [
        ("" if position else label, text)
        for label, texts in by_label.items()
        for position, text in enumerate(texts)
    ]
    if facts.n_missing:
        counts = ", ".join(f"{name} {n}" for name, n in facts.n_missing.items())
        lines.append(("missing inputs", f"{counts}: they add nothing through that term"))
    if facts.constant_columns:
        lines.append(("left out (constant)", ", ".join(facts.constant_columns)))
    return lines


def count_of(number: int, what: str = "iteration") -> str:
    """Write a number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _explained(latent: FittedModel, facts: FitFacts) -> float:
    """Share of the target's variance that is explained: 1 less that of the residuals."""
    # Rows that have faded count as many as their weight says.
    n_rows = latent.equations.n_rows if isinstance(latent, AdditiveModel) else facts.n_rows
    rows = max(n_rows, 1)
    dof = facts.effective_dof
    if isinstance(latent, RemainderModel):  # its noise includes what the terms have absorbed
        dof = 0.0
    left = latent.row_variance * (1 - dof / rows)
    return max(0.0, 1 - left / facts.target_variance)
