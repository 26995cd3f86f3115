"""Vecchia's approximation of the inverse covariance of all rows, as a sparse factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dsgp.compute import run
from dsgp.errors import ParameterError
from dsgp.jit import nearest as loops
from dsgp.remainder.metric import Metric
from dsgp.remainder.search import Places, earlier
from dsgp.terms import Floats

_BLOCK = 512
_SECONDS = 1e-5  # per row, with 24 neighbours


@dataclass(frozen=True)
class Precision:
    """P ≈ (K + R)⁻¹ = (I − B)ᵀ D⁻¹ (I − B), of rows in random order (Vecchia 1988).

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        The rows, in the order in which each is conditioned on those before.
    neighbours, weights : ndarray of shape (n, m)
        B: places in that order, -1 where there are fewer, and coefficients.
    left : ndarray of shape (n,)
        D: the variance of each row given its neighbours.
    """

    order: Places
    neighbours: Places
    weights: Floats
    left: Floats

    @classmethod
    def of(
        cls, inputs: Floats, metric: Metric, relative_noise: Floats, count: int, seed: int
    ) -> Precision:
        """Make it.

        Parameters
        ----------
        inputs : ndarray of shape (n, D)
        metric : Metric
        relative_noise : ndarray of shape (n,)
            Noise variances as multiples of the metric's.
        count : int
            Neighbours of each row.
        seed : int
            Random seed of the order.
        """
        n = len(inputs)
        order = np.random.default_rng(seed).permutation(n)
        x = metric.scaled(inputs[order])
        neighbours = earlier(metric.coordinates(x), min(count, max(n - 1, 1)))
        weights, left = np.empty(neighbours.shape), np.empty(n)
        noise = metric.noise_variance * relative_noise[order]
        rows = np.arange(n)
        tasks = [
            partial(
                loops.conditionals, *metric.arguments(x), noise, rows, neighbours, start,
                min(start + _BLOCK, n), weights, left,
            )
            for start in range(0, n, _BLOCK)
        ]  # fmt: skip
        failed = run(tasks, _SECONDS * n, in_place=True)
        require_factorised(max(failed, default=-1))
        return cls(order, neighbours, weights, left)

    def __len__(self) -> int:
        return len(self.order)

    def multiply(self, vectors: Floats) -> Floats:
        """Return P v for vectors (n, r)."""
        ordered = np.ascontiguousarray(vectors[self.order])
        rows, out = np.arange(len(self)), np.empty_like(ordered)
        loops.residuals(self.weights, self.neighbours, rows, ordered, out)
        out /= self.left[:, None]
        back = np.zeros_like(out)
        loops.transposed_residuals(self.weights, self.neighbours, rows, out, back)
        result = np.empty_like(back)
        result[self.order] = back
        return result


def require_factorised(failed: int) -> None:
    """Raise ``ParameterError`` if a compiled loop could not factorise a covariance."""
    if failed >= 0:
        raise ParameterError(
            "float64 cannot resolve noise that is so small compared with the remainder: give a "
            "larger noise_variance, or fewer neighbours"
        )
