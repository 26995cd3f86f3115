"""Gaussian processes on grids of xarray: the estimator. Its algebra is in ``dsgp.grid``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dsgp import kernels as kernel_module
from dsgp import memory, storage
from dsgp.errors import DataError, DataWarning, ParameterError, StorageError
from dsgp.estimators.grid_options import (
    TILES,
    Kernels,
    check_options,
    given_noise,
    require_seed,
    sums_of,
    tile_size,
)
from dsgp.estimators.grid_store import OnDisk
from dsgp.estimators.grid_summary import summary_of
from dsgp.estimators.grid_transform import (
    in_units,
    mean_seen,
    tell_skewed_field,
    transformed,
)
from dsgp.estimators.saved import Saved
from dsgp.grid.axes import GridAxis
from dsgp.grid.coded import has_gaps, read_values
from dsgp.grid.constant import UnknownConstant
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.domain import domain_of, require_choice
from dsgp.grid.effects import effects_of
from dsgp.grid.field import Field
from dsgp.grid.fit import DENSE, Hyperparameters, learn_complete, starts
from dsgp.grid.fit_cells import Piece, learn_cells
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.means import Mean
from dsgp.grid.metadata import together
from dsgp.grid.passes import tile_regions
from dsgp.grid.points import amplitude
from dsgp.grid.scales import other_scales_show
from dsgp.grid.stored import pack, unpack
from dsgp.grid.systems import GappySystem, complete_system, require_few
from dsgp.grid.targets import Targets
from dsgp.kernels import Stationary
from dsgp.terms import Floats
from dsgp.transforms import Transform, from_settings, require_quantiles

# Beyond so many cells the hyperparameters of a complete field are learnt from parts of it.
LEARN_CELLS = 2**22
# Complete fields of more cells have one scale: sums of several are solved iteratively.
LARGEST_SUM = 2**20
_PLAIN = (
    "noise_variance_",
    "log_marginal_likelihood_",
    "units_",
    "method_",
    "variance_method_",
    "variance_error_",
    "solver_iterations_",
    "residual_",
    "converged_",
    "n_observed_",
    "learnt_from_",
)


class GridGP(Saved, OnDisk, BaseEstimator):
    r"""Gaussian process regression of a field on a grid of any number of dims.

    .. math:: y = \mu + f + \varepsilon, \quad
              f \sim GP\Big(0, \sum_c \prod_d k_{cd}(x_d, x'_d)\Big), \quad
              \varepsilon \sim N(0, \sigma^2)

    Complete fields with one separable kernel are exact in O(N Σ G_d) by Kronecker products
    (Section ``sec:kron`` of the paper), and with an axis of more than 4096 points by state-space
    smoothing along it. Gaps, sums of separable kernels and noise that differs between cells are
    solved by conjugate gradients: the mean is exact to ``tol``, variances are as ``variance``
    says.

    Parameters
    ----------
    kernels : mapping of dim to Stationary, or sequence of such mappings, optional
        One separable kernel, or a sum of several. Dims not named get Matérn 3/2. Parameters that
        a kernel lacks are learnt from a start of our own, given ones are starts, those it names
        in ``fixed`` are kept. Lengthscales are in the unit of the coordinate, for times in the
        unit that ``units_`` tells.
    noise : "learn", float or DataArray
        Noise variance σ², in squared units of the field: learnt, given for all cells, or given
        for each cell.
    mean : "constant", "zero", float, DataArray, or text
        Prior mean. "constant" is one unknown number; "time" (any dim) an unknown mean of each cell
        over that dim; "time.month" that and an unknown climatology of each cell, which shrinks
        to nothing where the data do not show one. Its variance and lengthscales are learnt, and it
        repeats smoothly with the year (parts of a day and days of the week alike). Averages are
        taken instead on grids of more than 2¹⁸ cells, for "time.year" and "time.day", and with
        ``learner=None``; what they add to ``std`` then counts neighbouring cells as independent.
        Numbers and DataArrays are known.
    transform : {None, "log", "yeo-johnson"} or Transform
        A function of the field that is modelled instead of it: the logarithm of a positive field,
        or the power transform of Yeo and Johnson, whose power is learnt. Mean, deviations,
        quantiles and draws are in the field's unit; kernels, noise variances, averages of ``mean``
        and "zero" are on the scale of the transform (with "log" the noise is relative), a mean
        that is given as numbers is in the field's unit. One of ``dsgp.transforms`` with its
        parameters is taken as it is.
    scales : "auto" or int
        Separable kernels in the sum, where ``kernels`` is not a sequence: each has its own
        lengthscales. "auto": one where lengthscales are given; else up to three, as many as the
        likelihood says, whether cells are missing or not. A complete field of more than 2²⁰ cells
        has one, as sums take conjugate gradients.
    units : mapping of dim to {"days", "hours", "minutes", "seconds"}, optional
        For dims of times. Default: by the size of their steps.
    learner : "marginal" or None
        None keeps the given hyperparameters.
    variance : {"auto", "exact", "local", "calibrated", "draws"}
        For fields with gaps. "exact": dense algebra, up to 1500 observed cells. "local": given the
        ``n_neighbours`` most telling observed cells around each target, an upper bound;
        ``variance_error_`` compares it with exact values at a few cells. "draws": from ``n_draws``
        posterior draws, each a solve. "calibrated": local ones times what draws show on average
        over the cells around. "auto": exact if that is cheap, else local, or calibrated
        where local ones exceed the exact ones by more than 15 %. Complete fields are always
        exact.
    n_neighbours, n_draws : int
    tol : float
        Of conjugate gradients, relative to the norm of the data.
    max_iter : int
        Of conjugate gradients.
    random_state : int
        Of the order of elimination, the sample learnt from, and draws.

    Attributes
    ----------
    kernels_ : dict of dim to Stationary, or list of such dicts
        The amplitude is in the first dim's kernel, the others have variance 1.
    noise_variance_ : float or None
        None where it is given for each cell.
    mean_ : float or DataArray
        The prior mean; of a transformed field its prior median.
    transform_ : Transform or None
        With its learnt parameters.
    log_marginal_likelihood_ : float
        Of the field, transformed or not.
        Vecchia's approximation where ``method_`` is "conjugate gradients".
    units_ : dict of dim to str
        What lengthscales are in, e.g. "days since 1860-06-01 (360_day)".
    method_ : {"kronecker", "fibres", "dense", "conjugate gradients", "tiles"}
        "tiles" after ``smooth_store`` of a field with gaps.
    variance_method_ : {"exact", "local", "calibrated", "draws"}
    variance_error_ : float or None
        "local": mean relative excess of the standard deviation over the exact one at six
        cells. "draws": its relative Monte Carlo error, which that of "calibrated" is below. None:
        exact.
    solver_iterations_, residual_, converged_
        Of conjugate gradients; 0, 0.0 and True elsewhere.
    n_observed_ : int
    learnt_from_ : str
        What the hyperparameters were learnt from.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from dsgp import GridGP
    >>> x = np.linspace(0, 1, 30)
    >>> truth = np.sin(6 * x)[:, None] * np.cos(4 * x)
    >>> noise = 0.1 * np.random.default_rng(0).standard_normal(truth.shape)
    >>> da = xr.DataArray(truth + noise, {"lat": x, "lon": x})
    >>> posterior = GridGP().fit(da).posterior()
    >>> float(abs(posterior["mean"] - truth).mean()) < 0.03
    True
    >>> sorted(posterior)
    ['mean', 'std']
    """

    def __init__(
        self,
        kernels: Kernels | Sequence[Kernels] | None = None,
        noise: Any = "learn",
        *,
        mean: Any = "constant",
        transform: str | Transform | None = None,
        scales: int | str | None = "auto",
        units: Mapping[str, str] | None = None,
        learner: str | None = "marginal",
        variance: str = "auto",
        n_neighbours: int = 30,
        n_draws: int = 24,
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: int = 0,
    ) -> None:
        self.kernels = kernels
        self.noise = noise
        self.mean = mean
        self.transform = transform
        self.scales = scales
        self.units = units
        self.learner = learner
        self.variance = variance
        self.n_neighbours = n_neighbours
        self.n_draws = n_draws
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    _axes: tuple[GridAxis, ...]
    # Terms of the covariance that are a climatology; the first ones.
    _effects: tuple[tuple[Stationary, ...], ...] = ()

    # ------------------------------------------------------------------ fit

    def fit(self, da: xr.DataArray, mask: Any = None, domain: Any = None) -> Self:
        """Learn the hyperparameters of a field and condition on it.

        Parameters
        ----------
        da : DataArray
            NaN marks missing cells. Coordinates may run either way and be of any spacing.
        mask : DataArray or array_like of bool, optional
            True where a cell's value is used.
        domain : DataArray or array_like of bool, "observed", "hull", "auto", optional
            False where the output stays empty. "observed": cells without a value at any time
            (land) stay empty; without a dim of times nothing is left out. "hull": cells beyond
            the convex hull of those that have a value at some time stay empty. "auto": "observed"
            with several steps of time, else "hull", with a ``DataWarning`` of how many cells are
            empty or invented.

        Raises
        ------
        DataError
            If the field, its coordinates, the mask, the domain or the noise cannot be used.
        ParameterError
            If an option is out of its range or names a dim that does not exist.
        MemoryLimitError
            If the field does not fit; ``smooth_store`` takes larger ones.
        """
        before = dict(self.__dict__)
        try:
            return self._fit(da, mask, domain)
        except BaseException:
            # The model stays what it was, in all its parts.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, da: xr.DataArray, mask: Any, domain: Any) -> Self:
        check_options(self)
        if not isinstance(da, xr.DataArray):
            raise DataError(f"GridGP takes a DataArray, got {type(da).__name__}; xr.DataArray(...)")
        memory.require(
            f"a field of {da.size} cells",
            8.0 * da.size * (8 if self._surely_complete(da) else 10 + 1.5 * self.n_neighbours),
            "take a part of it, or smooth it from disk to disk: GridGP.smooth_store, dsgp smooth",
        )
        if isinstance(domain, str):
            require_choice(domain)
        region = None if isinstance(domain, str) else domain
        field = Field.of(da, mask=mask, domain=region, units=self.units)
        variances = given_noise(self.noise, field)
        if self.variance == "exact" and field.observed is not None:
            require_few(field.n_observed)
        field, self.transform_, log_jacobian = transformed(field, self.transform)
        self.field_ = field
        self._mean = Mean.of(mean_seen(self.mean, self.transform_), field)
        self._constant_is_unknown = isinstance(self.mean, str) and self.mean == "constant"
        points = [axis.points for axis in field.axes]
        per_cell = isinstance(variances, np.ndarray)
        complete = field.observed is None and not per_cell
        self._axes = field.axes
        sums = sums_of(self.kernels, self.scales, field.axes, self.learner)
        self._effects = self._effects_of_mean(sums[0][0], variances)
        if isinstance(domain, str):  # after all that may be refused: it may warn
            usable = None if mask is None else field.align_bool(mask, "mask")
            known = None if mask is None else field.align(~np.isnan(read_values(da)), "the field")
            self.field_ = replace(field, domain=domain_of(domain, field, usable, known))
        y = self._residuals()
        if self.learner is not None and not np.ptp(field.values[self._observed()]):
            warnings.warn(
                f"all {field.n_observed} observed cells have one value: nothing can be learnt of "
                "lengthscales and noise, and std says nothing; give kernels, noise= and "
                "learner=None",
                DataWarning,
                stacklevel=3,
            )
        asked = isinstance(self.scales, (int, np.integer)) and self.scales > 1
        if complete and not asked and not self._effects and len(sums[0]) == 1:
            assert not isinstance(variances, np.ndarray)
            found = self._learn_complete(sums[0][0], points, y, variances)
            if len(sums) > 1 and self._may_be_a_sum(found, points, y):
                found = self._learn_sum(sums, found, points, y, variances)
        else:
            found = self._learn_gappy(sums, points, y, variances)
        of_field = replace(found, terms=found.terms[len(self._effects) :])
        self._warn_of_short(of_field, points)
        self._set_hyperparameters(found, None if per_cell else found.noise)
        self._variances = variances if isinstance(variances, np.ndarray) else None
        self.units_ = {axis.name: axis.unit_label for axis in field.axes}
        self.n_observed_ = field.n_observed
        self._condition(y)
        if self.log_marginal_likelihood_ is not None:
            self.log_marginal_likelihood_ += log_jacobian
        if self.transform_ is None:
            tell_skewed_field(self._left(y), field)
        return self

    def _left(self, y: Floats) -> Floats:
        """What the posterior mean leaves of the residuals of the prior mean: noise times dual."""
        system = self._system
        dual = self._dual if isinstance(system, GappySystem) else system.solve(y)
        return np.asarray(self._noise_at_cells() * dual)

    def _condition(self, y: Floats) -> None:
        """Make the system, estimate the constant, and say how well it is solved."""
        self.solver_iterations_, self.residual_, self.converged_ = 0, 0.0, True
        self.__dict__.pop("variance_method_", None)
        system = self._system
        shift = 0.0 if self._constant is None else self._constant.estimate(y)
        if shift:
            self._mean = self._mean.shifted(shift)
            self.mean_ = self._shown_mean()
            y = self._residuals()
        self.variance_method_, self.variance_error_ = "exact", None
        self.log_marginal_likelihood_: float | None
        if not isinstance(system, GappySystem):
            self.method_ = "kronecker" if isinstance(system, KroneckerSystem) else "fibres"
            self.log_marginal_likelihood_ = float(system.log_marginal_likelihood(y))
            return
        self.method_ = "dense" if system.is_dense else "conjugate gradients"
        self._dual, done = system.solve(y)
        if done is not None:
            self.solver_iterations_, self.residual_ = done.iterations, done.residual
            self.converged_ = done.converged
        self.log_marginal_likelihood_ = float(system.log_marginal_likelihood(y))
        self.variance_method_, self.variance_error_ = system.settle_variance()
        if self._effects:
            self.mean_ = self._shown_mean()

    def _learn_complete(
        self, term: Sequence[Stationary], points: list[Floats], y: Floats, noise: float | None
    ) -> Hyperparameters:
        if self.learner is None:
            return self._kept([term], points, noise)
        pieces: list[tuple[Sequence[Floats], Floats]] = [(points, y)]
        self.learnt_from_ = "the whole field"
        if y.size > LEARN_CELLS and max(y.shape) ** 2 < y.size:
            regions = tile_regions(y.shape, TILES, tile_size(y.shape))
            pieces = [
                ([own[part] for own, part in zip(points, region, strict=True)], y[region].copy())
                for region in regions
            ]
            self.learnt_from_ = f"{len(regions)} parts of {pieces[0][1].size} cells"
        return learn_complete(
            term, pieces, points, noise, unknown_constant=self._constant_is_unknown
        )

    def _effects_of_mean(
        self, kernels: Sequence[Stationary], variances: float | Floats | None
    ) -> tuple[tuple[Stationary, ...], ...]:
        """Make terms of the covariance of a climatology, which then is an unknown."""
        if self.learner is None:
            return ()
        variance = float(np.nanvar(self.field_.values)) or 1.0
        effects = effects_of(self.mean, self.field_.axes, kernels, variance)
        n_bytes = 8.0 * self.field_.values.size * (10 + 1.5 * self.n_neighbours)
        if not effects or n_bytes > memory.available():
            return ()
        self._mean = Mean.of("constant", self.field_)
        self._constant_is_unknown = True
        return effects

    def _may_be_a_sum(self, found: Hyperparameters, points: list[Floats], y: Floats) -> bool:
        """Whether a complete field is to be tried with several scales."""
        n_bytes = 8.0 * y.size * (10 + 1.5 * self.n_neighbours)
        if y.size > LARGEST_SUM or n_bytes > memory.available():
            return False
        system = complete_system(points, found.terms[0], found.noise)
        return not isinstance(system, KroneckerSystem) or other_scales_show(system, y)

    def _learn_sum(
        self,
        sums: Sequence[Sequence[Sequence[Stationary]]],
        one: Hyperparameters,
        points: list[Floats],
        y: Floats,
        variances: float | None,
    ) -> Hyperparameters:
        """Learn several scales of a complete field; those of one are known."""
        before = self.learnt_from_
        more = self._learn_gappy(sums, points, y, variances, one)
        if len(more.terms) > 1:
            return more
        self.learnt_from_ = before
        return one

    def _learn_gappy(
        self,
        sums: Sequence[Sequence[Sequence[Stationary]]],
        points: list[Floats],
        y: Floats,
        variances: float | Floats | None,
        first: Hyperparameters | None = None,
    ) -> Hyperparameters:
        per_cell = isinstance(variances, np.ndarray)
        noise = 1.0 if per_cell else variances
        if self.learner is None:
            return self._kept(sums[-1], points, noise)  # type: ignore[arg-type]
        seen = self._observed()
        variance = float(np.var(y[seen]))
        begin = [starts(terms, points, variance, noise) for terms in sums]  # type: ignore[arg-type]
        if first is not None:
            begin[0] = first
        effects: Sequence[Sequence[Stationary]] = ()
        if self._effects:
            effects = starts(self._effects, points, variance, noise).terms  # type: ignore[arg-type]
        self.learnt_from_ = (
            "all observed cells"
            if self.field_.n_observed <= DENSE
            else "a sample of the observed cells, given their neighbours (Vecchia)"
        )
        piece = Piece(points, y, seen, variances if per_cell else 1.0)  # type: ignore[arg-type]
        return learn_cells(
            begin,
            [piece],
            points,
            n_neighbours=self.n_neighbours,
            seed=self.random_state,
            unknown_constant=self._constant_is_unknown,
            all_scales=isinstance(self.scales, (int, np.integer)),
            effects=effects,
        )

    # ------------------------------------------------------------------ posterior

    def posterior(self, include_noise: bool = False, quantiles: Any = None) -> xr.Dataset:
        """Posterior of the field at its own cells.

        Parameters
        ----------
        include_noise : bool
            ``std`` of a new observation instead of the field. Of a transformed field ``mean`` is
            that of a new observation, too.
        quantiles : sequence of float, optional
            Probabilities: the result has ``quantiles``, with a first dim ``quantile``. 0.5 is the
            median, which differs from the mean where the field was transformed.

        Returns
        -------
        Dataset of ``mean`` and ``std``, in the field's unit and the user's layout
        """
        check_is_fitted(self)
        self._require_field()
        probabilities = require_quantiles(quantiles)
        mean, variance = self._posterior_of_residuals()
        if self._constant is not None:
            variance = self._constant.add_variance(variance, self._share())
        uncertain = self._mean.uncertain()
        if uncertain is not None:
            variance += self._variance_of_averages(variance, uncertain.on_field())
        mean += _without_gaps(self._mean.on_field(), self._mean.constant)
        if include_noise:
            noise = self._noise_at_cells()
            lacking = np.isnan(noise) & np.isfinite(variance)
            if lacking.any():
                raise DataError(
                    f"include_noise: the noise given for each cell has no positive number at "
                    f"{int(lacking.sum())} cells that are filled; give it there too, or leave "
                    "include_noise out"
                )
            variance += noise
        return self._dataset(mean, np.sqrt(variance, out=variance), None, probabilities)

    def predict(
        self, include_noise: bool = False, quantiles: Any = None, **coords: Any
    ) -> xr.Dataset:
        """Posterior of the field on another grid.

        Parameters
        ----------
        include_noise : bool
            ``std`` of a new observation; needs one noise variance for all cells.
        quantiles : sequence of float, optional
            As of ``posterior``.
        **coords
            New coordinates by dim, in any order; a scalar takes the dim away. Dims not named keep
            the field's. DataArrays that share a dim are points: ``lat=DataArray(..., dims="obs"),
            lon=DataArray(..., dims="obs")`` gives one number for each ``obs``, as xarray's
            indexing does. Beyond the field's extent the posterior returns to the prior.

        Returns
        -------
        Dataset of ``mean`` and ``std``

        Raises
        ------
        DataError, ParameterError
            If a coordinate cannot be used, or a dim does not exist.
        MemoryLimitError
            If the result, and what it takes, would not fit.

        Notes
        -----
        At points, ``variance="draws"`` is computed as "calibrated" is.

        Examples
        --------
        >>> import numpy as np, xarray as xr
        >>> from dsgp import GridGP
        >>> da = xr.DataArray(np.sin(np.arange(20.0) / 3), {"x": np.arange(20.0)})
        >>> GridGP().fit(da).predict(x=[3.5, 4.5])["mean"].round(2).values
        array([0.92, 1.  ])
        """
        check_is_fitted(self)
        self._require_field()
        probabilities = require_quantiles(quantiles)
        targets = self._targets(coords)
        if include_noise and self.noise_variance_ is None:
            raise ParameterError(
                "include_noise: the noise was given for each cell and is not known elsewhere; "
                "add your own variance to std**2"
            )
        system, y, points = self._system, self._residuals(), targets.points
        uncertain = self._mean.uncertain()
        if targets.together:
            axes = targets.together
            if isinstance(system, GappySystem):
                mean = system.mean_at(self._dual, points, axes)
                variance = system.variance_at(points, axes)
            else:
                mean, variance = system.predict_at(points, axes, y)
            before = self._mean.at_points(targets)
            shares = None if uncertain is None else uncertain.at_points(targets)
        else:
            if isinstance(system, GappySystem):
                mean, variance = system.mean(self._dual, points), system.variance(points)
            else:
                mean, variance = system.predict(points, y)
            before = self._mean.at(targets.coords)
            shares = None if uncertain is None else uncertain.at(targets.coords)
        if shares is not None:
            variance = variance + self._variance_of_averages(variance, shares)
        if self._constant is not None:
            share = self._share(points, targets.together)
            variance = self._constant.add_variance(variance, share)
        mean = mean + _without_gaps(before, self._mean.constant)
        if include_noise:
            variance = variance + self._noise_at_cells()
        return self._dataset(mean, np.sqrt(variance), targets, probabilities)

    def sample(
        self, n_samples: int = 1, random_state: int | None = None, **coords: Any
    ) -> xr.DataArray:
        """Draw the field from its joint posterior.

        Parameters
        ----------
        n_samples : int
        random_state : int, optional
            Default: the model's.
        **coords
            Another grid, as for ``predict``; by default the field's own.

        Returns
        -------
        DataArray with a first dim ``sample``
        """
        check_is_fitted(self)
        self._require_field()
        if not isinstance(n_samples, (int, np.integer)) or n_samples < 1:
            raise ParameterError(f"n_samples must be a positive integer, got {n_samples!r}")
        targets = self._targets(coords) if coords else None
        if targets is not None and targets.together:
            names = ", ".join(repr(self.field_.axes[d].name) for d in targets.together)
            raise ParameterError(
                f"sample: draws are of grids, and {names} go together point by point; draw on the "
                "grid of their values and take the points of it: draws.sel(...)"
            )
        seed = self.random_state if random_state is None else random_state
        require_seed(seed)
        rng = np.random.default_rng([seed, 3])
        points = None if targets is None else targets.points
        draws = np.array(self._system.sample(self._residuals(), int(n_samples), rng, points))
        if self._constant is not None:
            errors = np.random.default_rng([seed, 4])
            draws += self._constant.deviations(int(n_samples), errors, self._share(points))
        coords_of = {} if targets is None else targets.coords
        if self._mean.shares is not None:
            random = np.random.default_rng([seed, 5])
            for draw in draws:
                draw += self._mean.drawn(random, self._scatter_of_averages()).at(coords_of)
        before = self._mean.at(coords_of)
        draws += _without_gaps(before, self._mean.constant)
        if self.transform_ is not None:
            draws = self.transform_.inverse(draws)
        return self.field_.restore(draws, targets=targets, leading=("sample",))

    def summary(self) -> str:
        """Describe the fitted model in a few lines."""
        check_is_fitted(self)
        return summary_of(self)

    # ------------------------------------------------------------------ saving

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        self._require_field()
        settings, tree = pack(self.field_)
        arrays: dict[str, Any] = {"field": tree, "mean": self._mean.arrays()}
        if hasattr(self, "_dual"):
            arrays["dual"] = self._dual
        if self._variances is not None:
            arrays["noise"] = self._variances
        options = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("kernels", "noise", "mean", "units", "transform")
        }
        parameters = {
            "options": options,
            "units": None if self.units is None else dict(self.units),
            "field": settings,
            "transform": None if self.transform_ is None else self.transform_.settings(),
            "mean": self._mean.settings(),
            "terms": [[kernel.to_settings() for kernel in term] for term in self._fitted_terms],
            "noise": self.noise if isinstance(self.noise, (str, Real)) else "given for each cell",
            "fitted": {name: getattr(self, name) for name in _PLAIN},
            "constant_is_unknown": self._constant_is_unknown,
            "n_effects": len(self._effects),
            "mean_text": self.mean if isinstance(self.mean, str) else None,
        }
        return parameters, arrays

    @classmethod
    def _restore(cls, settings: Mapping[str, Any], tree: Mapping[str, Any]) -> Self:
        model = cls(units=settings["units"], **settings["options"])
        # What made it, with its parameters, so that a clone can be fitted; absent in older stores.
        model.transform = model.transform_ = from_settings(settings.get("transform"))
        model.field_ = unpack(settings["field"], tree["field"])
        model._axes = model.field_.axes
        model._mean = Mean.from_settings(settings["mean"], tree["mean"], model.field_.axes)
        model._fitted_terms = tuple(
            tuple(_kernel_from(own) for own in term) for term in settings["terms"]
        )
        for name in _PLAIN:
            setattr(model, name, settings["fitted"][name])
        model._variances = tree.get("noise")
        # Stores written before the constant was an unknown lack this, and answer as they did.
        model._constant_is_unknown = settings.get("constant_is_unknown", False)
        model._effects = model._fitted_terms[: settings.get("n_effects", 0)]
        if "dual" in tree:
            model._dual = tree["dual"]
        model.kernels_ = model._by_dim()
        model.mean_ = model._shown_mean()
        # What made it: its own hyperparameters, so that a clone can be fitted.
        model.kernels = model.kernels_
        model.noise = settings["noise"] if model._variances is None else model._shown_noise()
        model.mean = settings.get("mean_text") or settings["mean"]["spec"]
        if model.mean in ("number", "field"):
            model.mean = model.mean_
        return model

    # ------------------------------------------------------------------ parts

    def _surely_complete(self, da: xr.DataArray) -> bool:
        return da.chunks is None and self.scales in (None, "auto", 1) and not has_gaps(da)

    def _residuals(self) -> Floats:
        """The field minus its prior mean; 0 where missing."""
        y = self.field_.values - self._mean.on_field()
        return y if self.field_.observed is None else np.where(self.field_.observed, y, 0.0)

    def _observed(self) -> Any:
        seen = self.field_.observed
        return np.ones(self.field_.shape, dtype=bool) if seen is None else seen

    @property
    def _system(self) -> Any:
        if "_made" not in self.__dict__:
            self._made = self._make_system()
        return self._made

    def _make_system(self) -> Any:
        points = [axis.points for axis in self.field_.axes]
        complete = self.field_.observed is None and self._variances is None
        if complete and len(self._fitted_terms) == 1:
            return complete_system(
                points, self._fitted_terms[0], float(self.noise_variance_ or 0.0)
            )
        domain = self.field_.domain
        return GappySystem(
            SeparableSum(tuple(points), self._fitted_terms),
            self._observed(),
            self._noise_at_cells(),
            domain=None if domain is None else np.broadcast_to(domain, self.field_.shape),
            # Of a loaded model, what was chosen when it was fitted.
            variance=self.__dict__.get("variance_method_", self.variance),
            n_neighbours=self.n_neighbours,
            n_draws=self.n_draws,
            tol=self.tol,
            max_iter=self.max_iter,
            seed=self.random_state,
        )

    @property
    def _constant(self) -> UnknownConstant | None:
        """What the observed cells say of the constant, if that is not given."""
        if not self._constant_is_unknown:
            return None
        if "_made_constant" not in self.__dict__:
            solved = self._system.solve(self._observed().astype(float))
            dual = solved[0] if isinstance(solved, tuple) else solved
            self._made_constant = UnknownConstant.of(dual)
        return self._made_constant

    def _posterior_of_residuals(self) -> tuple[Floats, Floats]:
        """Posterior mean and variance at the cells, given the prior mean."""
        system = self._system
        if isinstance(system, GappySystem):
            return system.mean(self._dual), system.variance()
        mean, variance = system.posterior(self._residuals())
        return mean, variance

    def _variance_of_averages(self, variance: Floats, shares: Floats) -> Floats:
        """Variance that averages of 1 / ``shares`` observations add to posterior ones.

        The noise in an average stays; of what the field has left in it, the posterior takes off
        what it knows. An approximation: averages of neighbouring cells count as independent.
        """
        prior = float(sum(amplitude(term) for term in self._fitted_terms))
        noise = float(np.nanmean(self._noise_at_cells()))
        return np.asarray(shares * (noise + variance**2 / prior))

    def _scatter_of_averages(self) -> float:
        """Variance of a single observation about its mean, as far as the posterior leaves it."""
        variance = self._posterior_of_residuals()[1]
        prior = float(sum(amplitude(term) for term in self._fitted_terms))
        noise = float(np.nanmean(self._noise_at_cells()))
        return noise + float(np.nanmean(variance**2)) / prior

    def _share(
        self, points: Sequence[Floats] | None = None, together: Sequence[int] = ()
    ) -> Floats:
        """How much of the constant's error shows in each cell, or target."""
        assert self._constant is not None
        complete = not isinstance(self._system, GappySystem)
        if points is None and complete:  # K A⁻¹ 1 = 1 − σ² A⁻¹ 1
            return float(self.noise_variance_ or 0.0) * self._constant.dual
        prior = SeparableSum(tuple(axis.points for axis in self.field_.axes), self._fitted_terms)
        if points is None:
            return self._constant.share(prior.multiply)
        if together:
            return self._constant.share(lambda dual: prior.cross_at(points, together, dual))
        return self._constant.share(lambda dual: prior.cross(points, dual))

    def _set_hyperparameters(self, found: Hyperparameters, noise: float | None) -> None:
        self.__dict__.pop("_made", None)
        self.__dict__.pop("_dual", None)
        self.__dict__.pop("_made_constant", None)
        self._fitted_terms = found.terms
        self.noise_variance_ = noise
        if hasattr(self, "field_"):
            self.mean_ = self._shown_mean()
        self.kernels_ = self._by_dim()

    def _by_dim(self) -> dict[str, Stationary] | list[dict[str, Stationary]]:
        names = [axis.name for axis in self._axes]
        fitted = self._fitted_terms[len(self._effects) :]
        terms = [dict(zip(names, term, strict=True)) for term in fitted]
        return terms[0] if len(terms) == 1 else terms

    def _shown_mean(self) -> float | xr.DataArray:
        if self._effects and "_dual" in self.__dict__:
            points = tuple(axis.points for axis in self.field_.axes)
            terms = self._fitted_terms[: len(self._effects)]
            mean = self._mean.constant + SeparableSum(points, terms).multiply(self._dual)
        elif self._mean.spec in ("constant", "zero", "number"):
            mean = np.array(self._mean.constant)
        else:
            mean = np.array(self._mean.on_field())
        if self.transform_ is not None:
            mean = self.transform_.median(mean)
        return self.field_.restore(mean, name="mean") if np.ndim(mean) else float(mean)

    def _shown_noise(self) -> xr.DataArray:
        return self.field_.restore(self._variances, name="noise_variance", attrs={})

    def _noise_at_cells(self) -> float | Floats:
        return float(self.noise_variance_ or 0.0) if self._variances is None else self._variances

    def _targets(self, coords: Mapping[str, Any]) -> Targets:
        """Read where the field is asked for; refuse what does not fit into memory."""
        targets = Targets.of(self.field_.axes, coords)
        targets.require_memory(self.field_.shape)
        targets.warn_beyond()
        return targets

    def _dataset(
        self,
        mean: Floats,
        std: Floats,
        targets: Targets | None = None,
        probabilities: Sequence[float] = (),
    ) -> xr.Dataset:
        """Answer in the field's unit and layout."""
        mean, std, ends = in_units(self.transform_, mean, std, probabilities)
        attrs = {k: v for k, v in self.field_.template.attrs.items() if k == "units"}
        made = {
            "mean": self.field_.restore(mean, name="mean", targets=targets),
            "std": self.field_.restore(std, name="std", attrs=attrs, targets=targets),
        }
        if ends:
            along = self.field_.restore(
                np.stack(ends), name="quantiles", targets=targets, leading=("quantile",)
            )
            made["quantiles"] = along.assign_coords(quantile=list(probabilities))
        if self.transform_ is not None:
            for one in made.values():
                one.attrs["transform"] = self.transform_.described()
        return together(made)

    def _require_field(self) -> None:
        if not hasattr(self, "field_"):
            raise StorageError(
                "the model smoothed a field on disk and does not hold it; for this, fit it to a "
                "field in memory"
            )


def _without_gaps(mean: Floats, constant: float) -> Floats:
    """A given mean may lack cells that nothing observes: there its average stands in."""
    return np.where(np.isnan(mean), constant, mean) if np.isnan(mean).any() else mean


def _kernel_from(settings: Mapping[str, Any]) -> Stationary:
    made = kernel_module.from_settings(settings)
    if not isinstance(made, Stationary):
        raise StorageError(f"the store has {made!r} as a kernel of a grid")
    return made
