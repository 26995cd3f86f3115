"""Numbers that stand for missing values are found, decoded or not, in memory and in stores."""

import warnings

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp import GridGP
from dsgp.errors import DataError, DataWarning
from dsgp.grid.coded import has_gaps, read_values
from dsgp.grid.field import Field
from dsgp.rows.coded import Extremes

rng = np.random.default_rng(0)
SHAPE = (12, 15)
CELLS = 15 + rng.standard_normal(SHAPE)
GAPS = rng.random(SHAPE) < 0.2


def array(values=CELLS, **attrs):
    grid = {"lat": np.arange(12.0), "lon": np.arange(15.0)}
    return xr.DataArray(values, grid, ("lat", "lon"), "sst", attrs)


def require_gaps(da, gaps=GAPS, values=CELLS, atol=0.0):
    """The field is read with these gaps, and a warning says how many."""
    with pytest.warns(DataWarning, match=rf"'sst': {gaps.sum()} cells are treated as missing"):
        field = Field.of(da)
    np.testing.assert_array_equal(np.isnan(field.values), gaps)
    np.testing.assert_allclose(field.values[~gaps], values[~gaps], atol=atol)
    np.testing.assert_array_equal(np.isnan(read_values(da)), gaps)
    assert has_gaps(da)


@pytest.mark.parametrize("name", ["_FillValue", "missing_value", "nodata", "fill_value"])
@pytest.mark.parametrize("code", [-999.0, 1e20, 0.0, -32768.0, 9.969209968386869e36])
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "f8 in encoding"])
def test_fills_of_decoded_arrays(name, code, dtype):
    kind = dtype.split()[0]
    da = array(np.where(GAPS, code, CELLS).astype(kind))
    if "encoding" in dtype and name == "fill_value":
        da.encoding[name] = code  # of zarr: what chunks hold that were not written
        assert not np.isnan(read_values(da)).any()
        return
    (da.encoding if "encoding" in dtype else da.attrs)[name] = code
    require_gaps(da, values=CELLS.astype(kind).astype("f8"))


@pytest.mark.parametrize(
    "attrs",
    [
        {"missing_value": "-999"},
        {"missing_value": [-999.0, -1e4]},
        {"nodatavals": (-999.0,)},
        {"_FillValue": np.float32(1e20), "missing_value": np.array([-999.0])},
        {"valid_min": 0.0},
        {"valid_min": -998, "missing_value": "none"},
        {"valid_range": [-2.0, 40.0]},
        {"valid_range": np.array([-2, 40], "i2"), "valid_max": 35},
    ],
)
def test_other_spellings(attrs):
    require_gaps(array(np.where(GAPS, -999.0, CELLS), **attrs))


def packed(path, engine, unsigned=False, **attrs):
    """Store a field as integers with a scale; among them values outside of the valid range."""
    values = np.where(GAPS, np.nan, CELLS.round(2))
    da = array(values, units="degC")
    ds = da.to_dataset()
    encoding = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 10.0, "_FillValue": -32768}
    ds.sst.attrs |= attrs
    if engine == "zarr":
        ds.to_zarr(path, encoding={"sst": encoding}, zarr_format=3, consolidated=False)
    else:
        ds.to_netcdf(path, encoding={"sst": encoding})
    return {"engine": "zarr", "consolidated": False} if engine == "zarr" else {}


