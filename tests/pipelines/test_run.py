"""The chain: a configuration says what is wrong with it, stages are kept, and a run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from distributed import LocalCluster
from scipy.stats import norm
from typer.testing import CliRunner

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import DataError, ParameterError, StorageError
from dsgp.kernels import Matern32
from dsgp.priors import HyperPriors
from pipelines.datasets import load
from pipelines.reporting import MAKER, output_folder
from pipelines.run.__main__ import app, run
from pipelines.run.chain import reasons
from pipelines.run.comparing import draw_comparison
from pipelines.run.config import read, validated
from pipelines.run.fitting import build_additive, build_scoring
from pipelines.run.folders import chain_folder, manifest_of
from pipelines.run.measures import best_of
from pipelines.run.plan import plan_of
from pipelines.run.sections import Additive, Model

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "pipelines" / "configs").glob("*.yaml"))
SMALL = {
    "load": {"data": "synth8d", "n": 200, "n_test": 100, "columns": ["x1", "x2", "x3"]},
    "models": {
        "plain": {"additive": {}},
        "both": {
            "additive": {},
            "pursuit": {"fit_to": "residual", "n_projections": 1, "n_starts": 1},
        },
        "trees": {"baseline": "trees"},
    },
    "report": {"figures": False},
}
STEPS = [
    "load",
    "encode",
    "plain/additive",
    "plain/evaluation",
    "both/pursuit",
    "both/evaluation",
    "trees/baseline",
    "trees/evaluation",
    "report",
]


def test_draws_of_an_additive_model_are_asked_for():
    section = {"method": "gibbs", "n_draws": 9, "priors": {"noise_rate": 0.1}}
    model = build_additive(Additive.model_validate(section), 3)
    told = model.get_params()
    assert (told["method"], told["n_draws"], told["random_state"]) == ("gibbs", 9, 3)
    assert told["priors"] == HyperPriors(noise_rate=0.1)
    plain = build_additive(Additive(), 3).get_params()
    assert (plain["method"], plain["priors"], plain["random_state"]) == (None, None, None)


def test_noise_terms_are_asked_for():
    by_column = {"x1": "Linear()"}
    for asked in (False, True, by_column):
        section = Additive.model_validate({"noise_terms": asked})
        assert build_additive(section, 0).noise_terms == asked
    both = {"additive": {"noise_terms": True}, "pursuit": {"fit_to": "residual"}}
    with pytest.raises(ValueError, match="leave out noise_terms"):
        Model.model_validate(both)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def config_of(*changes, base=SMALL):
    """Put changes such as ``("models.plain.additive.solver", "cg")`` into a configuration."""
    document = json.loads(json.dumps(base))
    for key, value in changes:
        *names, last = key.split(".")
        place = document
        for name in names:
            place = place.setdefault(name, {})
        place[last] = value
    return validated(document, "test")


def written(path, document=SMALL):
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def report_of(out):
    return json.loads((out / "report" / "report.json").read_text(encoding="utf-8"))


def runs_of(root, config):
    """What distinguishes one run of a stage from another."""
    return {step.name: manifest_of(root / step.place)["run"] for step in plan_of(config)}


def would_run(config, out, **options):
    return [step.name for step in reasons(plan_of(config), out, **options)]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole run; nobody may change it."""
    out = tmp_path_factory.mktemp("chain") / "deep" / "small"
    run(config_of(), out)
    return out


