"""The folder of a chain: one folder a stage, whole or not there, with a manifest of what made it.

Nothing here knows what a stage does.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsgp.errors import DsgpError, StorageError
from dsgp.locks import only_here
from dsgp.places import made_aside, replace_text, require_apart
from pipelines.reporting import MAKER, plain_json

MARKER = "chain.json"
MANIFEST = "stage.json"
LOCK = ".lock"
# Of a manifest, those that are looked at.
_KEYS = {"key", "run", "options", "needs", "seconds", "parts", "warnings", "files"}


@contextmanager
def chain_folder(
    path: Path,
    data: str,
    *,
    overwrite: bool = False,
    inputs: Iterable[str | Path | None] = (),
) -> Iterator[Path]:
    """Make or open the folder of a chain, for one process at a time.

    What a killed run left half-written is removed.

    Parameters
    ----------
    path : Path
    data : str
        What the chain loads: stages made from other data are replaced only with `overwrite`.
    inputs : iterable of str or Path
        Files that the folder may not hold.

    Raises
    ------
    StorageError
        If the folder holds anything else, another process works in it, or it cannot be written.
    """
    path = path.absolute()
    require_apart(path, inputs)
    _require_ours(path, data, overwrite)
    try:
        path.mkdir(parents=True, exist_ok=True)
        refusal = (
            f"another run works in {str(path)!r}; wait until it ends, or choose another folder"
        )
        with only_here(path / LOCK, refusal):
            for rest in path.rglob(".*.part"):
                shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
            write_json(path / MARKER, {"made_by": MAKER, "pipeline": "run", "data": data})
            yield path
    except DsgpError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _require_ours(path: Path, data: str, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise StorageError(f"{str(path)!r} is a file; choose a folder for the results")
    if not {entry.name for entry in path.iterdir()} - {LOCK}:
        return
    marker = read_json(path / MARKER)
    if marker is None or marker.get("made_by") != MAKER:
        raise StorageError(
            f"{str(path)!r} exists and no chain of dsgp wrote it, so it is not replaced; choose "
            "another folder"
        )
    if marker.get("data") != data and not overwrite:
        raise StorageError(
            f"{str(path)!r} holds the stages of {marker.get('data')}, and this chain loads {data}; "
            "choose another folder, or replace them with --overwrite"
        )


@contextmanager
def written_stage(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `folder` when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with made_aside(folder) as whole:
        whole.mkdir()
        yield whole


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Read what a whole stage says of itself; None where there is none or a file is gone."""
    manifest = read_json(folder / MANIFEST)
    if manifest is None or manifest.get("made_by") != MAKER:
        return None
    if not set(manifest) >= _KEYS:
        return None
    present = {entry.name for entry in folder.iterdir()}
    return manifest if set(manifest["files"]) <= present else None


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, whole or not at all; numbers that are not finite become null."""
    text = json.dumps(plain_json(content), indent=2, ensure_ascii=False, allow_nan=False)
    replace_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
