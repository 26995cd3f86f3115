"""Fixtures and settings for every test."""

from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: a first call may compile. Derandomised: a failure here is a failure everywhere.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository; tests that need it skip elsewhere."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs the reference data in ../shared")
    return path


@pytest.fixture(scope="session")
def data_dir(shared: Path) -> Path:
    """The folder of public data sets."""
    path = shared / "data"
    if not path.is_dir():
        pytest.skip("needs the data sets in ../shared/data")
    return path
