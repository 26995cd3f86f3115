"""Common output of all pipelines: the folder of results, report.json, figures, the table.

A folder is written aside and moved into place when it is complete. What is measured is the
business of each pipeline.
"""

import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.base import is_classifier

from dsgp import plotting, variance_shares
from dsgp.errors import DsgpError, StorageError
from dsgp.models.lengthscales import lengthscale_of
from dsgp.models.report import kernel_name
from dsgp.places import cannot_write, made_aside, require_apart
from dsgp.progress import progress
from dsgp.versions import without_commit

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

REPORT = "report.json"
MAKER = "dsgp.pipelines"
PACKAGES = (
    "dsgp",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "dask",
    "pandas",
    "pyarrow",
    "xarray",
    "zarr",
)
DPI = 200


class Stopwatch:
    """Wall seconds of each stage, and the processor seconds of all.

    Attributes
    ----------
    seconds : dict of str to float
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu_start = time.process_time()

    @contextmanager
    def stage(self, name: str, *, shown: bool = True) -> Iterator[None]:
        """Time a block and show it on a terminal, unless the block has its own progress bar."""
        start = time.perf_counter()
        with progress(name, enabled=shown):
            yield
        self.seconds[name] = time.perf_counter() - start

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu_start


# ---- the folder of results


@contextmanager
def output_folder(
    out: str | Path,
    pipeline: str,
    data: str,
    *,
    overwrite: bool = False,
    inputs: Iterable[str | Path | None] = (),
) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends well, and vanishes otherwise.

    An earlier run of the same pipeline on the same data is replaced; one of other data only when
    `overwrite` is true; a folder that holds anything else, or one of the `inputs`, never.

    Raises
    ------
    StorageError
        When `out` may not be replaced, or the place cannot be written.
    """
    path = Path(out).absolute()
    if path.is_symlink():  # the folder it points to is replaced, not the link
        path = path.resolve()
    require_apart(path, inputs)
    _require_replaceable(path, pipeline, data, overwrite)
    made = [folder for folder in path.parents if not folder.exists()]  # innermost first
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        with made_aside(path) as complete:
            complete.mkdir()
            yield complete
            _require_replaceable(path, pipeline, data, overwrite)  # the run may have taken hours
    finally:
        for folder in made:
            with suppress(OSError):  # it holds the results
                folder.rmdir()


