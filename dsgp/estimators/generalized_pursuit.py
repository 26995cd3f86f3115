"""``GeneralizedPursuitGP``: projection pursuit for classes, counts, rates and more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.linalg import LinAlgError

from dsgp.additive import MAX_ITER
from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.estimators.fitting import Reading
from dsgp.estimators.generalized import GeneralizedAdditiveGP, likelihood_of
from dsgp.estimators.inference import Clock
from dsgp.estimators.parameters import generator, require_count
from dsgp.estimators.projected import (
    FINAL_MAX_ITER,
    FINAL_TOL,
    ProjectedFunctions,
    Projections,
    projected_source,
)
from dsgp.estimators.responding import ResponsePredictor, require_meaning
from dsgp.estimators.responses import EXPOSURE, OFFSET, TRIALS, Responses
from dsgp.estimators.scoring import Scoring, ScoringOutcome
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
from dsgp.estimators.summary import Summary
from dsgp.estimators.training import plain_terms
from dsgp.kernels import Matern
from dsgp.likelihoods import Likelihood
from dsgp.progress import progress
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.levels import Prepared, prepare_rows
from dsgp.pursuit.rows import View
from dsgp.pursuit.search import Options
from dsgp.rows.sources import Source, source_of

_LEGEND = (
    "lengthscale: in standard deviations of the projection; std: prior standard deviation of the",
    "function, on the scale of the link; points: distinct values or bins; edf: effective degrees",
    "of freedom; share: variance of the function / variance of f over the rows by how much they",
    "tell (functions may cancel, and shares add up to more than 100 %); direction: the largest",
    "weights of the standardised inputs",
)


@dataclass(frozen=True)
class PursuitFit:
    """What a fit comes to.

    Attributes
    ----------
    prepared : Prepared
    pursued : Pursued
    outcome : ScoringOutcome
        Of the functions, for the directions found.
    scoring : Scoring
    """

    prepared: Prepared
    pursued: Pursued
    outcome: ScoringOutcome
    scoring: Scoring


class GeneralizedPursuitGP(ProjectedFunctions, GeneralizedAdditiveGP):
    r"""Projection pursuit with any likelihood around a sum of functions of projections.

    .. math:: y_i \sim p(y \mid f_i), \quad
              f_i = \text{offset}_i + b + \sum_m f_m(x_i \cdot w_m), \quad
              f_m \sim \mathcal{GP}(0, k_m)

    The directions are learned with everything else, so that the model knows interactions of the
    inputs, and its cost is linear in the number of rows. Functions, directions, kernels and the
    number of projections are found as by ``ProjectionPursuitGPRegressor``, with the likelihood
    linearised around the functions at hand in every step (Newton's method), and Laplace's
    approximation of the evidence. With the directions found, the posterior of the functions is that
    of ``GeneralizedAdditiveGP`` in the projections.

    Parameters
    ----------
    likelihood : str or Likelihood
        As of ``GeneralizedAdditiveGP``: ``"bernoulli"``, ``"poisson"``, …
    kernel : kernel, optional
        Its type is that of all functions: ``Matern32()``, ``Matern52()`` (the default) or
        ``Matern72()``. Lengthscales and variances are learned and must be left open.
    n_projections : "auto" or int
        How many functions. "auto" adds as many as the evidence asks for, up to 64; an int asks for
        so many, and gets fewer only where functions turn out to do nothing.
    relevance : bool
        Give every input a precision, common to all directions, which suppresses inputs that no
        function needs. Without, the model does not change when the inputs are rotated.
    n_starts : int
        Directions that a new projection is fitted from.
    direction_uncertainty : bool
        Count the uncertainty of the directions in the posterior of f, to first order. Probabilities
        and rates are averages over it: without, they are too sure of themselves.
    solver, bins, tol, max_iter, newton_max_iter
        Of the last stage, as of ``GeneralizedAdditiveGP``.
    random_state : int, optional
        Seed of the starts, and of ``sample``. The same seed gives the same model, whatever the
        number of threads or workers, as long as the memory is there to keep the rows, or is not.
    verbose : bool
        Show progress bars, where stderr is a terminal.

    Attributes
    ----------
    n_projections_, projections_, relevance_
        As of ``ProjectionPursuitGPRegressor``.
    evidence_, evidence_trace_, search_gain_, search_limited_
        Likewise: Laplace's approximation with directions and functions integrated out.
    likelihood_, kernels_, terms_, intercept_, log_marginal_likelihood_, newton_trace_, ...
        As of ``GeneralizedAdditiveGP``, for the model in the projections ``"projection 1"``, …,
        given the directions.
    converged_ : bool
        Whether the search ended where its model is best, and the last stage met its tolerances.

    Notes
    -----
    Free parameters of a likelihood (a dispersion, say) are learned after every refit of the search,
    from up to 16 384 rows: they maximise the sum of w [log p(y | f) − ½ v W], v the posterior
    variance of f and W the likelihood's curvature. The last stage takes them over. The constant b
    is that of highest likelihood without any function; the functions make up for the rest.

    With more than 16 384 rows the search begins with so many, and then adds at most half as many
    projections again on all of them; ``search_limited_`` tells where it could have gone on.

    With ``relevance`` a row beyond the range of the training rows has the mean of the nearest point
    within, and the larger one of the standard deviations of the two.

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

    _plain_attributes: ClassVar[tuple[str, ...]] = (
        *ResponsePredictor._plain_attributes,
        *ProjectedFunctions._projected_plain,
        "_response_unit",
    )
    _array_attributes: ClassVar[tuple[str, ...]] = (
        *ResponsePredictor._array_attributes,
        *ProjectedFunctions._projected_arrays,
    )

    _response_unit: float

    def __init__(
        self,
        likelihood: str | Likelihood = "bernoulli",
        kernel: Matern | None = None,
        *,
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

    # ------------------------------------------------------------------ fitting

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
            Of any kind that ``AdditiveGPRegressor.fit`` takes. Finite numbers. Rows that would fill
            more than a quarter of the free memory, or 2 GB, are read again for every step.
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
        require_pursuit(self)
        likelihood = likelihood_of(self.likelihood)
        extra = {OFFSET: offset, EXPOSURE: exposure, TRIALS: trials}
        require_meaning(likelihood, extra)
        clock = Clock()
        random = generator(self.random_state)
        source = source_of(X, y, sample_weight, extra=extra)
        found = self._pursue(source, likelihood, random, clock)
        self.fit_seconds_ = clock.finish()
        found.scoring.warn(found.outcome)
        warn_of_search(self, found.pursued)
        return self

    def _pursue(
        self,
        source: Source,
        likelihood: Likelihood,
        random: np.random.Generator,
        clock: Clock,
        view: View | None = None,
        seen: Callable[[Responses], Responses] = lambda responses: responses,
    ) -> PursuitFit:
        """Fit to a source, all but the warnings; ``view`` of its rows, and ``seen``, are one."""
        with one_blas_thread():
            with progress("reading", source.n_rows, enabled=self.verbose) as bar:
                prepared = prepare_rows(source, random, Reading(bar, clock), likelihood, view)
            if prepared.n_rows < 2:
                raise DataError(
                    "cannot learn directions from 1 sample (n_samples = 1): at least 2 rows of "
                    "positive weight are needed"
                )
            clock.stage("search")
            require_memory(self, len(prepared.standard.varying))
            options = Options(
                kernel_of(self), wanted_of(self), self.n_starts, 1.0, True, prepared.response
            )
            frame = Frame.of(prepared.covariance, self.relevance)
            try:
                with progress("searching", enabled=self.verbose) as bar:
                    pursued = searched(prepared, frame, options, random, bar)
                return self._finished(source, prepared, pursued, clock, seen)
            except LinAlgError as error:
                raise ParameterError(
                    "float64 cannot resolve the functions beside what the rows tell of them: "
                    "rescale columns that are far from 0, or ask for fewer projections"
                ) from error

    def _finished(
        self,
        source: Source,
        prepared: Prepared,
        pursued: Pursued,
        clock: Clock,
        seen: Callable[[Responses], Responses],
    ) -> PursuitFit:
        """Compute the posterior of the functions for the directions found, and keep it all."""
        standard, response = prepared.standard, pursued.state.response
        assert response is not None
        # A box does not turn with the inputs.
        ends = prepared.ends
        if not self.relevance:
            ends = np.full_like(ends, np.inf) * [-1, 1]
        found = Projections.of(pursued.state, standard.centre, standard.scale, ends)
        mapped, kernels = projected_source(source, standard, found, pursued.state, response.unit**2)
        scoring = Scoring(
            intercept=None,
            level=standard.offset,
            solver=self.solver,
            learner=None,
            bins=self.bins,
            tol=self.tol,
            max_iter=MAX_ITER[self.solver] if self.max_iter is None else int(self.max_iter),
            newton_max_iter=int(self.newton_max_iter),
            learner_tol=FINAL_TOL,
            learner_max_iter=FINAL_MAX_ITER,
            random_state=self.random_state,
            verbose=bool(self.verbose),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # said already
            responses = seen(scoring.prepare(mapped, plain_terms(kernels), clock))
        outcome = scoring.fit(responses, response.likelihood, clock)
        with one_blas_thread():
            outcome = scoring.without_structure(outcome, clock)
        clock.stage("keep")
        self._keep_scoring(outcome)
        self._set_columns(source)
        self.constant_columns_ = prepared.constant
        self.n_missing_ = {}
        self.evidence_ = float(pursued.state.evidence)
        self.evidence_trace_ = [[int(terms), float(value)] for terms, value in pursued.trace]
        self.search_limited_ = pursued.limited
        self.search_gain_ = float(pursued.state.gain)
        self._response_unit = float(response.unit)
        self._keep_projections(found, standard.varying, pursued.relevance)
        self.converged_ = bool(self.converged_ and found_all(self, pursued))
        return PursuitFit(prepared, pursued, outcome, scoring)

    # ------------------------------------------------------------------ predicting

    @property
    def _unit(self) -> float:
        return self._response_unit

    # ------------------------------------------------------------------ telling

    def _summary(self) -> Summary:
        return replace(super()._summary(), legend=_LEGEND)


def require_pursuit(model: Any) -> None:
    """Raise ``ParameterError`` if a parameter is out of its range."""
    require_search(model)
    require_count("newton_max_iter", model.newton_max_iter)
