"""The command does what the library does, and every bad file ends in one clear line."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from typer.testing import CliRunner

import dsgp
from dsgp import cli, progress, storage
from dsgp.cli import models, outputs, prediction, tables
from dsgp.rows.sources import Stored, parts

N_ROWS = 60
KEPT = ["--learner", "none", "--lengthscale", "1", "--variance", "1", "--noise-variance", "0.01"]


def rows(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-3, 3, (2, n_rows))
    y = np.sin(a) + 0.3 * b + 5.0 + 0.1 * rng.standard_normal(n_rows)
    return pd.DataFrame({"a": a, "b": b, "y": y})


def saved(table: pd.DataFrame, path: Path) -> str:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    return str(path)


def run(*arguments: object):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def fitted(X, y) -> dsgp.AdditiveGPRegressor:
    kernel = dsgp.kernels.Matern52(lengthscale=1.0, variance=1.0)
    return dsgp.AdditiveGPRegressor(kernel, noise_variance=0.01, learner=None).fit(X, y)


@pytest.fixture
def command(capsys):
    """Run ``main`` as the shell would; return exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        return end.value.code, *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def model_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    table = rows()
    fitted(table[["a", "b"]], table["y"]).save(path)
    return path


def require_one_error(result: tuple[object, str, str], *words: str) -> None:
    code, out, err = result
    assert (code, out) == (1, ""), err
    *before, last = err.splitlines()
    assert last.startswith("Error: ")
    assert all(line.startswith("Warning: ") for line in before)
    assert "Traceback" not in err
    for word in words:
        assert word in last


# ---------------------------------------------------------------- what it does


def test_processes_fit_and_predict_as_the_library_does(tmp_path):
    data = saved(rows(), tmp_path / "train.parquet")
    model, out = tmp_path / "model.zarr", tmp_path / "predictions.parquet"
    base = [sys.executable, "-m", "dsgp.cli"]
    new = rows(seed=1).drop(columns="y")
    new_data = saved(new, tmp_path / "new.parquet")
    for arguments in (
        ["fit", data, "--target", "y", "--out", model, "--kernel", "matern32"],
        ["predict", model, new_data, "--out", out],
    ):
        end = subprocess.run(
            [*base, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONWARNINGS": "ignore::DeprecationWarning"},  # of dependencies
        )
        assert (end.returncode, end.stderr) == (0, "")
    table = rows()
    expected = dsgp.AdditiveGPRegressor(dsgp.kernels.Matern32()).fit(table[["a", "b"]], table["y"])
    mean, std = expected.predict(new, return_std=True)
    predictions = pd.read_parquet(out)
    assert list(predictions) == ["mean", "std", "lower", "upper"]
    np.testing.assert_array_equal(predictions["mean"], mean)
    np.testing.assert_array_equal(predictions["std"], std)
    _, noisy = expected.predict(new, return_std=True, include_noise=True)
    np.testing.assert_allclose(predictions["lower"], mean - 1.959964 * noisy, rtol=1e-7)
    np.testing.assert_allclose(predictions["upper"], mean + 1.959964 * noisy, rtol=1e-7)


def test_fit_passes_its_options_on(tmp_path):
    table = rows().assign(w=np.r_[np.zeros(10), np.full(N_ROWS - 10, 2.0)], name="text")
    out = tmp_path / "model.zarr"
    options = ["--columns", "b, a", "--weight", "w", "--kernel", "matern12", "--max-iter", "400"]
    options += ["--solver", "backfitting", "--tol", "0.5", "--learner-max-iter", "7"]
    data = saved(table, tmp_path / "d.csv")
    result = run("fit", data, "--target", "y", "--out", out, *options, *KEPT)
    assert result.exit_code == 0, result.output
    assert f"saved in {out}" in result.stdout
    model = dsgp.load(out)
    assert model.summary() in result.stdout
    assert list(model.feature_names_in_) == ["b", "a"]
    assert type(model.kernels_["a"]) is dsgp.kernels.Matern12
    assert model.kernel == dsgp.kernels.Matern12(1.0, 1.0)
    assert model.n_rows_ == N_ROWS - 10
    assert model.noise_variance_ == pytest.approx(0.01)
    assert (model.solver, model.learner, model.tol) == ("backfitting", None, 0.5)
    assert (model.max_iter, model.learner_max_iter) == (400, 7)


def test_defaults_are_those_of_the_library(tmp_path):
    out = tmp_path / "model.zarr"
    data = saved(rows(), tmp_path / "d.csv")
    assert run("fit", data, "--target", "y", "--out", out).exit_code == 0
    given, default = dsgp.load(out).get_params(), dsgp.AdditiveGPRegressor().get_params()
    same = given.keys() - {"kernel", "verbose"}
    assert {name: given[name] for name in same} == {name: default[name] for name in same}
    assert given["kernel"] == dsgp.kernels.Matern52()


def test_interactions_are_found_or_named(tmp_path):
    data = saved(rows(), tmp_path / "d.csv")
    for number, (given, expected) in enumerate(
        [(["a:b"], [("a", "b")]), (["1"], None), (["auto"], None)]
    ):
        out = tmp_path / f"{number}.zarr"
        options = [part for one in given for part in ("--interactions", one)]
        result = run("fit", data, "--target", "y", "--out", out, *options)
        assert result.exit_code == 0, result.output
        found = dsgp.load(out).interactions_
        if expected is not None:
            assert [set(pair) for pair in found] == [set(pair) for pair in expected]
    for wrong in ("all", "a:b:c", "a:"):
        result = run(
            "fit", data, "--target", "y", "--out", tmp_path / "w.zarr", "--interactions", wrong
        )
        assert "--interactions must be auto, a number, or pairs" in str(result.exception)


def test_interactions_of_counts_and_classes_are_named(tmp_path):
    table = rows(60).assign(n=np.arange(60) % 2)
    data = saved(table.drop(columns="y"), tmp_path / "d.csv")
    for model in ("poisson", "classifier"):
        out = tmp_path / f"{model}.zarr"
        result = run(
            *("fit", data, "--target", "n", "--out", out, "--model", model),
            *("--interactions", "a:b", "--learner-max-iter", "2"),
        )
        assert result.exit_code == 0, result.output
        assert dsgp.load(out).interactions_ == [("a", "b")]


def test_drop_leaves_columns_out(tmp_path):
    data = saved(rows().assign(id="r", other="s"), tmp_path / "d.csv")
    out = tmp_path / "m.zarr"
    arguments = ["--target", "y", "--out", out, "--drop", "id", "--drop", "other", *KEPT]
    assert run("fit", data, *arguments).exit_code == 0
    assert list(dsgp.load(out).feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".pq"])
def test_predict_keeps_rows_in_order_and_columns_asked_for(tmp_path, model_path, ending):
    new = rows(seed=2).assign(id=[f"r{i}" for i in range(N_ROWS)], text="ignored")
    data = saved(new[["text", "b", "id", "y", "a"]], tmp_path / "new.parquet")
    out = tmp_path / f"p{ending}"
    result = run("predict", model_path, data, "--out", out, "--keep", "id, a")
    assert result.exit_code == 0, result.output
    predictions = dsgp.read_table(out)
    assert list(predictions) == ["id", "a", "mean", "std", "lower", "upper"]
    assert list(predictions["id"]) == list(new["id"])
    expected = dsgp.load(model_path).predict(new[["a", "b"]])
    np.testing.assert_allclose(predictions["mean"], expected, rtol=1e-14)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([out.name, "new.parquet"])


