"""The command ``dsgp update``, its help and examples; `dsgp.cli.updating` does the work."""

from __future__ import annotations

from dsgp.cli.options import shared
from dsgp.cli.options import update as options
from dsgp.cli.work import HOLIDAY, file_of, holidays_given, work_of

# \b keeps the lines of the paragraph that follows as they are.
UPDATE_EXAMPLES = """\b
Examples:
  dsgp update price.zarr today.parquet --target price -o price2.zarr
  dsgp update price.zarr today.csv --target price --relearn \\
      --out price.zarr --overwrite
  dsgp update sales.zarr 'week-31/*.parquet' --target sales \\
      --half-life 90 --elapsed 7 --out sales.zarr --overwrite
"""


def update(
    model: shared.Model,
    data: shared.Data,
    target: options.Target,
    out: options.Out,
    weight: options.Weight = None,
    relearn: options.Relearn = False,
    half_life: options.HalfLife = None,
    elapsed: options.Elapsed = None,
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
    """Add the rows of a table to a saved model, without reading the rows of the fit again.

    The updated model takes all rows into account, with the hyperparameters that it has or with
    --relearn. Models of dsgp fit --model additive without --method, --projections, a remainder and
    noise that varies can be updated, and saved smoothing splines; for any other model the command
    ends with the reason, and the remedy is a new fit to all rows. The model in MODEL.zarr stays as
    it was unless --out replaces it, which happens in one step once the update is complete. With
    --holidays the rows of DATA are read into memory at once.
    """
    work_of("updating", models=[model], tables=[data, file_of(holidays)]).update(
        model,
        data,
        target,
        out,
        weight=weight,
        relearn=relearn,
        half_life=half_life,
        elapsed=elapsed,
        holidays=holidays_given(holidays, holiday_column),
        csv_format=(delimiter, decimal, encoding),
        storage_options=storage_option,
        scheduler=scheduler,
        performance_report=performance_report,
        overwrite=overwrite,
    )
