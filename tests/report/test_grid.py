"""Pages about fields: their numbers are those of the posterior, whatever its dims and names."""

import base64
import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import dsgp
from dsgp import GridGP
from dsgp.cli import main
from dsgp.errors import DataError, DataWarning, MemoryLimitError, ParameterError, StorageError
from dsgp.kernels import Matern32, Matern52, Periodic
from dsgp.report.grid_again import again_of_grid
from dsgp.report.grid_held_out import held_out_cells
from dsgp.report.grid_view import GridView
from dsgp.report.rendering import Charts

pytest.importorskip("vl_convert")
report = pytest.importorskip("dsgp.report")

NASTY = "<script>alert('x')</script>"
KEPT = {"time": Matern32(4.0, 2.0), "lat": Matern32(3.0), "lon": Matern52(4.0)}


def _field(n_times=5):
    random = np.random.default_rng(1)
    grid = {
        "time": xr.date_range("2024-06-01", periods=n_times),
        "lat": ("lat", np.linspace(45, 40, 6), {"units": "degrees_north"}),
        "lon": ("lon", np.linspace(0, 6, 7), {"units": "degrees_east"}),
    }
    values = 15 + np.sin(np.arange(n_times * 42) / 9).reshape(n_times, 6, 7)
    values += 0.3 * random.standard_normal(values.shape)
    attrs = {"units": "°C", "long_name": "sea temperature"}
    truth = xr.DataArray(values, grid, ("time", "lat", "lon"), "sst", attrs)
    seen = truth.where(random.uniform(size=values.shape) > 0.4)
    return truth, seen.where((truth.lat != 41) | (truth.lon != 3))  # an island


def _fitted(da, kernels=KEPT, noise=0.1, domain=None, **options):
    return GridGP(kernels, noise, learner=None, **options).fit(da, domain=domain)


def _words(page):
    text = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def _specs(page, start):
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    return [spec for spec in specs.values() if spec["description"].startswith(start)]


def _curves(page):
    """Of each curve its points, and the observed ones beside it."""
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    return [
        (
            pd.DataFrame(spec["layer"][0]["data"]["values"]),
            pd.DataFrame(spec["layer"][0]["layer"][1]["data"]["values"]),
        )
        for spec in specs.values()
        if "band" in spec["description"]
    ]


def _maps(page):
    """Of each slice its numbers, by what they are."""
    told = json.loads(re.search(r'id="maps-numbers">(.*?)</script>', page, re.S)[1])
    slices = []
    for one in told["maps"].values():
        shape = len(one["y_names"]), len(one["x_names"])
        unpacked = {}
        for name, key in one["rows"]:
            packed = told["arrays"][key]
            codes = np.frombuffer(base64.b64decode(packed["codes"]), "<u2").reshape(shape)
            numbers = packed["low"] + packed["step"] * codes
            unpacked[name] = np.where(codes == 2**16 - 1, np.nan, numbers)
        if not slices or any(
            not np.array_equal(unpacked[k], slices[-1][1][k], equal_nan=True) for k in unpacked
        ):
            slices.append((one, unpacked))
    return slices


def _close(found, expected, of=1e-4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=of * np.nanmax(np.abs(expected)))


# ---------------------------------------------------------------------- numbers


