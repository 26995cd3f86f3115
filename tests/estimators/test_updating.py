"""Rows that are added to a fitted model: the model is then that of all rows."""

import pickle
import shutil
import warnings
from itertools import pairwise

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Levels,
    Linear,
    ProjectionPursuitGPRegressor,
    Smooth,
    Tensor,
)
from dsgp.additive import BinEquations, RowEquations
from dsgp.additive.joining import in_units
from dsgp.additive.streaming import statistics
from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.kernels import Matern12, Matern52
from dsgp.models.gaussian import rows
from dsgp.models.gaussian.growing import by_bins
from dsgp.models.rows import bins as binning
from dsgp.models.rows.columns import TermRows
from dsgp.rows.sources import Wanted, source_of
from tests.golden.test_golden import ARCHIVE


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.sort(rng.uniform(0, 300, n)), "D"),
            "x": rng.uniform(-3, 3, n),
            "hour": rng.integers(0, 24, n).astype(float),
            "town": rng.choice(list("BCDEF"), n),
        }
    )
    y = np.sin(frame.x) * (1 + frame.hour / 24) + 0.01 * np.arange(n) / n
    y += frame.town.map(dict(zip("ABCDEF", range(6), strict=True))) / 5
    return frame, y.to_numpy() + 0.3 * rng.standard_normal(n)


EVERY_KIND = [
    Smooth("day"),
    Levels("day", part="weekday"),
    Smooth("x"),
    Smooth("x", by="town"),
    Smooth("hour"),
    Linear("hour"),
    Levels("town"),
    Tensor("x", "hour"),
    Tensor("x", "town"),
    Smooth("x", by="hour", name="slope"),
]


def dense(model, frame, y, weight):
    """Mean and standard deviation of f at the rows, by the terms' priors and a flat constant."""
    latent = model.model_.latent
    (load,) = model._rows_of(frame)
    inputs = latent.inputs(load().columns)
    prior = sum(
        term.cells.prior(term.kernel, x, x) for term, x in zip(latent.terms, inputs, strict=True)
    )
    ones = np.ones(len(y))
    noise = model.noise_variance_ / (ones if weight is None else weight)
    solved = np.linalg.solve(prior + np.diag(noise), np.column_stack([y, ones, prior]))
    total = ones @ solved[:, 1]
    constant = ones @ solved[:, 0] / total
    mean = constant + prior @ (solved[:, 0] - constant * solved[:, 1])
    variance = np.diag(prior - prior @ solved[:, 2:]) + (1 - prior @ solved[:, 1]) ** 2 / total
    return mean, np.sqrt(variance)


def in_pieces(model, X, y, edges, weight=None, **options):
    """Fit to the first piece, and update with the others."""

    def piece(a, b):
        some = X.iloc[a:b] if isinstance(X, pd.DataFrame) else X[a:b]
        return some, y[a:b], None if weight is None else weight[a:b]

    model.fit(*piece(0, edges[0]))
    for a, b in pairwise(edges):
        model.update(*piece(a, b), **options)
    return model


def same_hyperparameters(model, **options):
    """An unfitted model that keeps the hyperparameters of another one."""
    return AdditiveGPRegressor(
        terms=model.kernels_, noise_variance=model.noise_variance_, learner=None, **options
    )


def numbers(n, n_columns=2, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, n_columns))
    return X, np.sin(X[:, 0]) + 0.2 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


# ---------------------------------------------------------------- every distinct value


def test_a_hundred_batches_equal_one_fit():
    X, y = numbers(1200)
    edges = np.linspace(0, 1200, 101).astype(int)
    model = in_pieces(AdditiveGPRegressor(bins=None), X, y, edges[1:])
    whole = same_hyperparameters(model, bins=None).fit(X, y)
    new = numbers(50, seed=2)[0]
    mean, std = model.predict(new, return_std=True)
    expected, its_std = whole.predict(new, return_std=True)
    assert model.n_updates_ == 99
    assert model.n_rows_ == 1200
    assert np.abs(mean - expected).max() < 1e-3 * its_std.min()
    np.testing.assert_allclose(std, its_std, rtol=1e-6)
    assert model.log_marginal_likelihood_ == pytest.approx(whole.log_marginal_likelihood_, abs=1e-3)
    assert model.effective_dof_ == pytest.approx(whole.effective_dof_, rel=1e-6)
    np.testing.assert_allclose(model.leave_one_out(X, y), whole.leave_one_out(X, y), atol=1e-4)
    draws = [m.sample(new[:5], 3, random_state=0) for m in (model, whole)]
    np.testing.assert_allclose(*draws, atol=1e-3)
    parts = [m.components(new)["mean"].to_numpy() for m in (model, whole)]
    np.testing.assert_allclose(*parts, atol=1e-3 * its_std.min())


