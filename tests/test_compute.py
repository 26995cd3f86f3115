"""Tasks and blocks of rows give the same results, in order, wherever they run."""

import gc
import operator
import sys
import threading
import time
from functools import partial

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from distributed.utils import LoopRunner
from hypothesis import given
from hypothesis import strategies as st

from dsgp import compute
from dsgp.compute import active_client, connected, one_blas_thread, over_blocks, over_chunks, run
from dsgp.errors import ParameterError
from dsgp.rows.sources import source_of


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def cpus(request, monkeypatch):
    monkeypatch.setattr(compute, "CPU_COUNT", request.param)


@pytest.fixture(scope="module")
def cluster():
    with Client(
        processes=False, dashboard_address=None, n_workers=2, threads_per_worker=1,
        set_as_default=False,
    ) as client:  # fmt: skip
        yield client


@pytest.fixture(params=["here", "cluster"])
def anywhere(request, cpus):
    """In the caller, or on an in-process cluster."""
    if request.param == "here":
        assert active_client() is None
        yield
    else:
        with request.getfixturevalue("cluster").as_current():
            assert active_client() is not None
            yield


# ------------------------------------------------------------------ run


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("seconds", [0.0, 1.0, 1000.0])
def test_results_come_in_the_order_of_the_tasks(seconds):
    assert run([lambda k=k: k * k for k in range(20)], seconds) == [k * k for k in range(20)]
    assert run([], seconds) == []


def test_small_work_stays_in_the_caller(monkeypatch):
    monkeypatch.setattr(compute, "CPU_COUNT", 2)
    here = threading.get_ident()
    small = run([threading.get_ident] * 3, compute.WORTH_A_GRAPH / 2)
    large = run([threading.get_ident] * 3, compute.WORTH_A_GRAPH * 2)
    assert set(small) == {here}
    assert here not in large


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("seconds", [0.0, 1.0, 1000.0])
def test_errors_of_a_task_reach_the_caller(seconds):
    def fail():
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        run([fail, lambda: 1], seconds)


def test_tasks_in_place_stay_in_the_process_of_the_caller(cluster):
    out = np.zeros(4)
    with cluster.as_current():
        run([lambda k=k: out.__setitem__(k, k) for k in range(4)], 1000.0, in_place=True)
    np.testing.assert_array_equal(out, np.arange(4.0))


@pytest.mark.usefixtures("anywhere")
def test_tasks_within_tasks_use_no_more_threads():
    def outer(rows):
        return {threading.get_ident(), *run([threading.get_ident] * 4, 1000.0)}

    for threads in over_chunks(loaders([3, 3, 3]), outer):
        assert len(threads) == 1


# ------------------------------------------------------------------ rows


