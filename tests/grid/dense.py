"""A Gaussian process on some cells of a grid by dense matrices, from formulas written out here."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic, SquaredExponential


def correlation(kernel, r, lengthscale=None):
    """Correlation at distances r; the lengthscale can be complex, for derivatives."""
    length = kernel.lengthscale if lengthscale is None else lengthscale
    nu = getattr(kernel, "smoothness", np.inf)
    if isinstance(kernel, Periodic):
        r = kernel.period / np.pi * np.abs(np.sin(np.pi * r / kernel.period))
    if nu == np.inf:
        return np.exp(-0.5 * (r / length) ** 2)
    s = np.sqrt(2 * nu) * r / length
    polynomial = {
        0.5: 1.0,
        1.5: 1 + s,
        2.5: 1 + s + s**2 / 3,
        3.5: 1 + s + 2 * s**2 / 5 + s**3 / 15,
    }[nu]
    return polynomial * np.exp(-s)


@dataclass
class Dense:
    """The field y = f + noise on the observed cells of a grid.

    ``points`` are D arrays, ``terms`` C tuples of D kernels, ``observed`` a bool array or None,
    ``noise`` broadcasts to the grid.
    """

    points: list
    terms: list
    noise: object
    observed: object = None
    prior: np.ndarray = field(init=False)

    def __post_init__(self):
        self.shape = tuple(len(own) for own in self.points)
        if self.observed is None:
            self.observed = np.ones(self.shape, bool)
        self.flat = np.flatnonzero(self.observed)
        self.variances = np.broadcast_to(np.asarray(self.noise, float), self.shape)[self.observed]
        self.prior = self.between(self.points, self.points)
        self.total = self.prior[np.ix_(self.flat, self.flat)] + np.diag(self.variances)

    def between(self, a, b, bump=None):
        """Covariance of all cells of one grid with those of another.

        ``bump`` (c, d): its derivative by that log lengthscale, to rounding (a complex step).
        """
        cells = [np.stack([g.ravel() for g in np.meshgrid(*x, indexing="ij")], 1) for x in (a, b)]
        total = 0.0
        for c, term in enumerate(self.terms):
            if bump is not None and bump[0] != c:
                continue
            part = np.prod([kernel.variance for kernel in term]).astype(complex)
            for d, kernel in enumerate(term):
                r = np.abs(cells[0][:, None, d] - cells[1][None, :, d])
                length = kernel.lengthscale
                if bump == (c, d):
                    length = length * np.exp(1e-30j)
                part = part * correlation(kernel, r, length)
            total = total + (part.imag / 1e-30 if bump is not None else part.real)
        return total

    def _seen(self, matrix):
        return matrix[np.ix_(self.flat, self.flat)]

    def dual(self, y):
        return np.linalg.solve(self.total, y[self.observed])

    def log_likelihood(self, y):
        log_det = np.linalg.slogdet(self.total)[1]
        quadratic = y[self.observed] @ self.dual(y)
        return -0.5 * (quadratic + log_det + len(self.flat) * np.log(2 * np.pi))

    def gradient(self, y):
        """By the logs of lengthscales (C, D), of the terms' amplitudes (C,), and of the noise."""
        dual, inverse = self.dual(y), np.linalg.inv(self.total)

        def score(derivative):
            return 0.5 * (dual @ derivative @ dual - np.sum(inverse * derivative))

        n_terms, n_dims = len(self.terms), len(self.points)
        lengthscales = np.array(
            [
                [
                    score(self._seen(self.between(self.points, self.points, (c, d))))
                    for d in range(n_dims)
                ]
                for c in range(n_terms)
            ]
        )
        amplitudes = np.array(
            [score(self._seen(Dense(self.points, [term], 1.0).prior)) for term in self.terms]
        )
        return lengthscales, amplitudes, score(np.diag(self.variances))

    def posterior(self, y=None, points=None):
        """Mean, in the grid's shape, and covariance of all cells of the grid, or of another."""
        points = self.points if points is None else points
        cross = self.between(points, self.points)[:, self.flat]
        covariance = self.between(points, points) - cross @ np.linalg.solve(self.total, cross.T)
        if y is None:
            return None, covariance
        return (cross @ self.dual(y)).reshape([len(own) for own in points]), covariance

    def variance(self, points=None):
        shape = [len(own) for own in (self.points if points is None else points)]
        return np.diag(self.posterior(points=points)[1]).reshape(shape)


def close(found, expected, tolerance=1e-8):
    """Equal relative to the largest number expected; NaN only where it is expected."""
    expected = np.asarray(expected, float)
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=tolerance * np.nanmax(np.abs(expected))
    )


class UnitNormals:
    """A generator whose normal numbers are all 0 but one: draws are linear in them."""

    def __init__(self, which):
        self.which, self.used = which, 0

    def standard_normal(self, size):
        out = np.zeros(int(np.prod(size)))
        if 0 <= self.which - self.used < out.size:
            out[self.which - self.used] = 1.0
        self.used += out.size
        return out.reshape(size)


def covariance_of(draw):
    """Exact covariance of what ``draw(generator)`` returns, flattened, without any sampling."""
    counter = UnitNormals(-1)
    draw(counter)
    columns = np.array([np.ravel(draw(UnitNormals(k))) for k in range(counter.used)])
    return columns.T @ columns


def uneven(n, low, high, seed=0):
    """Ascending points with different steps."""
    steps = np.random.default_rng([seed, n]).uniform(0.5, 1.5, max(n - 1, 0))
    place = np.concatenate([[0.0], np.cumsum(steps)])
    return low + (high - low) * place / max(place[-1], 1.0)


def gaps(shape, share=0.3, seed=0):
    """Observed cells: some missing at random, and a block."""
    observed = np.random.default_rng([seed, len(shape)]).random(shape) >= share
    observed[tuple(slice(0, max(n // 3, 0)) for n in shape)] = False
    if not observed.any():
        observed.flat[-1] = True
    return observed


# Grids of 1 to 4 dims: points, terms.
CASES = {
    "one dim": ([np.linspace(0, 4, 40)], [(Matern32(0.5, 2.0),)]),
    "one dim, uneven, two scales": (
        [uneven(40, 0, 4)],
        [(Matern52(2.0, 2.0),), (Matern12(0.3, 0.5),)],
    ),
    "two dims": (
        [np.linspace(0, 2, 9), np.linspace(5, 8, 11)],
        [(Matern32(0.7, 1.5), SquaredExponential(0.8, 1.0))],
    ),
    "two dims, round a circle, two scales": (
        [uneven(7, -40, 40), np.arange(0.0, 360.0, 30.0)],
        [
            (Matern72(40.0, 3.0), Periodic(360.0, 60.0, 1.0)),
            (Matern32(15.0, 0.4), Periodic(360.0, 25.0, 0.5, smoothness=1.5)),
        ],
    ),
    "three dims, one of a single point": (
        [np.linspace(0, 2, 8), np.array([3.0]), uneven(9, 0, 2)],
        [(Matern12(0.7, 1.0), Matern32(1.0, 2.0), Matern52(0.6, 0.8))],
    ),
    "three dims, two scales": (
        [uneven(5, 0, 2), np.linspace(0, 1, 5), np.linspace(0, 3, 6)],
        [
            (Matern32(1.5, 1.0), Matern52(1.0, 1.0), Matern32(2.0, 1.0)),
            (Matern12(0.2, 0.1), Matern32(0.3, 1.0), Matern12(0.4, 1.0)),
        ],
    ),
    "four dims": (
        [np.linspace(0, 1, 4), uneven(3, 0, 1), np.linspace(0, 1, 5), np.linspace(0, 2, 3)],
        [(Matern52(0.5, 2.0), Matern12(0.4, 1.0), SquaredExponential(0.3, 1.0), Matern32(1.0, 1))],
    ),
}  # fmt: skip


def problem(name, missing=True, noise="per cell", seed=0):
    """Return (dense answer, y on the grid)."""
    points, terms = CASES[name]
    shape = tuple(len(own) for own in points)
    random = np.random.default_rng([seed, len(name)])
    noises = random.uniform(0.02, 0.3, shape) if noise == "per cell" else noise
    dense = Dense(points, terms, noises, gaps(shape) if missing else None)
    return dense, random.standard_normal(shape)


def elsewhere(points, seed=0):
    """Another grid: unordered, inside, outside and among the points."""
    out = []
    for d, own in enumerate(points):
        random = np.random.default_rng([seed, d])
        extent = max(own[-1] - own[0], 1.0)
        new = random.uniform(own[0] - 0.2 * extent, own[-1] + 0.2 * extent, 2 + d % 2)
        out.append(np.append(new, own[len(own) // 2]))
    return out
