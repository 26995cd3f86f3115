"""Posterior variances of the sum of all terms and of centred components.

``DenseCovariance`` is exact: one Cholesky factor of the rows, for small tables.
``CoupledCovariance`` serves any number of rows. It takes the variance of every 1-D smoother in the
mean field of the others, and adds what the coarse spaces of multigrid know better:

    Var f(x) ≈ Σ_d v_d(x_d; ω_d σ²)
               + φ(x)ᵀ [(I + Φ W Φᵀ)⁻¹ − blockdiag (I + Φ_d W Φ_dᵀ / ω'_d)⁻¹] φ(x),

ω and ω' the mean fields of the smoothers and of the coarse spaces. Terms trade smooth functions,
constants above all, and the coarse spaces represent these. The only effect of finer functions on
the other terms is that they take up degrees of freedom. The measured errors are in
docs/mathematics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, eigh, lapack, solve_triangular

from dsgp.additive.cholesky import cholesky_to_rounding
from dsgp.additive.equations import Equations, RowEquations
from dsgp.additive.evidence import coarse_mean_field, mean_field
from dsgp.additive.multigrid import CoarseSpace, coarse_size
from dsgp.additive.system import AdditiveSystem
from dsgp.additive.tables import TwoWayTables
from dsgp.compute import run
from dsgp.kernels import Kernel
from dsgp.terms import Cells, Codes, Floats, Function, Sum

# Rows up to which variances use dense algebra, by the order of the kernel. A prediction then costs
# the square of the number of training rows, about 50 µs for 300 rows and 150 µs for 1000. Coupled
# variances take 5 to 10 µs whatever the number of rows, and their square roots are within 0.4 % in
# 19 of 20 rows. For the roughest kernel they are some per cent off, which is worth more work.
EXACT_ROWS = {1: 2500, 2: 300, 3: 300, 4: 300}
# Rows up to which the determinant of Laplace's approximation uses dense algebra. It is computed
# only once. The limit is higher for rough kernels, which have many degrees of freedom.
DENSE_ROWS = {1: 2500, 2: 1000, 3: 1000, 4: 1000}
# Rows whose covariances with the training rows are computed at a time, so that they stay in the
# cache.
_TOGETHER = 256
# Measured relative errors of coupled standard deviations (docs/mathematics.md): where the coarse
# spaces represent all degrees of freedom, and per share of the rows that finer ones take up.
_COARSE_ERROR = 0.003
_FINE_ERROR = 0.1
_SMOOTH = 2e-7  # seconds of compiled work per point
# Eigenvectors of the coupling are left out if together they change the variance by less than this
# share.
_NEGLIGIBLE = 1e-3
_TINY = np.finfo(float).tiny


class Covariance(Protocol):
    """Variances of an additive posterior. Missing inputs (NaN) add none."""

    @property
    def name(self) -> str:
        """For people."""

    def variance(self, columns: list[Floats]) -> Floats:
        """Of the sum at rows given by their inputs of every term, (n,)."""

    def centred_variance(self, term: int, inputs: Floats) -> Floats:
        """Of one term minus its weighted mean over the training rows, (n,)."""

    def centred_variance_of(self, terms: Sequence[int], columns: Sequence[Floats]) -> Floats:
        """Of a sum of some terms minus its weighted mean over the training rows, (n,).

        ``columns`` are the inputs of these terms.
        """


def covariance_of(
    system: AdditiveSystem, coarse: Callable[[], CoarseSpace] | None = None
) -> Covariance:
    """Choose by the cost of a row predicted; ``coarse`` gives the coarse space, if any."""
    equations = system.equations
    limit = max((EXACT_ROWS[kernel.order] for kernel in system.kernels), default=0)
    if isinstance(equations, RowEquations) and equations.table.n_rows <= limit:
        return DenseCovariance.of(system, equations)
    return CoupledCovariance.of(system, coarse)


def covariance_bytes(equations: Equations, kernels: list[Kernel]) -> float:
    """Estimate the memory that a posterior and its variances keep, before there is a system."""
    limit = max((EXACT_ROWS[kernel.order] for kernel in kernels), default=0)
    if isinstance(equations, RowEquations) and equations.table.n_rows <= limit:
        return 8.0 * equations.table.n_rows**2
    sizes = [len(cells) for cells in equations.layout.cells]
    states = sum(
        n * kernel.order * (kernel.order + 1) for n, kernel in zip(sizes, kernels, strict=True)
    )
    return 8.0 * (3 * states + 4 * coarse_size(sizes, kernels) ** 2)


@dataclass(frozen=True)
class DenseCovariance:
    """Exact variances by the Cholesky factor of I + W^½ K W^½ on the rows: no weight is divided by.

    Attributes
    ----------
    root : ndarray of shape (n_rows,)
        W^½, the noise in it.
    factor : ndarray of shape (n_rows, n_rows)
    """

    cells: tuple[Cells, ...]
    kernels: list[Kernel]
    codes: NDArray[np.integer]
    multipliers: dict[int, Floats]
    shares: list[Floats]
    root: Floats
    factor: Floats
    name: str = "exact (dense)"

    @cached_property
    def complete(self) -> bool:
        """Whether no training row misses an input."""
        sizes = np.array([len(cells) for cells in self.cells])
        return bool((self.codes < sizes[:, None]).all())

    @classmethod
    def of(cls, system: AdditiveSystem, equations: RowEquations) -> DenseCovariance:
        """Factor the covariance of the rows of positive weight."""
        codes = np.asarray(equations.table.codes[:, :])
        weight = equations.row_weight if len(equations.row_weight) else np.ones(codes.shape[1])
        used = weight > 0
        codes = codes[:, used]
        multipliers = {d: z[used] for d, z in equations.table.multipliers.items()}
        root = np.sqrt(weight[weight > 0] / system.noise_variance)
        matrix = np.zeros((len(root), len(root)))
        for d, (cells, kernel, code) in enumerate(
            zip(system.layout.cells, system.kernels, codes, strict=True)
        ):
            prior = _padded(cells.prior(kernel, cells.points, cells.points))
            seen = np.minimum(code, len(cells))
            of_rows = prior[np.ix_(seen, seen)]
            if d in multipliers:
                of_rows = of_rows * np.outer(multipliers[d], multipliers[d])
            matrix += of_rows
        matrix *= root[:, None] * root
        matrix[np.diag_indices_from(matrix)] += 1.0
        shares = [equations.share(term) for term in range(system.layout.n_terms)]
        factor = cholesky_to_rounding(matrix)
        return cls(system.layout.cells, system.kernels, codes, multipliers, shares, root, factor)

    def ones(self) -> tuple[Floats, float]:
        """Z_dᵀ V⁻¹ 1 of all terms (Σ U_d,), and 1ᵀ V⁻¹ 1: V is the covariance of the targets."""
        half = solve_triangular(self.factor, self.root, lower=True, check_finite=False)
        solved = self.root * solve_triangular(
            self.factor, half, lower=True, trans="T", check_finite=False
        )
        duals = [
            np.bincount(
                np.minimum(code, len(cells)),
                solved * self.multipliers[d] if d in self.multipliers else solved,
                len(cells) + 1,
            )[:-1]
            for d, (cells, code) in enumerate(zip(self.cells, self.codes, strict=True))
        ]
        return np.concatenate(duals) if duals else np.zeros(0), float(half @ half)

    @property
    def log_det(self) -> float:
        """Exact log det(I + W^½ K W^½)."""
        return 2 * float(np.sum(np.log(np.diag(self.factor))))

    def variance(self, columns: list[Floats]) -> Floats:
        """Of the sum, (n,)."""
        n = len(columns[0]) if columns else 0
        parts = [slice(start, start + _TOGETHER) for start in range(0, n, _TOGETHER)]
        variances = [self._variance([column[part] for column in columns]) for part in parts]
        return np.concatenate(variances) if variances else np.zeros(0)

    def _variance(self, columns: list[Floats]) -> Floats:
        n = len(columns[0])
        cross = np.zeros((self.codes.shape[1], n))
        prior = np.zeros(n)
        for term, inputs in enumerate(columns):
            cells, kernel = self.cells[term], self.kernels[term]
            seen = ~cells.is_missing(inputs)
            if seen.all():
                cross += self._cross(term, inputs)
                prior += cells.prior_variance(kernel, inputs)
            else:
                cross[:, seen] += self._cross(term, inputs[seen])
                prior[seen] += cells.prior_variance(kernel, inputs[seen])
        return self._given_rows(prior, cross)

    def centred_variance(self, term: int, inputs: Floats) -> Floats:
        """Of one centred term, (n,)."""
        return self.centred_variance_of([term], [inputs])

    def centred_variance_of(self, terms: Sequence[int], columns: Sequence[Floats]) -> Floats:
        """Of a sum of some centred terms, (n,)."""
        pairs = [
            self._centred_prior(term, inputs) for term, inputs in zip(terms, columns, strict=True)
        ]
        (prior, cross), *others = pairs
        for more_prior, more_cross in others:
            prior, cross = prior + more_prior, cross + more_cross
        return self._given_rows(prior, cross)

    def _centred_prior(self, term: int, inputs: Floats) -> tuple[Floats, Floats]:
        """Prior variance of a centred term (n,), and its covariance with the rows, (n_rows, n)."""
        cells, kernel, share = self.cells[term], self.kernels[term], self.shares[term]
        mean_covariance = cells.multiply(kernel, share)
        with_mean = cells.kernel_sum(kernel, share)(inputs)
        prior = cells.prior_variance(kernel, inputs)
        prior = prior - 2 * with_mean + float(np.sum(share * mean_covariance))
        code = np.minimum(self.codes[term], len(cells))
        of_mean = np.append(mean_covariance, 0.0)[code]
        if term in self.multipliers:
            of_mean = of_mean * self.multipliers[term]
        return prior, self._cross(term, inputs) - of_mean[:, None]

    def _cross(self, term: int, inputs: Floats) -> Floats:
        cells, kernel, code = self.cells[term], self.kernels[term], self.codes[term]
        covariance = cells.prior(kernel, cells.points, inputs)
        if self.complete:
            of_rows = covariance[code]
        else:
            of_rows = np.pad(covariance, ((0, 1), (0, 0)))[np.minimum(code, len(cells))]
        if term in self.multipliers:
            of_rows = of_rows * self.multipliers[term][:, None]
        return of_rows

    def _given_rows(self, prior: Floats, cross: Floats) -> Floats:
        seen = cross * self.root[:, None]
        explained = solve_triangular(
            self.factor, seen, lower=True, overwrite_b=True, check_finite=False
        )
        return np.maximum(prior - np.sum(explained**2, axis=0), 0.0)


def _padded(matrix: Floats) -> Floats:
    """Append a row and a column of zeros: what missing inputs point to."""
    return np.pad(matrix, (0, 1))


@dataclass(frozen=True)
class CoupledTerm:
    """One term: its smoother's variance, and its parts of the coupling's eigenfunctions."""

    cells: Cells
    smoothed: Function
    with_mean: Function
    mean_variance: float
    functions: Sum
    means: Floats


@dataclass(frozen=True)
class CoupledCovariance:
    """Smoothers' variances plus the coupling of the terms on coarse spaces."""

    terms: list[CoupledTerm]
    eigenvalues: Floats
    fine_share: float
    """Degrees of freedom that the coarse spaces do not hold, as a share of the rows."""

    @property
    def name(self) -> str:
        """For people, with an estimate of the error: the table in docs/mathematics.md."""
        error = _COARSE_ERROR + _FINE_ERROR * self.fine_share
        return f"smoothers coupled on coarse spaces, good to about {error:.1%}"

    @classmethod
    def of(
        cls, system: AdditiveSystem, coarse_space: Callable[[], CoarseSpace] | None = None
    ) -> CoupledCovariance:
        """Find the coupling of a system; its coarse space may be there already."""
        field = mean_field(system)
        coarse = CoarseSpace(system) if coarse_space is None else coarse_space()
        tables = coarse.tables
        coarse_field = coarse_mean_field(coarse, system)
        eigenvalues, vectors = _coupling(coarse, system.noise_variance, coarse_field.factor)
        fine = max(float(np.sum(field.dofs - coarse_field.dofs)), 0.0) / max(
            system.equations.n_rows, 1
        )
        tasks = [
            partial(
                _coupled_term,
                cells,
                kernel,
                weight / omega,
                system.equations.share(term),
                space.points,
                solve_triangular(space.lower, vectors[rows], lower=True, trans="T"),
                space.at_bins.T @ vectors[rows],
                in_bins / max(total, _TINY),
            )
            for term, (cells, kernel, weight, omega, space, rows, in_bins, total) in enumerate(
                zip(
                    system.layout.cells,
                    system.kernels,
                    system.layout.parts(system.weight),
                    field.factor,
                    coarse.spaces,
                    coarse.rows,
                    tables.ones,
                    _totals(system, tables),
                    strict=True,
                )
            )
        ]
        return cls(run(tasks, _SMOOTH * system.layout.size), eigenvalues, fine)

    def variance(self, columns: list[Floats]) -> Floats:
        """Of the sum, (n,)."""
        n = len(columns[0]) if columns else 0
        total = np.zeros(n)
        sums = np.zeros((n, len(self.eigenvalues)))
        for term, inputs in zip(self.terms, columns, strict=True):
            seen = ~term.cells.is_missing(inputs)
            if seen.all():
                total += term.smoothed(inputs)
                term.functions.add_to(inputs, sums)
            else:
                known = inputs[seen]
                total[seen] += term.smoothed(known)
                more = np.zeros((len(known), len(self.eigenvalues)))
                term.functions.add_to(known, more)
                sums[seen] += more
        return _positive(total, _weighed(sums, self.eigenvalues))

    def centred_variance(self, term: int, inputs: Floats) -> Floats:
        """Of one centred term, (n,)."""
        return self.centred_variance_of([term], [inputs])

    def centred_variance_of(self, terms: Sequence[int], columns: Sequence[Floats]) -> Floats:
        """Of a sum of some centred terms, (n,)."""
        n = len(columns[0])
        smoothed = np.zeros(n)
        sums = np.zeros((n, len(self.eigenvalues)))
        for term, inputs in zip(terms, columns, strict=True):
            coupled_term = self.terms[term]
            alone = (
                coupled_term.smoothed(inputs)
                - 2 * coupled_term.with_mean(inputs)
                + coupled_term.mean_variance
            )
            smoothed += np.maximum(alone, 0.0)
            coupled_term.functions.add_to(inputs, sums)
            sums -= coupled_term.means
        return _positive(smoothed, _weighed(sums, self.eigenvalues))


