"""A factor exists for what rounding alone has made indefinite, and for nothing else."""

import numpy as np
import pytest
from scipy.linalg import LinAlgError, cholesky

from dsgp.additive.cholesky import cholesky_to_rounding


def test_positive_definite_matrices_have_their_usual_factor() -> None:
    root = np.random.default_rng(0).standard_normal((30, 30))
    matrix = root @ root.T + np.eye(30)
    np.testing.assert_allclose(cholesky_to_rounding(matrix), cholesky(matrix, lower=True))
    assert cholesky_to_rounding(np.zeros((0, 0))).shape == (0, 0)


def test_huge_information_beside_the_prior_leaves_small_directions_alone() -> None:
    direction = np.append(np.random.default_rng(1).standard_normal(20), 0.0)
    matrix = 1e20 * np.outer(direction, direction)
    matrix[np.diag_indices(21)] += 1.0
    factor = cholesky_to_rounding(matrix)
    assert factor[-1, -1] == pytest.approx(1.0)
    np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-9, atol=1e-9 * 1e20)


@pytest.mark.parametrize("matrix", [-np.eye(3), np.diag([1.0, -1e-6]), np.full((2, 2), np.nan)])
def test_what_is_not_positive_definite_is_refused(matrix: np.ndarray) -> None:
    with pytest.raises(LinAlgError, match="to rounding"):
        cholesky_to_rounding(matrix)