def test_level_sets_the_interval(tmp_path, model_path):
    data, out = saved(rows(), tmp_path / "d.parquet"), tmp_path / "p.parquet"
    assert run("predict", model_path, data, "--out", out, "--level", "0.5").exit_code == 0
    p = pd.read_parquet(out)
    np.testing.assert_allclose(p["upper"] - p["mean"], 0.67449 * np.hypot(p["std"], 0.1), rtol=1e-5)
    np.testing.assert_allclose(p["upper"] + p["lower"], 2 * p["mean"], rtol=1e-12)


def test_a_model_without_names_takes_columns_by_position(tmp_path):
    table = rows()
    model = fitted(table[["a", "b"]].to_numpy(), table["y"])
    model.save(tmp_path / "m.zarr")
    data = saved(table.drop(columns="y").assign(id="r"), tmp_path / "d.parquet")
    out = tmp_path / "p.parquet"
    result = run("predict", tmp_path / "m.zarr", data, "--keep", "id", "--out", out)
    assert result.exit_code == 0, result.output
    expected = model.predict(table[["a", "b"]].to_numpy())
    np.testing.assert_array_equal(pd.read_parquet(out)["mean"], expected)
    assert "2, without names" in run("info", tmp_path / "m.zarr").stdout


def test_info_shows_kind_version_columns_and_summary(model_path):
    shown = run("info", model_path).stdout
    assert "AdditiveGPRegressor" in shown
    assert f"format version  {storage.FORMAT_VERSION}\n" in shown
    assert "columns         a, b\n" in shown
    assert dsgp.load(model_path).summary() in shown


PURSUIT = ["--model", "pursuit", "--projections", "2", "--starts", "2"]


def pursued(table: pd.DataFrame, **options: object) -> dsgp.ProjectionPursuitGPRegressor:
    options = {"n_projections": 2, "n_starts": 2, "random_state": 0} | options
    return dsgp.ProjectionPursuitGPRegressor(**options).fit(table[["a", "b"]], table["y"])


def test_a_pursuit_model_is_fitted_shown_and_predicted(tmp_path):
    table, new = rows(), rows(seed=1)
    data, out = saved(table, tmp_path / "d.parquet"), tmp_path / "m.zarr"
    result = run("fit", data, "--target", "y", "--out", out, *PURSUIT)
    assert result.exit_code == 0, result.output
    expected = pursued(table)
    shown = run("info", out).stdout
    assert "ProjectionPursuitGPRegressor" in shown
    assert expected.summary() in shown
    assert expected.summary() in result.stdout
    for told in ("projection 1", "relevance ", " a", " b"):
        assert told in shown
    predictions = tmp_path / "p.parquet"
    new_data = saved(new.drop(columns="y").assign(other="text"), tmp_path / "new.parquet")
    assert run("predict", out, new_data, "--out", predictions).exit_code == 0
    predicted = pd.read_parquet(predictions)
    mean, std = expected.predict(new[["a", "b"]], return_std=True)
    np.testing.assert_array_equal(predicted["mean"], mean)
    # Sums of few numbers depend on where columns lie in memory, in the last digits.
    np.testing.assert_allclose(predicted["std"], std, rtol=1e-9)
    _, noisy = expected.predict(new[["a", "b"]], return_std=True, include_noise=True)
    np.testing.assert_allclose(predicted["upper"] - mean, 1.959964 * noisy, rtol=1e-6)


def test_a_pursuit_model_takes_text_and_terms(tmp_path):
    table = rows()
    table["town"] = np.where(np.arange(len(table)) % 3 == 0, "x", "y")
    table["y"] += table["town"] == "y"
    data, out = saved(table, tmp_path / "d.csv"), tmp_path / "m.zarr"
    command = ["fit", data, "--target", "y", "--out", out, "--columns", "a,b,town", *PURSUIT]
    result = run(*command, "--term", "town: Levels(variance=1)")
    assert result.exit_code == 0, result.output
    assert "other terms: 1" in result.stdout
    assert run("predict", out, data, "--out", tmp_path / "p.csv").exit_code == 0


@pytest.mark.filterwarnings("ignore:1 projections were requested, but only")
def test_an_additive_model_takes_projections_and_a_remainder(tmp_path):
    table = rows()
    data, out = saved(table, tmp_path / "d.csv"), tmp_path / "m.zarr"
    options = ["--projections", "1", "--remainder", "a", "--remainder", "b"]
    result = run("fit", data, "--target", "y", "--out", out, *options)
    assert result.exit_code == 0, result.output
    for told in ("projections of 2 columns", "remainder", "neighbours"):
        assert told in result.stdout
    model = dsgp.load(out)
    assert (model.projections, model.remainder) == (1, ("a", "b"))
    assert run("predict", out, data, "--out", tmp_path / "p.csv").exit_code == 0
    mean = pd.read_csv(tmp_path / "p.csv")["mean"]
    np.testing.assert_allclose(mean, model.predict(table[["a", "b"]]), rtol=1e-9)


def test_a_pursuit_model_takes_its_options(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "ProjectionPursuitGPRegressor", given := Given())
    data = saved(rows(), tmp_path / "d.csv")
    base = ["fit", data, "--target", "y", "--out", tmp_path / "m.zarr", "--model", "pursuit"]
    assert run(*base).exit_code == 0
    default = dsgp.ProjectionPursuitGPRegressor(dsgp.kernels.Matern52()).get_params()
    default |= {"verbose": True, "random_state": 0}
    made = {"kernel": given.positional[0], **given.options}
    assert made == {name: default[name] for name in made}
    options = ["--projections", "7", "--method", "greedy", "--no-relevance", "--starts", "3"]
    options += ["--seed", "5", "--kernel", "matern32", "--noise-variance", "0.5", "--bins", "90"]
    options += ["--draws", "50", "--warmup", "20", "--chains", "3"]
    assert run(*base, *options).exit_code == 0
    assert given.positional == (dsgp.kernels.Matern32(),)
    expected = {"n_projections": 7, "method": "greedy", "relevance": False, "n_starts": 3}
    expected |= {"random_state": 5, "noise_variance": 0.5, "bins": 90}
    expected |= {"n_draws": 50, "n_warmup": 20, "n_chains": 3}
    assert {name: given.options[name] for name in expected} == expected


def test_a_pursuit_model_of_parts_is_that_of_the_table(tmp_path):
    table = rows()
    data, out = in_parts(table, tmp_path / "d", "parquet"), tmp_path / "m.zarr"
    result = run("fit", data, "--target", "y", "--out", out, "--bins", "none", *PURSUIT)
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(
        dsgp.load(out).predict(table[["a", "b"]]),
        pursued(table, bins=None).predict(table[["a", "b"]]),
        rtol=1e-2,
    )


