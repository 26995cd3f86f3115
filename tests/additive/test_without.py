"""Equations of a model without a term: those of the others, however they are kept."""

from dataclasses import replace

import numpy as np
import pytest
import zarr

from dsgp.additive import RowEquations
from tests.additive.dense import bins_of, problem


@pytest.mark.parametrize("how", ["rows", "bins", "codes that are read by blocks", "multipliers"])
@pytest.mark.parametrize("term", [0, 1, 2])
def test_products_are_those_of_the_other_terms(how, term):
    made = problem(90, correlation=0.5, digits=1, missing=0.1)
    table = made.table
    rng = np.random.default_rng(0)
    if how == "codes that are read by blocks":
        table = replace(table, codes=zarr.array(table.codes, chunks=(1, 40)))
    elif how == "multipliers":
        table = replace(table, multipliers={d: rng.standard_normal(90) for d in (0, 2)})
    equations = RowEquations.of(table, made.y, made.weight)
    equations = bins_of(equations) if how == "bins" else equations
    without = equations.without(term)

    flat = rng.standard_normal((2, equations.layout.size))
    equations.layout.part(flat, term)[:] = 0.0
    gone = slice(*equations.layout.offsets[term : term + 2])

    def left(vectors):
        return np.delete(vectors, gone, axis=-1)

    np.testing.assert_allclose(
        without.multiply(left(flat)), left(equations.multiply(flat)), atol=1e-12
    )
    np.testing.assert_array_equal(without.information, left(equations.information))
    np.testing.assert_array_equal(without.ones, left(equations.ones))
    names = [name for d, name in enumerate(equations.layout.names) if d != term]
    assert list(without.layout.names) == names
    assert (without.quadratic, without.n_rows) == (equations.quadratic, equations.n_rows)

    tables, whole = without.tables(32), equations.tables(32)
    for first, second in [(0, 1)]:
        pair = [d for d in range(3) if d != term]
        sums = [
            own.pairs[key].sum()
            for own, key in ((tables, (first, second)), (whole, (pair[first], pair[second])))
        ]
        np.testing.assert_allclose(*sums)
