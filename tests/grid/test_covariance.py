"""Sums of separable covariances against the matrix of all cells, long axes included."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from dsgp.errors import ParameterError
from dsgp.grid import covariance
from dsgp.grid.covariance import SeparableSum, amplitude
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, Periodic, SquaredExponential
from tests.grid.dense import CASES, Dense, close, correlation, covariance_of, elsewhere, uneven

# Axes that may be long: two of them, between axes that may not.
LONG_CASE = (
    [np.linspace(0, 2, 8), np.array([0.0, 1.0]), uneven(7, 0, 3)],
    [
        (Matern32(0.9, 1.5), SquaredExponential(1.0, 1.0), Matern52(0.8, 1.0)),
        (Matern12(0.2, 0.3), Matern32(2.0, 1.0), Matern72(0.3, 0.5)),
    ],
)


@pytest.fixture
def short(monkeypatch):
    """Axes of more than 5 points count as long."""
    monkeypatch.setattr(covariance, "LONG", 5)


def check(points, terms):
    prior = SeparableSum(tuple(points), tuple(terms))
    dense = Dense(points, terms, 1.0)
    y = np.random.default_rng(0).standard_normal(dense.shape)
    kept = y.copy()
    assert prior.shape == dense.shape
    assert prior.variance == pytest.approx(dense.prior[0, 0], rel=1e-14)
    close(prior.multiply(y).ravel(), dense.prior @ y.ravel(), 1e-12)
    new = elsewhere(points)
    found = prior.cross(new, y)
    assert found.shape == tuple(len(own) for own in new)
    close(found.ravel(), dense.between(new, points) @ y.ravel(), 1e-11)
    np.testing.assert_array_equal(y, kept)
    close(covariance_of(prior.sample), dense.prior, 1e-11)


@pytest.mark.parametrize("name", CASES)
def test_products_and_draws_are_those_of_the_matrix(name):
    check(*CASES[name])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("axes", [[0], [2], [0, 1], [0, 2], [0, 1, 2]])
def test_long_axes_change_nothing(axes):
    points, terms = LONG_CASE
    check([points[d] for d in axes], [tuple(term[d] for d in axes) for term in terms])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("d", [0, 1, 2])
def test_no_points_have_no_covariances(d):
    points, terms = LONG_CASE
    prior = SeparableSum(tuple(points), tuple(terms))
    new = [own[:2] for own in points]
    new[d] = np.empty(0)
    assert prior.cross(new, np.ones(prior.shape)).shape == tuple(len(own) for own in new)


def test_the_formulas_of_the_answers_are_those_of_scikit_learn():
    x = uneven(9, 0, 3)[:, None]
    r = np.abs(x - x.T)
    for kernel, other in [
        *(
            (made(0.7, 1.0), SklearnMatern(0.7, nu=nu))
            for made, nu in [(Matern12, 0.5), (Matern32, 1.5), (Matern52, 2.5), (Matern72, 3.5)]
        ),
        (SquaredExponential(0.7, 1.0), RBF(0.7)),
        (Periodic(2.0, 0.7, 1.0), ExpSineSquared(0.7 * 2 * np.pi / 2.0, 2.0)),
    ]:
        close(correlation(kernel, r), other(x), 1e-12)


def test_draws_of_independent_generators_repeat():
    prior = SeparableSum(*map(tuple, CASES["two dims"]))
    first, second, other = (prior.sample(np.random.default_rng(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)


@pytest.mark.usefixtures("short")
def test_threads_change_no_bit(monkeypatch):
    points, terms = LONG_CASE
    prior = SeparableSum(tuple(points), tuple(terms))
    y = np.random.default_rng(0).standard_normal(prior.shape)
    found = []
    for work in (0.0, np.inf):  # everything on threads, nothing
        monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", work)
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", 4)
        found.append(
            (prior.multiply(y), prior.cross(points, y), prior.sample(np.random.default_rng(0)))
        )
    for threads, none in zip(*found, strict=True):
        np.testing.assert_array_equal(threads, none)


@pytest.mark.usefixtures("short")
def test_long_axes_need_a_state_space_form():
    kernel = SquaredExponential(1.0, 1.0)
    with pytest.raises(ParameterError, match=r"axis 1 has 6 points.*expected a Matérn"):
        SeparableSum((np.arange(3.0), np.arange(6.0)), ((Matern32(1.0, 1.0), kernel),))


def test_amplitudes_are_products():
    assert amplitude([Matern32(1.0, 2.0), Matern12(1.0, 3.0)]) == 6.0


def test_tables_of_equispaced_axes_are_one_row():
    points = (np.arange(1000.0), uneven(20, 0, 1), np.array([1.0]), np.array([0.0, 5.0]))
    prior = SeparableSum(points, ((Matern32(1.0, 1.0),) * 4,))
    tables = prior.tables()
    assert tables.stride.tolist() == [0, 20, 0, 0]
    assert tables.value.size == 1000 + 400 + 1 + 2 + 1
