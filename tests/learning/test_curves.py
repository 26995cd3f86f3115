"""Curves of groups at their nodes, taken one by one, against dense algebra."""

import math
from itertools import pairwise

import numpy as np
import pytest

from dsgp.additive import RowEquations
from dsgp.kernels import Independent, Matern32, Matern52
from dsgp.learning import leading_blocks
from dsgp.learning.average_information import average_information
from dsgp.learning.basis import Basis
from dsgp.learning.evidence import Rows, evidence
from dsgp.learning.node_posterior import NodePosterior
from dsgp.learning.prior_factors import Blocks, prior_factor
from dsgp.rows.table import RowTable
from dsgp.terms import Axis, GroupedAxis, LevelCells, MultipliedCells

KERNELS = [Matern52(0.7, 1.2), Matern32(0.4, 0.5), Matern52(1.1, 0.3), Independent(0.2)]
NAMES = [(d, name) for d, kernel in enumerate(KERNELS) for name in kernel.parameters]
NOISE = 0.1


@pytest.fixture(scope="module")
def data():
    """Few rows with a curve, curves by two columns of levels (one multiplied), and levels."""
    rng = np.random.default_rng(0)
    n = 300
    x = rng.integers(0, 12, n) / 6.0
    groups, others = rng.integers(0, 3, n), rng.integers(0, 4, n)
    z = rng.uniform(0.5, 1.5, n)
    inputs = [x, np.column_stack([groups, x]), np.column_stack([others, x]), others.astype(float)]
    y = np.sin(3 * x + groups) + 0.3 * others + 0.3 * rng.standard_normal(n)
    return inputs, z, y - y.mean(), rng.uniform(0.5, 2.0, n)


@pytest.fixture(scope="module")
def model(data):
    inputs, z, y, weight = data
    makes = [Axis, GroupedAxis, lambda u: MultipliedCells(GroupedAxis(u)), LevelCells]
    cells, codes = [], []
    for make, column in zip(makes, inputs, strict=True):
        points, code = np.unique(column, axis=0, return_inverse=True)
        cells.append(make(points))
        codes.append(code.ravel())
    table = RowTable(tuple("abcd"), tuple(cells), np.array(codes), {2: z})
    return RowEquations.of(table, y, weight)


def nodes_of(model, eliminated=None):
    tables = model.tables(1000)
    return Basis.of(tables, [1000] * 4, eliminated).nodes(tables)


def at(logs):
    """Kernels and noise variance at logs of all parameters."""
    given = [{} for _ in KERNELS]
    for (d, name), log in zip(NAMES, logs[:-1], strict=True):
        given[d][name] = math.exp(log)
    kernels = [k.with_parameters(**own) for k, own in zip(KERNELS, given, strict=True)]
    return kernels, math.exp(logs[-1])


def logs():
    return np.log([*(KERNELS[d].value(name) for d, name in NAMES), NOISE])


def priors(data, model, kernels):
    """Prior covariance of every term at the rows."""
    inputs, z, _, _ = data
    own = [x if x.ndim == 1 else x[:, 1] for x in inputs]
    same = [np.ones((len(z), len(z)))] + [u[:, :1] == u[:, 0] for u in inputs[1:3]]
    found = [
        kernel.covariance(x) * alike for kernel, x, alike in zip(kernels, own, same, strict=False)
    ]
    found[2] = found[2] * np.outer(z, z)
    return [*found, kernels[3].variance * (inputs[3][:, None] == inputs[3])]


@pytest.mark.parametrize("eliminated", [None, 3])
def test_evidence_is_the_dense_one(data, model, eliminated):
    _, _, y, weight = data
    total = sum(priors(data, model, KERNELS)) + np.diag(NOISE / weight)
    expected = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(2 * math.pi * total)[1])
    rows = Rows(model.quadratic, model.n_rows, model.log_weight)
    found = evidence(nodes_of(model, eliminated), rows, KERNELS, NOISE)
    assert found.value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("eliminated", [None, 3])
