"""Log marginal likelihood and degrees of freedom of the additive model against dense algebra."""

import numpy as np
import pytest

from dsgp.additive import multigrid
from dsgp.additive.evidence import Complexity
from dsgp.additive.multigrid import CoarseSpace
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from tests.additive.dense import problem

KERNELS = (Matern12, Matern32, Matern52, Matern72)
# Nats, at 1000 rows and 4 terms.
GAP = {Matern12: 20.0, Matern32: 1.0, Matern52: 0.25, Matern72: 0.25}


def dense_log_det(given):
    noise = given.noise / given.weight[given.kept]
    return np.linalg.slogdet(given.marginal)[1] - np.sum(np.log(noise))


def dense_dof(given):
    noise = given.noise / given.weight[given.kept]
    return len(noise) - np.trace(np.linalg.solve(given.marginal, np.diag(noise)))


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("noise", [1e-3, 0.1])
def test_one_term_is_exact(make, missing, noise):
    given = problem(200, 0.0, noise, make, n_terms=1, missing=missing)
    given.weight[::7] = 0.0
    given.__post_init__()
    found = Complexity.of(given.system, None)
    solution = multigrid(given.system, tol=1e-9, max_iter=50)
    value = found.log_marginal_likelihood(given.system, solution)
    assert value == pytest.approx(given.log_marginal_likelihood, abs=1e-6)
    assert found.log_det == pytest.approx(dense_log_det(given), abs=1e-6)
    assert found.dof == pytest.approx(dense_dof(given), abs=1e-6)
    np.testing.assert_array_equal(found.dof_of_terms, [found.dof])


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_coupled_terms(make, correlation, missing):
    given = problem(1000, correlation, 0.01, make, n_terms=4, missing=missing)
    found = Complexity.of(given.system, CoarseSpace(given.system))
    solution = multigrid(given.system, tol=1e-7, max_iter=500)
    value = found.log_marginal_likelihood(given.system, solution)
    gap = abs(value - given.log_marginal_likelihood)
    assert gap < GAP[make]
    # All of it is the determinant's.
    assert 0.5 * abs(found.log_det - dense_log_det(given)) == pytest.approx(gap, abs=1e-5)
    assert found.dof == pytest.approx(dense_dof(given), rel=0.02)
    assert (found.dof_of_terms > 0).all()
    assert found.dof < found.dof_of_terms.sum()


def test_no_terms():
    given = problem(50, n_terms=1)
    layout = type(given.table)((), (), given.table.codes[:0])
    equations = type(given.equations).of(layout, given.y, given.weight)
    system = type(given.system)(equations, [], 0.5)
    found = Complexity.of(system, None)
    assert (found.log_det, found.dof) == (0.0, 0.0)
    value = found.log_marginal_likelihood(system, multigrid(system, tol=1e-9, max_iter=9))
    variance = 0.5 / given.weight
    exact = -0.5 * np.sum(np.log(2 * np.pi * variance) + given.y**2 / variance)
    assert value == pytest.approx(exact)
