"""FITC, the likelihood of SPGP, by GPyTorch: its variational sparse kernel with exact diagonal.

GPyTorch trains its ``InducingPointKernel`` by Titsias' bound: the covariance is the low-rank
Q = K_xu K_uu⁻¹ K_ux, and −tr(K − Q) / (2 noise) is added. SPGP (Snelson and Ghahramani, 2006) has
Q + diag(K − Q) instead, and nothing added. It needs PyTorch.
"""

from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel
from linear_operator import to_dense
from linear_operator.operators import (
    DiagLinearOperator,
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
)
from scipy.optimize import minimize

from dsgp import memory
from pipelines.datasets import Floats
from pipelines.peers.gp.hyperparameters import (
    Hyperparameters,
    gaussian_noise,
    squared_exponential,
)

JITTER = 1e-8
# Matrices of all rows by the active set that are held at the peak.
MATRICES = 12
TEST_ROWS = 5000  # predicted at once


class FitcKernel(InducingPointKernel):
    """Q + diag(K − Q) between training rows; the active set is not learned.

    ``JITTER`` times the variance is added to K_uu always, and not only where its factor fails, so
    that the likelihood is a smooth function of the hyperparameters.
    """

    def __init__(self, base_kernel: Any, inducing_points: torch.Tensor, likelihood: Any) -> None:
        super().__init__(base_kernel, inducing_points, likelihood)
        self.inducing_points.requires_grad_(False)

    @property
    def _inducing_mat(self) -> torch.Tensor:
        jitter = (
            JITTER
            * self.base_kernel.outputscale
            * torch.eye(len(self.inducing_points), dtype=torch.float64)
        )
        return to_dense(self.base_kernel(self.inducing_points)) + jitter

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **_: Any) -> Any:
        root, rest = self.parts(x1)
        return LowRankRootAddedDiagLinearOperator(
            LowRankRootLinearOperator(root), DiagLinearOperator(rest)
        )

    def parts(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """R of Q = RR', of shape (n_rows, n_active), and diag(K − Q), of shape (n_rows,)."""
        root = to_dense(self.base_kernel(x, self.inducing_points)) @ self._inducing_inv_root
        rest = to_dense(self.base_kernel(x, diag=True)) - root.square().sum(dim=-1)
        return root, rest.clamp_min(0.0)


class FitcGP(gpytorch.models.ExactGP):
    """Zero mean and ``FitcKernel``."""

    def __init__(self, X: Floats, y: Floats, active: Floats) -> None:
        memory.require(
            f"FITC of {len(X)} rows with an active set of {len(active)}",
            8.0 * MATRICES * len(X) * len(active),
            "use a smaller active set",
        )
        likelihood = gaussian_noise()
        super().__init__(torch.from_numpy(X), torch.from_numpy(y), likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        base = squared_exponential(X.shape[1])
        self.covar_module = FitcKernel(base, torch.from_numpy(active), likelihood).double()
        self.hyperparameters = Hyperparameters(base, likelihood)

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def objective(self) -> Any:
        """Return minus the log likelihood of a row, on average, with its gradient."""
        likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self)
        self.train()

        def value() -> torch.Tensor:
            return -likelihood(self(*self.train_inputs), self.train_targets)

        return self.hyperparameters.objective(value)

    def learn(self, iterations: int) -> dict[str, float | str]:
        """Learn kernel and noise; return the log likelihood and what it took."""
        parts = self.hyperparameters
        found = minimize(
            self.objective(),
            parts.values(),
            jac=True,
            method="L-BFGS-B",
            bounds=parts.bounds(),
            options={"maxiter": iterations},
        )
        parts.set(found.x)
        return {
            "log_likelihood": -float(found.fun) * len(self.train_targets),
            "evaluations": float(found.nfev),
            "iterations": float(found.nit),
        }

    def predict(self, X_test: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the function, each of (n_test,).

        A test row is a new one even where its inputs are those of a training row.
        """
        mean, variance = np.empty(len(X_test)), np.empty(len(X_test))
        with torch.no_grad():
            root, rest = self.covar_module.parts(*self.train_inputs)
            weighted = root / (rest + self.likelihood.noise)[:, None]
            L = torch.linalg.cholesky(
                torch.eye(root.shape[1], dtype=torch.float64) + root.mT @ weighted
            )
            weights = torch.cholesky_solve(weighted.mT @ self.train_targets[:, None], L)[:, 0]
            for start in range(0, len(X_test), TEST_ROWS):
                rows = slice(start, start + TEST_ROWS)
                root, rest = self.covar_module.parts(torch.from_numpy(X_test[rows]))
                spread = torch.linalg.solve_triangular(L, root.mT, upper=False).square()
                mean[rows] = (root @ weights).numpy()
                variance[rows] = (rest + spread.sum(dim=0)).numpy()
        return mean, variance
