"""What the JSON files of a store hold: schemas of its root, its groups and its arrays.

A store of format 3 has a digest over all of its root file, which has a checksum of every other
file. So nothing can be taken away, put in or changed unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from dsgp.errors import StorageError
from dsgp.storage.files import ROOT, digest
from dsgp.storage.schemas import Strict, validated

FORMAT = "dsgp"
FORMAT_VERSION = 3
# The first with a digest.
_DIGESTED = 3
# A block of Zstandard has 128 KiB at most, and takes 4 bytes at least.
_LARGEST_EXPANSION = 2**15

_Length = Annotated[int, Field(ge=0, le=2**62)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class FileEntry(Strict):
    """A file as it was written."""

    bytes: _Length
    sha256: _Sha256


class Attributes(Strict):
    """Attributes of the root group; format 2 has no digest and no table of files.

    Attributes
    ----------
    kind : str
        What the store holds, e.g. "AdditiveGPRegressor".
    settings : dict
    files : dict of str to FileEntry
        Every file but the root.
    checksums : dict of str to str
        Of settings by name; they identify the one that was changed.
    digest : str
        SHA-256 over the whole root file but this.
    """

    format: Literal["dsgp"]
    format_version: Annotated[int, Field(ge=1)]
    kind: str
    settings: dict[str, Any]
    files: dict[str, FileEntry] | None = None
    checksums: dict[str, str] | None = None
    digest: _Sha256 | None = None


class _Chunks(Strict):
    chunk_shape: list[Annotated[int, Field(ge=1, le=2**62)]]


class _Grid(Strict):
    name: Literal["regular"]
    configuration: _Chunks


class _Separator(Strict):
    separator: Literal["/"] = "/"


class _Keys(Strict):
    name: Literal["default"]
    configuration: _Separator = _Separator()


class _Endian(Strict):
    endian: Literal["little", "big"] = "little"


class _Bytes(Strict):
    name: Literal["bytes"]
    configuration: _Endian = _Endian()


class _Level(Strict):
    level: int
    checksum: Literal[True]


class _Zstd(Strict):
    name: Literal["zstd"]
    configuration: _Level


class ArrayDocument(Strict):
    """``zarr.json`` of an array, as far as dsgp writes arrays: numbers, compressed by Zstandard."""

    zarr_format: Literal[3]
    node_type: Literal["array"]
    shape: Annotated[list[_Length], Field(max_length=32)]
    data_type: Annotated[str, Field(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$")]
    chunk_grid: _Grid
    chunk_key_encoding: _Keys
    fill_value: bool | int | float
    codecs: Annotated[list[_Bytes | _Zstd], Field(max_length=4)]
    attributes: dict[str, Any] = Field(default_factory=dict)
    dimension_names: list[str | None] | None = None
    storage_transformers: Annotated[list[Any], Field(default_factory=list, max_length=0)]

    @property
    def n_chunks(self) -> int:
        """Chunks that it must have."""
        chunk = self.chunk_grid.configuration.chunk_shape
        return math.prod(-(-n // size) for n, size in zip(self.shape, chunk, strict=True))

    @property
    def n_bytes(self) -> int:
        """Bytes of all its chunks in memory."""
        item = 1 if self.data_type == "bool" else int(self.data_type.lstrip("uintfloa")) // 8
        return self.n_chunks * math.prod(self.chunk_grid.configuration.chunk_shape) * item


class GroupDocument(Strict):
    """``zarr.json`` of a group within a store."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: Annotated[dict[str, Any], Field(default_factory=dict, max_length=0)]
    consolidated_metadata: None = None


