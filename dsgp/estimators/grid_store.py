"""``GridGP`` on fields that stay on disk, from store to store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from dsgp.addresses import Place, place_of
from dsgp.errors import DataError, ParameterError
from dsgp.estimators.grid_options import check_options, noise_start, sums_of
from dsgp.grid.axes import GridAxis
from dsgp.grid.constant import UnknownConstant
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.domain import require_choice
from dsgp.grid.eigen import Eigenbasis
from dsgp.grid.fit import Hyperparameters
from dsgp.grid.learning import TILES, GridLearner, Learned, tile_size, warn_of_short
from dsgp.grid.outputs import Labels
from dsgp.grid.passes import (
    PassesReport,
    StoredField,
    Tiles,
    gappy_posterior_to_store,
    halo_of,
    posterior_to_store,
    sample_tiles,
)
from dsgp.grid.passes.cells import axes_on_disk, cells_with_values, domain_on_disk
from dsgp.grid.systems import GappySystem, complete_system
from dsgp.terms import Floats
from dsgp.transforms import Transform


@dataclass(frozen=True)
class _Prior:
    """What a field on disk is conditioned on.

    Attributes
    ----------
    mean : float
    precision : float or None
        Of the mean, where that is a constant that was estimated.
    hyperparameters : Hyperparameters
    """

    mean: float
    precision: float | None
    hyperparameters: Hyperparameters


class OnDisk:
    """The part of ``GridGP`` that never holds a field; see there."""

    kernels: Any
    noise_variance: Any
    fixed_noise: bool
    mean: Any
    transform: str | Transform | None
    scales: int | str | None
    units: Any
    learner: str | None
    variance: str
    n_neighbours: int
    tol: float
    max_iter: int
    random_state: int
    _axes: tuple[GridAxis, ...]
    log_marginal_likelihood_: float | None
    variance_error_: float | None
    _show_hyperparameters: Any

    def smooth_store(
        self,
        source: str | Place,
        variable: str,
        out: str | Place,
        *,
        memory: float | None = None,
        include_noise: bool = False,
        gaps: bool | None = None,
        domain: str | None = None,
        dtype: str = "float64",
        resume: bool = True,
        overwrite: bool = False,
        labels: Labels | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> PassesReport:
        """Smooth a field from disk to disk, in tasks of bounded memory.

        The hyperparameters are learned from four blocks of neighbouring cells and one coarse grid,
        whose likelihoods add up. The posterior of a complete field is then exact, and computed in a
        few passes over the store. With gaps it is computed tile by tile, each with a halo of
        neighbouring cells: an approximation, which ``tile_error`` of the report compares with twice
        the halo in one tile. Tasks run on the active distributed client, else on threads. If it was
        interrupted, the same call resumes.

        Parameters
        ----------
        source : str, Path or UPath
            A zarr store, which may be at an address such as ``s3://bucket/a.zarr``; or a file that
            xarray opens.
        variable : str
        out : str or Path
            The zarr store to write, with ``mean`` and ``std``, on a disk that all workers can
            access.
        memory : float, optional
            Maximum memory of a task, in bytes.
        include_noise : bool
        gaps : bool, optional
            Whether values may be missing. By default the store is checked.
        domain : "observed", "hull", "auto", optional
            For a field with gaps, as for ``fit``: cells without a value at any time (land) stay
            empty, or those beyond the convex hull of the others.
        dtype : {"float64", "float32"}
            Type of the result.
        resume, overwrite : bool
        labels : Labels, optional
            Names of the variables instead of ``mean`` and ``std``, and the text of ``history``.
        storage_options : mapping, optional
            Options of fsspec for a source at an address.

        Returns
        -------
        PassesReport
        """
        check_options(self)
        _require_plain(self)
        if domain is not None:
            require_choice(domain)
        whole = StoredField(place_of(source, storage_options), variable)
        axes = axes_on_disk(whole, self.units)
        stored = replace(whole, flips=tuple(axis.descending for axis in axes), gaps=True)
        inside, n_observed = cells_with_values(stored, axes)
        parts = sample_tiles(stored, TILES, tile_size(stored.shape))
        gaps = n_observed < math.prod(stored.shape) if gaps is None else gaps
        if gaps and all(bool(np.isnan(values).all()) for _, values in parts):
            raise DataError(
                f"variable {variable!r} has no value in any of the {len(parts)} parts that would "
                "be learned from; select a part of the field with more values"
            )
        sums, gaps = _sums_on_disk(self, axes, gaps)
        if gaps and self.variance not in ("auto", "local"):
            raise ParameterError(
                f"variance={self.variance!r}: tiles of a field on disk have local variances; "
                "leave it at 'auto', or fit the field in memory"
            )
        stored = replace(stored, gaps=gaps)
        mean = _mean_of_parts(self, parts)
        learned = _learned(self, parts, axes, mean, sums, gaps)
        if self.learner is not None:
            warn_of_short(learned.hyperparameters, axes)
        precision: float | None = None
        if self.mean == "constant":
            mean, precision = _constant_of_parts(
                self, parts, axes, mean, learned.hyperparameters, gaps
            )
        prior = _Prior(mean, precision, learned.hyperparameters)
        self._hold_no_field(axes, prior, learned.source, n_observed)
        options: dict[str, Any] = {
            "memory": memory,
            "include_noise": include_noise,
            "dtype": dtype,
            "resume": resume,
            "overwrite": overwrite,
            "labels": Labels(include_noise=include_noise) if labels is None else labels,
        }
        if not gaps:
            self.method_, self.variance_method_ = "kronecker", "exact"
            return _write_exactly(stored, prior, axes, out, options)
        self.method_, self.variance_method_ = "tiles", "local"
        options["domain"] = domain_on_disk(domain, inside, axes)
        report = _write_by_tiles(self, stored, prior, axes, out, options)
        assert report.tile_error is not None
        self.variance_error_ = report.tile_error["local"]
        self.residual_, self.converged_ = report.residual, report.residual == 0.0
        return report

    def _hold_no_field(
        self, axes: tuple[GridAxis, ...], prior: _Prior, learnt_from: str, n_observed: int
    ) -> None:
        """Show the model of a field on disk, in place of one in memory."""
        for name in ("field_", "_model"):
            self.__dict__.pop(name, None)
        self.transform_: Transform | None = None
        self._axes = axes
        self.n_observed_, self.learnt_from_ = n_observed, learnt_from
        self._show_hyperparameters(prior.hyperparameters.terms, prior.hyperparameters.noise)
        self.mean_: float | xr.DataArray = prior.mean
        self.units_ = {axis.name: axis.unit_label for axis in axes}
        self.solver_iterations_, self.residual_, self.converged_ = 0, 0.0, True
        self.log_marginal_likelihood_ = self.variance_error_ = None


def _require_plain(options: Any) -> None:
    """Raise ``ParameterError`` if a ``GridGP`` has options that need the field in memory."""
    plain = isinstance(options.mean, Real) or options.mean in ("constant", "zero")
    if not plain or isinstance(options.noise_variance, xr.DataArray):
        raise ParameterError(
            "a field on disk can have one noise variance, and a mean that is 'constant', "
            "'zero' or a number; fit other models in memory"
        )
    if options.transform is not None:
        raise ParameterError(
            f"transform={options.transform!r}: a field on disk is smoothed as it is; write its "
            "transform to a store (numpy.log of it) and smooth that, or fit a part of it in "
            "memory"
        )


# ---------------------------------------------------------------------- what is learned


def _sums_on_disk(
    options: Any, axes: Sequence[GridAxis], gaps: bool
) -> tuple[list[list[list[Any]]], bool]:
    """Return the sums of kernels to choose among, and whether the field goes tile by tile."""
    sums = sums_of(options.kernels, options.scales, axes, options.learner)
    if not gaps and options.scales in (None, "auto"):
        sums = sums[:1]  # several scales have no common eigenbasis, and passes need one
    gaps = gaps or len(sums[-1]) > 1  # no common eigenbasis: tiles, too
    for axis in axes:
        if len(axis) > LONG and not gaps:
            raise ParameterError(
                f"dim {axis.name!r} has {len(axis)} points, more than the {LONG} for which passes "
                "over a store can use an eigenbasis; fit the field in memory, where such an axis "
                "is smoothed step by step, or tile by tile (gaps=True)"
            )
    return sums, gaps


def _learned(
    options: Any,
    parts: Sequence[tuple[Any, Floats]],
    axes: Sequence[GridAxis],
    mean: float,
    sums: list[list[list[Any]]],
    gaps: bool,
) -> Learned:
    learner = GridLearner(
        options.learner is None,
        options.scales,
        options.n_neighbours,
        options.random_state,
        options.mean == "constant",
    )
    return learner.of_parts(parts, axes, mean, sums, noise_start(options), gaps)


def _mean_of_parts(options: Any, parts: Sequence[tuple[Any, Floats]]) -> float:
    """Return the prior mean; a constant one is the average of the coarse grid."""
    if isinstance(options.mean, Real):
        return float(options.mean)
    if options.mean == "zero":
        return 0.0
    for _, values in parts[::-1]:
        if not np.isnan(values).all():
            return float(np.nanmean(values))
    return 0.0


def _constant_of_parts(
    options: Any,
    parts: Sequence[tuple[Any, Floats]],
    axes: Sequence[GridAxis],
    mean: float,
    hyperparameters: Hyperparameters,
    gaps: bool,
) -> tuple[float, float | None]:
    """Estimate the constant by generalised least squares from the coarse grid.

    Returns it and its precision. What the whole field would say beyond that is a part of its
    variance.
    """
    with_values = [part for part in parts if not np.isnan(part[1]).all()]
    if not with_values:
        return mean, None
    region, values = with_values[-1]
    points = [axis.points[part] for axis, part in zip(axes, region, strict=True)]
    seen = ~np.isnan(values)
    if gaps:
        system = GappySystem(
            SeparableSum(tuple(points), hyperparameters.terms),
            seen,
            hyperparameters.noise,
            n_neighbours=options.n_neighbours,
            tol=options.tol,
            max_iter=options.max_iter,
            seed=options.random_state,
        )
        dual = system.solve(seen.astype(float))[0]
    else:
        dual = np.asarray(
            complete_system(points, hyperparameters.terms[0], hyperparameters.noise).solve(
                np.ones(seen.shape)
            )
        )
    constant = UnknownConstant.of(dual)
    residuals = np.where(seen, values - mean, 0.0)
    return mean + constant.estimate(residuals), constant.precision


# ---------------------------------------------------------------------- what is written


def _write_exactly(
    stored: StoredField,
    prior: _Prior,
    axes: Sequence[GridAxis],
    out: str | Place,
    options: Mapping[str, Any],
) -> PassesReport:
    """Write the posterior of a complete field, in passes over the store."""
    bases = [
        Eigenbasis.of(kernel.covariance(axis.points))
        for kernel, axis in zip(prior.hyperparameters.terms[0], axes, strict=True)
    ]
    return posterior_to_store(
        stored,
        bases,
        prior.hyperparameters.noise,
        prior.mean,
        out,
        constant_precision=prior.precision,
        **options,
    )


def _write_by_tiles(
    estimator: Any,
    stored: StoredField,
    prior: _Prior,
    axes: Sequence[GridAxis],
    out: str | Place,
    options: Mapping[str, Any],
) -> PassesReport:
    """Write the posterior of a field with gaps, tile by tile."""
    # A kernel sees distances only: an axis stored from its end is one of negated points.
    as_stored = tuple(-axis.points[::-1] if axis.descending else axis.points for axis in axes)
    terms = prior.hyperparameters.terms
    tiles = Tiles(
        as_stored,
        terms,
        prior.hyperparameters.noise,
        halo_of(as_stored, terms),
        estimator.n_neighbours,
        estimator.tol,
        estimator.max_iter,
        estimator.random_state,
        prior.precision,
    )
    return gappy_posterior_to_store(stored, tiles, prior.mean, out, **options)
