"""What one exact-GP fit by scikit-learn costs: measured, or extrapolated from its cubic law.

Processor seconds of the user throughout, with one BLAS thread, as more of them spin beside each
other. The system's seconds are left out: it gives the peer gigabytes of fresh memory at every
evaluation, for which it may take hardly any time or more than the peer itself.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from threadpoolctl import threadpool_limits

from dsgp import memory
from dsgp.errors import MemoryLimitError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Floats = NDArray[np.float64]
Watch = Callable[[str], None]

# The derivative of the kernel matrix by every lengthscale is held three times at once: that of the
# RBF, and its copies in the product and in the sum. With them are so many other matrices.
_COPIES, _OTHERS = 3, 7
# Of the memory that is free, at most so much for one evaluation.
MEMORY_SHARE = 0.75
# Evaluations of fewer seconds are timed so often; the fastest counts.
_QUICK, _REPEATS = 3.0, 3


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
    """What was measured of one exact-GP fit, and its cost by that.

    Attributes
    ----------
    n_rows, n_features : int
    evaluations : int
        Of the likelihood and its gradient, in a fit of ``fit_rows`` rows.
    fit_rows : int
        ``n_rows`` where the whole fit was measured.
    fit_cpu_seconds : float
        Of that fit.
    evaluation_seconds : dict of int to float
        Of one evaluation, by rows.
    """

    n_rows: int
    n_features: int
    evaluations: int
    fit_rows: int
    fit_cpu_seconds: float
    evaluation_seconds: dict[int, float] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """``measured`` or ``extrapolated``."""
        return "measured" if self.fit_rows == self.n_rows else "extrapolated"

    @property
    def memory_bytes(self) -> float:
        """That one evaluation on all rows takes."""
        return memory_of(self.n_rows, self.n_features)

    @property
    def fewer(self) -> dict[int, float]:
        """Evaluations on fewer than all rows, which the law comes from."""
        return {n: s for n, s in sorted(self.evaluation_seconds.items()) if n < self.n_rows}

    @property
    def exponent(self) -> float | None:
        """Growth of an evaluation between the two largest sizes of fewer than all rows."""
        if len(self.fewer) < 2:
            return None
        (n0, t0), (n1, t1) = list(self.fewer.items())[-2:]
        return float(np.log(t1 / t0) / np.log(n1 / n0))

    @property
    def by_law(self) -> float | None:
        """Seconds of one evaluation on all rows by the law."""
        if not self.fewer:
            return None
        square, cube = cubic_law(self.fewer)
        return square * self.n_rows**2 + cube * self.n_rows**3

    @property
    def checked(self) -> float | None:
        """The same, measured."""
        return self.evaluation_seconds.get(self.n_rows)

    @property
    def cpu_seconds(self) -> float:
        """Of the fit."""
        if self.fit_rows == self.n_rows:
            return self.fit_cpu_seconds
        one = self.by_law if self.checked is None else self.checked
        assert one is not None
        return self.evaluations * one

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Peer:
        """Read what ``as_dict`` wrote."""
        own = {each.name: kept[each.name] for each in fields(cls)}
        own["evaluation_seconds"] = {int(n): s for n, s in own["evaluation_seconds"].items()}
        return cls(**own)

    def as_dict(self) -> dict[str, Any]:
        """Everything, also what follows from the measurements."""
        derived = ("how", "memory_bytes", "exponent", "by_law", "checked", "cpu_seconds")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


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
    largest: int,
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
    largest : int
        Rows of the largest evaluation that is extrapolated from, where it fits into memory; the
        others have a half, a quarter and an eighth.
    fit_rows : int
        Rows of the fit that the number of evaluations is taken from.
    most_bytes : float
        That an evaluation may take.
    check_bytes : float
        One evaluation on all rows is measured too where it takes no more than that; 0: never.
    watch : callable
        Called with the name of the next step.
    """
    X, y = standardised(X, y)
    n, d = X.shape
    with threadpool_limits(limits=1, user_api="blas"):
        if n <= limit and fits(n, d, most_bytes):
            watch(f"exact GP of {n} rows")
            evaluations, seconds = _fit(X, y)
            return Peer(n, d, evaluations, n, seconds)
        sizes = _sizes(min(largest, n - 1), d, most_bytes)
        measured = {}
        for size in sizes:
            watch(f"one evaluation of {size} rows")
            measured[size] = evaluation_seconds(X[:size], y[:size])
        rows = min(fit_rows, sizes[-1])
        watch(f"exact GP of {rows} rows")
        evaluations, seconds = _fit(X[:rows], y[:rows])
        if fits(n, d, check_bytes):
            watch(f"one evaluation of {n} rows")
            measured[n] = evaluation_seconds(X, y)
    return Peer(n, d, evaluations, rows, seconds, measured)


def _sizes(largest: int, n_features: int, most_bytes: float) -> list[int]:
    while largest > 1 and not fits(largest, n_features, most_bytes):
        largest = int(0.98 * largest)
    if largest < 16:
        raise MemoryLimitError(
            f"no exact GP of {n_features} inputs can be measured within "
            f"{most_bytes / 2**30:.1f} GiB: allow more, or leave it out"
        )
    return [largest >> halvings for halvings in (3, 2, 1, 0)]


def user_seconds() -> float:
    """Processor seconds of this process so far, without the system's where they are distinct."""
    if resource is None:
        return time.process_time()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def _fit(X: Floats, y: Floats) -> tuple[int, float]:
    model = _Counting(exact_kernel(X.shape[1]), n_restarts_optimizer=0)
    start = user_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengthscales of idle inputs
        model.fit(X, y)
    return model.evaluations, user_seconds() - start


def evaluation_seconds(X: Floats, y: Floats) -> float:
    """Processor seconds of the log marginal likelihood and its gradient, once."""
    model = GaussianProcessRegressor(exact_kernel(X.shape[1]), optimizer=None).fit(X, y)
    theta = model.kernel_.theta
    best = np.inf
    for _ in range(_REPEATS):
        start = user_seconds()
        model.log_marginal_likelihood(theta, eval_gradient=True)
        best = min(best, user_seconds() - start)
        if best > _QUICK:
            break
    return max(float(best), 1e-6)  # the clock ticks


def cubic_law(seconds: dict[int, float]) -> tuple[float, float]:
    """Return a and b of a N² + b N³, neither negative, by the two largest sizes.

    Smaller ones would mislead: their matrices are in a cache. Of one size alone all is N³.
    """
    largest = sorted(seconds.items())[-2:]
    if len(largest) == 1:
        return 0.0, largest[0][1] / largest[0][0] ** 3
    n, t = np.array(largest, dtype=float).T
    (square, cube), _ = nnls(np.column_stack([n**2 / t, n**3 / t]), np.ones(2))
    return float(square), float(cube)
