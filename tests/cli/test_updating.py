"""``dsgp update``: a saved model and a table of further rows give the model of all rows."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsgp
from dsgp import storage
from tests.cli.commands import invoke

KEPT = ["--learner", "none", "--lengthscale", "1", "--variance", "1", "--noise-variance", "0.01"]


@pytest.fixture
def made(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-3, 3, (120, 2)), columns=["a", "b"])
    table["y"] = np.sin(table.a) + 0.3 * table.b + 0.1 * rng.standard_normal(120)
    table["w"] = rng.uniform(0.5, 2, 120)
    table[:70].to_csv(tmp_path / "old.csv", index=False)
    table[70:].to_parquet(tmp_path / "new.parquet")
    fit = ["fit", tmp_path / "old.csv", "--target", "y", "--weight", "w", "--bins", "none"]
    assert invoke(*fit, *KEPT, "--out", tmp_path / "m.zarr").exit_code == 0
    return tmp_path, table


def test_the_model_of_all_rows(made):
    folder, table = made
    given = ["update", folder / "m.zarr", folder / "new.parquet", "--target", "y", "--weight", "w"]
    result = invoke(*given, "-o", folder / "m2.zarr")
    assert result.exit_code == 0, result.output
    assert "120 rows" in result.output
    updated, old = dsgp.load(folder / "m2.zarr"), dsgp.load(folder / "m.zarr")
    assert (old.n_rows_, updated.n_rows_) == (70, 120)
    whole = old.__class__(**old.get_params()).fit(table[["a", "b"]], table.y, table.w)
    np.testing.assert_allclose(updated.predict(table), whole.predict(table), atol=1e-4)
    forgotten = invoke(*given, "--half-life", "2", "--elapsed", "4", "--out", folder / "m3.zarr")
    assert forgotten.exit_code == 0
    weight = np.where(np.arange(120) < 70, 0.25, 1.0) * table.w
    faded = old.__class__(**old.get_params()).fit(table[["a", "b"]], table.y, weight)
    found = dsgp.load(folder / "m3.zarr").predict(table)
    np.testing.assert_allclose(found, faded.predict(table), atol=1e-4)


def test_a_model_in_its_own_place_and_refusals(made):
    folder, _ = made
    given = ["update", folder / "m.zarr", folder / "new.parquet", "--target", "y"]
    assert invoke(*given, "--out", folder / "m.zarr").exit_code == 1
    assert dsgp.load(folder / "m.zarr").n_rows_ == 70
    assert invoke(*given, "--out", folder / "m.zarr", "--overwrite").exit_code == 0
    assert dsgp.load(folder / "m.zarr").n_rows_ == 120
    refused = invoke(*given, "--relearn", "--out", folder / "m2.zarr")
    assert "learner=None" in str(refused.exception)
    assert not (folder / "m2.zarr").exists()
    misspelt = invoke(*given, "--out", folder / "m2.zaar")
    assert "--out must end in .zarr or have no extension" in str(misspelt.exception)
    assert not (folder / "m2.zaar").exists()


def test_an_update_that_is_interrupted_while_it_saves_keeps_the_saved_model(made, monkeypatch):
    folder, _ = made
    write, arrays = storage._write_array, []

    def interrupted(group, name, node):
        arrays.append(name)
        if len(arrays) == 5:
            raise KeyboardInterrupt
        write(group, name, node)

    monkeypatch.setattr(storage, "_write_array", interrupted)
    given = ["update", folder / "m.zarr", folder / "new.parquet", "--target", "y", "--overwrite"]
    before = sorted(path.name for path in folder.iterdir())
    assert invoke(*given, "--out", folder / "m.zarr").exit_code != 0
    assert len(arrays) == 5
    assert dsgp.load(folder / "m.zarr").n_rows_ == 70
    assert sorted(path.name for path in folder.iterdir()) == before
    monkeypatch.undo()
    assert invoke(*given, "--out", folder / "m.zarr").exit_code == 0
    assert dsgp.load(folder / "m.zarr").n_rows_ == 120


def test_saved_splines_are_updated_and_fields_are_refused(made):
    folder, table = made
    one = table[["a", "y"]]
    dsgp.SmoothingSpline().fit(one[["a"]][:70], one.y[:70]).save(folder / "s.zarr")
    given = [folder / "new.parquet", "--target", "y", "--out", folder / "s2.zarr"]
    result = invoke("update", folder / "s.zarr", *given)
    assert result.exit_code == 0, result.output
    assert "120 rows" in result.output
    field = xr.DataArray(np.sin(np.arange(20.0)), dims="t", coords={"t": np.arange(20.0)})
    dsgp.GridGP().fit(field).save(folder / "g.zarr")
    refused = invoke("update", folder / "g.zarr", *given, "--overwrite")
    assert refused.exit_code == 1
    assert "GridGP, which cannot be updated" in str(refused.exception)
