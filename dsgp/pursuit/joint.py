"""All ridge functions at once: functions, directions, hyperparameters and evidence.

Given nodes, the model of a row is Σ_m φ(x·w_m)ᵀ c_m, linear in the values c of the functions and
smooth in the directions w. With the priors c_m ~ N(0, K_m) and w ~ N(0, 1/α) the posterior is
maximised by Gauss–Newton steps with Levenberg–Marquardt damping on all of them together. Each step
needs the rows only through the moments of the linearised model, so that a step costs one pass.

The same matrix H = Jᵀ W J / σ² + prior gives the Laplace approximation of the evidence,

    −½ [N log 2πσ² − Σ log w + rᵀWr/σ² + cᵀK⁻¹c + Σ α w² + log det H + log det prior⁻¹],

the degrees of freedom, the noise variance, the relevance of the inputs (α, by MacKay's fixed point)
and the covariance of the directions. With a likelihood the rows are linearised around the functions
at hand: W is its curvature, W r its gradient, σ² is 1, and −2 log p(y | f) takes the place of
N log 2πσ² − Σ log w + rᵀWr/σ².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, lapack, solve_triangular

from dsgp.learning.search import NOISE
from dsgp.pursuit.moments import Moments, deviance, moments
from dsgp.pursuit.response import Response
from dsgp.pursuit.ridges import Ridge, Ridges, normalised
from dsgp.pursuit.rows import RowSet
from dsgp.terms import LOG_2PI, Floats

# Gamma prior of the precisions α of the inputs. Those of irrelevant inputs end near SHAPE / RATE,
# which leaves them a weight of about 1 %: enough to grow again when another term needs them.
_SHAPE, _RATE = 0.5, 1e-4
_DAMPING, _LEAST_DAMPING = 1e-2, 1e-8
_TRIES = 6  # per step, with 4, 8, 16, … times the damping of the one before
_NOISE_UPDATES = 3
_FEWEST_LEFT = 0.05
# A direction whose variance is below this share of the inputs' has vanished.
_VANISHED = 1e-12
# A function that explains less than this, in nats, is dropped.
_IDLE = 0.01
# Largest number of Newton steps on the values of a likelihood's functions, and the gain in nats at
# which they end.
_VALUE_STEPS, _VALUE_GAIN = 20, 1.0
# If new nodes cost more than this, in nats, a likelihood's functions are fitted to those on the old
# nodes.
_WORSE = 100.0


@dataclass(frozen=True)
class Frame:
    """Coordinates of the directions in which their prior is independent.

    Attributes
    ----------
    basis : ndarray of shape (D, r)
        A direction in standard units is ``basis`` times its coordinates. The identity with a
        relevance prior. Without one, coordinates are such that the inputs are white: the prior, and
        so the model, do not change when the inputs are rotated.
    inverse : ndarray of shape (r, D)
    covariance : ndarray of shape (D, D)
        Of the inputs in standard units.
    relevance : bool
        Whether each input has its own precision.
    """

    basis: Floats
    inverse: Floats
    covariance: Floats
    relevance: bool

    @classmethod
    def of(cls, covariance: Floats, relevance: bool) -> Frame:
        """Choose the coordinates from the covariance of the inputs."""
        if relevance:
            identity = np.eye(len(covariance))
            return cls(identity, identity, covariance, True)
        variances, axes = np.linalg.eigh(covariance)
        kept = variances > 1e-10 * variances.max(initial=0.0)
        root = np.sqrt(variances[kept])
        return cls(axes[:, kept] / root, (axes[:, kept] * root).T, covariance, False)

    @property
    def size(self) -> int:
        """Number of coordinates r."""
        return self.basis.shape[1]

    def variance(self, direction: Floats) -> float:
        """Variance of a projection."""
        return float(direction @ self.covariance @ direction)


@dataclass(frozen=True)
class State:
    """A model with all that its evidence needs.

    Attributes
    ----------
    ridges : Ridges
    frame : Frame
    precision : ndarray of shape (r,)
        α, the prior precision of each coordinate of all directions.
    noise_variance : float
    fixed_noise : bool
    moments : Moments
        Of the ridges.
    damping : float
        Damping of the next step.
    gain : float
        Gain of the log posterior by the last step, in nats.
    response : Response, optional
        The likelihood; then noise variance is 1 and fixed. None is normal noise.
    """

    ridges: Ridges
    frame: Frame
    precision: Floats
    noise_variance: float
    fixed_noise: bool
    n_rows: int
    log_weight: float
    moments: Moments
    damping: float = _DAMPING
    gain: float = 0.0
    response: Response | None = None

    @classmethod
    def of(
        cls,
        rows: RowSet,
        ridges: Ridges,
        frame: Frame,
        precision: Floats,
        noise_variance: float,
        fixed_noise: bool = False,
        response: Response | None = None,
    ) -> State:
        """Sum the rows."""
        return cls(
            ridges,
            frame,
            precision,
            noise_variance,
            fixed_noise,
            rows.n_rows,
            rows.log_weight,
            moments(rows, ridges, response),
            response=response,
        )

    def at(self, rows: RowSet, ridges: Ridges) -> State:
        """Return the state of other ridges."""
        return replace(
            self,
            ridges=ridges,
            moments=moments(rows, ridges, self.response),
            n_rows=rows.n_rows,
            log_weight=rows.log_weight,
        )

    # ------------------------------------------------------------------ the linearised model

    @cached_property
    def coordinates(self) -> Floats:
        """Coordinates of the directions, (M, r)."""
        return self.ridges.directions @ self.frame.inverse.T

    @cached_property
    def whitened(self) -> Floats:
        """Values of the functions divided by the factor of their prior, (Σ K,)."""
        pieces = [
            solve_triangular(factor, self.ridges.values[part], lower=True, check_finite=False)
            for factor, part in zip(self.ridges.factors, self.ridges.parts, strict=True)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0)

    @cached_property
    def squares(self) -> float:
        """Weighted sum of squared residuals."""
        return max(float(self.moments.matrix[-1, -1]), 1e-300)

    @property
    def penalty(self) -> float:
        """cᵀK⁻¹c + Σ α w²."""
        weights = float(np.sum(self.precision * self.coordinates**2))
        return float(self.whitened @ self.whitened) + weights

    @property
    def objective(self) -> float:
        """Twice the negative log posterior of functions and directions, but for constants."""
        if self.response is not None:
            return self.moments.deviance + self.penalty
        return self.squares / self.noise_variance + self.penalty

    @cached_property
    def system(self) -> tuple[Floats, Floats]:
        """Jᵀ W J and Jᵀ W r in whitened values and coordinates."""
        ridges = self.ridges
        n = ridges.n_nodes
        residual = self.moments.matrix[:-1, -1]
        size = n + len(ridges) * self.frame.size
        left = np.empty((size, self.moments.matrix.shape[0] - 1))
        vector = np.empty(size)
        for out, part, factor in self._blocks():
            left[out] = factor.T @ self.moments.matrix[part, :-1]
            vector[out] = factor.T @ residual[part]
        matrix = np.empty((size, size), order="F")
        for out, part, factor in self._blocks():
            matrix[:, out] = left[:, part] @ factor
        return matrix, vector

    def _blocks(self) -> list[tuple[slice, slice, Floats]]:
        """Positions of each term's values and direction, after and before, and the maps between."""
        ridges, r, d = self.ridges, self.frame.size, self.ridges.n_features
        n = ridges.n_nodes
        values = [
            (part, part, factor) for part, factor in zip(ridges.parts, ridges.factors, strict=True)
        ]
        directions = [
            (
                slice(n + m * r, n + (m + 1) * r),
                slice(n + m * d, n + (m + 1) * d),
                self.frame.basis,
            )
            for m in range(len(ridges))
        ]
        return values + directions

    @cached_property
    def prior(self) -> Floats:
        """Prior precision of whitened values and coordinates."""
        return np.concatenate(
            [np.ones(self.ridges.n_nodes), np.tile(self.precision, len(self.ridges))]
        )

    # ------------------------------------------------------------------ the Laplace approximation

    @cached_property
    def inverse(self) -> Floats:
        """Posterior covariance of whitened values and coordinates."""
        return _inverse(self.system[0] / self.noise_variance, self.prior)[0]

    def factor(self, whitened: Floats) -> Floats:
        """Convert columns of whitened values and coordinates to those of values and directions."""
        out = np.empty((self.ridges.n_parameters, whitened.shape[1]))
        for after, before, factor in self._blocks():
            out[before] = factor @ whitened[after]
        return out

    @cached_property
    def dof(self) -> float:
        """Degrees of freedom, those of the directions included."""
        return float(len(self.prior) - np.sum(np.diag(self.inverse) * self.prior))

    @cached_property
    def evidence(self) -> float:
        """Log evidence by Laplace's approximation."""
        _, log_det = _inverse(self.system[0] / self.noise_variance, self.prior, want=False)
        log_det -= float(np.sum(np.log(self.prior)))
        constant = 0.0
        if self.response is None:
            constant = self.n_rows * (LOG_2PI + math.log(self.noise_variance)) - self.log_weight
        value = -0.5 * (constant + self.objective + log_det)
        if self.frame.relevance and len(self.ridges):
            # Relative to the prior's mode, which the precisions would have without any term.
            ratio = self.precision * (_RATE / _SHAPE)
            value += _SHAPE * float(np.sum(np.log(ratio) - ratio + 1.0))
        return value

    def weighed(self) -> State:
        """Update noise variance and relevance, from the moments alone."""
        state = self
        for _ in range(_NOISE_UPDATES):
            if state.fixed_noise:
                break
            left = max(state.n_rows - state.dof, _FEWEST_LEFT * state.n_rows)
            noise = float(np.clip(state.squares / left, *NOISE))
            state = replace(state, noise_variance=noise)
        if state.frame.relevance and len(state.ridges):
            r = state.frame.size
            variances = np.diag(state.inverse)[state.ridges.n_nodes :].reshape(-1, r)
            known = np.maximum(len(state.ridges) - state.precision * variances.sum(axis=0), 0.0)
            squares = np.sum(state.coordinates**2, axis=0)
            precision = (known + 2 * _SHAPE) / (squares + 2 * _RATE)
            state = replace(state, precision=precision)
        return state


