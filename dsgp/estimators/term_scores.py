"""Whether terms are zero: a score test of single terms of a fitted model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dsgp.additive import MAX_ITER, AdditiveSystem, Equations, Pair, Solution
from dsgp.additive.multigrid import multigrid
from dsgp.compute import one_blas_thread
from dsgp.errors import ConvergenceWarning, DataWarning, ParameterError
from dsgp.kernels import CentredProduct, Independent, Kernel
from dsgp.learning.score_tests import (
    KernelTest,
    Score,
    combined,
    kernel_test,
    kernels_tried,
    score_of,
)
from dsgp.learning.search import NOISE, search_for, without_starts
from dsgp.models.gaussian.structure import learn_from, lengthscales_given
from dsgp.models.remainder import RemainderModel

# A term that explains less than this share of what all are to explain may have shrunk for the sake
# of the tested one: without that it begins again.
_SHRUNK = 1e-3
# Of learning without a term, in nats, and of its solves.
_LEARNER_TOL, _LEARNER_MAX_ITER = 0.1, 100
_SOLVE_TOL = 1e-2
# Error of the solves for a score beyond which it is warned of, in prior standard deviations; the
# score is good to its square.
_ACCEPTED = 1e-2


def term_tests(model: Any, terms: Iterable[str] | None = None) -> pd.DataFrame:
    r"""Score tests of single terms: whether a term is zero, given all other terms.

    .. math:: q = \tfrac12\, y^\top P K P y, \quad
              P = \Sigma^{-1} - \Sigma^{-1} 1 (1^\top \Sigma^{-1} 1)^{-1} 1^\top \Sigma^{-1}

    with :math:`\Sigma` the covariance of the targets in the model without the term: the score of
    the variance of the term at 0, for its covariance K at the rows. The p-value is the probability
    of a larger ratio of q to the noise variance that the model without the term leaves, if the term
    is zero: that of a ratio of weighted sums of χ² variables, computed to rounding.

    Parameters
    ----------
    model : AdditiveGPRegressor or GeneralizedAdditiveGP, fitted
        For a classifier, pass one of its ``estimators_``. The rows are not needed again.
    terms : iterable of str, optional
        Names of the terms to test; by default all.

    Returns
    -------
    pandas.DataFrame
        One row per term. ``tested`` names the kernels of the test; ``lengthscale`` (in units of the
        column) is that of the kernel with the smallest p-value, and ``statistic`` its q divided by
        the expectation of q for a term that is zero; ``p_value`` is that of all kernels together,
        at least 1e-300. NaN, with a warning, if the other terms and the constant explain everything
        that the rows say about the term.

    Raises
    ------
    ParameterError
        If the model is not one additive model, or has no such term.

    Warns
    -----
    ConvergenceWarning
        If learning the hyperparameters without a term, or the solves for its score, did not
        converge.

    Notes
    -----
    For each term, the hyperparameters of all others are learned again without it, from sums that
    the fitted model keeps; this takes about as long as the learning in the fit. With
    ``learner=None`` they stay as they are.

    A function that is zero has no lengthscale. Kernels of the term's type with lengthscales of
    2, ½ and ⅛ of the width of the bulk of the rows (of its period, where it has one) are tested,
    and their p-values combined by Cauchy's distribution (Liu and Xie 2020). A fixed lengthscale is
    kept. Levels have none. With more than 480 levels, or 60 curves of groups, those with most rows
    are tested.

    For a generalized model, the score is that of its working model at the fit with all terms, and
    the noise variance is known unless the likelihood has a learned dispersion. docs/mathematics.md
    has the measured shares of p-values below 0.05 for terms that are zero: about 5 %, and less for
    binary targets. For a class of a softmax, the functions of the other classes are treated as
    known; no share was measured there.

    Each p-value is for one term, given all others: two terms that can explain the same effect may
    both have large ones. For a statement about all terms, multiply p-values by the number of terms.

    References
    ----------
    Zhang and Lin, *Hypothesis testing in semiparametric additive mixed models*, Biostatistics 4
    (2003), section 3. Liu and Xie, *Cauchy combination test*, JASA 115 (2020), eq. 2.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp import AdditiveGPRegressor, term_tests
    >>> rng = np.random.default_rng(0)
    >>> X = {"a": rng.uniform(-3, 3, 200), "b": rng.uniform(-3, 3, 200)}
    >>> y = np.sin(X["a"]) + 0.5 * rng.standard_normal(200)
    >>> tests = term_tests(AdditiveGPRegressor().fit(X, y))
    >>> bool(tests.loc["a", "p_value"] < 1e-6), bool(tests.loc["b", "p_value"] > 0.05)
    (True, True)
    """
    check_is_fitted(model)
    _require_one_model(model)
    names = [term.name for term in model.terms_]
    wanted = names if terms is None else list(terms)
    if unknown := [name for name in wanted if name not in names]:
        raise ParameterError(f"terms names {unknown}; the model has the terms {names}")
    equations = _complete_equations(model)
    with one_blas_thread():
        rows = [_row(model, equations, names.index(name)) for name in wanted]
    columns = ["tested", "lengthscale", "statistic", "p_value"]
    return pd.DataFrame(rows, index=pd.Index(wanted, name="term"), columns=columns)


def _require_one_model(model: Any) -> None:
    if hasattr(model, "projections_"):
        raise ParameterError(
            f"{type(model).__name__} has learned directions for its terms: a test of a term that "
            "was chosen by the same rows would find an effect where there is none; "
            "component_bands shows how far its functions are from zero"
        )
    if isinstance(getattr(getattr(model, "model_", None), "latent", None), RemainderModel):
        raise ParameterError(
            "the model has a remainder, which the tests of terms do not account for: fit it "
            "without one (remainder=False) to test its terms"
        )
    if not hasattr(model, "sample_components"):
        raise ParameterError(
            f"term_tests is for the terms of one additive model, got {type(model).__name__}: for a "
            "classifier, pass one of its estimators_"
        )


def _is_working(model: Any) -> bool:
    """Whether the equations are those of a working model, whose noise variance is 1."""
    return hasattr(model, "likelihood_")


def _has_known_noise(model: Any) -> bool:
    """Whether that 1 is known: it is not where the dispersion of the targets was learned."""
    if not _is_working(model):
        return False
    likelihood = model.likelihood_
    return likelihood.name == "ordered" or not len(likelihood.unconstrained())


def _complete_equations(model: Any) -> Equations:
    """Equations of the fit; of a working model with squared targets, which it does not keep."""
    equations: Equations = model.model_.latent.equations
    if not _is_working(model) or not model.terms_:
        return equations
    mean = np.concatenate([term.cells.multiply(term.kernel, term.dual) for term in model.terms_])
    fit = float(np.sum(mean * (2 * equations.information - equations.multiply(mean))))
    # Residuals of working targets have a variance of 1.
    return replace(equations, quadratic=fit + equations.n_rows)


def _row(model: Any, equations: Equations, term: int) -> tuple[str, float, float, float]:
    """Test one term: the row of the table."""
    kernel, name = model.terms_[term].kernel, model.terms_[term].name
    others, noise_variance = _without(model, equations, term)
    score = score_of(equations, term, kernel, others, noise_variance)
    if score.error_bound > _ACCEPTED:
        warnings.warn(
            f"the solves for the score of term {name!r} stopped above their tolerance (error "
            f"bound {score.error_bound:.2g} prior standard deviations): its p-value is approximate",
            ConvergenceWarning,
            stacklevel=3,
        )
    weight = equations.layout.part(equations.weight, term)
    tried = [
        kernel_test(score, one, known_noise=_has_known_noise(model))
        for one in kernels_tried(kernel, equations.layout.cells[term], weight)
    ]
    answers = [one for one in tried if not math.isnan(one.p_value)]
    what = _described(tried, score)
    if not answers:
        warnings.warn(
            f"the other terms and the constant explain everything that the rows say about term "
            f"{name!r}: whether it is zero cannot be tested",
            DataWarning,
            stacklevel=3,
        )
        return what, math.nan, math.nan, math.nan
    best = min(answers, key=lambda one: one.p_value)
    lengthscales = lengthscales_given(best.kernel)
    lengthscale = lengthscales[0] if len(lengthscales) == 1 else math.nan
    return what, lengthscale, best.statistic, combined([one.p_value for one in answers])


def _without(model: Any, equations: Equations, term: int) -> tuple[list[Kernel], float]:
    """Kernels of the other terms and the noise variance, learned without the term.

    In the units of the equations.
    """
    scale = model.model_.latent.information_scale
    noise_variance = model.model_.latent.row_variance / scale**2
    left = [d for d in range(len(model.terms_)) if d != term]
    kernels = [model.terms_[d].kernel.scaled(1 / scale) for d in left]
    if model.learner is None or not left:
        return kernels, noise_variance
    reduced = equations.without(term)
    least = _SHRUNK * model.target_variance_
    starts = [
        _restarted(kernel, reduced, position)
        if model.terms_[d].explained_variance < least
        else kernel
        for position, (d, kernel) in enumerate(zip(left, kernels, strict=True))
    ]
    known = _is_working(model) or model.fixed_noise
    bounds = (noise_variance,) * 2 if known else (min(NOISE[0], noise_variance), NOISE[1])
    learned = learn_from(
        reduced,
        starts,
        noise_variance,
        bounds,
        solve=_solve_roughly,
        tol=_LEARNER_TOL,
        max_iter=_LEARNER_MAX_ITER,
        watch=lambda value: None,
    )
    if not learned.converged:
        warnings.warn(
            f"the hyperparameters without term {model.terms_[term].name!r} stopped after "
            f"{_LEARNER_MAX_ITER} iterations, before they converged: its p-value is approximate",
            ConvergenceWarning,
            stacklevel=4,
        )
    return learned.kernels, learned.noise_variance


def _restarted(kernel: Kernel, equations: Equations, term: int) -> Kernel:
    """Return the kernel with the values that its free parameters begin with."""
    layout = equations.layout
    search = search_for(
        without_starts(kernel),
        layout.cells[term],
        layout.part(equations.weight, term),
        layout.n_terms,
    )
    return search.middle


def _solve_roughly(system: AdditiveSystem, start: Pair | None) -> Solution:
    return multigrid(system, tol=_SOLVE_TOL, max_iter=MAX_ITER["multigrid"], start=start)


def _described(tried: list[KernelTest], score: Score) -> str:
    """Say which kernels were tested, and on how many levels where there are no lengthscales."""
    kernel = tried[0].kernel
    kind, cells = type(kernel).__name__, "levels"
    if isinstance(kernel, CentredProduct):
        sides = [
            "levels" if isinstance(part, Independent) else type(part).__name__
            for part in kernel.parts
        ]
        kind, cells = f"interaction of {' and '.join(sides)}", "pairs"
    lengths = [lengthscales_given(one.kernel) for one in tried]
    if not lengths[0]:
        return f"{kind}, {len(score.nodes)} {cells}" if len(score.nodes) > 1 else kind
    written = ", ".join(
        " and ".join(f"{length:.3g}" for length in lengthscales) for lengthscales in lengths
    )
    return f"{kind}, lengthscales {written}" if len(tried) > 1 else f"{kind}, {written}"