@pytest.mark.parametrize("weighted", [False, True])
def test_every_kind_of_term_and_new_levels_equal_dense_algebra(weighted, tmp_path):
    frame, y = table(150)
    frame.loc[frame.index[100:], "town"] = "A"  # never seen before, and the first in their order
    weight = np.random.default_rng(3).uniform(0.5, 2, len(y)) if weighted else None
    model = AdditiveGPRegressor(terms=EVERY_KIND, bins=None, tol=1e-8)
    in_pieces(model, frame, y, [80, 100, 125], weight)
    model.save(tmp_path / "model.zarr")
    model = dsgp.load(tmp_path / "model.zarr")
    model.update(frame[125:], y[125:], None if weight is None else weight[125:])
    mean, std = model.predict(frame, return_std=True)
    expected, its_std = dense(model, frame, y, weight)
    np.testing.assert_allclose(mean, expected, atol=1e-5 * its_std.min())
    np.testing.assert_allclose(std, its_std, rtol=1e-6)
    assert model.n_rows_ == 150
    assert "A" in model._columns.kinds["town"].labels


def test_missing_inputs_and_a_transform():
    X, y = numbers(300)
    X[::7, 0] = np.nan
    y = np.exp(y)
    options = {"missing": "ignore", "target_transform": "log", "bins": None, "tol": 1e-8}
    model = in_pieces(AdditiveGPRegressor(**options), X, y, [150, 151, 300])
    whole = same_hyperparameters(model, **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-6)
    assert model.n_missing_ == whole.n_missing_
    assert model.log_marginal_likelihood_ == pytest.approx(whole.log_marginal_likelihood_, abs=1e-4)
    with pytest.raises(DataError, match="positive target"):
        model.update(X[:3], [-1.0, 1.0, 1.0])


# ---------------------------------------------------------------- bins


def one_pass(model, X, y, weight=None):
    """Sums of all rows by the cuts of an updated model, and those that it came to."""
    basis = model.model_.basis
    training = basis.training(model.model_.latent, model._columns)
    wanted = Wanted() if isinstance(X, pd.DataFrame) else None
    terms = TermRows(source_of(X, y, weight, wanted=wanted), training.terms)
    summed = statistics(
        terms.source,
        [len(y)],
        basis.cuts,
        terms.parts,
        (basis.offset, basis.scale),
        with_pairs=isinstance(training.equations, BinEquations),
    )
    equations = in_units(
        summed.equations,
        (basis.offset - summed.offset) / summed.scale,
        basis.scale / summed.scale,
        summed.weight_scale / basis.weight_scale,
    )
    return equations, summed, training


def assert_sums_of_one_pass(model, X, y, weight=None):
    expected, summed, training = one_pass(model, X, y, weight)
    found = training.equations
    for name in ("weight", "information", "quadratic", "n_rows", "log_weight", "total_weight"):
        one = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), one, rtol=1e-9, atol=1e-8, err_msg=name)
    for before, after in zip(expected.layout.cells, found.layout.cells, strict=True):
        np.testing.assert_allclose(after.points, before.points, rtol=1e-9, atol=1e-9)
    for before, after in zip(summed.spreads, model.model_.basis.spreads, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-8)
    if isinstance(found, BinEquations):
        for key, pair in expected.bins.pairs.items():
            np.testing.assert_allclose(found.bins.pairs[key], pair, rtol=1e-9, atol=1e-8)
    else:
        np.testing.assert_array_equal(found.table.codes, expected.table.codes)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_by_bins_are_those_of_one_pass(weighted, tmp_path):
    frame, y = table(600)
    frame.loc[frame.index[400:], "town"] = "A"
    frame["x"] *= np.linspace(0.5, 2, 600)  # the range grows
    weight = np.random.default_rng(3).uniform(0.5, 2, len(y)) if weighted else None
    terms = [Smooth("day"), Levels("day", part="weekday"), Smooth("x", by="town"), Levels("town")]
    terms += [Linear("hour"), Tensor("x", "town"), Smooth("x", by="hour", name="slope")]
    model = AdditiveGPRegressor(terms=terms, bins=24)
    in_pieces(model, frame, y, [200, 400, 500], weight)
    model.save(tmp_path / "model.zarr")
    model = dsgp.load(tmp_path / "model.zarr")
    model.update(frame[500:], y[500:], None if weight is None else weight[500:])
    assert_sums_of_one_pass(model, frame, y, weight)
    assert model.n_rows_ == 600