def test_a_pursuit_model_leaves_rows_with_gaps_out_on_request(tmp_path, command):
    table = rows()
    table.loc[3, "a"] = np.nan
    data, out = saved(table, tmp_path / "d.csv"), tmp_path / "m.zarr"
    base = ["fit", data, "--target", "y", "--out", out, *PURSUIT]
    require_one_error(command(*base), "'a'", "NaN", "--drop-missing")
    code, _, err = command(*base, "--drop-missing")
    assert (code, err) == (
        0,
        "Warning: 1 of 60 rows are left out, because they have missing values in 'a'\n",
    )
    assert dsgp.load(out).n_rows_ == N_ROWS - 1


def test_an_additive_model_is_drawn_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "AdditiveGPRegressor", given := Given())
    data = saved(rows(), tmp_path / "d.csv")
    base = ["fit", data, "--target", "y", "--out", tmp_path / "m.zarr"]
    options = ["--method", "collapsed", "--draws", "30", "--warmup", "9", "--chains", "3"]
    assert run(*base, *options, "--seed", "5").exit_code == 0
    expected = {"method": "collapsed", "n_draws": 30, "n_warmup": 9, "n_chains": 3}
    expected["random_state"] = 5
    assert {name: given.options[name] for name in expected} == expected
    assert run(*base).exit_code == 0
    assert "method" not in given.options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--model", "poisson", "--projections", "3"],
            ["--projections is an option of --model additive or pursuit"],
        ),
        (["--remainder", "nothing"], ["remainder names the column 'nothing'"]),
        (["--model", "pursuit", "--remainder", "all"], ["--remainder is an option of --model"]),
        (["--model", "additive", "--method", "refit"], ["--method refit is for --model pursuit"]),
        (["--model", "gamma", "--method", "gibbs"], ["--method is an option of --model additive"]),
        ([*PURSUIT, "--method", "collapsed"], ["--method collapsed is for --model additive"]),
        (["--no-relevance"], ["--no-relevance is an option of --model pursuit", "leave it out"]),
        (["--starts", "10"], ["--starts is an option of --model pursuit"]),
        (["--model", "gamma", "--seed", "0"], ["--seed is an option of --model additive"]),
        ([*PURSUIT, "--learner", "marginal"], ["--learner is an option of --model additive"]),
        ([*PURSUIT, "--lengthscale", "1"], ["--lengthscale is an option of --model additive"]),
        ([*PURSUIT, "--variance", "1"], ["--variance is an option of --model additive"]),
        ([*PURSUIT, "--learner-max-iter", "9"], ["--learner-max-iter is an option of"]),
        ([*PURSUIT, "--missing", "ignore"], ["--missing is an option of --model additive"]),
        ([*PURSUIT, "--kernel", "matern12"], ["Matern12()", "no derivative"]),
        (["--model", "pursuit", "--projections", "few"], ["auto or a number", "'few'"]),
        (["--model", "pursuit", "--projections", "0"], ["n_projections"]),
        (["--model", "pursuit", "--starts", "0"], ["n_starts"]),
    ],
)
def test_options_of_the_other_model_are_refused(tmp_path, command, options, words):
    data, out = saved(rows(), tmp_path / "d.csv"), tmp_path / "m.zarr"
    result = command("fit", data, "--target", "y", "--out", out, *options)
    require_one_error(result, *words)
    assert not out.exists()


# ---------------------------------------------------------------- classes, counts and more


