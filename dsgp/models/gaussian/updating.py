"""A fitted sum of terms with further rows: the posterior of all rows, at the same hyperparameters
or at those learned again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, DataWarning
from dsgp.models.additive import AdditiveModel
from dsgp.models.clock import Clock, Reading
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.growing import grown, normalised, variance_of
from dsgp.models.gaussian.learner import Hyperparameters
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.relabelling import relabelled
from dsgp.models.gaussian.rows import Training
from dsgp.models.gaussian.target import Target
from dsgp.models.gaussian_model import GaussianModel
from dsgp.progress import progress
from dsgp.rows.sources import Source
from dsgp.terms import Codes

# Residuals are judged if they have at least as many degrees of freedom as the first number: by the
# ratio of their variance to the noise, and by the number of its standard errors.
_FEWEST_LEFT, _MISFIT, _ERRORS = 20.0, 1.5, 6.0


@dataclass(frozen=True)
class Update:
    """How further rows are added to a fitted model.

    Attributes
    ----------
    fit : GaussianFit
        Its solver and, where hyperparameters are learned again, its learner.
    relearn : bool
        Learn the hyperparameters again, from their present values.
    share : float
        Share of its weight with which an earlier row counts from now on.
    """

    fit: GaussianFit
    relearn: bool
    share: float

    def __call__(
        self,
        model: GaussianModel,
        facts: FitFacts,
        columns: Columns,
        source: Source,
        moves: Mapping[str, Codes],
        clock: Clock,
    ) -> tuple[GaussianModel, FitFacts, GaussianOutcome]:
        """Return the model of all rows; the arguments are not changed.

        Parameters
        ----------
        model : GaussianModel
            With a basis.
        facts : FitFacts
        columns : Columns
        source : Source
            The further rows, with the target of the user.
        moves : mapping of str to ndarray of int
            New numbers of the levels so far, as for ``relabelled``.
        clock : Clock
        """
        assert isinstance(model.latent, AdditiveModel)
        assert model.basis is not None
        latent, basis = model.latent, model.basis
        target = Target.of(source, model.transform)
        before = relabelled(basis.training(latent, columns), moves)
        with one_blas_thread():
            with progress("reading", source.n_rows, enabled=self.fit.verbose) as bar:
                training = grown(
                    before,
                    target.of_rows(source),
                    self.fit.bins,
                    self.share,
                    Reading(bar, clock),
                )
            n_added = training.equations.n_rows - self.share * before.equations.n_rows
            if self.relearn:
                outcome = self._relearned(training, model, clock)
            else:
                clock.stage("solve")
                outcome = self._kept(training, latent, facts.bin_noise)
        log_jacobian = self.share * basis.log_jacobian + target.log_jacobian
        n_rows = basis.n_rows + round(n_added)
        return (
            GaussianModel(
                outcome.model(),
                outcome.noise_variance if self.relearn else model.noise_variance,
                model.transform,
                basis.updated(outcome.training, n_rows, log_jacobian),
            ),
            self._facts(outcome, facts, log_jacobian, n_rows),
            outcome,
        )

    def _kept(self, training: Training, latent: AdditiveModel, bin_noise: float) -> GaussianOutcome:
        """Solve with the present hyperparameters."""
        noise = latent.row_variance / training.scale**2
        kernels = [term.kernel.scaled(1 / training.scale) for term in training.terms]
        hyper = Hyperparameters(kernels, noise, (noise, noise), None)
        outcome = self.fit.solved(training, hyper)
        # The variance that bins add is part of the noise that was learned.
        return replace(outcome, fit=replace(outcome.fit, bin_noise=bin_noise))

    def _relearned(self, training: Training, model: GaussianModel, clock: Clock) -> GaussianOutcome:
        """Learn again, in units of all rows, from the present hyperparameters."""
        if training.equations.n_rows < 2:
            raise DataError(
                f"cannot learn hyperparameters: with half_life the rows count for "
                f"{training.equations.n_rows:.3g} rows, and at least 2 are needed; take a longer "
                "half_life, or relearn=False"
            )
        fit = replace(self.fit, noise_variance=model.noise_variance)
        return fit.relearned(normalised(training), clock)

    def _facts(
        self, outcome: GaussianOutcome, before: FitFacts, log_jacobian: float, n_rows: int
    ) -> FitFacts:
        training = outcome.training
        facts = replace(
            FitFacts.of_gaussian(outcome, log_jacobian),
            n_rows=n_rows,
            target_variance=variance_of(training) or training.scale**2,
        )
        if self.relearn:
            return facts
        return replace(
            facts,
            learner=before.learner,
            learner_trace=before.learner_trace,
            learner_notes=before.learner_notes,
            converged=facts.converged and before.converged,
        )


def warn_of_misfit(outcome: GaussianOutcome, stacklevel: int = 3) -> None:
    """Warn if the residuals of all rows are not of the size of the noise that was kept."""
    fit, n_rows = outcome.fit, outcome.training.equations.n_rows
    left = n_rows - fit.complexity.dof - fit.complexity.constant_dof
    if left < _FEWEST_LEFT:
        return
    ratio = fit.system.equations.squares(fit.solution.mean) / left / fit.system.noise_variance
    # With normal noise, the ratio is 1 with a standard error of √(2 / left).
    limit = max(_MISFIT, 1 + _ERRORS * math.sqrt(2 / left))
    if 1 / limit < ratio < limit:
        return
    warnings.warn(
        f"the residuals of all rows have {ratio:.3g} times the noise variance of the model: its "
        "hyperparameters do not suit the rows any more; update with relearn=True (--relearn), or "
        "fit again, on all rows",
        DataWarning,
        stacklevel=stacklevel,
    )