def attributes_of(document: Mapping[str, Any]) -> Attributes:
    """Check the root file of a store against its schema and its digest.

    Raises
    ------
    StorageError
        Naming what differs.
    """
    attributes = document["attributes"]
    version = attributes.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise StorageError(
            f"it has format version {version}; this release reads up to {FORMAT_VERSION}: update "
            "dsgp"
        )
    checked = validated(Attributes, attributes, f"{ROOT}: attributes")
    if document.get("zarr_format") != 3 or document.get("node_type") != "group":
        raise StorageError(f"{ROOT} is not of a group of zarr format 3")
    kept = (checked.files, checked.checksums, checked.digest)
    if checked.format_version < _DIGESTED:
        if any(value is not None for value in kept):
            raise StorageError(
                f"{ROOT} has format_version {checked.format_version}, which has no digest, and a "
                "digest: it is not as it was saved"
            )
    elif any(value is None for value in kept):
        raise StorageError(f"{ROOT} lacks its digest or its table of files")
    else:
        _require_digest(document, checked)
    return checked


def _require_digest(document: Mapping[str, Any], checked: Attributes) -> None:
    now, then = setting_checksums(checked.settings), checked.checksums
    assert then is not None
    changed = [name for name in sorted({*now, *then}) if now.get(name) != then.get(name)]
    if changed:
        raise StorageError(f"{ROOT}: setting {changed[0]!r} is not as it was saved")
    if root_digest(document) != checked.digest:
        raise StorageError(f"{ROOT} is not as it was saved: its digest differs")


def setting_checksums(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return short checksums of settings, and of those within a mapping, by their names."""
    parts: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            parts |= {f"{name}.{part}": one for part, one in value.items()}
        else:
            parts[name] = value
    return {name: digest(value)[:16] for name, value in parts.items()}


def root_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 over a root file, but for the digest that it has."""
    attributes = {k: v for k, v in document["attributes"].items() if k != "digest"}
    return digest({**document, "attributes": attributes})


def require_layout(documents: Mapping[str, Mapping[str, Any]], files: Mapping[str, int]) -> int:
    """Check groups, arrays and chunks of a store before any of them is read by zarr.

    Parameters
    ----------
    documents : mapping of str to mapping
        Of each folder with a ``zarr.json``, as a path within the store, but for the root.
    files : mapping of str to int
        Bytes of all files of the store.

    Returns
    -------
    int
        Bytes of all arrays in memory.

    Raises
    ------
    StorageError
        If a file is of no node, a chunk is missing, or an array says that it is larger than its
        chunks can be.
    """
    chunks = {name: [0, 0] for name, one in documents.items() if one.get("node_type") == "array"}
    for name, size in files.items():
        if PurePosixPath(name).name == ROOT:
            continue
        owner = next(
            (one for one in accumulate(name.split("/"), "{}/{}".format) if one in chunks), ""
        )
        if not owner:
            raise StorageError(f"its file {name!r} belongs to no array")
        chunks[owner][0] += 1
        chunks[owner][1] += size
    total = 0
    for name, document in documents.items():
        total += _bytes_of(name, document, *chunks.get(name, (0, 0)))
    return total


def _bytes_of(name: str, document: Mapping[str, Any], n_files: int, stored: int) -> int:
    """Return the bytes that a node takes in memory, once its document is found to be one."""
    is_array = document.get("node_type") == "array"
    schema: type[ArrayDocument | GroupDocument] = ArrayDocument if is_array else GroupDocument
    checked = validated(schema, document, f"{name}/{ROOT}")
    if not isinstance(checked, ArrayDocument):
        return 0
    if len(checked.shape) != len(checked.chunk_grid.configuration.chunk_shape):
        raise StorageError(
            f"{name}/{ROOT}: chunks have another number of dimensions than the array"
        )
    if checked.n_chunks != n_files:
        raise StorageError(
            f"array {name!r} lacks a chunk, or has others: {checked.n_chunks} of {n_files}"
        )
    if checked.n_bytes > _LARGEST_EXPANSION * stored:
        raise StorageError(
            f"{name}/{ROOT}: an array of shape {checked.shape} cannot be in chunks of {stored} "
            "bytes"
        )
    return checked.n_bytes
