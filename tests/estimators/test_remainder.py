"""``remainder=``: what the terms leave, in one posterior with them, from table to store."""

import numpy as np
import pandas as pd
import pytest
import zarr

import dsgp
from dsgp import AdditiveGPRegressor, Levels, Remainder, Smooth
from dsgp.errors import DataError, ParameterError, StorageError

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
        ("a", "must be True, False, a list of columns"),
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
    with pytest.raises(ParameterError, match="not among what it draws"):
        model.fit(table.drop(columns="y"), table["y"])


@pytest.mark.parametrize("wrong", [{"n_neighbours": 0}, {"smoothness": "2"}, {"n_sampled": 1.5}])
def test_settings_of_a_remainder_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Remainder(**wrong)
