"""Gibbs sampling of projected additive regression, the paper's PPGPR-MCMC (Section sec:MCMC).

y_i = Σ_m f_m(x_i·w_m) + ε_i, f_m ~ GP(0, s_m² k), ε_i ~ N(0, σ²/weight_i) (Equations ppadd to
ppr). k has a lengthscale of 1: the length of w_m is the inverse one. A sweep visits the terms in
turn. With r_m the target less the other functions it draws

1. (w_m, log s_m²) given r_m and σ², f_m integrated out: slice updates (``sampling.slices``) on the
   exact one-dimensional marginal likelihood, O(n log n) each;
2. f_m given those, by simulation smoothing (Durbin & Koopman 2002), O(n).

Then follow σ² given the functions, from its inverse gamma distribution, and the precisions α of the
directions given these, from their gamma distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike

from dsgp.compute import one_blas_thread, run
from dsgp.errors import ParameterError
from dsgp.kernels import Matern, Matern52
from dsgp.pursuit.chain import Chain, Draw, Model, Priors
from dsgp.pursuit.projection import Rows
from dsgp.pursuit.splines import evaluate_splines, natural_splines
from dsgp.sampling.diagnostics import effective_sample_size, split_rhat
from dsgp.terms import Floats

# Number of rows from which they are put into bins along a projection, and the least number of bins.
_MANY_ROWS, _BINS = 20_000, 8192
_SEGMENTS = 20
_SWEEP = 1e-6  # seconds per row and term
_EVALUATE = 5e-8  # seconds per row, term and draw
_BLOCK = 2**13
# Smallest allowed values of the arguments of ``sample``.
_LEAST = {"n_samples": 1, "n_warmup": 0, "n_chains": 1, "thin": 1, "n_nodes": 4}


@dataclass(frozen=True)
class Draws:
    """Draws from the posterior; S of them, chain after chain.

    A function is kept as its values at K nodes, drawn together with those at the rows. Between the
    nodes it is a natural cubic spline, and beyond them a straight line.

    Attributes
    ----------
    directions : ndarray of shape (S, M, D)
    nodes, values : ndarray of shape (S, M, K)
        Nodes along the projections x·w_m, and the functions there.
    variances : ndarray of shape (S, M)
        s_m².
    centres : ndarray of shape (S, M)
        Weighted mean of each function over the rows.
    noise_variance : ndarray of shape (S,)
    precision : ndarray of shape (S, D)
        α.
    log_likelihood : ndarray of shape (S,)
        Log density of the targets given functions and noise.
    interpolation_error : ndarray of shape (S,)
        Root of the weighted mean square, over the rows, of the error of the splines in the sum.
        With 48 nodes and Matérn 5/2 it was at most 0.008 noise standard deviations on pumadyn8-nm.
    n_chains : int
    evaluations : float
        Likelihoods computed per update of a direction.
    """

    directions: Floats
    nodes: Floats
    values: Floats
    variances: Floats
    centres: Floats
    noise_variance: Floats
    precision: Floats
    log_likelihood: Floats
    interpolation_error: Floats
    n_chains: int
    evaluations: float

    def __len__(self) -> int:
        return len(self.noise_variance)

    @property
    def level(self) -> float:
        """Mean over draws and rows of the sum of all functions."""
        return float(self.centres.sum(axis=1).mean())

    @cached_property
    def cubics(self) -> Floats:
        """Coefficients of the splines, (S, M, K − 1, 4), from constant to cubic."""
        return natural_splines(self.nodes, self.values)

    @cached_property
    def diagnostics(self) -> dict[str, tuple[float, float]]:
        """Split R-hat and effective sample size of noise variance and log likelihood.

        Other numbers may not have mixed: parts of the functions that their sum does not determine
        move between them. Chains begin near each other, so that nothing is known of other modes.
        """
        chains = {
            "noise_variance": self.noise_variance.reshape(self.n_chains, -1),
            "log_likelihood": self.log_likelihood.reshape(self.n_chains, -1),
        }
        return {name: (split_rhat(x), effective_sample_size(x)) for name, x in chains.items()}


def sample(
    rows: Rows,
    directions: ArrayLike,
    variances: ArrayLike,
    noise_variance: float,
    *,
    kernel: Matern | None = None,
    priors: Priors | None = None,
    n_samples: int = 400,
    n_warmup: int = 200,
    n_chains: int = 2,
    thin: int = 1,
    n_nodes: int = 48,
    n_bins: int | None = None,
    random: np.random.Generator,
    watch: Callable[[int], None] = lambda sweeps: None,
) -> Draws:
    """Draw from the posterior of directions, functions, kernels and noise.

    Parameters
    ----------
    rows : Rows
        Inputs in standard units, (n, D), and a centred target of variance about 1, (n,).
    directions : array_like of shape (M, D)
        Initial values: directions of unit projections divided by their kernels' lengthscales.
    variances : array_like of shape (M,)
        Initial values of s_m².
    noise_variance : float
        Initial value of σ², of a row of weight 1.
    kernel : kernel, optional
        Only its type matters, Matérn 3/2 or smoother. Default Matérn 5/2.
    priors : Priors, optional
    n_samples : int
        Draws in all; rounded up to as many for each chain.
    n_warmup : int
        Sweeps of each chain before.
    n_chains : int
        Independent chains, as tasks; the result does not depend on how many run at once.
    thin : int
        Sweeps from one draw to the next.
    n_nodes : int
        K, at least 4.
    n_bins : int, optional
        Bins along a projection. None: 8192 from 20 000 rows on, and none below.
    random : Generator
    watch : callable
        Called with the number of sweeps that all chains have done.

    Returns
    -------
    Draws

    Notes
    -----
    A term moves while the others are fixed, and smooth functions of projections can compensate each
    other's changes: a sum of squares has many axes. Then directions, and with them the log
    likelihood, mix slowly, the sum of the functions and the noise much faster. On pumadyn8-nm (7168
    rows) with 6 terms, 2 chains and 200 + 200 sweeps of 0.06 to 0.1 s each, the effective sample
    size of the noise variance was 250, of the function at a test row 26 (median), of the log
    likelihood 5 (its R-hat 1.3); the NMSE of the two chains was 0.0350 and 0.0352.

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.pursuit.gibbs import evaluate, sample
    >>> from dsgp.pursuit.projection import Rows
    >>> random = np.random.default_rng(0)
    >>> inputs = random.standard_normal((200, 2))
    >>> target = np.sin(2 * inputs @ [0.6, 0.8]) + 0.1 * random.standard_normal(200)
    >>> rows = Rows(inputs, target, np.empty(0))
    >>> draws = sample(rows, [[0.9, 0.9]], [1.0], 0.02, n_samples=60, n_warmup=60, random=random)
    >>> w = draws.directions[:, 0]
    >>> (w / np.linalg.norm(w, axis=1)[:, None]).mean(axis=0).round(1)
    array([0.6, 0.8])
    >>> evaluate(draws, inputs[:5]).shape
    (60, 5)
    """
    _require_counts(
        n_samples=n_samples, n_warmup=n_warmup, n_chains=n_chains, thin=thin, n_nodes=n_nodes
    )
    variances = np.array(variances, dtype=np.float64)
    directions = np.array(directions, dtype=np.float64)
    directions = directions.reshape(len(directions), rows.inputs.shape[1])
    if variances.shape != (len(directions),) or not (variances > 0).all():
        raise ParameterError(f"variances must be {len(directions)} positive numbers")
    if not 0 < noise_variance < math.inf:
        raise ParameterError(f"noise_variance must be a positive number, got {noise_variance!r}")
    if n_bins is None and len(rows) >= _MANY_ROWS:
        n_bins = _BINS
    model = Model(rows, kernel or Matern52(), priors or Priors(), n_bins)
    per_chain = -(-n_samples // n_chains)
    chains = [
        Chain(model, directions, variances, noise_variance, seed) for seed in random.spawn(n_chains)
    ]
    total = n_warmup + per_chain * thin
    advance = partial(Chain.advance, n_warmup=n_warmup, thin=thin, n_nodes=n_nodes)
    return _collected(_run_chains(chains, rows, total, advance, watch))


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < _LEAST[name]:
            raise ParameterError(f"{name} must be at least {_LEAST[name]}, got {value!r}")


def _run_chains(
    chains: list[Chain],
    rows: Rows,
    n_sweeps: int,
    advance: Callable[..., Chain],
    watch: Callable[[int], None],
) -> list[Chain]:
    """Advance all chains side by side to ``n_sweeps`` sweeps, and report progress."""
    ends = np.unique(np.linspace(0, n_sweeps, _SEGMENTS + 1).round().astype(int))[1:]
    terms = max(len(chains[0].theta), 1)
    # Cached properties of the rows are computed before tasks share them.
    _ = rows.share, rows.n_positive, rows.log_weight
    with one_blas_thread():
        for end in ends:
            tasks = [partial(advance, chain, int(end)) for chain in chains]
            seconds = _SWEEP * len(rows) * terms * n_sweeps / len(ends) * len(chains)
            # In this process: a chain is as long as the rows, and would have to travel both ways.
            chains = run(tasks, seconds, in_place=True)
            watch(int(end))
    return chains


def _collected(chains: list[Chain]) -> Draws:
    """Put the draws of all chains one after the other."""
    kept = [draw for chain in chains for draw in chain.kept]
    updates = sum(chain.updates for chain in chains)
    stacked = {
        name: np.array(column)
        for name, column in zip(Draw._fields, zip(*kept, strict=True), strict=True)
    }
    return Draws(
        **stacked,
        n_chains=len(chains),
        evaluations=sum(chain.evaluations for chain in chains) / max(updates, 1),
    )


def evaluate(draws: Draws, inputs: Floats, chosen: ArrayLike | None = None) -> Floats:
    """Sum the functions of each draw at inputs of any rows; no noise is added.

    Parameters
    ----------
    draws : Draws
    inputs : ndarray of shape (n, D)
    chosen : array_like of int, shape (k,), optional
        Draws to use. None: all of them.

    Returns
    -------
    ndarray of shape (k, n)
    """
    inputs = _checked(draws, inputs)
    chosen = np.arange(len(draws)) if chosen is None else np.asarray(chosen)
    out = np.empty((len(chosen), len(inputs)))

    def fill(k: int) -> None:
        for start in range(0, len(inputs), _BLOCK):
            part = slice(start, start + _BLOCK)
            out[k, part] = _values(draws, int(chosen[k]), inputs[part]).sum(axis=1)

    _ = draws.cubics  # computed before tasks share them
    seconds = _EVALUATE * out.size * draws.nodes.shape[1]
    run([partial(fill, k) for k in range(len(chosen))], seconds, in_place=True)
    return out


def moments(draws: Draws, inputs: Floats, by_term: bool = False) -> tuple[Floats, Floats]:
    """Mean and variance over the draws of the sum of all functions.

    Parameters
    ----------
    draws : Draws
    inputs : ndarray of shape (n, D)
        A block of rows: the draws are visited one after the other.
    by_term : bool
        Of each function minus its ``centres`` instead.

    Returns
    -------
    mean, variance : ndarray of shape (n,), or (n, M)
    """
    inputs = _checked(draws, inputs)
    shape = (len(inputs), draws.nodes.shape[1]) if by_term else (len(inputs),)
    mean, squares = np.zeros(shape), np.zeros(shape)
    for s in range(len(draws)):
        drawn_values = _values(draws, s, inputs)
        drawn_values = drawn_values - draws.centres[s] if by_term else drawn_values.sum(axis=1)
        away = drawn_values - mean
        mean += away / (s + 1)
        squares += away * (drawn_values - mean)
    return mean, squares / max(len(draws) - 1, 1)


def _values(draws: Draws, s: int, inputs: Floats) -> Floats:
    """Functions of one draw, (n, M)."""
    return evaluate_splines(inputs, draws.directions[s], draws.nodes[s], draws.cubics[s])


def _checked(draws: Draws, inputs: Floats) -> Floats:
    inputs = np.ascontiguousarray(inputs, dtype=np.float64)
    if inputs.ndim != 2 or inputs.shape[1] != draws.directions.shape[2]:
        raise ParameterError(
            f"inputs must have shape (n, {draws.directions.shape[2]}), got {inputs.shape}"
        )
    return inputs
