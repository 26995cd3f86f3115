"""What GridGP cannot use is refused by name, with what was expected and what to do."""

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP, memory
from dsgp.errors import DataError, MemoryLimitError, ParameterError
from dsgp.kernels import Matern32, SquaredExponential


def field():
    random = np.random.default_rng(0)
    return xr.DataArray(
        random.standard_normal((5, 4)), {"lat": np.arange(5.0), "lon": np.arange(4.0)}
    )


def at(da, **coords):
    return da.assign_coords(coords)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda da: at(da, lat=[0.0, 1, 1, 2, 3]), r"'lat'.*twice|'lat'.*1"),
        (lambda da: at(da, lat=[0.0, 3, 1, 2, 4]), r"'lat'"),
        (lambda da: at(da, lat=[0.0, 1, np.nan, 3, 4]), r"'lat'"),
        (lambda da: da.drop_vars("lat"), r"'lat' has no coordinate.*assign_coords"),
        (lambda da: at(da, lat=list("abcde")), r"'lat'"),
        (lambda da: da * np.nan, r"no cell of the field is observed"),
        (lambda da: da.where(da.lat != 1, np.inf), r"infinite in 4 of 20 cells"),
        (lambda da: da.astype(str), r"dtype"),
        (lambda da: da.astype(complex), r"complex128.*da\.real"),
        (lambda da: da > 0, r"bool.*astype\(float\)"),
        (lambda da: da.isel(lat=0, lon=0), r"single number"),
        (lambda da: da.isel(lat=[]), r"'lat' has no points"),
        (lambda da: da.values, r"DataArray.*ndarray"),
        (lambda da: da.to_dataset(name="t"), r"DataArray.*Dataset"),
        (lambda da: da.where(da.lat > 2, 1e20), r"are exactly 1e\+20"),
    ],
    ids=[
        "duplicated", "shuffled", "missing coordinate", "no coordinate", "text coordinate",
        "all missing", "infinite", "text", "complex", "bool", "scalar", "empty", "array",
        "dataset", "fill value",
    ],
)  # fmt: skip
def test_fields_that_cannot_be_used(make, message):
    with pytest.raises(DataError, match=message):
        GridGP().fit(make(field()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((4, 4), bool)}, r"mask: expected the shape.*'lat': 5.*got \(4, 4\)"),
        ({"mask": np.ones((5, 4))}, r"mask: expected True and False, got float64"),
        ({"mask": np.zeros((5, 4), bool)}, r"no cell.*the mask"),
        ({"mask": xr.DataArray(np.ones(3, bool), dims="lat")}, r"mask: expected 5 points.*'lat'"),
        ({"mask": xr.DataArray(np.ones(5, bool), dims="x")}, r"mask: expected dims.*'x'"),
        ({"mask": xr.DataArray(np.ones(5, bool), {"lat": np.arange(1.0, 6)})}, r"mask.*'lat'"),
        ({"domain": np.zeros((5, 4), bool)}, r"domain leaves no cell"),
        ({"domain": np.ones((5, 5), bool)}, r"domain: expected the shape"),
    ],
)
def test_masks_and_domains_that_do_not_fit(options, message):
    with pytest.raises(DataError, match=message):
        GridGP().fit(field(), **options)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (lambda da: 0 * da, r"noise_variance: expected a positive, finite variance.*20 of 20"),
        (lambda da: xr.ones_like(da).where(da.lat != 2), r"others at 4 of 20"),
        (lambda da: xr.ones_like(da)[:3], r"noise_variance: expected 5 points along 'lat'"),
    ],
)
def test_noise_that_does_not_fit(noise, message):
    with pytest.raises(DataError, match=message):
        GridGP(noise_variance=noise(field())).fit(field())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": {"latt": Matern32()}}, r"kernels: 'latt'.*did you mean 'lat'"),
        ({"kernels": [{"lat": Matern32()}, {"x": Matern32()}]}, r"kernels: 'x'.*dims are"),
        ({"kernels": {"lat": 3.0}}, r"'lat' has 3.0, which is not a kernel"),
        ({"kernels": Matern32()}, r"kernels must map dims to kernels"),
        ({"kernels": 3}, r"kernels must map dims to kernels"),
        ({"kernels": "Matern32"}, r"kernels must map dims to kernels"),
        ({"kernels": [Matern32()]}, r"kernels must map dims to kernels"),
        ({"kernels": []}, r"kernels: got an empty list"),
        ({"kernels": [{}, {}], "scales": 3}, r"scales=3, and kernels has 2"),
        ({"scales": 0}, r"scales must be a positive integer"),
        ({"scales": 1.5}, r"scales must be a positive integer"),
        ({"noise_variance": 0.0}, r"noise_variance must be"),
        ({"noise_variance": -1.0}, r"noise_variance must be"),
        ({"noise_variance": np.nan}, r"noise_variance must be"),
        ({"noise_variance": "learnt"}, r"noise_variance must be"),
        ({"noise_variance": True}, r"noise_variance must be"),
        ({"fixed_noise": True}, "it is None: give it"),
        ({"noise_variance": np.ones((5, 4))}, r"noise_variance must be.*DataArray"),
        ({"mean": "average"}, r"mean: expected"),
        ({"mean": "lat.month"}, r"mean: 'lat\.month' groups dates"),
        ({"mean": np.nan}, r"mean: expected"),
        ({"units": {"time": "days"}}, r"units: 'time'"),
        ({"units": {"lat": "days"}}, r"units: dim 'lat'"),
        ({"learner": "mcmc"}, r"learner must be"),
        ({"variance": "approximate"}, r"variance must be one of"),
        ({"n_neighbours": 0}, r"n_neighbours must be an integer of at least 1"),
        ({"n_draws": 1}, r"n_draws must be an integer of at least 2"),
        ({"max_iter": 2.5}, r"max_iter must be an integer of at least 1"),
        ({"random_state": -1}, r"random_state must be"),
        ({"random_state": "a"}, r"random_state must be"),
        ({"tol": 0.0}, r"tol must be between 0 and 1"),
        ({"tol": "small"}, r"tol must be between 0 and 1"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ParameterError, match=message):
        GridGP(**options).fit(field())


