"""Draws of the hyperparameters of a fit, and the mixture of additive models that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from dsgp import memory
from dsgp.additive import SOLVERS, AdditiveSystem, Pair
from dsgp.addresses import Place
from dsgp.compute import one_blas_thread, run
from dsgp.errors import ParameterError
from dsgp.kernels import Kernel
from dsgp.learning.search import NOISE
from dsgp.models.checks import require_choice, require_count
from dsgp.models.drawn import DrawnParameters
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian.outcome import GaussianOutcome
from dsgp.models.gaussian.target import Target
from dsgp.models.gaussian_mixture import GaussianMixture
from dsgp.models.mixture import MixtureModel
from dsgp.priors import HyperPriors
from dsgp.progress import progress
from dsgp.sampling.chains import HyperDraws, collapsed, gibbs
from dsgp.sampling.checkpoint import Checkpoint, identity_of, require_place, seed_of
from dsgp.sampling.collapsed import NodeEvidence
from dsgp.sampling.parameters import HyperModel
from dsgp.sampling.plain import METHOD as PLAIN
from dsgp.sampling.plain import require_states

METHODS = (None, "gibbs", "plain-gibbs", "collapsed")
# Number of draws over which predictions average.
MEMBERS = 50
_SOLVE = 1e-5  # seconds of compiled work per cell
# Number of values that a chain keeps per cell and per row.
_CELL_NUMBERS, _ROW_NUMBERS = 8, 4


@dataclass(frozen=True)
class Sampling:
    """How hyperparameters are drawn; calling it draws them.

    Attributes
    ----------
    method : {"gibbs", "plain-gibbs", "collapsed"}
    n_draws, n_warmup, n_chains : int
    fixed_noise : bool
    priors : HyperPriors
    solver : str
    tol : float
    max_iter : int
        Of the conditional posterior means.
    verbose : bool
    seeded : bool
        Whether the user gave a seed; otherwise, chains that were saved keep theirs.
    checkpoint : str, Path or None
        Where the chains are saved during the run.
    """

    method: str
    n_draws: int
    n_warmup: int
    n_chains: int
    fixed_noise: bool
    priors: HyperPriors
    solver: str
    tol: float
    max_iter: int
    verbose: bool
    seeded: bool = True
    checkpoint: str | Place | None = None

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        max_iter: int,
        checkpoint: str | Place | None = None,
    ) -> Self | None:
        """Check and take the parameters of an estimator; None where nothing is drawn.

        Raises
        ------
        ParameterError
            If one is out of its range, or asks for nothing to be learned.
        StorageError
            If chains cannot be saved at the checkpoint.
        """
        method, priors = parameters["method"], parameters["priors"]
        require_choice("method", method, METHODS)
        counts = {name: parameters[name] for name in ("n_draws", "n_warmup", "n_chains")}
        for name, count in counts.items():
            require_count(name, count)
        if not isinstance(priors, HyperPriors | None):
            raise ParameterError(
                f"priors must be a dsgp.priors.HyperPriors or None, got {priors!r}"
            )
        if method is None:
            if checkpoint is not None:
                raise ParameterError(
                    "checkpoint keeps the chains of a method, and method=None draws nothing: leave "
                    'it out, or use method="collapsed"'
                )
            return None
        if parameters["learner"] is None:
            raise ParameterError(
                f"learner=None keeps the given hyperparameters, and method={method!r} draws them: "
                'use learner="marginal", and name in the kernels as fixed what is to stay'
            )
        if checkpoint is not None:
            require_place(checkpoint)
        kept = {name: parameters[name] for name in ("fixed_noise", "solver", "tol", "verbose")}
        return cls(
            method,
            **counts,
            priors=priors or HyperPriors(),
            max_iter=max_iter,
            **kept,
            seeded=parameters["random_state"] is not None,
            checkpoint=checkpoint,
        )

    def model(
        self,
        outcome: GaussianOutcome,
        facts: FitFacts,
        target: Target,
        random: np.random.Generator,
    ) -> tuple[GaussianMixture, FitFacts]:
        """Draw the hyperparameters of a fit; return the model and its facts."""
        latent, converged = self(outcome, random)
        # Log densities are those of the target, not of its transform.
        draws = latent.draws
        shifted = replace(draws, log_likelihood=draws.log_likelihood + target.log_jacobian)
        latent = replace(latent, draws=shifted)
        noise_variance = float(draws.values[..., -1].mean())
        model = GaussianMixture(latent, noise_variance, target.transform)
        converged = facts.converged and converged
        return model, replace(facts, noise_variance=noise_variance, converged=converged)

    def __call__(
        self, outcome: GaussianOutcome, random: np.random.Generator
    ) -> tuple[MixtureModel, bool]:
        """Draw the hyperparameters of a fit, with chains that begin at it.

        Parameters
        ----------
        outcome : GaussianOutcome
        random : Generator
            Gives the seed of the chains.

        Returns
        -------
        model : MixtureModel
        converged : bool
            Whether the solver met its tolerance for all draws, and the chains agree.

        Raises
        ------
        MemoryLimitError
            If chains or conditional models would not fit.
        ParameterError
            If every hyperparameter is fixed, "collapsed" has too few nodes for the functions, or a
            term has no states for "plain-gibbs".
        """
        system = outcome.fit.system
        model = HyperModel.of(
            system.equations,
            system.kernels,
            system.noise_variance,
            self._bounds(outcome),
            self.priors,
        )
        if not len(model.free):
            raise ParameterError(
                f"every hyperparameter is fixed, so that method={self.method!r} has nothing to "
                "draw: use method=None"
            )
        if self.method == PLAIN:
            require_states(model)
        self._require_memory(outcome)
        draws = self._draws(model, int(random.integers(2**63)))
        return self._mixture(outcome, model, draws)

    def _bounds(self, outcome: GaussianOutcome) -> tuple[float, float]:
        noise_variance = outcome.fit.system.noise_variance
        return (noise_variance, noise_variance) if self.fixed_noise else NOISE

    def _require_memory(self, outcome: GaussianOutcome) -> None:
        system = outcome.fit.system
        equations = system.equations
        states = sum(
            cells.state_bytes(kernel)
            for cells, kernel in zip(equations.layout.cells, system.kernels, strict=True)
        )
        size, n_members = equations.layout.size, min(MEMBERS, self.n_draws)
        rows = getattr(getattr(equations, "table", None), "n_rows", 0)
        memory.require(
            f"{self.n_chains} chains and {n_members} draws of {size} cells",
            self.n_chains * (8.0 * (_CELL_NUMBERS * size + _ROW_NUMBERS * rows) + states)
            + 8.0 * n_members * 3 * size,
            "fewer chains, rows or bins, or method=None",
        )

    def _draws(self, model: HyperModel, seed: int) -> HyperDraws:
        kept = None
        if self.checkpoint is not None:
            if not self.seeded:
                kept_seed = seed_of(self.checkpoint)
                seed = seed if kept_seed is None else kept_seed
            identity = identity_of(model, self.method, self.n_warmup, self.n_chains, seed)
            kept = Checkpoint(self.checkpoint, identity)
        numbers: dict[str, Any] = {
            "n_draws": int(self.n_draws),
            "n_warmup": int(self.n_warmup),
            "n_chains": int(self.n_chains),
            "seed": seed,
            "checkpoint": kept,
        }
        total = int(self.n_warmup) + -(-int(self.n_draws) // int(self.n_chains))
        with progress("sampling", total, enabled=self.verbose) as bar:
            watch = partial(_show_progress, bar, [0])
            plain = self.method == PLAIN
            if plain or self.method == "gibbs" or not model.terms:
                return gibbs(model, **numbers, watch=watch, plain=plain)
            evidence = NodeEvidence.of(model)
            if evidence is None:
                raise ParameterError(
                    'method="collapsed" needs the marginal likelihood at nodes, and the functions '
                    "are too rough, or the levels too many, for the number of nodes allowed: "
                    'method="gibbs" uses every point'
                )
            return collapsed(evidence, **numbers, watch=watch)

    def _mixture(
        self, outcome: GaussianOutcome, model: HyperModel, drawn: HyperDraws
    ) -> tuple[MixtureModel, bool]:
        """Solve for the conditional posterior mean of some of the draws."""
        draws = parameters_of(outcome, model, drawn, self.method)
        n_members = min(MEMBERS, len(draws))
        thetas = drawn.theta.reshape(len(draws), -1)[draws.chosen(n_members)]
        start = (outcome.fit.solution.mean, outcome.fit.solution.dual)
        equations, scale = outcome.fit.system.equations, outcome.training.scale
        tasks = [
            partial(self._solved, equations, model.kernels(theta), float(np.exp(theta[-1])), start)
            for theta in thetas
        ]
        with one_blas_thread():
            seconds = _SOLVE * n_members * equations.layout.size
            solved = run(tasks, seconds, in_place=True)
        duals, shifts, centres, met = (np.array(column) for column in zip(*solved, strict=True))
        mixture = MixtureModel(
            outcome.model(),
            draws,
            duals / scale,
            shifts,
            centres.reshape(n_members, -1) * scale,
            np.exp(thetas[:, -1]) * scale**2,
        )
        return mixture, bool(met.all()) and draws.mixed

    def _solved(
        self, equations: Any, kernels: list[Kernel], noise_variance: float, start: Pair
    ) -> tuple[Any, float, list[float], bool]:
        """Duals, constant, means of terms over the rows, and whether the solver was good enough."""
        system = AdditiveSystem(equations, kernels, noise_variance, constant=0.0)
        solution = SOLVERS[self.solver](system, tol=self.tol, max_iter=self.max_iter, start=start)
        centres = [
            equations.moments(d, mean)[0]
            for d, mean in enumerate(equations.layout.parts(solution.mean))
        ]
        return solution.dual, system.constant_at(solution.mean), centres, solution.converged


def parameters_of(
    outcome: GaussianOutcome, model: HyperModel, drawn: HyperDraws, method: str
) -> DrawnParameters:
    """Convert draws in units of the training rows to the user's units."""
    scale = outcome.training.scale
    terms, parameters, positions = [], [], []
    for position, (name, term) in enumerate(
        zip(model.equations.layout.names, model.terms, strict=True)
    ):
        for parameter in term.names:
            terms.append(name)
            parameters.append(parameter)
            positions.append(position)
    values = np.exp(drawn.theta)
    for k, parameter in enumerate(parameters):
        if parameter.startswith("variance"):
            values[..., k] *= scale**2
    # The variance that bins add to the noise is not part of the user's noise.
    values[..., -1] *= outcome.training.noise_scale * (1 - outcome.fit.bin_noise)
    return DrawnParameters(
        method,
        tuple(terms),
        tuple(parameters),
        tuple(positions),
        values,
        model.noise.is_fixed,
        outcome.log_likelihood(0.0) + drawn.log_likelihood,
        drawn.n_warmup,
        drawn.n_nodes,
        drawn.left_open,
    )


def _show_progress(bar: Any, done: list[int], sweeps: int) -> None:
    bar.update(sweeps - done[0])
    done[0] = sweeps
