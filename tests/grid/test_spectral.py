"""Complete fields with several kernels: a preconditioner of one eigenbasis per axis."""

import numpy as np
import pytest

from dsgp.errors import ParameterError
from dsgp.grid.covariance import LONG, SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.missing import CellSystem
from dsgp.grid.spectral import SpectralInverse, has_spectrum
from dsgp.grid.systems import DENSE_CELLS, GappySystem
from dsgp.kernels import Matern12, Matern32, Matern52, Periodic

SHAPE = (11, 9, 6)


def points_of(shape=SHAPE):
    random = np.random.default_rng(0)
    steps = [np.arange(float(n)) for n in shape]
    steps[1] = np.sort(random.uniform(0, 9, shape[1]))
    return tuple(steps)


def prior_of(kernel, *lengths):
    terms = [
        (kernel(one[0], 2.0 + c), *(kernel(length, 1.0) for length in one[1:]))
        for c, one in enumerate(lengths)
    ]
    return SeparableSum(points_of(), tuple(terms))


def dense(prior, noise):
    n = int(np.prod(prior.shape))
    columns = [prior.multiply(row.reshape(prior.shape)).reshape(-1) for row in np.eye(n)]
    return np.array(columns) + noise * np.eye(n)


def test_of_a_single_term_it_is_the_inverse():
    prior = prior_of(Matern32, (3.0, 2.0, 4.0))
    flat = np.random.default_rng(1).permutation(np.prod(SHAPE))
    vector = np.random.default_rng(2).standard_normal(np.prod(SHAPE))
    found = SpectralInverse.of(prior, 0.3, flat).apply(vector)
    matrix = dense(prior, 0.3)[np.ix_(flat, flat)]
    np.testing.assert_allclose(matrix @ found, vector, atol=1e-10)


@pytest.mark.parametrize("kernel", [Matern12, Matern52])
@pytest.mark.parametrize("noise", [1.0, 1e-4])
def test_means_and_variances_are_those_of_dense_algebra(kernel, noise):
    prior = prior_of(kernel, (30.0, 4.0, 5.0), (2.0, 12.0, 9.0))
    seen = np.ones(SHAPE, dtype=bool)
    y = np.random.default_rng(0).standard_normal(SHAPE)
    mean, variance = DenseSystem(prior, seen, noise).posterior(y)
    system = CellSystem(prior, seen, noise, tol=1e-9)
    done = system.dual(y)
    assert done.converged
    assert done.iterations < 120
    np.testing.assert_allclose(system.mean(done.solution), mean, atol=1e-6)
    for cell in ((0, 0, 0), (5, 4, 3), (10, 8, 1)):
        place = [float(axis[i]) for axis, i in zip(prior.points, cell, strict=True)]
        ratio = system.variance_at(place) / variance[cell]
        assert 1 - 1e-9 < ratio < 1.03


def test_variances_are_exact_with_one_term_and_near_with_nested_scales():
    seen = np.ones(SHAPE, dtype=bool)
    one = prior_of(Matern52, (3.0, 2.0, 4.0))
    exact = DenseSystem(one, seen, 0.3).posterior(np.zeros(SHAPE))[1]
    found = SpectralInverse.of(one, 0.3, np.arange(exact.size)).variance()
    np.testing.assert_allclose(found, exact, rtol=1e-8)
    nested = prior_of(Matern32, (12.0, 8.0, 9.0), (2.0, 1.5, 2.0))
    exact = DenseSystem(nested, seen, 0.01).posterior(np.zeros(SHAPE))[1]
    found = SpectralInverse.of(nested, 0.01, np.arange(exact.size)).variance()
    np.testing.assert_allclose(np.sqrt(found / exact), 1.0, atol=0.08)


