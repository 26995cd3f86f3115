"""Sampled additive models: coverage beside the point estimate's, and effective draws a second.

``python -m benchmarks.additive_mcmc [--rows 100] [--replications 20]``. Every replication draws
four functions from Gaussian processes, fits the learned hyperparameters and all samplers, and
counts how often 95 % intervals of f hold the true f at 200 new rows.
"""

import argparse
import time
import warnings

import numpy as np

from dsgp import AdditiveGPRegressor
from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern52

METHODS = (None, "gibbs", "plain-gibbs", "collapsed")
LENGTHSCALES = (0.3, 0.6, 1.5, 3.0)


def functions(random: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Draw a sum of functions of the columns."""
    total = np.zeros(len(X))
    for column, lengthscale in zip(X.T, LENGTHSCALES, strict=True):
        covariance = Matern52(lengthscale, 1.0).covariance(column) + 1e-9 * np.eye(len(X))
        total += np.linalg.cholesky(covariance) @ random.standard_normal(len(X))
    return total


def one(seed: int, n_rows: int, noise: float) -> dict[str | None, dict[str, float]]:
    """Fit one data set by all methods."""
    random = np.random.default_rng(seed)
    X = random.uniform(0, 1, (n_rows + 200, len(LENGTHSCALES)))
    f = functions(random, X)
    y = f + noise * random.standard_normal(len(f))
    measured: dict[str | None, dict[str, float]] = {}
    for method in METHODS:
        start = time.process_time()
        model = AdditiveGPRegressor(method=method, random_state=seed).fit(X[:n_rows], y[:n_rows])
        seconds = time.process_time() - start
        low, high = model.predict_interval(X[n_rows:])
        inside = (low <= f[n_rows:]) & (f[n_rows:] <= high)
        density = model.log_predictive_density(X[n_rows:], y[n_rows:])
        diagnostics = [] if method is None else list(model.diagnostics_.values())
        least = min((one["effective_sample_size"] for one in diagnostics), default=np.nan)
        measured[method] = {
            "coverage": float(inside.mean()),
            "width": float(np.mean(high - low)),
            "log density": float(density.mean()),
            "seconds": seconds,
            "worst R-hat": max((one["rhat"] for one in diagnostics), default=np.nan),
            "least ESS": least,
            "least ESS per second": least / seconds,
        }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = [one(seed, options.rows, options.noise) for seed in range(options.replications)]
    print(f"{options.rows} rows, {options.replications} data sets; means, (worst)")
    for method in METHODS:
        numbers = {name: [each[method][name] for each in results] for name in results[0][method]}
        words = [f"{name} {np.mean(values):.4g}" for name, values in numbers.items()]
        worst = f"least coverage {min(numbers['coverage']):.3f}"
        print(f"{method!s:12}", ", ".join([*words, worst]))


if __name__ == "__main__":
    main()
