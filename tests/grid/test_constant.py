"""The constant of a field among the unknowns, against dense algebra with a vague prior on it."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from dsgp import GridGP, load
from dsgp.grid import systems
from dsgp.grid.constant import UnknownConstant
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.dense import DenseSystem
from dsgp.grid.fibres import FibreSystem
from dsgp.grid.fit import restricted
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.kernels import Matern32, Matern52
from tests.grid.dense import Dense

NOISE = 0.3
POINTS = [np.array([0.0, 1.0, 1.5, 3.0, 4.0, 5.5]), np.arange(7.0)]
NEW = [np.array([0.4, 2.0, 9.0]), np.array([-4.0, 0.5, 3.0, 12.0])]
TERM = (Matern32(2.0, 1.5), Matern52(3.0, 1.0))
SHORT = (Matern32(0.5, 0.4), Matern52(1.0, 1.0))
SHAPE = tuple(len(own) for own in POINTS)


def field(observed=None, seed=0):
    y = 20.0 + np.random.default_rng(seed).standard_normal(SHAPE)
    return y if observed is None else np.where(observed, y, np.nan)


def reference(terms, noise, observed, y, new=None):
    """Posterior mean and covariance by generalised least squares on dense matrices."""
    dense = Dense(POINTS, terms, noise, observed)
    seen = y[dense.observed]
    inverse = np.linalg.inv(dense.total)
    ones = inverse @ np.ones(len(seen))
    constant = ones @ seen / ones.sum()
    there = POINTS if new is None else new
    cross = dense.between(there, POINTS)[:, dense.flat]
    share = 1.0 - cross @ ones
    mean = constant + cross @ inverse @ (seen - constant)
    covariance = dense.between(there, there) - cross @ inverse @ cross.T
    covariance += np.outer(share, share) / ones.sum()
    shape = tuple(len(own) for own in there)
    return mean.reshape(shape), covariance, constant


def fitted(terms, noise, observed, y, **options):
    da = xr.DataArray(y, dict(zip("ab", POINTS, strict=True)))
    kernels = [dict(zip("ab", term, strict=True)) for term in terms]
    kernels = kernels[0] if len(kernels) == 1 else kernels
    return GridGP(kernels, noise, learner=None, tol=1e-11, n_neighbours=41, **options).fit(da)


GAPS = np.random.default_rng(5).random(SHAPE) > 0.4
CASES = {
    "complete": ([TERM], NOISE, None, {}),
    "fibres": ([TERM], NOISE, None, {}),
    "dense": ([TERM], NOISE, GAPS, {}),
    "cells": ([TERM], NOISE, GAPS, {"variance": "local"}),
    "sum": ([TERM, SHORT], NOISE, None, {}),
    "per cell": ([TERM], "per cell", GAPS, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_constant_is_among_the_unknowns(name, monkeypatch, tmp_path):
    terms, noise, observed, options = CASES[name]
    monkeypatch.setattr(systems, "DENSE_CELLS", 0 if name == "cells" else 1500)
    monkeypatch.setattr(systems, "_CUBED", 1e9 if name == "fibres" else 0.0)
    y = field(observed)
    variances = NOISE
    if noise == "per cell":
        variances = np.random.default_rng(1).uniform(0.1, 1.0, SHAPE)
        noise = xr.DataArray(variances, dict(zip("ab", POINTS, strict=True)))
    model = fitted(terms, noise, observed, y, **options)
    expected = {"complete": "kronecker", "fibres": "fibres", "cells": "conjugate gradients"}
    assert model.method_ == expected.get(name, "dense")
    mean, covariance, constant = reference(terms, variances, observed, y)
    found = model.posterior()
    assert model.mean_ == pytest.approx(constant, rel=1e-8)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(found["std"] ** 2, np.diag(covariance).reshape(SHAPE), rtol=1e-6)
    mean, covariance, _ = reference(terms, variances, observed, y, NEW)
    elsewhere = model.predict(a=NEW[0], b=NEW[1])
    np.testing.assert_allclose(elsewhere["mean"], mean, rtol=1e-7)
    np.testing.assert_allclose(
        elsewhere["std"] ** 2, np.diag(covariance).reshape(mean.shape), rtol=1e-6
    )
    places = [xr.DataArray(own[[0, 2]], dims="obs") for own in NEW]
    at_points = model.predict(a=places[0], b=places[1])
    np.testing.assert_allclose(at_points["mean"], np.diag(elsewhere["mean"][[0, 2]][:, [0, 2]]))
    np.testing.assert_allclose(
        at_points["std"], np.diag(elsewhere["std"][[0, 2]][:, [0, 2]]), rtol=1e-6
    )
    model.save(tmp_path / "model")
    xr.testing.assert_allclose(load(tmp_path / "model").predict(a=NEW[0], b=NEW[1]), elsewhere)


@pytest.mark.parametrize("name", ["complete", "fibres", "dense", "cells"])
def test_draws_have_the_error_of_the_constant(name, monkeypatch):
    terms, noise, observed, options = CASES[name]
    monkeypatch.setattr(systems, "DENSE_CELLS", 0 if name == "cells" else 1500)
    monkeypatch.setattr(systems, "_CUBED", 1e9 if name == "fibres" else 0.0)
    terms = [(Matern32(40.0, 0.05), Matern52(60.0, 1.0))]  # the constant is what is uncertain
    y = field(observed)
    model = fitted(terms, 4.0, observed, y, **options)
    _, covariance, _ = reference(terms, 4.0, observed, y)
    n = 200 if name == "fibres" else 800
    draws = model.sample(n).values.reshape(n, -1)
    assert np.cov(draws.T).mean() == pytest.approx(covariance.mean(), rel=0.3 if n == 200 else 0.15)
    far = model.sample(n, a=[500.0], b=[600.0]).values.ravel()
    std = model.predict(a=500.0, b=600.0)["std"].item()
    assert far.var() == pytest.approx(std**2, rel=0.3 if n == 200 else 0.15)


def test_two_observations_are_hardly_informative():
    posterior = GridGP().fit(xr.DataArray([2.0, 5.0], {"x": [0.0, 1.0]})).posterior()
    np.testing.assert_allclose(posterior["mean"], 3.5, atol=0.01)
    # The standard error of an average of two.
    np.testing.assert_allclose(posterior["std"], 1.5, rtol=0.01)


def test_a_known_constant_has_no_error():
    y = field()
    one = fitted([TERM], NOISE, None, y, mean=20.0).posterior()
    dense = Dense(POINTS, [TERM], NOISE)
    _, covariance = dense.posterior(y - 20.0)
    np.testing.assert_allclose(one["std"] ** 2, np.diag(covariance).reshape(SHAPE), rtol=1e-7)


def test_the_band_of_noise_covers_its_level():
    covered = []
    for seed in range(8):
        y = 5.0 + np.random.default_rng(seed).standard_normal((9, 8))
        posterior = (
            GridGP(mean="constant")
            .fit(xr.DataArray(y, {"a": np.arange(9.0), "b": np.arange(8.0)}))
            .posterior()
        )
        covered.append(bool(abs(posterior["mean"] - 5.0).mean() < 2 * posterior["std"].mean()))
    assert np.mean(covered) >= 0.75


def test_the_likelihood_integrates_the_constant_out():
    y = field()
    dense = Dense(POINTS, [TERM], NOISE)
    vague = 1e7
    total = dense.total + vague
    quadratic = y.ravel() @ np.linalg.solve(total, y.ravel())
    value = -0.5 * (
        quadratic + np.linalg.slogdet(total)[1] + (y.size - 1) * np.log(2 * np.pi)
    ) + 0.5 * np.log(vague)

    def exact(shift=0.0, name=None):
        lengths = {"a": 2.0, "b": 3.0}
        if name in lengths:
            lengths[name] *= np.exp(shift)
        height = 1.5 * np.exp(shift * (name == "variance"))
        term = (Matern32(lengths["a"], height), Matern52(lengths["b"], 1.0))
        noise = NOISE * np.exp(shift * (name == "noise"))
        return term, noise

    def evidences(term, noise):
        seen = np.ones(SHAPE, bool)
        return [
            restricted(KroneckerSystem(POINTS, term, noise), y),
            restricted(FibreSystem(POINTS, term, noise, long=1), y),
            DenseSystem(SeparableSum(tuple(POINTS), (term,)), seen, noise).evidence(y, True),
        ]

    step = 1e-5
    for k, evidence in enumerate(evidences(*exact())):
        assert evidence.value == pytest.approx(value, abs=1e-3)
        gradients = [*np.ravel(evidence.by_log_lengthscale)]
        gradients += [float(np.squeeze(evidence.by_log_variance)), evidence.by_log_noise]
        for name, gradient in zip(["a", "b", "variance", "noise"], gradients, strict=True):
            up, down = (evidences(*exact(sign * step, name))[k].value for sign in (1, -1))
            assert gradient == pytest.approx((up - down) / (2 * step), abs=1e-5)


def test_an_estimate_is_that_of_generalised_least_squares():
    matrix = np.array([[2.0, 1.0], [1.0, 5.0]])
    constant = UnknownConstant.of(np.linalg.solve(matrix, np.ones(2)))
    ones = np.linalg.solve(matrix, np.ones(2))
    assert constant.estimate(np.array([3.0, 7.0])) == pytest.approx(ones @ [3, 7] / ones.sum())


@pytest.mark.parametrize("name", ["complete", "cells"])
def test_on_disk_the_constant_is_an_unknown_too(name, monkeypatch, tmp_path):
    terms, noise, observed, options = CASES[name]
    monkeypatch.setattr(systems, "DENSE_CELLS", 0)
    y = field(observed)
    da = xr.DataArray(y, dict(zip("ab", POINTS, strict=True)), name="t")[::-1]
    da.to_dataset().to_zarr(tmp_path / "in.zarr", zarr_format=3, consolidated=False)
    model = fitted(terms, noise, observed, y, variance="local")
    model.smooth_store(tmp_path / "in.zarr", "t", tmp_path / "out.zarr")
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as found:
        mean, covariance, _ = reference(terms, noise, observed, y)
        np.testing.assert_allclose(found["mean"][::-1], mean, rtol=1e-7)
        variance = np.diag(covariance).reshape(SHAPE)
        np.testing.assert_allclose(found["std"][::-1] ** 2, variance, rtol=1e-6)
