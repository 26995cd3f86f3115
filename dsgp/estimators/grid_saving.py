"""A fitted ``GridGP`` as settings and arrays of a store, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from dsgp import kernels as kernel_module
from dsgp import storage
from dsgp.errors import StorageError
from dsgp.estimators.grid_fit import solving_of
from dsgp.estimators.saved import with_parameters
from dsgp.grid.means import Mean
from dsgp.grid.model import FieldModel
from dsgp.grid.store_schema import check_grid
from dsgp.grid.stored import pack, unpack
from dsgp.kernels import Stationary
from dsgp.transforms import from_settings

# Fitted attributes that JSON holds as they are.
_PLAIN = (
    "noise_variance_",
    "log_marginal_likelihood_",
    "units_",
    "method_",
    "variance_method_",
    "variance_error_",
    "solver_iterations_",
    "residual_",
    "converged_",
    "n_observed_",
    "learnt_from_",
)


# Instead of a number, where the noise is an array of the store.
_PER_CELL = "given for each cell"


def described(estimator: Any, model: FieldModel) -> tuple[Mapping[str, Any], storage.Tree]:
    """Return settings that JSON can hold, and arrays."""
    settings, tree = pack(model.field)
    arrays: dict[str, Any] = {"field": tree, "mean": model.mean.arrays()}
    if model.dual is not None:
        arrays["dual"] = model.dual
    if isinstance(model.noise, np.ndarray):
        arrays["noise"] = model.noise
    noise, transform = estimator.noise_variance, estimator.transform_
    options = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("kernels", "noise_variance", "mean", "units", "transform")
    }
    parameters = {
        "options": options,
        "units": None if estimator.units is None else dict(estimator.units),
        "field": settings,
        "transform": None if transform is None else transform.settings(),
        "mean": model.mean.settings(),
        "terms": [[kernel.to_settings() for kernel in term] for term in model.terms],
        "noise": "learn" if noise is None else noise if isinstance(noise, Real) else _PER_CELL,
        "fitted": {name: getattr(estimator, name) for name in _PLAIN},
        "constant_is_unknown": model.constant_is_unknown,
        "n_effects": model.n_effects,
        "mean_text": estimator.mean if isinstance(estimator.mean, str) else None,
    }
    return parameters, arrays


def restored(kind: type[Any], settings: Mapping[str, Any], tree: Mapping[str, Any]) -> Any:
    """Make a fitted ``GridGP`` of what ``described`` returned."""
    check_grid(settings, tree)
    estimator = with_parameters(kind, {"units": settings["units"], **settings["options"]})
    # What made it, with its parameters, so that a clone can be fitted; absent in older stores.
    estimator.transform = from_settings(settings.get("transform"))
    for name in _PLAIN:
        setattr(estimator, name, settings["fitted"][name])
    model = _model_of(estimator, settings, tree)
    estimator._show(model, estimator.transform)
    estimator._show_hyperparameters(model.terms[model.n_effects :], estimator.noise_variance_)
    # What made it: its own hyperparameters, so that a clone can be fitted.
    estimator.kernels = estimator.kernels_
    noise = settings["noise"]
    estimator.noise_variance = None if isinstance(noise, str) else noise
    if "fixed_noise" not in settings["options"]:  # numbers of older versions were not starts
        estimator.fixed_noise = not isinstance(noise, str)
    if isinstance(model.noise, np.ndarray):
        known = model.field.restore(model.noise, name="noise_variance", attrs={})
        estimator.noise_variance = known
    estimator.mean = settings.get("mean_text") or settings["mean"]["spec"]
    if estimator.mean in ("number", "field"):
        estimator.mean = estimator.mean_
    return estimator


def _model_of(estimator: Any, settings: Mapping[str, Any], tree: Mapping[str, Any]) -> FieldModel:
    field = unpack(settings["field"], tree["field"])
    # Variances as was chosen when it was fitted.
    solving = replace(solving_of(estimator), variance=estimator.variance_method_)
    return FieldModel(
        field,
        Mean.from_settings(settings["mean"], tree["mean"], field.axes),
        tuple(tuple(_kernel_from(kernel) for kernel in term) for term in settings["terms"]),
        tree.get("noise", float(estimator.noise_variance_ or 0.0)),
        solving,
        n_effects=settings.get("n_effects", 0),
        # Stores written before the constant was an unknown lack this, and answer as they did.
        constant_is_unknown=settings.get("constant_is_unknown", False),
        dual=tree.get("dual"),
    )


def _kernel_from(settings: Mapping[str, Any]) -> Stationary:
    made = kernel_module.from_settings(settings)
    if not isinstance(made, Stationary):
        raise StorageError(f"the store has {made!r} as a kernel of a grid")
    return made