def _weighed(sums: Floats, eigenvalues: Floats) -> Floats:
    """Σ_k λ_k s_k² row by row: BLAS would round by the number of rows in the call."""
    return np.einsum("ik,ik,k->i", sums, sums, eigenvalues)


def _positive(smoothed: Floats, coupling: Floats) -> Floats:
    """Add the coupling, which rounding or a coarse space may make a little too negative."""
    return np.maximum(smoothed + coupling, 0.05 * smoothed)


def _coupling(
    coarse: CoarseSpace, noise_variance: float, field_factors: Floats
) -> tuple[Floats, Floats]:
    """Eigenvalues and vectors of the coupling, those that count."""
    size = coarse.rows[-1].stop
    coupling, _ = lapack.dpotri(coarse.factor[0], lower=1)
    coupling = np.tril(coupling) + np.tril(coupling, -1).T
    # Σ over rows of φφᵀ, each term separately
    spread = np.zeros((size, size))
    posterior = 0.0
    for rows, gram, omega in zip(coarse.rows, coarse.grams, field_factors, strict=True):
        spread[rows, rows] = gram
        alone = np.eye(len(gram)) + gram / (omega * noise_variance)
        factor = cholesky(alone, lower=True, check_finite=False)
        inverse = cho_solve((factor, True), np.eye(len(gram)), check_finite=False)
        coupling[rows, rows] -= inverse
        posterior += float(np.sum(gram * inverse))
    values, vectors = eigh(coupling, check_finite=False, overwrite_a=True)
    effect = np.abs(values) * np.maximum(np.sum(vectors * (spread @ vectors), axis=0), 0.0)
    order = np.argsort(effect)
    kept = np.sort(order[np.cumsum(effect[order]) > _NEGLIGIBLE * posterior])
    return values[kept], np.ascontiguousarray(vectors[:, kept])


def _totals(system: AdditiveSystem, tables: TwoWayTables) -> list[float]:
    """What sums over the bins of each term are divided by for a mean over the rows."""
    if tables.multiplied is None:
        return [float(weights.sum()) for weights in tables.weights]
    return [system.equations.total_weight] * len(tables.weights)


def _coupled_term(
    cells: Cells,
    kernel: Kernel,
    weight: Floats,
    share: Floats,
    points: Codes,
    duals: Floats,
    at_bins: Floats,
    bin_share: Floats,
) -> CoupledTerm:
    covariance, dual = cells.solver(kernel, weight).solve(share)
    coarse_cells = cells.subset(np.sort(points))
    return CoupledTerm(
        cells=cells,
        smoothed=cells.variance_function(kernel, weight),
        with_mean=cells.kernel_sum(kernel, dual),
        mean_variance=float(np.sum(share * covariance)),
        functions=coarse_cells.kernel_sums(kernel, duals[np.argsort(points)].T),
        means=bin_share @ at_bins,
    )
