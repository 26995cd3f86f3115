"""The comparison of learners runs, and the dense optimum is where ours is."""

import json

import typer
from typer.testing import CliRunner

from benchmarks import inference


def test_learners_are_compared_with_the_dense_optimum(tmp_path):
    app = typer.Typer()
    app.command()(inference.main)
    out = tmp_path / "results.json"
    arguments = ["--rows", "200", "--method", "marginal", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    ours, dense = json.loads(out.read_text(encoding="utf-8"))
    assert (ours["method"], dense["method"]) == ("marginal", "dense")
    assert abs(ours["noise_variance"] / dense["noise_variance"] - 1) < 0.2
    assert abs(ours["nmse"] / dense["nmse"] - 1) < 0.1
    assert "| from dense |" in result.stdout