# ---- the configuration


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configurations_are_whole(path):
    config = read(path)
    assert config.name == path.stem
    assert plan_of(config)[-1].stage == "report"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("lod", {}), "lod: there is no such key; there are: name, task, seed, out, load, encode"),
        (("load.dat", 1), "load.dat: there is no such key; there are: data, test, target"),
        (("load.n", 0), "load.n: expected greater than or equal to 1, got 0"),
        (("load.n", "many"), "load.n: expected integer, got 'many'"),
        (("load.drop", ["x1"]), "load: columns already says which inputs are used"),
        (
            ("load", {"data": "a", "test": "b", "test_share": 0.1}),
            "load: test already names the rows to",
        ),
        (("task", "clustering"), "task: expected 'regression', 'classification' or 'counts', got"),
        (
            ("models.plain.additive.solver", "lu"),
            "models.plain.additive.solver: expected 'multigrid', 'cg' or 'backfitting', got 'lu'",
        ),
        (("models.plain.additive.tol", -1), "models.plain.additive.tol: expected greater than 0"),
        (
            ("models.plain.additive.kernel", "rbf"),
            "models.plain.additive.kernel.type: expected 'matern12', 'matern32', 'matern52' or",
        ),
        (
            ("models.plain.additive.kernl", "matern52"),
            "models.plain.additive.kernl: there is no such key; there are: kernel, terms",
        ),
        (("models.plain.additive.bins", 1), "models.plain.additive.bins: expected"),
        (("models.plain", {}), "models.plain: a model needs a stage: additive, pursuit, scoring"),
        (("models.trees.additive", {}), "models.trees: a baseline is a model of its own"),
        (("models.both.pursuit.fit_to", "data"), "does not use the additive stage before it"),
        (
            ("models.lone", {"pursuit": {"fit_to": "residual"}}),
            "models.lone: pursuit on the residual needs an additive stage before it",
        ),
        (("models.plain.scoring", {}), "models.plain: scoring is for labels and counts, and task"),
        (("task", "counts"), "models.plain: task counts is fitted by local scoring; add scoring"),
        (("models.PLAIN", {"additive": {}}), "would share a folder"),
        (("models.a/b", {"additive": {}}), "models.a/b: expected letters, digits, spaces"),
        (("models", {}), "models: expected "),
        (("evaluation.level", 1), "evaluation.level: expected less than 1, got 1"),
        (("encode", "codes"), "encode: expected keys with values, got 'codes'"),
    ],
)
def test_a_mistake_is_reported_with_its_key(change, message):
    with pytest.raises(ParameterError) as caught:
        config_of(change)
    assert str(caught.value).startswith("test: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("task", "scoring", "message"),
    [
        ("counts", {"link": "probit"}, "models.a.scoring.link is for labels, and task is counts"),
        ("counts", {"class_weight": "balanced"}, "models.a.scoring.class_weight is for labels"),
        ("counts", {"multi_class": "ovr"}, "models.a.scoring.multi_class is for labels"),
        ("counts", {"likelihood": "poison"}, "likelihood: expected one of bernoulli, binomial, po"),
        ("classification", {"n_projections": 2}, "n_projections is for structure: pursuit"),
        *(
            (
                "classification",
                {"structure": "pursuit", name: value},
                f"models.a.scoring: {name} is for structure: additive, and structure is pursuit",
            )
            for name, value in {
                "multi_class": "ovr",
                "missing": "ignore",
                "interactions": "auto",
                "learner": None,
                "learner_tol": 0.1,
                "learner_max_iter": 3,
            }.items()
        ),
    ],
)
def test_an_option_that_does_not_apply_is_reported(task, scoring, message):
    document = {"task": task, "load": {"data": "x"}, "models": {"a": {"scoring": scoring}}}
    with pytest.raises(ParameterError) as caught:
        validated(document, "test")
    assert message in str(caught.value)


def test_stages_and_columns_that_do_not_apply_are_reported():
    document = {
        "task": "classification",
        "load": {"data": "x"},
        "models": {"a": {"additive": {}, "scoring": {"structure": "pursuit"}}},
    }
    with pytest.raises(ParameterError, match="leave out the stage additive, or structure"):
        validated(document, "test")
    document["models"] = {"a": {"scoring": {}}}
    document["load"]["exposure"] = "years"
    with pytest.raises(ParameterError, match=r"load\.exposure is for counts, and task is classifi"):
        validated(document, "test")


def test_several_mistakes_are_reported_together():
    with pytest.raises(ParameterError, match=r"load\.n: .*; models\.plain\.additive\.solver: "):
        config_of(("load.n", 0), ("models.plain.additive.solver", "lu"))


def test_a_missing_section_is_reported():
    with pytest.raises(ParameterError, match="load: is required and missing"):
        validated({"models": {"a": {"additive": {}}}}, "test")


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("forest", "regression", "must be one of trees, mgcv, pygam, splines, boosting"),
        ("mgcv", "classification", "must be one of trees, boosting, splines"),
        ("trees", "counts", "there are no baselines for counts"),
    ],
)
def test_an_unknown_baseline_is_reported_before_anything_runs(name, task, message):
    document = {"task": task, "load": {"data": "x"}, "models": {"a": {"baseline": name}}}
    with pytest.raises(ParameterError, match=r"models\.a\.baseline: .*" + message):
        plan_of(validated(document, "test"))


