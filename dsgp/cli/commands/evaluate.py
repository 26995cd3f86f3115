"""The commands ``dsgp evaluate`` and ``calibrate``; `dsgp.cli.evaluation` does the work."""

from __future__ import annotations

from dsgp.cli.options import evaluate as options
from dsgp.cli.options import predict as prediction
from dsgp.cli.options import shared
from dsgp.cli.work import HOLIDAY, file_of, holidays_given, work_of

# \b keeps the lines of the paragraph that follows as they are.
EVALUATE_EXAMPLES = """\b
Examples:
  dsgp evaluate price.zarr held-out.csv --target price
  dsgp evaluate price.zarr held-out.csv --target price --plot calibration.png
  dsgp evaluate claims.zarr held-out.csv --target claims --exposure years \\
      --out coverage.csv
"""
CALIBRATE_EXAMPLES = """\b
Examples:
  dsgp calibrate price.zarr held-out.csv --target price --out calibrated.zarr
"""


def evaluate(
    model: shared.Model,
    data: shared.Data,
    target: options.Target,
    level: options.Level = 0.95,
    out: options.Table = None,
    plot: options.Picture = None,
    exposure: prediction.Exposure = None,
    offset: prediction.Offset = None,
    trials: prediction.Trials = None,
    holidays: shared.Holidays = None,
    holiday_column: shared.HolidayColumn = HOLIDAY,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Evaluate a model on rows that it was not fitted to: accuracy and calibration.

    Prints the root mean squared error, the mean log density, and the share of rows that are in
    their interval: of all rows, by deciles of each input and of the prediction, and by levels,
    beside what chance would give. Not for classifiers. The rows are read into memory.
    """
    work_of("evaluation", models=[model], tables=[data, file_of(holidays)]).evaluate(
        model,
        data,
        target,
        level=level,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        out=out,
        plot=plot,
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )


def calibrate(
    model: shared.Model,
    data: shared.Data,
    target: options.Target,
    out: options.Out,
    exposure: prediction.Exposure = None,
    offset: prediction.Offset = None,
    trials: prediction.Trials = None,
    holidays: shared.Holidays = None,
    holiday_column: shared.HolidayColumn = HOLIDAY,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Calibrate the intervals of a model on rows that it was not fitted to.

    By split conformal prediction: the intervals of new observations that dsgp predict writes then
    contain a new observation with their nominal probability, even if the model is wrong, provided
    that these rows and new ones are drawn from the same distribution. The rows are read into
    memory.
    """
    work_of("evaluation", models=[model], tables=[data, file_of(holidays)]).calibrate(
        model,
        data,
        target,
        out,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )
