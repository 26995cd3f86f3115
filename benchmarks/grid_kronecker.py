"""Exact Gaussian processes on complete grids: ``python -m benchmarks.grid_kronecker COMMAND``.

``corners``: one learning iteration at the corners of a hypercube (Figure ``fig:kron``).
``solve``: one solve beside the bare matrix products it needs and beside plain numpy.
``image``: learning and reconstruction of a 200 × 200 image beside plain numpy.

Time is processor time of the process; take one BLAS thread (``OPENBLAS_NUM_THREADS=1``).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from dsgp import GridGP
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.kernels import Matern52, SquaredExponential, Stationary

Floats = NDArray[np.float64]
# Mean, variance, loss and number of evaluations.
Reconstruction = tuple[NDArray[Any], NDArray[Any], float, int]
Repeats = Annotated[
    int, typer.Option(help="Number of rounds, of which the median is reported.", min=1)
]

app = typer.Typer(add_completion=False, help=__doc__)
console = Console()


def medians(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Seconds of each call, taken in turn, A B C A B C …, so that a slow moment hits all."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(measured) for name, measured in times.items()}


def slope(n: Sequence[float], seconds: Sequence[float]) -> float:
    """Exponent of a power of n, by least squares of the logs."""
    return float(np.polyfit(np.log(n), np.log(seconds), 1)[0])


# ---------------------------------------------------------------------- corners


def corners_iteration(y: Floats) -> Callable[[], Any]:
    """One step of learning: decompose, likelihood and gradient by every parameter."""
    points = [np.array([-1.0, 1.0])] * y.ndim
    kernels = [SquaredExponential(2.0, 1.0)] * y.ndim
    return lambda: KroneckerSystem(points, kernels, 0.1).evidence(y)


def dense_iteration(y: Floats) -> Callable[[], Any]:
    """The same by the full covariance: one lengthscale, the amplitude, the noise."""
    n = y.size
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * y.ndim, indexing="ij")).reshape(y.ndim, -1)

    def iterate() -> tuple[float, list[float]]:
        squares = np.sum(corners**2, axis=0)
        distances = squares[:, None] + squares - 2.0 * corners.T @ corners
        prior = np.exp(-0.5 * distances / 4.0)
        factor = cho_factor(prior + 0.1 * np.eye(n), lower=True)
        alpha = cho_solve(factor, y.ravel())
        inverse = cho_solve(factor, np.eye(n))
        value = -0.5 * y.ravel() @ alpha - np.log(np.diag(factor[0])).sum()
        slopes = [prior * distances / 4.0, prior, 0.1 * np.eye(n)]
        return float(value - 0.5 * n * math.log(2 * math.pi)), [
            float(0.5 * (alpha @ own @ alpha - np.vdot(inverse, own))) for own in slopes
        ]

    return iterate


@app.command()
def corners(
    smallest: Annotated[int, typer.Option(help="Smallest number of dimensions.", min=1)] = 8,
    largest: Annotated[int, typer.Option(help="Most dimensions.", max=26)] = 20,
    dense: Annotated[
        int, typer.Option(help="Largest number of dimensions for the full GP.", max=13)
    ] = 11,
    repeats: Repeats = 7,
) -> None:
    """Time one learning iteration at the 2^D corners of a hypercube."""
    table = Table("D", "N", "seconds", "full GP", title="One learning iteration")
    rng = np.random.default_rng(0)
    ours: dict[int, float] = {}
    full: dict[int, float] = {}
    for d in range(smallest, largest + 1):
        y = rng.standard_normal((2,) * d)
        ours[2**d] = medians({"ours": corners_iteration(y)}, repeats)["ours"]
        if d <= dense:
            iterate = dense_iteration(y)
            full[2**d] = medians({"full": iterate}, 1)["full"]
            if not math.isclose(iterate()[0], corners_iteration(y)().value, rel_tol=1e-8):
                raise AssertionError(f"the likelihoods of the {2**d} corners do not agree")
        dense_cell = f"{full[2**d]:.4f}" if 2**d in full else "–"
        table.add_row(str(d), str(2**d), f"{ours[2**d]:.5f}", dense_cell)
    console.print(table)
    last = list(ours)[-7:]
    if len(last) > 1:
        console.print(
            f"slope of the last {len(last)} points: {slope(last, [ours[n] for n in last]):.3f} "
            "(at most 1.1; the paper: 1.05)"
        )
    if len(full) > 1:
        some = list(full)[-3:]
        console.print(
            f"slope of the full GP's last {len(some)}: {slope(some, [full[n] for n in some]):.2f}"
        )


# ---------------------------------------------------------------------- solve


def bare_products(vectors: list[Floats], y: Floats) -> Callable[[], Any]:
    """Return ``numpy.matmul`` on the shapes that a solve has, there and back, into given arrays."""
    out = np.empty_like(y)
    passes = []
    for d, matrix in enumerate(vectors):
        before, after = math.prod(y.shape[:d]), math.prod(y.shape[d + 1 :])
        if after == 1:
            shape: tuple[int, ...] = (before, -1)
            passes.append((y.reshape(shape), matrix, out.reshape(shape)))
        else:
            shape = (before, len(matrix), after)
            passes.append((matrix, y.reshape(shape), out.reshape(shape)))

    def run() -> None:
        for _ in range(2):
            for left, right, into in passes:
                np.matmul(left, right, out=into)

    return run


def numpy_eig(covariances: list[Floats], y: Floats, noise: float) -> Floats:
    """Solve with plain numpy, decompositions included."""
    decomposed = [np.linalg.eigh(own) for own in covariances]
    z = y
    for _, vectors in decomposed:
        z = np.tensordot(z, vectors, axes=(0, 0))
    z = z / (reduce(np.multiply.outer, [values for values, _ in decomposed]) + noise)
    for _, vectors in decomposed:
        z = np.tensordot(z, vectors, axes=(0, 1))
    return z


@app.command()
def solve(
    shape: Annotated[
        list[str] | None, typer.Option(help="Size of a grid, such as 1024,1024; can be repeated.")
    ] = None,
    repeats: Repeats = 5,
) -> None:
    """Time (K + σ² I)⁻¹ y beside bare products, and with decompositions beside numpy."""
    table = Table(
        "grid", "solve", "bare products", "ratio (≤ 1.5)", "in all", "numpy", "ratio (≤ 1)"
    )
    for text in shape or ["1024,1024", "128,128,128", "2^20"]:
        sizes = (2,) * 20 if text == "2^20" else tuple(int(own) for own in text.split(","))
        points = [np.linspace(0.0, 1.0, size) for size in sizes]
        kernels: list[Stationary] = [
            SquaredExponential(0.1 if sizes[0] > 2 else 1.0, 1.0) for _ in sizes
        ]
        y = np.random.default_rng(5).standard_normal(sizes)
        system = KroneckerSystem(points, kernels, 0.1)
        vectors = [basis.vectors for basis in system.bases]
        covariances = [k.covariance(x) for k, x in zip(kernels, points, strict=True)]
        if np.max(np.abs(system.solve(y) - numpy_eig(covariances, y, 0.1))) > 1e-7:
            raise AssertionError(f"the solutions on {text} do not agree")
        found = medians(
            {
                "solve": lambda s=system, y=y: s.solve(y),  # type: ignore[misc]
                "bare": bare_products(vectors, y),
                "all": lambda p=points, k=kernels, y=y: KroneckerSystem(p, k, 0.1).solve(y),  # type: ignore[misc]
                "numpy": lambda c=covariances, y=y: numpy_eig(c, y, 0.1),  # type: ignore[misc]
            },
            repeats,
        )
        table.add_row(
            text,
            f"{found['solve']:.4f}",
            f"{found['bare']:.4f}",
            f"{found['solve'] / found['bare']:.2f}",
            f"{found['all']:.4f}",
            f"{found['numpy']:.4f}",
            f"{found['all'] / found['numpy']:.2f}",
        )
    console.print(table)
    console.print("numpy is given the covariances; ours makes them.")


# ---------------------------------------------------------------------- image

BOUNDS = [(-6.0, 3.0)] * 2 + [(-8.0, 6.0)] * 2
START = np.log([0.1, 0.1, 1.0, 0.1])


def noisy_image(side: int, seed: int = 4) -> tuple[Floats, Floats, Floats]:
    """Return the points of an axis, a field with an edge and its noisy image."""
    rng = np.random.default_rng(seed)
    a = np.linspace(0.0, 1.0, side)
    u, v = np.meshgrid(a, a, indexing="ij")
    field = np.zeros((side, side))
    for _ in range(120):
        k = rng.normal(0, 9.0, 2)
        phase = 2 * np.pi * 0.5 * (k[0] * u + k[1] * v)
        field += rng.normal() * np.cos(phase + rng.uniform(0, 2 * np.pi))
    field /= field.std()
    field += np.tanh((u - 0.5 - 0.15 * np.sin(6 * v)) * 30)
    field = (field - field.mean()) / field.std()
    return a, field, field + math.sqrt(0.05) * rng.standard_normal(field.shape)


def ours_image(x: Floats, y: Floats) -> Reconstruction:
    """Learn two lengthscales, amplitude and noise by L-BFGS; posterior mean and variance."""

    def system(logs: Floats) -> KroneckerSystem:
        first, second, variance, noise = np.exp(logs)
        return KroneckerSystem([x, x], [Matern52(first, variance), Matern52(second, 1.0)], noise)

    def loss(logs: Floats) -> tuple[float, Floats]:
        found = system(logs).evidence(y)
        slopes = [*found.by_log_lengthscale, found.by_log_variance, found.by_log_noise]
        return -found.value / y.size, -np.array(slopes) / y.size

    best = minimize(
        loss, START, jac=True, method="L-BFGS-B", bounds=BOUNDS, options={"maxiter": 50}
    )
    mean, variance = system(best.x).posterior(y)
    return mean, variance, best.fun * y.size, best.nfev


def estimator_image(x: Floats, y: Floats) -> Reconstruction:
    """What a user calls: GridGP from its own start, and its posterior."""
    kernels = {"u": Matern52(), "v": Matern52()}
    model = GridGP(kernels, mean="zero").fit(xr.DataArray(y, {"u": x, "v": x}))
    found = model.posterior()
    loss = -float(model.log_marginal_likelihood_ or 0.0)
    return found["mean"].values, found["std"].values ** 2, loss, 0


def numpy_image(x: Floats, y: Floats) -> Reconstruction:
    """The same in plain numpy with forward differences."""

    def correlations(lengthscale: float) -> Floats:
        u = np.sqrt(5) * np.abs(x[:, None] - x) / lengthscale
        return (1 + u + u * u / 3) * np.exp(-u)

    def parts(p: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        l1, q1 = np.linalg.eigh(correlations(np.exp(p[0])))
        l2, q2 = np.linalg.eigh(correlations(np.exp(p[1])))
        e = np.exp(p[2]) * np.outer(np.maximum(l1, 0), np.maximum(l2, 0)) + np.exp(p[3])
        return q1, q2, e, q1.T @ y @ q2

    def loss(p: Floats) -> float:
        _, _, e, z = parts(p)
        return float(0.5 * (np.sum(z * z / e) + np.log(e).sum()) / y.size)

    best = minimize(loss, START, method="L-BFGS-B", bounds=BOUNDS, options={"maxiter": 50})
    q1, q2, e, z = parts(best.x)
    noise = np.exp(best.x[3])
    mean = q1 @ (z * (1 - noise / e)) @ q2.T
    variance = (q1 * q1) @ ((e - noise) * noise / e) @ (q2 * q2).T
    loss_there = best.fun * y.size + 0.5 * y.size * math.log(2 * math.pi)
    return mean, variance, loss_there, best.nfev


@app.command()
def image(
    side: Annotated[int, typer.Option(help="Number of pixels along one side.", min=10)] = 200,
    repeats: Repeats = 5,
) -> None:
    """Time learning and reconstruction, variance included, of a noisy image.

    Then the same of every second pixel in both directions, interpolated at all of them.
    """
    x, field, noisy = noisy_image(side)
    y = noisy - noisy.mean()
    runs = {
        "KroneckerSystem": lambda: ours_image(x, y),
        "GridGP": lambda: estimator_image(x, y),
        "plain numpy": lambda: numpy_image(x, y),
    }
    seconds = medians(runs, repeats)
    title = f"Learning and reconstruction of {side} × {side}"
    table = Table("", "seconds", "evaluations", "−log likelihood", "RMSE", title=title)
    for name, run in runs.items():
        mean, _, loss, evaluations = run()
        error = float(np.sqrt(np.mean((mean + noisy.mean() - field) ** 2)))
        row = (f"{seconds[name]:.3f}", str(evaluations or "–"), f"{loss:.4f}", f"{error:.5f}")
        table.add_row(name, *row)
    console.print(table)
    half = xr.DataArray(y[::2, ::2], {"u": x[::2], "v": x[::2]})
    kernels = {"u": Matern52(), "v": Matern52()}

    def interpolate() -> xr.Dataset:
        return GridGP(kernels, mean="zero").fit(half).predict(u=x, v=x)

    spent = medians({"": interpolate}, repeats)[""]
    error = float(np.sqrt(np.mean((interpolate()["mean"] + noisy.mean() - field) ** 2)))
    console.print(f"interpolation by GridGP: {spent:.3f} s, RMSE {error:.5f}")


if __name__ == "__main__":
    app()
