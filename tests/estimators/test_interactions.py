"""Interactions of two columns: against dense algebra, in every model, from every kind of rows."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP, Levels, Tensor
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern32, Matern52, Periodic
from dsgp.learning.pair_scores import PairedColumn, effect, gain
from dsgp.models.gaussian import interactions as gaussian_interactions
from dsgp.models.interactions import search
from dsgp.terms import parse_term


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.uniform(0, 10, n).round(2),
            "b": rng.normal(size=n).round(2),
            "g": rng.choice(list("uvw"), n),
            "h": rng.choice(list("pqrs"), n),
        }
    )
    return X, signal(X)


def signal(X):
    sign = X["g"].map({"u": 0.0, "v": 1.0, "w": -1.0})
    both = np.where((X["g"] == "u") & (X["h"] == "p"), 1.0, 0.0)
    return (np.sin(X["a"]) * (1 + X["b"]) + sign * X["b"] + both).to_numpy()


TERMS = ["a", "b", "g", "h", Tensor("a", "b"), Tensor("b", "g"), Tensor("h", "g")]


@pytest.fixture(scope="module")
def fitted():
    X, f = table(2500)
    y = f + 0.2 * np.random.default_rng(1).standard_normal(len(f))
    return AdditiveGPRegressor(terms=TERMS).fit(X, y), X, y


def test_the_posterior_is_the_dense_one():
    X, f = table(80)
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    model = AdditiveGPRegressor(
        terms=TERMS, bins=None, tol=1e-10, noise_variance=0.1, learner=None,
        kernel=Matern52(2.0, 1.0),
    )  # fmt: skip
    terms = [
        "a", "b", Levels("g", variance=0.5), Levels("h", variance=0.5),
        Tensor("a", "b", Matern52(2.0, 0.7), Matern32(1.5)),
        Tensor("b", "g", Matern52(1.0, 0.7)),
    ]  # fmt: skip
    model.set_params(terms=terms).fit(X, y)
    new, _ = table(40, seed=5)
    mean, std = model.predict(new, return_std=True)

    rows = [model._rows_model.inputs([_numbers(model, some, c) for c in model.used_columns_])
            for some in (X, new)]  # fmt: skip
    prior = cross = own = 0.0
    for term, at_rows, at_new in zip(model.terms_, *rows, strict=True):
        prior = prior + term.cells.prior(term.kernel, at_rows, at_rows)
        cross = cross + term.cells.prior(term.kernel, at_new, at_rows)
        own = own + np.diag(term.cells.prior(term.kernel, at_new, at_new))
    precision = np.linalg.inv(prior + 0.1 * np.eye(len(X)))
    ones = np.ones(len(X))
    constant = (ones @ precision @ y) / (ones @ precision @ ones)
    expected = constant + cross @ precision @ (y - constant)
    np.testing.assert_allclose(mean, expected, atol=1e-7)
    lack = 1 - cross @ precision @ ones
    variance = own - np.einsum("ij,jk,ik->i", cross, precision, cross)
    variance += lack**2 / (ones @ precision @ ones)
    np.testing.assert_allclose(std**2, variance, rtol=0.02)


def _numbers(model, X, column):
    kind = model._columns.kinds.get(column)
    if kind is not None and kind.labels:
        return X[column].map({label: k for k, label in enumerate(kind.labels)}).to_numpy(float)
    return X[column].to_numpy(float)


def test_it_finds_what_single_columns_cannot(fitted):
    model, X, y = fitted
    new, f = table(800, seed=7)
    mean, std = model.predict(new, return_std=True)
    without = AdditiveGPRegressor().fit(X, y)
    error = np.mean((mean - f) ** 2)
    assert error < 0.02 * np.mean((without.predict(new) - f) ** 2)
    assert np.mean(np.abs(mean - f) < 1.96 * std) > 0.9
    assert model.noise_variance_ == pytest.approx(0.04, rel=0.12)
    assert model.log_marginal_likelihood_ > without.log_marginal_likelihood_ + 100
    summary = str(model.summary())
    assert "a × b" in summary
    assert "Tensor" in summary


def test_components_have_no_main_effects(fitted):
    model, X, _ = fitted
    term = model.terms_[4]
    first, other = term.kernel.margins
    for value in (-1.0, 0.3):
        pairs = np.column_stack([first.points, np.full(len(first.points), value)])
        assert np.asarray(first.shares) @ term.mean(pairs) == pytest.approx(0.0, abs=1e-8)
    for value in (1.0, 7.7):
        pairs = np.column_stack([np.full(len(other.points), value), other.points])
        assert np.asarray(other.shares) @ term.mean(pairs) == pytest.approx(0.0, abs=1e-8)
    parts = model.components(X.head(5))
    total = parts["mean"].sum("term") + parts["intercept"]
    np.testing.assert_allclose(total, model.predict(X.head(5)), atol=1e-8)


def test_main_effects_are_those_without_the_interaction():
    """Rows at all pairs: an interaction beside the curves does not change them."""
    a, b = np.meshgrid(np.linspace(0, 1, 24), np.linspace(0, 1, 20))
    X = np.column_stack([a.ravel(), b.ravel()])
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + (X[:, 0] - 0.5) * (X[:, 1] - 0.5)
    y = y + 0.05 * np.random.default_rng(0).standard_normal(len(y))
    options = {"learner": None, "noise_variance": 0.01, "tol": 1e-9}
    kernel, bins = Matern52(0.5, 1.0), 24
    curves = AdditiveGPRegressor(kernel, bins=bins, **options).fit(X, y)
    terms = ["x0", "x1", Tensor("x0", "x1", Matern52(0.5, 1.0), Matern52(0.5))]
    both = AdditiveGPRegressor(kernel, terms=terms, bins=bins, **options).fit(X, y)
    new = np.column_stack([np.linspace(0, 1, 9)] * 2)
    means = [m.components(new)["mean"].to_numpy()[:, :2] for m in (curves, both)]
    np.testing.assert_allclose(*means, atol=1e-6)


def test_bands_of_a_known_surface_cover():
    """Draws of the prior: pointwise coverage of the interaction itself is nominal."""
    hits, rng = [], np.random.default_rng(3)
    X = pd.DataFrame({"a": rng.uniform(size=300), "b": rng.uniform(size=300)})
    terms = ["a", "b", Tensor("a", "b", Matern52(0.4, 0.8), Matern52(0.6))]
    model = AdditiveGPRegressor(
        Matern52(0.5, 1.0), terms=terms, learner=None, noise_variance=0.1, bins=None
    ).fit(X, rng.standard_normal(300))
    cells = [term.cells for term in model.terms_]
    inputs = model._rows_model.inputs([X[c].to_numpy() for c in model.used_columns_])
    priors = [c.prior(t.kernel, i, i) for c, t, i in zip(cells, model.terms_, inputs, strict=True)]
    roots = [np.linalg.cholesky(p + 1e-8 * np.eye(300)) for p in priors]
    for _ in range(25):
        parts = [root @ rng.standard_normal(300) for root in roots]
        model.fit(X, sum(parts) + np.sqrt(0.1) * rng.standard_normal(300))
        found = model.components(X).isel(term=2)
        truth = parts[2] - parts[2].mean()
        hits.append(np.mean(np.abs(found["mean"] - truth) < 1.96 * found["std"]))
    assert 0.92 < np.mean(hits) < 0.975


def test_rows_in_blocks_are_the_same_bits(fitted):
    model, X, y = fitted
    new, _ = table(50, seed=3)
    frame = dd.from_pandas(X.assign(y=y), npartitions=3)
    streamed = AdditiveGPRegressor(terms=TERMS).fit(frame[list(X)], frame["y"])
    again = AdditiveGPRegressor(terms=TERMS, bins="auto").fit(X, y)
    np.testing.assert_array_equal(streamed.predict(new), again.predict(new))
    np.testing.assert_allclose(streamed.predict(new), model.predict(new), atol=0.1)


def test_it_is_stored(fitted, tmp_path):
    model, X, _ = fitted
    model.save(tmp_path / "m.zarr")
    again = dsgp.load(tmp_path / "m.zarr")
    for one, other in zip(
        model.predict(X.head(60), return_std=True),
        again.predict(X.head(60), return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert again.kernels_ == model.kernels_
    assert again.get_params()["terms"] == TERMS


def test_in_models_with_a_likelihood():
    X, f = table(1500)
    rng = np.random.default_rng(2)
    new, f_new = table(400, seed=9)
    few = ["a", "b", "g", Tensor("a", "b"), Tensor("b", "g")]
    counts = GeneralizedAdditiveGP("poisson", terms=few).fit(X, rng.poisson(np.exp(f)))
    plain = GeneralizedAdditiveGP("poisson").fit(X, rng.poisson(np.exp(f)))
    errors = [
        np.mean((m.predict_latent(new) - f_new) ** 2) / np.var(f_new) for m in (counts, plain)
    ]
    assert errors[0] < 0.15 < 0.3 < errors[1]
    labels = rng.uniform(size=len(f)) < 1 / (1 + np.exp(-3 * f))
    classes = AdditiveGPClassifier(terms=few).fit(X, labels)
    right = classes.score(new, f_new > 0)
    assert right > AdditiveGPClassifier().fit(X, labels).score(new, f_new > 0) + 0.05


def test_levels_never_seen_have_the_prior(fitted):
    model, X, _ = fitted
    new = X.head(2).assign(g="never")
    with pytest.warns(UserWarning, match="level"):
        parts = model.components(new)
    term = model.terms_[5]
    mean = parts["mean"].sel(term="b × g").to_numpy() + term.centre
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    inputs = np.column_stack([new["b"], [99.0, 99.0]])
    prior = term.kernel.diagonal(inputs)
    np.testing.assert_allclose(parts["std"].sel(term="b × g") ** 2, prior, rtol=0.02)


def test_dates_and_seasons():
    rng = np.random.default_rng(0)
    days = pd.date_range("2019-01-01", periods=900)
    X = pd.DataFrame({"date": np.tile(days, 2), "site": np.repeat(["a", "b"], 900)})
    season = np.sin(2 * np.pi * X["date"].dt.day_of_year / 365.25)
    y = np.where(X["site"] == "a", season, -season) + 0.1 * rng.standard_normal(1800)
    terms = ["site", Tensor("date", "site", Periodic("year")), Tensor("date", "site", part="month")]
    model = AdditiveGPRegressor(terms=terms).fit(X, y)
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.15)
    shares = {t.name: t.explained_variance / model.target_variance_ for t in model.terms_}
    assert shares["date × site"] > 0.8
    assert shares["date (month) × site"] < 0.2
    twice = Tensor("date", "date", Periodic("year"), Matern52())
    slow = np.linspace(0, 3, 1800) * season + 0.1 * rng.standard_normal(1800)
    grown = AdditiveGPRegressor(terms=[twice]).fit(X, slow)
    assert np.corrcoef(grown.predict(X), slow)[0, 1] > 0.5


def test_texts():
    assert parse_term("Tensor(a, b)") == Tensor("a", "b")
    assert parse_term("a: Tensor(other=b)") == Tensor("a", "b")
    written = parse_term("Tensor(date, site, kernel=Periodic(year), other_part=month)")
    assert written == Tensor("date", "site", Periodic("year"), other_part="month")
    assert parse_term("Tensor(a, b, other_kernel=Matern32)").other_kernel == Matern32()
    assert dsgp.terms.spec.from_settings(written.to_settings()) == written
    assert Tensor("date", "site", part="weekday").label == "date (weekday) × site"


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Tensor("a", "a"), ParameterError, "no interaction with itself"),
        (lambda: Tensor("a", 3), ParameterError, "other must be text"),
        (lambda: Tensor("a", "b", part="second"), ParameterError, "part must be one of"),
        (lambda: Tensor("a"), ParameterError, "an interaction needs two"),
        (lambda: Tensor("a", "nothing"), DataError, "nothing"),
        (lambda: Tensor("a", "g", other_kernel=Matern52()), DataError, "levels, which have no"),
        (lambda: Tensor("a", "g", part="month"), ParameterError, "holds no dates"),
        (lambda: Tensor("a", "b", Periodic("year")), ParameterError, "is for dates"),
        (lambda: Tensor("a", "b", Matern52() + Matern32()), ParameterError, "2 variances"),
    ],
)
def test_what_is_no_interaction_is_refused(make, error, match):
    X, y = table(60)
    with pytest.raises(error, match=match):
        AdditiveGPRegressor(terms=[make()]).fit(X, y)


def test_too_many_levels_are_refused():
    rng = np.random.default_rng(0)
    n = 6000
    X = pd.DataFrame(
        {
            "a": rng.uniform(size=n),
            "many": rng.integers(0, 3000, n).astype(str),
            "some": rng.integers(0, 80, n).astype(str),
            "others": rng.integers(0, 80, n).astype(str),
        }
    )
    y = rng.standard_normal(n)
    for term, match in [
        (Tensor("a", "many"), "'many' has more than 1024 levels.*by="),
        (Tensor("some", "others"), "pairs of levels have rows"),
    ]:
        with pytest.raises(DataError, match=match):
            AdditiveGPRegressor(terms=["a", term]).fit(X, y)


def test_a_constant_column_has_no_interaction():
    X, y = table(100)
    with pytest.warns(UserWarning, match="a × c"):
        model = AdditiveGPRegressor(terms=["a", Tensor("a", "c")]).fit(X.assign(c=1.0), y)
    assert list(model.kernels_) == ["a"]


# ---------------------------------------------------------------- pairs that are found


def test_auto_finds_the_pairs_and_no_others():
    X, f = table(2500)
    X["nothing"] = np.random.default_rng(5).normal(size=len(X))
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    model = AdditiveGPRegressor(interactions="auto").fit(X, y)
    assert {frozenset(pair) for pair in model.interactions_} == {
        frozenset("ab"), frozenset("bg"), frozenset("gh"),
    }  # fmt: skip
    scores = model.interaction_scores_
    assert len(scores) == 10
    assert scores["chosen"].sum() == 3
    assert scores.loc[~scores["chosen"], "gain"].max() < scores.loc[scores["chosen"], "gain"].min()
    assert any("3 of 10 pairs" in note for note in model.learner_notes_)
    assert any("leave-one-out" in note for note in model.learner_notes_)
    new, f_new = table(300, seed=4)
    assert np.mean((model.predict(new.assign(nothing=0.0)) - f_new) ** 2) < 0.03 * np.var(f_new)


def test_auto_adds_none_where_there_is_none():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 6)) + rng.standard_normal((1500, 1))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2 + rng.standard_normal(1500)
    model = AdditiveGPRegressor(interactions="auto").fit(X, y)
    assert model.interactions_ == []
    assert list(model.kernels_) == [f"x{d}" for d in range(6)]
    plain = AdditiveGPRegressor().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_columns_that_say_the_same_interact_once():
    X, f = table(1500)
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    X["b again"] = X["b"] + 0.2 * np.random.default_rng(2).standard_normal(len(X))
    model = AdditiveGPRegressor(interactions="auto").fit(X, y)
    assert {frozenset(pair) for pair in model.interactions_} == {
        frozenset("ab"), frozenset("bg"), frozenset("gh"),
    }  # fmt: skip


def test_interactions_are_no_rougher_than_their_bins():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 3000), "g": rng.choice(list("pq"), 3000)})
    # Fifty waves, of which 24 bins see nothing but noise.
    y = np.sin(31.4 * X["a"]) * (X["g"] == "p") + 0.1 * rng.standard_normal(3000)
    model = AdditiveGPRegressor(terms=["a", "g", Tensor("a", "g")]).fit(X, y)
    cells = model.terms_[-1].cells
    width = 10 / 24
    scale = cells.scale_of("lengthscale_1", np.ones(len(cells)))
    assert scale.bin_width == pytest.approx(width, rel=0.1)
    assert model.kernels_["a × g"].value("lengthscale_1") > 0.9 * width
    merged, _ = cells.merged(cells.bins(np.ones(len(cells)), 12), np.ones(len(cells)))
    again = merged.scale_of("lengthscale_1", np.ones(len(merged)))
    assert again.bin_width == scale.bin_width


def test_an_outlier_is_no_interaction(monkeypatch):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 5, 800), "b": rng.normal(size=800)})
    X["g"] = np.where(np.arange(800) < 8, "rare", rng.choice(["p", "q", "r"], 800))
    y = np.sin(X["a"]) + 0.3 * rng.standard_normal(800)
    y[3] -= 6.0
    assert AdditiveGPRegressor(interactions="auto").fit(X, y).interactions_ == []
    monkeypatch.setattr(gaussian_interactions, "_MOST_STDS", np.inf)
    scores = AdditiveGPRegressor(interactions="auto").fit(X, y).interaction_scores_
    assert scores["gain"].max() > 8  # log 3 + 4 are asked for, to which a row can no longer come


@pytest.mark.parametrize(
    ("checked", "kept"),
    [((-0.1, 0.01), False), ((0.01, 0.1), False), ((0.2, 0.1), True), ((0.0, 9.0), True)],
)
def test_interactions_that_help_no_row_left_out_are_dropped(checked, kept, monkeypatch):
    monkeypatch.setattr(search._Search, "_checked", lambda *models: (*checked, 100))
    X, f = table(600)
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    model = AdditiveGPRegressor(interactions="auto").fit(X, y)
    assert bool(model.interactions_) == kept
    assert any("are dropped" in note for note in model.learner_notes_) != kept


def test_numbers_and_names_of_pairs(tmp_path):
    X, f = table(600)
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    one = AdditiveGPRegressor(interactions=1).fit(X, y)
    assert [set(pair) for pair in one.interactions_] == [{"b", "g"}]
    named = AdditiveGPRegressor(interactions=[("b", "g")]).fit(X, y)
    assert list(named.kernels_) == ["a", "b", "g", "h", "b × g"]
    one.save(tmp_path / "m.zarr")
    again = dsgp.load(tmp_path / "m.zarr")
    assert again.interactions_ == one.interactions_
    pd.testing.assert_frame_equal(again.interaction_scores_, one.interaction_scores_)
    named.save(tmp_path / "n.zarr")
    restored = dsgp.load(tmp_path / "n.zarr")
    np.testing.assert_array_equal(restored.predict(X), named.predict(X))
    refitted = restored.fit(X, y)
    np.testing.assert_allclose(refitted.predict(X), named.predict(X), atol=1e-9)


def test_blocks_of_rows_give_the_same_pairs():
    X, f = table(2500)
    y = f + 0.3 * np.random.default_rng(1).standard_normal(len(f))
    frame = dd.from_pandas(X.assign(y=y), npartitions=3)
    streamed = AdditiveGPRegressor(interactions=2).fit(frame[list(X)], frame["y"])
    again = AdditiveGPRegressor(interactions=2, bins="auto").fit(X, y)
    assert streamed.interactions_ == again.interactions_
    np.testing.assert_allclose(
        streamed.interaction_scores_["gain"], again.interaction_scores_["gain"], rtol=0.05, atol=0.5
    )


def test_gains_are_those_of_the_marginal_likelihood():
    """All rows at the bins' places: the gain of a table is that of the model with the features."""
    rng = np.random.default_rng(0)
    shares = np.array([0.2, 0.3, 0.1, 0.4])
    first = PairedColumn(shares, False).features()[0]
    other = PairedColumn(np.array([0.5, 0.25, 0.25]), True).features()[0]
    n = 300
    a, b = rng.choice(4, n, p=shares), rng.choice(3, n)
    y = 0.5 * first[a, 0] * other[b, 1] + 0.7 * rng.standard_normal(n)
    noise = 0.49
    precision, score = np.zeros((4, 3)), np.zeros((4, 3))
    np.add.at(precision, (a, b), 1 / noise)
    np.add.at(score, (a, b), y / noise)
    found, variance = gain(precision, score, [first], [other])
    features = (first[a][:, :, None] * other[b][:, None, :]).reshape(n, -1)

    def likelihood(v):
        covariance = noise * np.eye(n) + v * features @ features.T
        return -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])

    assert found == pytest.approx(likelihood(variance) - likelihood(0.0), abs=1e-8)
    for factor in (0.3, 3.0):
        assert likelihood(factor * variance) - likelihood(0.0) < found
    # What is taken off for the next pair is the posterior mean of the model with the features.
    covariance = noise * np.eye(n) + variance * features @ features.T
    cells = (first[:, None, :, None] * other[None, :, None, :]).reshape(12, -1)
    mean = variance * cells @ features.T @ np.linalg.solve(covariance, y)
    taken = effect(precision, score, [first], [other])
    np.testing.assert_allclose(taken, mean.reshape(4, 3), atol=1e-10)
    assert not effect(precision, 0 * score, [first], [other]).any()
    # Features average to zero over the rows of each column.
    np.testing.assert_allclose(shares @ first, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("interactions", "match"),
    [
        ("all", "must be"),
        (-1, "must be"),
        (True, "must be"),
        ([("a",)], "must be"),
        ([("a", "a")], "with itself"),
        ([("a", "b"), ("b", "a")], "twice"),
        ([("a", "nothing")], "names 'nothing'"),
    ],
)
def test_what_names_no_pairs_is_refused(interactions, match):
    X, y = table(60)
    with pytest.raises(ParameterError, match=match):
        AdditiveGPRegressor(interactions=interactions).fit(X, y)


