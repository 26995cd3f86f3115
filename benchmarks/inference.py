"""Every way to learn the additive model, on the same rows: optimum, error, coverage, seconds.

    OMP_NUM_THREADS=1 python -m benchmarks.inference [--rows 1000 2000 8000] [--dense 8000]
    [--kept FOLDER]

Rows are those of synth8d, of Matérn 7/2 functions. "dense" maximises the exact log marginal
likelihood by dense algebra: what the others are judged against. Hyperparameters
are compared with its, where it is run: the root mean square of the differences of the logarithms.
At what each method found (of draws, at the mean of their logarithms) the exact log marginal
likelihood is computed, and the bound that "vbem" and "em" maximise.

The evaluations of "dense" take some 25 s each at 8000 rows; in a folder that ``--kept`` names they
are kept, and the same run resumes from there.
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
from scipy.special import ndtri

from benchmarks.bounds import bound_at
from benchmarks.dense_optimum import DenseAdditive
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
    bound : float
        The variational one, at these hyperparameters.
    log_likelihood : float
        The exact log marginal likelihood there, a constant integrated out.
    nmse, mnlp, coverage : float
        Of the test targets; 95 % intervals.
    seconds : float
        Processor seconds of the fit.
    iterations : int
        Of the learner; of "dense" its evaluations.
    learner : str
        Whose hyperparameters these are, or where the chains began.
    converged : bool
    """

    rows: int
    method: str
    lengthscale: float
    std: float
    noise_variance: float
    logs: list[float]
    bound: float
    log_likelihood: float
    nmse: float
    mnlp: float
    coverage: float
    seconds: float
    iterations: int
    learner: str
    converged: bool


def scored(
    method: str, logs: np.ndarray, split: Any, prediction: tuple[Any, Any], **further: Any
) -> Result:
    """Measure predictions of the test targets, and how likely hyperparameters are."""
    X, targets, (mean, std) = np.asarray(split.X_train), np.asarray(split.y_train), prediction
    y, terms = np.asarray(split.y_test), (len(logs) - 1) // 2
    error = y - np.asarray(mean)
    density = -0.5 * np.log(2 * np.pi * std**2) - 0.5 * (error / std) ** 2
    return Result(
        len(targets),
        method,
        float(np.exp(logs[:terms].mean())),
        float(np.exp(0.5 * logs[terms:-1].mean())),
        float(np.exp(logs[-1])),
        logs.tolist(),
        bound_at(X, targets, logs),
        DenseAdditive(X, targets).log_likelihood(logs),
        float(np.mean(error**2) / np.var(y)),
        float(-density.mean()),
        float(np.mean(np.abs(error) < ndtri(0.975) * std)),
        **further,
    )


def ours(name: str, split: Any) -> Result:
    """Fit one of our methods."""
    options = METHODS[name]
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = AdditiveGPRegressor(Matern72(), random_state=0, **options)
        model.fit(split.X_train, split.y_train)
    seconds = time.process_time() - begun
    prediction = model.predict(split.X_test, return_std=True, include_noise=True)
    kernels: list[Any] = list(model.kernels_.values())
    logs = np.log(
        [k.lengthscale for k in kernels] + [k.variance for k in kernels] + [model.noise_variance_]
    )
    if options.get("method"):
        logs = log_means(model, logs)
    return scored(
        name,
        logs,
        split,
        prediction,
        seconds=seconds,
        iterations=int(model.n_iter_),
        learner=str(model.learner_),
        converged=bool(model.converged_),
    )


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


def dense(split: Any, start: np.ndarray, kept: Path | None) -> Result:
    """Maximise the exact log marginal likelihood, from hyperparameters near the optimum."""
    model = DenseAdditive(np.asarray(split.X_train), np.asarray(split.y_train), kept)
    logs, converged = model.maximise(start)
    prediction = model.predict(logs, np.asarray(split.X_test))
    return scored(
        "dense",
        logs,
        split,
        prediction,
        seconds=model.seconds,
        iterations=model.n_evaluations,
        learner="dense",
        converged=converged,
    )


def table_of(results: list[Result]) -> str:
    """Write a Markdown table."""
    lines = [
        "| rows | method | lengthscale | std | noise variance | from dense | log likelihood "
        "| bound | NMSE | MNLP | 95 % cover | CPU s |",
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    exact = {r.rows: np.array(r.logs) for r in results if r.method == "dense"}
    for r in results:
        away = "–"
        if r.rows in exact and r.method != "dense":
            away = f"{np.sqrt(np.mean((np.array(r.logs) - exact[r.rows]) ** 2)):.3f}"
        name = r.method if r.converged else f"{r.method} (not converged)"
        lines.append(
            f"| {r.rows} | {name} | {r.lengthscale:.3f} | {r.std:.3f} | {r.noise_variance:.5f} | "
            f"{away} | {r.log_likelihood:.2f} | {r.bound:.2f} | {r.nmse:.5f} | {r.mnlp:.4f} | "
            f"{100 * r.coverage:.1f} % | {r.seconds:.3g} |"
        )
    return "\n".join(lines)


def main(
    rows: Annotated[list[int], typer.Option()] = [1000, 2000, 8000],  # noqa: B006
    dense_rows: Annotated[
        int, typer.Option("--dense", help="Maximum number of rows for dense algebra.")
    ] = 8000,
    methods: Annotated[list[str], typer.Option("--method")] = list(METHODS),  # noqa: B006
    kept: Annotated[
        Path | None, typer.Option(help="Folder in which dense evaluations are kept.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Path of a JSON file for the results.")] = None,
) -> None:
    """Fit all of them and print a table."""
    results: list[Result] = []
    for n in rows:
        split = load("synth8d", n=n, n_test=N_TEST)
        for name in methods:
            results.append(ours(name, split))
            print(table_of(results[-1:]).splitlines()[-1], flush=True)
        if n <= dense_rows:
            file = None if kept is None else kept / f"dense-{n}.jsonl"
            results.append(dense(split, np.array(results[-len(methods)].logs), file))
            print(table_of(results[-1:]).splitlines()[-1], flush=True)
    print()
    print(table_of(results))
    if out is not None:
        out.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
