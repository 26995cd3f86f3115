"""One run in a process of its own, whose memory and compiled code are then its own.

``python -m pipelines.scaling.run`` reads a request from its standard input (see ``request``) and
writes one JSON file, whole or not at all.
"""

import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from dsgp import AdditiveGPRegressor
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.metrics import coverage, mnlp, nmse
from dsgp.places import replace_text
from pipelines.datasets import Floats
from pipelines.peers import peer_of
from pipelines.reporting import (
    environment,
    gathered_warnings,
    machine,
    peak_memory_mb,
    plain_errors,
    release,
)
from pipelines.scaling.rows import (
    NOISE_VARIANCE,
    TEST,
    bare_pass,
    synth8d_arrays,
    synth8d_blocks,
)

OURS = "dsgp"
KERNELS = {kernel.__name__.lower(): kernel for kernel in (Matern12, Matern32, Matern52, Matern72)}
LEVEL = 0.95
WARM_UP_ROWS = 20_000  # enough to take the way that more rows take
FORMAT = 1  # of the files; with another number every run is made again


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a run does.

    Attributes
    ----------
    method : str
        ``dsgp``, or a peer with its size.
    n, n_test : int
        Training and test rows.
    repeat : int
        Number of the run; runs on the same data show how far timings scatter.
    seed : int
    streamed : bool
        Dask arrays instead of arrays in memory.
    model : dict
        ``kernel``, and of ``bins`` and ``learner`` those given. Empty for a peer.
    cluster : dict
        Numbers of ``workers`` and ``threads``; empty without one.
    """

    method: str
    n: int
    repeat: int
    seed: int
    n_test: int
    streamed: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Digest of the settings and of the release of what computes."""
        key_parts = {"format": FORMAT, "dsgp": release(), **asdict(self)}
        return hashlib.sha256(json.dumps(key_parts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def description(self) -> str:
        """What this is, for people."""
        workers = self.cluster.get("workers")
        where = f" on {workers} workers" if workers and self.method == OURS else ""
        return f"{self.method}, {self.n:,} rows{where}, run {self.repeat + 1}"

    @property
    def file_name(self) -> str:
        return f"{self.method.replace(':', '-')}-{self.n}-{self.repeat}-{self.key}.json"


def request(settings: Any, path: Path, scheduler: str | None) -> str:
    """Write what ``main`` reads."""
    return json.dumps(
        {
            "settings": asdict(settings),
            "path": str(path),
            "scheduler": scheduler,
            "launched": time.time(),
        }
    )


def main() -> None:
    """Run what the standard input asks for."""
    asked = json.load(sys.stdin)
    exit_on_termination()
    with plain_errors():
        clock = Clock()
        clock.seconds["start"] = time.time() - asked["launched"]
        settings = Settings(**asked["settings"])
        scheduler = asked["scheduler"]
        with gathered_warnings() as messages:
            if settings.method != OURS:
                outcome = run_peer(settings, clock)
            else:
                with Client(scheduler) if scheduler else nullcontext() as clock.client:
                    outcome = run_ours(settings, clock)
        record = {
            "settings": asdict(settings),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": clock.seconds,
            "cpu_seconds": clock.cpu_seconds,
            **outcome,
            "warnings": messages,
            "versions": environment(),
            "machine": machine(),
        }
        replace_text(Path(asked["path"]), json.dumps(record, indent=2, allow_nan=False))


class Clock:
    """Wall and processor seconds by stage; processor time counts all threads, and all workers.

    Attributes
    ----------
    client : distributed.Client or None
        Of the cluster in use.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self.client: Client | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block."""
        cpu, wall = self._cpu(), time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - wall
        self.cpu_seconds[name] = self._cpu() - cpu

    def _cpu(self) -> float:
        workers = self.client.run(time.process_time) if self.client else {}
        return time.process_time() + sum(workers.values())


def run_ours(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Fit, predict and measure our model."""
    X_test, y_test, f_test = synth8d_arrays(settings.n_test, settings.seed, TEST)
    with clock.stage("warm_up"):
        _warm_up(settings, X_test)
    X: Any
    y: Any
    if settings.streamed:
        X, y = synth8d_blocks(settings.n, settings.seed)
    else:
        with clock.stage("generate"):
            X, y, _ = synth8d_arrays(settings.n, settings.seed)
    before = own_peak_memory_mb()
    model = model_of(settings.model)
    with clock.stage("fit"):
        model.fit(X, y)
    fitted = own_peak_memory_mb()
    with clock.stage("predict"):
        mean, std = model.predict(X_test, return_std=True)
    peak = own_peak_memory_mb()
    if settings.streamed:  # last, so that the peak is that of the model
        with clock.stage("generate"):
            y_mean = bare_pass(y)
    else:
        y_mean = float(np.mean(y))
    workers = clock.client.run(own_peak_memory_mb) if clock.client else {}
    return {
        "stages": {name: float(value) for name, value in _stages(model).items()},
        "learner_iterations": max(0, len(model.learner_trace_) - 1),
        "solver_iterations": model.solver_iterations_,
        "error_bound": model.error_bound_ if math.isfinite(model.error_bound_) else None,
        "converged": bool(model.converged_),
        "peak_memory_mb": peak,
        "memory_before_fit_mb": before,
        "memory_after_fit_mb": fitted,
        "workers_peak_memory_mb": max(workers.values(), default=None),
        "metrics": scores(y_test, f_test, mean, std, model.noise_variance_, y_train_mean=y_mean),
        "details": {},
    }


def run_peer(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Fit a peer to the same rows, held in memory."""
    _, peer = peer_of(settings.method)
    X_test, y_test, f_test = synth8d_arrays(settings.n_test, settings.seed, TEST)
    with clock.stage("generate"):
        X, y, _ = synth8d_arrays(settings.n, settings.seed)
    before = own_peak_memory_mb()
    fit = peer.fit_predict(X, y, X_test)
    clock.seconds |= fit.seconds
    clock.cpu_seconds |= fit.cpu_seconds
    in_process = fit.peak_memory_mb is None
    return {
        "stages": {},
        "peak_memory_mb": own_peak_memory_mb() if in_process else fit.peak_memory_mb,
        "memory_before_fit_mb": before if in_process else fit.details.get("memory_before_mb"),
        "metrics": scores(
            y_test, f_test, fit.mean, fit.std, fit.noise_variance, y_train_mean=float(np.mean(y))
        ),
        "details": fit.details,
    }


def scores(
    y: Floats,
    f: Floats,
    mean: Floats,
    std: Floats | None,
    noise_variance: float | None,
    *,
    y_train_mean: float,
) -> dict[str, float | None]:
    """Accuracy on the test rows.

    Parameters
    ----------
    y, f : ndarray of shape (n_test,)
        Targets, and the function they scatter around.
    mean, std : ndarray of shape (n_test,)
        Of the function.
    noise_variance : float

    Returns
    -------
    dict
        ``rmse_f``; ``nmse`` of y; ``mnlp_excess``, the MNLP of y beyond that of a model which knows
        function and noise, in nats; ``coverage_f`` of the 95 % band. Without `std` the last two
        are None.
    """
    measures: dict[str, float | None] = {
        "rmse_f": math.sqrt(np.mean((mean - f) ** 2)),
        "nmse": nmse(y, mean, y_train_mean),
        "mnlp_excess": None,
        "coverage_f": None,
    }
    if std is not None and noise_variance is not None:
        density = mnlp(y, mean, std**2 + noise_variance)
        measures["mnlp_excess"] = density - mnlp(y, f, NOISE_VARIANCE)
        measures["coverage_f"] = coverage(f, mean, std, LEVEL)
    return measures


def own_peak_memory_mb() -> float | None:
    """Largest resident memory of this program so far.

    What getrusage reports begins with the memory of the process that started this one, so Linux is
    asked for the program's own.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(
            int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")
        )
    except (OSError, StopIteration):
        return peak_memory_mb()


def model_of(options: dict[str, Any]) -> AdditiveGPRegressor:
    """Make the model; options that are not given keep the defaults of the library."""
    options = dict(options)
    name = options.pop("kernel")
    if name not in KERNELS:
        raise ParameterError(f"kernel must be one of {', '.join(KERNELS)}, got {name!r}")
    kernel = KERNELS[name]()
    if options.get("learner") == "none":  # then they are those of the truth
        kernel = KERNELS[name](lengthscale=1.0, variance=1.0)
        options |= {"learner": None, "noise_variance": NOISE_VARIANCE}
    return AdditiveGPRegressor(kernel, **options, verbose=True)


def _warm_up(settings: Settings, X_test: Floats) -> None:
    """Load or compile the loops, so that no stage is charged for it."""
    n = min(settings.n, WARM_UP_ROWS)
    rows: Any = (
        synth8d_blocks(n, settings.seed)
        if settings.streamed
        else synth8d_arrays(n, settings.seed)[:2]
    )
    model_of(settings.model).fit(*rows).predict(X_test, return_std=True)


def _stages(model: Any) -> dict[str, float]:
    """Return wall seconds by stage, if the model reports them."""
    return getattr(model, "fit_seconds_", {})


if __name__ == "__main__":
    main()
