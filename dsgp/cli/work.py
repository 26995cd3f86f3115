"""What computes, imported when a command runs; see `dsgp.cli.commands`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def work_of(name: str) -> ModuleType:
    """Import the module of this package that does the work of a command."""
    return import_module(f"dsgp.cli.{name}")