def _require_replaceable(path: Path, pipeline: str, data: str, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise StorageError(f"{str(path)!r} is a file; choose a folder for the results")
    present = {entry.name for entry in path.iterdir()}
    if not present:
        return
    report = _own_report(path)
    if report is None:
        raise StorageError(
            f"{str(path)!r} exists and no pipeline of dsgp wrote it, so it is not replaced; "
            "choose another folder"
        )
    foreign = sorted(present - set(report["files"]))
    if foreign:
        raise StorageError(
            f"{str(path)!r} holds {foreign[0]!r} beside the results of an earlier run, so it is "
            "not replaced; move that away or choose another folder"
        )
    earlier = (report["pipeline"], report["data"]["name"])
    if earlier != (pipeline, data) and not overwrite:
        raise StorageError(
            f"{str(path)!r} holds the results of {earlier[0]} on {earlier[1]}; choose another "
            "folder, or replace it with --overwrite"
        )


def _own_report(folder: Path) -> dict[str, Any] | None:
    try:
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        ours = report["made_by"] == MAKER and isinstance(report["files"], list)
        return report if ours and report["pipeline"] and report["data"]["name"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_report(folder: Path, pipeline: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """Write report.json, the last file of a folder, and return what it holds.

    Parameters
    ----------
    folder : Path
        With every other file.
    pipeline : str
    report : mapping
        Anything JSON can hold; numbers that are not finite become null.
    """
    whole = {
        "made_by": MAKER,
        "pipeline": pipeline,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **report,
        "files": sorted([REPORT, *(entry.name for entry in folder.iterdir())]),
    }
    whole = plain_json(whole)
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / REPORT).write_text(text + "\n", encoding="utf-8")
    return whole


def plain_json(value: Any) -> Any:
    """Replace numbers JSON does not have by None, and arrays' scalars by Python's."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- the report of a run


def environment() -> dict[str, str]:
    """Versions that decide the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """What numbers were measured on; no names of hosts or of builds of a kernel."""
    system = f"{platform.system()} on {platform.machine()}"
    return {"processors": os.cpu_count(), "system": system}


def release() -> str:
    """Return dsgp's version without its commit: results that are kept are valid for all commits."""
    return without_commit(version("dsgp"))


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far; None if the system does not report it."""
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere


def describe_model(model: Any) -> dict[str, Any]:
    """Parameters given, and what was fitted: hyperparameters by term, projections, relevance.

    With more than two classes each has a model of its own, and ``fitted`` is by class.
    """
    parameters = model.get_params(deep=False)
    plain = (str, int, float, bool, type(None))
    parts = parts_of(model)
    fitted = {name: _fitted(part) for name, part in parts.items()}
    return {
        "model": type(model).__name__,
        "parameters": {
            name: value if isinstance(value, plain) else repr(value)
            for name, value in parameters.items()
        },
        "fitted": fitted if len(parts) > 1 else next(iter(fitted.values())),
        "learner_trace": _of_parts(parts, "learner_trace_"),
        "solver_iterations": _of_parts(parts, "solver_iterations_"),
        "error_bound": _of_parts(parts, "error_bound_"),
        "converged": bool(model.converged_),
    }


def parts_of(model: Any) -> dict[str, Any]:
    """The sums of functions that a model consists of: itself, or that of each class by its label.

    Two classes have one, and no label.
    """
    if not is_classifier(model):
        return {"": model}
    if len(model.classes_) == 2:
        return {"": model.estimators_[0]}
    return dict(zip(map(str, model.classes_.tolist()), model.estimators_, strict=True))


def _of_parts(parts: Mapping[str, Any], name: str) -> Any:
    values = {label: getattr(part, name) for label, part in parts.items()}
    return values if len(parts) > 1 else next(iter(values.values()))


def _fitted(model: Any) -> dict[str, Any]:
    terms = terms_table(model).drop(columns="explained_variance").set_index("term")
    noise = {"noise_variance": model.noise_variance_} if _is_gaussian(model) else {}
    return {
        "terms": terms.to_dict(orient="index"),
        "constant_columns": model.constant_columns_,
        "intercept": model.intercept_,
        **noise,
        "log_marginal_likelihood": model.log_marginal_likelihood_,
        **(_pursued(model) if _has_projections(model) else {}),
    }


def terms_table(model: Any) -> pd.DataFrame:
    """One row per term, in the model's order, with the variance that it explains.

    Its share is that of the variance of f, the sum of all terms, as in ``variance_shares`` and in
    all pictures. With more than two classes the table has a column ``class``.
    """
    parts = parts_of(model)
    tables = [
        _terms(part) if len(parts) == 1 else _terms(part).assign(**{"class": label})
        for label, part in parts.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _terms(model: Any) -> pd.DataFrame:
    shares = variance_shares(model)["share"] if model.terms_ else {}
    return pd.DataFrame(
        [
            {
                "term": term.name,
                "kernel": kernel_name(term),
                "lengthscale": lengthscale_of(term.kernel),
                "variance": _variance_of(term.kernel),
                "points": len(term.cells),
                "effective_dof": term.effective_dof,
                "explained_variance": term.explained_variance,
                "share": float(shares[term.name]),
            }
            for term in model.terms_
        ],
        columns=[
            "term", "kernel", "lengthscale", "variance", "points", "effective_dof",
            "explained_variance", "share",
        ],
    )  # fmt: skip


def _variance_of(kernel: Any) -> float:
    return float(kernel.value("variance") if "variance" in kernel.parameters else kernel.std**2)


def _is_gaussian(model: Any) -> bool:
    """Whether the functions are on the scale of the target, with noise around them."""
    return not hasattr(model, "likelihood_")


def _has_projections(model: Any) -> bool:
    return hasattr(model, "projections_")


def _pursued(model: Any) -> dict[str, Any]:
    return {
        "projections": model.projections_.to_dict(orient="index"),
        "relevance": model.relevance_.to_dict(),
        "evidence": model.evidence_,
        "evidence_trace": model.evidence_trace_,
    }


def draw_model(model: Any, folder: Path, target: str) -> None:
    """Draw functions, and how they were learned; with more than two classes for each.

    Writes components.png, or projections.png with relevance.png, and learning.png or evidence.png.
    With more than two classes the label is part of the name, where it can be.
    """
    parts = parts_of(model)
    for number, (label, part) in enumerate(parts.items()):
        ending = f"-{_plain(label) or number}" if len(parts) > 1 else ""
        name = f"{target} = {label}" if len(parts) > 1 else target
        for picture, figure in _pictures(part, name).items():
            figure.savefig(folder / f"{picture}{ending}.png", dpi=DPI)


def _pictures(model: Any, target: str) -> dict[str, Any]:
    pictures: dict[str, Any] = {}
    pursued = _has_projections(model)
    if model.terms_ and pursued:
        pictures["projections"] = plotting.plot_projections(model, target=target)
        pictures["relevance"] = plotting.plot_relevance(model)
    elif model.terms_:
        pictures["components"] = plotting.plot_components(model, target=target)
    if pursued and model.evidence_trace_:
        pictures["evidence"] = plotting.plot_learning(model)
    elif model.learner_trace_:
        pictures["learning"] = plotting.plot_learning(model)
    return pictures


def _plain(label: str) -> str:
    return label if label.replace("_", "").replace("-", "").isalnum() else ""


def draw_predictions(
    table: pd.DataFrame,
    folder: Path,
    task: str,
    *,
    target: str,
    level: float,
    target_mean: float | None = None,
    classes: NDArray[Any] | None = None,
) -> None:
    """Draw what a table of predictions for test rows holds.

    Writes predictions.png of a regression whose predictions have a std, calibration.png and roc.png
    of labels.
    """
    if task == "classification":
        assert classes is not None
        labels = table["observed"].to_numpy()
        probability = table[[f"p({label})" for label in classes]].to_numpy()
        if len(np.unique(labels)) > 1:
            plotting.plot_calibration(labels, probability, classes=classes).savefig(
                folder / "calibration.png", dpi=DPI
            )
            plotting.plot_roc(labels, probability, classes=classes).savefig(
                folder / "roc.png", dpi=DPI
            )
    elif task == "regression" and "std" in table:
        plotting.plot_predictions(
            table["observed"],
            table["mean"],
            table["std"],
            level=level,
            y_train_mean=target_mean,
            target=target,
            # Of a transformed target they are not symmetric.
            interval=(table["lower"], table["upper"]) if "lower" in table else None,
        ).savefig(folder / "predictions.png", dpi=DPI)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown; all columns but the first are numbers."""
    return [
        "| " + " | ".join(header) + " |",
        "|---" + "|---:" * (len(header) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def show(report: Mapping[str, Any], title: str, rows: Mapping[str, str], out: str | Path) -> None:
    """Print a table of results, what they cost, and where the pictures are."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    console = Console()
    console.print(table)
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in report["seconds"].items())
    lines = [f"seconds: {seconds}"]
    if report["peak_memory_mb"] is not None:
        lines.append(f"peak memory: {report['peak_memory_mb']:.0f} MB")
    pictures = [str(Path(out) / name) for name in report["files"] if name.endswith(".png")]
    for line in [*lines, "pictures:", *pictures, f"everything is in {Path(out)}"]:
        # Whole paths on one line, to be copied.
        console.print(line, markup=False, highlight=False, soft_wrap=True)


# ---- errors and warnings


@contextmanager
def gathered_warnings() -> Iterator[list[str]]:
    """Yield a list that holds the messages of the block's warnings at its end; print each once."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        yield messages
    messages += dict.fromkeys(str(warning.message) for warning in caught)
    for message in messages:
        _say("Warning", message)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of the library and of files into one line on stderr and exit code 1."""
    try:
        yield
    except BrokenPipeError:  # of ``| head``: nobody reads the message
        raise
    except (DsgpError, OSError) as error:
        _say("Error", error)
        raise typer.Exit(1) from error


def _say(label: str, message: object) -> None:
    line = f"{label}: {' '.join(str(message).split())}"
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
