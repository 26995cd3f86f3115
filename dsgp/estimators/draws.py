"""Posteriors that are kept as draws: from a sampler's run to predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from dsgp import memory
from dsgp.compute import one_blas_thread
from dsgp.errors import ConvergenceWarning
from dsgp.estimators.parameters import require_count
from dsgp.estimators.predicting import AdditivePredictor
from dsgp.kernels import Matern
from dsgp.pursuit.chain import Priors
from dsgp.pursuit.diagnostics import effective_sample_size, split_rhat
from dsgp.pursuit.gibbs import Draws, evaluate, moments, sample
from dsgp.pursuit.joint import State
from dsgp.pursuit.projection import Rows as ProjectionRows
from dsgp.pursuit.rows import Standard
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

# R-hat beyond which chains do not agree.
RHAT_LIMIT = 1.1
# Training rows at which the function's mixing is judged, and the share of them that must do so.
_JUDGED_ROWS, _JUDGED_SHARE = 200, 0.95
_NODES = 48
_ROW_NUMBERS = 16  # of a row, beside one a function, in each chain
_DIAGNOSED = ("noise_variance", "predictions", "log_likelihood")
_NUMBERS = ("n_chains", "evaluations")
_DIMENSIONS = ("chain", "draw", "projection", "input")


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

    def warn(self) -> None:
        """Warn where the chains do not agree; called by ``fit``s."""
        for name, rhat in zip(_DIAGNOSED[:2], self.diagnostics[:2, 0], strict=True):
            if not rhat <= RHAT_LIMIT:  # NaN, too
                what = name.replace("_", " ")
                told = (
                    f"R-hat of the {what} is {rhat:.2f}, above {RHAT_LIMIT:g}: the chains have not "
                    "mixed well"
                    if rhat > RHAT_LIMIT
                    else f"too few draws to tell whether the {what} has mixed"
                )
                warnings.warn(
                    f"{told}; raise n_warmup or n_draws", ConvergenceWarning, stacklevel=3
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
    told = draws.diagnostics
    mixing = np.array([told["noise_variance"], _mixing(functions), told["log_likelihood"]])
    return Sampled(_in_units(draws, standard, frame.basis, len(rows)), n_warmup, mixing)


def _mixing(functions: Floats) -> tuple[float, float]:
    """R-hat and effective sample size that most rows are as good as, (n_chains, draws, n)."""
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


class DrawsPredictor(AdditivePredictor):
    """An additive predictor that predicts by draws, where its fit has kept some.

    Then its terms are those that the chains began at. Its ``fit`` calls ``_keep_draws`` after
    ``_keep``, and a class says in ``_standard`` and ``_used_names`` what the inputs of the draws
    are.
    """

    _plain_attributes: ClassVar[tuple[str, ...]] = (
        *AdditivePredictor._plain_attributes,
        "_sampling",
    )
    _array_attributes: ClassVar[tuple[str, ...]] = ("_drawn", "_diagnostics")

    @property
    def _used_names(self) -> list[str]:
        """Names of the inputs of the draws."""
        raise NotImplementedError

    def _standard(self, columns: list[Floats]) -> Floats:
        """Turn ``used_columns_`` of some rows into inputs of the draws, (n, D)."""
        raise NotImplementedError

    def _keep_draws(self, run: Sampled | None, offset: float) -> None:
        """Take over a sampler's run on a target less an offset, or that there was none."""
        # Instead of those of an earlier fit; a prediction then changes nothing of the model.
        self.__dict__["_draws"] = None if run is None else run.draws
        self._drawn: dict[str, Any] = {}  # arrays
        self._sampling: dict[str, Any] = {}
        self._diagnostics = np.empty((0, 2))
        if run is None:
            return
        kept = {field.name: getattr(run.draws, field.name) for field in fields(Draws)}
        self._sampling = {name: kept.pop(name) for name in _NUMBERS} | {"n_warmup": run.n_warmup}
        self._drawn = kept
        self._diagnostics = run.diagnostics
        self.noise_variance_ = float(run.draws.noise_variance.mean())
        self.intercept_ = offset + run.draws.level

    @cached_property
    def _draws(self) -> Draws | None:
        check_is_fitted(self)
        if not self._drawn:
            return None
        return Draws(**self._drawn, **{name: self._sampling[name] for name in _NUMBERS})

    def _require_draws(self, name: str) -> Draws:
        if self._draws is None:
            raise AttributeError(f"there is no {name}: only method='gibbs' draws")
        return self._draws

    @property
    def draws_(self) -> xr.Dataset:
        """Draws of directions, variances and noise, by chain."""
        draws = self._require_draws("draws_")
        per_chain = len(draws) // draws.n_chains

        def variable(values: Floats, told: str) -> tuple[tuple[str, ...], Floats, dict[str, str]]:
            shaped = values.reshape(draws.n_chains, per_chain, *values.shape[1:])
            return _DIMENSIONS[: shaped.ndim], shaped, {"long_name": told}

        return xr.Dataset(
            {
                "directions": variable(
                    draws.directions, "weights of standardised inputs / lengthscale"
                ),
                "variances": variable(draws.variances, "prior variance of each function"),
                "noise_variance": variable(draws.noise_variance, "of a row of weight 1"),
                "log_likelihood": variable(
                    draws.log_likelihood, "log density of the targets given functions and noise"
                ),
            },
            coords={
                "projection": [term.name for term in self.terms_],
                "input": self._used_names,
            },
        )

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of noise variance, predictions and log likelihood."""
        self._require_draws("diagnostics_")
        return {
            name: {"rhat": float(rhat), "effective_sample_size": float(size)}
            for name, (rhat, size) in zip(_DIAGNOSED, self._diagnostics, strict=True)
        }

    # ------------------------------------------------------------------ predicting

    def _moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        if self._draws is None or not self.terms_:
            return super()._moments(rows, with_variance)
        mean, variance = moments(self._draws, self._standard(rows.columns))
        return mean + (self.intercept_ - self._draws.level), variance if with_variance else None

    def _component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        if self._draws is None or not self.terms_:
            return super()._component_moments(rows)
        mean, variance = moments(self._draws, self._standard(rows.columns), by_term=True)
        return mean, np.sqrt(variance)

    def _prepare(self, with_std: bool) -> None:
        if self._draws is None or not self.terms_:
            super()._prepare(with_std)
        else:
            self._draws.cubics  # noqa: B018

    @property
    def _std_note(self) -> str:
        if self._draws is None or not self.terms_:
            return super()._std_note
        return f"those of {len(self._draws)} draws, directions and hyperparameters unknown too"

    def covariance(self, X: Any, include_noise: bool = False) -> Floats:
        """Joint posterior covariance of f at chosen rows.

        Exact for given directions, one solve a row, with what the uncertainty of the directions
        adds; where the fit kept draws, that of the draws.

        Parameters
        ----------
        X : table
            Rows to predict, as for ``predict``; some hundreds.
        include_noise : bool
            Add σ² on the diagonal: the covariance of new observations of weight 1.

        Returns
        -------
        ndarray of shape (n_rows, n_rows), in squared units of the target

        Raises
        ------
        MemoryLimitError
            If the tables of so many rows would not fit.
        """
        if self._draws is None or not self.terms_:
            return super().covariance(X, include_noise)
        rows = Rows.join([load() for load in self._rows_of(X)])
        memory.require(
            f"the covariance of {len(rows)} rows",
            8.0 * len(rows) * (2 * len(self._draws) + 2 * len(rows)),
            "pass fewer rows",
        )
        noise = np.eye(len(rows)) * (self.noise_variance_ if include_noise else 0.0)
        with one_blas_thread():
            functions = evaluate(self._draws, self._standard(rows.columns))
            functions -= functions.mean(axis=0)
            noise += functions.T @ functions / max(len(functions) - 1, 1)
        return noise

    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: int | np.random.Generator | None = None,
        include_noise: bool = False,
    ) -> Floats:
        """Draw functions from the joint posterior.

        By perturbing the data and solving; where the fit kept draws, some of these at random, each
        at most once while there are enough.

        Parameters
        ----------
        X : table
            Rows at which the draws are evaluated.
        n_samples : int
        random_state : int or numpy.random.Generator, optional
            By default that of the model.
        include_noise : bool
            Draw new observations of weight 1 instead of f; a kept draw has its own σ².

        Returns
        -------
        ndarray of shape (n_samples, n_rows)
        """
        draws = self._draws
        if draws is None or not self.terms_:
            return super().sample(X, n_samples, random_state, include_noise)
        require_count("n_samples", n_samples)
        random = np.random.default_rng(self.random_state if random_state is None else random_state)
        rows = Rows.join([load() for load in self._rows_of(X)])
        memory.require(
            f"{n_samples} samples at {len(rows)} rows",
            16.0 * n_samples * len(rows),
            "ask for fewer samples or rows",
        )
        chosen = random.choice(len(draws), n_samples, replace=n_samples > len(draws))
        out = np.full((n_samples, len(rows)), self.intercept_ - draws.level)
        out += evaluate(draws, self._standard(rows.columns), chosen)
        if include_noise:
            root = np.sqrt(draws.noise_variance[chosen, None])
            out += root * random.standard_normal(out.shape)
        return out

    # ------------------------------------------------------------------ telling

    def _tell_draws(self) -> list[tuple[str, str]]:
        """Lines for a summary."""
        draws = self._draws
        if draws is None:
            return []
        (noise, size), (rhat, least), _ = self._diagnostics
        return [
            (
                "sampling",
                f"{len(draws)} draws in {draws.n_chains} chains, each after "
                f"{self._sampling['n_warmup']} sweeps; noise and predictions are theirs, all else "
                "is the start",
            ),
            ("R-hat", f"noise variance {noise:.2f}, predictions {rhat:.2f} (95 % quantile)"),
            (
                "effective draws",
                f"noise variance {size:.0f}, predictions {least:.0f} (5 % quantile)",
            ),
        ]
