"""Maps show every cell where it lies, with the colour of its value; lines have their band."""

import cftime
import dask
import numpy as np
import pytest
import xarray as xr
from matplotlib.dates import ConciseDateFormatter, date2num
from scipy.stats import norm

from dsgp.errors import DataError, ParameterError
from dsgp.plotting import plot_field


def posterior(**coords):
    grid = coords or {
        "time": xr.date_range("2020-01-01", periods=6, freq="MS"),
        "lat": [60.0, 50.0, 40.0],
        "lon": [0.0, 10.0, 25.0, 30.0],
    }
    shape = [len(values) for values in grid.values()]
    attrs = {"units": "K", "long_name": "temperature"}
    mean = xr.DataArray(280.0 + np.arange(np.prod(shape)).reshape(shape), grid, attrs=attrs)
    std = xr.DataArray(1.0 + np.random.default_rng(0).random(shape), grid, attrs={"units": "K"})
    return xr.Dataset({"mean": mean, "std": std})


def panels(figure):
    return [ax for ax in figure.axes if ax.get_title()]


def cells(ax):
    """Corner coordinates and values of the mesh of a map."""
    mesh = ax.collections[0]  # above it: gaps and the coast
    return mesh, np.ma.getdata(mesh.get_array()), mesh.get_array()


def value_at(ax, x, y):
    """Value of the cell that covers a point, by the polygon that is drawn there."""
    mesh, _, values = cells(ax)
    corners = mesh.get_coordinates()
    low, high = corners[:-1, :-1], corners[1:, 1:]
    inside = (np.minimum(low, high) <= [x, y]).all(axis=-1) & ([x, y] < np.maximum(low, high)).all(
        axis=-1
    )
    (found,) = values.reshape(inside.shape)[inside]
    return found


# ---- maps


def test_observed_mean_and_std_of_a_slice_stand_side_by_side():
    both = posterior()
    observed = both["mean"] + 1
    figure = plot_field(both, observed, at={"time": "2020-03-01"})
    titles = [ax.get_title() for ax in panels(figure)]
    assert titles == [f"{word}, 2020-03-01" for word in ("observed", "mean", "std")]
    for ax, field in zip(panels(figure), (observed, both["mean"], both["std"]), strict=True):
        for lat in both.lat.values:
            for lon in both.lon.values:
                expected = field.sel(time="2020-03-01", lat=lat, lon=lon)
                assert value_at(ax, lon, lat) == float(expected)


@pytest.mark.parametrize("flip", [[], ["lat"], ["lon"], ["lat", "lon"]])
def test_maps_are_the_right_way_up_whichever_way_coordinates_run(flip):
    both = posterior().isel(time=0, drop=True)
    turned = both.isel({dim: slice(None, None, -1) for dim in flip})
    ax = panels(plot_field(turned))[0]
    assert ax.get_xlim()[0] < ax.get_xlim()[1]
    assert ax.get_ylim()[0] < ax.get_ylim()[1]
    for lat in both.lat.values:
        assert value_at(ax, 10.0, lat) == float(both["mean"].sel(lat=lat, lon=10.0))
    down = panels(plot_field(turned, y_down=True))[0]
    assert down.get_ylim()[0] > down.get_ylim()[1]


def test_cells_end_half_way_between_irregular_coordinates():
    ax = panels(plot_field(posterior().isel(time=0)))[0]
    mesh, _, _ = cells(ax)
    np.testing.assert_array_equal(mesh.get_coordinates()[0, :, 0], [-5, 5, 17.5, 27.5, 32.5])
    assert ax.get_xlim() == (-5, 32.5)


def test_cells_without_a_value_are_blank():
    both = posterior().isel(time=0)
    land = (both.lat == 50) & (both.lon == 10)
    for ax in panels(plot_field(both.where(~land), both["mean"].where(~land))):
        _, _, values = cells(ax)
        assert values.mask.sum() == 1
        assert value_at(ax, 10.0, 50.0) is np.ma.masked


