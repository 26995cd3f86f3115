"""Backtests of forecasts from moving origins; see `pipelines.forecast.__main__`."""
