"""How a command ends: whatever happens, with a sentence and an exit code, never a traceback."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib.metadata import metadata
from typing import TYPE_CHECKING

from dsgp.cli.messages import one_line
from dsgp.errors import DsgpError
from dsgp.interrupt import exit_on_termination, second_interrupt_ends

if TYPE_CHECKING:
    import typer

DEBUG = "--debug"


def run_app(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run an application of typer as a command of the shell.

    Errors of the library and of files end it with one line and exit code 1. So do all others: the
    line says then that it is a defect and where to report it. With ``--debug`` among the arguments
    the traceback is shown as well.

    Parameters
    ----------
    app : typer.Typer
    program : str
        What the user types before the arguments.
    arguments : sequence of str, optional
        Those of the process by default.
    """
    typed_arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in typed_arguments
    for stream in (sys.stdout, sys.stderr):
        # A terminal may lack letters of ours, such as σ or the quotes of a column's name.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    exit_on_termination()
    with second_interrupt_ends():
        try:
            app([argument for argument in typed_arguments if argument != DEBUG], prog_name=program)
        except Exception as error:
            if debug:
                raise
            one_line("Error", _sentence(error))
            sys.exit(1)


def _sentence(error: Exception) -> str:
    if isinstance(error, (DsgpError, OSError)):
        return str(error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({_described(error)}); use fewer rows or cells at once"
    return (
        f"dsgp met a case that it does not handle ({_described(error)}). This is a defect: please "
        f"report it {_where()}, with the output of the same command with {DEBUG}"
    )


def _described(error: Exception) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


def _where() -> str:
    """Return the place for reports that the package's metadata names."""
    for entry in metadata("dsgp").get_all("Project-URL") or []:
        label, _, address = entry.partition(", ")
        if label.lower() in ("issues", "bug tracker", "tracker"):
            return f"at {address}"
    return "to the dsgp developers, where you obtained dsgp"
