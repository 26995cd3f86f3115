"""Pictures of images and their reconstructions, of fields, and of seconds at corners."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter

from dsgp.plotting import plot_field, plot_predictions
from dsgp.plotting.style import (
    ACCENT,
    DEVIATION,
    DIVERGING,
    FAINT,
    GREY,
    INK,
    TEXT,
    frame,
    write_below,
)
from dsgp.terms import Floats
from pipelines.datasets.fields import HeldOut
from pipelines.grid.corners import FULL, OURS, Timing
from pipelines.grid.filling import LEVEL, Filling
from pipelines.grid.imaging import AS_IT_IS, Reconstruction, Task
from pipelines.grid.pictures import WHITE
from pipelines.reporting import DPI

# What a test cell was held out with.
_HELD_OUT = {
    "points": "single cells held out",
    "clouds": "blocks of cells held out, as clouds hide them",
}
_METHODS = {OURS: "Kronecker products of the dims", FULL: "full GP, N × N matrices"}
_SIDE = 2.55  # inches of an image
_CORNER = 30  # pixels along a side of a map of deviations


def draw_image(smoothed: Task, interpolated: Task) -> Figure:
    """Draw the paper's four panels, with maps of standard deviation and one of comparison.

    Above: the image, its reconstruction, the standard deviation, and what was taken away. Below:
    every fourth pixel, the reconstruction, its standard deviation, and the bilinear one.
    """
    fig = Figure((4 * _SIDE + 0.4, 2 * _SIDE + 1.3), layout="constrained")
    axes = fig.subplots(4, 4, height_ratios=[1, 0.03, 1, 0.03])
    above, below = smoothed.ours, interpolated.ours
    case = "image as it is" if smoothed.case == AS_IT_IS else "noisy image"
    noisy = next(
        (reconstruction for reconstruction in smoothed.methods if reconstruction.std is None), None
    )
    bilinear = interpolated.methods[0]
    _grey(axes[0, 0], smoothed.given, _named(f"(a) {case}", noisy))
    _grey(axes[0, 1], above.mean, _named("(b) GridGP of (a)", above))
    _grey(axes[2, 0], interpolated.given, "(c) every 2nd row and column of (a)")
    _grey(axes[2, 1], below.mean, _named("(d) GridGP of (c)", below))
    _grey(axes[2, 3], bilinear.mean, _named("bilinear of (c)", bilinear))
    _std(fig, axes[0, 2], axes[1, 2], above.std, "(b)")
    _std(fig, axes[2, 2], axes[3, 2], below.std, "(d)")
    residual = smoothed.given - above.mean
    reach = float(np.percentile(np.abs(residual), 99.5))
    _coloured(fig, axes[0, 3], axes[1, 3], residual, Normalize(-reach, reach), DIVERGING, "both")
    axes[0, 3].set_title("(a) − (b)", fontsize=8.5)
    write_below(
        fig,
        "dB: peak signal-to-noise ratio, and SSIM: structural similarity, 1 at most, both against "
        "the image as it is and larger for a better picture; std: standard deviation of the "
        "posterior",
        fig.get_figwidth(),
    )
    for ax in axes.flat:
        if not ax.has_data() and not ax.images and not ax.collections:
            ax.set_axis_off()
    return fig


def _grey(ax: Axes, values: Floats, title: str) -> None:
    ax.imshow(values, cmap="gray", vmin=0, vmax=WHITE, interpolation="nearest")
    ax.set_title(title, fontsize=8.5)
    _bare(ax)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _named(title: str, reconstruction: Reconstruction | None) -> str:
    if reconstruction is None or reconstruction.scores.get("psnr") is None:
        return title
    similar = reconstruction.scores["ssim"]
    quality = f"{reconstruction.scores['psnr']:.1f} dB" + (
        "" if similar is None else f", SSIM {similar:.2f}"
    )
    return f"{title}: {quality}"


def _std(fig: Figure, ax: Axes, bar: Axes, std: Floats | None, name: str) -> None:
    """Draw a corner: the deviation of a stationary process is the same but near edges and gaps."""
    assert std is not None
    part = std[-_CORNER:, -_CORNER:]
    _coloured(fig, ax, bar, part, Normalize(float(part.min()), float(part.max())), DEVIATION)
    ax.set_title(f"std of {name}, lower right {len(part)} × {len(part)} pixels", fontsize=8.5)


def _coloured(
    fig: Figure, ax: Axes, bar: Axes, values: Floats, norm: Normalize, cmap: str | Colormap,
    extend: str = "neither",
) -> None:  # fmt: skip
    drawn = ax.imshow(values, cmap=cmap, norm=norm, interpolation="nearest")
    _bare(ax)
    scale = fig.colorbar(drawn, cax=bar, orientation="horizontal", extend=extend)
    bar.tick_params(labelsize=7, color=FAINT, length=2)
    bar.xaxis.set_major_locator(MaxNLocator(5))
    scale.set_label("grey levels", fontsize=7.5)
    scale.outline.set_visible(False)


def draw_field(
    name: str,
    da: xr.DataArray,
    held: HeldOut,
    filled: Filling,
    times: list[Any],
    folder: Path,
) -> None:
    fitted = da.where(xr.DataArray(held.fit, dims=da.dims))
    unit = str(da.attrs.get("units", ""))
    target = str(da.attrs.get("long_name", name)) + (f" ({unit})" if unit else "")
    maps = plot_field(filled.posterior, fitted, at={str(da.dims[0]): times}, target=target)
    maps.suptitle(
        "observed: what was fitted, without the cells and blocks held out for the test",
        fontsize=8.5, color=TEXT,
    )  # fmt: skip
    maps.savefig(folder / "maps.png", dpi=DPI)
    for kind, of_kind in filled.table.groupby("kind"):
        if len(of_kind) > 1:
            figure = plot_predictions(
                of_kind["observed"], of_kind["mean"], of_kind["std"], level=LEVEL, target=target,
                unit="cells",
            )  # fmt: skip
            figure.suptitle(_HELD_OUT[str(kind)], fontsize=9.5, color=TEXT)
            figure.savefig(folder / f"held-out-{kind}.png", dpi=DPI)


def draw_corners(timings: Sequence[Timing], slopes: dict[str, float]) -> Figure:
    """Draw seconds of one learning iteration against the number of corners."""
    fig = Figure((5.6, 4.0), layout="constrained")
    ax = fig.subplots()
    names = list(dict.fromkeys(timing.method for timing in timings))
    for name, colour, mark, power in zip(names, (INK, ACCENT), "o^", (1, 3), strict=False):
        of_method = [timing for timing in timings if timing.method == name]
        n = np.array([timing.n for timing in of_method], dtype=float)
        seconds = np.array([timing.seconds for timing in of_method])
        text = _METHODS.get(name, name)
        text += f": time ∝ $N^{{{slopes[name]:.2f}}}$" if name in slopes else ""
        ax.plot(n, seconds, mark + "-", color=colour, markersize=4.5, linewidth=1.4, label=text)
        _guide(ax, n, seconds, power)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    dims = sorted({timing.dims for timing in timings})
    ax.xaxis.set_major_locator(FixedLocator([2.0**d for d in dims if d % 2 == dims[0] % 2]))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("corners N of the hypercube", fontsize=9)
    ax.set_ylabel("seconds of one learning iteration", fontsize=9)
    fig.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    frame(ax)
    return fig


def _guide(ax: Axes, n: Any, seconds: Any, power: int) -> None:
    """Draw a faint line of that slope through the largest run."""
    ends = np.array([max(n[-1] / 16, n[0]), n[-1]])
    if ends[0] == ends[1]:
        return
    along = 0.6 * seconds[-1] * (ends / n[-1]) ** power
    ax.plot(ends, along, "--", color=GREY, linewidth=1, zorder=1)
    words = r"$\propto N$" if power == 1 else rf"$\propto N^{power}$"
    middle = 3
    ax.annotate(
        words, (ends[1], along[1]), (middle, -9), textcoords="offset points", fontsize=8,
        color=FAINT,
    )  # fmt: skip
