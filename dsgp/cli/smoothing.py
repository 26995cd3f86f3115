"""The work of ``dsgp smooth``: from a field in a file to its posterior mean and std."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import xarray as xr

from dsgp import kernels, memory, storage
from dsgp.accessor import with_observed
from dsgp.addresses import Place, is_remote, without_secrets
from dsgp.cli import fields
from dsgp.cli.choices import GRID_KERNELS, Transform
from dsgp.cli.messages import one_line
from dsgp.cli.reaching import Reach
from dsgp.cli.sources import expanded, opened
from dsgp.cli.writing import command_line, type_of, write
from dsgp.compute import connected
from dsgp.errors import MemoryLimitError, ParameterError, StorageError
from dsgp.estimators import GridGP, load
from dsgp.grid.axes import axes_of
from dsgp.grid.domain import CHOICES
from dsgp.grid.outputs import Labels
from dsgp.places import require_apart
from dsgp.transforms import require_quantiles

_MATERN = {
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "matern72": kernels.Matern72,
}
# Bytes a cell of a complete field in memory, and of one with gaps.
_BYTES, _BYTES_WITH_GAPS = 64, 440


def smooth(
    context: typer.Context,
    data: Sequence[str],
    out: Path,
    *,
    variable: str | None,
    group: str | None,
    mask: str | None,
    domain: str,
    keep_observed: bool,
    include_noise: bool,
    quantile: Sequence[float] | None,
    save_model: Path | None,
    model: Path | None,
    memory_limit: str | None,
    scheduler: str | None,
    restart: bool,
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Smooth a field on a grid; `dsgp.cli.commands.smooth` describes the options."""
    if quantile and keep_observed:
        raise ParameterError(
            "--quantile is of the field, and --keep-observed gives observed values; leave one out"
        )
    require_quantiles(quantile)
    reach = Reach.of(storage_options, [*data, out, save_model, model])
    target = reach.place(out)
    target = target.absolute() if isinstance(target, Path) else target
    limit = None if memory_limit is None else fields.bytes_of(memory_limit)
    paths = expanded([reach.place(one) for one in data])
    require_apart(target, [*paths, model])
    fields.check_place(target, overwrite)
    where = without_secrets(str(out))
    saved = None if save_model is None else reach.place(save_model)
    if saved is not None:
        require_apart(saved, [*paths, model], "--save-model")
        if target == saved or (
            isinstance(target, Path)
            and isinstance(saved, Path)
            and target.resolve() == saved.resolve()
        ):
            raise ParameterError("--out and --save-model name the same place; choose another path")
        storage.check_writable(saved, overwrite)
    with opened(paths, group) as dataset:
        name = fields.chosen(dataset, variable, str(paths[0]))
        da = dataset[name]
        labels = Labels.of(name, command_line(context), include_noise)
        labels.require_free(dataset.coords, with_quantiles=bool(quantile))
        said = f"mean ({labels.mean}) and standard deviation ({labels.std})"
        said += f" and quantiles ({labels.quantiles})" if quantile else ""
        fitted = None if model is None else load(reach.place(model))
        estimator = _estimator(dataset, da, context.params, fitted)
        free = memory.available() if limit is None else limit
        needed = da.size * _BYTES
        if limit is not None and needed <= limit and bool(da.isnull().any()):
            needed = da.size * _BYTES_WITH_GAPS
        large = needed > free
        n_cells = None
        if not large:
            asked = _Asked(mask, domain, keep_observed, include_noise, quantile)
            # With gaps it may turn out to need more: then in pieces, too.
            with suppress(MemoryLimitError), fields.place_for(target, overwrite) as place:
                n_cells = _in_memory(estimator, dataset, da, asked, place, labels)
                if saved is not None:
                    estimator.save(saved, overwrite)
        if n_cells is not None:
            if scheduler is not None:
                one_line("Note", "the field fits into memory, so that --scheduler was not used")
            typer.echo(f"{estimator.summary()}\n\n{said} of {n_cells:,} cells saved in {where}")
            if save_model is not None:
                typer.echo(f"model saved in {without_secrets(str(save_model))}")
            return
        _require_simple(context, needed, target, paths)
    with connected(scheduler), _speaking_of_options(out):
        report = estimator.smooth_store(
            paths[0],
            name,
            target,
            memory=limit,
            include_noise=include_noise,
            domain=None if domain == "all" else domain,
            dtype=type_of(da),
            resume=not restart,
            overwrite=overwrite,
            labels=labels,
        )
    typer.echo(f"{estimator.summary()}\n\n{said} of {da.size:,} cells saved in {where}")
    typer.echo(
        f"in pieces: {report.n_run + report.n_resumed} tasks"
        + (f", {report.n_resumed} of them by an earlier run" if report.n_resumed else "")
        + f"; {report.seconds:.1f} s"
    )
    if report.tile_error is not None:
        typer.echo(
            "gaps were filled tile by tile; in one of them, twice the surroundings change the mean "
            f"by {report.tile_error['mean']:.2g} standard deviations"
        )


@contextmanager
def _speaking_of_options(out: Path) -> Iterator[None]:
    """Name options of the command where the library names arguments; say what an end leaves."""
    try:
        yield
    except KeyboardInterrupt:
        one_line("Interrupted", f"what is done is kept beside {out}; the same command goes on")
        raise
    except StorageError as error:
        raise StorageError(str(error).replace("(resume=False)", "(--restart)")) from error


# ---------------------------------------------------------------------- the model


