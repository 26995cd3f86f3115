"""Gaussian processes on grids: an image, a field with gaps, the corners of hypercubes.

``python -m pipelines.grid image --out results/camera``
"""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from dsgp.cli.endings import run_app
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination

try:
    from pipelines.datasets.fields import hold_out, load_field
    from pipelines.grid import corners, filling, imaging, pictures, tables
    from pipelines.grid.figures import draw_corners, draw_field, draw_image
    from pipelines.grid.writing import MODEL, POSTERIOR, written
    from pipelines.reporting import DPI, Stopwatch, plain_errors
    from pipelines.run.sections import KERNELS
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

MOST_DIMS = 24

# \b keeps the lines of the paragraph that follows as they are.
IMAGE_EXAMPLES = """\b
Examples:
  python -m pipelines.grid image
  python -m pipelines.grid image --image china --noise 15 --kernel matern12
  python -m pipelines.grid image --image photograph.png --size 400
"""
FIELD_EXAMPLES = """\b
Examples:
  python -m pipelines.grid field
  python -m pipelines.grid field --data alboran --data-dir FOLDER
  python -m pipelines.grid field --data ersst --data-dir FOLDER --at 2015-12-01,2019-06-01
  python -m pipelines.grid field --data sst.nc --variable analysed_sst --side 10
"""
CORNERS_EXAMPLES = """\b
Examples:
  python -m pipelines.grid corners
  python -m pipelines.grid corners --dims 8:16 --full-seconds 2
"""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Gaussian processes on grids: an image, a field with gaps, corners of hypercubes.",
)

Out = Annotated[
    Path | None, Option(metavar="FOLDER", help="Output folder; by default results/grid-NAME.")
]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace the results of other data.")]
KernelName = Annotated[
    str,
    Option("--kernel", metavar="KERNEL", help=f"Kernel of every dimension: {', '.join(KERNELS)}."),
]


# ---- image


@app.command(epilog=IMAGE_EXAMPLES)
def image(
    name: Annotated[
        str | None,
        Option(
            "--image",
            metavar="IMAGE",
            help=f"{', '.join(pictures.IMAGES)}, or a file; by default camera, or china without "
            "scikit-image.",
        ),
    ] = None,
    size: Annotated[
        int, Option(metavar="N", help="Side length of the square part that is used, in pixels.")
    ] = 200,
    noise: Annotated[
        float,
        Option(metavar="STD", help="Standard deviation of the added noise, in grey levels of 255."),
    ] = 25.0,
    kernel: KernelName = "matern32",
    seed: Annotated[int, Option(metavar="N", help="Random seed of the noise.")] = 0,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Smooth an image, and reconstruct it from a quarter of its pixels.

    Both are done without and with added noise, as in the paper's figure fig:GPMLpic.
    """
    name = pictures.default_image() if name is None else name
    settings = {"image": name, "size": size, "noise": noise, "kernel": kernel}
    exit_on_termination()
    with plain_errors():
        own_kernel = _kernel(kernel)
        if not (size >= 16 and 0 < noise < np.inf):
            raise ParameterError(
                f"--size must be at least 16 and --noise positive, got {size} and {noise}"
            )
        clock = Stopwatch()
        with clock.stage("load"):
            picture = pictures.picture_of(name, size)
        with written(
            out, "image", picture.name, overwrite, clock, seed, settings, inputs=[name]
        ) as run:
            with clock.stage("reconstruct", shown=False):
                tasks = imaging.tasks_of(picture, noise, own_kernel, seed)
            run.metrics = tables.metrics_of_image(tasks)
            with clock.stage("plot"):
                for pair in (tasks[:2], tasks[2:]):
                    ending = pair[0].case.replace(" ", "-")
                    draw_image(*pair).savefig(run.folder / f"image-{ending}.png", dpi=DPI)
            if not pictures.HAS_SKIMAGE:
                run.notes.append("Without scikit-image there is no SSIM: pip install scikit-image.")
            run.page = lambda notes: tables.image_report(picture.source, noise, tasks, notes)
            run.rows = tables.image_rows(tasks)
            run.facts = {"source": picture.source, "pixels": picture.values.shape}


# ---- field


@app.command(epilog=FIELD_EXAMPLES)
def field(
    data: Annotated[
        str,
        Option(
            metavar="DATA",
            help=f"{', '.join(filling.FIELDS)}, another field of --data-dir, or a .npz, .nc or "
            ".zarr with time and two other dimensions.",
        ),
    ] = filling.SYNTHETIC,
    data_dir: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder of the fields named in --data.")
    ] = None,
    variable: Annotated[
        str | None, Option(metavar="NAME", help="Variable of a file that has several.")
    ] = None,
    share: Annotated[
        float, Option(metavar="SHARE", help="Share of the observed cells held out one by one.")
    ] = 0.05,
    blocks: Annotated[
        int, Option(metavar="N", help="Number of blocks held out per time step.")
    ] = 12,
    side: Annotated[
        int | None,
        Option(metavar="N", help="Side of a block in cells; 20, or 6 for coarse fields."),
    ] = None,
    kernel: KernelName = "matern32",
    mean: Annotated[
        str | None,
        Option(metavar="MEAN", help="Prior mean: constant, zero, or averages: time, time.month."),
    ] = None,
    scales: Annotated[
        int | None,
        Option(metavar="N", help="Number of kernels; by default chosen by the likelihood."),
    ] = None,
    at: Annotated[
        str | None,
        Option(metavar="A,B,C", help="Times of the maps; by default three, clear to cloudy."),
    ] = None,
    seed: Annotated[
        int, Option(metavar="N", help="Random seed of the held-out cells and of synthetic data.")
    ] = 1,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Fill the gaps of a field, with cells held out for a test.

    Hyperparameters are learned. Linear interpolation and DINEOF fill the same gaps.
    """
    settings = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if name not in ("out", "overwrite", "seed")
    }
    exit_on_termination()
    with plain_errors():
        own_kernel = _kernel(kernel)
        known = filling.FIELDS.get(data, filling.OTHER)
        clock = Stopwatch()
        truth = None
        with clock.stage("load"):
            if data == filling.SYNTHETIC:
                da, truth = filling.synthetic_field(seed)
            else:
                da = load_field(known.file or data, data_dir=data_dir, variable=variable).load()
            side = known.side if side is None else side
            held = hold_out(da, share=share, blocks=blocks, side=side, seed=seed)
        times = filling.chosen_times(da, 3) if at is None else _listed(at)
        options = {
            "kernels": {str(dim): own_kernel() for dim in da.dims},
            "mean": known.mean if mean is None else mean,
            "scales": scales,
        }
        name = Path(data).stem
        inputs: list[str | Path] = [data]
        if data_dir is not None:
            inputs.append(Path(data_dir) / f"{known.file or data}.npz")
        with written(out, "field", name, overwrite, clock, seed, settings, inputs) as run:
            filled = filling.fill(da, held, options, clock)
            with clock.stage("save"):
                filled.posterior.to_zarr(run.folder / POSTERIOR, mode="w", consolidated=False)
                filled.model.save(run.folder / MODEL)
            with clock.stage("plot"):
                draw_field(name, da, held, filled, times, run.folder)
            facts = filling.facts_of(name, da, held, side, blocks)
            if truth is not None:
                facts |= filling.under_clouds(da, truth, filled)
            summary = filled.model.summary()
            run.metrics = {
                "scores": filled.scores,
                "cpu_seconds": filled.cpu_seconds,
                "details": filled.details,
            }
            run.page = lambda notes: tables.field_report(
                facts, filled.scores, clock.seconds, filled.cpu_seconds, summary, notes
            )
            run.rows = tables.field_rows(filled.scores)
            run.rows["converged"] = "yes" if filled.model.converged_ else "NO"
            run.facts = facts
            run.extra = {"summary": summary.splitlines(), "converged": filled.model.converged_}


