"""``GeneralizedAdditiveGP``: additive Gaussian processes for counts, rates and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from dsgp.estimators.given_terms import GivenTerms, require_complete
from dsgp.estimators.interactions import InteractionEstimator
from dsgp.estimators.response import ResponseEstimator, likelihood_of
from dsgp.likelihoods import Likelihood
from dsgp.models.calendar import warn_of_calendar, with_calendar
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
    method, each step a weighted additive system; with ``solver="backfitting"`` this is local
    scoring. Hyperparameters maximise Laplace's approximate marginal likelihood. The cost is linear
    in the number of rows; large tables are read twice, block by block, and kept as codes of 2 bytes
    per input.

    Parameters
    ----------
    likelihood : str or Likelihood
        ``"poisson"``, ``"bernoulli"``, ``"binomial"``, ``"negative_binomial"``, ``"gamma"``,
        ``"ordered"``, ``"student_t"``, ``"gaussian"``, or an object of ``dsgp.likelihoods``, whose
        free parameters (such as a dispersion) are initial values.
    kernel : kernel, optional
        Kernel of every smooth term without a kernel; None means ``Matern52()``. Given parameters
        are initial values of the learner; those that the kernel marks as ``fixed`` are kept.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        The terms of single columns (docs/howto/categories.md): a mapping replaces the defaults of
        the named columns (``x0``, ``x1``, … for arrays), a sequence replaces all terms. Default: a
        smooth function of numbers and dates (in days), one effect per level of text or booleans.
    interactions : "auto", int, or list of pairs of names
        Interactions of pairs of columns, on the scale of the link function, as in
        ``AdditiveGPRegressor``; with "auto", all pairs that raise Laplace's marginal likelihood by
        more than chance would (docs/howto/interactions.md).
    intercept : float, optional
        The constant b, on the scale of the link function; by default it is learned.
    solver : {"multigrid", "cg", "backfitting"}
        Algorithm for the additive system of a Newton step.
    learner : {"marginal", "independent", None}
        Maximise Laplace's marginal likelihood with the joint determinant of all terms, or with a
        separate determinant per term (as in the paper), or keep the given hyperparameters,
        including those of the likelihood (docs/howto/choosing.md).
    bins : "auto", int or None
        Number of bins per column (docs/howto/large-data.md). None keeps every distinct value, and
        all rows in memory; "auto" bins large tables only (``bin_error_``).
    missing : {"error", "ignore"}
        Whether NaN in an input is an error, or the term of this input contributes nothing to the
        row (docs/howto/missing.md).
    missing_values : sequence of float
        As in ``AdditiveGPRegressor``.
    tol : float
        Newton's iteration ends when a step changes nothing by more than ``tol`` posterior standard
        deviations; the error of every component in the last system is below ``tol`` prior standard
        deviations.
    max_iter : int, optional
        Maximum number of iterations of the solver per Newton step.
    newton_max_iter : int
        Maximum number of Newton steps.
    learner_tol : float
        The learner ends when another step promises fewer nats per free hyperparameter.
    learner_max_iter : int
        Maximum number of modes that the learner computes.
    random_state : int, optional
        Random seed of ``sample``. A fit is not random.
    verbose : bool
        Show a progress bar while reading, learning and solving, if stderr is a terminal.

    Attributes
    ----------
    likelihood_ : Likelihood
        With its fitted parameters.
    kernels_ : dict of str to kernel
    intercept_ : float
        On the scale of the link function: f where every centred component is 0, without offset.
    terms_ : list of Term
        The fitted functions, on the scale of the link function.
    log_marginal_likelihood_ : float
        Laplace's approximation; its determinant is exact with up to 1000 rows, and that of a mean
        field and coarse spaces with more rows.
    effective_dof_ : float
    learner_, learner_trace_, learner_notes_
        As in ``AdditiveGPRegressor``; the trace is the marginal likelihood at nodes.
    interactions_ : list of tuple of str
        Pairs of terms that interact, in the order in which they were added.
    interaction_scores_ : pandas.DataFrame
        As in ``AdditiveGPRegressor``; the expected gains are computed from the gradients and
        weights of the rows at the mode.
    newton_trace_ : list of float
        The objective Ω after each Newton step; it never falls.
    newton_iterations_, solver_iterations_, n_iter_ : int
    error_bound_, bin_error_ : float
    converged_ : bool
    constant_columns_, used_columns_, n_missing_, fit_seconds_, n_features_in_, feature_names_in_
        As in ``AdditiveGPRegressor``.

    Notes
    -----
    Components and their standard deviations are on the scale of the link function. The mean over
    the training rows, weighted by their information (W at the mode), is subtracted. If the
    likelihood is not log-concave (Student-t), the expected information replaces the second
    derivative.

    The variance of a function is learned up to 25 on the scale of a logarithm or a logit, or up to
    the initial value if it is larger: where there are no events, or only one class, the posterior
    is as wide as the prior.

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
            A table of any kind that ``AdditiveGPRegressor.fit`` takes, with finite numbers; NaN is
            allowed with ``missing="ignore"``.
        y : array_like of shape (n_rows,), dask collection, or str
            Targets that the likelihood allows, or the name of the target if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            How often a row counts; a row of weight 0 is ignored.
        offset : array_like of shape (n_rows,), dask collection or str, optional
            What is added to f, on the scale of the link; a column named is no input. From −230 to
            230 (exposures from 1e-100 to 1e100), but for identity links.
        exposure : the same, optional
            Positive numbers, whose logarithms are added as offsets; for rates, with a log link.
        trials : the same, optional
            Numbers of trials of a binomial target, positive whole numbers; 1 if left out.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If a value is missing, infinite, not a number or beyond what float64 can square, a
            target is not allowed by the likelihood, or shapes do not agree.
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
        found = with_calendar(fits, with_interactions(fits, terms, self.interactions))
        outcome = found.outcome
        clock.stage("keep")
        facts = FitFacts.of_laplace(outcome, self.learner).with_notes(found.notes)
        self._take(ResponseModel.of(outcome), facts, Columns.of(source), clock.finish())
        self._take_mode(outcome)
        self._remember(source)
        self._take_interactions(found)
        fit.warn(outcome)
        warn_of_calendar(found.notes)
        return self
