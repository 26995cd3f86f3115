"""Estimators with scikit-learn's conventions, and reading them back."""

from __future__ import annotations

from pathlib import Path

from dsgp import storage
from dsgp.errors import StorageError
from dsgp.estimators.additive import AdditiveGPRegressor
from dsgp.estimators.pursuit import ProjectionPursuitGPRegressor

__all__ = ["AdditiveGPRegressor", "ProjectionPursuitGPRegressor", "load"]

_MODELS: dict[str, type[AdditiveGPRegressor] | type[ProjectionPursuitGPRegressor]] = {
    "AdditiveGPRegressor": AdditiveGPRegressor,
    "ProjectionPursuitGPRegressor": ProjectionPursuitGPRegressor,
}


def load(path: str | Path) -> AdditiveGPRegressor | ProjectionPursuitGPRegressor:
    """Read a model written by ``save``.

    Nothing is unpickled: a store holds arrays and JSON only.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    The fitted model; it predicts to the bit what the saved one did.

    Raises
    ------
    StorageError
        If there is no dsgp model, it is damaged, or a later release wrote it.
    """
    kind, settings, tree = storage.read(path)
    if kind not in _MODELS:
        raise StorageError(f"{str(path)!r} holds a {kind}, not a model this release knows")
    try:
        return _MODELS[kind]._restore(settings, tree)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{str(path)!r} is damaged: {error!r}") from error
