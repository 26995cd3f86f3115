"""``remainder=``: what the terms leave, in one posterior with them, from table to store."""

import numpy as np
import pandas as pd
import pytest
import zarr
from matplotlib.text import Text

import dsgp
from dsgp import AdditiveGPRegressor, Levels, Remainder, Smooth
from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.plotting import plot_report
from dsgp.remainder import RowTerm

pytestmark = pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")


def truth(table):
    twist = np.where(table["group"] == "p", 1.0, -0.5)
    return np.sin(2 * table["a"]) + np.sin(1.5 * table["a"] * table["b"]) * twist


def table_of(n, seed=0):
    random = np.random.default_rng(seed)
    table = pd.DataFrame(random.uniform(-2, 2, (n, 2)), columns=["a", "b"])
    table["group"] = random.choice(["p", "q", "r"], n)
    table["y"] = truth(table) + 0.1 * random.standard_normal(n)
    return table


@pytest.fixture(scope="module")
def table():
    return table_of(700)


@pytest.fixture(scope="module")
def model(table):
    return AdditiveGPRegressor(remainder=True).fit(table.drop(columns="y"), table["y"])


def test_what_interacts_is_found_with_honest_intervals(table, model):
    new = table_of(600, seed=1)
    plain = AdditiveGPRegressor().fit(table.drop(columns="y"), table["y"])
    mean, std = model.predict(new, return_std=True)
    error = mean - truth(new)
    assert np.var(error) < 0.05 * np.var(plain.predict(new) - truth(new))
    assert 0.9 < np.mean(np.abs(error) < 1.96 * std) <= 1.0
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.4)
    assert plain.noise_variance_ > 0.1
    density = model.log_predictive_density(new, new["y"]).mean()
    assert density > plain.log_predictive_density(new, new["y"]).mean() + 0.5
    assert any(note.startswith("remainder: Matérn") for note in model.learner_notes_)


def test_the_posterior_is_that_of_dense_algebra():
    """Of the hyperparameters found; all rows are neighbours."""
    table = table_of(30)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 30)
    model = AdditiveGPRegressor(
        terms=[Smooth("a"), Levels("group")], remainder=["b", "a"], bins=None
    )
    model.fit(table.drop(columns="y"), table["y"], weight)
    new = table_of(9, seed=5)
    rest, latent = model.model_.latent.remainder, model.model_.latent
    metric = rest.function.metric

    def prior(first, second):
        smooth = model.kernels_["a"].covariance(first["a"].to_numpy(), second["a"].to_numpy())
        same = first["group"].to_numpy()[:, None] == second["group"].to_numpy()
        at = [
            rest.inputs({name: one[name].to_numpy() for name in ("a", "b")})
            for one in (first, second)
        ]
        return smooth + model.kernels_["group"].variance * same + metric.covariance(*at)

    covariance = prior(table, table) + np.diag(model.noise_variance_ / weight)
    inverse = np.linalg.inv(covariance)
    constant = np.sum(inverse @ table["y"]) / np.sum(inverse)
    expected = constant + prior(new, table) @ inverse @ (table["y"].to_numpy() - constant)
    np.testing.assert_allclose(model.predict(new), expected, rtol=1e-3, atol=1e-3)
    assert latent.remainder.columns == ("b", "a")


def test_components_add_up_and_draws_are_around_the_prediction(table, model):
    new = table_of(80, seed=2)
    mean, std = model.predict(new, return_std=True)
    parts = model.components(new)
    assert list(parts["term"].values) == ["a", "b", "group", "remainder"]
    total = parts["mean"].sum("term") + parts["intercept"]
    np.testing.assert_allclose(total, mean, rtol=1e-12, atol=1e-12)
    drawn = model.sample(new, 1500, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.12 * std.max())
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.15)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance(new))), std, rtol=0.1)
    assert model.sample_components(new, 3).shape == (3, 80, 4)


