"""Covariance functions: parameters, dense matrices, state-space form. numpy and scipy only."""

from dsgp.kernels.matern import Matern, Matern12, Matern32, Matern52, Matern72

__all__ = ["Matern", "Matern12", "Matern32", "Matern52", "Matern72"]