def opened(precision: Floats, direction: Floats) -> Floats:
    """Lower the precisions of the inputs that a new direction needs."""
    return np.minimum(precision, (1 + 2 * _SHAPE) / (direction**2 + 2 * _RATE))


def _inverse(matrix: Floats, prior: Floats, want: bool = True) -> tuple[Floats, float]:
    """Inverse and log determinant of a matrix plus a diagonal; the matrix is overwritten."""
    if not len(prior):
        return matrix, 0.0
    matrix[np.diag_indices_from(matrix)] += prior
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    if failed:
        raise LinAlgError("the matrix of the linearised model is singular to rounding")
    log_det = 2 * float(np.sum(np.log(np.diag(factor))))
    if not want:
        return np.empty((0, 0)), log_det
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    lower = np.tril(inverse, -1)
    return lower + lower.T + np.diag(np.diag(inverse)), log_det


def direction_factor(state: State) -> Floats:
    """Factor of the variance that uncertain directions add to predictions, (Σ K + M D, M r).

    The squared length of a row of the linearised model (``jit.ridge.fill_design`` without the
    target) times this is the variance of f beyond that for given directions: with S the posterior
    covariance of values z and directions v, and g = J_v + J_z S_zv S_vv⁻¹ the derivative by v of
    the mean that the functions have for given directions, g S_vv gᵀ.
    """
    n = state.ridges.n_nodes
    root = np.linalg.cholesky(state.inverse[n:, n:])
    whole = np.vstack(
        [solve_triangular(root, state.inverse[n:, :n], lower=True, check_finite=False).T, root]
    )
    return state.factor(whole)


