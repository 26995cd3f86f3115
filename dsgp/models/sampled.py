"""A model that is kept as draws of projections, functions and hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import xarray as xr

from dsgp import memory
from dsgp.compute import one_blas_thread
from dsgp.models.additive import Solved
from dsgp.models.posterior import Posterior
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.sampling import DIAGNOSED, Sampled
from dsgp.models.started import StartedModel
from dsgp.models.term import FittedTerm
from dsgp.pursuit.gibbs import Draws, evaluate, moments
from dsgp.rows.sources import Rows
from dsgp.terms import Floats

_NUMBERS = ("n_chains", "evaluations")
_DIMENSIONS = ("chain", "draw", "projection", "input")


@dataclass(frozen=True)
class DrawsModel(StartedModel):
    """A posterior by draws; its terms are those of the initial model of the chains.

    Attributes
    ----------
    start : ProjectedModel
        Its intercept is that of the draws.
    draws : Draws
        Their inputs are the standardised columns of the projections of ``start``. Without a
        projection they are of the noise only.
    n_warmup : int
        Sweeps of each chain before.
    diagnostics : ndarray of shape (3, 2)
        As for ``Sampled``.
    """

    start: ProjectedModel
    draws: Draws
    n_warmup: int
    diagnostics: Floats

    @classmethod
    def of(cls, start: ProjectedModel, run: Sampled, offset: float) -> DrawsModel:
        """Keep a sampler's run on a target less an offset."""
        start = replace(start, intercept=offset + run.draws.level)
        return cls(start, run.draws, run.n_warmup, run.diagnostics)

    def __post_init__(self) -> None:
        """Check that the parts belong together: compiled loops do not."""
        if self.draws.directions.shape[2:] != (len(self.start.projected),):
            raise ValueError("the draws and the projections do not agree")

    # The terms are those of the initial model.

    @property
    def terms(self) -> list[FittedTerm]:
        """Terms that the chains began at."""
        return self.start.terms

    @property
    def intercept(self) -> float:
        """The mean where every centred term is 0."""
        return self.start.intercept

    @property
    def posterior(self) -> Posterior:
        """That of the start."""
        return self.start.posterior

    @property
    def std_note(self) -> str:
        """How standard deviations are computed, for people."""
        if not self.terms:
            return self.start.std_note
        return f"those of {len(self.draws)} draws, directions and hyperparameters unknown too"

    def _standard(self, columns: list[Floats]) -> Floats:
        """Convert ``used_columns`` of some rows to inputs of the draws, (n, D)."""
        assert self.start.projections is not None
        return self.start.projections.standard(columns)

    # ------------------------------------------------------------------ predictions

    def prepare(self, with_std: bool) -> None:
        """Prepare what all tasks of a prediction share."""
        if self.terms:
            self.draws.cubics  # noqa: B018
        else:
            self.start.prepare(with_std)

    def moments(self, rows: Rows, with_variance: bool) -> tuple[Floats, Floats | None]:
        """Mean of f at some rows, and on request its variance, over the draws."""
        if not self.terms:
            return self.start.moments(rows, with_variance)
        mean, variance = moments(self.draws, self._standard(rows.columns))
        return mean + (self.intercept - self.draws.level), variance if with_variance else None

    def component_moments(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each function at some rows, (n, n_terms)."""
        if not self.terms:
            return self.start.component_moments(rows)
        mean, variance = moments(self.draws, self._standard(rows.columns), by_term=True)
        return mean, np.sqrt(variance)

    def covariance(self, rows: Sequence[Rows]) -> Solved:
        """Covariance of f at some rows over the draws, (n, n)."""
        if not self.terms:
            return self.start.covariance(rows)
        joined = Rows.join(list(rows))
        memory.require(
            f"the covariance of {len(joined)} rows",
            8.0 * len(joined) * (2 * len(self.draws) + 2 * len(joined)),
            "pass fewer rows",
        )
        with one_blas_thread():
            functions = evaluate(self.draws, self._standard(joined.columns))
            functions -= functions.mean(axis=0)
            return Solved(functions.T @ functions / max(len(functions) - 1, 1), True)

    def sample(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Take some of the draws at random, each at most once while there are enough.

        Returns
        -------
        Solved
            Values of shape (n_samples, n_rows), and the noise variance of each draw.
        """
        if not self.terms:
            return self.start.sample(rows, n_samples, random, tol)
        joined = Rows.join(list(rows))
        memory.require(
            f"{n_samples} samples at {len(joined)} rows",
            16.0 * n_samples * len(joined),
            "ask for fewer samples or rows",
        )
        n_draws = len(self.draws)
        chosen = random.choice(n_draws, n_samples, replace=n_samples > n_draws)
        out = np.full((n_samples, len(joined)), self.intercept - self.draws.level)
        out += evaluate(self.draws, self._standard(joined.columns), chosen)
        return Solved(out, True, self.draws.noise_variance[chosen])

    def sample_components(
        self, rows: Sequence[Rows], n_samples: int, random: np.random.Generator, tol: float
    ) -> Solved:
        """Draw every term of the model that the chains began at, as ``ProjectedModel`` does."""
        return self.start.sample_components(rows, n_samples, random, tol)

    def component_draws(
        self,
        columns: list[Floats],
        n_rows: int,
        n_samples: int,
        random: np.random.Generator,
        tol: float,
    ) -> Solved:
        """Draw the terms of the model that the chains began at, each at inputs of its own."""
        return self.start.component_draws(columns, n_rows, n_samples, random, tol)

    # ------------------------------------------------------------------ reports and storage

    def dataset(self) -> xr.Dataset:
        """Return directions, variances and noise of the draws, by chain."""
        draws = self.draws
        per_chain = len(draws) // draws.n_chains

        def variable(values: Floats, name: str) -> tuple[tuple[str, ...], Floats, dict[str, str]]:
            shaped = values.reshape(draws.n_chains, per_chain, *values.shape[1:])
            return _DIMENSIONS[: shaped.ndim], shaped, {"long_name": name}

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
            coords={"projection": self.names, "input": list(self.start.projected)},
        )

    def named_diagnostics(self) -> dict[str, dict[str, float]]:
        """Return R-hat and effective sample size of noise, predictions and log likelihood."""
        return {
            name: {"rhat": float(rhat), "effective_sample_size": float(size)}
            for name, (rhat, size) in zip(DIAGNOSED, self.diagnostics, strict=True)
        }

    def lines(self) -> list[tuple[str, str]]:
        """Lines of a summary."""
        (noise, size), (rhat, least), _ = self.diagnostics
        return [
            (
                "sampling",
                f"{len(self.draws)} draws in {self.draws.n_chains} chains, each after "
                f"{self.n_warmup} sweeps; noise and predictions are those of the draws, all else "
                "has its initial value",
            ),
            ("R-hat", f"noise variance {noise:.2f}, predictions {rhat:.2f} (95 % quantile)"),
            (
                "effective draws",
                f"noise variance {size:.0f}, predictions {least:.0f} (5 % quantile)",
            ),
        ]

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return numbers and arrays that ``restored`` takes."""
        arrays = {field.name: getattr(self.draws, field.name) for field in fields(Draws)}
        numbers = {name: arrays.pop(name) for name in _NUMBERS} | {"n_warmup": self.n_warmup}
        return numbers, arrays

    @classmethod
    def restored(
        cls,
        start: ProjectedModel,
        numbers: dict[str, Any],
        arrays: dict[str, Any],
        diagnostics: Floats,
    ) -> DrawsModel:
        """Undo ``stored``."""
        draws = Draws(**arrays, **{name: numbers[name] for name in _NUMBERS})
        return cls(start, draws, numbers["n_warmup"], diagnostics)
