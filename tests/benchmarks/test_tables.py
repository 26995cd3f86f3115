"""The jobs on real tables, at tiny size."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import tables, tables_beside_r


def test_crossed_levels_and_a_table(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "tables").mkdir()
    days = pd.date_range("1969-01-01", periods=150)
    frame = pd.DataFrame({"date": np.tile(days, 2), "state": np.repeat(["AK", "AL"], 150)})
    frame["births"] = rng.poisson(50, 300)
    frame.to_parquet(tmp_path / "tables" / "birthdays.parquet")
    arguments = ["--data-dir", str(tmp_path), "--job", "birthdays", "--crossed", "3000", "60", "20"]
    monkeypatch.setattr(sys, "argv", ["tables", *arguments])
    tables.main()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["std"]["noise"] == pytest.approx(1.0, rel=0.1)
    assert first["std"]["j"] == pytest.approx(0.5, rel=0.5)
    assert second["job"] == "birthdays"
    assert 0.5 < second["nmse"] < 1.5


def run_beside_r(folder, monkeypatch, capsys):
    arguments = ["--data-dir", str(folder), "--beside-r", "1"]
    monkeypatch.setattr(sys, "argv", ["tables", *arguments])
    tables.main()
    return list(map(json.loads, capsys.readouterr().out.splitlines()))


def test_without_r_nothing_is_measured_and_that_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = run_beside_r(tmp_path, monkeypatch, capsys)
    assert [line["job"] for line in lines] == ["insteval", "diamonds-by"]
    assert all("Rscript is not installed" in line["not measured"] for line in lines)


def test_both_programs_find_the_same_in_the_same_rows(tmp_path, monkeypatch, capsys):
    for job in tables_beside_r.PACKAGES:
        if (lacking := tables_beside_r.missing_package(job)) is not None:
            pytest.skip(lacking)
    rng = np.random.default_rng(0)
    (tmp_path / "tables").mkdir()
    s, d = rng.integers(60, size=3000), rng.integers(40, size=3000)
    y = rng.standard_normal(60)[s] + 0.7 * rng.standard_normal(40)[d] + rng.standard_normal(3000)
    ratings = pd.DataFrame({"s": s.astype(str), "d": d.astype(str), "y": y})
    ratings.to_parquet(tmp_path / "tables" / "insteval.parquet")
    stones = pd.DataFrame(
        {name: rng.uniform(1, 3, 3000) for name in ("depth", "table", "x", "y", "z")}
    )
    stones["carat"] = rng.uniform(0.2, 2, 3000)
    for name, levels in (("cut", "abc"), ("color", "DEF"), ("clarity", "pqr")):
        stones[name] = rng.choice(list(levels), 3000)
    steep = stones["clarity"].map({"p": 1.0, "q": 1.2, "r": 1.5})
    stones["price"] = np.exp(
        steep * stones["carat"] + stones["x"] + 0.1 * rng.standard_normal(3000)
    )
    stones.to_parquet(tmp_path / "tables" / "diamonds.parquet")
    effects, curves = run_beside_r(tmp_path, monkeypatch, capsys)
    for name in ("s", "d", "Residual"):
        assert effects["dsgp"][name] == pytest.approx(effects["lme4"][name], rel=0.05)
    assert curves["dsgp"]["nmse"] == pytest.approx(curves["mgcv"]["nmse"], rel=0.2)
    assert effects["ratio of seconds"] > 0