def test_yaml_is_read_as_people_mean_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "load: {data: a.csv, target: y, drop: [no, on, y2]}\n"
        "models:\n  m:\n    additive:\n      tol: 1e-5\n      learner: none\n      bins: none\n"
        "      interactions: [[a, b], [b, c]]\n"
        "      kernel: {type: matern32, lengthscale: 2, variance: 1.5, fixed: [variance]}\n"
        "  defaults:\n    additive:\n",
        encoding="utf-8",
    )
    config = read(path, ["load.n=30", "models.m.additive.solver=cg", "encode.in_memory=false"])
    assert config.name == "mine"
    assert config.load.drop == ["no", "on", "y2"]
    assert config.load.n == 30
    assert config.encode.in_memory is False
    additive = config.models["m"].additive
    assert (additive.tol, additive.learner, additive.bins) == (1e-5, None, None)
    assert additive.solver == "cg"
    assert additive.interactions == [["a", "b"], ["b", "c"]]
    for wanted in ("auto", "3"):
        found = read(path, [f"models.m.additive.interactions={wanted}"])
        assert found.models["m"].additive.interactions == (3 if wanted == "3" else "auto")
    assert additive.kernel.build() == Matern32(2.0, 1.5, fixed=("variance",))
    assert config.models["defaults"].additive.solver == "multigrid"


@pytest.mark.parametrize("task", ["classification", "counts"])
@pytest.mark.parametrize("wanted", ["auto", 3, [["a", "b"]]])
def test_local_scoring_has_interactions(task, wanted):
    models = {"s": {"scoring": {"interactions": wanted}}}
    config = validated({"task": task, "load": {"data": "x"}, "models": models}, "test")
    assert build_scoring(config.models["s"].scoring, task, 0).interactions == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load: {data: a, data: b}", "key 'data' occurs twice"),
        ("load: [", "no YAML"),
        ("- load", "expected keys such as load and models"),
        ("", "expected keys such as load and models, got nothing"),
    ],
)
def test_what_is_no_configuration_is_reported(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=message):
        read(path)


@pytest.mark.parametrize("change", ["load.n", "=3", "load..n=3", "load.data.n=3"])
def test_a_change_that_cannot_be_made_is_reported(tmp_path, change):
    with pytest.raises(ParameterError, match="--set"):
        read(written(tmp_path / "mine.yaml"), [change])


# ---- what a run leaves


def test_every_stage_has_a_folder_with_a_manifest(done):
    assert [step.name for step in plan_of(config_of())] == STEPS
    for step in plan_of(config_of()):
        manifest = manifest_of(done / step.place)
        assert manifest["key"] == step.key
        assert manifest["seconds"] > 0
        assert set(manifest["needs"]) == set(step.needs)
        present = {path.name for path in (done / step.place).iterdir()}
        assert present == {*manifest["files"], "stage.json"}
    assert not list(done.rglob("*.part"))


def test_stages_that_two_models_share_run_once(done):
    assert not (done / "models" / "both" / "additive").exists()
    report = report_of(done)
    assert report["models"]["both"]["stages"] == ["additive", "pursuit", "evaluation"]
    shared = [report["models"][name]["seconds"]["additive"] for name in ("plain", "both")]
    assert shared[0] == shared[1]


def test_the_chain_fits_what_the_estimator_does(done):
    split = load("synth8d", n=200, n_test=100, columns=["x1", "x2", "x3"])
    model = AdditiveGPRegressor().fit(split.X_train, split.y_train)
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    table = pd.read_parquet(done / "models" / "plain" / "evaluation" / "predictions.parquet")
    np.testing.assert_array_equal(table["mean"], mean)
    np.testing.assert_array_equal(table["std"], std)
    np.testing.assert_array_equal(table["observed"], split.y_test)
    np.testing.assert_array_equal(table["truth"], split.f_test)
    np.testing.assert_allclose(table["upper"] - mean, norm.ppf(0.975) * std)
    metrics = report_of(done)["models"]["plain"]["metrics"]
    assert metrics["mnlp"] == pytest.approx(-norm.logpdf(split.y_test, mean, std).mean())


