"""What every pipeline writes and prints: the folder of results, report.json, figures, the table.

A folder is written aside and moved into place when it is complete. What is measured is the
business of each pipeline.
"""

import json
import math
import platform
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from dsgp.errors import DsgpError, StorageError
from dsgp.plotting import plot_components, plot_learning, plot_projections, plot_relevance
from dsgp.progress import progress

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
        """Time a block and tell a terminal of it, unless the block has a bar of its own."""
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
    out: str | Path, pipeline: str, data: str, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends well, and vanishes otherwise.

    An earlier run of the same pipeline on the same data is replaced; one of other data only when
    `overwrite` is true; a folder that holds anything else never.

    Raises
    ------
    StorageError
        When `out` may not be replaced, or the place cannot be written.
    """
    path = Path(out).absolute()
    if path.is_symlink():  # the folder it points to is replaced, not the link
        path = path.resolve()
    _require_replaceable(path, pipeline, data, overwrite)
    aside = None
    made = [folder for folder in path.parents if not folder.exists()]  # innermost first
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        complete = aside / "complete"
        complete.mkdir()
        yield complete
        _require_replaceable(path, pipeline, data, overwrite)  # the run may have taken hours
        _move_into_place(complete, path, aside / "replaced")
    except DsgpError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # it holds the results
                folder.rmdir()


def _move_into_place(complete: Path, path: Path, replaced: Path) -> None:
    if not path.exists():
        complete.rename(path)
        return
    path.rename(replaced)
    try:
        complete.rename(path)
    except OSError:
        replaced.rename(path)
        raise


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
    whole = _finite(whole)
    text = json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / REPORT).write_text(text + "\n", encoding="utf-8")
    return whole


def _finite(value: Any) -> Any:
    """Replace numbers JSON does not have by None, and arrays' scalars by Python's."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- what is told of a run


def environment() -> dict[str, str]:
    """Versions that decide the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far; None where the system does not tell."""
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere


def describe_model(model: Any) -> dict[str, Any]:
    """Parameters given, and what was fitted: hyperparameters by term, projections, relevance."""
    parameters = model.get_params(deep=False)
    plain = (str, int, float, bool, type(None))
    terms = terms_table(model).drop(columns="explained_variance").set_index("term")
    return {
        "model": type(model).__name__,
        "parameters": {
            name: value if isinstance(value, plain) else repr(value)
            for name, value in parameters.items()
        },
        "fitted": {
            "terms": terms.to_dict(orient="index"),
            "constant_columns": model.constant_columns_,
            "intercept": model.intercept_,
            "noise_variance": model.noise_variance_,
            "log_marginal_likelihood": model.log_marginal_likelihood_,
            **(_pursued(model) if _has_projections(model) else {}),
        },
        "learner_trace": model.learner_trace_,
        "solver_iterations": model.solver_iterations_,
        "error_bound": model.error_bound_,
        "converged": model.converged_,
    }


def terms_table(model: Any) -> pd.DataFrame:
    """A row a term, in the model's order, with the variance that it explains."""
    return pd.DataFrame(
        [
            {
                "term": term.name,
                "kernel": type(term.kernel).__name__,
                "lengthscale": term.kernel.lengthscale,
                "variance": term.kernel.variance,
                "points": len(term.axis),
                "effective_dof": term.effective_dof,
                "explained_variance": term.explained_variance,
                "share": term.explained_variance / model.target_variance_,
            }
            for term in model.terms_
        ],
        columns=[
            "term", "kernel", "lengthscale", "variance", "points", "effective_dof",
            "explained_variance", "share",
        ],
    )  # fmt: skip


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
    """Write components.png, or projections.png with relevance.png; learning.png or evidence.png."""
    pursued = _has_projections(model)
    if model.terms_ and pursued:
        plot_projections(model, target=target).savefig(folder / "projections.png", dpi=DPI)
        plot_relevance(model).savefig(folder / "relevance.png", dpi=DPI)
    elif model.terms_:
        plot_components(model, target=target).savefig(folder / "components.png", dpi=DPI)
    if pursued and model.evidence_trace_:
        plot_learning(model).savefig(folder / "evidence.png", dpi=DPI)
    elif model.learner_trace_:
        plot_learning(model).savefig(folder / "learning.png", dpi=DPI)


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
    except (DsgpError, OSError) as error:
        _say("Error", error)
        raise typer.Exit(1) from error


def _say(label: str, message: object) -> None:
    line = f"{label}: {' '.join(str(message).split())}"
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)
