"""The interface of a term to all other packages: the contract of its cells.

A term owns a table of *cells* (distinct values of a column, bins, levels, pairs of level and value)
and knows the algebra of a kernel on them. A row is the code of a cell, and a multiplier where the
function is multiplied by a column. Solvers, learners, variances, draws and stores use terms through
``Cells`` only; a new kind of term is one file that inherits from it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.integer]
LOG_2PI = math.log(2 * math.pi)


def sum_by(codes: Codes, n_points: int, values: Floats) -> Floats:
    """Sum the values of the rows at each point, (n_points,)."""
    return np.bincount(codes, values, n_points).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Observations:
    """Sufficient statistics of rows about the function at the cells of one term.

    Attributes
    ----------
    target : ndarray of shape (n_cells,)
        Weighted mean of the targets of the rows at each cell; 0 where there is no weight.
    weight : ndarray of shape (n_cells,)
        Sum of the weights 1/σ² of those rows.
    within : float
        Σ w (y − target)², the scatter of the rows around the mean of their cell.
    log_weight : float
        Σ log w over the rows of positive weight.
    n_rows : int
        How many rows have positive weight.
    """

    target: Floats
    weight: Floats
    within: float = 0.0
    log_weight: float | None = None
    n_rows: int | None = None

    @classmethod
    def from_rows(cls, codes: Codes, n_points: int, y: Floats, weight: Floats) -> Observations:
        """Merge rows: ``codes[i]`` is the cell of row i."""
        total = sum_by(codes, n_points, weight)
        target = sum_by(codes, n_points, weight * y)
        np.divide(target, total, out=target, where=total > 0)
        positive = weight > 0
        return cls(
            target=target,
            weight=total,
            within=float(np.sum(weight * (y - target[codes]) ** 2)),
            log_weight=float(np.sum(np.log(weight[positive]))),
            n_rows=int(positive.sum()),
        )

    @cached_property
    def n_observed(self) -> int:
        """Number of cells with positive weight."""
        return int(np.count_nonzero(self.weight))

    @cached_property
    def log_total_weight(self) -> float:
        """Σ log of the weights of the observed cells."""
        return float(np.sum(np.log(self.weight[self.weight > 0])))

    @cached_property
    def remainder(self) -> float:
        """Log likelihood of the rows minus that of their cell means, given the function."""
        if self.n_rows is None or self.log_weight is None:
            return 0.0
        return -0.5 * (
            (self.n_rows - self.n_observed) * LOG_2PI
            + self.log_total_weight
            - self.log_weight
            + self.within
        )

    @property
    def remainder_by_log_noise(self) -> float:
        """Derivative of ``remainder`` by the log of a factor common to all noise variances."""
        if self.n_rows is None:
            return 0.0
        return -0.5 * (self.n_rows - self.n_observed - self.within)

    def log_likelihood(self, quadratic: float, log_det: float) -> float:
        """Log density of the rows, from targetᵀ (K + W⁻¹)⁻¹ target and log det(I + K W)."""
        merged = -0.5 * (self.n_observed * LOG_2PI + log_det - self.log_total_weight + quadratic)
        return merged + self.remainder


@dataclass(frozen=True)
class Evidence:
    """A log marginal likelihood and its derivatives by the logs of the hyperparameters.

    Attributes
    ----------
    value : float
    by_log : mapping of str to float
        By the log of each parameter of the kernel.
    by_log_noise : float
        By the log of a factor common to all noise variances.
    """

    value: float
    by_log: Mapping[str, float]
    by_log_noise: float


class Slopes(Mapping[str, float]):
    """Derivatives by the logs of parameters that are computed when one is needed."""

    def __init__(self, names: Sequence[str], compute: Callable[[], dict[str, float]]) -> None:
        self._names, self._compute = tuple(names), compute

    @cached_property
    def _computed(self) -> dict[str, float]:
        return self._compute()

    def __getitem__(self, name: str) -> float:
        return self._computed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Posterior:
    """The function of a term, given observations.

    Attributes
    ----------
    cells : Cells
    kernel : Kernel
    seen : Observations
    mean, variance : ndarray of shape (n_cells,)
        Moments of the function at the cells.
    dual : ndarray of shape (n_cells,)
        (K + R)⁻¹ target, so that ``mean`` = K @ dual.
    evidence : Evidence
    log_det : float
        log det(I + K W).
    """

    cells: Cells
    kernel: Any
    seen: Observations
    mean: Floats
    variance: Floats
    dual: Floats
    evidence: Evidence
    log_det: float

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Posterior mean and variance at new inputs.

        Inputs are independent: a prediction does not depend on the others.
        """
        mean = self.cells.kernel_sum(self.kernel, self.dual)(inputs)
        variance = self.cells.variance_function(self.kernel, self.seen.weight)(inputs)
        return mean, variance


