"""Every kind of term in a fitted model, against dense algebra on the rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import cho_factor, cho_solve

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Levels,
    Linear,
    Smooth,
    compare_models,
    load,
)
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic, SquaredExponential

NOISE = 0.05


def table(n=120, seed=0):
    """Rows with ties, categories, dates and groups."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": np.round(rng.uniform(0, 3, n), 1),
            "dose": rng.uniform(-1, 2, n),
            "town": rng.choice(["Aix", "Bern", "Cork", "Dax"], n, p=[0.5, 0.3, 0.18, 0.02]),
            "id": rng.integers(0, 40, n).astype(float),
            "day": pd.Timestamp("2003-11-30") + pd.to_timedelta(rng.integers(0, 800, n), "D"),
        }
    )


def target(X, seed=1):
    effect = X["town"].map({"Aix": 0.0, "Bern": 1.0, "Cork": -1.0, "Dax": 2.0, "Ely": 0.0})
    wave = np.sin(2 * np.pi * X["day"].dt.day_of_year / 365)
    noise = np.random.default_rng(seed).standard_normal(len(X))
    return np.sin(2 * X["x"]) + effect + wave + X["dose"] * X["x"] + 0.2 * noise


SETS = {
    "levels": [Smooth("x", Matern52(0.7, 1.0)), Levels("town", variance=0.8)],
    "crossed": [Levels("town", variance=0.8), Levels("id", variance=0.3)],
    "curves": [
        Smooth("x", Matern32(0.7, 1.0)),
        Smooth("x", Matern32(0.5, 0.4), by="town"),
        Levels("town", variance=0.8),
    ],
    "varying": [Smooth("x", Matern52(0.7, 1.0), by="dose"), Smooth("x", Matern12(1.0, 0.5))],
    "slopes": [Levels("town", by="dose", variance=0.5), Levels("town", variance=0.8)],
    "lines": [Linear("x", variance=0.5), Linear("day", variance=0.1), Levels("town", variance=1.0)],
    "dates": [
        Smooth("day", Matern52(200.0, 1.0)),
        Smooth("day", Periodic("year", 40.0, 1.0)),
        Levels("day", part="weekday", variance=0.1),
    ],
    "dense": [
        Smooth("x", SquaredExponential(0.6, 1.0) + Matern12(0.1, 0.05)),
        Smooth("dose", SquaredExponential(0.6, 1.0), by="town"),
    ],
}


class Dense:
    """The posterior by the covariance matrix of all rows, the constant flat."""

    def __init__(self, model, X, y, weight):
        self.model, self.X = model, X
        rows = model._rows_of(X)
        inputs = model.model_.latent.inputs(next(iter(rows))().columns)
        self.inputs = inputs
        keep = weight > 0
        self.keep, self.y = keep, y[keep]
        prior = self.prior(inputs, inputs)[np.ix_(keep, keep)]
        self.factor = cho_factor(prior + np.diag(model.noise_variance_ / weight[keep]), lower=True)
        ones = np.ones(keep.sum())
        self.ones = cho_solve(self.factor, ones)
        self.precision = ones @ self.ones
        self.constant = self.ones @ self.y / self.precision
        self.dual = cho_solve(self.factor, self.y - self.constant)

    def prior(self, a, b):
        total = np.zeros((len(a[0]), len(b[0])))
        for term, x, z in zip(self.model.terms_, a, b, strict=True):
            seen, also = ~term.cells.is_missing(x), ~term.cells.is_missing(z)
            total[np.ix_(seen, also)] += term.cells.prior(term.kernel, x[seen], z[also])
        return total

    def predict(self, Z):
        new = self.model.model_.latent.inputs(next(iter(self.model._rows_of(Z)))().columns)
        cross = self.prior(new, self.inputs)[:, self.keep]
        mean = self.constant + cross @ self.dual
        solved = cho_solve(self.factor, cross.T)
        covariance = self.prior(new, new) - cross @ solved
        left = 1 - cross @ self.ones
        return mean, covariance + np.outer(left, left) / self.precision

    @property
    def log_likelihood(self):
        n = len(self.y)
        log_det = 2 * np.log(np.diag(self.factor[0])).sum()
        quadratic = (self.y - self.constant) @ self.dual
        return -0.5 * (n * np.log(2 * np.pi) + log_det + quadratic)


