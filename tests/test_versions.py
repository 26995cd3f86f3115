"""Which versions count as one, on clusters and for results that are kept."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from dsgp import versions
from dsgp.errors import ClusterError
from dsgp.versions import own_versions, without_commit

ROOT = Path(__file__).parents[1]


def require_same(monkeypatch, here, there):
    """Compare versions of dsgp as a driver does with those of a worker."""
    told = {"python": ".".join(map(str, sys.version_info[:3])), "dsgp": there}
    monkeypatch.setattr(versions, "version", lambda name: here if name == "dsgp" else "1")
    versions._require_same("tcp://there", versions._comparable(told), own_versions())


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("0.2.0", "0.2.0"),
        ("0.2.1.dev3+g1a2b3c4", "0.2.1.dev7"),  # installed at two commits
        ("0.dev0", "0.2.0"),  # a copy without git, which does not know
        ("0.2.0", None),
    ],
)
def test_commits_between_releases_count_as_one(monkeypatch, here, there):
    require_same(monkeypatch, here, there)


@pytest.mark.parametrize("there", ["0.2.0", "0.2.2.dev1", "0.3.0rc1"])
def test_other_releases_are_refused(monkeypatch, there):
    with pytest.raises(ClusterError, match=re.escape(f"dsgp {without_commit(there)} and not")):
        require_same(monkeypatch, "0.2.1.dev3", there)


def test_a_copy_without_git_has_the_version_that_counts_as_unknown():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert metadata["tool"]["hatch"]["version"]["fallback-version"] == versions._UNKNOWN
    assert "version" in metadata["project"]["dynamic"]
