"""``pipelines.grid corners``: seconds of a learning iteration, and the full GP beside."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dsgp.grid.kronecker import KroneckerSystem
from dsgp.kernels import Matern32, SquaredExponential
from pipelines.grid import corners
from pipelines.grid.__main__ import app
from pipelines.grid.corners import FULL, OURS, Timing, full_evidence, slopes_of, timings_of
from pipelines.grid.figures import draw_corners
from pipelines.grid.tables import corners_report


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (3, 1, 4)])
def test_the_full_gp_computes_the_same_evidence(shape):
    rng = np.random.default_rng(0)
    points = [np.sort(rng.random(n)) for n in shape]
    kernels = [Matern32(0.3 + 0.1 * d, 1.3) for d in range(len(shape) - 1)]
    kernels.append(SquaredExponential(0.5, 0.7))
    y = rng.standard_normal(shape)
    found = full_evidence(points, kernels, 0.2, y)
    expected = KroneckerSystem(points, kernels, 0.2).evidence(y)
    assert found.value == pytest.approx(expected.value, rel=1e-10)
    np.testing.assert_allclose(
        found.by_log_lengthscale, expected.by_log_lengthscale, rtol=1e-8, atol=1e-10
    )
    assert found.by_log_variance == pytest.approx(expected.by_log_variance, rel=1e-8)
    assert found.by_log_noise == pytest.approx(expected.by_log_noise, rel=1e-8)


def test_both_methods_are_timed_and_agree():
    timings, why = timings_of([3, 4, 5], 10.0, Matern32, 0)
    assert [(own.method, own.n) for own in timings] == [
        (OURS, 8), (OURS, 16), (OURS, 32), (FULL, 8), (FULL, 16), (FULL, 32),
    ]  # fmt: skip
    for ours, full in zip(timings[:3], timings[3:], strict=True):
        assert ours.log_likelihood == pytest.approx(full.log_likelihood, rel=1e-10)
        assert ours.seconds > 0
    assert why == ""


def test_the_full_gp_ends_where_it_would_take_too_long():
    timings, why = timings_of([3, 5, 7], 1e-9, Matern32, 0)
    assert [own.n for own in timings if own.method == FULL] == [8]  # the first is always made
    assert "would take about" in why
    timings, why = timings_of([3, 4], 0.0, Matern32, 0)
    assert all(own.method == OURS for own in timings)
    assert why == "not asked for"


def test_the_full_gp_ends_where_its_matrices_do_not_fit(monkeypatch):
    monkeypatch.setattr(corners.memory, "available", lambda: 10_000)
    timings, why = timings_of([3, 5], 10.0, Matern32, 0)
    assert [own.n for own in timings if own.method == FULL] == [8]
    assert "GiB" in why


def test_slopes_are_those_of_the_large_sizes():
    timings = [Timing(OURS, d, 2**d, max(1e-3, 1e-8 * 2.0 ** (1.1 * d)), 0.0) for d in (8, 17, 20)]
    timings += [Timing(FULL, d, 2**d, 1e-9 * 8.0**d, 0.0) for d in (8, 10, 12)]
    found = slopes_of(timings)
    assert found[OURS] == pytest.approx(1.1)
    assert found[FULL] == pytest.approx(3.0)
    assert slopes_of(timings, 0)[OURS] < 1
    assert slopes_of(timings[:1]) == {}


def test_the_report_and_the_picture_show_both_methods():
    timings = [Timing(OURS, d, 2**d, 1e-9 * 2.0**d, -1.0) for d in (8, 16, 18)]
    timings.append(Timing(FULL, 8, 256, 0.02, -1.0))
    slopes = slopes_of(timings)
    page = corners_report(timings, "Matern32", "at 2^9 corners it is too much", [])
    assert "Kronecker: seconds ∝ N^1.00 over all N, N^1.00 from N = 65,536 on" in page
    assert "too much" in page
    assert "| 16 | 65,536 |" in page
    figure = draw_corners(timings, slopes)
    assert figure.axes[0].get_legend() is None  # which would lie over the points
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Kronecker products of the dims: time ∝ $N^{1.00}$", "full GP, N × N matrices",
    ]  # fmt: skip


def test_the_command_writes_everything(tmp_path):
    out = tmp_path / "out"
    done = invoke("corners", "--dims", "4:7", "--out", out)
    assert done.exit_code == 0, done.output
    assert {entry.name for entry in out.iterdir()} == {
        "corners.png", "metrics.json", "report.json", "report.md",
    }  # fmt: skip
    metrics = json.loads((out / "metrics.json").read_text())
    assert len(metrics["iterations"]) == 8


@pytest.mark.parametrize("dims", ["8", "9:8", "0:4", "8:99", "a:b"])
def test_other_dims_are_refused(tmp_path, dims):
    done = invoke("corners", "--dims", dims, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "--dims takes two numbers" in done.output