def test_maps_and_curves_have_the_numbers_of_the_posterior():
    _, da = _field()
    model = _fitted(da, domain="observed")
    posterior = model.posterior()
    page = report.grid_report_page(model)
    slices = _maps(page)
    assert len(slices) == 3
    for k, (one, numbers) in zip((0, 2, 4), slices, strict=True):
        _close(numbers["posterior mean"], posterior["mean"][k])
        _close(numbers["standard deviation"], posterior["std"][k])
        _close(numbers["observed"], da[k])
        assert one["dims"] == ["lat", "lon"]
        assert one["y_names"] == [f"{lat} °N" for lat in range(45, 39, -1)]
        assert one["y_backwards"]
        assert np.isnan(numbers["posterior mean"][4, 3])  # the island
    words = _words(page)
    assert "Observed, 2024-06-03" in words
    assert "first, middle and last of 5 steps along time" in words
    places = re.findall(r"along time, at lat (\d+) °N, lon (\d+) °E", words)
    places = [{"lat": float(lat), "lon": float(lon)} for lat, lon in places]
    for one, (curve, rows) in zip(places, _curves(page), strict=True):
        of = posterior.sel(one)
        _close(curve["m"], of["mean"])
        _close(curve["l"], of["mean"] - 1.959964 * of["std"])
        _close(curve["h"], of["mean"] + 1.959964 * of["std"])
        assert (pd.to_datetime(curve["x"], unit="ms") == of.time.values).all()
        seen = da.sel(one).dropna("time")
        assert (pd.to_datetime(rows["x"], unit="ms") == seen.time.values).all()
        _close(rows["m"], seen)
    counts = da.isel(time=[0, 2, 4]).notnull().sum("time")
    assert [int(counts.sel(one)) for one in places] == [
        int(counts.max()), int(counts.where(posterior["mean"][0].notnull()).min()),
    ]  # fmt: skip


def test_words_and_tables_say_what_the_model_says():
    _, da = _field(n_times=3)
    small = {"time": Matern32(1.0, 0.5), "lat": Matern32(1.0), "lon": Matern32(1.0)}
    model = _fitted(da, [KEPT, small], domain="observed")
    words = _words(report.grid_report_page(model))
    total = 2.0 + 0.5 + 0.1
    for name, variance in (("field, part 1", 2.0), ("field, part 2", 0.5), ("noise", 0.1)):
        assert f"{name} {variance**0.5:.3g} {100 * variance / total:.1f}%" in words
    assert "4 days = 4 steps (Matern32)" in words
    assert "time dates 3 2024-06-01 to 2024-06-03 1 day –" in words
    assert "lat numbers 6 45 °N to 40 °N 1° –" in words
    n_seen, n_inside = int(da.notnull().sum()), int(model.posterior()["mean"].notnull().sum())
    n_empty = 126 - n_inside
    assert f"{n_seen:,} of 126 cells are observed" in words
    assert f"{n_inside - n_seen} missing cells are filled" in words
    assert f"{n_empty} cells ({100 * n_empty / 126:.1f}%) lie outside the domain" in words
    left = (da - model.posterior()["mean"]).values
    spread = float(((da - da.mean()) ** 2).sum())
    assert f"variance explained {100 * (1 - np.nansum(left**2) / spread):.1f}%" in words
    assert "method dense exact, by dense algebra" in words
    assert (
        f"log marginal likelihood {model.log_marginal_likelihood_:.6g}".replace("-", "−") in words
    )
    assert "made without held-out cells" in words
    assert "'time': Matern32(lengthscale=4, variance=2)" in words


def test_correlations_are_those_of_the_kernels():
    _, da = _field()
    small = {"time": Matern32(1.0, 1.0), "lat": Matern32(1.0), "lon": Matern32(1.0)}
    page = report.grid_report_page(_fitted(da, [KEPT, small]))
    (spec,) = [one for one in _specs(page, "Prior corr") if one["description"].endswith("time")]
    rows = pd.DataFrame(spec["data"]["values"])

    def matern(r):
        return (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)

    _close(rows["m"], (2 * matern(rows["x"] / 4) + matern(rows["x"])) / 3)
    said = re.search(r"One half at a distance of ([\d.]+) days", _words(page))
    half = np.interp(-0.5, -rows["m"], rows["x"])
    assert float(said[1]) == pytest.approx(half, rel=0.01)


def test_cells_far_from_the_field_are_counted_and_named():
    _, da = _field()
    da[3, 2, 1] = 40.0
    words = _words(report.grid_report_page(_fitted(da, noise=0.5)))
    assert re.search(
        r"observed cells lie more than 5 .* at time 2024-06-04, lat 43 °N, lon 1 °E", words
    )


