"""Peers that fill the gaps of a field: linear interpolation, and DINEOF of our own.

DINEOF is the algorithm of Beckers and Rixen (2003), *EOF calculations and data filling from
incomplete oceanographic data sets*, J. Atmos. Oceanic Technol. 20, 1839–1856. The one library of
it on PyPI, pyDINEOF, takes the logarithm of the field and needs eight time steps; ``PyDineof`` runs
it beside ours where it is installed.
"""

import contextlib
import importlib.util
import io
import re
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.interpolate import griddata

from dsgp.errors import DataError, ParameterError
from pipelines.datasets import Floats

Bools = NDArray[np.bool_]
FEW_CELLS = 50  # of a time step, with fewer it is not interpolated
CELSIUS = 273.15


@dataclass(frozen=True, eq=False)
class Filled:
    """A filled field.

    Attributes
    ----------
    values : ndarray of the field's shape
        At the cells that were wanted; NaN where there is no answer.
    details : dict
    """

    values: Floats
    details: dict[str, float | str]


def linear(values: Floats, fit: Bools, wanted: Bools) -> Filled:
    """Interpolate each time step by itself, linearly between cells and nearest beyond them.

    Parameters
    ----------
    values : ndarray of shape (n_times, n_rows, n_columns)
    fit : ndarray of bool of that shape
        Cells whose values are used.
    wanted : ndarray of bool of that shape
        Cells to fill.
    """
    filled = np.full(values.shape, np.nan)
    for t in range(len(values)):
        source, target = np.argwhere(fit[t]), np.argwhere(wanted[t])
        if len(source) < FEW_CELLS or not len(target):
            continue
        inside = griddata(source, values[t][fit[t]], target, method="linear")
        nearest = griddata(source, values[t][fit[t]], target, method="nearest")
        filled[t][wanted[t]] = np.where(np.isfinite(inside), inside, nearest)
    return Filled(filled, {})


@dataclass(frozen=True)
class Dineof:
    """Fill by the leading empirical orthogonal functions, their number by cross-validation.

    The field minus its mean is a matrix of cells by times with zeros for the gaps; the gaps are
    replaced by the truncated singular value decomposition until they stand still, for one mode
    after the other, each from where the last one stood. The number of modes is that of the least
    error at observed values set aside; these are put back and the gaps are iterated again.

    Parameters
    ----------
    max_modes : int
        At most one less than there are times.
    patience : int
        Modes in a row with a larger error, after which no more are tried.
    tol : float
        An iteration that changes the gaps by less, relative to the standard deviation of the
        field, is the last.
    max_iter : int
    seed : int
        Of the values set aside: 40 and 1 % of the cells, at most 3 %.
    """

    max_modes: int = 60
    patience: int = 3
    tol: float = 1e-3
    max_iter: int = 300
    seed: int = 0

    def __call__(self, values: Floats, fit: Bools, wanted: Bools) -> Filled:
        """See ``linear``; a cell that no time step shows is given the mean of the field."""
        seen = fit.any(axis=0)
        mean = float(values[fit].mean())
        anomalies = np.where(fit, values - mean, 0.0)[:, seen].T  # (n_cells, n_times)
        observed = fit[:, seen].T
        filled = np.full(values.shape, np.nan)
        complete = np.full(values.shape, mean)
        matrix, details = self._complete(anomalies, observed)
        complete[:, seen] = matrix.T + mean
        filled[wanted] = complete[wanted]
        return Filled(filled, {**details, "cells never seen": int((wanted & ~seen).sum())})

    def _complete(
        self, anomalies: Floats, observed: Bools
    ) -> tuple[Floats, dict[str, float | str]]:
        """Fill a matrix whose gaps are 0."""
        aside = self._set_aside(observed)
        truth, scale = anomalies[aside], float(anomalies[observed].std())
        if not scale > 0:
            return anomalies, {"modes": 0, "iterations": 0}
        known = observed.copy()
        known[aside] = False
        current = np.where(known, anomalies, 0.0)
        errors: list[float] = []
        best, n_iterations = current, 0
        for n_modes in range(1, min(self.max_modes, min(observed.shape) - 1) + 1):
            current, n = self._iterate(current, ~known, n_modes, scale)
            n_iterations += n
            errors.append(float(np.sqrt(np.mean((current[aside] - truth) ** 2))))
            if errors[-1] == min(errors):
                best = current
            elif len(errors) - 1 - int(np.argmin(errors)) >= self.patience:
                break
        n_modes = int(np.argmin(errors)) + 1
        start = np.where(observed, anomalies, best)
        final, n = self._iterate(start, ~observed, n_modes, scale)
        details: dict[str, float | str] = {
            "modes": n_modes,
            "iterations": n_iterations + n,
            "cross-validation error": min(errors),
        }
        return final, details

    def _set_aside(self, observed: Bools) -> tuple[NDArray[np.intp], ...]:
        rows, columns = observed.nonzero()
        n = int(min(0.01 * observed.size + 40, 0.03 * observed.size, 0.5 * len(rows)))
        if n < 1:
            raise DataError(
                f"DINEOF needs some observed values to set aside, got {len(rows)} observed of "
                f"{observed.size}"
            )
        chosen = np.random.default_rng(self.seed).choice(len(rows), n, replace=False)
        return rows[chosen], columns[chosen]

    def _iterate(
        self, current: Floats, gaps: Bools, n_modes: int, scale: float
    ) -> tuple[Floats, int]:
        """Replace the gaps by ``n_modes`` modes until they stand still."""
        current = current.copy()
        before = current[gaps]
        for n_iterations in range(1, self.max_iter + 1):  # noqa: B007 — returned to the caller
            # The right singular vectors: there are few times, and many cells.
            _, vectors = np.linalg.eigh(current.T @ current)
            modes = vectors[:, -n_modes:]
            after = ((current @ modes) @ modes.T)[gaps]
            current[gaps] = after
            if np.sqrt(np.mean((after - before) ** 2)) < self.tol * scale:
                break
            before = after
        return current, n_iterations