def test_models_are_side_by_side(done):
    table = pd.read_csv(done / "report" / "comparison.csv", index_col="model")
    assert list(table.index) == ["plain", "both", "trees"]
    assert {"nmse", "mnlp", "rmse", "coverage", "fit_seconds", "predict_seconds"} <= set(table)
    assert np.isnan(table.loc["trees", "mnlp"])
    assert (table["fit_seconds"] > 0).all()
    # The pursuit of the residual comes after the additive fit.
    assert table.loc["both", "fit_seconds"] > table.loc["plain", "fit_seconds"]
    text = (done / "report" / "report.md").read_text(encoding="utf-8")
    assert "| plain | " in text
    report = report_of(done)
    assert report["pipeline"] == "run"
    assert report["models"]["trees"]["converged"] is None
    assert report["config"]["load"]["n"] == 200


def test_pictures_of_the_models_and_of_the_comparison(tmp_path):
    changes = (("report.figures", True), ("models.both.pursuit.n_projections", 2))
    run(config_of(*changes), tmp_path)
    pictures = {
        str(path.relative_to(tmp_path / "report")) for path in tmp_path.rglob("report/**/*.png")
    }
    assert {
        "comparison.png",
        "plain/components.png",
        "plain/predictions.png",
        "both/additive/components.png",
        "both/pursuit/projections.png",
        "both/predictions.png",
    } <= pictures
    assert "trees/predictions.png" not in pictures  # it has no std


def test_axes_of_a_comparison_are_not_zoomed_to_differences_of_no_account():
    measures = {
        "nmse": [0.100, 0.101],
        "mnlp": [1.000, 1.001],
        "coverage": [0.951, 0.949],
        "fit_seconds": [1.0, 2.0],
    }
    table = pd.DataFrame(measures, index=["one", "other"])
    error, density, coverage, _ = draw_comparison(table, "regression", 0.95).axes
    assert error.get_xlim()[0] < 0 < 0.1 < error.get_xlim()[1]
    assert np.ptp(density.get_xlim()) > 0.1
    assert np.ptp(coverage.get_xlim()) > 0.1
    for ax in (error, density, coverage):
        assert "NMSE" not in ax.get_title()
        assert "MNLP" not in ax.get_title()


def test_the_best_of_a_measure_are_those_that_hardly_differ():
    assert best_of("mnlp", {"a": -0.80226, "b": -0.8023, "c": -0.80}) == {"a", "b"}
    assert best_of("auc", {"a": 0.9, "b": 0.95, "c": None, "d": np.nan}) == {"b"}
    assert best_of("coverage", {"a": 0.95, "b": 0.9}) == set()
    assert best_of("nmse", {"alone": 0.1, "other": None}) == set()


# ---- going on


def test_a_second_run_does_nothing(done):
    before = runs_of(done, config_of())
    run(config_of(), done)
    assert runs_of(done, config_of()) == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), []),
        ((("load.n", 210),), STEPS),
        ((("encode.unseen", "missing"),), STEPS[1:]),
        (
            (("models.both.pursuit.n_projections", 2),),
            ["both/pursuit", "both/evaluation", "report"],
        ),
        (
            # The two models no longer share it.
            (("models.both.additive.solver", "cg"),),
            ["both/additive", "both/pursuit", "both/evaluation", "report"],
        ),
        ((("seed", 1),), ["both/pursuit", "both/evaluation", "report"]),
        (
            (("evaluation.level", 0.9),),
            [name for name in STEPS if "evaluation" in name] + ["report"],
        ),
        (
            (("models.more", {"baseline": "splines"}),),
            ["more/baseline", "more/evaluation", "report"],
        ),
        ((("report.figures", True),), ["report"]),
    ],
)
def test_a_change_redoes_its_stage_and_those_after_it(done, changes, expected):
    assert would_run(config_of(*changes), done) == expected


