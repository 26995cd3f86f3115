"""One zygote and one cluster for all faults that leave the scheduler alive."""

import faulthandler
import sys
import threading

import dask
import numpy as np
import pytest
from distributed import Client

from tests.faults.jobs import JOBS, MIDDLE, NO_WORKERS, PATIENCE, STALL, Gate, wait_until
from tests.faults.processes import Cluster, Zygote


def pytest_collection_modifyitems(items):
    """Signals as these are of Linux and macOS."""
    if sys.platform == "win32":
        for item in items:
            if "faults" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="Windows has no such signals"))


@pytest.fixture(autouse=True)
def guard():
    """End the test run, with the stacks of all threads, rather than hang."""
    faulthandler.dump_traceback_later(3 * PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    started = Zygote(tmp_path_factory.mktemp("logs"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def shared_cluster(zygote, tmp_path_factory):
    started = Cluster(zygote, tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture
def cluster(shared_cluster):
    """The shared one, whole again after each test."""
    shared_cluster.mend()
    return shared_cluster


@pytest.fixture(scope="session", params=JOBS)
def kind(request):
    return request.param


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """What the jobs give on threads, by kind."""
    results = {}
    for name, job in JOBS.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "gate").mkdir()
        results[name] = job(Gate(folder / "gate"), folder)
    return results


class Running:
    """A job in a thread of its own, held up in its middle."""

    def __init__(self, address, kind, folder, held=True):
        (folder / "gate").mkdir(exist_ok=True)
        self.gate = Gate(folder / "gate")
        self.result = self.error = None
        if held:
            self.gate.close(MIDDLE[kind])
        self._thread = threading.Thread(target=self._run, args=(address, kind, folder), daemon=True)
        self._thread.start()
        if held:
            wait_until(lambda: self.gate.reached() or self.ended, "the middle of the job")
            assert not self.ended, self.error

    def _run(self, address, kind, folder):
        client = Client(address, set_as_default=False, timeout=PATIENCE)
        try:
            with client.as_current():
                self.result = JOBS[kind](self.gate, folder)
        except BaseException as error:
            self.error = error
        finally:
            client.close(timeout=1)

    @property
    def ended(self):
        return not self._thread.is_alive()

    def go_on(self):
        self.gate.open()

    def require_error(self, kind, *parts):
        """The job must have ended with an error that says this."""
        error = self.end()
        assert type(error) is kind, repr(error)
        for part in parts:
            assert part in str(error), str(error)

    def end(self, seconds=PATIENCE):
        """Wait for the end; return the error, if there was one."""
        self._thread.join(seconds)
        assert self.ended, f"the job hangs: it did not end in {seconds} s"
        return self.error

    def require(self, expected):
        """The job must have ended well, with these bits."""
        error = self.end()
        if error is not None:
            raise error
        np.testing.assert_array_equal(self.result, expected)


@pytest.fixture
def own_cluster(zygote, tmp_path):
    """Starts clusters that are spoiled by the test."""
    started = []

    def start(**options):
        started.append(Cluster(zygote, tmp_path, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def patience():
    """Short times of the watchdog."""
    with dask.config.set(
        {"dsgp.stall-timeout": STALL, "distributed.scheduler.no-workers-timeout": NO_WORKERS}
    ):
        yield


@pytest.fixture
def running(tmp_path, patience):
    """Starts a job on a cluster, in a folder of the test."""

    def start(address, kind, folder=tmp_path, **options):
        return Running(address, kind, folder, **options)

    return start
