"""Temporary folders are their user's alone, and go even after their process was killed."""

import ast
import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dsgp
from dsgp import locks
from dsgp.scratch import Scratch, remove_leftovers

ROOT = Path(__file__).parents[1]
HOLD = """
import sys, time
from dsgp.scratch import Scratch
folder = Scratch("test")
(folder.path / "data").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""
# Of modules, and functions of any, that run what a file says.
RUNS_FILES = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}
RUNNING_CALLS = {"read_pickle", "eval", "exec"}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holding():
    """Start a process that holds a scratch folder; return both."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    return process, Path(process.stdout.readline().strip())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_a_folder_is_its_users_alone(temporary):
    with Scratch("test") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent == temporary
    assert not any(temporary.iterdir())


def test_a_folder_goes_with_its_object(temporary):
    scratch = Scratch("test")
    assert scratch.path.is_dir()
    del scratch
    assert not any(temporary.iterdir())


def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(temporary):
    killed, left = holding()
    living, used = holding()
    try:
        killed.kill()
        killed.wait()
        assert left.is_dir()
        with Scratch("test"):
            assert not left.exists()
            assert (used / "data").read_text() == "x"
    finally:
        for process in (killed, living):
            process.communicate("")
    assert not used.exists()  # it has ended by itself


def test_what_is_not_ours_or_being_made_stays(temporary):
    (temporary / "dsgp-scratch-young").mkdir()
    (temporary / "precious").mkdir()
    (temporary / "dsgp-scratch-link").symlink_to(temporary / "precious")
    old = temporary / "dsgp-scratch-old"
    old.mkdir()
    os.utime(old, (0, 0))
    remove_leftovers()
    kept = ["dsgp-scratch-link", "dsgp-scratch-young", "precious"]
    assert sorted(os.listdir(temporary)) == kept


def calls_and_imports():
    for file in sorted(Path(dsgp.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield file.name, node


def test_nothing_of_a_users_file_is_unpickled_or_run():
    found = []
    for file, node in calls_and_imports():
        if isinstance(node, ast.Import):
            found += [(file, one.name) for one in node.names if one.name in RUNS_FILES]
        elif isinstance(node, ast.ImportFrom) and node.module in RUNS_FILES:
            found.append((file, node.module))
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in RUNNING_CALLS:
                found.append((file, name))
            found += [
                (file, word.arg)
                for word in node.keywords
                if word.arg == "allow_pickle" and getattr(word.value, "value", True) is not False
            ]
    assert found == []


def test_temporary_files_are_made_by_tempfile_or_scratch_alone():
    """``tempfile.mktemp`` and fixed names in /tmp can be foreseen by other users."""
    for file, node in calls_and_imports():
        if isinstance(node, ast.Call):
            assert getattr(node.func, "attr", "") != "mktemp", file
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not node.value.startswith("/tmp/"), file


def test_where_there_are_no_locks_nobody_is_taken_for_dead(monkeypatch):
    def without_locks(*_):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(locks.fcntl, "flock", without_locks)
    with Scratch("first") as first, Scratch("second"):
        assert first.exists()
