"""The result of a fit with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from dsgp.additive import AdditiveSystem, RowEquations
from dsgp.models.additive import AdditiveModel
from dsgp.models.gaussian.learner import Hyperparameters
from dsgp.models.gaussian.mean import Fit
from dsgp.models.gaussian.rows import Training
from dsgp.models.term import FittedTerm


@dataclass(frozen=True)
class GaussianOutcome:
    """The result of a fit, in the units of its training rows.

    Attributes
    ----------
    training : Training
    hyper : Hyperparameters
        Hyperparameters, and how they were found.
    fit : Fit
        The posterior mean, and the noise variance to all digits.
    unresolved : tuple of str
        Columns in which there is structure that hyperparameters were not learned for.
    too_wide : dict of str to int
        As for ``Training``, where hyperparameters were learned.
    """

    training: Training
    hyper: Hyperparameters
    fit: Fit
    unresolved: tuple[str, ...] = ()
    too_wide: dict[str, int] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether solver and learner met their tolerances, and no structure was missed."""
        met = self.fit.solution.converged and self.hyper.converged
        return met and not self.unresolved and not self.too_wide

    def at_home(self) -> GaussianOutcome:
        """Fetch the rows that workers keep, for draws and for a model that is stored."""
        system = self.fit.system
        equations = system.equations.at_home()
        if equations is system.equations:
            return self
        system = AdditiveSystem(
            equations,
            system.kernels,
            system.noise_variance,
            system.least_precision,
            system.constant,
        )
        # They share the codes; their targets are not those of the fit.
        ours, theirs = self.training.equations, equations
        assert isinstance(ours, RowEquations)
        assert isinstance(theirs, RowEquations)
        ours = replace(ours, layout=theirs.layout, table=theirs.table)
        training = replace(self.training, equations=ours)
        return replace(self, training=training, fit=replace(self.fit, system=system))

    @property
    def log_posterior(self) -> float:
        """Log marginal likelihood, with the log densities of the priors that kernels have."""
        return self.fit.log_likelihood + sum(kernel.log_prior for kernel in self.hyper.kernels)

    @property
    def n_iter(self) -> int:
        """Evaluations or iterations of the learner, or of the solver where there was none."""
        return self.hyper.n_iter if self.hyper.learner else self.fit.solution.iterations

    @property
    def noise_variance(self) -> float:
        """Of a row of weight 1, without what bins add; in the user's units."""
        noise = self.fit.system.noise_variance * self.training.noise_scale
        return noise * (1 - self.fit.bin_noise)

    def log_likelihood(self, value: float) -> float:
        """Convert the log likelihood of the scaled target to that of the user's."""
        return value - self.training.equations.n_rows * math.log(self.training.scale)

    @property
    def constant(self) -> float:
        """The constant that is added to the terms, in the user's units."""
        return self.training.offset + self.training.scale * self.fit.constant

    def model(self) -> AdditiveModel:
        """Return the fitted model in the user's units, always the same one."""
        return self._model

    @cached_property
    def _model(self) -> AdditiveModel:
        training, terms = self.training, self.terms()
        return AdditiveModel(
            terms=terms,
            equations=self.fit.system.equations,
            intercept=self.constant + sum(term.centre for term in terms),
            constant=0.0,
            row_variance=self.fit.system.noise_variance * training.scale**2,
            information_scale=training.scale,
        )

    def terms(self) -> list[FittedTerm]:
        """Return the fitted terms in the user's units."""
        layout, scale = self.training.equations.layout, self.training.scale
        terms = []
        equations = self.fit.system.equations
        for d, (name, cells, kernel, mean, dual, weight, dof) in enumerate(
            zip(
                layout.names,
                layout.cells,
                self.fit.system.kernels,
                layout.parts(self.fit.solution.mean),
                layout.parts(self.fit.solution.dual),
                layout.parts(self.fit.system.weight),
                self.fit.complexity.dof_of_terms,
                strict=True,
            )
        ):
            centre, variance = equations.moments(d, mean)
            terms.append(
                FittedTerm(
                    name=name,
                    kernel=kernel.scaled(scale),
                    bound=self.training.terms[d].with_kernel(kernel.scaled(scale)),
                    cells=cells,
                    dual=dual / scale,
                    weight=weight / scale**2,
                    centre=scale * centre,
                    explained_variance=scale**2 * variance,
                    effective_dof=float(dof),
                )
            )
        return terms
