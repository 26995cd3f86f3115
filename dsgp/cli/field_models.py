"""The models of ``dsgp smooth``: a `GridGP` as the options ask for it, or as a saved one is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from dsgp import kernels
from dsgp.cli import fields
from dsgp.cli.choices import GRID_KERNELS, Transform
from dsgp.errors import ParameterError, StorageError
from dsgp.estimators import GridGP
from dsgp.grid.axes import axes_of

_MATERN = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "matern72": kernels.Matern72,
}


def field_model_of(
    dataset: xr.Dataset, da: xr.DataArray, options: Mapping[str, Any], saved_model: Any | None
) -> GridGP:
    """Return the unfitted model that the options of ``smooth`` ask for.

    Parameters
    ----------
    dataset : Dataset
        Has the variables that options name.
    da : DataArray
        The field.
    options : mapping
        Options by their names as parameters of ``smooth``.
    saved_model : object or None
        What ``--model`` names: its kernels, noise and kind of mean are taken.

    Raises
    ------
    ParameterError
        If an option cannot be read, or the saved model brings what an option sets.
    StorageError
        If the saved model is of no field.
    """
    chosen = options["transform"]
    transform = None if chosen == Transform.none else str(chosen)
    if saved_model is not None:
        if transform is not None:
            raise ParameterError("--model has its own transform; leave out --transform")
        return _reused(dataset, da, options, saved_model)
    if options["fixed_noise"] and _number(options["noise_variance"] or "") is None:
        raise ParameterError("--fixed-noise keeps the number given by --noise-variance: give one")
    return GridGP(
        _kernels(options["kernel"] or [], da),
        _noise(dataset, da, options["noise_variance"] or "learn"),
        fixed_noise=options["fixed_noise"],
        mean=_mean(dataset, da, options["mean"] or "constant"),
        transform=transform,
        scales=options["scales"],
        random_state=options["random_state"],
    )


def _reused(
    dataset: xr.Dataset, da: xr.DataArray, options: Mapping[str, Any], saved_model: Any
) -> GridGP:
    """Make a model with the hyperparameters of a saved one."""
    path = options["model"]
    for name in ("kernel", "scales"):
        if options[name]:
            raise ParameterError(f"--model has its own kernels; leave out --{name}")
    if not isinstance(saved_model, GridGP):
        raise StorageError(
            f"{str(path)!r} holds a {type(saved_model).__name__}; expected a model of a field, as "
            "--save-model writes it"
        )
    noise = options["noise_variance"]
    if noise is None:
        noise = saved_model.noise_variance_
    if noise is None:
        raise ParameterError(
            f"{str(path)!r} has a noise variance per cell of the field that it was fitted to; give "
            "the noise variance of this field: --noise-variance NAME"
        )
    mean = _plain_mean(saved_model, path) if options["mean"] is None else options["mean"]
    terms = saved_model.kernels_
    return GridGP(
        terms if isinstance(terms, list) else [terms],
        _noise(dataset, da, noise) if isinstance(noise, str) else noise,
        mean=_mean(dataset, da, mean) if isinstance(mean, str) else mean,
        transform=saved_model.transform_,
        # Lengthscales are in the units of the model's axes, whatever the steps of this field are.
        units={
            axis.name: str(saved_model.units_[axis.name]).partition(" ")[0]
            for axis in axes_of(da)
            if axis.is_time and axis.name in saved_model.units_
        },
        learner=None,
        variance=saved_model.variance,
        random_state=options["random_state"],
    )


def _plain_mean(saved_model: GridGP, path: Path) -> Any:
    if isinstance(saved_model.mean, xr.DataArray):
        raise ParameterError(
            f"{str(path)!r} has a mean per cell of the field that it was fitted to; give the mean "
            "of this field: --mean NAME"
        )
    return saved_model.mean


def _kernels(specs: Sequence[str], da: xr.DataArray) -> dict[str, Any] | None:
    by_dim: dict[str, Any] = {}
    dims = list(map(str, da.dims))
    for spec in specs:
        dim, equals, text = spec.partition("=")
        if not equals:
            raise ParameterError(
                f"--kernel {spec!r}: expected DIM=KERNEL, for instance {dims[0]}=matern52"
            )
        if dim not in dims:
            raise ParameterError(
                f"--kernel {spec!r}: {dim!r} is not a dim of {da.name!r}, whose dims are "
                f"{', '.join(dims)}"
            )
        if dim in by_dim:
            raise ParameterError(f"--kernel names the dim {dim!r} twice")
        by_dim[dim] = _kernel(spec, text)
    return by_dim or None


def _kernel(spec: str, text: str) -> kernels.Kernel:
    name, colon, period = text.strip().lower().partition(":")
    if name == "periodic":
        number = _number(period)
        if number is None or not number > 0:
            raise ParameterError(
                f"--kernel {spec!r}: expected periodic:PERIOD with a positive number, in the units "
                "of the coordinate (360 of longitudes in degrees)"
            )
        return kernels.Periodic(number)
    if name in _MATERN and not colon:
        return _MATERN[name]()
    if name == "squared-exponential" and not colon:
        return kernels.SquaredExponential()
    raise ParameterError(f"--kernel {spec!r}: there is no kernel {text!r}; expected {GRID_KERNELS}")


def _noise(dataset: xr.Dataset, da: xr.DataArray, text: str) -> Any:
    if text == "learn":
        return None
    number = _number(text)
    return fields.noise_of(dataset, da, text) if number is None else number


def _mean(dataset: xr.Dataset, da: xr.DataArray, text: str) -> Any:
    number = _number(text)
    if number is not None:
        return number
    if text not in da.dims and text in dataset.variables:
        return fields.companion(dataset, text, "--mean")
    return text


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
