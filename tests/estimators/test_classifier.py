"""The classifier as a user meets it: labels, weights, probabilities, the mode of a softmax."""

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
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

import dsgp
from dsgp import AdditiveGPClassifier
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError, StorageError
from dsgp.kernels import Matern32, Matern52
from dsgp.plotting import plot_components, plot_learning


def table(n=150, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.uniform(-2, 2, n).round(2), "b": rng.uniform(-2, 2, n).round(2)})
    latents = np.stack([2 * np.sin(2 * X["a"]), 1.5 * X["b"], 0.4 - X["a"] * 0.5][:n_classes])
    if n_classes == 2:
        latents[1] = 0
    p = np.exp(latents - logsumexp(latents, axis=0))
    return X, (np.cumsum(p, axis=0) < rng.random(n)).sum(axis=0), p.T


KEPT = {"a": Matern52(1.0, 2.0), "b": Matern32(1.5, 1.0)}


def kept(**options):
    return AdditiveGPClassifier(terms=KEPT, learner=None, **options)


LABELS = {
    "text": np.array(["no", "yes", "well"]),
    "objects": np.array(["no", "yes", "well"], dtype=object),
    "numbers": np.array([7, -3, 100]),
    "floats": np.array([2.0, 0.0, 5.0]),
}


# ---- labels


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_of_any_kind_are_the_classes_in_order(kind, n_classes, tmp_path):
    X, codes, _ = table(90, n_classes=n_classes)
    labels = LABELS[kind][:n_classes]
    model = kept().fit(X, labels[codes])
    assert list(model.classes_) == sorted(labels)
    plain = kept().fit(X, np.argsort(np.argsort(labels))[codes])
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), np.sort(labels)[plain.predict(X)])
    assert np.mean(model.predict(X) == labels[codes]) > 0.6
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_booleans_are_labels():
    X, codes, _ = table()
    model = kept().fit(X, codes == 1)
    assert model.classes_.dtype == bool
    assert model.predict(X).dtype == bool
    np.testing.assert_array_equal(model.predict_proba(X), kept().fit(X, codes).predict_proba(X))


@pytest.mark.parametrize(
    ("y", "weight", "message"),
    [
        (["a"] * 5, None, "only one class: 'a'"),
        ([3] * 5, None, "at least 2 classes"),
        (["a", "b", "a", "a", "a"], [1, 0, 1, 1, 1], "only one class: 'a'"),
        (["a", None, "a", "b", "a"], None, r"'y' contains NaN \(missing\) in row 1"),
        ([0.5, 1.0, 2.0, 0.0, 0.0], None, "Unknown label type"),
        ([0.0, 1.0, np.nan, 0.0, 0.0], None, "'y' contains NaN"),
        (["a", 1, "a", "b", "a"], None, "all of one kind"),
        (["a", "b"], None, "5 rows but y has 2"),
        (None, None, "y is None"),
    ],
)
def test_targets_that_will_not_do(y, weight, message):
    with pytest.raises(DataError, match=message):
        kept().fit(table(5)[0], y, weight)


def test_a_class_without_weight_is_no_class():
    X, codes, _ = table(90, n_classes=3)
    weight = (codes != 1).astype(float)
    model = kept().fit(X, codes, weight)
    without = kept().fit(X[codes != 1], codes[codes != 1])
    assert list(model.classes_) == [0, 2]
    np.testing.assert_array_equal(model.predict_proba(X), without.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), without.predict(X))


# ---- weights