def varied(n_rows=120, seed=0) -> pd.DataFrame:
    """Return two inputs and targets of many kinds."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.uniform(-3, 3, n_rows), "b": rng.uniform(0, 1, n_rows)})
    f = 2 * np.sin(table["a"].to_numpy()) + table["b"].to_numpy()
    success = 1 / (1 + np.exp(-f))
    noisy = f + rng.logistic(size=n_rows)
    years, treated = rng.uniform(0.5, 3, n_rows), rng.integers(1, 9, n_rows)
    return table.assign(
        years=years,
        shift=rng.uniform(-0.5, 0.5, n_rows),
        treated=treated,
        label=np.where(rng.random(n_rows) < success, "yes", "no"),
        kind=np.array(["red", "green", "blue"])[np.digitize(noisy, [-1, 1])],
        code=np.digitize(noisy, [0]) + 7,
        flag=noisy > 0,
        hit=(noisy > 0).astype(int),
        cured=rng.binomial(treated, success),
        n=rng.poisson(years * np.exp(f / 2)),
        amount=rng.gamma(4, np.exp(f) / 4),
        grade=np.digitize(noisy, [-1, 1]),
        real=f + 0.1 * rng.standard_t(3, n_rows),
    )


FIXED = ["--learner", "none", "--lengthscale", "1", "--variance", "2"]
UNIT = dsgp.kernels.Matern52(1.0, 2.0)
ROUGH = dsgp.kernels.Matern32(1.0, 2.0)
INPUTS = ["--columns", "a,b"]


def classified(table: pd.DataFrame, target: str, **options: object) -> dsgp.AdditiveGPClassifier:
    model = dsgp.AdditiveGPClassifier(ROUGH, learner=None, **options)
    return model.fit(table[["a", "b"]], table[target])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("target", ["label", "code", "flag", "kind"])
def test_classes_of_any_type_are_fitted_shown_and_predicted(tmp_path, target, ending):
    table, new = varied(), varied(seed=1)
    data, out = saved(table, tmp_path / f"d{ending}"), tmp_path / "m.zarr"
    options = ["--model", "classifier", *INPUTS, *FIXED]
    result = run("fit", data, "--target", target, "--out", out, *options)
    assert result.exit_code == 0, result.output
    expected = classified(table, target)
    assert expected.summary() in result.stdout
    shown = run("info", out).stdout
    assert f"classes         {', '.join(map(str, expected.classes_))}\n" in shown
    assert "AdditiveGPClassifier" in shown
    assert expected.summary() in shown
    new_data, predictions = saved(new, tmp_path / f"n{ending}"), tmp_path / f"p{ending}"
    assert run("predict", out, new_data, "--keep", target, "--out", predictions).exit_code == 0
    predicted, X = dsgp.read_table(predictions), new[["a", "b"]]
    assert list(predicted[target]) == list(new[target])
    assert list(predicted["predicted"]) == list(expected.predict(X))
    for label, column in zip(expected.classes_, expected.predict_proba(X).T, strict=True):
        np.testing.assert_allclose(predicted[f"probability_{label}"], column, rtol=1e-12)
    labels = [f"_{label}" for label in expected.classes_] if target == "kind" else [""]
    for label, model in zip(labels, expected.estimators_, strict=True):
        mean, std = model.predict_latent(X, return_std=True)
        np.testing.assert_allclose(predicted[f"latent{label}"], mean, rtol=1e-9)
        np.testing.assert_allclose(predicted[f"std{label}"], std, rtol=1e-9)
    assert predicted.shape[1] == 2 + len(expected.classes_) + 2 * len(labels)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("target", ["label", "kind", "flag"])
def test_classes_of_parts_are_those_of_the_table(tmp_path, target, kind):
    table = varied()
    data, out = in_parts(table, tmp_path / "d", kind), tmp_path / "m.zarr"
    options = ["--model", "classifier", *INPUTS, *FIXED, "--bins", "none"]
    result = run("fit", data, "--target", target, "--out", out, *options)
    assert result.exit_code == 0, result.output
    expected = classified(table, target)
    assert list(dsgp.load(out).classes_) == list(expected.classes_)
    result = run("predict", out, data, "--keep", f"{target},n", "--out", tmp_path / "p")
    assert result.exit_code == 0, result.output
    predicted = pd.read_parquet(tmp_path / "p")
    assert list(predicted)[:3] == [target, "n", "predicted"]
    assert list(predicted["predicted"]) == list(expected.predict(table[["a", "b"]]))
    np.testing.assert_allclose(
        predicted.filter(like="probability_"),
        expected.predict_proba(table[["a", "b"]]),
        atol=1e-3,
    )


def test_a_classifier_takes_its_options(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "AdditiveGPClassifier", given := Given())
    data = saved(varied(), tmp_path / "d.csv")
    base = ["fit", data, "--target", "label", "--out", tmp_path / "m.zarr", *INPUTS]
    base += ["--model", "classifier"]
    assert run(*base).exit_code == 0
    default = dsgp.AdditiveGPClassifier().get_params() | {"verbose": True}
    assert given.positional == (dsgp.kernels.Matern32(),)
    assert given.options == {name: default[name] for name in given.options}
    options = ["--link", "probit", "--class-weight", "balanced", "--multi-class", "ovr"]
    options += ["--learner", "independent", "--learner-max-iter", "7", "--newton-max-iter", "9"]
    options += ["--missing", "ignore", "--kernel", "matern12", "--lengthscale", "3"]
    assert run(*base, *options).exit_code == 0
    assert given.positional == (dsgp.kernels.Matern12(3.0),)
    expected = {"link": "probit", "class_weight": "balanced", "multi_class": "ovr"}
    expected |= {"learner": "independent", "learner_max_iter": 7, "newton_max_iter": 9}
    expected |= {"missing": "ignore"}
    assert {name: given.options[name] for name in expected} == expected


RESPONSES = {
    "bernoulli": ("hit", {}),
    "binomial": ("cured", {"trials": "treated"}),
    "poisson": ("n", {"exposure": "years", "offset": "shift"}),
    "negative-binomial": ("n", {"exposure": "years"}),
    "gamma": ("amount", {"exposure": "years"}),
    "ordered": ("grade", {"offset": "shift"}),
    "student-t": ("real", {"offset": "shift"}),
}


@pytest.mark.parametrize("ending", [".csv", ".parquet", ""])
@pytest.mark.parametrize("model", RESPONSES)
def test_other_targets_are_fitted_shown_and_predicted(tmp_path, model, ending):
    table, new = varied(), varied(seed=1)
    target, further = RESPONSES[model]
    if ending:
        data, new_data = saved(table, tmp_path / f"d{ending}"), saved(new, tmp_path / f"n{ending}")
    else:
        data, new_data = (
            in_parts(each, tmp_path / name, "parquet") for name, each in (("d", table), ("n", new))
        )
    out, predictions = tmp_path / "m.zarr", tmp_path / "p.parquet"
    roles = [word for role, name in further.items() for word in (f"--{role}", name)]
    options = ["--model", model, *INPUTS, *FIXED, "--bins", "none", *roles]
    result = run("fit", data, "--target", target, "--out", out, *options)
    assert result.exit_code == 0, result.output
    expected = dsgp.GeneralizedAdditiveGP(model.replace("-", "_"), UNIT, learner=None, bins=None)
    expected.fit(table[["a", "b"]], table[target], **{r: table[c] for r, c in further.items()})
    shown = run("info", out).stdout
    assert "GeneralizedAdditiveGP" in shown
    assert dsgp.load(out).summary() in shown
    assert dsgp.load(out).summary() in result.stdout
    arguments = ["--keep", target, "--level", "0.8", "--out", predictions]
    result = run("predict", out, new_data, *arguments, *roles)
    assert result.exit_code == 0, result.output
    predicted, X = pd.read_parquet(predictions), new[["a", "b"]]
    numbers = {role: new[name] for role, name in further.items()}
    mean, std = expected.predict(X, return_std=True, **numbers)
    np.testing.assert_allclose(predicted["mean"], mean, rtol=1e-2)
    np.testing.assert_allclose(predicted["std"], std, rtol=1e-2)
    ends = expected.predict_interval(X, 0.8, include_noise=True, **numbers)
    for name, end in zip(("lower", "upper"), ends, strict=True):
        away = np.abs(predicted[name] - end)
        assert np.mean(away > 0.02 * np.abs(end)) < 0.02  # a count may fall on the other side
    levels = [f"probability_{k}" for k in range(3)] if model == "ordered" else []
    assert list(predicted) == [target, "mean", "std", "lower", "upper", *levels]
    if levels:
        np.testing.assert_allclose(predicted[levels].sum(axis=1), 1.0)
        np.testing.assert_allclose(predicted[levels] @ np.arange(3), predicted["mean"], rtol=1e-9)


def test_without_exposure_and_trials_predictions_are_per_unit(tmp_path):
    table = varied()
    data = saved(table, tmp_path / "d.parquet")
    for model, role in (("poisson", "exposure"), ("binomial", "trials")):
        target, further = RESPONSES[model]
        column = further[role]
        out = tmp_path / f"{model}.zarr"
        options = ["--model", model, *INPUTS, *FIXED, f"--{role}", column]
        assert run("fit", data, "--target", target, "--out", out, *options).exit_code == 0
        unit, all_of_it = tmp_path / f"{model}-unit.csv", tmp_path / f"{model}-all.csv"
        assert run("predict", out, data, "--out", unit).exit_code == 0
        result = run(
            "predict", out, data, f"--{role}", column, "--keep", column, "--out", all_of_it
        )
        assert result.exit_code == 0, result.output
        together = pd.read_csv(all_of_it)
        expected = pd.read_csv(unit)["mean"] * together[column]
        np.testing.assert_allclose(together["mean"], expected, rtol=1e-12)


def test_a_model_without_names_takes_its_numbers_by_name(tmp_path):
    table = varied()
    model = dsgp.GeneralizedAdditiveGP("poisson", UNIT, learner=None)
    model.fit(table[["a", "b"]].to_numpy(), table["n"], exposure=table["years"])
    model.save(tmp_path / "m.zarr")
    expected = model.predict(table[["a", "b"]].to_numpy(), exposure=table["years"])
    new = table[["a", "label", "b", "years"]]
    arguments = ["--exposure", "years", "--keep", "label"]
    for data in (saved(new, tmp_path / "d.csv"), in_parts(new, tmp_path / "d", "csv")):
        out = tmp_path / "p.parquet"
        result = run("predict", tmp_path / "m.zarr", data, *arguments, "--out", out, "--overwrite")
        assert result.exit_code == 0, result.output
        np.testing.assert_allclose(pd.read_parquet(out)["mean"], expected, rtol=1e-12)


def test_the_median_is_predicted_on_request_and_replaced_as_a_mean_is(tmp_path):
    table = varied()
    model = dsgp.GeneralizedAdditiveGP("poisson", UNIT, learner=None)
    model.fit(table[["a", "b"]], table["n"], exposure=table["years"]).save(tmp_path / "m.zarr")
    data, out = saved(table, tmp_path / "d.parquet"), tmp_path / "p.csv"
    arguments = ["predict", tmp_path / "m.zarr", data, "--exposure", "years", "--out", out]
    for _ in range(2):  # its own columns are known as predictions
        result = run(*arguments, "--statistic", "median", "--overwrite")
        assert result.exit_code == 0, result.output
    written = pd.read_csv(out)
    assert list(written) == ["median", "std", "lower", "upper"]
    expected = table["years"] * np.exp(model.predict_latent(table[["a", "b"]]))
    np.testing.assert_allclose(written["median"], expected, rtol=1e-9)


def first(table: pd.DataFrame, column: str, value: object) -> pd.DataFrame:
    """Return a table whose first row has another value."""
    return table.assign(**{column: [value, *table[column][1:]]})


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (varied(), ["n", "--link", "probit"], ["--link is an option of", "bernoulli, binomial or"]),
        (varied(), ["n", "--trials", "treated"], ["--trials is an option of --model binomial"]),
        (varied(), ["n", "--noise-variance", "1"], ["--noise-variance", "additive or pursuit"]),
        (varied(), ["n", "--learner", "vbem"], ["--learner vbem", "independent or none"]),
        (varied(), ["n", "--learner", "em"], ["--learner em", "independent or none"]),
        (varied(), ["n", "--exposure", "none"], ["no column 'none'"]),
        (varied(), ["n", "--exposure", "n"], ["'n'", "more than once", "--exposure"]),
        (varied(), ["n", "--offset", "label"], ["'label'", "number"]),
        (varied(), ["label"], ["'label'", "not numeric", "--model classifier takes labels"]),
        (first(varied(), "n", -1), ["n"], ["counts", "row 0 is -1"]),
        (first(varied(), "n", 0.5), ["n"], ["counts", "row 0 is 0.5"]),
        (first(varied(), "years", 0), ["n", "--exposure", "years"], ["exposure", "positive"]),
        (first(varied(), "years", np.nan), ["n", "--exposure", "years"], ["'years'", "NaN"]),
        (first(varied(), "amount", 0), ["amount", "--model", "gamma"], ["positive", "row 0 is 0"]),
        (varied(), ["n", "--model", "bernoulli"], ["0", "row "]),
        (
            first(varied(), "cured", 99),
            ["cured", "--model", "binomial", "--trials", "treated"],
            ["trials", "row 0 is 99"],
        ),
        (first(varied(), "grade", 0.5), ["grade", "--model", "ordered"], ["codes", "row 0 is 0.5"]),
        (varied(), ["label", "--model", "classifier", "--offset", "b"], ["--offset is an option"]),
        (varied().assign(label="no"), ["label", "--model", "classifier"], ["only one class", "no"]),
        (
            first(varied(), "label", None),
            ["label", "--model", "classifier"],
            ["'label'", "row 0", "--drop-missing"],
        ),
        (varied(), ["real", "--model", "classifier"], ["class"]),
        (varied(), ["y", "--model", "additive", "--learner", "independent"], ["--learner indep"]),
    ],
)
@pytest.mark.parametrize("parts_of", [False, True], ids=["file", "parts"])
def test_bad_targets_and_options_end_in_one_line(
    tmp_path, command, table, options, words, parts_of
):
    data = in_parts(table, tmp_path / "d", "parquet") if parts_of else ""
    data = data or saved(table, tmp_path / "d.parquet")
    model = [] if "--model" in options else ["--model", "poisson"]
    base = ["fit", data, "--out", tmp_path / "m.zarr", *INPUTS, "--target"]
    if parts_of:  # what a single file may do about it
        words = [word for word in words if not word.startswith(("--drop", "--model class"))]
    require_one_error(command(*base, *options, *model), *words)
    assert not (tmp_path / "m.zarr").exists()


def test_bad_requests_for_predictions_end_in_one_line(tmp_path, command):
    table = varied()
    data = saved(table, tmp_path / "d.parquet")
    classified(table, "label").save(tmp_path / "label.zarr")
    counts = dsgp.GeneralizedAdditiveGP("poisson", UNIT, learner=None)
    counts.fit(table[["a", "b"]], table["n"], exposure=table["years"]).save(tmp_path / "n.zarr")
    zero = saved(first(table, "years", 0), tmp_path / "zero.parquet")
    named = saved(table.assign(probability_no=1.0), tmp_path / "named.parquet")
    for model, rows_of, options, words in (
        ("label", data, ["--level", "0.9"], ["--level", "a classifier"]),
        ("label", data, ["--exposure", "years"], ["--exposure", "AdditiveGPClassifier"]),
        ("label", named, ["--keep", "a,probability_no"], ["--keep 'probability_no'"]),
        ("n", data, ["--trials", "treated"], ["trials", "binomial"]),
        ("n", data, ["--exposure", "time"], ["no column 'time'"]),
        ("n", data, ["--exposure", "label"], ["'label'", "number"]),
        ("n", zero, ["--exposure", "years"], ["exposure", "positive"]),
        ("n", data, ["--level", "1"], ["--level", "between 0 and 1"]),
        ("n", data, ["--statistic", "mode"], ["--statistic", "mean or median"]),
        ("label", data, ["--statistic", "median"], ["--statistic", "AdditiveGPClassifier"]),
    ):
        arguments = [tmp_path / f"{model}.zarr", rows_of, "--out", tmp_path / "p.csv"]
        require_one_error(command("predict", *arguments, *options), *words)
        assert not (tmp_path / "p.csv").exists()


def test_rows_without_a_label_are_left_out_on_request(tmp_path, command):
    table = first(varied(), "label", None)
    data, out = saved(table, tmp_path / "d.parquet"), tmp_path / "m.zarr"
    options = ["--model", "classifier", *INPUTS, *FIXED, "--drop-missing"]
    code, _, err = command("fit", data, "--target", "label", "--out", out, *options)
    assert (code, err) == (
        0,
        "Warning: 1 of 120 rows are left out, because they have missing values in 'label'\n",
    )
    expected = classified(table[1:], "label").predict_proba(table[["a", "b"]])
    np.testing.assert_array_equal(dsgp.load(out).predict_proba(table[["a", "b"]]), expected)


def test_version():
    assert run("--version").stdout == f"dsgp {dsgp.__version__}\n"


@pytest.mark.parametrize("name", ["fit", "predict", "info"])
def test_help_is_readable_at_80_columns(monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(name, "--help").stdout
    assert f"\n    dsgp {name} " in shown
    assert shown.count(f"dsgp {name} ") >= 2
    assert max(map(len, shown.splitlines())) <= 80
    assert "\b" not in shown


def test_usage_errors_end_with_2(command):
    code, _, err = command("fit")
    assert code == 2
    assert "DATA" in err


# ---------------------------------------------------------------- bad training tables


def changed(**columns: object) -> pd.DataFrame:
    """Return the rows, with the first value of columns replaced, or whole columns."""
    table = rows()
    for name, value in columns.items():
        if np.isscalar(value):
            table.loc[0, name] = value
        else:
            table[name] = value
    return table


TEXT = ["text"] * N_ROWS
BAD_TABLES = {
    "NaN in an input": (changed(b=np.nan), [], ["'b'", "NaN", "row 0"]),
    "infinity in an input": (changed(b=np.inf), [], ["'b'", "infinity"]),
    "NaN in the target": (changed(y=np.nan), [], ["'y'", "NaN"]),
    "infinity in the target": (changed(y=-np.inf), [], ["'y'", "infinity"]),
    "text target": (changed(y=TEXT), [], ["'y'", "not numeric"]),
    "no target": (rows().drop(columns="y"), [], ["no column 'y'", "'a'"]),
    "no target, columns given": (rows().drop(columns="y"), ["--columns", "a"], ["column 'y'"]),
    "no input": (rows()[["y"]], [], ["no input column"]),
    "no such input": (rows(), ["--columns", "a,c"], ["no column 'c'"]),
    "no such column to drop": (rows(), ["--drop", "c"], ["no column 'c'"]),
    "no row": (rows()[:0], [], ["empty table", "'y'"]),
    "one row": (rows(1), [], ["1 sample", "at least 2 rows"]),
    "target an input": (rows(), ["--columns", "a,y"], ["'y'", "--target", "--columns"]),
    "target dropped": (rows(), ["--drop", "y"], ["'y'", "--target", "--drop"]),
    "input twice": (rows(), ["--columns", "a,a"], ["'a'", "more than once"]),
    "columns and drop": (rows(), ["--columns", "a", "--drop", "b"], ["--columns", "--drop"]),
    "negative weight": (changed(b=-1.0), ["--weight", "b"], ["'b'", "negative in row 0"]),
    "NaN weight": (changed(b=np.nan), ["--weight", "b"], ["'b'", "NaN"]),
    "text weight": (changed(b=TEXT), ["--weight", "b"], ["'b'", "numbers"]),
    "no such weight": (rows(), ["--weight", "w"], ["no column 'w'"]),
    "nothing to keep": (rows(), ["--learner", "none"], ["'a'", "lengthscale"]),
    "negative lengthscale": (
        rows(),
        ["--lengthscale", "-1"],
        ["lengthscale", "must be a number from"],
    ),
    "negative tolerance": (rows(), ["--tol", "-1"], ["tol", "positive"]),
}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_bad_table_ends_in_one_line_and_leaves_nothing(tmp_path, command, case, ending):
    table, options, words = BAD_TABLES[case]
    data = saved(table, tmp_path / f"d{ending}")
    out = tmp_path / "m.zarr"
    require_one_error(command("fit", data, "--target", "y", "--out", out, *options), *words)
    assert [path.name for path in tmp_path.iterdir()] == [f"d{ending}"]


@pytest.mark.parametrize("options", [[], ["--columns", "a,name"]])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_text_is_levels_and_a_single_text_is_left_out(tmp_path, command, ending, options):
    out = tmp_path / "m.zarr"
    several = saved(changed(name=["u", "v"] * (N_ROWS // 2)), tmp_path / f"several{ending}")
    assert command("fit", several, "--target", "y", "--out", out, *options)[0] == 0
    assert {term.bound.kind for term in dsgp.load(out).terms_} == {"Smooth", "Levels"}
    single = saved(changed(name=TEXT), tmp_path / f"single{ending}")
    code, _, err = command("fit", single, "--target", "y", "--out", out, "--overwrite", *options)
    assert (code, err) == (
        0,
        "Warning: constant over the training rows and left out: 'name'\n",
    )


def test_duplicate_column_names_are_an_error(tmp_path, command):
    data = tmp_path / "d.csv"
    data.write_text("a,b,a,y\n1,2,3,4\n2,3,4,5\n")
    result = command("fit", data, "--target", "y", "--out", tmp_path / "m.zarr")
    require_one_error(result, "duplicate column name 'a'")
    assert not (tmp_path / "m.zarr").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.parquet", b"a,b,y\n1,2,3\n"),
        ("d.csv", bytes(range(256)) * 8),
        ("d.csv", b"PAR1\x15\x04\x00\xff\xfe" * 40),
        ("d.csv.gz", b"a,b,y\n1,2,3\n"),
        ("d.csv", b""),
        ("d.parquet", b""),
        ("d.txt", b"a,b,y\n1,2,3\n"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(tmp_path, command, model_path, name, content):
    data = tmp_path / name
    data.write_bytes(content)
    require_one_error(command("fit", data, "--target", "y", "--out", tmp_path / "m.zarr"), name)
    require_one_error(command("predict", model_path, data, "--out", tmp_path / "p.csv"), name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_constant_columns_and_targets_warn_and_work(tmp_path, command):
    data = saved(rows().assign(c=1.0, y=2.0), tmp_path / "d.csv")
    code, out, err = command("fit", data, "--target", "y", "--out", tmp_path / "m.zarr")
    assert code == 0
    column, target = err.splitlines()
    assert column == "Warning: constant over the training rows and left out: 'c'"
    assert target.startswith("Warning: the target is constant (2 in all 60 rows)")
    assert "left out (constant)  c" in out
    predicted = tmp_path / "p.csv"
    assert command("predict", tmp_path / "m.zarr", data, "--out", predicted)[0] == 0
    np.testing.assert_allclose(pd.read_csv(predicted)["mean"], 2.0)


def test_an_early_stop_is_one_line(tmp_path, command):
    data = saved(rows(), tmp_path / "d.csv")
    arguments = ["--target", "y", "--out", tmp_path / "m.zarr", "--learner-max-iter", "1"]
    code, _, err = command("fit", data, *arguments)
    assert code == 0
    assert err.startswith("Warning: learner='marginal' stopped after 1 iterations")
    assert err.count("\n") == 1


# ---------------------------------------------------------------- bad prediction tables


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (rows()[["a", "y"]], [], ["no column 'b'"]),
        (rows(), ["--keep", "id"], ["no column 'id'"]),
        (rows().assign(mean=0.0), ["--keep", "mean"], ["--keep 'mean'"]),
        (changed(a=np.nan), [], ["'a'", "NaN", "row 0"]),
        (changed(a=np.inf), [], ["'a'", "infinity"]),
        (changed(a=TEXT), [], ["'a'", "not numeric"]),
        (rows()[:0], [], ["empty table", "'a'"]),
        (rows(), ["--level", "1"], ["--level", "between 0 and 1"]),
        (rows(), ["--level", "nan"], ["--level", "between 0 and 1"]),
    ],
)
def test_bad_predictions_leave_nothing(tmp_path, command, model_path, table, options, words):
    data = saved(table, tmp_path / "d.csv")
    result = command("predict", model_path, data, "--out", tmp_path / "p.csv", *options)
    require_one_error(result, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


def test_a_column_to_keep_must_be_there_for_a_model_without_names(tmp_path, command):
    table = rows()
    model = fitted(table[["a", "b"]].to_numpy(), table["y"])
    model.save(tmp_path / "m.zarr")
    data = saved(table, tmp_path / "d.csv")
    arguments = ["predict", tmp_path / "m.zarr", data, "--out", tmp_path / "p.csv"]
    require_one_error(command(*arguments, "--keep", "id"), "no column 'id'")
    require_one_error(command(*arguments), "3 features", "expecting 2")


def test_one_row_is_enough_to_predict(tmp_path, model_path):
    data, out = saved(rows(1), tmp_path / "d.csv"), tmp_path / "p.csv"
    assert run("predict", model_path, data, "--out", out).exit_code == 0
    assert len(pd.read_csv(out)) == 1


@pytest.mark.parametrize("name", ["predict", "info"])
def test_what_is_no_model(tmp_path, command, name):
    data = saved(rows(), tmp_path / "d.csv")
    rest = [data, "--out", tmp_path / "p.csv"] if name == "predict" else []
    require_one_error(command(name, tmp_path / "none.zarr", *rest), "none.zarr")
    require_one_error(command(name, data, *rest), "d.csv", "not a dsgp store")
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


# ---------------------------------------------------------------- places to write


@pytest.fixture(params=["fit", "predict"])
def writing(request, command, model_path, tmp_path):
    """Return the ending of an output and a run that would write it; its data cannot be read.

    So an error about the output shows that it was checked before any work.
    """
    data = tmp_path / "empty.csv"
    data.touch()
    if request.param == "fit":
        return ".zarr", lambda out, *more: command(
            "fit", data, "--target", "y", "--out", out, *more
        )
    return ".csv", lambda out, *more: command("predict", model_path, data, "--out", out, *more)


def test_no_folder_to_write_in(tmp_path, writing):
    ending, call = writing
    require_one_error(call(tmp_path / "nowhere" / f"o{ending}"), "there is no folder", "nowhere")


def test_a_full_disk_leaves_nothing(tmp_path, command, model_path, monkeypatch):
    def fill(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fill)
    data = saved(rows(), tmp_path / "d.parquet")
    result = command("predict", model_path, data, "--out", tmp_path / "p.csv")
    require_one_error(result, "p.csv", "No space left")
    assert [path.name for path in tmp_path.iterdir()] == ["d.parquet"]


def test_a_folder_that_cannot_be_written(tmp_path, writing, monkeypatch):
    ending, call = writing
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):  # the superuser may write anywhere

        def refuse(*_args, **_kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(storage.tempfile, "TemporaryFile", refuse)
        monkeypatch.setattr(Path, "touch", refuse)
    require_one_error(call(folder / f"o{ending}"), "cannot write", "closed", "Permission denied")


def test_what_is_there_stays_unless_overwritten(tmp_path, command, writing, model_path):
    ending, call = writing
    out = tmp_path / f"o{ending}"
    data = saved(rows(), tmp_path / "d.csv")
    if ending == ".zarr":
        arguments = ["fit", data, "--target", "y", "--out", out, *KEPT]
    else:
        arguments = ["predict", model_path, data, "--out", out]
    assert command(*arguments)[0] == 0
    before = out.stat().st_ino
    require_one_error(call(out), "exists", out.name)
    assert out.stat().st_ino == before
    require_one_error(call(out, "--overwrite"), "empty.csv")
    assert out.stat().st_ino == before
    assert command(*arguments, "--overwrite")[0] == 0
    assert out.stat().st_ino != before


def test_other_things_are_never_overwritten(tmp_path, writing):
    ending, call = writing
    folder = tmp_path / f"o{ending}"
    folder.mkdir()
    require_one_error(call(folder, "--overwrite"), "exists", folder.name)
    assert folder.is_dir()


def test_the_format_of_predictions_must_be_known(tmp_path, command, model_path):
    data = saved(rows(), tmp_path / "d.csv")
    result = command("predict", model_path, data, "--out", tmp_path / "p.xlsx")
    require_one_error(result, "p.xlsx", ".parquet")


def test_rows_with_gaps_are_left_out_on_request(tmp_path, command):
    table = rows()
    gappy = table.assign(note="text")
    gappy.loc[[3, 9], "a"] = np.nan
    gappy.loc[5, "y"] = np.nan
    data = saved(gappy, tmp_path / "d.csv")
    arguments = [
        "fit",
        data,
        "--target",
        "y",
        "--out",
        tmp_path / "m.zarr",
        "--drop",
        "note",
        *KEPT,
    ]
    require_one_error(command(*arguments), "'y' contains NaN", "--drop-missing")
    code, _, err = command(*arguments, "--drop-missing")
    assert code == 0
    assert (
        err == "Warning: 3 of 60 rows are left out, because they have missing values in 'a', 'y'\n"
    )
    kept = table.drop(index=[3, 5, 9])
    expected = fitted(kept[["a", "b"]], kept["y"]).predict(table)
    np.testing.assert_array_equal(dsgp.load(tmp_path / "m.zarr").predict(table), expected)


def test_a_column_left_out_as_constant_is_not_asked_for(tmp_path, command):
    data = saved(rows().assign(flat=1.0), tmp_path / "d.csv")
    model = tmp_path / "m.zarr"
    assert command("fit", data, "--target", "y", "--out", model, *KEPT)[0] == 0
    new = saved(rows(seed=1)[["a", "b"]], tmp_path / "new.csv")
    assert command("predict", model, new, "--out", tmp_path / "p.csv")[0] == 0
    assert len(pd.read_csv(tmp_path / "p.csv")) == N_ROWS


# ---------------------------------------------------------------- block by block


def in_parts(table: pd.DataFrame, folder: Path, kind: str) -> str:
    """Write a table in three parts, or as a store; return the argument of the command."""
    if kind == "zarr":
        group = zarr.open_group(str(folder), mode="w")
        for name in table:
            group.create_array(name, data=table[name].to_numpy(), chunks=(7,))
        return str(folder)
    folder.mkdir()
    for number, piece in enumerate(np.array_split(np.arange(len(table)), 3)):
        saved(table.iloc[piece], folder / f"part.{number}.{kind}")
    return str(folder / "*.csv") if kind == "csv" else str(folder)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(parts, "BLOCK_ROWS", 9)


class Recorder(dsgp.AdditiveGPRegressor):
    """Notes what it is fitted to."""

    def fit(self, X, y, sample_weight=None):
        Recorder.seen = (X, y, sample_weight)
        table = rows()
        return super().fit(table[["a", "b"]], table["y"])


@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_tables_of_parts_are_fitted_where_they_are(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(models, "AdditiveGPRegressor", Recorder)
    data = in_parts(rows().assign(w=1.0, note=2.0), tmp_path / "d", kind)
    base = ["fit", data, "--target", "y", *KEPT, "--overwrite", "--out", tmp_path / "m.zarr"]
    assert run(*base).exit_code == 0
    assert Recorder.seen == (Path(data), "y", None)
    assert run(*base, "--weight", "w", "--drop", "note").exit_code == 0
    assert Recorder.seen == (Stored(Path(data), None, ["note"]), "y", "w")
    assert run(*base, "--columns", "a,b").exit_code == 0
    assert Recorder.seen == (Stored(Path(data), ["a", "b"], []), "y", None)


@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_a_fit_to_parts_is_that_to_the_table(tmp_path, kind):
    table = rows()
    data = in_parts(table, tmp_path / "d", kind)
    out = tmp_path / "m.zarr"
    result = run("fit", data, "--target", "y", "--out", out, "--bins", "none", *KEPT)
    assert result.exit_code == 0, result.output
    expected = fitted(table[["a", "b"]], table["y"]).predict(table)
    np.testing.assert_allclose(dsgp.load(out).predict(table), expected, rtol=1e-3)


def test_large_files_are_read_block_by_block(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "AdditiveGPRegressor", Recorder)
    data = saved(rows(), tmp_path / "d.csv")
    base = ["fit", data, "--target", "y", *KEPT, "--overwrite", "--out", tmp_path / "m.zarr"]
    assert run(*base).exit_code == 0
    assert isinstance(Recorder.seen[0], pd.DataFrame)
    monkeypatch.setattr(tables, "LARGE_FILE", 100)
    assert run(*base).exit_code == 0
    assert Recorder.seen[0] == Path(data)
    assert run(*base, "--drop-missing").exit_code == 0
    assert isinstance(Recorder.seen[0], pd.DataFrame)


@pytest.mark.parametrize(
    ("text", "value"), [("auto", "auto"), ("none", None), ("250", 250), ("1", 1)]
)
def test_bins_missing_and_learner_are_passed_on(tmp_path, monkeypatch, text, value):
    monkeypatch.setattr(models, "AdditiveGPRegressor", given := Given())
    data = saved(rows(), tmp_path / "d.csv")
    options = ["--bins", text, "--missing", "ignore", "--learner", "marginal"]
    run("fit", data, "--target", "y", "--out", tmp_path / "m.zarr", *options)
    assert {name: given.options[name] for name in ("bins", "missing", "learner")} == {
        "bins": value,
        "missing": "ignore",
        "learner": "marginal",
    }


class Given:
    """Stands for the class of the model, and notes what it is made with."""

    def __call__(self, *positional: object, **options: object) -> "Given":
        self.positional = positional
        self.options = options
        return self

    def fit(self, *_args: object, **_options: object) -> None:
        pass

    def save(self, *_args: object) -> None:
        pass

    def summary(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bins", "many"], ["--bins must be auto, none or a number", "'many'"]),
        (["--drop-missing"], ["--drop-missing", "one file", "--missing ignore"]),
        (["--weight", "w"], ["part 'part.0.parquet'", "no column 'w'"]),
        (["--columns", "a,c"], ["part 'part.0.parquet'", "no column 'c'"]),
        (["--columns", "a,y"], ["'y'", "more than once"]),
    ],
)
def test_bad_fits_to_parts_leave_nothing(tmp_path, command, options, words):
    data = in_parts(rows(), tmp_path / "d", "parquet")
    result = command("fit", data, "--target", "y", "--out", tmp_path / "m.zarr", *options)
    require_one_error(result, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("out", ["p.csv", "p.csv.gz", "p.parquet", "p"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_parts_are_predicted_in_order(tmp_path, model_path, kind, out):
    new = rows(seed=3).assign(id=np.arange(N_ROWS) + 2**60)
    data = in_parts(new, tmp_path / "d", kind)
    out = tmp_path / out
    result = run("predict", model_path, data, "--out", out, "--keep", "id")
    assert result.exit_code == 0, result.output
    assert f"{N_ROWS} predictions saved in {out}" in result.stdout
    predictions = pd.read_parquet(out) if out.is_dir() else dsgp.read_table(out)
    assert list(predictions) == ["id", "mean", "std", "lower", "upper"]
    np.testing.assert_array_equal(predictions["id"], new["id"])
    mean, std = dsgp.load(model_path).predict(new[["a", "b"]], return_std=True)
    np.testing.assert_allclose(predictions["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(predictions["std"], std, rtol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["d", out.name])
    if out.is_dir():
        assert (out / "part-00001.parquet").exists()


def test_parts_without_names_are_taken_by_position(tmp_path):
    table = rows()
    model = fitted(table[["a", "b"]].to_numpy(), table["y"])
    model.save(tmp_path / "m.zarr")
    data = in_parts(table.drop(columns="y").assign(id="r"), tmp_path / "d", "csv")
    result = run("predict", tmp_path / "m.zarr", data, "--keep", "id", "--out", tmp_path / "p")
    assert result.exit_code == 0, result.output
    predictions = pd.read_parquet(tmp_path / "p")
    assert set(predictions["id"]) == {"r"}
    expected = model.predict(table[["a", "b"]].to_numpy())
    np.testing.assert_allclose(predictions["mean"], expected, rtol=1e-12)


@pytest.mark.parametrize("out", ["p.csv", "p.parquet", "p"])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("b", np.nan, ["part 'part.2.parquet', rows from 18 on", "'b'", "NaN", "row 1"]),
        ("b", "text", ["part 'part.2.parquet'", "'b'", "not numeric"]),
        (None, None, ["part 'part.2.parquet'", "no column 'b'"]),
    ],
)
def test_an_error_in_the_middle_leaves_nothing(
    tmp_path, command, model_path, out, name, value, words
):
    data = Path(in_parts(rows(), tmp_path / "d", "parquet"))
    last = data / "part.2.parquet"
    table = pd.read_parquet(last)
    if name is None:
        table = table.drop(columns="b")
    elif value == "text":
        table[name] = value
    else:
        table.loc[19, name] = value
    table.to_parquet(last, index=False, row_group_size=9)
    require_one_error(command("predict", model_path, data, "--out", tmp_path / out), *words)
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path, model_path, monkeypatch):
    data = in_parts(rows(), tmp_path / "d", "parquet")
    blocks = iter(range(3))
    predicted = outputs.Outputs.of

    def interrupted(*arguments):
        if next(blocks) == 2:
            raise KeyboardInterrupt
        return predicted(*arguments)

    monkeypatch.setattr(outputs.Outputs, "of", interrupted)
    for out in ("p", "p.parquet"):
        assert run("predict", model_path, data, "--out", tmp_path / out).exit_code != 0
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_folder_of_predictions_stays_unless_overwritten(tmp_path, command, model_path):
    data = in_parts(rows(), tmp_path / "d", "parquet")
    out = tmp_path / "p"
    assert command("predict", model_path, data, "--out", f"{out}/")[0] == 0
    require_one_error(command("predict", model_path, data, "--out", out), "exists", "--overwrite")
    assert command("predict", model_path, data, "--out", out, "--overwrite")[0] == 0
    result = command("predict", model_path, data, "--out", tmp_path / "d", "--overwrite")
    require_one_error(result, "is the input")
    other = in_parts(rows(), tmp_path / "other", "parquet")
    result = command("predict", model_path, data, "--out", other, "--overwrite")
    require_one_error(result, "does not hold predictions")


def test_no_part_and_no_row(tmp_path, command, model_path):
    arguments = ["--out", tmp_path / "p"]
    result = command("predict", model_path, tmp_path / "*.csv", *arguments)
    require_one_error(result, "no file matches")
    data = in_parts(rows()[:0], tmp_path / "d", "csv")
    require_one_error(command("predict", model_path, data, *arguments), "is an empty table")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_a_bar_shows_how_far_predictions_are(tmp_path, model_path, monkeypatch):
    data = in_parts(rows(), tmp_path / "d", "parquet")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0)

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        prediction.predict(model_path, Path(data), tmp_path / "p")
    assert "predicting" in terminal.getvalue()
    assert f"{N_ROWS}/{N_ROWS}" in terminal.getvalue()
