"""Certificates by which scheduler, workers and clients know each other, and that encrypt (TLS)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsgp.errors import ParameterError

AUTHORITY = "ca.pem"
CERTIFICATE = "node.pem"
KEY = "node-key.pem"
_ROLES = ("scheduler", "worker", "client")
_REMEDY = "make them: python cluster/tls/certificates.py --out FOLDER"


def files(folder: Path) -> tuple[Path, Path, Path]:
    """Return authority, certificate and key, if they are there and the key is private.

    Raises
    ------
    ParameterError
        If one is missing, or others than its owner can read the key.
    """
    folder = folder.expanduser().absolute()
    whole = (folder / AUTHORITY, folder / CERTIFICATE, folder / KEY)
    for path in whole:
        if not path.is_file():
            raise ParameterError(f"tls_directory {str(folder)!r} has no {path.name}; {_REMEDY}")
    if whole[2].stat().st_mode & 0o077:
        raise ParameterError(
            f"others than its owner may read {str(whole[2])!r}: chmod 600 it, or {_REMEDY}"
        )
    return whole


def dask_settings(folder: Path) -> dict[str, Any]:
    """Return dask's settings: where the files are (not what is in them), and no plain connections.

    Processes that inherit the configuration read the files themselves.
    """
    authority, certificate, key = map(str, files(folder))
    settings: dict[str, Any] = {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": authority,
        "distributed.comm.tls.min-version": 1.3,
    }
    for role in _ROLES:
        settings[f"distributed.comm.tls.{role}.cert"] = certificate
        settings[f"distributed.comm.tls.{role}.key"] = key
    return settings


def environment(folder: Path) -> dict[str, str]:
    """Return the same settings as variables of a process's environment."""
    return {
        "DASK_" + name.upper().replace("-", "_").replace(".", "__"): str(setting)
        for name, setting in dask_settings(folder).items()
    }
