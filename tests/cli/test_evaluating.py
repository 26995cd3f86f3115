"""``dsgp evaluate``, ``calibrate``, ``fit --noise-terms`` and ``predict --quantile``."""

import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Linear,
    calibration_report,
)
from dsgp.errors import DataError, MemoryLimitError, ParameterError, StorageError
from dsgp.rows.sources.parts import ParquetPart
from tests.cli.commands import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.uniform(0, 1, 400), "b": random.uniform(0, 1, 400)})
    table["y"] = table["a"] + np.exp(3 * table["b"] - 3) * random.standard_normal(400)
    for name, part in (("train", slice(200)), ("new", slice(200, 300)), ("rest", slice(300, 400))):
        table[part].to_csv(path / f"{name}.csv", index=False)
    fit = ["fit", path / "train.csv", "--target", "y", "--noise-terms", "Linear(b)"]
    run(*fit, "--out", path / "m.zarr")
    return path


def test_noise_terms_are_those_that_are_named(folder):
    model = dsgp.load(folder / "m.zarr")
    assert [term.name for term in model.noise_.terms_] == ["b (line)"]
    assert list(model.get_params()["noise_terms"]) == [Linear("b")]
    fit = ["fit", folder / "train.csv", "--target", "y", "--noise-terms", "b"]
    run(*fit, "--out", folder / "named.zarr")
    assert [t.name for t in dsgp.load(folder / "named.zarr").noise_.terms_] == ["b"]
    with pytest.raises(ParameterError, match="names 'Nothing"):
        run(*fit[:-1], "Nothing(b)", "--out", folder / "none.zarr")
    with pytest.raises(ParameterError, match="--noise-terms is an option of --model additive"):
        run(*fit, "--model", "pursuit", "--out", folder / "none.zarr")


def test_evaluate_prints_and_writes_the_report(folder):
    out, plot = folder / "coverage.csv", folder / "c.png"
    result = run(
        "evaluate", folder / "m.zarr", folder / "new.csv", "--target", "y",
        "--out", out, "--plot", plot, "--level", 0.9,
    )  # fmt: skip
    table = pd.read_csv(folder / "new.csv")
    model = dsgp.load(folder / "m.zarr")
    report = calibration_report(model, table, "y", level=0.9)
    assert report.summary() in result.output
    density = model.log_predictive_density(table, table["y"]).mean()
    assert f"mean log density of the observations: {density:.6g}" in result.output
    np.testing.assert_allclose(pd.read_csv(out)["coverage"], report.coverage["coverage"])
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = ["evaluate", folder / "m.zarr", folder / "new.csv", "--target", "y"]
    with pytest.raises(StorageError, match="exists; choose another path, or --overwrite"):
        run(*again, "--out", out)
    plots = [folder / f"c.{kind}" for kind in ("png", "pdf", "svg")]
    for each in (*plots, *plots):
        run(*again, "--out", out, "--plot", each, "--overwrite")
    for option, file in (("--out", folder / "rest.csv"), ("--plot", folder / "photo.png")):
        file.touch()
        before = file.read_bytes()
        with pytest.raises(StorageError, match="dsgp evaluate did not write it"):
            run(*again, option, file, "--overwrite")
        assert file.read_bytes() == before


def test_evaluate_writes_groups_of_dates_as_dates(tmp_path):
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"day": pd.date_range("2021-03-01", periods=80), "y": random.random(80)})
    rows["y"] += 5.0 * (rows["day"] >= "2021-04-10")  # of which the model knows nothing
    AdditiveGPRegressor().fit(rows[["day"]][:40], rows["y"][:40]).save(tmp_path / "m.zarr")
    rows[40:].to_csv(tmp_path / "new.csv", index=False)
    out, plot = tmp_path / "coverage.csv", tmp_path / "c.png"
    evaluate = ["evaluate", tmp_path / "m.zarr", tmp_path / "new.csv", "--target", "y"]
    result = run(*evaluate, "--out", out, "--plot", plot)
    assert "day 2021-04-10 to 2021-04-29: " in result.output
    coverage = pd.read_csv(out).set_index("by").loc["day"]
    assert list(coverage["group"]) == ["2021-04-10 to 2021-04-29", "2021-04-30 to 2021-05-19"]
    assert list(coverage["middle"]) == ["2021-04-19 12:00:00", "2021-05-09 12:00:00"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["report", "evaluate", "calibrate"])
