"""Sparse variational classification by GPyTorch with an active set that stays. It needs PyTorch."""

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from pipelines.datasets import Floats
from pipelines.peers.gp.hyperparameters import squared_exponential

TEST_ROWS = 10_000  # predicted at once


class SparseClassifier(gpytorch.models.ApproximateGP):
    """Constant mean, squared-exponential kernel, probit link."""

    def __init__(self, active: Floats, n_rows: int) -> None:
        distribution = CholeskyVariationalDistribution(len(active), mean_init_std=0.0)
        strategy = VariationalStrategy(
            self, torch.from_numpy(active), distribution, learn_inducing_locations=False
        )
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = squared_exponential(active.shape[1])
        self.likelihood = BernoulliLikelihood()
        self.n_rows = n_rows
        self.double()

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def learn(
        self,
        X: Floats,
        y: Floats,
        *,
        epochs: int,
        least_steps: int,
        batch: int,
        learning_rate: float,
        rng: np.random.Generator,
    ) -> dict[str, float | str]:
        """Maximise the bound by Adam over batches; return what it took and the last epoch's mean.

        The bound is that of a row, on average.
        """
        inputs, labels = torch.from_numpy(X), torch.from_numpy(y)
        per_epoch = -(-self.n_rows // batch)
        epochs = max(epochs, -(-least_steps // per_epoch))
        bound = VariationalELBO(self.likelihood, self, num_data=self.n_rows)
        optimiser = torch.optim.Adam(self.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimiser, epochs * per_epoch, eta_min=learning_rate / 100
        )
        self.train()
        for _ in range(epochs):
            order, total = rng.permutation(self.n_rows), 0.0
            for start in range(0, self.n_rows, batch):
                rows = torch.from_numpy(order[start : start + batch])
                optimiser.zero_grad()
                loss = -bound(self(inputs[rows]), labels[rows])
                loss.backward()
                optimiser.step()
                schedule.step()
                total += float(loss.detach()) * len(rows)
        return {
            "bound": -total / self.n_rows,
            "epochs": float(epochs),
            "steps": float(epochs * per_epoch),
        }

    def predict(self, X_test: Floats) -> Floats:
        """Return the probability of 1, of (n_test,)."""
        self.eval()
        with torch.no_grad():
            starts = range(0, len(X_test), TEST_ROWS)
            batches = (torch.from_numpy(X_test[i : i + TEST_ROWS]) for i in starts)
            return np.concatenate([self.likelihood(self(x)).mean.numpy() for x in batches])
