"""The benchmark of remainders, at tiny size."""

import json
import sys

import numpy as np

from benchmarks import remainder


def test_a_simulated_table_and_a_stored_one(tmp_path, monkeypatch, capsys):
    X, f = remainder.simulated(300, 7, 0)
    np.savez(tmp_path / "d.npz", X=X, y=f, is_train=np.arange(300) < 250)
    monkeypatch.setattr(remainder, "TEST_ROWS", 100)
    for arguments in (
        ["--rows", "400", "--columns", "7", "--alone"],
        ["--data", str(tmp_path / "d.npz"), "--neighbours", "32"],
    ):
        monkeypatch.setattr(sys, "argv", ["remainder", *arguments])
        remainder.main()
        told = json.loads(capsys.readouterr().out)
        assert told["nmse"] < 0.8
        assert told["columns"] == 7
        assert any(note.startswith("remainder") for note in told["notes"])