def test_automatic_variances_are_spectral_where_these_are_accurate():
    shape = (18, 12, 8)
    assert np.prod(shape) > DENSE_CELLS
    axes = tuple(np.arange(float(n)) for n in shape)
    seen = np.ones(shape, dtype=bool)

    def system(lengths, variance="auto", noise=0.01):
        terms = [[Matern52(a, 1.0), *(Matern52(b, 1.0),) * 2] for a, b in lengths]
        return GappySystem(SeparableSum(axes, terms), seen, noise, variance=variance)

    nested, crossing = ((20.0, 20.0), (3.0, 3.0)), ((50.0, 5.0), (2.0, 20.0))
    method, error = system(nested).settle_variance()
    assert method == "spectral"
    exact = DenseSystem(system(nested).prior, seen, 0.01).posterior(np.zeros(shape))[1]
    ratio = np.sqrt(system(nested).variance() / exact)
    assert error < 0.05
    assert np.sqrt(np.mean((ratio - 1) ** 2)) < 2 * error + 0.01
    method, _ = system(crossing).settle_variance()
    assert method != "spectral"
    method, error = system(crossing, "spectral").settle_variance()
    assert method == "spectral"
    assert error > 0.05
    # Between the cells: local variances, as far as spectral ones are from these on the grid.
    between = [axis[:4] + 0.5 for axis in axes]
    apart = GappySystem(system(nested).prior, seen, 0.01, variance="local")
    ratio = system(nested, "spectral").variance(between) / apart.variance(between)
    assert np.all((ratio > 0.5) & (ratio <= 1 + 1e-12))


def test_spectral_variances_need_a_complete_field():
    seen = np.ones(SHAPE, dtype=bool)
    seen[2, 3, 4] = False
    with pytest.raises(ParameterError, match="variance='spectral' is for complete fields"):
        GappySystem(prior_of(Matern32, (3.0, 2.0, 4.0)), seen, 0.1, variance="spectral")


def test_iterations_do_not_grow_where_scales_are_far_apart():
    """Vecchia's factor of 30 neighbours does not converge here."""
    shape = (24, 20, 20)
    terms = tuple(
        (Matern32(a, 1.0), Matern32(b, 1.0), Matern32(b, 1.0)) for a, b in ((50, 5), (2, 20))
    )
    prior = SeparableSum(tuple(np.arange(float(n)) for n in shape), terms)
    system = CellSystem(prior, np.ones(shape, dtype=bool), 1e-3)
    done = system.dual(np.random.default_rng(0).standard_normal(shape))
    assert done.converged
    assert done.iterations < 80


def test_another_prior_has_another_preconditioner():
    seen = np.ones(SHAPE, dtype=bool)
    first, other = prior_of(Matern32, (3.0, 2.0, 4.0)), prior_of(Matern32, (9.0, 1.0, 2.0))
    y = np.random.default_rng(0).standard_normal(SHAPE)
    system = CellSystem(first, seen, 0.1)
    system.dual(y)
    assert system.with_prior(other, 2.0).dual(y).iterations <= 2
    np.testing.assert_allclose(
        system.with_prior(other, 2.0).dual(y).solution,
        CellSystem(other, seen, 0.2).dual(y).solution,
    )


def test_kernels_of_several_kinds_share_a_basis():
    terms = (
        (Periodic(5.0, 1.0, 1.0), Matern32(2.0, 1.0), Matern32(3.0, 1.0)),
        (Matern12(3.0, 0.5), Matern52(4.0, 1.0), Matern32(1.0, 1.0)),
    )
    prior = SeparableSum(points_of(), terms)
    y = np.random.default_rng(0).standard_normal(SHAPE)
    done = CellSystem(prior, np.ones(SHAPE, dtype=bool), 0.05).dual(y)
    assert done.converged
    assert done.iterations < 60


def test_where_it_is_used():
    assert has_spectrum((2, 3), np.full(6, 0.1))
    assert not has_spectrum((2, 3), np.full(5, 0.1))  # a cell is missing
    assert not has_spectrum((2, 3), np.linspace(0.1, 0.2, 6))
    assert not has_spectrum((LONG + 1,), np.full(LONG + 1, 0.1))
