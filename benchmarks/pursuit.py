"""Projection pursuit: accuracy beside an exact GP's cost, and the cost against the rows.

``python -m benchmarks.pursuit accuracy`` and ``python -m benchmarks.pursuit scaling``.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from benchmarks.pursuit_peers import Peer, cost_of_exact_gp
from dsgp import ProjectionPursuitGPRegressor
from dsgp.compute import one_blas_thread
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Matern52
from dsgp.metrics import coverage, mnlp, nmse
from dsgp.progress import Bar, progress
from dsgp.pursuit.joint import Frame, State
from dsgp.pursuit.levels import prepare_rows
from dsgp.pursuit.ridges import Ridges
from dsgp.pursuit.rows import Block, RowSet
from dsgp.pursuit.search import Level, from_directions, refitted
from dsgp.pursuit.starts import best_start
from dsgp.rows.sources import source_of
from pipelines.datasets import Split, load

try:
    from pipelines.reporting import environment, machine, plain_errors
    from pipelines.scaling.run import own_peak_memory_mb
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

Floats = NDArray[np.float64]
Result = TypeVar("Result")

# Test NMSE that each set must not exceed with default settings.
LIMITS = {
    "pumadyn8fm": 0.058,
    "pumadyn8nm": 0.036,
    "pumadyn32nm": 0.047,
    "elevators": 0.100,
    "kin40k": 0.018,
}
COVERAGE = (0.92, 0.98)  # of the 95 % intervals
FASTER = 10.0  # than an exact GP, in processor seconds
LEVEL = 0.95
GIB = 2.0**30

N_RIDGES, N_INPUTS, NOISE_STD = 10, 8, 0.1
LARGEST = {"slope": 1.05, "cpu_seconds": 60.0}  # promised up to 10⁶ rows

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
console = Console()
if not console.is_terminal:
    console = Console(width=200)  # a file has no width


@dataclass(frozen=True)
class Seconds:
    """Processor seconds of all threads, and wall seconds."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        return f"{_plain(self.cpu)} / {_plain(self.wall)}"


