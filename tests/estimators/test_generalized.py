"""The generalized additive model as a user meets it: targets, offsets, predictions, intervals."""

import json
import subprocess
import sys
import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from scipy.stats import poisson
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import d2_tweedie_score, r2_score

import dsgp
from dsgp import GeneralizedAdditiveGP
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError, StorageError
from dsgp.kernels import Matern32, Matern52
from dsgp.likelihoods import (
    Bernoulli,
    Binomial,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordered,
    Poisson,
    StudentT,
)
from dsgp.plotting import plot_components, plot_learning

KEPT = {"a": Matern52(1.0, 1.0), "b": Matern32(2.0, 0.5)}
LIKELIHOODS = {
    "poisson": Poisson(),
    "bernoulli": Bernoulli("probit"),
    "binomial": Binomial(),
    "negative_binomial": NegativeBinomial(0.3),
    "gamma": Gamma(2.0),
    "ordered": Ordered(cutpoints=(-1.0, 0.5, 2.0)),
    "student_t": StudentT(scale=0.5),
    "gaussian": Gaussian(0.3),
}


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(-2, 2, n).round(2), "b": rng.uniform(-2, 2, n).round(2)})
    return X, (np.sin(2 * X["a"]) + 0.5 * X["b"]).to_numpy()


def drawn(likelihood, f, seed=1, trials=None):
    return likelihood.sample(f, np.random.default_rng(seed), trials)


def kept(likelihood="poisson", **options):
    return GeneralizedAdditiveGP(likelihood, terms=KEPT, learner=None, **options)


# ---- targets


