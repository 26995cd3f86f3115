"""The squared exponential against scikit-learn and its own limits."""

import numpy as np
from sklearn.gaussian_process.kernels import RBF

from dsgp.kernels import SquaredExponential


def test_covariance_agrees_with_scikit_learn():
    x = np.random.default_rng(0).normal(size=(20, 1))
    found = SquaredExponential(lengthscale=1.3, variance=2.0).covariance(x[:, 0])
    np.testing.assert_allclose(found, 2.0 * RBF(length_scale=1.3)(x), rtol=1e-14)


def test_far_apart_inputs_are_independent_and_finite():
    kernel = SquaredExponential(lengthscale=1e-3, variance=1.0)
    far = [1.0, 1e6, 1e300, -1.7e308]
    assert (kernel.covariance([0.0], far) == 0.0).all()
    assert (kernel.by_log_lengthscale([1.7e308], far) == 0.0).all()