def test_given_hyperparameters_are_not_searched():
    X, y = table(60)
    model = AdditiveGPRegressor(learner=None, noise_variance=1.0, interactions="auto")
    with pytest.raises(ParameterError, match="interactions are learned"):
        model.fit(X, y)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_columns_that_do_not_vary_are_no_candidates():
    X, f = table(300)
    last = np.arange(300) < 2
    for extra, weight in [(3.0, None), ("k", None), (np.where(last, 1.0, 0.0), 1.0 * ~last)]:
        model = AdditiveGPRegressor(interactions=1).fit(X.assign(c=extra), f, weight)
        assert len(model.interactions_) == 1
        assert not (model.interaction_scores_[["first", "other"]] == "c").any(axis=None)
    gaps = X.assign(c=np.nan)
    AdditiveGPRegressor(interactions=1, missing="ignore").fit(gaps, f)


def test_missing_inputs_give_nothing():
    X, f = table(400)
    X.loc[::7, "b"] = np.nan
    model = AdditiveGPRegressor(terms=TERMS, missing="ignore").fit(X, f)
    parts = model.components(X)["mean"].to_pandas()
    gone = X["b"].isna().to_numpy()
    centres = {term.name: term.centre for term in model.terms_}
    for name in ("a × b", "b × g"):  # the function is 0 there, before it is centred
        np.testing.assert_allclose(parts.loc[gone, name], -centres[name], atol=1e-12)
        assert parts.loc[~gone, name].nunique() > 200


def test_a_pair_is_not_fitted_twice():
    X, y = table(60)
    for terms in (["a", "b", Tensor("a", "b")], ["a", "b", Tensor("b", "a")]):
        with pytest.raises(ParameterError, match="among the terms already"):
            AdditiveGPRegressor(terms=terms, interactions=[("a", "b")]).fit(X, y)
