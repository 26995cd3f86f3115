"""Filling the gaps of real fields, beside linear interpolation and DINEOF.

``python -m benchmarks.grid_gaps --data-dir data``: single cells and cloud-like blocks are held out
and filled from the rest, hyperparameters learnt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr
from typer import Option

from benchmarks.classification import kept
from benchmarks.pages import (
    MISSING,
    circumstances,
    command,
    json_text,
    markdown,
    say,
    show,
)
from benchmarks.pursuit import Seconds, timed
from dsgp import GridGP
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Periodic, Stationary
from dsgp.progress import progress
from pipelines.datasets import Floats, HeldOut, hold_out, load_field

try:
    from pipelines.peers.gaps import CELSIUS, Dineof, Filled, PyDineof, linear
    from pipelines.reporting import plain_errors
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

MODULE = "benchmarks.grid_gaps"
OURS = "dsgp"
INTERVAL, COVERAGE = 1.959964, (0.90, 0.98)  # of 95 %, with the noise

# Round the globe, with the smoothness of Matérn 3/2, which the other axes have by default.
GLOBE: Mapping[str, Stationary] = {"lon": Periodic(360.0, smoothness=1.5)}


@dataclass(frozen=True)
class Case:
    """A field, how ours is set, and what is promised of it.

    Attributes
    ----------
    side : int
        Cells along a side of the blocks held out.
    kernels, scales
        Of ``GridGP``.
    rmse : tuple of float
        At most, of single cells and of clouds.
    cpu_seconds : float or None
        At most, learning included.
    """

    side: int
    kernels: Mapping[str, Stationary] | None
    scales: int
    rmse: tuple[float, float]
    cpu_seconds: float | None = None


CASES = {
    "alboran_sst_avhrr": Case(20, None, 3, (0.105, 0.210), 60.0),
    # Half of what linear interpolation leaves, 0.2440 and 0.6507.
    "ersst_v5_monthly": Case(6, GLOBE, 2, (0.1220, 0.3253)),
    "ostia_tropics_monthly": Case(6, GLOBE, 2, (0.055, 0.155)),
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Result:
    """One method on one field.

    Attributes
    ----------
    rmse : tuple of float
        Of single cells and of clouds, over the cells that have an answer.
    unanswered : int
        Held-out cells without one.
    coverage : tuple of float or None
        Share of the held-out cells within the 95 % interval of a new observation.
    """

    data: str
    method: str
    n_fit: int
    n_held: tuple[int, int]
    rmse: tuple[float, float]
    unanswered: int
    coverage: tuple[float, float] | None
    seconds: Seconds
    details: dict[str, Any] = field(default_factory=dict)


def ours(
    da: xr.DataArray, held: HeldOut, case: Case, variance: str = "auto"
) -> tuple[Floats, Floats, dict[str, Any]]:
    """Fit and fill all cells of the sea; mean, std of an observation, and what was learnt."""
    sea = da.notnull().any(str(da.dims[0]))
    if "sea_mask" in da.coords:
        sea |= da["sea_mask"]
    plain = da.drop_vars("sea_mask", errors="ignore")
    domain = sea.drop_vars("sea_mask", errors="ignore")
    model = GridGP(case.kernels, scales=case.scales, variance=variance)
    _, fit = timed(lambda: model.fit(plain, mask=held.fit, domain=domain))
    posterior, rest = timed(lambda: model.posterior(include_noise=True))
    details = {
        "fit": fit,
        "posterior": rest,
        "iterations": model.solver_iterations_,
        "variance": model.variance_method_,
        "variance error": model.variance_error_,
        "summary": model.summary(),
    }
    return posterior["mean"].to_numpy(), posterior["std"].to_numpy(), details


def judge(
    name: str,
    method: str,
    values: Floats,
    held: HeldOut,
    answer: tuple[Floats, Floats | None, dict[str, Any]],
    seconds: Seconds,
) -> Result:
    """Compare with the values held out."""
    mean, std, details = answer
    error = np.abs(mean - values)

    def both(of: Callable[[Any], float]) -> tuple[float, float]:
        return of(held.points), of(held.clouds)

    return Result(
        name,
        method,
        int(held.fit.sum()),
        (int(held.points.sum()), int(held.clouds.sum())),
        both(lambda cells: float(np.sqrt(np.nanmean(error[cells] ** 2)))),
        int(np.isnan(mean[held.held]).sum()),
        None
        if std is None
        else both(lambda cells: float(np.mean(error[cells] <= INTERVAL * std[cells]))),
        seconds,
        details,
    )


def peers_of(da: xr.DataArray) -> dict[str, Callable[..., Filled]]:
    """Return what the field is filled by beside ours."""
    peers: dict[str, Callable[..., Filled]] = {"linear": linear, "DINEOF (our own)": Dineof()}
    if PyDineof.is_installed():
        peers["DINEOF (pyDINEOF)"] = PyDineof(
            offset=0.0 if da.attrs.get("units") == "K" else CELSIUS
        )
    return peers


def warm_up() -> None:
    """Load or compile the loops, so that no measurement is charged for it."""
    rng = np.random.default_rng(0)
    axes = [np.arange(float(size)) for size in (8, 16, 16)]
    values = np.sin(sum(np.meshgrid(*axes, indexing="ij")) / 5)
    gappy = xr.DataArray(
        np.where(rng.random(values.shape) < 0.1, np.nan, values),
        dict(zip("tyx", axes, strict=True)),
    )
    GridGP(variance="local").fit(gappy).posterior()


def promises_of(found: Sequence[Result]) -> dict[str, bool]:
    """Say which promises about one field hold."""
    own = next(each for each in found if each.method == OURS)
    case, promises = CASES[own.data], {}
    for i, cells in enumerate(("single cells", "clouds")):
        limit = case.rmse[i]
        promises[f"RMSE of {cells} at most {limit:g}"] = own.rmse[i] <= limit
        if len(found) > 1:
            least = min(each.rmse[i] for each in found)
            promises[f"lowest RMSE of {cells}"] = own.rmse[i] <= least
        if own.coverage:
            low, high = COVERAGE
            promises[f"{low:.0%} to {high:.0%} of {cells} covered"] = low <= own.coverage[i] <= high
    promises["every held-out cell filled"] = own.unanswered == 0
    if case.cpu_seconds is not None:
        promises[f"at most {case.cpu_seconds:g} s of processor time"] = (
            own.seconds.cpu <= case.cpu_seconds
        )
    return promises


HEADER = (
    "field", "cells fitted", "held out", "method", "RMSE, single", "RMSE, clouds",
    "95 % covers, single", "95 % covers, clouds", "variance", "unanswered", "seconds", "limits",
)  # fmt: skip


def rows_of(found: Iterable[Result]) -> list[list[str]]:
    """Format, with the columns of ``HEADER``."""
    return [
        [
            each.data,
            f"{each.n_fit:,}",
            " / ".join(f"{n:,}" for n in each.n_held),
            each.method,
            *(f"{error:.4f}" for error in each.rmse),
            *(["", ""] if each.coverage is None else [f"{own:.1%}" for own in each.coverage]),
            str(each.details.get("variance", "")),
            str(each.unanswered) if each.unanswered else MISSING,
            str(each.seconds),
            " / ".join(f"{own:g}" for own in CASES[each.data].rmse)
            if each.method == OURS
            else MISSING,
        ]
        for each in found
    ]


def promise_lines(promises: Mapping[str, Mapping[str, bool]]) -> list[str]:
    """Return one line per promise."""
    return [
        f"* {name}: {what}: {kept(holds)}"
        for name, some in promises.items()
        for what, holds in some.items()
    ]


def write(out: Path, module: str, report: dict[str, Any], lines: Sequence[str]) -> None:
    """Write NAME.json and NAME.md, NAME being that of the module."""
    name = module.rpartition(".")[2]
    out.mkdir(parents=True, exist_ok=True)
    text = json_text({**circumstances(module), **report})
    (out / f"{name}.json").write_text(text, encoding="utf-8")
    page = [lines[0], "", f"`{command(module)}`", "", *lines[1:]]
    (out / f"{name}.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    say(f"results are in {out}")


EXAMPLES = """\b
Examples:
  python -m benchmarks.grid_gaps --data-dir data
  python -m benchmarks.grid_gaps --data-dir data --fields alboran_sst_avhrr --no-peers
  OPENBLAS_NUM_THREADS=1 python -m benchmarks.grid_gaps --data-dir data --out results/gaps
