"""Both commands run, small; nothing here looks at a time."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import pursuit, pursuit_peers
from benchmarks.pursuit_peers import Peer, cost_of_exact_gp, cubic_law
from dsgp.errors import MemoryLimitError

PEER_SIZES = {"largest": 40, "fit_rows": 20, "most_bytes": 1e9, "check_bytes": 0.0}


def rows(n, d=3):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    X[:, -1] = 7.0  # a column that does not vary
    return X, np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(n)


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """A set with the name of one that has a limit."""
    X, y = rows(120)
    np.savez(tmp_path / "kin40k.npz", X=X[:, :2], y=y, is_train=np.arange(120) < 80)
    return tmp_path


def invoke(*arguments):
    done = CliRunner().invoke(pursuit.app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_accuracy_says_what_is_extrapolated(data_dir):
    out = data_dir / "out"
    command = ["accuracy", "kin40k", "--data-dir", data_dir, "--seed", 0, "--seed", 1]
    command += ["--peer-limit", 40, "--peer-rows", 40, "--peer-fit-rows", 20, "--out", out]
    invoke(*command)
    page = (out / "accuracy.md").read_text(encoding="utf-8")
    assert page.count("(extrapolated)") == 2
    report = json.loads((out / "accuracy.json").read_text(encoding="utf-8"))
    assert [fit["seed"] for fit in report["fits"]] == [0, 1]
    assert all(fit["limit"] == 0.018 and fit["fit"]["cpu"] > 0 for fit in report["fits"])
    peer = report["peers"]["kin40k"]
    assert (peer["how"], peer["n_rows"], peer["n_features"]) == ("extrapolated", 80, 2)
    assert set(peer["evaluation_seconds"]) == {"5", "10", "20", "40"}


def test_exact_gp_is_measured_where_it_may_and_only_once(data_dir, monkeypatch):
    out = data_dir / "out"
    command = ["accuracy", "kin40k", "--data-dir", data_dir, "--peer-limit", 80, "--out", out]
    invoke(*command)
    assert "(measured)" in (out / "accuracy.md").read_text(encoding="utf-8")
    monkeypatch.setattr(pursuit, "cost_of_exact_gp", None)
    invoke(*command)
    assert "(measured)" in (out / "accuracy.md").read_text(encoding="utf-8")


def test_scaling_measures_every_size(tmp_path):
    command = ["scaling", "--sizes", "4e2,200", "--n-projections", 2, "--n-test", 50]
    output = invoke(*command, "--repeats", 1, "--out", tmp_path)
    assert "one more projection: processor time ∝ N^" in output
    report = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
    assert [size["n"] for size in report["sizes"]] == [200, 400]
    assert all(size["one_more"]["passes"] > 0 for size in report["sizes"])
    assert "| 400 | 2 |" in (tmp_path / "scaling.md").read_text(encoding="utf-8")


def test_commands_have_examples():
    for command in ("accuracy", "scaling"):
        assert f"python -m benchmarks.pursuit {command}" in invoke(command, "--help")


@pytest.mark.parametrize(
    "arguments", [["accuracy", "absent"], ["scaling", "--sizes", "many"], ["scaling", "-h"]]
)
def test_bad_input_is_an_error(arguments):
    assert CliRunner().invoke(pursuit.app, arguments).exit_code != 0


# ---------------------------------------------------------------------- the exact GP


def test_extrapolation_multiplies_evaluations_by_the_law(monkeypatch):
    def seconds(X, y):
        return 1e-6 * len(y) ** 2 + 1e-9 * len(y) ** 3

    monkeypatch.setattr(pursuit_peers, "evaluation_seconds", seconds)
    peer = cost_of_exact_gp(*rows(200), limit=0, **{**PEER_SIZES, "check_bytes": 1e9})
    assert peer.how == "extrapolated"
    assert peer.by_law == pytest.approx(seconds(None, range(200)))
    assert peer.checked == pytest.approx(peer.by_law)
    assert peer.cpu_seconds == pytest.approx(peer.evaluations * peer.by_law)
    assert peer.evaluations > 2
    assert peer.fit_rows == 20


def test_peer_is_as_it_was_written():
    peer = cost_of_exact_gp(*rows(60), limit=0, **PEER_SIZES)
    kept = json.loads(pursuit._json(peer.as_dict()))
    assert kept["how"] == "extrapolated"
    assert Peer.of(kept) == peer


def test_sizes_that_do_not_fit_into_memory_are_left_out():
    few = {**PEER_SIZES, "most_bytes": pursuit_peers.memory_of(20, 2)}
    peer = cost_of_exact_gp(*rows(60), limit=60, **few)
    assert 16 <= max(peer.evaluation_seconds) <= 20
    with pytest.raises(MemoryLimitError, match="allow more"):
        cost_of_exact_gp(*rows(60), limit=60, **{**few, "most_bytes": 1.0})


def test_law_is_that_of_the_largest_sizes():
    assert cubic_law({5: 1.0, 10: 2e-5, 20: 16e-5}) == pytest.approx((0.0, 2e-8), abs=1e-12)
    assert cubic_law({10: 1.0, 20: 2.0})[1] == 0  # grows slower than N²
    assert cubic_law({10: 1e-4}) == pytest.approx((0.0, 1e-7))
    assert Peer(40, 1, 1, 5, 1.0, {10: 1.0, 20: 8.0, 40: 9.0}).exponent == pytest.approx(3.0)


# ---------------------------------------------------------------------- the rows


def test_rows_share_their_function():
    few, many = pursuit.ridge_sum(1000, stream=2), pursuit.ridge_sum(20_000, stream=3)
    assert not np.isin(few.X[:, 0], many.X[:, 0]).any()
    assert many.f.var() == pytest.approx(1.0, abs=0.2)
    assert (few.y - few.f).std() == pytest.approx(pursuit.NOISE_STD, rel=0.1)
    np.testing.assert_array_equal(few.y, pursuit.ridge_sum(1000, stream=2).y)


def test_slope_is_the_exponent():
    assert pursuit.slope([10, 100, 1000], [1.0, 10.0, 100.0]) == pytest.approx(1.0)
    assert pursuit.slope([10], [1.0]) is None
