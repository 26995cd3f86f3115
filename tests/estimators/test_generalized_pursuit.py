"""Projection pursuit for counts and classes, as a user meets it."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dsgp import (
    GeneralizedPursuitGP,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
    load,
)
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError
from dsgp.kernels import Matern12, Matern52
from dsgp.likelihoods import Gaussian, NegativeBinomial, Poisson
from dsgp.plotting import plot_projections, plot_relevance

QUICK = {"n_starts": 3, "random_state": 0}
DIRECTION = np.array([0.8, -0.6, 0.0])


def quick(likelihood="poisson", **options):
    return GeneralizedPursuitGP(likelihood, **{**QUICK, **options})


def classifier(**options):
    return ProjectionPursuitGPClassifier(**{**QUICK, **options})


def test_uncertainty_of_directions_can_be_left_out_of_a_fitted_classifier():
    X, rng = table(400)
    y = rng.poisson(np.exp(signal(X))).clip(max=3)
    y[y == 3] = 2
    model = classifier(n_projections=1).fit(X, y)
    with_it = model.predict_proba(X)
    without = model.set_params(direction_uncertainty=False).predict_proba(X)
    assert 1e-4 < np.abs(with_it - without).max() < 0.1
    model.set_params(direction_uncertainty=True)
    np.testing.assert_array_equal(model.predict_proba(X), with_it)
    for plot in (plot_projections, plot_relevance):
        with pytest.raises(ParameterError, match=r"each of its 3 classes.*estimators_\[k\]"):
            plot(model)


def signal(X):
    return 0.7 + np.sin(1.5 * (np.asarray(X) / [1.0, 10.0, 1.0]) @ DIRECTION)


def table(n=800, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.standard_normal((n, 3)) * [1.0, 10.0, 1.0], columns=["a", "b", "idle"])
    return X, rng


def counts(n=800, seed=0, exposure=1.0):
    X, rng = table(n, seed)
    return X, rng.poisson(exposure * np.exp(signal(X))).astype(float)


def classes(n=800, seed=0):
    X, rng = table(n, seed)
    one = rng.random(n) < 1 / (1 + np.exp(-4 * (signal(X) - 0.7)))
    return X, np.where(one, "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    return quick().fit(*counts())


@pytest.fixture(scope="module")
def classified():
    return classifier().fit(*classes())


# ---- what is found


def test_a_known_direction_of_counts_is_found(fitted):
    assert fitted.n_projections_ == 1
    found = fitted.projections_.to_numpy()[0]
    assert abs(found @ DIRECTION) / np.linalg.norm(found) > 0.995
    assert fitted.relevance_["idle"] < 0.01
    assert fitted.converged_
    X, _ = table(500, seed=1)
    latent, std = fitted.predict_latent(X, return_std=True)
    inside = np.abs(X["a"]) < 2
    z = (latent - signal(X))[inside] / std[inside]
    assert np.mean(z**2) < 2.5
    assert np.corrcoef(latent, signal(X))[0, 1] > 0.98
    mean = fitted.predict(X)
    np.testing.assert_allclose(mean, np.exp(latent + 0.5 * std**2), rtol=1e-6)


def test_large_counts_are_no_trouble():
    """They leave next to no noise, and a function too few no good place to go on from."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 4))
    f = 3 * (1.2 * np.sin(X @ [1.2, -0.8, 0.0, 0.0]) + 0.5 * X[:, 2])
    y = rng.poisson(np.exp(f + 3))
    assert y.max() > 10_000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = quick().fit(X, y)
    assert model.n_projections_ == 2
    assert np.corrcoef(model.predict_latent(X), f)[0, 1] > 0.999