def test_codes_of_bins_are_those_of_one_pass(monkeypatch):
    monkeypatch.setattr(binning, "BIN_TABLE_BYTES", 10.0)
    X, y = numbers(900)
    model = in_pieces(AdditiveGPRegressor(Matern12(), bins=40), X, y, [300, 600, 900])
    assert isinstance(model.model_.latent.equations, RowEquations)
    assert model.model_.latent.equations.table.ends == (900,)
    assert_sums_of_one_pass(model, X, y)


def test_a_hundred_batches_by_bins_equal_one_fit():
    X, y = numbers(6000)
    edges = np.linspace(1000, 6000, 100).astype(int)
    model = in_pieces(AdditiveGPRegressor(bins=256), X, y, edges)
    whole = same_hyperparameters(model, bins=256).fit(X, y)
    new = numbers(100, seed=2)[0]
    mean, (expected, std) = model.predict(new), whole.predict(new, return_std=True)
    assert_sums_of_one_pass(model, X, y)
    # Other bins see other slopes within them, which count as noise of the rows.
    assert np.abs(mean - expected).max() < 0.2 * std.min()
    assert np.sqrt(np.mean((mean - expected) ** 2)) < 0.05 * std.min()


def test_bins_of_a_range_that_grows_are_put_together():
    rng = np.random.default_rng(5)
    X = np.column_stack([np.arange(4000.0), rng.uniform(-1, 1, 4000)])
    y = np.sin(X[:, 0] / 300) + X[:, 1] + 0.1 * rng.standard_normal(4000)
    model = in_pieces(AdditiveGPRegressor(bins=32), X, y, np.arange(400, 4001, 120))
    cut = model.model_.basis.cuts[0]
    assert 24 <= len(cut) <= 48
    assert np.diff(cut.bins.edges).max() < 4000 / 10
    assert_sums_of_one_pass(model, X[: model.n_rows_], y[: model.n_rows_])


def test_distinct_values_that_become_too_many_are_cut():
    rng = np.random.default_rng(6)
    whole_numbers = np.column_stack([rng.integers(0, 5, 300), rng.uniform(-1, 1, 300)]) * 1.0
    X = np.concatenate([whole_numbers, rng.uniform(0, 5, (500, 2))])
    y = np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(800)
    model = in_pieces(AdditiveGPRegressor(bins=30), X, y, [300, 500, 800])
    assert not model.model_.basis.cuts[0].exact
    assert_sums_of_one_pass(model, X, y)


def test_distinct_values_go_into_bins_when_there_are_as_many_rows_as_a_fit_bins(monkeypatch):
    monkeypatch.setattr(rows, "EXACT_INPUTS", 2000)
    X, y = numbers(2400)
    X = np.column_stack([X, np.random.default_rng(0).integers(0, 7, len(X))])
    model = in_pieces(AdditiveGPRegressor(), X, y, [500, 600, 900, 2400])
    assert isinstance(model.model_.latent.equations, BinEquations)
    exact = same_hyperparameters(model, bins=None).fit(X, y)
    new = X[:100]
    mean, (expected, std) = model.predict(new), exact.predict(new, return_std=True)
    assert np.abs(mean - expected).max() < 0.1 * std.min()
    assert_sums_of_one_pass(model, X, y)


def test_curves_of_levels_go_into_bins(monkeypatch):
    monkeypatch.setattr(rows, "EXACT_INPUTS", 1000)
    frame, y = table(900)
    terms = [Smooth("x", by="town"), Linear("hour")]
    model = AdditiveGPRegressor(terms=terms)
    in_pieces(model, frame[["x", "hour", "town"]], y, [200, 900])
    assert isinstance(model.model_.latent.equations, BinEquations)
    assert_sums_of_one_pass(model, frame, y)


