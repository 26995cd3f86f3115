"""Fixtures and settings for every test."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# No deadline: a first call may compile. Derandomised: a failure here is a failure everywhere.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_setupnodes(specs):
    """Let several test processes share the processors.

    Threads of BLAS and OpenMP would wait busily for each other. The libraries read this when they
    are loaded, which in a worker is before any conftest: so it is set before the workers start.
    """
    if len(specs) > 1:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def pytest_collection_finish():
    """Keep the garbage collector from the thousands of modules and tests, which stay to the end.

    To look through them whenever new objects are as many takes some per cent of the run.
    """
    gc.freeze()


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