def timed(call: Callable[[], Result]) -> tuple[Result, Seconds]:
    """Call once."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return result, Seconds(time.process_time() - cpu, time.perf_counter() - wall)


def warm_up(n_rows: int) -> None:
    """Load or compile the loops, so that no measurement is charged for it."""
    rows = ridge_sum(n_rows, stream=1)
    model = ProjectionPursuitGPRegressor(n_projections=2, random_state=0).fit(rows.X, rows.y)
    model.predict(rows.X, return_std=True, include_noise=True)


# ---------------------------------------------------------------------- accuracy


@dataclass(frozen=True)
class Accuracy:
    """One fit with default settings, judged on the test rows.

    ``mnlp`` is in nats, of y in its own units.
    """

    data: str
    seed: int
    n_train: int
    n_test: int
    n_features: int
    n_projections: int
    nmse: float
    limit: float
    mnlp: float
    coverage: float
    fit: Seconds
    predict: Seconds

    @property
    def accurate(self) -> bool:
        return self.nmse <= self.limit and COVERAGE[0] <= self.coverage <= COVERAGE[1]


def measure(split: Split, seed: int) -> Accuracy:
    """Fit, predict and compare."""
    model = ProjectionPursuitGPRegressor(random_state=seed)
    _, fit = timed(lambda: model.fit(split.X_train, split.y_train))
    (mean, std), predict = timed(
        lambda: model.predict(split.X_test, return_std=True, include_noise=True)
    )
    return Accuracy(
        split.name,
        seed,
        len(split.y_train),
        len(split.y_test),
        split.X_train.shape[1],
        model.n_projections_,
        nmse(split.y_test, mean, float(np.mean(split.y_train))),
        LIMITS.get(split.name, math.nan),
        mnlp(split.y_test, mean, std**2),
        coverage(split.y_test, mean, std, LEVEL),
        fit,
        predict,
    )


def peer_of(split: Split, folder: Path, settings: dict[str, Any], bar: Bar) -> Peer:
    """Cost of an exact GP on the same rows; kept in the folder, and measured once."""
    digest = hashlib.sha256(split.X_train.to_numpy().tobytes() + split.y_train.tobytes())
    key = {**settings, "rows": digest.hexdigest()[:16], "versions": environment()}
    path = folder / f"peer-{split.name}.json"
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["settings"] == key:
            return Peer.of(kept["peer"])
    found = cost_of_exact_gp(
        split.X_train.to_numpy(dtype=float),
        split.y_train.astype(float),
        watch=lambda what: bar.update(0, now=what),
        **settings,
    )
    path.write_text(_json({"settings": key, "peer": found.as_dict()}), encoding="utf-8")
    return found


ACCURACY_HEADER = (
    "data", "rows", "seed", "M", "NMSE", "limit", "MNLP", "95 % covers",
    "fit s", "predict s", "exact GP CPU s", "ratio", "promises",
)  # fmt: skip


def accuracy_rows(found: Iterable[Accuracy], peers: dict[str, Peer]) -> list[list[str]]:
    """Format, with the columns of ``ACCURACY_HEADER``."""
    rows = []
    for each in found:
        peer = peers.get(each.data)
        ratio = math.nan if peer is None else peer.cpu_seconds / each.fit.cpu
        kept = each.accurate and (peer is None or ratio >= FASTER)
        rows.append(
            [
                each.data,
                f"{each.n_train} × {each.n_features}",
                str(each.seed),
                str(each.n_projections),
                f"{each.nmse:.4f}",
                "–" if math.isnan(each.limit) else f"{each.limit:g}",
                f"{each.mnlp:.3f}",
                f"{each.coverage:.1%}",
                str(each.fit),
                str(each.predict),
                "–" if peer is None else f"{peer.cpu_seconds:.0f} ({peer.how})",
                "–" if peer is None else f"{ratio:.0f}",
                "–" if math.isnan(each.limit) else "kept" if kept else "BROKEN",
            ]
        )
    return rows


PEER_HEADER = (
    "data", "exact GP", "CPU s", "evaluations (rows of that fit)", "one evaluation, CPU s by rows",
    "exponent", "on all rows, by the law", "measured", "GiB",
)  # fmt: skip


def peer_cells(peers: dict[str, Peer]) -> list[list[str]]:
    """Format, with the columns of ``PEER_HEADER``."""
    return [
        [
            name,
            peer.how,
            f"{peer.cpu_seconds:.0f}",
            f"{peer.evaluations} ({peer.fit_rows})",
            ", ".join(f"{n}: {_plain(s)}" for n, s in peer.fewer.items()) or "–",
            "–" if peer.exponent is None else f"{peer.exponent:.2f}",
            _plain(peer.by_law),
            _plain(peer.checked),
            f"{peer.memory_bytes / GIB:.1f}",
        ]
        for name, peer in peers.items()
    ]


def accuracy_page(found: Sequence[Accuracy], peers: dict[str, Peer]) -> str:
    """Return the report as a page."""
    lines = ["# Accuracy of projection pursuit", "", f"`{_command()}`", ""]
    lines += _markdown(ACCURACY_HEADER, accuracy_rows(found, peers))
    lines += [
        "",
        "Seconds are processor / wall. MNLP is that of y in its own units. Promised: NMSE within "
        f"the limit, coverage {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}, an exact GP's processor time "
        f"at least {FASTER:g} times that of the fit.",
    ]
    if peers:
        lines += ["", "## One exact-GP fit by scikit-learn", ""]
        lines += _markdown(PEER_HEADER, peer_cells(peers))
        lines += [
            "",
            "Extrapolated: evaluations of the likelihood and its gradient in a fit of fewer rows, "
            "times the seconds of one evaluation on all rows. Where that was not measured either, "
            "it is by a N² + b N³ through the two largest sizes; the exponent is the growth "
            "between these. The system's time for memory is left out. GiB: memory of one "
            "evaluation on all rows.",
        ]
    return "\n".join(lines) + "\n"


ACCURACY_EXAMPLES = """\b
Examples:
  python -m benchmarks.pursuit accuracy --data-dir data
  python -m benchmarks.pursuit accuracy pumadyn8nm kin40k --data-dir data --seed 0 --seed 1
  python -m benchmarks.pursuit accuracy --data-dir data --no-peer
