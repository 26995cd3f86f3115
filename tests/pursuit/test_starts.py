"""New projections begin where the residual has something to say."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as LinearRidge

from dsgp.compute import one_blas_thread
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.rows import NO_WEIGHT, Block
from dsgp.pursuit.starts import best_start, linear_direction, open_precision, random_directions


def block_of(f, n=1500, n_inputs=4, noise=0.1, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, n_inputs))
    target = f(inputs)
    target = (target - target.mean()) / target.std() + noise * rng.standard_normal(n)
    root = np.sqrt(rng.uniform(0.5, 1.5, n)) if weighted else NO_WEIGHT
    return Block(inputs, target, root)


def start_of(block, relevance=True, kernel=None, n_starts=6, seed=0):
    frame = Frame.of(np.cov(block.inputs.T, bias=True), relevance)
    with one_blas_thread():
        return best_start(
            block, frame, np.full(frame.size, float(frame.size)), kernel or Matern52(), n_starts,
            np.random.default_rng(seed),
        )  # fmt: skip


def unit(direction):
    return direction / np.linalg.norm(direction)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_linear_direction_is_scikit_learns(weighted):
    block = block_of(lambda x: x @ [1.0, -2.0, 0.0, 0.5], weighted=weighted)
    gram = (block.inputs * block.weight[:, None]).T @ block.inputs
    model = LinearRidge(alpha=1e-3 * np.trace(gram) / 4, fit_intercept=False)
    model.fit(block.inputs, block.target, sample_weight=block.weight)
    np.testing.assert_allclose(linear_direction(block), model.coef_, rtol=1e-8)


def test_the_linear_direction_of_equal_columns_is_finite():
    block = block_of(lambda x: x[:, 0], n_inputs=1)
    twice = Block(np.column_stack([block.inputs, block.inputs]), block.target)
    first, second = linear_direction(twice)
    assert first == pytest.approx(second, rel=1e-6)


@pytest.mark.parametrize("relevance", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_product_of_inputs_is_found(relevance, seed):
    """Nothing of it is linear; x0 + x1 and x0 − x1 explain half each."""
    block = block_of(lambda x: x[:, 0] * x[:, 1], seed=seed)
    (term,) = start_of(block, relevance, seed=seed).terms
    weights = np.abs(unit(term.direction))
    np.testing.assert_allclose(weights, [np.sqrt(0.5), np.sqrt(0.5), 0, 0], atol=0.1)


@pytest.mark.parametrize("relevance", [True, False])
def test_few_of_twenty_inputs_are_found(relevance):
    truth = np.zeros(20)
    truth[[3, 11]] = [0.8, -0.6]
    block = block_of(lambda x: np.sin(2 * x @ truth), n=3000, n_inputs=20, noise=0.3)
    found = start_of(block, relevance, n_starts=10)
    assert abs(unit(found.directions[0]) @ truth) > 0.97
    value, _ = found.evaluate(block.inputs)
    assert np.mean((block.target - value[:, 0]) ** 2) < 0.15


def test_the_new_function_is_that_of_the_target():
    block = block_of(lambda x: np.tanh(3 * x[:, 2]), weighted=True)
    found = start_of(block, kernel=Matern32())
    (term,) = found.terms
    assert isinstance(term.kernel, Matern32)
    assert (block.inputs @ term.direction).std() == pytest.approx(1.0, rel=0.05)
    value, _ = found.evaluate(block.inputs)
    assert np.corrcoef(value[:, 0], np.tanh(3 * block.inputs[:, 2]))[0, 1] > 0.995


def test_inputs_and_targets_without_anything_to_find():
    nothing = Block(np.empty((10, 0)), np.arange(10.0))
    assert len(start_of(nothing)) == 0
    same = Block(np.random.default_rng(0).standard_normal((50, 2)), np.zeros(50))
    assert len(start_of(same)) == 0


@pytest.mark.parametrize("relevance", [True, False])
def test_random_directions_of_white_inputs_turn_with_them(relevance):
    block = block_of(lambda x: x[:, 0], n_inputs=3)
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((3, 3)))[0]
    turned = Block(block.inputs @ turn, block.target)
    drawn = []
    for each in (block, turned):
        frame = Frame.of(np.cov(each.inputs.T, bias=True), relevance)
        drawn.append(random_directions(each, frame, np.ones(3), 9, np.random.default_rng(0)))
        assert drawn[-1].shape == (9, 3)
    projections = [each.inputs @ w.T for each, w in zip((block, turned), drawn, strict=True)]
    same = np.allclose(*projections, atol=1e-8)
    assert same != relevance


def test_new_directions_may_use_inputs_that_none_has_needed():
    frame = Frame.of(np.eye(3), True)
    np.testing.assert_array_equal(open_precision(frame, np.array([0.1, 1.0, 1e4])), [0.1, 1.0, 1.0])
    white = Frame.of(np.eye(3), False)
    np.testing.assert_array_equal(open_precision(white, np.full(3, 3.0)), np.full(3, 3.0))


def test_the_same_seed_gives_the_same_start_with_any_number_of_threads(monkeypatch):
    block = block_of(lambda x: x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]))
    monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)
    several = start_of(block)
    monkeypatch.setattr("dsgp.compute.CPU_COUNT", 1)
    one = start_of(block)
    np.testing.assert_array_equal(several.directions, one.directions)
    np.testing.assert_array_equal(several.values, one.values)
