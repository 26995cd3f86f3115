"""Peers that fill gaps: against the shared baseline, and where the answer is known."""

import importlib.util

import numpy as np
import pytest
import xarray as xr

from dsgp.errors import DataError, ParameterError
from pipelines.datasets import hold_out
from pipelines.peers.gaps import Dineof, PyDineof, linear


@pytest.fixture
def of_rank_2():
    """A field of two modes and a mean, and where it is seen: 60 % at random."""
    rng = np.random.default_rng(0)
    time = np.arange(30.0)
    modes = np.stack([np.sin(time / 4), np.cos(time / 7)])
    space = rng.standard_normal((2, 12, 15))
    values = 5 + np.einsum("kt,kij->tij", modes, space)
    return values, rng.random(values.shape) < 0.6


def test_linear_reproduces_a_plane_within_the_hull():
    x, y = np.meshgrid(np.arange(9.0), np.arange(8.0))
    values = np.stack([1 + 2 * x - y, 3 - x + 0.5 * y])
    fit = np.random.default_rng(1).random(values.shape) < 0.9
    fit[:, [0, 0, -1, -1], [0, -1, 0, -1]] = True
    filled = linear(values, fit, ~fit).values
    np.testing.assert_allclose(filled[~fit], values[~fit])
    assert np.isnan(filled[fit]).all()


def test_linear_leaves_out_a_time_step_of_few_cells():
    values = np.ones((2, 10, 10))
    fit = np.ones(values.shape, dtype=bool)
    fit[1, 4:] = False
    fit[0, 0, 0] = False
    filled = linear(values, fit, ~fit).values
    assert filled[0, 0, 0] == 1
    assert np.isnan(filled[1]).all()


def test_linear_is_the_shared_baseline(shared):
    path = shared / "bench" / "gaps" / "holdout.py"
    if not path.is_file():
        pytest.skip("needs ../shared/bench/gaps/holdout.py")
    spec = importlib.util.spec_from_file_location("holdout", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    values = np.random.default_rng(2).standard_normal((3, 25, 25)).cumsum(1).cumsum(2)
    held = hold_out(xr.DataArray(values), side=5, blocks=3)
    filled = linear(values, held.fit, held.held).values
    for cells in (held.points, held.clouds):
        error = np.sqrt(np.mean((filled - values)[cells] ** 2))
        assert error == pytest.approx(module.linear(values, held.fit, cells), rel=1e-12)


def test_dineof_recovers_a_field_of_few_modes(of_rank_2):
    values, fit = of_rank_2
    noisy = values + 0.01 * np.random.default_rng(6).standard_normal(values.shape)
    found = Dineof(tol=1e-6)(noisy, fit, ~fit)
    # The mean of the seen cells is not that of all, hence a third mode.
    assert found.details["modes"] in (2, 3)
    assert np.abs(found.values - values)[~fit].max() < 0.03
    assert np.isnan(found.values[fit]).all()


def test_dineof_gives_a_cell_never_seen_the_mean(of_rank_2):
    values, fit = of_rank_2
    fit[:, 3, 4] = False
    found = Dineof()(values, fit, ~fit)
    np.testing.assert_allclose(found.values[:, 3, 4], values[fit].mean())
    assert found.details["cells never seen"] == len(values)
    assert np.isfinite(found.values[~fit]).all()


def test_dineof_of_noise_takes_few_modes():
    rng = np.random.default_rng(3)
    values = rng.standard_normal((20, 15, 15))
    fit = rng.random(values.shape) < 0.7
    found = Dineof()(values, fit, ~fit)
    assert found.details["modes"] <= 3


def test_dineof_of_a_constant_is_the_constant():
    fit = np.random.default_rng(4).random((6, 10, 10)) < 0.7
    found = Dineof()(np.full(fit.shape, 2.0), fit, ~fit)
    np.testing.assert_allclose(found.values[~fit], 2.0)


def test_dineof_needs_values_to_set_aside():
    with pytest.raises(DataError, match="needs some observed values to set aside"):
        Dineof()(np.ones((2, 2, 2)), np.ones((2, 2, 2), dtype=bool), np.ones((2, 2, 2), dtype=bool))


@pytest.mark.skipif(not PyDineof.is_installed(), reason="pyDINEOF is not installed")
def test_dineof_agrees_with_the_library(of_rank_2):
    values, fit = of_rank_2
    values = values + 0.1 * np.random.default_rng(5).standard_normal(values.shape)
    ours, theirs = (peer(values, fit, ~fit).values[~fit] for peer in (Dineof(), PyDineof()))
    error = np.sqrt(np.mean((ours - values[~fit]) ** 2))
    assert np.sqrt(np.mean((theirs - values[~fit]) ** 2)) == pytest.approx(error, rel=0.2)


@pytest.mark.skipif(PyDineof.is_installed(), reason="pyDINEOF is installed")
def test_absent_library_says_how_to_install_it(of_rank_2):
    values, fit = of_rank_2
    with pytest.raises(ParameterError, match="pip install pyDINEOF"):
        PyDineof()(values, fit, ~fit)
