"""Passes over stores: dense agreement, bounded memory, and what is left after any interruption."""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import zarr
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp import compute
from dsgp.errors import DataError, MemoryLimitError, ParameterError, StorageError
from dsgp.grid.passes import (
    Layout,
    Plan,
    StoredField,
    in_place,
    make_plan,
    posterior_to_store,
    resources,
    results,
    sample_tiles,
    tasks,
)
from dsgp.grid.passes.planning import candidates
from dsgp.grid.passes.regions import filled, lengths, pieces, regions

NOISE = 0.3
DIMS = ("a", "b", "c", "d")


def bases_of(shape):
    """Of covariances that are not symmetric about the middle, so that a flip matters."""
    found = []
    for axis, n in enumerate(shape):
        points = np.sort(np.random.default_rng(axis).uniform(0, 3, n))
        covariance = (1 + axis) * np.exp(-np.abs(points[:, None] - points))
        values, vectors = np.linalg.eigh(covariance)
        found.append(SimpleNamespace(vectors=vectors, values=np.maximum(values, 0)))
    return found


def dense(y, bases, mean):
    """Posterior mean and variance by one large matrix, of a field in ascending order."""
    K = np.ones((1, 1))
    for basis in bases:
        K = np.kron(K, (basis.vectors * basis.values) @ basis.vectors.T)
    prior = np.broadcast_to(mean, y.shape).ravel()
    solved = np.linalg.solve(K + NOISE * np.eye(len(K)), np.c_[y.ravel() - prior, K])
    variance = np.diag(K) - np.einsum("ij,ji->i", K, solved[:, 1:])
    return (prior + K @ solved[:, 0]).reshape(y.shape), variance.reshape(y.shape)


