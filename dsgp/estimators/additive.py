"""``AdditiveGPRegressor``: a Gaussian process a column, added up, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from dsgp.addresses import Place
from dsgp.errors import ParameterError
from dsgp.estimators.drawn import DrawnEstimator
from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.estimators.interactions import InteractionEstimator
from dsgp.estimators.updating import UpdatedEstimator
from dsgp.estimators.with_projections import WithProjections
from dsgp.models.checks import generator, require_choice, require_numbers
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.gaussian.basis import Basis
from dsgp.models.gaussian.beyond import Beyond
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.interactions import GaussianFits
from dsgp.models.gaussian.sampling import Sampling
from dsgp.models.gaussian.target import Target
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.interactions.asked import require_interactions
from dsgp.models.interactions.search import with_interactions
from dsgp.models.pursuit.outcome import SearchFacts
from dsgp.priors import HyperPriors
from dsgp.remainder import Remainder
from dsgp.rows.sources import source_of
from dsgp.transforms import Transform, require_transform


class AdditiveGPRegressor(WithProjections, InteractionEstimator, DrawnEstimator, UpdatedEstimator):
    r"""Additive Gaussian process regression.

    .. math:: y_i = \sum_d f_d(x_{id}) + \varepsilon_i, \quad
              f_d \sim \mathcal{GP}(0, k_d), \quad
              \varepsilon_i \sim \mathcal N(0, \sigma^2 / w_i)

    The cost is linear in the number of rows: every step works along one sorted column at a time.
    Large tables are read twice, block by block, into bins; learning and solving then no longer
    depend on the number of rows. Hyperparameters, inputs and outputs are in the units of the data
    throughout.

    Parameters
    ----------
    kernel : kernel, optional
        Of every smooth function without one; None means ``Matern52()``. Parameters given
        are starts for the learner, kept where the kernel marks them ``fixed``.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        What single columns (``x0``, ``x1``, … where the data have no names) are read by: a kernel,
        ``Smooth``, ``Levels``, ``Linear`` or ``Tensor``, its text, or a list of these. All other
        columns keep their defaults: a smooth function of numbers and of dates (in days), an effect
        of each level of text, categories and booleans. A sequence of terms names all there are.
    interactions : "auto", int, or list of pairs of names
        What columns do together beyond what each does by itself, as a ``Tensor`` of two terms of
        single columns: pairs that are named; or so many at most, those that gain most; or, with
        "auto", as many as raise the marginal likelihood by more than chance among so many
        candidates would, 20 at most, and left out again where leave-one-out predictions are worse
        with them (``learner_notes_`` tells). ``interaction_scores_`` says what was considered.
    projections : "auto" or int
        Functions of learned mixtures of the columns of numbers beside the terms, as of
        ``ProjectionPursuitGPRegressor``: so many, or, with "auto", as many as the evidence calls
        for. They are searched for in what the terms leave, and fitted together with them.
    remainder : bool, list of str, or Remainder
        A function of all columns at once beside the terms (True), of some (their names), or with
        settings of its own: a Gaussian process on nearest neighbours, in one posterior with the
        terms. All rows are kept in memory. With ``terms=[]`` there is nothing beside it.
    noise_variance : float, optional
        σ² of a row of weight 1: a start for the learner, which goes down to 10⁻⁶ of the target's
        variance, or to this value if it is smaller.
    fixed_noise : bool
        Keep ``noise_variance`` as given.
    solver : {"multigrid", "cg", "backfitting"}
        How the joint posterior mean is computed: conjugate gradients with a two-level
        preconditioner, or with the smoothers of all terms alone, or the paper's backfitting.
    learner : {"marginal", "vbem", "em", None}
        Maximise the marginal likelihood from sufficient statistics; or the bound of the paper's
        variational Bayes, which also takes over where functions are too rough for the former
        (``learner_`` tells); or the same bound by the paper's EM with expected statistics, for
        Matérn functions of one column, in far more iterations; or keep the given hyperparameters.
        Structure that a learner leaves in the residuals, down to the distance of neighbouring
        points, is learned too.
    method : {None, "gibbs", "plain-gibbs", "collapsed"}
        None: hyperparameters are the ones learned. The others draw them from their posterior,
        with chains that begin at the ones learned; predictions then average over 50 of the draws,
        and their standard deviations and intervals count that hyperparameters are uncertain.
        "gibbs": the paper's Additive-MCMC, one term after the other given all others, at any
        number of distinct values; the hyperparameters of a term are drawn with its function
        integrated out, and by "plain-gibbs" given its function, which moves far less: a reference,
        for levels and Matérn functions of one column. "collapsed": all functions integrated out,
        which mixes faster where inputs are correlated; it needs the marginal likelihood at nodes,
        as "marginal" does.
    n_draws : int
        Draws that are kept, of all chains together.
    n_warmup : int
        Sweeps of each chain before.
    n_chains : int
        Independent chains, which run at the same time. Two or more tell by their agreement how well
        they mix.
    priors : dsgp.priors.HyperPriors, optional
        Of the hyperparameters that are drawn, free of units. None: its defaults, which say little.
    bins : "auto", int or None
        Values of a column that are told apart. None keeps every distinct one, and all rows in
        memory; "auto" does so while that is quick, and takes bins beyond, as many as keep their
        error far below the posterior standard deviation (``bin_error_``), and more of a column
        whose target varies within them. A column with fewer
        distinct values keeps them in any case.
    missing : {"error", "ignore"}
        What NaN in an input means: an error, or that the row gets nothing from that term, as if its
        function were 0 there.
    missing_values : sequence of float
        Numbers that stand for a missing value in the inputs, such as ``[-999]``: they count as NaN,
        in rows to predict too. A target that has one is an error.
    target_transform : {None, "log", "yeo-johnson"} or Transform
        A function of the target that is modelled instead of it: the logarithm of a positive target,
        or the power transform of Yeo and Johnson, whose power is learned. Predictions are in the
        target's unit, and the log likelihoods are those of the target, so that transforms can be
        compared by them; hyperparameters, components and intercept are on the scale of the
        transform. One of ``dsgp.transforms`` with its parameters is taken as it is.
    tol : float
        The solver stops when the error of every component is below ``tol`` of its prior standard
        deviation, by a rigorous bound.
    max_iter : int, optional
        Iterations of the solver at most; by default 500 of "multigrid", 2000 of "cg", 500 sweeps of
        "backfitting".
    learner_tol : float
        "marginal" and "em" stop when no gradient by the log of a hyperparameter is above so many
        nats (by that of the noise, over the square root of N/50);
        "vbem" when an iteration gains fewer.
    learner_max_iter : int
    random_state : int, optional
        Seed of the chains and of ``sample``; without ``method`` fitting draws nothing. The same
        seed gives the same draws, whatever the number of threads or workers. None draws a new one.
    verbose : bool
        Show a progress bar while reading and learning, where stderr is a terminal.

    Attributes
    ----------
    kernels_ : dict of str to kernel
        The fitted kernel of each column; ``covariance(x, y)`` is its dense matrix.
    noise_variance_ : float
    transform_ : Transform or None
        With its learned parameters.
    log_marginal_likelihood_ : float
        Exact with one term; with several the determinant in it is that of a mean field and the
        coarse spaces, for smooth kernels good to a fraction of a nat; of many curves by group it is
        some tens of nats too low.
    effective_dof_ : float
        Of all terms together.
    learner_ : str or None
        The learner that was relied on; ``learner_notes_`` says more.
    learner_trace_ : list of float
        What the learner maximised, as it grew; it never falls. Empty without a learner.
    solver_iterations_ : int
        Of the final solve; 0 where an earlier one was good enough.
    n_iter_ : int
        Evaluations or iterations of the learner, or iterations of the solver without one.
    error_bound_ : float
        The error of any component at any input is at most this many prior standard deviations.
    bin_error_ : float
        About how much bins change the function, in posterior standard deviations; 0 without bins.
    bin_noise_ : float
        Share of the rows' noise that comes from inputs differing within bins. It widens the
        standard deviation of f, and is no part of ``noise_variance_``.
    converged_ : bool
        Whether solver and learner met their tolerances, and no structure is seen to be missed: at
        lengthscales that the learner did not come to, or within the bins that were asked for.
    n_projections_ : int
    projections_, relevance_, evidence_, evidence_trace_, search_gain_, search_limited_
        With ``projections``: as of ``ProjectionPursuitGPRegressor``.
    intercept_ : float
        The prediction where every centred component is 0.
    terms_ : list of Term
        The fitted functions.
    interactions_ : list of tuple of str
        Pairs of terms that interact, in the order in which they were added.
    interaction_scores_ : pandas.DataFrame
        Of a search for interactions, a row for each pair, with what it promised when it was last
        judged (``gain``, in nats of the marginal likelihood, from the residuals by coarse bins),
        in which ``round`` that was, and whether it was ``chosen``.
    draws_ : xarray.Dataset
        With ``method``: the kernels' parameters, ``noise_variance`` and a log likelihood
        (``log_likelihood`` given the functions of "gibbs" and "plain-gibbs",
        ``log_marginal_likelihood`` of "collapsed"), by chain and draw. ``noise_variance_`` is the
        mean of the draws; kernels and log marginal likelihood are those that the chains began at.
    diagnostics_ : dict
        With ``method``: R-hat and effective sample size of every number drawn. Where the worst are
        above 1.05 or below 50, ``fit`` warns. ``inference_data()`` has the draws for ArviZ.
    constant_columns_ : list of str
        Columns with one value only: they contribute nothing.
    used_columns_ : tuple of str
        The others: a table to predict needs no more.
    n_missing_ : dict of str to int
        Rows in which a column was missing.
    fit_seconds_ : dict of str to float
        Wall seconds of each stage of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    Notes
    -----
    Standard deviations are those of the joint posterior: of the sum, and of components with all
    other terms unknown as well. Up to 300 rows (2500 with a
    ``Matern12``) they are exact; beyond, the terms are coupled on coarse spaces and in a mean
    field (docs/mathematics.md has the measured errors: below 1 % for
    smooth kernels). Far from the data they revert to those of the prior.

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
        remainder: bool | Sequence[str] | Remainder = False,
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
            a folder of them, a glob, or a zarr store of columns. What is not in memory streams
            block by block. Finite numbers, dates, text, categories and booleans; missing ones where
            ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            The name of the target where it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            Precision weights: row i has noise variance σ²/w_i. 0 is the same as no row; a factor
            common to all changes σ² and nothing else.
        checkpoint : str, Path or address, optional
            With ``method``: a folder, usually named ``*.zarr``, where the chains are kept on the
            way, twenty times in all. The same fit with it goes on where it was interrupted, and one
            with more draws where it had ended: with the same draws, bit for bit, as without a
            break. It may be deleted afterwards.

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
                'learner="em" learns functions of single columns, and interactions are of two: '
                'take learner="vbem", which has the same optimum, or "marginal"'
            )
        require_choice("missing", self.missing, ("error", "ignore"))
        require_numbers("missing_values", self.missing_values)
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
            wanted=beyond.wanted(asked.wanted),
        )
        heeded = self.learner in ("marginal", "vbem") and self.method is None
        terms = asked.bound(source, priors_count=heeded)
        if self.learner is None:
            require_complete(terms)
            if self.noise_variance is None:
                raise ParameterError(
                    "learner=None keeps the given hyperparameters, but noise_variance is None: "
                    "give it"
                )
        target = Target.of(source, self.target_transform)
        rows = target.of_rows(source)
        found = with_interactions(GaussianFits(fit, rows, clock), terms, self.interactions)
        whole = beyond(found, source, target, terms, clock)
        basis = None
        if whole.pursued is None and whole.beside is None:
            basis = Basis.of(found.outcome.training, target.log_jacobian)
        model = GaussianModel(whole.latent, whole.noise_variance, target.transform, basis)
        facts = whole.facts
        if sampling is not None:
            clock.stage("draw")
            random = generator(self.random_state)
            model, facts = sampling.model(found.outcome, facts, target, random)
        clock.stage("keep")
        self._take(model, facts, Columns.of(source))
        self._forget_search()
        if whole.pursued is not None:
            self._take_search(whole.pursued.search_facts, whole.pursued.relevance)
        self._take_interactions(found)
        self._tell_skewness(source)
        self.fit_seconds_ = clock.finish()
        beyond.warn(whole, fit)
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
