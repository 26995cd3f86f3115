"""Laplace's approximation by dense algebra on the rows (Rasmussen and Williams 2006, alg. 3.1)."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, cholesky

from dsgp.additive import TwoWayTables
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.laplace.evidence import CONSTANT, NodeModel, constant_kernel
from dsgp.laplace.rows import ResponseRows
from dsgp.learning.basis import Basis
from dsgp.likelihoods import (
    Bernoulli,
    Binomial,
    Gamma,
    Likelihood,
    NegativeBinomial,
    Ordered,
    Poisson,
    StudentT,
)
from dsgp.rows.table import RowTable
from tests.additive.dense import covariance, inputs, table_of

KERNELS = [Matern12(2.0, 0.3), Matern32(0.7, 1.0), Matern52(1.5, 2.0), Matern72(3.0, 0.1)]
LIKELIHOODS = {
    "logit": Bernoulli(),
    "probit": Bernoulli("probit"),
    "binomial": Binomial(),
    "poisson": Poisson(),
    "negative_binomial": NegativeBinomial(dispersion=0.5),
    "gamma": Gamma(shape=2.0),
    "ordered": Ordered(cutpoints=(-1.0, 0.3, 1.0)),
    "ordered_probit": Ordered(cutpoints=(-1.0, 0.3, 1.0), link="probit"),
    "student_t": StudentT(scale=0.5),
}
_NONE = np.empty(0)


@dataclass
class Laplace:
    """Rows, hyperparameters, and Laplace's approximation of what the rows say.

    ``constant`` is the prior variance of a constant beside the terms.
    """

    X: np.ndarray
    y: np.ndarray
    kernels: list
    likelihood: Likelihood
    level: float = 0.0
    weight: np.ndarray = field(default_factory=lambda: _NONE)
    offset: np.ndarray = field(default_factory=lambda: _NONE)
    trials: np.ndarray = field(default_factory=lambda: _NONE)
    constant: float = 0.0

    @property
    def table(self):
        if self.X.shape[1]:
            return table_of(self.X)
        return RowTable((), (), np.zeros((0, len(self.y)), dtype=np.uint8))

    @property
    def rows(self):
        """What the library computes from."""
        return ResponseRows(self.table, self.y, self.weight, self.offset, self.trials)

    # ------------------------------------------------------------------ the reference

    @cached_property
    def priors(self):
        """Covariances of every term at the rows, the constant's last."""
        dense = [covariance(k, x, x) for k, x in zip(self.kernels, self.X.T, strict=True)]
        n = len(self.y)
        return [*dense, np.full((n, n), self.constant)] if self.constant else dense

    @property
    def prior(self):
        return sum(self.priors, np.zeros((len(self.y),) * 2))

    @property
    def counts(self):
        return self.weight if len(self.weight) else np.ones(len(self.y))

    def latent(self, f):
        return f + self.level + (self.offset if len(self.offset) else 0.0)

    def _linearised(self, f):
        trials = self.trials if len(self.trials) else None
        value = self.likelihood.log_density(self.y, self.latent(f), trials)
        gradient, weight, _ = self.likelihood.derivatives(self.y, self.latent(f), trials)
        return self.counts @ value, self.counts * gradient, self.counts * weight

    @staticmethod
    def _factor(prior, weight):
        root = np.sqrt(weight)
        return root, cholesky(np.eye(len(root)) + root[:, None] * prior * root, lower=True)

    @cached_property
    def mode(self):
        """f̂ without level and offset, K⁻¹ f̂ and Ω(f̂): Newton until it stands still."""
        prior = self.prior
        f = dual = np.zeros(len(self.y))
        value, gradient, weight = self._linearised(f)
        objective = value
        for _ in range(1000):
            root, factor = self._factor(prior, weight)
            b = weight * f + gradient
            step = b - root * cho_solve((factor, True), root * (prior @ b)) - dual
            size = 1.0
            while True:
                tried_dual = dual + size * step
                tried = prior @ tried_dual
                value, gradient, weight = self._linearised(tried)
                tried_objective = value - 0.5 * tried_dual @ tried
                if tried_objective >= objective - 1e-13 * abs(objective):
                    break
                size /= 2
                if size < 1e-15:  # rounding
                    return f, dual, objective
            moved = np.abs(tried - f).max(initial=0.0)
            f, dual, objective = tried, tried_dual, tried_objective
            if moved < 1e-10 * (1 + np.abs(f).max(initial=0.0)):
                return f, dual, objective
        raise AssertionError("the reference did not converge")

    @property
    def curvature(self):
        """w W of the rows at the mode."""
        return self._linearised(self.mode[0])[2]

    def log_det(self, alone=False):
        """``alone``: of the terms as if independent (the paper's eq. mdl)."""
        priors = self.priors if alone else [self.prior]
        factors = [self._factor(prior, self.curvature)[1] for prior in priors]
        return 2 * sum(float(np.log(np.diag(factor)).sum()) for factor in factors)

    def evidence(self, alone=False):
        return self.mode[2] - 0.5 * self.log_det(alone)

    def functions(self, dual=None):
        """Terms at the points of their axes, one after the other."""
        dual = self.mode[1] if dual is None else dual
        terms = zip(self.kernels, self.table.cells, self.X.T, strict=True)
        parts = [covariance(k, axis.points, x) @ dual for k, axis, x in terms]
        return np.concatenate(parts) if parts else np.zeros(0)

    def off_stationary(self, flat):
        """How far functions are from K̃ Zᵀ∇, in prior standard deviations: 0 at the mode only.

        Where weights are huge this is known better than the mode itself, by any algorithm.
        """
        gradient = self._linearised(self.table.gather(flat))[1]
        away = np.abs(self.functions(gradient) - flat)
        parts = zip(self.kernels, self.table.parts(away), strict=True)
        return max((part.max() / k.std for k, part in parts), default=0.0)

    def predict(self, A):
        """Mean and variance of f at other rows, without level and offset."""
        pairs = zip(self.kernels, self.X.T, A.T, strict=True)
        cross = sum(covariance(k, x, a) for k, x, a in pairs) + self.constant
        prior = sum(k.variance * np.isfinite(a) for k, a in zip(self.kernels, A.T, strict=True))
        root, factor = self._factor(self.prior, self.curvature)
        seen = root[:, None] * cross
        explained = np.sum(seen * cho_solve((factor, True), seen), axis=0)
        return cross.T @ self.mode[1], prior + self.constant - explained

    # ------------------------------------------------------------------ by hyperparameters

    @property
    def logs(self):
        """Logs of all lengthscales, all variances, and the likelihood's parameters."""
        kernels = self.kernels
        logs = np.log([*(k.lengthscale for k in kernels), *(k.variance for k in kernels)])
        return np.concatenate([logs, self.likelihood.unconstrained()])

    def at(self, logs):
        n = len(self.kernels)
        values = np.exp(logs[: 2 * n])
        kernels = [
            k.with_parameters(lengthscale=length, variance=variance)
            for k, length, variance in zip(self.kernels, values[:n], values[n:], strict=True)
        ]
        return replace(
            self, kernels=kernels, likelihood=self.likelihood.from_unconstrained(logs[2 * n :])
        )

    def gradients(self, chosen=slice(None), step=2e-3):
        """Of both evidences, joint and alone, by ``logs``: differences of the fourth order."""

        def along(unit):
            near = [self.at(self.logs + k * step * unit) for k in (-2, -1, 1, 2)]
            values = [[given.evidence(), given.evidence(alone=True)] for given in near]
            return np.dot([1, -8, 8, -1], values) / (12 * step)

        return np.array([along(unit) for unit in np.eye(len(self.logs))[chosen]]).T

    # ------------------------------------------------------------------ the library

    def node_model(self, counts=1000, spreads=None):
        """Rows and nodes: with as many as there are values nothing is approximated."""
        table = self.table
        bins = list(table.cells)
        in_bins = [table.scatter(d, self.counts) for d in range(table.n_terms)]
        spreads = spreads or [np.zeros(len(points)) for points in bins]
        numbers = [counts] * len(bins)
        unit = 0.0
        if self.constant:
            unit = self.constant / constant_kernel(1.0).variance
            bins, in_bins, numbers = [*bins, CONSTANT], [*in_bins, np.ones(1)], [*numbers, 1]
        nothing = [np.zeros(len(points)) for points in bins]
        basis = Basis.of(TwoWayTables(bins, in_bins, nothing, {}, nothing), numbers)
        return NodeModel(self.rows, spreads, basis, self.likelihood, self.level, unit)


def example(
    name,
    n=150,
    seed=0,
    *,
    kernels=KERNELS,
    points=13,
    missing=0.1,
    weighted=True,
    shifted=True,
    constant=0.0,
):
    """Rows with ties (``points`` distinct values a column; None: without)."""
    rng = np.random.default_rng(seed)
    X = inputs(n, len(kernels), 0.3, seed)
    if points is not None:
        X = np.clip(np.round(3 * X), -(points // 2), points // 2) / 3
    likelihood = LIKELIHOODS[name]
    f = sum((np.sin((1 + d) * x) for d, x in enumerate(X.T)), np.zeros(n)) * 0.7
    offset = np.log(rng.uniform(0.2, 5.0, n)) if shifted else _NONE
    trials = rng.integers(1, 9, n).astype(float) if name == "binomial" else _NONE
    y = likelihood.sample(
        f + (offset if shifted else 0.0), rng, trials if name == "binomial" else None
    )
    X[rng.uniform(size=X.shape) < missing] = np.nan
    weight = rng.uniform(0.5, 2.0, n) if weighted else _NONE
    return Laplace(X, y, kernels, likelihood, 0.2, weight, offset, trials, constant)
