"""The benchmarks of Kronecker algebra run, small; nothing here looks at a time."""

import numpy as np
import pytest

from benchmarks import grid_kronecker


def test_corners_of_small_hypercubes_are_timed(capsys):
    grid_kronecker.corners(smallest=4, largest=6, dense=5, repeats=1)
    assert "slope" in capsys.readouterr().out


def test_a_solve_runs_beside_the_products_it_needs(capsys):
    grid_kronecker.solve(["16,16"], 1)
    assert "bare" in capsys.readouterr().out


def test_an_image_ends_where_the_peer_does(capsys):
    grid_kronecker.image(12, 1)
    x, y, _ = grid_kronecker.noisy_image(12)
    ours, peer = grid_kronecker.ours_image(x, y), grid_kronecker.numpy_image(x, y)
    assert ours[2] == pytest.approx(peer[2], rel=1e-4)
    np.testing.assert_allclose(ours[0], peer[0], atol=0.02)
    np.testing.assert_allclose(ours[1], peer[1], rtol=0.05)
