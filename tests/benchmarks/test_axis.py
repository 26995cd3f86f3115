"""The benchmark code runs, small; nothing here looks at a time."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import axis, axis_contenders
from benchmarks.axis_contenders import CONTENDERS, Unavailable, check_agreement, irregular_series

OURS = tuple(name for name in CONTENDERS if name.startswith("dsgp"))
PEERS = tuple(name for name in CONTENDERS if name not in OURS)
SUITES = (axis.LogLikelihood, axis.LogLikelihoodAndGradient, axis.MeanAndVariance)


def test_series_is_sorted_and_reproducible():
    x, y = irregular_series(200)
    assert (np.diff(x) > 0).all()
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(y, irregular_series(200)[1])


def test_dsgp_solves_the_problem_that_is_timed():
    assert set(check_agreement(200, OURS)) == set(OURS)


@pytest.mark.parametrize("name", PEERS)
def test_peer_solves_the_problem_that_is_timed(name):
    if name not in check_agreement(200, (name,)):
        pytest.skip(f"needs {name.split()[0]}")


def test_another_problem_is_refused(monkeypatch):
    monkeypatch.setattr(axis_contenders.Dsgp, "likelihood", lambda self: -1.0)
    with pytest.raises(AssertionError, match="dsgp Matern32: log likelihood is off"):
        check_agreement(200, ("dsgp Matern32",))


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", OURS)
def test_suite_tracks_a_positive_number(suite, name):
    benchmark = suite()
    benchmark.setup(200, name)
    assert benchmark.track_nanoseconds(200, name) > 0


def test_suite_skips_what_a_contender_lacks(monkeypatch):
    def unavailable(x, y):
        raise Unavailable("not installed")

    monkeypatch.setitem(CONTENDERS, "absent", unavailable)
    with pytest.raises(NotImplementedError, match="not installed"):
        axis.LogLikelihood().setup(200, "absent")


def test_comparison_times_one_call_for_gradient_and_moments():
    nanoseconds, reasons = axis.compare(200, repeats=2, names=OURS)
    assert reasons == {}
    for by_quantity in nanoseconds.values():
        assert by_quantity["gradient"] == by_quantity["moments"] > 0


def test_promise_without_its_peer_is_not_measured():
    nanoseconds = {name: {"likelihood": 10.0, "moments": 20.0} for name in OURS}
    verdicts = [promise.verdict for promise in axis.promises(nanoseconds)]
    assert verdicts == ["not measured"] * 2 + ["pass"] * 4


def test_promises_compare_with_the_faster_peer():
    nanoseconds = {
        "dsgp Matern32": {"likelihood": 30.0, "moments": 90.0},
        "spleaf Matern32": {"likelihood": 50.0, "gradient": 80.0},
        "celerite2 Matern32": {"likelihood": 40.0},
    }
    likelihood, everything = axis.promises(nanoseconds)[:2]
    assert (likelihood.ratio, likelihood.verdict) == (0.75, "fail")
    assert (everything.ratio, everything.verdict) == (1.125, "fail")


def test_command_line_writes_its_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(axis, "CONTENDERS", {name: CONTENDERS[name] for name in OURS})
    monkeypatch.setattr(axis, "check_agreement", lambda: check_agreement(200, OURS))
    path = tmp_path / "axis.json"
    app = axis.typer.Typer()
    app.command()(axis.main)
    options = ["--n", "200", "--repeats", "1", "--json", str(path)]
    assert CliRunner().invoke(app, options).exit_code == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert set(report["ns_per_point"]) == set(OURS)
    assert all(math.isfinite(each["likelihood"]) for each in report["ns_per_point"].values())
    # Without the peers two promises cannot be shown to hold.
    assert CliRunner().invoke(app, [*options, "--check"]).exit_code == 1
