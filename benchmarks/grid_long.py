"""Grids with a long axis of time: cost against its steps, and the two ways beside each other.

``python -m benchmarks.grid_long``: 10⁴ to 10⁶ half-hours at 16 stations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr
from scipy.signal import lfilter
from typer import Option

from benchmarks.classification import kept
from benchmarks.grid_gaps import INTERVAL, write
from benchmarks.pages import integers, markdown, plain, say, show
from benchmarks.pursuit import Seconds, slope, timed
from dsgp import GridGP
from dsgp.errors import ParameterError
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Matern32, Stationary
from dsgp.progress import progress

try:
    import resource

    from pipelines.reporting import plain_errors
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

MODULE = "benchmarks.grid_long"
STATIONS = 16
# Of time in hours, and of the stations, which are 1 apart; the truth of the series is near it.
KERNELS: dict[str, Stationary] = {"time": Matern32(24.0, 1.0), "station": Matern32(4.0, 1.0)}
NOISE = 0.1
SLOPE = 1.1  # of processor seconds by steps, in logarithms
AGREE, AGREE_STEPS = 1e-8, 2000
SHARE_MISSING = 0.1

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def series(n_steps: int, seed: int = 0) -> xr.DataArray:
    """Draw correlated series with the roughness of Matérn 3/2, every half hour, with noise."""
    rng = np.random.default_rng(seed)
    decay = np.exp(-np.sqrt(3.0) * 0.5 / 24.0)
    drawn = lfilter([1.0], [1.0, -2 * decay, decay**2], rng.standard_normal((n_steps, STATIONS)), 0)
    drawn /= drawn.std()
    places = np.arange(float(STATIONS))
    between = np.linalg.cholesky(Matern32(4.0, 1.0).covariance(places) + 1e-10 * np.eye(STATIONS))
    values = drawn @ between.T + np.sqrt(NOISE) * rng.standard_normal(drawn.shape)
    time = np.datetime64("1990-01-01", "ns") + np.arange(n_steps) * np.timedelta64(30, "m")
    return xr.DataArray(values, {"time": time, "station": places})


def model(learner: str | None = None) -> GridGP:
    """Return the estimator: with the kernels as they are, or learning from there."""
    return GridGP(KERNELS, noise_variance=NOISE if learner is None else None, mean="zero",
                  units={"time": "hours"}, learner=learner)  # fmt: skip


# ---------------------------------------------------------------------- both ways


def disagreement(n_steps: int) -> dict[str, float]:
    """Largest relative difference of the two ways: likelihood, gradient, mean, variance."""
    y = series(n_steps).to_numpy()
    points = [0.5 * np.arange(float(n_steps)), np.arange(float(STATIONS))]
    kernels = list(KERNELS.values())
    ways = (
        KroneckerSystem(points, kernels, NOISE),
        FibreSystem(points, kernels, NOISE, long=0),
    )
    found: list[dict[str, Any]] = []
    for way in ways:
        evidence, (mean, variance) = way.evidence(y), way.posterior(y)
        slopes = [*evidence.by_log_lengthscale, evidence.by_log_variance, evidence.by_log_noise]
        found.append(
            {
                "likelihood": np.array(evidence.value),
                "gradient": np.array(slopes),
                "mean": mean,
                "variance": variance,
            }
        )
    first, second = found
    return {
        name: float(np.max(np.abs(first[name] - second[name])) / np.max(np.abs(first[name])))
        for name in first
    }


# ---------------------------------------------------------------------- scaling


@dataclass(frozen=True)
class Scaling:
    """A complete grid of a given number of steps.

    Attributes
    ----------
    likelihood, evidence : Seconds
        Of the log likelihood, and of that with its gradient: one iteration of learning.
    posterior : Seconds
        Mean and standard deviation of all cells.
    learning : Seconds or None
        Of all hyperparameters, from ``learnt_from``.
    peak_memory_mb : float
        Of the process so far.
    """

    n: int
    log_likelihood: float | None
    likelihood: Seconds
    evidence: Seconds
    posterior: Seconds
    learning: Seconds | None
    learnt_from: str
    method: str
    rmse: float
    peak_memory_mb: float


def scale(n_steps: int, learn: bool) -> Scaling:
    """Measure one size."""
    da = series(n_steps)
    fitted, likelihood = timed(lambda: model().fit(da))
    posterior, smoothing = timed(fitted.posterior)
    points = [0.5 * np.arange(float(n_steps)), np.arange(float(STATIONS))]
    system = FibreSystem(points, list(KERNELS.values()), NOISE, long=0)
    y = da.to_numpy()
    _, evidence = timed(lambda: system.evidence(y))
    learning, learnt_from = None, ""
    if learn:
        learnt, learning = timed(lambda: model("marginal").fit(da))
        learnt_from = learnt.learnt_from_
    rmse = float(np.sqrt(np.mean((posterior["mean"].to_numpy() - y) ** 2)))
    return Scaling(
        n_steps, fitted.log_marginal_likelihood_, likelihood, evidence, smoothing, learning,
        learnt_from, fitted.method_, rmse,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )  # fmt: skip


def slopes_of(found: Sequence[Scaling]) -> dict[str, float | None]:
    """Exponents of processor seconds by steps."""
    n = [each.n for each in found]
    return {
        name: slope(n, [getattr(each, name).cpu for each in found])
        for name in ("likelihood", "evidence", "posterior")
    }


HEADER = (
    "steps", "cells", "method", "likelihood s", "with gradient s", "posterior s", "µs a cell",
    "learning s", "peak MB",
)  # fmt: skip


def rows_of(found: Iterable[Scaling]) -> list[list[str]]:
    """Format, with the columns of ``HEADER``."""
    return [
        [
            f"{each.n:,}",
            f"{each.n * STATIONS:,}",
            each.method,
            str(each.likelihood),
            str(each.evidence),
            str(each.posterior),
            f"{1e6 * each.posterior.cpu / (each.n * STATIONS):.2f}",
            "–" if each.learning is None else f"{each.learning} ({each.learnt_from})",
            f"{each.peak_memory_mb:.0f}",
        ]
        for each in found
    ]


# ---------------------------------------------------------------------- gaps


@dataclass(frozen=True)
class Gaps:
    """Series with missing cells.

    Attributes
    ----------
    fit, posterior : Seconds
    excess : float or None
        Of the standard deviations over exact ones, at a few cells; None where all are exact.
    rmse, coverage : float
        At the missing cells, of new observations.
    """

    n: int
    method: str
    fit: Seconds
    posterior: Seconds
    iterations: int
    converged: bool
    excess: float | None
    rmse: float
    coverage: float


def gaps(n_steps: int, learn: bool) -> Gaps:
    """Fit series with a tenth of their cells missing, by conjugate gradients."""
    da = series(n_steps)
    hidden = np.random.default_rng(1).random(da.shape) < SHARE_MISSING
    own = model("marginal" if learn else None)
    # Draws, that "auto" may choose, are 64 solves more.
    own.set_params(scales=1, variance="local")
    fitted, fit = timed(lambda: own.fit(da.where(~hidden)))
    posterior, smoothing = timed(lambda: fitted.posterior(include_noise=True))
    error = (posterior["mean"].to_numpy() - da.to_numpy())[hidden]
    within = np.abs(error) <= INTERVAL * posterior["std"].to_numpy()[hidden]
    return Gaps(
        n_steps, fitted.method_, fit, smoothing, fitted.solver_iterations_, fitted.converged_,
        fitted.variance_error_, float(np.sqrt(np.mean(error**2))), float(np.mean(within)),
    )  # fmt: skip


GAPS_HEADER = (
    "steps", "method", "fit s", "posterior s", "iterations", "RMSE of missing cells",
    "95 % covers", "excess of std",
)  # fmt: skip


def gap_rows(found: Gaps) -> list[list[str]]:
    """Format, with the columns of ``GAPS_HEADER``."""
    return [
        [
            f"{found.n:,}",
            found.method,
            str(found.fit),
            str(found.posterior),
            f"{found.iterations}{'' if found.converged else ', NOT CONVERGED'}",
            f"{found.rmse:.4f}",
            f"{found.coverage:.1%}",
            "exact" if found.excess is None else f"{found.excess:.1%}",
        ]
    ]


EXAMPLES = """\b
Examples:
  python -m benchmarks.grid_long
  python -m benchmarks.grid_long --sizes 1e4,1e5 --gaps 0
  OPENBLAS_NUM_THREADS=1 python -m benchmarks.grid_long --learn --out results/long
