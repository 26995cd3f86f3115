"""Methods by name: a normal distribution per step of the series, or of its logarithm."""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgp import AdditiveGPRegressor, Levels, Linear, Smooth
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic
from dsgp.terms import parse_term
from pipelines.cells import installed
from pipelines.datasets import Floats
from pipelines.forecast.series import YEAR, Series

# Of the past, as an initial lengthscale of the trend.
SHARE_OF_WINDOW = 0.25
# And as the fixed one of a random walk.
WINDOWS_OF_WALK = 10
# Steps of a season that exponential smoothing can have: each is a state of its own.
LONGEST_OF_ETS = 24
# Pairs of sine and cosine of a season.
MOST_PAIRS = 6
# Autoregressive and moving-average terms that are tried, of first differences.
ORDERS = ((0, 1, 1), (1, 1, 1), (2, 1, 1), (1, 1, 2), (2, 1, 2))


@dataclass(frozen=True, eq=False)
class Forecast:
    """Mean and standard deviation of each step to come, noise included, on the scale of the fit."""

    mean: Floats
    std: Floats


@dataclass(frozen=True)
class Method:
    """A way to forecast, what it is called in reports, and the package that it needs."""

    label: str
    forecast: Callable[[Series, pd.DataFrame, Floats, pd.DataFrame], Forecast]
    needs: str | None = None

    def lacking(self) -> str | None:
        """Say what is not installed; None if nothing."""
        if self.needs is None or importlib.util.find_spec(self.needs) is not None:
            return None
        return f"{self.label} needs {self.needs}: pip install {self.needs}"


def _additive(kernel: type[Any]) -> Callable[..., Forecast]:
    def forecast(series: Series, past: pd.DataFrame, y: Floats, future: pd.DataFrame) -> Forecast:
        # A trend and a season can share the same wiggles in several ways, each with a maximum of
        # the marginal likelihood of its own: the better one from two initial lengthscales is taken.
        long = SHARE_OF_WINDOW * series.window * series.days
        fits = [
            AdditiveGPRegressor(terms=terms_of(series, trend)).fit(past, y)
            for trend in (kernel(), kernel(lengthscale=long))
        ]
        model = max(fits, key=lambda fit: fit.log_marginal_likelihood_)
        return Forecast(*model.predict(future, return_std=True, include_noise=True))

    return forecast


def random_walk(series: Series, past: pd.DataFrame, y: Floats, future: pd.DataFrame) -> Forecast:
    """A trend whose lengthscale is fixed at many times the past: a random walk, up to then.

    Learned lengthscales tend to be too short, as are those of all processes that are seen for a few
    lengthscales only, and intervals then stop widening too early.
    """
    trend = Matern12(
        lengthscale=WINDOWS_OF_WALK * series.window * series.days, fixed=("lengthscale",)
    )
    model = AdditiveGPRegressor(terms=terms_of(series, trend)).fit(past, y)
    return Forecast(*model.predict(future, return_std=True, include_noise=True))


def terms_of(series: Series, trend: Any) -> list[Any]:
    """Terms of a series: a trend and its slope, and then those given, or seasons and holidays."""
    terms: list[Any] = [
        Smooth("date", kernel=trend, name="trend"),
        Linear("date", name="slope"),
    ]
    if series.terms:
        return terms + [parse_term(text) for text in series.terms]
    if series.has_year:
        terms.append(Smooth("date", kernel=Periodic("year"), name="year"))
    if series.days <= 1:
        terms.append(Levels("date", part="weekday", name="weekday"))
    if series.days < 1:
        terms.append(Smooth("date", kernel=Periodic("day"), name="day"))
    if len(terms) == 2 and series.season > 1:  # none of the calendar: that of the baselines
        period = series.season * series.days
        terms.append(Smooth("date", kernel=Periodic(period), name="season"))
    if "holiday" in series.frame:
        terms.append(Levels("holiday"))
    return terms


