"""One projection, y = f(x·w) + noise: its log marginal likelihood, and the best direction w.

Only products of the lengthscale and w matter: with a lengthscale of 1 the length of w is the
inverse lengthscale. Fisher's identity gives the derivative by the projected input x_i of a row,

    ∂ log Z / ∂x_i = w_i/σ² [(y_i − f̂(x_i)) f̂'(x_i) − Cov(f, f')(x_i)],

from the smoother's moments of f and f', so that the gradient by w costs O(N (m³ + D)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from dsgp.errors import DataError, ParameterError
from dsgp.jit.projection import bin_rows, differentiate, project_rows
from dsgp.kernels import Matern
from dsgp.learning.search import NOISE, VARIANCE
from dsgp.terms import Axis, AxisPosterior, Floats, Observations, sum_by

# In lengthscales. Within wider bins the function is not a line.
WIDEST_BIN = 1 / 32
# Relative to the correlation of a column with itself.
_RIDGE = 1e-3
# Guesses, in nats per squared log, of what turns an L-BFGS step along the length and the variance
# into one of the right size.
_LENGTH_CURVATURE = 100.0
_VARIANCE_CURVATURE = 10.0
# In nats: a search that gained less is the last.
_GAIN = 1.0
# Relative to the log likelihood: where the two kinds of searches end.
_ROUGHLY, _FINELY = 1e-7, 1e-9
_BLOCK = 2**16
# A point this close to the upper end of its bin still differs from the next bin's first.
_INSIDE = 1 - 1e-9


@dataclass(frozen=True)
class Rows:
    """Rows of several inputs and one target.

    Attributes
    ----------
    inputs : ndarray of shape (n_rows, n_inputs)
        Finite.
    target : ndarray of shape (n_rows,)
        Centred.
    weight : ndarray of shape (n_rows,) or (0,)
        Noise precisions relative to 1/σ²; of length 0 if all are 1.
    """

    inputs: Floats
    target: Floats
    weight: Floats

    def __post_init__(self) -> None:
        for name in ("inputs", "target", "weight"):
            values = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
        n = len(self.target)
        if self.inputs.ndim != 2 or n == 0 or self.inputs.shape[0] != n:
            raise DataError(
                f"a projection needs inputs of shape (n_rows, n_inputs) and as many targets, got "
                f"{self.inputs.shape} and {self.target.shape}"
            )
        if self.weight.shape not in ((0,), (n,)):
            raise DataError(f"weight must have shape ({n},) or (0,), got {self.weight.shape}")

    def __len__(self) -> int:
        return len(self.target)

    @cached_property
    def n_positive(self) -> int:
        """Number of rows of positive weight."""
        return int(np.count_nonzero(self.weight)) if self.weight.size else len(self)

    @cached_property
    def log_weight(self) -> float:
        """Σ log of the positive weights."""
        return float(np.sum(np.log(self.weight[self.weight > 0])))

    @cached_property
    def share(self) -> Floats:
        """Weight of each row relative to all, (n_rows,)."""
        total = self.weight.sum()
        return self.weight / total if total > 0 else np.full(len(self), 1 / len(self))

    @cached_property
    def centre(self) -> Floats:
        """Weighted mean of each input, (n_inputs,)."""
        return self.share @ self.inputs

    @cached_property
    def deviation(self) -> Floats:
        """Weighted standard deviation of each input, (n_inputs,); 0 for a constant."""
        squares = np.zeros(self.inputs.shape[1])
        for start in range(0, len(self), _BLOCK):
            part = slice(start, start + _BLOCK)
            squares += self.share[part] @ (self.inputs[part] - self.centre) ** 2
        # The mean of equal numbers is off by rounding.
        return np.where(squares <= (1e-14 * self.centre) ** 2, 0.0, np.sqrt(squares))

    @property
    def scale(self) -> Floats:
        """``deviation``, or 1 for a constant."""
        return np.where(self.deviation > 0, self.deviation, 1.0)

    @cached_property
    def correlation(self) -> Floats:
        """Weighted correlations of the inputs, (n_inputs, n_inputs); 0 for a constant."""
        total = np.zeros((self.inputs.shape[1], self.inputs.shape[1]))
        for part, scaled in self.standardised():
            total += (scaled * self.share[part, None]).T @ scaled
        return total

    def standardised(self) -> Iterator[tuple[slice, Floats]]:
        """Blocks of rows, with their inputs of mean 0 and standard deviation 1 (or 0)."""
        for start in range(0, len(self), _BLOCK):
            part = slice(start, start + _BLOCK)
            scaled = (self.inputs[part] - self.centre) / self.scale
            scaled[:, self.deviation == 0] = 0.0
            yield part, scaled


@dataclass(frozen=True)
class ProjectedEvidence:
    """Log marginal likelihood of one projection, with its gradient.

    Attributes
    ----------
    value : float
    by_direction : ndarray of shape (n_inputs,)
    by_log_lengthscale, by_log_variance, by_log_noise : float
        Derivatives by the logs of the kernel's parameters and of the noise variance.
    fitted : ndarray of shape (n_rows,)
        Posterior mean of the function at the rows.
    posterior : AxisPosterior
        Along the projection, at the distinct inputs or the means of the bins. Its own evidence
        lacks the scatter of the rows around these points.
    origin : float
        The projection at which the posterior's axis has its 0.
    """

    value: float
    by_direction: Floats
    by_log_lengthscale: float
    by_log_variance: float
    by_log_noise: float
    fitted: Floats
    posterior: AxisPosterior
    origin: float


def projected_evidence(
    rows: Rows,
    direction: ArrayLike,
    kernel: Matern,
    noise_variance: float,
    n_bins: int | None = None,
) -> ProjectedEvidence:
    """Log marginal likelihood of y = f(x·w) + ε, ε_i ~ N(0, σ²/w_i), f ~ GP(0, kernel).

    Parameters
    ----------
    rows : Rows
    direction : array_like of shape (n_inputs,)
    kernel : kernel with all its parameters, Matérn 3/2 or smoother
    noise_variance : float
        Of a row of weight 1.
    n_bins : int, optional
        Put the rows into so many bins of equal width instead of sorting them; into more where bins
        would be wider than 1/32 of the lengthscale, unless that takes as many as there are rows.
        Within a bin the posterior mean is taken as a line, in the value and in the gradient alike.

    Returns
    -------
    ProjectedEvidence

    Notes
    -----
    The gradient is that of the sorted rows; with bins the value jumps as rows change bins, which no
    gradient can follow. Measured on y = sin(3 x·w) + 0.1 ε with 10⁶ rows of 8 inputs and 4096 bins
    of 0.005 lengthscales, 10⁻⁴ away from the best direction, for Matérn 5/2 (3/2; 7/2): the value
    is 0.15 (6; 0.03) nats off, and jumps by 0.002 (0.05; 0.0005) along a line; the gradient, of
    norm 27 000 there, is 54 (630; 42) off, which moves the optimum by some 0.5 % (6 %; 0.4 %) of
    the standard deviation to which the rows determine w. It is as near finite differences of either
    value. A quarter of the bins make these errors 2 to 20 times as large. One evaluation
    took 14 ms, and 200 to 350 ms with sorted rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.kernels import Matern52
    >>> from dsgp.pursuit.projection import Rows, projected_evidence
    >>> inputs = np.random.default_rng(0).standard_normal((200, 2))
    >>> rows = Rows(inputs, np.sin(inputs @ [0.6, 0.8]), np.empty(0))
    >>> kernel = Matern52(lengthscale=1.0, variance=1.0)
    >>> right, wrong = (projected_evidence(rows, w, kernel, 0.01) for w in ([0.6, 0.8], [0.8, 0.6]))
    >>> right.value > wrong.value
    True
    >>> bool(wrong.by_direction @ [-1, 1] > 0)
    True
    """
    direction = np.ascontiguousarray(direction, dtype=np.float64)
    if direction.shape != rows.inputs.shape[1:]:
        raise ParameterError(
            f"direction must have shape {rows.inputs.shape[1:]}, got {direction.shape}"
        )
    if not 0 < noise_variance < math.inf:
        raise ParameterError(f"noise_variance must be a positive number, got {noise_variance!r}")
    position = np.empty(len(rows))
    project_rows(rows.inputs, direction[None], position[:, None])
    low, high = float(position.min()), float(position.max())
    if not math.isfinite(high - low):
        raise ParameterError(
            f"direction projects the inputs to {low:g} … {high:g}, beyond float64; take a shorter "
            "one"
        )
    origin, width = 0.0, 1.0
    n_bins = None if n_bins is None else _enough_bins(n_bins, high - low, kernel)
    if n_bins is not None and n_bins < len(rows) and high - low > np.finfo(float).tiny * n_bins:
        origin, width = low, (high - low) / n_bins
        axis, codes, target, total, centre, used = _in_bins(rows, position, low, width, n_bins)
    else:
        axis, codes, target, total = _sorted(rows, position)
        centre, used = axis.points, np.arange(len(axis))
    seen = Observations(
        target=target,
        weight=total / noise_variance,
        # The scatter of the rows around their points comes with the pass over them below.
        within=0.0,
        log_weight=rows.log_weight - rows.n_positive * math.log(noise_variance),
        n_rows=rows.n_positive,
    )
    posterior = axis.posterior(kernel, seen, slope=True)
    table = np.zeros((int(used[-1]) + 1, 6))
    table[used, 0], table[used, 1], table[used, 2] = centre, target, target - posterior.mean
    table[used, 3], table[used, 4] = posterior.slope, posterior.slope_variance
    table[used, 5] = posterior.slope_covariance
    fitted, by_direction = np.empty(len(rows)), np.zeros(len(direction))
    within, spread = differentiate(
        rows.inputs, rows.target, rows.weight, codes, position, width, table, fitted, by_direction
    )
    loss = 0.5 * (within + spread) / noise_variance
    evidence = posterior.evidence
    return ProjectedEvidence(
        value=evidence.value - loss,
        by_direction=by_direction / noise_variance,
        by_log_lengthscale=evidence.by_log["lengthscale"],
        by_log_variance=evidence.by_log["variance"],
        by_log_noise=evidence.by_log_noise + loss,
        fitted=fitted,
        posterior=posterior,
        origin=origin,
    )


def _enough_bins(n_bins: int, extent: float, kernel: Matern) -> int:
    """Return a number of bins so narrow that the function is a line within each."""
    lengthscale = math.sqrt(2 * kernel.smoothness) / kernel.rate
    # Beyond any number of rows the ratio says no more.
    return max(n_bins, math.ceil(min(extent / lengthscale, 1e15) / WIDEST_BIN))


def _sorted(rows: Rows, position: Floats) -> tuple[Axis, NDArray[np.int32], Floats, Floats]:
    """Axis of the distinct projections, the point of each row, target and weight of each point."""
    axis, codes = Axis.from_column(position)
    weight = rows.weight if rows.weight.size else np.ones(len(rows))
    total = sum_by(codes, len(axis), weight)
    return axis, codes, _divided(sum_by(codes, len(axis), weight * rows.target), total), total


def _in_bins(
    rows: Rows, position: Floats, low: float, width: float, n_bins: int
) -> tuple[Axis, NDArray[np.int32], Floats, Floats, Floats, NDArray[np.intp]]:
    """Like ``_sorted`` for bins, with the place of the points within these and which are used.

    ``position`` becomes the place of the rows within their bins, in widths. The axis begins at
    ``low`` and has one point for each bin with rows, at their weighted mean.
    """
    codes = np.empty(len(rows), dtype=np.int32)
    sums = np.zeros((n_bins, 4))
    bin_rows(position, rows.target, rows.weight, low, 1 / width, codes, sums)
    used = np.flatnonzero(sums[:, 3])
    total = sums[used, 0]
    centre = np.where(total > 0, np.minimum(_divided(sums[used, 1], total), _INSIDE), 0.5)
    return Axis((used + centre) * width), codes, _divided(sums[used, 2], total), total, centre, used


@dataclass(frozen=True)
class ProjectionFit:
    """The best projection found from one start.

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

    The result is never worse than the start (put within the bounds).

    Parameters
    ----------
    rows : Rows
    direction : array_like of shape (n_inputs,)
        Start. At 0 the gradient vanishes, and the search would stay there.
    kernel : kernel
        Start of the variance (None: the mean square of the target), which stays as given if it is
        ``fixed``. The lengthscale becomes 1.
    noise_variance : float
        Start, of a row of weight 1.
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
    best: ProjectionFit | None = None
    evaluations = 0

    def loss(w: Floats, logs: Floats) -> tuple[float, Floats, Floats]:
        nonlocal best, evaluations
        evaluations += 1
        variance, noise = (float(v) for v in np.exp(np.clip(logs, *bounds.T)))
        kernel = unit if "variance" in unit.fixed else unit.with_parameters(variance=variance)
        evidence = projected_evidence(rows, w, kernel, noise, n_bins)
        value = evidence.value - 0.5 * float(precision @ w**2)
        if best is None or value > best.value:
            best = ProjectionFit(w, kernel, noise, value, evidence, evaluations)
        by_logs = -np.array([evidence.by_log_variance, evidence.by_log_noise])
        return -value, precision * w - evidence.by_direction, by_logs

    def search(start: tuple[Floats, Floats], metric: _Metric, max_iter: int, ftol: float) -> int:
        """Minimise over w in a basis and logs in their sizes; return the iterations."""
        basis, sizes, scale = metric.basis, metric.sizes, metric.scale

        def scaled_loss(theta: Floats) -> tuple[float, Floats]:
            value, by_w, by_logs = loss(basis @ theta[:-2], sizes * theta[-2:])
            return value / scale, np.append(basis.T @ by_w, sizes * by_logs) / scale

        found = minimize(
            scaled_loss,
            np.append(np.linalg.solve(basis, start[0]), start[1] / sizes),
            jac=True,
            method="L-BFGS-B",
            # Without bounds on w the first step has at most length 1, not that of the gradient.
            bounds=[(None, None)] * len(basis) + [tuple(b) for b in bounds / sizes[:, None]],
            options={"maxiter": max_iter, "ftol": ftol},
        )
        return int(found.nit)

    logs = np.clip(np.log([variance, noise_variance]), *bounds.T)
    # First in standard deviations of the inputs, then by the curvature near the optimum.
    metric = _Metric(np.diag(1 / rows.scale), np.ones(2), 1.0)
    start = np.array(direction, dtype=np.float64), logs
    first = (max_iter + 1) // 2
    left = max_iter - search(start, metric, first, _ROUGHLY)
    while left > 0:
        assert best is not None  # the first evaluation is at the start
        before = best.value
        start = best.direction, np.log([best.kernel.std**2, best.noise_variance])
        left -= max(search(start, _curvature(rows, best, precision), left, _FINELY), 1)
        if best.value - before < _GAIN:
            break
    assert best is not None
    return replace(best, evaluations=evaluations)


