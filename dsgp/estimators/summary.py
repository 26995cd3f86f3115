"""What a fitted additive model says of itself, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dsgp.kernels import Kernel, Product, Sum

_FORMATS = {
    "lengthscale": lambda value: "–" if np.isnan(value) else f"{value:.4g}",
    "std": "{:.4g}".format,
    "edf": "{:.1f}".format,
    "share": "{:.1%}".format,
}
LEGEND = (
    "lengthscale and std (prior standard deviation of the function) are in the data's units;",
    "points: distinct values or bins; edf: effective degrees of freedom;",
    "share: variance of the term / variance of the target (shares add up to more or less than",
    "100 % where terms correlate)",
)


@dataclass(frozen=True)
class Summary:
    """What is told of a model; a class of models may replace some of it, or add to it.

    Attributes
    ----------
    heading : str
    terms : pandas.DataFrame
        A row a term.
    legend : tuple of str
        Lines that explain its columns.
    lines : list of (label, text)
        The rest. Without a label a line goes on where the one before it stopped.
    nothing : str
        What to say where there is no term.
    """

    heading: str
    terms: pd.DataFrame
    legend: tuple[str, ...]
    lines: list[tuple[str, str]]
    nothing: str = "(no term: every column is constant)"

    def text(self) -> str:
        """Write it all down."""
        table = self.terms.to_string(formatters=_FORMATS, na_rep="–")
        return "\n".join(
            [
                self.heading,
                "",
                table if len(self.terms) else self.nothing,
                "",
                *self.legend,
                "",
                *(f"{label:<20} {text}" for label, text in self.lines),
            ]
        )


def summarise(model: Any) -> Summary:
    """Describe an additive model."""
    return Summary(
        f"{type(model).__name__}: {model.n_rows_} rows, {len(model.terms_)} terms",
        terms_table(model),
        LEGEND,
        _lines(model),
    )


def terms_table(model: Any) -> pd.DataFrame:
    """A row a term: kernel, hyperparameters, effective degrees of freedom, share of variance."""
    return pd.DataFrame(
        [
            {
                "term": term.name,
                "kernel": kernel_name(term),
                "lengthscale": lengthscale_of(term.kernel),
                "std": term.kernel.std,
                "points": len(term.cells),
                "edf": term.effective_dof,
                "share": term.explained_variance / model.target_variance_,
            }
            for term in model.terms_
        ],
        columns=["term", "kernel", "lengthscale", "std", "points", "edf", "share"],
    ).set_index("term")


def kernel_name(term: Any) -> str:
    """Name the kernel of a term, or its kind where that says it all."""
    if term.bound.kind != "Smooth":
        return str(term.bound.kind)
    return _name_of(term.kernel)


def _name_of(kernel: Kernel) -> str:
    if isinstance(kernel, (Sum, Product)):
        return kernel.sign.join(_name_of(part) for part in kernel.parts)
    return type(kernel).__name__


def lengthscale_of(kernel: Kernel) -> float:
    """The only lengthscale of a kernel; NaN where there is none, or several."""
    names = [name for name in kernel.parameters if name.startswith("lengthscale")]
    value = kernel.value(names[0]) if len(names) == 1 else None
    return np.nan if value is None else value


def _lines(model: Any) -> list[tuple[str, str]]:
    """Noise, likelihood, solver and approximations."""
    fields = {
        "intercept": f"{model.intercept_:.6g}",
        "noise std": f"{np.sqrt(model.noise_variance_):.6g}",
        "explained variance": f"{_explained(model):.1%} of the target's",
        "effective dof": f"{model.effective_dof_:.1f} of all terms together",
        "log likelihood": f"{model.log_marginal_likelihood_:.6g} (marginal)",
        "solver": f"{model.solver}, {count_of(model.solver_iterations_)}; error of any component "
        f"at most {model.error_bound_:.2g} prior std (tol {model.tol:g})",
        "learner": f"{model.learner_}, {model.n_iter_} evaluations"
        if model.learner_ == "marginal"
        else f"{model.learner_}, {count_of(model.n_iter_)}"
        if model.learner_
        else "none: hyperparameters as given",
        "converged": "yes" if model.converged_ else "NO",
        "bins": f"change the function by about {model.bin_error_:.2g} posterior std, and add "
        f"{model.bin_noise_:.2g} of the noise variance to that of the rows (bins={model.bins!r})"
        if model.bin_error_
        else "none: every distinct value is a point",
        "std of predictions": model._std_note,
    }
    return [*fields.items(), *tell_columns(model)]


def tell_columns(model: Any) -> list[tuple[str, str]]:
    """Notes of the learner, missing values, and columns left out."""
    lines = [("" if i else "nodes", note) for i, note in enumerate(model.learner_notes_)]
    if model.n_missing_:
        counts = ", ".join(f"{name} {n}" for name, n in model.n_missing_.items())
        lines.append(("missing inputs", f"{counts}: they add nothing through that term"))
    if model.constant_columns_:
        lines.append(("left out (constant)", ", ".join(model.constant_columns_)))
    return lines


def count_of(number: int, what: str = "iteration") -> str:
    """Write a number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _explained(model: Any) -> float:
    """Share of the target's variance that the residuals do not have."""
    rows = max(model.n_rows_, 1)
    return max(
        0.0, 1 - model._row_variance * (1 - model.effective_dof_ / rows) / model.target_variance_
    )
