"""The benchmark of noise that varies, at tiny size."""

import json
import sys

from benchmarks import varying_noise


def test_varying_noise_beside_constant_noise(monkeypatch, capsys):
    monkeypatch.setattr(varying_noise, "REPLICATIONS", 2)
    monkeypatch.setattr(sys, "argv", ["varying_noise", "accelerations"])
    varying_noise.main()
    told = json.loads(capsys.readouterr().out)
    assert told["varying"]["mnlp"] < told["constant"]["mnlp"] - 0.3
    assert min(told["varying"]["coverage_of_parts"]) > 0.85


def test_claims_are_counts():
    X, y = varying_noise.claims(50, 0)
    assert len(X) == 50
    assert (y == y.round()).all()
