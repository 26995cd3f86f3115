"""The jobs on real tables, at tiny size."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks import tables


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
