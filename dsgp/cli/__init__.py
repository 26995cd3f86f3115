"""The command ``dsgp``: fit, update, predict, forecast, evaluate, explain and more on files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer import Option

from dsgp import __version__
from dsgp.cli.commands.evaluate import (
    CALIBRATE_EXAMPLES,
    EVALUATE_EXAMPLES,
    calibrate,
    evaluate,
)
from dsgp.cli.commands.explain import EXPLAIN_EXAMPLES, explain
from dsgp.cli.commands.fit import FIT_EXAMPLES, fit
from dsgp.cli.commands.forecast import FORECAST_EXAMPLES, forecast
from dsgp.cli.commands.info import INFO_EXAMPLES, info
from dsgp.cli.commands.plot import PLOT_EXAMPLES, plot
from dsgp.cli.commands.predict import PREDICT_EXAMPLES, predict
from dsgp.cli.commands.report import REPORT_EXAMPLES, report
from dsgp.cli.commands.smooth import SMOOTH_EXAMPLES, smooth
from dsgp.cli.commands.update import UPDATE_EXAMPLES, update
from dsgp.cli.endings import DEBUG, run_app
from dsgp.cli.messages import one_line
from dsgp.errors import ConvergenceWarning, DataWarning

__all__ = ["app", "main"]

app = typer.Typer(
    help="Structured Gaussian processes at any scale.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(epilog=FIT_EXAMPLES)(fit)
app.command(epilog=UPDATE_EXAMPLES)(update)
app.command(epilog=PREDICT_EXAMPLES)(predict)
app.command(epilog=FORECAST_EXAMPLES)(forecast)
app.command(epilog=EVALUATE_EXAMPLES)(evaluate)
app.command(epilog=CALIBRATE_EXAMPLES)(calibrate)
app.command(epilog=EXPLAIN_EXAMPLES)(explain)
app.command(epilog=PLOT_EXAMPLES)(plot)
app.command(epilog=REPORT_EXAMPLES)(report)
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
    debug: Annotated[
        bool,
        Option(DEBUG, help="Show the traceback of an error; can be given anywhere in a command."),
    ] = False,
) -> None:
    pass  # --debug is taken by `run_app`


_TRANSFORM = re.compile(r'\b(?:target_)?transform="([\w-]+)"')


def _shown_once() -> Callable[..., None]:
    """Return what shows warnings, each text once: a command may predict the same rows thrice."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            # What parameters are called in Python are options here.
            one_line("Warning", _TRANSFORM.sub(r"--transform \1", str(message)))

    return show


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; every error ends it with one line and exit code 1."""
    with warnings.catch_warnings():
        for category in (DataWarning, ConvergenceWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _shown_once()
        run_app(app, "dsgp", arguments)