def test_a_stored_model_predicts_the_same_bits(table, model, tmp_path):
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    new = table_of(50, seed=3)
    for one, other in zip(
        loaded.predict(new, return_std=True), model.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert loaded.summary() == model.summary()
    np.testing.assert_array_equal(
        loaded.sample(new, 2, random_state=1), model.sample(new, 2, random_state=1)
    )


def test_a_damaged_remainder_is_refused(model, tmp_path):
    model.save(tmp_path / "m.zarr")
    array = zarr.open_array(tmp_path / "m.zarr/fitted/_remainder/spreads", mode="r+")
    array[0] = -1.0
    with pytest.raises(StorageError, match="spreads"):
        dsgp.load(tmp_path / "m.zarr")


def test_alone_it_is_a_gaussian_process_of_all_columns(table):
    model = AdditiveGPRegressor(terms=[], remainder=True).fit(table.drop(columns="y"), table["y"])
    new = table_of(300, seed=1)
    assert model.terms_ == []
    error = model.predict(new) - truth(new)
    assert np.var(error) < 0.03 * np.var(truth(new))
    assert "remainder" in model.summary()


def test_rows_on_disk_and_in_memory_give_the_same_model(table, model, tmp_path):
    table.iloc[:400].to_parquet(tmp_path / "0.parquet")
    table.iloc[400:].to_parquet(tmp_path / "1.parquet")
    streamed = AdditiveGPRegressor(remainder=True, bins=None).fit(str(tmp_path), "y")
    kept = AdditiveGPRegressor(remainder=True, bins=None).fit(table.drop(columns="y"), table["y"])
    new = table_of(50, seed=3)
    np.testing.assert_array_equal(streamed.predict(new), kept.predict(new))


def test_of_a_transformed_target_predictions_are_in_its_unit(table):
    model = AdditiveGPRegressor(remainder=["a", "b"], target_transform="log")
    model.fit(table.drop(columns="y"), np.exp(table["y"]))
    new = table_of(300, seed=1)
    inside = np.exp(new["y"])
    low, high = model.predict_interval(new, include_noise=True)
    assert 0.85 < np.mean((low < inside) & (inside < high)) <= 1.0


def test_a_level_that_was_never_seen_is_predicted_with_more_doubt(model):
    new = table_of(40, seed=4)
    _, known = model.predict(new, return_std=True)
    with pytest.warns(dsgp.errors.DataWarning, match="levels"):
        _, unknown = model.predict(new.assign(group="new"), return_std=True)
    assert (unknown > known).all()


def test_leave_one_out_is_near_the_density_of_new_rows(table, model):
    within = model.leave_one_out(table.drop(columns="y"), table["y"]).mean()
    new = table_of(600, seed=6)
    assert within == pytest.approx(model.log_predictive_density(new, new["y"]).mean(), abs=0.15)


@pytest.mark.parametrize(
    ("remainder", "match"),
    [
        ("a", 'must be True, False, "auto", a list of columns'),
        (["a", 3], "list of names"),
        (3, "must be True, False"),
        (["a", "z"], "names the column 'z'"),
    ],
)
def test_what_is_no_remainder_is_refused(table, remainder, match):
    model = AdditiveGPRegressor(remainder=remainder)
    with pytest.raises(ParameterError, match=match):
        model.fit(table.drop(columns="y"), table["y"])


def test_levels_only_are_refused(table):
    with pytest.raises(DataError, match="has levels only"):
        AdditiveGPRegressor(remainder=["group"]).fit(table.drop(columns="y"), table["y"])


def test_missing_values_are_refused_by_column(table):
    gappy = table.drop(columns="y").assign(b=table["b"].where(table["b"] > -1.5))
    model = AdditiveGPRegressor(remainder=True, missing="ignore")
    with pytest.raises(DataError, match=r"complete columns of numbers.*'b' \(\d+ rows\)"):
        model.fit(gappy, table["y"])
    kept = AdditiveGPRegressor(remainder=["a", "group"], missing="ignore").fit(gappy, table["y"])
    assert np.isfinite(kept.predict(gappy)).all()
    with pytest.raises(DataError, match="'a' is missing in 1 of 700 rows, and the remainder"):
        kept.predict(gappy.assign(a=gappy["a"].where(np.arange(700) != 3)))


def test_a_missing_level_is_a_level_of_the_remainder():
    table = table_of(700)
    hidden = table["group"] == "q"
    gappy = table.drop(columns="y").assign(group=table["group"].where(~hidden))
    model = AdditiveGPRegressor(remainder=True, missing="ignore").fit(gappy, table["y"])
    whole = AdditiveGPRegressor(remainder=True).fit(table.drop(columns="y"), table["y"])
    new = table_of(200, seed=1)
    blank = new.drop(columns="y").assign(group=new["group"].where(new["group"] != "q"))
    difference = model.predict(blank) - whole.predict(new)
    assert np.std(difference) < 0.1 * np.std(truth(new))


def test_draws_of_hyperparameters_are_refused(table):
    model = AdditiveGPRegressor(remainder=True, method="gibbs")
    with pytest.raises(ParameterError, match="cannot draw those of a remainder"):
        model.fit(table.drop(columns="y"), table["y"])


@pytest.mark.parametrize(
    "wrong",
    [{"n_neighbours": 0}, {"smoothness": "2"}, {"n_sampled": 1.5}, {"if_it_gains": "no"}],
)
def test_settings_of_a_remainder_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Remainder(**wrong)


def small(n=200, seed=0):
    table = table_of(n, seed)
    return table.drop(columns="y"), table["y"].to_numpy()


@pytest.mark.parametrize("factor", [1e-6, 1e4])
def test_a_factor_common_to_all_weights_changes_the_noise_only(factor):
    X, y = small()
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    one = AdditiveGPRegressor(remainder=True).fit(X, y, weight)
    other = AdditiveGPRegressor(remainder=True).fit(X, y, factor * weight)
    assert other.noise_variance_ == pytest.approx(factor * one.noise_variance_, rel=1e-3)
    for first, second in zip(
        one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(second, first, rtol=1e-3, atol=1e-4)
    told = [
        next(line for line in model.summary().splitlines() if line.startswith("explained"))
        for model in (one, other)
    ]
    assert told[0] == told[1]


def test_the_unit_of_the_target_changes_nothing_else():
    X, y = small()
    one, other = (AdditiveGPRegressor(remainder=True).fit(X, c * y) for c in (1.0, 1e-6))
    np.testing.assert_allclose(1e6 * other.predict(X), one.predict(X), rtol=1e-4, atol=1e-4)


def test_levels_of_rows_without_weight_were_never_seen():
    X, y = small()
    X["group"] = X["group"].where(np.arange(200) % 17 != 0)
    weight = np.ones(200)
    for row, level in ((3, "y"), (5, "z")):
        X.loc[row, "group"], weight[row] = level, 0.0
    model = AdditiveGPRegressor(remainder=True, missing="ignore").fit(X, y, weight)
    at = X.iloc[:1]
    with pytest.warns(dsgp.errors.DataWarning, match="levels"):
        unseen = [model.predict(at.assign(group=level))[0] for level in ("y", "z", "new")]
    assert unseen[0] == unseen[1] == unseen[2]
    assert unseen[0] != model.predict(at.assign(group=None))[0]


def test_numbers_of_levels_may_be_large_and_broken():
    X, y = small()
    X["zip"] = np.random.default_rng(1).choice([2.5, 1e9, 7e9], 200)
    model = AdditiveGPRegressor(terms={"zip": Levels()}, remainder=["a", "zip"]).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_shares_of_a_column_far_from_zero():
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.uniform(size=300), "c": 1e9 + random.uniform(0, 1e-3, 300)})
    y = np.sin(6e3 * (X["c"] - 1e9)) + 0.2 * X["a"] + 0.05 * random.standard_normal(300)
    shares = [
        dsgp.variance_shares(AdditiveGPRegressor(remainder=some).fit(X, y))["share"]
        for some in (True, False, ["a"])
    ]
    assert shares[0]["c"] > 0.5
    for other in (shares[0], shares[2]):
        assert other["c"] + other["remainder"] == pytest.approx(shares[1]["c"], abs=0.1)


