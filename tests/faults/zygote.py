"""Starts schedulers, workers and commands by forking: processes of their own, in milliseconds.

Read from standard input, a line of JSON each: {"kind", "out", …}. Answered by the number of the
process. Run by ``processes.py``.
"""

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from contextlib import nullcontext, suppress
from pathlib import Path

import dask
import numpy as np
from distributed import Client, Scheduler, Worker

import dsgp.cli  # imported once, and warm in every process that is forked
from dsgp.places import made_aside
from tests.faults import jobs

HOST = "127.0.0.1"


async def scheduler(address_file, port=0):
    """Run a scheduler, and write its address to a file."""
    async with Scheduler(host=HOST, port=port, dashboard=False) as running:
        aside = Path(f"{address_file}.aside")
        aside.write_text(running.address, encoding="utf-8")
        aside.replace(address_file)
        await running.finished()


async def worker(address, folder, memory_limit):
    """Run a worker of one thread."""
    async with Worker(
        address, nthreads=1, host=HOST, dashboard=False, local_directory=folder,
        memory_limit=memory_limit,
    ) as running:  # fmt: skip
        await running.finished()


def command(arguments):
    """Run ``dsgp`` as from a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dsgp.cli.main(arguments)


def job(name, folder, address):
    """Drive a job on a cluster, and save what it gives."""
    folder = Path(folder)
    with Client(address) if address else nullcontext():
        np.save(folder / "result.npy", jobs.JOBS[name](jobs.Gate(folder / "gate"), folder))


def aside(place):
    """Write a model aside, and never come to an end."""
    with made_aside(Path(place)) as made:
        made.mkdir()
        (Path(place).parent / "written").touch()
        time.sleep(jobs.PATIENCE)


def run(asked):
    """What the forked process does."""
    out = os.open(asked.pop("out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    kind = asked.pop("kind")
    # Standard input belongs to the parent.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with dask.config.set(asked.pop("config", {})):
        if kind == "command":
            command(asked["arguments"])
        elif kind in ("job", "aside"):
            {"job": job, "aside": aside}[kind](**asked)
        else:
            asyncio.run({"scheduler": scheduler, "worker": worker}[kind](**asked))


def main():
    """Fork on demand until standard input ends."""
    jobs.warm_up()
    print("ready", flush=True)
    children = []
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["kind"] == "wait":  # for the exit code, None while it runs
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            if pid:
                children.remove(pid)
            print(json.dumps(os.waitstatus_to_exitcode(status) if pid else None), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                run(asked)
            except SystemExit as error:
                code = error.code or 0
            except BaseException:
                traceback.print_exc()
                code = 70
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
