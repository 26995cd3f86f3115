"""One Markov chain of ``pursuit.gibbs``: its model, its state and its sweeps.

The ellipses of its slice updates begin with the curvature at the initial values, take mean and
covariance from the later half of the warm-up, and are fixed from then on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.jit.projection import project_rows
from dsgp.kernels import Matern
from dsgp.pursuit.projection import Rows
from dsgp.pursuit.splines import evaluate_splines, natural_splines, place_nodes
from dsgp.sampling.slices import Ellipse
from dsgp.terms import LOG_2PI, Axis, Floats, Observations

# Largest width of the bins of rows, in lengthscales.
_WIDEST_BIN = 1 / 128
# Number of draws, per parameter, that the curvature counts for beside those of the warm-up.
_TRUST = 2.0
_ADAPT_EVERY = 5
# Sweeps in which the functions adapt to the initial directions, before anything else moves.
_SETTLE = 5
# Approximate curvature by the squares of log length and log variance, in nats.
_LENGTH_CURVATURE, _VARIANCE_CURVATURE = 50.0, 5.0
# Log variances beyond this are rejected.
_LARGEST_LOG = 300.0
_BLOCK = 2**13


@dataclass(frozen=True)
class Priors:
    """Priors of the hyperparameters, for inputs and target of variance 1.

    Attributes
    ----------
    precision : ndarray of shape (D,) or float, optional
        w_m ~ N(0, diag(1/α)). None: D, for lengthscales about one standard deviation.
    relevance : bool
        Draw α_j ~ Gamma(``relevance_shape``, rate ``relevance_shape`` / ``precision``), common to
        all terms, too. ``precision`` is its prior mean then.
    relevance_shape : float
    variance_mean, variance_std : float
        log s_m² ~ N(mean, std²).
    noise_shape, noise_rate : float
        1/σ² ~ Gamma(shape, rate).
    fixed_noise : bool
        Keep σ² at its initial value instead.
    constant : bool
        Draw a constant in addition to the functions, with a flat prior. Otherwise it is 0.
    """

    precision: ArrayLike | None = None
    relevance: bool = False
    relevance_shape: float = 0.5
    variance_mean: float = -1.0
    variance_std: float = 2.0
    noise_shape: float = 0.5
    noise_rate: float = 0.005
    fixed_noise: bool = False
    constant: bool = False


class Draw(NamedTuple):
    """The arrays of ``gibbs.Draws``, for a single draw."""

    directions: Floats
    nodes: Floats
    values: Floats
    variances: Floats
    centres: Floats
    noise_variance: float
    precision: Floats
    log_likelihood: float
    interpolation_error: float


@dataclass(frozen=True)
class Model:
    """The rows, kernel and priors that all chains share."""

    rows: Rows
    kernel: Matern
    priors: Priors
    n_bins: int | None = None

    @cached_property
    def weight(self) -> Floats:
        """Weight of each row, (n,)."""
        return self.rows.weight if self.rows.weight.size else np.ones(len(self.rows))

    @cached_property
    def precision(self) -> Floats:
        """Prior (mean) precision α of each input, (D,)."""
        size = self.rows.inputs.shape[1]
        precisions = size if self.priors.precision is None else self.priors.precision
        return np.broadcast_to(np.asarray(precisions, dtype=np.float64), (size,)).copy()

    def kernel_of(self, log_variance: float) -> Matern:
        """Return the kernel of a term."""
        return self.kernel.with_parameters(lengthscale=1.0, variance=math.exp(log_variance))

    def along(self, direction: Floats) -> tuple[Axis, NDArray[np.int32]]:
        """Return the axis of a projection and the point of each row."""
        position = np.empty(len(self.rows))
        project_rows(self.rows.inputs, direction[None], position[:, None])
        if self.n_bins is not None:
            low, high = float(position.min()), float(position.max())
            n_bins = max(self.n_bins, math.ceil(min((high - low) / _WIDEST_BIN, 1e15)))
            if n_bins < len(position) and high - low > np.finfo(float).tiny * n_bins:
                codes = ((position - low) * (n_bins / (high - low))).astype(np.int64)
                np.minimum(codes, n_bins - 1, out=codes)
                count = np.bincount(codes, minlength=n_bins)
                used = np.flatnonzero(count)
                points = np.bincount(codes, position, n_bins)[used] / count[used]
                if (points[1:] > points[:-1]).all():
                    place = np.cumsum(count > 0) - 1
                    return Axis(points), place[codes].astype(np.int32)
        return Axis.from_column(position)

    def seen(
        self, codes: NDArray[np.int32], n_points: int, residual: Floats, noise_variance: float
    ) -> Observations:
        """Return the residual as observations of one function."""
        return Observations.from_rows(codes, n_points, residual, self.weight / noise_variance)

    def log_marginal(self, theta: Floats, residual: Floats, noise_variance: float) -> float:
        """Log density of a residual given (w_m, log s_m²), the function integrated out."""
        if not abs(theta[-1]) < _LARGEST_LOG:
            return -math.inf
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                axis, codes = self.along(theta[:-1])
            except ValueError:  # beyond the range of float64
                return -math.inf
        value = axis.log_marginal_likelihood(
            self.kernel_of(theta[-1]), self.seen(codes, len(axis), residual, noise_variance)
        )
        return value if math.isfinite(value) else -math.inf

    def log_prior(self, theta: Floats, precision: Floats) -> float:
        """Log density of (w_m, log s_m²) up to a constant."""
        deviation = (theta[-1] - self.priors.variance_mean) / self.priors.variance_std
        return -0.5 * float(precision @ theta[:-1] ** 2) - 0.5 * float(deviation**2)


class Chain:
    """One Markov chain: its state, its ellipses and the draws it keeps."""

    def __init__(
        self,
        model: Model,
        directions: Floats,
        variances: Floats,
        noise_variance: float,
        random: np.random.Generator,
    ) -> None:
        self.model = model
        self.random = random
        self.theta = np.column_stack([directions, np.log(variances)])  # (M, D + 1)
        self.noise_variance = noise_variance
        self.precision = model.precision
        self.constant = 0.0
        self.functions = np.zeros((len(directions), len(model.rows)))
        self.ellipses: list[Ellipse] = []
        self.begun: list[Ellipse] = []  # the first ellipses, from the curvature
        self.history: list[Floats] = []
        self.kept: list[Draw] = []
        self.sweeps = self.updates = self.evaluations = 0

    def advance(self, end: int, n_warmup: int, thin: int, n_nodes: int) -> Self:
        """Continue until ``end`` sweeps are done."""
        if not self.ellipses:
            self.settle()
        while self.sweeps < end:
            done = self.sweeps + 1 - n_warmup
            keep = done > 0 and done % thin == 0
            self.sweep(n_nodes if keep else 0)
            self.sweeps += 1
            if self.sweeps <= n_warmup:
                self._adapt(last=self.sweeps == n_warmup)
        return self

    def settle(self) -> None:
        """Draw functions at the initial values, and find ellipses from the curvature there."""
        for _ in range(_SETTLE):
            for m in range(len(self.theta)):
                self._draw_function(m, self._residual(m))
        self._draw_precision()
        self.begun = [self._curved(m) for m in range(len(self.theta))]
        self.ellipses = list(self.begun)
        # Chains begin at different places, so that their agreement is informative.
        for m, ellipse in enumerate(self.ellipses):
            step = ellipse.factor @ self.random.standard_normal(len(ellipse.mean))
            self.theta[m] = self.theta[m] + step

    def sweep(self, n_nodes: int = 0) -> None:
        """Draw everything once; keep the draw, with ``n_nodes`` nodes, if that is not 0."""
        nodes = np.empty((len(self.theta), n_nodes))
        values = np.empty_like(nodes)
        for m, ellipse in enumerate(self.ellipses):
            residual = self._residual(m)
            log_posterior = partial(self._log_posterior, residual)
            theta = self.theta[m]
            self.theta[m], _, tries = ellipse.update(
                theta, log_posterior(theta), log_posterior, self.random
            )
            self.updates += 1
            self.evaluations += tries + 1
            nodes[m], values[m] = self._draw_function(m, residual, n_nodes)
        rows = self.model.rows
        total = self.functions.sum(axis=0)
        if self.model.priors.constant:
            self._draw_constant(total)
            total += self.constant
        squares = float(self.model.weight @ (rows.target - total) ** 2)
        self._draw_noise(squares)
        self._draw_precision()
        if n_nodes:
            self._keep(nodes, values, total, squares)

    def _draw_constant(self, total: Floats) -> None:
        """Draw the constant, whose prior is flat."""
        rows, weight = self.model.rows, float(self.model.weight.sum())
        mean = float(self.model.weight @ (rows.target - total)) / weight
        std = math.sqrt(self.noise_variance / weight)
        self.constant = mean + std * self.random.standard_normal()

    def _draw_noise(self, squares: float) -> None:
        priors = self.model.priors
        if not priors.fixed_noise:
            shape = priors.noise_shape + 0.5 * self.model.rows.n_positive
            self.noise_variance = (priors.noise_rate + 0.5 * squares) / self.random.gamma(shape)

    def _draw_precision(self) -> None:
        priors = self.model.priors
        if priors.relevance:
            shape = priors.relevance_shape + 0.5 * len(self.theta)
            rate = priors.relevance_shape / self.model.precision
            rate = rate + 0.5 * (self.theta[:, :-1] ** 2).sum(axis=0)
            self.precision = self.random.gamma(shape, size=len(rate)) / rate

    def _keep(self, nodes: Floats, values: Floats, total: Floats, squares: float) -> None:
        rows = self.model.rows
        log_likelihood = -0.5 * (
            rows.n_positive * (LOG_2PI + math.log(self.noise_variance))
            - rows.log_weight
            + squares / self.noise_variance
        )
        directions = self.theta[:, :-1].copy()
        if len(values):  # a constant belongs to the sum: any function may include it
            values[0] += self.constant
        cubics = natural_splines(nodes, values)
        centres, error = np.zeros(len(nodes)), 0.0
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            function_values = evaluate_splines(rows.inputs[part], directions, nodes, cubics)
            centres += rows.share[part] @ function_values
            error += float(rows.share[part] @ (total[part] - function_values.sum(axis=1)) ** 2)
        self.kept.append(
            Draw(
                directions=directions,
                nodes=nodes,
                values=values,
                variances=np.exp(self.theta[:, -1]),
                centres=centres,
                noise_variance=self.noise_variance,
                precision=self.precision,
                log_likelihood=log_likelihood,
                interpolation_error=math.sqrt(error),
            )
        )

    def _residual(self, m: int) -> Floats:
        """Target less the constant and all functions but one, (n,)."""
        # Summed again each time: repeated additions and subtractions accumulate rounding errors.
        others = self.functions.sum(axis=0) - self.functions[m]
        return np.asarray(self.model.rows.target - self.constant - others)

    def _log_posterior(self, residual: Floats, theta: Floats) -> float:
        prior = self.model.log_prior(theta, self.precision)
        return prior + self.model.log_marginal(theta, residual, self.noise_variance)

    def _draw_function(self, m: int, residual: Floats, n_nodes: int = 0) -> tuple[Floats, Floats]:
        """Draw f_m at the rows; return nodes and its values there."""
        model = self.model
        axis, codes = model.along(self.theta[m, :-1])
        nodes, places = np.empty(0), np.empty(0, dtype=np.intp)
        if n_nodes:
            # The nodes are points without observations.
            nodes = place_nodes(axis.points, axis.points[0], axis.points[-1], n_nodes)
            points = np.union1d(axis.points, nodes)
            codes = np.searchsorted(points, axis.points).astype(np.int32)[codes]
            axis, places = Axis(points), np.searchsorted(points, nodes)
        kernel = model.kernel_of(self.theta[m, -1])
        seen = model.seen(codes, len(axis), residual, self.noise_variance)
        # A draw of the prior, plus the posterior mean given the targets less that draw and a draw
        # of the noise (Durbin & Koopman 2002).
        prior = axis.sample(kernel, self.random)
        noise = self.random.standard_normal(len(axis))
        observed = seen.weight > 0
        root = np.sqrt(np.where(observed, seen.weight, 1.0))
        information = seen.weight * (seen.target - prior - noise / root)
        function = prior + axis.solver(kernel, seen.weight).solve(information)[0]
        self.functions[m] = function[codes]
        return nodes, function[places]

    def _curved(self, m: int) -> Ellipse:
        """Return an ellipse about the state, from an approximate curvature of the posterior.

        Changes of w that the projection does not determine cost w_i/σ² f'² per row (Gauss–Newton),
        those of its length next to nothing.
        """
        model, theta = self.model, self.theta[m]
        direction, size = theta[:-1], len(theta)
        rows = model.rows
        axis, codes = model.along(direction)
        seen = model.seen(codes, len(axis), self._residual(m), self.noise_variance)
        slope = axis.posterior(model.kernel_of(theta[-1]), seen, slope=True).slope
        assert slope is not None
        steepness = model.weight * slope[codes] ** 2 / self.noise_variance
        scaled = direction * rows.scale
        covariance = rows.correlation * np.outer(rows.scale, rows.scale)
        along = covariance @ direction
        spread = max(float(scaled @ rows.correlation @ scaled), 1e-12)
        hessian = np.zeros((size, size))
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            across = rows.inputs[part] - rows.centre
            across = across - np.outer(across @ direction / spread, along)
            hessian[:-1, :-1] += (across * steepness[part, None]).T @ across
        hessian[:-1, :-1] += _LENGTH_CURVATURE * np.outer(along, along) / spread**2
        hessian[:-1, :-1] += np.diag(self.precision)
        hessian[-1, -1] = _VARIANCE_CURVATURE + 1 / model.priors.variance_std**2
        values, vectors = np.linalg.eigh(hessian)
        values = np.maximum(values, 1e-12 * values[-1])
        inverse = (vectors / values) @ vectors.T
        return Ellipse(theta.copy(), inverse)

    def _adapt(self, last: bool) -> None:
        """Use mean and covariance of the later half of the warm-up so far."""
        self.history.append(self.theta.copy())
        if len(self.history) % _ADAPT_EVERY and not last:
            return
        draws = np.array(self.history[len(self.history) // 2 :])  # (sweeps, M, d)
        trust = _TRUST * draws.shape[2]
        for m, begun in enumerate(self.begun):
            mean = draws[:, m].mean(axis=0)
            deviations = draws[:, m] - mean
            blended = trust * begun.covariance + deviations.T @ deviations
            self.ellipses[m] = Ellipse(mean, blended / (trust + len(draws)))
        if last:
            self.history = []
