"""Covariance functions: parameters, dense matrices, state-space form. numpy and scipy only."""

from dsgp.kernels.base import REGISTRY, Kernel, Stationary
from dsgp.kernels.centred import CentredProduct, Margin
from dsgp.kernels.combined import Product, Sum
from dsgp.kernels.custom import Custom, kernel_of
from dsgp.kernels.effects import Constant, Independent
from dsgp.kernels.matern import Matern, Matern12, Matern32, Matern52, Matern72
from dsgp.kernels.oscillating import DampedOscillation, QuasiPeriodic
from dsgp.kernels.periodic import Periodic
from dsgp.kernels.priors import LogNormal, PenalisedComplexity, Prior
from dsgp.kernels.rational import RationalQuadratic
from dsgp.kernels.settings import from_settings
from dsgp.kernels.spectral import SquaredExponential
from dsgp.kernels.state_space import StateSpace
from dsgp.kernels.wiener import Wiener

__all__ = [
    "REGISTRY",
    "CentredProduct",
    "Constant",
    "Custom",
    "DampedOscillation",
    "Independent",
    "Kernel",
    "LogNormal",
    "Margin",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Matern72",
    "PenalisedComplexity",
    "Periodic",
    "Prior",
    "Product",
    "QuasiPeriodic",
    "RationalQuadratic",
    "SquaredExponential",
    "StateSpace",
    "Stationary",
    "Sum",
    "Wiener",
    "from_settings",
    "kernel_of",
]
