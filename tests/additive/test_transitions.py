"""Tables of transitions: each distinct step once, the same wherever they are built."""

import numpy as np
import pytest
from distributed import Client, LocalCluster

from dsgp import compute
from dsgp.additive import TransitionTable, transitions
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import DampedOscillation, Matern52, RationalQuadratic, SquaredExponential


def test_every_distinct_step_is_built_once():
    points = np.cumsum(np.random.default_rng(0).choice([0.25, 0.5, 2.0], 1000))
    kernel = Matern52(1.3, 2.0)
    table = TransitionTable.of(kernel, points)
    assert table.steps.tolist() == [0.25, 0.5, 2.0]
    np.testing.assert_array_equal(table.steps[table.index], np.diff(points))
    for step, phi, noise in zip(table.steps, table.transition, table.process_noise, strict=True):
        np.testing.assert_array_equal(phi, kernel.transition(step))
        np.testing.assert_array_equal(noise, kernel.process_noise(step))


def test_they_move_the_stationary_covariance_to_itself():
    points = np.sort(np.random.default_rng(0).uniform(0, 10, 300))
    space = SquaredExponential(2.0, 1.0).state_space(order=8)
    table = TransitionTable.of(space, points)
    moved = table.transition @ space.stationary_covariance @ np.swapaxes(table.transition, 1, 2)
    expected = np.broadcast_to(space.stationary_covariance, moved.shape)
    np.testing.assert_allclose(moved + table.process_noise, expected, atol=1e-10)


def test_tasks_of_a_cluster_build_the_same(monkeypatch):
    points = np.sort(np.random.default_rng(1).uniform(0, 10, 500))
    kernel = DampedOscillation(2.0, 3.0, 1.0)
    here = TransitionTable.of(kernel, points)
    monkeypatch.setattr(transitions, "_STEPS", 100)
    monkeypatch.setattr(compute, "WORTH_A_GRAPH", 0.0)
    monkeypatch.setattr(compute, "WORTH_A_WORKER", 0.0)
    options = {"processes": False, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(1, **options) as cluster, Client(cluster):
        there = TransitionTable.of(kernel, points)
    np.testing.assert_array_equal(there.transition, here.transition)
    np.testing.assert_array_equal(there.process_noise, here.process_noise)


def test_one_point_has_no_step():
    table = TransitionTable.of(Matern52(1.0, 1.0), [3.0])
    assert table.transition.shape == (0, 3, 3)
    assert len(table.index) == 0


def test_what_has_no_table():
    for points in ([0.0, 0.0], [1.0, 0.5], [0.0, np.nan], [[0.0, 1.0]]):
        with pytest.raises(DataError, match="points must be finite and increase"):
            TransitionTable.of(Matern52(1.0, 1.0), points)
    with pytest.raises(ParameterError, match="no state-space form"):
        TransitionTable.of(RationalQuadratic(1.0, 1.0, 1.0), [0.0, 1.0])
