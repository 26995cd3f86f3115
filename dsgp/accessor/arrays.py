"""``da.dsgp``: the methods of a field."""

from __future__ import annotations

import xarray as xr

from dsgp.accessor.at_once import at_once
from dsgp.accessor.lazy import lazily
from dsgp.accessor.methods import Accessor
from dsgp.accessor.request import Request
from dsgp.errors import ParameterError


class DataArrayAccessor(Accessor):
    """``da.dsgp``: posterior of a field under a Gaussian process; see its methods.

    Registered by ``import dsgp``.

    Examples
    --------
    >>> import xarray as xr, dsgp
    >>> [name for name in dir(xr.DataArray([1.0]).dsgp) if not name.startswith("_")]
    ['fill', 'interp', 'smooth']
    """

    def _answer(self, request: Request) -> xr.Dataset:
        if request.variables is not None:
            raise ParameterError("variables: an option of a Dataset; a DataArray is one variable")
        return answer(self._obj, request)


def answer(da: xr.DataArray, request: Request) -> xr.Dataset:
    """Fit a field now, or when the result is computed if it is in chunks."""
    return lazily(da, request) if da.chunks is not None else at_once(da, request)
