"""``GridGP``: the estimator of fields on grids; `dsgp.grid.model` has the model that it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.errors import ParameterError, StorageError
from dsgp.estimators.grid_fit import fit_field
from dsgp.estimators.grid_options import Kernels, require_seed
from dsgp.estimators.grid_reported import GridReported
from dsgp.estimators.grid_saving import described, restored
from dsgp.estimators.grid_store import OnDisk
from dsgp.estimators.grid_summary import summary_of
from dsgp.estimators.grid_transform import dataset_of
from dsgp.estimators.saved import Saved
from dsgp.grid.axes import GridAxis
from dsgp.grid.model import FieldModel
from dsgp.grid.targets import Targets
from dsgp.kernels import Stationary
from dsgp.models.summary import SummaryText
from dsgp.transforms import Transform, require_quantiles


class GridGP(GridReported, Saved, OnDisk, BaseEstimator):
    r"""Gaussian process regression of a field on a grid with any number of dimensions.

    .. math:: y = \mu + f + \varepsilon, \quad
              f \sim GP\Big(0, \sum_c \prod_d k_{cd}(x_d, x'_d)\Big), \quad
              \varepsilon \sim N(0, \sigma^2)

    Complete fields with one separable kernel are exact in O(N Σ G_d) by Kronecker products
    (Section ``sec:kron`` of the paper), and with an axis of more than 4096 points by state-space
    smoothing along it. Gaps, sums of separable kernels and noise that differs between cells are
    solved by conjugate gradients: the mean is exact to ``tol``, and ``variance`` selects how
    variances are computed (docs/howto/grids.md).

    Parameters
    ----------
    kernels : mapping of dim to Stationary, or sequence of such mappings, optional
        One separable kernel, or a sum of several. Dimensions that are not named get Matérn 3/2.
        Given parameters are initial values; those that a kernel names in ``fixed`` are kept.
        Lengthscales are in the units of the coordinate, for times in those of ``units_``.
    noise_variance : float or DataArray, optional
        Noise variance σ², in squared units of the field. By default it is learned. A number is the
        initial value, or kept with ``fixed_noise``. A DataArray is the known noise variance of each
        cell.
    fixed_noise : bool
        Keep ``noise_variance`` instead of learning it.
    mean : "constant", "zero", float, DataArray, or text
        Prior mean (docs/howto/grids.md). "constant" is one unknown number; "time" (or another
        dimension) an unknown mean over that dimension for each cell; "time.month" the same plus an
        unknown climatology. Numbers and DataArrays are known.
    transform : {None, "log", "yeo-johnson"} or Transform
        Transform of a skewed field (docs/howto/skewed.md). Results, and a ``mean`` given as
        numbers, are in the units of the field; kernels, noise variances and averages are on the
        scale of the transform.
    scales : "auto" or int
        Number of separable kernels in the sum, each with its own lengthscales, if ``kernels`` is
        not a sequence. "auto": up to three, chosen by the likelihood; one if lengthscales are
        given, or for a complete field of more than 2²⁰ cells.
    units : mapping of dim to {"days", "hours", "minutes", "seconds"}, optional
        Units of dimensions of times. By default they depend on the step.
    learner : "marginal" or None
        None keeps the given hyperparameters, ``noise_variance`` too.
    variance : {"auto", "exact", "spectral", "local", "calibrated", "draws"}
        How variances of fields with gaps or several scales are computed; those of complete fields
        with one scale are exact. "auto": "exact" if that is cheap, otherwise "spectral" for
        complete fields if its error is at most 5 %, otherwise "local" (an upper bound), or
        "calibrated" if local standard deviations are more than 15 % too large
        (docs/howto/grids.md).
    n_neighbours, n_draws : int
        Number of observed cells per target of "local", and number of draws of "draws".
    tol : float
        Tolerance of conjugate gradients, relative to the norm of the data.
    max_iter : int
        Maximum number of iterations of conjugate gradients.
    random_state : int
        Random seed of the order of elimination, of the sample for learning, and of draws.

    Attributes
    ----------
    kernels_ : dict of dim to Stationary, or list of such dicts
        The variance is in the kernel of the first dimension; the others have variance 1.
    noise_variance_ : float or None
        None if it is given for each cell.
    mean_ : float or DataArray
        The prior mean; for a transformed field the prior median.
    transform_ : Transform or None
        With its learned parameters.
    log_marginal_likelihood_ : float
        That of the field, transformed or not. Vecchia's approximation if ``method_`` is "conjugate
        gradients".
    units_ : dict of dim to str
        Units of lengthscales, e.g. "days since 1860-06-01 (360_day)".
    method_ : {"kronecker", "fibres", "dense", "conjugate gradients", "tiles"}
        "tiles" after ``smooth_store`` of a field with gaps.
    variance_method_ : {"exact", "spectral", "local", "calibrated", "draws"}
    variance_error_ : float or None
        "spectral": root mean square of the relative error of the standard deviation at twelve
        cells. "local": mean relative excess of the standard deviation over the exact one at six
        cells.
        "draws": relative Monte Carlo error, an upper bound for "calibrated". None: exact.
    solver_iterations_, residual_, converged_
        Those of conjugate gradients; otherwise 0, 0.0 and True.
    n_observed_ : int
    learnt_from_ : str
        The part of the field from which the hyperparameters were learned.

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
        noise_variance: Any = None,
        *,
        fixed_noise: bool = False,
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
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
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
    # Of a field in memory; a model of a field on disk has none.
    _model: FieldModel

    # ------------------------------------------------------------------ fit

    def __sklearn_tags__(self) -> Any:
        """Declare to scikit-learn that a fit is of a DataArray, which is its own target."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.target_tags.required = False
        return tags

    def fit(self, da: xr.DataArray, mask: Any = None, domain: Any = None) -> Self:
        """Learn the hyperparameters of a field and condition on it.

        Parameters
        ----------
        da : DataArray
            NaN marks missing cells. Coordinates may run either way and be of any spacing.
        mask : DataArray or array_like of bool, optional
            True where the value of a cell is used.
        domain : DataArray or array_like of bool, "observed", "hull", "auto", optional
            Cells to output: False where the output stays empty. "observed": cells without a value
            at any time (land) stay empty; without a dim of times, no cell does. "hull": cells
            beyond the convex hull of those that have a value at some time stay empty. "auto":
            "observed" with several time steps, otherwise "hull", with a ``DataWarning`` that says
            how many cells stay empty or are filled although they never have a value.

        Raises
        ------
        DataError
            If the field, its coordinates, the mask, the domain or the noise cannot be used.
        ParameterError
            If an option is out of its range or names a dim that does not exist.
        MemoryLimitError
            If the field does not fit into memory; ``smooth_store`` takes larger ones.
        """
        fitted = fit_field(self, da, mask, domain)
        # All at once: a fit that fails leaves the model as it was.
        self._show(fitted.model, fitted.transform)
        self._show_hyperparameters(
            fitted.model.terms[fitted.model.n_effects :],
            None if isinstance(fitted.model.noise, np.ndarray) else fitted.model.noise,
        )
        self.learnt_from_ = fitted.learnt_from
        self.units_ = {axis.name: axis.unit_label for axis in self._axes}
        self.n_observed_ = fitted.model.field.n_observed
        how = fitted.conditioning
        self.method_ = how.method
        self.variance_method_, self.variance_error_ = how.variance_method, how.variance_error
        self.solver_iterations_, self.residual_ = how.iterations, how.residual
        self.converged_ = how.converged
        self.log_marginal_likelihood_ = how.log_marginal_likelihood
        return self

    def _show(self, model: FieldModel, transform: Transform | None) -> None:
        """Hold the model of a field, and show what it is of."""
        self._model, self.transform_ = model, transform
        self.field_, self._axes = model.field, model.field.axes
        mean = model.prior_mean()
        if transform is not None:
            mean = transform.median(mean)
        shown = model.field.restore(mean, name="mean") if np.ndim(mean) else float(mean)
        self.mean_: float | xr.DataArray = shown

    def _show_hyperparameters(
        self, terms: Sequence[Sequence[Stationary]], noise_variance: float | None
    ) -> None:
        """Show kernels by the names of their dims, and the noise."""
        names = [axis.name for axis in self._axes]
        by_dim = [dict(zip(names, term, strict=True)) for term in terms]
        self.kernels_: dict[str, Stationary] | list[dict[str, Stationary]] = (
            by_dim[0] if len(by_dim) == 1 else by_dim
        )
        self.noise_variance_ = noise_variance

    # ------------------------------------------------------------------ posterior

    def posterior(self, include_noise: bool = False, quantiles: Any = None) -> xr.Dataset:
        """Posterior of the field at its own cells.

        Parameters
        ----------
        include_noise : bool
            Return the ``std`` of a new observation instead of the field. For a transformed field,
            ``mean`` is that of a new observation, too.
        quantiles : sequence of float, optional
            Probabilities: the result also has ``quantiles``, with a first dim ``quantile``. 0.5 is
            the median, which differs from the mean if the field was transformed.

        Returns
        -------
        Dataset of ``mean`` and ``std``, in the field's unit and the user's layout
        """
        check_is_fitted(self)
        self._require_field()
        probabilities = require_quantiles(quantiles)
        mean, variance = self._model.posterior(include_noise)
        return dataset_of(
            self.field_, self.transform_, mean, np.sqrt(variance, out=variance), None, probabilities
        )

    def predict(
        self, include_noise: bool = False, quantiles: Any = None, **coords: Any
    ) -> xr.Dataset:
        """Posterior of the field on another grid.

        Parameters
        ----------
        include_noise : bool
            ``std`` of a new observation; needs one noise variance for all cells.
        quantiles : sequence of float, optional
            As for ``posterior``.
        **coords
            New coordinates by dim, in any order; a scalar drops the dim. Dims that are not named
            keep the coordinates of the field. DataArrays that share a dim are points:
            ``lat=DataArray(..., dims="obs"), lon=DataArray(..., dims="obs")`` gives one number for
            each ``obs``, as xarray's indexing does. Beyond the field's extent the posterior returns
            to the prior.

        Returns
        -------
        Dataset of ``mean`` and ``std``

        Raises
        ------
        DataError, ParameterError
            If a coordinate cannot be used, or a dim does not exist.
        MemoryLimitError
            If the result and the work arrays would not fit into memory.

        Notes
        -----
        At points, ``variance="draws"`` is computed in the same way as "calibrated", and so is
        "spectral": local variances times its ratio to these on the grid.

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
        mean, variance = self._model.predict(targets, include_noise)
        return dataset_of(
            self.field_, self.transform_, mean, np.sqrt(variance), targets, probabilities
        )

    def sample(
        self, n_samples: int = 1, random_state: int | None = None, **coords: Any
    ) -> xr.DataArray:
        """Draw the field from its joint posterior.

        Parameters
        ----------
        n_samples : int
        random_state : int, optional
            Random seed; by default that of the model.
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
                f"sample draws on grids, and {names} are given point by point; draw on the grid of "
                "their values and select the points: draws.sel(...)"
            )
        seed = self.random_state if random_state is None else random_state
        require_seed(seed)
        draws = self._model.sample(int(n_samples), seed, targets)
        if self.transform_ is not None:
            draws = self.transform_.inverse(draws)
        return self.field_.restore(draws, targets=targets, leading=("sample",))

    def _targets(self, coords: Mapping[str, Any]) -> Targets:
        """Read the targets of a prediction; refuse those that do not fit into memory."""
        targets = Targets.of(self.field_.axes, coords)
        targets.require_memory(self.field_.shape)
        targets.warn_beyond()
        return targets

    def summary(self) -> SummaryText:
        """Describe the fitted model in a few lines."""
        check_is_fitted(self)
        return summary_of(self)

    # ------------------------------------------------------------------ saving

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        self._require_field()
        return described(self, self._model)

    @classmethod
    def _restore(cls, settings: Mapping[str, Any], tree: Mapping[str, Any]) -> Self:
        return restored(cls, settings, tree)

    def _require_field(self) -> None:
        if not hasattr(self, "field_"):
            raise StorageError(
                "the model smoothed a field on disk and does not hold it; for this, fit it to a "
                "field in memory"
            )
