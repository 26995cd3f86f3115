"""Moments of the linearised model are those of its dense design, however the rows come."""

import pickle
import sys

import dask.array as da
import distributed
import numpy as np
import pytest

from dsgp.compute import one_blas_thread
from dsgp.jit.ridge import fill_design
from dsgp.kernels import Matern52
from dsgp.pursuit.moments import moments
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import NO_WEIGHT, Block, MemoryRows, Standard, StreamedRows
from dsgp.rows.sources import Rows, source_of

KERNEL = Matern52(lengthscale=1.0, variance=1.0)


def ridges_of(n_features, n_terms=2):
    rng = np.random.default_rng(0)
    terms = []
    for _ in range(n_terms):
        nodes = np.linspace(-3, 3, 12)
        terms.append(Ridge(rng.standard_normal(n_features), nodes, rng.standard_normal(12), KERNEL))
    return Ridges(tuple(terms), n_features)


def block_of(n, weighted, n_features=3, seed=1):
    rng = np.random.default_rng(seed)
    root = np.sqrt(rng.uniform(0.1, 3.0, n)) if weighted else NO_WEIGHT
    return Block(rng.standard_normal((n, n_features)), rng.standard_normal(n), root)


def design_of(block, ridges):
    out = np.empty((len(block), ridges.n_parameters + 1))
    fill_design(
        block.inputs, block.target, NO_WEIGHT, ridges.directions, ridges.nodes, ridges.starts,
        *ridges.cardinal, ridges.functions, out,
    )  # fmt: skip
    return out


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with one_blas_thread():
        yield


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 700, 1024, 5001, 20_001])
def test_moments_are_those_of_the_dense_design(n, weighted):
    block, ridges = block_of(n, weighted), ridges_of(3)
    found = moments(MemoryRows(block), ridges)
    design = design_of(block, ridges)
    design[:, -1] -= ridges.evaluate(block.inputs)[0].sum(axis=1)  # the residual
    expected = (design * block.weight[:, None]).T @ design
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-9, atol=1e-9 * max(n, 100))
    np.testing.assert_array_equal(found.matrix, found.matrix.T)
    projection = block.inputs @ ridges.directions.T
    np.testing.assert_allclose(found.low, projection.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.high, projection.max(axis=0), atol=1e-12)


def test_no_term_at_all_has_the_square_of_the_target():
    block = block_of(50, True)
    found = moments(MemoryRows(block), Ridges((), 3))
    np.testing.assert_allclose(found.matrix, [[np.sum(block.weight * block.target**2)]])
    assert found.low.shape == (0,)


def test_the_number_of_threads_changes_no_digit(monkeypatch):
    block, ridges = block_of(30_000, True), ridges_of(3)
    several = moments(MemoryRows(block), ridges)
    monkeypatch.setattr("dsgp.compute.CPU_COUNT", 1)
    one = moments(MemoryRows(block), ridges)
    np.testing.assert_array_equal(several.matrix, one.matrix)


def test_rows_and_their_weights_are_counted():
    block = block_of(40, True)
    rows = MemoryRows(block)
    assert rows.n_rows == 40
    assert rows.log_weight == pytest.approx(np.sum(np.log(block.weight)))
    assert MemoryRows(block_of(40, False)).log_weight == 0.0
    part = block.part(slice(3, 9))
    np.testing.assert_array_equal(part.weight, block.weight[3:9])
    assert np.shares_memory(part.inputs, block.inputs)
    np.testing.assert_array_equal(block_of(5, False).weight, np.ones(5))


STANDARD = Standard([0, 2], np.array([1.0, -2.0]), np.array([2.0, 0.5]), 3.0, 4.0, 1.5)


