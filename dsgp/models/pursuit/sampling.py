"""Runs of a sampler of projections, in the user's units."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dsgp import memory
from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Matern
from dsgp.pursuit.chain import Priors
from dsgp.pursuit.gibbs import Draws, evaluate, sample
from dsgp.pursuit.joint import State
from dsgp.pursuit.projection import Rows as ProjectionRows
from dsgp.pursuit.rows import Standard
from dsgp.sampling.diagnostics import effective_sample_size, split_rhat
from dsgp.terms import Floats

# R-hat above which chains do not agree.
RHAT_LIMIT = 1.1
# Number of training rows at which the mixing of the function is judged, and the share of them that
# must have mixed.
_JUDGED_ROWS, _JUDGED_SHARE = 200, 0.95
_NODES = 48
_ROW_NUMBERS = 16  # per row in each chain, in addition to one per function
DIAGNOSED = ("noise_variance", "predictions", "log_likelihood")


@dataclass(frozen=True)
class Sampled:
    """A sampler's run, in the user's units but for standardised inputs.

    Attributes
    ----------
    draws : Draws
    n_warmup : int
    diagnostics : ndarray of shape (3, 2)
        R-hat and effective sample size of the noise variance, of the function at training rows
        (the 95 % quantile of the one, the 5 % quantile of the other) and of the log likelihood.
    """

    draws: Draws
    n_warmup: int
    diagnostics: Floats

    @property
    def mixed(self) -> bool:
        """Whether the chains agree."""
        return bool((self.diagnostics[:2, 0] <= RHAT_LIMIT).all())

    def shifted(self, log_jacobian: float) -> Sampled:
        """Return the run with log densities of a target whose transform it was of."""
        shifted = self.draws.log_likelihood + log_jacobian
        return replace(self, draws=replace(self.draws, log_likelihood=shifted))

    def warn(self, stacklevel: int = 3) -> None:
        """Warn where the chains do not agree; ``stacklevel`` leads to who called ``fit``."""
        for name, rhat in zip(DIAGNOSED[:2], self.diagnostics[:2, 0], strict=True):
            if not rhat <= RHAT_LIMIT:  # also for NaN
                what = name.replace("_", " ")
                complaint = (
                    f"R-hat of the {what} is {rhat:.2f}, above {RHAT_LIMIT:g}: the chains have not "
                    "mixed well"
                    if rhat > RHAT_LIMIT
                    else f"too few draws to judge whether the {what} has mixed"
                )
                warnings.warn(
                    f"{complaint}; raise n_warmup or n_draws",
                    ConvergenceWarning,
                    stacklevel=stacklevel,
                )


def sampled(
    rows: ProjectionRows,
    state: State,
    standard: Standard,
    kernel: Matern,
    *,
    n_draws: int,
    n_warmup: int,
    n_chains: int,
    random: np.random.Generator,
    watch: Callable[[int], None],
) -> Sampled:
    """Draw from the posterior, with chains that begin at a state.

    The sampler works in the coordinates of the state's frame: there inputs are white, or have
    precisions of their own.
    """
    frame, terms = state.frame, state.ridges.terms
    memory.require(
        f"sampling {len(rows)} rows with {len(terms)} projections",
        8.0 * len(rows) * (frame.size + n_chains * (len(terms) + _ROW_NUMBERS))
        + 48.0 * n_draws * len(terms) * _NODES
        + 16.0 * n_draws * _JUDGED_ROWS,
        "fewer rows or draws, or method='refit'",
    )
    inputs = rows.inputs if frame.relevance else rows.inputs @ frame.basis
    lengthscales = np.array([float(term.kernel.lengthscale or 1.0) for term in terms])
    draws = sample(
        replace(rows, inputs=inputs),
        state.coordinates / lengthscales[:, None],
        [float(term.kernel.variance or 1.0) for term in terms],
        state.noise_variance,
        kernel=kernel,
        priors=Priors(relevance=frame.relevance, fixed_noise=state.fixed_noise, constant=True),
        n_samples=n_draws,
        n_warmup=n_warmup,
        n_chains=n_chains,
        n_nodes=_NODES,
        random=random,
        watch=watch,
    )
    judged = random.choice(len(rows), min(len(rows), _JUDGED_ROWS), replace=False)
    functions = evaluate(draws, inputs[judged]).reshape(n_chains, -1, len(judged))
    numbers = draws.diagnostics
    mixing = np.array([numbers["noise_variance"], _mixing(functions), numbers["log_likelihood"]])
    return Sampled(_in_units(draws, standard, frame.basis, len(rows)), n_warmup, mixing)


def _mixing(functions: Floats) -> tuple[float, float]:
    """R-hat and effective sample size that most rows reach, from values (n_chains, draws, n)."""
    rows = np.moveaxis(functions, 2, 0)
    rhat = np.quantile([split_rhat(row) for row in rows], _JUDGED_SHARE)
    size = np.quantile([effective_sample_size(row) for row in rows], 1 - _JUDGED_SHARE)
    return float(rhat), float(size)


def _in_units(draws: Draws, standard: Standard, basis: Floats, n_rows: int) -> Draws:
    """Directions of standardised inputs, and all else in the units of the target."""
    squared = standard.spread**2
    return replace(
        draws,
        directions=np.ascontiguousarray(draws.directions @ basis.T),
        values=draws.values * standard.spread,
        centres=draws.centres * standard.spread,
        interpolation_error=draws.interpolation_error * standard.spread,
        variances=draws.variances * squared,
        noise_variance=draws.noise_variance * squared * standard.weight_scale,
        log_likelihood=draws.log_likelihood - n_rows * np.log(standard.spread),
    )
