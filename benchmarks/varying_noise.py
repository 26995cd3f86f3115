"""Noise that varies: coverage where the noise is known, and real tables beside constant noise.

    python -m benchmarks.varying_noise simulated|accelerations|counts|elevators|hotel_rates
                                       |elevators_remedies|elevators_likelihood [--data FOLDER]

``simulated``: rows whose noise varies twentyfold, coverage by decile of it. ``accelerations``: 133
rows like those of a crash test of helmets (still, then a jolt, then noise that dies away), many
data sets. ``counts``: claims of policies with exposures and extra variation. The others are sets of
the pipelines: ``elevators_remedies`` adds interactions or a remainder to the mean, and
``elevators_likelihood`` maximises the joint likelihood of mean and log variance, both regression
splines without priors, by a general optimiser. CPU seconds of the process, all threads together.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.preprocessing import SplineTransformer

from dsgp import AdditiveGPRegressor, GeneralizedAdditiveGP, calibration_report
from pipelines.datasets import load
from pipelines.datasets.tables import load_job

LEVEL = 0.95
REPLICATIONS = 20


def simulated_rows(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return rows, targets, and standard deviations of the noise."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.uniform(0, 1, (n_rows, 5)), columns=list("abcde"))
    std = np.exp(-2 + 1.2 * np.sin(5 * X["a"]) + 0.8 * X["b"]).to_numpy()
    f = np.sin(6 * X["a"]) + X["c"] ** 2 - X["d"] * 0.5
    return X, f.to_numpy() + std * random.standard_normal(n_rows), std


def simulated(_data: Path) -> dict[str, Any]:
    """Coverage by decile of the true noise."""
    X, y, _ = simulated_rows(5000, 0)
    X_new, y_new, std = simulated_rows(50_000, 1)
    deciles = np.array_split(np.argsort(std), 10)
    return {
        name: _measured(options, (X, y), (X_new, y_new), deciles)
        for name, options in (("constant", {}), ("varying", {"noise_terms": True}))
    }


def accelerations_rows(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return times after an impact in ms, accelerations in g, and standard deviations of noise."""
    random = np.random.default_rng(seed)
    t = np.sort(random.uniform(2.4, 57.6, n_rows))
    jolt = -120 * np.exp(-0.5 * ((t - 21) / 4) ** 2) + 45 * np.exp(-0.5 * ((t - 33) / 4.5) ** 2)
    std = 1.5 + 23 / (1 + np.exp(-(t - 15) / 0.8)) / (1 + np.exp((t - 44) / 3))
    return pd.DataFrame({"time": t}), jolt + std * random.standard_normal(n_rows), std


def accelerations(_data: Path) -> dict[str, Any]:
    """Coverage in three spans of time, and log densities, over many data sets."""
    X_new, y_new, _ = accelerations_rows(6000, 1000)
    spans = [
        np.flatnonzero((X_new["time"] >= low) & (X_new["time"] < high))
        for low, high in ((0, 13), (16, 42), (48, 60))
    ]
    results: dict[str, Any] = {}
    for name, options in (("constant", {}), ("varying", {"noise_terms": True})):
        each = [
            _measured(options, accelerations_rows(133, seed)[:2], (X_new, y_new), spans)
            for seed in range(REPLICATIONS)
        ]
        results[name] = {
            key: np.round(np.mean([one[key] for one in each], axis=0), 4).tolist()
            for key in ("fit_cpu_s", "mnlp", "nmse", "coverage", "coverage_of_parts")
        }
    return results


def claims(n_rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return policies with exposures in years, and their numbers of claims."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": random.uniform(18, 90, n_rows),
            "power": random.gamma(6, 12, n_rows),
            "region": random.choice(["north", "south", "city", "coast"], n_rows),
            "years": random.uniform(0.1, 1, n_rows),
        }
    )
    log_rate = -1.2 + 0.9 * np.exp(-(X["age"] - 18) / 8) + 0.006 * (X["power"] - 70)
    log_rate += X["region"].map({"north": -0.2, "south": 0.0, "city": 0.5, "coast": -0.1})
    shape = 1 / 0.8
    rate = np.exp(log_rate) * X["years"] * random.gamma(shape, 1 / shape, n_rows)
    return X, random.poisson(rate).astype(float)


def counts(_data: Path) -> dict[str, Any]:
    """Calibration by groups of two likelihoods."""
    X, y = claims(20_000, 0)
    X_new, y_new = claims(20_000, 1)
    results = {}
    for likelihood in ("poisson", "negative_binomial"):
        start = time.process_time()
        model = GeneralizedAdditiveGP(likelihood).fit(
            X.drop(columns="years"), y, exposure=X["years"]
        )
        seconds = time.process_time() - start
        report = calibration_report(
            model, X_new.drop(columns="years"), y_new, exposure=X_new["years"]
        )
        groups = report.coverage.iloc[1:]
        low, high = model.predict_interval(X_new, LEVEL, True, exposure=X_new["years"])
        results[likelihood] = {
            "fit_cpu_s": round(seconds, 1),
            "in_the_interval": round(float(((low <= y_new) & (y_new <= high)).mean()), 4),
            "by_randomised_pit": round(float(report.coverage["coverage"].iloc[0]), 4),
            "least_and_most_of_groups": [
                round(float(groups["coverage"].min()), 4),
                round(float(groups["coverage"].max()), 4),
            ],
            "groups": len(groups),
            "further_out_than_chance": int((groups["outside"] == "yes").sum()),
            "p_value_of_pit": float(f"{report.p_value:.2g}"),
        }
    return results


def elevators(data: Path) -> dict[str, Any]:
    """The published set, with its split."""
    return _table(load("elevators", data_dir=data))