@pytest.mark.parametrize(
    ("likelihood", "value", "message"),
    [
        ("poisson", -1.0, r"'count' must hold counts .* row 7 is -1"),
        ("poisson", 0.5, r"'count' must hold counts .* row 7 is 0\.5"),
        ("negative_binomial", -2.0, "row 7 is -2"),
        ("gamma", 0.0, "'count' must hold .* row 7 is 0"),
        ("bernoulli", 2.0, "0 or 1, but row 7 is 2"),
        ("poisson", np.nan, r"'count' contains NaN \(missing\) in row 7"),
        ("poisson", np.inf, "'count' contains infinity in row 7"),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_targets_that_are_none_are_named_with_their_row(likelihood, value, message, weighted):
    X, _ = table(60)
    y = pd.Series(np.ones(60), name="count")
    y[7] = value
    weight = np.ones(60)
    if weighted:
        weight[[0, 3, 20]] = 0  # rows that do not count are counted
        if np.isfinite(value):
            y[3] = value  # and may hold anything finite
    model = kept(LIKELIHOODS[likelihood])
    with pytest.raises(DataError, match=message):
        model.fit(X, y, weight)
    with pytest.raises(DataError, match=message):
        model.fit(X.assign(count=y, w=weight), "count", "w")


def test_a_bad_target_is_named_in_a_stream():
    X, _ = table(200)
    y = np.ones(200)
    y[150] = -3
    with pytest.raises(DataError, match=r"'count' must hold .* row 150 is -3"):
        kept(bins=20).fit(dd.from_pandas(X.assign(count=y), npartitions=4), "count")


@pytest.mark.parametrize("value", [0.0, -2.0])
@pytest.mark.parametrize("stream", [False, True])
def test_exposures_must_be_positive(value, stream):
    X, f = table(60)
    y = drawn(Poisson(), f)
    time = np.ones(60)
    time[[41, 50]] = value
    frame = X.assign(y=y, time=time)
    model = kept()
    if stream:
        frame = dd.from_pandas(frame, npartitions=3)
    with pytest.raises(DataError, match=r"exposure .*must be positive .* row 41 .* 2 of 60"):
        model.fit(frame, "y", exposure="time")
    model.fit(X, y)
    with pytest.raises(DataError, match=r"exposure 'time' must be positive .* in row"):
        np.asarray(model.predict(frame, exposure="time"))
    with pytest.raises(DataError, match=r"exposure 'time' must be positive .* row 41"):
        model.predict(X, exposure=pd.Series(time, name="time"))
    with pytest.raises(DataError, match=r"exposure must be positive .* row 41"):
        model.sample(X, exposure=time, include_noise=True)


def test_trials():
    X, f = table(60)
    trials = np.random.default_rng(0).integers(1, 9, 60).astype(float)
    y = drawn(Binomial(), f, trials=trials)
    model = kept("binomial").fit(X.assign(y=y, n=trials), "y", trials="n")
    np.testing.assert_array_equal(
        model.predict(X), kept("binomial").fit(X, y, trials=trials).predict(X)
    )
    np.testing.assert_allclose(model.predict(X, trials=trials), trials * model.predict(X))
    with pytest.raises(DataError, match=r"row 9 is"):
        kept("binomial").fit(X, np.where(np.arange(60) == 9, trials + 1, y), trials=trials)
    for bad in (0.0, 1.5, -1.0):
        wrong = np.where(np.arange(60) == 4, bad, trials)
        with pytest.raises(DataError, match=r"trials .*whole numbers of at least 1"):
            kept("binomial").fit(X, y, trials=wrong)
        with pytest.raises(DataError, match=r"trials must be whole numbers .* row 4"):
            model.predict(X, trials=wrong)
    with pytest.raises(DataError, match="trials"):
        kept("binomial").fit(X, y, trials=np.where(np.arange(60) == 4, np.nan, trials))


@pytest.mark.parametrize(
    ("likelihood", "numbers", "message"),
    [
        ("poisson", {"offset": 800.0}, r"^offset is 800 in row 7 .* to 113: .*logarithm of an exp"),
        ("poisson", {"offset": 150.0}, r"^offset is 150 in row 7 .* to 9\d"),
        ("gamma", {"offset": -800.0}, r"^offset is -800 in row 7 .* from -230"),
        ("poisson", {"exposure": 1e-320}, r"^log\(exposure\) is -736.* in a unit of which"),
        ("negative_binomial", {"exposure": 1e308}, r"^log\(exposure\) is 709\.196 in row 7"),
        ("poisson", {"offset": 150.0, "exposure": 1e60}, r"^offset \+ log\(exposure\) is 288"),
        ("binomial", {"offset": 800.0}, r"^offset is 800 in row 7 .*scale of the logit link"),
        ("gaussian", {"offset": 1e200}, r"^offset is 1e\+200 in row 7 .*rescale it"),
        ("binomial", {"trials": 1e300}, r"trials .* at most 9e\+15, but row 7 is 1e\+300"),
        ("poisson", {"y": 1e300}, r"counts .* at most 9e\+15.*row 7 is 1e\+300"),
        ("gamma", {"y": 1e300}, r"from 1e-150 to 1e\+150, but row 7 is 1e\+300"),
        ("student_t", {"y": 1e300}, r"at most 1e\+60, but row 7 is 1e\+300"),
        ("poisson", {"sample_weight": 1e300}, r"sample_weight goes beyond"),
    ],
)
def test_numbers_beyond_float64_are_refused(likelihood, numbers, message):
    X, _ = table(40)
    rows = {role: np.where(np.arange(40) == 7, value, 1.0) for role, value in numbers.items()}
    given = {"y": np.ones(40), **rows}
    with pytest.raises(DataError, match=message):
        GeneralizedAdditiveGP(likelihood).fit(X, **given)
    if given.keys() & {"offset", "exposure"} and 150.0 not in numbers.values():
        model = kept(likelihood).fit(X, np.ones(40))
        del given["y"]
        with pytest.raises(DataError, match=message.split("row 7")[0]):
            model.predict(X, **given)


@pytest.mark.parametrize("value", [-200.0, 80.0])
def test_an_offset_may_be_far_from_others(value):
    # A row without next to any exposure says nothing, and leaves f to the others.
    X, _ = table(40)
    y = np.random.default_rng(0).poisson(3, 40).astype(float)
    offset = np.where(np.arange(40) == 7, value, 0.0)
    y = np.where(offset < 0, 0.0, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = kept().fit(X, y, offset=offset)
    if value < 0:
        others = offset == 0
        expected = kept().fit(X[others], y[others]).predict(X)
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"likelihood": "cauchy"}, {}, r"likelihood must be .*'poisson'.* got 'cauchy'"),
        ({"likelihood": Poisson}, {}, "did you forget the brackets"),
        ({"likelihood": 3}, {}, "likelihood must be a name or an object"),
        ({"likelihood": "bernoulli"}, {"exposure": np.ones(30)}, "exposure is for likelihoods"),
        ({}, {"trials": np.ones(30)}, "trials are for likelihood='binomial'"),
        ({"learner": None}, {}, "has no lengthscale and no variance"),
        ({"learner": "vbem"}, {}, "learner must be one of"),
        ({"newton_max_iter": 0}, {}, "newton_max_iter must be an integer"),
        ({"missing": "drop"}, {}, "missing must be one of"),
    ],
)
def test_bad_parameters_are_named(options, call, message):
    X, _ = table(30)
    with pytest.raises(ParameterError, match=message):
        GeneralizedAdditiveGP(**options).fit(X, np.ones(30), **call)


