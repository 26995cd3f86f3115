"""What computes, imported when a command runs; see `dsgp.cli.commands`."""

from __future__ import annotations

from collections.abc import Sequence
from glob import has_magic
from importlib import import_module
from pathlib import Path
from types import ModuleType

from dsgp.addresses import address_of, local_path, require_there
from dsgp.errors import DataError, ParameterError, StorageError

# Column of holidays, in a file of them too.
HOLIDAY = "holiday"


def file_of(holidays: str | None) -> Path | None:
    """Return the file that ``--holidays`` names; None for a country, such as US."""
    if holidays is None:
        return None
    path = Path(holidays)
    # An address has a slash, and a country neither that nor an extension.
    is_file = bool(path.suffix) or len(path.parts) > 1 or path.is_file()
    return path if is_file else None


def holidays_given(text: str | None, column: str) -> tuple[str, str] | None:
    """Return what ``--holidays`` and ``--holiday-column`` say; None where there are no holidays.

    Raises
    ------
    ParameterError
        If there is a column and are no holidays.
    """
    if text is None and column != HOLIDAY:
        raise ParameterError("--holiday-column is of --holidays; give it, too")
    return None if text is None else (text, column)


def work_of(
    name: str,
    *,
    models: Sequence[Path | str | None] = (),
    tables: Sequence[Path | str | None] = (),
    fields: Sequence[Path | str | None] = (),
) -> ModuleType:
    """Import the module of this package that does the work of a command.

    The imports take seconds, so that inputs on this machine that are not there are reported before.
    What an address or a pattern names is looked for by the work itself.
    """
    for paths, error, what in (
        (models, StorageError, ""),
        (tables, DataError, "file "),
        (fields, DataError, ""),
    ):
        for path in paths:
            if path is None or address_of(path) is not None:
                continue
            place = local_path(str(path))
            if not has_magic(str(place)):
                require_there(place, error, what)
    return import_module(f"dsgp.cli.{name}")
