"""Versions of the packages that compute: they must be the same in the driver and on the workers."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dsgp.errors import ClusterError

# Tasks are pickled between equal versions of Python and dask; the digits of results depend on the
# others.
_PACKAGES = ("dask", "distributed", "numpy", "numba", "dsgp")
# The version of a copy of the sources without git, as in an image; pyproject.toml has it too.
_UNKNOWN = "0.dev0"

_checked: weakref.WeakKeyDictionary[Any, Versions] = weakref.WeakKeyDictionary()


def own_versions() -> dict[str, str]:
    """Return the versions in this process, by package; Python's without its last number."""
    return _comparable({"python": ".".join(map(str, sys.version_info)), **_installed()})


def _installed() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a checkout that is not installed
            found[package] = None
    return found


def without_commit(version: str) -> str:
    """Return a version without the number and the name of a commit after the last release.

    An editable installation keeps those of the day it was installed, so that they do not identify
    whether two of them run the same code.

    Examples
    --------
    >>> from dsgp.versions import without_commit
    >>> without_commit("0.2.1.dev57+g1a2b3c4"), without_commit("0.2.0")
    ('0.2.1.dev', '0.2.0')
    """
    return re.sub(r"\.dev\d+.*", ".dev", version)


def _comparable(packages: Mapping[str, str | None]) -> dict[str, str]:
    versions = {name: packages.get(name) for name in ("python", *_PACKAGES)}
    if versions["python"] is not None:
        versions["python"] = ".".join(versions["python"].split(".")[:2])
    if versions["dsgp"] is not None:
        unknown = versions["dsgp"] == _UNKNOWN
        versions["dsgp"] = None if unknown else without_commit(versions["dsgp"])
    return {name: text for name, text in versions.items() if text is not None}


class Versions:
    """The workers of a client that have been asked for versions, and those yet to answer."""

    def __init__(self, client: Any) -> None:
        self._client = weakref.ref(client)
        self._alike: set[str] = set()
        self._asked: dict[str, Future[Any]] = {}

    @classmethod
    def of(cls, client: Any) -> Versions:
        """Return the object of a client, so that each worker is asked once."""
        if client not in _checked:
            _checked[client] = cls(client)
        return _checked[client]

    def require_same(
        self, workers: Iterable[str], ask: Callable[[Any], Future[Any]], patience: float
    ) -> None:
        """Ask new workers for their versions, and compare the answers.

        Parameters
        ----------
        workers : iterable of str
            Addresses.
        ask : callable
            Runs a coroutine of the client.
        patience : float
            Seconds to wait for answers. Later ones are compared by the next call: a frozen worker
            does no work meanwhile.

        Raises
        ------
        ClusterError
            If a worker has another version than this process.
        """
        present = set(workers)
        self._alike &= present
        client = self._client()
        for address in present - self._alike - set(self._asked):
            self._asked[address] = ask(_versions_of(client, address))
        wait(self._asked.values(), patience)
        for address, asked in list(self._asked.items()):
            if address not in present:
                self._asked.pop(address, asked).cancel()
            elif asked.done():
                self._asked.pop(address, None)  # another thread may have handled it too
                if asked.cancelled() or asked.exception() is not None or not asked.result():
                    continue  # it is closing, or the next call asks it again
                _require_same(address, _comparable(asked.result()), own_versions())
                self._alike.add(address)


async def _versions_of(client: Any, worker: str) -> dict[str, str | None] | None:
    message = {"op": "versions", "packages": list(_PACKAGES)}
    answers = await client.scheduler.broadcast(msg=message, workers=[worker], on_error="ignore")
    answer = answers.get(worker)
    return answer["packages"] if isinstance(answer, dict) else None


def _require_same(address: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    differing = [
        f"{name} {there[name]} and not {here[name]}"
        for name in here
        if name in there and there[name] != here[name]
    ]
    if differing:
        raise ClusterError(
            f"worker {address} has {', '.join(differing)} as this process has; results would "
            "differ or fail: start it with the same environment (nothing has been computed)"
        )