def test_a_stage_can_be_asked_for(done):
    config = config_of()
    assert would_run(config, done, first="pursuit") == [
        name for name in STEPS if not name.endswith(("load", "encode", "additive"))
    ]
    assert would_run(config, done, fresh=True) == STEPS
    with pytest.raises(ParameterError, match="a stage is one of load, encode, additive"):
        reasons(plan_of(config), done, first="fit")


def test_from_until_and_dry_run_from_the_command_line(tmp_path):
    path, out = written(tmp_path / "mine.yaml"), tmp_path / "out"
    start, config = (path, "--out", out), read(path)
    assert "load" in invoke(*start, "--dry-run").stdout
    assert not out.exists()
    assert invoke(*start, "--until", "encode").exit_code == 0
    assert sorted(entry.name for entry in out.iterdir()) == [
        "chain.json",
        "encode",
        "load",
    ]
    told = invoke(*start, "--dry-run").stdout.splitlines()
    assert [line.split()[0] for line in told] == [name.split()[0] for name in STEPS]
    assert ["up to date" in line for line in told] == [True] * 2 + [False] * 7

    assert invoke(*start).exit_code == 0
    before = runs_of(out, config)
    assert invoke(*start, "--from", "pursuit", "--until", "pursuit").exit_code == 0
    after = runs_of(out, config)
    assert [name for name in after if after[name] != before[name]] == ["both/pursuit"]
    # What depends on it has not seen the new one.
    assert would_run(config, out) == ["both/evaluation", "report"]
    assert invoke(*start).exit_code == 0
    assert would_run(config, out) == []

    refused = invoke(*start, "--fresh", "--from", "load")
    assert refused.exit_code == 1
    assert "leave out --from" in refused.stderr


def test_a_changed_file_is_loaded_again(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "y"])
    frame.to_csv(tmp_path / "mine.csv", index=False)
    document = {
        "load": {"data": str(tmp_path / "mine.csv"), "target": "y"},
        "models": {"splines": {"baseline": "splines:5"}},
        "report": {"figures": False},
    }
    config, out = validated(document, "test"), tmp_path / "out"
    run(config, out)
    os.utime(tmp_path / "mine.csv", (1, 1))
    assert would_run(config, out) == []  # the same content
    frame.assign(y=frame["y"] + 1).to_csv(tmp_path / "mine.csv", index=False)
    assert would_run(config, out) == ["load", "encode", "splines/baseline", "splines/evaluation",
                                      "report"]  # fmt: skip


def test_a_damaged_stage_runs_again(tmp_path):
    config = config_of(base={**SMALL, "models": {"trees": {"baseline": "trees"}}})
    run(config, tmp_path)
    (tmp_path / "models" / "trees" / "baseline" / "predicted.parquet").unlink()
    assert would_run(config, tmp_path) == ["trees/baseline", "trees/evaluation", "report"]
    (tmp_path / "encode" / "stage.json").write_text("{")
    assert would_run(config, tmp_path)[0] == "encode"


def test_a_stage_that_fails_leaves_those_before_it(tmp_path):
    config = config_of(("models.plain.additive.terms", {"x9": "matern52"}))
    with pytest.raises(ParameterError, match="x9"):
        run(config, tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    assert would_run(config, tmp_path)[0] == "plain/additive"
    assert not (tmp_path / "models" / "plain" / "additive").exists()


# ---- the folder


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageError, match="no chain of dsgp wrote it"):
        run(config_of(), tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StorageError, match="is a file"):
        run(config_of(), tmp_path / "thesis.tex")


def test_a_folder_that_holds_an_input_is_left_alone(tmp_path):
    (tmp_path / "chain.json").write_text(json.dumps({"made_by": MAKER, "data": "d.csv"}))
    data = tmp_path / "load" / "d.csv"
    data.parent.mkdir()
    data.write_text("x,y")
    with (
        pytest.raises(StorageError, match="contains the input"),
        chain_folder(tmp_path, "d.csv", overwrite=True, inputs=[None, "absent", data]),
    ):
        pass
    for out in (tmp_path, data):
        with (
            pytest.raises(StorageError, match="the input"),
            output_folder(out, "regression", "d", overwrite=True, inputs=[data]),
        ):
            pass
    assert data.read_text() == "x,y"


