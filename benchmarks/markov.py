"""A wave and a trend of many distinct inputs: state-space form beside the dense factor.

    python -m benchmarks.markov [--inputs 5000 --inputs 100000] [--dense-inputs 5000]

Of ``DampedOscillation`` + ``Matern52`` with given hyperparameters: CPU seconds of the posterior
(means, variances, evidence and its gradient), of preparing solves, of one solve and of predictions
at as many new inputs; and the root mean squared error of the mean. There are ten inputs per period,
so that the function has ever more detail: the dense factor is truncated at 2 048 columns.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from dsgp.kernels import DampedOscillation, Matern52
from dsgp.terms import DenseCells, MarkovCells, Observations

NOISE = 0.3
KERNEL = DampedOscillation(7.0, 30.0, 1.0) + Matern52(100.0, 1.0)


def rows(n: int) -> tuple[np.ndarray, np.ndarray, Observations]:
    """Inputs, a draw of the function there, and what was observed."""
    random = np.random.default_rng(0)
    x = np.unique(random.uniform(0, 0.7 * n, n))
    truth = MarkovCells(x).sample(KERNEL, random)
    y = truth + NOISE * random.standard_normal(len(x))
    return x, truth, Observations(y, np.full(len(x), NOISE**-2))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    result = work()
    return result, time.process_time() - begun


def measured(cells: Any, seen: Observations, truth: np.ndarray) -> list[float]:
    """Seconds of each step, and the error."""
    posterior, whole = timed(lambda: cells.posterior(KERNEL, seen))
    solver, prepared = timed(lambda: cells.solver(KERNEL, seen.weight))
    _, solved = timed(lambda: solver.solve(seen.target))
    _, predicted = timed(lambda: posterior.predict(cells.points + 0.3))
    return [
        whole,
        prepared,
        solved,
        predicted,
        float(np.sqrt(np.mean((posterior.mean - truth) ** 2))),
    ]


def main(
    n_inputs: Annotated[list[int], typer.Option("--inputs")] = [1_000, 5_000, 100_000, 1_000_000],  # noqa: B006
    dense_inputs: Annotated[
        int, typer.Option(help="Maximum number of inputs for the dense factor.")
    ] = 5_000,
) -> None:
    """Print a table."""
    x, truth, seen = rows(50)
    measured(MarkovCells(x), seen, truth)  # compiles
    print("| inputs | form | posterior | prepare | solve | predict | error of the mean |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n in n_inputs:
        x, truth, seen = rows(n)
        for name, kind in (("state space", MarkovCells), ("dense", DenseCells)):
            if kind is DenseCells and n > dense_inputs:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the factor is cut, which the error shows
                numbers = measured(kind(x), seen, truth)
            row = " | ".join(f"{number:.3g}" for number in numbers)
            print(f"| {n} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
