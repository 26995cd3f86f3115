"""The result of a fit by Laplace's approximation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsgp.additive.evidence import Complexity
from dsgp.kernels import Kernel
from dsgp.laplace.learner import Learned
from dsgp.laplace.mode import LEAST_PRECISION, Mode
from dsgp.laplace.rows import ResponseRows
from dsgp.likelihoods import Likelihood
from dsgp.models.additive import AdditiveModel
from dsgp.models.laplace.rows import Responses
from dsgp.models.term import FittedTerm
from dsgp.terms import Floats


@dataclass(frozen=True)
class LaplaceOutcome:
    """The result of a fit.

    Attributes
    ----------
    responses : Responses
    likelihood : Likelihood
        With all its parameters.
    mode : Mode
    complexity : Complexity
    log_likelihood : float
        Laplace's approximation of the log marginal likelihood, all terms' determinant together.
    exact_determinant : bool
        Whether that determinant is exact.
    bin_error : float
        Error of the bins in posterior standard deviations, root mean squares over the rows.
    learned : Learned or None
    unresolved : tuple of str
        Columns in which there is structure that hyperparameters were not learned for.
    too_wide : dict of str to int
        As for ``Responses``, where hyperparameters were learned.
    """

    responses: Responses
    likelihood: Likelihood
    mode: Mode
    complexity: Complexity
    log_likelihood: float
    exact_determinant: bool
    bin_error: float
    learned: Learned | None
    unresolved: tuple[str, ...] = ()
    too_wide: dict[str, int] = field(default_factory=dict)

    @property
    def level(self) -> float:
        """The constant part of f."""
        return self.mode.level

    @property
    def converged(self) -> bool:
        """Whether solver, Newton's iteration and learner met their tolerances."""
        learned = self.learned is None or self.learned.converged
        resolved = not self.unresolved and not self.too_wide
        return self.mode.converged and self.mode.solution.converged and learned and resolved

    @property
    def log_posterior(self) -> float:
        """Log marginal likelihood, with the log densities of the priors that kernels have."""
        return self.log_likelihood + sum(kernel.log_prior for kernel in self.mode.system.kernels)

    def kernels(self, responses: Responses, others: list[Kernel]) -> list[Kernel]:
        """Kernels of the terms of some rows: those learned here, ``others`` of terms not here."""
        names, kernels = self.responses.rows.table.names, self.mode.system.kernels
        known = dict(zip(names, kernels, strict=True))
        names = responses.rows.table.names
        return [known.get(name, other) for name, other in zip(names, others, strict=True)]

    def functions(self, responses: Responses) -> Floats | None:
        """Functions at the mode for the same rows, (Σ U_d,); None where these have other cells."""
        ours, theirs = self.responses.rows.table, responses.rows.table
        return self.mode.solution.mean if ours.cells is theirs.cells else None

    def latent(self) -> Floats:
        """Return f of every row, without its offset, (n_rows,)."""
        table = self.responses.rows.table
        return self.level + table.gather(self.mode.solution.mean)

    def model(self) -> AdditiveModel:
        """Return the fitted f."""
        terms = self.terms()
        return AdditiveModel(
            terms=terms,
            equations=self.mode.system.equations,
            intercept=float(self.level + sum(term.centre for term in terms)),
            constant=self.mode.constant,
            row_variance=1.0,
            information_scale=1.0,
            least_precision=LEAST_PRECISION,
        )

    @property
    def latent_variance(self) -> float:
        """Variance of f over the rows, without offsets; positive."""
        return max(float(np.var(self._functions())), np.finfo(float).tiny)

    @property
    def highest(self) -> float:
        """The largest f of a training row, without its offset."""
        return float(self.level + self._functions().max(initial=0.0))

    def _functions(self) -> Floats:
        """Sum of the terms at every row, (n_rows,)."""
        rows = self.responses.rows
        if not rows.table.n_terms:
            return np.zeros(rows.n_rows)
        return rows.table.gather(self.mode.solution.mean)

    def notes(self) -> list[str]:
        """Return notes of the learner on its nodes, for people."""
        learned = self.learned
        if learned is None:
            return []
        if learned.at_points and not learned.n_nodes:
            return [
                "the levels are too many for the determinant of all terms together: by working "
                "models and variational Bayes EM, which takes the terms as independent a posteriori"
            ]
        if learned.at_points:
            return ["by working models, on every point of the columns: nodes could not resolve it"]
        fewest, most = min(learned.n_nodes, default=0), max(learned.n_nodes, default=0)
        nodes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        rows = self.responses.rows.n_rows
        notes = [
            f"{nodes} nodes per term; the prior variance that they do not represent would change "
            "the determinant of the evidence by at most "
            f"{0.5 * rows * sum(learned.open_variance):.2g} nats"
        ]
        if not learned.resolved:
            notes.append(
                "the functions are too rough for the nodes that the budget allows: hyperparameters "
                "are those of smoother functions"
            )
        return notes

    def terms(self) -> list[FittedTerm]:
        """Return the fitted terms."""
        system, solution = self.mode.system, self.mode.solution
        layout, rows = system.layout, self.responses.rows
        ones = rows.weight if len(rows.weight) else np.ones(rows.n_rows)
        terms = []
        for d, (name, cells, kernel, mean, dual, weight, dof) in enumerate(
            zip(
                layout.names,
                layout.cells,
                system.kernels,
                layout.parts(solution.mean),
                layout.parts(solution.dual),
                layout.parts(system.weight),
                self.complexity.dof_of_terms,
                strict=True,
            )
        ):
            centre, _ = system.equations.moments(d, mean)
            terms.append(
                FittedTerm(
                    name=name,
                    kernel=kernel,
                    bound=self.responses.terms[d].with_kernel(kernel),
                    cells=cells,
                    dual=dual,
                    weight=weight,
                    centre=centre,
                    explained_variance=_variance(mean, rows, d, ones),
                    effective_dof=float(dof),
                )
            )
        return terms


def _variance(values: Floats, rows: ResponseRows, term: int, ones: Floats) -> float:
    """Variance of a term over the rows, (U_d,) at its cells."""
    counts = rows.table.scatter(term, ones, 0)
    share = counts / max(float(counts.sum()), np.finfo(float).tiny)
    if term not in rows.table.multipliers:
        return float(np.sum(share * (values - np.sum(share * values)) ** 2))
    total = max(float(ones.sum()), np.finfo(float).tiny)
    first, second = (
        float(np.sum(rows.table.scatter(term, ones, power) * values**power)) / total
        for power in (1, 2)
    )
    return max(second - first**2, 0.0)
