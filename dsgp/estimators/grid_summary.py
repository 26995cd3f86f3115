"""The text of ``GridGP.summary``."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from dsgp.grid.points import amplitude
from dsgp.models.summary import SummaryText


def _error_of(model: Any) -> str:
    """Say what is known of the error of variances."""
    if model.variance_error_ is None:
        return ""
    # Each cell has observed ones of its own.
    steps = ", with steps between cells" if model.variance_method_ == "local" else ""
    return f" (error about {max(model.variance_error_, 0.0):.1%}{steps})"


def summary_of(model: Any) -> SummaryText:
    """Describe a fitted ``GridGP`` in a few lines."""
    sizes = ", ".join(f"{axis.name} {len(axis)}" for axis in model._axes)
    n = int(np.prod([len(axis) for axis in model._axes]))
    lines = [
        f"GridGP of {sizes}: {model.n_observed_} of {n} cells observed",
        f"method: {model.method_}; variance: {model.variance_method_}{_error_of(model)}",
    ]
    if model.transform_ is not None:
        lines.append(
            f"transform: {model.transform_.described()} of the field is modelled: kernels and "
            "noise are on its scale, predictions in the field's unit"
        )
    if model.solver_iterations_:
        lines.append(
            f"solver: {model.solver_iterations_} iterations, relative residual "
            f"{model.residual_:.1e}" + ("" if model.converged_ else ", NOT CONVERGED")
        )
    terms = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    for c, term in enumerate(terms):
        name = "kernel" if len(terms) == 1 else f"kernel {c + 1} of {len(terms)}"
        variance = float(amplitude(list(term.values())))
        lines.append(f"{name}: standard deviation {variance**0.5:.4g}")
        for axis in model._axes:
            kernel = term[axis.name]
            unit = (model.units_[axis.name].split(" since ")[0] or "").strip()
            lines.append(
                f"  {axis.name}: {type(kernel).__name__}, lengthscale {kernel.lengthscale:.4g}"
                + (f" {unit}" if unit else "")
            )
    noise = (
        "given for each cell"
        if model.noise_variance_ is None
        else f"standard deviation {model.noise_variance_**0.5:.4g}"
    )
    lines.append(f"noise: {noise}")
    if model.log_marginal_likelihood_ is not None:
        kind = " (Vecchia)" if model.method_ == "conjugate gradients" else ""
        lines.append(f"log marginal likelihood{kind}: {model.log_marginal_likelihood_:.6g}")
    lines.append(f"hyperparameters learned from: {model.learnt_from_}")
    text = "\n".join(lines)
    return SummaryText(text, f"<pre>{escape(text)}</pre>")
