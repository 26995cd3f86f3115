"""Models and tables travel small, and answer the same to the bit."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import dsgp
from dsgp.additive.packing import packed, unpacked


@pytest.mark.parametrize(
    ("table", "dtype"),
    [
        (np.array([[0.0, 255.0]]), "uint8"),
        (np.array([[0.0, 256.0]]), "uint16"),
        (np.array([[3.0, 2.0**32 - 1]]), "uint32"),
        (np.array([[3.0, 2.0**32]]), "float64"),
        (np.array([[3.0, 0.5]]), "float64"),
        (np.array([[3.0, -1.0]]), "float64"),
        (np.array([[3.0, -0.0]]), "float64"),
        (np.array([[3.0, np.nan]]), "float64"),
        (np.zeros((0, 2)), "float64"),
    ],
)
def test_whole_numbers_are_packed_and_come_back_to_the_bit(table, dtype):
    small = packed(table)
    assert small.dtype == dtype
    assert unpacked(small).dtype == np.float64
    assert unpacked(small).tobytes() == table.tobytes()


def test_sparse_tables_stay():
    table = csr_array(np.eye(3))
    assert packed(table) is table
    assert unpacked(table) is table


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 3))
    y = np.sin(6 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(4000)
    return X, y, rng.uniform(0.5, 2.0, size=4000)


def answers_of(model, X):
    draws = model.sample(X[:5], n_samples=2, random_state=0)
    answers = [*model.predict(X[:50], return_std=True), *map(np.ravel, model.components(X[:5]))]
    return np.concatenate([np.ravel(one) for one in (*answers, draws)])


@pytest.mark.parametrize(("weighted", "bins"), [(False, 100), (True, 100), (False, None)])
def test_a_model_that_has_travelled_answers_the_same(rows, weighted, bins):
    X, y, weight = rows
    model = dsgp.AdditiveGPRegressor(
        dsgp.kernels.Matern52(0.3, 1.0), noise_variance=0.01, learner=None, bins=bins
    )
    model.fit(X[:1500] if bins is None else X, y[:1500] if bins is None else y,
              sample_weight=weight if weighted else None)  # fmt: skip
    small = pickle.dumps(model)
    expected = answers_of(model, X)
    np.testing.assert_array_equal(answers_of(pickle.loads(small), X), expected)
    np.testing.assert_array_equal(answers_of(pickle.loads(pickle.dumps(model)), X), expected)
    again = pickle.loads(small).fit(X, y)
    np.testing.assert_array_equal(again.predict(X[:50]), model.fit(X, y).predict(X[:50]))


def test_tables_that_predictions_do_not_need_are_small(rows):
    X, y, _ = rows
    kernel = dsgp.kernels.Matern52(0.3, 1.0)
    model = dsgp.AdditiveGPRegressor(kernel, noise_variance=0.01, learner=None, bins=200).fit(X, y)
    assert len(model.model_.latent.equations.bins.pairs) == 3
    assert len(pickle.dumps(model)) < 3 * 200**2 + 100_000  # a byte a cell, and the rest
    model.predict(X[:5], return_std=True)
    before = len(pickle.dumps(model))
    model.sample(X[:5], n_samples=1, random_state=0)  # needs a factor of all, which is not sent
    assert "_factor" in vars(model.model_.latent.equations)
    assert len(pickle.dumps(model)) - before < 1e5
