"""Estimators with scikit-learn's conventions, and reading them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgp import storage
from dsgp.addresses import Place
from dsgp.errors import MemoryLimitError, StorageError
from dsgp.estimators.accumulated import accumulated_effects
from dsgp.estimators.additive import AdditiveGPRegressor
from dsgp.estimators.bands import component_bands
from dsgp.estimators.calendars import future_dates, holiday_levels
from dsgp.estimators.calibration import calibration_report
from dsgp.estimators.classifier import AdditiveGPClassifier
from dsgp.estimators.comparing import compare_models
from dsgp.estimators.generalized import GeneralizedAdditiveGP
from dsgp.estimators.generalized_pursuit import GeneralizedPursuitGP
from dsgp.estimators.grid import GridGP
from dsgp.estimators.pursuit import ProjectionPursuitGPRegressor
from dsgp.estimators.pursuit_classifier import ProjectionPursuitGPClassifier
from dsgp.estimators.shares import variance_shares
from dsgp.estimators.spline import SmoothingSpline
from dsgp.estimators.term_scores import term_tests

__all__ = [
    "AdditiveGPClassifier",
    "AdditiveGPRegressor",
    "GeneralizedAdditiveGP",
    "GeneralizedPursuitGP",
    "GridGP",
    "ProjectionPursuitGPClassifier",
    "ProjectionPursuitGPRegressor",
    "SmoothingSpline",
    "accumulated_effects",
    "calibration_report",
    "compare_models",
    "component_bands",
    "future_dates",
    "holiday_levels",
    "load",
    "term_tests",
    "variance_shares",
]

_MODELS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        AdditiveGPRegressor,
        AdditiveGPClassifier,
        GeneralizedAdditiveGP,
        GeneralizedPursuitGP,
        GridGP,
        ProjectionPursuitGPClassifier,
        ProjectionPursuitGPRegressor,
        SmoothingSpline,
    )
}


def load(path: str | Place, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Read a model written by ``save``.

    Nothing is unpickled: a store holds arrays and JSON only.

    Parameters
    ----------
    path : str, Path or UPath
        A folder, or an address such as ``s3://bucket/model.zarr``, which is copied to a temporary
        folder first.
    storage_options : mapping, optional
        Options of fsspec for an address, e.g. ``{"anon": True}``.

    Returns
    -------
    The fitted model; its predictions are bit for bit those of the saved one.

    Raises
    ------
    StorageError
        If there is no dsgp model, or it is damaged, or a later release wrote it.
    """
    kind, settings, tree = storage.read(path, storage_options)
    if kind not in _MODELS:
        raise StorageError(f"{str(path)!r} holds a {kind}, not a model this release knows")
    try:
        return _MODELS[kind]._restore(settings, tree)
    except MemoryLimitError:
        raise
    except StorageError as error:
        raise StorageError(f"{str(path)!r} cannot be loaded: {error}") from error
    # What schemas let pass may still be no model; restoring it raises many types.
    except Exception as error:
        raise StorageError(f"{str(path)!r} is damaged: {error!r}") from error
