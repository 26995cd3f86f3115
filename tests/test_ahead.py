"""Tasks under way: enough for a cluster to grow by demand, and no more than memory allows."""

import time
from functools import partial

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

from dsgp import ahead
from dsgp.ahead import Ahead
from dsgp.compute import over_chunks

WORKERS = {f"w{i}": {"nthreads": 2, "memory_limit": 2**30} for i in range(3)}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr(ahead.time, "monotonic", lambda: now[0])
    return now


def after(clock, results, seconds, *, at_first=2, n_results=10):
    limit = Ahead(at_first)
    for _ in range(n_results):
        limit.came(results)
    clock[0] += seconds
    return limit.number(WORKERS)


def test_short_tasks_are_so_many_that_a_cluster_sees_demand(clock):
    # Ten results in 1 s on six threads are 0.6 s each.
    assert after(clock, 1.0, 1.0) == round(2 * 5.0 * 6 / 0.6)
    with dask.config.set({"distributed.adaptive.target-duration": "1s"}):
        assert after(clock, 1.0, 1.0) == round(2 * 1.0 * 6 / 0.6)


def test_long_tasks_are_two_for_each_thread(clock):
    assert after(clock, 1.0, 500.0) == 12
    assert after(clock, 1.0, 500.0, at_first=20) == 20


def test_nothing_is_concluded_from_the_first_results(clock):
    assert after(clock, 1.0, 1.0, n_results=3) == 12


def test_large_results_are_fewer(clock):
    results = {"tables": [np.zeros(2**20), (np.zeros(2**18),)]}  # 10 MiB; 5 % of 3 GiB are 153.6
    assert after(clock, results, 1.0) == 15
    assert after(clock, np.zeros(2**23), 1.0) == 12


class Read:
    def __init__(self, table):
        self.table = table

    def read(self):
        return self.table


@pytest.mark.parametrize(
    ("loaders", "light"),
    [
        ([], True),
        ([partial(len, "name"), partial(len, "other")], True),
        ([partial(len, np.zeros(10**5))], False),
        ([Read(pd.DataFrame({"a": np.zeros(10**5)})).read], False),
        ([Read("name").read], True),
        ([Read(da.zeros(10**5).to_delayed()[0]).read], True),
        ([Read(da.from_array(np.zeros(10**5)).to_delayed()[0]).read], False),
        ([(lambda rows: lambda: rows)(np.zeros(10**5))], False),
    ],
)  # fmt: skip
def test_rows_that_travel_with_tasks_are_seen(loaders, light):
    told, same = ahead.are_light(loaders)
    assert told is light
    assert list(same) == loaders


def _sleeps(seconds):
    time.sleep(seconds)
    return seconds


def test_an_adaptive_cluster_grows_during_a_pass_of_short_tasks():
    settings = {
        "distributed.adaptive.target-duration": "500ms",
        "distributed.scheduler.unknown-task-duration": "1ms",
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        cluster.adapt(minimum=1, maximum=2, interval="50ms", target_duration="500ms")
        n_workers = []
        loaders = [partial(_sleeps, 0.02)] * 400
        for n_results, _ in enumerate(over_chunks(loaders, _same)):
            if n_results % 10 == 0:
                n_workers.append(len(cluster.scheduler.workers))
        assert n_workers[0] == 1
        assert max(n_workers) == 2


def _same(value):
    return value
