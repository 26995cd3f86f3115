"""``GeneralizedPursuitGP``: projection pursuit for classes, counts, rates and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from dsgp.estimators.given_terms import GivenTerms
from dsgp.estimators.pursuit_base import PursuitEstimator
from dsgp.estimators.response import ResponseEstimator, likelihood_of
from dsgp.kernels import Matern
from dsgp.likelihoods import Likelihood
from dsgp.models.checks import generator
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.pursuit.outcome import PursuitOutcome
from dsgp.models.pursuit.response import ResponsePursuit
from dsgp.models.response_model import ResponseModel
from dsgp.models.summary import PROJECTED_RESPONSE_LEGEND, Summary
from dsgp.rows.response import beside, require_meaning
from dsgp.rows.sources import source_of


class GeneralizedPursuitGP(ResponseEstimator, PursuitEstimator):
    r"""Projection pursuit with any likelihood around a sum of functions of projections.

    .. math:: y_i \sim p(y \mid f_i), \quad
              f_i = \text{offset}_i + b + \sum_m f_m(x_i \cdot w_m), \quad
              f_m \sim \mathcal{GP}(0, k_m)

    The directions are learned together with the functions, so that the model expresses interactions
    of the inputs, and its cost is linear in the number of rows. Functions, directions, kernels and
    the number of projections are learned as in ``ProjectionPursuitGPRegressor``, with the
    likelihood linearised around the current functions in every step (Newton's method), and
    Laplace's approximation of the evidence. For the learned directions, the posterior of the
    functions is that of ``GeneralizedAdditiveGP`` in the projections.

    Parameters
    ----------
    likelihood : str or Likelihood
        As in ``GeneralizedAdditiveGP``: ``"poisson"``, ``"bernoulli"``, …
    kernel : kernel, optional
        Kernel of all functions: ``Matern32()``, ``Matern52()`` (the default) or ``Matern72()``.
        Lengthscales and variances are learned and must not be given.
    n_projections : "auto" or int
        Number of functions. "auto" chooses it by the marginal likelihood, up to 64. With an int,
        there may be fewer if some functions turn out to be zero.
    terms : mapping of str to term or kernel, or sequence of terms, optional
        Terms beside the projections, as in ``AdditiveGPRegressor``; their columns are not
        projected. By default, numbers are projected, text and booleans have one effect per level,
        and dates a smooth function (docs/howto/projection-pursuit.md).
    relevance : bool
        Learn a precision per input, common to all directions, which suppresses irrelevant inputs.
        With False, the model is invariant to rotations of the inputs.
    n_starts : int
        Number of initial directions per projection.
    direction_uncertainty : bool
        Include the uncertainty of the directions in the posterior of f, to first order. With False,
        probabilities are too extreme, because they are averages over a posterior that is too
        narrow.
    solver, bins, tol, max_iter, newton_max_iter
        Options of the last stage, as in ``GeneralizedAdditiveGP``.
    random_state : int, optional
        Random seed of the search and of ``sample``. The same seed gives the same model, whatever
        the number of threads or workers, if the rows are kept in memory in both runs or in none.
    verbose : bool
        Show progress bars, if stderr is a terminal.

    Attributes
    ----------
    n_projections_, projections_, relevance_
        As in ``ProjectionPursuitGPRegressor``.
    evidence_, evidence_trace_, search_gain_, search_limited_
        Likewise: Laplace's approximation with directions and functions integrated out.
    likelihood_, kernels_, terms_, intercept_, log_marginal_likelihood_, newton_trace_, ...
        As in ``GeneralizedAdditiveGP``, for the model in the projections ``"projection 1"``, …,
        given the directions.
    converged_ : bool
        Whether the search ended where its model is best, and the last stage met its tolerances.

    Notes
    -----
    Free parameters of a likelihood (such as a dispersion) are learned after every refit of the
    search, from up to 16 384 rows: they maximise the sum of w [log p(y | f) − ½ v W], where v is
    the posterior variance of f and W the curvature of the likelihood. The last stage uses the same
    values. The constant b is that of highest likelihood without any function.

    With more than 16 384 rows, the search first uses 16 384 of them, and then adds at most half as
    many projections again with all rows; ``search_limited_`` is True if more might have helped.

    With ``relevance``, a row outside the range of the training rows has the mean of the nearest
    point within the range, and the larger of the standard deviations at the two.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*: sections ``sec:ppgp`` and ``sec:gamgp``.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import GeneralizedPursuitGP
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (600, 3))
    >>> y = rng.poisson(np.exp(1 + 2 * X[:, 0] * X[:, 1]))
    >>> model = GeneralizedPursuitGP("poisson", random_state=0).fit(X, y)
    >>> high, low = model.predict([[0.9, 0.9, 0.0], [0.9, -0.9, 0.0]])
    >>> bool(high > 8 * low)
    True
    >>> model.relevance_.round(1).to_list()
    [0.5, 0.5, 0.0]
    """

    def __init__(
        self,
        likelihood: str | Likelihood = "poisson",
        kernel: Matern | None = None,
        *,
        terms: Mapping[str, Any] | Sequence[Any] | None = None,
        n_projections: str | int = "auto",
        relevance: bool = True,
        n_starts: int = 10,
        direction_uncertainty: bool = True,
        solver: str = "multigrid",
        bins: str | int | None = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        newton_max_iter: int = 100,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.likelihood = likelihood
        self.kernel = kernel
        self.terms = terms
        self.n_projections = n_projections
        self.relevance = relevance
        self.n_starts = n_starts
        self.direction_uncertainty = direction_uncertainty
        self.solver = solver
        self.bins = bins
        self.tol = tol
        self.max_iter = max_iter
        self.newton_max_iter = newton_max_iter
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
            A table of any kind that ``AdditiveGPRegressor.fit`` takes, with finite numbers. Rows
            that would fill more than a quarter of the free memory, or 2 GB, are read again for
            every step.
        y : array_like of shape (n_rows,), dask collection, or str
            Targets that the likelihood allows, or the name of the target if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            How often a row counts; a row of weight 0 is ignored.
        offset : array_like of shape (n_rows,), dask collection or str, optional
            A known number that is added to f, on the scale of the link function; a column that is
            named here is not an input.
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
        fit = ResponsePursuit.of(self.get_params(deep=False))
        asked = GivenTerms.of(None, self.terms)
        likelihood = likelihood_of(self.likelihood)
        extra = beside(offset, exposure, trials)
        require_meaning(likelihood, extra)
        clock = Clock()
        random = generator(self.random_state)
        source = source_of(X, y, sample_weight, extra=extra, wanted=asked.wanted_beside)
        fitted = fit(source, asked.beside(source), likelihood, random, clock)
        self._take_fitted(fitted, Columns.of(source), clock.finish())
        self._remember(source)
        fit.warn(fitted)
        return self

    def _take_fitted(
        self, fitted: PursuitOutcome, columns: Columns, fit_seconds: dict[str, float]
    ) -> None:
        """Take over what a fit came to."""
        model = ResponseModel.of(fitted.outcome, fitted.latent)
        self._take_pursuit(model, fitted, columns, fit_seconds)
        self._take_mode(fitted.outcome)

    # ------------------------------------------------------------------ reporting

    def _summary(self) -> Summary:
        return self._summary_of_projections(super()._summary(), PROJECTED_RESPONSE_LEGEND, "refit")
