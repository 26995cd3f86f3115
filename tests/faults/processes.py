"""A cluster of processes that tests stop, kill and start again."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from distributed import Client

from tests.faults.jobs import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]


class Zygote:
    """The process of which all others are forked."""

    def __init__(self, folder):
        self.folder, self.pids, self.n_started = folder, [], 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._process.stdout.readline() == "ready\n"

    def _ask(self, **asked):
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, kind, **asked):
        """Fork a process; return its number and the file of what it prints."""
        self.n_started += 1
        out = self.folder / f"{kind}-{self.n_started}.log"
        pid = self._ask(kind=kind, out=str(out), **asked)
        self.pids.append(pid)
        return pid, out

    def exit_code(self, pid):
        """Wait for the end of a process."""
        codes = []

        def ended():
            codes.append(self._ask(kind="wait", pid=pid))
            return codes[-1] is not None

        wait_until(ended, f"the end of process {pid}")
        self.pids.remove(pid)
        return codes[-1]

    def kill(self, pid):
        """End a process at once, whatever it does."""
        os.kill(pid, signal.SIGKILL)
        self.exit_code(pid)

    def close(self):
        """End all."""
        for pid in list(self.pids):
            with suppress(ProcessLookupError):
                self.kill(pid)
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


class Cluster:
    """A scheduler, two workers, and a client that looks after them."""

    def __init__(self, zygote, folder, n_workers=2, scheduler_config=None, **options):
        self.zygote, self.folder, self.options = zygote, folder, options
        self.n_workers, self.config = n_workers, scheduler_config or {}
        self.start_scheduler()
        self.admin = Client(self.address, set_as_default=False, timeout=PATIENCE)
        self.workers = []
        if self.n_workers:
            self.add(self.n_workers)

    def start_scheduler(self, port=0):
        """Start it, at a port that is free by default."""
        file = self.folder / f"scheduler-{self.zygote.n_started}"
        self.scheduler, _ = self.zygote.start(
            "scheduler", address_file=str(file), port=port, config=self.config
        )
        wait_until(file.exists, "the start of a scheduler")
        self.address = file.read_text(encoding="utf-8")

    def add(self, count=1):
        """Start workers, and wait until they are there."""
        for _ in range(count):
            self.workers.append(self.worker(**self.options))
        self.admin.wait_for_workers(len(self.workers), timeout=PATIENCE)

    def worker(self, memory_limit=0, local_directory=None, config=None):
        """Start a worker; return its number."""
        pid, _ = self.zygote.start(
            "worker", address=self.address, memory_limit=memory_limit,
            folder=str(local_directory or self.folder), config=config or {},
        )  # fmt: skip
        return pid

    def address_of(self, pid):
        """Where the scheduler reaches a worker."""
        ports = {
            one.laddr.port
            for one in psutil.Process(pid).net_connections("inet")
            if one.status == psutil.CONN_LISTEN
        }
        known = self.admin.scheduler_info()["workers"]
        return next(one for one in known if int(one.rpartition(":")[2]) in ports)

    def kill(self, index=0):
        """Kill a worker."""
        self.zygote.kill(self.workers.pop(index))

    def mend(self):
        """Have as many workers as at the start, running, for the next test."""
        for pid in list(self.workers):
            if pid not in self.zygote.pids or not psutil.pid_exists(pid):
                self.workers.remove(pid)
                continue
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.add(max(self.n_workers - len(self.workers), 0))
        wait_until(
            lambda: len(self.admin.scheduler_info()["workers"]) == self.n_workers, "a whole cluster"
        )

    def close(self):
        """End all processes."""
        self.admin.close(timeout=2)
        for pid in [*self.workers, self.scheduler]:
            if pid in self.zygote.pids:
                self.zygote.kill(pid)
