"""Levels, dates and named columns stay additive beside projections of the other columns."""

import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dsgp import (
    AdditiveGPRegressor,
    Levels,
    ProjectionPursuitGPRegressor,
    Smooth,
    load,
)
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError
from dsgp.estimators import GeneralizedPursuitGP, ProjectionPursuitGPClassifier
from dsgp.kernels import Matern52, Periodic

TOWNS = ["Aix", "Bern", "Cork", "Derby", "Elche", "Fano"]
EFFECTS = np.array([0.9, -0.7, 0.3, -1.1, 0.1, 0.5])
START = pd.Timestamp("2020-01-01")


def table(n=900, seed=0, noise=0.1):
    """Rows whose level moves an input too, so that neither part can be fitted alone."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, len(TOWNS), n)
    a, b, c = rng.uniform(-1, 1, (3, n))
    a = a + 0.4 * EFFECTS[town]
    days = rng.integers(0, 400, n)
    X = pd.DataFrame(
        {
            "a": a,
            "town": np.array(TOWNS)[town],
            "b": b,
            "day": START + pd.to_timedelta(days, unit="D"),
            "c": c,
        }
    )
    f = 2 * a * b + EFFECTS[town] + 0.5 * np.sin(days / 60)
    return X, f, f + noise * rng.standard_normal(n)


def quick(**options):
    return ProjectionPursuitGPRegressor(
        **({"n_projections": 2, "n_starts": 3, "random_state": 0} | options)
    )


@pytest.fixture(scope="module")
def fitted():
    X, _, y = table()
    return quick().fit(X, y)


def test_it_knows_the_product_and_the_levels(fitted):
    X, f, _ = table(400, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.05
    assert 0.85 < np.mean(np.abs(mean - f) < 1.96 * std) <= 1.0
    assert fitted.n_projections_ == 2
    assert [term.name for term in fitted.terms_[2:]] == ["town", "day"]
    assert fitted.relevance_.index.tolist() == ["a", "b", "c"]
    assert fitted.projections_.columns.tolist() == ["a", "b", "c"]
    assert fitted.noise_variance_ == pytest.approx(0.01, rel=0.25)


def test_levels_are_not_confounded_with_the_inputs_that_they_move(fitted):
    each = pd.DataFrame({"town": TOWNS}).assign(a=0.0, b=0.0, c=0.0, day=START)
    effect = fitted.components(each)["mean"].sel(term="town").to_numpy()
    np.testing.assert_allclose(effect - effect.mean(), EFFECTS - EFFECTS.mean(), atol=0.06)


def test_given_the_directions_it_is_an_additive_model_in_projections_and_columns(fitted):
    X, _, y = table()
    inputs = X[["a", "b", "c"]].to_numpy()
    standard = (inputs - fitted.model_.latent.projections.centre) / (
        fitted.model_.latent.projections.scale
    )
    along = standard @ fitted.projections_.to_numpy().T
    table_of = pd.DataFrame(along, columns=["p", "q"]).assign(town=X["town"], day=X["day"])
    kernels = list(fitted.kernels_.values())
    additive = AdditiveGPRegressor(
        terms=[
            Smooth("p", kernels[0]),
            Smooth("q", kernels[1]),
            Levels("town", variance=kernels[2].std ** 2),
            Smooth("day", kernels[3]),
        ],
        noise_variance=fitted.noise_variance_,
        learner=None,
    ).fit(table_of, y)
    given = pickle.loads(pickle.dumps(fitted)).set_params(direction_uncertainty=False)
    for one, other in zip(
        given.predict(X, return_std=True), additive.predict(table_of, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    assert additive.log_marginal_likelihood_ == pytest.approx(
        fitted.log_marginal_likelihood_, abs=0.05
    )


def test_draws_and_covariances_agree_with_the_standard_deviations(fitted):
    X, _, _ = table(30, seed=2)
    std = fitted.predict(X, return_std=True)[1]
    covariance = fitted.covariance(X)
    inside = np.sqrt(np.diag(covariance))
    assert np.median(np.abs(inside / std - 1)) < 0.02
    drawn = fitted.sample(X, 600, random_state=1)
    assert np.median(np.abs(drawn.std(axis=0) / inside - 1)) < 0.1


def test_stores_lazy_tables_and_columns_in_another_order_answer_the_same(fitted, tmp_path):
    X, _, _ = table(120, seed=3)
    expected = fitted.predict(X)
    fitted.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(load(tmp_path / "m.zarr").predict(X), expected)
    np.testing.assert_array_equal(fitted.predict(X[X.columns[::-1]]), expected)
    lazy = fitted.predict(dd.from_pandas(X, npartitions=3))
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    assert "other terms: 2" in load(tmp_path / "m.zarr").summary()


def test_columns_that_terms_name_are_not_projected():
    X, _, y = table()
    X = X.assign(month=X["day"].dt.month.astype(float)).drop(columns="day")
    model = quick(terms={"c": Matern52(), "month": Smooth(kernel=Periodic(12.0))}).fit(X, y)
    assert model.projections_.columns.tolist() == ["a", "b"]
    assert sorted(term.name for term in model.terms_[2:]) == ["c", "month (season)", "town"]
    listed = quick(terms=[Smooth("c"), Levels("town")]).fit(X.drop(columns="month"), y)
    assert listed.projections_.columns.tolist() == ["a", "b"]
    assert [term.name for term in listed.terms_[2:]] == ["c", "town"]


def test_rows_that_stream_give_nearly_the_same_model(fitted, monkeypatch, tmp_path):
    X, _, y = table()
    path = tmp_path / "table.parquet"
    X.assign(y=y).to_parquet(path)
    monkeypatch.setattr("dsgp.pursuit.levels.KEPT_BYTES", 0.0)
    streamed = quick().fit(str(path), "y")
    rows, f, _ = table(300, seed=4)
    np.testing.assert_allclose(streamed.predict(rows), fitted.predict(rows), atol=0.12)
    assert np.sqrt(np.mean((streamed.predict(rows) - f) ** 2)) < 0.06


def test_counts_and_classes_take_levels_too():
    X, f, _ = table(1200)
    rng = np.random.default_rng(5)
    counts = rng.poisson(np.exp(1 + 0.7 * f))
    options = {"n_projections": 2, "n_starts": 3, "random_state": 0}
    model = GeneralizedPursuitGP("poisson", **options).fit(X, counts)
    new, g, _ = table(300, seed=6)
    latent = model.predict_latent(new)
    assert np.sqrt(np.mean((latent - 1 - 0.7 * g) ** 2)) < 0.2
    assert [term.name for term in model.terms_[2:]] == ["town", "day"]
    labels = np.where(f + 0.3 * rng.logistic(size=len(f)) > 0, "yes", "no")
    classifier = ProjectionPursuitGPClassifier(**options).fit(X, labels)
    right = np.mean(classifier.predict(new) == np.where(g > 0, "yes", "no"))
    assert right > 0.85
    assert np.allclose(classifier.predict_proba(new).sum(axis=1), 1)


def test_an_offset_counts_beside_the_terms():
    X, f, _ = table(1200)
    rng = np.random.default_rng(7)
    exposure = rng.uniform(0.5, 4, len(X))
    counts = rng.poisson(exposure * np.exp(1 + 0.7 * f))
    model = GeneralizedPursuitGP("poisson", n_projections=2, n_starts=3, random_state=0)
    latent = model.fit(X, counts, exposure=exposure).predict_latent(X)
    assert np.sqrt(np.mean((latent - 1 - 0.7 * f) ** 2)) < 0.2


def test_what_cannot_be_is_said():
    X, _, y = table(60)
    with pytest.raises(ParameterError, match=r"gibbs.*'town' is a term beside"):
        quick(method="gibbs").fit(X, y)
    with pytest.raises(DataError, match="no column of numbers is left to project"):
        quick().fit(X[["town", "day"]], y)
    with pytest.raises(ParameterError, match="terms names"):
        quick(terms={"colour": Levels()}).fit(X, y)
    with pytest.raises(DataError, match="is the name of a projection"):
        quick().fit(X.rename(columns={"town": "projection 1"}), y)


def test_a_level_that_no_training_row_had_is_reported(fitted):
    X, _, _ = table(20, seed=8)
    with pytest.warns(DataWarning, match="'town': 1 of 20 rows"):
        fitted.predict(X.assign(town=["Graz", *X["town"][1:]]))


def test_terms_that_do_not_settle_are_reported(monkeypatch):
    monkeypatch.setattr("dsgp.models.pursuit.gaussian.ROUNDS", 1)
    monkeypatch.setattr("dsgp.models.pursuit.beside._UNSETTLED", 0.0)
    X, _, y = table(300)
    with pytest.warns(ConvergenceWarning, match="beside the projections still moved"):
        quick().fit(X, y)


def test_terms_without_a_projection_are_a_model_too(tmp_path):
    """Where the numbers say nothing, the terms stay."""
    rng = np.random.default_rng(11)
    X = pd.DataFrame({"c": rng.standard_normal(400), "town": rng.choice(["x", "y"], 400)})
    f = (X["town"] == "y").to_numpy(float)
    model = ProjectionPursuitGPRegressor(random_state=0)
    with pytest.warns(DataWarning, match="no projection was found"):
        model.fit(X, f + 0.1 * rng.standard_normal(400))
    assert model.n_projections_ == 0
    model.save(tmp_path / "m.zarr")
    mean, std = load(tmp_path / "m.zarr").predict(X, return_std=True)
    np.testing.assert_allclose(mean, f, atol=0.05)
    assert (std < 0.05).all()
    assert "projections: 0, other terms: 1" in model.summary()
    counts = rng.poisson(np.exp(f))
    with pytest.warns(DataWarning, match="no projection was found"):
        counted = GeneralizedPursuitGP("poisson", random_state=0).fit(X, counts)
    assert np.abs(counted.predict_latent(X) - f).max() < 0.4


def test_a_column_that_only_groups_keeps_its_effect():
    X, _, y = table()
    model = quick(terms={"c": Smooth(by="town")}).fit(X, y)
    assert [term.name for term in model.terms_[2:]] == ["c by town", "town", "day"]
    assert "const" not in quick().fit(X.assign(const="k"), y).relevance_
