"""Covariance functions: parameters, dense matrices, state-space form. numpy and scipy only."""

from dsgp.kernels.base import Kernel
from dsgp.kernels.matern import Matern, Matern12, Matern32, Matern52, Matern72
from dsgp.kernels.periodic import Periodic
from dsgp.kernels.settings import from_settings
from dsgp.kernels.spectral import SquaredExponential

__all__ = [
    "Kernel",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matern72",
    "Periodic",
    "SquaredExponential",
    "from_settings",
]
