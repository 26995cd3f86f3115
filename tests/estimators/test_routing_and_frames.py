"""Models as steps of scikit-learn, and answers as tables of the caller's library."""

import dask.dataframe as dd
import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
import xarray as xr
from sklearn.compose import ColumnTransformer
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP, SmoothingSpline
from dsgp.cli.outputs import Outputs, outputs_of
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern52
from dsgp.rows.sources import frame_like

QUICK = {"learner_tol": 1.0}


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.uniform(0, 3, n), "z": rng.uniform(0, 1, n)})
    X["town"] = rng.choice(["Aix", "Bern"], n)
    X.index = pd.Index([f"r{i:02}" for i in range(n)], name="who")
    f = np.sin(2 * X["x"]) + (X["town"] == "Bern")
    return X, f, rng


@pytest.fixture(scope="module")
def fitted():
    X, f, rng = table()
    y = f + 0.1 * rng.standard_normal(len(X))
    return AdditiveGPRegressor(**QUICK).fit(X, y), X, y


@pytest.fixture(scope="module")
def classes():
    X, f, _ = table()
    y = np.array(["a", "b", "c"])[np.digitize(f, [0.0, 1.0])]
    return AdditiveGPClassifier(**QUICK).fit(X, y), X, y


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# ---- steps of scikit-learn


def test_exposures_and_weights_are_cut_by_fold(routing):
    X, f, rng = table()
    exposure = rng.uniform(1, 5, len(X))
    weight = rng.uniform(0.5, 2, len(X))
    y = rng.poisson(exposure * np.exp(f))
    model = GeneralizedAdditiveGP("poisson", **QUICK)
    model.set_fit_request(exposure=True, sample_weight=True)
    model.set_score_request(exposure=True, sample_weight=True)
    beside = {"exposure": exposure, "sample_weight": weight}
    folds = KFold(2)
    scores = cross_validate(model, X, y, params=beside, cv=folds)["test_score"]
    for score, (train, test) in zip(scores, folds.split(X), strict=True):
        here = GeneralizedAdditiveGP("poisson", **QUICK).fit(
            X.iloc[train], y[train], weight[train], exposure=exposure[train]
        )
        expected = here.score(X.iloc[test], y[test], weight[test], exposure=exposure[test])
        assert score == pytest.approx(expected, rel=1e-9)


