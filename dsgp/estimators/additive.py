"""``AdditiveGPRegressor``: a sum of Gaussian processes, one per column, for scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from dsgp.addresses import Place
from dsgp.errors import ParameterError
from dsgp.estimators.drawn import DrawnEstimator
from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.estimators.interactions import InteractionEstimator
from dsgp.estimators.noise_terms import WithNoiseTerms, both_wanted
from dsgp.estimators.updating import UpdatedEstimator
from dsgp.estimators.with_projections import WithProjections
from dsgp.models.calendar import warn_of_calendar, with_calendar
from dsgp.models.checks import generator, require_choice, require_numbers
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.gaussian.basis import Basis
from dsgp.models.gaussian.beyond import Beyond, Whole
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.interactions import GaussianFits
from dsgp.models.gaussian.sampling import Sampling
from dsgp.models.gaussian.target import Target
from dsgp.models.gaussian.varying import VaryingFit, refitted
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.interactions.asked import require_interactions
from dsgp.models.interactions.search import with_interactions
from dsgp.models.pursuit.outcome import SearchFacts
from dsgp.priors import HyperPriors
from dsgp.remainder import Remainder
from dsgp.rows.sources import Source, source_of
from dsgp.transforms import Transform, require_transform


class AdditiveGPRegressor(
    WithProjections, InteractionEstimator, WithNoiseTerms, DrawnEstimator, UpdatedEstimator
):
    r"""Additive Gaussian process regression.

    .. math:: y_i = \sum_d f_d(x_{id}) + \varepsilon_i, \quad
              f_d \sim \mathcal{GP}(0, k_d), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The cost is linear in the number of rows: every step works along one sorted column at a time.
    Large tables are read twice, block by block, and summed in bins; the cost of learning and
    solving then does not depend on the number of rows. Hyperparameters, inputs and outputs are in
    the units of the data.

    Parameters
    ----------
    kernel : kernel, optional
        Kernel of every smooth term without a kernel; None means ``Matern52()``. Given parameters
        are initial values of the learner; those that the kernel marks as ``fixed`` are kept.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        The terms of single columns (docs/howto/categories.md): a mapping replaces the defaults of
        the named columns (``x0``, ``x1``, … for arrays), a sequence replaces all terms. Default: a
        smooth function of numbers and dates (in days), one effect per level of text or booleans.
    interactions : "auto", int, or list of pairs of names
        Interactions of pairs of columns (docs/howto/interactions.md): the named pairs; the given
        number of best pairs at most; or, with "auto", all pairs (20 at most) that raise the
        marginal likelihood by more than chance would.
    projections : "auto" or int
        Number of functions of learned projections of the numeric columns that are added to the
        terms, as in ``ProjectionPursuitGPRegressor``; "auto" chooses it by the marginal likelihood
        (docs/howto/projection-pursuit.md).
    remainder : bool, "auto", list of str, or Remainder
        Add one function of all columns (True) or of the named columns, for interactions beyond
        pairs: a Gaussian process computed from nearest neighbours (docs/howto/remainder.md). "auto"
        leaves it out where it does not gain over noise. All rows are kept in memory.
    noise_terms : bool, mapping of str to term, or sequence of terms, optional
        What the noise variance depends on (docs/howto/varying-noise.md): log σ²(x) is a sum of
        functions of these terms, learned in turn with the mean. True: the default term of every
        column; a mapping or sequence is as ``terms``. None: one variance for all rows. Rows count
        by 1/σ²(x): where that makes the mean worse, ``fit`` warns.
    noise_variance : float, optional
        Initial value of σ², the noise variance of a row of weight 1. The learned value is at least
        10⁻⁶ of the target's variance, or this value if it is smaller.
    fixed_noise : bool
        Keep ``noise_variance`` as given.
    solver : {"multigrid", "cg", "backfitting"}
        Algorithm for the joint posterior mean: conjugate gradients with a two-level preconditioner
        or with the smoothers of the single terms, or the paper's backfitting
        (docs/howto/choosing.md).
    learner : {"marginal", "vbem", "em", None}
        How hyperparameters are learned: by the marginal likelihood ("vbem" is used instead if
        functions are too rough for it); by the paper's variational bound ("vbem", "em"); or not at
        all (docs/howto/choosing.md).
    method : {None, "gibbs", "plain-gibbs", "collapsed"}
        None keeps the learned hyperparameters. The others draw them from their posterior by
        Markov chain Monte Carlo, and predictions average over 50 of the draws
        (docs/howto/mcmc.md has what each sampler does and when to use it).
    n_draws : int
        Number of draws of all chains together.
    n_warmup : int
        Number of warm-up sweeps per chain.
    n_chains : int
        Number of independent chains, which run in parallel. At least two are needed to check
        whether they have mixed.
    priors : dsgp.priors.HyperPriors, optional
        Priors of the hyperparameters that are drawn, without units. None means its weakly
        informative defaults.
    bins : "auto", int or None
        Number of bins per column (docs/howto/large-data.md). None keeps every distinct value, and
        all rows in memory. "auto" bins large tables only, with enough bins for an error
        (``bin_error_``) far below the posterior standard deviation.
    missing : {"error", "ignore"}
        Whether NaN in an input is an error, or the term of this input contributes nothing to the
        row (docs/howto/missing.md).
    missing_values : sequence of float
        Numbers that stand for a missing value in the inputs, such as ``[-999]``: they are treated
        as NaN, also in rows to predict. In the target they are an error.
    target_transform : {None, "log", "yeo-johnson"} or Transform
        Transform of a skewed target (docs/howto/skewed.md). Predictions and log likelihoods are
        those of the target; hyperparameters, components and intercept are on the scale of the
        transform.
    tol : float
        Tolerance of the solver: a rigorous bound on the error of every component, in prior standard
        deviations.
    max_iter : int, optional
        Maximum number of iterations of the solver; by default 500 for "multigrid", 2000 for "cg"
        and 500 sweeps for "backfitting".
    learner_tol : float
        Tolerance of the learner, in nats: "marginal" and "em" stop when no gradient by the log of a
        hyperparameter is larger (that of the noise is divided by √(N/50)), "vbem" when an iteration
        gains less.
    learner_max_iter : int
        Maximum number of iterations of the learner.
    random_state : int, optional
        Random seed of the chains and of ``sample``; without ``method``, a fit is not random. The
        same seed gives the same draws, whatever the number of threads or workers.
    verbose : bool
        Show a progress bar while reading and learning, if stderr is a terminal.

    Attributes
    ----------
    kernels_ : dict of str to kernel
        The fitted kernel of each column; ``covariance(x, y)`` is its dense matrix.
    noise_variance_ : float
        Noise variance of a row of weight 1; with ``noise_terms``, of a row where all noise terms
        are at their means.
    noise_ : GeneralizedAdditiveGP
        With ``noise_terms``: log σ²(x). ``noise_.predict(X)`` is the expected noise variance,
        ``plot_components(model.noise_)`` draws what it depends on.
    transform_ : Transform or None
        With its learned parameters.
    log_marginal_likelihood_ : float
        Exact with one term. With several terms its determinant is approximate (mean field and
        coarse spaces): accurate to a fraction of a nat for smooth kernels, and some tens of nats
        too low for many curves by group.
    effective_dof_ : float
        Effective degrees of freedom of all terms together.
    learner_ : str or None
        The learner used; ``learner_notes_`` has details.
    learner_trace_ : list of float
        The objective of the learner, which never decreases. Empty without a learner.
    solver_iterations_ : int
        Iterations of the final solve; 0 if an earlier one was accurate enough.
    n_iter_ : int
        Evaluations or iterations of the learner, or iterations of the solver without one.
    error_bound_ : float
        The error of any component at any input is at most this many prior standard deviations.
    bin_error_ : float
        About how much bins change the function, in posterior standard deviations; 0 without bins.
    bin_noise_ : float
        Share of the rows' noise that is due to different inputs within bins. It increases the
        standard deviation of f, and is not included in ``noise_variance_``.
    converged_ : bool
        Whether solver and learner met their tolerances, and no structure was detected that the fit
        misses: at lengthscales that the learner did not reach, or within the given bins.
    n_projections_ : int
    projections_, relevance_, evidence_, evidence_trace_, search_gain_, search_limited_
        With ``projections``: as in ``ProjectionPursuitGPRegressor``.
    intercept_ : float
        The prediction where every centred component is 0.
    terms_ : list of Term
        The fitted functions.
    interactions_ : list of tuple of str
        Pairs of terms that interact, in the order in which they were added.
    interaction_scores_ : pandas.DataFrame
        One row per pair that a search for interactions considered: its expected ``gain`` (nats of
        the marginal likelihood, from the residuals in coarse bins) when it was last evaluated, the
        ``round`` of this evaluation, and whether it was ``chosen``.
    draws_ : xarray.Dataset
        With ``method``: the kernels' parameters, ``noise_variance`` and a log likelihood
        (``log_likelihood`` given the functions of "gibbs" and "plain-gibbs",
        ``log_marginal_likelihood`` of "collapsed"), by chain and draw. ``noise_variance_`` is the
        mean of the draws; kernels and log marginal likelihood are the initial values of the chains.
    diagnostics_ : dict
        With ``method``: R-hat and effective sample size of every number drawn. If the worst are
        above 1.05 or below 50, ``fit`` warns. ``inference_data()`` has the draws for ArviZ.
    constant_columns_ : list of str
        Columns with one value only: they contribute nothing.
    used_columns_ : tuple of str
        All other columns: a table to predict needs only these.
    n_missing_ : dict of str to int
        Rows in which a column was missing.
    fit_seconds_ : dict of str to float
        Wall seconds of each stage of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns, if the data have names.

    Notes
    -----
    Standard deviations, of the sum and of components, are those of the joint posterior of all
    terms. Up to 300 rows (2500 with a ``Matern12``) they are exact; with more rows, the terms are
    coupled on coarse spaces and in a mean field (docs/mathematics.md has the measured errors: below
    1 % for smooth kernels). Far from the data they revert to those of the prior.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*: Algorithm ``alg:bfgp``, section ``sec:gpvb``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (300, 2))
    >>> y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(300)
    >>> model = AdditiveGPRegressor().fit(X, y)
    >>> mean, std = model.predict([[1.0, 0.0], [0.0, 2.0]], return_std=True)
    >>> bool(np.all(np.abs(mean - [np.sin(1.0), 0.6]) < 0.1))
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        interactions: str | int | Sequence[Sequence[str]] = 0,
        projections: str | int = 0,
        remainder: bool | str | Sequence[str] | Remainder = False,
        noise_terms: bool | Mapping[str, Any] | Sequence[Any] | None = None,
        noise_variance: float | None = None,
        fixed_noise: bool = False,
        solver: str = "multigrid",
        learner: str | None = "marginal",
        method: str | None = None,
        n_draws: int = 400,
        n_warmup: int = 200,
        n_chains: int = 2,
        priors: HyperPriors | None = None,
        bins: str | int | None = "auto",
        missing: str = "error",
        missing_values: Sequence[float] = (),
        target_transform: str | Transform | None = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        learner_tol: float = 0.1,
        learner_max_iter: int = 100,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.terms = terms
        self.interactions = interactions
        self.projections = projections
        self.remainder = remainder
        self.noise_terms = noise_terms
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
        self.solver = solver
        self.learner = learner
        self.method = method
        self.n_draws = n_draws
        self.n_warmup = n_warmup
        self.n_chains = n_chains
        self.priors = priors
        self.bins = bins
        self.missing = missing
        self.missing_values = missing_values
        self.target_transform = target_transform
        self.tol = tol
        self.max_iter = max_iter
        self.learner_tol = learner_tol
        self.learner_max_iter = learner_max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: str | Place | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            An array of shape (n_rows, n_columns), a data frame of pandas, polars, pyarrow, DuckDB
            or dask, whose columns have names, a mapping of names to columns, a dask array, an
            xarray dataset of one dimension, or the path of a table on disk: a CSV or Parquet file,
            a folder of them, a glob, or a zarr store of columns. Tables that are not in memory are
            read block by block. Values are finite numbers, dates, text, categories and booleans;
            they may be missing with ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            The target, or its name if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            Precision weights: row i has noise variance σ²/w_i. A row of weight 0 is ignored; a
            factor common to all weights changes σ² and nothing else.
        checkpoint : str, Path or address, optional
            With ``method``: a folder, usually named ``*.zarr``, to which the chains are saved
            twenty times. The same fit resumes an interrupted run, and a fit with more draws
            continues a finished one, with the same draws, bit for bit, as an uninterrupted run. The
            folder may be deleted afterwards.

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
        StorageError
            If ``checkpoint`` cannot be written, is something else, or has chains of other rows or
            other settings, which are named.
        """
        fit = GaussianFit.of(self.get_params(deep=False))
        sampling = Sampling.of(self.get_params(deep=False), fit.max_iter, checkpoint)
        require_interactions(self.interactions, self.learner)
        if self.interactions and self.learner == "em":
            raise ParameterError(
                'learner="em" learns functions of single columns, and interactions are functions '
                'of two: use learner="vbem", which has the same optimum, or "marginal"'
            )
        require_choice("missing", self.missing, ("error", "ignore"))
        require_numbers("missing_values", self.missing_values)
        varying = VaryingFit.of(self.get_params(deep=False))
        noise_asked = self._noise_asked()
        beyond = Beyond.of(self.get_params(deep=False))
        asked = GivenTerms.of(self.kernel, self.terms, may_be_empty=beyond.remainder is not None)
        require_transform("target_transform", self.target_transform)
        clock = Clock()
        source = source_of(
            X,
            y,
            sample_weight,
            missing=self.missing,
            missing_values=self.missing_values,
            wanted=both_wanted(beyond.wanted(asked.wanted), noise_asked),
        )
        priors_count = self.learner in ("marginal", "vbem") and self.method is None
        terms = asked.bound(source, priors_count=priors_count)
        if self.learner is None:
            require_complete(terms)
            if self.noise_variance is None:
                raise ParameterError(
                    "learner=None keeps the given hyperparameters, but noise_variance is None: "
                    "give it"
                )
        target = Target.of(source, self.target_transform)

        def fitted(rows: Source, before: Whole | None) -> Whole:
            fits = GaussianFits(fit, target.of_rows(rows), clock)
            if before is None:
                found = with_calendar(fits, with_interactions(fits, terms, self.interactions))
            else:
                found = refitted(fits, before.found, terms)
            return beyond(found, rows, target, terms, clock)

        noisy = None
        if varying is None or noise_asked is None:
            whole = fitted(source, None)
        else:
            noisy = varying(fitted, source, target, noise_asked.bound(source), clock)
            whole = noisy.as_whole()
        facts, found = whole.facts, whole.found
        basis = None
        # A remainder that was left out leaves the terms as they were.
        alone = whole.pursued is None and whole.latent is found.outcome.model()
        if alone and noisy is None:
            basis = Basis.of(found.outcome.training, target.log_jacobian)
        model = GaussianModel(
            whole.latent,
            whole.noise_variance,
            target.transform,
            basis,
            None if noisy is None else noisy.noise,
        )
        if sampling is not None:
            clock.stage("draw")
            random = generator(self.random_state)
            model, facts = sampling.model(found.outcome, facts, target, random)
        clock.stage("keep")
        self._take(model, facts, Columns.of(source))
        self._take_noise(noisy, Columns.of(source))
        self._remember(source)
        self._forget_search()
        if whole.pursued is not None:
            self._take_search(whole.pursued.search_facts, whole.pursued.relevance)
        self._take_interactions(found)
        self._warn_of_skewness(source)
        self.fit_seconds_ = clock.finish()
        beyond.warn(whole, fit)
        warn_of_calendar(facts.learner_notes)
        if noisy is not None:
            noisy.warn()
        if sampling is not None:
            self._mixture("draws_").draws.warn()
        return self

    def _fitted_settings(self) -> dict[str, Any]:
        kept = self._search_facts.shown() if hasattr(self, "projections_") else {}
        return super()._fitted_settings() | kept

    @classmethod
    def _restore(cls, settings: dict[str, Any], tree: dict[str, Any]) -> Self:
        model = super()._restore(settings, tree)
        if "_used" in settings["fitted"]:
            facts = SearchFacts.of_settings(settings["fitted"])
            model._take_search(facts, np.asarray(tree["fitted"]["_relevance"]))
        return model