def field(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def put(path, values, chunks=None, dims=DIMS, **encoding):
    data = xr.Dataset({"v": (dims[: values.ndim], values)})
    if chunks:
        encoding["chunks"] = chunks
    data.to_zarr(path, zarr_format=3, consolidated=False, encoding={"v": encoding})
    return path


def read(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(path) as posterior:
            return posterior["mean"].values, posterior["std"].values


def least_memory(layout):
    """Bytes with which a plan is just possible."""
    return min(plan.task_bytes for plan, _ in candidates(layout, 8, "float64", "float64"))


def some_memory(layout, share=0.4):
    """Bytes with which several passes of some tasks are made."""
    return share * make_plan(layout, 1e12).task_bytes


@pytest.fixture(scope="module")
def cluster():
    with Client(
        processes=False, dashboard_address=None, n_workers=2, threads_per_worker=1,
        set_as_default=False,
    ) as client:  # fmt: skip
        yield client


# ---------------------------------------------------------------------- products and regions


@pytest.mark.parametrize("block", [8, 200, 2**23])
@pytest.mark.parametrize("shape", [(5,), (4, 7), (3, 6, 100), (2, 3, 4, 5), (1, 8, 1), (2, 5, 80)])
def test_rotation_in_place_is_a_tensor_product(monkeypatch, shape, block):
    monkeypatch.setattr(in_place, "BLOCK_BYTES", block)
    for axis, n in enumerate(shape):
        x, matrix = field(shape), field((n, n), 1)
        expected = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
        in_place.rotate(x, matrix, axis)
        np.testing.assert_allclose(x, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", [8, 200, 2**23])
@pytest.mark.parametrize("shape", [(5,), (4, 7), (3, 6, 10), (1, 8, 1)])
def test_the_spectrum_is_divided(monkeypatch, shape, block):
    monkeypatch.setattr(in_place, "BLOCK_BYTES", block)
    values = [np.random.default_rng(n).uniform(0, 2, n) for n in shape]
    spectrum = np.ones(())
    for one in values:
        spectrum = np.multiply.outer(spectrum, one)
    x, variance = np.ones(shape), np.empty(shape)
    in_place.shrink(x, values, NOISE)
    in_place.fill_variances(variance, values, NOISE)
    np.testing.assert_allclose(x, spectrum / (spectrum + NOISE), rtol=1e-14)
    np.testing.assert_allclose(variance, spectrum * NOISE / (spectrum + NOISE), rtol=1e-14)


sides = st.lists(st.integers(1, 12), min_size=1, max_size=3)


@settings(max_examples=40)
@given(shape=sides, data=st.data())
def test_blocks_cover_every_cell_once(shape, data):
    unit = [data.draw(st.integers(1, n)) for n in shape]
    cells = data.draw(st.integers(1, 2 * math.prod(shape)))
    block = filled(shape, unit, cells)
    assert all(1 <= b <= n for b, n in zip(block, shape, strict=True))
    assert math.prod(block) <= cells
    counts = np.zeros(shape, int)
    for region in regions(shape, block):
        for piece in pieces(region, unit):
            counts[piece] += 1
            assert all(p.start // u == (p.stop - 1) // u for p, u in zip(piece, unit, strict=True))
    assert (counts == 1).all()


@settings(max_examples=20)
@given(shape=sides, data=st.data())
def test_plans_keep_to_the_memory_and_to_whole_chunks(shape, data):
    shape = tuple(shape)
    chunks = data.draw(st.none() | st.tuples(*[st.integers(1, n) for n in shape]))
    layout = Layout(DIMS[: len(shape)], shape, chunks, 8)
    memory = least_memory(layout) * data.draw(st.sampled_from([1.0, 1.5, 4.0]))
    plan = make_plan(layout, memory)
    assert plan.task_bytes <= memory
    assert sorted(axis for group in plan.groups for axis in group) == list(range(len(shape)))
    assert Plan.from_json(plan.as_json()) == plan
    last = len(plan.passes) - 1
    for p, one in enumerate(plan.passes):
        assert all(one.block[axis] == shape[axis] for axis in one.axes)
        touching = [plan.chunks] * (last > 0) + [plan.output_chunks] * (p == last)
        for part, n, *lengths_ in zip(one.block, shape, *touching, strict=True):
            assert all(part == n or part % length == 0 for length in lengths_)


def test_the_field_of_the_issue_takes_three_passes():
    layout = Layout(DIMS[:3], (512, 1024, 1024), (1, 1024, 1024), 8)
    plan = make_plan(layout, 460 * 2**20)
    assert plan.groups == ((1, 2), (0,))
    assert plan.output_chunks == layout.chunks
    assert 2**22 <= 8 * math.prod(plan.chunks) <= 2**24
    assert plan.bytes_read == 4 * 2**32
    assert plan.bytes_written == 5 * 2**32
    assert "3 passes" in plan.describe()


def test_few_bytes_take_more_passes():
    layout = Layout(DIMS[:3], (60, 80, 100), (1, 80, 100), 8)
    n_passes = [
        len(make_plan(layout, memory).passes) for memory in (2**25, 2**23, least_memory(layout))
    ]
    assert n_passes[0] == 1 < n_passes[1] < n_passes[2]


# ---------------------------------------------------------------------- agreement


CASES = [
    ((50,), (7,)),
    ((12, 9), (5, 4)),
    ((9, 7, 8), (1, 7, 8)),
    ((9, 7, 8), (9, 2, 3)),
    ((9, 7, 8), (4, 3, 5)),
    ((1, 10, 6), (1, 10, 6)),
    ((9, 7, 8), None),
    ((4, 5, 3, 6), (2, 5, 1, 6)),
]


@pytest.mark.parametrize(
    ("where", "tight"), [("threads", False), ("threads", True), ("cluster", True)]
)
@pytest.mark.parametrize(("shape", "chunks"), CASES)
def test_agrees_with_dense_algebra(tmp_path, request, shape, chunks, tight, where):
    flips = tuple(axis % 2 == 0 for axis in range(len(shape)))
    backwards = tuple(slice(None, None, -1 if flip else 1) for flip in flips)
    y, bases = field(shape), bases_of(shape)
    mean = field((shape[0], *(1,) * (len(shape) - 1)), 3)
    source = StoredField(put(tmp_path / "in.zarr", y[backwards], chunks), "v", flips)
    memory = some_memory(source.layout) if tight and len(shape) > 1 else None
    out = tmp_path / "out.zarr"
    if where == "cluster":
        with request.getfixturevalue("cluster").as_current():
            report = posterior_to_store(source, bases, NOISE, mean, out, memory=memory)
    else:
        report = posterior_to_store(source, bases, NOISE, mean, out, memory=memory)
    found, std = read(out)
    expected, variance = dense(y, bases, mean)
    np.testing.assert_allclose(found[backwards], expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std[backwards] ** 2, variance, rtol=1e-8)
    assert report.n_run == report.plan.n_tasks
    assert (len(report.plan.passes) > 1) == (tight and len(shape) > 1)
    assert sorted(os.listdir(tmp_path)) == ["in.zarr", "out.zarr"]


def test_one_axis_at_a_time_agrees_too(tmp_path):
    y, bases = field((6, 5, 4)), bases_of((6, 5, 4))
    source = StoredField(put(tmp_path / "in.zarr", y, (1, 5, 4)), "v")
    memory = least_memory(source.layout)
    report = posterior_to_store(source, bases, NOISE, 2.0, tmp_path / "out.zarr", memory=memory)
    assert len(report.plan.passes) == 5
    expected, variance = dense(y, bases, 2.0)
    mean, std = read(tmp_path / "out.zarr")
    np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std**2, variance, rtol=1e-8)


def test_the_result_does_not_depend_on_the_scheduler(tmp_path, cluster, monkeypatch):
    source, bases, memory = small(tmp_path)
    posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "two.zarr", memory=memory)
    monkeypatch.setattr(compute, "CPU_COUNT", 1)
    posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "one.zarr", memory=memory)
    with cluster.as_current():
        posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "cluster.zarr", memory=memory)
    for name in ("one.zarr", "cluster.zarr"):
        np.testing.assert_array_equal(read(tmp_path / name), read(tmp_path / "two.zarr"))


