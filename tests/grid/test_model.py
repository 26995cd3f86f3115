"""A model of a field gives what dense algebra does, with a constant that is unknown."""

import numpy as np
import pytest
import xarray as xr

from dsgp.grid import systems
from dsgp.grid.field import Field
from dsgp.grid.means import Mean
from dsgp.grid.model import FieldModel, Solving
from dsgp.grid.targets import Targets
from dsgp.kernels import Matern32, Matern52

TERM = (Matern32(2.0, 1.5), Matern52(3.0, 1.0))
NOISE = 0.2


def field(gaps):
    """Six by five cells, some of them missing."""
    rng = np.random.default_rng(0)
    values = 3 + np.add.outer(np.sin(np.arange(6.0)), np.cos(np.arange(5.0) / 2))
    values += 0.3 * rng.standard_normal(values.shape)
    if gaps:
        values[rng.random(values.shape) < 0.3] = np.nan
    return Field.of(xr.DataArray(values, {"x": np.arange(6.0), "y": np.arange(5.0)}))


def model_of(gaps, noise=NOISE):
    solving = Solving("exact" if gaps else "auto", 20, 8, 1e-10, 500, 0)
    data = field(gaps)
    mean = Mean.of("constant", data)
    return FieldModel(data, mean, (TERM,), noise, solving, constant_is_unknown=True)


def covariance(left, right):
    """Of all points of two grids."""
    return np.kron(*(k.covariance(a, b) for k, a, b in zip(TERM, left, right, strict=True)))


def dense(data, points, noise):
    """Mean and variance at a grid by generalised least squares, and the log likelihood."""
    seen = ~np.isnan(data.values.ravel())
    y = data.values.ravel()[seen]
    cells = [axis.points for axis in data.axes]
    noise = np.broadcast_to(noise, data.shape).ravel()[seen]
    system = covariance(cells, cells)[np.ix_(seen, seen)] + np.diag(noise)
    inverse, ones = np.linalg.inv(system), np.ones(len(y))
    precision = ones @ inverse @ ones
    constant = ones @ inverse @ y / precision
    cross = covariance(points, cells)[:, seen]
    left = 1 - cross @ inverse @ ones
    mean = constant + cross @ inverse @ (y - constant)
    prior = np.prod([kernel.variance for kernel in TERM])
    variance = prior - np.einsum("ij,jk,ik->i", cross, inverse, cross) + left**2 / precision
    shape = [len(p) for p in points]
    rest = y - constant
    value = -0.5 * (
        rest @ inverse @ rest + np.linalg.slogdet(system)[1] + len(y) * np.log(2 * np.pi)
    )
    return mean.reshape(shape), variance.reshape(shape), value


@pytest.mark.parametrize("gaps", [False, True])
def test_posterior_and_likelihood_are_those_of_dense_algebra(gaps):
    model = model_of(gaps)
    conditioning = model.condition()
    mean, variance, value = dense(model.field, model.points, NOISE)
    got_mean, got_variance = model.posterior()
    np.testing.assert_allclose(got_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(got_variance, variance, rtol=1e-8)
    np.testing.assert_allclose(conditioning.log_marginal_likelihood, value, rtol=1e-8)
    assert conditioning.converged
    noisy = model.posterior(include_noise=True)[1]
    np.testing.assert_allclose(noisy, variance + NOISE, rtol=1e-8)


@pytest.mark.parametrize("gaps", [False, True])
def test_another_grid_is_answered_as_by_dense_algebra(gaps):
    model = model_of(gaps)
    model.condition()
    targets = Targets.of(model.field.axes, {"x": [0.5, 7.0], "y": [1.25, 2.0, 3.5]})
    mean, variance, _ = dense(model.field, targets.points, NOISE)
    got_mean, got_variance = model.predict(targets)
    np.testing.assert_allclose(got_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(got_variance, variance, rtol=1e-8)


def test_noise_of_each_cell_is_that_of_dense_algebra():
    noise = np.random.default_rng(1).uniform(0.1, 0.5, (6, 5))
    model = model_of(gaps=True, noise=noise)
    model.condition()
    mean, variance, _ = dense(model.field, model.points, noise)
    got_mean, got_variance = model.posterior()
    np.testing.assert_allclose(got_mean, mean, rtol=1e-8)
    np.testing.assert_allclose(got_variance, variance, rtol=1e-8)


def test_draws_have_the_mean_and_variance_of_the_posterior():
    model = model_of(gaps=True)
    model.condition()
    mean, variance = model.posterior()
    draws = model.sample(4000, seed=0)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)


def test_what_is_left_is_the_noise_times_the_dual(monkeypatch):
    monkeypatch.setattr(systems, "DENSE_CELLS", 0)  # by conjugate gradients
    model = model_of(gaps=True)
    model.solving = Solving("local", 20, 8, 1e-10, 500, 0)
    model.condition()
    mean, _ = model.posterior()
    left = model.left(model.residuals())
    seen = model.observed
    np.testing.assert_allclose(left[seen], (model.field.values - mean)[seen], atol=1e-6)
