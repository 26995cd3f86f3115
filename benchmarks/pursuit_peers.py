"""What one exact-GP fit by scikit-learn costs: measured, or extrapolated from its cubic law.

Processor seconds throughout, one BLAS thread: more of them spin beside each other.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from threadpoolctl import threadpool_limits

from dsgp import memory

Floats = NDArray[np.float64]
Watch = Callable[[str], None]

# The derivative of the kernel matrix by every lengthscale is held three times at once: that of the
# RBF, and its copies in the product and in the sum. With them are so many other matrices.
_COPIES, _OTHERS = 3, 7
# Of the memory that is free, at most so much for one evaluation.
MEMORY_SHARE = 0.75
# Evaluations of fewer seconds are timed so often; the fastest counts.
_QUICK, _REPEATS = 2.0, 3


class _Counting(GaussianProcessRegressor):
    """Counts the evaluations of the log marginal likelihood with its gradient."""

    evaluations = 0

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        self.evaluations += eval_gradient
        return super().log_marginal_likelihood(theta, eval_gradient, clone_kernel)


@dataclass(frozen=True)
class Peer:
    """The cost of one exact-GP fit.

    Attributes
    ----------
    how : str
        ``measured`` or ``extrapolated``.
    n_rows, n_features : int
    cpu_seconds : float
        Of the fit.
    evaluations : int
        Of the likelihood and its gradient, in a fit of ``fit_rows`` rows.
    fit_rows : int
        ``n_rows`` where it was measured.
    fit_cpu_seconds : float
        Of that fit.
    memory_bytes : float
        That one evaluation on all rows takes.
    evaluation_seconds : dict of int to float
        Of one evaluation, by rows, as measured.
    exponent : float or None
        Of its growth between the two largest sizes.
    law : list of float
        Coefficients of N² and N³, fitted to ``evaluation_seconds``.
    evaluation : float or None
        Seconds of one evaluation on all rows by that law.
    evaluation_measured : float or None
        The same, measured, to check the law.
    """

    how: str
    n_rows: int
    n_features: int
    cpu_seconds: float
    evaluations: int
    fit_rows: int
    fit_cpu_seconds: float
    memory_bytes: float
    evaluation_seconds: dict[int, float] = field(default_factory=dict)
    exponent: float | None = None
    law: list[float] = field(default_factory=list)
    evaluation: float | None = None
    evaluation_measured: float | None = None

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Peer:
        """Undo what JSON does to the keys."""
        seconds = {int(n): value for n, value in kept["evaluation_seconds"].items()}
        return cls(**{**kept, "evaluation_seconds": seconds})


def exact_kernel(n_features: int) -> Kernel:
    """The usual one: a variance, a lengthscale an input, and noise."""
    return ConstantKernel() * RBF(np.ones(n_features)) + WhiteKernel()


def standardised(X: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Centre and scale the columns that vary, and the target."""
    X = X[:, X.min(axis=0) < X.max(axis=0)]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def memory_of(n_rows: int, n_features: int) -> float:
    """Bytes that one evaluation with gradient takes at its peak."""
    return 8.0 * n_rows**2 * (_COPIES * n_features + _OTHERS)


def fits(n_rows: int, n_features: int, limit: float) -> bool:
    """Whether one evaluation takes no more bytes than that, nor too much of what is free."""
    return memory_of(n_rows, n_features) <= min(limit, MEMORY_SHARE * memory.available())


def cost_of_exact_gp(
    X: Floats,
    y: Floats,
    *,
    limit: int,
    sizes: Sequence[int],
    fit_rows: int,
    most_bytes: float,
    check_bytes: float,
    watch: Watch = lambda what: None,
) -> Peer:
    """Measure the fit where it has at most `limit` rows and fits into memory; else extrapolate.

    Parameters
    ----------
    X, y : ndarray
        All training rows, in their own units.
    limit : int
        Rows of a fit that is measured.
    sizes : sequence of int
        Rows of the evaluations that the law is fitted to.
    fit_rows : int
        Rows of the fit that the number of evaluations is taken from.
    most_bytes : float
        That an evaluation may take.
    check_bytes : float
        One evaluation on all rows is measured too where it takes no more than that; 0: never.
    watch : callable
        Told what comes next.
    """
    X, y = standardised(X, y)
    n, d = X.shape
    with threadpool_limits(limits=1, user_api="blas"):
        if n <= limit and fits(n, d, most_bytes):
            watch(f"exact GP of {n} rows")
            evaluations, seconds = _fit(X, y)
            return Peer("measured", n, d, seconds, evaluations, n, seconds, memory_of(n, d))
        possible = [size for size in sorted(sizes) if size < n and fits(size, d, most_bytes)]
        if not possible:
            raise ValueError(f"no size of {list(sizes)} is below {n} rows and fits into memory")
        measured = {}
        for size in possible:
            watch(f"one evaluation of {size} rows")
            measured[size] = evaluation_seconds(X[:size], y[:size])
        law = cubic_law(measured)
        rows = max([size for size in possible if size <= fit_rows] or possible[:1])
        watch(f"exact GP of {rows} rows")
        evaluations, seconds = _fit(X[:rows], y[:rows])
        check = None
        if fits(n, d, check_bytes):
            watch(f"one evaluation of {n} rows")
            check = evaluation_seconds(X, y)
    one = law[0] * n**2 + law[1] * n**3
    return Peer(
        "extrapolated",
        n,
        d,
        one * evaluations,
        evaluations,
        rows,
        seconds,
        memory_of(n, d),
        measured,
        exponent(measured),
        list(law),
        one,
        check,
    )


def _fit(X: Floats, y: Floats) -> tuple[int, float]:
    model = _Counting(exact_kernel(X.shape[1]), n_restarts_optimizer=0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengthscales of idle inputs
        model.fit(X, y)
    return model.evaluations, time.process_time() - start


def evaluation_seconds(X: Floats, y: Floats) -> float:
    """Processor seconds of the log marginal likelihood and its gradient, once."""
    model = GaussianProcessRegressor(exact_kernel(X.shape[1]), optimizer=None).fit(X, y)
    theta = model.kernel_.theta
    best = np.inf
    for _ in range(_REPEATS):
        start = time.process_time()
        model.log_marginal_likelihood(theta, eval_gradient=True)
        best = min(best, time.process_time() - start)
        if best > _QUICK:
            break
    return float(best)


def cubic_law(seconds: dict[int, float]) -> tuple[float, float]:
    """Fit a N² + b N³, neither negative, so that relative errors are small."""
    n, t = np.array(list(seconds)), np.array(list(seconds.values()))
    coefficients, _ = nnls(np.column_stack([n**2 / t, n**3 / t]), np.ones(len(n)))
    return float(coefficients[0]), float(coefficients[1])


def exponent(seconds: dict[int, float]) -> float | None:
    """Growth between the two largest sizes; None where there is but one."""
    if len(seconds) < 2:
        return None
    (n0, t0), (n1, t1) = sorted(seconds.items())[-2:]
    return float(np.log(t1 / t0) / np.log(n1 / n0))