def test_held_out_rows_are_counted_before_all_of_them_are_read(folder, monkeypatch, command):
    if command == "report":
        pytest.importorskip("vl_convert")
    rows = pd.read_csv(folder / "new.csv")
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    for k in range(4):
        rows[25 * k : 25 * (k + 1)].to_parquet(parts / f"{k}.parquet", index=False)
    out = [] if command == "evaluate" else ["--out", folder / f"of_parts_{command}"]
    out = ["--out", folder / "of_parts.html"] if command == "report" else out
    data = parts if command != "report" else ["--data", parts]
    arguments = [command, folder / "m.zarr", *([data] if data is parts else data)]
    arguments += ["--target", "y", *out]
    read = []
    block = ParquetPart._read
    monkeypatch.setattr(
        ParquetPart, "_read", lambda self, *rest: read.append(self) or block(self, *rest)
    )
    with monkeypatch.context() as patch:
        # Of 100 rows of three numbers, twice, less what has been read of them.
        patch.setattr("dsgp.memory.require", _short_of(4000))
        with pytest.raises(MemoryLimitError, match="the held-out rows of"):
            run(*arguments)
    assert len(read) == 1
    assert run(*arguments).exit_code == 0


def _short_of(n_bytes):
    def require(what, needed, remedy):
        if what.startswith("the held-out rows") and needed > n_bytes:
            raise MemoryLimitError(f"{what}: {needed}")

    return require


def test_calibrate_saves_a_model_that_predict_uses(folder):
    calibrated, predictions = folder / "calibrated.zarr", folder / "p.csv"
    new = ["--target", "y", "--out", calibrated]
    given = ["calibrate", folder / "m.zarr", folder / "new.csv"]
    result = run(*given, *new)
    assert "calibrated by 100 rows" in result.output
    # An option of an address that only the result has.
    run(*given[:3], "--target", "y", "--out", "memory://c/m.zarr", "--storage-option", "anon=true")
    assert dsgp.load("memory://c/m.zarr").n_calibrated_ == 100
    run(
        "predict", calibrated, folder / "rest.csv", "--out", predictions,
        "--quantile", 0.1, "--quantile", 0.5,
    )  # fmt: skip
    table, rest = pd.read_csv(predictions), pd.read_csv(folder / "rest.csv")
    assert list(table) == ["mean", "std", "lower", "upper", "quantile_0.1", "quantile_0.5"]
    model = dsgp.load(calibrated)
    lower, _ = model.predict_interval(rest, 0.95, include_noise=True)
    np.testing.assert_allclose(table["lower"], lower)
    quantiles = model.predict_quantiles(rest, [0.1, 0.5], include_noise=True)
    np.testing.assert_allclose(table[["quantile_0.1", "quantile_0.5"]], quantiles)
    before, after = (
        run("evaluate", path, folder / "rest.csv", "--target", "y").output.splitlines()
        for path in (folder / "m.zarr", calibrated)
    )
    assert "intervals are calibrated by 100 rows (conformal)" in after[4]
    assert after[4].endswith("PIT values are those before calibration")
    assert after[3] == before[3]  # of PIT values
    assert after[1] == before[1].replace("observations:", "observations (before calibration):")
    assert not any("before calibration" in line for line in before)
    with pytest.raises(DataError, match="the rows that the model was fitted to"):
        run("calibrate", folder / "m.zarr", folder / "train.csv", *new, "--overwrite")


def test_counts_have_exposures_and_classes_no_quantiles(folder):
    table = pd.read_csv(folder / "train.csv")
    random = np.random.default_rng(1)
    counts = pd.DataFrame({"a": table["a"], "years": random.uniform(0.5, 2, 200)})
    counts["n"] = random.poisson(counts["years"] * np.exp(counts["a"]))
    counts.to_csv(folder / "counts.csv", index=False)
    model = GeneralizedAdditiveGP("poisson").fit(
        counts[["a"]][:100], counts["n"][:100], exposure=counts["years"][:100]
    )
    model.save(folder / "n.zarr")
    result = run(
        "evaluate", folder / "n.zarr", folder / "counts.csv", "--target", "n",
        "--exposure", "years",
    )  # fmt: skip
    report = calibration_report(model, counts, "n", exposure=counts["years"])
    assert report.summary() in result.output
    AdditiveGPClassifier().fit(table[["a"]], table["y"] > 0.5).save(folder / "class.zarr")
    with pytest.raises(ParameterError, match="are of models of a number"):
        run("evaluate", folder / "class.zarr", folder / "train.csv", "--target", "y")
    out = ["--out", folder / "q.csv"]
    with pytest.raises(ParameterError, match="predicts probabilities"):
        run("predict", folder / "class.zarr", folder / "train.csv", "--quantile", 0.5, *out)
