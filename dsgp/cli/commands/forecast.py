"""The command ``dsgp forecast``, its help and examples; `dsgp.cli.forecasting` does the work."""

from __future__ import annotations

from dsgp.cli.options import forecast as options
from dsgp.cli.options import predict, shared
from dsgp.cli.work import file_of, work_of

# \b keeps the lines of the paragraph that follows as they are.
FORECAST_EXAMPLES = """\b
Examples:
  dsgp forecast sales.zarr --ahead 90 --out ahead.csv
  dsgp forecast sales.zarr --ahead 90 --holidays holidays.csv \\
      --statistic median --level 0.8 --out ahead.csv
  dsgp forecast sales.zarr --ahead 90 --out ahead.csv --plot ahead.png \\
      --history sales.csv --target sales
  dsgp forecast visits.zarr --ahead 24 --freq MS --after 2024-12-01 \\
      --out ahead.parquet
"""


def forecast(
    model: shared.Model,
    ahead: options.Ahead,
    out: options.Out,
    freq: options.Freq = None,
    after: options.After = None,
    holidays: options.Holidays = None,
    holiday_column: options.HolidayColumn = None,
    no_holiday: options.NoHoliday = "none",
    level: predict.Level = None,
    quantile: predict.Quantile = None,
    statistic: predict.Statistic = None,
    history: options.History = None,
    target: options.Target = None,
    plot: options.Picture = None,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Forecast the dates that follow those of a model with one column of dates.

    Writes the dates under the name of their column, the holidays if there are any, and the columns
    of dsgp predict: mean (or median, with --statistic), std (of the mean, without noise), and lower
    and upper, the interval of an observation, including noise.

    A model that needs other columns cannot be forecast by its dates: make a table of the rows to
    come, and use dsgp predict.
    """
    work_of("forecasting", models=[model], tables=[file_of(holidays), history]).forecast(
        model,
        ahead,
        out,
        freq=freq,
        after=after,
        holidays=holidays,
        holiday_column=holiday_column,
        no_holiday=no_holiday,
        level=level,
        quantiles=quantile,
        statistic=statistic,
        history=history,
        target=target,
        plot=plot,
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )
