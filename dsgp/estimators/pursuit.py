"""``ProjectionPursuitGPRegressor``: a sum of functions of projections of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import xarray as xr

from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.estimators.given_terms import GivenTerms
from dsgp.estimators.pursuit_base import PursuitEstimator
from dsgp.kernels import Matern
from dsgp.models.checks import generator
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.gaussian.target import Target
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.pursuit.gaussian import GaussianPursuit
from dsgp.models.sampled import DrawsModel
from dsgp.models.summary import PROJECTED_LEGEND, Summary
from dsgp.rows.sources import source_of
from dsgp.transforms import Transform, require_transform


class ProjectionPursuitGPRegressor(GaussianEstimator, PursuitEstimator):
    r"""Projection pursuit Gaussian process regression.

    .. math:: y_i = \sum_m f_m(x_i \cdot w_m) + \varepsilon_i, \quad
              f_m \sim \mathcal{GP}(0, k_m), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The directions are learned together with the functions. Unlike an additive model, this model
    expresses interactions of the inputs; unlike that of a full Gaussian process, its cost is linear
    in the number of rows. Inputs are standardised within the model: their units do not matter.

    Parameters
    ----------
    kernel : kernel, optional
        Kernel of all functions: ``Matern32()``, ``Matern52()`` (the default) or ``Matern72()``.
        Lengthscales and variances are learned and must not be given.
    n_projections : "auto" or int
        Number of functions. "auto" chooses it by the marginal likelihood (at most 64, and at most
        2048 parameters: 16 plus the number of inputs per function). An int is the number of
        functions; there may be fewer if some turn out to be zero.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        Terms beside the projections, as in ``AdditiveGPRegressor``; their columns are not
        projected. By default, numbers are projected, text and booleans have one effect per level,
        and dates a smooth function (docs/howto/projection-pursuit.md).
    method : {"refit", "greedy", "gibbs"}
        "refit" learns all directions and functions jointly. "greedy" is the paper's PPGPR-greedy,
        and "gibbs" its sampler PPGPR-MCMC, started from "refit"; both need all rows in memory
        (docs/howto/projection-pursuit.md describes the methods).
    relevance : bool
        Learn a precision α_j per input, w_mj ~ N(0, 1/α_j) for all directions, which suppresses
        irrelevant inputs. With False, the model is invariant to rotations of the inputs. Not used
        by "greedy".
    n_starts : int
        Number of initial directions per projection.
    n_draws : int
        Number of draws of "gibbs", of all chains together.
    n_warmup : int
        Number of warm-up sweeps per chain.
    n_chains : int
        Number of independent chains, which run in parallel. At least two are needed to check
        whether they have mixed.
    noise_variance : float, optional
        σ², the noise variance of a row of weight 1: kept with ``fixed_noise``, otherwise learned.
    fixed_noise : bool
    direction_uncertainty : bool
        Include the uncertainty of the directions in standard deviations, covariances and draws, to
        first order around their best values (Laplace's approximation). Draws of "gibbs" always
        include it.
    solver : {"multigrid", "cg", "backfitting"}
        Algorithm for the posterior mean for given directions, as in ``AdditiveGPRegressor``.
    bins : "auto", int or None
        Number of bins per projection, as in ``AdditiveGPRegressor``.
    target_transform : {None, "log", "yeo-johnson"} or Transform
        Transform of a skewed target (docs/howto/skewed.md). Predictions and log likelihoods are
        those of the target; hyperparameters, components and intercept are on the scale of the
        transform.
    tol : float
    max_iter : int, optional
        Maximum number of iterations of the solver.
    random_state : int, optional
        Random seed of the search and of ``sample``. The same seed gives the same model, whatever
        the number of threads or workers, if the rows are kept in memory in both runs or in none.
    verbose : bool
        Show progress bars, if stderr is a terminal.

    Attributes
    ----------
    n_projections_ : int
    projections_ : pandas.DataFrame
        One row per projection and one column per input: the weights of the standardised inputs,
        scaled so that the projection has variance 1. The first projection explains most.
    relevance_ : pandas.Series
        Share of each input in the mean squared gradient of f, for standardised inputs. The sum is
        1.
    evidence_ : float
        Log evidence of the model by Laplace's approximation, directions and functions integrated
        out.
    evidence_trace_ : list of [int, float]
        Number of projections and log evidence after each round of the search, including rejected
        ones; with "greedy" the log marginal likelihood of each residual for one projection.
    search_gain_ : float
        Gain of the log posterior by the last Gauss–Newton step, in nats.
    search_limited_ : bool
        Whether "auto" ended at its limit, while more projections still improved the evidence.
    converged_ : bool
        Whether the last step gained less than 0.02 nats per parameter, no round of the search
        failed, the solver met its tolerance, and the chains of "gibbs" agree. If not, a
        ``ConvergenceWarning`` says why.
    kernels_, noise_variance_, terms_, intercept_, ...
        As in ``AdditiveGPRegressor``, for the additive model in the projections
        ``"projection 1"``, …; ``log_marginal_likelihood_`` is that for given directions.
    draws_ : xarray.Dataset
        With "gibbs": ``directions`` (divided by the lengthscale), ``variances``, ``noise_variance``
        and ``log_likelihood``, by chain and draw. ``noise_variance_`` is the mean of the draws;
        terms, kernels, projections, relevance and evidence are the initial values of the chains.
    diagnostics_ : dict
        With "gibbs": R-hat and effective sample size of the noise variance, of predictions (at 200
        training rows, the 95 % quantile of the one and the 5 % quantile of the other) and of the
        log likelihood. If the chains do not agree (R-hat > 1.1), ``fit`` warns.
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
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
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
        self.terms = terms
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            A table of any kind that ``AdditiveGPRegressor.fit`` takes, with finite numbers. Rows
            that would fill more than a quarter of the free memory, or 2 GB, are read again for
            every step.
        y : array_like of shape (n_rows,), dask collection, or str
            The target, or its name if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            Precision weights: row i has noise variance σ²/w_i. A row of weight 0 is ignored; a
            factor common to all weights changes σ² and nothing else.

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
        fit = GaussianPursuit.of(self.get_params(deep=False))
        asked = GivenTerms.of(None, self.terms)
        require_transform("target_transform", self.target_transform)
        clock = Clock()
        random = generator(self.random_state)
        source = source_of(X, y, sample_weight, wanted=asked.wanted_beside)
        beside = asked.beside(source)
        target = Target.of(source, self.target_transform)
        fitted = fit(target.of_rows(source), beside, target.log_jacobian, random, clock)
        noise_variance = float(fitted.facts.noise_variance or 0.0)
        model = GaussianModel(fitted.latent, noise_variance, target.transform)
        self._take_pursuit(model, fitted, Columns.of(source), clock.finish())
        self._remember(source)
        fit.warn(fitted)
        self._warn_of_skewness(source)
        return self

    # ------------------------------------------------------------------ what was found

    def _drawn(self, name: str) -> DrawsModel:
        latent = self._fitted.latent
        if not isinstance(latent, DrawsModel):
            raise AttributeError(f"there is no {name}: only method='gibbs' draws")
        return latent

    @property
    def draws_(self) -> xr.Dataset:
        """Draws of directions, variances and noise, by chain."""
        return self._drawn("draws_").dataset()

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of noise variance, predictions and log likelihood."""
        return self._drawn("diagnostics_").named_diagnostics()

    # ------------------------------------------------------------------ reporting

    def _summary(self) -> Summary:
        latent = self._fitted.latent
        drawn = isinstance(latent, DrawsModel)
        method = "refit" if drawn else self.method
        summary = self._summary_of_projections(super()._summary(), PROJECTED_LEGEND, method)
        return replace(summary, lines=[*summary.lines, *latent.lines()]) if drawn else summary
