"""Loops over compressed columns do what dense products do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, random_array

from dsgp import AdditiveGPRegressor
from dsgp.jit.sparse import quadratic_forms, subtract_outer
from dsgp.learning import node_posterior


@settings(max_examples=30, deadline=None)
@given(
    n_rows=st.integers(1, 9),
    n_columns=st.integers(1, 12),
    density=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 99),
)
def test_they_agree_with_dense_products(n_rows, n_columns, density, seed):
    rng = np.random.default_rng(seed)
    sparse = csc_array(random_array((n_rows, n_columns), density=density, rng=rng))
    dense = sparse.toarray()
    divisor = rng.uniform(0.5, 2.0, n_columns)
    matrix = rng.standard_normal((n_rows, n_rows))
    matrix = np.asfortranarray(matrix + matrix.T)
    columns = sparse.indptr, sparse.indices, sparse.data

    forms = np.empty(n_columns)
    quadratic_forms(*columns, matrix, forms)
    np.testing.assert_allclose(forms, np.diag(dense.T @ matrix @ dense), atol=1e-12)

    expected = matrix - (dense / divisor) @ dense.T
    subtract_outer(*columns, divisor, matrix)
    np.testing.assert_allclose(matrix, expected, atol=1e-12)


def test_the_likelihood_does_not_depend_on_how_products_are_computed(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 400, 3000), rng.integers(0, 300, 3000)
    y = rng.normal(0, 1, 400)[a] + rng.normal(0, 0.5, 300)[b] + 0.3 * rng.standard_normal(3000)
    X = {"a": np.char.add("a", a.astype(str)), "b": np.char.add("b", b.astype(str))}
    models, called = [], []
    loops = node_posterior.quadratic_forms
    monkeypatch.setattr(
        node_posterior, "quadratic_forms", lambda *args: called.append(loops(*args))
    )
    for thin in (0.0, 1e9):
        monkeypatch.setattr(node_posterior, "_THIN", thin)
        called.clear()
        models.append(AdditiveGPRegressor().fit(X, y))
        assert bool(called) == (thin > 0)
    first, second = (model.log_marginal_likelihood_ for model in models)
    assert first == pytest.approx(second, rel=1e-9)
