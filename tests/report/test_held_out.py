"""What a page says of intervals on held-out rows, beside the intervals and the simulated truth."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP
from dsgp.errors import DataError, MemoryLimitError
from dsgp.report.diagonal_chart import diagonal
from dsgp.report.held_out import held_out_of
from dsgp.report.rendering import Charts

pytest.importorskip("vl_convert")
LEVELS = ("50%", "80%", "90%", "95%")


def _held_out(model, X, y, **extra):
    found = held_out_of(model, X, y, extra, Charts(), "y")
    return found, {level: float(share.rstrip("%")) / 100 for level, share in found.coverage}


def _heavy_tails(n):
    random = np.random.default_rng(3)
    X = pd.DataFrame({"a": random.uniform(-2, 2, n)})
    return X, np.sin(2 * X["a"]).to_numpy() + 0.3 * random.standard_t(2, n)


def test_coverage_is_that_of_calibrated_intervals():
    X, y = _heavy_tails(700)
    model = AdditiveGPRegressor().fit(X[:200], y[:200])
    before = _held_out(model, X[400:], y[400:])[1]
    model.calibrate(X[200:400], y[200:400])
    found, after = _held_out(model, X[400:], y[400:])
    assert tuple(after) == LEVELS
    for level in LEVELS:
        low, high = model.predict_interval(X[400:], float(level[:-1]) / 100, include_noise=True)
        share = np.mean((low <= y[400:]) & (y[400:] <= high))
        assert after[level] == pytest.approx(share, abs=6e-4)
    # Of heavy tails the model's own intervals hold far too many rows at half.
    assert after["50%"] < before["50%"] - 0.05
    assert any("calibrated on 200 rows" in note for note in found.notes)


def test_levels_that_few_calibrating_rows_cannot_promise_are_left_out():
    X, y = _heavy_tails(300)
    model = AdditiveGPRegressor().fit(X[:200], y[:200])
    for n_rows, expected in ((3, LEVELS[:1]), (4, LEVELS[:2]), (9, LEVELS[:3]), (19, LEVELS)):
        model.calibrate(X[200 : 200 + n_rows], y[200 : 200 + n_rows])
        assert tuple(_held_out(model, X[250:], y[250:])[1]) == expected


@pytest.mark.parametrize("n_calibrating", [0, 400])
def test_intervals_of_small_counts_are_not_called_too_wide(n_calibrating):
    n = 2400
    random = np.random.default_rng(5)
    X = pd.DataFrame({"a": random.uniform(-1, 1, n)})
    years = random.uniform(0.5, 1.5, n)
    y = random.poisson(0.4 * years * np.exp(X["a"])).astype(float)
    fit, calibrating, new = slice(600), slice(600, 600 + n_calibrating), slice(1000, None)
    model = GeneralizedAdditiveGP("poisson").fit(X[fit], y[fit], exposure=years[fit])
    if n_calibrating:
        model.calibrate(X[calibrating], y[calibrating], exposure=years[calibrating])
    found, coverage = _held_out(model, X[new], y[new], exposure=years[new])
    low, high = model.predict_interval(X[new], 0.5, include_noise=True, exposure=years[new])
    inside = np.mean((low <= y[new]) & (y[new] <= high))
    assert inside > 0.65  # whole numbers: most rows are 0, which any interval holds
    if n_calibrating:
        assert coverage["50%"] == pytest.approx(inside, abs=6e-4)
    else:
        for level, share in coverage.items():
            nominal = float(level[:-1]) / 100
            ends = stats.binom.interval(0.999, n - 1000, nominal)
            assert ends[0] <= share * (n - 1000) <= ends[1]
    assert not any("wider than" in note for note in found.notes)
    (figure,) = [one for one in found.figures if "as often" in one.title]
    assert ("randomised" in figure.text) == (n_calibrating == 0)


def test_intervals_of_varying_noise_and_of_transforms_hold_as_often_as_predict_interval_does():
    random = np.random.default_rng(7)
    X = pd.DataFrame({"a": random.uniform(-2, 2, 500), "c": random.uniform(0, 1, 500)})
    y = np.exp(np.sin(X["a"]) + np.exp(2 * X["c"] - 2) * random.standard_normal(500)).to_numpy()
    for options in ({"noise_terms": ["c"]}, {}):
        model = AdditiveGPRegressor(target_transform="log", **options).fit(X[:300], y[:300])
        coverage = _held_out(model, X[300:], y[300:])[1]
        for level in LEVELS:
            low, high = model.predict_interval(X[300:], float(level[:-1]) / 100, include_noise=True)
            share = np.mean((low <= y[300:]) & (y[300:] <= high))
            assert coverage[level] == pytest.approx(share, abs=6e-4)


def test_intervals_that_are_too_narrow_or_too_wide_are_reported():
    random = np.random.default_rng(8)
    X = pd.DataFrame({"a": random.uniform(-2, 2, 600)})
    y = np.sin(X["a"]).to_numpy() + 0.3 * random.standard_normal(600)
    model = AdditiveGPRegressor().fit(X[:300], y[:300])
    for factor, said in ((2.0, "too narrow"), (0.2, "wider than"), (1.0, None)):
        mean = model.predict(X[300:])
        notes = _held_out(model, X[300:], mean + factor * (y[300:] - mean))[0].notes
        if said is None:
            assert notes == []
        else:
            (note,) = notes
            assert said in note
            assert re.search(r"\d\d\.\d%|100\.0%", note)


def test_predictions_that_a_constant_beats_are_warned_of(tmp_path):
    random = np.random.default_rng(8)
    X = pd.DataFrame({"a": random.uniform(-2, 2, 400)})
    y = np.sin(X["a"]).to_numpy() + 0.3 * random.standard_normal(400)
    model = AdditiveGPRegressor().fit(X[:300], y[:300])
    turned = -y[300:]
    error = np.mean((turned - model.predict(X[300:])) ** 2)
    expected = 1 - error / np.var(turned)
    note = _held_out(model, X[300:], turned)[0].notes[0]
    assert f"R² −{-100 * expected:.1f}%" in note
    page = tmp_path / "page.html"
    model.report(page, X[300:], turned)
    assert "predicted worse than by a constant" in page.read_text(encoding="utf-8")
    assert not any("worse" in note for note in _held_out(model, X[300:], y[300:])[0].notes)


def test_what_is_known_of_a_few_rows_is_no_reason_to_warn():
    X, y = _heavy_tails(60)
    model = AdditiveGPRegressor().fit(X[:50], y[:50])
    mean, std = model.predict(X[50:52], return_std=True, include_noise=True)
    found, coverage = _held_out(model, X[50:52], mean + std * [0.1, 9.0])
    assert coverage["95%"] == 0.5  # one of two, which is not unlikely enough
    assert found.notes == []


def test_levels_that_no_training_row_had_are_named_together():
    random = np.random.default_rng(9)
    X = pd.DataFrame({name: random.choice(list("abcd"), 200) for name in ("one", "two")})
    y = random.standard_normal(200) + (X["one"] == "a")
    new = X[:50].copy()
    new.loc[:2, "one"], new.loc[7, "two"] = "new", "other"
    regressor = AdditiveGPRegressor().fit(X, y)
    classifier = AdditiveGPClassifier().fit(X, np.digitize(y, [0, 1]))
    for model, target in ((regressor, y[:50]), (classifier, np.digitize(y[:50], [0, 1]))):
        notes = [note for note in _held_out(model, new, target)[0].notes if "level" in note]
        (note,) = notes
        assert "no training row had, in one (3), two (1)." in note


def test_a_target_of_text_is_refused_by_its_name():
    X, y = _heavy_tails(60)
    model = AdditiveGPRegressor().fit(X, y)
    with pytest.raises(DataError, match="held-out target is not numeric"):
        _held_out(model, X, np.full(60, "a lot"))
    counts = GeneralizedAdditiveGP("poisson").fit(X, np.arange(60.0))
    with pytest.raises(DataError, match="exposure is not numeric"):
        _held_out(counts, X, y, exposure=np.full(60, "long"))


def test_probabilities_of_a_rare_class_have_a_chart_of_their_size():
    chart = diagonal(
        np.array([0.01, 0.04]), np.array([0.0, 0.05]), np.array([0.0, 0.01]),
        np.array([0.03, 0.09]), as_percent=True, titles=("a", "b"),
    )  # fmt: skip
    assert chart["layer"][-1]["encoding"]["x"]["scale"]["domain"] == [0.0, 0.09]


def test_rows_whose_predictions_do_not_fit_into_memory_are_refused(monkeypatch):
    X, y = _heavy_tails(200)
    labels = np.digitize(y, [0])
    for model, target, numbers in (
        (AdditiveGPRegressor().fit(X, y), y, 33),
        (AdditiveGPClassifier().fit(X, labels), labels, 37),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("dsgp.memory.available", lambda: 200 * 8 * 30)
            with pytest.raises(MemoryLimitError, match="on 200 held-out rows needs"):
                _held_out(model, X, target)
            patch.setattr("dsgp.memory.available", lambda bytes_=200 * 8 * numbers: bytes_)
            _held_out(model, X, target)
            gaps = np.where(np.arange(200) < 3, np.nan, target)  # the others are copied
            with pytest.raises(MemoryLimitError):
                _held_out(model, X.assign(more=1.0, still=2.0), gaps)
