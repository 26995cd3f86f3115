"""Test images of 200 × 200 grey levels, what is done to them, and how near a reconstruction is.

Fitting is in ``imaging``.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.image import imread
from scipy.ndimage import gaussian_filter, map_coordinates
from sklearn.datasets import load_sample_image

from dsgp.errors import DataError, ParameterError
from dsgp.terms import Floats

try:
    from skimage import data as skimage_images
    from skimage.metrics import structural_similarity
    from skimage.restoration import denoise_nl_means

    HAS_SKIMAGE = True
except ImportError:  # the sample images of scikit-learn remain, without SSIM
    HAS_SKIMAGE = False

WHITE = 255.0
# Of brightness to the eye (Rec. 709).
_RED_GREEN_BLUE = np.array([0.2126, 0.7152, 0.0722])
# Upper left pixel of the part that is taken.
_OF_SKIMAGE = {"camera": (60, 140), "coins": (40, 100), "moon": (150, 150), "brick": (0, 0)}
_OF_SKLEARN = {"china": (60, 230), "flower": (130, 240)}
IMAGES = (*_OF_SKIMAGE, *_OF_SKLEARN)
_WIDTHS = np.linspace(0.4, 2.5, 22)


@dataclass(frozen=True)
class Picture:
    """A grey image.

    Attributes
    ----------
    name : str
    source : str
        Where it is from, and which part.
    values : ndarray of shape (n_rows, n_columns)
        Grey levels, 0 to 255.
    """

    name: str
    source: str
    values: Floats


def default_image() -> str:
    """The paper's kind of image where scikit-image is installed, else one of scikit-learn."""
    return "camera" if HAS_SKIMAGE else "china"


def picture_of(name: str, size: int) -> Picture:
    """Load an image by name, or the middle of a file.

    Raises
    ------
    ParameterError
        If there is no such image, or it needs scikit-image.
    DataError
        If it is smaller than `size`, or the file is none that matplotlib reads.
    """
    if name in _OF_SKIMAGE:
        if not HAS_SKIMAGE:
            raise ParameterError(
                f"the image {name!r} needs scikit-image: pip install scikit-image, or choose "
                f"one of {', '.join(_OF_SKLEARN)}"
            )
        grey, source = _grey(getattr(skimage_images, name)()), f"skimage.data.{name}()"
        corner = _OF_SKIMAGE[name]
    elif name in _OF_SKLEARN:
        grey, source = _grey(load_sample_image(f"{name}.jpg")), f"{name}.jpg of scikit-learn"
        corner = _OF_SKLEARN[name]
    else:
        grey, source = _grey(_read(name)), Path(name).name
        corner = ((grey.shape[0] - size) // 2, (grey.shape[1] - size) // 2)
    if min(grey.shape) < size:
        raise DataError(f"{source} has {grey.shape} pixels, fewer than --size {size}")
    rows, columns = (
        min(max(start, 0), whole - size) for start, whole in zip(corner, grey.shape, strict=True)
    )
    part = np.ascontiguousarray(grey[rows : rows + size, columns : columns + size])
    description = f"{source}, rows {rows}–{rows + size - 1}, columns {columns}–{columns + size - 1}"
    return Picture(Path(name).stem, description, part)


def _read(name: str) -> Any:
    if not Path(name).is_file():
        raise ParameterError(f"--image takes {', '.join(IMAGES)} or a file; got {name!r}")
    try:
        values = imread(name)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{name!r} is not an image that can be read: {error}") from error
    return values if values.dtype == np.uint8 else values * WHITE


def _grey(values: Any) -> Floats:
    values = np.asarray(values, dtype=float)
    return values if values.ndim == 2 else values[..., :3] @ _RED_GREEN_BLUE


def with_noise(values: Floats, std: float, seed: int) -> Floats:
    """Add Gaussian noise; what leaves 0 to 255 is not cut, so that it stays Gaussian."""
    return values + std * np.random.default_rng(seed).standard_normal(values.shape)


def halved(values: Floats) -> Floats:
    """Every second pixel of every second row: a quarter of them."""
    return values[::2, ::2]


def left_out(shape: tuple[int, ...]) -> Any:
    """Which pixels ``halved`` leaves out."""
    away = np.ones(shape, dtype=bool)
    away[::2, ::2] = False
    return away


def as_field(values: Floats, step: int = 1) -> xr.DataArray:
    """An image on its grid of pixels."""
    coords = {
        dim: np.arange(0.0, step * n, step)
        for dim, n in zip(("row", "column"), values.shape, strict=True)
    }
    return xr.DataArray(values, coords, attrs={"long_name": "grey level"})


# ---- baselines


def spline(values: Floats, shape: tuple[int, int], order: int) -> Floats:
    """Interpolate a halved image at all pixels: bilinear (order 1) or bicubic (3).

    That is ``scipy.ndimage.zoom`` at the places of the pixels themselves: ``zoom`` stretches the
    image from end to end, and would be compared half a pixel beside.
    """
    places = np.meshgrid(*(np.arange(n) / 2 for n in shape), indexing="ij")
    return map_coordinates(values, places, order=order, mode="nearest")


def best_gaussian(noisy: Floats, clean: Floats) -> tuple[Floats, float]:
    """The Gaussian filter whose width is the best for this very image, and that width."""
    tried = {float(width): gaussian_filter(noisy, width) for width in _WIDTHS}
    width = min(tried, key=lambda candidate: float(np.mean((tried[candidate] - clean) ** 2)))
    return tried[width], width


def non_local_means(noisy: Floats, std: float) -> Floats | None:
    """Non-local means of scikit-image with the noise known; None without it."""
    if not HAS_SKIMAGE:
        return None
    return denoise_nl_means(
        noisy / WHITE, patch_size=5, patch_distance=6, h=0.6 * std / WHITE, sigma=std / WHITE,
        fast_mode=False,
    ) * WHITE  # fmt: skip


# ---- how near


def psnr(clean: Floats, reconstructed: Floats) -> float:
    """Peak signal-to-noise ratio in dB, of the peak 255."""
    error = float(np.mean((clean - reconstructed) ** 2))
    return math.inf if error == 0 else 10 * math.log10(WHITE**2 / error)


def ssim(clean: Floats, reconstructed: Floats) -> float | None:
    """Structural similarity by scikit-image; None without it."""
    if not HAS_SKIMAGE:
        return None
    return float(structural_similarity(clean, reconstructed, data_range=WHITE))
