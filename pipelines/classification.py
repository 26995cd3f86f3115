"""Fit a Gaussian process to labels, test it, and write report, predictions and figures.

``python -m pipelines.classification --data breast_cancer --out results/breast_cancer``
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from dsgp.cli.endings import run_app

try:
    from pipelines.run.config import validated
    from pipelines.run.fitting import build_scoring
    from pipelines.run.sections import KERNELS
    from pipelines.run.single import run_from_command_line, run_one
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

PIPELINE = "classification"
run = run_one
# Options that one model has and the other has not.
OWN_OPTIONS = {"additive": ("learner", "multi_class", "missing"), "pursuit": ("projections",)}

# \b keeps the lines of the paragraph that follows as they are.
EXAMPLES = """\b
Examples:
  python -m pipelines.classification --data breast_cancer
  python -m pipelines.classification --data synth8d-binary --n 10000 \\
      --solver backfitting
  python -m pipelines.classification --data loans.csv --target default \\
      --drop id --class-weight balanced
  python -m pipelines.classification --data magic_gamma --data-dir FOLDER \\
      --model pursuit --projections 10
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(epilog=EXAMPLES)
def main(
    data: Annotated[
        str,
        Option(
            metavar="DATA",
            help="synth8d-binary, breast_cancer, digits, wine, a set of --data-dir, a .csv, "
            ".parquet or .npz file, or a folder, glob or zarr store (read block by block).",
        ),
    ],
    target: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Name of the column of labels in a file or folder."),
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
        int | None, Option(metavar="N", help="Number of test rows of synth8d-binary.")
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
            help="Random seed of the data, the split and --model pursuit; by default 0, and 3 for "
            "synth8d-binary.",
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
        str | None,
        Option(
            metavar="KERNEL",
            help=f"Kernel of every function: {', '.join(KERNELS)}; by default that of the model.",
        ),
    ] = None,
    link: Annotated[
        str, Option(metavar="LINK", help="Link function: logit, or probit (two classes only).")
    ] = "logit",
    multi_class: Annotated[
        str | None,
        Option(metavar="HOW", help="additive, more than two classes: softmax (default) or ovr."),
    ] = None,
    class_weight: Annotated[
        str | None, Option(metavar="balanced", help="Give all classes the same total weight.")
    ] = None,
    solver: Annotated[
        str,
        Option(metavar="SOLVER", help="multigrid, cg or backfitting (local scoring)."),
    ] = "multigrid",
    learner: Annotated[
        str | None,
        Option(
            metavar="LEARNER",
            help="additive: marginal (default), or none to keep hyperparameters.",
        ),
    ] = None,
    missing: Annotated[
        str | None,
        Option(
            metavar="error|ignore",
            help="additive: whether a missing input is an error (default) or contributes nothing.",
        ),
    ] = None,
    projections: Annotated[
        str | None,
        Option(metavar="auto|M", help="pursuit: number of projections, or auto (default)."),
    ] = None,
    tol: Annotated[
        float, Option(metavar="TOL", help="Bound on the error of the mode, in prior std.")
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
    """Fit a Gaussian process to labels and test it on held-out rows.

    Writes report, predictions, model and figures to a folder.
    """
    run_from_command_line(locals(), PIPELINE, _classifier, table_of, OWN_OPTIONS)


def table_of(report: dict[str, Any]) -> dict[str, str]:
    """Choose and format the lines a person reads first."""
    data, metrics = report["data"], report["metrics"]
    rows = {
        "rows": f"{data['n_train']:,} train, {data['n_test']:,} test",
        "columns": str(len(data["columns"])),
        f"classes of {data['target']}": str(len(data["classes"])),
        "error rate": f"{metrics['error_rate']:.4g}",
        "MNLL": _formatted(metrics["mnll"]),
        "Brier score": f"{metrics['brier']:.4g}",
        "calibration error": f"{metrics['calibration_error']:.4g}",
    }
    if metrics["auc"] is not None:
        rows["area under ROC"] = f"{metrics['auc']:.4g}"
    if "mnll_truth" in metrics:
        rows["error rate of the truth"] = f"{metrics['error_rate_truth']:.4g}"
        rows["MNLL of the truth"] = _formatted(metrics["mnll_truth"])
    rows["converged"] = "yes" if report["converged"] else "NO"
    return rows


def _formatted(mnll: float | None) -> str:
    return "infinite" if mnll is None else f"{mnll:.4g}"


def _classifier(model: str, options: dict[str, Any], seed: int) -> Any:
    """Make the model that the options ask for."""
    scoring: dict[str, Any] = {
        "structure": model,
        **{name: options[name] for name in ("link", "solver", "tol")},
        **{
            name: options[name]
            for name in ("kernel", "multi_class", "class_weight", "learner", "missing")
            if options[name] is not None
        },
    }
    projections = options["projections"]
    if projections is not None:
        scoring["n_projections"] = int(projections) if projections.isdecimal() else projections
    document = {
        "task": PIPELINE,
        "load": {"data": options["data"]},
        "models": {model: {"scoring": scoring}},
    }
    asked = validated(document, f"--model {model}").models[model].scoring
    assert asked is not None
    return build_scoring(asked, PIPELINE, seed)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.classification")