@pytest.mark.parametrize("n_classes", [2, 3])
def test_whole_weights_are_repeated_rows(n_classes):
    X, codes, _ = table(80, n_classes=n_classes)
    weight = np.random.default_rng(1).integers(0, 4, len(codes))
    repeated = np.repeat(np.arange(len(codes)), weight)
    weighted = kept(tol=1e-9).fit(X, codes, weight)
    rows = kept(tol=1e-9).fit(X.iloc[repeated], codes[repeated])
    np.testing.assert_allclose(weighted.predict_proba(X), rows.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("multi_class", ["softmax", "ovr"])
def test_class_weight_is_a_weight_of_rows(multi_class):
    X, codes, _ = table(90, n_classes=3)
    labels = np.array(["x", "y", "z"])[codes]
    own = np.random.default_rng(1).uniform(0.5, 2, len(codes))
    options = {"multi_class": multi_class}
    given = kept(class_weight={"x": 3.0, "z": 0.5}, **options).fit(X, labels, own)
    factors = np.array([3.0, 1.0, 0.5])[codes]
    by_rows = kept(**options).fit(X, labels, own * factors)
    np.testing.assert_array_equal(given.predict_proba(X), by_rows.predict_proba(X))
    balanced = kept(class_weight="balanced", **options).fit(X, labels)
    counts = np.bincount(codes)
    by_rows = kept(**options).fit(X, labels, (len(codes) / (3 * counts))[codes])
    np.testing.assert_allclose(balanced.predict_proba(X), by_rows.predict_proba(X), rtol=1e-9)


def test_class_weight_of_booleans_and_numbers(tmp_path):
    X, codes, _ = table()
    for labels, weight in ((codes == 1, {True: 2.0}), (codes, {1: 2, 0: np.float32(1)})):
        model = kept(class_weight=weight).fit(X, labels)
        other = kept().fit(X, labels, 1.0 + codes)
        np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))
        model.save(tmp_path / "m.zarr", overwrite=True)
        assert dsgp.load(tmp_path / "m.zarr").class_weight == weight


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "cauchit"}, r"link must be one of .*'probit'.* got 'cauchit'"),
        ({"multi_class": "ovo"}, "multi_class must be one of"),
        ({"class_weight": "even"}, 'class_weight must be None, "balanced" or a mapping'),
        ({"class_weight": {7: 1.0}}, r"class_weight names \[7\], which are not among the classes"),
        ({"class_weight": {1: 0.0}}, "class_weight must be positive numbers, got 0.0"),
        ({"class_weight": {1: "many"}}, "class_weight must be positive numbers, got 'many'"),
        ({"solver": "magic"}, "solver must be one of"),
        ({"learner": None}, "has no lengthscale and no variance"),
        ({"newton_max_iter": 0}, "newton_max_iter must be an integer of at least 1"),
        ({"intercept": np.nan}, "intercept must be a finite number"),
        ({"terms": {"wage": Matern52()}}, r"terms names \['wage'\]"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, codes, _ = table(30)
    with pytest.raises(ParameterError, match=message):
        AdditiveGPClassifier(**options).fit(X, codes)


# ---- the posterior of a softmax


@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_the_mode_of_a_softmax_is_the_joint_one(intercept):
    X, codes, _ = table(60, n_classes=3)
    covariance = sum(KEPT[name].covariance(X[name]) for name in X)
    factor = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(X)))
    target = np.eye(3)[codes].T

    def negative(whitened):
        a = whitened.reshape(3, -1)
        f = a @ factor.T + intercept
        rest = logsumexp(f, axis=0)
        value = np.sum(target * f) - rest.sum() - 0.5 * np.sum(a * a)
        slope = (target - np.exp(f - rest)) @ factor - a
        return -value, -slope.ravel()

    found = minimize(
        negative, np.zeros(180), jac=True, method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip
    expected = found.x.reshape(3, -1) @ factor.T + intercept
    model = kept(intercept=intercept, tol=1e-6).fit(X, codes)
    assert model.converged_
    latents = np.stack([own.predict_latent(X) for own in model.estimators_])
    np.testing.assert_allclose(latents, expected, atol=1e-4)


def test_the_order_of_the_classes_does_not_matter():
    X, codes, _ = table(90, n_classes=3)
    order = np.array([2, 0, 1])
    first, second = (AdditiveGPClassifier().fit(X, y) for y in (codes, order[codes]))
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X)[:, order], atol=2e-3)


