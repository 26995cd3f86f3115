"""What pipelines share whose results come from cells: one method on one data set, in a process.

Options that are lists, methods that are installed, the files of a cell, and the folder of results.
`pipelines.scaling.running` starts the processes.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.places import made_aside, replace_text
from pipelines.reporting import environment, gathered_warnings, machine, plain_errors, plain_json
from pipelines.scaling.running import RUNS


def listed(values: list[str] | None) -> list[str] | None:
    """Values of an option that is repeated or a list A,B,C, each once; None if it is not given."""
    if values is None:
        return None
    words = [word.strip() for value in values for word in value.split(",")]
    return list(dict.fromkeys(filter(None, words)))


def installed(
    names: list[str] | None, lacking: Mapping[str, Callable[[], str | None]]
) -> tuple[list[str], list[str]]:
    """Methods to run, and a line for each that is left out.

    Parameters
    ----------
    names : list of str or None
        None is all that are installed.
    lacking : mapping of str to callable
        For each method there is, what says which package it lacks; None if none.

    Raises
    ------
    ParameterError
        If there is no such method, or one that is named is not installed.
    """
    chosen: list[str] = []
    notes: list[str] = []
    for name in lacking if names is None else names:
        if name not in lacking:
            raise ParameterError(f"there is no model {name!r}; there are: {', '.join(lacking)}")
        problem = lacking[name]()
        if problem is None:
            chosen.append(name)
        elif names is not None:
            raise ParameterError(f"model {name}: {problem}")
        else:
            notes.append(f"{name} is left out: {problem}")
    return chosen, notes


def run_cell(
    settings_of: Callable[..., Any],
    measure: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """Run what the standard input asks for, and write NAME.npz and then NAME.json, whole or not.

    Parameters
    ----------
    settings_of : callable
        Makes the settings, a dataclass, of keyword arguments.
    measure : callable
        Takes the settings; returns what is recorded and arrays.
    """
    asked = json.load(sys.stdin)
    exit_on_termination()
    with plain_errors():
        settings, path = settings_of(**asked["settings"]), Path(asked["path"])
        with gathered_warnings() as messages:
            outcome, arrays = measure(settings)
        arrays_path = path.with_suffix(".npz")
        record = {
            "settings": asdict(settings),
            "arrays": arrays_path.name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **outcome,
            "warnings": messages,
            "versions": environment(),
            "machine": machine(),
        }
        with made_aside(arrays_path) as aside, aside.open("wb") as file:
            np.savez_compressed(file, **arrays)
        replace_text(path, json.dumps(plain_json(record), indent=2, allow_nan=False))


@contextmanager
def results_aside(out: Path) -> Iterator[Path]:
    """Give a folder whose files are moved into a folder of results, if the block ends well."""
    # Within the folder of runs, so that a stray one is not taken for somebody else's file.
    with tempfile.TemporaryDirectory(dir=out / RUNS, suffix=".aside") as name:
        aside = Path(name)
        yield aside
        for file in sorted(aside.iterdir()):
            file.replace(out / file.name)
