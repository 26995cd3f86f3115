"""A Gaussian process of a field on a grid, with its hyperparameters, conditioned on the field.

No estimator: hyperparameters are learned in `dsgp.grid.learning`; options, transforms and the
user's layout are those of `dsgp.estimators.grid`. Numbers are on the scale that is modelled, in the
layout of the field's axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from dsgp.grid.constant import UnknownConstant
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.field import Field
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.grid.means import Mean
from dsgp.grid.points import amplitude
from dsgp.grid.systems import GappySystem, complete_system
from dsgp.grid.targets import Targets
from dsgp.kernels import Stationary
from dsgp.terms import Floats


@dataclass(frozen=True)
class Solving:
    """Options for solving fields with gaps and for their variances, as for ``GridGP``.

    Attributes
    ----------
    variance : str
    n_neighbours, n_draws : int
    tol : float
    max_iter : int
    seed : int
    """

    variance: str
    n_neighbours: int
    n_draws: int
    tol: float
    max_iter: int
    seed: int


@dataclass(frozen=True)
class Conditioning:
    """How a model was conditioned on its field.

    Attributes
    ----------
    method, variance_method : str
        As ``method_`` and ``variance_method_`` of ``GridGP``.
    variance_error : float or None
    log_marginal_likelihood : float
    iterations : int
        Of conjugate gradients; 0 where there are none.
    residual : float
    converged : bool
    """

    method: str
    variance_method: str
    variance_error: float | None
    log_marginal_likelihood: float
    iterations: int = 0
    residual: float = 0.0
    converged: bool = True


class FieldModel:
    """A field, its prior and what follows from both.

    Parameters
    ----------
    field : Field
    mean : Mean
        The prior mean.
    terms : tuple of C tuples of D kernels
        Separable terms of the covariance; the first ``n_effects`` are a climatology.
    noise : float or ndarray of the field's shape
        Noise variance, or that of each cell.
    solving : Solving
    n_effects : int
    constant_is_unknown : bool
        Whether the constant of the mean is estimated, and its error counted.
    dual : ndarray of the field's shape, optional
        (K + R)⁻¹ y of a field with gaps, if that has been solved already.
    """

    def __init__(
        self,
        field: Field,
        mean: Mean,
        terms: tuple[tuple[Stationary, ...], ...],
        noise: float | Floats,
        solving: Solving,
        *,
        n_effects: int = 0,
        constant_is_unknown: bool = False,
        dual: Floats | None = None,
    ) -> None:
        self.field, self.mean = field, mean
        self.terms, self.n_effects = terms, n_effects
        self.noise, self.solving = noise, solving
        self.constant_is_unknown = constant_is_unknown
        self.dual = dual

    @property
    def points(self) -> tuple[Floats, ...]:
        """Points of each axis."""
        return tuple(axis.points for axis in self.field.axes)

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Which cells have a value."""
        seen = self.field.observed
        return np.ones(self.field.shape, dtype=bool) if seen is None else seen

    def residuals(self) -> Floats:
        """The field minus its prior mean; 0 where missing."""
        return residuals_of(self.field, self.mean)

    @cached_property
    def system(self) -> Any:
        """K + R of the observed cells: one of a complete field, or a ``GappySystem``."""
        complete = self.field.observed is None and not isinstance(self.noise, np.ndarray)
        if complete and len(self.terms) == 1:
            return complete_system(list(self.points), self.terms[0], float(self.noise))
        domain, solving = self.field.domain, self.solving
        return GappySystem(
            SeparableSum(self.points, self.terms),
            self.observed,
            self.noise,
            domain=None if domain is None else np.broadcast_to(domain, self.field.shape),
            variance=solving.variance,
            n_neighbours=solving.n_neighbours,
            n_draws=solving.n_draws,
            tol=solving.tol,
            max_iter=solving.max_iter,
            seed=solving.seed,
        )

    @cached_property
    def constant(self) -> UnknownConstant | None:
        """Posterior of the constant, if that is unknown."""
        if not self.constant_is_unknown:
            return None
        solved = self.system.solve(self.observed.astype(float))
        return UnknownConstant.of(solved[0] if isinstance(solved, tuple) else solved)

    def condition(self) -> Conditioning:
        """Estimate the constant, solve the system, and report how well it is solved."""
        system, y = self.system, self.residuals()
        shift = 0.0 if self.constant is None else self.constant.estimate(y)
        if shift:
            self.mean = self.mean.shifted(shift)
            y = self.residuals()
        if not isinstance(system, GappySystem):
            method = "kronecker" if isinstance(system, KroneckerSystem) else "fibres"
            return Conditioning(method, "exact", None, float(system.log_marginal_likelihood(y)))
        self.dual, solve = system.solve(y)
        value = float(system.log_marginal_likelihood(y))
        variance_method, variance_error = system.settle_variance()
        method = "dense" if system.is_dense else "conjugate gradients"
        if solve is None:
            return Conditioning(method, variance_method, variance_error, value)
        return Conditioning(
            method,
            variance_method,
            variance_error,
            value,
            solve.iterations,
            solve.residual,
            solve.converged,
        )

    def prior_mean(self) -> Floats:
        """The prior mean, with the climatology that is a term: a number, or one for each cell."""
        if self.n_effects and self.dual is not None:
            effects = SeparableSum(self.points, self.terms[: self.n_effects])
            return self.mean.constant + effects.multiply(self.dual)
        if self.mean.spec in ("constant", "zero", "number"):
            return np.array(self.mean.constant)
        return np.array(self.mean.on_field())

    def left(self, y: Floats) -> Floats:
        """Residuals of the posterior mean: noise times dual."""
        dual = self._solved if isinstance(self.system, GappySystem) else self.system.solve(y)
        return np.asarray(self.noise * dual)

    # ------------------------------------------------------------------ posterior

    def posterior(self, include_noise: bool = False) -> tuple[Floats, Floats]:
        """Posterior mean and variance at the field's own cells.

        Raises
        ------
        DataError
            With ``include_noise``, if a cell that is filled has no noise variance.
        """
        mean, variance = self._posterior_of_residuals()
        if self.constant is not None:
            variance = self.constant.add_variance(variance, self._share())
        uncertain = self.mean.uncertain()
        if uncertain is not None:
            variance += self._variance_of_averages(variance, uncertain.on_field())
        mean += _without_gaps(self.mean.on_field(), self.mean.constant)
        if include_noise:
            lacking = np.isnan(self.noise) & np.isfinite(variance)
            if lacking.any():
                raise DataError(
                    f"include_noise: the noise given for each cell has no positive number at "
                    f"{int(lacking.sum())} cells that are filled; give it there too, or leave "
                    "include_noise out"
                )
            variance += self.noise
        return mean, variance

    def predict(self, targets: Targets, include_noise: bool = False) -> tuple[Floats, Floats]:
        """Posterior mean and variance on another grid, or at points.

        ``include_noise`` needs one noise variance for all cells.
        """
        system, y, points = self.system, self.residuals(), targets.points
        uncertain = self.mean.uncertain()
        if targets.together:
            axes = targets.together
            if isinstance(system, GappySystem):
                mean = system.mean_at(self._solved, points, axes)
                variance = system.variance_at(points, axes)
            else:
                mean, variance = system.predict_at(points, axes, y)
            before = self.mean.at_points(targets)
            shares = None if uncertain is None else uncertain.at_points(targets)
        else:
            if isinstance(system, GappySystem):
                mean, variance = system.mean(self._solved, points), system.variance(points)
            else:
                mean, variance = system.predict(points, y)
            before = self.mean.at(targets.coords)
            shares = None if uncertain is None else uncertain.at(targets.coords)
        if shares is not None:
            variance = variance + self._variance_of_averages(variance, shares)
        if self.constant is not None:
            share = self._share(points, targets.together)
            variance = self.constant.add_variance(variance, share)
        mean = mean + _without_gaps(before, self.mean.constant)
        if include_noise:
            variance = variance + self.noise
        return mean, variance

    def sample(self, n_samples: int, seed: int, targets: Targets | None = None) -> Floats:
        """Draw from the joint posterior at the field's own cells, or on another grid.

        Returns
        -------
        ndarray of shape (n_samples, …)
        """
        random = np.random.default_rng([seed, 3])
        points = None if targets is None else targets.points
        draws = np.array(self.system.sample(self.residuals(), n_samples, random, points))
        if self.constant is not None:
            errors = np.random.default_rng([seed, 4])
            draws += self.constant.deviations(n_samples, errors, self._share(points))
        coords = {} if targets is None else targets.coords
        if self.mean.shares is not None:
            averages = np.random.default_rng([seed, 5])
            for draw in draws:
                draw += self.mean.drawn(averages, self._scatter_of_averages()).at(coords)
        draws += _without_gaps(self.mean.at(coords), self.mean.constant)
        return draws

    # ------------------------------------------------------------------ parts

    @property
    def _solved(self) -> Floats:
        assert self.dual is not None  # set for a field with gaps that the model is conditioned on
        return self.dual

    def _posterior_of_residuals(self) -> tuple[Floats, Floats]:
        """Posterior mean and variance at the cells, given the prior mean."""
        system = self.system
        if isinstance(system, GappySystem):
            return system.mean(self._solved), system.variance()
        mean, variance = system.posterior(self.residuals())
        return mean, variance

    def _variance_of_averages(self, variance: Floats, shares: Floats) -> Floats:
        """Variance that averages of 1 / ``shares`` observations add to posterior ones.

        The noise in an average remains; the share of the field in it is reduced by what the
        posterior knows. An approximation: averages of neighbouring cells count as independent.
        """
        prior = float(sum(amplitude(term) for term in self.terms))
        noise = float(np.nanmean(self.noise))
        return np.asarray(shares * (noise + variance**2 / prior))

    def _scatter_of_averages(self) -> float:
        """Posterior variance of a single observation about its mean."""
        variance = self._posterior_of_residuals()[1]
        prior = float(sum(amplitude(term) for term in self.terms))
        noise = float(np.nanmean(self.noise))
        return noise + float(np.nanmean(variance**2)) / prior

    def _share(
        self, points: Sequence[Floats] | None = None, together: Sequence[int] = ()
    ) -> Floats:
        """Share of the constant's error in each cell, or target."""
        assert self.constant is not None
        if points is None and not isinstance(self.system, GappySystem):
            return self.noise * self.constant.dual  # K A⁻¹ 1 = 1 − σ² A⁻¹ 1
        prior = SeparableSum(self.points, self.terms)
        if points is None:
            return self.constant.share(prior.multiply)
        if together:
            return self.constant.share(lambda dual: prior.cross_at(points, together, dual))
        return self.constant.share(lambda dual: prior.cross(points, dual))


def residuals_of(field: Field, mean: Mean) -> Floats:
    """Return a field minus a prior mean; 0 where missing."""
    y = field.values - mean.on_field()
    return y if field.observed is None else np.where(field.observed, y, 0.0)


def _without_gaps(mean: Floats, constant: float) -> Floats:
    """Fill a given mean with its average in cells that it lacks and nothing observes."""
    return np.where(np.isnan(mean), constant, mean) if np.isnan(mean).any() else mean