def test_a_softmax_that_does_not_settle_is_warned_of(monkeypatch):
    monkeypatch.setattr("dsgp.models.laplace.softmax._ROUNDS", 1)
    X, codes, _ = table(60, n_classes=3)
    with pytest.warns(ConvergenceWarning, match="stopped after 2 rounds") as caught:
        model = kept().fit(X, codes)
    assert caught[0].filename == __file__
    assert not model.converged_


def calibration_error(p, y):
    confident, right = p.max(axis=1), p.argmax(axis=1) == y
    part = np.digitize(confident, np.linspace(0.3, 1, 8))
    return sum(
        abs(confident[part == k].mean() - right[part == k].mean()) * np.mean(part == k)
        for k in np.unique(part)
    )


@pytest.mark.parametrize("multi_class", ["softmax", "ovr"])
def test_probabilities_of_three_classes_are_calibrated(multi_class):
    X, y, _ = table(2000, n_classes=3)
    model = AdditiveGPClassifier(multi_class=multi_class, learner_tol=0.05).fit(X, y)
    new, truth, p = table(4000, seed=5, n_classes=3)
    found = model.predict_proba(new)
    assert np.mean(np.abs(found - p)) < 0.035
    assert calibration_error(found, truth) < 0.03
    nll, best = (-np.mean(np.log(q[np.arange(len(truth)), truth])) for q in (found, p))
    assert nll < best + 0.015


def test_wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:142], order[142:]
    model = AdditiveGPClassifier(learner_tol=0.05).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.91


# ---- probabilities


@pytest.mark.parametrize(
    ("n_classes", "multi_class", "link"),
    [
        (2, "softmax", "logit"),
        (2, "softmax", "probit"),
        (3, "softmax", "logit"),
        (3, "ovr", "logit"),
        (3, "ovr", "probit"),
    ],
)
def test_probabilities_are_some(n_classes, multi_class, link):
    X, codes, _ = table(90, n_classes=n_classes)
    model = kept(link=link, multi_class=multi_class, missing="ignore").fit(X, codes)
    new = np.array([[0, 0], [1e300, -1e300], [np.nan, np.nan], [3, -3]])
    p = model.predict_proba(new)
    assert p.shape == (4, n_classes)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (p >= 0).all()
    score = model.decision_function(new)
    best = p.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(new), model.classes_[best])
    if n_classes == 2:
        np.testing.assert_allclose(score, np.log(p[:, 1] / p[:, 0]), atol=1e-9)
    else:
        np.testing.assert_array_equal(score.argmax(axis=1), best)


