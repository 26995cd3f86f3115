"""Pages for a report: what matters and the main effects, then the interactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.plotting.components import plot_components
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.importance import plot_importance
from dsgp.plotting.projections import plot_projections
from dsgp.plotting.style import TEXT
from dsgp.terms.bound import INTERACTIONS, MAIN_EFFECTS, PROJECTIONS

# Inches of a page (A4, upright); terms on a page at most, and of those bars on the first.
_WIDTH, _HEIGHT = 8.27, 11.69
_PANELS, _BARS = 12, 14
# What is written in files, by which they are known as ours.
MADE_BY = "dsgp plot"


def plot_report(
    model: Any,
    path: str | Path | None = None,
    *,
    target: str | None = None,
    level: float = 0.95,
    title: str | None = None,
) -> list[Figure]:
    """Draw the pages of a report: importance and main effects, then interactions.

    The first page has the shares of the terms (``plot_importance``) above the largest main effects
    (``plot_components``), the second one the largest interactions. Of a projection pursuit model
    the second page has the projections (``plot_projections``). A model without interactions or
    projections has one page.

    Parameters
    ----------
    model : fitted model of terms
        Of regression, with a likelihood, a classifier of two classes or one of the ``estimators_``
        of more.
    path : str or Path, optional
        Save the pages: one file that ends in ``.pdf``, or, for a name that ends in ``.png``, one
        for each page, ``name-1.png`` and so on. What is there is replaced.
    target : str, optional
        Name and unit of the target, for the labels.
    level : float in (0, 1)
        Posterior probability of bands; intervals of shares have 90 %.
    title : str, optional
        Above the first page; by default the class of the model and its numbers of rows and terms.

    Returns
    -------
    list of Figure

    Raises
    ------
    ParameterError
        If the model has no terms or functions for each class, or the path ends otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> from dsgp.plotting import plot_report
    >>> rng = np.random.default_rng(0)
    >>> X = {"a": rng.uniform(-1, 1, 200), "b": rng.uniform(-1, 1, 200)}
    >>> y = X["a"] * X["b"] + X["a"] + 0.1 * rng.standard_normal(200)
    >>> model = AdditiveGPRegressor(interactions=[("a", "b")]).fit(X, y)
    >>> len(plot_report(model))
    2
    >>> plot_report(model, "report.pdf")  # doctest: +SKIP
    """
    if path is not None:
        require_ending(path)
    model = model_of_terms(model)
    if not model.model_.latent.names:
        raise ParameterError("there is no term to draw")
    roles = dict(zip(model.model_.latent.names, model.model_.latent.roles, strict=True))
    main = _largest(model, [name for name, role in roles.items() if role == MAIN_EFFECTS])
    pairs = _largest(model, [name for name, role in roles.items() if role == INTERACTIONS])
    options: dict[str, Any] = {"level": level, "target": target}
    pages: list[Figure] = [_first_page(model, main, title, options)]
    if PROJECTIONS in roles.values():
        pages.append(plot_projections(model, **options))
    if pairs:
        page = _page(len(pairs))
        pages.append(plot_components(model, terms=pairs, fig=page, columns=2, **options))
    if path is not None:
        for name, some in files_of(pages, Path(path)).items():
            save_pages(some, name)
    return pages


def _largest(model: Any, names: list[str]) -> list[str]:
    """Terms that fit on a page, those that vary most."""
    sizes = {term.name: term.explained_variance for term in model.terms_}
    return sorted(names, key=lambda name: -sizes[name])[:_PANELS]


def _page(n_panels: int) -> DisplayedFigure:
    """A page with panels side by side in two columns, no higher than they need."""
    rows = -(-n_panels // 2)
    return DisplayedFigure((_WIDTH, min(_HEIGHT, 3.1 * rows + 0.6)), layout="constrained")


def _first_page(
    model: Any, main: list[str], title: str | None, options: dict[str, Any]
) -> DisplayedFigure:
    """Shares of all terms above the main effects."""
    bars = 0.24 * min(len(model.model_.latent.names), _BARS + 1) + 1.2
    rows = -(-len(main) // 3)
    below = min(2.5 * rows + 0.5, _HEIGHT - bars - 0.4) if main else 0.0
    page = DisplayedFigure((_WIDTH, bars + below + 0.4), layout="constrained")
    heights = [bars, below] if main else [bars]
    parts = page.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    plot_importance(model, most=_BARS, fig=parts[0])
    if main:
        plot_components(model, terms=main, fig=parts[1], columns=min(3, len(main)), **options)
    if title is None:
        title = f"{type(model).__name__}: {model.n_rows_} rows, {len(model.terms_)} terms"
    page.suptitle(title, fontsize=11, color=TEXT, parse_math=False)
    return page


def require_ending(path: str | Path) -> None:
    """Raise ``ParameterError`` if pages cannot be saved under a name."""
    if Path(path).suffix.lower() not in (".pdf", ".png"):
        raise ParameterError(f"pages are saved as .pdf or .png, got {str(path)!r}")


def files_of(pages: Sequence[Figure], path: Path) -> dict[Path, Sequence[Figure]]:
    """Return the files that pages go to, and the pages of each: one PDF, or a PNG for each page."""
    if path.suffix.lower() == ".pdf":
        return {path: pages}
    return {
        path.with_name(f"{path.stem}-{k + 1}{path.suffix}"): [page] for k, page in enumerate(pages)
    }


def save_pages(pages: Sequence[Figure], path: Path) -> None:
    """Save pages in one PDF, or a single one as a PNG."""
    if path.suffix.lower() == ".pdf":
        with PdfPages(path, metadata={"Creator": MADE_BY}) as pdf:
            for page in pages:
                pdf.savefig(page)
    else:
        (page,) = pages
        page.savefig(path, dpi=150, metadata={"Software": MADE_BY})
