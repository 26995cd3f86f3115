"""The choice of the algebra of a grid, by its gaps, noise and size; all have the same interface.

Complete, one separable kernel, one noise: ``kronecker``, or ``fibres`` where that is cheaper, along
an axis of many points.
Everything else: ``dense`` for few observed cells, ``missing`` for more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates, uniform_filter

from dsgp.errors import ParameterError
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.missing import Bools, CellSystem, Solve
from dsgp.grid.probes import local_excess, spectral_error
from dsgp.grid.scattered import indices
from dsgp.kernels import Matern, Stationary
from dsgp.terms import Floats

# Seconds of an evaluation of likelihood and gradient: for an axis of n points by dense algebra,
# times n³; by passes along it, per cell and per fibre.
_CUBED, _CELL, _FIBRE = 1e-10, 1e-7, 5e-5

# Number of observed cells up to which everything is done by dense algebra.
DENSE_CELLS = 1500
# Exact variances of fields with gaps are computed by dense algebra up to this many multiplications.
_DENSE_WORK = 2e10
# Tolerance of the solves of draws from which only their variance is estimated.
_DRAW_TOL = 1e-4
# Cells along each axis over which draws are averaged to calibrate local variances.
_WINDOW = 5
# Spectral standard deviations with a larger relative error than this are not used by themselves.
_LARGEST_SPECTRAL = 0.05
# Local standard deviations that exceed the exact ones by more than this are calibrated.
_LARGEST_EXCESS = 0.15


def complete_system(
    points: Sequence[Floats], kernels: Sequence[Stationary], noise: float
) -> KroneckerSystem | FibreSystem:
    """Return the algebra of a complete grid with one separable kernel and one noise variance.

    Both are exact; the cheaper one is used. Axes of more than 4096 points are always smoothed.

    Raises
    ------
    ParameterError
        If so long an axis has no Matérn kernel.
    """
    longest = max(range(len(points)), key=lambda d: len(points[d]))
    n_cells = math.prod(len(axis_points) for axis_points in points)
    decomposing = _CUBED * len(points[longest]) ** 3
    smoothing = _CELL * n_cells + _FIBRE * n_cells / len(points[longest])
    has_states = isinstance(kernels[longest], Matern)
    if len(points[longest]) <= LONG and not (has_states and decomposing > 2 * smoothing):
        return KroneckerSystem(points, kernels, noise)
    if not has_states:
        raise ParameterError(
            f"axis {longest} has {len(points[longest])} points, more than {LONG}, and the kernel "
            f"{kernels[longest]!r}; expected a Matérn kernel on so long an axis"
        )
    return FibreSystem(points, kernels, noise, long=longest)


def require_few(n_observed: int) -> None:
    """Raise ``ParameterError`` if there are too many cells for dense algebra."""
    if n_observed > DENSE_CELLS:
        raise ParameterError(
            "variance='exact' uses dense algebra of the observed cells, and there are "
            f"{n_observed} of them, more than {DENSE_CELLS}; use 'local' (an upper bound), "
            "'calibrated', 'draws', or 'auto'"
        )


class GappySystem:
    """A grid with gaps, several separable kernels, or noise that differs between cells.

    Parameters
    ----------
    prior : SeparableSum
    observed : ndarray of bool, shape (G_1, …, G_D)
    noise : float or ndarray that broadcasts to it
    domain : ndarray of bool of that shape, or None
        Cells whose variance is wanted; the others' is NaN. None: all.
    variance : {"auto", "exact", "spectral", "local", "calibrated", "draws"}
        "exact": dense algebra. "spectral": as if the covariances of all terms had the same
        eigenvectors, for complete grids with one noise variance. "local": given the
        ``n_neighbours`` most informative observed cells around each target, never below the exact
        one. "draws": the scatter of ``n_draws``
        posterior draws, whose standard deviation has a relative error of 1/√(2 n_draws).
        "calibrated": local ones times what draws show beside them on average over the cells
        around; its error is below that of draws. "auto": exact if that is cheap, else
        spectral if that has an error of at most 5 %, else local, or calibrated where local ones
        exceed the exact ones by more than 15 %.
    """

    def __init__(
        self,
        prior: SeparableSum,
        observed: Bools,
        noise: float | Floats,
        *,
        domain: Bools | None = None,
        variance: str = "auto",
        n_neighbours: int = 30,
        n_draws: int = 24,
        tol: float = 1e-6,
        max_iter: int = 1000,
        seed: int = 0,
    ) -> None:
        self.prior = prior
        self.observed = observed
        self.noise = noise
        self.domain = domain
        self.n_draws = n_draws
        self.seed = seed
        self.options = {
            "n_neighbours": n_neighbours,
            "tol": tol,
            "max_iter": max_iter,
            "seed": seed,
        }
        n = int(np.count_nonzero(observed))
        n_targets = observed.size if domain is None else int(np.count_nonzero(domain))
        if variance == "auto":
            exact = n <= DENSE_CELLS and float(n) ** 2 * n_targets <= _DENSE_WORK
            variance = "exact" if exact else "auto"
        elif variance == "exact":
            require_few(n)
        self.variance_method = variance
        self.is_dense = n <= DENSE_CELLS
        if variance == "spectral" and self.cells.spectral is None:
            raise ParameterError(
                "variance='spectral' is for complete fields with one noise variance and axes of "
                f"at most {LONG} points; use 'local' (an upper bound), 'calibrated', 'draws', or "
                "'auto'"
            )

    @cached_property
    def dense(self) -> DenseSystem:
        """By dense algebra."""
        return DenseSystem(self.prior, self.observed, self.noise)

    @cached_property
    def cells(self) -> CellSystem:
        """By conjugate gradients."""
        return CellSystem(self.prior, self.observed, self.noise, **self.options)  # type: ignore[arg-type]

    def dual(self, y: Floats) -> Floats:
        """α = (K + R)⁻¹ y on the grid, 0 where nothing is observed."""
        return self.solve(y)[0]

    def solve(self, y: Floats, tol: float = 0.0) -> tuple[Floats, Solve | None]:
        """Return α on the grid, and the report of the solver if not by dense algebra.

        ``tol`` may be looser than that of the system; missing cells of ``y`` are not read.
        """
        grid = np.zeros(self.observed.shape)
        if self.is_dense:
            grid[self.observed] = self.dense.dual(y)
            return grid, None
        done = self.cells.dual(y, max(tol, self.cells.tol))
        grid.reshape(-1)[self.cells.cells.flat] = done.solution
        return grid, done

    def log_marginal_likelihood(self, y: Floats) -> float:
        """Exact by dense algebra, else Vecchia's."""
        if self.is_dense:
            return self.dense.evidence(y).value
        return self.cells.factor.log_likelihood(y.reshape(-1)[self.cells.cells.flat])

    def mean(self, dual: Floats, points: Sequence[Floats] | None = None) -> Floats:
        """Posterior mean from α on the grid."""
        return self.prior.multiply(dual) if points is None else self.prior.cross(points, dual)

    def variance(self, points: Sequence[Floats] | None = None) -> Floats:
        """Posterior variance on the grid, or on another."""
        where = self.domain if points is None else None
        if self.variance_method == "exact":
            return self.dense.posterior(np.zeros(self.observed.shape), points, where)[1]
        if self.variance_method == "auto":
            self.settle_variance()
        if self.variance_method == "spectral" and points is None:
            spectral = self._spectral()
            return spectral if where is None else np.where(where, spectral, np.nan)
        if self.variance_method == "local":
            return self.cells.local_variance(points, where)
        if self.variance_method in ("calibrated", "spectral"):
            local = self.cells.local_variance(points, where)
            return local * self._share_at(points)
        drawn = self._scatter(points)
        return drawn if where is None else np.where(where, drawn, np.nan)

    def _scatter(self, points: Sequence[Floats] | None) -> Floats:
        """Mean square of the deviations of draws from the mean."""
        random = np.random.default_rng([self.seed, 1])
        axes = self.prior.points if points is None else points
        total: Floats = np.zeros([len(axis_points) for axis_points in axes])
        # The scatter of the draws is far above the error of a looser solve.
        for deviation in self._deviations(self.n_draws, random, points, _DRAW_TOL):
            total += deviation**2
        total /= self.n_draws
        return total

    def _spectral(self) -> Floats:
        """Variances on the grid, a new array."""
        assert self.cells.spectral is not None
        return self.cells.spectral.variance()

    @cached_property
    def _share(self) -> Floats:
        """Ratio of better variances to local ones, averaged over neighbouring cells; at most 1."""
        local = self.cells.local_variance(where=self.domain)
        better = self._spectral() if self.variance_method == "spectral" else self._scatter(None)
        return np.minimum(_average_ratio(better, local), 1.0)

    def _share_at(self, points: Sequence[Floats] | None) -> Floats:
        """The same at other points: linear between cells, constant beyond them."""
        if points is None:
            return self._share
        steps = np.meshgrid(*self._places(points), indexing="ij")
        return map_coordinates(self._share, steps, order=1, mode="nearest")

    def _places(self, points: Sequence[Floats]) -> list[Floats]:
        """Places of other points among the cells, in steps."""
        return [
            np.interp(new, old, np.arange(len(old)))
            for new, old in zip(points, self.prior.points, strict=True)
        ]

    def settle_variance(self) -> tuple[str, float | None]:
        """Choose how variances are computed, if that is not given; return the error, too.

        Returns
        -------
        method : {"exact", "spectral", "local", "calibrated", "draws"}
        error : float or None
            Of a standard deviation: the root mean square of the relative error of spectral ones
            and the mean relative excess of local ones at a few targets, the
            relative Monte Carlo error of draws (at most that, of calibrated ones); None if exact.
        """
        if self.variance_method == "exact":
            return "exact", None
        if self.variance_method in ("auto", "spectral") and self.cells.spectral is not None:
            error = spectral_error(self.cells, self._targets, self.seed)
            if self.variance_method == "spectral" or error <= _LARGEST_SPECTRAL:
                self.variance_method = "spectral"
                return "spectral", error
        if self.variance_method in ("auto", "local"):
            excess = local_excess(self.cells, self._targets, self.seed)
            if self.variance_method == "local" or excess <= _LARGEST_EXCESS:
                self.variance_method = "local"
                return "local", excess
            self.variance_method = "calibrated"
        return self.variance_method, float(1 / np.sqrt(2 * self.n_draws))

    @property
    def _targets(self) -> NDArray[np.intp]:
        """Places of the cells whose variance is wanted, on the flattened grid.

        Observed cells too: where a field is smooth, their variance depends on as many others as in
        gaps.
        """
        return np.flatnonzero(np.ones_like(self.observed) if self.domain is None else self.domain)

    def posterior(self, y: Floats) -> tuple[Floats, Floats]:
        return self.mean(self.dual(y)), self.variance()

    def predict(self, points: Sequence[Floats], y: Floats) -> tuple[Floats, Floats]:
        return self.mean(self.dual(y), points), self.variance(points)

    def mean_at(self, dual: Floats, points: Sequence[Floats], together: Sequence[int]) -> Floats:
        """Posterior mean at points from α on the grid, (n, H_o, …)."""
        return self.prior.cross_at(points, together, dual)

    def variance_at(self, points: Sequence[Floats], together: Sequence[int]) -> Floats:
        """Posterior variance at points; the calibration by draws is that of nearby cells."""
        if self.variance_method == "exact":
            nothing = np.zeros(self.observed.shape)
            return self.dense.posterior_at(nothing, points, together)[1]
        if self.variance_method == "auto":
            self.settle_variance()
        local = self.cells.local_variance_at(points, together)
        if self.variance_method == "local":
            return local
        places = self._places(points)
        index = indices(np.arange(local.size), local.shape, len(points), together)
        steps = [axis_places[index[:, d]] for d, axis_places in enumerate(places)]
        shares = map_coordinates(self._share, steps, order=1, mode="nearest")
        return local * shares.reshape(local.shape)

    def predict_at(
        self, points: Sequence[Floats], together: Sequence[int], y: Floats
    ) -> tuple[Floats, Floats]:
        """Posterior mean and variance at points; as that of ``KroneckerSystem``."""
        return self.mean_at(self.dual(y), points, together), self.variance_at(points, together)

    def sample(
        self, y: Floats, n: int, rng: np.random.Generator, points: Sequence[Floats] | None = None
    ) -> Floats:
        mean = self.mean(self.dual(y), points)
        return np.array([mean + deviation for deviation in self._deviations(n, rng, points)])

    def _deviations(
        self,
        n: int,
        random: np.random.Generator,
        points: Sequence[Floats] | None,
        tol: float = 0.0,
    ) -> Iterator[Floats]:
        """Draw the posterior's deviation from its mean, n times."""
        if points is None:
            for _ in range(n):
                if self.is_dense:
                    yield self.dense.deviation(random)
                else:
                    yield self.cells.deviation(random, max(tol, self.cells.tol))
            return
        union = [np.union1d(old, new) for old, new in zip(self.prior.points, points, strict=True)]
        old = np.ix_(*map(np.searchsorted, union, self.prior.points))
        new = np.ix_(*map(np.searchsorted, union, points))
        larger = SeparableSum(tuple(union), self.prior.terms)
        noise = np.sqrt(np.broadcast_to(np.asarray(self.noise, dtype=float), self.observed.shape))
        for _ in range(n):
            # Drawn on the union of both grids, and corrected by the observed cells alone.
            field = larger.sample(random)
            seen = field[old] + noise * random.standard_normal(noise.shape)
            yield field[new] - self.prior.cross(points, self.solve(seen, tol)[0])


def _average_ratio(drawn: Floats, local: Floats) -> Floats:
    """Ratio of two variances, each averaged over the cells around; 1 where there is neither."""
    inside = np.isfinite(local)
    size = tuple(min(_WINDOW, n) for n in local.shape)
    above, below = (
        uniform_filter(np.where(inside, values, 0.0), size, mode="constant")
        for values in (drawn, local)
    )
    return np.divide(above, below, out=np.ones_like(above), where=below > 0)