"""


@app.command(epilog=ACCURACY_EXAMPLES)
def accuracy(
    data: Annotated[
        list[str] | None,
        Argument(metavar="[DATA]…", help=f"By default {', '.join(LIMITS)}."),
    ] = None,
    data_dir: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder of the .npz sets, as for the pipelines.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        Option(metavar="N", help="Random seed of the fit; can be repeated. Default: 0."),
    ] = None,
    peer: Annotated[
        bool, Option("--peer/--no-peer", help="Also measure scikit-learn's exact GP.")
    ] = True,
    peer_limit: Annotated[
        int, Option(metavar="N", help="Number of rows up to which its whole fit is measured.")
    ] = 2000,
    peer_rows: Annotated[
        int,
        Option(metavar="N", help="Number of rows of the largest evaluation to extrapolate from."),
    ] = 4000,
    peer_fit_rows: Annotated[
        int, Option(metavar="N", help="Number of rows of the fit whose evaluations are counted.")
    ] = 1000,
    peer_memory: Annotated[
        float, Option(metavar="GIB", help="Memory limit of an evaluation.")
    ] = 8.0,
    peer_check: Annotated[
        float,
        Option(
            metavar="GIB",
            help="Also measure one evaluation on all rows, if it takes no more memory than this.",
        ),
    ] = 0.0,
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path("results/pursuit"),
) -> None:
    """Fit the regression sets with default settings, beside the cost of an exact GP.

    An exact GP that was measured is kept in FOLDER/peer-DATA.json and not measured again.
    """
    exit_on_termination()
    with plain_errors():
        settings: dict[str, Any] = {
            "limit": peer_limit,
            "largest": peer_rows,
            "fit_rows": peer_fit_rows,
            "most_bytes": peer_memory * GIB,
            "check_bytes": peer_check * GIB,
        }
        splits = [load(name, data_dir=data_dir) for name in data or LIMITS]
        seeds = seed or [0]
        out.mkdir(parents=True, exist_ok=True)
        found: list[Accuracy] = []
        peers: dict[str, Peer] = {}
        with progress("sets", len(splits) * (len(seeds) + peer)) as bar:
            bar.update(0, now="compiling")
            warm_up(500)
            for split in splits:
                for number in seeds:
                    bar.update(0, now=f"{split.name}, seed {number}")
                    found.append(measure(split, number))
                    bar.update()
                if peer:
                    peers[split.name] = peer_of(split, out, settings, bar)
                    bar.update()
                report = {
                    **_circumstances(),
                    "fits": [asdict(each) for each in found],
                    "peers": {name: each.as_dict() for name, each in peers.items()},
                }
                (out / "accuracy.json").write_text(_json(report), encoding="utf-8")
                (out / "accuracy.md").write_text(accuracy_page(found, peers), encoding="utf-8")
        _show("Accuracy", ACCURACY_HEADER, accuracy_rows(found, peers))
        if peers:
            _show("One exact-GP fit by scikit-learn", PEER_HEADER, peer_cells(peers))
        console.print(f"results are in {out}", markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------- scaling


@dataclass(frozen=True, eq=False)
class RidgeRows:
    """Inputs, targets, and the function that these scatter around."""

    X: Floats
    y: Floats
    f: Floats


def ridge_sum(n_rows: int, *, stream: int, seed: int = 0) -> RidgeRows:
    """Sum of ten sines of projections of normal inputs, of variance 1, with noise.

    The functions depend on the seed, the rows on the stream too.
    """
    random = np.random.default_rng(seed)
    directions = random.standard_normal((N_RIDGES, N_INPUTS))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    frequencies = random.uniform(0.5, 2.5, N_RIDGES)
    phases = random.uniform(0, 2 * np.pi, N_RIDGES)
    random = np.random.default_rng([seed, stream])
    X = random.standard_normal((n_rows, N_INPUTS))
    f = np.zeros(n_rows)
    for direction, frequency, phase in zip(directions, frequencies, phases, strict=True):
        f += np.sin(frequency * (X @ direction) + phase)
    f *= math.sqrt(2 / N_RIDGES)
    return RidgeRows(X, f + NOISE_STD * random.standard_normal(n_rows), f)


@dataclass
class CountedRows:
    """Rows that count how often they are gone through."""

    rows: RowSet
    passes: int = 0

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def log_weight(self) -> float:
        return self.rows.log_weight

    def total(
        self,
        function: Callable[[Block], Result],
        add: Callable[[Result, Result], Result],
        seconds: float,
    ) -> Result:
        self.passes += 1
        return self.rows.total(function, add, seconds)


@dataclass(frozen=True)
class OneMore:
    """Processor seconds of one more projection on all rows.

    Attributes
    ----------
    start : float
        Of its search, on rows whose number is bounded.
    refit : float
        Of the refit of all projections, on all rows.
    passes : int
        Over all rows, within the refit.
    """

    start: float
    refit: float
    passes: int

    @property
    def total(self) -> float:
        return self.start + self.refit


def one_more(model: Any, rows: RidgeRows, seed: int, repeats: int) -> OneMore:
    """Take the last projection away and add one: what a step of the search does at all rows."""
    random = np.random.default_rng(seed)
    prepared = prepare_rows(source_of(rows.X, rows.y, None), random)
    standard, last = prepared.standard, prepared.levels[-1]
    counted = CountedRows(last.rows)
    level = Level(counted, last.search)
    unit = standard.spread**2
    kernels = [
        kernel.with_parameters(lengthscale=kernel.lengthscale, variance=kernel.variance / unit)
        for kernel in model.kernels_.values()
    ]
    measured = []
    with one_blas_thread():
        before = from_directions(
            level,
            Frame.of(prepared.covariance, True),
            model.projections_.to_numpy()[:-1],
            kernels[:-1],
            model.noise_variance_ / (unit * standard.weight_scale),
            False,
        )
        before = refitted(level, before)
        fitted = before.ridges.evaluate(last.search.inputs)[0].sum(axis=1)
        block = replace(last.search, target=last.search.target - fitted)
        for _ in range(repeats):
            new, start = timed(
                lambda: best_start(
                    block, before.frame, before.precision, Matern52(), model.n_starts, random
                )
            )
            counted.passes = 0
            ridges = before.ridges.joined(new)
            _, refit = timed(partial(_joined, level, before, ridges))
            measured.append(OneMore(start.cpu, refit.cpu, counted.passes))
    return sorted(measured, key=lambda each: each.total)[(len(measured) - 1) // 2]


def _joined(level: Level, state: State, ridges: Ridges) -> State:
    return refitted(level, state.at(level.rows, ridges))


@dataclass(frozen=True)
class Scaling:
    """One size."""

    n: int
    n_projections: int
    fit: Seconds
    stages: dict[str, float]
    predict: Seconds
    n_test: int
    one_more: OneMore
    peak_memory_mb: float | None
    rmse_f: float
    coverage_f: float


def scale(n: int, n_test: int, n_projections: int, seed: int, repeats: int) -> Scaling:
    """Fit one size, and add one more projection."""
    rows, test = ridge_sum(n, stream=2, seed=seed), ridge_sum(n_test, stream=3, seed=seed)
    model = ProjectionPursuitGPRegressor(n_projections=n_projections, random_state=seed)
    _, fit = timed(lambda: model.fit(rows.X, rows.y))
    (mean, std), predict = timed(lambda: model.predict(test.X, return_std=True))
    peak = own_peak_memory_mb()
    return Scaling(
        n,
        model.n_projections_,
        fit,
        dict(model.fit_seconds_),
        predict,
        n_test,
        one_more(model, rows, seed, repeats),
        peak,
        math.sqrt(np.mean((mean - test.f) ** 2)),
        coverage(test.f, mean, std, LEVEL),
    )


def slope(n: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Exponent b of seconds ∝ N^b; None for one size."""
    if len(set(n)) < 2:
        return None
    return float(np.polyfit(np.log(n), np.log(np.maximum(seconds, 1e-9)), 1)[0])


