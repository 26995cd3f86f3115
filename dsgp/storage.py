"""Plain trees of arrays and settings as zarr stores: saved models and, later, checkpoints.

A store is written aside and moved into place, so that a path holds a whole store or none. Settings
are JSON in the attributes of the root group; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from dsgp.errors import StorageError
from dsgp.places import address_of, move_into_place, refuse_output_address

FORMAT = "dsgp"
FORMAT_VERSION = 2
# Columns of an array on disk that are copied at a time.
_COLUMNS = 2**20

Tree = Mapping[str, "NDArray[Any] | Tree"]


def write(
    path: str | Path, kind: str, settings: Mapping[str, Any], tree: Tree, overwrite: bool = False
) -> None:
    """Write a store.

    Parameters
    ----------
    path : str or Path
        A folder to be, usually named ``*.zarr``.
    kind : str
        What it holds, e.g. "AdditiveGPRegressor".
    settings : mapping
        Anything JSON can hold.
    tree : mapping
        Names to arrays, or to further mappings.
    overwrite : bool
        Replace a dsgp store that is there. Anything else at ``path`` is left alone.

    Raises
    ------
    StorageError
        If something is there already, or the place cannot be written.
    """
    path = Path(path)
    check_writable(path, overwrite)
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    try:
        store = aside / "store"
        root = zarr.open_group(str(store), mode="w", zarr_format=3)
        root.attrs.update(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "kind": kind,
                "settings": json.loads(json.dumps(settings, allow_nan=False, default=_as_json)),
            }
        )
        _write_tree(root, tree)
        move_into_place(store, path, aside / "replaced")
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_writable(path: str | Path, overwrite: bool = False) -> None:
    """Raise ``StorageError`` if ``write`` could not put a store there; a long job asks first."""
    refuse_output_address(path)
    path = Path(path)
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")
    if path.exists():
        if not overwrite:
            raise StorageError(
                f"{str(path)!r} exists; choose another path, or overwrite it (overwrite=True, "
                "--overwrite)"
            )
        if not _is_store(path):
            raise StorageError(
                f"{str(path)!r} exists and is no dsgp store, so it is not overwritten; "
                "choose another path"
            )
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise StorageError(
            f"cannot write in {str(path.parent)!r}: {error.strerror or error}"
        ) from error


def read(path: str | Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a store; return its kind, settings and tree of arrays.

    Raises
    ------
    StorageError
        If there is no dsgp store, its format is of a later release, or an array is damaged.
    """
    if address := address_of(path):
        raise StorageError(
            f"{address!r} is an address, and stores are read from a disk: copy the folder here, "
            "for instance with fsspec"
        )
    path = Path(path)
    if not path.exists():
        raise StorageError(f"there is no {str(path)!r}; check the path")
    if not _is_store(path):
        raise StorageError(f"{str(path)!r} is no dsgp store (a folder written by dsgp fit or save)")
    try:
        root = zarr.open_group(str(path), mode="r")
        attributes: dict[str, Any] = dict(root.attrs)
        version = attributes["format_version"]
        if version > FORMAT_VERSION:
            raise StorageError(
                f"{str(path)!r} has format version {version}; this release reads up to "
                f"{FORMAT_VERSION}: update dsgp"
            )
        return attributes["kind"], attributes["settings"], _read_tree(root)
    except StorageError:
        raise
    # zarr and its codecs raise many types for a damaged store; all mean the same here.
    except Exception as error:
        raise StorageError(f"{str(path)!r} is damaged: {error}") from error


def _as_json(value: Any) -> Any:
    """Turn numpy's scalars into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored as JSON")


def format_version(path: str | Path) -> int:
    """Return the format version of a store that ``read`` accepts."""
    metadata = json.loads((Path(path) / "zarr.json").read_text(encoding="utf-8"))
    return int(metadata["attributes"]["format_version"])


def _is_store(path: Path) -> bool:
    try:
        metadata = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
        return metadata["attributes"]["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_tree(group: zarr.Group, tree: Tree) -> None:
    for name, node in tree.items():
        if isinstance(node, Mapping):
            _write_tree(group.create_group(name), node)
        else:
            _write_array(group, name, node)


def _write_array(group: zarr.Group, name: str, node: Any) -> None:
    array = group.create_array(
        name,
        shape=node.shape,
        dtype=node.dtype,
        compressors=ZstdCodec(level=3, checksum=True),
        config={"write_empty_chunks": True},  # so that a chunk not there is one lost
    )
    if isinstance(node, np.ndarray):
        array[...] = node
        return
    for start in range(0, node.shape[1], _COLUMNS):  # on disk: never in memory as a whole
        some = slice(start, start + _COLUMNS)
        array[:, some] = node[:, some]


def _read_tree(group: zarr.Group) -> dict[str, Any]:
    return {
        name: _read_tree(node) if isinstance(node, zarr.Group) else _read_array(node)
        for name, node in group.members()
    }


def _read_array(array: zarr.Array) -> NDArray[Any]:
    # A chunk that is not there would read as zeros, without an error.
    if array.nchunks_initialized != array.nchunks:
        raise StorageError(f"array {array.path!r} lacks a chunk")
    return np.asarray(array[...])
