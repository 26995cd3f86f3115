"""The work of ``dsgp plot``: pages of pictures of a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer

from dsgp.cli.reaching import Reach
from dsgp.errors import ParameterError, StorageError
from dsgp.estimators import GridGP, load
from dsgp.estimators.classes import ClassEstimator
from dsgp.places import made_aside, require_apart, require_folder


def plot(
    model: Path,
    out: Path,
    *,
    target: str | None,
    level: float,
    max_terms: int | None,
    scale: str,
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Draw a saved model; `dsgp.cli.commands.plot` describes the options."""
    try:
        drawing = import_module("dsgp.plotting.report")
    except ImportError as error:  # Matplotlib is an extra.
        raise ParameterError(str(error)) from error
    drawing.require_ending(out)
    if not 0 < level < 1:
        raise ParameterError(f"--level must lie between 0 and 1, got {level:g}")
    if max_terms is not None and max_terms < 1:
        raise ParameterError(f"--max-terms must be at least 1, got {max_terms}")
    if scale not in ("free", "common"):
        raise ParameterError(f"--scale must be free or common, got {scale!r}")
    require_apart(out, [model])
    fitted = load(Reach.of(storage_options, [model]).place(model))
    if isinstance(fitted, GridGP):
        raise ParameterError(
            f"{str(model)!r} is a model of a grid, which has no terms: dsgp report draws its "
            "maps, and dsgp.plotting.plot_field its posteriors"
        )
    models = fitted.estimators_ if isinstance(fitted, ClassEstimator) else [fitted]
    pages = []
    for k, each in enumerate(models):
        title = None
        if len(models) > 1:
            title = f"{type(fitted).__name__}: class {fitted.classes_[k]}"
        pages += drawing.plot_report(
            each, target=target, level=level, title=title, max_terms=max_terms, scale=scale
        )
    files = drawing.files_of(pages, out)
    for path in files:
        require_replaceable(path, drawing.MADE_BY, overwrite)
    for path, some in files.items():
        with made_aside(path) as aside:
            drawing.save_pages(some, aside)
    what = "1 page" if len(pages) == 1 else f"{len(pages)} pages"
    typer.echo(f"{what} saved in {', '.join(map(str, files))}")


def require_replaceable(path: Path, mark: str, overwrite: bool, content: str | None = None) -> None:
    """Raise ``StorageError`` if something is there, unless it is ours and may be overwritten.

    ``mark`` is what the command that writes it is called; it is in the files, unless these are
    known by other ``content``. It is an error, too, if there is no folder to write to.
    """
    require_folder(path)
    if not path.exists():
        return
    ours = path.is_file() and (content or mark).encode() in path.read_bytes()
    if ours and overwrite:
        return
    remedy = ", or --overwrite" if ours else f", or delete it yourself: {mark} did not write it"
    raise StorageError(f"{str(path)!r} exists; choose another path{remedy}")
