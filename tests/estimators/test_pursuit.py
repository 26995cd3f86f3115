"""Projection pursuit as a user meets it: what it finds, how sure it is, and what it refuses."""

import pickle
import warnings

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dsgp
from dsgp import ProjectionPursuitGPRegressor, load, storage
from dsgp.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    MemoryLimitError,
    ParameterError,
    StorageError,
)
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.pursuit import search

QUICK = {"n_starts": 3, "random_state": 0}


def quick(**options):
    return ProjectionPursuitGPRegressor(**{**QUICK, **options})


def ends_of(model):
    """Range of the columns in the training rows."""
    projections = model.model_.latent.projections
    return projections.low, projections.high


def signal_of(X):
    x = (np.asarray(X) - [1.0, 200.0, -0.5, 0.0]) / [0.5, 40.0, 2.0, 1.0]
    return np.sin(1.5 * (0.8 * x[:, 0] - 0.6 * x[:, 1])) + 0.4 * (x[:, 1] + x[:, 2]) ** 2 / 2


def table(n=600, seed=0, noise=0.1):
    """Three inputs that matter, in units far apart, and one that does not."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4)) * [0.5, 40.0, 2.0, 1.0] + [1.0, 200.0, -0.5, 0.0]
    X = pd.DataFrame(X, columns=["age", "dose", "height", "idle"])
    return X, 5 + signal_of(X) + noise * rng.standard_normal(n)


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return quick().fit(X, y)


def same(first, second):
    np.testing.assert_array_equal(first.projections_, second.projections_)
    assert first.evidence_ == second.evidence_
    assert first.noise_variance_ == second.noise_variance_
    X, _ = table(50, seed=5)
    for ours, theirs in zip(
        first.predict(X, return_std=True), second.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


# ---- what is found


def test_the_function_and_the_noise_are_found(fitted):
    new, _ = table(3000, seed=9)
    f = 5 + signal_of(new)
    assert np.mean((fitted.predict(new) - f) ** 2) < 0.02 * np.var(f)
    assert fitted.noise_variance_ == pytest.approx(0.01, rel=0.25)
    assert fitted.score(new, f) > 0.98
    assert fitted.converged_


def test_projections_are_in_standard_units(fitted):
    X, _ = table()
    weights = fitted.projections_
    assert weights.shape == (fitted.n_projections_, 4)
    assert list(weights.columns) == list(X) == list(fitted.feature_names_in_)
    assert list(weights.index) == [f"projection {m + 1}" for m in range(len(weights))]
    assert list(fitted.kernels_) == [term.name for term in fitted.terms_] == list(weights.index)
    standard = (X - X.mean()) / X.std(ddof=0)
    np.testing.assert_allclose((standard.to_numpy() @ weights.T).std(ddof=0), 1, rtol=0.02)
    assert (
        weights.to_numpy()[range(len(weights)), weights.abs().to_numpy().argmax(axis=1)] > 0
    ).all()
    assert fitted.n_features_in_ == 4
    explained = [term.explained_variance for term in fitted.terms_]
    assert explained[0] == max(explained)


def test_relevance_shows_which_inputs_matter(fitted):
    relevance = fitted.relevance_
    assert relevance.sum() == pytest.approx(1)
    assert relevance["idle"] < 0.005
    assert relevance.drop("idle").min() > 0.05
    assert list(relevance.index) == ["age", "dose", "height", "idle"]


def test_the_search_is_reported(fitted):
    terms, values = np.array(fitted.evidence_trace_).T
    assert terms[-1] == fitted.n_projections_
    assert values[-1] == pytest.approx(fitted.evidence_, abs=1e-3)
    assert values[-1] > values.max() - 5  # what gained less is not worth keeping
    assert values[-1] > values[0] + 1000
    assert "search" in fitted.fit_seconds_
    # directions cost something
    assert fitted.evidence_ < fitted.log_marginal_likelihood_


def test_components_add_up(fitted):
    X, _ = table()
    parts = fitted.components(X)
    assert parts.sizes == {"row": len(X), "term": fitted.n_projections_}
    total = parts["intercept"].item() + parts["mean"].sum("term")
    np.testing.assert_allclose(total, fitted.predict(X), atol=1e-9)
    np.testing.assert_allclose(parts["mean"].mean("row"), 0, atol=1e-7)


def test_units_do_not_matter(fitted):
    X, y = table()
    scaled = quick().fit(X * 1000.0 + 3.0, y * 1e6 - 7.0)
    np.testing.assert_allclose(
        scaled.predict(X * 1000.0 + 3.0), fitted.predict(X) * 1e6 - 7.0, rtol=1e-3
    )
    assert scaled.noise_variance_ == pytest.approx(1e12 * fitted.noise_variance_, rel=0.02)
    assert scaled.evidence_ == pytest.approx(fitted.evidence_ - len(y) * np.log(1e6), abs=0.5)


@pytest.mark.parametrize("kind", ["orthogonal", "any"])
def test_without_relevance_mixed_inputs_give_the_same_predictions(kind):
    X, y = table()
    X = ((X - X.mean()) / X.std()).to_numpy()
    rng = np.random.default_rng(3)
    mix = rng.standard_normal((4, 4))
    if kind == "orthogonal":
        mix = np.linalg.qr(mix)[0]
    new = rng.standard_normal((200, 4))
    plain = quick(relevance=False).fit(X, y)
    mixed = quick(relevance=False).fit(X @ mix, y)
    assert mixed.n_projections_ == plain.n_projections_
    mean, std = plain.predict(new, return_std=True)
    again, other = mixed.predict(new @ mix, return_std=True)
    assert np.sqrt(np.mean((again - mean) ** 2)) < 0.1 * np.sqrt(np.mean(std**2))
    np.testing.assert_allclose(np.median(other / std), 1, atol=0.05)
    assert mixed.evidence_ == pytest.approx(plain.evidence_, abs=1.0)


@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_projections_can_be_given(count):
    X, y = table()
    assert quick(n_projections=count).fit(X, y).n_projections_ == count


def test_greedy():
    X, y = table()
    model = quick(method="greedy").fit(X, y)
    new, _ = table(2000, seed=9)
    f = 5 + signal_of(new)
    assert np.mean((model.predict(new) - f) ** 2) < 0.05 * np.var(f)
    assert model.relevance_["idle"] < 0.05
    assert model.evidence_trace_[0][0] == 1
    assert quick(method="greedy", n_projections=2).fit(X, y).n_projections_ == 2
    assert "greedy" in model.summary()


def test_the_kind_of_kernel_is_that_asked_for():
    X, y = table()
    model = quick(kernel=Matern32(), n_projections=1).fit(X, y)
    assert isinstance(model.kernels_["projection 1"], Matern32)
    assert isinstance(quick(n_projections=1).fit(X, y).kernels_["projection 1"], Matern52)


def test_given_noise_is_a_start_or_kept():
    X, y = table()
    kept = quick(noise_variance=0.04, fixed_noise=True, n_projections=2).fit(X, y)
    assert kept.noise_variance_ == pytest.approx(0.04)
    weight = np.full(len(y), 3.0)
    weight[:100] = 1.0
    kept = quick(noise_variance=0.04, fixed_noise=True, n_projections=2).fit(X, y, weight)
    assert kept.noise_variance_ == pytest.approx(0.04)
    learned = quick(noise_variance=0.04).fit(X, y)
    assert learned.noise_variance_ == pytest.approx(0.01, rel=0.25)


# ---- how sure it is


def test_standard_deviations_cover_the_function():
    inside = []
    for seed in range(3):
        X, y = table(400, seed=seed, noise=0.3)
        new, _ = table(1000, seed=100 + seed)
        mean, std = quick().fit(X, y).predict(new, return_std=True)
        inside.append(np.abs(mean - 5 - signal_of(new)) < 1.96 * std)
    assert 0.88 < np.mean(inside) < 0.995


def test_new_observations_are_covered(fitted):
    new, y = table(3000, seed=9)
    mean, std = fitted.predict(new, return_std=True, include_noise=True)
    assert 0.92 < np.mean(np.abs(mean - y) < 1.96 * std) < 0.98
    alone = fitted.predict(new, return_std=True)[1]
    np.testing.assert_allclose(std**2 - alone**2, fitted.noise_variance_, rtol=1e-6)


def test_uncertain_directions_add_to_the_standard_deviation(fitted):
    X, _ = table(200, seed=3)
    given = pickle.loads(pickle.dumps(fitted)).set_params(direction_uncertainty=False)
    mean, std = fitted.predict(X, return_std=True)
    other, least = given.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, other)
    assert (std >= least).all()
    assert np.median(std / least) > 1.01


@pytest.mark.parametrize("uncertain", [True, False])
def test_covariances_and_samples_agree_with_the_standard_deviations(fitted, uncertain, monkeypatch):
    model = pickle.loads(pickle.dumps(fitted)).set_params(direction_uncertainty=uncertain)
    X, _ = table(40, seed=3)
    X = np.clip(X, *ends_of(model))  # beyond, the standard deviation knows more
    mean, std = model.predict(X, return_std=True)
    covariance = model.covariance(X)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=0.01)
    assert np.linalg.eigvalsh(covariance).min() > -1e-6 * covariance.max()
    noisy = model.covariance(X, include_noise=True)
    np.testing.assert_allclose(noisy - covariance, model.noise_variance_ * np.eye(40), atol=1e-12)
    drawn = model.sample(X, 800, random_state=1)
    assert drawn.shape == (800, 40)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), 5 * std / np.sqrt(800) + 1e-4)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.12)
    scale = np.outer(std, std)
    np.testing.assert_allclose(np.cov(drawn.T) / scale, covariance / scale, atol=0.2)
    np.testing.assert_allclose(model.sample(X, 3, random_state=1), drawn[:3], atol=1e-9)
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 17)
    np.testing.assert_allclose(model.sample(X, 3, random_state=1), drawn[:3], atol=1e-9)
    np.testing.assert_allclose(model.covariance(X), covariance, atol=1e-8 * covariance.max())


def test_far_from_the_data_answers_are_finite(fitted):
    far = [[1e6, -1e6, 1e6, 1e6], [-1e100, 1e100, 1e100, 0.0], [1e300, 1e300, -1e300, 1e300]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, std = fitted.predict(far, return_std=True)
    # The mean is that of the nearest point within the range of the training rows.
    near = np.clip(far, *ends_of(fitted))
    np.testing.assert_array_equal(mean, fitted.predict(near))
    assert (fitted.predict(near, return_std=True)[1] < std).all()
    prior = np.sqrt(sum(kernel.variance for kernel in fitted.kernels_.values()))
    assert (std >= 0.999 * prior).all()
    assert (std < 1.5 * prior).all()


def test_a_prediction_does_not_depend_on_its_company(fitted, monkeypatch):
    X, _ = table(300, seed=4)
    mean, std = fitted.predict(X, return_std=True)
    for rows in (slice(0, 1), slice(7, 8), slice(100, 300)):
        part = fitted.predict(X[rows], return_std=True)
        np.testing.assert_array_equal(part[0], mean[rows])
        np.testing.assert_allclose(part[1], std[rows], rtol=1e-7)  # dense: BLAS rounds
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 17)
    np.testing.assert_array_equal(fitted.predict(X), mean)


# ---- tables of all kinds


def test_columns_are_matched_by_name(fitted):
    X, _ = table()
    expected = fitted.predict(X, return_std=True)
    shuffled = X[["idle", "height", "age", "dose"]].assign(extra="text")
    np.testing.assert_array_equal(fitted.predict(shuffled, return_std=True), expected)
    np.testing.assert_array_equal(fitted.predict(X.to_numpy()), expected[0])
    with pytest.raises(DataError, match="Missing: 'dose'"):
        fitted.predict(X.drop(columns="dose"))


def test_dask_collections_are_predicted_lazily(fitted):
    X, _ = table()
    expected = fitted.predict(X, return_std=True)
    for lazy in (da.from_array(X.to_numpy(), chunks=(200, 4)), dd.from_pandas(X, npartitions=3)):
        found = fitted.predict(lazy, return_std=True)
        for ours, theirs in zip(found, expected, strict=True):
            assert isinstance(ours, da.Array)
            np.testing.assert_allclose(ours.compute(), theirs, rtol=1e-9)


def test_dask_collections_and_files_give_the_same_model(fitted, tmp_path):
    X, y = table()
    array = da.from_array(X.to_numpy(), chunks=(170, 2))
    lazy = quick().fit(array, da.from_array(y, chunks=77))
    # The search is that of rows in memory; the functions it ends with are of bins.
    np.testing.assert_array_equal(lazy.projections_, fitted.projections_)
    assert lazy.evidence_ == fitted.evidence_
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_less(np.abs(lazy.predict(X.to_numpy()) - mean), 0.1 * std)
    frame = dd.from_pandas(X.assign(y=y), npartitions=3)
    same(quick().fit(frame, "y"), lazy)
    X.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    stored = quick().fit(tmp_path / "rows.parquet", "y")
    same(stored, lazy)
    assert list(stored.feature_names_in_) == list(X)
    np.testing.assert_array_equal(stored.predict(tmp_path / "rows.parquet"), lazy.predict(X))


def test_streams_give_the_same_whatever_their_chunks(monkeypatch, fitted):
    monkeypatch.setattr("dsgp.pursuit.levels.KEPT_BYTES", 0.0)
    monkeypatch.setattr("dsgp.pursuit.levels.FIRST_ROWS", 200)
    monkeypatch.setattr("dsgp.pursuit.levels.STREAM_BLOCK", 250)
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 250)
    X, y = table()
    first = quick().fit(da.from_array(X.to_numpy(), chunks=(600, 4)), y)
    same(quick().fit(da.from_array(X.to_numpy(), chunks=(77, 4)), y), first)
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as _:
        same(quick().fit(da.from_array(X.to_numpy(), chunks=(100, 4)), y), first)
    new, _ = table(1000, seed=9)
    assert np.sqrt(np.mean((first.predict(new) - fitted.predict(new)) ** 2)) < 0.1
    with pytest.raises(MemoryLimitError, match="method='refit' streams"):
        quick(method="greedy").fit(X, y)


def test_the_same_seed_gives_the_same_model(monkeypatch, fitted):
    X, y = table()
    same(quick().fit(X, y), fitted)
    monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)
    several = quick().fit(X, y)
    monkeypatch.setattr("dsgp.compute.CPU_COUNT", 1)
    same(quick().fit(X, y), several)
    same(several, fitted)


# ---- weights


def test_a_factor_common_to_all_weights_changes_the_noise_and_nothing_else():
    X, y = table()
    weight = np.random.default_rng(0).uniform(0.2, 2, len(y))
    model = quick(noise_variance=0.02).fit(X, y, weight)
    for factor in (1e-90, 64.0):
        scaled = quick(noise_variance=0.02 * factor).fit(X, y, factor * weight)
        assert scaled.noise_variance_ == pytest.approx(factor * model.noise_variance_, rel=1e-4)
        found, expected = (each.predict(X, return_std=True) for each in (scaled, model))
        np.testing.assert_allclose(found[0], expected[0], atol=1e-3)
        np.testing.assert_allclose(found[1], expected[1], rtol=0.01)
        assert scaled.evidence_ == pytest.approx(model.evidence_, abs=0.1)


def test_a_weight_of_0_is_no_row(fitted):
    X, y = table()
    more = pd.concat([X, 100 * X], ignore_index=True)
    weight = np.repeat([1.0, 0.0], len(y))
    same(quick().fit(more, np.concatenate([y, y + 1e9]), weight), fitted)


def test_rows_of_little_weight_say_little():
    X, y = table()
    weight = np.ones(len(y))
    weight[::3] = 1e-3
    spoilt = y + np.where(weight < 1, 3 * np.random.default_rng(0).standard_normal(len(y)), 0)
    model = quick().fit(X, spoilt, weight)
    new, _ = table(1000, seed=9)
    f = 5 + signal_of(new)
    assert np.mean((model.predict(new) - f) ** 2) < 0.03 * np.var(f)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.35)


# ---- keeping


@pytest.mark.parametrize("uncertain", [True, False])
def test_a_stored_model_is_the_same_to_the_bit(fitted, tmp_path, uncertain):
    model = pickle.loads(pickle.dumps(fitted)).set_params(direction_uncertainty=uncertain)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    assert type(loaded) is ProjectionPursuitGPRegressor
    same(loaded, model)
    X, _ = table(20, seed=2)
    np.testing.assert_array_equal(
        loaded.sample(X, 2, random_state=0), model.sample(X, 2, random_state=0)
    )
    assert loaded.summary() == model.summary()
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.evidence_trace_, model.evidence_trace_)
    pd.testing.assert_series_equal(loaded.relevance_, model.relevance_)
    pd.testing.assert_frame_equal(loaded.projections_, model.projections_)


def test_parameters_are_kept_and_cloned():
    model = ProjectionPursuitGPRegressor(Matern32(), n_projections=3, relevance=False, n_starts=7)
    assert clone(model).get_params() == model.get_params()
    assert model.get_params()["n_starts"] == 7
    assert model.set_params(method="greedy").method == "greedy"


def test_fitting_again_forgets_the_first_fit(fitted):
    X, y = table()
    model = pickle.loads(pickle.dumps(fitted))
    model.predict(X, return_std=True)
    model.fit(X[["age", "dose"]].to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2
    assert list(model.projections_.columns) == ["x0", "x1"]
    fresh = quick().fit(X[["age", "dose"]].to_numpy(), y)
    new = X[["age", "dose"]].to_numpy()[:9]
    np.testing.assert_array_equal(
        model.predict(new, return_std=True), fresh.predict(new, return_std=True)
    )


def test_the_summary_says_what_was_found(fitted):
    text = fitted.summary()
    for words in (
        f"ProjectionPursuitGPRegressor: 600 rows, projections: {fitted.n_projections_}",
        "projection 1",
        "direction",
        "Matern52",
        "noise std",
        "search               refit",
        "log evidence",
        "(Laplace), directions integrated out",
        "relevance            ",
        "in standard deviations of the projection",
    ):
        assert words in text
    largest = fitted.projections_.iloc[0].abs().idxmax()
    assert f"{fitted.projections_.iloc[0][largest]:+.2f} {largest}" in text


# ---- ugly tables


def ugly_tables():
    rng = np.random.default_rng(5)
    n = 80
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    yield "as is", X, y, None
    yield "heavy tails", np.exp(6 * X), y, None
    yield "nanosecond stamps", 1.7e18 + 1e12 * X, y, None
    yield "tiny and huge units", X * [1e-100, 1e100, 1e-9], y * 1e-40, None
    yield "outliers", X, np.where(np.arange(n) % 20 == 0, 1e6, y), None
    yield "an offset", X, 1e15 + 100 * y, None
    yield "two levels", np.column_stack([X[:, 0], X[:, 1] > 0, X[:, 2] > 1.5]), y, None
    yield "near duplicates", np.column_stack([X[:, 0], X[:, 0] + 1e-9, X[:, 0]]), y, None
    yield "weights apart", X, y, 10.0 ** rng.uniform(-6, 6, n)
    yield "more columns than rows", rng.standard_normal((12, 30)), rng.standard_normal(12), None
    yield "only noise", X, rng.standard_normal(n), None
    yield "integers", rng.integers(0, 4, (n, 3)), y.round(), None
    yield "one column", X[:, :1], y, None
    yield "two rows", X[:2], y[:2], None
    yield "three rows", X[:3], y[:3], None
    yield "no noise", X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], None


@pytest.mark.parametrize("relevance", [True, False])
@pytest.mark.parametrize(
    ("X", "y", "weight"), [case[1:] for case in ugly_tables()], ids=[c[0] for c in ugly_tables()]
)
def test_ugly_tables_give_finite_answers(relevance, X, y, weight):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings(
            "ignore",
            "no projection was found|input column|the target .y.: 4 values are exactly",
            DataWarning,
        )
        model = quick(relevance=relevance).fit(X, y, weight)
        mean, std = model.predict(X, return_std=True)
        parts = model.components(X)
        drawn = model.sample(X, 2)
        model.summary()
    for values in (mean, std, parts["mean"], parts["std"], model.relevance_, drawn):
        assert np.isfinite(values).all()
    assert np.isfinite(model.evidence_)
    assert np.average((y - mean) ** 2, weights=weight) <= 1.01 * np.cov(y, aweights=weight)


def test_the_bulk_of_a_column_with_far_outliers_is_resolved():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(2000)
    X[:4, 0] = [300.0, -250.0, 200.0, 280.0]
    y[:4] = 0.0
    model = quick().fit(X, y)
    new = rng.uniform(-2, 2, (500, 2))
    assert np.mean((model.predict(new) - np.sin(3 * new[:, 0])) ** 2) < 0.05


@pytest.mark.parametrize(
    ("far", "relevance"), [(300.0, True), (300.0, False), (-9999.0, True), (1e4, False)]
)
def test_a_single_far_value_is_reported_and_does_no_harm(relevance, far):
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((1000, 3)), rng.standard_normal((500, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(1000)
    X[5, 0] = far
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = quick(relevance=relevance).fit(X, y)
    assert any("'x0' reaches" in str(w.message) for w in told) == (abs(far) > 1000)
    truth = np.sin(2 * new[:, 0]) + new[:, 1]
    assert np.mean((model.predict(new) - truth) ** 2) < 0.005 * np.var(truth)
    assert model.relevance_.idxmax() == "x0"
    assert model.relevance_["x0"] < 0.9


def test_a_search_that_fails_says_so(monkeypatch):
    X, y = table(100)
    real = search.refitted

    def fails_from_two_terms_on(level, state, renew_first=False):
        if len(state.ridges) > 1:
            raise np.linalg.LinAlgError("singular")
        return real(level, state, renew_first)

    monkeypatch.setattr(search, "refitted", fails_from_two_terms_on)
    with pytest.warns(ConvergenceWarning, match="search ended early"):
        model = quick(n_projections=3).fit(X, y)
    assert model.n_projections_ == 1
    assert not model.converged_
    assert "NO" in model.summary()


def test_too_little_noise_is_refused_by_name():
    X, y = table(100)
    with pytest.raises(ParameterError, match="noise"):
        quick(noise_variance=1e-20, fixed_noise=True).fit(X, y)


def test_what_was_not_found_is_reported():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = rng.standard_normal(200)
    with pytest.warns(DataWarning, match="no projection was found"):
        model = quick().fit(X, y)
    assert (model.n_rows_, model.n_projections_) == (200, 0)
    # The noise of the fit counts the constant as unknown, that of the search does not.
    squares = np.sum((y - y.mean()) ** 2)
    for value, noise in [
        (model.log_marginal_likelihood_, squares / 199),
        (model.evidence_, squares / 200),
    ]:
        expected = -0.5 * (200 * np.log(2 * np.pi * noise) + squares / noise)
        assert value == pytest.approx(expected, abs=1e-6)
    with pytest.warns(DataWarning, match="9 projections were requested, but only"):
        quick(n_projections=9).fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_directions", lambda a: np.tile(a, 3)),
        ("_nodes", lambda a: a[::-1]),
        ("_nodes", lambda a: np.where(a == a[0], np.nan, a)),
        ("_sizes", lambda a: a + 1),
        ("_factor", lambda a: a[:-1]),
        ("_scale", lambda a: a[:-1]),
        ("_relevance", lambda a: a[:-1]),
    ],
)
def test_a_damaged_store_is_refused(fitted, tmp_path, name, change, monkeypatch):
    fitted.save(tmp_path / "m.zarr")
    read = storage.read

    def damaged(path, options):
        kind, settings, tree = read(path, options)
        tree["fitted"][name] = change(tree["fitted"][name])
        return kind, settings, tree

    monkeypatch.setattr("dsgp.storage.read", damaged)
    with pytest.raises(StorageError, match="damaged"):
        load(tmp_path / "m.zarr")


@pytest.mark.parametrize("method", ["refit", "greedy"])
@pytest.mark.parametrize("relevance", [True, False])
def test_constant_columns_and_targets(method, relevance):
    X, y = table(200)
    options = {"method": method, "relevance": relevance}
    with pytest.warns(DataWarning, match="'flat'"):
        model = quick(**options).fit(X.assign(flat=3.0), y)
    assert model.constant_columns_ == ["flat"]
    assert "flat" not in model.projections_
    assert model.relevance_["flat"] == 0
    np.testing.assert_array_equal(model.predict(X), quick(**options).fit(X, y).predict(X))
    with pytest.warns(DataWarning, match="left out"):
        model = quick(**options).fit(np.ones((20, 2)), np.arange(20.0))
    assert model.n_projections_ == 0
    mean, std = model.predict([[1.0, 1.0]], return_std=True, include_noise=True)
    assert mean[0] == pytest.approx(9.5)
    # One of the targets' degrees of freedom is the mean's, which is not known.
    assert std[0] == pytest.approx(np.std(np.arange(20.0), ddof=1) * np.sqrt(1 + 1 / 20), rel=1e-3)
    assert model.sample([[1.0, 1.0]], 3).shape == (3, 1)
    assert model.covariance([[1.0, 1.0]]).shape == (1, 1)
    model.summary()
    for value in (0.0, 7.25, -1e9):
        with pytest.warns(DataWarning, match="target is constant"):
            model = quick(**options).fit(X, np.full(len(X), value))
        mean, std = model.predict(X, return_std=True, include_noise=True)
        np.testing.assert_allclose(mean, value, rtol=1e-9)
        assert np.isfinite(std).all()


def test_models_of_nothing_are_stored_too(tmp_path):
    with pytest.warns(DataWarning):
        model = quick().fit(np.ones((20, 2)), np.arange(20.0))
    model.save(tmp_path / "m.zarr")
    assert dsgp.load(tmp_path / "m.zarr").predict([[1.0, 1.0]]) == model.predict([[1.0, 1.0]])


# ---- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method must be one of .* got 'magic'"),
        ({"solver": "magic"}, "solver must be one of .* got 'magic'"),
        ({"n_projections": 0}, "n_projections must be an integer of at least 1, got 0"),
        ({"n_projections": 2.5}, "n_projections must be an integer of at least 1, got 2.5"),
        ({"n_projections": "many"}, "n_projections must be \"auto\" or an integer, got 'many'"),
        ({"n_projections": None}, "n_projections must be"),
        ({"n_starts": 0}, "n_starts must be an integer of at least 1, got 0"),
        ({"tol": 0.0}, "tol must be a positive finite number, got 0.0"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"bins": 1}, 'bins must be "auto", None or an integer'),
        ({"noise_variance": -1.0}, "noise_variance must be a positive finite number"),
        ({"noise_variance": np.inf}, "noise_variance must be a positive finite number"),
        ({"fixed_noise": True}, "fixed_noise=True keeps noise_variance, but it is None"),
        ({"kernel": "matern"}, r"^kernel must be Matern32\(\), .* got 'matern'"),
        ({"kernel": Matern52}, "did you forget the brackets"),
        ({"kernel": Matern12()}, "has no derivative"),
        ({"kernel": Matern52(lengthscale=2.0)}, r"leave them out, Matern52\(\)"),
        ({"kernel": Matern32(variance=2.0)}, r"leave them out, Matern32\(\)"),
    ],
)
def test_parameters_out_of_range_are_named(options, message):
    X, y = table(20)
    with pytest.raises(ParameterError, match=message):
        ProjectionPursuitGPRegressor(**options).fit(X, y)


def put(value, row, column=None):
    def change(data):
        if column is None:
            data = data.astype(object) if isinstance(value, str) else data
            data[row] = value
        else:
            data[column] = data[column].astype(object) if isinstance(value, str) else data[column]
            data.loc[row, column] = value
        return data

    return change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": put(np.nan, 3, "dose")}, r"'dose' contains NaN \(missing\) in row 3 .* 1 of 30"),
        ({"X": put(-np.inf, 4, "age")}, r"'age' contains infinity in row 4"),
        ({"X": put("tall", 0, "height")}, r"'height' is not numeric \(type .*'tall' in row 0"),
        ({"X": lambda X: X[:0], "y": lambda y: y[:0]}, r"0 sample\(s\)"),
        ({"X": lambda X: X[[]]}, r"no input column"),
        ({"X": lambda X: X[:1]}, r"X has 1 rows but y has 30"),
        ({"X": lambda X: X.set_axis(list("abca"), axis=1)}, r"duplicate column name 'a'"),
        ({"X": lambda X: 1e305 * X}, r"column 'age' spans .* rescale it"),
        ({"y": put(np.nan, 2)}, r"target 'y' contains NaN \(missing\) in row 2"),
        ({"y": put(np.inf, 2)}, r"target 'y' contains infinity in row 2"),
        ({"y": put("high", 2)}, r"target 'y' is not numeric .*'high' in row 2"),
        ({"y": lambda y: None}, r"target y is None"),
        ({"y": lambda y: 1e300 * y}, r"target reaches .* rescale it"),
        ({"weight": put(-1.0, 5)}, r"sample_weight is negative in row 5"),
        ({"weight": put(np.nan, 5)}, r"sample_weight contains NaN"),
        ({"weight": lambda w: w[:9]}, r"sample_weight must have shape \(30,\)"),
        ({"weight": lambda w: 0 * w}, r"sample_weight is zero in every row"),
    ],
)
def test_bad_input_is_named(changes, message):
    X, y = table(30)
    X = changes.get("X", lambda X: X)(X)
    y = changes.get("y", lambda y: y)(y.to_numpy().copy() if hasattr(y, "to_numpy") else y)
    weight = changes["weight"](np.ones(30)) if "weight" in changes else None
    with pytest.raises(DataError, match=message):
        quick().fit(X, y, weight)


def test_one_row_cannot_teach():
    with (
        pytest.warns(DataWarning),
        pytest.raises(DataError, match=r"1 sample .* at least 2 rows"),
    ):
        quick().fit([[1.0, 2.0]], [3.0])


def test_bad_rows_at_predict_are_named(fitted):
    X, _ = table()
    X.loc[150, "dose"] = np.nan
    with pytest.raises(DataError, match=r"'dose' contains NaN .* row 150"):
        fitted.predict(X)
    with pytest.raises(DataError, match=r"X has 5 features, but .* expecting 4 features"):
        fitted.predict(np.zeros((2, 5)))


# ---- public data


@pytest.mark.parametrize(
    ("name", "most", "seed"),  # of elevators, that whose search is the shorter one
    [
        ("pumadyn8fm", 0.058, 0),
        ("pumadyn8nm", 0.036, 0),
        ("pumadyn32nm", 0.047, 0),
        ("elevators", 0.1, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:constant over the training rows")
def test_accuracy_on_public_data(data_dir, name, most, seed):
    if not (data_dir / f"{name}.npz").is_file():
        pytest.skip(f"needs {name}")
    with np.load(data_dir / f"{name}.npz") as stored:
        X, y = stored["X"], stored["y"].astype(float)
        train = np.array(stored["is_train"], dtype=bool) if "is_train" in stored else None
    if train is None:
        train = np.zeros(len(y), dtype=bool)
        train[np.random.default_rng(0).permutation(len(y))[:7168]] = True
    test = ~train
    model = ProjectionPursuitGPRegressor(random_state=seed).fit(X[train], y[train])
    mean, std = model.predict(X[test], return_std=True, include_noise=True)
    assert np.mean((mean - y[test]) ** 2) / np.var(y[test]) < most
    assert 0.92 < np.mean(np.abs(mean - y[test]) < 1.96 * std) < 0.98
    if name == "pumadyn32nm":  # four of its inputs matter
        assert model.relevance_.nlargest(4).sum() > 0.98
