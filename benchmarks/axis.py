"""Nanoseconds per point along one axis: the asv suite, and ``python -m benchmarks.axis``.

Time is processor time of the process: every contender computes in one thread, and what else the
machine does then costs it little.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.axis_contenders import (
    CONTENDERS,
    QUANTITIES,
    Contender,
    Unavailable,
    check_agreement,
    irregular_series,
)

Nanoseconds = dict[str, dict[str, float]]  # by contender, then by quantity
HEADINGS = {
    "likelihood": "log likelihood",
    "gradient": "log likelihood + gradient",
    "moments": "mean + variance",
}


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


# ---------------------------------------------------------------------- asv


class _PerPoint:
    """``track_`` benchmarks rather than ``time_`` ones: the number is per point."""

    quantity: str
    repeats = 5
    params = ([10_000, 100_000, 1_000_000], list(CONTENDERS))
    param_names = ("n_points", "contender")
    unit = "ns/point"
    timeout = 300

    def setup(self, n_points: int, contender: str) -> None:
        try:
            self.contender = CONTENDERS[contender](*irregular_series(n_points))
        except Unavailable as error:
            raise NotImplementedError(str(error)) from error
        if self.quantity in self.contender.lacks:
            raise NotImplementedError(self.contender.lacks[self.quantity])
        if not math.isfinite(self.contender.calls()["likelihood"]()):  # spleaf's Matern52
            raise NotImplementedError("its log likelihood is NaN at this size")

    def track_nanoseconds(self, n_points: int, contender: str) -> float:
        call = self.contender.calls()[self.quantity]
        call()  # whatever is compiled or cached at first use
        return statistics.median(seconds(call) for _ in range(self.repeats)) / n_points * 1e9


class LogLikelihood(_PerPoint):
    quantity = "likelihood"


class LogLikelihoodAndGradient(_PerPoint):
    quantity = "gradient"


class MeanAndVariance(_PerPoint):
    quantity = "moments"


# ---------------------------------------------------------------------- comparison


def compare(n: int, repeats: int, names: tuple[str, ...]) -> tuple[Nanoseconds, dict[str, str]]:
    """Time the contenders in turn, A B C A B C …, so that a slow moment hits all of them.

    Returns
    -------
    nanoseconds : dict
        Median nanoseconds per point; NaN where the contender returns NaN.
    reasons : dict of str to str
        Why a number is missing, by contender or by contender and quantity.
    """
    x, y = irregular_series(n)
    contenders: dict[str, Contender] = {}
    reasons: dict[str, str] = {}
    for name in names:
        try:
            contenders[name] = CONTENDERS[name](x, y)
        except Unavailable as error:
            reasons[name] = str(error)
            continue
        for quantity, reason in contenders[name].lacks.items():
            reasons[f"{name}, {HEADINGS[quantity]}"] = reason
    # A function that serves two quantities is timed once.
    calls = {call: name for name, each in contenders.items() for call in each.calls().values()}
    broken = set()
    for call in calls:
        call()
    for name, contender in contenders.items():
        if not math.isfinite(contender.calls()["likelihood"]()):
            broken.add(name)
            reasons[name] = f"its log likelihood is NaN at N = {n}"
    times: dict[Callable[[], Any], list[float]] = {
        call: [] for call, name in calls.items() if name not in broken
    }
    for _ in range(repeats):
        for call, measured in times.items():
            measured.append(seconds(call))
    medians = {call: statistics.median(measured) / n * 1e9 for call, measured in times.items()}
    nanoseconds = {
        name: {quantity: medians.get(call, math.nan) for quantity, call in each.calls().items()}
        for name, each in contenders.items()
    }
    return nanoseconds, reasons


@dataclass(frozen=True)
class Promise:
    """A ratio that must not pass a limit; NaN if a part of it was not measured."""

    text: str
    ratio: float
    limit: float

    @property
    def verdict(self) -> str:
        if math.isnan(self.ratio):
            return "not measured"
        return "pass" if self.ratio <= self.limit else "fail"


def promises(ns: Nanoseconds) -> list[Promise]:
    """What the project promises at 10⁶ points."""

    def time_of(name: str, quantity: str) -> float:
        return ns.get(name, {}).get(quantity, math.nan)

    def ours(order: str, quantity: str) -> float:
        return time_of(f"dsgp {order}", quantity)

    peers = [time_of(f"{peer} Matern32", "likelihood") for peer in ("spleaf", "celerite2")]
    # "Everything" is one call: likelihood, gradient, mean and variance.
    found = [
        Promise(
            "Matérn 3/2 log likelihood / that of the faster peer",
            ours("Matern32", "likelihood") / (math.nan if math.isnan(sum(peers)) else min(peers)),
            0.7,
        ),
        Promise(
            "Matérn 3/2 everything / spleaf's log likelihood + gradient",
            ours("Matern32", "moments") / time_of("spleaf Matern32", "gradient"),
            1.0,
        ),
    ]
    for order, label, limit in (("Matern52", "5/2", 2.0), ("Matern72", "7/2", 4.0)):
        for quantity, what in (("likelihood", "log likelihood"), ("moments", "everything")):
            ratio = ours(order, quantity) / ours("Matern32", quantity)
            found.append(Promise(f"Matérn {label} {what} / Matérn 3/2 {what}", ratio, limit))
    return found


def versions() -> dict[str, str]:
    """Return the versions of Python and of what was compared."""
    found = {"python": platform.python_version()}
    for package in ("dsgp", "numpy", "numba", "spleaf", "celerite2", "jax"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def table_of_times(nanoseconds: Nanoseconds, n: int) -> Table:
    table = Table("contender", title=f"ns/point, N = {n}")
    for quantity in QUANTITIES:
        table.add_column(HEADINGS[quantity], justify="right")
    for name, by_quantity in nanoseconds.items():
        table.add_row(name, *(_cell(by_quantity.get(quantity)) for quantity in QUANTITIES))
    return table


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    return "NaN" if math.isnan(value) else f"{value:.1f}"


def table_of_promises(found: list[Promise], n: int) -> Table:
    title = "Promises" if n == 1_000_000 else f"Promises made for N = 1000000, at N = {n}"
    table = Table("promise", title=title)
    for heading in ("ratio", "limit", "verdict"):
        table.add_column(heading, justify="right")
    for promise in found:
        table.add_row(promise.text, f"{promise.ratio:.2f}", f"{promise.limit:g}", promise.verdict)
    return table


def main(
    n: Annotated[int, typer.Option(help="Number of points.", min=2)] = 1_000_000,
    repeats: Annotated[
        int, typer.Option(help="Number of rounds, of which the median is reported.", min=1)
    ] = 7,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to this folder.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless all promises hold.")
    ] = False,
) -> None:
    """Compare dsgp with its peers along one axis, in nanoseconds per point."""
    console = Console()
    differences = check_agreement()
    worst = max(differences.values())
    console.print(
        f"{len(differences)} contenders agree with dense algebra at N = 1000: "
        f"log likelihoods to {worst:.0e} (relative)"
    )
    nanoseconds, reasons = compare(n, repeats, tuple(CONTENDERS))
    found = promises(nanoseconds)
    console.print(table_of_times(nanoseconds, n))
    console.print("dsgp computes the last two columns in one call; both have its time.")
    for name, reason in reasons.items():
        console.print(f"{name}: {reason}")
    console.print(table_of_promises(found, n))
    console.print(", ".join(f"{package} {number}" for package, number in versions().items()))
    if json_file is not None:
        report = {
            "n": n,
            "repeats": repeats,
            "versions": versions(),
            "relative_difference_from_dense": differences,
            "ns_per_point": {
                name: {q: None if math.isnan(value) else value for q, value in each.items()}
                for name, each in nanoseconds.items()
            },
            "missing": reasons,
            "promises": [
                asdict(p)
                | {"ratio": None if math.isnan(p.ratio) else p.ratio, "verdict": p.verdict}
                for p in found
            ],
        }
        json_file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if check and any(promise.verdict != "pass" for promise in found):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
