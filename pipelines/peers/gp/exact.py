"""Exact regression: kernel and its derivatives by GPyTorch, one Cholesky factor per evaluation.

PyTorch's derivative of a Cholesky factor costs about 4 N³ more operations than the factor's N³/3.
The derivative of the likelihood by the whole covariance matrix C is known, ½ (αα' − C⁻¹) with
α = C⁻¹ y (Rasmussen and Williams, 2006, equation 5.9), and C⁻¹ from the factor costs 2/3 N³. It is
given to PyTorch here, which takes it back through GPyTorch's kernel. It needs PyTorch.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from dsgp import memory
from pipelines.datasets import Floats
from pipelines.peers.clock import Clock
from pipelines.peers.gp.hyperparameters import (
    Hyperparameters,
    gaussian_noise,
    squared_exponential,
)

# Matrices of all rows by all rows that are held at the peak, counted by their bytes.
MATRICES = 8
TEST_ROWS = 2000  # predicted at once

Evaluate = Callable[[Floats], tuple[float, Floats]]


class LogLikelihood(torch.autograd.Function):
    """log N(y; 0, K + noise I), with derivatives by the matrix K and by the noise variance."""

    @staticmethod
    def forward(ctx: Any, K: torch.Tensor, noise: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        C = K.clone()
        C.diagonal().add_(noise)
        L = torch.linalg.cholesky(C)
        del C
        alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
        log_determinant = 2 * L.diagonal().log().sum()
        ctx.save_for_backward(alpha, torch.cholesky_inverse(L))
        return -0.5 * (y @ alpha + log_determinant + len(y) * np.log(2 * np.pi))

    @staticmethod
    def backward(ctx: Any, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        alpha, inverse = ctx.saved_tensors
        # In place: there is one backward pass.
        by_matrix = inverse.addr_(alpha, alpha, beta=-1.0).mul_(0.5 * weight)
        return by_matrix, by_matrix.diagonal().sum().reshape(1), None


@dataclass
class ExactGP:
    """The hyperparameters, and how they are learned.

    Attributes
    ----------
    hyperparameters : Hyperparameters
    evaluations : dict of str to int
        Of the likelihood and its gradient, on ``subset`` and ``all`` rows.
    """

    hyperparameters: Hyperparameters
    evaluations: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_columns(cls, n_columns: int) -> "ExactGP":
        """Return one that has learned nothing yet."""
        return cls(Hyperparameters(squared_exponential(n_columns), gaussian_noise()))

    def objective(self, X: Floats, y: Floats) -> Evaluate:
        """Return minus the log likelihood of a row, on average, with its gradient."""
        inputs, target = torch.from_numpy(X), torch.from_numpy(y)
        parts = self.hyperparameters

        def value() -> torch.Tensor:
            K = parts.kernel(inputs).to_dense()
            return -LogLikelihood.apply(K, parts.likelihood.noise, target) / len(target)

        return parts.objective(value)

    def learn(
        self,
        X: Floats,
        y: Floats,
        subset: Any,
        iterations: int,
        full_evaluations: int,
        clock: Clock,
    ) -> float:
        """Learn on a subset of the rows, then on all; return the log likelihood of all.

        Parameters
        ----------
        subset : ndarray of int
            Rows of the first search, which ends after `iterations` or at convergence.
        full_evaluations : int
            On all rows, at most; unused where the subset is all rows.
        clock : Clock
            Gets ``start`` for the subset and ``fit`` for all rows.
        """
        require_memory(len(X))
        parts = self.hyperparameters
        whole = len(subset) == len(X)
        found = clock.time(
            "fit" if whole else "start",
            lambda: minimize(
                self.objective(X[subset], y[subset]),
                parts.values(),
                jac=True,
                method="L-BFGS-B",
                bounds=parts.bounds(),
                options={"maxiter": iterations},
            ),
        )
        if whole:
            self.evaluations = {"subset": 0, "all": int(found.nfev)}
            parts.set(found.x)
            return -float(found.fun) * len(X)
        search = Continued(self.objective(X, y), found, parts.bounds(), full_evaluations)
        values, value = clock.time("fit", search.run)
        self.evaluations = {"subset": int(found.nfev), "all": search.evaluations}
        parts.set(values)
        return -value * len(X)

    def predict(self, X: Floats, y: Floats, X_test: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the function, each of (n_test,)."""
        parts = self.hyperparameters
        inputs = torch.from_numpy(X)
        mean, variance = np.empty(len(X_test)), np.empty(len(X_test))
        with torch.no_grad():
            C = parts.kernel(inputs).to_dense()
            C.diagonal().add_(parts.likelihood.noise)
            L = torch.linalg.cholesky(C)
            del C
            alpha = torch.cholesky_solve(torch.from_numpy(y)[:, None], L)[:, 0]
            for start in range(0, len(X_test), TEST_ROWS):
                rows = slice(start, start + TEST_ROWS)
                K = parts.kernel(inputs, torch.from_numpy(X_test[rows])).to_dense()  # (n, n_batch)
                explained = torch.linalg.solve_triangular(L, K, upper=False).square_().sum(dim=0)
                mean[rows] = (alpha @ K).numpy()
                variance[rows] = (parts.kernel.outputscale - explained).numpy()
        return mean, variance


def require_memory(n_rows: int) -> None:
    """Raise ``MemoryLimitError`` where matrices of all rows by all rows do not fit."""
    memory.require(
        f"exact Gaussian process regression on {n_rows} rows",
        8.0 * MATRICES * n_rows**2,
        "use fewer training rows, or the sparse method spgp",
    )


class _Spent(Exception):
    """All evaluations are used up."""


class Continued:
    """A search of a few evaluations that begins where one on a subset of the rows has ended.

    The subset's curvature is that of all rows but for sampling error, as both likelihoods are per
    row. Where it is the metric, the first step is Newton's.
    """

    def __init__(self, evaluate: Evaluate, found: Any, bounds: Floats, most: int) -> None:
        self.evaluate, self.bounds, self.most = evaluate, bounds, most
        self.evaluations = 0
        self.best: tuple[Floats, float] = (found.x, np.inf)
        self._origin = found.x
        # A value at its limit stays: its column has no effect.
        self._free = (found.x > bounds[:, 0]) & (found.x < bounds[:, 1])
        inverse = found.hess_inv.todense()[np.ix_(self._free, self._free)]
        self._metric = np.linalg.cholesky(0.5 * (inverse + inverse.T))

    def run(self) -> tuple[Floats, float]:
        """Return the best values and the objective there."""
        with suppress(_Spent):
            minimize(
                self._in_metric, np.zeros(len(self._metric)), jac=True, method="BFGS", tol=1e-6
            )
        return self.best

    def _in_metric(self, z: Floats) -> tuple[float, Floats]:
        if self.evaluations == self.most:
            raise _Spent
        self.evaluations += 1
        values = self._origin.copy()
        values[self._free] += self._metric @ z
        values = np.clip(values, *self.bounds.T)
        value, gradient = self.evaluate(values)
        if value < self.best[1]:
            self.best = (values, value)
        return value, self._metric.T @ gradient[self._free]