def test_a_search_over_a_pipeline_routes_to_its_last_step(routing):
    X, f, rng = table()
    exposure = rng.uniform(1, 5, len(X))
    y = rng.poisson(exposure * np.exp(f))
    model = GeneralizedAdditiveGP("poisson", **QUICK)
    model.set_fit_request(exposure=True).set_score_request(exposure=True)
    scaled = ColumnTransformer(
        [("numbers", StandardScaler(), ["x", "z"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="polars")
    steps = Pipeline([("columns", scaled), ("model", model)])
    search = GridSearchCV(steps, {"model__terms": [None, {"x": "Linear"}]}, cv=2)
    search.fit(pl.from_pandas(X), y, exposure=exposure)
    assert search.best_params_["model__terms"] is None  # a sine is no line
    assert search.best_estimator_[-1].feature_names_in_.tolist() == ["x", "z", "town"]


def test_a_notebook_shows_terms_and_kernels(fitted):
    shown = AdditiveGPRegressor(terms={"x": "Linear"})._repr_html_()
    assert "AdditiveGPRegressor" in shown
    assert "Linear" in shown
    assert "fitted" in fitted[0]._repr_html_()


# ---- scores by name


def test_scores_take_names_of_columns(fitted, classes, tmp_path):
    model, X, y = fitted
    weight = np.linspace(0.5, 2, len(X))
    whole = X.assign(y=y, w=weight)
    expected = r2_score(y, model.predict(X), sample_weight=weight)
    whole.to_csv(tmp_path / "rows.csv")
    for form in (whole, pl.from_pandas(whole), dd.from_pandas(whole, 2), tmp_path / "rows.csv"):
        assert model.score(form, "y", "w") == pytest.approx(expected, rel=1e-9)
    assert model.score(X, y, weight) == pytest.approx(expected, rel=1e-9)

    model, X, labels = classes
    whole = X.assign(label=labels, w=weight)
    expected = accuracy_score(labels, model.predict(X), sample_weight=weight)
    whole.to_csv(tmp_path / "labels.csv")
    for form in (whole, pl.from_pandas(whole), dd.from_pandas(whole, 2), tmp_path / "labels.csv"):
        assert model.score(form, "label", "w") == pytest.approx(expected)
    with pytest.raises(DataError, match="nothing"):
        model.score(whole, "nothing")


# ---- tables of the caller's library

FORMS = {
    "pandas": (lambda X: X, pd.DataFrame),
    "polars": (pl.from_pandas, pl.DataFrame),
    "lazy polars": (lambda X: pl.from_pandas(X).lazy(), pl.LazyFrame),
    "arrow": (lambda X: pa.Table.from_pandas(X, preserve_index=False), pa.Table),
    "batch": (lambda X: pa.RecordBatch.from_pandas(X, preserve_index=False), pa.Table),
    "relation": (lambda X: duckdb.from_arrow(pa.Table.from_pandas(X)), pa.Table),
    "dask": (lambda X: dd.from_pandas(X, npartitions=3), dd.DataFrame),
    "mapping": (lambda X: {name: X[name].to_numpy() for name in X}, pd.DataFrame),
    "dataset": (lambda X: X.to_xarray(), pd.DataFrame),
}


def numbers_of(frame):
    """Columns and numbers of a table of any library."""
    if isinstance(frame, dd.DataFrame):
        frame = frame.compute()
    frame = nw.from_native(frame)
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return frame.columns, np.column_stack([frame[name].to_numpy() for name in frame.columns])


@pytest.mark.parametrize("form", FORMS)
def test_answers_are_tables_of_the_callers_library(fitted, form):
    model, X, _ = fitted
    convert, kind = FORMS[form]
    given = convert(X)
    parts = model.explain(X)
    names = parts["term"].to_numpy()
    explained = model.explain(given, as_frame=True)
    components = model.components(given, as_frame=True)
    interval = model.predict_interval(given, 0.8, include_noise=True, as_frame=True)
    assert all(isinstance(table, kind) for table in (explained, components, interval))
    columns, numbers = numbers_of(explained)
    assert list(columns) == [
        "prediction",
        *(f"contribution_{name}" for name in names),
        *(f"std_{name}" for name in names),
    ]
    np.testing.assert_allclose(numbers[:, 0], parts["prediction"], rtol=1e-9)
    np.testing.assert_allclose(numbers[:, 1:4], parts["contribution"], atol=1e-9)
    np.testing.assert_allclose(numbers[:, 4:], parts["std"], rtol=1e-9)
    np.testing.assert_allclose(
        numbers[:, 0], model.intercept_ + numbers[:, 1:4].sum(axis=1), rtol=1e-9
    )
    assert numbers_of(components)[0][0] == f"mean_{model.terms_[0].name}"
    lower, upper = model.predict_interval(X, 0.8, include_noise=True)
    np.testing.assert_allclose(numbers_of(interval)[1], np.stack([lower, upper], 1), rtol=1e-9)
    if form in ("pandas", "dask", "dataset"):
        index = interval.compute().index if form == "dask" else interval.index
        assert index.tolist() == X.index.tolist()
        assert index.name == "who"


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_tables_of_the_callers_library(fitted, form):
    model, X, _ = fitted
    convert, kind = FORMS[form]
    given = convert(X)
    for method, options, names in (
        ("predict", {}, ["mean"]),
        ("predict", {"return_std": True, "statistic": "median"}, ["median", "std"]),
        ("predict_latent", {"return_std": True}, ["latent", "std"]),
        ("predict_quantiles", {"quantiles": [0.1, 0.5]}, ["quantile_0.1", "quantile_0.5"]),
    ):
        table = getattr(model, method)(given, **options, as_frame=True)
        assert isinstance(table, kind)
        columns, numbers = numbers_of(table)
        assert list(columns) == names
        expected = np.array(getattr(model, method)(X, **options))
        expected = expected if method == "predict_quantiles" else expected.reshape(len(names), -1).T
        np.testing.assert_allclose(numbers, expected, rtol=1e-9)
        if form == "pandas":
            assert table.index.equals(X.index)


def test_predictions_of_counts_and_classes_are_tables(classes):
    model, X, _ = classes
    table = model.predict(X, as_frame=True)
    assert table.index.equals(X.index)
    assert table["predicted"].tolist() == model.predict(X).tolist()
    lazy = model.predict(dd.from_pandas(X, npartitions=3), as_frame=True)
    assert isinstance(lazy, dd.DataFrame)
    assert lazy.compute().index.tolist() == X.index.tolist()
    assert lazy.compute()["predicted"].tolist() == table["predicted"].tolist()
    for form in ("polars", "arrow"):
        convert, kind = FORMS[form]
        given = model.predict(convert(X), as_frame=True)
        assert isinstance(given, kind)
        assert list(numbers_of(given)[1][:, 0]) == table["predicted"].tolist()

    rng = np.random.default_rng(0)
    exposure = rng.uniform(1, 5, len(X))
    counts = GeneralizedAdditiveGP("poisson", **QUICK).fit(
        X, rng.poisson(exposure), exposure=exposure
    )
    beside = {"exposure": exposure, "include_noise": True}
    table = counts.predict(pl.from_pandas(X), return_std=True, **beside, as_frame=True)
    expected = counts.predict(X, return_std=True, **beside)
    assert table.columns == ["mean", "std"]
    np.testing.assert_array_equal(table.to_numpy().T, expected)
    table = counts.predict_quantiles(X, 0.9, **beside, as_frame=True)
    assert table.columns.tolist() == ["quantile_0.9"]
    np.testing.assert_array_equal(table, counts.predict_quantiles(X, 0.9, **beside))


def test_tables_of_classes_and_of_a_spline(classes):
    model, X, _ = classes
    table = model.predict_proba(X, as_frame=True)
    assert table.columns.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(table, model.predict_proba(X))
    parts = model.explain(X)
    explained = model.explain(X, as_frame=True)
    assert explained.index.equals(X.index)
    for label in "abc":
        expected = parts["contribution"].sel({"class": label, "term": "town"})
        np.testing.assert_allclose(explained[f"contribution_town_{label}"], expected, atol=1e-9)
    components = model.components(pl.from_pandas(X), as_frame=True)
    assert {"mean_x_a", "std_x_c"} <= set(components.columns)

    spline = SmoothingSpline().fit(X["x"], np.sin(X["x"]) + 0.1 * np.cos(50 * X["x"]))
    table = spline.predict_interval(X["x"], as_frame=True)
    assert table.index.equals(X.index)
    np.testing.assert_array_equal(table.to_numpy().T, spline.predict_interval(X["x"]))
    for options in ({}, {"include_noise": True}, {"derivative": 1}):
        table = spline.predict(X[["x"]], return_std=True, **options, as_frame=True)
        assert table.index.equals(X.index)
        expected = spline.predict(X[["x"]], return_std=True, **options)
        np.testing.assert_array_equal(table[["mean", "std"]].to_numpy().T, expected)
    assert spline.predict(pl.from_pandas(X), as_frame=True).columns == ["mean"]


def test_objects_of_xarray_give_frames_of_pandas_with_their_labels():
    labels = pd.Index(list("abcd"), name="row")
    rows = xr.DataArray(np.zeros((4, 2)), {"row": labels}, ("row", "column"))
    table = frame_like(rows, ["mean", "std"], np.zeros((4, 2)))
    assert isinstance(table, pd.DataFrame)
    assert table.index.equals(labels)
    # A scalar variable in front has no rows.
    whole = xr.Dataset({"depth": 5.0, "x": rows[:, 0], "y": rows[:, 1]})
    assert frame_like(whole, ["mean"], np.zeros((4, 1))).index.equals(labels)
    without = xr.Dataset({"x": ("row", np.zeros(4))})
    assert frame_like(without, ["mean"], np.zeros((4, 1))).index.equals(pd.RangeIndex(4))


def test_quantiles_that_are_near_have_names_of_their_own():
    X = pd.DataFrame({"x": np.linspace(0, 1, 20)})
    kept = AdditiveGPRegressor(Matern52(1.0, 1.0), learner=None, noise_variance=1.0)
    model = kept.fit(X, np.sin(X["x"]))
    near = model.predict_quantiles(X, [0.1234567, 0.12345671, 0.975], as_frame=True)
    assert list(near) == ["quantile_0.1234567", "quantile_0.12345671", "quantile_0.975"]
    of_command = outputs_of(model, None, (), quantiles=[0.1234567, 0.12345671])
    assert of_command.names[4:] == tuple(near)[:2]
    with pytest.raises(DataError, match="name each quantile once"):
        model.predict_quantiles(X, [0.5, 0.5], as_frame=True)


def test_columns_of_one_name_are_refused():
    with pytest.raises(ParameterError, match="would be named 'std_a_b_c'"):
        Outputs(("std_a_b_c", "x", "std_a_b_c"), lambda rows, further: [])
    with pytest.raises(DataError, match=r"'a'.* rename"):
        frame_like(np.zeros((2, 1)), ["a", "a"], np.zeros((2, 2)))
