"""Backtests: what scores mean, and a report with pictures from end to end."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from pipelines.forecast import __main__ as forecast
from pipelines.forecast.cell import measure, scores
from pipelines.forecast.methods import METHODS, Forecast, ets, seasonal_naive
from pipelines.forecast.series import SERIES
from pipelines.forecast.summary import bands_of


def test_scores_are_those_of_a_normal_distribution_of_the_log():
    past = np.log(np.array([1.0, 2.0, 2.0, 4.0]))
    found = scores(Forecast(np.array([0.3]), np.array([0.5])), past, np.array([1.1]), 2)
    normal = stats.norm(0.3, 0.5)
    crps, _ = integrate.quad(lambda x: (normal.cdf(x) - (x >= 1.1)) ** 2, -4, 5, points=[1.1])
    assert found["crps"][0] == pytest.approx(crps, rel=1e-6)
    assert found["mnlp"][0] == pytest.approx(-normal.logpdf(1.1))
    assert found["mase"][0] == pytest.approx((np.exp(1.1) - np.exp(0.3)) / 1.5)
    assert (found["within0.8"][0], found["within0.95"][0]) == (0.0, 1.0)


def test_a_naive_forecast_repeats_the_season_and_widens():
    series = SERIES["monthly"](None)
    log_y = np.log(series.y)
    found = seasonal_naive(series, series.frame[:120], log_y[:120], series.frame[120:144])
    np.testing.assert_array_equal(found.mean, np.tile(log_y[108:120], 2))
    assert found.std[12] == pytest.approx(np.sqrt(2) * found.std[0])


def test_exponential_smoothing_is_that_of_statsmodels():
    models = pytest.importorskip("statsmodels.tsa.holtwinters")
    series = SERIES["monthly"](None)
    log_y = np.log(series.y)
    found = ets(series, series.frame[:120], log_y[:120], series.frame[120:144])
    # Holt and Winters' method has the same recursion, with another way to its parameters.
    other = models.ExponentialSmoothing(
        log_y[:120], trend="add", damped_trend=True, seasonal="add", seasonal_periods=12
    ).fit()
    assert np.abs(found.mean - other.forecast(24)).max() < 3 * found.std[0]
    assert found.std[0] > 0
    assert found.std[-1] > found.std[0]


def test_bands_of_steps_cover_a_horizon():
    assert bands_of(90) == [(1, 1), (2, 7), (8, 28), (29, 90)]
    assert bands_of(24) == [(1, 1), (2, 7), (8, 24)]


def test_a_report_from_end_to_end(tmp_path, monkeypatch):
    def run_here(planned, folder, scheduler, overwrite, module, limit_seconds):
        folder.mkdir(parents=True)
        records = []
        for settings in planned:
            record, arrays = measure(settings)
            record["settings"] = asdict(settings)
            name = settings.file_name.replace(".json", ".npz")
            np.savez(folder / name, **arrays)
            records.append(record | {"arrays": name, "machine": {}})
        return records, []

    monkeypatch.setattr(forecast, "run_all", run_here)
    out = tmp_path / "out"
    forecast.main(out=out, only=["monthly"], models=["naive", "matern12"], quick=True)
    report = json.loads((out / "report.json").read_text())
    lines = pd.DataFrame(report["lines"])
    assert set(lines["method"]) == {"naive", "matern12"}
    assert {"mase", "within0.8", "within0.95", "crps", "mnlp"} <= set(lines)
    assert METHODS["matern12"].label in (out / "report.md").read_text()
    for name in ("monthly-horizon.png", "monthly-forecast.png"):
        assert (out / name).stat().st_size > 10_000
