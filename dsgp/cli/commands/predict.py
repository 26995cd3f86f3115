"""The command ``dsgp predict``, its help and examples; `dsgp.cli.prediction` does the work."""

from __future__ import annotations

from dsgp.cli.options import predict as options
from dsgp.cli.options import shared
from dsgp.cli.work import HOLIDAY, file_of, holidays_given, work_of

# \b keeps the lines of the paragraph that follows as they are.
PREDICT_EXAMPLES = """\b
Examples:
  dsgp predict price.zarr new.csv --out predictions.csv
  dsgp predict price.zarr new.parquet --keep id,date --level 0.9 \\
      --out predictions.parquet
  dsgp predict price.zarr new.csv --quantile 0.1 --quantile 0.9 --out q.csv
  dsgp predict price.zarr sales/ --out predictions/
  dsgp predict price.zarr /shared/sales/ --out predictions/ \\
      --scheduler tcp://head:8786
  dsgp predict species.zarr new.csv --keep id --out classes.csv
  dsgp predict claims.zarr new.csv --exposure years --out claims.csv
  dsgp predict s3://models/price.zarr 's3://sales/*.parquet' \\
      --storage-option anon=true --out predictions.parquet
"""


def predict(
    model: shared.Model,
    data: shared.Data,
    out: options.Out,
    keep: options.Keep = None,
    level: options.Level = None,
    quantile: options.Quantile = None,
    statistic: options.Statistic = None,
    exposure: options.Exposure = None,
    offset: options.Offset = None,
    trials: options.Trials = None,
    holidays: shared.Holidays = None,
    holiday_column: shared.HolidayColumn = HOLIDAY,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    scheduler: shared.Scheduler = None,
    performance_report: shared.PerformanceReport = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Predict every row of a table, in its order.

    Writes the columns mean (or median, with --statistic), std (of the mean, without noise), and
    lower and upper: the interval of a new observation, including noise; for a model from dsgp
    calibrate, the conformal interval. All are in the units of the target. For an ordered target
    there are also probability_LEVEL, one column per level.

    For a classifier, writes the columns predicted (the most probable class), probability_LABEL (one
    column per class), and mean and std of the function on the scale of the link function: latent
    and std for the second of two classes, or latent_LABEL and std_LABEL for more classes.

    Inputs are matched by name; further columns are ignored. Columns to keep are copied unchanged:
    the text of a CSV file, the types of other tables.
    """
    work_of("prediction", models=[model], tables=[data, file_of(holidays)]).predict(
        model,
        data,
        out,
        keep=keep,
        level=level,
        quantiles=quantile,
        statistic=statistic,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        scheduler=scheduler,
        performance_report=performance_report,
        overwrite=overwrite,
    )
