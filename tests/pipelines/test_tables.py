"""The pipeline of real tables, on tables drawn here."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss
from typer.testing import CliRunner

from dsgp.errors import DataError, ParameterError
from pipelines.datasets import Split
from pipelines.datasets.tables import TABLE_JOBS, load_job, split_table
from pipelines.scaling import running
from pipelines.tables import cell
from pipelines.tables.__main__ import app
from pipelines.tables.columns import MISSING, plain
from pipelines.tables.methods import METHODS, methods_named
from pipelines.tables.mgcv import Mgcv
from pipelines.tables.summary import ratio

N = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small tables under the names of two jobs, and an .npz set."""
    rng = np.random.default_rng(0)
    made = tmp_path_factory.mktemp("data")
    (made / "tables").mkdir()
    hour, day = rng.uniform(0, 24, N), rng.choice(["Mon", "Tue", "Sun"], N)
    slope = pd.Series(day).map({"Mon": 1.0, "Tue": 2.0, "Sun": -1.0}).to_numpy()
    minutes = 20 + 3 * slope * np.sin(hour / 4) + 0.5 * rng.standard_normal(N)
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 800, N), unit="D")
    table = pd.DataFrame({"time_to_delivery": minutes, "hour": hour, "day": day, "when": when})
    table.loc[:9, "hour"] = np.nan
    table.loc[10:19, "day"] = None
    table.to_parquet(made / "tables" / "deliveries.parquet")
    rate = rng.uniform(5, 20, N)
    bad = np.where(rng.uniform(size=N) < 0.05 + 0.02 * rate, "bad", "good")
    pd.DataFrame({"Class": bad, "rate": rate, "state": rng.choice(["CA", "NY"], N)}).to_parquet(
        made / "tables" / "lending_club.parquet"
    )
    X = rng.uniform(size=(N, 3)).astype(np.float32)
    np.savez(made / "kin40k.npz", X=X, y=np.float32(X[:, 0] * X[:, 1]), is_train=np.arange(N) < 300)
    return made


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# ---- data


def test_splits_are_those_of_a_seeded_permutation(folder):
    table = pd.read_parquet(folder / "tables" / "deliveries.parquet")
    split = load_job("deliveries", folder)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_array_equal(split.y_train, table["time_to_delivery"].to_numpy()[order[:320]])
    np.testing.assert_array_equal(split.y_test, table["time_to_delivery"].to_numpy()[order[320:]])
    assert list(split.X_train) == ["hour", "day", "when"]
    labelled = load_job("lending_club", folder)
    kinds = pd.read_parquet(folder / "tables" / "lending_club.parquet")["Class"].to_numpy()
    rare = "bad" if np.mean(kinds == "bad") < 0.5 else "good"
    np.testing.assert_array_equal(labelled.y_train, (kinds == rare)[order[:320]].astype(int))
    assert len(load_job("kin40k", folder).y_train) == 300


def test_targets_are_changed_and_rows_without_one_left_out():
    raw = pd.DataFrame({"price": [1.0, np.e, np.nan, np.e**2], "carat": [1.0, 2.0, 3.0, 4.0]})
    split = split_table("diamonds", TABLE_JOBS["diamonds"], raw)
    values = np.concatenate([split.y_train, split.y_test])
    np.testing.assert_allclose(np.sort(values), [0.0, 1.0, 2.0])


def test_no_job_and_no_file_are_errors(folder):
    with pytest.raises(ParameterError, match="there is no job 'cars'; there are: diamonds"):
        load_job("cars", folder)
    with pytest.raises(DataError, match=r"job ames: expected ames\.parquet in"):
        load_job("ames", folder)


def test_dates_become_numbers_and_gaps_are_filled(folder):
    split = load_job("deliveries", folder)
    table = plain(split)
    assert table.text == ["day"]
    assert list(table.train) == ["hour", "day", "when", "when (day of year)", "when (weekday)"]
    when = split.X_test["when"]
    weekday = table.test["when (weekday)"]
    np.testing.assert_array_equal(weekday.nunique(), when.dt.day_of_week.nunique())
    assert table.train["hour"].isna().any()
    filled = table.without_gaps()
    assert not filled.train.isna().any().any()
    assert not filled.test.isna().any().any()
    assert (filled.train["day"] == MISSING).sum() == split.X_train["day"].isna().sum()
    X, X_test, is_code = table.categories()
    assert is_code == [False, True, False, False, False]
    assert X.shape == (320, 5)
    assert X_test.shape == (80, 5)


# ---- measures


def test_errors_and_their_standard_errors_are_those_of_the_bootstrap():
    rng = np.random.default_rng(1)
    y, mean, other = rng.standard_normal((3, 500))
    loss, base, scale = (y - 0.5 * mean) ** 2, (y - 0.5 * other) ** 2, (y - 0.1) ** 2
    draws = rng.integers(500, size=(4000, 500))
    for numerator in (loss, loss - base):
        value, error = ratio(numerator, scale)
        assert value == pytest.approx(numerator.sum() / scale.sum())
        resampled = numerator[draws].sum(axis=1) / scale[draws].sum(axis=1)
        assert error == pytest.approx(resampled.std(), rel=0.1)


