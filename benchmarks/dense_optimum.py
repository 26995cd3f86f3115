"""The additive model by dense algebra: its exact log marginal likelihood, the optimum, predictions.

A constant with a flat prior is integrated out beside the functions, as in dsgp. With K the
covariance of the targets given the constant, s = 1ᵀ K⁻¹ 1, μ̂ = 1ᵀ K⁻¹ y / s and a = K⁻¹ (y − μ̂),

    log p(y) = −½ [(y − μ̂)ᵀ a + log det K + log s + (N − 1) log 2π],
    ∂ log p(y) / ∂θ = ½ [aᵀ (∂K/∂θ) a − tr(P ∂K/∂θ)],    P = K⁻¹ − K⁻¹ 1 1ᵀ K⁻¹ / s.

One matrix of N × N numbers is all that is kept: K, its factor and its inverse take each other's
place in the lower triangle, and derivatives are made by blocks of columns. An evaluation at 8000
rows takes some 0.6 GB and 25 s. Each is written to a file where one is named, and taken from there
in a run that begins again, which therefore goes the same way.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

from dsgp.kernels import Matern72

_COLUMNS = 256  # of a block
_LOG_2PI = math.log(2 * math.pi)
# Added to the curvature: the first step in a log that the rows do not determine is below one.
_RIDGE = 1.0


class Solved(NamedTuple):
    """For one set of hyperparameters: log p(y), a, K⁻¹ 1 / sqrt(s), and the constant μ̂."""

    log_likelihood: float
    dual: np.ndarray
    ones: np.ndarray
    level: float


@dataclass
class DenseAdditive:
    """Targets of N rows, and the sum of a Matérn 7/2 function of each column.

    Hyperparameters are the logs of all lengthscales, of all variances, and of the noise variance.

    Attributes
    ----------
    X : ndarray of shape (N, D)
    y : ndarray of shape (N,)
    kept : Path, optional
        JSON lines, one an evaluation with its gradient.
    n_evaluations, seconds : int, float
        How many there were, and the processor seconds they took.
    """

    X: np.ndarray
    y: np.ndarray
    kept: Path | None = None
    _known: dict[bytes, tuple[float, np.ndarray]] = field(default_factory=dict)
    n_evaluations: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kept is not None and self.kept.exists():
            for line in self.kept.read_text(encoding="utf-8").splitlines():
                self._keep(json.loads(line))

    def _keep(self, found: dict[str, Any]) -> None:
        known = found["value"], np.array(found["gradient"])
        self._known[np.array(found["logs"]).tobytes()] = known
        self.n_evaluations += 1
        self.seconds += found["seconds"]

    @property
    def n_terms(self) -> int:
        return self.X.shape[1]

    def kernels(self, logs: np.ndarray) -> list[Matern72]:
        pairs = zip(np.exp(logs[: self.n_terms]), np.exp(logs[self.n_terms : -1]), strict=True)
        return [Matern72(float(lengthscale), float(variance)) for lengthscale, variance in pairs]

    def _blocks(self) -> Iterator[tuple[int, int]]:
        n = len(self.y)
        return ((a, min(a + _COLUMNS, n)) for a in range(0, n, _COLUMNS))

    def factor(self, logs: np.ndarray) -> np.ndarray:
        """Lower Cholesky factor of K; what is above its diagonal is not meant."""
        n = len(self.y)
        matrix = np.empty((n, n), order="F")
        kernels = self.kernels(logs)
        for a, b in self._blocks():
            block = np.zeros((b - a, n - a))
            for d, kernel in enumerate(kernels):
                block += kernel.covariance(self.X[a:b, d], self.X[a:, d])
            matrix[a:, a:b] = block.T
        matrix[np.diag_indices(n)] += np.exp(logs[-1])
        factor, failed = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise ArithmeticError(f"K is not positive definite at {logs}")
        return factor

    def solved(self, factor: np.ndarray) -> Solved:
        both = lapack.dpotrs(factor, np.column_stack([self.y, np.ones(len(self.y))]), lower=1)[0]
        total = both[:, 1].sum()
        level = both[:, 0].sum() / total
        dual = both[:, 0] - level * both[:, 1]
        value = -0.5 * (
            (self.y - level) @ dual
            + 2 * np.log(np.diag(factor)).sum()
            + math.log(total)
            + (len(self.y) - 1) * _LOG_2PI
        )
        return Solved(float(value), dual, both[:, 1] / math.sqrt(total), float(level))

    def log_likelihood(self, logs: np.ndarray) -> float:
        return self.solved(self.factor(logs)).log_likelihood

    def evaluate(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Log marginal likelihood and its gradient by the logs."""
        key = np.ascontiguousarray(logs).tobytes()
        if key not in self._known:
            begun = time.process_time()
            value, gradient = self._evaluated(logs)
            found = {
                "logs": logs.tolist(),
                "value": value,
                "gradient": gradient.tolist(),
                "seconds": time.process_time() - begun,
            }
            self._keep(found)
            if self.kept is not None:
                with self.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
        return self._known[key]

    def _evaluated(self, logs: np.ndarray) -> tuple[float, np.ndarray]:
        factor = self.factor(logs)
        value, dual, ones, _ = self.solved(factor)
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]
        gradient = np.zeros(len(logs))
        gradient[-1] = np.exp(logs[-1]) * (dual @ dual + ones @ ones - np.trace(inverse))
        for a, b in self._blocks():
            # Minus P and a aᵀ, each pair of rows once.
            weight = np.outer(dual[a:], dual[a:b]) + np.outer(ones[a:], ones[a:b])
            weight -= inverse[a:, a:b]
            weight[b - a :] *= 2
            square = weight[: b - a]
            square[:] = np.tril(square) + np.tril(square, -1)
            for d, kernel in enumerate(self.kernels(logs)):
                pair = self.X[a:, d], self.X[a:b, d]
                gradient[d] += np.vdot(weight, kernel.by_log("lengthscale", *pair))
                gradient[self.n_terms + d] += np.vdot(weight, kernel.covariance(*pair))
        return value, 0.5 * gradient

    def curvature(self, logs: np.ndarray) -> np.ndarray:
        """Average information, shape (P, P): ½ vᵢᵀ K⁻¹ vⱼ with vᵢ = (∂K/∂θᵢ) a."""
        factor = self.factor(logs)
        dual = self.solved(factor).dual
        moved = np.zeros((len(dual), len(logs)))
        moved[:, -1] = np.exp(logs[-1]) * dual
        for a, b in self._blocks():
            for d, kernel in enumerate(self.kernels(logs)):
                pair = self.X[a:b, d], self.X[:, d]
                moved[a:b, d] = kernel.by_log("lengthscale", *pair) @ dual
                moved[a:b, self.n_terms + d] = kernel.covariance(*pair) @ dual
        half = solve_triangular(factor, moved, lower=True, check_finite=False)
        return 0.5 * half.T @ half

    def maximise(self, start: np.ndarray, max_iter: int = 40) -> tuple[np.ndarray, bool]:
        """Maximise by L-BFGS in coordinates in which the start's curvature is that of a sphere.

        Returns the logs, and whether the search ended by itself.
        """
        curvature = self.curvature(start) + _RIDGE * np.eye(len(start))
        basis = np.linalg.inv(np.linalg.cholesky(curvature)).T

        def loss(moved: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self.evaluate(start + basis @ moved)
            return -value, -(basis.T @ gradient)

        best = minimize(
            loss,
            np.zeros(len(start)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "ftol": 0.0, "gtol": 1e-3},
        )
        return start + basis @ best.x, bool(best.success)

    def predict(self, logs: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of new targets, noise included, each of shape (n,)."""
        factor = self.factor(logs)
        _, dual, ones, level = self.solved(factor)
        kernels = self.kernels(logs)
        prior = np.exp(logs[self.n_terms :]).sum()  # noise included
        mean, variance = [], []
        for a in range(0, len(X), 500):
            new = X[a : a + 500]
            cross = np.zeros((len(new), len(self.y)))
            for d, kernel in enumerate(kernels):
                cross += kernel.covariance(new[:, d], self.X[:, d])
            half = solve_triangular(factor, cross.T, lower=True, check_finite=False)
            unknown = 1 / ones.sum() - cross @ ones  # the sum of K⁻¹ 1 is s
            mean.append(level + cross @ dual)
            variance.append(prior - np.sum(half**2, axis=0) + unknown**2)
        return np.concatenate(mean), np.sqrt(np.concatenate(variance))