def test_predictions_refuse_what_has_no_meaning():
    X, _ = table(30)
    model = kept("bernoulli").fit(X, np.arange(30) % 2)
    for method in (model.predict, model.predict_interval, model.sample):
        with pytest.raises(ParameterError, match="exposure is for likelihoods with a log link"):
            method(X, exposure=np.ones(30))
    with pytest.raises(ParameterError, match="level must lie between 0 and 1"):
        model.predict_interval(X, level=95)
    with pytest.raises(ParameterError, match="no meaning on the scale of the link"):
        model.covariance(X, include_noise=True)


def test_one_row_cannot_teach():
    with (
        pytest.warns(DataWarning),
        pytest.raises(DataError, match=r"1 sample .* at least 2 rows"),
    ):
        GeneralizedAdditiveGP().fit([[1.0, 2.0]], [3.0])


# ---- weights, offsets


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_whole_weights_are_repeated_rows_and_0_is_none(name):
    X, f = table(80)
    likelihood = LIKELIHOODS[name]
    y = drawn(likelihood, f)
    weight = np.random.default_rng(1).integers(0, 3, 80)
    repeated = np.repeat(np.arange(80), weight)
    y[weight == 0] = 1e6  # what is no row may be anything
    weighted = kept(likelihood, tol=1e-9).fit(X, y, weight)
    rows = kept(likelihood, tol=1e-9).fit(X.iloc[repeated], y[repeated])
    for ours, theirs in zip(
        weighted.predict(X, return_std=True), rows.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_exposure_is_an_offset_and_a_factor():
    X, f = table()
    time = np.random.default_rng(2).uniform(0.2, 30, len(f))
    y = drawn(Poisson(), f + np.log(time))
    model = kept(tol=1e-8).fit(X.assign(y=y, time=time), "y", exposure="time")
    other = kept(tol=1e-8).fit(X, y, offset=np.log(time))
    assert list(model.feature_names_in_) == ["a", "b"]
    np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=1e-9)
    np.testing.assert_allclose(model.predict(X, exposure=time), time * model.predict(X))
    np.testing.assert_allclose(
        model.predict(X.assign(time=time), exposure="time"), model.predict(X, offset=np.log(time))
    )
    both = kept(tol=1e-8).fit(X, y, offset=np.full(len(y), 0.5), exposure=time)
    np.testing.assert_allclose(both.predict(X, offset=np.full(len(y), 0.5)), model.predict(X))
    assert both.intercept_ == pytest.approx(model.intercept_ - 0.5, abs=1e-6)


# ---- predictions


@pytest.fixture(scope="module")
def counts():
    X, f = table(400)
    return kept().fit(X, drawn(Poisson(), f))


