"""The page of HTML about a fitted ``GridGP``, and what notebooks show of one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import xarray as xr

from dsgp.estimators.reported import Shown


class GridReported(Shown):
    """The part of ``GridGP`` that reports; see there."""

    def report(
        self,
        path: str | Path,
        held_out: xr.DataArray | None = None,
        *,
        posterior: xr.Dataset | None = None,
        observed: xr.DataArray | None = None,
        target: str | None = None,
        title: str | None = None,
        level: float = 0.95,
    ) -> None:
        """Write a page of HTML about the fitted model, which needs nothing else to be read.

        It has maps of what was observed, of the posterior mean and of its standard deviation at
        the first, the middle and the last time (a pointer shows the numbers), curves through time
        at places, the parts of the covariance with their lengthscales, the data and what was done
        to them, how the model was solved, how accurate and how well calibrated predictions of
        held-out cells are, what to be careful of, and how to make the model again.

        Parameters
        ----------
        path : str or Path
            A file that ends in ``.html``. What is there is replaced.
        held_out : DataArray, optional
            Observations that the fit did not use, with a coordinate for each dim of the field: on
            its grid, on another one, or at points. NaN marks missing ones; cells that the fit used
            are left out, so that the complete field can be given.
        posterior : Dataset, optional
            What ``posterior()`` returned, if it is at hand. A model that smoothed a field on disk
            (``smooth_store``) needs what it wrote, ``xarray.open_zarr(...)``: only the slices
            that are drawn are read.
        observed : DataArray, optional
            The field of such a model, opened in the same way.
        target : str, optional
            Name and unit of the field; by default those of its attributes.
        title : str, optional
            Of the page.
        level : float in (0, 1)
            Posterior probability of the bands of curves.

        Raises
        ------
        ImportError
            If the extra ``report`` is not installed.
        DataError
            If ``held_out``, ``posterior`` or ``observed`` do not fit the field, or no held-out
            value is left to compare with.
        ParameterError
            If an option is out of its range, or the file has another extension.
        StorageError
            If the model does not hold its field, and no posterior is given.
        MemoryLimitError
            If the field, or the held-out values, are too many for their posterior to fit into
            memory.

        Examples
        --------
        >>> import numpy as np, xarray as xr
        >>> from dsgp import GridGP
        >>> x = np.linspace(0, 1, 20)
        >>> da = xr.DataArray(np.sin(6 * x)[:, None] * np.cos(4 * x), {"lat": x, "lon": x})
        >>> model = GridGP(scales=1).fit(da.where(da.lat + da.lon < 1.5), domain=None)
        >>> model.report("report.html", held_out=da)  # doctest: +SKIP
        """
        # By its name, as the extra may not be installed and the module is of a higher floor.
        import_module("dsgp.report").write_grid_report(
            self,
            path,
            held_out,
            posterior=posterior,
            observed=observed,
            target=target,
            title=title,
            level=level,
        )
