"""How the learner's likelihood, or its bound, grew."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from sklearn.utils.validation import check_is_fitted

from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.style import ACCENT, INK, frame, write_below
from dsgp.terms import Floats

# Nats by which the likelihood drawn may differ from that of summary() unmentioned.
_APART = 0.05


def plot_learning(model: Any) -> Figure:
    """Draw the objective of the learner after each step, and what each step gained.

    ``learner="marginal"``: the log marginal likelihood by its nodes, at every evaluation that was
    the best so far. ``learner="vbem"``: the variational bound after each iteration; after a gain
    below the tolerance it searches once more from other initial lengthscales, so that gains may
    rise again, and ends when that search gains little as well. ``learner="em"``: the same bound,
    until no gradient of it is above the tolerance. For a ``ProjectionPursuitGPRegressor``: the
    evidence against the number of projections, at every step of the search.

    Parameters
    ----------
    model : fitted estimator
        With ``learner_trace_`` and ``learner_tol``, or ``evidence_trace_``.

    Returns
    -------
    Figure

    Raises
    ------
    ParameterError
        If the model was fitted without a learner, or has functions for each class.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_learning
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> figure = plot_learning(AdditiveGPRegressor().fit(X, y))
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['evaluation', 'evaluation']
    """
    check_is_fitted(model)
    model = model_of_terms(model)
    if hasattr(model, "evidence_trace_"):
        return _draw_search(model)
    trace = np.asarray(model.learner_trace_, dtype=np.float64)
    if len(trace) == 0:
        raise ParameterError(
            f"the model was fitted with learner={model.learner!r}: there is no learning to draw"
        )
    fig = DisplayedFigure((6.6, 3.0), layout="constrained")
    bound, gain = fig.subplots(1, 2)
    bound.plot(np.arange(len(trace)), trace, "o-", color=INK, markersize=3.5, linewidth=1.2)
    bayes = model.learner_ in ("vbem", "em")
    what = "variational lower bound" if bayes else "log marginal likelihood"
    bound.set_ylabel("bound (nats)" if bayes else "log likelihood (nats)", fontsize=9)
    bound.set_title(f"{what}: {trace[-1]:.6g}".replace("-", "−"), fontsize=8.5)

    gains = np.diff(trace)
    iterations = np.arange(1, len(trace))
    positive = gains > 0  # a last iteration may gain nothing, which a logarithm cannot show
    gain.plot(iterations[positive], gains[positive], "o-", color=INK, markersize=3.5, linewidth=1.2)
    gain.set_ylabel("gain (nats)", fontsize=9)
    shown = gains[positive]
    if model.learner_ == "vbem":
        gain.axhline(model.learner_tol, color=ACCENT, linewidth=1.0, linestyle="--")
        gain.set_title(f"tolerance {model.learner_tol:g}", fontsize=8.5, color=ACCENT)
        shown = np.append(shown, model.learner_tol)
    _scale_by_decades(gain, shown)
    for ax in (bound, gain):
        ax.set_xlabel("iteration" if bayes else "evaluation", fontsize=9)
        ax.set_xlim(-0.5, len(trace) - 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        frame(ax)
    notes = {
        "vbem": "A gain below the tolerance is followed by one more search from other initial "
        "lengthscales; the run ends when that gains as little.",
        "em": "Small gains mean small steps, not an optimum: the run ends when no gradient "
        f"is above {model.learner_tol:g} nats.",
    }
    note = notes.get(
        str(model.learner_),
        "Only evaluations that improved on all before are shown. At a jump the search began again "
        "from other lengthscales; it ends when no derivative is above "
        f"{model.learner_tol:g} nats, the unit of natural logarithms.",
    )
    fitted = getattr(model, "log_marginal_likelihood_", trace[-1])
    if not bayes and abs(fitted - trace[-1]) >= _APART:
        value = f"{fitted:.6g}".replace("-", "−")
        note += f" The likelihood is that at the learner's nodes; the fitted model has {value}."
    write_below(fig, note, fig.get_figwidth())
    return fig


def _draw_search(model: Any) -> Figure:
    """Evidence, and what it is short of the best, against the number of projections."""
    terms, value = np.array(model.evidence_trace_, dtype=np.float64).reshape(-1, 2).T
    if not len(terms):
        raise ParameterError("the model has no trace of a search: there is nothing to draw")
    kept = model.n_projections_
    fig = DisplayedFigure((6.6, 3.0), layout="constrained")
    evidence, gap = fig.subplots(1, 2)
    evidence.plot(terms, value, "o-", color=INK, markersize=3.5, linewidth=0.8)
    evidence.set_ylabel("log marginal likelihood (nats)", fontsize=9)
    evidence.set_title(f"highest: {value.max():.6g}".replace("-", "−"), fontsize=8.5)
    short = value.max() - value
    below = short > 0  # which a logarithm can show
    gap.plot(terms[below], short[below], "o", color=INK, markersize=3.5)
    gap.set_ylabel("below the highest (nats)", fontsize=9)
    gap.set_title(f"model: {kept} projection{'' if kept == 1 else 's'}", fontsize=8.5, color=ACCENT)
    _scale_by_decades(gap, short[below])
    for ax in (evidence, gap):
        ax.axvline(kept, color=ACCENT, linewidth=1.0, linestyle="--", zorder=1)
        ax.set_xlabel("projections", fontsize=9)
        ax.set_xlim(terms.min() - 0.5, terms.max() + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        frame(ax)
    note = (
        "Log marginal likelihood of the residual that each projection was fitted to. Rows held "
        "out decide how many are kept (dashed)."
        if getattr(model, "method", None) == "greedy"
        else "Steps of the search in their order: projections are added, refitted and removed. "
        "Dashed: the model that is kept. To the right, on a logarithmic scale, the highest itself "
        "has no place. Nats are units of natural logarithms."
    )
    write_below(fig, note, fig.get_figwidth())
    return fig


def _scale_by_decades(ax: Axes, values: Floats) -> None:
    """Scale logarithmically; over few decades with plain numbers, and over at least one."""
    ax.set_yscale("log")
    low, high = (values.min(), values.max()) if len(values) else (1.0, 1.0)
    few = high <= 100 * low
    if few:
        middle, reach = np.sqrt(low * high), max(1.3 * np.sqrt(high / low), np.sqrt(10.0))
        ax.set_ylim(middle / reach, middle * reach)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=7))
    ax.yaxis.set_minor_locator(NullLocator())