def test_stages_of_other_data_are_replaced_only_when_asked(tmp_path):
    only = {"models": {"splines": {"baseline": "splines:5"}}, "report": {"figures": False}}
    run(validated({"load": {"data": "diabetes"}, **only}, "test"), tmp_path)
    other = validated({"load": {"data": "synth8d", "n": 50, "n_test": 20}, **only}, "test")
    with pytest.raises(StorageError, match="holds the stages of diabetes"):
        run(other, tmp_path)
    run(other, tmp_path, overwrite=True)
    assert report_of(tmp_path)["data"]["name"] == "synth8d"


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_two_runs_do_not_share_a_folder(tmp_path):
    with (
        chain_folder(tmp_path, "synth8d"),
        pytest.raises(StorageError, match="another run works in"),
        chain_folder(tmp_path, "synth8d"),
    ):
        pass
    with chain_folder(tmp_path, "synth8d"):  # free again
        pass


# ---- text


@pytest.fixture
def with_text(tmp_path):
    rng = np.random.default_rng(3)
    site = rng.choice(["oak", "ash", "elm"], 300)
    a = rng.uniform(-1, 1, 300)
    level = pd.Series(site).map({"ash": 0.0, "elm": 3.0, "oak": -2.0}).to_numpy()
    y = np.sin(3 * a) + level + 0.1 * rng.standard_normal(300)
    path = tmp_path / "trees.csv"
    pd.DataFrame({"site": site, "a": a, "y": y}).to_csv(path, index=False)
    return path


def text_config(path, *changes):
    base = {
        "load": {"data": str(path), "target": "y"},
        "models": {"additive": {"additive": {}}},
        "report": {"figures": False},
    }
    return config_of(*changes, base=base)


def test_text_becomes_codes_that_are_kept(with_text, tmp_path):
    out = tmp_path / "out"
    report = run(text_config(with_text, ("encode.categories", "codes")), out)
    assert report["models"]["additive"]["metrics"]["nmse"] < 0.02
    encoding = json.loads((out / "encode" / "encoding.json").read_text(encoding="utf-8"))
    assert encoding["levels"] == {"site": ["ash", "elm", "oak"]}
    source = pd.read_csv(with_text)
    for part in ("train", "test"):
        table = pd.read_parquet(out / "encode" / f"{part}.parquet")
        names = np.array(encoding["levels"]["site"])[table["site"].to_numpy().astype(int)]
        np.testing.assert_array_equal(names, source["site"].to_numpy()[table["__row__"]])
    order = np.random.default_rng(2).permutation(300)  # as every file is split
    train = pd.read_parquet(out / "encode" / "train.parquet")
    np.testing.assert_array_equal(train["__row__"], order[:240])


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ([], "levels"),
        ([("encode.categories", "codes")], "axis"),
        ([("models.additive.additive.terms", {"site": "Levels(missing=level)"})], "levels"),
    ],
)
def test_additive_models_read_text_as_levels(with_text, tmp_path, capsys, changes, family):
    out = tmp_path / "out"
    table = pd.read_csv(with_text).assign(same="one")
    table.to_csv(with_text, index=False)
    run(text_config(with_text, *changes), out)
    assert "left out: 'same'" in capsys.readouterr().err
    (model,) = out.rglob("model.zarr")
    terms = dsgp.load(model).terms_
    assert {term.name: term.bound.family for term in terms} == {"a": "axis", "site": family}


def test_scoring_reads_text_as_levels(with_text, tmp_path):
    out = tmp_path / "out"
    table = pd.read_csv(with_text)
    table.assign(y=(table["y"] > 0).astype(int)).to_csv(with_text, index=False)
    base = {
        "task": "classification",
        "load": {"data": str(with_text), "target": "y"},
        "models": {"score": {"scoring": {}}},
        "report": {"figures": False},
    }
    run(config_of(base=base), out)
    (model,) = out.rglob("model.zarr")
    terms = dsgp.load(model).terms_
    assert {term.name: term.bound.family for term in terms} == {"a": "axis", "site": "levels"}


