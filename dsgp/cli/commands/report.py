"""The command ``dsgp report``, its help and examples; `dsgp.cli.reports` does the work."""

from __future__ import annotations

from dsgp.cli.options import plot, predict, shared
from dsgp.cli.options import report as options
from dsgp.cli.work import HOLIDAY, file_of, holidays_given, work_of

# \b keeps the lines of the paragraph that follows as they are.
REPORT_EXAMPLES = """\b
Examples:
  dsgp report price.zarr -o price.html --target 'price, EUR'
  dsgp report price.zarr -o price.html --data test.parquet --target price
  dsgp report claims.zarr -o claims.html --data test.csv \\
      --target n_claims --exposure years
  dsgp report sst-model.zarr -o sst.html --data held-out.nc --target sst
"""


def report(
    model: shared.Model,
    out: options.Out,
    data: options.HeldOut = None,
    target: options.Target = None,
    title: options.Title = None,
    level: plot.Level = 0.95,
    exposure: predict.Exposure = None,
    offset: predict.Offset = None,
    trials: predict.Trials = None,
    holidays: shared.Holidays = None,
    holiday_column: shared.HolidayColumn = HOLIDAY,
    delimiter: shared.Delimiter = ",",
    decimal: shared.Decimal = ".",
    encoding: shared.Encoding = "utf-8",
    storage_option: shared.StorageOption = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Write an HTML page about a saved model, which can be sent, printed and read offline.

    The page describes the data and their preparation, the effect and the importance of each term
    (maps and curves for a field, as dsgp smooth --save-model saves it), the accuracy of predictions
    for held-out rows or cells (--data), warnings, and how to make the model again. Charts show
    values under the pointer. Needs the optional dependencies "report".
    """
    work_of("reports", models=[model], tables=[data, file_of(holidays)]).report(
        model,
        out,
        data=data,
        target=target,
        title=title,
        level=level,
        further={"exposure": exposure, "offset": offset, "trials": trials},
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        overwrite=overwrite,
    )
