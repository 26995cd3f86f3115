"""Small jobs of every kind, whose reading can be held up while something is broken."""

import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import dask.array as da
import numpy as np
import xarray as xr
from dask import delayed

import dsgp
from dsgp.grid.passes import StoredField, posterior_to_store

N_BLOCKS, N_ROWS = 6, 400
PATIENCE = 60  # seconds: no wait of these tests is longer
# Seconds that the watchdog waits in these tests; the machine may be busy.
STALL, NO_WORKERS = 4.0, 2.0


def wait_until(condition, what, seconds=PATIENCE):
    """Wait, but not for ever."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {seconds} s")
        time.sleep(0.01)


@dataclass(frozen=True)
class Gate:
    """A folder by which a test holds up readers in all processes."""

    folder: Path

    def close(self, from_reading):
        """Hold up whoever reads a late block for the n-th time and after."""
        (self.folder / "held").write_text(str(from_reading), encoding="utf-8")

    def open(self):
        """Let all go on."""
        (self.folder / "held").unlink()

    def reached(self):
        """Whether a reader is held up now."""
        return any(self.folder.glob("waits-*"))


def gated(folder, number):
    """Note a reading of block `number`, and wait while the gate is closed."""
    n_read = len(list(folder.glob(f"read-{number}-*"))) + 1
    (folder / f"read-{number}-{time.time_ns()}-{os.getpid()}").touch()
    if number >= 2 and (folder / "fatal").exists():
        os._exit(9)  # as the system ends a process that takes too much memory
    deadline = time.monotonic() + PATIENCE
    while number >= 2 and time.monotonic() < deadline:
        try:
            if n_read < int((folder / "held").read_text(encoding="utf-8")):
                return
        except (FileNotFoundError, ValueError):
            return
        (folder / f"waits-{number}").touch()
        time.sleep(0.02)


def table(gate, n_columns=3):
    """Columns and a target in blocks, as dask arrays that are read again in every pass."""
    folder = gate.folder

    def block(number):
        gated(folder, number)
        rng = np.random.default_rng(number)
        columns = rng.uniform(size=(N_ROWS, n_columns))
        signal = np.sin(5 * columns[:, 0]) + columns[:, 1] ** 2
        return np.column_stack([columns, signal + 0.1 * rng.standard_normal(N_ROWS)])

    blocks = [delayed(block, pure=False)(number) for number in range(N_BLOCKS)]
    whole = da.concatenate(
        [da.from_delayed(one, (N_ROWS, n_columns + 1), np.float64) for one in blocks]
    )
    return whole[:, :-1], whole[:, -1]


def new_rows():
    return np.random.default_rng(99).uniform(size=(50, 3))


def fitted_additive(gate):
    X, y = table(gate)
    model = dsgp.AdditiveGPRegressor(
        dsgp.kernels.Matern52(0.5, 1.0), noise_variance=0.01, learner=None, bins=50
    )
    return model.fit(X, y)


def fitted_classifier(gate):
    X, y = table(gate)
    model = dsgp.AdditiveGPClassifier(dsgp.kernels.Matern52(0.5, 1.0), learner=None, bins=50)
    return model.fit(X, (y > 0.7).astype(int))


def fitted_pursuit(gate):
    X, y = table(gate)
    model = dsgp.ProjectionPursuitGPRegressor(
        n_projections=1, n_starts=2, direction_uncertainty=False, max_iter=3, bins=50,
        random_state=0,
    )  # fmt: skip
    return model.fit(X, y)


MODELS = {"additive": fitted_additive, "classifier": fitted_classifier, "pursuit": fitted_pursuit}


def additive(gate, folder):
    return np.stack(fitted_additive(gate).predict(new_rows(), return_std=True))


def classifier(gate, folder):
    return fitted_classifier(gate).predict_proba(new_rows())


def pursuit(gate, folder):
    return np.stack(fitted_pursuit(gate).predict(new_rows(), return_std=True))


class Basis:
    """Axes that are not correlated at all."""

    def __init__(self, n):
        self.vectors, self.values = np.eye(n)[::-1].copy(), np.linspace(1.0, 2.0, n)


def write_field(path):
    values = np.random.default_rng(5).standard_normal((24, 20))
    field = xr.DataArray(values, {"x": np.arange(24.0), "y": np.arange(20.0)}, ("x", "y"), name="t")
    field.to_dataset().to_zarr(
        path, zarr_format=3, consolidated=False, mode="w", encoding={"t": {"chunks": (4, 5)}}
    )


def gated_field(path, folder):
    """A field on disk whose reading goes through a gate; made here, so that it is sent by value."""

    class Gated(StoredField):
        def read_stored(self, region, counts=None):
            gated(folder, 2 if region[0].start or region[1].start else 0)
            return super().read_stored(region, counts)

    return Gated(str(path), "t")


def grid(gate, folder):
    path = folder / "field.zarr"
    if not path.exists():
        write_field(path)
    source = gated_field(path, gate.folder)
    report = posterior_to_store(
        source, [Basis(24), Basis(20)], 0.5, 0.0, folder / "out.zarr", memory=12000.0,
        overwrite=True,
    )  # fmt: skip
    with xr.open_zarr(report.path, consolidated=False) as posterior:
        return np.stack([posterior["mean"].values, posterior["std"].values])


JOBS = {"additive": additive, "classifier": classifier, "pursuit": pursuit, "grid": grid}
# The n-th reading of a block at which a job is in the middle.
MIDDLE = {"additive": 2, "classifier": 2, "pursuit": 2, "grid": 1}


def warm_up():
    """Load what the jobs need, so that each forked process has it."""
    with tempfile.TemporaryDirectory() as name:
        for job in (additive, classifier, pursuit):
            with warnings.catch_warnings(action="ignore"):
                job(Gate(Path(name)), Path(name))