def test_land_is_distinguished_from_what_was_not_observed():
    both = posterior().isel(time=0)
    land = (both.lat == 50) & (both.lon == 10)
    cloud = (both.lat == 60) & (both.lon >= 10)
    figure = plot_field(both.where(~land), both["mean"].where(~land & ~cloud))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "no field there, such as land",
        "not observed, such as clouds",
    ]
    observed, mean, _ = panels(figure)
    _, gaps, coast = observed.collections
    assert gaps.get_array().count() == 3  # cells under the cloud, and no land
    assert len(mean.collections) == 2
    for lines in (coast, mean.collections[1]):
        ends = np.array(lines.get_segments())
        assert len(ends) == 4  # the sides of one cell
        np.testing.assert_array_equal(np.ptp(ends.reshape(-1, 2), axis=0), [12.5, 10.0])
    assert not plot_field(both).legends
    image = both.rename(lat="row", lon="column")
    (legend,) = plot_field(image, image["mean"].where(image.row > 40)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["not observed"]


def test_a_longitude_at_both_ends_of_the_circle_is_drawn_twice():
    lon = ("lon", np.arange(360.0, -1.0, -90.0), {"units": "degrees_east"})
    values = np.array([[5.0, 4.0, 3.0, 2.0, 5.0], [6.0, 7.0, 8.0, 9.0, 6.0]])
    mean = xr.DataArray(values, {"lat": [0.0, 10.0], "lon": lon}, ("lat", "lon"))
    ax = panels(plot_field(xr.Dataset({"mean": mean, "std": mean})))[0]
    assert ax.get_xlim() == (-45, 405)
    for at, expected in ((0.0, 5), (90.0, 2), (270.0, 4), (360.0, 5)):
        assert value_at(ax, at, 0.0) == expected
    line = plot_field(xr.Dataset({"mean": mean, "std": mean}), dims=["lat"], at={"lon": 270.0})
    np.testing.assert_array_equal(line.axes[0].lines[0].get_ydata(), [4, 7])


def test_dates_of_other_calendars_are_years_along_an_axis():
    days = xr.date_range("2000-07-01", periods=5, freq="360D", calendar="360_day", use_cftime=True)
    mean = xr.DataArray(np.arange(5.0), {"time": days}, name="t")
    ax = plot_field(xr.Dataset({"mean": mean, "std": mean})).axes[0]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), 2000.5 + np.arange(5))
    assert ax.get_xlabel() == "time (year, 360_day)"
    short = plot_field(xr.Dataset({"mean": mean, "std": mean}).isel(time=slice(2))).axes[0]
    assert short.get_xlabel() == "time (days since 2000-07-01 (360_day))"


def test_slices_share_their_scales_and_bars_have_units():
    figure = plot_field(posterior(), n_slices=2)
    assert len(panels(figure)) == 4
    assert [ax.get_title() for ax in panels(figure)[::2]] == [
        "mean, 2020-02-01",
        "mean, 2020-05-01",
    ]
    for column in (0, 1):
        limits = {cells(ax)[0].get_clim() for ax in panels(figure)[column::2]}
        assert len(limits) == 1
    bars = [ax.get_xlabel() for ax in figure.axes if ax not in panels(figure)]
    assert bars == ["temperature (K)", "std of temperature (K)"]


def test_values_of_both_signs_have_a_scale_about_zero():
    both = posterior().isel(time=0)
    both["mean"] = both["mean"] - both["mean"].mean() + 1
    mesh, *_ = cells(panels(plot_field(both))[0])
    low, high = mesh.get_clim()
    assert low == pytest.approx(-high)
    assert mesh.get_cmap().name == "below and above zero"
    assert cells(panels(plot_field(both, cmap="gray"))[0])[0].get_cmap().name == "gray"


def test_a_degree_of_longitude_is_as_wide_as_on_the_earth():
    figure = plot_field(posterior(lat=[-1.0, 0.0, 1.0], lon=[0.0, 1.0, 2.0]))
    assert panels(figure)[0].get_aspect() == 1.0
    figure = plot_field(posterior(lat=[59.0, 60.0, 61.0], lon=[0.0, 1.0, 2.0]))
    assert panels(figure)[0].get_aspect() == pytest.approx(2.0)
    # Days, or metres of depth, have no width on the earth.
    days = posterior().transpose("lat", "time", "lon").isel(lon=0, drop=True)
    assert panels(plot_field(days))[0].get_aspect() == "auto"


