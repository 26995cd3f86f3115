"""Inputs that change while they are read, or are damaged: an error names the file."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsgp
from dsgp.errors import DataError
from dsgp.grid.passes import StoredField
from dsgp.rows.sources.stored import StoredTable, open_table
from tests.faults.jobs import Basis, posterior_to_store, write_field

KERNEL = dsgp.kernels.Matern52(0.5, 1.0)
KINDS = {
    "additive": lambda: dsgp.AdditiveGPRegressor(
        KERNEL, noise_variance=0.01, learner=None, bins=20
    ),
    "classifier": lambda: dsgp.AdditiveGPClassifier(KERNEL, learner=None, bins=20),
    "pursuit": lambda: dsgp.ProjectionPursuitGPRegressor(
        n_projections=1, n_starts=2, max_iter=2, bins=20, random_state=0
    ),
}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    columns = rng.uniform(size=(400, 2))
    return pd.DataFrame({"a": columns[:, 0], "b": columns[:, 1], "y": columns[:, 0] > 0.5}).astype(
        {"y": int}
    )


WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "zarr": lambda frame, path: xr.Dataset(
        {name: ("row", frame[name].to_numpy()) for name in frame}
    ).to_zarr(path, zarr_format=3, consolidated=False, mode="w"),
}


def write(frame, folder, form):
    path = folder / f"t.{form}"
    WRITERS[form](frame, path)
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", WRITERS)
def test_a_table_changes_between_two_passes(tmp_path, frame, kind, form, monkeypatch):
    path = write(frame, tmp_path, form)
    blocks, n_passes = StoredTable.blocks, []

    def counted(table, *arguments, **options):
        n_passes.append(1)
        if len(n_passes) == 2:
            write(frame.iloc[::-1], tmp_path, form)
        return blocks(table, *arguments, **options)

    monkeypatch.setattr(StoredTable, "blocks", counted)
    with pytest.raises(DataError, match=rf"t\.{form}' has changed since it was opened"):
        KINDS[kind]().fit(str(path), y="y")
    assert len(n_passes) >= 2


def test_a_block_of_a_table_that_changed_is_not_read(tmp_path, frame):
    path = write(frame, tmp_path, "parquet")
    [block] = open_table(path).blocks(["a"], ["a"])
    write(frame.iloc[::-1], tmp_path, "parquet")
    with pytest.raises(DataError, match=r"t\.parquet' has changed"):
        block.read()


def smooth(path, out):
    source = StoredField(str(path), "t")
    return posterior_to_store(source, [Basis(24), Basis(20)], 0.5, 0.0, out, memory=12000.0)


def test_a_field_changes_while_it_is_read(running, cluster, tmp_path):
    job = running(cluster.address, "grid")
    write_field(tmp_path / "field.zarr")
    job.go_on()
    job.require_error(DataError, "field.zarr' has changed since the job began", "start from")
    assert not (tmp_path / "out.zarr").exists()


def chunk_of(store, name):
    return next(file for file in sorted((store / name / "c").rglob("*")) if file.is_file())


def test_a_damaged_chunk_of_a_field_is_named(tmp_path):
    write_field(tmp_path / "field.zarr")
    chunk_of(tmp_path / "field.zarr", "t").write_bytes(b"no chunk")
    with pytest.raises(DataError, match=r"'t' of '.*field\.zarr' cannot be read in the cells \[0:"):
        smooth(tmp_path / "field.zarr", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_truncated_metadata_of_a_field_are_named(tmp_path):
    write_field(tmp_path / "field.zarr")
    for part in ("zarr.json", "t/zarr.json"):
        write_field(tmp_path / "field.zarr")
        metadata = tmp_path / "field.zarr" / part
        metadata.write_bytes(metadata.read_bytes()[:40])
        with pytest.raises(DataError, match=r"field\.zarr"):
            smooth(tmp_path / "field.zarr", tmp_path / "out.zarr")


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_tables_are_named(tmp_path, frame, kind):
    for form in ("zarr", "parquet"):
        path = write(frame, tmp_path, form)
        damaged = chunk_of(path, "a") if form == "zarr" else path
        damaged.write_bytes(damaged.read_bytes()[:-20])
        with pytest.raises(DataError, match=rf"t\.{form}'"):
            KINDS[kind]().fit(str(path), y="y")
    store = write(frame, tmp_path, "zarr")
    metadata = store / "a" / "zarr.json"
    metadata.write_bytes(metadata.read_bytes()[:40])
    with pytest.raises(DataError, match=r"t\.zarr'"):
        KINDS[kind]().fit(str(store), y="y")


@pytest.mark.parametrize("damage", ["chunk", "metadata"])
def test_the_command_line_names_a_damaged_field(zygote, tmp_path, damage):
    store = tmp_path / "field.zarr"
    write_field(store)
    file = chunk_of(store, "t") if damage == "chunk" else store / "t" / "zarr.json"
    file.write_bytes(file.read_bytes()[:10])
    pid, log = zygote.start(
        "command", arguments=["smooth", str(store), "--out", str(tmp_path / "out.zarr")]
    )
    assert zygote.exit_code(pid) == 1
    told = log.read_text()
    assert told.startswith("Error: ")
    assert "field.zarr" in told
    assert told.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["field.zarr"]