def test_files_and_lazy_rows_are_those_in_memory(tmp_path):
    frame, y = table(500)
    frame = frame[["x", "hour", "town"]].assign(y=y)
    made = {}
    frame[:300].to_parquet(tmp_path / "first.parquet")
    frame[300:].to_parquet(tmp_path / "new.parquet", row_group_size=64)
    for kind in ("memory", "file"):
        model = AdditiveGPRegressor(bins=32)
        model.fit(str(tmp_path / "first.parquet"), "y")
        new = frame[300:] if kind == "memory" else str(tmp_path / "new.parquet")
        made[kind] = model.update(new, "y").predict(frame)
    np.testing.assert_array_equal(made["memory"], made["file"])
    X, y = numbers(600)
    lazy = AdditiveGPRegressor(bins=32).fit(X[:300], y[:300])
    eager = pickle.loads(pickle.dumps(lazy))
    lazy.update(da.from_array(X[300:], chunks=(70, 2)), da.from_array(y[300:], chunks=90))
    eager.update(X[300:], y[300:])
    np.testing.assert_array_equal(lazy.predict(X), eager.predict(X))


# ---------------------------------------------------------------- forgetting and learning


@pytest.mark.parametrize("bins", [None, 40])
def test_half_life_is_a_fit_with_weights(bins):
    X, y = numbers(280)
    model = in_pieces(
        AdditiveGPRegressor(bins=bins, tol=1e-8), X, y, [140, 210, 280], half_life=1.5
    )
    weight = np.repeat(2.0 ** (-np.array([2, 1, 0]) / 1.5), [140, 70, 70])
    assert model.n_rows_ == 280
    if bins is None:
        whole = same_hyperparameters(model, bins=None, tol=1e-8).fit(X, y, weight)
        (mean, std), (expected, its_std) = (m.predict(X, return_std=True) for m in (model, whole))
        np.testing.assert_allclose(mean, expected, atol=1e-6)
        np.testing.assert_allclose(std, its_std, rtol=1e-6)
    else:
        expected, _, training = one_pass(model, X, y, weight)
        np.testing.assert_allclose(training.equations.weight, expected.weight, rtol=1e-9)
        np.testing.assert_allclose(training.equations.information, expected.information, atol=1e-8)
    by_rows = in_pieces(
        AdditiveGPRegressor(bins=bins, tol=1e-8), X, y, [140, 210, 280], half_life=150, elapsed=100
    )
    np.testing.assert_allclose(by_rows.predict(X), model.predict(X), rtol=1e-9)


def test_what_has_faded_is_forgotten():
    X, y = numbers(300)
    for bins in (None, 30):
        model = AdditiveGPRegressor(bins=bins, tol=1e-8).fit(X[:100], y[:100] + 5)
        for _ in range(4):
            model.update(X[100:], y[100:], half_life=1, elapsed=25)
        last = model.model_.latent.equations
        assert last.n_rows == pytest.approx(200, rel=1e-6)
        whole = same_hyperparameters(model, bins=bins, tol=1e-8).fit(X[100:], y[100:])
        if bins is None:
            np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=1e-5)
            assert last.table.n_rows == 800


def test_hyperparameters_learned_again_are_those_of_a_fit():
    X, y = numbers(800)
    model = AdditiveGPRegressor(bins=None).fit(X[:100], y[:100])
    noise = model.noise_variance_
    model.update(X[100:], y[100:], relearn=True)
    whole = AdditiveGPRegressor(bins=None).fit(X, y)
    assert model.noise_variance_ != noise
    assert model.noise_variance_ == pytest.approx(whole.noise_variance_, rel=0.01)
    assert model.log_marginal_likelihood_ > whole.log_marginal_likelihood_ - 0.3
    for name, kernel in whole.kernels_.items():
        assert model.kernels_[name].lengthscale == pytest.approx(kernel.lengthscale, rel=0.1)


def test_noise_learned_with_a_half_life_is_that_of_new_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (3000, 1))
    y = np.sin(X[:, 0]) + np.repeat([2.0, 0.2], [2000, 1000]) * rng.standard_normal(3000)
    model = AdditiveGPRegressor(bins=None).fit(X[:2000], y[:2000])
    model.update(X[2000:], y[2000:], half_life=1, elapsed=14, relearn=True)
    assert model.noise_variance_ == pytest.approx(0.04, rel=0.15)


# ---------------------------------------------------------------- failures and refusals