def test_dates_label_the_axis_of_a_hovmoeller_diagram():
    both = posterior().sel(lat=50.0)
    ax = panels(plot_field(both))[0]
    mesh, *_ = cells(ax)
    edges = mesh.get_coordinates()[:, 0, 1]
    dates = date2num(both.time.values)
    np.testing.assert_allclose(edges[1:-1], (dates[1:] + dates[:-1]) / 2)
    assert type(ax.yaxis.get_major_formatter()) is ConciseDateFormatter
    assert ax.get_ylabel() == ""
    assert ax.get_xlabel() == "lon"


def test_dates_of_other_calendars_are_numbers_with_their_unit():
    days = [cftime.Datetime360Day(2000, 2, 30), cftime.Datetime360Day(2000, 3, 1)]
    both = posterior(time=days, lat=[0.0, 1.0], lon=[0.0, 1.0])
    assert panels(plot_field(both, dims=("time", "lon"), at={"lat": 0.0}))[0].get_ylabel() == (
        "time (days since 2000-02-30 (360_day))"
    )
    assert panels(plot_field(both))[0].get_title() == "mean, 2000-02-30"


def test_variables_of_a_dataset_are_chosen_by_name():
    both = posterior().rename(mean="sst_mean", std="sst_std").isel(time=0)
    assert panels(plot_field(both, variable="sst"))[0].get_title() == "mean"
    with pytest.raises(DataError, match="choose one by variable=: 'sst'"):
        plot_field(both)


def test_of_a_lazy_posterior_only_the_slices_are_computed():
    read = []

    def load(block, block_info=None):
        read.append(block_info[0]["chunk-location"][0])
        return block

    both = posterior().chunk({"time": 1})
    both["mean"] = both["mean"].copy(data=both["mean"].data.map_blocks(load, dtype=float))
    with dask.config.set(scheduler="synchronous"):
        plot_field(both, at={"time": ["2020-02-01", "2020-04-01"]})
    assert sorted(read) == [1, 3]


# ---- lines


def test_one_dim_is_a_line_with_its_band():
    both = posterior(depth=[30.0, 20.0, 5.0])
    (ax,) = plot_field(both, both["mean"] + 1, level=0.9).axes
    (band,) = ax.collections
    dots, line = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), both.depth)
    np.testing.assert_array_equal(line.get_ydata(), both["mean"])
    np.testing.assert_array_equal(dots.get_ydata(), both["mean"] + 1)
    edge = band.get_paths()[0].vertices
    for x, mean, std in zip(
        both.depth.values, both["mean"].values, both["std"].values, strict=True
    ):
        there = edge[edge[:, 0] == x, 1]
        reach = norm.ppf(0.95) * std
        assert (there.min(), there.max()) == pytest.approx((mean - reach, mean + reach))
    assert ax.get_ylabel() == "temperature (K)"


def test_lines_at_chosen_places_share_a_scale():
    both = posterior()
    figure = plot_field(both, dims=["time"], at={"lat": [41.0, 60.0], "lon": 10.0})
    assert [ax.get_title() for ax in figure.axes] == ["lat 40, lon 10", "lat 60, lon 10"]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    (line,) = figure.axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), both["mean"].sel(lat=40.0, lon=10.0))


# ---- mistakes


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: plot_field(p["mean"]), DataError, "expected a Dataset with 'mean' and 'std'"),
        (lambda p: plot_field(p, level=2), ParameterError, "level must be a share"),
        (lambda p: plot_field(p, n_slices=0), ParameterError, "n_slices must be at least 1"),
        (lambda p: plot_field(p, at={"tim": 0}), ParameterError, "did you mean 'time'"),
        (lambda p: plot_field(p, dims=["lat", "lat"]), ParameterError, "one or two dims"),
        (lambda p: plot_field(p, at={"lat": 1, "lon": 1, "time": "2020"}), ParameterError, "dims:"),
        (lambda p: plot_field(p, dims=["lon"]), None, ""),
        (lambda p: plot_field(p, dims=["lon"], n_slices=20, at={"lat": [40, 50, 60]}),
         ParameterError, "18 slices"),
        (lambda p: plot_field(p, p["mean"].isel(time=0)), DataError, "observed: expected"),
        (lambda p: plot_field(p.drop_vars("lat")), DataError, "'lat' has no coordinate"),
        (lambda p: plot_field(p * np.nan), DataError, "every cell of the slices is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_reported(call, error, message):
    if error is None:
        call(posterior())
        return
    with pytest.raises(error, match=message):
        call(posterior())
