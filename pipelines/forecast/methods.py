"""Methods by name: each forecasts a series on the log scale, with a normal distribution a step."""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgp import AdditiveGPRegressor, Levels, Linear, Smooth
from dsgp.errors import ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic
from pipelines.datasets import Floats
from pipelines.forecast.series import Series


@dataclass(frozen=True, eq=False)
class Forecast:
    """Mean and standard deviation of the log of each step to come, noise included."""

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
    def forecast(
        series: Series, past: pd.DataFrame, log_y: Floats, future: pd.DataFrame
    ) -> Forecast:
        model = AdditiveGPRegressor(terms=terms_of(series, kernel())).fit(past, log_y)
        return Forecast(*model.predict(future, return_std=True, include_noise=True))

    return forecast


def terms_of(series: Series, trend: Any) -> list[Any]:
    """Terms of a series: a trend and its slope, seasons, and holidays of daily ones."""
    terms = [
        Smooth("date", kernel=trend, name="trend"),
        Linear("date", name="slope"),
        Smooth("date", kernel=Periodic("year"), name="year"),
    ]
    if series.daily:
        terms += [Levels("date", part="weekday", name="weekday"), Levels("holiday")]
    return terms


def seasonal_naive(
    series: Series, past: pd.DataFrame, log_y: Floats, future: pd.DataFrame
) -> Forecast:
    """Repeat the last season; each further season adds the variance of its differences."""
    m, n = series.season, len(future)
    spread = float(np.std(log_y[m:] - log_y[:-m]))
    steps = np.arange(n)
    return Forecast(log_y[len(log_y) - m + steps % m], spread * np.sqrt(steps // m + 1))


def ets(series: Series, past: pd.DataFrame, log_y: Floats, future: pd.DataFrame) -> Forecast:
    """Exponential smoothing with a damped trend and the season of the naive forecast."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # noqa: PLC0415 - optional

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its optimiser; the forecast is measured
        model = ETSModel(
            pd.Series(log_y),  # its intervals need an index
            error="add",
            trend="add",
            damped_trend=True,
            seasonal="add",
            seasonal_periods=series.season,
        ).fit(disp=False)
        n = len(log_y)
        table = model.get_prediction(n, n + len(future) - 1).summary_frame(alpha=0.05)
    half = (table["pi_upper"] - table["pi_lower"]) / 2
    return Forecast(table["mean"].to_numpy(), half.to_numpy() / 1.959963984540054)


METHODS = {
    "matern12": Method("dsgp, trend Matern12", _additive(Matern12)),
    "matern32": Method("dsgp, trend Matern32", _additive(Matern32)),
    "matern52": Method("dsgp, trend Matern52", _additive(Matern52)),
    "naive": Method("seasonal naive", seasonal_naive),
    "ets": Method("ETS (statsmodels)", ets, "statsmodels"),
}


def methods_named(names: list[str] | None) -> tuple[list[str], list[str]]:
    """Return methods to run, None being all that are installed, and a line for each left out."""
    chosen, notes = [], []
    for name in METHODS if names is None else names:
        if name not in METHODS:
            raise ParameterError(f"there is no model {name!r}; there are: {', '.join(METHODS)}")
        lacking = METHODS[name].lacking()
        if lacking is None:
            chosen.append(name)
        elif names is None:
            notes.append(f"left out: {lacking}")
        else:
            raise ParameterError(lacking)
    return chosen, notes