def fitted(terms, X, y, weight=None, **options):
    given = {"learner": None, "noise_variance": NOISE, "tol": 1e-10, "bins": None} | options
    return AdditiveGPRegressor(terms=terms, **given).fit(X, y, weight)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_dense_posterior(name, weighted):
    X = table()
    y = target(X).to_numpy()
    weight = np.random.default_rng(2).uniform(0.3, 3.0, len(X)) if weighted else np.ones(len(X))
    if weighted:
        weight[:5] = 0.0
    model = fitted(SETS[name], X, y, weight)
    dense = Dense(model, X, y, weight)
    Z = table(12, seed=9)
    Z.loc[0, "town"], Z.loc[1, "id"] = "Ely", 99.0  # never seen
    Z.loc[2, ["x", "dose"]] = [-2.0, 5.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        mean, std = model.predict(Z, return_std=True)
        expected, covariance = dense.predict(Z)
        found = model.covariance(Z)
        draws = model.sample(Z, 4000, random_state=0)
    np.testing.assert_allclose(mean, expected, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance)), rtol=1e-6)
    np.testing.assert_allclose(found, covariance, atol=1e-5 * np.diag(covariance).max())
    spread = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(axis=0) - expected) / spread).max() < 0.1
    assert np.abs(draws.std(axis=0) / spread - 1).max() < 0.1


@pytest.mark.parametrize("name", SETS)
def test_components_add_up_and_are_centred(name):
    X = table()
    y = target(X).to_numpy()
    model = fitted(SETS[name], X, y)
    parts = model.components(X)
    total = parts["intercept"].item() + parts["mean"].sum("term").values
    np.testing.assert_allclose(total, model.predict(X), atol=1e-10)
    np.testing.assert_allclose(parts["mean"].mean("row"), 0.0, atol=1e-9)
    assert (parts["std"] > 0).any()
    dense = Dense(model, X, y, np.ones(len(X)))
    # Of a centred component: the covariance of what rows get of it, minus its mean.
    middle = np.eye(len(X)) - 1 / len(X)
    for d, term in enumerate(model.terms_):
        own = term.cells.prior(term.kernel, dense.inputs[d], dense.inputs[d])
        left = own @ dense.ones
        covariance = own - own @ cho_solve(dense.factor, own)
        covariance = middle @ covariance @ middle
        moved = middle @ left
        expected = np.diag(covariance) + moved**2 / dense.precision
        np.testing.assert_allclose(parts["std"][:, d] ** 2, expected, atol=1e-7)


@pytest.mark.parametrize("name", SETS)
def test_the_marginal_likelihood_of_few_terms_is_about_the_dense_one(name):
    X = table()
    y = target(X).to_numpy()
    model = fitted(SETS[name], X, y)
    expected = Dense(model, X, y, np.ones(len(X))).log_likelihood
    assert model.log_marginal_likelihood_ == pytest.approx(expected, abs=2.0)


