"""Measures against scikit-learn, scipy's densities and their own definitions."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest, norm
from sklearn.calibration import calibration_curve as sklearn_calibration_curve
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from dsgp.errors import DataError
from dsgp.metrics import (
    brier,
    calibration_curve,
    calibration_error,
    calibration_of,
    coverage,
    error_rate,
    mnll,
    mnlp,
    nmse,
    roc_auc,
)


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    y = 3 + 2 * rng.standard_normal(500)
    std = rng.uniform(0.5, 2, 500)
    return y, y + std * rng.standard_normal(500), std


def test_nmse_around_the_test_mean_is_one_minus_r2(predictions):
    y, mean, _ = predictions
    assert nmse(y, mean, y.mean()) == pytest.approx(1 - r2_score(y, mean), rel=1e-12)


def test_predicting_the_training_mean_scores_one(predictions):
    y, _, _ = predictions
    assert nmse(y, 1.7, y_train_mean=1.7) == 1


def test_mnlp_is_the_mean_gaussian_log_density(predictions):
    y, mean, std = predictions
    expected = -norm.logpdf(y, mean, std).mean()
    assert mnlp(y, mean, std**2) == pytest.approx(expected, rel=1e-12)


def test_mnlp_takes_one_variance_for_all(predictions):
    y, mean, _ = predictions
    assert mnlp(y, mean, 1.3) == mnlp(y, mean, np.full(500, 1.3))


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_coverage_counts_targets_between_gaussian_quantiles(predictions, level):
    y, mean, std = predictions
    low, high = norm.interval(level, mean, std)
    assert coverage(y, mean, std, level) == np.mean((low <= y) & (y <= high))


def test_certain_and_right_predictions_are_covered():
    assert coverage([1.0, 2.0], [1.0, 2.0], 0.0) == 1


def test_grids_are_scored_cell_by_cell(predictions):
    y, mean, std = (array.reshape(20, 25) for array in predictions)
    assert mnlp(y, mean, std**2) == pytest.approx(mnlp(y.ravel(), mean.ravel(), std.ravel() ** 2))


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: nmse([1.0, 2.0], [[1.0], [2.0]], 0.0), r"mean: expected the shape of y"),
        (lambda: nmse([2.0, 2.0], [1.0, 2.0], 2.0), "NMSE is undefined"),
        (lambda: nmse([], [], 0.0), "at least one"),
        (lambda: mnlp([1.0, np.nan], 0.0, 1.0), "y: expected finite values, got 1"),
        (lambda: mnlp([1.0, 2.0], 0.0, [1.0, 0.0]), "variance: expected positive"),
        (lambda: coverage([1.0], 0.0, -1.0), "std: expected"),
        (lambda: coverage([1.0], 0.0, 1.0, level=95), "level: expected a share"),
    ],
)
def test_unusable_input_is_named(measure, message):
    with pytest.raises(DataError, match=message):
        measure()


# ---- classes


@pytest.fixture
def binary():
    """Labels 0 and 1, and probabilities with ties."""
    rng = np.random.default_rng(1)
    p = np.round(rng.beta(0.7, 0.9, 400), 2).clip(0.01, 0.99)
    return (rng.uniform(size=400) < p).astype(int), p


@pytest.fixture
def multiclass():
    rng = np.random.default_rng(2)
    p = rng.dirichlet([0.5, 0.4, 0.3, 0.6], 500).clip(1e-9)
    p /= p.sum(axis=1, keepdims=True)
    return np.array([rng.choice(4, p=row) for row in p]), p


def test_error_rate_is_one_minus_the_accuracy(multiclass):
    y, p = multiclass
    assert error_rate(y, p.argmax(axis=1)) == pytest.approx(1 - accuracy_score(y, p.argmax(axis=1)))
    names = np.array(["a", "b", "c", "d"])
    assert error_rate(names[y], names[p.argmax(axis=1)]) == error_rate(y, p.argmax(axis=1))


def test_binary_scores_are_those_of_scikit_learn(binary):
    y, p = binary
    assert mnll(y, p) == pytest.approx(log_loss(y, p), rel=1e-12)
    assert brier(y, p) == pytest.approx(np.mean((y - p) ** 2), rel=1e-12)
    assert roc_auc(y, p) == pytest.approx(roc_auc_score(y, p), rel=1e-12)


def test_two_columns_score_as_one(binary):
    y, p = binary
    both = np.column_stack([1 - p, p])
    for measure in (mnll, brier, roc_auc, calibration_error):
        assert measure(y, both) == pytest.approx(measure(y, p), rel=1e-12)
        assert measure(y == 1, p) == measure(y, p)
        assert measure(np.array(["no", "yes"])[y], p, classes=["no", "yes"]) == measure(y, p)


def test_two_columns_keep_the_digits_of_a_small_first_probability():
    assert mnll([0], [[1e-30, 1.0]]) == pytest.approx(30 * np.log(10))


def test_multiclass_scores_are_those_of_scikit_learn(multiclass):
    y, p = multiclass
    assert mnll(y, p) == pytest.approx(log_loss(y, p), rel=1e-12)
    assert brier(y, p) == pytest.approx(np.mean(np.sum((p - np.eye(4)[y]) ** 2, axis=1)), rel=1e-12)
    assert roc_auc(y, p) == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), rel=1e-12)


def test_columns_have_the_order_of_the_classes(multiclass):
    y, p = multiclass
    names, order = np.array(["z", "a", "m", "k"]), [2, 0, 3, 1]
    for measure in (mnll, brier, roc_auc, calibration_error):
        assert measure(names[y], p[:, order], names[order]) == pytest.approx(measure(y, p))


def test_the_area_is_over_the_classes_that_came(multiclass):
    y, p = multiclass
    seen = y < 3
    areas = [roc_auc_score(y[seen] == k, p[seen, k]) for k in range(3)]
    assert roc_auc(y[seen], p[seen]) == pytest.approx(np.mean(areas), rel=1e-12)


def test_bins_have_equal_counts_and_wilson_intervals():
    rng = np.random.default_rng(3)
    p = rng.uniform(size=1003)
    y = rng.uniform(size=1003) < p
    curve = calibration_curve(y, p, n_bins=10, level=0.9)
    assert set(curve.count) <= {100, 101}
    assert curve.count.sum() == 1003
    observed, predicted = sklearn_calibration_curve(y, p, n_bins=10, strategy="quantile")
    # scikit-learn's borders are interpolated and may put a row into the next bin
    np.testing.assert_allclose(curve.predicted, predicted, atol=0.01)
    np.testing.assert_allclose(curve.observed, observed, atol=0.02)
    for share, low, high, n in zip(curve.observed, curve.low, curve.high, curve.count, strict=True):
        expected = binomtest(round(share * n), int(n)).proportion_ci(0.9, "wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_equal_probabilities_stay_in_one_bin(binary):
    y, p = binary
    order = np.random.default_rng(4).permutation(len(y))
    for n_bins in (1, 3, 10, 1000):
        curve = calibration_curve(y, p, n_bins=n_bins)
        again = calibration_curve(y[order], p[order], n_bins=n_bins)
        np.testing.assert_array_equal(curve.count, again.count)
        np.testing.assert_array_equal(curve.observed, again.observed)
        assert len(curve.count) <= n_bins
        assert (curve.count > 0).all()
        assert (np.diff(curve.predicted) > 0).all()
    values, count = np.unique(p, return_counts=True)  # as many bins as rows: one a value
    np.testing.assert_array_equal(curve.count, count)
    np.testing.assert_allclose(curve.predicted, values, rtol=1e-12)


def test_bins_without_a_failure_reach_one():
    curve = calibration_curve([1, 1, 0, 0], [1.0, 1.0, 0.0, 0.0], n_bins=2)
    np.testing.assert_array_equal(curve.observed, [0, 1])
    assert curve.low[0] == 0
    assert curve.high[1] == 1
    assert curve.high[0] == pytest.approx(binomtest(0, 2).proportion_ci(0.95, "wilson").high)


def test_calibration_error_is_the_weighted_gap_of_the_bins(binary, multiclass):
    y, p = binary
    curve = calibration_curve(y, p, n_bins=7)
    gap = np.abs(curve.observed - curve.predicted)
    assert calibration_error(y, p, n_bins=7) == pytest.approx(np.sum(gap * curve.count) / 400)
    y, p = multiclass
    right, top = y == p.argmax(axis=1), p.max(axis=1)
    assert calibration_error(y, p) == pytest.approx(calibration_error(right, top))


def test_the_truth_has_the_calibration_error_that_is_documented():
    rng = np.random.default_rng(5)
    p = rng.beta(2, 2, (200, 2000))
    errors = [calibration_error(rng.uniform(size=2000) < row, row, n_bins=20) for row in p]
    expected = np.sqrt(2 * 20 * np.mean(p * (1 - p)) / (np.pi * 2000))
    assert np.mean(errors) == pytest.approx(expected, rel=0.1)


def test_certain_predictions_have_every_score_but_an_infinite_likelihood():
    y, p = [0, 1, 1, 0], [0.0, 1.0, 0.0, 1.0]
    assert brier(y, p) == 0.5
    assert calibration_error(y, p) == 0.5
    assert roc_auc(y, p) == 0.5
    assert mnll(y[:2], p[:2]) == 0
    with pytest.raises(DataError, match=r"probability 0 in 2 of 4 rows, first in row 2, .* clip"):
        mnll(y, p)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: error_rate([0, 1], [0, 1, 1]), r"predicted: expected the shape of y, \(2,\)"),
        (lambda: error_rate(["a"], [1]), "labels of one kind, got 'a' and 1"),
        (lambda: error_rate([0, np.nan], [0, 1]), "y: expected labels, got 1 missing"),
        (lambda: error_rate([], []), "y: expected labels"),
        (lambda: mnll([0, 1], [0.5]), r"probability: expected the shape \(2,\) or \(2, n_classes"),
        (lambda: mnll([0, 1], [[0.5], [0.5]]), "expected two columns at least"),
        (lambda: mnll([0, 1], [0.5, 1.5]), "between 0 and 1, got 1.5 in row 1; 1 are not"),
        (lambda: brier([0, 1], [np.nan, 0.5]), "between 0 and 1, got nan in row 0"),
        (lambda: brier([0], [[0.5, 0.4]]), r"add up to 1, got 0\.9 in row 0"),
        (
            lambda: mnll([-1, 1], [0.5, 0.5]),
            r"y: -1 is not among the classes, which are 0, 1; give",
        ),
        (lambda: mnll(["a"], [0.5], ["b", "c"]), r"'a' is not among .* 'b', 'c'; leave those rows"),
        (lambda: mnll([0], [0.5], [0, 1, 2]), r"classes: expected 2 different labels.*got 0, 1, 2"),
        (lambda: mnll([0], [0.5], [0, 0]), "classes: expected 2 different labels"),
        (lambda: roc_auc([1, 1], [0.5, 0.2]), "every label is 1, so there is nothing to rank"),
        (lambda: calibration_curve([0], [[0.2, 0.3, 0.5]]), "is for two classes, got 3"),
        (lambda: calibration_curve([0], [0.2], n_bins=0), "n_bins: expected one bin at least"),
        (lambda: calibration_curve([0], [0.2], level=95), "level: expected a share"),
    ],
)
def test_labels_and_probabilities_that_cannot_be_scored_are_named(measure, message):
    with pytest.raises(DataError, match=message):
        measure()


def test_measures_load_neither_scikit_learn_nor_scipy_stats():
    slow = "{'sklearn', 'scipy.stats'}"
    code = f"import sys, dsgp.metrics; sys.exit(bool({slow} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_calibration_bands_are_binomial():
    random = np.random.default_rng(0)
    pit = random.random(1000)
    groups = {"number": np.arange(1000.0), "label": np.array(["a", "b"] * 500)}
    report = calibration_of(pit, level=0.9, by=groups, n_groups=5)
    table = report.coverage
    assert table["n_rows"].tolist() == [1000, *[200] * 5, 500, 500]
    inside = np.abs(pit - 0.5) <= 0.45
    np.testing.assert_allclose(table["coverage"].iloc[1:6], inside.reshape(5, 200).mean(axis=1))
    low, high = binom.ppf([0.025, 0.975], 200, 0.9) / 200
    np.testing.assert_allclose(table[["band_low", "band_high"]].iloc[1], [low, high])
    k = int(inside[:200].sum())
    tails = [binomtest(k, 200, 0.9, alternative=a).pvalue for a in ("less", "greater")]
    np.testing.assert_allclose(table["p_value"].iloc[1], min(1, 2 * min(tails)))
    assert report.histogram["count"].sum() == 1000
    wide = calibration_of(0.5 + 0.2 * (pit - 0.5), by=groups)
    assert (wide.coverage["outside"] == "yes").iloc[0]
    assert wide.p_value < 1e-6


def test_calibration_refuses_what_is_no_probability():
    with pytest.raises(DataError, match="between 0 and 1"):
        calibration_of([0.5, 1.2])
    with pytest.raises(DataError, match="expected shape"):
        calibration_of([0.5, 0.2], by={"x": [1.0]})
    with pytest.raises(DataError, match="at least one value"):
        calibration_of([])


def test_groups_of_dates_are_written_as_dates():
    pit = np.random.default_rng(0).random(200)
    hours = pd.date_range("2021-12-31", periods=200, freq="h").to_numpy().copy()
    hours[:20] = np.datetime64("NaT")
    report = calibration_of(pit, by={"at": hours, "n": np.arange(200.0)}, n_groups=2)
    groups = report.coverage.set_index("by").loc["at"]
    assert groups["group"].tolist() == [
        "2021-12-31 to 2022-01-04", "2022-01-04 to 2022-01-08", "missing",
    ]  # fmt: skip
    assert groups["middle"].iloc[0] == pd.Timestamp("2022-01-02 16:30")
    assert report.coverage.set_index("by").loc["n"]["middle"].iloc[0] == 49.5
    short = calibration_of(pit, by={"at": hours}, n_groups=9).coverage["group"]
    assert short.iloc[1] == "2021-12-31 20:00 to 2022-01-01 15:00"


def test_a_group_of_one_value_is_called_by_it():
    pit = np.random.default_rng(0).random(200)
    report = calibration_of(pit, by={"cars": np.repeat([1.0, 2.0, 3.0, 4.0], 50)})
    assert report.coverage["group"].tolist() == ["", "1", "2", "3", "4"]
