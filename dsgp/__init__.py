"""dsgp: structured Gaussian processes at any scale."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dsgp.when_imported import when_imported

if TYPE_CHECKING:
    from dsgp import kernels
    from dsgp.estimators import (
        AdditiveGPClassifier,
        AdditiveGPRegressor,
        GeneralizedAdditiveGP,
        GeneralizedPursuitGP,
        GridGP,
        ProjectionPursuitGPClassifier,
        ProjectionPursuitGPRegressor,
        SmoothingSpline,
        accumulated_effects,
        calibration_report,
        compare_models,
        component_bands,
        future_dates,
        holiday_levels,
        load,
        term_tests,
        variance_shares,
    )
    from dsgp.remainder import Remainder
    from dsgp.rows.sources import read_table
    from dsgp.terms import Levels, Linear, Smooth, Tensor

__version__ = version("dsgp")

__all__ = [
    "AdditiveGPClassifier",
    "AdditiveGPRegressor",
    "GeneralizedAdditiveGP",
    "GeneralizedPursuitGP",
    "GridGP",
    "Levels",
    "Linear",
    "ProjectionPursuitGPClassifier",
    "ProjectionPursuitGPRegressor",
    "Remainder",
    "Smooth",
    "SmoothingSpline",
    "Tensor",
    "__version__",
    "accumulated_effects",
    "calibration_report",
    "compare_models",
    "component_bands",
    "future_dates",
    "holiday_levels",
    "kernels",
    "load",
    "read_table",
    "term_tests",
    "variance_shares",
]

# Imported when first used: with scikit-learn, zarr and dask these modules take seconds, and the
# command answers --help without them.
_HOMES = {
    "AdditiveGPClassifier": "dsgp.estimators",
    "AdditiveGPRegressor": "dsgp.estimators",
    "GeneralizedAdditiveGP": "dsgp.estimators",
    "GeneralizedPursuitGP": "dsgp.estimators",
    "GridGP": "dsgp.estimators",
    "ProjectionPursuitGPClassifier": "dsgp.estimators",
    "ProjectionPursuitGPRegressor": "dsgp.estimators",
    "Remainder": "dsgp.remainder",
    "SmoothingSpline": "dsgp.estimators",
    **dict.fromkeys(("Levels", "Linear", "Smooth", "Tensor"), "dsgp.terms"),
    "accumulated_effects": "dsgp.estimators",
    "calibration_report": "dsgp.estimators",
    "compare_models": "dsgp.estimators",
    "component_bands": "dsgp.estimators",
    "future_dates": "dsgp.estimators",
    "holiday_levels": "dsgp.estimators",
    "load": "dsgp.estimators",
    "read_table": "dsgp.rows.sources",
    "term_tests": "dsgp.estimators",
    "variance_shares": "dsgp.estimators",
}


def __getattr__(name: str) -> Any:
    if name == "kernels":
        return import_module("dsgp.kernels")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_accessors() -> None:
    """Put ``dsgp`` on xarray's objects; the accessors are imported when first used."""
    xarray = import_module("xarray")
    xarray.register_dataarray_accessor("dsgp")(
        lambda da: import_module("dsgp.accessor").DataArrayAccessor(da)
    )
    xarray.register_dataset_accessor("dsgp")(
        lambda ds: import_module("dsgp.accessor").DatasetAccessor(ds)
    )


# Users import dsgp before or after xarray.
when_imported("xarray", _register_accessors)