@pytest.mark.parametrize("name", SETS)
def test_bins_and_blocks_give_what_every_value_gives(name, tmp_path):
    X = table(400)
    y = target(X)
    exact = fitted(SETS[name], X, y)
    Z = table(30, seed=4)
    mean, std = exact.predict(Z, return_std=True)
    frame = X.assign(y=y)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        model = AdditiveGPRegressor(
            terms=SETS[name], learner=None, noise_variance=NOISE, tol=1e-8, bins=512
        ).fit(path, "y")
        found = model.predict(Z, return_std=True)
        np.testing.assert_allclose(found[0], mean, atol=2e-3)
        np.testing.assert_allclose(found[1], std, rtol=0.03)
        again = model.predict(path)  # its own rows, from the file
        np.testing.assert_allclose(again, model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("name", SETS)
def test_stores_answer_the_same_bits(name, tmp_path):
    X = table()
    model = fitted(SETS[name], X, target(X), bins=32)
    model.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    Z = table(9, seed=3)
    for one, other in zip(
        model.predict(Z, return_std=True), again.predict(Z, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert again.get_params()["terms"] == SETS[name]
    assert [term.bound for term in again.terms_] == [term.bound for term in model.terms_]


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli"])
@pytest.mark.parametrize("name", ["levels", "curves", "varying", "lines", "dates", "dense"])
def test_generalized_models_find_the_mode(likelihood, name):
    X = table(150)
    f = 0.4 * target(X)
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(f)) if likelihood == "poisson" else (f > 0.3).astype(int)
    given = {"learner": None, "bins": None, "tol": 1e-9}
    model = GeneralizedAdditiveGP(likelihood, terms=SETS[name], **given).fit(X, y)
    inputs = model.model_.latent.inputs(next(iter(model._rows_of(X)))().columns)
    prior = sum(
        term.cells.prior(term.kernel, x, x) for term, x in zip(model.terms_, inputs, strict=True)
    )
    f, gradient = model.predict_latent(X), None
    gradient, _, _ = model.likelihood_.derivatives(np.asarray(y, float), f, None)
    # At the mode f − μ = K ∇ log p(y | f), and the constant has no slope.
    assert abs(gradient.sum()) < 1e-5
    np.testing.assert_allclose(
        f - f.mean(), prior @ gradient - (prior @ gradient).mean(), atol=1e-5
    )


def test_learning_finds_the_variances_of_levels():
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 300, 6000), rng.integers(0, 80, 6000)
    y = 0.8 * rng.standard_normal(300)[i] + 0.4 * rng.standard_normal(80)[j]
    y = y + 0.5 * rng.standard_normal(6000)
    X = pd.DataFrame({"i": i, "j": j})
    model = AdditiveGPRegressor(terms=["i: Levels", "j: Levels"]).fit(X, y)
    assert model.kernels_["i"].std == pytest.approx(0.8, rel=0.1)
    assert model.kernels_["j"].std == pytest.approx(0.4, rel=0.2)
    assert model.noise_variance_ == pytest.approx(0.25, rel=0.05)
    # The likelihood, with the determinant of 380 effects.
    dense = Dense(model, X.iloc[:1500], y[:1500], np.ones(1500))
    part = AdditiveGPRegressor(
        terms=[
            Levels("i", variance=model.kernels_["i"].variance),
            Levels("j", variance=model.kernels_["j"].variance),
        ],
        learner=None,
        noise_variance=model.noise_variance_,
    ).fit(X.iloc[:1500], y[:1500])
    assert part.log_marginal_likelihood_ == pytest.approx(dense.log_likelihood, abs=1.0)


def test_defaults_follow_the_types_of_columns():
    X = table(200)
    X["flag"], X["whole"] = X["x"] > 1, (X["dose"] * 10).astype(int)
    X["grade"] = pd.Categorical(X["town"].str[0], ordered=True)
    model = AdditiveGPRegressor().fit(X, target(X))
    kinds = {term.name: term.bound.kind for term in model.terms_}
    assert kinds == {
        "x": "Smooth",
        "dose": "Smooth",
        "town": "Levels",
        "id": "Smooth",
        "day": "Smooth",
        "flag": "Levels",
        "whole": "Smooth",
        "grade": "Levels",
    }
    assert "Levels" in model.summary()


def test_classes_of_a_table_with_categories():
    X = table(300)
    y = np.where(target(X) > 0.5, "high", "low")
    model = AdditiveGPClassifier().fit(X, y)
    assert model.score(X, y) > 0.85
    three = np.where(target(X) > 1.2, "top", y)
    several = AdditiveGPClassifier().fit(X, three)
    assert several.score(X, three) > 0.75
    assert several.predict_proba(X.iloc[:4]).shape == (4, 3)


@pytest.mark.parametrize("name", ["levels", "curves", "slopes", "lines"])
def test_draws_of_terms_have_the_moments_of_components(name):
    X = table()
    model = fitted(SETS[name], X, target(X))
    Z = table(15, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        draws = model.sample_components(Z, 4000, random_state=1)
        parts = model.components(Z)
    scale = parts["std"].values
    assert draws.dims == ("sample", "row", "term")
    assert np.abs((draws.mean("sample") - parts["mean"]) / scale).max() < 0.08
    assert np.abs(draws.std("sample") / scale - 1).max() < 0.08
    again = model.sample_components(Z, 2, random_state=1)
    np.testing.assert_array_equal(again.shape, (2, 15, len(model.terms_)))


@pytest.mark.parametrize("transform", [None, "log"])
def test_leaving_rows_out_is_what_fits_without_them_say(transform):
    X = table(40)
    y = np.exp(0.3 * target(X).to_numpy())
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 40)
    options = {"target_transform": transform}
    model = fitted(SETS["levels"], X, y, weight, **options)
    found = model.leave_one_out(X, y, weight)
    for i in (0, 7, 39):
        rest = np.delete(np.arange(40), i)
        other = fitted(SETS["levels"], X.iloc[rest], y[rest], weight[rest], **options)
        f, std = other.predict_latent(X.iloc[[i]], return_std=True)
        variance = std**2 + NOISE / weight[i]
        value = y[i] if transform is None else np.log(y[i])
        expected = -0.5 * ((value - f) ** 2 / variance + np.log(2 * np.pi * variance))
        expected -= 0.0 if transform is None else np.log(y[i])
        assert found[i] == pytest.approx(expected[0], abs=1e-6)
    with pytest.raises(DataError, match="rows that the model was fitted to"):
        model.leave_one_out(X.assign(x=50.0), y, 100 * weight)


def test_models_of_the_same_rows_compare():
    X = table(300)
    y = target(X)
    models = {
        "all": AdditiveGPRegressor().fit(X, y),
        "no towns": AdditiveGPRegressor().fit(X.drop(columns="town"), y),
    }
    compared = compare_models(models, X, y)
    assert compared.index.tolist() == ["all", "no towns"]
    assert compared.loc["no towns", "difference"] < -4 * compared.loc["no towns", "standard_error"]
    assert compared.loc["all", ["difference", "standard_error"]].tolist() == [0.0, 0.0]
    with pytest.raises(ParameterError, match="different numbers of rows"):
        compare_models({"a": models["all"], "b": AdditiveGPRegressor().fit(X[:50], y[:50])}, X, y)
    with pytest.raises(ParameterError, match="models is empty"):
        compare_models({}, X, y)


# ---------------------------------------------------------------- input that is wrong, or unusual


def test_levels_never_seen_are_counted_and_have_their_prior():
    X = table()
    model = fitted(SETS["levels"], X, target(X))
    Z = X.iloc[:3].assign(town=["Ely", "Aix", "Ely"])
    with pytest.warns(DataWarning, match="'town': 2 of 3 rows to predict have a level that no"):
        std = model.predict(Z, return_std=True)[1]
    assert std[0] ** 2 > 0.8
    same = model.covariance(X.iloc[[0, 0, 0]].assign(town=["Ely", "Ely", "Fes"]))
    assert same[0, 1] - same[0, 2] == pytest.approx(0.8, abs=0.01)


def test_categories_that_changed_are_matched_by_their_names():
    X = table()
    y = target(X)
    coded = X.assign(town=pd.Categorical(X["town"]))
    model = fitted(SETS["levels"], coded, y)
    other = X.assign(town=pd.Categorical(X["town"], categories=["Dax", "Cork", "Bern", "Aix"]))
    np.testing.assert_array_equal(model.predict(other), model.predict(coded))
    np.testing.assert_array_equal(model.predict(X), model.predict(coded))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.assign(x=X["x"].astype(str)), "'x' is not numeric"),
        (lambda X: X.assign(town=np.arange(len(X))), "'town' has the level 0, of type int"),
        (lambda X: X.assign(day=X["day"].astype(str)), "'day' held dates when"),
        (lambda X: X.assign(day=X["day"].dt.tz_localize("UTC")), "the time zone UTC, but had no"),
        (lambda X: X.drop(columns="town"), "Missing: 'town'"),
        (lambda X: X.assign(town=None), "'town' has no level in row 0"),
    ],
)
def test_columns_that_are_of_another_kind_than_in_the_fit(change, message):
    X = table()
    terms = [*SETS["levels"], Smooth("day", Matern52(100.0, 1.0))]
    model = fitted(terms, X, target(X))
    with pytest.raises(DataError, match=message):
        model.predict(change(X))


