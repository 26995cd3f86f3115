"""Measures against scikit-learn, scipy's densities and their own definitions."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import r2_score

from dsgp.errors import DataError
from dsgp.metrics import coverage, mnlp, nmse


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
