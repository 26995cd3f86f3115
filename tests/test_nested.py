"""Fits within tasks, processes and threads of others: none waits for itself, all give the same."""

import faulthandler
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
import xarray as xr
from distributed import Client, worker_client
from sklearn.model_selection import GridSearchCV, cross_val_predict
from threadpoolctl import threadpool_info, threadpool_limits

import dsgp
from dsgp import compute
from dsgp.clients import active_client, in_task
from dsgp.grid.passes import StoredField, posterior_to_store

N_ROWS, N_TASKS = 200, 4
PATIENCE = 120  # seconds


@pytest.fixture(autouse=True)
def guard():
    """End the test run, with the stacks of all threads, rather than hang."""
    faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def eager():
    """Let every group of tasks be worth threads and workers."""
    _be_eager()
    yield
    compute.WORTH_A_GRAPH, compute.WORTH_A_WORKER, compute.CPU_COUNT = _BEFORE


_BEFORE = compute.WORTH_A_GRAPH, compute.WORTH_A_WORKER, compute.CPU_COUNT


def _be_eager():
    compute.WORTH_A_GRAPH, compute.WORTH_A_WORKER, compute.CPU_COUNT = 0.0, 0.0, 2


def rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N_ROWS, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N_ROWS)


def model():
    return dsgp.AdditiveGPRegressor(
        dsgp.kernels.Matern52(0.5, 1.0), noise_variance=0.01, learner=None, bins=60
    )


def fit_and_predict(seed, lazy=False):
    """Return what a fit gives; called in tasks and processes of all kinds."""
    _be_eager()
    X, y = rows(seed)
    if lazy:
        X, y = da.from_array(X, chunks=(60, 3)), da.from_array(y, chunks=60)
    fitted = model().fit(X, y)
    mean, std = fitted.predict(rows(100)[0], return_std=True)
    return np.stack([mean, std])


def smooth(seed):
    _be_eager()
    values = np.random.default_rng(seed).standard_normal((8, 6))
    values[values > 1] = np.nan
    field = xr.DataArray(values, {"x": np.arange(8.0), "y": np.arange(6.0)}, ("x", "y"))
    return dsgp.GridGP(noise_variance=0.1).fit(field).posterior().to_array().to_numpy()


def every_kind(seed):
    return fit_and_predict(seed), fit_and_predict(seed, lazy=True), smooth(seed)


@pytest.fixture(scope="module")
def expected():
    _be_eager()
    assert active_client() is None
    return [every_kind(seed) for seed in range(N_TASKS)]


def cluster(processes):
    return Client(
        processes=processes,
        dashboard_address=None,
        n_workers=2,
        threads_per_worker=1,
        set_as_default=False,
    )


@pytest.fixture(scope="module")
def in_process():
    # Clients that its workers make for tasks set dask's scheduler, in this process too.
    with dask.config.set(scheduler=None), cluster(processes=False) as client:
        yield client


@pytest.fixture
def client(in_process):
    """In this process, whose threads are those of the workers too."""
    with in_process.as_current():
        yield in_process


def gathered(futures):
    return [future.result(timeout=PATIENCE) for future in futures]


def require_same(results, expected):
    for result, one in zip(results, expected, strict=True):
        for a, b in zip(result, one, strict=True):
            if np.ndim(a) == 3:
                # A grid's BLAS has the threads of the process, which round differently.
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------- tasks of dask


def test_many_fits_mapped_over_a_cluster(client, expected):
    futures = client.map(every_kind, range(N_TASKS), pure=False)
    require_same(gathered(futures), expected)


def test_a_client_is_for_those_who_hold_no_thread_of_a_worker(client):
    assert active_client() is client

    def within():
        with ThreadPoolExecutor(1) as pool:
            of_a_thread = pool.submit(active_client).result()
        here = in_task(), active_client() is None
        with worker_client():
            seceded = in_task(), active_client() is None
        return here, seceded, of_a_thread is None or of_a_thread.id.startswith("Client-")

    assert client.submit(within, pure=False).result(timeout=PATIENCE) == (
        (True, True),
        (False, False),
        True,
    )


def _by_the_cluster(seed):
    with worker_client():
        return fit_and_predict(seed), fit_and_predict(seed, lazy=True), smooth(seed)


def test_fits_of_tasks_that_secede_use_the_cluster(client, expected):
    futures = client.map(_by_the_cluster, range(3), pure=False)
    require_same(gathered(futures), expected[:3])


def test_a_collection_that_the_cluster_keeps_can_be_fitted_in_a_task(client):
    X, y = rows(0)
    X, y = (da.from_array(part, chunks=60).persist() for part in (X, y))
    kept = {"X": X.rechunk({1: 3}), "y": y}

    def within(holder):
        _be_eager()
        mean, std = model().fit(holder["X"], holder["y"]).predict(rows(100)[0], return_std=True)
        return np.stack([mean, std])

    future = client.submit(lambda: within(kept), pure=False)
    np.testing.assert_array_equal(future.result(timeout=PATIENCE), fit_and_predict(0, lazy=True))


