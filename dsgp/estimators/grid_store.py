"""``GridGP`` on fields that stay on disk, from store to store."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from dsgp.addresses import Place, place_of
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.estimators.grid_options import (
    TILES,
    check_options,
    require_given,
    sums_of,
    tile_size,
)
from dsgp.grid.axes import GridAxis, axes_of
from dsgp.grid.coded import report_blanks, report_codes
from dsgp.grid.constant import UnknownConstant
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.domain import hull_of, require_choice, say, several_steps, times_of
from dsgp.grid.eigen import Eigenbasis
from dsgp.grid.fit import Hyperparameters, below_step, learn_complete, starts, step_of
from dsgp.grid.fit_cells import Piece, learn_cells
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
from dsgp.grid.passes.regions import regions
from dsgp.grid.systems import GappySystem, complete_system
from dsgp.kernels import Stationary
from dsgp.rows.coded import Extremes
from dsgp.terms import Floats
from dsgp.transforms import Transform


@dataclass(frozen=True)
class _StoredParts:
    """A stored field, whether it counts as one with gaps, and what is learned from.

    ``inside`` are cells with a value at some time, ``tiles`` the parts, ``sums`` the covariances
    that are tried.
    """

    stored: StoredField
    gaps: bool
    inside: Any
    tiles: Sequence[tuple[Any, Floats]]
    sums: Any


@dataclass(frozen=True)
class _StoredModel:
    """Hyperparameters of a stored field, its mean, and the precision of that."""

    found: Hyperparameters
    mean: float
    precision: float | None


class OnDisk:
    """The part of ``GridGP`` that never holds a field; see there."""

    kernels: Any
    noise: Any
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
    _effects: tuple[tuple[Stationary, ...], ...]
    _set_hyperparameters: Any

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

        The hyperparameters are learnt from four blocks of neighbouring cells and one coarse grid,
        whose likelihoods add up. The posterior of a complete field then is exact, in a few passes
        over the store. With gaps it is computed tile by tile, each with a halo of neighbouring
        cells: an approximation, which ``tile_error`` of the report compares with twice the halo in
        one tile. Tasks run on the active distributed client, else on threads. Interrupted, the same
        call goes on where it was.

        Parameters
        ----------
        source : str, Path or UPath
            A zarr store, which may be at an address such as ``s3://bucket/a.zarr``; or a file that
            xarray opens.
        variable : str
        out : str or Path
            A zarr store to be, of ``mean`` and ``std``, on a disk that all workers see.
        memory : float, optional
            Bytes a task may take.
        include_noise : bool
        gaps : bool, optional
            Whether values may be missing. Default: whether some are.
        domain : "observed", "hull", "auto", optional
            For a field with gaps, as for ``fit``: cells without a value at any time (land) stay
            empty, or those beyond the convex hull of the others.
        dtype : {"float64", "float32"}
            Of the result.
        resume, overwrite : bool
        labels : Labels, optional
            Names of the variables instead of ``mean`` and ``std``, and what ``history`` tells.
        storage_options : mapping, optional
            Of a source at an address, for fsspec.

        Returns
        -------
        PassesReport
        """
        self._require_storable(domain)
        whole = StoredField(place_of(source, storage_options), variable)
        axes = _axes_of(whole, self.units)
        self.__dict__.pop("field_", None)
        self._effects = ()
        self.transform_: Transform | None = None
        self._axes = axes
        parts = self._parts(whole, axes, gaps)
        model = self._learn_store(parts, axes)
        self.units_ = {axis.name: axis.unit_label for axis in axes}
        self.solver_iterations_, self.residual_, self.converged_ = 0, 0.0, True
        self.log_marginal_likelihood_: float | None = None
        self.variance_error_: float | None = None
        options: dict[str, Any] = {
            "memory": memory,
            "include_noise": include_noise,
            "dtype": dtype,
            "resume": resume,
            "overwrite": overwrite,
            "labels": Labels(include_noise=include_noise) if labels is None else labels,
        }
        if parts.gaps:
            places = _domain(domain, parts.inside, axes)
            return self._tiles_to_store(parts.stored, model, axes, out, places, options)
        self.method_, self.variance_method_ = "kronecker", "exact"
        bases = [
            Eigenbasis.of(kernel.covariance(axis.points))
            for kernel, axis in zip(model.found.terms[0], axes, strict=True)
        ]
        return posterior_to_store(
            parts.stored,
            bases,
            model.found.noise,
            model.mean,
            out,
            constant_precision=model.precision,
            **options,
        )

    def _require_storable(self, domain: str | None) -> None:
        """Raise ``ParameterError`` for options that a field on disk does not have."""
        check_options(self)
        plain = isinstance(self.mean, Real) or self.mean in ("constant", "zero")
        if not plain or isinstance(self.noise, xr.DataArray):
            raise ParameterError(
                "a field on disk can have one noise variance, and a mean that is 'constant', "
                "'zero' or a number; fit other models in memory"
            )
        if self.transform is not None:
            raise ParameterError(
                f"transform={self.transform!r}: a field on disk is smoothed as it is; write its "
                "transform to a store (numpy.log of it) and smooth that, or fit a part of it in "
                "memory"
            )
        if domain is not None:
            require_choice(domain)

    def _parts(
        self, whole: StoredField, axes: tuple[GridAxis, ...], gaps: bool | None
    ) -> _StoredParts:
        """Look at a stored field: its gaps, and the parts that are learned from."""
        stored = replace(whole, flips=tuple(axis.descending for axis in axes), gaps=True)
        inside, self.n_observed_ = _seen(stored, axes)
        tiles = sample_tiles(stored, TILES, tile_size(stored.shape))
        if gaps is None:
            gaps = self.n_observed_ < math.prod(stored.shape)
        if gaps and all(bool(np.isnan(values).all()) for _, values in tiles):
            raise DataError(
                f"variable {whole.variable!r} has no value in any of the {len(tiles)} parts that "
                "would be learnt from; take a part of the field with more values"
            )
        sums = sums_of(self.kernels, self.scales, axes, self.learner)
        if not gaps and self.scales in (None, "auto"):
            sums = sums[:1]  # several scales have no common eigenbasis, and passes need one
        gaps = gaps or len(sums[-1]) > 1  # no common eigenbasis: tiles, too
        if gaps and self.variance not in ("auto", "local"):
            raise ParameterError(
                f"variance={self.variance!r}: tiles of a field on disk have local variances; "
                "leave it at 'auto', or fit the field in memory"
            )
        for axis in axes:
            if len(axis) > LONG and not gaps:
                raise ParameterError(
                    f"dim {axis.name!r} has {len(axis)} points, more than the {LONG} of which "
                    "passes over a store take an eigenbasis; fit the field in memory, where such "
                    "an axis is smoothed step by step, or tile by tile (gaps=True)"
                )
        return _StoredParts(replace(stored, gaps=gaps), gaps, inside, tiles, sums)

    def _learn_store(self, parts: _StoredParts, axes: tuple[GridAxis, ...]) -> _StoredModel:
        """Learn the hyperparameters and the constant of a stored field from its parts."""
        mean = self._mean_of_parts(parts.tiles)
        points = [axis.points for axis in axes]
        noise = None if isinstance(self.noise, str) else float(self.noise)
        found = self._learn_parts(parts.sums, parts.tiles, points, mean, noise, parts.gaps)
        self._warn_of_short(found, points)
        self._set_hyperparameters(found, found.noise)
        precision: float | None = None
        if self.mean == "constant":
            mean, precision = self._constant_of_parts(parts.tiles, points, mean, found, parts.gaps)
        self.mean_: float | xr.DataArray = mean
        return _StoredModel(found, mean, precision)

    def _tiles_to_store(
        self,
        stored: StoredField,
        model: _StoredModel,
        axes: tuple[GridAxis, ...],
        out: str | Place,
        places: Any,
        options: dict[str, Any],
    ) -> PassesReport:
        """Compute the posterior of a field with gaps tile by tile."""
        self.method_, self.variance_method_ = "tiles", "local"
        # A kernel sees distances only: an axis stored from its end is one of negated points.
        as_stored = tuple(-axis.points[::-1] if axis.descending else axis.points for axis in axes)
        tiles = Tiles(
            as_stored,
            model.found.terms,
            model.found.noise,
            halo_of(as_stored, model.found.terms),
            self.n_neighbours,
            self.tol,
            self.max_iter,
            self.random_state,
            model.precision,
        )
        report = gappy_posterior_to_store(stored, tiles, model.mean, out, domain=places, **options)
        assert report.tile_error is not None
        self.variance_error_ = report.tile_error["local"]
        self.residual_, self.converged_ = report.residual, report.residual == 0.0
        return report

    def _mean_of_parts(self, tiles: Sequence[tuple[Any, Floats]]) -> float:
        """Return the prior mean; a constant one is the average of the coarse grid."""
        if isinstance(self.mean, Real):
            return float(self.mean)
        if self.mean == "zero":
            return 0.0
        for _, values in tiles[::-1]:
            if not np.isnan(values).all():
                return float(np.nanmean(values))
        return 0.0

    def _constant_of_parts(
        self,
        tiles: Sequence[tuple[Any, Floats]],
        points: list[Floats],
        mean: float,
        found: Hyperparameters,
        gaps: bool,
    ) -> tuple[float, float | None]:
        """Estimate the constant by generalised least squares from the coarse grid.

        Returns it and its precision. What the whole field would say beyond that is a part of its
        variance.
        """
        with_values = [own for own in tiles if not np.isnan(own[1]).all()]
        if not with_values:
            return mean, None
        region, values = with_values[-1]
        axes = [own[part] for own, part in zip(points, region, strict=True)]
        seen = ~np.isnan(values)
        if gaps:
            system = GappySystem(
                SeparableSum(tuple(axes), found.terms),
                seen,
                found.noise,
                n_neighbours=self.n_neighbours,
                tol=self.tol,
                max_iter=self.max_iter,
                seed=self.random_state,
            )
            dual = system.solve(seen.astype(float))[0]
        else:
            dual = np.asarray(
                complete_system(axes, found.terms[0], found.noise).solve(np.ones(seen.shape))
            )
        constant = UnknownConstant.of(dual)
        residuals = np.where(seen, values - mean, 0.0)
        return mean + constant.estimate(residuals), constant.precision

    def _learn_parts(
        self,
        sums: Sequence[Sequence[Sequence[Stationary]]],
        tiles: Sequence[tuple[Any, Floats]],
        points: list[Floats],
        mean: float,
        noise: float | None,
        gaps: bool,
    ) -> Hyperparameters:
        if self.learner is None:
            return self._kept(sums[-1], points, noise)
        whole = len(tiles) == 1
        self.learnt_from_ = (
            "the whole field" if whole else f"{len(tiles)} parts of {tiles[0][1].size} cells"
        )
        parts = [
            ([own[part] for own, part in zip(points, region, strict=True)], values - mean)
            for region, values in tiles
        ]
        if not gaps:
            return learn_complete(
                sums[0][0], parts, points, noise, unknown_constant=self.mean == "constant"
            )
        pieces = [
            Piece(own, np.nan_to_num(values), ~np.isnan(values))
            for own, values in parts
            if not np.isnan(values).all()
        ]
        variance = float(np.nanvar(np.concatenate([values.ravel() for _, values in parts])))
        return learn_cells(
            [starts(terms, points, variance, noise) for terms in sums],
            pieces,
            points,
            n_neighbours=self.n_neighbours,
            seed=self.random_state,
            unknown_constant=self.mean == "constant",
            all_scales=isinstance(self.scales, (int, np.integer)),
        )

    def _warn_of_short(self, found: Hyperparameters, points: list[Floats]) -> None:
        """Warn of learnt lengthscales below the step of their axis."""
        if self.learner is None:
            return
        below = below_step(found, points)
        for d, axis in enumerate(self._axes):
            lengths = [found.terms[c][d].lengthscale for c in np.flatnonzero(below[:, d])]
            if lengths:
                listed = ", ".join(f"{length:.3g}" for length in lengths)
                warnings.warn(
                    f"dim {axis.name!r}: the learnt lengthscale {listed} is below the step of "
                    f"{step_of(points[d]):.3g} {axis.unit or ''}".rstrip()
                    + ": that part of the field is all but independent from step to step, and "
                    "between steps nothing is known of it; give a kernel with a fixed lengthscale, "
                    "or fewer scales, if that is not so",
                    DataWarning,
                    stacklevel=5,
                )

    def _kept(
        self, terms: Sequence[Sequence[Stationary]], points: list[Floats], noise: float | None
    ) -> Hyperparameters:
        require_given(terms, self._axes, noise)
        self.learnt_from_ = "nothing: given"
        return starts(terms, points, 1.0, noise)