def test_methods_are_left_out_or_refused_where_they_are_not_installed(monkeypatch):
    monkeypatch.setattr(Mgcv, "lacking", lambda self: "install R")
    chosen, notes = methods_named(None)
    assert "mgcv" not in chosen
    assert "additive" in chosen
    assert "mgcv is left out: install R" in notes
    with pytest.raises(ParameterError, match="model mgcv: install R"):
        methods_named(["mgcv"])
    with pytest.raises(ParameterError, match="there is no model 'forest'; there are: additive"):
        methods_named(["forest"])


@pytest.mark.parametrize("name", ["ebm", "mgcv", "ridge", "trees"])
def test_methods_of_others_on_a_table(name, folder):
    method = METHODS[name].method
    if (lacking := method.lacking()) is not None:
        pytest.skip(lacking)
    for job, measure in (("deliveries", "nmse"), ("lending_club", "mnll")):
        split = cell.first_rows(load_job(job, folder), 200, 80)
        clock = cell.Clock()
        predicted = method.fit_predict(split, None, clock)
        metrics = cell.metrics_of(split, predicted)
        assert metrics[measure] < (0.9 if job == "deliveries" else 0.75)
        assert set(clock.cpu_seconds) == {"fit", "predict"}
        arrays = cell.costs(split, predicted)
        assert ratio(arrays["loss"], arrays["scale"])[0] == pytest.approx(metrics[measure])
        if job == "lending_club":
            assert metrics["mnll"] == pytest.approx(log_loss(split.y_test, predicted.mean))


# ---- the pipeline


def run_here(asked, module, limit_seconds=None):
    """Run a cell in this process: importing everything again takes seconds."""
    request = json.loads(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell.json, "load", lambda _: request)
        cell.main()
    return 0


def test_cells_are_kept_and_compared(folder, tmp_path, monkeypatch):
    started = []

    def run(*arguments, **known):
        started.append(arguments)
        return run_here(*arguments, **known)

    monkeypatch.setattr(running, "run_apart", run)
    monkeypatch.setattr(cell, "warm_up", lambda method, is_class: None)
    out = tmp_path / "out"
    asked = ["--data-dir", folder, "--out", out, "--quick", "--models", "additive,interactions"]
    result = invoke(*asked, "--models", "trees", "--only", "deliveries,lending_club")
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {
        "report.json", "report.md", "results.csv", "shares.csv", "runs",
    }  # fmt: skip
    lines = pd.read_csv(out / "results.csv").set_index(["job", "method"])
    assert lines.loc[("deliveries", "interactions"), "error"] < 0.3
    assert lines.loc[("deliveries", "additive"), "error"] > 0.5
    less = lines.loc[("deliveries", "interactions")]
    assert less["difference"] < -3 * less["difference_error"]
    assert 0.8 < less["coverage"] <= 1
    assert less["n_pairs"] >= 1
    assert (lines["cpu_fit"] > 0).all()
    assert (lines["peak_memory_mb"] > 50).all()
    shares = pd.read_csv(out / "shares.csv")
    pairs = shares[(shares["method"] == "interactions") & (shares["kind"] == "interactions")]
    assert pairs["term"].tolist()[0] == "hour × day"
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "## deliveries" in text
    assert "Shares of variance" in text
    n_started = len(started)
    again = invoke(*asked, "--models", "trees", "--only", "deliveries,lending_club")
    assert again.exit_code == 0, again.output
    assert "(kept)" in again.output
    assert len(started) == n_started


def test_what_cannot_be_run_is_refused(folder, tmp_path):
    for arguments, told in (
        (["--only", "cars"], "there is no job 'cars'"),
        (["--only", "ames"], "expected ames.parquet"),
        (["--models", "forest"], "there is no model 'forest'"),
        (["--minutes", "0"], "--minutes must be above 0"),
    ):
        result = invoke("--data-dir", folder, "--out", tmp_path / "out", *arguments)
        assert result.exit_code == 1
        assert told in " ".join(result.output.split())
    result = invoke("--data-dir", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "holds the data of no job" in " ".join(result.output.split())


def test_a_cell_that_takes_too_long_is_ended_and_reported(folder, tmp_path):
    result = invoke(
        "--data-dir", folder, "--out", tmp_path / "out", "--only", "kin40k",
        "--models", "ridge", "--minutes", "0.001",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "kin40k, spline ridge" in result.output
    assert "longer than 0 s" in result.output


def test_quick_takes_so_many_rows(folder):
    split = cell.first_rows(load_job("kin40k", folder), 50, 20)
    assert isinstance(split, Split)
    assert [len(split.X_train), len(split.y_train), len(split.y_test)] == [50, 50, 20]
