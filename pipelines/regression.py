"""Fit a Gaussian process to a table, test it, and write report, predictions and figures.

``python -m pipelines.regression --data diabetes --out results/diabetes``
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.cli.endings import run_app
from dsgp.errors import ParameterError
from dsgp.transforms import require_transform

try:
    from pipelines.run.sections import KERNELS
    from pipelines.run.single import run_from_command_line, run_one
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "regression"
run = run_one
# Options that one model has and the other has not.
OWN_OPTIONS = {
    "additive": ("learner", "missing"),
    "pursuit": ("projections", "method", "no_relevance", "starts", "draws", "warmup"),
}

# \b keeps the lines of the paragraph that follows as they are.
EXAMPLES = """\b
Examples:
  python -m pipelines.regression --data diabetes --out results/diabetes
  python -m pipelines.regression --data houses.csv --target price \\
      --drop id,address --kernel matern32
  python -m pipelines.regression --data elevators --data-dir FOLDER
  python -m pipelines.regression --data elevators --data-dir FOLDER \\
      --model pursuit --projections 20
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    data: Annotated[
        str,
        Option(
            metavar="DATA",
            help="synth8d, synth32d, diabetes, a set of --data-dir, a .csv, .parquet or .npz file, "
            "or a folder, glob or zarr store (read block by block).",
        ),
    ],
    target: Annotated[
        str | None, Option(metavar="COLUMN", help="Name of the target column in a file or folder.")
    ] = None,
    columns: Annotated[
        str | None, Option(metavar="A,B,C", help="Input columns; by default all others.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        Option(metavar="COLUMN", help="Columns that are not inputs: a list A,B,C, or repeated."),
    ] = None,
    data_dir: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder of the .npz sets named in --data.")
    ] = None,
    n: Annotated[int | None, Option(metavar="N", help="Number of training rows.")] = None,
    n_test: Annotated[
        int | None, Option(metavar="N", help="Number of test rows of synth8d.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Output folder; by default results/NAME, or results/NAME-pursuit.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Random seed of the data, the split and --model pursuit; by default 2, and 0 for "
            "the pumadyn8 sets.",
        ),
    ] = None,
    model: Annotated[
        str,
        Option(
            metavar="MODEL",
            help="additive: one function per column; pursuit: functions of projections.",
        ),
    ] = "additive",
    kernel: Annotated[
        str, Option(metavar="KERNEL", help=f"Kernel of every function: {', '.join(KERNELS)}.")
    ] = "matern52",
    solver: Annotated[str, Option(metavar="SOLVER", help="multigrid, cg or backfitting.")] = (
        "multigrid"
    ),
    learner: Annotated[
        str | None,
        Option(
            metavar="LEARNER",
            help="additive: marginal (default), vbem, em, or none to keep hyperparameters.",
        ),
    ] = None,
    missing: Annotated[
        str | None,
        Option(
            metavar="error|ignore",
            help="additive: whether a missing input is an error (default) or contributes nothing.",
        ),
    ] = None,
    transform: Annotated[
        str,
        Option(
            metavar="TRANSFORM",
            help="Transform of a skewed target: none, log or yeo-johnson.",
        ),
    ] = "none",
    projections: Annotated[
        str | None,
        Option(metavar="auto|M", help="pursuit: number of projections, or auto (default)."),
    ] = None,
    method: Annotated[
        str | None,
        Option(metavar="METHOD", help="pursuit: refit (default), greedy or gibbs."),
    ] = None,
    no_relevance: Annotated[
        bool,
        Option("--no-relevance", help="pursuit: do not look for inputs that are not needed."),
    ] = False,
    starts: Annotated[
        int | None,
        Option(metavar="N", help="pursuit: initial directions per projection (10)."),
    ] = None,
    draws: Annotated[
        int | None, Option(metavar="N", help="pursuit with gibbs: draws of all chains (400).")
    ] = None,
    warmup: Annotated[
        int | None, Option(metavar="N", help="pursuit with gibbs: warm-up sweeps per chain (200).")
    ] = None,
    tol: Annotated[
        float, Option(metavar="TOL", help="Bound on the error of the mean, in prior std.")
    ] = 1e-4,
    delimiter: Annotated[
        str, Option(metavar="CHARACTER", help="CSV: separator of fields, or tab.")
    ] = ",",
    decimal: Annotated[str, Option(metavar=".|,", help="CSV: decimal point.")] = ".",
    encoding: Annotated[
        str, Option(metavar="NAME", help="CSV: encoding, such as latin-1.")
    ] = "utf-8",
    scheduler: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Address of a dask scheduler; by default threads are used."),
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace the results of other data.")
    ] = False,
) -> None:
    """Fit a Gaussian process and test it on held-out rows.

    Writes report, predictions, model and figures to a folder.
    """
    run_from_command_line(locals(), PIPELINE, _regressor, table_of, OWN_OPTIONS)


def table_of(report: dict[str, Any]) -> dict[str, str]:
    """Choose and format the lines a person reads first."""
    data, metrics = report["data"], report["metrics"]
    rows = {
        "rows": f"{data['n_train']:,} train, {data['n_test']:,} test",
        "columns": str(len(data["columns"])),
        "NMSE": f"{metrics['nmse']:.4g}",
        "MNLP": f"{metrics['mnlp']:.4g}",
        f"RMSE of {data['target']}": f"{metrics['rmse']:.4g}",
        "95 % intervals cover": f"{metrics['coverage']:.1%}",
    }
    if "mse_f" in metrics:
        rows["mean squared error of f"] = f"{metrics['mse_f']:.4g}"
        rows["95 % intervals for f cover"] = f"{metrics['coverage_f']:.1%}"
        rows["NMSE of the truth"] = f"{metrics['nmse_truth']:.4g}"
    if "mnlp_truth" in metrics:
        rows["MNLP of the truth"] = f"{metrics['mnlp_truth']:.4g}"
    if "projections" in report["fitted"]:
        rows["projections"] = str(len(report["fitted"]["projections"]))
    rows["converged"] = "yes" if report["converged"] else "NO"
    return rows


def _regressor(model: str, options: dict[str, Any], seed: int) -> Any:
    """Make the model that the options ask for."""
    kernel = options["kernel"]
    if kernel not in KERNELS:
        raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
    transform = None if options["transform"] == "none" else options["transform"]
    require_transform("transform", transform)
    shared = {
        "solver": options["solver"],
        "tol": options["tol"],
        "target_transform": transform,
        "verbose": True,
    }
    if model == "additive":
        learner = options["learner"] or "marginal"
        return AdditiveGPRegressor(
            KERNELS[kernel](),
            learner=None if learner == "none" else learner,
            missing=options["missing"] or "error",
            **shared,
        )
    projections = options["projections"] or "auto"
    return ProjectionPursuitGPRegressor(
        KERNELS[kernel](),
        n_projections=int(projections) if projections.isdecimal() else projections,
        method=options["method"] or "refit",
        relevance=not options["no_relevance"],
        n_starts=10 if options["starts"] is None else options["starts"],
        n_draws=400 if options["draws"] is None else options["draws"],
        n_warmup=200 if options["warmup"] is None else options["warmup"],
        random_state=seed,
        **shared,
    )


if __name__ == "__main__":
    run_app(app, "python -m pipelines.regression")
