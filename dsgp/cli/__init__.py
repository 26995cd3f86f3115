"""The command ``dsgp``: fit, predict, smooth and info on files; the library does the work."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Option

from dsgp import __version__
from dsgp.cli.fitting import FIT_EXAMPLES, fit
from dsgp.cli.messages import one_line
from dsgp.cli.prediction import INFO_EXAMPLES, PREDICT_EXAMPLES, info, predict
from dsgp.cli.smoothing import SMOOTH_EXAMPLES, smooth
from dsgp.errors import ConvergenceWarning, DataWarning, DsgpError
from dsgp.interrupt import exit_on_termination

__all__ = ["app", "main"]

app = typer.Typer(
    help="Structured Gaussian processes at any scale.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(epilog=FIT_EXAMPLES)(fit)
app.command(epilog=PREDICT_EXAMPLES)(predict)
app.command(epilog=SMOOTH_EXAMPLES)(smooth)
app.command(epilog=INFO_EXAMPLES)(info)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dsgp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    one_line("Warning", message)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; errors of the library and of files end it with one line and exit code 1."""
    exit_on_termination()
    with warnings.catch_warnings():
        for category in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _show_warning
        try:
            app(arguments, prog_name="dsgp")
        except (DsgpError, OSError) as error:
            one_line("Error", error)
            sys.exit(1)