def test_an_update_that_fails_leaves_the_model_as_it_was(monkeypatch):
    frame, y = table(200)
    model = AdditiveGPRegressor(terms=[Smooth("x"), Levels("town")], bins=20).fit(frame, y)
    before, kept = model.predict(frame), dict(vars(model))
    new = frame[:20].assign(town="Z")
    with pytest.raises(DataError, match="'y'"):
        model.update(new, np.full(20, np.nan))
    with pytest.raises(DataError, match="'x'"):
        model.update(new.drop(columns="x"), y[:20])
    monkeypatch.setattr(by_bins, "joined", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.update(new, y[:20])
    assert vars(model) == kept
    np.testing.assert_array_equal(model.predict(frame), before)


def test_columns_that_are_not_those_of_the_fit():
    frame, y = table(200)
    frame["same"] = 1.0
    with pytest.warns(match="constant"):
        model = AdditiveGPRegressor(bins=20).fit(frame, y)
    with pytest.raises(DataError, match="'same' did not vary"):
        model.update(frame[:9].assign(same=2.0), y[:9])
    with pytest.raises(DataError, match=r"'town' held levels.*and holds dates"):
        model.update(frame[:9].assign(town=frame.day[:9]), y[:9])
    with pytest.raises(DataError, match="'day' had no time zone"):
        model.update(frame[:9].assign(day=frame.day[:9].dt.tz_localize("UTC")), y[:9])
    with pytest.raises(DataError, match="'x' held numbers"):
        model.update(frame[:9].assign(x=list("abcabcabc")), y[:9])
    with pytest.raises(DataError, match="no column 'x', which the model reads; it has"):
        model.update(frame[:9].drop(columns="x"), y[:9])
    with pytest.raises(DataError, match="names"):
        model.update(np.zeros((9, 4)), y[:9])
    model.update(frame[:9], y[:9])
    assert model.n_rows_ == 209
    X, y = numbers(100)
    model = AdditiveGPRegressor().fit(X, y)
    with pytest.raises(DataError, match="2 columns, and the new rows have 3"):
        model.update(np.zeros((9, 3)), y[:9])


def test_parameters_that_are_wrong():
    X, y = numbers(60)
    model = AdditiveGPRegressor(bins=None).fit(X, y)
    for options in ({"half_life": 0}, {"half_life": 1, "elapsed": -1}, {"elapsed": 3}):
        with pytest.raises(ParameterError, match=r"half_life|elapsed"):
            model.update(X, y, **options)
    with pytest.raises(ParameterError, match="forgets all rows"):
        model.update(X, y, half_life=1, elapsed=100)
    fixed = same_hyperparameters(model).fit(X, y)
    with pytest.raises(ParameterError, match="learner=None"):
        fixed.update(X, y, relearn=True)


def test_models_that_need_rows_say_why():
    X, y = numbers(80)
    refused = [
        (AdditiveGPClassifier().fit(X, y > 0), "depends on f"),
        (GeneralizedAdditiveGP("student_t").fit(X, y), "depends on f"),
        (ProjectionPursuitGPRegressor(n_projections=1).fit(X, y), "directions"),
        (AdditiveGPRegressor(remainder=True).fit(X, y), "remainder= cannot be updated"),
        (AdditiveGPRegressor(projections=1).fit(X, y), "projections= cannot be updated"),
        (
            AdditiveGPRegressor(method="gibbs", n_draws=4, n_warmup=4, random_state=0),
            "draws of hyperparameters",
        ),
    ]
    for model, reason in refused:
        if not hasattr(model, "model_"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so few draws do not mix
                model.fit(X, y)
        with pytest.raises(ParameterError, match=reason):
            model.update(X, y)


def test_models_of_earlier_releases_load_and_are_not_updated(tmp_path):
    shutil.unpack_archive(ARCHIVE, tmp_path)
    stores = sorted(tmp_path.glob("*.zarr"))
    loaded = [dsgp.load(store) for store in stores]
    old = next(model for model in loaded if type(model) is AdditiveGPRegressor)
    with pytest.raises((StorageError, ParameterError), match="on all rows"):
        old.update(np.zeros((3, 2)), np.zeros(3))


def test_a_model_is_updated_in_the_same_way_after_it_was_saved(tmp_path):
    frame, y = table(300)
    model = AdditiveGPRegressor(kernel=Matern52(), bins=24).fit(frame[:200], y[:200])
    model.save(tmp_path / "model.zarr")
    loaded = dsgp.load(tmp_path / "model.zarr")
    first, second = (m.update(frame[200:], y[200:]) for m in (model, loaded))
    np.testing.assert_array_equal(first.predict(frame), second.predict(frame))
    assert first.n_updates_ == second.n_updates_ == 1