"""


@app.command(epilog=EXAMPLES)
def main(
    sizes: Annotated[str, Option(metavar="N,N,…", help="Numbers of time steps.")] = "1e4,1e5,1e6",
    gappy: Annotated[
        str,
        Option(
            "--gaps",
            metavar="N",
            help="Number of time steps of the series with gaps; 0 leaves it out.",
        ),
    ] = "1e5",
    learn: Annotated[bool, Option("--learn", help="Also learn the hyperparameters.")] = False,
    out: Annotated[
        Path | None, Option(metavar="FOLDER", help="Output folder of JSON and Markdown.")
    ] = None,
) -> None:
    """Smooth 16 long series: seconds of the likelihood, its gradient and the posterior."""
    exit_on_termination()
    with plain_errors():
        steps = sorted(integers("--sizes", sizes, 4097))
        n_gappy = integers("--gaps", gappy, 0)[0]
        if 0 < n_gappy < 200:
            raise ParameterError(f"--gaps: expected 0, or 200 steps or more, got {gappy!r}")
        found: list[Scaling] = []
        with progress("sizes", len(steps) + 1 + (n_gappy > 0)) as bar:
            bar.update(0, now="both ways")
            apart = disagreement(AGREE_STEPS)
            scale(steps[0], learn=False)  # loads or compiles the loops
            bar.update()
            for n in steps:
                bar.update(0, now=f"{n} steps")
                found.append(scale(n, learn))
                bar.update()
            bar.update(0, now="gaps")
            holes = gaps(n_gappy, learn) if n_gappy else None
        exponents = slopes_of(found) if len(found) > 1 else {}
        lines = [
            f"* slope of the {name}: {value:.3f}: {kept(value <= SLOPE)}"
            for name, value in exponents.items()
            if value is not None
        ]
        lines += [
            f"* {name} by both ways at {AGREE_STEPS} steps: apart by {value:.1e}: "
            f"{kept(value <= AGREE)}"
            for name, value in apart.items()
        ]
        show(f"{STATIONS} stations", HEADER, rows_of(found))
        if holes:
            show(f"{SHARE_MISSING:.0%} of the cells missing", GAPS_HEADER, gap_rows(holes))
        for line in lines:
            say(line)
        if out is not None:
            page = ["# Long axes", *markdown(HEADER, rows_of(found)), ""]
            if holes:
                page += [f"{SHARE_MISSING:.0%} of the cells missing:", ""]
                page += [*markdown(GAPS_HEADER, gap_rows(holes)), ""]
            report = {
                "sizes": [asdict(each) for each in found],
                "slopes": exponents,
                "apart": apart,
                "gaps": None if holes is None else asdict(holes),
            }
            write(out, MODULE, report, [*page, *lines, "", f"Seconds: processor / wall, limit of "
                                        f"the slopes {plain(SLOPE)}."])  # fmt: skip


if __name__ == "__main__":
    app()