def test_rows_are_standardised_and_those_without_weight_left_out():
    rng = np.random.default_rng(0)
    columns, y = list(rng.standard_normal((3, 20))), rng.standard_normal(20)
    weight = rng.integers(0, 3, 20).astype(float)
    block = STANDARD(Rows(columns, y, weight))
    kept = weight > 0
    assert 0 < kept.sum() < 20
    np.testing.assert_allclose(block.inputs[:, 0], (columns[0][kept] - 1) / 2)
    np.testing.assert_allclose(block.inputs[:, 1], (columns[2][kept] + 2) / 0.5)
    np.testing.assert_allclose(block.target, (y[kept] - 3) / 4)
    np.testing.assert_allclose(block.weight, weight[kept] / 1.5)
    assert len(STANDARD(Rows(columns, y, None)).root_weight) == 0


def streamed(X, y, weight, chunks):
    if chunks is None:
        source, lengths = source_of(X, y, weight), [len(load()) for load in source_chunks(X, y)]
    else:
        source = source_of(
            da.from_array(X, chunks=(chunks, X.shape[1])), y, da.from_array(weight, chunks=977)
        )
        lengths = [len(load()) for load in source.chunks()]
    kept = weight > 0
    log_weight = float(np.sum(np.log(weight[kept] / STANDARD.weight_scale)))
    return StreamedRows(source, lengths, STANDARD, int(kept.sum()), log_weight)


def source_chunks(X, y):
    return source_of(X, y).chunks()


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 5000
    weight = rng.uniform(0.1, 2.0, n)
    weight[::7] = 0.0
    return rng.standard_normal((n, 3)), rng.standard_normal(n), weight


def memory_of(table):
    X, y, weight = table
    return MemoryRows(STANDARD(Rows(list(X.T), y, weight)))


def test_streamed_rows_have_the_moments_of_rows_in_memory(table, monkeypatch):
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 700)
    monkeypatch.setattr("dsgp.rows.sources.stream.BLOCK_ROWS", 501)
    ridges, rows = ridges_of(2), memory_of(table)
    expected = moments(rows, ridges)
    first = None
    for chunks in (None, 5000, 1200, 333):
        stream = streamed(*table, chunks)
        assert (stream.n_rows, stream.log_weight) == (rows.n_rows, pytest.approx(rows.log_weight))
        found = moments(stream, ridges)
        np.testing.assert_allclose(found.matrix, expected.matrix, rtol=1e-9, atol=1e-7)
        np.testing.assert_array_equal([found.low, found.high], [expected.low, expected.high])
        first = found if first is None else first
        np.testing.assert_array_equal(found.matrix, first.matrix)  # to the bit


def test_workers_keep_the_rows_and_give_the_same_moments_to_the_bit(table, monkeypatch):
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 700)
    ridges = ridges_of(2)
    here = moments(streamed(*table, 1200), ridges)
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as client:
        rows = streamed(*table, 1200)
        there = [moments(rows, ridges)]
        read = client.cluster.scheduler.task_prefixes["dsgp-read"].state_counts.copy()
        there.append(moments(rows, ridges))
        again = client.cluster.scheduler.task_prefixes["dsgp-read"].state_counts
        assert dict(again) == dict(read)
        elsewhere = pickle.loads(pickle.dumps(rows))  # reads the rows itself
        assert rows._kept
        assert not elsewhere._kept
    there.append(moments(rows, ridges))  # without the workers
    for found in there:
        np.testing.assert_array_equal(found.matrix, here.matrix)


def test_memory_that_rows_take_on_a_worker_is_counted():
    block = block_of(40, True)
    assert sys.getsizeof(block) >= sum(a.nbytes for a in (block.inputs, block.target))
    rows = Rows([np.zeros(100)] * 2, np.zeros(100), None, extra={"offset": np.zeros(100)})
    assert sys.getsizeof(rows) >= 3200


def test_a_stream_of_rows_without_weight_is_none(table):
    X, y, _ = table
    weight = np.where(np.arange(len(y)) < 4, 1.0, 0.0)
    found = moments(streamed(X, y, weight, 100), ridges_of(2))
    expected = moments(memory_of((X[:4], y[:4], weight[:4])), ridges_of(2))
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=1e-9, atol=1e-12)
