"""The command ``dsgp explain``, its help and examples; `dsgp.cli.prediction` does the work."""

from __future__ import annotations

from dsgp.cli.options import predict as options
from dsgp.cli.options import shared
from dsgp.cli.work import HOLIDAY, file_of, holidays_given, work_of

# \b keeps the lines of the paragraph that follows as they are.
EXPLAIN_EXAMPLES = """\b
Examples:
  dsgp explain price.zarr new.csv --keep id --out reasons.csv
  dsgp explain price.zarr sales/ --out reasons/
  dsgp explain species.zarr new.parquet --out reasons.parquet
"""


def explain(
    model: shared.Model,
    data: shared.Data,
    out: options.Out,
    keep: options.Keep = None,
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
    """Explain the prediction of every row of a table: the contribution of each term.

    Writes the columns prediction and intercept, and contribution_TERM and std_TERM for each term,
    the terms that vary most first. The prediction is the intercept plus all contributions. All are
    on the scale of the target, of its transform (fit --transform) or of the link function (classes,
    counts and other targets), without exposure and offset. With more than two classes, the names
    contain the label of the class: prediction_LABEL, contribution_LABEL_TERM.
    """
    work_of("prediction", models=[model], tables=[data, file_of(holidays)]).explain(
        model,
        data,
        out,
        keep=keep,
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        scheduler=scheduler,
        performance_report=performance_report,
        overwrite=overwrite,
    )
