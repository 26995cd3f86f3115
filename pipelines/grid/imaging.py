"""An image, as it is and with noise added: smoothed, then reconstructed from every fourth pixel.

What is done to images and how near a reconstruction is, is in ``pictures``.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsgp import GridGP
from dsgp.kernels import Stationary
from dsgp.metrics import coverage
from dsgp.progress import progress
from dsgp.terms import Floats
from pipelines.grid.pictures import (
    Picture,
    as_field,
    best_gaussian,
    halved,
    left_out,
    non_local_means,
    psnr,
    spline,
    ssim,
    with_noise,
)

LEVEL = 0.95
# Variance of rounding to whole grey levels: what an image without noise still has.
ROUNDING = 1 / 12
AS_IT_IS, NOISY = "as it is", "noise added"
OURS, OURS_ROUNDED = "GridGP", "GridGP, noise of rounding"


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """One method on one task.

    Attributes
    ----------
    method : str
    mean : ndarray of shape (n_rows, n_columns)
    std : ndarray of that shape, or None
    scores : dict
        ``psnr``, ``ssim``, and of the pixels left out ``rmse_left_out``; None where there is
        nothing to compare with. ``coverage``: by the 95 % interval.
    seconds : dict
        ``learn``, and ``reconstruct`` with the variance.
    fitted : dict
        Of ours.
    """

    method: str
    mean: Floats
    std: Floats | None
    scores: dict[str, float | None]
    seconds: dict[str, float]
    fitted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Task:
    """What was given, what it is compared with, and what the methods made of it.

    Attributes
    ----------
    case : {AS_IT_IS, NOISY}
    kind : {"denoise", "interpolate"}
    given : ndarray
        Of (n_rows, n_columns) pixels, or half as many along both.
    truth : ndarray of shape (n_rows, n_columns), or None
        None: nothing cleaner is known.
    methods : list of Reconstruction
    """

    case: str
    kind: str
    given: Floats
    truth: Floats | None
    methods: list[Reconstruction]

    @property
    def ours(self) -> Reconstruction:
        return next(
            reconstruction for reconstruction in self.methods if reconstruction.method == OURS
        )


def tasks_of(
    picture: Picture, noise: float, kernel: Callable[..., Stationary], seed: int
) -> list[Task]:
    """Do everything: the image as it is, and with noise; smoothed, and interpolated.

    Parameters
    ----------
    picture : Picture
    noise : float
        Standard deviation added, in grey levels.
    kernel : callable
        Of rows and columns.
    seed : int
    """
    clean = picture.values
    noisy = with_noise(clean, noise, seed)
    few = (halved(clean), halved(noisy))
    with progress("images") as bar:

        def every(methods: Iterator[Reconstruction]) -> list[Reconstruction]:
            done = []
            for reconstruction in methods:
                bar.update(1, method=reconstruction.method)
                done.append(reconstruction)
            return done

        return [
            Task(AS_IT_IS, "denoise", clean, None, every(_smoothed(clean, None, kernel, noise))),
            Task(
                AS_IT_IS,
                "interpolate",
                few[0],
                clean,
                every(_interpolated(few[0], clean, kernel, True)),
            ),
            Task(NOISY, "denoise", noisy, clean, every(_smoothed(noisy, clean, kernel, noise))),
            Task(
                NOISY,
                "interpolate",
                few[1],
                clean,
                every(_interpolated(few[1], clean, kernel, False)),
            ),
        ]


def _smoothed(
    values: Floats, clean: Floats | None, kernel: Callable[..., Stationary], noise: float
) -> Iterator[Reconstruction]:
    if clean is not None:
        yield _scored("nothing: the noisy image", values, None, clean, {})
        (filtered, width), seconds = _timed(best_gaussian, values, clean)
        name = f"Gaussian filter of the best width, {width:.1f} pixels"
        yield _scored(name, filtered, None, clean, {"reconstruct": seconds})
        filtered, seconds = _timed(non_local_means, values, noise)
        if filtered is not None:
            name = "non-local means, noise known"
            yield _scored(name, filtered, None, clean, {"reconstruct": seconds})
    yield _ours(OURS, values, None, clean, kernel, None)


def _interpolated(
    few: Floats, clean: Floats, kernel: Callable[..., Stationary], observed: bool
) -> Iterator[Reconstruction]:
    """Reconstruct all pixels; `observed`: those left out have the noise of those given."""
    for name, order in (("bilinear", 1), ("bicubic", 3)):
        interpolated, seconds = _timed(spline, few, clean.shape, order)
        yield _scored(
            name, interpolated, None, clean, {"reconstruct": seconds}, left_out(clean.shape)
        )
    yield _ours(OURS, few, clean.shape, clean, kernel, None, observed)
    if observed:
        yield _ours(OURS_ROUNDED, few, clean.shape, clean, kernel, ROUNDING, observed)


def _ours(
    name: str,
    values: Floats,
    shape: tuple[int, ...] | None,
    clean: Floats | None,
    kernel: Callable[..., Stationary],
    noise_variance: float | None,
    include_noise: bool = False,
) -> Reconstruction:
    """Fit and reconstruct; `shape` is that of the whole image where pixels were left out."""
    image = as_field(values, 1 if shape is None else 2)
    # Where next to nothing is noise, edges alone make lengthscales short: they start there.
    start = None if noise_variance is None else 3.0
    # One separable kernel, as the paper's: its eigenbasis makes an image a matter of milliseconds.
    kernels = {dim: kernel(lengthscale=start) for dim in ("row", "column")}
    model = GridGP(kernels, noise_variance, fixed_noise=noise_variance is not None, scales=1)
    _, learn = _timed(model.fit, image)
    if shape is None:
        posterior, reconstruct = _timed(model.posterior)
    else:
        pixels = {dim: np.arange(float(n)) for dim, n in zip(("row", "column"), shape, strict=True)}
        posterior, reconstruct = _timed(model.predict, **pixels)
    fitted = {
        "kernels": {dim: repr(learned) for dim, learned in model.kernels_.items()},  # type: ignore[union-attr]
        "noise_std": model.noise_variance_**0.5,  # type: ignore[operator]
        "log_marginal_likelihood": model.log_marginal_likelihood_,
    }
    mean, std = (posterior[one].to_numpy() for one in ("mean", "std"))
    spread = np.sqrt(std**2 + model.noise_variance_) if include_noise else std
    away = None if shape is None else left_out(shape)
    seconds = {"learn": learn, "reconstruct": reconstruct}
    reconstruction = _scored(name, mean, std, clean, seconds, away, spread)
    reconstruction.fitted.update(fitted)
    return reconstruction


def _scored(
    method: str,
    mean: Floats,
    std: Floats | None,
    clean: Floats | None,
    seconds: dict[str, float],
    away: Any = None,
    spread: Floats | None = None,
) -> Reconstruction:
    scores: dict[str, float | None] = {}
    if clean is not None:
        scores = {"psnr": psnr(clean, mean), "ssim": ssim(clean, mean)}
        chosen = slice(None) if away is None else away
        if away is not None:
            scores["rmse_left_out"] = float(np.sqrt(np.mean((mean - clean)[away] ** 2)))
        if spread is not None:
            scores["coverage"] = coverage(
                clean[chosen].ravel(), mean[chosen].ravel(), spread[chosen].ravel(), LEVEL
            )
    return Reconstruction(method, mean, std, scores, seconds)


def _timed(do: Any, *arguments: Any, **options: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return do(*arguments, **options), time.perf_counter() - start
