"""The work of ``dsgp smooth``: from a field in a file to its posterior mean and std."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import xarray as xr

from dsgp import memory, storage
from dsgp.accessor import with_observed
from dsgp.addresses import Place, is_remote, without_secrets
from dsgp.cli import fields
from dsgp.cli.choices import Transform
from dsgp.cli.clusters import on_cluster
from dsgp.cli.field_models import field_model_of
from dsgp.cli.messages import one_line
from dsgp.cli.pictures import require_replaceable
from dsgp.cli.reaching import Reach, require_model_path
from dsgp.cli.reports import writing_of_pages
from dsgp.cli.sources import expanded, opened
from dsgp.cli.writing import command_line, type_of, write
from dsgp.errors import DataError, MemoryLimitError, ParameterError, StorageError
from dsgp.estimators import GridGP, load
from dsgp.grid.domain import CHOICES
from dsgp.grid.outputs import Labels
from dsgp.grid.passes import PassesReport
from dsgp.places import require_apart
from dsgp.transforms import require_quantiles

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
    report: Path | None,
    model: Path | None,
    memory_limit: str | None,
    scheduler: str | None,
    performance_report: Path | None,
    restart: bool,
    storage_options: Sequence[str] | None,
    overwrite: bool,
) -> None:
    """Smooth a field on a grid; `dsgp.cli.commands.smooth` describes the options."""
    if quantile and keep_observed:
        raise ParameterError(
            "--quantile is for the field, and --keep-observed writes observed values; leave one out"
        )
    require_quantiles(quantile)
    reach = Reach.of(storage_options, [*data, out, save_model, model])
    limit = None if memory_limit is None else fields.bytes_of(memory_limit)
    places = _places(reach, data, out, save_model, model, overwrite)
    if report is not None:
        _require_page(report, [*places.data, model, out, save_model], overwrite)
    wanted = _Wanted(mask, domain, keep_observed, include_noise, quantile)
    with opened(places.data, group) as dataset:
        name = fields.chosen(dataset, variable, str(places.data[0]))
        da = dataset[name]
        labels = Labels.of(name, command_line(context), include_noise)
        labels.require_free(dataset.coords, with_quantiles=bool(quantile))
        saved_model = None if model is None else load(reach.place(model))
        estimator = field_model_of(dataset, da, context.params, saved_model)
        available = memory.available() if limit is None else limit
        needed = _bytes_needed(da, limit)
        whole = None
        if needed <= available:
            whole = _in_memory(estimator, dataset, da, wanted, labels, places, overwrite)
        if whole is None:
            _require_simple(context, needed, places)
    if whole is not None:
        if scheduler is not None:
            one_line("Note", "the field fits into memory, so that --scheduler was not used")
        _report_saved(estimator, labels, wanted, int(whole["mean"].count()), out)
        if save_model is not None:
            typer.echo(f"model saved in {without_secrets(str(save_model))}")
        if report is not None:
            plain = not (include_noise or keep_observed)
            _write_page(estimator, report, posterior=whole if plain else None)
        return
    with on_cluster(scheduler, performance_report), _speaking_of_options(out):
        done = estimator.smooth_store(
            places.data[0],
            name,
            places.out,
            memory=limit,
            include_noise=include_noise,
            domain=None if domain == "all" else domain,
            dtype=type_of(da),
            resume=not restart,
            overwrite=overwrite,
            labels=labels,
        )
    _report_saved(estimator, labels, wanted, da.size, out)
    _report_pieces(done)
    if report is not None:
        with opened(places.data) as dataset, opened([places.out]) as result:
            _write_page(estimator, report, posterior=result, observed=dataset[name])


@dataclass(frozen=True)
class _Places:
    """Where the field is read, and where the result and the model are written."""

    data: list[Place]
    out: Place
    save_model: Place | None


@dataclass(frozen=True)
class _Wanted:
    """Options of the cells that are used, and of what is written."""

    mask: str | None
    domain: str
    keep_observed: bool
    include_noise: bool
    quantiles: Sequence[float] | None


def _places(
    reach: Reach,
    data: Sequence[str],
    out: Path,
    save_model: Path | None,
    model: Path | None,
    overwrite: bool,
) -> _Places:
    """Return the places that the options name; raise if one cannot be written, or two are one."""
    result = reach.place(out)
    result = result.absolute() if isinstance(result, Path) else result
    paths = expanded([reach.place(one) for one in data])
    require_apart(result, [*paths, model])
    fields.check_place(result, overwrite)
    if save_model is None:
        return _Places(paths, result, None)
    require_model_path(save_model, "--save-model")
    saved = reach.place(save_model)
    require_apart(saved, [*paths, model], "--save-model")
    if result == saved or (
        isinstance(result, Path) and isinstance(saved, Path) and result.resolve() == saved.resolve()
    ):
        raise ParameterError("--out and --save-model name the same place; choose another path")
    storage.check_writable(saved, overwrite)
    return _Places(paths, result, saved)


def _bytes_needed(da: xr.DataArray, limit: float | None) -> float:
    """Estimate the memory that smoothing the field at once takes."""
    needed = da.size * _BYTES
    if limit is not None and needed <= limit and bool(da.isnull().any()):
        needed = da.size * _BYTES_WITH_GAPS
    return needed


@contextmanager
def _speaking_of_options(out: Path) -> Iterator[None]:
    """Name options of the command where the library names arguments; say what an end leaves."""
    try:
        yield
    except KeyboardInterrupt:
        one_line("Interrupted", f"finished work is kept beside {out}; the same command resumes")
        raise
    except (DataError, StorageError) as error:
        raise type(error)(str(error).replace("(resume=False)", "(--restart)")) from error


def _in_memory(
    estimator: GridGP,
    dataset: xr.Dataset,
    da: xr.DataArray,
    wanted: _Wanted,
    labels: Labels,
    places: _Places,
    overwrite: bool,
) -> xr.Dataset | None:
    """Write the posterior and save the model; return what was written.

    With gaps it may turn out to need more memory: then None, and the field goes in pieces, too.
    """
    with suppress(MemoryLimitError), fields.place_for(places.out, overwrite) as place:
        da = fields.loaded(da, str(places.data[0]))
        mask = None if wanted.mask is None else fields.mask_of(dataset, wanted.mask, "--mask")
        estimator.fit(da, mask=mask, domain=_domain(dataset, wanted.domain))
        result = estimator.posterior(wanted.include_noise, wanted.quantiles)
        if wanted.keep_observed:
            result = with_observed(result, estimator, wanted.include_noise)
        write(result, dataset, str(da.name), place, labels)
        if places.save_model is not None:
            estimator.save(places.save_model, overwrite)
        return result
    return None


def _domain(dataset: xr.Dataset, text: str) -> Any:
    if text == "all":
        return None
    if text in CHOICES:
        return text
    return fields.mask_of(dataset, text, "--domain")


def _require_simple(context: typer.Context, needed: float, places: _Places) -> None:
    """Raise if an option for a field that is processed in pieces needs the whole field."""
    power, unit = (30, "GiB") if needed >= 2**30 else (20, "MiB")
    size = f"{needed / 2**power:.1f} {unit}"
    what = f"the field needs about {size} at once, and is processed in pieces"
    if len(places.data) > 1 or context.params["group"] is not None:
        raise ParameterError(
            f"{what}, for which it must be one store without --group: write it as one, "
            "xarray.open_mfdataset([...]).to_zarr('one.zarr'), or give more --memory"
        )
    first = places.data[0]
    if is_remote(places.out) or (is_remote(first) and fields.is_netcdf(first)):
        raise ParameterError(
            f"{what}, for which IN must be a zarr store or on this machine, and --out on this "
            "machine: copy the file here or the result there, or give more --memory"
        )
    if fields.is_netcdf(places.out):
        raise ParameterError(f"{what}: --out must end in .zarr, or give more --memory")
    for name in ("mask", "keep_observed", "quantile", "save_model", "transform"):
        if context.params[name] not in (None, False, [], (), Transform.none):
            option = f"--{name.replace('_', '-')}"
            raise ParameterError(f"{what}, for which there is no {option}; give more --memory")
    if context.params["include_noise"] and context.params["report"] is not None:
        raise ParameterError(
            f"{what}: --report needs the std of the field, without --include-noise; leave one out, "
            "or give more --memory"
        )
    if context.params["domain"] not in ("all", *CHOICES):
        choices = ", ".join(CHOICES)
        raise ParameterError(f"{what}: --domain can be {choices} or all; give more --memory")


# ---------------------------------------------------------------------- reporting


def _require_page(path: Path, others: Sequence[Any], overwrite: bool) -> None:
    """Raise, before anything is computed, if the page of ``--report`` cannot be written."""
    writing = writing_of_pages()
    writing.require_ending(path)
    require_apart(path, others, "--report")
    require_replaceable(path, writing.MADE_BY, overwrite)


def _write_page(estimator: GridGP, path: Path, **field: Any) -> None:
    """Write the page about a model, which may not hold its field."""
    writing_of_pages().write_grid_report(estimator, path, **field)
    typer.echo(f"report saved in {path}")


def _report_saved(
    estimator: GridGP, labels: Labels, wanted: _Wanted, n_cells: int, out: Path
) -> None:
    """Print what the model is, and what of it is saved where."""
    variables = f"mean ({labels.mean}) and standard deviation ({labels.std})"
    variables += f" and quantiles ({labels.quantiles})" if wanted.quantiles else ""
    typer.echo(
        f"{estimator.summary()}\n\n{variables} of {n_cells:,} cells saved in "
        f"{without_secrets(str(out))}"
    )


def _report_pieces(report: PassesReport) -> None:
    """Print how many tasks there were, and how much the edges of tiles matter."""
    typer.echo(
        f"in pieces: {report.n_run + report.n_resumed} tasks"
        + (f", {report.n_resumed} of them by an earlier run" if report.n_resumed else "")
        + f"; {report.seconds:.1f} s"
    )
    if report.tile_error is not None:
        typer.echo(
            "gaps were filled tile by tile; in a tile that was checked, doubling its surroundings "
            f"changes the mean by {report.tile_error['mean']:.2g} standard deviations"
        )
