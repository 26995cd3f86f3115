"""What a fitted additive model says of itself, as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def terms_table(model: Any) -> pd.DataFrame:
    """A row a term: kernel, hyperparameters, effective degrees of freedom, share of variance."""
    return pd.DataFrame(
        [
            {
                "term": term.name,
                "kernel": type(term.kernel).__name__,
                "lengthscale": term.kernel.lengthscale,
                "std": float(np.sqrt(term.kernel.variance)),
                "points": len(term.axis),
                "edf": term.effective_dof,
                "share": term.explained_variance / model.target_variance_,
            }
            for term in model.terms_
        ],
        columns=["term", "kernel", "lengthscale", "std", "points", "edf", "share"],
    ).set_index("term")


def summarise(model: Any) -> str:
    """Compose the text of ``model.summary()``."""
    table = terms_table(model).to_string(
        formatters={
            "lengthscale": "{:.4g}".format,
            "std": "{:.4g}".format,
            "edf": "{:.1f}".format,
            "share": "{:.1%}".format,
        }
    )
    n_terms = len(model.terms_)
    exact = n_terms <= 1
    likelihood = "log marginal likelihood" if exact else "variational lower bound"
    lines = [
        f"{type(model).__name__}: {model.n_rows_} rows, {n_terms} terms",
        "",
        table if n_terms else "(no term: every column is constant)",
        "",
        "lengthscale and std (prior standard deviation of the function) are in the data's units;",
        "edf: effective degrees of freedom; share: variance of the term / variance of the target",
        "(shares add up to more or less than 100 % where terms correlate)",
        "",
        f"intercept            {model.intercept_:.6g}",
        f"noise std            {np.sqrt(model.noise_variance_):.6g}",
        f"{likelihood:<24} {model.log_marginal_likelihood_:.6g}",
        f"solver               {model.solver}, {model.solver_iterations_} iterations; error of any "
        f"component at most {model.error_bound_:.2g} prior std (tol {model.tol:g})",
        f"learner              {model.learner}"
        + (f", {len(model.learner_trace_) - 1} iterations" if model.learner_trace_ else ""),
        f"converged            {'yes' if model.converged_ else 'NO'}",
        "means                exact (to the solver's bound)",
        "standard deviations  "
        + (
            "exact" if exact else "factorised posterior: rough where inputs are strongly correlated"
        ),
    ]
    if model.constant_columns_:
        lines.append(f"left out (constant)  {', '.join(model.constant_columns_)}")
    return "\n".join(lines)