def test_domains_in_words():
    with pytest.raises(ParameterError, match='domain must be an array, "auto", "obs'):
        GridGP().fit(field(), domain="sea")


def test_exact_variances_of_many_cells():
    da = xr.DataArray(np.zeros(2000), {"x": np.arange(2000.0)})
    da[0] = np.nan
    kept = {"kernels": {"x": Matern32(1.0, 1.0)}, "noise_variance": 1.0, "learner": None}
    with pytest.raises(ParameterError, match="there are 1999 of them, more than 1500; use 'local'"):
        GridGP(**kept, variance="exact").fit(da)


def test_long_axes_need_a_matern_kernel():
    da = xr.DataArray(np.zeros(5000), {"x": np.arange(5000.0)})
    kept = {"kernels": {"x": SquaredExponential(9.0, 1.0)}, "noise_variance": 1.0, "learner": None}
    with pytest.raises(ParameterError, match=r"5000 points.*expected a Matérn"):
        GridGP(**kept).fit(da)
    da[0] = np.nan
    with pytest.raises(ParameterError, match=r"5000 points.*expected a Matérn"):
        GridGP(**kept).fit(da)


@pytest.mark.parametrize("call", ["posterior", "predict", "sample", "summary"])
def test_answers_need_a_fit(call):
    with pytest.raises(ValueError, match="not fitted"):
        getattr(GridGP(), call)()


@pytest.mark.parametrize("call", ["predict", "sample"])
def test_coordinates_that_cannot_be_used(call):
    model = GridGP({"lat": Matern32(1.0, 1.0), "lon": Matern32(1.0, 1.0)}, 0.1, learner=None).fit(
        field()
    )
    with pytest.raises(ParameterError, match=r"coords: 'lats'.*did you mean 'lat'"):
        getattr(model, call)(lats=[1.0])
    for bad in ([np.nan], ["2000-01-01"], [[1.0]], [np.inf]):
        with pytest.raises(DataError, match="lat"):
            getattr(model, call)(lat=bad)


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, None])
def test_numbers_of_draws(n_samples):
    model = GridGP({"lat": Matern32(1.0, 1.0), "lon": Matern32(1.0, 1.0)}, 0.1, learner=None).fit(
        field()
    )
    with pytest.raises(ParameterError, match="n_samples must be a positive integer"):
        model.sample(n_samples)


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_seeds_of_draws(seed):
    model = GridGP({"lat": Matern32(1.0, 1.0), "lon": Matern32(1.0, 1.0)}, 0.1, learner=None).fit(
        field()
    )
    with pytest.raises(ParameterError, match="random_state must be"):
        model.sample(1, random_state=seed)


def test_fields_that_do_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1e3, raising=False)
    with pytest.raises(MemoryLimitError, match="a field of 20 cells"):
        GridGP().fit(field())