def test_exposures_and_offsets_count():
    X, rng = table()
    exposure = rng.uniform(0.2, 5.0, len(X))
    y = rng.poisson(exposure * np.exp(signal(X)))
    given = X.assign(exposure=exposure, count=y)
    model = quick(n_projections=1).fit(given, "count", exposure="exposure")
    rate = model.predict(X[:200])
    assert np.corrcoef(np.log(rate), signal(X[:200]))[0, 1] > 0.98
    twice = model.predict(X[:200], exposure=np.full(200, 2.0))
    np.testing.assert_allclose(twice, 2 * rate, rtol=1e-10)
    same = quick(n_projections=1).fit(X, y, offset=np.log(exposure))
    np.testing.assert_allclose(same.predict(X[:200]), rate, rtol=1e-8)


def test_the_dispersion_is_learned():
    X, rng = table(2000)
    y = NegativeBinomial(dispersion=0.5).sample(signal(X), rng)
    model = quick("negative_binomial").fit(X, y)
    assert model.likelihood_.dispersion == pytest.approx(0.5, rel=0.25)
    assert model.n_projections_ == 1


def test_a_normal_likelihood_is_the_regressor():
    X, rng = table(1000)
    y = 1e3 * (signal(X) + 0.2 * rng.standard_normal(len(X)))
    usual = ProjectionPursuitGPRegressor(**QUICK).fit(X, y)
    model = quick(Gaussian()).fit(X, y)
    assert model.likelihood_.scale == pytest.approx(np.sqrt(usual.noise_variance_), rel=0.02)
    assert model.evidence_ == pytest.approx(usual.evidence_, abs=5.0)
    ours, theirs = (m.predict(X[:100], return_std=True) for m in (model, usual))
    np.testing.assert_allclose(ours[0], theirs[0], atol=20.0)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=0.4)


def test_trials_of_a_binomial():
    X, rng = table(600)
    trials = rng.integers(1, 9, len(X))
    y = rng.binomial(trials, 1 / (1 + np.exp(-(signal(X) - 0.7) * 2)))
    model = quick("binomial", n_projections=1).fit(X, y, trials=trials)
    p = model.predict(X[:100])
    assert np.corrcoef(p, signal(X[:100]))[0, 1] > 0.97
    np.testing.assert_allclose(model.predict(X[:100], trials=trials[:100]), trials[:100] * p)


# ---- rotations, weights, seeds


def test_without_relevance_rotated_inputs_are_the_same_model():
    X, y = counts(500)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    X = X.to_numpy() / [1.0, 10.0, 1.0]
    first, second = (
        quick(relevance=False, n_projections=1).fit(inputs, y) for inputs in (X, X @ turn)
    )
    assert second.evidence_ == pytest.approx(first.evidence_, abs=1.0)
    np.testing.assert_allclose(second.predict(X @ turn), first.predict(X), rtol=0.05)


def test_the_same_seed_gives_the_same_model(fitted):
    again = clone(fitted).fit(*counts())
    assert again.evidence_ == fitted.evidence_
    X, _ = table(50, seed=2)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_weight_is_as_many_rows_and_none_is_none():
    X, y = counts(500)
    count = np.random.default_rng(1).integers(0, 3, 500)
    repeated = np.repeat(np.arange(500), count)
    weighted = quick(n_projections=1).fit(X, y, count)
    expected = quick(n_projections=1).fit(X.iloc[repeated], y[repeated])
    assert weighted.n_rows_ == np.count_nonzero(count)
    assert weighted.evidence_ == pytest.approx(expected.evidence_, abs=2.0)
    ours, theirs = (m.predict_latent(X[:100], return_std=True) for m in (weighted, expected))
    np.testing.assert_allclose(ours[0], theirs[0], atol=0.2)
    np.testing.assert_allclose(ours[1], theirs[1], atol=0.1)
    kept = count > 0
    without = quick(n_projections=1).fit(X[kept], y[kept], count[kept])
    np.testing.assert_array_equal(without.predict(X), weighted.predict(X))


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setattr("dsgp.pursuit.levels.KEPT_BYTES", 0.0)
    monkeypatch.setattr("dsgp.pursuit.levels.FIRST_ROWS", 400)
    monkeypatch.setattr("dsgp.pursuit.levels.STREAM_BLOCK", 350)
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 350)


