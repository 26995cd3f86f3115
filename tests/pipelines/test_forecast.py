"""Backtests: what scores mean, series of files, and a report with pictures from end to end."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from dsgp.errors import DataError, ParameterError
from pipelines.forecast import __main__ as forecast
from pipelines.forecast import cell
from pipelines.forecast.cell import measure, scores
from pipelines.forecast.methods import (
    METHODS,
    Forecast,
    arima,
    ets,
    known_ahead,
    seasonal_naive,
    terms_of,
)
from pipelines.forecast.series import SERIES, Design, Series
from pipelines.forecast.summary import bands_of, lines_of, markdown
from pipelines.forecast.tables import Table

DAYS = pd.date_range("2020-01-01", periods=300)


def series_of(y, log=True, season=2):
    frame = pd.DataFrame({"date": DAYS[: len(y)]})
    return Series("made", frame, np.asarray(y, dtype=float), season, 1, len(y) - 1, 1, log)


def written(folder, **columns):
    path = folder / "visits.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return Table(str(path), "day", "visits")


# ---- scores


def test_scores_are_those_of_a_normal_distribution_of_the_log():
    series = series_of([1.0, 2.0, 2.0, 4.0, np.exp(1.1)])
    past = series.scaled()[:4]
    found = scores(Forecast(np.array([0.3]), np.array([0.5])), past, np.array([1.1]), series)
    normal = stats.norm(0.3, 0.5)
    crps, _ = integrate.quad(lambda x: (normal.cdf(x) - (x >= 1.1)) ** 2, -4, 5, points=[1.1])
    assert found["crps"][0] == pytest.approx(crps, rel=1e-6)
    assert found["mnlp"][0] == pytest.approx(-normal.logpdf(1.1))
    assert found["mase"][0] == pytest.approx((np.exp(1.1) - np.exp(0.3)) / 1.5)
    assert found["width"][0] == pytest.approx(np.diff(np.exp(normal.interval(0.95)))[0] / 1.5)
    assert (found["within0.8"][0], found["within0.95"][0]) == (0.0, 1.0)


def test_scores_of_the_series_itself_need_no_positive_values():
    series = series_of([0.0, -1.0, 2.0, 1.0, 3.0], log=False)
    found = scores(
        Forecast(np.array([2.0]), np.array([1.0])), series.y[:4], np.array([3.0]), series
    )
    assert found["mase"][0] == pytest.approx(1.0 / 2.0)
    assert found["median"][0] == 2.0


# ---- methods


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


def test_arima_errors_follow_a_walk_with_seasons():
    pytest.importorskip("statsmodels")
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(0, 0.1, 260))
    y = walk + np.array([0, 1, 2, 3, 2, 1, 0.0])[np.arange(260) % 7]
    frame = pd.DataFrame({"date": DAYS[:260]})
    series = Series("made", frame, y, 7, 20, 240, 1, log=False)
    found = arima(series, frame[:240], y[:240], frame[240:])
    # Of a random walk the best guess is where it is, and its variance grows with time.
    expected = walk[239] + (y - walk)[240:]
    assert np.abs(found.mean - expected).max() < 0.25
    np.testing.assert_allclose(found.std, 0.1 * np.sqrt(np.arange(1, 21)), rtol=0.25)


def test_inputs_of_a_regression_are_seasons_and_holidays_that_were_seen():
    series = SERIES["sales"](None)
    past, future = series.frame[:1095], series.frame[1095:1185]
    inputs = known_ahead(series, past, future)
    # 6 holidays, 3 pairs of the week and 6 of the year; none is constant, and none is another one.
    assert inputs.shape == (1185, 6 + 2 * 3 + 2 * 6)
    assert np.linalg.matrix_rank(inputs - inputs.mean(axis=0)) == inputs.shape[1]
    monthly = SERIES["monthly"](None)
    # The sine of half a season is 0 at every month.
    assert known_ahead(monthly, monthly.frame[:120], monthly.frame[120:144]).shape == (144, 11)


def test_terms_are_those_that_the_series_has_or_those_that_are_given():
    names = [term.name for term in terms_of(SERIES["sales"](None), None)]
    assert names == ["trend", "slope", "year", "weekday", None]
    assert [term.name for term in terms_of(SERIES["monthly"](None), None)][2:] == ["year"]
    for freq, season, expected in (
        ("QS", 4, ["year"]), ("2QS", 2, ["year"]), ("W-SUN", 52, ["year"]), ("YS", 11, ["season"]),
        ("YS", 1, []),
    ):  # fmt: skip
        frame = pd.DataFrame({"date": pd.date_range("1900-01-01", periods=120, freq=freq)})
        series = Series("made", frame, np.ones(120), season, 4, 110, 1)
        assert [term.name for term in terms_of(series, None)][2:] == expected
    assert terms_of(Series("made", frame, np.ones(120), 11, 4, 110, 1), None)[2].kernel.period == (
        11 * 365
    )
    given = Design(terms=("date: Levels(part=month)",)).applied_to(SERIES["monthly"](None))
    assert terms_of(given, None)[2].part == "month"


# ---- series


def test_a_series_of_a_file_whatever_the_order_of_its_rows(tmp_path):
    order = np.random.default_rng(0).permutation(300)
    y = 5 + np.arange(300.0)
    table = written(tmp_path, day=DAYS[order], visits=y[order])
    series = Design(horizon=30, origins=4).applied_to(table.series(30, None, None))
    np.testing.assert_array_equal(series.y, y)
    assert (series.frame["date"] == DAYS).all()
    assert (table.name, series.season, series.window) == ("visits", 7, 135)
    assert series.origins() == [135, 180, 225, 270]
    last = Design(origins=3, step=10, window=100).applied_to(series)
    assert last.origins() == [250, 260, 270]
    assert not last.has_year


def test_values_of_one_date_are_refused_or_added_up(tmp_path):
    table = written(tmp_path, day=[*DAYS, *DAYS], visits=np.ones(600))
    with pytest.raises(DataError, match=r"2020-01-01 .* more than once.*--sum"):
        table.series(30, None, None)
    summed = Table(table.path, "day", "visits", add_up=True).series(30, None, None)
    np.testing.assert_array_equal(summed.y, np.full(300, 2.0))


@pytest.mark.parametrize(
    ("days", "visits", "message"),
    [
        (DAYS.delete([40, 41]), np.ones(298), "lacks 2 dates .* first one 2020-02-10"),
        (DAYS, [np.nan, *np.ones(299)], "'visits' is missing on 2020-01-01"),
        (DAYS, ["a", *np.ones(299)], "visits"),
        (["x", *DAYS[1:].astype(str)], np.ones(300), "no dates"),
        (np.arange(300), np.ones(300), "holds numbers; expected dates"),
        (DAYS, np.zeros(300), "no logarithm; pass --transform none"),
    ],
)
def test_a_file_that_is_no_series_is_refused(tmp_path, days, visits, message):
    with pytest.raises(DataError, match=message):
        written(tmp_path, day=days, visits=visits).series(30, None, None)


def test_what_a_series_has_too_little_for(tmp_path):
    table = written(tmp_path, day=DAYS, visits=np.ones(300))
    with pytest.raises(ParameterError, match="need as many observations, and there are 300"):
        table.series(200, None, 150)
    with pytest.raises(ParameterError, match="less than two seasons"):
        table.series(30, 100, 150)
    with pytest.raises(ParameterError, match="--horizon"):
        table.series(None, None, None)
    with pytest.raises(ParameterError, match="9 origins at a distance of 30"):
        Design(origins=9, step=30).applied_to(table.series(30, None, None))


def test_holidays_of_a_file(tmp_path):
    holidays = tmp_path / "holidays.csv"
    pd.DataFrame({"date": ["2020-05-01"], "holiday": ["May Day"]}).to_csv(holidays, index=False)
    table = written(tmp_path, day=DAYS, visits=np.ones(300))
    series = Table(table.path, "day", "visits", holidays=str(holidays), after=1).series(
        30, None, None
    )
    found = series.frame.set_index("date")["holiday"]
    assert found["2020-05-02"] == "May Day +1"
    assert (found != "none").sum() == 2
    # A path without an extension is no country.
    with pytest.raises(DataError, match=r"there is no file .*days"):
        Table(table.path, "day", "visits", holidays=str(tmp_path / "days")).series(30, None, None)


def test_a_series_that_repeats_itself_has_no_unit_of_errors(tmp_path):
    y = np.r_[np.tile(np.arange(1.0, 8.0), 40), 3.0 + np.arange(20) % 5]
    table = written(tmp_path, day=DAYS, visits=y)
    with pytest.raises(DataError, match=r"from 2020-\d.* repeat those of 7 steps before"):
        cell.series_of("a", None, table, Design(horizon=10, window=100), False)
    cell.series_of("a", None, table, Design(horizon=10, window=286), False)


# ---- the report


def test_bands_of_steps_cover_a_horizon():
    assert bands_of(90) == [(1, 1), (2, 7), (8, 28), (29, 90)]
    assert bands_of(24) == [(1, 1), (2, 7), (8, 24)]


def test_a_horizon_of_one_step_is_one_band():
    names = ("mase", "crps", "mnlp", "width", "within0.8", "within0.95")
    costs = {name: np.full((3, 1), 0.25) for name in names}
    record = {
        **{"settings": {"series": "made", "method": "naive"}, "horizon": 1, "window": 9},
        **{"about": "made.", "log": False, "season": 2, "n_origins": 3, "cpu_seconds": 1.0},
        **{"first_origin": "2020-01-01", "last_origin": "2020-03-01"},
    }
    lines = lines_of([record], [costs])
    assert len(lines) == 1
    tables = [line for line in markdown([record], lines, [], "").splitlines() if "naive |" in line]
    assert [line.split("|")[2].strip() for line in tables] == ["0.250 ± 0.000", "0.250", "25.0%"]


def run_here(planned, folder, scheduler, overwrite, module, limit_seconds):
    folder.mkdir(parents=True)
    records = []
    for settings in planned:
        # As the process of a cell reads them.
        record, arrays = measure(type(settings)(**json.loads(json.dumps(asdict(settings)))))
        record["settings"] = asdict(settings)
        name = settings.file_name.replace(".json", ".npz")
        np.savez(folder / name, **arrays)
        records.append(record | {"arrays": name, "machine": {}})
    return records, []


def test_a_report_from_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "run_all", run_here)
    out = tmp_path / "out"
    forecast.main(out=out, only=["monthly"], models=["naive", "matern12"], quick=True)
    report = json.loads((out / "report.json").read_text())
    lines = pd.DataFrame(report["lines"])
    assert set(lines["method"]) == {"naive", "matern12"}
    assert {"mase", "within0.8", "within0.95", "crps", "mnlp", "width"} <= set(lines)
    assert METHODS["matern12"].label in (out / "report.md").read_text()
    for name in ("monthly-horizon.png", "monthly-forecast.png"):
        assert (out / name).stat().st_size > 10_000


def test_a_report_of_a_series_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast, "run_all", run_here)
    y = np.random.default_rng(0).normal(size=300)
    table = written(tmp_path, day=DAYS, visits=y)
    options = {"data": tmp_path / "visits.csv", "date": "day", "horizon": 20, "transform": "none"}
    out = tmp_path / "out"
    forecast.main(out=out, value="visits", models=["naive"], origins=3, **options)
    record = json.loads((out / "report.json").read_text())["runs"][0]
    assert (record["n_origins"], record["window"], record["log"]) == (3, 140, False)
    assert "visits by day, of visits.csv." in (out / "report.md").read_text()
    assert (out / f"{table.name}-forecast.png").exists()
