"""GridGP against dense matrices: likelihood, posterior, predictions, draws, and what is learnt."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgp import GridGP, load
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.grid import covariance, missing, systems
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic, SquaredExponential
from tests.grid.dense import CASES, Dense, close, elsewhere, gaps, uneven

DIMS = "abcd"


def as_field(y, points, observed=None):
    da = xr.DataArray(y, dict(zip(DIMS, points, strict=False)), name="t", attrs={"units": "K"})
    return da if observed is None else da.copy(data=np.where(observed, y, np.nan))


def as_mappings(terms):
    return [dict(zip(DIMS, term, strict=False)) for term in terms]


def given_model(terms, noise, **options):
    return GridGP(as_mappings(terms), noise, **{"learner": None, "tol": 1e-12} | options)


def check(model, dense, y, mean, exact_variance=True):
    """Everything a fitted model says, against matrices; ``mean`` is the prior's."""
    residual = y - mean
    close(model.log_marginal_likelihood_, dense.log_likelihood(residual))
    new = elsewhere(dense.points)
    for points, found in (
        (None, model.posterior()),
        (new, model.predict(**dict(zip(DIMS, new, strict=False)))),
    ):
        expected, covariance = dense.posterior(residual, points)
        variance = np.diag(covariance).reshape(expected.shape)
        close(found["mean"], expected + mean)
        if exact_variance:
            close(found["std"] ** 2, variance)
        else:
            assert (found["std"] ** 2 >= variance - 1e-9 * variance.max()).all()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("per_cell", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_everything_is_that_of_dense_algebra(name, per_cell, missing):
    points, terms = CASES[name]
    shape = tuple(map(len, points))
    random = np.random.default_rng(len(name))
    y = 3 + random.standard_normal(shape)
    noises = random.uniform(0.02, 0.3, shape) if per_cell else 0.1
    observed = gaps(shape) if missing else np.ones(shape, bool)
    dense = Dense(points, terms, noises, observed)
    noise = as_field(noises, points) if per_cell else 0.1
    mean = float(y[observed].mean())
    model = given_model(terms, noise, mean=mean).fit(as_field(y, points, observed))
    complete = not (missing or per_cell or len(terms) > 1)
    assert model.method_ == ("kronecker" if complete else "dense")
    assert model.variance_method_ == "exact"
    assert model.n_observed_ == observed.sum()
    assert (model.noise_variance_ is None) == per_cell
    check(model, dense, y, mean)


@pytest.mark.parametrize("name", CASES)
def test_conjugate_gradients_say_the_same(name, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", 0)
    monkeypatch.setattr(missing, "_CANDIDATES", 10**4)
    points, terms = CASES[name]
    shape = tuple(map(len, points))
    y = np.random.default_rng(0).standard_normal(shape)
    observed = gaps(shape)
    dense = Dense(points, terms, 0.1, observed)
    da, mean = as_field(y, points, observed), float(y[observed].mean())
    model = given_model(terms, 0.1, mean=mean, n_neighbours=10**4).fit(da)
    assert (model.method_, model.variance_method_) == ("conjugate gradients", "local")
    assert model.converged_
    assert model.residual_ <= 1.1e-12
    assert model.solver_iterations_ > 0
    check(model, dense, y, mean)
    few = given_model(terms, 0.1, mean=mean, n_neighbours=5, variance="local").fit(da)
    close(few.posterior()["mean"], model.posterior()["mean"])
    assert (few.posterior()["std"] >= model.posterior()["std"] * (1 - 1e-9)).all()


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("long", [0, 1])
def test_long_axes_say_the_same(missing, long, monkeypatch):
    for module in (systems, covariance):
        monkeypatch.setattr(module, "LONG", 6)
    lengths = (9, 5) if long == 0 else (5, 9)
    points = [uneven(lengths[0], 0, 3), uneven(lengths[1], 0, 4)]
    kernels = [SquaredExponential(0.8, 1.0)] * 2
    kernels[long] = Matern52(0.9, 1.5)
    y = np.random.default_rng(0).standard_normal(lengths)
    observed = gaps(lengths) if missing else np.ones(lengths, bool)
    mean = float(y[observed].mean())
    model = given_model([kernels], 0.1, mean=mean).fit(as_field(y, points, observed))
    assert model.method_ == ("dense" if missing else "fibres")
    check(model, Dense(points, [tuple(kernels)], 0.1, observed), y, mean)


def test_ten_thousand_steps_with_gaps_are_solved():
    x = np.sort(np.random.default_rng(0).uniform(0, 1000, 6000))
    truth = np.sin(x / 3)[:, None] * np.array([1.0, 0.5])
    y = truth + 0.1 * np.random.default_rng(1).standard_normal(truth.shape)
    observed = np.random.default_rng(2).random(y.shape) < 0.5
    terms = [(Matern52(3.0, 1.0), SquaredExponential(1.0, 1.0))]
    model = given_model(terms, 0.01, mean="zero", tol=1e-8).fit(
        as_field(y, [x, np.array([0.0, 0.6])], observed)
    )
    assert model.method_ == "conjugate gradients"
    assert model.converged_
    posterior = model.posterior()
    error = (posterior["mean"] - truth) / posterior["std"]
    assert 0.8 < float(np.sqrt((error**2).mean())) < 1.2
    # A window of it, by dense algebra.
    window = slice(3000, 3300)
    dense = Dense([x[window], np.array([0.0, 0.6])], terms, 0.01, observed[window])
    middle = slice(130, 170)
    close(posterior["mean"][window][middle], dense.posterior(y[window])[0][middle], 1e-5)
    ratio = posterior["std"][window][middle] ** 2 / dense.variance()[middle]
    assert 1 - 1e-6 < float(ratio.min()) < float(ratio.max()) < 1.25


# ---------------------------------------------------------------------- options of the posterior


def example(missing=True, seed=0):
    points = [np.linspace(0, 5, 14), uneven(12, 0, 3)]
    random = np.random.default_rng(seed)
    truth = np.sin(2 * points[0])[:, None] * np.cos(points[1])
    y = 10 + truth + 0.1 * random.standard_normal(truth.shape)
    return as_field(y, points, gaps(y.shape) if missing else None), 10 + truth


@pytest.mark.parametrize("missing", [False, True])
def test_noise_is_included_on_request(missing):
    da, _ = example(missing)
    model = given_model([(Matern32(1.0, 1.0), Matern32(1.0, 1.0))], 0.04).fit(da)
    for call in (model.posterior, lambda **own: model.predict(**own, a=[0.3, 7.0], b=1.0)):
        without, included = call(), call(include_noise=True)
        close(included["std"] ** 2, without["std"] ** 2 + 0.04, 1e-12)
        close(included["mean"], without["mean"], 1e-14)


def test_noise_given_for_each_cell_is_known_there_alone():
    da, _ = example()
    noise = xr.full_like(da, 0.0) + 0.01 * (1 + da.a)
    model = given_model([(Matern32(1.0, 1.0), Matern32(1.0, 1.0))], noise).fit(da)
    extra = model.posterior(include_noise=True)["std"] ** 2 - model.posterior()["std"] ** 2
    seen = da.notnull().values
    close(extra.values[seen], noise.values[seen], 1e-9)
    with pytest.raises(ParameterError, match="noise was given for each cell"):
        model.predict(include_noise=True, a=[0.3])
    assert "given for each cell" in model.summary()


def test_noise_matches_by_coordinates():
    da, _ = example()
    noise = (xr.zeros_like(da) + 0.01 * (1 + da.a)).fillna(1.0)
    models = [
        given_model([(Matern32(1.0, 1.0), Matern32(1.0, 1.0))], own).fit(da)
        for own in (noise, noise.isel(a=slice(None, None, -1)).transpose("b", "a"))
    ]
    xr.testing.assert_identical(models[0].posterior(), models[1].posterior())


@pytest.mark.parametrize("variance", ["exact", "local", "draws"])
def test_variances_are_as_asked_for(variance):
    da, _ = example()
    terms = [(Matern32(1.0, 1.0), Matern32(1.0, 1.0))]
    exact = given_model(terms, 0.04).fit(da).posterior()["std"]
    model = given_model(terms, 0.04, variance=variance, n_draws=400, n_neighbours=8).fit(da)
    assert model.variance_method_ == variance
    ratio = model.posterior()["std"] / exact
    if variance == "exact":
        assert model.variance_error_ is None
        close(ratio, np.ones(da.shape), 1e-9)
    elif variance == "local":
        assert (ratio > 1 - 1e-9).all()
        assert -1e-3 < model.variance_error_ < float(ratio.max()) - 1 + 1e-3
    else:
        assert model.variance_error_ == pytest.approx(1 / np.sqrt(800))
        assert float(abs(ratio - 1).max()) < 5 * model.variance_error_
    assert f"variance: {variance}" in model.summary()


def test_spectral_variances_are_those_of_a_saved_model_too(tmp_path):
    random = np.random.default_rng(0)
    grid = {"a": np.arange(14.0), "b": np.arange(12.0), "c": np.arange(10.0)}
    da = xr.DataArray(random.standard_normal((14, 12, 10)), grid)
    terms = [(Matern32(length, 1.0),) * 3 for length in (15.0, 2.0)]
    options = {"kernels": [dict(zip("abc", term, strict=True)) for term in terms]}
    model = GridGP(**options, noise_variance=0.1, learner=None).fit(da)
    assert model.variance_method_ == "spectral"
    assert 0 < model.variance_error_ <= 0.05
    drawn = GridGP(**options, noise_variance=0.1, learner=None, variance="draws", n_draws=300).fit(
        da
    )
    ratio = model.posterior()["std"] / drawn.posterior()["std"]
    assert abs(float(ratio.mean()) - 1) < 0.02
    model.save(tmp_path / "model.zarr")
    loaded = load(tmp_path / "model.zarr")
    xr.testing.assert_identical(loaded.posterior(), model.posterior())
    assert "variance: spectral (error about" in loaded.summary()
    with pytest.raises(ParameterError, match="variance='spectral' is for complete fields"):
        GridGP(**options, noise_variance=0.1, learner=None, variance="spectral").fit(
            da.where(da < 2)
        )


@pytest.mark.parametrize("missing", [False, True])
def test_draws_have_the_moments_of_the_posterior(missing):
    da, _ = example(missing)
    model = given_model([(Matern32(1.0, 1.0), Matern52(1.0, 1.0))], 0.04).fit(da)
    coords = {"a": [0.1, 4.0], "b": [2.0, 0.5, 3.5]}
    for own, posterior in (({}, model.posterior()), (coords, model.predict(**coords))):
        draws = model.sample(300, random_state=1, **own)
        assert draws.dims == ("sample", "a", "b")
        for dim in ("a", "b"):
            np.testing.assert_array_equal(draws[dim], posterior[dim])
        z = (draws.mean("sample") - posterior["mean"]) / posterior["std"] * np.sqrt(300)
        assert float(abs(z).max()) < 5
        ratio = draws.std("sample") / posterior["std"]
        assert float(abs(ratio - 1).max()) < 0.25


def test_draws_repeat_with_their_seed():
    da, _ = example()
    model = given_model([(Matern32(1.0, 1.0), Matern52(1.0, 1.0))], 0.04, random_state=5).fit(da)
    xr.testing.assert_identical(model.sample(2), model.sample(2, random_state=5))
    xr.testing.assert_identical(model.sample(3)[:2], model.sample(2))
    assert not np.allclose(model.sample(1), model.sample(1, random_state=6))


# ---------------------------------------------------------------------- gaps


def test_a_slice_without_any_value_is_filled_from_its_neighbours():
    da, truth = example(missing=False)
    da[5] = np.nan
    da[:, 7] = np.nan
    posterior = GridGP().fit(da).posterior()
    assert np.isfinite(posterior["mean"]).all()
    assert float(abs(posterior["mean"] - truth)[5].max()) < 0.3
    assert (posterior["std"][5] > posterior["std"].min()).all()


@pytest.mark.parametrize("dense_cells", [0, 1500])
@pytest.mark.parametrize("kind", ["constant", "nothing", "one cell"])
def test_fields_that_are_not_informative_have_a_posterior(kind, dense_cells, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", dense_cells)
    da, _ = example()
    if kind == "one cell":
        da = da.where((da.a == da.a[4]) & (da.b == da.b[5]))
    else:
        da = 0 * da + (3.0 if kind == "constant" else 0.0)
    posterior = GridGP().fit(da).posterior()
    np.testing.assert_allclose(posterior["mean"], float(da.mean()), rtol=1e-6)
    assert np.isfinite(posterior["std"]).all()
    assert (posterior["std"] >= 0).all()


def test_a_mask_is_a_gap():
    da, _ = example(missing=False)
    mask = as_field(gaps(da.shape), [da.a.values, da.b.values])
    model = given_model([(Matern32(1.0, 1.0), Matern52(1.0, 1.0))], 0.04)
    masked = model.fit(da, mask=mask).posterior()
    missing = model.fit(da.where(mask)).posterior()
    xr.testing.assert_identical(masked, missing)
    xr.testing.assert_identical(model.fit(da, mask=mask.values).posterior(), missing)
    assert model.n_observed_ == int(mask.sum())


def test_land_stays_empty_and_changes_nothing_else():
    days = xr.date_range("2020-01-01", periods=9)
    x = np.arange(6.0)
    t = np.arange(9.0)
    y = np.sin(t)[:, None] * np.cos(x) + 0.1 * np.random.default_rng(0).standard_normal((9, 6))
    da = xr.DataArray(y, {"time": days, "x": x})
    da[:, 2] = np.nan
    da[3, 4] = np.nan
    terms = {"time": Matern32(2.0, 1.0), "x": Matern32(2.0, 1.0)}
    model = GridGP(terms, 0.01, learner=None, scales=1)
    everywhere = model.fit(da).posterior()
    sea = model.fit(da, domain="observed").posterior()
    assert sea["mean"][:, 2].isnull().all()
    assert sea["std"][:, 2].isnull().all()
    assert int(sea["mean"].isnull().sum()) == 9
    inside = everywhere.where(xr.DataArray(x != 2, {"x": x}))
    xr.testing.assert_allclose(sea, inside)
    given = model.fit(da, domain=xr.DataArray(x != 2, {"x": x})).posterior()
    xr.testing.assert_identical(given, sea)
    draws = model.sample(2)
    assert draws.isel(x=2).isnull().all()
    assert draws.isel(x=[0, 1, 3, 4, 5]).notnull().all()


# ---------------------------------------------------------------------- any small grid


@settings(max_examples=15)
@given(data=st.data())
def test_any_small_grid(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), "shape"))
    seed = data.draw(st.integers(0, 10**6), "seed")
    random = np.random.default_rng(seed)
    origin = 10 ** data.draw(st.floats(-3, 3), "origin")
    unit = 10 ** data.draw(st.floats(-4, 4), "unit")
    points = [
        unit * (origin + (np.linspace(0, 1, n) if random.random() < 0.5 else uneven(n, 0, 1, seed)))
        for n in shape
    ]
    scale = 10 ** data.draw(st.floats(-8, 8), "scale")
    kinds = st.sampled_from([Matern12, Matern32, Matern52, Matern72])
    terms = [
        tuple(
            data.draw(kinds)(unit * 10 ** data.draw(st.floats(-1, 1)), scale**2 if d == 0 else 1.0)
            for d in range(len(shape))
        )
        for _ in range(data.draw(st.integers(1, 2), "terms"))
    ]
    y = scale * (5 + random.standard_normal(shape))
    observed = gaps(shape, data.draw(st.sampled_from([0.0, 0.4]), "share"), seed)
    noise = (0.3 * scale) ** 2
    model = given_model(terms, noise, mean="zero").fit(as_field(y, points, observed))
    dense = Dense(points, terms, noise, observed)
    close(model.log_marginal_likelihood_, dense.log_likelihood(y), 1e-7)
    mean, covariance = dense.posterior(y)
    posterior = model.posterior()
    close(posterior["mean"], mean, 1e-7)
    close(posterior["std"] ** 2, np.diag(covariance).reshape(shape), 1e-7)
    descending = as_field(y, points, observed).isel({DIMS[0]: slice(None, None, -1)})
    flipped = given_model(terms, noise, mean="zero").fit(descending).posterior()
    close(flipped["mean"][::-1], mean, 1e-7)


def test_a_round_longitude_joins_its_ends():
    longitude = np.arange(0.0, 360.0, 20.0)
    latitude = np.arange(-80.0, 81.0, 20.0)
    y = np.cos(np.radians(longitude)) + np.zeros((9, 1))
    da = xr.DataArray(y, {"lat": latitude, "lon": longitude})
    da[:, -1] = np.nan
    kernels = {"lat": Matern32(40.0, 1.0), "lon": Periodic(360.0, 60.0, 1.0)}
    model = GridGP(kernels, 1e-4, learner=None, scales=1).fit(da)
    assert float(abs(model.posterior()["mean"][:, -1] - np.cos(np.radians(340.0))).max()) < 0.02
    around = model.predict(lon=[-20.0, 340.0, 700.0])
    close(around["mean"][:, 0], around["mean"][:, 1], 1e-9)
    close(around["mean"][:, 2], around["mean"][:, 1], 1e-9)


# ---------------------------------------------------------------------- determinism


@pytest.mark.parametrize("dense_cells", [0, 1500])
def test_threads_and_repetition_change_no_bit(dense_cells, monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", dense_cells)
    da, _ = example()
    found = []
    for work in (0.0, np.inf, np.inf):
        monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", work)
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", 4)
        model = GridGP(variance="local").fit(da)
        found.append((model.kernels_, model.posterior(), model.sample(2), model.predict(a=[0.1])))
    for other in found[1:]:
        assert other[0] == found[0][0]
        for own, first in zip(other[1:], found[0][1:], strict=True):
            xr.testing.assert_identical(own, first)


def test_fitting_again_forgets_the_field_before():
    first, second = example(seed=0)[0], example(missing=False, seed=1)[0]
    model = GridGP().fit(first)
    model.posterior()
    again = model.fit(second)
    assert again is model
    fresh = GridGP().fit(second)
    xr.testing.assert_identical(model.posterior(), fresh.posterior())
    assert model.summary() == fresh.summary()
    xr.testing.assert_identical(model.fit(first).posterior(), GridGP().fit(first).posterior())


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    da = xr.DataArray(np.sin(np.arange(30.0) / 4), {"x": np.arange(30.0)})
    model = GridGP().fit(da)
    before = model.posterior()
    with pytest.raises(DataError):
        model.fit(da + 100, mask=np.ones(3, dtype=bool))
    xr.testing.assert_identical(model.posterior(), before)


def test_noise_per_cell_is_included_where_it_is_given():
    random = np.random.default_rng(0)
    da = xr.DataArray(np.sin(np.arange(40.0) / 4), {"x": np.arange(40.0)})
    gaps = random.random(40) < 0.4
    noise = xr.full_like(da, 0.04)
    model = GridGP(noise_variance=noise).fit(da.where(~gaps))
    with_noise = model.posterior(include_noise=True)["std"]
    np.testing.assert_allclose(with_noise**2, model.posterior()["std"] ** 2 + 0.04, rtol=1e-12)
    model = GridGP(noise_variance=noise.where(~gaps, 0.04 if gaps.all() else np.nan)).fit(
        da.where(~gaps)
    )
    assert np.isfinite(model.posterior()["std"]).all()
    with pytest.raises(DataError, match="include_noise"):
        model.posterior(include_noise=True)


@pytest.mark.parametrize("seed", range(4))
def test_white_noise_has_no_field(seed):
    y = np.random.default_rng(seed).standard_normal((30, 30))
    da = xr.DataArray(y, {"a": np.arange(30.0), "b": np.arange(30.0)})
    model = GridGP().fit(da)
    assert model.noise_variance_ == pytest.approx(1.0, abs=0.2)
    assert float(abs(model.posterior()["mean"]).max()) < 0.5


def test_a_field_of_one_value_is_warned_of():
    da = xr.DataArray(np.full((5, 6), 273.15), {"a": np.arange(5.0), "b": np.arange(6.0)})
    with pytest.warns(DataWarning, match="the same value"):
        found = GridGP().fit(da).posterior()
    np.testing.assert_allclose(found["mean"], 273.15)