def test_skewed_cells_are_said():
    truth, _ = _field()
    skewed = truth + np.random.default_rng(0).exponential(2.0, truth.shape)
    with pytest.warns(DataWarning, match="strongly skewed"):
        model = _fitted(skewed, noise=4.0)
    assert "Residuals of the field 'sst' are strongly skewed" in _words(
        report.grid_report_page(model)
    )
    assert "skewed" not in _words(report.grid_report_page(_fitted(truth, noise=0.5)))


# ---------------------------------------------------------------------- held-out cells


def _held_out(model, cells, posterior=None):
    view = GridView.of(model, posterior, None)
    found = held_out_cells(model, view, cells, Charts(), "sst")
    values = {one.name: float(one.value.replace("−", "-").rstrip("%")) for one in found.measures}
    return found, values, " ".join(found.notes)


@pytest.mark.parametrize("transform", [None, "log"])
def test_accuracy_is_on_the_cells_that_the_fit_did_not_use(transform):
    truth, da = _field()
    model = _fitted(da, domain="observed", transform=transform, noise=0.01, mean=15.0)
    found, values, notes = _held_out(model, truth)  # the complete field
    hidden = (da.isnull() & model.posterior()["mean"].notnull()).values
    assert (found.n_rows, found.unit) == (hidden.sum(), "cells")
    assert f"{int(da.notnull().sum())} of the cells given were used by the fit" in notes
    n_empty = int(model.posterior()["mean"].isnull().sum())
    assert f"{n_empty} held-out values lie where the model has no posterior" in notes
    new = model.posterior(include_noise=True, quantiles=[0.025, 0.25, 0.75, 0.975])
    y, mean = truth.values[hidden], new["mean"].values[hidden]
    assert values["RMSE"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=5e-3)
    ends = new["quantiles"].values[:, hidden]
    inside = [np.mean((ends[k] <= y) & (y <= ends[-1 - k])) for k in (1, 0)]
    shown = [float(dict(found.coverage)[level].rstrip("%")) for level in ("50%", "95%")]
    np.testing.assert_allclose(shown, 100 * np.array(inside), atol=0.06)
    if transform is None:
        density = stats.norm(mean, new["std"].values[hidden]).logpdf(y)
    else:
        log_mean, log_std = (
            np.log(ends[[0, -1]]).mean(0), np.diff(np.log(ends[[0, -1]]), axis=0)[0] / 3.919928
        )  # fmt: skip
        density = stats.lognorm(log_std, scale=np.exp(log_mean)).logpdf(y)
    assert values["negative log density"] == pytest.approx(-density.mean(), abs=2e-3)


def test_held_out_values_may_be_points_between_the_cells():
    truth, da = _field()
    model = _fitted(da)
    points = xr.DataArray(
        [15.0, 15.5, 14.0, np.nan],
        dims="ship",
        coords={
            "time": ("ship", truth.time.values[[0, 1, 1, 2]] + np.timedelta64(6, "h")),
            "lat": ("ship", [44.2, 42.5, 41.1, 41.0]),
            "lon": ("ship", [1.5, 2.5, 5.0, 5.0]),
        },
    )
    found, values, _ = _held_out(model, points)
    assert found.n_rows == 3
    new = model.predict(**{dim: points[dim][:3] for dim in da.dims}, include_noise=True)
    error = points.values[:3] - new["mean"].values
    assert values["MAE"] == pytest.approx(np.abs(error).mean(), rel=5e-3)
    single = truth.isel(time=2, lat=0)  # scalar coordinates
    assert _held_out(model, single)[0].n_rows == int(da[2, 0].isnull().sum())