def slopes(found: Sequence[Scaling]) -> dict[str, float | None]:
    """Exponents of the processor seconds."""
    n = [each.n for each in found]
    return {
        "fit": slope(n, [each.fit.cpu for each in found]),
        "one more projection": slope(n, [each.one_more.total for each in found]),
        "its refit on all rows": slope(n, [each.one_more.refit for each in found]),
        "one pass of it": slope(
            n, [each.one_more.refit / max(each.one_more.passes, 1) for each in found]
        ),
    }


SCALING_HEADER = (
    "rows", "M", "fit s", "predict s", "one more, CPU s", "of it search", "passes",
    "CPU s per pass", "peak MB", "RMSE of f", "95 % of f covers",
)  # fmt: skip


def scaling_rows(found: Iterable[Scaling]) -> list[list[str]]:
    """Format, with the columns of ``SCALING_HEADER``."""
    return [
        [
            f"{each.n:,}",
            str(each.n_projections),
            str(each.fit),
            str(each.predict),
            _plain(each.one_more.total),
            _plain(each.one_more.start),
            str(each.one_more.passes),
            f"{each.one_more.refit / max(each.one_more.passes, 1):.3f}",
            "–" if each.peak_memory_mb is None else f"{each.peak_memory_mb:.0f}",
            f"{each.rmse_f:.4f}",
            f"{each.coverage_f:.1%}",
        ]
        for each in found
    ]