@dataclass(frozen=True)
class _Metric:
    """Units of a search: w = basis @ θ, logs = sizes * θ, and the loss in ``scale`` nats."""

    basis: Floats
    sizes: Floats
    scale: float


def _curvature(rows: Rows, fit: ProjectionFit, precision: Floats) -> _Metric:
    """Units in which the curvature at an optimum is about 1, for the loss per row.

    A change δ of w moves row i along the function by the part of x_i·δ that x_i·w does not tell,
    which costs w_i/σ² f'² times half its square: up to millions of times more than a change of the
    length of w or of the variance, for which the function makes up. Without these units L-BFGS ends
    hundreds of nats below the optimum when there are many rows.
    """
    n = max(rows.n_positive, 1)
    posterior = fit.evidence.posterior
    assert posterior.slope is not None
    steepness = float(posterior.seen.weight @ posterior.slope**2)
    along = rows.correlation @ (fit.direction * rows.scale)
    # A projection narrower than this has no curvature anyway.
    spread = max(float(fit.direction * rows.scale @ along), 1e-12)
    length = np.outer(along, along) / spread
    hessian = steepness * (rows.correlation - length) + _LENGTH_CURVATURE / spread * (
        length + _RIDGE * (rows.correlation + np.eye(len(along)))
    )
    hessian += np.diag(precision / rows.scale**2)
    values, vectors = np.linalg.eigh(hessian / n)
    # Rounding may make the least negative.
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
        beta = np.ones_like(slope)  # the target has no linear part: any direction
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


def _divided(sums: Floats, total: Floats) -> Floats:
    """Weighted means; 0 where there is no weight."""
    return np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