# ---------------------------------------------------------------- steps


def improved(rows: RowSet, state: State, max_iter: int, tol: float) -> State:
    """Take Gauss–Newton steps until one gains less than ``tol`` nats."""
    for _ in range(max_iter if len(state.ridges) else 0):
        better = _step(rows, state)
        if better is None:
            return replace(state, gain=0.0)
        gain = 0.5 * (state.objective - better.objective)
        state = replace(better, gain=gain)
        if gain < tol:
            break
    return state


def _step(rows: RowSet, state: State) -> State | None:
    """Return a state of a lower objective, or None if there is none nearby."""
    n, r = state.ridges.n_nodes, state.frame.size
    matrix, vector = state.system
    now = np.concatenate([state.whitened, state.coordinates.ravel()])
    gradient = vector / state.noise_variance - state.prior * now
    curvature = np.diag(matrix)[n:].reshape(-1, r).mean(axis=1) / state.noise_variance
    damping, growth = state.damping, 4.0
    for _ in range(_TRIES):
        damped = matrix / state.noise_variance
        added = state.prior.copy()
        added[n:] += np.repeat(damping * curvature, r)
        damped[np.diag_indices_from(damped)] += added
        factor, failed = lapack.dpotrf(damped, lower=1, overwrite_a=1)
        if not failed:
            move, _ = lapack.dpotrs(factor, gradient, lower=1)
            tried = lower(rows, state, _moved(state, now + move))
            if tried is not None:
                return replace(tried, damping=max(damping / 3, _LEAST_DAMPING))
        damping, growth = damping * growth, 2 * growth
    return None


def lower(rows: RowSet, state: State, ridges: Ridges) -> State | None:
    """Return the state of other ridges if its objective is lower."""
    if state.response is not None:
        # Many steps of a likelihood are rejected: a cheap pass without matrix products does that
        # first.
        penalty = replace(state, ridges=ridges).penalty
        if not deviance(rows, ridges, state.response) + penalty < state.objective:
            return None
    tried = state.at(rows, ridges)
    return tried if tried.objective < state.objective else None