@pytest.mark.parametrize("engine", ["netcdf", "zarr"])
@pytest.mark.parametrize("decode", [True, False])
def test_packed_files_are_read_in_the_units_of_the_field(tmp_path, engine, decode):
    # By the packed numbers: 3 to 7 degrees above the offset.
    attrs = {"valid_range": np.array([300, 700], "i2")}
    options = packed(tmp_path / "f", engine, **attrs)
    rounded = CELLS.round(2)
    gaps = GAPS | (rounded < 13) | (rounded > 17)
    with xr.open_dataset(tmp_path / "f", mask_and_scale=decode, **options) as ds:
        da = ds["sst"].load()
    counted = gaps if not decode else gaps & ~GAPS
    with pytest.warns(DataWarning, match=f"{counted.sum()} cells are treated as missing"):
        field = Field.of(da)
    np.testing.assert_array_equal(np.isnan(field.values), gaps)
    np.testing.assert_allclose(field.values[~gaps], rounded[~gaps], atol=1e-5)
    back = field.restore(field.values)
    assert back.attrs == {"units": "degC"}
    assert not {"scale_factor", "add_offset", "_FillValue"} & set(back.encoding)


@pytest.mark.parametrize("dtype", ["i2", "i2 packed", "f4", "f8"])
@pytest.mark.parametrize("version", [2, 3])
def test_zeros_in_a_store_are_values(tmp_path, dtype, version):
    values = rng.integers(-2, 3, SHAPE).astype("f8")
    da = array(values).astype(dtype.split()[0], keep_attrs=True)
    encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -999} if "packed" in dtype else {}
    source = array(values) if encoding else da
    source.chunk(lat=5).to_dataset().to_zarr(
        tmp_path / "in", zarr_format=version, consolidated=False, encoding={"sst": encoding}
    )
    with xr.open_zarr(tmp_path / "in", consolidated=False) as ds:
        np.testing.assert_array_equal(read_values(ds["sst"]), values)
        if version == 3 or encoding:
            assert not has_gaps(ds["sst"])


def test_a_range_wider_than_the_packed_type_is_of_the_values(tmp_path):
    options = packed(tmp_path / "f", "netcdf", valid_range=np.array([13.0, 17.0]))
    rounded = CELLS.round(2)
    for decode in (True, False):
        with xr.open_dataset(tmp_path / "f", mask_and_scale=decode, **options) as ds:
            read = read_values(ds["sst"])
        np.testing.assert_array_equal(np.isnan(read), GAPS | (rounded < 13) | (rounded > 17))


def test_unsigned_bytes(tmp_path):
    raw = np.arange(-90, 90).reshape(SHAPE).astype("i1")
    attrs = {"_Unsigned": "true", "_FillValue": np.int8(-1), "scale_factor": 0.5}
    attrs["valid_max"] = np.int8(-10)  # 246
    read = read_values(array(raw, **attrs))
    whole = raw.astype("u1").astype(float)
    np.testing.assert_array_equal(read, np.where(whole > 246, np.nan, whole / 2))


def test_ranges_of_other_values_are_refused():
    with pytest.raises(DataError, match=r"180 of 180 values are 180 below valid_min.*del da.attrs"):
        Field.of(array(CELLS - 15, valid_min=5.0))
    assert Field.of(array(valid_range=[4.0, 3.0])).n_observed == 180


# ---------------------------------------------------------------- undeclared codes


@pytest.mark.parametrize("code", [-999.0, -9999.0, 9.969209968386869e36, 1e20, -32768.0, 255.0])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_known_codes_are_refused(code, dtype):
    da = array(np.where(GAPS, code, CELLS).astype(dtype))
    with pytest.raises(DataError, match=rf"{GAPS.sum()} of the values are exactly .*da.where"):
        Field.of(da)
    with pytest.warns(DataWarning, match="are exactly"):
        assert Field.of(da, mask=da.notnull()).n_observed == 180
    assert Field.of(da, mask=array(~GAPS)).n_observed == 180 - GAPS.sum()
    assert Field.of(da.where(~GAPS)).n_observed == 180 - GAPS.sum()


def test_others_are_warned_of():
    with pytest.warns(DataWarning, match="are exactly 0, and all others lie from"):
        Field.of(array(np.where(GAPS, 0.0, 15 + 0.2 * (CELLS - 15))))


@pytest.mark.parametrize("codes", [(-999.0, -1000.0), (-999.0, 1e20), (-9999.0, 999.0)])
def test_several_codes_at_once(codes):
    values = np.where(GAPS, codes[0], CELLS)
    values[0, :4] = codes[1]
    assert set(Extremes().add(values).codes()) == set(codes)


