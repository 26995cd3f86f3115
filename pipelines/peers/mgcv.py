"""mgcv's ``bam`` with discretised covariates, in R: the fastest additive fits we know of."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np

from dsgp.errors import DsgpError, ParameterError
from pipelines.datasets import Floats
from pipelines.peers.contract import PeerFit

SCRIPT = Path(__file__).with_name("mgcv.R")
TEXTS = ("mgcv", "r", "blas")
FAMILIES = ("gaussian", "binomial", "poisson")


class Mgcv:
    """y ~ s(x1, bs="cr", k=SIZE) + …, ``discrete=TRUE``, the faster of one thread and all.

    Predictions with standard errors are timed twice: at the test points themselves (``predict``,
    whose accuracy is reported), and at points rounded to a grid, the default of ``bam``
    (``predict_rounded``). Of another family than the Gaussian one, mean and std are those of f on
    the scale of the link.
    """

    size_default: ClassVar[int | None] = 40
    max_rows: ClassVar[int] = 10_000_000

    def __init__(self, size: int | None, family: str = "gaussian") -> None:
        if family not in FAMILIES:
            raise ParameterError(
                f"family of peer mgcv must be one of {', '.join(FAMILIES)}, got {family!r}"
            )
        self.size = size
        self.family = family

    def require(self) -> None:
        remedy = "install R and mgcv (Debian: apt install r-base-core r-cran-mgcv)"
        if shutil.which("Rscript") is None:
            raise ParameterError(f"peer mgcv needs Rscript, which is not found; {remedy}")
        check = ["Rscript", "-e", "quit(status = !requireNamespace('mgcv', quietly = TRUE))"]
        if subprocess.run(check, capture_output=True, check=False).returncode:
            raise ParameterError(f"peer mgcv: R has no package mgcv; {remedy}")

    def fit_predict(
        self, X: Floats, y: Floats, X_test: Floats, offset: Floats | None = None
    ) -> PeerFit:
        """Fit and predict; `offset` is what is added to f in the training rows."""
        with tempfile.TemporaryDirectory(prefix="mgcv.") as name:
            folder = Path(name)
            tables = {"X": X.T, "y": y[None], "X_test": X_test.T}
            if offset is not None:
                tables["offset"] = offset[None]
            for stem, columns in tables.items():
                with (folder / f"{stem}.bin").open("wb") as file:
                    for column in columns:  # one by one: X is not copied whole
                        np.ascontiguousarray(column, dtype=np.float64).tofile(file)
            shape = (*X.shape, len(X_test))
            (folder / "shape.txt").write_text(" ".join(map(str, shape)), encoding="utf-8")
            command = ["Rscript", SCRIPT, folder, self.size, os.cpu_count() or 1, self.family]
            done = subprocess.run(
                [str(word) for word in command], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise DsgpError(f"mgcv: {done.stderr.strip() or f'status {done.returncode}'}")
            mean, std = (np.fromfile(folder / f"{stem}.bin") for stem in ("mean", "std"))
            lines = (folder / "figures.txt").read_text(encoding="utf-8").splitlines()
        figures = dict(line.split(maxsplit=1) for line in lines)
        details = {name: figures.pop(name) for name in TEXTS}
        numbers = {name: float(value) for name, value in figures.items() if value != "NA"}
        noise = numbers.pop("noise_variance")
        stages = ("fit", "predict", "predict_rounded")
        return PeerFit(
            mean,
            std,
            noise if self.family == "gaussian" else None,
            seconds={stage: numbers.pop(f"{stage}_seconds") for stage in stages},
            cpu_seconds={stage: numbers.pop(f"{stage}_cpu_seconds") for stage in stages},
            peak_memory_mb=numbers.pop("peak_memory_mb", None),
            details={**details, **numbers},
        )
