"""The classification pipeline: what it writes is right and whole; local scoring in the chain."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from typer.testing import CliRunner

import dsgp
from dsgp import AdditiveGPClassifier, GeneralizedAdditiveGP
from dsgp.cli import app as dsgp_app
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern32, Matern52, Matern72
from pipelines.classification import app, run
from pipelines.datasets import load_counts, load_labels
from pipelines.run.__main__ import run as run_chain
from pipelines.run.config import validated
from pipelines.run.measures import measure_classes
from pipelines.run.view import View

FILES = {
    "calibration.png",
    "components.png",
    "learning.png",
    "model.zarr",
    "predictions.parquet",
    "report.json",
    "roc.png",
    "summary.txt",
    "terms.csv",
}
COLUMNS = ["x1", "x2"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def report_of(out):
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    out = tmp_path_factory.mktemp("classification") / "binary"
    result = invoke("--data", "synth8d-binary", "--n", 400, "--n-test", 300,
                    "--columns", "x1,x2", "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    return out, result.stdout


# ---- what is written


def test_every_file_is_there_and_nothing_else(binary):
    out, printed = binary
    assert {path.name for path in out.iterdir()} == FILES
    report = report_of(out)
    assert report["files"] == sorted(FILES)
    assert report["pipeline"] == "classification"
    assert report["data"]["columns"] == COLUMNS
    assert sum(report["data"]["classes"].values()) == report["data"]["n_train"] == 400
    assert report["seed"] == 3
    assert list(report["seconds"]) == ["load", "fit", "predict", "save", "plot"]
    assert "noise_variance" not in report["fitted"]
    assert set(report["fitted"]["terms"]) <= set(COLUMNS)
    assert f"{report['metrics']['mnll']:.4g}" in printed
    assert str(out / "roc.png") in printed.splitlines()


def test_measures_follow_from_the_predictions(binary):
    out, _ = binary
    table, metrics = pd.read_parquet(out / "predictions.parquet"), report_of(out)["metrics"]
    split = load_labels("synth8d-binary", n=400, n_test=300, columns=COLUMNS)
    np.testing.assert_array_equal(table["observed"], split.y_test)
    names = [f"p({label})" for label in split.classes]
    assert list(table) == ["row", "observed", "predicted", *names, "truth"]
    probability = table[names].to_numpy()
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    second = split.y_test == split.classes[1]
    assert metrics["error_rate"] == np.mean(table["predicted"] != table["observed"])
    assert metrics["mnll"] == pytest.approx(log_loss(second, probability[:, 1]), rel=1e-9)
    assert metrics["brier"] == pytest.approx(brier_score_loss(second, probability[:, 1]))
    assert metrics["auc"] == pytest.approx(roc_auc_score(second, probability[:, 1]))
    np.testing.assert_allclose(table["truth"], split.probability_test)
    assert metrics["mnll"] > metrics["mnll_truth"]


def test_predictions_are_those_of_the_saved_model(binary):
    out, _ = binary
    split = load_labels("synth8d-binary", n=400, n_test=300, columns=COLUMNS)
    model = dsgp.load(out / "model.zarr")
    np.testing.assert_array_equal(model.classes_, split.classes)
    table = pd.read_parquet(out / "predictions.parquet")
    np.testing.assert_array_equal(
        table[[f"p({label})" for label in split.classes]], model.predict_proba(split.X_test)
    )
    expected = AdditiveGPClassifier(random_state=3).fit(split.X_train, split.y_train)
    np.testing.assert_array_equal(
        model.predict_proba(split.X_test), expected.predict_proba(split.X_test)
    )


def test_labels_may_be_text_and_more_than_two(tmp_path):
    split = load_labels("wine", columns=["flavanoids", "proline"])
    out = tmp_path / "out"
    report = run(split, AdditiveGPClassifier(multi_class="ovr", learner_max_iter=5), out)
    assert {"calibration.png", "roc.png", "terms.csv"} <= set(report["files"])
    labels = [str(label) for label in split.classes]
    assert len(labels) == 3
    assert {f"components-{label}.png" for label in labels} <= set(report["files"])
    assert list(report["fitted"]) == labels
    assert set(pd.read_csv(out / "terms.csv")["class"]) == set(labels)
    assert report["metrics"]["error_rate"] < 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "kin41k"), "unknown data set 'kin41k'; known: synth8d-binary, breast_cancer"),
        (("--data", "wine", "--kernel", "rbf"), "kernel.type: expected 'matern12', 'matern32'"),
        (("--data", "wine", "--link", "log"), "link: expected 'logit' or 'probit', got 'log'"),
        (("--data", "wine", "--model", "linear"), "model must be one of additive, pursuit"),
        (("--data", "wine", "--projections", "3"), "--projections is an option of --model pursu"),
        (("--data", "wine", "--model", "pursuit", "--learner", "none"), "--learner is an option"),
        (("--data", "wine", "--model", "pursuit", "--multi-class", "ovr"), "--multi-class is an"),
        (("--data", "diabetes"), "diabetes"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, message):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_help_is_plain_and_fits_80_columns():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "│" not in text
    assert text.count("python -m pipelines.classification --data") == 4


def test_without_matplotlib_one_line_says_what_to_install():
    code = (
        "import runpy, sys; sys.modules['matplotlib'] = None; sys.argv[1:] = ['--help']; "
        "runpy.run_module('pipelines.classification', run_name='__main__')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert 'pip install ".[plot]"' in line


# ---- tables that stream


@pytest.fixture
def rows(tmp_path):
    """A table of two files, with text, numbers and counts for targets."""
    folder, rng = tmp_path / "rows", np.random.default_rng(4)
    folder.mkdir()
    for part in range(2):
        X = pd.DataFrame(rng.uniform(-1, 1, (800, 2)), columns=["a", "b"])
        second = rng.random(800) < 1 / (1 + np.exp(-3 * np.sin(3 * X["a"]) - X["b"]))
        X["name"] = np.where(second, "yes", "no")
        X["number"] = np.where(second, 2.0, 1.0)
        X["count"] = rng.poisson(np.exp(X["b"])).astype(float)
        X["years"] = 1.0
        X.to_parquet(folder / f"part-{part}.parquet", index=False)
    return folder


def change(folder, part, column, row, value):
    path = folder / f"part-{part}.parquet"
    frame = pd.read_parquet(path)
    frame.loc[row, column] = value
    frame.to_parquet(path, index=False)


def streamed(folder, target, scoring=(), **load):
    return validated(
        {
            "task": "counts" if target == "count" else "classification",
            "load": {"data": str(folder), "target": target, "columns": ["a", "b"], **load},
            "encode": {"in_memory": False},
            "models": {"m": {"scoring": {"bins": 32, **dict(scoring)}}},
            "report": {"figures": False},
        },
        "test",
    )


def test_a_folder_streams_through_the_pipeline(rows, tmp_path, monkeypatch):
    change(rows, 1, "name", 3, "")
    change(rows, 1, "name", 4, None)
    change(rows, 0, "a", 5, np.nan)
    monkeypatch.setattr("pipelines.run.encoding.IN_MEMORY", 100)
    out = tmp_path / "out"
    result = invoke("--data", rows, "--target", "name", "--columns", "a,b", "--out", out)
    assert result.exit_code == 0, result.output
    report = report_of(out)
    assert {path.name for path in out.iterdir()} == FILES
    assert report["data"]["n_left_out"] == 3
    assert report["warnings"] == [
        "rows: 3 of 1600 rows are left out, with values missing in 'a', 'name'"
    ]
    assert list(report["data"]["classes"]) == ["no", "yes"]
    assert report["data"]["n_train"] + report["data"]["n_test"] == 1597
    assert report["metrics"]["error_rate"] < 0.3
    table = pd.read_parquet(out / "predictions.parquet")
    source = pd.concat([pd.read_parquet(path) for path in sorted(rows.iterdir())])
    np.testing.assert_array_equal(source["name"].to_numpy()[table["row"]], table["observed"])


def test_a_model_of_a_stream_knows_the_labels(rows, tmp_path):
    run_chain(streamed(rows, "name"), tmp_path / "out")
    saved = tmp_path / "out" / "models" / "m" / "scoring" / "model.zarr"
    assert dsgp.load(saved).classes_.tolist() == ["no", "yes"]
    predicted = tmp_path / "predicted.csv"
    arguments = ["predict", saved, rows / "part-0.parquet", "--out", predicted]
    assert CliRunner().invoke(dsgp_app, [str(word) for word in arguments]).exit_code == 0
    assert set(pd.read_csv(predicted)["predicted"]) == {"no", "yes"}


def test_labels_are_treated_alike_wherever_the_rows_are(rows, tmp_path):
    one = tmp_path / "one.parquet"

    def gather():
        parts = [pd.read_parquet(path) for path in sorted(rows.iterdir())]
        pd.concat(parts, ignore_index=True).to_parquet(one)

    change(rows, 0, "number", 6, np.nan)
    gather()
    for data in (rows, one):
        report = run_chain(streamed(data, "number"), tmp_path / f"out-{data.stem}")
        assert report["data"]["classes"] == [1, 2]
        assert report["data"]["n_left_out"] == 1
    change(rows, 1, "number", 7, 1.5)
    gather()
    for data, row in ((rows, 7), (one, 807)):
        with pytest.raises(DataError, match=rf"'number' is 1\.5 in row {row}; expected labels"):
            run_chain(streamed(data, "number"), tmp_path / f"wrong-{data.stem}")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("count", -1, r"part-1\.parquet.*'count' is -1 in row 9; expected counts"),
        ("count", 0.5, r"part-1\.parquet.*'count' is 0\.5 in row 9; expected counts"),
        ("count", np.nan, r"part-1\.parquet.*'count' contains NaN \(missing\) in row 9"),
        ("years", 0.0, r"part-1\.parquet.*'years' is 0 in row 9; expected exposures above 0"),
    ],
)
def test_a_bad_count_of_a_stream_is_reported_where_it_is(rows, tmp_path, column, value, message):
    change(rows, 1, column, 9, value)
    with pytest.raises(DataError, match=message):
        run_chain(streamed(rows, "count", exposure="years"), tmp_path / "out")


def test_an_infinite_mnll_is_left_empty():
    labels, classes = np.array(["a", "b", "b"]), np.array(["a", "b"])
    probability = np.array([[0.9, 0.1], [1.0, 0.0], [0.2, 0.8]])
    metrics = measure_classes(labels, probability, classes)
    assert metrics["mnll"] is None
    assert metrics["error_rate"] == pytest.approx(1 / 3)


def test_a_baseline_that_is_sure_and_wrong_does_not_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sklearn.linear_model.LogisticRegression.predict_proba",
        lambda model, X: np.tile([1.0, 0.0], (X.shape[0], 1)),
    )
    document = {**CHAIN, "models": {"sure": {"baseline": "splines"}}}
    entry = run_chain(validated(document, "test"), tmp_path / "out")["models"]["sure"]
    assert entry["metrics"]["mnll"] is None
    (message,) = entry["warnings"]["evaluation"]
    assert message.startswith("sure gives probability 0 to the label of ")


# ---- local scoring in the chain

CHAIN = {
    "task": "classification",
    "load": {"data": "synth8d-binary", "n": 500, "n_test": 200, "columns": COLUMNS},
    "models": {
        "columns": {"scoring": {}},
        "started": {"additive": {}, "scoring": {}},
        "both": {
            "additive": {},
            "pursuit": {"fit_to": "residual", "n_projections": 1, "n_starts": 1},
            "scoring": {},
        },
        "projections": {"pursuit": {"n_projections": 2, "n_starts": 2}, "scoring": {}},
        "splines": {"baseline": "splines"},
    },
    "report": {"figures": False},
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    out = tmp_path_factory.mktemp("chain") / "labels"
    return out, run_chain(validated(CHAIN, "test"), out)


def test_models_of_labels_are_side_by_side(chain):
    _, report = chain
    metrics = {name: entry["metrics"] for name, entry in report["models"].items()}
    assert list(metrics) == list(CHAIN["models"])
    for of_model in metrics.values():
        assert of_model["mnll_truth"] < of_model["mnll"] < np.log(2)
    assert metrics["started"]["mnll"] == pytest.approx(metrics["columns"]["mnll"], abs=0.01)
    split = load_labels("synth8d-binary", n=500, n_test=200, columns=COLUMNS)
    expected = AdditiveGPClassifier(random_state=0).fit(split.X_train, split.y_train)
    assert metrics["columns"]["error_rate"] == np.mean(
        expected.predict(split.X_test) != split.y_test
    )


@pytest.mark.parametrize(
    ("task", "kernel", "expected"),
    [
        ("classification", None, Matern32),
        ("counts", None, Matern52),
        ("classification", "matern72", Matern72),
    ],
)
def test_only_lengthscales_are_carried_over(tmp_path, task, kernel, expected):
    data = "synth8d-binary" if task == "classification" else "synth8d-poisson"
    document = {
        "task": task,
        "load": {"data": data, "n": 200, "n_test": 50, "columns": COLUMNS},
        "models": {
            "m": {
                "additive": {"kernel": "matern12", "learner_max_iter": 2},
                "scoring": {"learner_max_iter": 2} | ({"kernel": kernel} if kernel else {}),
            }
        },
        "report": {"figures": False},
    }
    run_chain(validated(document, "test"), tmp_path)
    models = tmp_path / "models" / "m"
    first = dsgp.load(models / "additive" / "model.zarr").kernels_
    scored = dsgp.load(models / "scoring" / "model.zarr")
    terms = scored.get_params()["terms"]
    assert terms == {name: expected(kernel.lengthscale) for name, kernel in first.items()}


def test_scoring_takes_the_projections_of_a_pursuit(chain):
    out, _ = chain
    split = load_labels("synth8d-binary", n=500, n_test=200, columns=COLUMNS)
    for name, columns in (("projections", []), ("both", COLUMNS)):
        models = out / "models" / name
        pursuit = dsgp.load(models / "pursuit" / "model.zarr")
        view = View.read(models / "scoring" / "inputs.json")
        assert view.names == [*columns, *pursuit.projections_.index]
        seen = view(split.X_train)
        centred = (split.X_train - split.X_train.mean()) / split.X_train.std(ddof=0)
        expected = centred[pursuit.projections_.columns] @ pursuit.projections_.T
        np.testing.assert_allclose(seen[list(pursuit.projections_.index)], expected, atol=1e-10)
        # The weights are those of inputs standardised as here: then projections have variance 1.
        np.testing.assert_allclose(expected.var(ddof=0), 1, rtol=1e-6)
        scored = dsgp.load(models / "scoring" / "model.zarr")
        table = pd.read_parquet(models / "evaluation" / "predictions.parquet")
        np.testing.assert_allclose(
            table[f"p({split.classes[1]})"], scored.predict_proba(view(split.X_test))[:, 1]
        )


def test_least_squares_of_three_classes_is_refused(tmp_path):
    document = {
        "task": "classification",
        "load": {"data": "wine"},
        "models": {"a": {"additive": {}, "scoring": {}}},
    }
    with pytest.raises(ParameterError, match="least squares of labels takes two classes, and"):
        run_chain(validated(document, "test"), tmp_path / "out")


def test_labels_on_disk_stream(tmp_path):
    split = load_labels("synth8d-binary", n=6000, n_test=1000, columns=COLUMNS)
    names = {False: "no", True: "yes"}
    for part, X, y in (
        ("train", split.X_train, split.y_train),
        ("test", split.X_test, split.y_test),
    ):
        second = (y == split.classes[1]).tolist()
        X.assign(y=[names[came] for came in second]).to_parquet(tmp_path / f"{part}.parquet")
    metrics = {}
    for in_memory in (True, False):
        document = {
            "task": "classification",
            "load": {"data": str(tmp_path / "train.parquet"), "target": "y",
                     "test": str(tmp_path / "test.parquet")},
            "encode": {"in_memory": in_memory},
            "models": {"a": {"scoring": {"bins": 256}},
                       "b": {"pursuit": {"n_projections": 2, "n_starts": 2, "bins": 256},
                             "scoring": {"bins": 256}}},
            "report": {"figures": False},
        }  # fmt: skip
        report = run_chain(validated(document, "test"), tmp_path / str(in_memory))
        metrics[in_memory] = {name: entry["metrics"] for name, entry in report["models"].items()}
    assert report["data"]["classes"] == ["no", "yes"]
    for name in "ab":
        assert metrics[False][name]["mnll"] == pytest.approx(metrics[True][name]["mnll"], rel=1e-3)


def test_counts_with_exposures(tmp_path):
    document = {
        "task": "counts",
        "load": {"data": "synth8d-poisson", "n": 600, "n_test": 300, "columns": COLUMNS},
        "models": {"columns": {"scoring": {}}, "started": {"additive": {}, "scoring": {}}},
        "report": {"figures": False},
    }
    report = run_chain(validated(document, "test"), tmp_path / "out")
    metrics = report["models"]["columns"]["metrics"]
    split = load_counts("synth8d-poisson", n=600, n_test=300, columns=COLUMNS)
    model = GeneralizedAdditiveGP(random_state=0).fit(
        split.X_train, split.y_train, exposure=split.exposure_train
    )
    mean = model.predict(split.X_test, exposure=split.exposure_test)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean((split.y_test - mean) ** 2)), rel=1e-9)
    density = model.log_predictive_density(split.X_test, split.y_test, exposure=split.exposure_test)
    assert metrics["mnlp"] == pytest.approx(-density.mean(), rel=1e-9)
    assert metrics["coverage"] > 0.9
