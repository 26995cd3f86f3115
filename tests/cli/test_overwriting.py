"""No command replaces its input, or what another program wrote."""

import os

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsgp
from dsgp import cli
from dsgp.grid.marks import is_posterior
from tests.cli.commands import run_main

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata")


@pytest.fixture
def failure(capsys):
    """Run a command that must fail with one line, and return it."""

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            cli.main([*map(str, arguments)])
        err = capsys.readouterr().err
        assert end.value.code == 1, err
        assert len(err.splitlines()) == 1, err
        return err

    return call


def field():
    x = np.arange(8.0)
    values = np.sin(x[:, None] / 2 + x) + 0.1 * np.random.default_rng(0).standard_normal((8, 8))
    return xr.Dataset({"sst": (("lat", "lon"), values)}, {"lat": x, "lon": x})


def table(folder):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=60)
    frame = pd.DataFrame({"x": x, "y": np.sin(6 * x) + 0.1 * rng.standard_normal(60)})
    frame.to_csv(folder / "d.csv", index=False)
    return folder / "d.csv"


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_smooth_never_replaces_its_input(tmp_path, failure, ending):
    data = tmp_path / f"a.{ending}"
    field().to_netcdf(data) if ending == "nc" else field().to_zarr(data)
    first = tmp_path / f"first.{ending}"
    run_main("smooth", data, "--out", first)
    os.symlink(first, tmp_path / f"link.{ending}")
    # One that dsgp wrote, which --overwrite would replace otherwise.
    for source, out in [(data, data), (first, first), (first, tmp_path / f"link.{ending}")]:
        said = failure("smooth", source, "--out", out, "--overwrite")
        assert "is the input" in said
        assert "nothing overwrites an input" in said
    with xr.open_dataset(data) as opened:
        np.testing.assert_array_equal(opened["sst"], field()["sst"])


def test_smooth_in_pieces_and_smooth_store_keep_their_input(tmp_path, failure):
    data, out = tmp_path / "a.zarr", tmp_path / "out.zarr"
    field().to_zarr(data)
    run_main("smooth", data, "--out", out, "--memory", "3kB")
    assert is_posterior(out)
    again = ["smooth", out, "--variable", "sst", "--memory", "3kB", "--overwrite"]
    said = failure(*again, "--out", out)
    assert "is the input" in said
    with pytest.raises(dsgp.errors.StorageError, match=r"out .* is the input"):
        dsgp.GridGP().smooth_store(out, "sst", out, overwrite=True)
    with pytest.raises(dsgp.errors.StorageError, match=r"out .* lies in the input"):
        dsgp.GridGP().smooth_store(out, "sst", out / "new.zarr", overwrite=True)


def test_a_model_that_is_used_is_not_replaced(tmp_path, failure):
    data, model = tmp_path / "a.zarr", tmp_path / "m.zarr"
    field().to_zarr(data)
    run_main("smooth", data, "--out", tmp_path / "o.zarr", "--save-model", model)
    reused = ["smooth", data, "--out", tmp_path / "o2.zarr", "--model", model]
    assert "--save-model" in failure(*reused, "--save-model", model, "--overwrite")
    assert "same place" in failure(
        "smooth", data, "--out", tmp_path / "b.zarr", "--save-model", tmp_path / "b.zarr"
    )
    assert dsgp.load(model).n_observed_ == 64


def other_netcdf(path):
    xr.Dataset({"mean": ("x", [1.0]), "std": ("x", [1.0])}).to_netcdf(path)


def computed_from_ours(path):
    """A file that kept the attributes of a posterior, with a variable more."""
    with xr.open_dataset(path.with_name("first.nc")) as opened:
        opened.assign(anomaly=opened["sst"] - 1).to_netcdf(path)


def no_netcdf(path):
    path.write_text("my notes")


@pytest.mark.parametrize("make", [other_netcdf, computed_from_ours, no_netcdf])
def test_files_of_other_programs_stay(tmp_path, failure, make):
    data, out = tmp_path / "a.zarr", tmp_path / "out.nc"
    field().to_zarr(data)
    run_main("smooth", data, "--out", tmp_path / "first.nc")
    make(out)
    before = out.read_bytes()
    for options in ([], ["--overwrite"]):
        said = failure("smooth", data, "--out", out, *options)
        assert "is not a posterior written by dsgp" in said
        assert "delete it yourself" in said
    assert out.read_bytes() == before


def test_predictions_replace_predictions_only(tmp_path, failure):
    data, model = table(tmp_path), tmp_path / "m.zarr"
    kept = ["--learner", "none", "--lengthscale", 1, "--variance", 1, "--noise-variance", 0.1]
    run_main("fit", data, "--target", "y", "--out", model, *kept)
    predict = ["predict", model, data, "--keep", "x", "--out"]
    for out in (tmp_path / "p.csv", tmp_path / "p.csv.gz", tmp_path / "p.parquet"):
        run_main(*predict, out)
        run_main(*predict, out, "--overwrite")
    for name in ("other.csv", "other.parquet"):
        other = tmp_path / name
        frame = pd.DataFrame({"mean": [1.0], "price": [2.0]})
        frame.to_csv(other) if name.endswith("csv") else frame.to_parquet(other)
        before = other.read_bytes()
        assert "does not hold predictions" in failure(*predict, other, "--overwrite")
        assert other.read_bytes() == before
    (tmp_path / "parts").mkdir()
    frame.to_parquet(tmp_path / "parts" / "part-00000.parquet")  # as other programs name theirs
    assert "does not hold predictions" in failure(*predict, tmp_path / "parts", "--overwrite")
    # Predictions of predictions.
    both = tmp_path / "p.csv"
    said = failure("predict", model, both, "--out", tmp_path / "." / "p.csv", "--overwrite")
    assert "is the input" in said
    assert "is the input" in failure(
        "predict", model, tmp_path / "p.c*", "--out", both, "--overwrite"
    )
    assert "is the input" in failure(*predict[:3], "--out", model, "--overwrite")
    assert "is the input" in failure("fit", model, "--target", "y", "--out", model, "--overwrite")