class Solver(ABC):
    """Applies (K⁻¹ + W)⁻¹ for one kernel and one set of weights, vector by vector."""

    @abstractmethod
    def solve(self, information: Floats) -> tuple[Floats, Floats]:
        """Return (K⁻¹ + W)⁻¹ b and K⁻¹ times that, each (n_cells,).

        For b = W y: the posterior mean, and its dual (K + W⁻¹)⁻¹ y.
        """

    def smooth(self, information: Floats) -> tuple[Floats, Floats]:
        """Return the same up to a symmetric positive operator near the identity.

        That is all a preconditioner needs, and may cost less.
        """
        return self.solve(information)


class Sum(Protocol):
    """The functions x ↦ k(x, cells) @ vector of several vectors."""

    def add_to(self, inputs: Floats, out: Floats) -> None:
        """Add the values at inputs to ``out`` (n_inputs, r)."""


Function = Callable[[Floats], Floats]
"""From inputs (n,) or (n, k) to values (n,)."""


@dataclass(frozen=True)
class Scale:
    """The spread of the inputs of a term, in their units, by which lengthscales are searched.

    Attributes
    ----------
    width : float
        Width of the bulk of the rows.
    extent : float
        Width of all rows.
    spacing : float
        Distance of neighbouring points.
    bin_width : float
        Width of a typical bin if there are few: they cannot represent shorter lengthscales.
    """

    width: float
    extent: float
    spacing: float
    bin_width: float = 0.0


@dataclass(frozen=True)
class BinShift:
    """How a function differs from its representation by bins; see ``additive.bins``.

    Attributes
    ----------
    bias : ndarray of shape (n_cells,)
        Mean of the function over a bin minus its value at the mean input.
    rest : float
        Mean square over the rows of what the bias leaves out.
    noise : float
        Variance of the residuals that is due to the slopes within bins.
    """

    bias: Floats
    rest: float
    noise: float


@dataclass(frozen=True)
class Neighbours:
    """Positions of cells along curves: cells next to each other on a curve have similar values.

    Attributes
    ----------
    position : ndarray of shape (n_cells,)
        In the units of the input, increasing within each curve.
    curve : ndarray of int, shape (n_cells,)
        Which curve a cell is on, from 0; the cells of a curve follow each other.
    """

    position: Floats
    curve: Codes