FIELDS = {
    "counts": rng.poisson(1.0, SHAPE).astype(float),
    "rain": np.where(GAPS, 0.0, rng.gamma(1.0, 2.0, SHAPE)),
    "two values": GAPS.astype(float),
    "constant": np.full(SHAPE, -999.0),
    "saturated": np.minimum(250 + 5 * CELLS, 320.0),
    "rounded": CELLS.round(),
    "one far value": np.where(np.arange(180).reshape(SHAPE) == 7, -999.0, CELLS),
    "pressure": 1e5 + 300 * CELLS,
    "gaps": np.where(GAPS, np.nan, CELLS),
}


@pytest.mark.parametrize("name", FIELDS)
def test_honest_fields_are_left_alone(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        Field.of(array(FIELDS[name]))


@given(
    split=st.integers(1, 11),
    share=st.floats(0.02, 0.8),
    code=st.sampled_from([-999.0, 1e20, -32768.0, 99999.0]),
)
@settings(max_examples=30, deadline=None)
def test_blocks_find_what_the_whole_shows(split, share, code):
    values = np.where(np.random.default_rng(1).random(SHAPE) < share, code, CELLS)
    whole = Extremes().add(values)
    blocks = Extremes().add(values[:split]).add(values[split:])
    assert blocks.codes() == whole.codes() == {code: int((values == code).sum())}
    assert blocks.inner(blocks.codes()) == whole.inner(whole.codes())


# ---------------------------------------------------------------- stores and lazy arrays


def stored(path, **attrs):
    values = np.where(GAPS, -999.0, CELLS).astype("f4")
    array(values, **attrs).chunk(lat=5).to_dataset().to_zarr(path, consolidated=False)


def test_streamed_stores(tmp_path):
    kernels = GridGP().fit(array(np.where(GAPS, np.nan, CELLS))).kernels_
    options = {"kernels": kernels, "noise_variance": 0.5, "learner": None, "variance": "local"}
    stored(tmp_path / "bare.zarr")
    with pytest.raises(DataError, match=rf"'sst': {GAPS.sum()} of the values are exactly -999"):
        GridGP(**options).smooth_store(tmp_path / "bare.zarr", "sst", tmp_path / "out.zarr")
    stored(tmp_path / "in.zarr", missing_value=-999.0, valid_min=13.5)
    gaps = GAPS | (CELLS < 13.5)
    model = GridGP(**options)
    with pytest.warns(DataWarning, match="cells are treated as missing.*below valid_min"):
        model.smooth_store(tmp_path / "in.zarr", "sst", tmp_path / "out.zarr")
    assert model.n_observed_ == (~gaps).sum()
    with xr.open_zarr(tmp_path / "out.zarr") as ds:
        assert abs(ds["mean"] - 15).max() < 4
        assert not {"missing_value", "valid_min"} & set(ds["mean"].attrs)


def test_lazy_fields_and_what_goes_with_them():
    values = np.where(GAPS, -999.0, CELLS)
    noise = array(np.where(GAPS, 1e20, 0.5), _FillValue=1e20)
    fitted = GridGP().fit(array(np.where(GAPS, np.nan, CELLS)))
    options = {"kernels": fitted.kernels_, "noise_variance": noise, "learner": None}
    expected = array(np.where(GAPS, np.nan, CELLS)).dsgp.smooth(**options)
    for where in ("attrs", "encoding"):
        da = array(values)
        getattr(da, where)["_FillValue"] = -999.0
        lazy = da.chunk(lat=4).dsgp.smooth(**options)
        with pytest.warns(DataWarning, match="are treated as missing"):
            result = lazy.compute()
        np.testing.assert_allclose(result["mean"], expected["mean"], rtol=1e-6)
        assert "_FillValue" not in result["mean"].attrs
