"""A driver is killed, or there are two, or its disk is full: outputs are whole or absent."""

import os
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsgp
from dsgp.errors import StorageError
from dsgp.places import made_aside
from tests.faults.jobs import MIDDLE, MODELS, Gate, grid, wait_until


def leftovers(folder):
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


@pytest.fixture
def gate(tmp_path):
    (tmp_path / "gate").mkdir()
    return Gate(tmp_path / "gate")


def test_a_driver_is_killed_and_started_again(cluster, tmp_path, gate, kind, expected):
    asked = {"name": kind, "folder": str(tmp_path), "address": cluster.address}
    gate.close(MIDDLE[kind])
    first, _ = cluster.zygote.start("job", **asked)
    wait_until(gate.reached, "the middle of the job")
    cluster.zygote.kill(first)
    gate.open()
    second, log = cluster.zygote.start("job", **asked)
    assert cluster.zygote.exit_code(second) == 0, log.read_text()
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), expected[kind])
    assert leftovers(tmp_path) == []


def test_a_grid_job_goes_on_where_the_killed_one_was(zygote, tmp_path, gate, expected):
    gate.close(MIDDLE["grid"])
    first, _ = zygote.start("job", name="grid", folder=str(tmp_path), address=None)
    wait_until(gate.reached, "the middle of the job")
    zygote.kill(first)
    assert leftovers(tmp_path) == [".out.zarr.passes", ".out.zarr.passes.lock"]
    gate.open()
    np.testing.assert_array_equal(grid(gate, tmp_path), expected["grid"])
    assert leftovers(tmp_path) == []


def test_a_second_driver_of_a_grid_is_refused(running, cluster, tmp_path, expected):
    job = running(cluster.address, "grid")
    with pytest.raises(StorageError, match=r"another process is writing .*out\.zarr"):
        grid(Gate(tmp_path), tmp_path)
    job.go_on()
    job.require(expected["grid"])
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("kind", MODELS)
def test_of_two_fits_to_one_place_one_is_there_whole(zygote, tmp_path, kind):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(size=300), "b": rng.uniform(size=300)})
    table["y"] = np.sin(5 * table["a"]) + 0.1 * rng.standard_normal(300)
    if kind == "classifier":
        table["y"] = (table["y"] > 0.2).astype(int)
    table.to_parquet(tmp_path / "t.parquet")
    out = str(tmp_path / "m.zarr")
    fit = ["fit", str(tmp_path / "t.parquet"), "--target", "y", "--out", out, "--overwrite"]
    fit += ["--model", kind, *(["--projections", "1"] if kind == "pursuit" else [])]
    both = [zygote.start("command", arguments=fit) for _ in range(2)]
    codes = [zygote.exit_code(pid) for pid, _ in both]
    told = [log.read_text() for _, log in both]
    assert 0 in codes, told
    assert all(
        code == 0 or text.startswith("Error: ") for code, text in zip(codes, told, strict=True)
    ), told
    assert np.isfinite(dsgp.load(out).predict(table[["a", "b"]])).all()
    assert leftovers(tmp_path) == []


def test_what_a_killed_process_wrote_aside_is_removed_and_a_living_ones_is_not(zygote, tmp_path):
    place = tmp_path / "model.zarr"
    with made_aside(place) as mine:
        mine.mkdir()
        pid, _ = zygote.start("aside", place=str(place))
        wait_until(lambda: (tmp_path / "written").exists(), "the other process")
        assert len(leftovers(tmp_path)) == 2
        zygote.kill(pid)
        with made_aside(place) as further:
            further.mkdir()
            (further / "second").touch()
            assert len(leftovers(tmp_path)) == 2
            assert mine.exists()
    assert leftovers(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a MiB, in memory; only where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system in memory")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Use up a disk to the last byte."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (2**12, 1):
            try:
                while True:
                    file.write(b"0" * size)
            except OSError:
                continue


def test_the_disk_of_a_grids_result_is_full(running, cluster, small_disk, expected):
    job = running(cluster.address, "grid", folder=small_disk)
    fill(small_disk)
    job.go_on()
    job.require_error(StorageError, "No space left", "finished work is kept")
    assert not (small_disk / "out.zarr").exists()
    (small_disk / "filler").unlink()
    np.testing.assert_array_equal(grid(job.gate, small_disk), expected["grid"])
    assert leftovers(small_disk) == []


@pytest.mark.parametrize("kind", MODELS)
def test_the_disk_of_a_model_is_full(small_disk, gate, kind):
    model = MODELS[kind](gate)
    fill(small_disk)
    with pytest.raises(StorageError, match="No space left"):
        model.save(small_disk / "m.zarr")
    (small_disk / "filler").unlink()
    assert list(small_disk.iterdir()) == []


def logs_of_workers(zygote):
    return zygote.folder.glob("worker-*.log")


def test_the_disk_for_spilling_is_full(zygote, own_cluster, running, small_disk, kind, expected):
    """A worker keeps in memory what does not go to its disk: the job goes on."""
    earlier = set(logs_of_workers(zygote))
    fill(small_disk)
    (small_disk / "filler").write_bytes(b"0" * 2**18)  # room for a worker's folder
    at_once = {"distributed.worker.memory.target": 1e-6, "distributed.worker.memory.spill": 1e-6}
    cluster = own_cluster(
        n_workers=1, memory_limit=2**31, local_directory=small_disk, config=at_once
    )
    fill(small_disk)
    job = running(cluster.address, kind, held=False)
    job.require(expected[kind])
    (log,) = set(logs_of_workers(zygote)) - earlier
    assert "Spill to disk failed" in log.read_text()


@pytest.mark.parametrize("n_interrupts", [1, 2])
def test_an_interrupted_smooth_says_no_more_than_that(zygote, tmp_path, n_interrupts):
    values = np.random.default_rng(0).standard_normal((40, 40, 30))
    values[values > 1.5] = np.nan
    field = xr.DataArray(
        values, {d: np.arange(float(n)) for d, n in zip("xyz", values.shape, strict=True)}
    )
    field.to_dataset(name="t").to_zarr(tmp_path / "t.zarr", zarr_format=3, consolidated=False)
    arguments = ["smooth", str(tmp_path / "t.zarr"), "--out", str(tmp_path / "out.zarr")]
    pid, log = zygote.start("command", arguments=arguments)
    wait_until(lambda: leftovers(tmp_path), "the begin of the work")
    for _ in range(n_interrupts):
        os.kill(pid, signal.SIGINT)
        time.sleep(0.02)
    assert zygote.exit_code(pid) == 130
    assert "Traceback" not in log.read_text()
    assert not (tmp_path / "out.zarr").exists()
    if n_interrupts == 1:
        assert leftovers(tmp_path) == []