"""


@app.command(epilog=EXAMPLES)
def main(
    data_dir: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Folder of the .npz fields, as for the pipelines."),
    ] = None,
    fields: Annotated[str, Option(metavar="NAME,NAME,…", help="Fields to fill.")] = ",".join(CASES),
    peers: Annotated[
        bool, Option("--peers/--no-peers", help="Also fill by linear interpolation and DINEOF.")
    ] = True,
    variance: Annotated[
        str, Option(metavar="NAME", help="Variances of GridGP: auto, local, calibrated or draws.")
    ] = "auto",
    out: Annotated[
        Path | None, Option(metavar="FOLDER", help="Output folder of JSON and Markdown.")
    ] = None,
) -> None:
    """Fill held-out cells of real fields: errors, coverage and seconds.

    5 % of the observed cells, and 12 square blocks at each time step, are held out.
    """
    exit_on_termination()
    with plain_errors():
        names = fields.split(",")
        unknown = [name for name in names if name not in CASES]
        if unknown:
            raise ParameterError(f"--fields: expected some of {', '.join(CASES)}, got {fields!r}")
        loaded = {name: load_field(name, data_dir=data_dir) for name in names}
        found: list[Result] = []
        promises: dict[str, dict[str, bool]] = {}
        n_methods = sum(1 + peers * len(peers_of(da)) for da in loaded.values())
        with progress("fills", n_methods) as bar:
            bar.update(0, now="compiling")
            warm_up()
            for name, da in loaded.items():
                values, held = da.to_numpy(), hold_out(da, side=CASES[name].side)
                mine: list[Result] = []
                for method, peer in peers_of(da).items() if peers else ():
                    bar.update(0, now=f"{name}, {method}")
                    filled, seconds = timed(lambda p=peer: p(values, held.fit, held.held))  # type: ignore[misc]  # noqa: B023
                    answer = (filled.values, None, filled.details)
                    mine.append(judge(name, method, values, held, answer, seconds))
                    bar.update()
                bar.update(0, now=f"{name}, {OURS}")
                answered, seconds = timed(lambda: ours(da, held, CASES[name], variance))  # noqa: B023
                mine.append(judge(name, OURS, values, held, answered, seconds))
                bar.update()
                found += mine
                promises[name] = promises_of(mine)
        show("Filling gaps", HEADER, rows_of(found))
        for line in promise_lines(promises):
            say(line)
        if out is not None:
            lines = [
                "# Filling gaps",
                *markdown(HEADER, rows_of(found)),
                "",
                *promise_lines(promises),
                "",
                "Seconds are processor / wall, including learning. The root mean squared error "
                "(RMSE) is in the unit of the field, over the held-out cells that have a "
                "prediction. Intervals are those of a new observation.",
            ]
            write(
                out,
                MODULE,
                {"fills": [asdict(each) for each in found], "promises": promises},
                lines,
            )


if __name__ == "__main__":
    app()