def test_predictions_are_averages_over_f(counts):
    X = table(4, seed=3)[0]
    latents = counts.sample(X, 1500, random_state=0)
    mean, std = counts.predict(X, return_std=True)
    np.testing.assert_allclose(np.exp(latents).mean(axis=0), mean, atol=5 * std.max() / 38)
    np.testing.assert_allclose(np.exp(latents).std(axis=0), std, rtol=0.12)
    new = counts.sample(X, 1500, random_state=0, include_noise=True)
    assert (new == new.round()).all()
    noisy = counts.predict(X, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(new.std(axis=0), noisy, rtol=0.12)
    np.testing.assert_allclose(new.mean(axis=0), mean, atol=5 * noisy.max() / 38)
    latent, spread = counts.predict_latent(X, return_std=True)
    np.testing.assert_allclose(mean, np.exp(latent + spread**2 / 2))
    np.testing.assert_allclose(np.sqrt(np.diag(counts.covariance(X))), spread, rtol=0.02)
    exposed = counts.sample(X, 1500, 0, include_noise=True, exposure=np.full(4, 50.0))
    np.testing.assert_allclose(exposed.mean(axis=0), 50 * mean, rtol=0.06)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictions_of_every_likelihood(name, tmp_path):
    X, f = table()
    likelihood = LIKELIHOODS[name]
    y = drawn(likelihood, f)
    model = kept(likelihood).fit(X, y)
    assert model.likelihood_.name == name
    mean, std = model.predict(X, return_std=True)
    noisy = model.predict(X, return_std=True, include_noise=True)[1]
    low, high = model.predict_interval(X)
    lower, upper = model.predict_interval(X, include_noise=True)
    for values in (mean, std, noisy, low, high, lower, upper):
        assert np.isfinite(values).all()
    assert (noisy > std * (1 - 1e-9)).all()
    assert (low <= high).all()
    assert (lower <= upper).all()
    assert np.mean((lower <= y) & (y <= upper)) > 0.9
    assert model.log_predictive_density(X, y).shape == (120,)
    assert model.score(X, y) > 0.05
    parts = model.components(X)
    total = parts["mean"].sum("term") + parts["intercept"]
    np.testing.assert_allclose(total, model.predict_latent(X), atol=1e-9)
    assert name.split("_")[0] in model.summary().replace("StudentT", "student").lower()
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.predict(X, return_std=True), (mean, std))
    assert loaded.likelihood_ == model.likelihood_
    assert loaded.get_params() == model.get_params()


def test_intervals_cover():
    X, f = table(1500)
    y = drawn(Poisson(), f + 1)
    model = GeneralizedAdditiveGP(learner_tol=0.05).fit(X, y)
    new, truth = table(3000, seed=8)
    low, high = model.predict_interval(new, level=0.9)
    assert 0.8 < np.mean((low <= np.exp(truth + 1)) & (np.exp(truth + 1) <= high)) < 0.99
    again = drawn(Poisson(), truth + 1, seed=9)
    lower, upper = model.predict_interval(new, level=0.9, include_noise=True)
    # intervals of counts hold at least what they say
    expected = np.mean(
        poisson.cdf(upper, np.exp(truth + 1)) - poisson.cdf(lower - 1, np.exp(truth + 1))
    )
    assert np.mean((lower <= again) & (again <= upper)) == pytest.approx(expected, abs=0.02)
    assert expected > 0.89


def test_the_score_is_the_deviance_explained():
    X, f = table()
    weight = np.random.default_rng(0).uniform(0.5, 2, len(f))
    for likelihood, power in ((Poisson(), 1), (Gamma(2.0), 2), (Gaussian(0.3), 0)):
        y = drawn(likelihood, f)
        model = kept(likelihood).fit(X, y)
        expected = d2_tweedie_score(y, model.predict(X), sample_weight=weight, power=power)
        assert model.score(X, y, weight) == pytest.approx(expected, rel=1e-6)
    assert model.score(X.assign(y=y), "y") == pytest.approx(r2_score(y, model.predict(X)))
    time = np.full(len(f), 7.0)
    y = drawn(Poisson(), f + np.log(7))
    model = kept().fit(X, y, exposure=time)
    expected = d2_tweedie_score(y, model.predict(X, exposure=time), power=1)
    assert model.score(X, y, exposure=time) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(DataError, match=r"y must hold counts .* row 0 is -1"):
        model.score(X, -np.ones(len(f)))


def test_the_log_predictive_density_is_that_of_the_averaged_density(counts):
    X = table(3, seed=3)[0]
    mean, std = counts.predict_latent(X, return_std=True)
    y = np.array([0.0, 3.0, 1.0])
    nodes, weight = np.polynomial.hermite_e.hermegauss(80)
    density = poisson.pmf(y[:, None], np.exp(mean[:, None] + std[:, None] * nodes))
    expected = np.log(density @ weight / weight.sum())
    np.testing.assert_allclose(counts.log_predictive_density(X, y), expected, rtol=1e-9)
    np.testing.assert_allclose(counts.log_predictive_density(X.assign(y=y), "y"), expected)
    with pytest.raises(DataError, match=r"row 1 is 0\.5"):
        counts.log_predictive_density(X, [0.0, 0.5, 1.0])
    with pytest.raises(DataError, match="y"):
        counts.log_predictive_density(X, y[:2])