def test_noise_of_each_cell_is_that_of_its_observations():
    truth, da = _field()
    noise = xr.where(truth.lon > 3, 0.05, 0.4).where(truth.time > truth.time[0])
    model = GridGP(KEPT, noise, learner=None).fit(da.where(truth.time > truth.time[0]))
    found, values, notes = _held_out(model, truth)
    new = model.posterior()
    hidden = (da.isnull() & noise.notnull()).values
    assert found.n_rows == hidden.sum()
    assert "42 held-out values lie where the model has no posterior or no noise variance" in notes
    std = np.sqrt(new["std"] ** 2 + noise).values[hidden]
    density = stats.norm(new["mean"].values[hidden], std).logpdf(truth.values[hidden])
    assert values["negative log density"] == pytest.approx(-density.mean(), abs=2e-3)


def test_held_out_values_that_cannot_be_compared_are_refused(monkeypatch):
    truth, da = _field()
    model = _fitted(da)
    for held_out, said in (
        (da, "no held-out value is left"),
        (truth.drop_vars("lon"), "expected a coordinate 'lon'"),
        (truth.astype(str), "DataArray of numbers"),
        (truth.values, "DataArray of numbers"),
    ):
        with pytest.raises(DataError, match=said):
            _held_out(model, held_out)
    with pytest.raises(DataError, match="have no log"):
        _held_out(_fitted(da, transform="log", mean=15.0), truth - 100)
    posterior = model.posterior()
    monkeypatch.setattr("dsgp.report.grid_held_out.memory.available", lambda: 30_000.0)
    with pytest.raises(MemoryLimitError, match="210 held-out cells"):
        _held_out(model, truth, posterior)
    monkeypatch.setattr("dsgp.report.grid_view.memory.available", lambda: 20_000.0)
    with pytest.raises(MemoryLimitError, match="report of a field of 210 cells"):
        _held_out(model, truth, posterior)


# ---------------------------------------------------------------------- dims, names, gaps


def test_a_page_stands_alone_and_names_are_text():
    x = np.arange(5.0)
    da = xr.DataArray(
        np.sin(x[:, None] + x), {NASTY: x, "b": ("b", x, {"units": NASTY})}, (NASTY, "b"), NASTY,
        {"long_name": NASTY, "units": NASTY},
    )  # fmt: skip
    model = GridGP({NASTY: Matern32(2.0, 1.0), "b": Matern32(2.0)}, 0.1, learner=None).fit(da)
    page = report.grid_report_page(model, title=NASTY)
    assert "<script>alert" not in page
    assert NASTY in _words(page)
    markup = re.sub(r"<script.*?</script>", " ", page, flags=re.S)
    assert not re.findall(r'(?:src|href)="(?!data:|#)', markup)
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert len(pictures) >= 3
    for picture in pictures:
        drawn = base64.b64decode(picture).decode()
        assert "<script" not in drawn
        assert not re.findall(r'href="(?!data:|#)', drawn)
    assert page == report.grid_report_page(model, title=NASTY)


def test_one_dim_has_a_curve_and_no_map():
    x = np.arange(900.0)
    da = xr.DataArray(np.sin(x / 20), {"depth": ("depth", x, {"units": "m"})}, name="salt")
    da[100:150] = np.nan
    model = GridGP({"depth": Matern32(30.0, 1.0)}, 0.01, learner=None).fit(da)
    page = report.grid_report_page(model)
    assert "<h2>Maps</h2>" not in page
    assert "One in 3 of the 900 cells along depth is drawn" in _words(page)
    ((curve, rows),) = _curves(page)
    _close(curve["m"], model.posterior()["mean"][::3])
    assert len(rows) < 300


