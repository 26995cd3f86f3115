"""Hyperparameters of GPyTorch's kernel and noise as one vector of logarithms. It needs PyTorch.

The kernel is the squared exponential with a lengthscale per column; the mean is zero.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood

from pipelines.datasets import Floats

# Of standardised inputs and target. At a lengthscale of a thousand a column has no effect left.
LENGTHSCALES, VARIANCES, NOISES = (1e-2, 1e3), (1e-4, 1e4), (1e-6, 1e1)
INITIAL_NOISE = 0.1


def use_threads_of_environment() -> None:
    """Give PyTorch so many threads as ``OMP_NUM_THREADS`` says, where it is set."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) > 0:
        torch.set_num_threads(int(threads))


def exactly() -> Any:
    """Context in which GPyTorch factorises matrices instead of iterating."""
    return gpytorch.settings.fast_computations(
        covar_root_decomposition=False, log_prob=False, solves=False
    )


def squared_exponential(n_columns: int) -> ScaleKernel:
    """Return variance · exp(−½ Σ_d (x_d − x'_d)² / ℓ_d²) with ℓ_d = √n_columns to begin with.

    Standardised rows are √(2 n_columns) apart, so that all correlate at first.
    """
    log = {"transform": torch.exp, "inv_transform": torch.log}
    base = RBFKernel(ard_num_dims=n_columns, lengthscale_constraint=Positive(**log))
    kernel = ScaleKernel(base, outputscale_constraint=Positive(**log)).double()
    base.lengthscale = float(np.sqrt(n_columns))
    kernel.outputscale = 1.0
    return kernel


def gaussian_noise() -> GaussianLikelihood:
    """Noise of one variance."""
    bound = GreaterThan(0.0, transform=torch.exp, inv_transform=torch.log)
    likelihood = GaussianLikelihood(noise_constraint=bound).double()
    likelihood.noise = INITIAL_NOISE
    return likelihood


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Logarithms of lengthscales, variance and noise variance, in this order."""

    kernel: Kernel
    likelihood: GaussianLikelihood

    @property
    def _raw(self) -> list[torch.Tensor]:
        return [
            self.kernel.base_kernel.raw_lengthscale,
            self.kernel.raw_outputscale,
            self.likelihood.raw_noise,
        ]

    def values(self) -> Floats:
        return np.concatenate([each.detach().numpy().ravel() for each in self._raw])

    def set(self, values: Floats) -> None:
        position = 0
        with torch.no_grad():
            for each in self._raw:
                part = torch.from_numpy(np.array(values[position : position + each.numel()]))
                each.copy_(part.reshape(each.shape))
                position += each.numel()

    def bounds(self) -> Floats:
        """Return limits of (n_values, 2)."""
        columns = self.kernel.base_kernel.raw_lengthscale.numel()
        return np.log([*[LENGTHSCALES] * columns, VARIANCES, NOISES])

    def objective(
        self, negative_log_likelihood: Callable[[], torch.Tensor]
    ) -> Callable[[Floats], tuple[float, Floats]]:
        """Return a function of the values that gives the scalar and its gradient.

        Where the matrix is not positive definite it is infinite, and a search steps back.
        """

        def evaluate(values: Floats) -> tuple[float, Floats]:
            self.set(values)
            for each in self._raw:
                each.grad = None
            try:
                value = negative_log_likelihood()
            except (torch.linalg.LinAlgError, gpytorch.utils.errors.NotPSDError):
                return np.inf, np.zeros(len(values))
            value.backward()
            gradient = np.concatenate([each.grad.numpy().ravel() for each in self._raw])
            return value.item(), gradient

        return evaluate