def test_a_level_that_no_training_row_has(tmp_path):
    rng = np.random.default_rng(0)
    train = pd.DataFrame({"site": ["a", "b"] * 40, "x": rng.normal(size=80)})
    train["y"] = train["x"] + (train["site"] == "b")
    test = train.head(20).assign(site=["a", "b", "z", "a"] * 5)
    train.to_parquet(tmp_path / "train.parquet")
    test.to_parquet(tmp_path / "test.parquet")
    changes = [("load.test", str(tmp_path / "test.parquet")),
               ("models.additive.additive.missing", "ignore")]  # fmt: skip
    with pytest.raises(DataError, match=r"column 'site' has 'z' in row 2 .* no training row has"):
        run(text_config(tmp_path / "train.parquet", *changes), tmp_path / "out")
    changes.append(("encode.unseen", "missing"))
    report = run(text_config(tmp_path / "train.parquet", *changes), tmp_path / "out")
    assert report["data"]["n_test"] == 20
    table = pd.read_parquet(tmp_path / "out" / "encode" / "test.parquet")
    np.testing.assert_array_equal(table["site"].isna(), test["site"] == "z")


def test_text_can_be_refused(with_text, tmp_path):
    with pytest.raises(DataError, match="input column 'site' is text; drop it"):
        run(text_config(with_text, ("encode.categories", "error")), tmp_path / "out")


# ---- tables on disk


