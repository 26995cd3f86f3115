"""Plain trees of arrays and settings as zarr stores: saved models and, later, checkpoints.

A store is written aside and moved into place, so that a path holds a whole store or none. Settings
are JSON in the attributes of the root group; nothing is ever unpickled. A digest in the root file
covers settings and files, and everything is checked before zarr reads an array.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from dsgp import memory
from dsgp.addresses import (
    Place,
    exists,
    local_copy,
    place_of,
    require_there,
    require_writable,
)
from dsgp.errors import DsgpError, StorageError
from dsgp.places import cannot_write, made_aside, require_folder
from dsgp.storage.documents import (
    FORMAT,
    FORMAT_VERSION,
    Attributes,
    attributes_of,
    require_layout,
    root_digest,
    setting_checksums,
)
from dsgp.storage.files import ROOT, file_table, files_of, read_document, require_files

# Columns of an array on disk that are copied at a time.
_COLUMNS = 2**20

Tree = Mapping[str, "NDArray[Any] | Tree"]


def write(
    path: str | Place,
    kind: str,
    settings: Mapping[str, Any],
    tree: Tree,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a store.

    Parameters
    ----------
    path : str, Path or UPath
        A folder to be, usually named ``*.zarr``; or an address such as ``s3://bucket/a.zarr``.
    kind : str
        What it holds, e.g. "AdditiveGPRegressor".
    settings : mapping
        Anything JSON can hold.
    tree : mapping
        Names to arrays, or to further mappings.
    overwrite : bool
        Replace a dsgp store that is there. Anything else at ``path`` is left alone.
    storage_options : mapping, optional
        Of an address, for fsspec.

    Raises
    ------
    StorageError
        If something is there already, or the place cannot be written.
    """
    place = place_of(path, storage_options)
    check_writable(place, overwrite)
    with made_aside(place) as made:
        plain = json.loads(json.dumps(settings, allow_nan=False, default=_as_json))
        _write_tree(zarr.open_group(str(made), mode="w", zarr_format=3), tree)
        _write_root(made, kind, plain)


def check_writable(path: str | Place, overwrite: bool = False) -> None:
    """Raise ``StorageError`` if ``write`` could not put a store there; a long job asks first."""
    place = place_of(path)
    if isinstance(place, Path):
        require_folder(place)
    if exists(place):
        if not overwrite:
            raise StorageError(
                f"{str(place)!r} exists; choose another path, or overwrite it (overwrite=True, "
                "--overwrite)"
            )
        if not _is_store(place):
            raise StorageError(
                f"{str(place)!r} exists and is not a dsgp store, so it is not overwritten; "
                "choose another path"
            )
    if not isinstance(place, Path):
        require_writable(place)
        return
    try:
        tempfile.TemporaryFile(dir=place.parent).close()
    except OSError as error:
        raise cannot_write(place, error) from error


def read(
    path: str | Place, storage_options: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Read a store; return its kind, settings and tree of arrays.

    Raises
    ------
    StorageError
        If there is no dsgp store, its format is of a later release, or an array is damaged.
    """
    place = place_of(path, storage_options)
    label = repr(str(place))
    try:
        if not _is_store(place):
            require_there(place, StorageError)
            raise StorageError(
                f"{label} is not a dsgp store (a folder written by dsgp fit or save)"
            )
        with local_copy(place) as folder:
            attributes = _checked(folder, label)
            tree = _read_tree(zarr.open_group(str(folder), mode="r"))
            return attributes.kind, attributes.settings, tree
    except DsgpError:
        raise
    # zarr and its codecs raise many types for a damaged store; all mean the same here.
    except Exception as error:
        raise StorageError(f"{label} is damaged: {error or type(error).__name__}") from error


def _checked(folder: Path, label: str) -> Attributes:
    """Return what the root file holds, once all files are found to be as they were saved."""
    try:
        attributes = attributes_of(read_document(folder / ROOT))
        files = files_of(folder)
        if attributes.files is not None:
            require_files(folder, files, attributes.files)
        documents = {
            name.removesuffix(f"/{ROOT}"): read_document(folder / name, name)
            for name in files
            if name.endswith(f"/{ROOT}")
        }
        needed = require_layout(documents, files)
    except StorageError as error:
        raise StorageError(f"{label} is damaged: {error}") from error
    memory.require(f"the arrays of {label}", float(needed), "load it where there is more memory")
    return attributes


def _as_json(value: Any) -> Any:
    """Turn numpy's scalars into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored as JSON")


def format_version(path: str | Place) -> int:
    """Return the format version of a store that ``read`` accepts."""
    return int(read_document(place_of(path) / ROOT)["attributes"]["format_version"])


def _is_store(place: Place) -> bool:
    """Return whether there is a store of dsgp; raise ``StorageError`` of a damaged root file."""
    root = place / ROOT
    if isinstance(root, Path) and not root.exists():
        return False
    try:
        attributes = read_document(root).get("attributes")
    except OSError as error:
        if isinstance(error, StorageError):
            raise StorageError(f"{str(place)!r} is damaged: {error}") from error
        return False  # of an address: nothing there
    return isinstance(attributes, dict) and attributes.get("format") == FORMAT


def _write_root(made: Path, kind: str, settings: Mapping[str, Any]) -> None:
    """Complete the root file of a store whose arrays are written."""
    document = read_document(made / ROOT)
    document["attributes"] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "settings": settings,
        "files": file_table(made),
        "checksums": setting_checksums(settings),
    }
    document["attributes"]["digest"] = root_digest(document)
    (made / ROOT).write_text(json.dumps(document, indent=2), encoding="utf-8")


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
