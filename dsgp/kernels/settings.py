"""Kernels from stored settings: only those in the registry are ever made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgp.errors import ParameterError
from dsgp.kernels.base import REGISTRY, Kernel


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
    make = REGISTRY.get(name) if isinstance(name, str) else None
    if make is None:
        raise ParameterError(
            f"the settings name a kernel {name!r} that this release does not have; it has "
            f"{sorted(REGISTRY)}"
        )
    try:
        return make.from_settings(values)
    except (KeyError, TypeError) as error:
        raise ParameterError(
            f"the settings of a kernel {name} do not fit it: {error}; take them from to_settings()"
        ) from error