@pytest.mark.parametrize("multi_class", ["softmax", "ovr"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_huge_functions_give_no_nan(multi_class, n_classes):
    X, codes, _ = table(60, n_classes=n_classes)
    X = X.assign(a=4.0 * codes + X["a"] / 10)  # separable
    model = AdditiveGPClassifier(
        Matern32(3.0, 1e8), learner=None, multi_class=multi_class, intercept=-2000.0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        p = model.fit(X, codes).predict_proba(X)
        score = model.decision_function(X)
    assert np.isfinite(p).all()
    assert np.isfinite(score).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-9)


def test_a_prediction_does_not_depend_on_its_company(monkeypatch):
    X, codes, _ = table(120, n_classes=3)
    model = kept().fit(X, codes)
    p = model.predict_proba(X)
    for rows in (slice(0, 1), slice(50, 120)):
        np.testing.assert_allclose(model.predict_proba(X[rows]), p[rows], rtol=1e-9)
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 17)
    np.testing.assert_allclose(model.predict_proba(X), p, rtol=1e-9)


def test_columns_are_matched_by_name():
    X, codes, _ = table(n_classes=3)
    model = kept().fit(X, codes)
    shuffled = X[["b", "a"]].assign(extra="text")
    np.testing.assert_array_equal(model.predict_proba(shuffled), model.predict_proba(X))
    with pytest.raises(DataError, match="Missing: 'b'"):
        model.predict(X[["a"]])
    X.loc[100, "b"] = np.inf
    with pytest.raises(DataError, match=r"'b' contains infinity in row 100"):
        model.predict_proba(X)


# ---- tables that stream


def stored(kind, folder, frame):
    if kind == "parquet":
        for part, start in enumerate(range(0, len(frame), 70)):
            frame[start : start + 70].to_parquet(folder / f"part.{part}.parquet", index=False)
        return folder
    if kind == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
        return folder / "rows.csv"
    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    for name in frame:
        values = frame[name].to_numpy()
        values = values.astype("U") if values.dtype == object else values
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group.create_array(name, data=values, chunks=(61,))
    return folder / "rows.zarr"


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_a_table_on_disk_gives_the_same_model(kind, n_classes, tmp_path):
    X, codes, _ = table(200, n_classes=n_classes)
    y = np.array(["first", "second", "third"], dtype=object)[np.sort(codes)]  # classes come late
    X = X.iloc[np.argsort(codes)].reset_index(drop=True)
    path = stored(kind, tmp_path, X.assign(y=y))
    model = kept(bins=50).fit(path, "y")
    expected = kept(bins=50).fit(X, y)
    assert list(model.classes_) == list(expected.classes_)
    np.testing.assert_array_equal(model.predict_proba(path), expected.predict_proba(X))
    np.testing.assert_array_equal(model.predict(path), expected.predict(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_dask_in_dask_out(n_classes):
    X, codes, _ = table(200, n_classes=n_classes)
    y = np.array(["first", "second", "third"], dtype=object)[codes]
    expected = kept(bins=50).fit(X, y)
    array = da.from_array(X.to_numpy(), chunks=(67, 2))
    frame = dd.from_pandas(X.assign(y=y), npartitions=3)
    by_array = AdditiveGPClassifier(
        terms=dict(zip(["x0", "x1"], KEPT.values(), strict=True)), learner=None, bins=50
    ).fit(array, da.from_array(y, chunks=67))
    by_frame = kept(bins=50).fit(frame, "y")
    p, score = expected.predict_proba(X), expected.decision_function(X)
    for model, lazy in ((by_array, array), (by_frame, frame), (expected, array)):
        found = model.predict_proba(lazy)
        assert isinstance(found, da.Array)
        assert found.shape[1] == n_classes
        np.testing.assert_allclose(found.compute(), p, rtol=1e-9)
        decided = model.decision_function(lazy)
        assert decided.ndim == score.ndim
        np.testing.assert_allclose(decided.compute(), score, atol=1e-9)
        labels = model.predict(lazy)
        assert isinstance(labels, da.Array)
        assert labels.dtype == model.classes_.dtype
        np.testing.assert_array_equal(labels.compute(), expected.predict(X))


def test_nothing_is_computed_before_it_is_asked_for():
    X, codes, _ = table()
    model = kept().fit(X, codes)
    lazy = da.from_array(X.to_numpy(), chunks=(50, 2)).map_blocks(
        lambda block: 1 / 0, dtype=float, meta=np.empty((0, 0))
    )
    for found in (model.predict(lazy), model.predict_proba(lazy), model.decision_function(lazy)):
        with pytest.raises(ZeroDivisionError):
            found.compute()


def test_an_xarray_dataset():
    X, codes, _ = table()
    data = xr.Dataset({name: ("row", X[name].to_numpy()) for name in X} | {"y": ("row", codes)})
    model = kept().fit(data, "y")
    expected = kept().fit(X, codes)
    np.testing.assert_array_equal(model.predict_proba(data), expected.predict_proba(X))
    other = kept().fit(data[["a", "b"]], xr.DataArray(codes, dims="row"))
    np.testing.assert_array_equal(other.predict_proba(X), expected.predict_proba(X))


# ---- what is reported and stored


def test_components_are_those_of_the_classes():
    X, codes, _ = table(n_classes=3)
    model = kept().fit(X, codes)
    parts = model.components(X)
    assert parts["mean"].dims == ("class", "row", "term")
    assert list(parts["class"].values) == [0, 1, 2]
    total = parts["mean"].sum("term") + parts["intercept"]
    for k, own in enumerate(model.estimators_):
        np.testing.assert_allclose(total[k], own.predict_latent(X), atol=1e-9)
    binary = kept().fit(X, codes == 1)
    assert binary.components(X)["mean"].dims == ("row", "term")


def test_what_is_found_is_reported_for_two_classes_and_each_of_three():
    X, codes, _ = table(n_classes=3)
    two = AdditiveGPClassifier(learner_tol=0.05).fit(X, codes == 0)
    assert list(two.kernels_) == ["a", "b"]
    assert [term.name for term in two.terms_] == ["a", "b"]
    assert len(two.learner_trace_) > 0
    assert "f is that of class 'True', against 'False'" in two.summary()
    three = AdditiveGPClassifier(learner_tol=0.05).fit(X, codes)
    with pytest.raises(AttributeError, match=r"model.estimators_\[k\].kernels_"):
        three.kernels_  # noqa: B018
    assert all(len(own.learner_trace_) for own in three.estimators_)
    text = three.summary()
    assert "3 classes, softmax" in text
    assert text.count("lengthscale is in") == 3


def test_plots_of_its_functions():
    X, codes, _ = table(n_classes=3)
    two = AdditiveGPClassifier(learner_tol=0.05).fit(X, codes == 0)
    figure = plot_components(two)
    assert {ax.get_title() for ax in figure.axes} == {"a", "b"}
    assert figure.get_supylabel() == "effect on f (logit link)"
    assert plot_learning(two).axes
    three = kept().fit(X, codes)
    with pytest.raises(ParameterError, match=r"estimators_\[k\]"):
        plot_components(three)
    assert plot_components(three.estimators_[1]).axes
    with pytest.raises(ParameterError, match=r"estimators_\[k\]"):
        plot_learning(three)


def test_saved_models_predict_the_same_in_another_process(tmp_path):
    models = {}
    for n_classes in (2, 3):
        folder = tmp_path / str(n_classes)
        folder.mkdir()
        X, codes, _ = table(n_classes=n_classes)
        labels = np.array(["ä", "b", "c d"])[codes]
        model = models[n_classes] = AdditiveGPClassifier(
            terms=KEPT,
            class_weight={"b": 2.0},
            learner="marginal" if n_classes == 2 else None,
            learner_tol=0.05,
            link="probit" if n_classes == 2 else "logit",
        ).fit(X, labels)
        model.save(folder / "m.zarr")
        X.to_parquet(folder / "X.parquet")
    code = """
import dsgp, numpy as np, pandas as pd, sys
for folder in sys.argv[1:]:
    m = dsgp.load(folder + "/m.zarr")
    X = pd.read_parquet(folder + "/X.parquet")
    said = m.predict_proba(X), m.decision_function(X), m.components(X)["std"], m.predict(X)
    np.savez(folder + "/out.npz", *said)
"""
    folders = [str(tmp_path / str(n_classes)) for n_classes in models]
    subprocess.run([sys.executable, "-c", code, *folders], check=True)
    for n_classes, model in models.items():
        folder = tmp_path / str(n_classes)
        X = pd.read_parquet(folder / "X.parquet")
        ours = (
            model.predict_proba(X), model.decision_function(X), model.components(X)["std"],
            model.predict(X),
        )  # fmt: skip
        for one, other in zip(ours, np.load(folder / "out.npz").values(), strict=True):
            np.testing.assert_array_equal(one, other)
        loaded = dsgp.load(folder / "m.zarr")
        assert loaded.get_params() == model.get_params()
        assert loaded.summary() == model.summary()
        assert loaded.converged_ == model.converged_
        assert loaded.n_iter_ == model.n_iter_
        assert set(vars(loaded)) == set(vars(model))
        assert loaded.fit_seconds_ == model.fit_seconds_
        assert clone(loaded).get_params() == model.get_params()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A model that no test changes."""
    X, codes, _ = table(60, n_classes=3)
    path = tmp_path_factory.mktemp("store") / "m.zarr"
    kept().fit(X, np.array(["x", "y", "z"])[codes]).save(path)
    return path


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s["classes"].pop("labels"),
        lambda s: s["classes"].update(dtype="M8[ns]"),
        lambda s: s["classes"].update(dtype="nonsense"),
        lambda s: s["classes"]["labels"].append("more"),
        lambda s: s["models"].pop(),
        lambda s: s["models"][0].pop("terms"),
        lambda s: s["models"][0]["fitted"].update(_likelihood_settings={"name": "cauchy"}),
        lambda s: s.pop("n_rounds"),
        lambda s: s["parameters"].update(kernel={"type": "Evil"}),
        lambda s: s["parameters"].update(unknown=1),
    ],
)
def test_damaged_stores_are_refused(store, damage, monkeypatch):
    read = dsgp.storage.read

    def damaged(path, options):
        kind, settings, tree = read(path, options)
        settings = json.loads(json.dumps(settings))
        damage(settings)
        return kind, settings, tree

    monkeypatch.setattr("dsgp.storage.read", damaged)
    with pytest.raises(StorageError):
        dsgp.load(store)


def test_parameters_are_get_and_set():
    model = AdditiveGPClassifier(Matern52(), class_weight="balanced")
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(link="probit").link == "probit"
    with pytest.raises(NotFittedError):
        copy.predict([[0.0]])
    with pytest.raises(AttributeError, match="has no attribute 'terms_'"):
        copy.terms_  # noqa: B018


def test_fitting_again_forgets_the_first_fit():
    X, codes, _ = table(n_classes=3)
    model = AdditiveGPClassifier(Matern52(1.0, 1.0), learner=None).fit(X, codes)
    model.fit(X[["a"]].to_numpy(), codes == 1)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 1
    assert list(model.classes_) == [False, True]
    assert list(model.kernels_) == ["x0"]


def test_warnings_point_to_the_users_line():
    X, codes, _ = table()
    with pytest.warns(DataWarning, match="'flat'"):
        model = kept(kernel=Matern52(1.0, 1.0)).fit(X.assign(flat=1.0), codes)
    assert model.constant_columns_ == ["flat"]
    with pytest.warns(ConvergenceWarning, match="Newton's iteration stopped after 1") as caught:
        kept(newton_max_iter=1).fit(X, codes)
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.warns(ConvergenceWarning, match="learner_max_iter") as caught:
        AdditiveGPClassifier(learner_max_iter=1, learner_tol=1e-9).fit(X, codes)
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_only_constant_columns_give_the_shares(n_classes):
    codes = np.arange(60) % (2 * n_classes) // 2
    codes[:12] = 0
    with pytest.warns(DataWarning):
        model = AdditiveGPClassifier().fit(np.ones((60, 2)), codes)
    p = model.predict_proba([[1.0, 1.0]])[0]
    np.testing.assert_allclose(p, np.bincount(codes) / 60, atol=0.02)


def test_missing_inputs_add_nothing():
    X, codes, _ = table(n_classes=3)
    X.iloc[5, 0] = np.nan
    with pytest.raises(DataError, match=r"'a' contains NaN .* row 5"):
        kept().fit(X, codes)
    model = kept(missing="ignore").fit(X, codes)
    assert model.estimators_[0].n_missing_ == {"a": 1}
    X.iloc[7] = np.nan
    assert np.isfinite(model.predict_proba(X)).all()


def test_where_one_class_is_absent_probabilities_stay_sane():
    random = np.random.default_rng(0)
    X = random.normal(size=(5000, 2))
    y = (X[:, 0] > 1) & (random.random(5000) < 0.5)
    model = AdditiveGPClassifier().fit(X, y)
    probability = model.predict_proba(X)[:, 1]
    assert probability.sum() == pytest.approx(y.sum(), rel=0.05)
    assert probability[X[:, 0] < 0.5].mean() < 0.01
    assert model.converged_


def test_a_softmax_has_the_logit_link():
    X = np.random.default_rng(0).normal(size=(90, 2))
    with pytest.raises(ParameterError, match="multi_class='ovr'"):
        AdditiveGPClassifier(link="probit").fit(X, np.arange(90) % 3)