def test_a_remainder_beside_curves_of_many_groups_takes_rows_to_their_group():
    random = np.random.default_rng(0)
    a, group = random.lognormal(0, 1.5, 2000), random.integers(0, 200, 2000).astype(float)
    X = pd.DataFrame({"a": a, "group": [f"g{int(k):03d}" for k in group]})
    y = np.sin(a) * (group % 5) + 0.1 * random.standard_normal(2000)
    model = AdditiveGPRegressor(terms=[Smooth("a", by="group")], bins=20).fit(X, y)
    (term,) = model.terms_
    inputs = term.bound.joined(term.bound.read({"a": a, "group": group}))
    found = RowTerm.of(term.cells, term.kernel, inputs, term.bound.level_axes)
    np.testing.assert_array_equal(term.cells.points[found.codes, 0], inputs[:, 0])


@pytest.mark.parametrize("form", ["frame", "csv"])
def test_what_would_not_fit_is_refused(tmp_path, monkeypatch, form):
    X, y = small()
    asked = []
    monkeypatch.setattr(
        "dsgp.models.gaussian.remainder.memory.require",
        lambda what, needed, remedy: asked.append((what, needed)),
    )
    model = AdditiveGPRegressor(remainder=True)
    if form == "csv":
        X.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
        model.fit(str(tmp_path / "t.csv"), "y")
    else:
        model.fit(X, y)
    (needed,) = [needed for what, needed in asked if what.startswith("a remainder of 200 rows")]
    assert needed > 200 * 8 * 100


def test_levels_that_only_the_remainder_reads_are_warned_of():
    X, y = small()
    model = AdditiveGPRegressor(terms=[], remainder=True).fit(X, y)
    with pytest.warns(dsgp.errors.DataWarning, match=r"the remainder: 200 of 200 rows"):
        model.predict(X.assign(group="new"))