# ---- corners


@app.command("corners", epilog=CORNERS_EXAMPLES)
def corners_(
    dims: Annotated[
        str, Option(metavar="A:B", help="Dimensions of the hypercubes, both ends included.")
    ] = "8:20",
    full_seconds: Annotated[
        float,
        Option(metavar="S", help="Time limit per iteration of the full GP; 0: skip it."),
    ] = 10.0,
    kernel: KernelName = "matern32",
    seed: Annotated[int, Option(metavar="N", help="Random seed of the targets.")] = 0,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Time a learning iteration at the corners of hypercubes.

    A hypercube of D dimensions has 2^D corners, as in the paper's figure fig:kron. The full GP is
    timed too while it fits into memory.
    """
    settings = {"dims": dims, "full_seconds": full_seconds, "kernel": kernel}
    exit_on_termination()
    with plain_errors():
        own_kernel = _kernel(kernel)
        sizes = _dims(dims)
        clock = Stopwatch()
        with written(out, "corners", "corners", overwrite, clock, seed, settings) as run:
            with clock.stage("iterations", shown=False):
                timings, why = corners.timings_of(sizes, full_seconds, own_kernel, seed)
            slopes = corners.slopes_of(timings)
            with clock.stage("plot"):
                draw_corners(timings, slopes).savefig(run.folder / "corners.png", dpi=DPI)
            run.metrics = {
                "slopes": corners.slopes_of(timings, 0),
                "slopes_of_large": slopes,
                "iterations": [asdict(timing) for timing in timings],
            }
            run.page = lambda notes: tables.corners_report(timings, own_kernel.__name__, why, notes)
            run.rows = tables.corners_rows(timings)


# ---- what all share


def _kernel(name: str) -> Any:
    if name not in KERNELS:
        raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, got {name!r}")
    return KERNELS[name]


def _listed(text: str) -> list[str]:
    names = [word.strip() for word in text.split(",") if word.strip()]
    if not names:
        raise ParameterError("--at takes times, such as 2015-12-01,2019-06-01")
    return names


def _dims(text: str) -> range:
    words = text.split(":")
    numbers = [int(word) for word in words if word.strip().isdecimal()]
    if len(words) != 2 or len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= MOST_DIMS:
        raise ParameterError(
            f"--dims takes two numbers from 1 to {MOST_DIMS}, such as 8:20; got {text!r}"
        )
    return range(numbers[0], numbers[1] + 1)


if __name__ == "__main__":
    run_app(app, "python -m pipelines.grid")