def test_times_go_to_the_right_where_there_is_one_other_dim():
    days = xr.date_range("2020-01-01", periods=8, freq="30D")
    random = np.random.default_rng(0)
    da = xr.DataArray(random.standard_normal((8, 4)), {"time": days, "station": np.arange(4.0)})
    da[3] = np.nan  # a time without any observation
    model = GridGP({"time": Matern32(50.0, 1.0), "station": Matern32(2.0)}, 0.1, learner=None)
    model.fit(da)
    page = report.grid_report_page(model)
    ((one, numbers),) = _maps(page)
    assert one["dims"] == ["station", "time"]
    assert one["x_names"][3] == "2020-03-31"
    _close(numbers["posterior mean"], model.posterior()["mean"].T)
    assert np.isnan(numbers["observed"][:, 3]).all()
    words = _words(page)
    assert "Nothing is observed at 1 of 8 steps along time" in words
    assert "time, at station 1" in words
    (shares,) = _specs(page, "Share of the cells")
    assert [row["m"] for row in shares["data"]["values"]] == [1, 1, 1, 0, 1, 1, 1, 1]


def test_a_slice_without_observations_is_drawn_from_the_others():
    _, da = _field()
    da[2] = np.nan
    page = report.grid_report_page(_fitted(da))
    numbers = _maps(page)[1][1]
    assert np.isnan(numbers["observed"]).all()
    assert np.isfinite(numbers["posterior mean"]).all()


def test_large_maps_are_thinned_and_small():
    x = np.linspace(0, 1, 600)
    da = xr.DataArray(np.sin(9 * x)[:, None] * np.cos(7 * x), {"row": x, "column": x})
    model = GridGP({"row": Matern32(0.2, 1.0), "column": Matern32(0.2)}, 0.01, learner=None)
    model.fit(da)
    page = report.grid_report_page(model)
    assert len(page) < 2.5e6
    assert "Along row one in 3 of 600 cells is drawn, not an average." in _words(page)
    _close(_maps(page)[0][1]["observed"], da[::3, ::3])


def test_other_calendars_depths_and_closed_longitudes():
    days = xr.date_range("2000-01-16", periods=60, freq="30D", calendar="360_day", use_cftime=True)
    lon = ("lon", np.arange(0.0, 361.0, 60.0), {"units": "degrees_east"})
    depth = ("depth", [0.0, 10.0, 50.0], {"units": "m", "positive": "down"})
    random = np.random.default_rng(0)
    values = random.standard_normal((60, 3, 7))
    values[..., -1] = values[..., 0]
    da = xr.DataArray(values, {"time": days, "depth": depth, "lon": lon}, ("time", "depth", "lon"))
    kernels = {"time": Matern32(60.0, 1.0), "depth": Matern32(20.0), "lon": Periodic(360.0, 90.0)}
    model = _fitted(da, kernels)
    page = report.grid_report_page(model)
    one, numbers = _maps(page)[1]
    assert one["up"] == 0.0  # depths increase downwards
    assert one["x_names"][-1] == "360 °E"
    _close(numbers["posterior mean"], model.posterior()["mean"][30])
    words = _words(page)
    assert "Observed, 2002-07-16" in words
    assert "calendar 360_day" in words
    assert "first and the last cell are one place" in words
    (spec,) = [one for one in _specs(page, "the field along") if "band" in one["description"]]
    rows = spec["layer"][0]["data"]["values"]
    assert rows[0]["x"] == pytest.approx(2000 + 15 / 360, abs=1e-3)
    assert rows[-1]["x"] == pytest.approx(2000 + 15 / 360 + 59 / 12, abs=1e-3)


def test_further_dims_are_in_their_middle():
    grid = {dim: np.arange(float(n)) for dim, n in (("level", 3), ("y", 4), ("x", 4), ("run", 5))}
    grid["member"] = [0.0]
    da = xr.DataArray(np.random.default_rng(0).standard_normal((3, 4, 4, 5, 1)), grid)
    model = _fitted(
        da, {"level": Matern32(1.0, 1.0), **dict.fromkeys(["y", "x", "run"], Matern32(2.0))}
    )
    page = report.grid_report_page(model)
    assert _maps(page)[0][0]["dims"] == ["x", "run"]
    assert "Along y they are of the middle one of 4 steps." in _words(page)
    _close(_maps(page)[2][1]["standard deviation"], model.posterior()["std"][2, 2, ..., 0])


# ---------------------------------------------------------------------- what was done, kept


