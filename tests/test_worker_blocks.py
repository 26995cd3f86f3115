"""Rows that workers keep between passes give the same bits as threads, and go with the fit."""

import asyncio
import gc
import pickle
import time

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster, wait

import dsgp
from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP
from dsgp.additive import kept_rows, streaming
from dsgp.additive.kept_rows import blocks_of_a_part
from dsgp.additive.worker_codes import WorkerCodes
from dsgp.errors import ClusterError
from dsgp.kernels import Matern12, Matern52
from dsgp.laplace import learner
from dsgp.models.laplace import rows as laplace_rows
from dsgp.rows.coding import TermCut
from dsgp.rows.encode import Bins
from dsgp.rows.table import CodesElsewhere, RowTable
from dsgp.terms import BoundTerm
from dsgp.worker_blocks import WorkerBlocks, workers_that_keep

N, CHUNK, BLOCK = 20_000, 3_000, 8_192


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(1)
    X = random.standard_normal((N, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2
    weight = np.where(random.random(N) > 0.1, random.random(N), 0.0)
    return {
        "X": X,
        "class": f + random.logistic(size=N) > 0,
        "count": random.poisson(np.exp(f / 2)).astype(float),
        "weight": weight,
    }


def kernel():
    return Matern52(lengthscale=1.0, variance=1.0)


CASES = {
    "classes": (AdditiveGPClassifier(kernel(), bins=128, learner=None), "class", None),
    "weighted counts": (
        GeneralizedAdditiveGP("poisson", kernel=kernel(), bins=128, learner=None),
        "count",
        "weight",
    ),
    "learned": (GeneralizedAdditiveGP("negative_binomial", bins=128), "count", None),
}


def fitted(case, data, chunk=CHUNK):
    model, target, weight = CASES[case]
    X, y = data["X"], data[target]
    weights = None if weight is None else da.from_array(data[weight], chunks=chunk)
    model.fit(
        da.from_array(X, chunks=(chunk, 2)), da.from_array(y, chunks=chunk), sample_weight=weights
    )
    answer = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return answer(X[:200])


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(streaming, "LOGICAL_BLOCK", BLOCK)
    monkeypatch.setattr(learner, "FIRST_ROWS", N // 4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("short_blocks")
@pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")
def test_a_fit_on_workers_has_the_bits_of_one_on_threads(case, data, cluster, monkeypatch):
    here = fitted(case, data)
    kept = []
    monkeypatch.setattr(
        laplace_rows, "workers_that_keep", lambda n: kept.append(n) or workers_that_keep(n)
    )
    with Client(cluster) as client:
        there = fitted(case, data, chunk=7_001)
        names = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    np.testing.assert_array_equal(there, here)
    assert kept
    assert {"dsgp-code", "dsgp-rows"} <= names


def rough(**options):
    """A regression whose bins are too many for tables of their pairs."""
    kernel = Matern12(lengthscale=1.0, variance=1.0)
    return AdditiveGPRegressor(kernel, noise_variance=0.1, bins=4500, **options)


ROUGH = {
    "given": (rough(learner=None), "weight"),
    "learned": (rough(learner="vbem", learner_max_iter=2), "weight"),
    "backfitting": (rough(learner=None, solver="backfitting", max_iter=3), None),
}


def fitted_rough(case, data, chunk):
    model, weight = ROUGH[case]
    y = da.from_array(data["X"][:, 0] * data["X"][:, 1] + data["count"], chunks=chunk)
    X = da.from_array(data["X"], chunks=(chunk, 2))
    weight = None if weight is None else da.from_array(data[weight], chunks=chunk)
    return model.fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("case", ROUGH)
@pytest.mark.usefixtures("short_blocks")
@pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning", "ignore::UserWarning")
def test_a_regression_without_tables_of_pairs_keeps_its_codes_on_workers(
    case, data, cluster, monkeypatch, tmp_path
):
    monkeypatch.setattr(kept_rows, "_TABLE_BYTES", 1e6)
    X = data["X"][:100]

    def answers_of(model):
        draws = model.sample(X[:20], n_samples=2, random_state=0)
        return np.concatenate([*model.predict(X, return_std=True), np.ravel(draws)])

    here = answers_of(fitted_rough(case, data, CHUNK))
    with Client(cluster) as client:
        model = fitted_rough(case, data, 7_001)
        names = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    # The workers are not needed any more.
    np.testing.assert_array_equal(answers_of(model), here)
    model.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(answers_of(dsgp.load(tmp_path / "m.zarr")), here)
    assert len(model.model_.latent.equations.table.ends) == 3
    assert {"dsgp-code", "dsgp-rows", "dsgp-codes"} <= names
    assert ("dsgp-fit" in names) == (case != "given")


@pytest.mark.usefixtures("short_blocks")
def test_nothing_is_left_on_the_workers_after_a_fit(data, client):
    fitted("classes", data)
    gc.collect()
    client.run_on_scheduler(_until_without_tasks)
    # The scheduler knows before the workers do.
    ends = time.monotonic() + 30
    while any(left := client.run(lambda dask_worker: len(dask_worker.data)).values()):
        assert time.monotonic() < ends, left
        time.sleep(0.01)


async def _until_without_tasks(dask_scheduler):
    async def none_left():
        while dask_scheduler.tasks:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(none_left(), 30)


def kept_codes(client, codes, ends):
    blocks = WorkerBlocks(client)
    loaders = [lambda k=k: Codes(codes[:, k : k + 5]) for k in range(0, codes.shape[1], 5)]
    sums = list(blocks.made(loaders, [5] * len(loaders), 10, _sum_and_codes, "code"))
    until = [end // 10 for end in ends]
    parts = blocks.joined(until, _side_by_side, "recode")
    return sums, WorkerCodes(parts, ends, len(codes), codes.dtype)


class Codes:
    """A piece of rows that can be cut and joined."""

    def __init__(self, codes):
        self.codes = codes

    def __len__(self):
        return self.codes.shape[1]

    def part(self, rows):
        return Codes(self.codes[:, rows])

    @staticmethod
    def join(pieces):
        return Codes(np.concatenate([piece.codes for piece in pieces], axis=1))


def _sum_and_codes(rows):
    return int(rows.codes.sum()), rows.codes


def _side_by_side(*blocks):
    return np.concatenate(blocks, axis=1)


def _of_part(table, arrays, part):
    return table.codes[:, part], arrays[0][part], arrays[1], part


def test_parts_come_in_their_order_with_what_is_beside_them(client):
    codes = np.random.default_rng(2).integers(0, 4, (3, 40)).astype(np.uint16)
    sums, there = kept_codes(client, codes, (10, 30, 40))
    assert sums == [int(codes[:, k : k + 10].sum()) for k in range(0, 40, 10)]
    values, none = np.arange(40.0), np.empty(0)
    table = RowTable(("a", "b", "c"), (np.arange(4.0),) * 3, there, ends=there.ends)
    found = list(table.by_parts(_of_part, (values, none)))
    for (start, stop), (codes_there, values_there, none_there, part) in zip(
        [(0, 10), (10, 30), (30, 40)], found, strict=True
    ):
        np.testing.assert_array_equal(codes_there, codes[:, start:stop])
        np.testing.assert_array_equal(values_there, values[start:stop])
        assert len(none_there) == 0
        assert part == slice(0, stop - start)
    chosen = there.chosen([2, 0])
    assert chosen.shape == (2, 40)
    np.testing.assert_array_equal(chosen.here(), codes[[2, 0]])
    doubled = there.changed(_doubled, codes.dtype)
    assert isinstance(doubled, CodesElsewhere)
    np.testing.assert_array_equal(doubled.here(), 2 * codes)
    np.testing.assert_array_equal(there[:, 5:25], codes[:, 5:25])


def _doubled(codes):
    return 2 * codes


def test_what_a_lost_worker_kept_is_made_again(client, cluster):
    codes = np.random.default_rng(3).integers(0, 4, (2, 80)).astype(np.uint16)
    _, there = kept_codes(client, codes, tuple(range(10, 90, 10)))
    wait([block.future for block in there.blocks._blocks])
    client.restart_workers([next(iter(client.scheduler_info()["workers"]))])
    np.testing.assert_array_equal(there.here(), codes)


def test_what_a_restarted_cluster_kept_is_made_again(client):
    codes = np.random.default_rng(3).integers(0, 4, (2, 80)).astype(np.uint16)
    _, there = kept_codes(client, codes, tuple(range(10, 90, 10)))
    doubled = there.blocks.changed(_doubled, name="double")
    np.testing.assert_array_equal(there.here(), codes)
    cells = (np.arange(4.0),) * 2
    table = RowTable(("a", "b"), cells, there, ends=there.ends)
    known = RowTable(("a", "b"), cells, codes, ends=there.ends)
    weight, change = np.arange(80.0), np.arange(4.0)
    fits = [table.fit(np.arange(8.0)), known.fit(np.arange(8.0))]
    for k in range(2):  # what the rows get of a term, and what lies beside them, is lost in between
        for fit in fits:
            fit.add(k, change)
        np.testing.assert_array_equal(*(fit.scatter(1, weight) for fit in fits))
        if k == 0:
            client.restart()
            np.testing.assert_array_equal(*(fit.scatter(0, weight) for fit in fits))
    np.testing.assert_array_equal(there.here(), codes)
    made = np.concatenate(list(doubled.each(_doubled, name="again")), axis=1)
    np.testing.assert_array_equal(made, 4 * codes)


def test_what_is_sent_to_a_closed_client_ends_in_one_error(cluster):
    client = Client(cluster)
    codes = np.random.default_rng(3).integers(0, 4, (2, 80)).astype(np.uint16)
    _, there = kept_codes(client, codes, tuple(range(10, 90, 10)))
    client.close()
    with pytest.raises(ClusterError):
        there.blocks.changed(_doubled, name="double")


def test_workers_keep_no_more_than_half_of_their_memory(client):
    limit = sum(w["memory_limit"] for w in client.scheduler_info()["workers"].values())
    assert workers_that_keep(0.4 * limit) is client
    assert workers_that_keep(0.6 * limit) is None


def test_without_a_client_nothing_is_kept_by_workers():
    assert workers_that_keep(0.0) is None


def test_blocks_of_workers_are_not_pickled(client):
    with pytest.raises(TypeError, match="belong to one fit"):
        pickle.dumps(WorkerBlocks(client))


@pytest.mark.parametrize(
    ("n_terms", "n_bins", "expected"),
    [(8, 512, 4), (2, 128, 1)],  # tables of 59 MB, and of 131 kB
)
def test_parts_are_as_long_as_their_tables_are_worth(n_terms, n_bins, expected):
    cut = TermCut(BoundTerm.of_column("x", None), Bins.of_values(np.arange(float(n_bins))))
    assert blocks_of_a_part([cut] * n_terms, 2**19) == expected


def test_passes_leave_no_task_and_no_memory_behind(client, cluster):
    codes = np.random.default_rng(4).integers(0, 4, (2, 40)).astype(np.uint16)
    _, there = kept_codes(client, codes, (20, 40))
    table = RowTable(("a", "b"), (np.arange(4.0),) * 2, there, ends=there.ends)
    left, memory = [], []
    for _ in range(3):
        for k in range(20):  # functions, and every other time targets, that were not there before
            table.gather(np.full(8, float(k)))
            table.scatter(0, np.full(40, float(k // 2)))
        client.run_on_scheduler(_until_idle)
        left.append(sorted(key for key in cluster.scheduler.tasks if "-rows-" in key))
        memory.append([sum(client.run(_memory_mb).values()), len(cluster.scheduler.tasks)])
    assert left == [[], [], []]
    assert memory[2][1] <= memory[0][1]
    assert memory[2][0] - memory[1][0] < 20


async def _until_idle(dask_scheduler):
    async def idle():
        while any("-rows-" in key for key in dask_scheduler.tasks):
            await asyncio.sleep(0.01)

    await asyncio.wait_for(idle(), 30)


def _memory_mb():
    return psutil.Process().memory_info().rss / 2**20