def test_a_prediction_does_not_depend_on_its_company(counts, monkeypatch):
    X = table(90, seed=3)[0]
    mean, std = counts.predict(X, return_std=True)
    for rows in (slice(0, 1), slice(40, 90)):
        part = counts.predict(X[rows], return_std=True)
        np.testing.assert_allclose(part[0], mean[rows], rtol=1e-12)
        np.testing.assert_allclose(part[1], std[rows], rtol=1e-9)
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 17)
    np.testing.assert_allclose(counts.predict(X, return_std=True), (mean, std), rtol=1e-9)


def test_far_from_the_data_nothing_overflows(counts):
    new = np.array([[1e300, -1e300], [0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # That the rows say little there is what the warning is for.
        warnings.filterwarnings("ignore", message=".*f is so uncertain", category=DataWarning)
        for values in (
            *counts.predict(new, return_std=True, include_noise=True),
            *counts.predict_interval(new, include_noise=True),
        ):
            assert np.isfinite(values).all()


# ---- tables that stream


@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr", "dask frame", "dask array", "xarray"])
def test_every_kind_of_table_gives_the_same_model(kind, tmp_path):
    X, f = table(200)
    time = np.random.default_rng(2).uniform(0.5, 2, 200)
    y = drawn(Poisson(), f + np.log(time))
    frame = X.assign(y=y, time=time)
    expected = kept(bins=50).fit(X, y, exposure=time)
    data, call, new = frame, {"y": "y", "exposure": "time"}, {"exposure": "time"}
    if kind == "parquet":
        data = tmp_path / "rows.parquet"
        frame.to_parquet(data)
    elif kind == "csv":
        data = tmp_path / "rows.csv"
        frame.to_csv(data, index=False)
    elif kind == "zarr":
        data = tmp_path / "rows.zarr"
        group = zarr.open_group(str(data), mode="w")
        for name in frame:
            group.create_array(name, data=frame[name].to_numpy(), chunks=(61,))
    elif kind == "dask frame":
        data = dd.from_pandas(frame, npartitions=3)
    elif kind == "dask array":
        data = da.from_array(X.to_numpy(), chunks=(67, 2))
        call = {"y": da.from_array(y, chunks=50), "exposure": da.from_array(time, chunks=67)}
        new = {"exposure": da.from_array(time, chunks=100)}
    else:
        data = xr.Dataset({name: ("row", frame[name].to_numpy()) for name in frame})
    terms = KEPT if kind != "dask array" else dict(zip(["x0", "x1"], KEPT.values(), strict=True))
    model = kept(bins=50).set_params(terms=terms).fit(data, **call)
    lazy = kind.startswith("dask")
    for ours, theirs in zip(
        (
            *model.predict(data, return_std=True, **new),
            *model.predict_interval(data, include_noise=True, **new),
            model.predict_latent(data),
        ),
        (
            *expected.predict(X, return_std=True, exposure=time),
            *expected.predict_interval(X, include_noise=True, exposure=time),
            expected.predict_latent(X),
        ),
        strict=True,
    ):
        assert isinstance(ours, da.Array) == lazy
        np.testing.assert_allclose(ours.compute() if lazy else ours, theirs, rtol=1e-9)
    target = call["y"]
    np.testing.assert_allclose(
        model.log_predictive_density(data, target, **new),
        expected.log_predictive_density(X, y, exposure=time),
        rtol=1e-9,
    )
    assert model.score(data, target, **new) == pytest.approx(expected.score(X, y, exposure=time))


def test_an_exposure_in_memory_beside_a_dask_array():
    X, f = table(100)
    model = kept().fit(X, drawn(Poisson(), f))
    time = np.linspace(1, 2, 100)
    lazy = da.from_array(X.to_numpy(), chunks=(30, 2))
    np.testing.assert_allclose(
        model.predict(lazy, exposure=time).compute(), model.predict(X, exposure=time), rtol=1e-12
    )
    bad = np.where(np.arange(100) == 65, 0.0, time)
    with pytest.raises(DataError, match=r"block 2 .*exposure must be positive .* row 5"):
        model.predict(lazy, exposure=bad).compute()


def test_missing_inputs_add_nothing():
    X, f = table()
    y = drawn(Poisson(), f)
    X.iloc[5, 0] = np.nan
    with pytest.raises(DataError, match=r"'a' contains NaN .* row 5"):
        kept().fit(X, y)
    model = kept(missing="ignore").fit(X, y)
    assert model.n_missing_ == {"a": 1}
    X.iloc[7] = np.nan
    mean, std = model.predict_latent(X, return_std=True)
    assert np.isfinite(mean).all()
    assert std[7] == pytest.approx(
        model.model_.latent.posterior.constant.std
    )  # of the constant alone


# ---- what is reported and stored


def test_a_saved_model_predicts_the_same_in_another_process(tmp_path):
    X, f = table(60)
    time = np.random.default_rng(2).uniform(0.5, 2, len(f))
    y = drawn(NegativeBinomial(0.3), f)
    model = GeneralizedAdditiveGP(NegativeBinomial(), learner_tol=0.05).fit(X, y, exposure=time)
    model.save(tmp_path / "m.zarr")
    X.to_parquet(tmp_path / "X.parquet")
    code = (
        "import dsgp, numpy as np, pandas as pd, sys; m = dsgp.load(sys.argv[1] + '/m.zarr'); "
        "X = pd.read_parquet(sys.argv[1] + '/X.parquet'); "
        "np.savez(sys.argv[1] + '/out.npz', *m.predict(X, return_std=True, include_noise=True), "
        "m.components(X)['std'], *m.predict_interval(X, include_noise=True), "
        "m.sample(X, 2, random_state=1, include_noise=True))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    theirs = np.load(tmp_path / "out.npz").values()
    ours = (
        *model.predict(X, return_std=True, include_noise=True),
        model.components(X)["std"],
        *model.predict_interval(X, include_noise=True),
        model.sample(X, 2, random_state=1, include_noise=True),
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    loaded = dsgp.load(tmp_path / "m.zarr")
    assert loaded.get_params() == model.get_params()
    assert loaded.likelihood == NegativeBinomial()
    assert loaded.likelihood_ == model.likelihood_
    assert loaded.summary() == model.summary()
    assert set(vars(loaded)) - {"_made"} == set(vars(model)) - {"_made"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s["fitted"].update(_likelihood_settings={"name": "cauchy"}),
        lambda s: s["fitted"].update(_likelihood_settings={"name": "gamma", "shape": -1.0}),
        lambda s: s["fitted"].update(_likelihood_settings=None),
        lambda s: s["fitted"].pop("_told"),
        lambda s: s["parameters"].update(likelihood={"likelihood": {"name": "evil"}}),
        lambda s: s.pop("terms"),
    ],
)
def test_damaged_stores_are_refused(tmp_path, damage, monkeypatch):
    X, f = table(60)
    kept(Poisson()).fit(X, drawn(Poisson(), f)).save(tmp_path / "m.zarr")
    read = dsgp.storage.read

    def damaged(path, options):
        kind, settings, tree = read(path, options)
        settings = json.loads(json.dumps(settings))
        damage(settings)
        return kind, settings, tree

    monkeypatch.setattr("dsgp.storage.read", damaged)
    with pytest.raises(StorageError):
        dsgp.load(tmp_path / "m.zarr")


def test_parameters_are_get_and_set():
    model = GeneralizedAdditiveGP(NegativeBinomial(0.5), Matern52())
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(likelihood="gamma").likelihood == "gamma"
    for method in (copy.predict, copy.predict_interval, copy.sample, copy.predict_latent):
        with pytest.raises(NotFittedError):
            method([[0.0]])
    with pytest.raises(NotFittedError):
        copy.score([[0.0]], [1.0])
    assert not hasattr(copy, "likelihood_")


def test_warnings_point_to_the_users_line():
    X, f = table()
    y = drawn(Poisson(), f)
    with pytest.warns(DataWarning, match="'flat'"):
        kept(kernel=Matern52(1.0, 1.0)).fit(X.assign(flat=1.0), y)
    with pytest.warns(ConvergenceWarning, match="Newton's iteration stopped after 1") as caught:
        kept(newton_max_iter=1).fit(X, y)
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.warns(ConvergenceWarning, match="learner_max_iter") as caught:
        GeneralizedAdditiveGP(learner_max_iter=1, learner_tol=1e-9).fit(X, y)
    assert {warning.filename for warning in caught} == {__file__}


def test_plots():
    X, f = table()
    model = GeneralizedAdditiveGP(learner_tol=0.05).fit(X, drawn(Poisson(), f))
    figure = plot_components(model, target="visits")
    assert figure.get_supylabel() == "effect on f (log link) of visits"
    assert plot_learning(model).axes


def test_only_constant_columns_give_the_level():
    with pytest.warns(DataWarning):
        model = GeneralizedAdditiveGP().fit(np.ones((40, 2)), np.arange(40))
    assert model.predict([[1.0, 1.0]])[0] == pytest.approx(19.5, rel=0.01)
    assert "constant" in model.summary()


def test_where_there_are_no_events_predictions_stay_sane():
    random = np.random.default_rng(0)
    hour = random.integers(0, 24, 3000).astype(float)
    X = pd.DataFrame({"hour": hour, "temperature": random.normal(size=3000)})
    open_ = (hour >= 7) & (hour < 22)
    y = random.poisson(np.where(open_, 10 * np.exp(0.2 * X["temperature"]), 0.0))
    model = GeneralizedAdditiveGP("poisson").fit(X, y)
    mean = model.predict(X)
    assert mean.sum() == pytest.approx(y.sum(), rel=0.01)
    assert mean[hour == 2].max() < 0.1
    _, upper = model.predict_interval(X[hour == 2], include_noise=True)
    assert upper.max() <= 1


# ---- crossed levels beyond nodes


def crossed(n_rows=4000, seed=0):
    """Counts of rows with two crossed levels and a smooth input."""
    rng = np.random.default_rng(seed)
    student, course = rng.normal(0, 0.8, 120), rng.normal(0, 0.5, 60)
    a, b, x = rng.integers(0, 120, n_rows), rng.integers(0, 60, n_rows), rng.uniform(-1, 1, n_rows)
    f = 0.3 + student[a] + course[b] + np.sin(3 * x)
    X = pd.DataFrame({"student": [f"s{i}" for i in a], "course": [f"c{i}" for i in b], "x": x})
    return X, rng.poisson(np.exp(f)), f


def test_levels_that_are_too_many_for_nodes_are_learned_on_every_level(monkeypatch):
    X, counts, f = crossed()
    exact = GeneralizedAdditiveGP("poisson").fit(X, counts)
    monkeypatch.setattr("dsgp.learning.nodes.MOST_NODES", 50)
    monkeypatch.setattr("dsgp.laplace.binned.TABLE_BYTES", 0.0)  # no table of pairs is made
    many = GeneralizedAdditiveGP("poisson").fit(X, counts)
    assert "too many for the determinant" in many.learner_notes_[0]
    assert many.converged_
    # Terms that count as independent have somewhat smaller variances.
    for name in ("student", "course"):
        ratio = many.kernels_[name].std / exact.kernels_[name].std
        assert 0.85 < ratio < 1.05
    difference = many.predict_latent(X) - exact.predict_latent(X)
    assert np.sqrt(np.mean(difference**2)) < 0.02
    assert many.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, rel=0.002)


def test_thousands_of_crossed_levels_are_fitted():
    rng = np.random.default_rng(1)
    n_rows = 30_000
    a, b = rng.integers(0, 4000, n_rows), rng.integers(0, 1000, n_rows)
    f = rng.normal(0, 0.8, 4000)[a] + rng.normal(0, 0.5, 1000)[b]
    X = {"a": np.char.add("a", a.astype(str)), "b": np.char.add("b", b.astype(str))}
    model = GeneralizedAdditiveGP("poisson", learner_tol=1.0).fit(X, rng.poisson(np.exp(f)))
    assert model.kernels_["a"].std == pytest.approx(0.8, rel=0.1)
    assert model.kernels_["b"].std == pytest.approx(0.5, rel=0.1)
    assert np.corrcoef(model.predict_latent(X), f)[0, 1] > 0.9
