"""The informative vector machine: a sparse Gaussian process classifier by greedy selection.

Lawrence, Seeger and Herbrich, *Fast sparse Gaussian process methods: the informative vector
machine*, NIPS 15 (2003). Rows enter the active set one by one. Each replaces its probit likelihood
by a Gaussian site whose moments assumed-density filtering gives; the row that enters is the one
whose site reduces the entropy of the posterior most. The other rows are not used. Hyperparameters
maximise the likelihood of the active set's sites, in turn with selection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr

from dsgp import memory
from pipelines.datasets import Floats

# Limits of lengthscales, of the variances of function and bias, of standardised inputs.
LENGTHSCALES, VARIANCES, BIASES = (1e-2, 1e3), (1e-2, 1e3), (1e-4, 1e2)
TEST_ROWS = 20_000  # predicted at once


@dataclass(frozen=True, eq=False)
class SquaredExponential:
    """variance · exp(−½ Σ_d (x_d − x'_d)² / ℓ_d²) + bias.

    Attributes
    ----------
    lengthscales : ndarray of shape (n_columns,) or (1,)
        One for all columns where there is one.
    variance, bias : float
    """

    lengthscales: Floats
    variance: float
    bias: float

    @classmethod
    def of_logarithms(cls, values: Floats) -> Self:
        """From logarithms of lengthscales, variance and bias, in this order."""
        *lengthscales, variance, bias = np.exp(values)
        return cls(np.array(lengthscales), float(variance), float(bias))

    @property
    def logarithms(self) -> Floats:
        return np.log([*self.lengthscales, self.variance, self.bias])

    @property
    def diagonal(self) -> float:
        """Prior variance of each row."""
        return self.variance + self.bias

    def __call__(self, X: Floats, Z: Floats) -> Floats:
        """Covariance of (n_rows, n_others)."""
        X, Z = X / self.lengthscales, Z / self.lengthscales
        squares = (X**2).sum(axis=1)[:, None] + (Z**2).sum(axis=1) - 2 * X @ Z.T
        return self.variance * np.exp(-0.5 * np.maximum(squares, 0.0)) + self.bias

    def derivatives(self, X: Floats) -> Iterator[Floats]:
        """Derivatives of the covariance of `X` by each logarithm, each of (n_rows, n_rows)."""
        smooth = self(X, X) - self.bias
        together = np.zeros_like(smooth)
        for column in (X / self.lengthscales).T:
            squares = np.subtract.outer(column, column) ** 2
            if len(self.lengthscales) > 1:
                yield smooth * squares
            else:
                together += squares
        if len(self.lengthscales) == 1:
            yield smooth * together
        yield smooth
        yield np.full_like(smooth, self.bias)


@dataclass(frozen=True, eq=False)
class Sites:
    """Rows of the active set in the order of their entrance, and their Gaussian sites.

    Attributes
    ----------
    rows : ndarray of int of shape (n_active,)
    means, precisions : ndarray of shape (n_active,)
        Site k says that the function at its row is N(means[k], 1 / precisions[k]).
    """

    rows: NDArray[np.int64]
    means: Floats
    precisions: Floats


@dataclass(eq=False)
class Posterior:
    """Marginals of all rows under the sites so far, updated as sites enter.

    Attributes
    ----------
    mean, variance : ndarray of shape (n_rows,)
    factor : ndarray of shape (size, n_rows)
        The posterior covariance is the prior's less ``factor[:k].T @ factor[:k]`` after k sites.
    n_sites : int
    """

    mean: Floats
    variance: Floats
    factor: Floats
    n_sites: int = 0

    @classmethod
    def prior(cls, n_rows: int, size: int, diagonal: float) -> Self:
        return cls(np.zeros(n_rows), np.full(n_rows, diagonal), np.zeros((size, n_rows)))

    def include(self, row: int, column: Floats, g: float, nu: float) -> None:
        """Include the site of a row; `column` is its prior covariance with all rows.

        Equations of Lawrence, Seeger and Herbrich: Σ ← Σ − ν ss', μ ← μ + g s, where s is the
        row's column of Σ.
        """
        done = self.factor[: self.n_sites]
        s = column - done[:, row] @ done
        self.factor[self.n_sites] = np.sqrt(nu) * s
        self.variance -= nu * s**2
        self.mean += g * s
        self.n_sites += 1


def slopes(y: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return g and ν of Φ(y f) with f of N(mean, variance), each of the shape of `mean`.

    With Z = ∫ Φ(y f) N(f; mean, variance) df, g is ∂ log Z / ∂ mean, and ν = g² − 2 ∂ log Z / ∂
    variance, which is −∂² log Z / ∂ mean² (the probit rows of their appendix).
    """
    c = y / np.sqrt(1 + variance)
    u = c * mean
    # φ(u) / Φ(u) by logarithms: far in the tail both underflow, and their ratio does not.
    g = c * np.exp(-0.5 * u**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(u))
    return g, g * (g + u * c)


def entropy_reduction(variance: Floats, nu: Floats) -> Floats:
    """By which the entropy of the posterior falls as a site enters, −½ log(1 − ν variance)."""
    return -0.5 * np.log1p(-nu * variance)


def select(kernel: SquaredExponential, X: Floats, y: Floats, size: int) -> tuple[Sites, Posterior]:
    """Fill the active set greedily; return its sites, and the marginals of all rows.

    It takes O(n_rows size²) operations.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
    y : ndarray of shape (n_rows,)
        −1 or 1.
    size : int
    """
    size = min(size, len(X))
    memory.require(
        f"an active set of {size} of {len(X)} rows", 8.0 * size * len(X), "lower its size"
    )
    posterior = Posterior.prior(len(X), size, kernel.diagonal)
    waiting = np.ones(len(X), bool)
    rows = np.empty(size, np.int64)
    means, precisions = np.empty(size), np.empty(size)
    for k in range(size):
        g, nu = slopes(y, posterior.mean, posterior.variance)
        gains = np.where(waiting, entropy_reduction(posterior.variance, nu), -np.inf)
        row = int(np.argmax(gains))
        rows[k], waiting[row] = row, False
        means[k] = posterior.mean[row] + g[row] / nu[row]
        precisions[k] = nu[row] / (1 - nu[row] * posterior.variance[row])
        column = kernel(X, X[row : row + 1])[:, 0]
        posterior.include(row, column, float(g[row]), float(nu[row]))
    return Sites(rows, means, precisions), posterior


def log_likelihood(
    kernel: SquaredExponential, X: Floats, means: Floats, precisions: Floats
) -> tuple[float, Floats]:
    """Return log N(means; 0, K + diag(1 / precisions)) of the sites, and its gradient.

    The gradient is by ``kernel.logarithms``; `X` are the rows of the active set.
    """
    C = kernel(X, X) + np.diag(1 / precisions)
    L = cholesky(C, lower=True)
    alpha = cho_solve((L, True), means)
    value = -0.5 * means @ alpha - np.log(np.diag(L)).sum() - 0.5 * len(X) * np.log(2 * np.pi)
    by_matrix = 0.5 * (np.outer(alpha, alpha) - cho_solve((L, True), np.eye(len(X))))
    gradient = [float((by_matrix * each).sum()) for each in kernel.derivatives(X)]
    return float(value), np.array(gradient)


@dataclass(frozen=True, eq=False)
class InformativeVectorMachine:
    """Kernel, active set and sites.

    Attributes
    ----------
    kernel : SquaredExponential
    active : ndarray of shape (n_active, n_columns)
    sites : Sites
    log_likelihood : float
        Of the sites.
    evaluations : int
        Of the sites' likelihood and its gradient.
    """

    kernel: SquaredExponential
    active: Floats
    sites: Sites
    log_likelihood: float
    evaluations: int

    @classmethod
    def learned(
        cls,
        X: Floats,
        y: Floats,
        *,
        size: int,
        rounds: int,
        iterations: int,
        ard: bool,
        learn_on: Literal["selected", "random"],
        rng: np.random.Generator,
    ) -> Self:
        """Select and learn in turn, and select once more.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_columns)
            Standardised.
        y : ndarray of shape (n_rows,)
            −1 or 1.
        size, rounds, iterations, ard, learn_on
            See ``Ivm``.
        rng : Generator
            Draws the rows to learn on, where they are random.
        """
        n_columns = X.shape[1]
        lengthscales = np.full(n_columns if ard else 1, np.sqrt(n_columns))
        kernel, evaluations = SquaredExponential(lengthscales, 1.0, 1.0), 0
        bounds = np.log([*[LENGTHSCALES] * len(lengthscales), VARIANCES, BIASES])
        drawn = rng.choice(len(X), min(size, len(X)), replace=False)
        X_learn, y_learn = (X, y) if learn_on == "selected" else (X[drawn], y[drawn])
        for part in np.diff(np.linspace(0, iterations, rounds + 1).astype(int)):
            sites, _ = select(kernel, X_learn, y_learn, size)
            kernel, spent = _learned(kernel, X_learn[sites.rows], sites, bounds, int(part))
            evaluations += spent
        sites, _ = select(kernel, X, y, size)
        active = X[sites.rows]
        value, _ = log_likelihood(kernel, active, sites.means, sites.precisions)
        return cls(kernel, active, sites, value, evaluations)

    def probability(self, X: Floats) -> Floats:
        """Return the probability of 1, Φ(mean / √(1 + variance)), of (n_rows,)."""
        mean, variance = self.function(X)
        return ndtr(mean / np.sqrt(1 + variance))

    def function(self, X: Floats) -> tuple[Floats, Floats]:
        """Return posterior mean and variance of the function, each of (n_rows,)."""
        C = self.kernel(self.active, self.active) + np.diag(1 / self.sites.precisions)
        L = cholesky(C, lower=True)
        alpha = cho_solve((L, True), self.sites.means)
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for start in range(0, len(X), TEST_ROWS):
            rows = slice(start, start + TEST_ROWS)
            K = self.kernel(self.active, X[rows])
            mean[rows] = alpha @ K
            explained = (solve_triangular(L, K, lower=True) ** 2).sum(axis=0)
            variance[rows] = np.maximum(self.kernel.diagonal - explained, 0.0)
        return mean, variance


def _learned(
    kernel: SquaredExponential, X: Floats, sites: Sites, bounds: Floats, iterations: int
) -> tuple[SquaredExponential, int]:
    """Maximise the likelihood of the sites; return the kernel, and evaluations spent."""
    if iterations == 0:
        return kernel, 0

    def negative(values: Floats) -> tuple[float, Floats]:
        trial = SquaredExponential.of_logarithms(values)
        value, gradient = log_likelihood(trial, X, sites.means, sites.precisions)
        return -value, -gradient

    found = minimize(
        negative,
        kernel.logarithms,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations},
    )
    return SquaredExponential.of_logarithms(found.x), int(found.nfev)
