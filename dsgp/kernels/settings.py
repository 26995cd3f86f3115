"""Kernels from stored settings: only the library's own are ever made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgp.errors import ParameterError
from dsgp.kernels.base import Kernel
from dsgp.kernels.matern import Matern12, Matern32, Matern52, Matern72
from dsgp.kernels.periodic import Periodic
from dsgp.kernels.spectral import SquaredExponential

_KERNELS: dict[str, type[Kernel]] = {
    kernel.__name__: kernel
    for kernel in (Matern12, Matern32, Matern52, Matern72, SquaredExponential, Periodic)
}


def from_settings(settings: Mapping[str, Any]) -> Kernel:
    """Make a kernel from what its ``to_settings`` returned.

    Parameters
    ----------
    settings : mapping
        Its ``type``, and the parameters of that kernel.

    Returns
    -------
    Kernel

    Raises
    ------
    ParameterError
        If the type is not a kernel of this release, or the parameters are not its own.

    Examples
    --------
    >>> from dsgp.kernels import Matern32, from_settings
    >>> from_settings(Matern32(lengthscale=2.0, fixed="lengthscale").to_settings())
    Matern32(lengthscale=2, fixed=('lengthscale',))
    """
    values = dict(settings)
    name = values.pop("type", None)
    make = _KERNELS.get(name) if isinstance(name, str) else None
    if make is None:
        raise ParameterError(
            f"the settings name a kernel {name!r} that this release does not have; it has "
            f"{sorted(_KERNELS)}"
        )
    try:
        return make(**values)
    except TypeError as error:
        raise ParameterError(
            f"the settings of a kernel {name} do not fit it: {error}; take them from to_settings()"
        ) from error
