"""Pages for a report: what matters, then main effects, interactions and projections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure, SubFigure

from dsgp.errors import ParameterError
from dsgp.estimators.classes import model_of_terms
from dsgp.plotting.components import plot_components
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.importance import plot_importance
from dsgp.plotting.panels import shares_of
from dsgp.plotting.projections import plot_projections
from dsgp.plotting.style import TEXT
from dsgp.terms.bound import INTERACTIONS, MAIN_EFFECTS, PROJECTIONS

# Inches of a page (A4, upright); bars on the first one.
_WIDTH, _HEIGHT = 8.27, 11.69
_BARS = 14
# Panels side by side, and on a page at most, of main effects and of interactions.
_MAIN, _PAIRS = (3, 12), (2, 6)
_ROW = {3: 2.35, 2: 3.1}  # inches of a row of panels
# What is written in files, by which they are known as ours.
MADE_BY = "dsgp plot"


def plot_report(
    model: Any,
    path: str | Path | None = None,
    *,
    target: str | None = None,
    level: float = 0.95,
    title: str | None = None,
    max_terms: int | None = None,
    scale: str = "free",
) -> list[Figure]:
    """Draw the pages of a report: importance and main effects, then interactions.

    The first page has the shares of the terms (``plot_importance``) above the largest main effects
    (``plot_components``); the others follow on as many pages as they take, then interactions. Of a
    projection pursuit model the second page has the projections (``plot_projections``). All shares
    are those of ``variance_shares``.

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
    max_terms : int, optional
        Main effects and interactions drawn at most, those with the largest shares; a caption
        names the others. All by default.
    scale : {"common", "free"}
        As for ``plot_components``; a common scale is that of a page.

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
    if max_terms is not None and max_terms < 1:
        raise ParameterError(f"max_terms must be at least 1, got {max_terms}")
    model = model_of_terms(model)
    latent = model.model_.latent
    if not latent.names:
        raise ParameterError("there is no term to draw")
    options: dict[str, Any] = {"level": level, "target": target, "scale": scale}
    shares = shares_of(model)
    roles = dict(zip(latent.names, latent.roles, strict=True))
    drawn = [name for name in shares if roles[name] in (MAIN_EFFECTS, INTERACTIONS)]
    drawn.sort(key=lambda name: -shares[name])
    drawn, left = drawn[:max_terms], drawn[max_terms:] if max_terms else []
    main = [name for name in drawn if roles[name] == MAIN_EFFECTS]
    pairs = [name for name in drawn if roles[name] == INTERACTIONS]
    bars = 0.24 * min(len(latent.names), _BARS + 1) + 1.2
    n_first = max(1, int((_HEIGHT - bars - 1.1) / _ROW[_MAIN[0]])) * _MAIN[0]
    first = main[:n_first]
    pages: list[Figure] = [_first_page(model, bars, first, left, title, options)]
    pages += _further_pages(model, MAIN_EFFECTS, main[n_first:], [], _MAIN, options)
    if PROJECTIONS in roles.values():
        pages.append(plot_projections(model, **options))
    pages += _further_pages(model, INTERACTIONS, pairs, [] if main else left, _PAIRS, options)
    if path is not None:
        for name, some in files_of(pages, Path(path)).items():
            save_pages(some, name)
    return pages


def _further_pages(
    model: Any,
    kind: str,
    names: list[str],
    left: list[str],
    panels: tuple[int, int],
    options: dict[str, Any],
) -> list[DisplayedFigure]:
    """Draw terms on as many pages as they take, no higher than they need."""
    columns, on_page = panels
    pages = []
    for start in range(0, len(names), on_page):
        some = names[start : start + on_page]
        rows = -(-len(some) // columns)
        height = min(_HEIGHT, (_ROW[columns] + 0.25) * rows + 0.9)
        page = DisplayedFigure((_WIDTH, height), layout="constrained")
        _draw(model, some, left, page, columns, options)
        page.suptitle(kind, fontsize=11, color=TEXT)
        pages.append(page)
    return pages


def _draw(
    model: Any,
    names: list[str],
    left: list[str],
    fig: Figure | SubFigure,
    columns: int,
    options: dict[str, Any],
) -> None:
    """Draw terms, and name those that are on no page, whose shares are smaller than any drawn."""
    plot_components(
        model, terms=[*names, *left], max_terms=len(names), fig=fig, columns=columns, **options
    )


def _first_page(
    model: Any,
    bars: float,
    main: list[str],
    left: list[str],
    title: str | None,
    options: dict[str, Any],
) -> DisplayedFigure:
    """Shares of all terms, on so many inches, above the main effects."""
    columns = min(_MAIN[0], len(main))
    rows = -(-len(main) // columns) if main else 0
    below = min(_ROW[_MAIN[0]] * rows + 0.7, _HEIGHT - bars - 0.4) if main else 0.0
    page = DisplayedFigure((_WIDTH, bars + below + 0.4), layout="constrained")
    heights = [bars, below] if main else [bars]
    parts = page.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    plot_importance(model, most=_BARS, fig=parts[0])
    if main:
        _draw(model, main, left, parts[1], columns, options)
    if title is None:
        title = f"{type(model).__name__}: {model.n_rows_:,} rows, {len(model.terms_)} terms"
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