def test_single_precision_is_near_and_noise_can_be_included(tmp_path):
    source, bases, memory = small(tmp_path)
    posterior_to_store(source, bases, NOISE, 1.0, tmp_path / "double.zarr", memory=memory)
    posterior_to_store(
        source, bases, NOISE, 1.0, tmp_path / "single.zarr", memory=memory, dtype="float32",
        intermediate_dtype="float32", include_noise=True,
    )  # fmt: skip
    mean, std = read(tmp_path / "double.zarr")
    single, of_new = read(tmp_path / "single.zarr")
    assert single.dtype == of_new.dtype == np.float32
    np.testing.assert_allclose(single, mean, atol=1e-5)
    np.testing.assert_allclose(of_new, np.sqrt(std**2 + NOISE), rtol=1e-5)


# ---------------------------------------------------------------------- what is stored


def described(path, **encoding):
    """Packed integers on a calendar, with a further coordinate of two dims."""
    values = np.round(field((6, 5, 4)), 2)
    data = xr.Dataset(
        {"v": (("time", "lat", "lon"), values, {"units": "K", "standard_name": "sst"})},
        coords={
            "time": (
                "time",
                np.arange(6),
                {"units": "days since 2001-02-27", "calendar": "360_day"},
            ),
            "lat": ("lat", np.linspace(50, 10, 5), {"units": "degrees_north"}),
            "area": (("lat", "lon"), np.ones((5, 4))),
            "station": "north",
        },
        attrs={"title": "a field"},
    )
    packed = {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -999}
    if path.suffix == ".zarr":
        data.to_zarr(path, zarr_format=3, consolidated=False, encoding={"v": packed})
    else:
        data.drop_vars("station").to_netcdf(path, engine="scipy", encoding={"v": packed})
    return values


@pytest.mark.filterwarnings("ignore:The data type")  # zarr: strings are not in its standard yet
@pytest.mark.parametrize("name", ["in.zarr", "in.nc"])
def test_coordinates_attributes_and_packing(tmp_path, name):
    values = described(tmp_path / name)
    source = StoredField(tmp_path / name, "v", (False, True, False))
    np.testing.assert_allclose(source.read((slice(2, 4),) * 3), values[2:4, ::-1][:, 2:4, 2:4])
    bases = bases_of(values.shape)
    posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "out.zarr")
    expected, _ = dense(values[:, ::-1], bases, 0.0)
    with xr.open_dataset(tmp_path / name, engine=None if name == "in.nc" else "zarr",
                         **({} if name == "in.nc" else {"consolidated": False})) as given_, \
            xr.open_zarr(tmp_path / "out.zarr") as posterior:  # fmt: skip
        np.testing.assert_allclose(posterior["mean"], expected[:, ::-1], rtol=1e-8, atol=1e-9)
        for name_, one in given_["v"].coords.items():
            xr.testing.assert_identical(posterior.coords[name_], one)
        assert posterior["mean"].dims == ("time", "lat", "lon")
        assert posterior["mean"].attrs == {
            "units": "K", "standard_name": "sst", "ancillary_variables": "std"
        }  # fmt: skip
        assert posterior["std"].attrs == {
            "units": "K", "standard_name": "sst standard_error",
            "long_name": "standard deviation of v",
        }  # fmt: skip
        assert posterior.attrs["title"] == "a field"


