"""The best single projection: direction, variance and noise that maximise its evidence.

The evidence of a direction is computed in `dsgp.pursuit.projection`. A search only finds the
optimum near its initial value; initial directions are here, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from dsgp.errors import ParameterError
from dsgp.kernels import Matern
from dsgp.learning.search import NOISE, VARIANCE
from dsgp.pursuit.projection import ProjectedEvidence, Rows, projected_evidence
from dsgp.terms import Floats

# Ridge penalty, relative to the correlation of a column with itself.
_RIDGE = 1e-3
# Approximate curvatures, in nats per squared log, that give an L-BFGS step along the length and the
# variance the right size.
_LENGTH_CURVATURE = 100.0
_VARIANCE_CURVATURE = 10.0
# In nats: the search ends after a round that gained less.
_GAIN = 1.0
# Tolerances of the two kinds of searches, relative to the log likelihood.
_ROUGHLY, _FINELY = 1e-7, 1e-9


@dataclass(frozen=True)
class ProjectionFit:
    """The best projection found from one initial value.

    Attributes
    ----------
    direction : ndarray of shape (n_inputs,)
    kernel : kernel of lengthscale 1
    noise_variance : float
    value : float
        Log marginal likelihood, plus the log of the prior of the direction up to a constant.
    evidence : ProjectedEvidence
    evaluations : int
    """

    direction: Floats
    kernel: Matern
    noise_variance: float
    value: float
    evidence: ProjectedEvidence
    evaluations: int

    @property
    def fitted(self) -> Floats:
        """Posterior mean of the function at the rows, (n_rows,)."""
        return self.evidence.fitted


def fit_projection(
    rows: Rows,
    direction: ArrayLike,
    kernel: Matern,
    noise_variance: float,
    *,
    n_bins: int | None = None,
    relevance: ArrayLike | None = None,
    variance_bounds: tuple[float, float] = VARIANCE,
    noise_bounds: tuple[float, float] = NOISE,
    max_iter: int = 100,
) -> ProjectionFit:
    """Maximise the log marginal likelihood over direction, variance and noise variance.

    The result is never worse than the initial value (moved within the bounds).

    Parameters
    ----------
    rows : Rows
    direction : array_like of shape (n_inputs,)
        Initial value. At 0 the gradient vanishes, and the search would not move.
    kernel : kernel
        Initial value of the variance (None: the mean square of the target), which is kept if it is
        ``fixed``. The lengthscale becomes 1.
    noise_variance : float
        Initial value, of a row of weight 1.
    n_bins : int, optional
        See ``projected_evidence``.
    relevance : array_like of shape (n_inputs,), optional
        Prior precisions α: w ~ N(0, diag(1/α)). Without, all directions are equally probable.
    variance_bounds, noise_bounds : (float, float)
        The defaults suit a target of variance 1.
    max_iter : int
        Iterations of L-BFGS, of about 1.5 evaluations each.
    """
    precision = np.zeros(len(rows.scale)) if relevance is None else np.asarray(relevance, float)
    if precision.shape != rows.scale.shape:
        raise ParameterError(f"relevance must have shape {rows.scale.shape}, got {precision.shape}")
    variance = kernel.variance
    if variance is None:
        variance = float(np.clip(rows.share @ rows.target**2, *variance_bounds))
    if "variance" in kernel.fixed:
        variance_bounds = (variance, variance)
    unit = kernel.with_parameters(lengthscale=1.0, variance=variance)
    bounds = np.log([variance_bounds, noise_bounds])
    search = _Search(rows, unit, n_bins, precision, bounds)
    logs = np.clip(np.log([variance, noise_variance]), *bounds.T)
    # The units are first the standard deviations of the inputs, then those of the curvature near
    # the optimum.
    metric = _Metric(np.diag(1 / rows.scale), np.ones(2), 1.0)
    start = np.array(direction, dtype=np.float64), logs
    left = max_iter - search.run(start, metric, (max_iter + 1) // 2, _ROUGHLY)
    while left > 0:
        before = search.best
        start = before.direction, np.log([before.kernel.std**2, before.noise_variance])
        metric = _curvature(rows, before, precision)
        left -= max(search.run(start, metric, left, _FINELY), 1)
        if search.best.value - before.value < _GAIN:
            break
    return replace(search.best, evaluations=search.evaluations)


class _Search:
    """L-BFGS over the direction and the logs of variance and noise variance; the best so far."""

    def __init__(
        self, rows: Rows, unit: Matern, n_bins: int | None, precision: Floats, bounds: Floats
    ) -> None:
        self.rows, self.unit, self.n_bins = rows, unit, n_bins
        self.precision, self.bounds = precision, bounds
        self.evaluations = 0
        self._best: ProjectionFit | None = None

    @property
    def best(self) -> ProjectionFit:
        """The best of all evaluations, the first of which is at the initial value."""
        assert self._best is not None
        return self._best

    def loss(self, w: Floats, logs: Floats) -> tuple[float, Floats, Floats]:
        """The negative log posterior, and its gradients by direction and logs."""
        self.evaluations += 1
        variance, noise = (float(v) for v in np.exp(np.clip(logs, *self.bounds.T)))
        is_fixed = "variance" in self.unit.fixed
        kernel = self.unit if is_fixed else self.unit.with_parameters(variance=variance)
        evidence = projected_evidence(self.rows, w, kernel, noise, self.n_bins)
        value = evidence.value - 0.5 * float(self.precision @ w**2)
        if self._best is None or value > self._best.value:
            self._best = ProjectionFit(w, kernel, noise, value, evidence, self.evaluations)
        by_logs = -np.array([evidence.by_log_variance, evidence.by_log_noise])
        return -value, self.precision * w - evidence.by_direction, by_logs

    def run(self, start: tuple[Floats, Floats], metric: _Metric, max_iter: int, ftol: float) -> int:
        """Minimise over w and the logs, in the units of a metric; return the iterations."""
        basis, sizes, scale = metric.basis, metric.sizes, metric.scale

        def scaled_loss(theta: Floats) -> tuple[float, Floats]:
            value, by_w, by_logs = self.loss(basis @ theta[:-2], sizes * theta[-2:])
            return value / scale, np.append(basis.T @ by_w, sizes * by_logs) / scale

        result = minimize(
            scaled_loss,
            np.append(np.linalg.solve(basis, start[0]), start[1] / sizes),
            jac=True,
            method="L-BFGS-B",
            # Without bounds on w the first step has at most length 1, whatever the length of the
            # gradient.
            bounds=[(None, None)] * len(basis) + [tuple(b) for b in self.bounds / sizes[:, None]],
            options={"maxiter": max_iter, "ftol": ftol},
        )
        return int(result.nit)


@dataclass(frozen=True)
class _Metric:
    """Units of a search: w = basis @ θ, logs = sizes * θ, and the loss in ``scale`` nats."""

    basis: Floats
    sizes: Floats
    scale: float


def _curvature(rows: Rows, fit: ProjectionFit, precision: Floats) -> _Metric:
    """Units in which the curvature at an optimum is about 1, for the loss per row.

    A change δ of w moves row i along the function by the part of x_i·δ that x_i·w does not
    determine, which costs w_i/σ² f'² times half its square: up to millions of times more than a
    change of the length of w or of the variance, for which the function makes up. Without these
    units L-BFGS ends hundreds of nats below the optimum when there are many rows.
    """
    n = max(rows.n_positive, 1)
    posterior = fit.evidence.posterior
    assert posterior.slope is not None
    steepness = float(posterior.seen.weight @ posterior.slope**2)
    along = rows.correlation @ (fit.direction * rows.scale)
    # A projection with a smaller variance has no curvature in any case.
    spread = max(float(fit.direction * rows.scale @ along), 1e-12)
    length = np.outer(along, along) / spread
    hessian = steepness * (rows.correlation - length) + _LENGTH_CURVATURE / spread * (
        length + _RIDGE * (rows.correlation + np.eye(len(along)))
    )
    hessian += np.diag(precision / rows.scale**2)
    values, vectors = np.linalg.eigh(hessian / n)
    # Rounding may make the smallest eigenvalues negative.
    floor = max(_RIDGE * _LENGTH_CURVATURE / (spread * n), 1e-15 * float(values[-1]))
    basis = vectors / np.sqrt(np.maximum(values, floor)) / rows.scale[:, None]
    return _Metric(basis, np.sqrt([n / _VARIANCE_CURVATURE, 2.0]), float(n))


def linear_start(rows: Rows) -> Floats:
    """Direction of the linear regression of the target, (n_inputs,).

    The projection has a weighted standard deviation of 1 (if any input varies).
    """
    correlation, slope = rows.correlation, np.zeros(rows.inputs.shape[1])
    mean = rows.share @ rows.target
    for part, scaled in rows.standardised():
        slope += (rows.share[part] * (rows.target[part] - mean)) @ scaled
    beta = np.linalg.solve(correlation + _RIDGE * np.eye(len(slope)), slope)
    if not beta.any():
        beta = np.ones_like(slope)  # the target has no linear part: any direction will do
    beta /= np.abs(beta).max()
    spread = math.sqrt(max(float(beta @ correlation @ beta), 0.0))
    return np.asarray(beta / rows.scale / (spread if spread > 0 else 1.0))


def random_starts(
    n_inputs: int, n: int, random: np.random.Generator, relevance: ArrayLike | None = None
) -> Floats:
    """Draw directions, (n, n_inputs).

    From their prior N(0, diag(1/``relevance``)), or else uniformly, of length 1 (for inputs of
    standard deviation 1).
    """
    directions = random.standard_normal((n, n_inputs))
    if relevance is None:
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return directions
    return np.asarray(directions / np.sqrt(np.asarray(relevance, dtype=float)))
