"""The regression pipeline: what it writes is right, whole, and never in place of something else."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import StorageError
from dsgp.kernels import Matern72
from pipelines.datasets import load
from pipelines.regression import app, main, run
from pipelines.run import single

FILES = {
    "components.png",
    "learning.png",
    "model.zarr",
    "predictions.parquet",
    "predictions.png",
    "report.json",
    "summary.txt",
    "terms.csv",
}
PURSUIT_FILES = FILES - {"components.png", "learning.png"} | {
    "evidence.png",
    "projections.png",
    "relevance.png",
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def report_of(out):
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def synth8d(tmp_path_factory):
    out = tmp_path_factory.mktemp("pipeline") / "deep" / "synth8d"
    main("synth8d", n=300, n_test=500, out=out)
    return out


@pytest.fixture
def quick(monkeypatch):
    """Leave out the slowest pictures, where they are not the subject."""
    monkeypatch.setattr(single, "draw_model", lambda model, folder, target: None)


# ---- what is written


def test_every_file_is_there_and_nothing_else(synth8d):
    assert {path.name for path in synth8d.iterdir()} == FILES
    assert report_of(synth8d)["files"] == sorted(FILES)
    assert [path.name for path in synth8d.parent.iterdir()] == ["synth8d"]
    for name in ("components.png", "predictions.png", "learning.png"):
        assert (synth8d / name).read_bytes().startswith(b"\x89PNG")
    assert "AdditiveGPRegressor: 300 rows, 8 terms" in (synth8d / "summary.txt").read_text()


def test_the_report_shows_data_model_cost_and_versions(synth8d):
    report = report_of(synth8d)
    columns = [f"x{j}" for j in range(1, 9)]
    assert report["data"] == {
        "name": "synth8d",
        "n_train": 300,
        "n_test": 500,
        "columns": columns,
        "target": "y",
        "noise_variance": 0.01,
    }
    assert list(report["seconds"]) == ["load", "fit", "predict", "save", "plot"]
    assert report["cpu_seconds"] > 0
    assert report["peak_memory_mb"] > 50
    assert set(report["versions"]) == {
        "python", "dsgp", "numpy", "scipy", "numba", "scikit-learn", "dask", "pandas", "pyarrow",
        "xarray", "zarr"
    }  # fmt: skip
    assert report["seed"] == 2
    assert report["options"]["kernel"] == "matern52"
    assert report["parameters"]["solver"] == "multigrid"
    assert report["converged"] is True

    model = dsgp.load(synth8d / "model.zarr")
    assert report["fitted"]["noise_variance"] == model.noise_variance_
    assert list(report["fitted"]["terms"]) == columns
    for name, kernel in model.kernels_.items():
        assert report["fitted"]["terms"][name]["lengthscale"] == kernel.lengthscale
        assert report["fitted"]["terms"][name]["variance"] == kernel.variance
    assert report["learner_trace"] == model.learner_trace_
    assert report["solver_iterations"] == model.solver_iterations_
    assert report["error_bound"] == model.error_bound_


def test_measures_follow_from_the_predictions(synth8d):
    metrics = report_of(synth8d)["metrics"]
    table = pd.read_parquet(synth8d / "predictions.parquet")
    assert list(table) == ["row", "observed", "mean", "std", "lower", "upper", "truth"]
    split = load("synth8d", n=300, n_test=500)
    np.testing.assert_array_equal(table["observed"], split.y_test)
    error = table["observed"] - table["mean"]
    scale = np.sum((table["observed"] - split.y_train.mean()) ** 2)
    assert metrics["nmse"] == pytest.approx(np.sum(error**2) / scale, rel=1e-12)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
    density = norm.logpdf(table["observed"], table["mean"], table["std"])
    assert metrics["mnlp"] == pytest.approx(-density.mean(), rel=1e-12)
    inside = table["observed"].between(table["lower"], table["upper"])
    assert metrics["coverage"] == pytest.approx(inside.mean(), abs=1e-12)
    np.testing.assert_allclose(table["upper"] - table["mean"], norm.ppf(0.975) * table["std"])
    assert metrics["mse_f"] == pytest.approx(
        np.mean((table["truth"] - table["mean"]) ** 2), rel=1e-12
    )
    best = norm.logpdf(split.y_test, split.f_test, 0.1)
    assert metrics["mnlp_truth"] == pytest.approx(-best.mean(), rel=1e-12)
    assert metrics["mnlp"] > metrics["mnlp_truth"]


def test_predictions_are_those_of_the_saved_model(synth8d):
    table = pd.read_parquet(synth8d / "predictions.parquet")
    model = dsgp.load(synth8d / "model.zarr")
    X = load("synth8d", n=300, n_test=500).X_test
    mean, std = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_array_equal(table["mean"], mean)
    np.testing.assert_array_equal(table["std"], std)


def test_terms_are_a_table_of_explained_variance(synth8d):
    table = pd.read_csv(synth8d / "terms.csv")
    model = dsgp.load(synth8d / "model.zarr")
    assert list(table["term"]) == [term.name for term in model.terms_]
    explained = np.array([term.explained_variance for term in model.terms_])
    np.testing.assert_allclose(table["explained_variance"], explained, rtol=1e-12)
    shares = dsgp.variance_shares(model)["share"]
    np.testing.assert_allclose(table["share"], shares, rtol=1e-9)


def test_diabetes_from_the_command_line(tmp_path):
    out = tmp_path / "diabetes"
    result = invoke("--data", "diabetes", "--out", out, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == FILES
    assert str(out / "components.png") in result.stdout.splitlines()
    report = report_of(out)
    assert f"{report['metrics']['nmse']:.4g}" in result.stdout
    assert report["metrics"]["nmse"] < 0.55
    assert "mse_f" not in report["metrics"]
    table = pd.read_parquet(out / "predictions.parquet")
    split = load("diabetes", seed=3)
    np.testing.assert_array_equal(table["row"], split.X_test.index)
    assert "truth" not in table


def test_a_file_without_learner(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"])
    table.assign(b=1.0, t=table["a"] ** 2).to_csv(tmp_path / "mine.csv", index=False)
    out = tmp_path / "out"
    split = load(tmp_path / "mine.csv", target="t", n=50)
    model = AdditiveGPRegressor(
        Matern72(lengthscale=1.0, variance=1.0), noise_variance=0.01, learner=None
    )
    report = run(split, model, out)
    assert set(report["files"]) == FILES - {"learning.png"}
    assert "constant over the training rows" in report["warnings"][0]
    assert report["fitted"]["constant_columns"] == ["b"]
    assert report == report_of(out)


def test_a_folder_streams_through_the_pipeline(tmp_path, monkeypatch):
    rng, rows, out = np.random.default_rng(0), tmp_path / "rows", tmp_path / "out"
    rows.mkdir()
    for part in range(2):
        X = pd.DataFrame(rng.uniform(-1, 1, (900, 2)), columns=["a", "b"])
        X["y"] = np.sin(3 * X["a"]) + X["b"] + 0.1 * rng.standard_normal(900)
        X.to_parquet(rows / f"part-{part}.parquet")
    monkeypatch.setattr("pipelines.run.encoding.IN_MEMORY", 100)
    result = invoke("--data", rows, "--target", "y", "--out", out)
    assert result.exit_code == 0, result.output
    report = report_of(out)
    assert {path.name for path in out.iterdir()} == FILES
    assert report["data"]["n_train"] + report["data"]["n_test"] == 1800
    assert report["data"]["n_test"] == pytest.approx(360, abs=60)
    assert report["metrics"]["rmse"] == pytest.approx(0.1, rel=0.1)
    refused = invoke("--data", rows, "--target", "y", "--n", "10", "--out", out)
    assert "are for sets that are read at once" in refused.stderr


def test_projection_pursuit_from_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (250, 3)), columns=["a", "b", "c"])
    y = X["a"] * X["b"] + 0.05 * rng.standard_normal(250)
    X.assign(y=y).to_csv(tmp_path / "mine.csv", index=False)
    out = tmp_path / "out"
    result = invoke("--data", tmp_path / "mine.csv", "--target", "y", "--model", "pursuit",
                    "--projections", 2, "--starts", 4, "--seed", 5, "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == PURSUIT_FILES
    for name in ("projections.png", "relevance.png", "evidence.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert str(out / name) in result.stdout.splitlines()
    report, model = report_of(out), dsgp.load(out / "model.zarr")
    split = load(tmp_path / "mine.csv", target="y", seed=5)
    expected = dsgp.ProjectionPursuitGPRegressor(n_projections=2, n_starts=4, random_state=5).fit(
        split.X_train, split.y_train
    )
    np.testing.assert_array_equal(model.projections_, expected.projections_)
    assert report["metrics"]["nmse"] < 0.2
    assert report["model"] == "ProjectionPursuitGPRegressor"
    fitted = report["fitted"]
    assert fitted["projections"] == expected.projections_.to_dict(orient="index")
    assert fitted["relevance"] == expected.relevance_.to_dict()
    assert fitted["evidence"] == expected.evidence_
    assert fitted["evidence_trace"] == expected.evidence_trace_
    assert list(pd.read_csv(out / "terms.csv")["term"]) == list(expected.projections_.index)
    (line,) = [line for line in result.stdout.splitlines() if "projections" in line and "│" in line]
    assert line.split("│")[2].strip() == "2"


def test_each_model_has_a_folder_of_its_own_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(single, "draw_model", lambda model, folder, target: None)
    data = ("--data", "synth8d", "--n", 40, "--n-test", 20)
    for more in ((), ("--model", "pursuit", "--projections", 1, "--starts", 1)):
        result = invoke(*data, *more)
        assert result.exit_code == 0, result.output
    assert {path.name for path in Path("results").iterdir()} == {"synth8d", "synth8d-pursuit"}


@pytest.mark.usefixtures("quick")
def test_inputs_are_chosen_from_the_command_line(tmp_path):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((50, 4)), columns=["a", "b", "c", "t"])
    table.assign(name="n", place="p").to_csv(tmp_path / "mine.csv", index=False)
    out = tmp_path / "out"
    start = ("--data", tmp_path / "mine.csv", "--target", "t", "--out", out)
    for arguments, columns in [
        (("--drop", "name, place", "--drop", "b"), ["a", "c"]),
        (("--columns", "c,a"), ["c", "a"]),
    ]:
        result = invoke(*start, *arguments)
        assert result.exit_code == 0, result.output
        assert report_of(out)["data"]["columns"] == columns
    refused = invoke(*start)
    assert refused.exit_code == 1
    assert "2 columns cannot be used" in refused.stderr
    assert "input column 'name' is not numeric" in refused.stderr
    assert "input column 'place' is not numeric" in refused.stderr
    assert "(--drop name,place, or --columns with the others)" in refused.stderr


def test_gaps_and_other_csv_files_are_taken_as_said(tmp_path, monkeypatch):
    monkeypatch.setattr(single, "draw_model", lambda model, folder, target: None)
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((50, 3)), columns=["größe", "b", "t"])
    table.loc[::5, "b"] = np.nan
    path, out = tmp_path / "mine.csv", tmp_path / "out"
    table.to_csv(path, index=False, sep=";", decimal=",", encoding="latin-1")
    start = ("--data", path, "--target", "t", "--out", out)
    refused = invoke(*start)
    assert refused.exit_code == 1
    assert "not in UTF-8" in refused.stderr
    told = ("--encoding", "latin-1", "--delimiter", ";", "--decimal", ",")
    refused = invoke(*start, "--encoding", "latin-1")
    assert "separated by ';'" in refused.stderr
    refused = invoke(*start, *told)
    assert "'b' contains NaN (missing) in row 0" in refused.stderr
    result = invoke(*start, *told, "--missing", "ignore")
    assert result.exit_code == 0, result.output
    assert report_of(out)["data"]["n_train"] == 40
    assert 0 < dsgp.load(out / "model.zarr").n_missing_["b"] <= 10
    refused = invoke(*start, *told, "--missing", "ignore", "--model", "pursuit")
    assert "--missing is an option of --model additive" in refused.stderr


def test_help_is_plain_and_fits_80_columns():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "│" not in text
    assert text.count("python -m pipelines.regression --data") == 4


# ---- the folder


@pytest.mark.usefixtures("quick")
def test_a_second_run_replaces_the_first(tmp_path):
    out = tmp_path / "out"
    for seed in (1, 2):
        assert invoke("--data", "synth8d", "--n", 50, "--n-test", 50, "--out", out,
                      "--seed", seed).exit_code == 0  # fmt: skip
    assert report_of(out)["seed"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    other = ("--data", "diabetes", "--n", 50, "--out", out)
    refused = invoke(*other)
    assert refused.exit_code == 1
    assert "holds the results of regression on synth8d" in refused.stderr
    assert report_of(out)["data"]["name"] == "synth8d"
    assert invoke(*other, "--overwrite").exit_code == 0
    assert report_of(out)["data"]["name"] == "diabetes"

    (out / "notes.md").write_text("mine")
    with pytest.raises(StorageError, match=r"holds 'notes\.md' beside the results"):
        run(load("diabetes", n=50), AdditiveGPRegressor(), out, overwrite=True)
    assert (out / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("report", [None, "{}", '{"made_by": "another"}', "no JSON"])
def test_a_foreign_folder_is_refused_before_the_fit(tmp_path, report):
    (tmp_path / "thesis.tex").write_text("years of work")
    if report is not None:
        (tmp_path / "report.json").write_text(report)
    result = invoke("--data", "diabetes", "--out", tmp_path, "--overwrite")
    assert result.exit_code == 1
    assert "no pipeline of dsgp wrote it" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.usefixtures("quick")
def test_an_empty_folder_is_used_and_a_file_refused(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    split = load("synth8d", n=30, n_test=20)
    report = run(split, AdditiveGPRegressor(), empty)
    assert {path.name for path in empty.iterdir()} == set(report["files"])
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file"):
        run(split, AdditiveGPRegressor(), tmp_path / "file")


class Interrupted(AdditiveGPRegressor):
    """Its user loses patience when everything but the model is written."""

    def save(self, path, overwrite=False):
        raise KeyboardInterrupt


@pytest.mark.usefixtures("quick")
def test_an_interrupted_run_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    split = load("synth8d", n=30, n_test=20)
    with pytest.raises(KeyboardInterrupt):
        run(split, Interrupted(), out)
    assert list(tmp_path.iterdir()) == []

    run(split, AdditiveGPRegressor(), out)
    before = report_of(out)
    with pytest.raises(KeyboardInterrupt):
        run(split, Interrupted(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert report_of(out) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "kin41k"), "unknown data set 'kin41k'; known: synth8d, synth32d, diabetes"),
        (("--data", "diabetes", "--kernel", "rbf"), "one of matern12, matern32, matern52"),
        (("--data", "diabetes", "--solver", "lu"), "solver must be one of"),
        (("--data", "diabetes", "--learner", "none"), "lengthscale"),
        (("--data", "diabetes", "--model", "linear"), "model must be one of additive, pursuit"),
        (("--data", "diabetes", "--starts", "3"), "--starts is an option of --model pursuit"),
        (("--data", "diabetes", "--no-relevance"), "--no-relevance is an option of --model pursu"),
        (
            ("--data", "diabetes", "--model", "pursuit", "--learner", "vbem"),
            "--learner is an option of --model additive, and this is --model pursuit; leave it out",
        ),
        (
            ("--data", "diabetes", "--model", "pursuit", "--projections", "few"),
            'n_projections must be "auto" or an integer',
        ),
        (
            ("--data", "diabetes", "--model", "pursuit", "--kernel", "matern12"),
            "has no derivative",
        ),
        (("--data", "diabetes", "--target", "bmi"), "diabetes comes with its target"),
        (("--data", "diabetes", "--drop", "sex,bmj"), "no input column 'bmj'; there are: age, sex"),
        (("--data", "diabetes", "--drop", "sex", "--columns", "bmi"), "leave out --drop"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, message):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# ---- as a process

ROOT = Path(__file__).parents[2]


def test_without_matplotlib_one_line_says_what_to_install():
    code = (
        "import runpy, sys; sys.modules['matplotlib'] = None; sys.argv[1:] = ['--help']; "
        "runpy.run_module('pipelines.regression', run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert 'pip install ".[plot]"' in line


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to handle")
def test_a_terminated_run_leaves_nothing(tmp_path):
    out = tmp_path / "deep" / "out"
    command = ["-m", "pipelines.regression", "--data", "synth8d", "--n", "500000", "--n-test", "10"]
    process = subprocess.Popen(
        [sys.executable, *command, "--out", str(out)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not list(out.parent.glob(".out.*.part")):  # there from the start of the fit
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        # Python drops an exception that lands in a finaliser: then the signal is sent again.
        for _ in range(6):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
                break
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


# ---- how good it is


@pytest.mark.usefixtures("quick")
def test_elevators_are_predicted_and_their_intervals_hold(data_dir, tmp_path):
    report = run(load("elevators", data_dir=data_dir), AdditiveGPRegressor(), tmp_path / "out")
    assert report["metrics"]["nmse"] <= 0.150
    assert 0.92 <= report["metrics"]["coverage"] <= 0.98


def test_learned_hyperparameters_are_as_good_as_the_true_ones():
    split = load("synth8d")
    learned = AdditiveGPRegressor(Matern72())
    true = AdditiveGPRegressor(
        Matern72(lengthscale=1.0, variance=1.0), noise_variance=0.01, learner=None
    )
    mse = {}
    for name, model in {"learned": learned, "true": true}.items():
        mean = model.fit(split.X_train, split.y_train).predict(split.X_test)
        mse[name] = np.mean((mean - split.f_test) ** 2)
    assert mse["learned"] <= 1.05 * mse["true"]
    mean, std = learned.predict(split.X_test, return_std=True, include_noise=True)
    inside = np.abs(split.y_test - mean) <= norm.ppf(0.975) * std
    assert 0.93 <= inside.mean() <= 0.97
