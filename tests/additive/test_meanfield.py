"""The mean field of free matrices, against random ones that are nearly free."""

import numpy as np
import pytest

from dsgp.additive.meanfield import MeanField


@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("n_terms", [1, 2, 5])
def test_randomly_turned_matrices(n_terms, size):
    rng = np.random.default_rng(n_terms)
    n = 400
    spectra = [size * rng.exponential(size=n) ** 3 for _ in range(n_terms)]
    turns = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(n_terms)]
    total = sum((turn * values) @ turn.T for turn, values in zip(turns, spectra, strict=True))
    exact = np.linalg.eigvalsh(total)

    def alone(factor):
        pairs = list(zip(spectra, factor, strict=True))
        return (
            np.array([np.sum(np.log1p(values / omega)) for values, omega in pairs]),
            np.array([np.sum(values / (omega + values)) for values, omega in pairs]),
        )

    found = MeanField.of(alone, n_terms, n)
    assert found.log_det == pytest.approx(np.sum(np.log1p(exact)), rel=5e-3)
    assert found.dof == pytest.approx(np.sum(exact / (1 + exact)), rel=5e-3)
    np.testing.assert_array_equal(found.dofs, alone(np.ones(n_terms))[1])
    if n_terms > 1:
        # The diagonal of the posterior of one term, averaged: its noise is ω times larger.
        first = (turns[0] * spectra[0]) @ turns[0].T
        posterior = first - first @ np.linalg.solve(np.eye(n) + total, first)
        mine = np.sum(found.factor[0] * spectra[0] / (found.factor[0] + spectra[0]))
        assert mine == pytest.approx(np.trace(posterior), rel=0.02)
    else:
        assert found.factor == [1.0]