@dataclass(frozen=True)
class PyDineof:
    """The library pyDINEOF, for fields that are positive when ``offset`` is added.

    Parameters
    ----------
    max_modes : int
        At most seven less than there are times.
    offset : float
        Added before and taken away after: the library leaves out all that is not positive, and
        takes logarithms. Kelvin instead of degrees Celsius, by default.
    seed : int
        Of the values set aside.
    """

    max_modes: int = 60
    offset: float = CELSIUS
    seed: int = 0

    @staticmethod
    def is_installed() -> bool:
        return importlib.util.find_spec("pydineof") is not None

    def __call__(self, values: Floats, fit: Bools, wanted: Bools) -> Filled:
        """See ``linear``; a cell that no time step shows has no answer."""
        if not self.is_installed():
            raise ParameterError("pyDINEOF is not installed: pip install pyDINEOF")
        import pydineof  # noqa: PLC0415 — optional

        n_times = len(values)
        n_modes = min(self.max_modes, n_times - 7)
        if n_modes < 1:
            raise DataError(f"pyDINEOF needs eight time steps, got {n_times}")
        times = pd.date_range("2000-01-01", periods=n_times)
        field = xr.DataArray(
            np.where(fit, values + self.offset, np.nan),
            {"time": times, "y": range(values.shape[1]), "x": range(values.shape[2])},
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said), np.errstate(all="ignore"):
            reconstructed = pydineof.run_2D(
                field,
                mask=xr.DataArray(fit.any(axis=0), {"y": field["y"], "x": field["x"]}),
                nev=n_modes,
                ncv=n_modes + 6,
                seed=self.seed,
            )
        filled = np.full(values.shape, np.nan)
        complete = reconstructed.transpose("time", "y", "x").to_numpy() - self.offset
        filled[wanted] = complete[wanted]
        details: dict[str, float | str] = {"pyDINEOF": version("pyDINEOF")}
        chosen = re.search(r"optimal EOF modes: (\d+)", said.getvalue())
        if chosen:
            details["modes"] = int(chosen[1])
        return Filled(filled, details)
