"""Random additive problems and their answers by dense linear algebra."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dsgp.additive import AdditiveSystem, BinEquations, RowEquations, TwoWayTables
from dsgp.kernels import Matern52
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable


def table_of(X):
    """The rows of X (NaN is missing) on the axes of their distinct values."""
    axes, codes = zip(*[encode(column) for column in X.T], strict=True)
    return RowTable(tuple(f"x{d}" for d in range(X.shape[1])), axes, np.array(codes))


def inputs(n, n_terms, correlation, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sqrt(1 - correlation) * rng.standard_normal((n, n_terms))
    return X + np.sqrt(correlation) * rng.standard_normal((n, 1))


def bins_of(equations):
    """The same equations as two-way tables, one bin a point."""
    layout = equations.layout
    most = max(map(len, layout.cells), default=1)
    return BinEquations(
        layout=layout,
        weight=equations.weight,
        information=equations.information,
        quadratic=equations.quadratic,
        n_rows=equations.n_rows,
        log_weight=equations.log_weight,
        total_weight=equations.total_weight,
        total_information=equations.total_information,
        multiplied=equations.multiplied,
        bins=TwoWayTables.of(
            equations.table, equations.information, equations.ones, equations.row_weight, most
        ),
    )


def covariance(kernel, a, b):
    """Prior covariance, 0 where either input is missing."""
    dense = kernel.covariance(np.nan_to_num(a), np.nan_to_num(b))
    return dense * np.isfinite(a)[:, None] * np.isfinite(b)


@dataclass
class Problem:
    """Rows and hyperparameters; everything by dense algebra on the rows of positive weight.

    What is cubic in the rows is kept for every later answer; ``__post_init__`` forgets it.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    kernels: list
    noise: float

    def __post_init__(self):
        for name in ("among_rows", "marginal", "factor"):
            self.__dict__.pop(name, None)
        self.table = table_of(self.X)
        self.equations = RowEquations.of(self.table, self.y, self.weight)
        self.system = AdditiveSystem(self.equations, self.kernels, self.noise)
        self.kept = self.weight > 0

    def prior(self, A, B):
        pairs = zip(self.kernels, A.T, B.T, strict=True)
        return sum(covariance(kernel, a, b) for kernel, a, b in pairs)

    @property
    def rows(self):
        return self.X[self.kept]

    @cached_property
    def among_rows(self):
        """Prior covariance of every term at the rows."""
        return [
            covariance(kernel, own, own)
            for kernel, own in zip(self.kernels, self.rows.T, strict=True)
        ]

    @cached_property
    def marginal(self):
        """Covariance of the targets."""
        return sum(self.among_rows) + np.diag(self.noise / self.weight[self.kept])

    @cached_property
    def factor(self):
        return cho_factor(self.marginal)

    def solve(self, b):
        """The inverse of the covariance of the targets times b."""
        return cho_solve(self.factor, b)

    @property
    def log_marginal_likelihood(self):
        y = self.y[self.kept]
        log_det = 2 * np.sum(np.log(np.diag(self.factor[0])))
        quadratic = y @ self.solve(y)
        return -0.5 * (log_det + quadratic + len(y) * np.log(2 * np.pi))

    @property
    def alpha(self):
        return self.solve(self.y[self.kept])

    @property
    def tables(self):
        """Posterior means of all terms at the points of their axes."""
        alpha = self.alpha
        return np.concatenate(
            [
                covariance(kernel, axis.points, x) @ alpha
                for kernel, axis, x in zip(self.kernels, self.table.cells, self.rows.T, strict=True)
            ]
        )

    @property
    def fit(self):
        """Posterior mean of the sum at all rows."""
        return self.prior(self.X, self.rows) @ self.alpha

    def covariance(self, A):
        """Posterior covariance of the sum at some rows."""
        cross = self.prior(self.rows, A)
        return self.prior(A, A) - cross.T @ self.solve(cross)

    def centred_variance(self, term, x):
        """Posterior variance of one term minus its weighted mean over the rows that have it."""
        kernel, own = self.kernels[term], self.rows[:, term]
        share = np.where(np.isfinite(own), self.weight[self.kept], 0.0)
        share /= share.sum()
        among_rows = self.among_rows[term]
        with_mean = share @ covariance(kernel, own, x)
        prior = kernel.variance - 2 * with_mean + share @ among_rows @ share
        cross = covariance(kernel, own, x) - (among_rows @ share)[:, None]
        return prior - np.sum(cross * self.solve(cross), axis=0)


def problem(
    n=300, correlation=0.0, noise=0.01, make=Matern52, n_terms=3, seed=0, digits=None, missing=0.0
):
    """Targets from sines; a tenth of the rows with ties, and ``missing`` of the inputs."""
    rng = np.random.default_rng(seed)
    X = inputs(n, n_terms, correlation, seed + 1)
    X[: n // 10] = np.round(X[: n // 10], 1)
    if digits is not None:
        X = np.round(X, digits)
    y = np.sin(2 * X).sum(axis=1) + np.sqrt(noise) * rng.standard_normal(n)
    y -= y.mean()
    X[rng.uniform(size=X.shape) < missing] = np.nan
    weight = rng.uniform(0.5, 2.0, n)
    kernels = [make(lengthscale=0.7 + 0.3 * d, variance=1.0 + d) for d in range(n_terms)]
    return Problem(X, y, weight, kernels, noise)


def prior_std(system):
    return np.concatenate(
        [
            np.full(len(axis), kernel.std)
            for axis, kernel in zip(system.layout.cells, system.kernels, strict=True)
        ]
    )