def test_values_that_were_left_out_are_counted_also_after_saving(tmp_path):
    truth, _ = _field()
    da = truth.copy()
    da.attrs["missing_value"] = -999.0
    da[0, 0, :3] = -999.0
    mask = truth.lon < 6
    model = GridGP(KEPT, 0.1, learner=None)
    with pytest.warns(DataWarning, match="3 cells are treated as missing"):
        model.fit(da, mask=mask)
    model.save(tmp_path / "m.zarr")
    for one in (model, dsgp.load(tmp_path / "m.zarr")):
        words = _words(report.grid_report_page(one))
        assert "Values of 3 cells were left out: missing_value (-999)." in words
        assert "Values of 30 cells were left out: excluded by the mask." in words
        assert "model.fit(da, mask=mask)" in words


def test_a_fit_that_did_not_converge_has_a_warning():
    _, da = _field()
    model = _fitted(da)
    model.converged_, model.residual_ = False, 0.01
    assert "Warning: The solver did not converge" in _words(report.grid_report_page(model))


def test_a_field_of_one_value_has_a_warning_and_no_lengths():
    _, da = _field()
    with pytest.warns(DataWarning, match="the same value"):
        model = GridGP(scales=1).fit(xr.full_like(da, 0.1).where(da.notnull()))
    words = _words(report.grid_report_page(model))
    assert "Warning: All observed cells have the same value" in words
    assert "The lengthscale is longer" not in words
    assert "variance explained (observed cells) –" in words


def test_a_dim_of_one_cell_has_no_lengthscale():
    _, da = _field(n_times=1)
    words = _words(report.grid_report_page(_fitted(da)))
    assert "field 1.41 95.2% – 3° = 3 steps (Matern32) 4° = 4 steps (Matern52)" in words


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": "log", "units": {"time": "hours"}, "tol": 1e-7},
        {"mean": "zero", "scales": 2},
    ],
)
def test_the_code_of_a_page_makes_the_model_again(options, tmp_path):
    _, da = _field(n_times=3)
    model = GridGP(scales=options.pop("scales", 1), **options).fit(da)
    model.save(tmp_path / "model.zarr")
    again = again_of_grid(model)
    code = again.code.replace("field.nc", str(tmp_path / "field.nc"))
    da.to_netcdf(tmp_path / "field.nc")
    first, second = code.split("# With the hyperparameters of this page")
    names = {}
    for part, tolerance in ((first, 1e-9), ("#" + second.split("# A saved")[0], 1e-4)):
        exec(part, names)
        _close(names["model"].posterior()["mean"], model.posterior()["mean"], tolerance)
    logged = " --transform log" if options.get("transform") else ""
    assert f"--variable sst --domain all{logged} --out" in code
    loaded = again_of_grid(dsgp.load(tmp_path / "model.zarr")).code
    assert loaded.split("# With")[1] == again.code.split("# With")[1]


def test_arrays_and_what_is_given_again_have_names_in_the_code():
    truth, da = _field(n_times=3)
    mean = xr.full_like(truth, 15.0)
    noise = xr.full_like(truth, 0.1)
    model = GridGP(KEPT, noise, learner=None, mean=mean).fit(
        da, mask=truth.lon > 0, domain=truth.lon > 0
    )
    code = again_of_grid(model).code
    assert "    mean=mean,\n    noise_variance=noise_variance,\n)" in code
    assert "model.fit(da, mask=mask, domain=domain)" in code
    assert "# The mask and the domain of the fit are to be given again." in code
    assert "--domain" not in code
    compile(code, "page", "exec")


# ---------------------------------------------------------------------- stores