def test_grid_passes_in_a_task(client, tmp_path):
    field = xr.DataArray(
        np.random.default_rng(0).standard_normal((6, 8)), dims=("x", "y"), name="t"
    )
    field.to_dataset().to_zarr(tmp_path / "t.zarr", zarr_format=3, consolidated=False)

    def passes(out):
        bases = [_Basis(np.eye(n), np.ones(n)) for n in (6, 8)]
        source = StoredField(str(tmp_path / "t.zarr"), "t")
        return posterior_to_store(source, bases, 1.0, 0.0, out, memory=2**16).n_run

    here = passes(str(tmp_path / "here.zarr"))
    outs = [str(tmp_path / f"{k}.zarr") for k in range(4)]
    runs = gathered(client.map(passes, outs, pure=False))
    assert runs == [here] * 4
    for out in outs:
        xr.testing.assert_identical(
            xr.open_zarr(out).load(), xr.open_zarr(tmp_path / "here.zarr").load()
        )


class _Basis:
    def __init__(self, vectors, values):
        self.vectors, self.values = vectors, values


@pytest.mark.parametrize(("scheduler", "n_workers"), [("threads", 2), ("processes", 1)])
def test_delayed_fits_under_dask_without_a_cluster(scheduler, n_workers, expected):
    tasks = [dask.delayed(every_kind)(seed) for seed in range(3)]
    require_same(dask.compute(*tasks, scheduler=scheduler, num_workers=n_workers), expected[:3])


# ---------------------------------------------------------------- joblib


def search(**options):
    X, y = rows(0)
    grid = {"noise_variance": [0.01, 1.0], "kernel": [dsgp.kernels.Matern32(0.5, 1.0)]}
    fitted = GridSearchCV(model(), grid, cv=3, **options).fit(X, y)
    return fitted.cv_results_["mean_test_score"], fitted.predict(X)


def test_grid_search_under_joblib(client):
    here = search(n_jobs=1)
    for backend, options in (("dask", {"wait_for_workers_timeout": PATIENCE}), ("threading", {})):
        with joblib.parallel_config(backend, **options):
            require_same([search(n_jobs=2)], [here])


def test_workers_that_are_processes(expected):
    with cluster(processes=True) as client, client.as_current():
        futures = client.map(every_kind, range(N_TASKS), pure=False)
        require_same(gathered(futures), expected)
        here = search(n_jobs=1)
        with joblib.parallel_config("dask", wait_for_workers_timeout=PATIENCE):
            require_same([search(n_jobs=2)], [here])


def test_cross_validation_by_loky():
    X, y = rows(0)
    here = cross_val_predict(model(), X, y, cv=3)
    with joblib.parallel_config("loky", n_jobs=2):
        by_loky = cross_val_predict(model(), X, y, cv=3)
    np.testing.assert_array_equal(by_loky, here)


# ---------------------------------------------------------------- processes and threads


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fits_in_other_processes(method, expected):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no such processes")
    # Threads of dask, zarr and Numba's compiled loops have been used here before (`expected`).
    with ProcessPoolExecutor(1 if method == "spawn" else 2, get_context(method)) as pool:
        require_same(gathered([pool.submit(every_kind, seed) for seed in range(3)]), expected[:3])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_wait_for_the_client_of_its_parent(client, expected):
    assert active_client() is client
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        assert pool.submit(active_client).result(timeout=PATIENCE) is None
        require_same([pool.submit(every_kind, 0).result(timeout=PATIENCE)], expected[:1])


def test_fits_in_threads(expected):
    with ThreadPoolExecutor(4) as pool:
        require_same(pool.map(every_kind, range(N_TASKS), timeout=PATIENCE), expected)


@pytest.fixture
def two_threads_of_blas():
    """Set where the library sets them: what other threads set may be without effect."""
    with compute.one_blas_thread():
        setter = compute.one_blas_thread._setter
    limits = setter.submit(threadpool_limits, limits=2, user_api="blas").result()
    yield
    setter.submit(limits.restore_original_limits).result()


@pytest.mark.usefixtures("two_threads_of_blas")
def test_blas_keeps_to_one_thread_until_the_last_has_left():
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    before = threads()
    assert before == {2}
    inside, leave = threading.Event(), threading.Event()

    def first():
        with compute.one_blas_thread():
            inside.set()
            leave.wait(PATIENCE)

    one = threading.Thread(target=first)
    one.start()
    inside.wait(PATIENCE)
    with compute.one_blas_thread():
        leave.set()
        one.join(PATIENCE)
        assert threads() == {1}
    assert threads() == before
