"""A fitted model as settings and arrays for ``storage``, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsgp import kernels, storage
from dsgp.axis import Axis, Floats
from dsgp.errors import StorageError
from dsgp.estimators.term import Term
from dsgp.kernels import Matern

PLAIN_ATTRIBUTES = (
    "noise_variance_",
    "target_variance_",
    "log_marginal_likelihood_",
    "learner_trace_",
    "solver_iterations_",
    "n_iter_",
    "error_bound_",
    "converged_",
    "intercept_",
    "constant_columns_",
    "n_rows_",
)
# Of a term, beside its kernel and its arrays.
TERM_NUMBERS = ("centre", "explained_variance", "effective_dof")


def save(model: Any, path: str | Path, overwrite: bool) -> None:
    """Write a fitted model to a store."""
    parameters = model.get_params(deep=False)
    parameters["kernel"] = None if model.kernel is None else _kernel_settings(model.kernel)
    if model.terms is not None:
        parameters["terms"] = {name: _kernel_settings(k) for name, k in model.terms.items()}
    settings = {
        "parameters": parameters,
        "columns": list(model._columns),
        "named": hasattr(model, "feature_names_in_"),
        "fitted": {name: getattr(model, name) for name in PLAIN_ATTRIBUTES},
        "terms": [
            {"name": term.name, "kernel": _kernel_settings(term.kernel)}
            | {number: getattr(term, number) for number in TERM_NUMBERS}
            for term in model.terms_
        ],
    }
    arrays = {
        f"term{position}": {"points": term.axis.points, "dual": term.dual, "weight": term.weight}
        for position, term in enumerate(model.terms_)
    }
    storage.write(path, type(model).__name__, settings, {"terms": arrays}, overwrite)


def parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's parameters."""
    stored = dict(settings["parameters"])
    if stored["kernel"] is not None:
        stored["kernel"] = _kernel_from(stored["kernel"])
    if stored["terms"] is not None:
        stored["terms"] = {name: _kernel_from(kernel) for name, kernel in stored["terms"].items()}
    return stored


def restore(model: Any, settings: dict[str, Any]) -> None:
    """Set the plain fitted attributes; a store cannot name others."""
    for name in PLAIN_ATTRIBUTES:
        setattr(model, name, settings["fitted"][name])


def terms(settings: dict[str, Any], tree: dict[str, Any]) -> list[Term]:
    """Return the fitted terms."""
    stored = tree["terms"]
    if len(settings["terms"]) != len(stored):
        raise StorageError("settings and arrays do not agree on the number of terms")
    return [
        _term(term, stored[f"term{position}"]) for position, term in enumerate(settings["terms"])
    ]


def _term(settings: dict[str, Any], arrays: dict[str, Floats]) -> Term:
    return Term(
        name=settings["name"],
        kernel=_kernel_from(settings["kernel"]),
        axis=Axis(arrays["points"]),
        dual=arrays["dual"],
        weight=arrays["weight"],
        **{number: settings[number] for number in TERM_NUMBERS},
    )


def _kernel_settings(kernel: Matern) -> dict[str, Any]:
    """Return a kernel as JSON."""
    return {
        "type": type(kernel).__name__,
        "lengthscale": kernel.lengthscale,
        "variance": kernel.variance,
        "fixed": list(kernel.fixed),
    }


def _kernel_from(settings: dict[str, Any]) -> Matern:
    """Undo ``_kernel_settings``; only the library's own kernels are ever made."""
    name = settings["type"]
    if name not in kernels.__all__:
        raise StorageError(f"the store names a kernel {name!r} that this release does not have")
    make = getattr(kernels, name)
    return make(**{key: value for key, value in settings.items() if key != "type"})
