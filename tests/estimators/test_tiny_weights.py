"""Weights of any size: of precisions only the ratios matter, of counts the sum does."""

import warnings

import numpy as np
import pytest

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    ProjectionPursuitGPClassifier,
    ProjectionPursuitGPRegressor,
)
from dsgp.errors import DataError, DataWarning, DsgpError
from dsgp.kernels import Matern52

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(80, 2))
UP = (X[:, 0] + 0.2 * RNG.standard_normal(80) > 0.5).astype(int)
TARGETS = {
    "two classes": (AdditiveGPClassifier(), UP),
    "ovr": (AdditiveGPClassifier(multi_class="ovr"), UP + (X[:, 1] > 0.7)),
    "softmax": (AdditiveGPClassifier(), UP + (X[:, 1] > 0.7)),
    "pursuit": (ProjectionPursuitGPClassifier(random_state=0, n_projections=1), UP),
    "poisson": (GeneralizedAdditiveGP("poisson"), RNG.poisson(2, 80)),
    "negative_binomial": (GeneralizedAdditiveGP("negative_binomial"), RNG.poisson(2, 80)),
    "gamma": (GeneralizedAdditiveGP("gamma"), RNG.gamma(2, size=80)),
    "ordered": (GeneralizedAdditiveGP("ordered"), RNG.integers(0, 3, 80)),
    "student_t": (GeneralizedAdditiveGP("student_t"), RNG.standard_normal(80)),
}


@pytest.mark.parametrize("size", [1e-99, 1e-12, 1e-6])
@pytest.mark.parametrize("kind", TARGETS)
def test_tiny_weights_are_said_and_give_the_share_of_the_rows(kind, size):
    model, y = TARGETS[kind]
    weight = np.full(80, size)
    weight[:5] = 0.0
    with pytest.warns(DataWarning, match=r"sums to .* over 75 rows: a weight is how often"):
        model.fit(X, y, weight)
    if hasattr(model, "predict_proba"):
        probability = model.predict_proba(X[:5])
        share = np.bincount(y[5:]) / 75
        np.testing.assert_allclose(probability, np.tile(share, (5, 1)), atol=0.15)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            assert np.isfinite(model.predict(X[:5], return_std=True)).all()


def test_a_mapping_of_tiny_class_weights_is_said_as_well():
    with pytest.warns(DataWarning, match="with class_weight, if any"):
        AdditiveGPClassifier(class_weight={0: 1e-7, 1: 1e-7}).fit(X, UP)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdditiveGPClassifier(class_weight="balanced").fit(X, UP)


@pytest.mark.parametrize("size", [1e11, 1e12, 1e99])
@pytest.mark.parametrize("kind", [k for k in TARGETS if k != "pursuit"])
def test_more_rows_than_there_are_is_refused(kind, size):
    model, y = TARGETS[kind]
    with pytest.raises(DataError, match=r"sample_weight .* sums to"):
        model.fit(X, y, np.full(80, size))


def test_pursuit_refuses_such_weights_by_an_error_of_its_own():
    with pytest.raises(DsgpError):
        TARGETS["pursuit"][0].fit(X, UP, np.full(80, 1e99))


@pytest.mark.parametrize("factor", [1e-90, 1e-6, 1e12, 1e90])
@pytest.mark.parametrize("pursuit", [False, True])
def test_only_ratios_of_precisions_matter(factor, pursuit):
    y, weight = X[:, 0] + 0.1 * RNG.standard_normal(80), RNG.uniform(0.5, 2, 80)
    weight[:3] = 0.0

    def fitted(weight):
        if pursuit:
            return ProjectionPursuitGPRegressor(random_state=0, n_projections=1).fit(X, y, weight)
        return AdditiveGPRegressor(Matern52()).fit(X, y, weight)

    one, other = fitted(weight), fitted(factor * weight)
    assert other.noise_variance_ == pytest.approx(factor * one.noise_variance_, rel=1e-5)
    np.testing.assert_allclose(
        other.predict(X, return_std=True), one.predict(X, return_std=True), rtol=1e-4, atol=1e-6
    )
