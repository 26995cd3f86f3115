"""The methods of ``da.dsgp`` and ``ds.dsgp``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from dsgp.accessor.request import Request, known_options
from dsgp.grid.axes import GridAxis, check_dims
from dsgp.grid.targets import Targets
from dsgp.transforms import require_quantiles


class Accessor:
    """The three methods, of a DataArray or of every field of a Dataset.

    Lazy in, lazy out: with an array in chunks nothing is computed; the result is fitted when it is
    computed, as one task (a fit needs the whole field), once for mean and standard deviation if
    these are computed together (``result.compute()``).
    """

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def smooth(
        self,
        kernels: Any = None,
        noise_variance: Any = None,
        *,
        include_noise: bool = False,
        mask: Any = None,
        domain: Any = None,
        **options: Any,
    ) -> xr.Dataset:
        """Separate a field from its noise: posterior mean and standard deviation of each cell.

        Missing cells are predicted as well; ``fill`` leaves those empty that never hold a value.

        Parameters
        ----------
        kernels, noise_variance
            As for ``GridGP``: by default everything is learned from the field.
        include_noise : bool
            ``std`` of a new observation instead of the field.
        mask, domain
            As for ``GridGP.fit``: which values are used, and which cells have a result.
        **options
            Other options of ``GridGP``: ``mean``, ``transform``, ``scales``, ``units``,
            ``learner``, ``fixed_noise``, …; and ``quantiles``, probabilities such as
            ``[0.05, 0.5, 0.95]``, for one more result. For a Dataset also ``variables``, a name or
            list: the fields; all other variables stay as they are.

        Returns
        -------
        Dataset
            ``mean`` and ``std`` on the field's grid, in its unit, order of dims and chunks. Of a
            Dataset: ``{variable}_mean`` and ``{variable}_std`` for each field, and all other
            variables unchanged; see ``DatasetAccessor``.

        Raises
        ------
        DataError, ParameterError
            As ``GridGP`` and its ``fit``. For a lazy field, errors that concern its values are
            raised when it is computed.
        MemoryLimitError
            If a lazy field does not fit into memory.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> rng = np.random.default_rng(0)
        >>> x = np.linspace(0, 6, 40)
        >>> truth = xr.DataArray(np.outer(np.sin(x), np.cos(x)), {"lat": x, "lon": x})
        >>> noisy = truth + 0.1 * rng.standard_normal(truth.shape)
        >>> smooth = noisy.dsgp.smooth()
        >>> bool(((smooth["mean"] - truth) ** 2).mean() < 0.2 * 0.1**2)
        True
        """
        asked = {
            "kernels": kernels,
            "noise_variance": noise_variance,
            **known_options(options, "smooth"),
        }
        variables = asked.pop("variables", None)
        quantiles = require_quantiles(asked.pop("quantiles", None))
        return self._answer(
            Request(asked, include_noise, mask, domain, variables=variables, quantiles=quantiles)
        )

    def fill(
        self,
        kernels: Any = None,
        noise_variance: Any = None,
        *,
        include_noise: bool = False,
        mask: Any = None,
        domain: Any = "auto",
        keep_observed: bool = False,
        **options: Any,
    ) -> xr.Dataset:
        """Fill the gaps of a field.

        Parameters
        ----------
        kernels, noise_variance, include_noise, mask, **options
            As for ``smooth``.
        domain : "auto", "observed", "hull", None, or DataArray of bool
            Cells to output. "observed" leaves cells empty that are never observed along the dims of
            times (land); "hull" leaves those empty that are beyond the convex hull of the cells
            that are observed at some time; None fills all. "auto" is "observed" with several time
            steps and "hull" otherwise; it warns of how many cells stay empty, or are filled
            although they never have a value. In the hull, a mask distinguishes land from gaps: a
            cell without a value where the mask is false stays empty.
        keep_observed : bool
            ``mean`` holds the observed value where there is one, and ``std`` there the standard
            deviation of the noise: that of the observation's error.

        Returns
        -------
        Dataset
            As for ``smooth``.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``smooth``.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> days = xr.date_range("2024-01-01", periods=30)
        >>> x = np.linspace(0, 6, 20)
        >>> sst = xr.DataArray(
        ...     np.sin(x + np.arange(30)[:, None] / 9), {"time": days, "lon": x})
        >>> sst = sst.where((sst.time != days[7]) & (sst.lon != x[3]))  # a day; and land
        >>> filled = sst.dsgp.fill(domain="observed")
        >>> int(filled["mean"].isnull().sum())  # the land
        30
        """
        asked = {
            "kernels": kernels,
            "noise_variance": noise_variance,
            **known_options(options, "fill"),
        }
        variables = asked.pop("variables", None)
        quantiles = require_quantiles(asked.pop("quantiles", None))
        return self._answer(
            Request(
                asked,
                include_noise,
                mask,
                domain,
                keep_observed,
                variables=variables,
                fills=True,
                quantiles=quantiles,
            )
        )

    def interp(
        self,
        coords: Mapping[str, Any] | None = None,
        *,
        kernels: Any = None,
        noise_variance: Any = None,
        include_noise: bool = False,
        mask: Any = None,
        **coords_kwargs: Any,
    ) -> xr.Dataset:
        """Predict a field on another grid: ``da.dsgp.interp(lat=..., lon=...)``.

        Parameters
        ----------
        coords : mapping of dim to array_like or scalar, optional
            In any order, also outside the field. A scalar drops the dim; dims that are not named
            keep the field's coordinates. DataArrays that share a dim are points, as in xarray's
            indexing: ``lat=DataArray(..., dims="obs"), lon=DataArray(..., dims="obs")``.
        kernels, noise_variance, include_noise, mask
            As for ``smooth``.
        **coords_kwargs
            Coordinates by name of the dim, and the options of ``smooth``.

        Returns
        -------
        Dataset
            ``mean`` and ``std``; for a Dataset as ``smooth`` returns them.

        Raises
        ------
        DataError, ParameterError, MemoryLimitError
            As ``smooth``; and if a coordinate is of another kind, coordinates that share a dim do
            not agree on it, or the result would not fit into memory: before anything is learned.

        Examples
        --------
        >>> import numpy as np, xarray as xr, dsgp
        >>> x = np.linspace(0, 6, 30)
        >>> coarse = xr.DataArray(np.sin(x), {"x": x})
        >>> fine = coarse.dsgp.interp(x=np.linspace(0, 6, 101))
        >>> bool(abs(fine["mean"] - np.sin(fine.x)).max() < 0.01)
        True

        At points, along a track say:

        >>> field = xr.DataArray(np.sin(x)[:, None] * np.cos(x), {"lat": x, "lon": x})
        >>> lat = xr.DataArray([0.5, 1.5, 2.5], dims="obs")
        >>> field.dsgp.interp(lat=lat, lon=2 * lat)["mean"].dims
        ('obs',)
        """
        dims = {str(dim) for dim in self._obj.dims}
        named = {name: value for name, value in coords_kwargs.items() if name in dims}
        others = {name: value for name, value in coords_kwargs.items() if name not in dims}
        where = {**(coords or {}), **named}
        asked = {
            "kernels": kernels,
            "noise_variance": noise_variance,
            **known_options(others, "interp", dims),
        }
        check_dims(where, sorted(dims), "interp")
        self._require_kinds(where)
        variables = asked.pop("variables", None)
        quantiles = require_quantiles(asked.pop("quantiles", None))
        return self._answer(
            Request(
                asked, include_noise, mask, coords=where, variables=variables, quantiles=quantiles
            )
        )

    def _require_kinds(self, where: Mapping[str, Any]) -> None:
        """Raise at coordinates that cannot be used, before anything is learned."""
        for dim, value in where.items():
            if dim in self._obj.coords:
                Targets.of([GridAxis.of(self._obj.coords[dim])], {dim: value})

    def _answer(self, request: Request) -> xr.Dataset:
        raise NotImplementedError
