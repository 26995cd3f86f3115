"""Every way to learn the additive model, on the same rows: optimum, error, coverage, seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.inference [--rows 1000 2000 8000] [--dense 2000]

Rows are those of synth8d, of Matérn 7/2 functions. "dense" maximises the exact log marginal
likelihood by dense algebra: what the others are judged against. Hyperparameters
are compared with its, where it is run: the root mean square of the differences of the logarithms.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.optimize import minimize
from scipy.special import ndtri

from dsgp import AdditiveGPRegressor
from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern72
from pipelines.datasets import load

METHODS: dict[str, dict[str, Any]] = {
    "marginal": {"learner": "marginal"},
    "vbem": {"learner": "vbem"},
    "em": {"learner": "em"},
    "gibbs": {"method": "gibbs"},
    "plain-gibbs": {"method": "plain-gibbs"},
    "collapsed": {"method": "collapsed"},
}
N_TEST = 10_000


@dataclass(frozen=True)
class Result:
    """One method on one number of rows.

    Attributes
    ----------
    rows : int
    method : str
    lengthscale, std, noise_variance : float
        Geometric means over the terms, and the noise.
    logs : list of float
        Of all lengthscales, variances and the noise variance.
    nmse, mnlp, coverage : float
        Of the test targets; 95 % intervals.
    seconds : float
        Processor seconds of the fit.
    converged : bool
    """

    rows: int
    method: str
    lengthscale: float
    std: float
    noise_variance: float
    logs: list[float]
    nmse: float
    mnlp: float
    coverage: float
    seconds: float
    converged: bool


def scored(
    rows: int, method: str, logs: np.ndarray, split: Any, mean: Any, std: Any, seconds: float,
    converged: bool,
) -> Result:  # fmt: skip
    """Measure predictions of the test targets."""
    y, terms = np.asarray(split.y_test), (len(logs) - 1) // 2
    error = y - np.asarray(mean)
    density = -0.5 * np.log(2 * np.pi * std**2) - 0.5 * (error / std) ** 2
    return Result(
        rows,
        method,
        float(np.exp(logs[:terms].mean())),
        float(np.exp(0.5 * logs[terms:-1].mean())),
        float(np.exp(logs[-1])),
        logs.tolist(),
        float(np.mean(error**2) / np.var(y)),
        float(-density.mean()),
        float(np.mean(np.abs(error) < ndtri(0.975) * std)),
        seconds,
        converged,
    )


def ours(name: str, split: Any, n: int) -> Result:
    """Fit one of our methods."""
    options = METHODS[name]
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = AdditiveGPRegressor(Matern72(), random_state=0, **options)
        model.fit(split.X_train, split.y_train)
    seconds = time.process_time() - begun
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    kernels: list[Any] = list(model.kernels_.values())
    logs = np.log(
        [k.lengthscale for k in kernels] + [k.variance for k in kernels] + [model.noise_variance_]
    )
    if options.get("method"):
        logs = log_means(model, logs)
    return scored(n, name, logs, split, mean, std, seconds, bool(model.converged_))


def log_means(model: AdditiveGPRegressor, logs: np.ndarray) -> np.ndarray:
    """Posterior means of the logarithms, in the order of ``logs``."""
    draws = model.draws_
    means = {name: np.log(draws[name].to_numpy()).mean(axis=(0, 1)) for name in draws.data_vars}
    kernel_names = [name for name in ("lengthscale", "variance") if name in means]
    if len(kernel_names) < 2:  # one variable a parameter
        return logs
    return np.concatenate(
        [np.ravel(means["lengthscale"]), np.ravel(means["variance"]), [means["noise_variance"]]]
    )


def dense(split: Any, n: int, start: np.ndarray) -> Result:
    """Maximise the exact log marginal likelihood, from hyperparameters near the optimum."""
    X, y = np.asarray(split.X_train), np.asarray(split.y_train)
    centred, terms = y - y.mean(), X.shape[1]

    def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
        covariance = np.exp(logs[-1]) * np.eye(n)
        for d in range(terms):
            covariance += _kernel(logs, d).covariance(X[:, d])
        factor = cho_factor(covariance, lower=True, overwrite_a=True)
        dual = cho_solve(factor, centred)
        value = 0.5 * centred @ dual + np.log(np.diag(factor[0])).sum()
        inverse = lapack.dpotri(factor[0], lower=1, overwrite_c=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        inverse -= np.outer(dual, dual)
        gradient = np.empty(len(logs))
        for d in range(terms):
            kernel = _kernel(logs, d)
            gradient[d] = 0.5 * np.vdot(inverse, kernel.by_log("lengthscale", X[:, d]))
            gradient[terms + d] = 0.5 * np.vdot(inverse, kernel.covariance(X[:, d]))
        gradient[-1] = 0.5 * np.exp(logs[-1]) * np.trace(inverse)
        return value, gradient

    begun = time.process_time()
    # A function as good as none has no lengthscale to tell.
    bounds = [(s - 3, s + 3) for s in start]
    best = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds,
                    options={"maxiter": 40, "ftol": 1e-9})  # fmt: skip
    seconds = time.process_time() - begun
    covariance = np.exp(best.x[-1]) * np.eye(n)
    kernels = [_kernel(best.x, d) for d in range(terms)]
    for d, kernel in enumerate(kernels):
        covariance += kernel.covariance(X[:, d])
    factor = cho_factor(covariance, lower=True, overwrite_a=True)
    dual = cho_solve(factor, centred)
    mean, variance = [], []
    for block in np.array_split(np.asarray(split.X_test), 20):
        parts = [k.covariance(block[:, d], X[:, d]) for d, k in enumerate(kernels)]
        cross = np.sum(parts, axis=0)
        prior = sum(kernel.std**2 for kernel in kernels) + np.exp(best.x[-1])
        mean.append(y.mean() + cross @ dual)
        variance.append(prior - np.einsum("ij,ji->i", cross, cho_solve(factor, cross.T)))
    std = np.sqrt(np.concatenate(variance))
    converged = bool(best.success)
    return scored(n, "dense", best.x, split, np.concatenate(mean), std, seconds, converged)


def _kernel(logs: np.ndarray, d: int) -> Matern72:
    terms = (len(logs) - 1) // 2
    return Matern72(float(np.exp(logs[d])), float(np.exp(logs[terms + d])))


def table_of(results: list[Result]) -> str:
    """Write a Markdown table."""
    lines = [
        "| rows | method | lengthscale | std | noise variance | from dense | NMSE | MNLP "
        "| 95 % cover | CPU s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    exact = {r.rows: np.array(r.logs) for r in results if r.method == "dense"}
    for r in results:
        away = "–"
        if r.rows in exact and r.method != "dense":
            away = f"{np.sqrt(np.mean((np.array(r.logs) - exact[r.rows]) ** 2)):.3f}"
        name = r.method if r.converged else f"{r.method} (not converged)"
        lines.append(
            f"| {r.rows} | {name} | {r.lengthscale:.3f} | {r.std:.3f} | {r.noise_variance:.5f} | "
            f"{away} | {r.nmse:.5f} | {r.mnlp:.4f} | {100 * r.coverage:.1f} % | {r.seconds:.3g} |"
        )
    return "\n".join(lines)


def main(
    rows: Annotated[list[int], typer.Option()] = [1000, 2000, 8000],  # noqa: B006
    dense_rows: Annotated[int, typer.Option("--dense", help="Most rows of dense algebra.")] = 2000,
    methods: Annotated[list[str], typer.Option("--method")] = list(METHODS),  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="A JSON file to be.")] = None,
) -> None:
    """Fit all of them and print a table."""
    results: list[Result] = []
    for n in rows:
        split = load("synth8d", n=n, n_test=N_TEST)
        for name in methods:
            results.append(ours(name, split, n))
            print(table_of(results[-1:]).splitlines()[-1], flush=True)
        if n <= dense_rows:
            results.append(dense(split, n, np.array(results[-len(methods)].logs)))
    print()
    print(table_of(results))
    if out is not None:
        out.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