def test_time_zones_are_kept():
    X = table()
    y = target(X)
    plain = fitted(SETS["dates"], X, y)
    zoned = X.assign(day=X["day"].dt.tz_localize("Europe/Paris"))
    model = fitted(SETS["dates"], zoned, y)
    np.testing.assert_allclose(model.predict(zoned), plain.predict(X))
    elsewhere = X.assign(day=zoned["day"].dt.tz_convert("Asia/Tokyo"))
    np.testing.assert_allclose(model.predict(elsewhere), model.predict(zoned))
    with pytest.raises(DataError, match="no time zone, but had the time zone Europe/Paris"):
        model.predict(X)


def test_multipliers_that_say_nothing_are_left_out_and_codes_are_reported():
    X = table().assign(none=0.0, ward=lambda t: (t["id"] % 3).astype(int))
    y = target(X)
    with pytest.warns(DataWarning, match="constant.*'x by none'"):
        model = AdditiveGPRegressor(terms=[Smooth("x", by="none"), Smooth("dose")]).fit(X, y)
    assert [term.name for term in model.terms_] == ["dose"]
    with pytest.warns(DataWarning, match="'x by ward'.*3 different whole numbers.*multiplied"):
        AdditiveGPRegressor(terms=[Smooth("x", by="ward")]).fit(X, y)
    with pytest.warns(DataWarning, match="3 different whole numbers"):
        AdditiveGPRegressor(terms=[Smooth("x", by="ward")], bins=16).fit(X, y)


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        ([Smooth("x"), Smooth("x")], ParameterError, "two terms are called 'x'"),
        ([Smooth("wage")], DataError, "no column 'wage'"),
        ({"wage": Matern52()}, ParameterError, r"\['wage'\], which are not among"),
        ([], ParameterError, "empty list"),
        (Matern52(), ParameterError, "terms must map columns"),
        ({"x": 3.0}, ParameterError, "column 'x': a kernel must be one of"),
    ],
)
def test_terms_that_do_not_fit_the_table(terms, error, message):
    X = table()
    model = AdditiveGPRegressor(terms=terms)
    with pytest.raises(error, match=message):
        model.fit(X, target(X))