@pytest.mark.parametrize("options", [{"terms": []}, {"remainder": ["a", "b"]}])
def test_pages_of_a_report_have_the_remainder(options):
    X, y = small()
    model = AdditiveGPRegressor(**{"remainder": True} | options).fit(X, y)
    pages = plot_report(model)
    texts = [text.get_text() for page in pages for text in page.findobj(Text)]
    assert "remainder" in texts


def test_without_terms_only_numbers_are_projected():
    X, y = small()
    X = X.assign(day=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200), "D"), one=1.0)
    X = X[["group", "day", "a", "b", "one"]]
    model = AdditiveGPRegressor(terms=[], projections=1, remainder=True).fit(X, np.sin(2 * X["a"]))
    assert set(model.projections_.columns) <= {"a", "b"}
    assert abs(model.projections_["a"].iloc[0]) > 0.9


def test_without_a_learner_the_noise_is_kept():
    X, y = small()
    terms = {name: dsgp.kernels.Matern52(1.0, 1.0) for name in ("a", "b")}
    terms["group"] = Levels(variance=1.0)
    model = AdditiveGPRegressor(terms=terms, learner=None, noise_variance=0.02, remainder=True)
    assert model.fit(X, y).noise_variance_ == pytest.approx(0.02)
    assert Remainder(n_neighbours=np.int64(5)).n_neighbours == 5


def test_a_remainder_of_nothing_has_no_share():
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.uniform(-2, 2, (600, 3)), columns=list("abc"))
    y = 50 + 7 * np.sin(X["a"]) + 2 * X["b"] + random.standard_normal(600)
    model = AdditiveGPRegressor(remainder=True).fit(X, y)
    shares = dsgp.variance_shares(model)
    drawn = model.sample_components(X, 300, random_state=0)
    of_rows = drawn - drawn.mean("row")
    f = of_rows.sum("term")
    expected = ((of_rows * f).mean("row") / (f**2).mean("row")).mean("sample")
    np.testing.assert_allclose(shares["share"], expected, atol=0.02)
    assert shares.loc["remainder", "high"] < 0.05
    lines = model.summary().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("remainder   "))
    labelled = [line for line in lines[first:] if "neighbours" in line and "Matérn" in line]
    assert labelled[-1].startswith(" " * 20)


@pytest.mark.parametrize("asked", ["auto", Remainder(if_it_gains=True)])
def test_a_remainder_that_gains_nothing_is_left_out_on_request(asked, tmp_path):
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.uniform(-2, 2, (300, 3)), columns=list("abc"))
    y = 50 + 7 * np.sin(X["a"]) + 2 * X["b"] + random.standard_normal(300)
    model = AdditiveGPRegressor(remainder=asked).fit(X, y)
    plain = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, plain.predict(X))
    np.testing.assert_array_equal(std, plain.predict(X, return_std=True)[1])
    assert model.noise_variance_ == plain.noise_variance_
    assert "remainder" not in dsgp.variance_shares(model).index
    assert any(note.startswith("remainder: left out") for note in model.learner_notes_)
    assert "left out, because it gains" in model.summary()
    model.save(tmp_path / "model.zarr")
    loaded = dsgp.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.predict(X), mean)
    # It can be updated, as there is no function of neighbours.
    np.testing.assert_array_equal(loaded.update(X, y).predict(X), plain.update(X, y).predict(X))


@pytest.mark.parametrize("numbers", [{}, {"one": 1.0}])
def test_a_remainder_without_distances_is_left_out_on_request(numbers):
    random = np.random.default_rng(0)
    X = pd.DataFrame({name: random.choice(list("abc"), 90) for name in "pq"}).assign(**numbers)
    model = AdditiveGPRegressor(terms=["p", "q"], remainder="auto")
    left_out = "remainder: left out, because no column of numbers varies"
    assert left_out in model.fit(X, random.standard_normal(90)).learner_notes_


def test_a_remainder_that_gains_is_kept_on_request(table, model):
    X = table.drop(columns="y")
    same = AdditiveGPRegressor(remainder="auto").fit(X, table["y"])
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    alone = AdditiveGPRegressor(terms=[], remainder="auto").fit(X, np.arange(700) % 7)
    assert list(dsgp.variance_shares(alone).index) == ["remainder"]


def test_a_constant_column_that_no_term_reads_is_reported():
    X, y = small()
    with pytest.warns(dsgp.errors.DataWarning, match="constant over the training rows.*'one'"):
        AdditiveGPRegressor(terms=[], remainder=True).fit(X.assign(one=1.0), y)