@pytest.mark.usefixtures("stream")
def test_streamed_rows_give_the_same_function(fitted):
    X, y = counts()
    streamed = quick(n_projections=1).fit(da.from_array(X.to_numpy(), chunks=(250, 3)), y)
    mean, std = fitted.predict_latent(X[:200], return_std=True)
    found = streamed.predict_latent(X[:200].to_numpy())
    assert np.mean(((found - mean) / std) ** 2) < 0.5
    lazy = streamed.predict(da.from_array(X.to_numpy(), chunks=(250, 3)))
    assert isinstance(lazy, da.Array)


# ---- classes


def test_classes_are_distinguished_and_probabilities_calibrated(classified):
    X, y = classes(2000, seed=3)
    assert classified.classes_.tolist() == ["no", "yes"]
    p = classified.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    yes = y == "yes"
    assert np.mean(classified.predict(X) == y) > 0.8
    for low in (0.0, 0.25, 0.5, 0.75):
        chosen = (p[:, 1] >= low) & (p[:, 1] < low + 0.25)
        assert abs(p[chosen, 1].mean() - yes[chosen].mean()) < 0.12
    assert np.array_equal(classified.decision_function(X) > 0, p[:, 1] > 0.5)
    direction = classified.projections_.to_numpy()[0]
    assert abs(direction @ DIRECTION) / np.linalg.norm(direction) > 0.98
    assert "f is that of class 'yes'" in classified.summary()


def test_separable_classes_have_finite_functions():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = X @ [1.0, 0.5] > 0
    model = classifier().fit(X, y)
    assert model.classes_.tolist() == [False, True]
    assert model.n_projections_ >= 1
    assert np.mean(model.predict(X) == y) > 0.99
    p = model.predict_proba(X)[:, 1]
    assert np.isfinite(p).all()
    near = np.abs(X @ [1.0, 0.5]) < 0.02
    assert p[near].min() > 0.01
    assert p[near].max() < 0.99


@pytest.mark.usefixtures("stream")
def test_streamed_classes_are_those_in_memory(monkeypatch):
    X, y = classes()
    lazy = da.from_array(X.to_numpy(), chunks=(250, 3))
    options = {"n_projections": 1, "class_weight": "balanced"}
    streamed = classifier(**options).fit(lazy, y)
    monkeypatch.undo()
    expected = classifier(**options).fit(X, y)
    found = streamed.predict_proba(X.to_numpy())
    np.testing.assert_allclose(found, expected.predict_proba(X), atol=0.1)
    assert streamed.classes_.tolist() == ["no", "yes"]