def test_gradient_is_that_of_finite_differences(model, eliminated, alone):
    nodes, rows = nodes_of(model, eliminated), Rows(model.quadratic, model.n_rows, model.log_weight)
    found = evidence(nodes, rows, KERNELS, NOISE, alone=alone)
    gradient = [found.by_log[d][name] for d, name in NAMES]
    step, expected = 1e-4, []
    for unit in np.eye(len(NAMES) + 1)[:-1]:
        up, down = (
            evidence(nodes, rows, *at(logs() + sign * step * unit), alone=alone).value
            for sign in (1, -1)
        )
        expected.append((up - down) / (2 * step))
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("eliminated", [None, 3])
def test_average_information_is_the_dense_one(data, model, eliminated):
    _, _, y, weight = data
    noise = np.diag(NOISE / weight)
    inverse = np.linalg.inv(sum(priors(data, model, KERNELS)) + noise)
    step, moved = 1e-5, []
    for (d, _), unit in zip(NAMES, np.eye(len(NAMES) + 1)[:-1], strict=True):
        up, down = (priors(data, model, at(logs() + sign * step * unit)[0])[d] for sign in (1, -1))
        moved.append((up - down) / (2 * step) @ inverse @ y)
    moved = np.array([*moved, noise @ inverse @ y])
    posterior = evidence(
        nodes_of(model, eliminated),
        Rows(model.quadratic, model.n_rows, model.log_weight),
        KERNELS,
        NOISE,
    )
    found = average_information(posterior.posterior, NAMES, posterior.squares)
    np.testing.assert_allclose(found, 0.5 * moved @ inverse @ moved.T, rtol=1e-4, atol=1e-4)


def test_blocks_are_the_factor_of_all_curves(model):
    cells = model.layout.cells[1]
    blocks, dense = Blocks(KERNELS[1], cells), prior_factor(KERNELS[1], cells)
    values = np.random.default_rng(0).standard_normal((len(cells), 3))
    np.testing.assert_allclose(blocks.times(values), dense @ values)
    np.testing.assert_allclose(blocks.transposed(values), dense.T @ values)
    np.testing.assert_allclose(blocks.solved(blocks.times(values[:, 0])), values[:, 0])
    solved = blocks.solved(blocks.transposed(values[:, 0]), trans=1)
    np.testing.assert_allclose(solved, values[:, 0])


@pytest.mark.parametrize("rest", [0, 7])
@pytest.mark.parametrize("sizes", [(4,), (3, 5, 1), ()])
def test_factors_of_leading_blocks_are_the_dense_ones(sizes, rest):
    rng = np.random.default_rng(0)
    ends = np.cumsum([0, *sizes])
    n = int(ends[-1]) + rest
    coupling = rng.standard_normal((n, n)) / 10
    matrix = n * np.eye(n) + coupling + coupling.T
    pieces = [slice(int(a), int(b)) for a, b in pairwise(ends)]
    for i, one in enumerate(pieces):
        for other in pieces[:i]:
            matrix[one, other] = 0.0
            matrix[other, one] = 0.0
    factor = leading_blocks.cholesky(matrix, pieces)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-12)
    inverse = leading_blocks.inverse(factor, pieces)
    np.testing.assert_allclose(inverse @ factor, np.eye(n), atol=1e-12)


def test_leading_blocks_that_are_singular_to_rounding_have_a_factor():
    huge = 1e17 * np.ones((2, 2)) + np.eye(2)
    matrix = np.kron(np.eye(2), huge)
    factor = leading_blocks.cholesky(matrix, [slice(0, 2), slice(2, 4)])
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-9)


def test_derivative_and_covariance_hold_all_curves(model):
    nodes = nodes_of(model)
    posterior = NodePosterior(nodes, KERNELS, NOISE)
    cells = nodes.basis.cells[1]
    expected = cells.prior_by_log(KERNELS[1], "lengthscale")
    np.testing.assert_allclose(posterior.derivative(1, "lengthscale"), expected)
    # With the whole inverse at hand, blocks of it are taken rather than computed.
    before = NodePosterior(nodes, KERNELS, NOISE).gradients()
    assert posterior.covariance(1, 2).shape == (len(cells), len(nodes.basis.cells[2]))
    for own, other in zip(posterior.gradients(), before, strict=True):
        assert own == pytest.approx(other)
