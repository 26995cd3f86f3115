"""dsgp: structured Gaussian processes at any scale."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dsgp import kernels

if TYPE_CHECKING:
    from dsgp.estimators import (
        AdditiveGPClassifier,
        AdditiveGPRegressor,
        GeneralizedAdditiveGP,
        GeneralizedPursuitGP,
        GridGP,
        ProjectionPursuitGPClassifier,
        ProjectionPursuitGPRegressor,
        load,
    )
    from dsgp.rows.sources import read_table

__version__ = version("dsgp")

__all__ = [
    "AdditiveGPClassifier",
    "AdditiveGPRegressor",
    "GeneralizedAdditiveGP",
    "GeneralizedPursuitGP",
    "GridGP",
    "ProjectionPursuitGPClassifier",
    "ProjectionPursuitGPRegressor",
    "__version__",
    "kernels",
    "load",
    "read_table",
]

# Imported when first used: scikit-learn, zarr and dask behind them take more than a second.
_HOMES = {
    "AdditiveGPClassifier": "dsgp.estimators",
    "AdditiveGPRegressor": "dsgp.estimators",
    "GeneralizedAdditiveGP": "dsgp.estimators",
    "GeneralizedPursuitGP": "dsgp.estimators",
    "GridGP": "dsgp.estimators",
    "ProjectionPursuitGPClassifier": "dsgp.estimators",
    "ProjectionPursuitGPRegressor": "dsgp.estimators",
    "load": "dsgp.estimators",
    "read_table": "dsgp.rows.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Registers ``da.dsgp``. That imports xarray, 0.3 s which every estimator needs anyway: users write
# ``import dsgp`` before ``import xarray`` as often as after it. Not by an import statement: the
# accessor stands above the estimators, some of which import this package.
import_module("dsgp.accessor")