class Cells(ABC):
    """The table of one term, and the algebra of a kernel on it.

    *Inputs* are numbers (n,) or rows of several numbers (n, k), as the kind of term says; those of
    the cells themselves are ``points``. NaN in an input means that it is missing.

    Attributes
    ----------
    points : ndarray of shape (n_cells,) or (n_cells, k)
    """

    points: Floats

    def __len__(self) -> int:
        return len(self.points)

    # ------------------------------------------------------------------ algebra at the cells

    @abstractmethod
    def prior(self, kernel: Any, x: Floats, y: Floats) -> Floats:
        """Covariances of the function between two sets of inputs, (n, k)."""

    @abstractmethod
    def prior_by_log(self, kernel: Any, name: str) -> Floats:
        """Derivative of the prior covariance of the cells by the log of a parameter."""

    @abstractmethod
    def multiply(self, kernel: Any, vector: Floats) -> Floats:
        """Return K @ vector."""

    def multiply_each(self, kernel: Any, vectors: Floats) -> Floats:
        """Return K @ vector of each of the vectors (k, n_cells), to the same bits."""
        out = np.empty(vectors.shape)
        for k, vector in enumerate(vectors):
            out[k] = self.multiply(kernel, vector)
        return out

    @abstractmethod
    def solver(self, kernel: Any, weight: Floats) -> Solver:
        """Prepare repeated solves with the same kernel and weights."""

    @abstractmethod
    def likelihood_terms(self, kernel: Any, seen: Observations) -> tuple[float, float]:
        """Return targetᵀ (K + W⁻¹)⁻¹ target and log det(I + K W): what depends on the kernel."""

    @abstractmethod
    def posterior(self, kernel: Any, seen: Observations) -> Posterior:
        """Posterior at the cells, with the log marginal likelihood and its gradient."""

    def complexity(self, kernel: Any, weight: Floats) -> Callable[[float], tuple[float, float]]:
        """Return what gives log det(I + K W / ω) and tr K W (ω I + K W)⁻¹ for any ω > 0."""

        def at(factor: float) -> tuple[float, float]:
            divided = weight / factor
            posterior = self.posterior(kernel, Observations(np.zeros(len(self)), divided))
            return posterior.log_det, float(np.sum(divided * posterior.variance))

        return at

    @abstractmethod
    def sample(self, kernel: Any, random: np.random.Generator) -> Floats:
        """Draw the function at the cells from its prior, (n_cells,)."""

    def log_marginal_likelihood(self, kernel: Any, seen: Observations) -> float:
        """Log density of the rows, the function integrated out."""
        return seen.log_likelihood(*self.likelihood_terms(kernel, seen))

    # ------------------------------------------------------------------ anywhere

    @abstractmethod
    def kernel_sum(self, kernel: Any, vector: Floats) -> Function:
        """Return the function x ↦ k(x, points) @ vector, ready to be evaluated anywhere."""

    @abstractmethod
    def kernel_sums(self, kernel: Any, vectors: Floats) -> Sum:
        """Like ``kernel_sum`` for several vectors (r, n_cells) at once."""

    @abstractmethod
    def variance_function(self, kernel: Any, weight: Floats) -> Function:
        """Return the posterior variance as a function of the input; it needs no target."""

    def prior_variance(self, kernel: Any, inputs: Floats) -> Floats:
        """Prior variance of the function times its factor at each row, (n,)."""
        return np.full(len(inputs), kernel.std**2)

    def multipliers(self, inputs: Floats) -> Floats | None:
        """Factor of the function in each row, (n,); None if it is 1 everywhere."""
        return None

    def is_missing(self, inputs: Floats) -> NDArray[np.bool_]:
        """Whether an input is missing, (n,)."""
        gaps = np.isnan(inputs)
        return np.asarray(gaps if gaps.ndim == 1 else gaps.any(axis=1))

    @abstractmethod
    def with_inputs(self, inputs: Floats) -> tuple[Self, Codes, Codes]:
        """Return cells that hold inputs too, and the codes of these cells and of the inputs."""

    # ------------------------------------------------------------------ fewer cells

    @abstractmethod
    def subset(self, chosen: Sequence[int] | Codes) -> Cells:
        """Return some of the cells, by increasing codes."""

    @abstractmethod
    def bins(self, weight: Floats, n_bins: int) -> Codes:
        """Bin of each cell, so that there are about ``n_bins`` at most where cells can merge."""

    @abstractmethod
    def merged(
        self, bin_of_cell: Codes, weight: Floats, spread: Floats | None = None
    ) -> tuple[Cells, Floats]:
        """Return the cells that bins are, and the variance of the inputs within each.

        ``spread`` (n_cells,) is that within the cells that are merged.
        """

    def fewest_bins(self) -> int:
        """The smallest number of bins."""
        return 1

    @abstractmethod
    def chosen(self, weight: Floats, number: int) -> Codes:
        """Codes of about ``number`` cells, spread over the rows, for a coarse space."""

    @abstractmethod
    def nodes(self, weight: Floats, number: int) -> Codes:
        """Codes of about ``number`` cells as nodes, between which the function is interpolated."""

    @abstractmethod
    def interpolation(self, nodes: Codes) -> Floats | None:
        """Return C, (n_cells, n_nodes): values at the cells from those at nodes; None for all."""

    @abstractmethod
    def interpolated(self, values: Floats, others: Cells) -> Floats:
        """Interpolate values at these cells to others of the same term, approximately."""

    def state_bytes(self, kernel: Any) -> float:
        """Bytes of the states that passes along the cells keep, beyond a few numbers per cell."""
        return 0.0

    # ------------------------------------------------------------------ resolution and search

    def scale(self, weight: Floats) -> Scale | None:
        """Spread of the inputs; None if there is no lengthscale."""
        return None

    def scale_of(self, name: str, weight: Floats) -> Scale | None:
        """Spread of the input of a lengthscale, by the name of the lengthscale."""
        return self.scale(weight)

    def slopes(self, values: Floats) -> Floats | None:
        """Derivatives by the input of functions (r, n_cells) at the cells, if there are any."""
        return None

    def variance_within_bins(self, kernel: Any, spread: Floats) -> Floats:
        """Prior variance within bins, given the function at them; ``spread`` is the inputs'."""
        return np.zeros(len(self))

    def bin_shift(self, kernel: Any, dual: Floats, weight: Floats, spread: Floats) -> BinShift:
        """How the posterior mean differs from its representation by bins."""
        return BinShift(np.zeros(len(self)), 0.0, 0.0)

    @property
    def has_levels(self) -> bool:
        """Whether an input can be a level that was never seen."""
        return False

    def is_known(self, inputs: Floats) -> NDArray[np.bool_]:
        """Whether the level of each input is among those of the cells, (n,)."""
        return np.ones(len(inputs), dtype=bool)

    @property
    def pieces(self) -> list[tuple[slice, Cells]]:
        """Cells of each of ``n_curves``, and the curve: covariances between them are 0."""
        return [(slice(0, len(self)), self)]

    @property
    def n_curves(self) -> int:
        """The number of independent functions of which the term consists."""
        return 1

    @property
    def n_lines(self) -> int:
        """Number of nodes of the function as a multiple of those of one curve."""
        return self.n_curves

    @property
    def is_resolved(self) -> bool:
        """Whether there must be as many nodes as the function has detail.

        Otherwise the variance that nodes do not represent counts as noise while hyperparameters are
        learned, and is reported.
        """
        return True

    @property
    def is_interpolated(self) -> bool:
        """Whether nodes can be some of the cells, between which the function is interpolated."""
        return self.line is not None

    @property
    def is_diagonal(self) -> bool:
        """Whether K is a variance times the identity, so that the term can be eliminated."""
        return False

    @property
    def line(self) -> Floats | None:
        """Points along which neighbours have similar values, increasing; None without an order."""
        return None

    @property
    def neighbours(self) -> Neighbours | None:
        """Which cells are neighbours, curve by curve; None without an order."""
        points = self.line
        return None if points is None else Neighbours(points, np.zeros(len(self), dtype=np.int64))