def test_of_a_field_on_disk_the_slices_that_are_drawn_are_read(tmp_path):
    _, da = _field(n_times=9)
    da.to_dataset().to_zarr(tmp_path / "in.zarr", consolidated=False)
    model = GridGP(KEPT, 0.1, learner=None, mean=15.0)
    model.smooth_store(tmp_path / "in.zarr", "sst", tmp_path / "out.zarr")
    with pytest.raises(StorageError, match="pass what it wrote"):
        report.grid_report_page(model)
    written = xr.open_zarr(tmp_path / "out.zarr", consolidated=False, chunks=None)
    field = xr.open_zarr(tmp_path / "in.zarr", consolidated=False, chunks=None)["sst"]
    read = []

    def counted(block, block_info=None):
        read.append(block_info[0]["chunk-location"])
        return block

    lazy = written.chunk(time=1, lat=1)
    lazy["mean"] = lazy["mean"].copy(
        data=lazy["mean"].data.map_blocks(counted, dtype=float, meta=np.zeros((0, 0, 0)))
    )
    page = report.grid_report_page(model, posterior=lazy, observed=field)
    for k, (_, numbers) in zip((0, 4, 8), _maps(page), strict=True):
        _close(numbers["posterior mean"], written["mean"][k])
        _close(numbers["observed"], field[k])
    times, lats = np.array(read)[:, 0], np.array(read)[:, 1]
    assert set(times[np.bincount(times, minlength=9)[times] > 2]) == {0, 4, 8}
    assert len(set(lats[~np.isin(times, [0, 4, 8])])) <= 2  # of the two curves
    words = _words(page)
    assert "tile by tile" in words
    assert "are observed" in words
    with pytest.raises(StorageError, match="held-out cells need a model"):
        report.grid_report_page(model, field, posterior=written)
    named = written.rename(mean="sst", std="sst_std")  # as the command writes it
    assert _maps(report.grid_report_page(model, posterior=named))[0][1].keys() == {
        "posterior mean", "standard deviation",
    }  # fmt: skip
    for other, said in (
        (written.isel(lat=slice(3)), "on the grid of the model"),
        (written.assign_coords(lat=written.lat + 1), "coordinates of the model along 'lat'"),
        (written.drop_vars("std"), "expected a Dataset"),
    ):
        with pytest.raises(DataError, match=said):
            report.grid_report_page(model, posterior=other)


# ---------------------------------------------------------------------- from outside


def test_the_method_the_command_and_notebooks(tmp_path, capsys):
    truth, da = _field()
    model = _fitted(da, domain="observed")
    model.report(tmp_path / "a.html", truth, target="heat, K", title="My sea")
    words = _words((tmp_path / "a.html").read_text(encoding="utf-8"))
    assert words.startswith("My sea")
    assert "heat, K along time" in words
    with pytest.raises(ParameterError, match=r"saved as \.html"):
        model.report(tmp_path / "a.pdf")
    with pytest.raises(ParameterError, match="level"):
        model.report(tmp_path / "a.html", level=2)

    assert "<pre>GridGP of time 5" in model._repr_mimebundle_()["text/html"]
    assert "<pre>GridGP of" not in GridGP()._repr_html_()
    assert model.summary()._repr_html_().startswith("<pre>GridGP of time 5")

    model.save(tmp_path / "m.zarr")
    both = xr.Dataset({"sst": truth, "other": truth})
    both.to_zarr(tmp_path / "new.zarr", consolidated=False)
    command = ["report", str(tmp_path / "m.zarr"), "-o", str(tmp_path / "b.html")]
    data = ["--data", str(tmp_path / "new.zarr")]
    for options, said in (
        (data, "name one: --target"),
        ([*data, "--target", "sst", "--exposure", "x"], "leave it out"),
    ):
        assert _run([*command, *options]) == 1
        assert said in " ".join(capsys.readouterr().err.split())
    assert _run([*command, *data, "--target", "sst"]) == 0
    words = _words((tmp_path / "b.html").read_text(encoding="utf-8"))
    hidden = int((da.isnull() & model.posterior()["mean"].notnull()).sum())
    assert f"Accuracy on {hidden} held-out cells" in words
    assert words.startswith("GridGP of sea temperature (°C)")


def _run(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code