def seasonal_naive(series: Series, past: pd.DataFrame, y: Floats, future: pd.DataFrame) -> Forecast:
    """Repeat the last season; each further season adds the variance of its differences."""
    m, n = series.season, len(future)
    spread = float(np.std(y[m:] - y[:-m]))
    steps = np.arange(n)
    return Forecast(y[len(y) - m + steps % m], spread * np.sqrt(steps // m + 1))


def ets(series: Series, past: pd.DataFrame, y: Floats, future: pd.DataFrame) -> Forecast:
    """Exponential smoothing with a damped trend and the season of the naive forecast.

    Seasons of more than 24 steps are left out.
    """
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # noqa: PLC0415 - optional

    has_season = 1 < series.season <= LONGEST_OF_ETS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its optimiser; the forecast is measured
        model = ETSModel(
            pd.Series(y),  # its intervals need an index
            error="add",
            trend="add",
            damped_trend=True,
            seasonal="add" if has_season else None,
            seasonal_periods=series.season if has_season else None,
        ).fit(disp=False)
        n = len(y)
        table = model.get_prediction(n, n + len(future) - 1).summary_frame(alpha=0.05)
    half = (table["pi_upper"] - table["pi_lower"]) / 2
    return Forecast(table["mean"].to_numpy(), half.to_numpy() / 1.959963984540054)


def arima(series: Series, past: pd.DataFrame, y: Floats, future: pd.DataFrame) -> Forecast:
    """Regression on seasons and holidays with ARIMA errors ("dynamic harmonic regression").

    Seasons are pairs of sine and cosine; the order of the errors is that of the lowest AIC with
    corrected number of parameters (Hyndman and Athanasopoulos 2021, section 10.5).
    """
    from statsmodels.tsa.arima.model import ARIMA  # noqa: PLC0415 - optional

    n, inputs = len(y), known_ahead(series, past, future)
    exog = {} if not inputs.shape[1] else {"exog": inputs[:n]}
    ahead = {} if not inputs.shape[1] else {"exog": inputs[n:]}
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of differences, and of its optimiser
        for order in ORDERS:
            try:
                fits.append(ARIMA(y, order=order, **exog).fit(method="innovations_mle"))
            except (ValueError, np.linalg.LinAlgError):  # an order that does not fit
                continue
        # Otherwise the likelihood by the Kalman filter: an order of magnitude slower.
        fits = fits or [ARIMA(y, order=ORDERS[0], **exog).fit()]
        best = min(fits, key=lambda fit: fit.aicc)
        forecast = best.get_forecast(len(future), **ahead)
    return Forecast(np.asarray(forecast.predicted_mean), np.asarray(forecast.se_mean))


def known_ahead(series: Series, past: pd.DataFrame, future: pd.DataFrame) -> Floats:
    """Inputs of a regression that are known ahead, (n_past + n_future, n_inputs)."""
    both = pd.concat([past, future], ignore_index=True)
    steps = np.arange(len(both))
    year = YEAR / series.days
    # A season of 12 months or 52 weeks is the year already.
    has_other_year = series.has_year and year > 2 * series.season
    seasons = {float(series.season)} | ({year} if has_other_year else set())
    columns = []
    for period in sorted(seasons):
        for k in range(1, min(int(period) // 2, MOST_PAIRS) + 1):
            angle = 2 * np.pi * k * steps / period
            columns += [np.cos(angle), np.sin(angle)]
    if "holiday" in both:
        columns += list(pd.get_dummies(both["holiday"]).drop(columns="none").to_numpy(float).T)
    seen = [column for column in columns if np.ptp(column[: len(past)]) > 1e-9]
    return np.column_stack(seen) if seen else np.empty((len(both), 0))


METHODS = {
    "matern12": Method("dsgp, trend Matern12", _additive(Matern12)),
    "walk": Method("dsgp, trend random walk", random_walk),
    "matern32": Method("dsgp, trend Matern32", _additive(Matern32)),
    "matern52": Method("dsgp, trend Matern52", _additive(Matern52)),
    "naive": Method("seasonal naive", seasonal_naive),
    "ets": Method("ETS (statsmodels)", ets, "statsmodels"),
    "arima": Method("ARIMA errors (statsmodels)", arima, "statsmodels"),
}


def methods_named(names: list[str] | None) -> tuple[list[str], list[str]]:
    """Return methods to run, and a line for each that is left out, like ``installed``."""
    return installed(names, {name: method.lacking for name, method in METHODS.items()})