def slope_lines(found: Sequence[Scaling]) -> list[str]:
    return [
        f"{name}: processor time ∝ N^{value:.2f}"
        for name, value in slopes(found).items()
        if value is not None
    ]


def scaling_page(found: Sequence[Scaling]) -> str:
    """Return the report as a page."""
    lines = ["# Cost of projection pursuit", "", f"`{_command()}`", ""]
    lines += _markdown(SCALING_HEADER, scaling_rows(found))
    lines += ["", *(f"* {line}" for line in slope_lines(found)), ""]
    lines += [
        f"Seconds are processor / wall. Promised: one more projection ∝ N^{LARGEST['slope']:g} at "
        f"most, and {LARGEST['cpu_seconds']:g} s of processor time for the fit of 10 projections "
        "to 10⁶ rows. Memory is the peak of the process, with the rows.",
    ]
    return "\n".join(lines) + "\n"


SCALING_EXAMPLES = """\b
Examples:
  python -m benchmarks.pursuit scaling
  python -m benchmarks.pursuit scaling --sizes 1e5,1e6,4e6 --repeats 5
"""


@app.command(epilog=SCALING_EXAMPLES)
def scaling(
    sizes: Annotated[str, Option(metavar="N,N,…", help="Training rows.")] = "1e5,2e5,5e5,1e6",
    n_projections: Annotated[int, Option(metavar="M", help="At least 2.")] = N_RIDGES,
    n_test: Annotated[int, Option(metavar="N", help="Test rows.")] = 20_000,
    seed: Annotated[
        int, Option(metavar="N", help="Random seed of the function, the rows and the fit.")
    ] = 0,
    repeats: Annotated[
        int,
        Option(
            metavar="N",
            help="Number of measurements of one more projection, of which the median is reported.",
        ),
    ] = 3,
    out: Annotated[Path, Option(metavar="FOLDER", help="Output folder.")] = Path("results/pursuit"),
) -> None:
    """Fit a sum of ten ridge functions of eight inputs against the number of rows."""
    exit_on_termination()
    with plain_errors():
        # Growing, so that the peak of the process is that of the size.
        rows = sorted(_integers("--sizes", sizes, 100))
        if n_projections < 2 or repeats < 1 or n_test < 2:
            raise ParameterError(
                "--n-projections and --n-test must be at least 2, and --repeats at least 1"
            )
        out.mkdir(parents=True, exist_ok=True)
        found: list[Scaling] = []
        with progress("sizes", len(rows)) as bar:
            bar.update(0, now="compiling")
            warm_up(min(20_000, rows[0]))
            for n in rows:
                bar.update(0, now=f"{n} rows")
                found.append(scale(n, n_test, n_projections, seed, repeats))
                report = {
                    **_circumstances(),
                    "sizes": [asdict(each) for each in found],
                    "slopes": slopes(found),
                }
                (out / "scaling.json").write_text(_json(report), encoding="utf-8")
                (out / "scaling.md").write_text(scaling_page(found), encoding="utf-8")
                bar.update()
        _show("Scaling", SCALING_HEADER, scaling_rows(found))
        for line in slope_lines(found):
            console.print(line, highlight=False)
        console.print(f"results are in {out}", markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------- common


def _integers(option: str, text: str, least: int) -> list[int]:
    try:
        numbers = [int(float(part)) for part in text.split(",")]
    except (ValueError, OverflowError):
        numbers = []
    if not numbers or min(numbers) < least:
        raise ParameterError(
            f"{option}: expected numbers of rows from {least} on, such as 1000,1e5, got {text!r}"
        )
    return numbers


def _circumstances() -> dict[str, Any]:
    return {
        "command": _command(),
        "versions": environment(),
        "machine": machine(),
    }


def _command() -> str:
    return " ".join(["python -m benchmarks.pursuit", *sys.argv[1:]])


def _json(report: dict[str, Any]) -> str:
    return json.dumps(_without_nan(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    digits = 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:.{digits}f}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _show(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*header, title=title, title_justify="left", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    app()