def test_a_group_of_one_level_is_one_curve():
    X = table().assign(town="Aix")
    y = target(X)
    one = fitted([Smooth("x", Matern52(0.7, 1.0), by="town")], X, y)
    plain = fitted([Smooth("x", Matern52(0.7, 1.0))], X, y)
    np.testing.assert_allclose(one.predict(X), plain.predict(X), atol=1e-8)
    with pytest.warns(DataWarning, match="constant.*'town'"):
        AdditiveGPRegressor().fit(X, y)


def test_a_period_longer_than_the_data_is_answered_and_wide_beyond_them():
    X = table()
    X = X[X["day"] < "2004-03-01"]
    model = fitted([Smooth("day", Periodic("year", 30.0, 1.0))], X, target(X))
    summer = pd.DataFrame({"day": pd.to_datetime(["2004-07-01"])})
    assert model.predict(summer, return_std=True)[1] > 0.9
    assert model.predict(X, return_std=True)[1].max() < 0.7


def test_missing_levels():
    X = table()
    y = target(X)
    X.loc[:9, "town"] = None
    with pytest.raises(
        DataError,
        match=r"'town' has no level in row 0 .* 10 of 120 rows.*Levels\('town', missing='level'\)",
    ):
        AdditiveGPRegressor().fit(X, y)
    left = AdditiveGPRegressor(missing="ignore").fit(X, y)
    assert left.n_missing_["town"] == 10
    own = AdditiveGPRegressor(terms={"town": Levels(missing="level")}).fit(X, y)
    assert len(next(t for t in own.terms_ if t.name == "town").cells) == 5
    assert own.n_missing_ == {}
    np.testing.assert_array_equal(own.predict(X.iloc[:3]), own.predict(X)[:3])


def test_text_that_names_the_rows_or_holds_amounts_is_refused():
    X = table()
    y = target(X)
    with pytest.raises(DataError, match="seems to name the rows"):
        AdditiveGPRegressor().fit(X.assign(code=[f"r{i}" for i in range(len(X))]), y)
    days = pd.date_range("2024-01-01", periods=len(X))
    for form in ("%d.%m.%Y", "%m/%d/%y 10:00", "%d %B %Y", "%b %d, %Y", "%Y/%m/%d"):
        with pytest.raises(DataError, match="'day' is text that seems to hold dates"):
            AdditiveGPRegressor().fit(X.assign(day=days.strftime(form)), y)
    with pytest.raises(DataError, match="holds numbers as text"):
        AdditiveGPRegressor().fit(X.assign(price=(X["dose"] + 1).astype(str)), y)
    whole = X.assign(ward=(X["id"] % 4).astype(int).astype(str))
    model = AdditiveGPRegressor().fit(whole, y)
    assert next(t for t in model.terms_ if t.name == "ward").bound.kind == "Levels"


def test_a_table_of_any_library_is_the_same_table():
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    X = table()
    y = target(X).to_numpy()
    plain = fitted(SETS["curves"], X, y)
    coded = pyarrow.Table.from_pandas(X.assign(town=pd.Categorical(X["town"])))
    for other in (polars.from_pandas(X), coded, X.convert_dtypes(dtype_backend="pyarrow")):
        model = fitted(SETS["curves"], other, y)
        np.testing.assert_allclose(model.predict(other), plain.predict(X), rtol=1e-9)
        np.testing.assert_allclose(plain.predict(other), plain.predict(X), rtol=1e-9)


def test_dask_tables_have_levels_and_dates_too():
    dd = pytest.importorskip("dask.dataframe")
    X = table(200)
    frame = dd.from_pandas(X.assign(y=target(X)), npartitions=3)
    model = AdditiveGPRegressor(
        terms=SETS["dates"] + SETS["levels"], learner=None, noise_variance=NOISE
    ).fit(frame, "y")
    lazy = model.predict(frame)
    np.testing.assert_allclose(lazy.compute(), model.predict(X), rtol=1e-9)
    default = AdditiveGPRegressor(learner="vbem", learner_max_iter=2).fit(frame, "y")
    assert {t.bound.kind for t in default.terms_} == {"Smooth", "Levels"}
