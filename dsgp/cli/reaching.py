"""Paths and addresses that a command is given, with ``--storage-option`` for the addresses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsgp.addresses import Place, address_of, place_of
from dsgp.errors import ParameterError


@dataclass(frozen=True)
class Reach:
    """How the addresses of a command are reached.

    Attributes
    ----------
    options : dict
        For fsspec's file systems.
    """

    options: dict[str, Any]

    @classmethod
    def of(cls, assignments: Sequence[str] | None, paths: Sequence[object]) -> Reach:
        """Read ``KEY=VALUE``, whose values may be JSON.

        Raises
        ------
        ParameterError
            If an option is written otherwise or twice, or no path is an address.
        """
        options: dict[str, Any] = {}
        for text in assignments or ():
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise ParameterError(
                    f"--storage-option {key!r}: expected KEY=VALUE, for instance anon=true"
                )
            if key in options:
                raise ParameterError(f"--storage-option gives {key!r} twice")
            options[key] = _value(value)
        if options and all(address_of(path) is None for path in paths if path is not None):
            raise ParameterError(
                "--storage-option is for addresses such as s3://bucket/a.csv, and there is none; "
                "leave it out"
            )
        return cls(options)

    def place(self, path: str | Path) -> Place:
        """Return the place that a path or an address names."""
        return place_of(path, self.options if address_of(path) else None)


def require_model_path(path: Path, option: str = "--out") -> None:
    """Raise ``ParameterError`` if a path of a model to be saved has another extension than .zarr.

    Examples
    --------
    >>> from dsgp.cli.reaching import require_model_path
    >>> require_model_path(Path("price.zarr"))
    >>> require_model_path(Path("price.zaar"))
    Traceback (most recent call last):
        ...
    dsgp.errors.ParameterError: --out must end in .zarr or have no extension, as a model is ...
    """
    if path.suffix.lower() not in ("", ".zarr"):
        raise ParameterError(
            f"{option} must end in .zarr or have no extension, as a model is saved as a folder, a "
            f"zarr store, got {str(path)!r}"
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # plain text
        return text