def test_sensible_chunks_are_kept(tmp_path):
    y = field((40, 30, 32))
    source = StoredField(put(tmp_path / "in.zarr", y, (10, 30, 32)), "v")
    posterior_to_store(source, bases_of(y.shape), NOISE, 0.0, tmp_path / "out.zarr")
    arrays = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert arrays["mean"].chunks == arrays["std"].chunks == (10, 30, 32)
    (codec,) = arrays["mean"].compressors
    assert codec.to_dict()["name"] == "zstd"
    assert codec.to_dict()["configuration"]["checksum"]


# ---------------------------------------------------------------------- interruptions


def small(tmp_path, shape=(12, 10, 14)):
    """A field, its bases, and memory in which it takes several passes."""
    source = StoredField(put(tmp_path / "in.zarr", field(shape), (3, 10, 14)), "v")
    return source, bases_of(shape), some_memory(source.layout)


def stopping(monkeypatch, after):
    """Let the task after so many fail."""
    run, calls = tasks.run, []

    def fail(job, task):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(task)
        return run(job, task)

    monkeypatch.setattr(compute, "CPU_COUNT", 1)
    monkeypatch.setattr(tasks, "run", fail)


def test_resumes_with_what_is_left_wherever_it_was_stopped(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    whole = posterior_to_store(source, bases, NOISE, 0.5, tmp_path / "whole.zarr", memory=memory)
    expected = read(tmp_path / "whole.zarr")
    n = whole.plan.n_tasks
    assert n > 8
    out = tmp_path / "out.zarr"
    for after in (0, 1, n // 3, n // 2, n - 1):
        with monkeypatch.context() as patched:
            stopping(patched, after)
            with pytest.raises(KeyboardInterrupt):
                posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
        assert not out.exists()
        # More memory now: what was begun is ended as it was planned.
        report = posterior_to_store(source, bases, NOISE, 0.5, out, memory=10 * memory)
        assert report.n_resumed == after
        assert report.n_run == n - after
        np.testing.assert_array_equal(read(out), expected)
        shutil.rmtree(out)


SCRIPT = """
import sys, time
sys.path.insert(0, {folder!r})
from test_passes import NOISE, bases_of
from dsgp import compute
from dsgp.grid.passes import StoredField, posterior_to_store, tasks
run = tasks.run
def slow(job, task):
    time.sleep(0.05)
    return run(job, task)
tasks.run = slow
compute.CPU_COUNT = 1
source = StoredField({path!r}, "v")
posterior_to_store(source, bases_of(source.shape), NOISE, 0.5, {out!r}, memory={memory!r})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_process_is_taken_over_bit_for_bit(tmp_path):
    source, bases, memory = small(tmp_path)
    posterior_to_store(source, bases, NOISE, 0.5, tmp_path / "whole.zarr", memory=memory)
    out = tmp_path / "out.zarr"
    code = SCRIPT.format(
        folder=str(Path(__file__).parent), path=str(source.path), out=str(out), memory=memory
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    folder = tmp_path / ".out.zarr.passes"
    deadline = time.monotonic() + 60
    # In the second pass: the third store between passes is not there yet.
    while not list(folder.glob("work-*/pass-2-mean.zarr")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    report = posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    assert 0 < report.n_resumed < report.plan.n_tasks
    np.testing.assert_array_equal(read(out), read(tmp_path / "whole.zarr"))


def test_what_a_lost_task_still_writes_does_not_keep_a_store_from_being_made_again(tmp_path):
    """Its driver has failed, and the next one makes the store of that pass again."""
    source, _, _ = small(tmp_path)
    plan = SimpleNamespace(
        shape=(16, 16), chunks=(4, 4), intermediate_dtype="float64", passes=[None, None]
    )
    job = tasks.Job(str(tmp_path), source, plan, NOISE, include_noise=False)
    tasks.create_stage(job, 0, "mean")
    place, ended = tasks.stage(job, 0, "mean"), threading.Event()

    def write():
        while not ended.is_set():
            with contextlib.suppress(OSError):  # of folders that are moved away
                zarr.open_array(str(place), mode="r+")[:] = 1.0

    with ThreadPoolExecutor(2) as pool:
        lost = [pool.submit(write) for _ in range(2)]
        try:
            for _ in range(15):
                tasks.create_stage(job, 0, "mean")
        finally:
            ended.set()
        assert [one.result() for one in lost] == [None, None]
    assert zarr.open_array(str(place), mode="r").shape == (16, 16)


def test_a_job_that_begins_again_writes_where_none_of_an_earlier_one_does(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    places = set()
    for _ in range(2):
        with monkeypatch.context() as patched:
            stopping(patched, 1)
            with pytest.raises(KeyboardInterrupt):
                posterior_to_store(
                    source, bases, NOISE, 0.5, tmp_path / "o.zarr", memory=memory, resume=False
                )
        (place,) = (tmp_path / ".o.zarr.passes").glob("work-*")
        places.add(place.name)
    assert len(places) == 2


def test_what_was_begun_with_other_inputs_is_not_gone_on_with(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    out = tmp_path / "out.zarr"
    with monkeypatch.context() as patched:
        stopping(patched, 5)
        with pytest.raises(KeyboardInterrupt):
            posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    with pytest.raises(StorageError, match=r"whose noise_variance differ .* \(resume=False\)"):
        posterior_to_store(source, bases, 2 * NOISE, 0.5, out, memory=memory)
    with pytest.raises(StorageError, match="whose mean differ"):
        posterior_to_store(source, bases, NOISE, 0.6, out, memory=memory)
    other = [*bases[:2], SimpleNamespace(vectors=bases[2].vectors, values=1.1 * bases[2].values)]
    with pytest.raises(StorageError, match="whose basis of axis 2 differ"):
        posterior_to_store(source, other, NOISE, 0.5, out, memory=memory)
    with pytest.raises(MemoryLimitError, match="was planned with tasks of"):
        posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory / 2)
    zarr.open_group(source.path, mode="r+")["v"][0] = 0.0
    with pytest.raises(StorageError, match="whose source differ"):
        posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    report = posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory, resume=False)
    assert report.n_resumed == 0
    y = source.read((slice(None),) * 3)
    np.testing.assert_allclose(read(out)[0], dense(y, bases, 0.5)[0], atol=1e-9)


def test_eigenvectors_of_other_signs_are_the_same_covariance(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    posterior_to_store(source, bases, NOISE, 0.5, tmp_path / "whole.zarr", memory=memory)
    with monkeypatch.context() as patched:
        stopping(patched, 7)
        with pytest.raises(KeyboardInterrupt):
            posterior_to_store(source, bases, NOISE, 0.5, tmp_path / "out.zarr", memory=memory)
    again = [SimpleNamespace(vectors=-basis.vectors, values=basis.values) for basis in bases]
    report = posterior_to_store(source, again, NOISE, 0.5, tmp_path / "out.zarr", memory=memory)
    assert report.n_resumed == 7
    np.testing.assert_array_equal(read(tmp_path / "out.zarr"), read(tmp_path / "whole.zarr"))


def flip_a_bit(chunk):
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)


def empty(chunk):
    chunk.write_bytes(b"")


@pytest.mark.parametrize(
    ("where", "harm", "store"),
    [
        ("threads", flip_a_bit, "pass-1-mean"),
        ("threads", Path.unlink, "pass-1-mean"),
        ("threads", empty, "pass-2-mean"),
        ("threads", Path.unlink, "pass-2-variance"),
        ("cluster", flip_a_bit, "pass-2-mean"),
        ("cluster", flip_a_bit, "pass-2-variance"),
    ],
)
def test_a_damaged_chunk_is_reported_and_computed_again(
    tmp_path, monkeypatch, request, store, harm, where
):
    source, bases, memory = small(tmp_path)
    whole = posterior_to_store(source, bases, NOISE, 0.5, tmp_path / "whole.zarr", memory=memory)
    plan = whole.plan
    assert len(plan.passes) == 3
    first, middle = (len(one.chains) * plan.n_regions(p) for p, one in enumerate(plan.passes[:2]))
    out = tmp_path / "out.zarr"
    with monkeypatch.context() as patched:
        stopping(patched, first + (middle if store != "pass-1-mean" else 0))
        with pytest.raises(KeyboardInterrupt):
            posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    (chunks,) = (tmp_path / ".out.zarr.passes").glob(f"work-*/{store}.zarr/c")
    harm(sorted(one for one in chunks.rglob("*") if one.is_file())[-1])

    def go_on():
        return posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)

    with (
        request.getfixturevalue("cluster").as_current()
        if where == "cluster" else warnings.catch_warnings()
    ):  # fmt: skip
        with pytest.raises(StorageError, match=rf"^the chunk of cells .*{store}.* run it again"):
            go_on()
        assert not out.exists()
        report = go_on()
    assert 0 < report.n_run < plan.n_tasks
    np.testing.assert_array_equal(read(out), read(tmp_path / "whole.zarr"))


def test_a_lost_chunk_of_the_result_is_noticed(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    out = tmp_path / "out.zarr"
    incomplete = results.incomplete

    def lose(path, names):
        next(one for one in sorted((path / "std" / "c").rglob("*")) if one.is_file()).unlink()
        return incomplete(path, names)

    with monkeypatch.context() as patched:
        patched.setattr(results, "incomplete", lose)
        with pytest.raises(StorageError, match="lacks chunks"):
            posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    report = posterior_to_store(source, bases, NOISE, 0.5, out, memory=memory)
    assert report.n_run == report.plan.n_regions(len(report.plan.passes) - 1)
    assert np.isfinite(read(out)).all()


# ---------------------------------------------------------------------- limits


def test_a_task_takes_no_more_memory_than_planned(tmp_path, monkeypatch):
    shape = (64, 96, 96)  # 4.5 MiB
    monkeypatch.setattr(compute, "CPU_COUNT", 1)
    monkeypatch.setattr(in_place, "BLOCK_BYTES", 2**18)
    monkeypatch.setattr("dsgp.grid.passes.planning.BLOCK_BYTES", 2**18)
    source = StoredField(put(tmp_path / "in.zarr", field(shape), (8, 96, 96)), "v")
    memory = 6 * 2**20
    run, peaks = tasks.run, []

    def traced(job, task):
        tracemalloc.start()
        try:
            return run(job, task)
        finally:
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    monkeypatch.setattr(tasks, "run", traced)
    report = posterior_to_store(
        source, bases_of(shape), NOISE, 0.0, tmp_path / "out.zarr", memory=memory
    )
    assert len(report.plan.passes) == 3
    assert report.plan.task_bytes <= memory
    # The first call of each kind sets up what stays (event loop, codecs).
    assert max(peaks) <= report.plan.task_bytes + 2**18


def test_too_little_memory_is_refused_before_the_start(tmp_path):
    source, bases, _ = small(tmp_path)
    with pytest.raises(MemoryLimitError, match=r"needs at least .* or store the field in smaller"):
        posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "out.zarr", memory=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["in.zarr"]


def test_memory_comes_from_the_limits_of_the_workers(monkeypatch):
    monkeypatch.setattr(resources, "workers_of", lambda client: client.workers)

    def client(**worker):
        return SimpleNamespace(workers={"a": worker})

    found = resources.memory_of_a_task(client(memory_limit=2**30, nthreads=2))
    assert found == (0.7 * 2**30 - 2**28) / 2
    with pytest.raises(MemoryLimitError, match="more than 366 MiB"):
        resources.memory_of_a_task(client(memory_limit=2**28, nthreads=1))
    assert resources.memory_of_a_task(client(memory_limit=0, nthreads=1)) > 0


def test_a_disk_too_small_is_refused_before_the_start(tmp_path, monkeypatch):
    source, bases, memory = small(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda where: SimpleNamespace(free=1000))
    with pytest.raises(StorageError, match=r"need up to .* GiB of disk"):
        posterior_to_store(source, bases, NOISE, 0.0, tmp_path / "out.zarr", memory=memory)
    assert [path.name for path in tmp_path.iterdir()] == ["in.zarr"]


def test_only_posteriors_are_overwritten(tmp_path):
    source, bases, memory = small(tmp_path)
    out = tmp_path / "out.zarr"

    def write(**options):
        return posterior_to_store(source, bases, NOISE, 0.0, out, memory=memory, **options)

    write()
    with pytest.raises(StorageError, match="exists; choose another path, or overwrite=True"):
        write()
    write(overwrite=True)
    shutil.rmtree(out)
    shutil.copytree(source.path, out)
    with pytest.raises(StorageError, match="is not a posterior written by dsgp"):
        write(overwrite=True)
    out = tmp_path / "no" / "out.zarr"
    with pytest.raises(StorageError, match="there is no folder"):
        write()


@pytest.mark.parametrize("where", ["threads", "cluster"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_are_named(tmp_path, request, value, where):
    y = field((6, 5))
    y[4, 2] = value
    source = StoredField(put(tmp_path / "in.zarr", y, (3, 5)), "v")
    with (
        request.getfixturevalue("cluster").as_current()
        if where == "cluster" else warnings.catch_warnings(),
        pytest.raises(DataError, match=r"'v' .* 1 missing .* first at a\[4\], b\[2\]; .*gaps=True"),
    ):  # fmt: skip
        posterior_to_store(source, bases_of((6, 5)), NOISE, 0.0, tmp_path / "out.zarr")


def test_bad_input_is_named(tmp_path):
    source, bases, _ = small(tmp_path)
    out = tmp_path / "out.zarr"
    with pytest.raises(DataError, match=r"one basis per dim of the field, .*; got 2"):
        posterior_to_store(source, bases[:2], NOISE, 0.0, out)
    with pytest.raises(DataError, match="the basis of dim 'a' must have vectors of shape"):
        posterior_to_store(source, bases[::-1], NOISE, 0.0, out)
    with pytest.raises(DataError, match=r"mean must be a number, .* got \(12,\)"):
        posterior_to_store(source, bases, NOISE, np.zeros(12), out)
    with pytest.raises(DataError, match="mean must be finite"):
        posterior_to_store(source, bases, NOISE, np.nan, out)
    for noise in (0.0, -1.0, np.nan):
        with pytest.raises(ParameterError, match="noise_variance must be positive"):
            posterior_to_store(source, bases, noise, 0.0, out)
    with pytest.raises(ParameterError, match="dtype must be one of"):
        posterior_to_store(source, bases, NOISE, 0.0, out, dtype="int8")
    with pytest.raises(ParameterError, match="memory must be positive"):
        posterior_to_store(source, bases, NOISE, 0.0, out, memory=0)
    with pytest.raises(DataError, match="there is no"):
        StoredField(tmp_path / "nothing.zarr", "v")
    with pytest.raises(DataError, match="has no variable 'w'; it has 'v'"):
        StoredField(source.path, "w")
    with pytest.raises(ParameterError, match="flips must have an entry"):
        StoredField(source.path, "v", (True,))
    (tmp_path / "text.nc").write_text("no data")
    with pytest.raises(DataError, match="xarray cannot read"):
        StoredField(tmp_path / "text.nc", "v")
    put(tmp_path / "words.zarr", np.array([True, False]))
    with pytest.raises(DataError, match="must hold numbers, but is of type bool"):
        StoredField(tmp_path / "words.zarr", "v")


# ---------------------------------------------------------------------- tiles


@pytest.mark.parametrize("flips", [(False, False), (True, False), (True, True)])
def test_tiles_are_parts_of_the_field_spread_over_it(tmp_path, flips):
    y = np.arange(40 * 30.0).reshape(40, 30)
    backwards = tuple(slice(None, None, -1 if flip else 1) for flip in flips)
    source = StoredField(put(tmp_path / "in.zarr", y[backwards], (7, 11)), "v", flips)
    found = sample_tiles(source, 12, (8, 6))
    assert len(found) == 13
    for region, values in found:
        np.testing.assert_array_equal(values, y[region])
        assert values.shape == (8, 6)
    middles = np.array([[part.start + 4, part.stop - 3] for part, _ in
                        ((region[0], region[1]) for region, _ in found[:-1])])  # fmt: skip
    assert np.ptp(middles[:, 0]) > 20
    assert [part.step for part in found[-1][0]] == [5, 5]
    again = sample_tiles(source, 12, (8, 6))
    assert [region for region, _ in again] == [region for region, _ in found]


def test_a_small_field_is_one_tile(tmp_path):
    y = field((5, 4))
    source = StoredField(put(tmp_path / "in.zarr", y), "v")
    ((region, values),) = sample_tiles(source, 3, 10)
    assert lengths(region) == (5, 4)
    np.testing.assert_array_equal(values, y)
    with pytest.raises(ParameterError, match="size at least 1"):
        sample_tiles(source, 3, 0)
