"""``ProjectionPursuitGPRegressor``: a sum of functions of projections of the inputs."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.linalg import LinAlgError
from sklearn.base import BaseEstimator, RegressorMixin

from dsgp.additive import MAX_ITER
from dsgp.compute import one_blas_thread
from dsgp.errors import (
    DataError,
    MemoryLimitError,
    ParameterError,
)
from dsgp.estimators.draws import Sampled, sampled
from dsgp.estimators.fitting import Outcome, Procedure, Reading
from dsgp.estimators.gaussian import GaussianPredictor
from dsgp.estimators.inference import Clock
from dsgp.estimators.parameters import (
    generator,
    require_choice,
    require_count,
    require_positive,
)
from dsgp.estimators.projected import (
    FINAL_MAX_ITER,
    FINAL_TOL,
    ProjectedPredictor,
    Projections,
    projected_outcome,
)
from dsgp.estimators.searching import (
    Pursued,
    found_all,
    kernel_of,
    require_memory,
    require_search,
    searched,
    wanted_of,
    warn_of_search,
)
from dsgp.estimators.transforming import Target
from dsgp.kernels import Matern
from dsgp.learning.search import NOISE
from dsgp.progress import progress
from dsgp.pursuit.greedy import greedy
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.levels import Prepared, prepare_rows
from dsgp.pursuit.projection import Rows as ProjectionRows
from dsgp.pursuit.rows import MemoryRows
from dsgp.pursuit.search import (
    Options,
    from_directions,
    ordered,
    relevance,
)
from dsgp.rows.sources import Source, source_of
from dsgp.transforms import Transform, require_transform

_METHODS = ("refit", "greedy", "gibbs")
_NOISE_START = 0.5


class ProjectionPursuitGPRegressor(
    GaussianPredictor, ProjectedPredictor, RegressorMixin, BaseEstimator
):
    r"""Projection pursuit Gaussian process regression.

    .. math:: y_i = \sum_m f_m(x_i \cdot w_m) + \varepsilon_i, \quad
              f_m \sim \mathcal{GP}(0, k_m), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The directions are learned with everything else. Unlike an additive model this one knows
    interactions of the inputs; unlike a full Gaussian process its cost is linear in the number of
    rows. Inputs are standardised within the model: their units do not matter.

    Parameters
    ----------
    kernel : kernel, optional
        Its type is that of all functions: ``Matern32()``, ``Matern52()`` (the default) or
        ``Matern72()``. Lengthscales and variances are learned and must be left open.
    n_projections : "auto" or int
        How many functions. "auto" adds as many as the evidence asks for, up to 64, and up to 2048
        parameters of all (each has 16 and the number of inputs); an int asks for so many, and gets
        fewer only where functions turn out to do nothing.
    method : {"refit", "greedy", "gibbs"}
        "refit": new projections from several starts, then Gauss–Newton steps on all directions and
        functions together, each function's kernel by the marginal likelihood, and the number of
        projections by Laplace's approximation of the evidence. "greedy": the paper's PPGPR-greedy,
        one projection after the other, each fitted to the residual of those before and never
        visited again, their number by held-out rows. "gibbs": the paper's PPGPR-MCMC, draws of
        directions, functions, hyperparameters and noise from their posterior, the number of
        projections and the start by "refit"; predictions are the mean and standard deviation of the
        draws, and cost as many functions as these have. Both need all rows in memory.
    relevance : bool
        Give every input a precision α_j, common to all directions: w_mj ~ N(0, 1/α_j), which
        suppresses inputs that no function needs. Without, the model does not change when the inputs
        are rotated or otherwise mixed. Not of "greedy".
    n_starts : int
        Directions that a new projection is fitted from.
    n_draws : int
        Draws that "gibbs" keeps, of all chains together.
    n_warmup : int
        Sweeps of each chain before.
    n_chains : int
        Independent chains, which run at the same time. Two or more tell by their agreement how well
        they mix.
    noise_variance : float, optional
        σ² of a row of weight 1: with ``fixed_noise`` kept as given, otherwise learned.
    fixed_noise : bool
    direction_uncertainty : bool
        Count the uncertainty of the directions in standard deviations, covariances and draws, to
        first order around their best values (Laplace's approximation). Without, they are those for
        given directions. Draws of "gibbs" have it in any case.
    solver : {"multigrid", "cg", "backfitting"}
        How the posterior mean for given directions is computed; see ``AdditiveGPRegressor``.
    bins : "auto", int or None
        Values of a projection that are told apart in it; see ``AdditiveGPRegressor``.
    target_transform : {None, "log", "yeo-johnson"} or Transform
        A function of the target that is modelled instead of it: the logarithm of a positive target,
        or the power transform of Yeo and Johnson, whose power is learned. Predictions are in the
        target's unit, and the log likelihoods are those of the target, so that transforms can be
        compared by them; hyperparameters, components and intercept are on the scale of the
        transform. One of ``dsgp.transforms`` with its parameters is taken as it is.
    tol : float
    max_iter : int, optional
        Of the solver.
    random_state : int, optional
        Seed of the starts, and of ``sample``. The same seed gives the same model, whatever the
        number of threads or workers, as long as the memory is there to keep the rows, or is not.
        None draws a new one.
    verbose : bool
        Show progress bars, where stderr is a terminal.

    Attributes
    ----------
    n_projections_ : int
    projections_ : pandas.DataFrame
        A row a projection, a column an input: the weights of the standardised inputs, such that the
        projection has variance 1. The first one explains most.
    relevance_ : pandas.Series
        Share of each input in the mean squared gradient of f, inputs in standard units: how much
        each of them matters, 1 in all.
    evidence_ : float
        Log evidence of the model by Laplace's approximation, directions and functions integrated
        out.
    evidence_trace_ : list of [int, float]
        Projections and log evidence after each round of the search, those not taken too; with
        "greedy" the log marginal likelihood of each residual by one projection.
    search_gain_ : float
        Nats of the log posterior that the last Gauss–Newton step gained.
    search_limited_ : bool
        Whether "auto" ended at its limit, while the evidence still asked for more projections.
    converged_ : bool
        Whether the last step gained a fraction of what the posterior leaves open (0.02 nats a
        parameter), no round of the search failed, the solver met its tolerance, and the chains of
        "gibbs" agree. Where it is False, a ``ConvergenceWarning`` said why.
    kernels_, noise_variance_, terms_, intercept_, ...
        As of ``AdditiveGPRegressor``, for the additive model in the projections
        ``"projection 1"``, …; ``log_marginal_likelihood_`` is that for given directions.
    draws_ : xarray.Dataset
        Of "gibbs": ``directions`` (divided by the lengthscale), ``variances``, ``noise_variance``
        and ``log_likelihood``, by chain and draw. ``noise_variance_`` is the mean of the draws;
        terms, kernels, projections, relevance and evidence are those that the chains began at.
    diagnostics_ : dict
        Of "gibbs": R-hat and effective sample size of the noise variance, of predictions (at 200
        training rows, the 95 % quantile of the one and the 5 % quantile of the other) and of the
        log likelihood. Where the chains do not agree, R-hat > 1.1, ``fit`` warns.
    constant_columns_ : list of str
        Columns with one value only, which are left out.
    fit_seconds_ : dict of str to float
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*: sections ``sec:ppgp`` and ``sec:MCMC``, equations ``eq:ppadd`` to ``eq:ppr``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import ProjectionPursuitGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 3))
    >>> y = X[:, 0] * X[:, 1] + 0.01 * rng.standard_normal(500)
    >>> model = ProjectionPursuitGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.5, 0.5, 0.0]], return_std=True)
    >>> bool(abs(mean[0] - 0.25) < 0.02)
    True
    >>> model.relevance_.round(1).to_list()
    [0.5, 0.5, 0.0]
    """

    def __init__(
        self,
        kernel: Matern | None = None,
        *,
        n_projections: str | int = "auto",
        method: str = "refit",
        relevance: bool = True,
        n_starts: int = 10,
        n_draws: int = 400,
        n_warmup: int = 200,
        n_chains: int = 2,
        noise_variance: float | None = None,
        fixed_noise: bool = False,
        direction_uncertainty: bool = True,
        solver: str = "multigrid",
        bins: str | int | None = "auto",
        target_transform: str | Transform | None = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.n_projections = n_projections
        self.method = method
        self.relevance = relevance
        self.n_starts = n_starts
        self.n_draws = n_draws
        self.n_warmup = n_warmup
        self.n_chains = n_chains
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
        self.direction_uncertainty = direction_uncertainty
        self.solver = solver
        self.bins = bins
        self.target_transform = target_transform
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            Of any kind that ``AdditiveGPRegressor.fit`` takes. Finite numbers. Rows that would fill
            more than a quarter of the free memory, or 2 GB, are read again for every step.
        y : array_like of shape (n_rows,), dask collection, or str
            The name of the target where it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            Precision weights: row i has noise variance σ²/w_i. 0 is the same as no row; a factor
            common to all changes σ² and nothing else.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If a value is missing, infinite, not a number or beyond what float64 can square, or
            shapes do not agree (scikit-learn's own ValueError for arrays without rows or columns);
            or if the target has values without a transform.
        ParameterError
            If a parameter is out of its range.
        MemoryLimitError
            If the fit would not fit into memory.
        """
        self._check_parameters()
        clock = Clock()
        random = generator(self.random_state)
        observed = source_of(X, y, sample_weight)
        target = Target.of(observed, self.target_transform)
        source = target.of_rows(observed)
        with one_blas_thread():
            with progress("reading", source.n_rows, enabled=self.verbose) as bar:
                prepared = prepare_rows(source, random, Reading(bar, clock))
            if prepared.n_rows < 2:
                raise DataError(
                    "cannot learn directions from 1 sample (n_samples = 1): at least 2 rows of "
                    "positive weight are needed"
                )
            if self.method != "refit":
                self._rows_in_memory(prepared)
            clock.stage("search")
            try:
                pursued = self._pursue(prepared, random)
                run = None
                if self.method == "gibbs":
                    clock.stage("sample")
                    run = self._sampled(prepared, pursued, random).shifted(target.log_jacobian)
                procedure = self._procedure()
                standard = prepared.standard
                # A box does not turn with the inputs.
                ends = (
                    prepared.ends
                    if self.relevance
                    else np.full_like(prepared.ends, np.inf) * [-1, 1]
                )
                found = Projections.of(pursued.state, standard.centre, standard.scale, ends)
                outcome = projected_outcome(
                    source, standard, found, pursued.state, procedure, clock, self.fixed_noise
                )
                clock.stage("keep")
                self._keep_pursuit(source, prepared, pursued, outcome)
                self._keep_projections(found, standard.varying, pursued.relevance)
            except LinAlgError as error:
                raise ParameterError(
                    "float64 cannot resolve so little noise beside the functions: raise "
                    "noise_variance, or leave it out"
                ) from error
        self._keep_draws(run, prepared.standard.offset)
        self._keep_target(target)
        self.evidence_ += target.log_jacobian
        self.evidence_trace_ = [
            [terms, value + target.log_jacobian] for terms, value in self.evidence_trace_
        ]
        self.fit_seconds_ = clock.finish()
        procedure.warn(outcome)
        warn_of_search(self, pursued)
        self._tell_skewness(observed)
        if run is not None:
            self.converged_ = self.converged_ and run.mixed
            run.warn()
        return self

    def _check_parameters(self) -> None:
        require_search(self)
        require_choice("method", self.method, _METHODS)
        require_transform("target_transform", self.target_transform)
        for name in ("n_draws", "n_warmup", "n_chains"):
            require_count(name, getattr(self, name))
        if self.noise_variance is not None:
            require_positive("noise_variance", self.noise_variance)
        elif self.fixed_noise:
            raise ParameterError("fixed_noise=True keeps noise_variance, but it is None: give it")

    def _procedure(self) -> Procedure:
        return Procedure(
            noise_variance=None,
            fixed_noise=True,
            solver=self.solver,
            learner=None,
            bins=self.bins,
            tol=self.tol,
            max_iter=MAX_ITER[self.solver] if self.max_iter is None else int(self.max_iter),
            learner_tol=FINAL_TOL,
            learner_max_iter=FINAL_MAX_ITER,
            verbose=self.verbose,
        )

    def _pursue(self, prepared: Prepared, random: np.random.Generator) -> Pursued:
        standard, level = prepared.standard, prepared.levels[-1]
        greedily = self.method == "greedy"
        frame = Frame.of(prepared.covariance, self.relevance and not greedily)
        noise = _NOISE_START
        if self.noise_variance is not None:
            noise = float(self.noise_variance) / (standard.spread**2 * standard.weight_scale)
        wanted = wanted_of(self)
        require_memory(self, len(standard.varying))
        with progress("searching", enabled=self.verbose) as bar:
            if greedily:
                fitted = greedy(
                    self._rows_in_memory(prepared),
                    kernel_of(self),
                    n_projections=wanted,
                    n_starts=self.n_starts,
                    noise_variance=noise if self.fixed_noise else None,
                    random=random,
                    watch=lambda step: bar.update(terms=step.terms, value=step.validation),
                )
                noise = noise if self.fixed_noise else max(fitted.noise_variance, NOISE[0])
                state = from_directions(
                    level, frame, fitted.directions, fitted.kernels, noise, self.fixed_noise
                )
            else:
                options = Options(kernel_of(self), wanted, self.n_starts, noise, self.fixed_noise)
                return searched(prepared, frame, options, random, bar)
        state = ordered(level, state)
        trace = [(step.terms, float(step.evidence)) for step in fitted.trace]
        return Pursued(state, trace, fitted.n_searched, relevance(level, state))

    def _sampled(
        self, prepared: Prepared, pursued: Pursued, random: np.random.Generator
    ) -> Sampled:
        with progress("sampling", enabled=self.verbose) as bar:
            return sampled(
                self._rows_in_memory(prepared),
                pursued.state,
                prepared.standard,
                kernel_of(self),
                n_draws=int(self.n_draws),
                n_warmup=int(self.n_warmup),
                n_chains=int(self.n_chains),
                random=random,
                watch=lambda sweeps: bar.update(sweeps=sweeps),
            )

    def _rows_in_memory(self, prepared: Prepared) -> ProjectionRows:
        rows = prepared.levels[-1].rows
        if not isinstance(rows, MemoryRows):
            raise MemoryLimitError(
                f"method={self.method!r} needs all rows in memory, and {prepared.n_rows} rows of "
                f"{len(prepared.standard.varying)} columns are too many: method='refit' streams"
            )
        block = rows.block
        return ProjectionRows(
            block.inputs, block.target, block.weight if len(block.root_weight) else np.empty(0)
        )

    def _keep_pursuit(
        self, source: Source, prepared: Prepared, pursued: Pursued, outcome: Outcome
    ) -> None:
        standard, state = prepared.standard, pursued.state
        self._keep(outcome)
        self._set_columns(source)
        self.constant_columns_ = prepared.constant
        self.n_missing_ = {}
        unit = math.log(standard.spread)
        self.evidence_ = float(state.evidence - state.n_rows * unit)
        self.evidence_trace_ = [
            [int(terms), float(value - pursued.n_traced * unit)] for terms, value in pursued.trace
        ]
        self.search_limited_ = pursued.limited
        # Greedy terms are found one by one, and meet the tolerance of their own searches.
        self.search_gain_ = 0.0 if self.method == "greedy" else float(state.gain)
        self.converged_ = bool(self.converged_ and found_all(self, pursued))