def hotel_rates(data: Path) -> dict[str, Any]:
    """Rates of hotel rooms, with the split of the pipelines."""
    return _table(load_job("hotel_rates", data))


def elevators_remedies(data: Path) -> dict[str, Any]:
    """What the mean of the published set lacks, with constant and varying noise."""
    split = load("elevators", data_dir=data)
    kinds: dict[str, dict[str, Any]] = {
        "interactions": {"interactions": 10},
        "remainder": {"remainder": True},
    }
    return {name: _table(split, **options) for name, options in kinds.items()}


def elevators_likelihood(data: Path) -> dict[str, Any]:
    """Least squares, and the joint maximum likelihood, of regression splines without priors."""
    split = load("elevators", data_dir=data)
    train, test = split.X_train.to_numpy(), split.X_test.to_numpy()
    scale, middle = np.std(split.y_train), np.mean(split.y_train)
    y, y_new = ((np.asarray(one) - middle) / scale for one in (split.y_train, split.y_test))
    mean, mean_new = _splines(train, test, 6)
    log, log_new = _splines(train, test, 4)
    n_mean = mean.shape[1]

    def loss(unknown: np.ndarray) -> tuple[float, np.ndarray]:
        residual, log_variance = y - mean @ unknown[:n_mean], log @ unknown[n_mean:]
        precision = np.exp(-log_variance)
        slopes = -mean.T @ (residual * precision), log.T @ (0.5 - 0.5 * residual**2 * precision)
        value = 0.5 * np.sum(residual**2 * precision + log_variance)
        return value + 0.005 * unknown @ unknown, np.concatenate(slopes) + 0.01 * unknown

    least_squares = np.linalg.lstsq(mean, y, rcond=None)[0]
    variance = np.full(len(y), np.log(np.mean((y - mean @ least_squares) ** 2)))
    start = np.concatenate([least_squares, np.linalg.lstsq(log, variance, rcond=None)[0]])
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    results = {}
    for name, unknown in (("least_squares", start), ("joint_likelihood", best.x)):
        std = np.exp(0.5 * log_new @ unknown[n_mean:])
        residual = y_new - mean_new @ unknown[:n_mean]
        inside = np.abs(residual) < norm.ppf(0.5 + LEVEL / 2) * std
        parts = np.array_split(np.argsort(std, kind="stable"), 10)
        results[name] = {
            "coefficients": [n_mean, log.shape[1]],
            "nmse_of_training_rows": round(
                float(np.mean((y - mean @ unknown[:n_mean]) ** 2) / np.var(y)), 4
            ),
            "nmse": round(float(np.mean(residual**2) / np.var(y_new)), 4),
            "coverage": round(float(inside.mean()), 4),
            "coverage_of_parts": [round(float(inside[part].mean()), 3) for part in parts],
        }
    return results


def _splines(train: np.ndarray, test: np.ndarray, n_knots: int) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases of a sum of quadratic splines, with knots at quantiles."""
    parts = [(np.ones((len(train), 1)), np.ones((len(test), 1)))]
    for column, new in zip(train.T[:, :, None], test.T[:, :, None], strict=True):
        values = np.unique(column)
        if len(values) < 5:
            basis = column, new
        else:
            knots = np.quantile(column, np.linspace(0, 1, min(n_knots, len(values) - 1)))
            spline = SplineTransformer(
                degree=2,
                knots=np.unique([values[0], *knots, values[-1]])[:, None],
                extrapolation="linear",
                include_bias=False,
            ).fit(column)
            basis = spline.transform(column), spline.transform(new)
        centre = basis[0].mean(axis=0)
        parts.append((basis[0] - centre, basis[1] - centre))
    first, second = (np.hstack(part) for part in zip(*parts, strict=True))
    _, sizes, axes = np.linalg.svd(first, full_matrices=False)
    kept = sizes > 1e-6 * sizes[0]
    turn = axes[kept].T / sizes[kept] * np.sqrt(len(train))
    return first @ turn, second @ turn


def _table(split: Any, **further: Any) -> dict[str, Any]:
    """Constant and varying noise on a table."""
    train, test = (split.X_train, split.y_train), (split.X_test, np.asarray(split.y_test))
    results = {}
    for name, noise in (("constant", None), ("varying", True)):
        options = {"missing": "ignore", "noise_terms": noise, **further}
        results[name] = _measured(options, train, test, None)
    return results


def _measured(
    options: dict[str, Any], train: Any, test: Any, parts: list[np.ndarray] | None
) -> dict[str, Any]:
    start = time.process_time()
    model = AdditiveGPRegressor(**options).fit(*train)
    seconds = time.process_time() - start
    X, y = test
    mean, std = model.predict(X, return_std=True, include_noise=True)
    low, high = model.predict_interval(X, LEVEL, include_noise=True)
    inside = (low <= y) & (y <= high)
    if parts is None:
        parts = np.array_split(np.argsort(std, kind="stable"), 10)
    return {
        "fit_cpu_s": round(seconds, 1),
        "mnlp": round(-float(model.log_predictive_density(X, y).mean()), 4),
        "nmse": round(float(np.mean((y - mean) ** 2) / np.var(y)), 4),
        "coverage": round(float(inside.mean()), 4),
        "coverage_of_parts": [round(float(inside[part].mean()), 3) for part in parts],
        "leave_one_out": round(float(np.nanmean(model.leave_one_out(*train))), 4),
    }


JOBS = {
    job.__name__: job
    for job in (
        simulated,
        accelerations,
        counts,
        elevators,
        elevators_remedies,
        elevators_likelihood,
        hotel_rates,
    )
}


def main() -> None:
    """Measure a job, and print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the data sets")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(json.dumps(JOBS[options.job](options.data), indent=1))


if __name__ == "__main__":
    main()