def _estimator(
    dataset: xr.Dataset, da: xr.DataArray, options: dict[str, Any], fitted: Any | None
) -> GridGP:
    """Make the model that the options ask for."""
    given = {name: options[name] for name in ("kernel", "noise", "mean", "scales")}
    chosen = options["transform"]
    transform = None if chosen == Transform.none else str(chosen)
    if fitted is not None:
        if transform is not None:
            raise ParameterError("--model brings its transform; leave out --transform")
        return _reused(dataset, da, fitted, options["model"], given, options["random_state"])
    return GridGP(
        _kernels(given["kernel"] or [], da),
        _noise(dataset, da, given["noise"] or "learn"),
        mean=_mean(dataset, da, given["mean"] or "constant"),
        transform=transform,
        scales=given["scales"],
        random_state=options["random_state"],
    )


def _reused(
    dataset: xr.Dataset,
    da: xr.DataArray,
    fitted: Any,
    path: Path,
    given: dict[str, Any],
    seed: int,
) -> GridGP:
    """Make a model with the hyperparameters of a saved one."""
    for name in ("kernel", "scales"):
        if given[name]:
            raise ParameterError(f"--model brings the kernels; leave out --{name}")
    if not isinstance(fitted, GridGP):
        raise StorageError(
            f"{str(path)!r} holds a {type(fitted).__name__}; expected a model of a field, as "
            "--save-model writes it"
        )
    noise = fitted.noise_variance_ if given["noise"] is None else given["noise"]
    if noise is None:
        raise ParameterError(
            f"{str(path)!r} has a noise variance for each cell of its own field; give that of this "
            "one: --noise NAME"
        )
    mean = _plain_mean(fitted, path) if given["mean"] is None else given["mean"]
    terms = fitted.kernels_
    return GridGP(
        terms if isinstance(terms, list) else [terms],
        _noise(dataset, da, noise) if isinstance(noise, str) else noise,
        mean=_mean(dataset, da, mean) if isinstance(mean, str) else mean,
        transform=fitted.transform_,
        # Lengthscales are in the units of the model's axes, whatever the steps of this field are.
        units={
            axis.name: str(fitted.units_[axis.name]).partition(" ")[0]
            for axis in axes_of(da)
            if axis.is_time and axis.name in fitted.units_
        },
        learner=None,
        variance=fitted.variance,
        random_state=seed,
    )


def _plain_mean(fitted: GridGP, path: Path) -> Any:
    if isinstance(fitted.mean, xr.DataArray):
        raise ParameterError(
            f"{str(path)!r} has a mean for each cell of its own field; give that of this one: "
            "--mean NAME"
        )
    return fitted.mean


def _kernels(specs: Sequence[str], da: xr.DataArray) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    dims = list(map(str, da.dims))
    for spec in specs:
        dim, equals, text = spec.partition("=")
        if not equals:
            raise ParameterError(
                f"--kernel {spec!r}: expected DIM=KERNEL, for instance {dims[0]}=matern52"
            )
        if dim not in dims:
            raise ParameterError(
                f"--kernel {spec!r}: {dim!r} is no dim of {da.name!r}, whose dims are "
                f"{', '.join(dims)}"
            )
        if dim in found:
            raise ParameterError(f"--kernel names the dim {dim!r} twice")
        found[dim] = _kernel(spec, text)
    return found or None


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
        return text
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


# ---------------------------------------------------------------------- both ways


@dataclass(frozen=True)
class _Asked:
    """Options of what is used and what is given."""

    mask: str | None
    domain: str
    keep_observed: bool
    include_noise: bool
    quantiles: Sequence[float] | None


def _in_memory(
    estimator: GridGP,
    dataset: xr.Dataset,
    da: xr.DataArray,
    asked: _Asked,
    place: Path,
    labels: Labels,
) -> int:
    """Write the posterior, and return how many cells it has."""
    da = da.load()
    mask = None if asked.mask is None else fields.mask_of(dataset, asked.mask, "--mask")
    estimator.fit(da, mask=mask, domain=_domain(dataset, asked.domain))
    result = estimator.posterior(asked.include_noise, asked.quantiles)
    if asked.keep_observed:
        result = with_observed(result, estimator, asked.include_noise)
    write(result, dataset, str(da.name), place, labels)
    return int(result["mean"].count())


def _domain(dataset: xr.Dataset, text: str) -> Any:
    if text == "all":
        return None
    if text in CHOICES:
        return text
    return fields.mask_of(dataset, text, "--domain")


def _require_simple(
    context: typer.Context, needed: float, out: Place, paths: Sequence[Place]
) -> None:
    """Raise if a field that is worked through in pieces is asked for what needs it at once."""
    power, unit = (30, "GiB") if needed >= 2**30 else (20, "MiB")
    size = f"{needed / 2**power:.1f} {unit}"
    what = f"the field needs about {size} at once, and is worked through in pieces"
    if len(paths) > 1 or context.params["group"] is not None:
        raise ParameterError(
            f"{what}, for which it must be one store without --group: write it as one, "
            "xarray.open_mfdataset([...]).to_zarr('one.zarr'), or give more --memory"
        )
    if is_remote(out) or (is_remote(paths[0]) and fields.is_netcdf(paths[0])):
        raise ParameterError(
            f"{what}, for which IN must be a zarr store or on this machine, and --out on this "
            "machine: copy the file here or the result there, or give more --memory"
        )
    if fields.is_netcdf(out):
        raise ParameterError(f"{what}: --out must end in .zarr, or give more --memory")
    for name in ("mask", "keep_observed", "quantile", "save_model", "transform"):
        if context.params[name] not in (None, False, [], (), Transform.none):
            option = f"--{name.replace('_', '-')}"
            raise ParameterError(f"{what}, for which there is no {option}; give more --memory")
    if context.params["domain"] not in ("all", *CHOICES):
        choices = ", ".join(CHOICES)
        raise ParameterError(f"{what}: --domain can be {choices} or all; give more --memory")
