"""One contract for all estimators of tables."""

import pickle
import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GeneralizedPursuitGP,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
    load,
)
from dsgp.errors import DataError

PURSUIT = {"n_projections": 1, "n_starts": 1, "random_state": 0}
# An unfitted model and its target.
MODELS = {
    "additive": (AdditiveGPRegressor(learner_tol=1.0), "number"),
    "counts": (GeneralizedAdditiveGP("poisson", learner_tol=1.0), "count"),
    "classes": (AdditiveGPClassifier(learner_tol=1.0), "label"),
    "softmax": (AdditiveGPClassifier(learner_tol=1.0), "class"),
    "pursuit": (ProjectionPursuitGPRegressor(**PURSUIT), "number"),
    "pursuit-counts": (GeneralizedPursuitGP("poisson", **PURSUIT), "count"),
    "pursuit-classes": (ProjectionPursuitGPClassifier(**PURSUIT), "label"),
}


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.uniform(0, 3, n), "z": rng.uniform(0, 1, n)})
    X["town"] = rng.choice(["Aix", "Bern"], n)
    f = np.sin(2 * X["x"]) + (X["town"] == "Bern")
    targets = {
        "number": f + 0.1 * rng.standard_normal(n),
        "count": rng.poisson(np.exp(f)),
        "label": np.where(f > 0.5, "high", "low"),
        "class": np.array(["a", "b", "c"])[np.digitize(f, [0.0, 1.0])],
    }
    return X, targets


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """A fitted model that no test changes, its rows and its target."""
    model, target = MODELS[request.param]
    X, targets = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, targets[target]), X, np.asarray(targets[target])


def answers(model, X):
    """All that a model says of rows, as one array."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    return np.column_stack(model.predict(X, return_std=True))


def test_stores_pickles_and_refits_answer_the_same(fitted, tmp_path):
    model, X, y = fitted
    expected = answers(model, X)
    model.save(tmp_path / "m.zarr")
    for other in (load(tmp_path / "m.zarr"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(answers(other, X), expected)
        assert other.get_params() == model.get_params()
        assert other.summary() == model.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = clone(load(tmp_path / "m.zarr")).fit(X, y)
    np.testing.assert_allclose(answers(again, X), expected, rtol=1e-9)
    unfitted = clone(model)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(unfitted)


def test_columns_are_matched_by_name(fitted):
    model, X, _ = fitted
    expected = answers(model, X)
    other = X[X.columns[::-1]].assign(further="text")
    np.testing.assert_array_equal(answers(model, other), expected)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.n_features_in_ == X.shape[1]
    with pytest.raises(DataError, match="Missing: 'x'"):
        model.predict(X.drop(columns="x"))


def test_what_is_lazy_stays_so_and_rows_depend_on_themselves_only(fitted):
    model, X, _ = fitted
    expected = answers(model, X)
    lazy = dd.from_pandas(X, npartitions=3)
    whole = model.predict(lazy)
    assert hasattr(whole, "compute")
    here = model.predict(X)
    if here.dtype.kind == "f":  # dense standard deviations may round by the block
        np.testing.assert_allclose(whole.compute(), here, rtol=1e-12)
    else:
        np.testing.assert_array_equal(whole.compute(), here)
    np.testing.assert_allclose(answers(model, X.iloc[[5]]), expected[[5]], rtol=1e-9)


def test_components_add_up(fitted):
    model, X, _ = fitted
    own = getattr(model, "estimators_", [model])[0]
    if not own.terms_:
        pytest.skip("no projection was found")
    parts = own.components(X)
    total = parts["intercept"].item() + parts["mean"].sum("term")
    latent = own.predict_latent(X)
    np.testing.assert_allclose(total, latent, atol=1e-9 * max(1.0, np.abs(latent).max()))


@pytest.mark.parametrize("name", ["additive", "classes"])
def test_it_is_a_step_of_scikit_learn(name):
    model, target = MODELS[name]
    X, targets = table(90)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = cross_val_score(make_pipeline(model), X, targets[target], cv=3)
    assert scores.min() > 0.5