def test_many_classes_labels_and_weights():
    X, rng = table(600)
    x = X.to_numpy() / [1.0, 10.0, 1.0]
    y = np.array([10, 20, 30])[np.digitize(x @ [0.8, -0.6, 0.0], [-0.5, 1.0])]
    model = classifier(n_projections=1, class_weight="balanced").fit(X, y)
    assert model.classes_.tolist() == [10, 20, 30]
    assert len(model.estimators_) == 3
    assert np.mean(model.predict(X) == y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.components(X[:5]).sizes["class"] == 3
    assert not hasattr(model, "projections_")


def test_a_class_without_projections_does_no_harm():
    X, rng = table(400)
    x = X.to_numpy()
    y = np.where(x[:, 0] > 0, "a", "b").astype(object)
    y[rng.choice(400, 12, replace=False)] = "A"  # sorted first, and noise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DataWarning, ConvergenceWarning))
        model = classifier().fit(X, y)
    assert not model.estimators_[0].terms_
    assert np.mean(model.predict(X) == y) > 0.9


def test_class_weights_move_probabilities():
    X, y = classes(400)
    usual = classifier(n_projections=1).fit(X, y).predict_proba(X)[:, 1].mean()
    heavy = classifier(n_projections=1, class_weight={"yes": 5.0}).fit(X, y)
    assert heavy.predict_proba(X)[:, 1].mean() > usual + 0.05
    rows = np.where(y == "yes", 5.0, 1.0)
    same = classifier(n_projections=1).fit(X, y, rows)
    np.testing.assert_allclose(same.predict_proba(X), heavy.predict_proba(X), atol=1e-8)
    with pytest.raises(ParameterError, match="class_weight names"):
        classifier(class_weight={"maybe": 2.0}).fit(X, y)


# ---- beyond the rows, saving, pictures


def test_beyond_the_training_rows_less_is_known(fitted):
    X, _ = table()
    far = pd.DataFrame([X.max() + 5 * X.std()], columns=X.columns)
    near = far.clip(X.min(), X.max(), axis=1)
    (mean, std), (edge, known) = (
        fitted.predict_latent(rows, return_std=True) for rows in (far, near)
    )
    assert mean == pytest.approx(edge)
    assert std[0] > known[0]


def test_directions_add_to_the_variance():
    X, y = counts(200)
    stds = [
        quick(n_projections=1, direction_uncertainty=told)
        .fit(X, y)
        .predict_latent(X, return_std=True)[1]
        for told in (True, False)
    ]
    assert (stds[0] >= stds[1]).all()
    assert stds[0].mean() > 1.05 * stds[1].mean()


def test_saved_models_predict_to_the_bit(fitted, classified, tmp_path):
    X, _ = table(100, seed=4)
    fitted.save(tmp_path / "counts.zarr")
    again = load(tmp_path / "counts.zarr")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.summary() == fitted.summary()
    assert again.likelihood_ == Poisson()
    pd.testing.assert_frame_equal(again.projections_, fitted.projections_)
    classified.save(tmp_path / "classes.zarr")
    again = load(tmp_path / "classes.zarr")
    np.testing.assert_array_equal(again.predict_proba(X), classified.predict_proba(X))
    assert again.classes_.tolist() == classified.classes_.tolist()
    assert again.evidence_ == classified.evidence_


def test_draws_and_covariances_are_of_f(fitted):
    X, _ = table(5, seed=6)
    covariance = fitted.covariance(X)
    _, std = fitted.predict_latent(X, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=0.02)
    drawn = fitted.sample(X, 500, random_state=0)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.2)
    new = fitted.sample(X, 20, random_state=0, include_noise=True)
    assert np.array_equal(new, np.floor(new))


def test_pictures(fitted, classified):
    plotting = pytest.importorskip("dsgp.plotting")
    for model in (fitted, classified):
        assert len(plotting.plot_projections(model).axes) == 2 * model.n_projections_
        plotting.plot_relevance(model)


# ---- refusals and warnings


def test_what_cannot_be_is_refused():
    X, y = counts(50)
    with pytest.raises(DataError, match="whole numbers"):
        quick().fit(X, y + 0.5)
    with pytest.raises(ParameterError, match="exposure is for"):
        quick("bernoulli").fit(X, y > 1, exposure=np.ones(50))
    with pytest.raises(DataError, match="exposure must be positive"):
        quick().fit(X, y, exposure=np.zeros(50))
    with pytest.raises(ParameterError, match="no derivative"):
        quick(kernel=Matern12()).fit(X, y)
    with pytest.raises(ParameterError, match="leave them out"):
        quick(kernel=Matern52(lengthscale=1.0)).fit(X, y)
    with pytest.raises(ParameterError, match="likelihood must be"):
        quick("cauchy").fit(X, y)
    with pytest.raises(DataError, match="only one class"):
        classifier().fit(X, np.zeros(50, int))
    with pytest.raises(ParameterError, match="link"):
        classifier(link="log").fit(X, y > 1)


def test_it_reports_that_it_found_nothing():
    X, rng = table(300)
    with pytest.warns(DataWarning, match="no projection was found"):
        model = quick().fit(X, rng.poisson(3.0, 300))
    assert model.n_projections_ == 0
    np.testing.assert_allclose(model.predict(X[:3]), model.predict(X[3:6]))
    with pytest.warns(DataWarning, match="only . were found: more would"):
        quick(n_projections=6).fit(*counts(300))
