"""Facts of a fit that are reported beside the model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.laplace.outcome import LaplaceOutcome


@dataclass(frozen=True)
class FitFacts:
    """Numbers and notes of a fit, in the user's units; an estimator shows each with a ``_``.

    Attributes
    ----------
    noise_variance : float or None
        Of a row of weight 1; None where a likelihood has no variance that all rows share.
    target_variance : float
        Of the target, or of f over the rows where there is a likelihood.
    log_marginal_likelihood : float
    learner_trace : list of float
        What the learner maximised.
    learner : str or None
        The learner that was used.
    learner_notes : list of str
    effective_dof : float
        Of all terms together.
    bin_error, bin_noise : float
        As for ``gaussian.mean.Fit``.
    n_missing : dict of str to int
        Rows in which a column was missing.
    solver_iterations, n_iter : int
    error_bound : float
    converged : bool
    constant_columns : list of str
    n_rows : int
        Of positive weight.
    """

    noise_variance: float | None
    target_variance: float
    log_marginal_likelihood: float
    learner_trace: list[float]
    learner: str | None
    learner_notes: list[str]
    effective_dof: float
    bin_error: float
    bin_noise: float
    n_missing: dict[str, int]
    solver_iterations: int
    n_iter: int
    error_bound: float
    converged: bool
    constant_columns: list[str]
    n_rows: int

    @classmethod
    def of_gaussian(cls, outcome: GaussianOutcome, log_jacobian: float = 0.0) -> FitFacts:
        """Facts of a fit with Gaussian noise.

        ``log_jacobian`` turns log likelihoods of a transformed target into those of the target.
        """
        training, hyper, fit = outcome.training, outcome.hyper, outcome.fit
        return cls(
            noise_variance=outcome.noise_variance,
            target_variance=training.scale**2,
            log_marginal_likelihood=outcome.log_likelihood(fit.log_likelihood) + log_jacobian,
            learner_trace=[
                float(outcome.log_likelihood(value)) + log_jacobian for value in hyper.trace
            ],
            learner=hyper.learner,
            learner_notes=hyper.notes,
            effective_dof=fit.complexity.dof,
            bin_error=fit.bin_error,
            bin_noise=fit.bin_noise,
            n_missing=training.n_missing,
            solver_iterations=fit.solution.iterations,
            n_iter=outcome.n_iter,
            error_bound=fit.solution.error_bound,
            converged=outcome.converged,
            constant_columns=training.constant,
            n_rows=int(training.equations.n_rows),
        )

    @classmethod
    def of_laplace(cls, outcome: LaplaceOutcome, learner: str | None) -> FitFacts:
        """Facts of a fit by Laplace's approximation, with the learner that was requested."""
        learned, mode = outcome.learned, outcome.mode
        return cls(
            noise_variance=outcome.likelihood.noise_variance,
            target_variance=outcome.latent_variance,
            log_marginal_likelihood=float(outcome.log_likelihood),
            learner_trace=[] if learned is None else [float(value) for value in learned.trace],
            learner=None if learned is None else "vbem" if learned.mode is None else str(learner),
            learner_notes=outcome.notes(),
            effective_dof=float(outcome.complexity.dof),
            bin_error=float(outcome.bin_error),
            bin_noise=0.0,
            n_missing=outcome.responses.n_missing,
            solver_iterations=mode.solution.iterations,
            n_iter=len(mode.trace) if learned is None else learned.evaluations,
            error_bound=float(mode.solution.error_bound),
            converged=outcome.converged,
            constant_columns=outcome.responses.constant,
            n_rows=outcome.responses.rows.n_rows,
        )

    def with_notes(self, notes: list[str]) -> FitFacts:
        """Return them with further notes of how hyperparameters were learned."""
        return replace(self, learner_notes=[*self.learner_notes, *notes])

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all facts."""
        return [field.name for field in fields(cls)]

    def shown(self) -> dict[str, Any]:
        """Return the facts under the names that an estimator has for them."""
        return {f"{name}_": getattr(self, name) for name in self.names()}
