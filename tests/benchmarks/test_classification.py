"""All commands run, small; nothing here looks at a time."""

import json
import shutil
import subprocess

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import classification, classification_fits
from benchmarks.classification_fits import (
    Contender,
    Repeats,
    Scores,
    cost_of_svc,
    inputs,
    peer_seconds,
    true_components,
)
from dsgp.errors import DsgpError, ParameterError
from pipelines.datasets import load_counts
from pipelines.peers import Mgcv, PeerFit

needs_r = pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")


def invoke(*arguments):
    done = CliRunner().invoke(classification.app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def in_process(monkeypatch):
    """Tasks run here instead of in processes of their own."""

    def apart(task, limit=None, **options):
        return json.loads(json.dumps(classification_fits.TASKS[task](**options)))

    monkeypatch.setattr(classification, "apart", apart)
    monkeypatch.setattr(classification_fits, "WARM_UP_ROWS", 300)
    return apart


@pytest.fixture
def data_dir(tmp_path):
    """A set with the name of one that has limits."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = (rng.random(300) < 1 / (1 + np.exp(-4 * np.sin(2 * X[:, 0])))).astype(int)
    np.savez(tmp_path / "magic_gamma.npz", X=X, y=y)
    return tmp_path


# ---------------------------------------------------------------------- commands


def test_accuracy_compares_with_baselines_and_limits(data_dir, in_process):
    command = ["accuracy", "magic_gamma", "--data-dir", data_dir, "--pursuit"]
    invoke(*command, "--out", data_dir / "out")
    report = json.loads((data_dir / "out" / "accuracy.json").read_text(encoding="utf-8"))
    methods = [fit["method"] for fit in report["fits"]]
    assert methods == ["dsgp, additive", "dsgp, pursuit", *classification_fits.baselines()]
    assert [fit["limits"] for fit in report["fits"][:3]] == [[0.146, 0.363], [0.13, 0.32], None]
    assert all(0 < fit["scores"]["error"] < 0.5 for fit in report["fits"])
    assert [fit["n_train"] for fit in report["fits"]] == [240] * 5
    assert "| 0.146 / 0.363 |" in (data_dir / "out" / "accuracy.md").read_text(encoding="utf-8")


@needs_r
def test_mgcv_takes_turns_on_the_same_rows(tmp_path, in_process):
    command = ["mgcv", "--sizes", "1500", "--k", 6, "--n-test", 200, "--repeats", 2]
    invoke(*command, "--out", tmp_path)
    report = json.loads((tmp_path / "mgcv.json").read_text(encoding="utf-8"))
    names = [each["name"] for each in report["contenders"]]
    assert names == ["dsgp, default", "dsgp, matern72", "mgcv, k = 6"]
    assert all(len(each["fit"]["cpu"]) == 2 for each in report["contenders"])
    scores = [each["scores"]["mnll"] for each in report["contenders"]]
    assert max(scores) < min(scores) + 0.1


def test_scaling_measures_every_size(tmp_path, in_process, monkeypatch):
    monkeypatch.setattr(
        classification, "cost_of_svc", lambda *given: cost_of_svc(*given, in_process)
    )
    command = ["scaling", "--sizes", "6e2,300", "--n-test", 100, "--repeats", 1]
    output = invoke(*command, "--learn-n", 400, "--iterations", 2, "--out", tmp_path)
    assert "cpu time: ∝ N^" in output
    assert "measured" in output
    report = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
    assert [size["n"] for size in report["sizes"]] == [300, 600]
    assert all(size["scores"]["mnll"] > size["bayes"]["mnll"] - 0.1 for size in report["sizes"])
    assert sum(report["learner"]["modes"]) >= 2
    assert report["svc"]["exponent"] is None


def test_poisson_compares_components(tmp_path, in_process):
    invoke("poisson", "--n", 2000, "--n-test", 300, "--no-mgcv", "--out", tmp_path)
    (fit,) = json.loads((tmp_path / "poisson.json").read_text(encoding="utf-8"))["fits"]
    assert len(fit["components"]) == 8
    assert all(each["rmse"] < each["std"] for each in fit["components"].values())
    assert fit["nll"] == pytest.approx(fit["nll_truth"], abs=0.05)
    assert "| mean of all |" in (tmp_path / "poisson.md").read_text(encoding="utf-8")


def test_commands_have_examples():
    for command in ("accuracy", "mgcv", "scaling", "poisson"):
        assert f"python -m benchmarks.classification {command}" in invoke(command, "--help")


@pytest.mark.parametrize(
    "arguments",
    [
        ["accuracy", "absent"],
        ["mgcv", "--sizes", "many"],
        ["mgcv", "--kernels", "default,linear"],
        ["scaling", "--kernel", "linear"],
        ["scaling", "--repeats", "0"],
        ["poisson", "--n", "7"],
    ],
)
def test_bad_input_is_an_error(arguments):
    assert CliRunner().invoke(classification.app, arguments).exit_code != 0


# ---------------------------------------------------------------------- what is measured


def test_task_runs_in_a_process_of_its_own():
    assert classification_fits.apart("svc", n=200)["n"] == 200
    with pytest.raises(DsgpError, match=r"svc .* failed"):
        classification_fits.apart("svc", n=0)


def test_svc_is_extrapolated_only_after_its_limit():
    def run(task, limit=None, *, n):
        if limit is not None:
            raise subprocess.TimeoutExpired(task, limit)
        return {"fit": {"cpu": 1e-6 * n**2}}

    machine = cost_of_svc(4000, 1000, 1.0, run)
    assert machine.exponent == pytest.approx(2.0)
    assert machine.cpu_seconds == pytest.approx(16.0)
    assert cost_of_svc(4000, 1000, None, run).exponent is None


def test_promises_are_about_the_default_model():
    def contender(name, seconds, mnll):
        once = Repeats((seconds,), (seconds,))
        return Contender(name, 1_000_000, once, once, Scores(0.2, mnll, 0.01), {})

    found = [contender("ours", 1.0, 0.4302), contender("mgcv", 3.0, 0.43)]
    assert list(classification.mgcv_promises(found, 0.4293).values()) == [True, True]
    assert list(classification.mgcv_promises(found[::-1], 0.4280).values()) == [False, False]


def test_faster_way_of_mgcv_counts():
    found = PeerFit(
        np.zeros(1),
        np.ones(1),
        None,
        {"fit": 2.0, "predict": 0.5},
        {"fit": 3.5, "predict": 0.4},
        details={"fit_cpu_seconds_one_thread": 3.0},
    )
    fit, predict = peer_seconds(found)
    assert (fit.cpu, fit.wall, predict.cpu, predict.wall) == (3.0, 2.0, 0.4, 0.5)


def test_true_components_add_up_to_the_rate():
    split = load_counts("synth8d-poisson", n=50, n_test=20)
    total = true_components(inputs(split)[1]).sum(axis=1)
    np.testing.assert_allclose(np.diff(total), np.diff(split.f_test), atol=1e-12)


# ---------------------------------------------------------------------- mgcv of other families


@needs_r
def test_mgcv_takes_offsets_of_counts():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    exposure = rng.uniform(1, 9, 2000)
    f = np.sin(3 * X[:, 0])
    y = rng.poisson(exposure * np.exp(f)).astype(float)
    found = Mgcv(8, "poisson").fit_predict(X, y, X[:200], offset=np.log(exposure))
    assert found.noise_variance is None
    assert np.sqrt(np.mean((found.mean - f[:200]) ** 2)) < 0.1


def test_mgcv_has_no_other_families():
    with pytest.raises(ParameterError, match="gaussian, binomial, poisson"):
        Mgcv(8, "gamma")