def _seen(source: StoredField, axes: Sequence[GridAxis]) -> tuple[Any, int]:
    """Say which cells of a stored field have a value at any time, in its order; count values.

    Raises and warns where numbers stand for missing values, as ``Field.of`` does.
    """
    times = times_of(axes)
    inside = np.zeros([1 if d in times else n for d, n in enumerate(source.shape)], dtype=bool)
    count, blanks, extremes = 0, Counter[str](), Extremes()
    for region in regions(source.shape, source.piece()):
        values = source.read_stored(region, blanks)
        extremes.add(values)
        there = ~np.isnan(values)
        count += int(there.sum())
        own = tuple(slice(0, 1) if d in times else part for d, part in enumerate(region))
        inside[own] |= there.any(axis=times, keepdims=True) if times else there
    report_blanks(blanks, count, source.variable)
    report_codes(extremes, source.variable, is_chosen=False)
    return inside, count


def _axes_of(whole: StoredField, units: Any) -> tuple[GridAxis, ...]:
    """Axes of a stored field; an axis whose first point comes again at its end is refused."""
    with whole.open(decode_times=True, decode_timedelta=True, decode_coords=True) as opened:
        axes = axes_of(opened[whole.variable], units)
    for axis in axes:
        if axis.repeated:
            raise DataError(
                f"dim {axis.name!r} has its first point again at its end, a circle later; "
                "expected each once in a store: write it without, "
                f"ds.isel({axis.name}=slice({'1, None' if axis.descending else 'None, -1'}))"
            )
    return axes


def _domain(choice: str | None, ever: Any, axes: Sequence[GridAxis]) -> Any:
    """Return the cells to be given, in the order of the store; None: all."""
    observed = choice == "observed" or several_steps([len(axis) for axis in axes], axes)
    if choice is None or (choice == "observed" and not times_of(axes)):
        return None
    if choice == "hull" or not observed:
        turned = tuple(slice(None, None, -1 if axis.descending else None) for axis in axes)
        domain, observed = hull_of(ever[turned], axes)[turned], False
    else:
        domain = ever
    if choice == "auto":
        say(ever, domain, observed)
    return domain
