"""What the command says on stderr."""

from __future__ import annotations

import typer


def one_line(label: str, message: object) -> None:
    """Write a message of any number of lines as one."""
    typer.echo(f"{label}: {' '.join(line.strip() for line in str(message).splitlines())}", err=True)
