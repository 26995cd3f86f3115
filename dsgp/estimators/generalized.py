"""``GeneralizedAdditiveGP``: additive Gaussian processes for counts, rates and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.estimators.interactions import InteractionEstimator
from dsgp.estimators.response import ResponseEstimator, likelihood_of
from dsgp.likelihoods import Likelihood
from dsgp.models.checks import require_choice, require_numbers
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.interactions.asked import require_interactions
from dsgp.models.interactions.search import with_interactions
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.interactions import LaplaceFits
from dsgp.models.response_model import ResponseModel
from dsgp.rows.response import beside, require_meaning
from dsgp.rows.sources import source_of


class GeneralizedAdditiveGP(InteractionEstimator, ResponseEstimator):
    r"""Generalized additive Gaussian process: any likelihood around a sum of smooth functions.

    .. math:: y_i \sim p(y \mid f_i), \quad f_i = \text{offset}_i + b + \sum_d f_d(x_{id}), \quad
              f_d \sim \mathcal{GP}(0, k_d)

    The posterior is approximated by a Gaussian at its mode (Laplace). The mode is found by Newton's
    method, each step a weighted additive system; with ``solver="backfitting"`` that is local
    scoring. Hyperparameters maximise Laplace's approximate marginal likelihood. The cost is linear
    in the number of rows; large tables are read twice, block by block, into codes of 2 bytes an
    input.

    Parameters
    ----------
    likelihood : str or Likelihood
        ``"poisson"``, ``"bernoulli"``, ``"binomial"``, ``"negative_binomial"``, ``"gamma"``,
        ``"ordered"``, ``"student_t"``, ``"gaussian"``, or an object of ``dsgp.likelihoods``, whose
        free parameters (a dispersion, say) are starts.
    kernel : kernel, optional
        Of every smooth function without one; None means ``Matern52()``. Parameters given
        are starts for the learner, kept where the kernel marks them ``fixed``.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        What single columns (``x0``, ``x1``, … where the data have no names) are read by: a kernel,
        ``Smooth``, ``Levels``, ``Linear`` or ``Tensor``, its text, or a list of these. All other
        columns keep their defaults: a smooth function of numbers and of dates (in days), an effect
        of each level of text, categories and booleans. A sequence of terms names all there are.
    interactions : "auto", int, or list of pairs of names
        What columns do together beyond what each does by itself, on the scale of the link, as of
        ``AdditiveGPRegressor``: pairs that are named; or so many at most, those that gain most; or,
        with "auto", as many as raise Laplace's marginal likelihood by more than chance would, left
        out again where leave-one-out predictions are worse with them (``learner_notes_`` tells).
    intercept : float, optional
        The constant b, on the scale of the link; None finds it.
    solver : {"multigrid", "cg", "backfitting"}
        How the additive system of a Newton step is solved.
    learner : {"marginal", "independent", None}
        Maximise Laplace's marginal likelihood with the determinant of all terms together, or with
        that of the terms as if independent (the paper's), or keep the given hyperparameters (those
        of the likelihood too).
    bins : "auto", int or None
        Values of a column that are told apart. None keeps every distinct one, and all rows in
        memory; "auto" does so for small tables, and takes bins beyond (``bin_error_``).
    missing : {"error", "ignore"}
        What NaN in an input means: an error, or that the row gets nothing from that term.
    missing_values : sequence of float
        As of ``AdditiveGPRegressor``.
    tol : float
        Newton's iteration ends when a step moves nothing by more than ``tol`` posterior standard
        deviations; its last system is solved until the error of every component is below ``tol``
        of its prior standard deviation.
    max_iter : int, optional
        Iterations of the solver in a Newton step at most.
    newton_max_iter : int
        Newton steps at most.
    learner_tol : float
        The learner ends when another step promises fewer nats a free hyperparameter.
    learner_max_iter : int
        Modes that the learner finds at most.
    random_state : int, optional
        Seed of ``sample``. Fitting draws nothing that depends on it.
    verbose : bool
        Show a progress bar while reading, learning and solving, where stderr is a terminal.

    Attributes
    ----------
    likelihood_ : Likelihood
        With its fitted parameters.
    kernels_ : dict of str to kernel
    intercept_ : float
        On the scale of the link: f where every centred component is 0, without offset.
    terms_ : list of Term
        The fitted functions, on the scale of the link.
    log_marginal_likelihood_ : float
        Laplace's approximation; the determinant in it is exact with up to 1000 rows, and that of a
        mean field and coarse spaces beyond.
    effective_dof_ : float
    learner_, learner_trace_, learner_notes_
        As of ``AdditiveGPRegressor``; the trace is the marginal likelihood at nodes.
    interactions_ : list of tuple of str
        Pairs of terms that interact, in the order in which they were added.
    interaction_scores_ : pandas.DataFrame
        As of ``AdditiveGPRegressor``: what each pair promised when it was last judged, from the
        gradients and weights of the rows at the mode.
    newton_trace_ : list of float
        The objective Ω after each Newton step; it never falls.
    newton_iterations_, solver_iterations_, n_iter_ : int
    error_bound_, bin_error_ : float
    converged_ : bool
    constant_columns_, used_columns_, n_missing_, fit_seconds_, n_features_in_, feature_names_in_
        As of ``AdditiveGPRegressor``.

    Notes
    -----
    Components and their standard deviations are on the scale of the link, minus their mean over the
    training rows weighted by how much these tell (their W at the mode). Where the likelihood is not
    log-concave (Student-t) the expected information takes the place of the second derivative.

    The variance of a function is learned up to 25 on the scale of a logarithm or a logit, or a
    start that is wider: where there are no events, or one class only, the posterior is as wide as
    the prior.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, section ``sec:gamgp``: eqs. ``laobj``, ``cool``, ``mdl``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import GeneralizedAdditiveGP
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (500, 2))
    >>> y = rng.poisson(np.exp(np.sin(X[:, 0]) + 0.5))
    >>> model = GeneralizedAdditiveGP("poisson").fit(X, y)
    >>> mean = model.predict([[1.5, 0.0], [-1.5, 0.0]])
    >>> bool(mean[0] > 3 * mean[1])
    True
    """

    def __init__(
        self,
        likelihood: str | Likelihood = "poisson",
        kernel: Any = None,
        *,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        interactions: str | int | Sequence[Sequence[str]] = 0,
        intercept: float | None = None,
        solver: str = "multigrid",
        learner: str | None = "marginal",
        bins: str | int | None = "auto",
        missing: str = "error",
        missing_values: Sequence[float] = (),
        tol: float = 1e-4,
        max_iter: int | None = None,
        newton_max_iter: int = 100,
        learner_tol: float = 1e-3,
        learner_max_iter: int = 50,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.likelihood = likelihood
        self.kernel = kernel
        self.terms = terms
        self.interactions = interactions
        self.intercept = intercept
        self.solver = solver
        self.learner = learner
        self.bins = bins
        self.missing = missing
        self.missing_values = missing_values
        self.tol = tol
        self.max_iter = max_iter
        self.newton_max_iter = newton_max_iter
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
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : table
            Of any kind that ``AdditiveGPRegressor.fit`` takes. Finite numbers; NaN where
            ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            The name of the target where it is a column of X. What it may be the likelihood says.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            How often a row counts; 0 is the same as no row.
        offset : array_like of shape (n_rows,), dask collection or str, optional
            What is added to f, on the scale of the link; a column named is no input.
        exposure : the same, optional
            Positive: its logarithm is an offset. For rates, with a log link.
        trials : the same, optional
            Of a binomial target, positive whole numbers; 1 where it is left out.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If a value is missing, infinite, not a number or beyond what float64 can square, a
            target is none of the likelihood's, or shapes do not agree.
        ParameterError
            If a parameter is out of its range.
        MemoryLimitError
            If the fit would not fit into memory.
        """
        fit = LaplaceFit.of(self.get_params(deep=False))
        require_interactions(self.interactions, self.learner)
        require_choice("missing", self.missing, ("error", "ignore"))
        require_numbers("missing_values", self.missing_values)
        asked = GivenTerms.of(self.kernel, self.terms)
        likelihood = likelihood_of(self.likelihood)
        clock = Clock()
        extra = beside(offset, exposure, trials)
        require_meaning(likelihood, extra)
        source = source_of(
            X,
            y,
            sample_weight,
            missing=self.missing,
            missing_values=self.missing_values,
            extra=extra,
            wanted=asked.wanted,
        )
        terms = asked.bound(source, priors_count=self.learner is not None)
        if self.learner is None:
            require_complete(terms)
        fits = LaplaceFits(fit, likelihood, source, clock)
        found = with_interactions(fits, terms, self.interactions)
        outcome = found.outcome
        clock.stage("keep")
        facts = FitFacts.of_laplace(outcome, self.learner).with_notes(found.notes)
        self._take(ResponseModel.of(outcome), facts, Columns.of(source), clock.finish())
        self._take_mode(outcome)
        self._take_interactions(found)
        fit.warn(outcome)
        return self
