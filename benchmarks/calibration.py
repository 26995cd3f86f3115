"""Ranks of the truth among draws of the samplers by terms: simulation-based calibration.

    OMP_NUM_THREADS=1 python -m benchmarks.calibration [--method plain-gibbs] [--replications 60]

Every replication draws hyperparameters of two terms from their priors, then targets of 12 rows, and
a chain that begins at another draw of the priors. Of each hyperparameter the rank of the truth
among five thinned draws is uniform on 0 … 5 if the draws are of the posterior (Talts and others
2018, arXiv 1804.06788). The functions are rough, so that the plain sampler moves: its draws have to
be nearly independent after thinning. tests/sampling has the other samplers, and successive
simulation of all (Geweke 2004), which needs no mixing.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.stats import chi2

from dsgp.additive import RowEquations
from dsgp.kernels import Kernel, Matern12, Matern32
from dsgp.priors import HyperPriors
from dsgp.rows.table import RowTable
from dsgp.sampling.chains import gibbs
from dsgp.sampling.diagnostics import effective_sample_size
from dsgp.sampling.parameters import HyperModel
from dsgp.terms import Axis

PRIORS = HyperPriors(
    lengthscale_mean=-0.5,
    lengthscale_std=0.5,
    variance_shape=4.0,
    variance_rate=3.0,
    noise_shape=4.0,
    noise_rate=1.0,
)
NAMES = ("lengthscale 1", "variance 1", "lengthscale 2", "variance 2", "noise variance")
THINNED = 5


@dataclass(frozen=True)
class Calibration:
    """Ranks of one sampler.

    Attributes
    ----------
    method : str
    replications, n_draws, n_warmup : int
    counts : list of list of int
        Of each hyperparameter, how often the truth had rank 0 … 5.
    p_values : list of float
        Of χ² tests against uniform counts.
    effective : list of float
        Effective sample size of the draws of a chain, on average.
    seconds : float
        Processor seconds.
    """

    method: str
    replications: int
    n_draws: int
    n_warmup: int
    counts: list[list[int]]
    p_values: list[float]
    effective: list[float]
    seconds: float


def small_rows(n_rows: int) -> tuple[RowTable, np.ndarray]:
    """Two columns, of which one has ties, and weights that differ."""
    random = np.random.default_rng(0)
    columns = random.uniform(0, 1, (2, n_rows))
    columns[1] = np.round(columns[1] * 9)
    axes, codes = zip(*[Axis.from_column(column) for column in columns], strict=True)
    return RowTable(("a", "b"), tuple(axes), np.stack(codes)), random.uniform(0.5, 1.5, n_rows)


def model_of(
    table: RowTable, weight: np.ndarray, y: np.ndarray, kernels: list[Kernel], noise: float
) -> HyperModel:
    """Chains begin at the kernels and the noise variance."""
    equations = RowEquations.of(table, y, weight)
    return HyperModel.of(equations, kernels, noise, (1e-6, 1e2), PRIORS, 1.0)


def draw_of_priors(model: HyperModel, random: np.random.Generator) -> np.ndarray:
    terms = [term.draw(random) for term in model.terms]
    return np.concatenate([*terms, [math.log(model.noise.draw(random))]])


def targets(
    table: RowTable,
    weight: np.ndarray,
    kernels: list[Kernel],
    noise: float,
    random: np.random.Generator,
) -> np.ndarray:
    """Draw targets given hyperparameters, and a constant of variance 1."""
    covariance = np.diag(noise / weight) + 1.0
    for kernel, cells, code in zip(kernels, table.cells, table.codes, strict=True):
        covariance += kernel.covariance(cells.points)[np.ix_(code, code)]
    return np.linalg.cholesky(covariance) @ random.standard_normal(len(weight))


def calibrated(method: str, replications: int, n_draws: int, n_warmup: int) -> Calibration:
    """Compute the ranks of one sampler."""
    random = np.random.default_rng(5)
    table, weight = small_rows(12)
    kernels: list[Kernel] = [Matern12(0.6, 1.0), Matern32(0.6, 1.0)]
    model = model_of(table, weight, np.zeros(12), kernels, 0.3)
    ranks, effective = [], []
    begun = time.process_time()
    for replication in range(replications):
        truth = draw_of_priors(model, random)
        noise = math.exp(truth[-1])
        y = targets(table, weight, model.kernels(truth), noise, random)
        begins = draw_of_priors(model, random)
        draws = gibbs(
            model_of(table, weight, y, model.kernels(begins), math.exp(begins[-1])),
            plain=method == "plain-gibbs",
            n_draws=n_draws,
            n_warmup=n_warmup,
            n_chains=1,
            seed=replication,
        ).theta
        thinned = draws[0, n_draws // THINNED - 1 :: n_draws // THINNED]
        ranks.append((thinned < truth).sum(axis=0))
        effective.append([effective_sample_size(draws[..., k]) for k in range(model.size)])
    seconds = time.process_time() - begun
    expected = replications / (THINNED + 1)
    counts = [np.bincount(rank, minlength=THINNED + 1) for rank in np.array(ranks).T]
    statistics = [float(np.sum((count - expected) ** 2) / expected) for count in counts]
    return Calibration(
        method,
        replications,
        n_draws,
        n_warmup,
        [count.tolist() for count in counts],
        [float(chi2.sf(statistic, THINNED)) for statistic in statistics],
        np.mean(effective, axis=0).tolist(),
        seconds,
    )


def main(
    methods: Annotated[list[str], typer.Option("--method")] = ["plain-gibbs"],  # noqa: B006
    replications: Annotated[int, typer.Option()] = 60,
    n_draws: Annotated[int, typer.Option("--draws")] = 400,
    n_warmup: Annotated[int, typer.Option("--warmup")] = 100,
    out: Annotated[Path | None, typer.Option(help="Path of a JSON file for the results.")] = None,
) -> None:
    """Print a table of the counts of ranks."""
    results = []
    print("| sampler | hyperparameter | ranks 0 … 5 | p | effective draws per chain |")
    print("|---|---|---|---:|---:|")
    for method in methods:
        result = calibrated(method, replications, n_draws, n_warmup)
        results.append(result)
        for name, count, p, size in zip(
            NAMES, result.counts, result.p_values, result.effective, strict=True
        ):
            counted = " ".join(map(str, count))
            print(f"| {method} | {name} | {counted} | {p:.2g} | {size:.0f} |", flush=True)
        print(f"{method}: {result.seconds:.3g} CPU s", flush=True)
    if out is not None:
        out.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