class Numbers:
    """Rows of one column."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def part(self, rows):
        return Numbers(self.values[rows])

    @staticmethod
    def join(pieces):
        return Numbers(np.concatenate([piece.values for piece in pieces]))


def loaders(lengths, fail_at=None):
    """Chunks of the numbers 0, 1, …"""

    def load(start, length, chunk):
        if chunk == fail_at:
            raise OSError("cannot be read")
        return Numbers(np.arange(start, start + length))

    starts = np.cumsum([0, *lengths])
    for chunk, length in enumerate(lengths):
        yield lambda a=(int(starts[chunk]), length, chunk): load(*a)


def values(rows):
    return rows.values.tolist()


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("lengths", [[], [0], [5], [3, 0, 4, 1], [1] * 40])
def test_chunks_come_whole_and_in_order(lengths):
    starts = np.cumsum([0, *lengths])
    expected = [
        list(range(start, start + length)) for start, length in zip(starts, lengths, strict=False)
    ]
    assert list(over_chunks(loaders(lengths), values)) == expected


@given(lengths=st.lists(st.integers(0, 12), max_size=12), block=st.integers(1, 20))
def test_blocks_do_not_depend_on_the_chunks(lengths, block):
    n = sum(lengths)
    found = list(over_blocks(loaders(lengths), lengths, block, values))
    assert found == [list(range(k, min(k + block, n))) for k in range(0, n, block)]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("lengths", [[], [0, 0], [7], [10, 0, 1, 4, 3], [1] * 25, [100]])
@pytest.mark.parametrize("block", [1, 4, 1000])
def test_blocks_are_the_same_anywhere(lengths, block):
    n = sum(lengths)
    found = list(over_blocks(loaders(lengths), lengths, block, values))
    assert found == [list(range(k, min(k + block, n))) for k in range(0, n, block)]


def over(kind, chunks, lengths, function=values):
    if kind == "chunks":
        return over_chunks(chunks, function)
    return over_blocks(chunks, lengths, 4, function)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["chunks", "blocks"])
@pytest.mark.parametrize("fail_at", [0, 3, 9])
def test_an_error_of_a_loader_comes_through(kind, fail_at):
    lengths = [5] * 10
    found = []
    with pytest.raises(OSError, match="cannot be read"):
        found.extend(over(kind, loaders(lengths, fail_at), lengths))
    # What comes before it is not lost … but a list does not keep it.
    assert threading.active_count() < 100


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["chunks", "blocks"])
def test_an_error_of_the_function_or_of_the_source_comes_through(kind):
    lengths = [5] * 10

    def broken(rows):
        if rows.values[0] >= 20:
            raise ArithmeticError("no")
        return rows

    with pytest.raises(ArithmeticError, match="no"):
        list(over(kind, loaders(lengths), lengths, broken))

    def source():
        yield from loaders([5, 5])
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(over(kind, source(), lengths))


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("kind", ["chunks", "blocks"])
def test_one_may_stop_early(kind):
    began = time.monotonic()
    results = over(kind, loaders([5] * 1000), [5] * 1000)
    assert next(results)[:4] == [0, 1, 2, 3]
    results.close()
    assert time.monotonic() - began < 10


def test_few_chunks_are_in_memory(monkeypatch):
    monkeypatch.setattr(compute, "CPU_COUNT", 2)
    asked = []

    def counted():
        for chunk, loader in enumerate(loaders([5] * 100)):
            asked.append(chunk)
            yield loader

    for used, _ in enumerate(over_chunks(counted(), values)):
        assert len(asked) <= used + 4


def test_results_of_a_client_are_those_of_the_tasks():
    """Also where tasks are made and dropped again and again."""
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None):
        for round_ in range(100):
            tasks = [partial(operator.add, round_, k) for k in range(4)]
            assert run(tasks, 1e9) == [round_ + k for k in range(4)]


# ------------------------------------------------------------------ on the dashboard


def test_a_dashboard_shows_tasks_under_names_of_their_work(cluster):
    rows = rows_of_dask(300)
    with cluster.as_current():
        list(over_chunks(rows.chunks(), len, "looks"))
        list(over_blocks(rows.chunks(), [100, 100, 100], 150, len, "adds"))
        run([lambda: 1, lambda: 2], 1000.0)
    assert _task_names(cluster) >= {"dsgp-looks", "dsgp-adds", "dsgp-terms"}
    assert "dsgp-read" in _task_names(cluster)


def rows_of_dask(n):
    X = da.from_array(np.arange(2.0 * n).reshape(n, 2), chunks=(100, 2))
    return source_of(X, y=np.ones(n))


def _task_names(client):
    return set(client.cluster.scheduler.task_prefixes)


def test_no_client_is_collected_while_another_one_starts(monkeypatch):
    """It would close by the lock that the start holds, and wait for ever."""
    enabled = []
    start = LoopRunner._start_unlocked
    monkeypatch.setattr(
        LoopRunner, "_start_unlocked", lambda self: enabled.append(gc.isenabled()) or start(self)
    )
    for _ in range(2):
        with pytest.raises(ParameterError, match="no dask scheduler"), connected("nonsense://x"):
            pass
    assert enabled == [False, False]
    assert gc.isenabled()


def test_libraries_of_blas_are_looked_for_again_after_an_import(monkeypatch):
    looked = []
    make = compute.ThreadpoolController
    monkeypatch.setattr(compute, "ThreadpoolController", lambda: looked.append(1) or make())
    monkeypatch.setattr(one_blas_thread, "_controller", None)
    for _ in range(2):
        with one_blas_thread():
            pass
    assert len(looked) == 1
    monkeypatch.setitem(sys.modules, "a_module_with_a_library", None)
    with one_blas_thread():
        pass
    assert len(looked) == 2


def test_one_chunk_is_read_in_the_thread_of_the_caller():
    for pieces, here in ((1, True), (2, False)):
        loaders = [threading.get_ident] * pieces
        assert (set(over_chunks(loaders, int)) == {threading.get_ident()}) == here
