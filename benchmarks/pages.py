"""How a benchmark reports its results: JSON, a page of Markdown, tables on the terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dsgp.errors import ParameterError
from pipelines.reporting import environment, machine, plain_json

console = Console()
if not console.is_terminal:
    console = Console(width=200)  # a file has no width

MISSING = "–"


def command(module: str) -> str:
    """Return the command line of this run."""
    return " ".join([f"python -m {module}", *sys.argv[1:]])


def circumstances(module: str) -> dict[str, Any]:
    """Return what a report begins with."""
    return {
        "command": command(module),
        "versions": environment(),
        "machine": machine() | {"blas_threads": os.environ.get("OPENBLAS_NUM_THREADS")},
    }


def json_text(report: Any) -> str:
    """Format a report; what is not finite becomes null."""
    plain = plain_json(report)
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(*header, title=title, title_justify="left", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def say(text: str) -> None:
    """Print a line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def plain(seconds: float | None) -> str:
    """Format seconds to three digits or so."""
    if seconds is None:
        return MISSING
    digits = 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:.{digits}f}"


def integers(option: str, text: str, least: int) -> list[int]:
    """Read numbers of rows such as ``1000,1e5``.

    Raises
    ------
    ParameterError
        When one is no number, or less than `least`.
    """
    try:
        numbers = [int(float(part)) for part in text.split(",")]
    except (ValueError, OverflowError):
        numbers = []
    if not numbers or min(numbers) < least:
        raise ParameterError(
            f"{option}: expected numbers of rows from {least} on, such as 1000,1e5, got {text!r}"
        )
    return numbers
