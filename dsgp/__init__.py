"""dsgp: structured Gaussian processes at any scale."""

from importlib.metadata import version

from dsgp import kernels
from dsgp.estimators import AdditiveGPRegressor, load
from dsgp.rows.sources import read_table

__version__ = version("dsgp")

__all__ = ["AdditiveGPRegressor", "__version__", "kernels", "load", "read_table"]