def with_values(rows: RowSet, state: State) -> State:
    """Give the functions the values that fit best, with the directions fixed."""
    if not len(state.ridges):
        return state
    if state.response is None:
        return state.at(rows, _moved(state, _best_values(state)))
    for _ in range(_VALUE_STEPS):
        better = _nearer_values(rows, state)
        if better is None:
            break
        gain = 0.5 * (state.objective - better.objective)
        state = better
        if gain < _VALUE_GAIN:
            break
    return state


def _nearer_values(rows: RowSet, state: State) -> State | None:
    """Take a Newton step on the values, or a part of one, as the likelihood is not quadratic."""
    now = np.concatenate([state.whitened, state.coordinates.ravel()])
    move = _best_values(state) - now
    for share in shares():
        better = lower(rows, state, _moved(state, now + share * move))
        if better is not None:
            return better
    return None


def shares() -> list[float]:
    """Return the shares of a step to try, one after the other."""
    return [3.0**-k for k in range(_TRIES)]


def _best_values(state: State) -> Floats:
    """Position of the linearised model's best values, with the directions fixed."""
    n = state.ridges.n_nodes
    matrix, vector = state.system
    inverse, _ = _inverse(matrix[:n, :n] / state.noise_variance, np.ones(n))
    move = inverse @ (vector[:n] / state.noise_variance - state.whitened)
    return np.concatenate([state.whitened + move, state.coordinates.ravel()])


def _moved(state: State, position: Floats) -> Ridges:
    ridges = state.ridges
    coordinates = position[ridges.n_nodes :].reshape(len(ridges), state.frame.size)
    values = [
        factor @ position[part] for factor, part in zip(ridges.factors, ridges.parts, strict=True)
    ]
    return ridges.moved(coordinates @ state.frame.basis.T, np.concatenate(values))


def renewed(rows: RowSet, state: State, sample: Floats) -> State:
    """Give every projection variance 1 and new nodes; drop terms that do nothing.

    Parameters
    ----------
    rows : RowSet
    state : State
    sample : ndarray of shape (n, D)
        Inputs of some rows.
    """
    terms = []
    for term, part, low, high in zip(
        state.ridges.terms,
        state.ridges.parts,
        state.moments.low,
        state.moments.high,
        strict=True,
    ):
        variance = state.frame.variance(term.direction)
        squares = float(term.values @ state.moments.matrix[part, part] @ term.values)
        idle = squares < _IDLE * state.noise_variance
        if idle and state.response is not None:
            # If all rows are fitted with near certainty, dropping a large function seems to change
            # nothing.
            idle = float(np.sum(state.whitened[part] ** 2)) < _IDLE
        if idle or variance <= _VANISHED or not high > low:
            continue
        terms.append(
            normalised(term, math.sqrt(variance), sample @ term.direction, float(low), float(high))
        )
    renewed_state = state.at(rows, replace(state.ridges, terms=tuple(terms)))
    if state.response is not None and renewed_state.objective > state.objective + 2 * _WORSE:
        # Where rows are very informative, splines through other nodes are too far from the
        # functions.
        near = moments(rows, renewed_state.ridges, state.response, around=state.ridges)
        better = _best_values(replace(renewed_state, moments=near))
        renewed_state = lower(rows, renewed_state, _moved(renewed_state, better)) or renewed_state
    return renewed_state


def rescaled(state: State) -> State:
    """Give every projection variance 1: the same functions, in other units, without a pass.

    The prior of the directions, and so the evidence, is for projections of that variance, which
    steps change.
    """
    ridges = state.ridges
    stds = [max(state.frame.variance(w), _VANISHED) ** 0.5 for w in ridges.directions]
    terms = []
    for term, std in zip(ridges.terms, stds, strict=True):
        lengthscale = float(term.kernel.lengthscale or 1.0) / std
        kernel = term.kernel.with_parameters(lengthscale=lengthscale)
        terms.append(Ridge(term.direction / std, term.nodes / std, term.values, kernel))
    # Only the slopes in the design change.
    factor = np.ones(len(state.moments.matrix))
    factor[ridges.n_nodes : -1] = np.repeat(stds, ridges.n_features)
    matrix = state.moments.matrix * factor[:, None] * factor
    low, high = state.moments.low / stds, state.moments.high / stds
    return replace(
        state,
        ridges=replace(ridges, terms=tuple(terms)),
        moments=replace(state.moments, matrix=matrix, low=low, high=high),
    )
