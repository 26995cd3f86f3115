"""What ``dsgp smooth`` writes says, in CF's words, what it is and where it comes from."""

import re

import numpy as np
import pytest
import xarray as xr

from dsgp import __version__, cli
from dsgp.plotting import plot_field
from tests.cli.commands import run_main

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIONS = ["--noise-variance", "0.01", "--fixed-noise", "--kernel", "lat=matern52"]


def source(path, dtype="f4", **encoding):
    rng = np.random.default_rng(0)
    grid = {"lat": np.arange(8.0), "lon": np.arange(9.0)}
    values = 15 + np.add.outer(np.sin(grid["lat"]), np.cos(grid["lon"]))
    values += 0.1 * rng.standard_normal((8, 9))
    ds = xr.Dataset(coords=grid, attrs={"title": "a cruise", "history": "made", "source": "RV"})
    ds["sst"] = (("lat", "lon"), values, {
        "units": "degC", "standard_name": "sea_surface_temperature", "long_name": "temperature",
        "cell_methods": "time: mean", "ancillary_variables": "quality", "valid_min": -5.0,
    })  # fmt: skip
    ds["quality"] = (("lat", "lon"), np.ones((8, 9), "i1"), {"flag_values": np.array([1], "i1")})
    ds["soil"] = (("lat", "lon"), np.ones((8, 9), "i2"))
    own = {"dtype": dtype, **encoding}
    if path.suffix == ".nc":
        ds.to_netcdf(path, encoding={"sst": own})
    else:
        ds.to_zarr(path, encoding={"sst": own})
    return path


@pytest.mark.parametrize("way", ["in.nc out.nc", "in.zarr out.zarr", "in.nc out.zarr", "pieces"])
def test_names_attributes_and_provenance(tmp_path, way):
    names = ("in.zarr", "out.zarr") if way == "pieces" else way.split()
    data, out = source(tmp_path / names[0]), tmp_path / names[1]
    options = [*OPTIONS, *(["--memory", "4kB"] if way == "pieces" else [])]
    run_main("smooth", data, "--out", out, *options)  # one variable is no flag and no category
    with xr.open_dataset(out) as ds:
        assert set(ds.data_vars) == {"sst", "sst_std"}
        assert ds["sst"].attrs == {
            "units": "degC", "standard_name": "sea_surface_temperature",
            "long_name": "temperature", "cell_methods": "time: mean",
            "ancillary_variables": "sst_std",
        }  # fmt: skip
        assert ds["sst_std"].attrs == {
            "units": "degC", "standard_name": "sea_surface_temperature standard_error",
            "long_name": "standard deviation of temperature",
        }  # fmt: skip
        assert ds["sst"].dtype == ds["sst_std"].dtype == np.float32
        assert {"title": "a cruise", "source": "RV"}.items() <= ds.attrs.items()
        assert ds.attrs["Conventions"].startswith("CF-1.")
        first, second = ds.attrs["history"].split("\n")
        assert second == "made"
        stamp = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ dsgp {re.escape(__version__)}: dsgp smooth "
        assert re.match(stamp, first)
        assert f"{data} --out {out}" in first
        assert "--noise-variance 0.01" in first
        assert "--kernel lat=matern52" in first
        assert "--overwrite" not in first
        assert abs(ds["sst"] - 15).max() < 3
        plot_field(ds)
        plot_field(ds, variable="sst")
    again = tmp_path / f"again{out.suffix}"
    run_main("smooth", out, "--out", again, *OPTIONS)  # its std is no field of its own
    with xr.open_dataset(again) as ds:
        assert ds.attrs["history"].count("dsgp smooth") == 2


def test_conventions_of_the_source_are_kept_and_noise_is_said(tmp_path):
    data = source(tmp_path / "in.nc")
    with xr.open_dataset(data) as ds:
        ds.assign_attrs(Conventions="CF-1.6, ACDD-1.3").to_netcdf(tmp_path / "other.nc")
    run_main(
        "smooth", tmp_path / "other.nc", "--out", tmp_path / "o.nc", *OPTIONS, "--include-noise"
    )
    with xr.open_dataset(tmp_path / "o.nc") as ds:
        assert ds.attrs["Conventions"] == "CF-1.6, ACDD-1.3"
        assert ds["sst_std"].attrs["long_name"].endswith("of a new observation")


@pytest.mark.parametrize(
    ("dtype", "further", "expected"),
    [
        ("f8", {}, "f8"),
        ("f4", {"zlib": True, "complevel": 7, "chunksizes": (4, 9)}, "f4"),
        ("i2", {"scale_factor": 1e-3, "add_offset": 15.0, "_FillValue": -32768}, "f4"),
        ("i4", {"scale_factor": 1e-6, "_FillValue": -1}, "f8"),
    ],
)
def test_type_and_compression_are_those_of_the_source(tmp_path, dtype, further, expected):
    data = source(tmp_path / "in.nc", dtype, **further)
    for name in ("o.nc", "o.zarr"):
        run_main("smooth", data, "--out", tmp_path / name, *OPTIONS)
        with xr.open_dataset(tmp_path / name) as ds:
            for one in ("sst", "sst_std"):
                own = ds[one].encoding
                assert own["dtype"] == np.dtype(expected)
                assert "scale_factor" not in own
                if "zlib" in further and name == "o.nc":
                    assert own["zlib"]
                    assert own["complevel"] == 7
                if "zlib" in further:
                    assert tuple(own.get("chunksizes") or own["chunks"]) == (4, 9)


@pytest.mark.parametrize("name", ["o.nc", "o.zarr"])
def test_quantiles_are_written_when_asked_for(tmp_path, name, capsys):
    data = source(tmp_path / "in.nc", chunksizes=(4, 9))
    asked = ["--transform", "log", "--quantile", "0.05", "--quantile", "0.5"]
    run_main("smooth", data, "--kernel", "lat=matern52", *asked, "--out", tmp_path / name)
    with xr.open_dataset(tmp_path / name) as ds:
        quantiles = ds["sst_quantiles"]
        assert quantiles.dims == ("quantile", "lat", "lon")
        np.testing.assert_allclose(ds["quantile"], [0.05, 0.5])
        assert quantiles.attrs["units"] == "degC"
        assert quantiles.attrs["long_name"] == "quantiles of temperature"
        assert bool((quantiles[0] < quantiles[1]).all())
        assert bool((quantiles[1] < ds["sst"]).all())  # a median of a logarithm
    for refused, said in (
        (["--quantile", "1.5"], "quantiles must be probabilities"),
        (["--quantile", "0.5", "--keep-observed"], "leave one out"),
        (["--quantile", "0.5", "--memory", "4kB"], "there is no --quantile"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["smooth", str(data), "--out", str(tmp_path / "p.zarr"), *refused])
        assert said in capsys.readouterr().err


def test_a_name_that_is_taken_is_said_first(tmp_path, capsys):
    data = source(tmp_path / "in.nc")
    with xr.open_dataset(data) as ds:
        ds.assign_coords(sst_std=1.0).to_netcdf(tmp_path / "other.nc")
    with pytest.raises(SystemExit):
        cli.main(["smooth", str(tmp_path / "other.nc"), "--out", str(tmp_path / "o.nc")])
    assert (
        "the result has a variable 'sst_std', and the field a coordinate" in capsys.readouterr().err
    )
