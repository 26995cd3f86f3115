"""VBEM and EM on the same rows, each until its optimum: the bound they reach, and what it costs.

    OMP_NUM_THREADS=1 python -m benchmarks.bounds [--rows 25 50] [--terms 2]

Rows are those of synth8d, of Matérn 7/2 functions; the functions of columns that are left out are
noise. Both learners maximise the same lower bound of the log marginal likelihood. Beside them the
exact log marginal likelihood at what they found.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.dense_optimum import DenseAdditive
from dsgp.additive import SOLVERS, AdditiveSystem, Pair, RowEquations, Solution
from dsgp.kernels import Matern72
from dsgp.learning.em import em
from dsgp.learning.search import search_for
from dsgp.learning.vbem import expectation, vbem
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable
from pipelines.datasets import load

NOISE_BOUNDS = (1e-6, 1e2)
# What each learner stops at: nats an iteration, and nats by the log of a hyperparameter.
VBEM_TOL, EM_TOL = 1e-6, 0.02


@dataclass(frozen=True)
class Reached:
    """One learner on one number of rows.

    Attributes
    ----------
    rows : int
    learner : str
    bound : float
        Of the log marginal likelihood, of targets less their mean.
    log_likelihood : float
        Exact, a constant integrated out, at the same hyperparameters.
    logs : list of float
        Of all lengthscales, variances and the noise variance.
    iterations : int
    seconds : float
        Processor seconds.
    converged : bool
    """

    rows: int
    learner: str
    bound: float
    log_likelihood: float
    logs: list[float]
    iterations: int
    seconds: float
    converged: bool


def solve(system: AdditiveSystem, start: Pair | None) -> Solution:
    return SOLVERS["multigrid"](system, tol=1e-6, max_iter=500, start=start)


def equations_of(X: np.ndarray, y: np.ndarray) -> RowEquations:
    """Normal equations of the targets less their mean, on every distinct value."""
    axes, codes = zip(*[encode(column) for column in X.T], strict=True)
    names = tuple(f"x{d}" for d in range(X.shape[1]))
    table = RowTable(names, axes, np.array(codes))
    return RowEquations.of(table, y - y.mean(), np.ones(len(y)))


def bound_at(X: np.ndarray, y: np.ndarray, logs: np.ndarray) -> float:
    """Return the variational bound at hyperparameters that somebody else found."""
    kernels: list[Any] = list(DenseAdditive(X, y).kernels(logs))
    noise = float(np.exp(logs[-1]))
    return expectation(equations_of(X, y), kernels, noise, solve).bound


def reached(learner: str, X: np.ndarray, y: np.ndarray, max_iter: int) -> Reached:
    """Learn until the optimum."""
    equations = equations_of(X, y)
    searches = [
        search_for(Matern72(), axis, np.ones(len(axis)), X.shape[1])
        for axis in equations.layout.cells
    ]
    learn, tol = (vbem, VBEM_TOL) if learner == "vbem" else (em, EM_TOL)
    options: dict[str, Any] = {"noise_bounds": NOISE_BOUNDS, "tol": tol, "max_iter": max_iter}
    begun = time.process_time()
    learned = learn(equations, searches, 0.1 * float(np.var(y)), solve, **options)
    seconds = time.process_time() - begun
    kernels: list[Any] = learned.kernels
    values = [*(k.lengthscale for k in kernels), *(k.variance for k in kernels)]
    logs = np.log([*values, learned.noise_variance])
    return Reached(
        len(y),
        learner,
        learned.trace[-1],
        DenseAdditive(X, y).log_likelihood(logs),
        logs.tolist(),
        len(learned.trace) - 1,
        seconds,
        learned.converged,
    )


def main(
    rows: Annotated[list[int], typer.Option()] = [25, 50],  # noqa: B006
    terms: Annotated[int, typer.Option(help="Number of columns that are used.")] = 2,
    max_iter: Annotated[
        int, typer.Option(help="Maximum number of iterations of a learner.")
    ] = 100_000,
    out: Annotated[Path | None, typer.Option(help="Path of a JSON file for the results.")] = None,
) -> None:
    """Learn by both and print a table."""
    results: list[Reached] = []
    print("| rows | learner | bound | log marginal likelihood | iterations | CPU s |")
    print("|---:|---|---:|---:|---:|---:|")
    for n in rows:
        split = load("synth8d", n=n, n_test=1)
        X, y = np.asarray(split.X_train)[:, :terms], np.asarray(split.y_train)
        for learner in ("vbem", "em"):
            r = reached(learner, X, y, max_iter)
            results.append(r)
            name = learner if r.converged else f"{learner} (not converged)"
            print(
                f"| {n} | {name} | {r.bound:.4f} | {r.log_likelihood:.3f} | {r.iterations} | "
                f"{r.seconds:.3g} |",
                flush=True,
            )
    if out is not None:
        out.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