@pytest.fixture
def parts(tmp_path):
    """A table of three files."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(3):
        X = pd.DataFrame(rng.uniform(-1, 1, (4000, 3)), columns=["a", "b", "c"])
        noise = 0.1 * rng.standard_normal(4000)
        X["y"] = np.sin(4 * X["a"]) + X["a"] * X["b"] + noise
        X["w"] = 1.0
        X.to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder


def test_a_folder_streams_through_every_stage(parts, tmp_path):
    base = {
        "load": {"data": str(parts), "target": "y", "drop": ["w"], "test_share": 0.25},
        "models": {
            "both": {
                "additive": {"bins": 256},
                "pursuit": {"fit_to": "residual", "n_projections": 2, "n_starts": 2, "bins": 256},
            }
        },
        "report": {"figures": False},
    }
    metrics = {}
    for in_memory in (True, False):
        out = tmp_path / str(in_memory)
        report = run(config_of(("encode.in_memory", in_memory), base=base), out)
        metrics[in_memory] = report["models"]["both"]["metrics"]
        assert not list(out.rglob("derived*"))
    assert report["data"]["columns"] == ["a", "b", "c"]
    assert report["data"]["n_test"] == pytest.approx(3000, abs=150)
    assert metrics[False] == pytest.approx(metrics[True], rel=1e-3)
    rows = [pd.read_parquet(tmp_path / "True" / "load" / f"{part}.parquet")["__row__"]
            for part in ("train", "test")]  # fmt: skip
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(12_000))


def test_a_large_file_streams(parts, tmp_path, monkeypatch):
    base = {
        "load": {"data": str(parts / "part-0.parquet"), "target": "y", "test_share": 0.25},
        "models": {"splines": {"baseline": "splines:5"}},
        "report": {"figures": False},
    }
    with pytest.raises(DataError, match=r"load\.test_share is for tables that stream"):
        run(config_of(base=base), tmp_path / "out")
    monkeypatch.setattr("pipelines.run.loading.STREAMED", 10_000)
    report = run(config_of(base=base), tmp_path / "out")
    assert report["data"]["n_test"] == pytest.approx(1000, abs=120)


def test_what_does_not_fit_a_table_on_disk_is_reported(parts, tmp_path):
    base = {
        "load": {"data": str(parts), "target": "y"},
        "models": {"additive": {"additive": {}}},
    }
    for change, message in (
        (("load.n", 30), "load.test_share says how many"),
        (
            ("load.target", "z"),
            "no column 'z'; name one of its columns as target .load.target.: a, b, c",
        ),
        (("load.drop", ["q"]), "there is no column 'q'"),
        (("load.columns", ["a", "y"]), "'y' cannot be an input, too"),
    ):
        with pytest.raises(DataError, match=message):
            run(config_of(change, base=base), tmp_path / "out")


# ---- the residual


def test_the_residual_of_an_additive_fit_is_pursued(tmp_path):
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.uniform(-1, 1, (1500, 3)), columns=["a", "b", "c"])
    f = np.sin(3 * X["a"]) + X["b"] * X["c"]
    X.assign(y=f + 0.1 * rng.standard_normal(1500)).to_csv(tmp_path / "mine.csv", index=False)
    base = {
        "load": {"data": str(tmp_path / "mine.csv"), "target": "y", "n": 800},
        "models": {
            "additive": {"additive": {}},
            "both": {
                "additive": {},
                "pursuit": {"fit_to": "residual", "n_projections": 2, "n_starts": 4},
            },
        },
        "report": {"figures": False},
    }
    report = run(config_of(base=base), tmp_path / "out")
    metrics = {name: entry["metrics"] for name, entry in report["models"].items()}
    assert metrics["both"]["rmse"] < 0.12 < 0.25 < metrics["additive"]["rmse"]
    assert 0.93 <= metrics["both"]["coverage"] <= 0.98
    models = tmp_path / "out" / "models"
    additive = dsgp.load(models / "additive" / "additive" / "model.zarr")
    pursuit = dsgp.load(models / "both" / "pursuit" / "model.zarr")
    table = pd.read_parquet(models / "both" / "evaluation" / "predictions.parquet")
    rows = X.iloc[table["row"]]
    parts = [model.predict(rows, return_std=True) for model in (additive, pursuit)]
    np.testing.assert_allclose(table["mean"], parts[0][0] + parts[1][0], rtol=1e-12)
    noise = pursuit.noise_variance_ * 800 / (800 - additive.effective_dof_)
    variance = parts[0][1] ** 2 + parts[1][1] ** 2 + noise
    np.testing.assert_allclose(table["std"], np.sqrt(variance), rtol=1e-12)


# ---- as a process


def test_a_cluster_gives_the_same_model(done, tmp_path):
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        report = run(config_of(), tmp_path / "out", scheduler=cluster.scheduler_address)
    assert report["models"]["plain"]["metrics"] == report_of(done)["models"]["plain"]["metrics"]
    manifest = manifest_of(tmp_path / "out" / "models" / "plain" / "additive")
    assert manifest["cluster"] == {"workers": 1, "threads": 1}
    assert would_run(config_of(), tmp_path / "out") == []  # where it ran makes no difference


def start(config, out):
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines.run", str(config), "--out", str(out)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_a_run_that_is_ended_goes_on_where_it_was(tmp_path, number):
    document = {
        "load": {"data": "synth8d", "n": 1000, "n_test": 100},
        "models": {
            "quick": {"additive": {}},
            "slow": {"pursuit": {"n_projections": 12, "n_starts": 200}},
        },
        "report": {"figures": False},
    }
    path, out = written(tmp_path / "mine.yaml", document), tmp_path / "out"
    process = start(path, out)
    slow = out / "models" / "slow"
    try:
        deadline = time.monotonic() + 120
        while not list(slow.glob(".pursuit.*.part")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert not (slow / "pursuit").exists()
    assert bool(list(slow.glob(".pursuit.*.part"))) == (number == signal.SIGKILL)

    document["models"]["slow"]["pursuit"] = {"n_projections": 1, "n_starts": 1}
    config = read(written(path, document))
    whole = manifest_of(out / "models" / "quick" / "additive")["run"]
    assert would_run(config, out) == ["slow/pursuit", "slow/evaluation", "report"]
    run(config, out)
    assert manifest_of(out / "models" / "quick" / "additive")["run"] == whole
    assert not list(out.rglob("*.part"))
    assert set(report_of(out)["models"]) == {"quick", "slow"}


def test_help_is_plain_and_fits_80_columns():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "│" not in text
    assert text.count("python -m pipelines.run ") == 6


def test_a_mistake_is_one_line(tmp_path):
    path = written(tmp_path / "mine.yaml")
    for arguments, message in (
        (("--set", "load.n=0"), "load.n: expected greater than or equal to 1, got 0"),
        (("--until", "fit"), "a stage is one of load, encode"),
        (("--set", "load.data=synth9d"), "unknown data set 'synth9d'"),
    ):
        result = invoke(path, *arguments, "--out", tmp_path / "out")
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert message in line


def test_without_a_library_one_line_says_what_to_install():
    code = (
        "import runpy, sys; sys.modules['matplotlib'] = None; sys.argv[1:] = ['--help']; "
        "runpy.run_module('pipelines.run', run_name='__main__', alter_sys=False)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert 'pip install ".[plot]"' in line
