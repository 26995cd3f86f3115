"""The mark of files that hold a posterior of a field: only these are overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import xarray as xr

from dsgp.addresses import Place, exists, local_copy, zarr_options
from dsgp.errors import StorageError

_MARK = ("dsgp", "grid posterior")
_VARIABLES = "dsgp_variables"
# The variables of posteriors that were written before these were listed.
_FORMER = {"mean", "std"}


def mark(variables: Iterable[object]) -> dict[str, str]:
    """Return attributes that mark a file as a posterior.

    The variables are listed, so that a file to which others were added, or that was computed from
    a posterior and kept its attributes, does not count as one.
    """
    return {_MARK[0]: _MARK[1], _VARIABLES: " ".join(map(str, variables))}


def is_posterior(place: Place) -> bool:
    """Whether a zarr store or a file of netCDF is a posterior as dsgp wrote it."""
    try:
        if (place / "zarr.json").exists():
            metadata = json.loads((place / "zarr.json").read_text(encoding="utf-8"))
            attributes: dict[str, Any] = metadata["attributes"]
            if attributes.get(_MARK[0]) != _MARK[1]:  # checked before anything else is opened
                return False
            return _has_own_variables(place, **zarr_options(place))
        with local_copy(place) as file:
            return _has_own_variables(file)
    # Engines raise many types of errors for files of other kinds; all mean the same here.
    except Exception:
        return False


def _has_own_variables(place: Place, **options: Any) -> bool:
    with xr.open_dataset(
        str(place), decode_times=False, decode_timedelta=False, decode_coords="all", **options
    ) as opened:
        listed = opened.attrs.get(_VARIABLES)
        names = _FORMER if listed is None else set(str(listed).split(" "))
        same_variables = set(map(str, opened.data_vars)) == names
        return bool(opened.attrs.get(_MARK[0]) == _MARK[1] and same_variables)


def require_replaceable(path: Place, overwrite: bool, how: str) -> None:
    """Raise ``StorageError`` if there is something at a path that must not be replaced.

    Parameters
    ----------
    path : Path or UPath
    overwrite : bool
        Whether a posterior may be replaced.
    how : str
        How to request that, for the message.
    """
    if not exists(path):
        return
    if not is_posterior(path):
        raise StorageError(
            f"{str(path)!r} exists and is not a posterior written by dsgp, so that {how} does not "
            "replace it; choose another path, or delete it yourself"
        )
    if not overwrite:
        raise StorageError(f"{str(path)!r} exists; choose another path, or {how}")
