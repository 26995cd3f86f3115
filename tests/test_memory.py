"""What fits into memory, in a container and out of one."""

import psutil
import pytest

from dsgp import memory
from dsgp.errors import MemoryLimitError

GIB = 2**30


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Set free memory of the machine, and limit and use of a container."""

    def configure(free, limit=None, used=None):
        files = tmp_path / "max", tmp_path / "current"
        for file, text in zip(files, (limit, used), strict=True):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(f"{text}\n")
        monkeypatch.setattr(memory, "_CGROUPS", (tuple(map(str, files)),))
        found = type("Memory", (), {"available": free})
        monkeypatch.setattr(psutil, "virtual_memory", lambda: found)

    return configure


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (None, None, 8 * GIB),
        ("max", GIB, 8 * GIB),
        (4 * GIB, GIB, 3 * GIB),
        (16 * GIB, GIB, 8 * GIB),
        (GIB, 2 * GIB, 0),
        (4 * GIB, None, 8 * GIB),
    ],
)
def test_the_tighter_of_machine_and_container_counts(machine, limit, used, expected):
    machine(8 * GIB, limit, used)
    assert memory.available() == expected


def test_what_does_not_fit_is_refused_with_a_remedy(machine):
    machine(2 * GIB)
    memory.require("a fit", 2 * GIB, "take fewer bins")
    with pytest.raises(
        MemoryLimitError,
        match=r"a fit needs about 3\.0 GiB .* 2\.0 GiB are avail.*"
        "take fewer bins",
    ):
        memory.require("a fit", 3 * GIB, "take fewer bins")


def test_this_machine_has_some_memory():
    assert 0 < memory.available() <= psutil.virtual_memory().total
