"""Updates and fits are measured beside one another, and agree."""

import typer
from typer.testing import CliRunner

from benchmarks import update


def test_updates_are_measured_beside_fits(monkeypatch):
    monkeypatch.setattr(update, "alone", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(update, "WARM_UP_ROWS", 200)
    app = typer.Typer()
    app.command()(update.main)
    sizes = ["--rows", "600", "--new", "50", "--kernel", "matern52"]
    result = CliRunner().invoke(app, [*sizes, "--batches", "3", "--exact-rows", "120"])
    assert result.exit_code == 0, result.output
    first, second = (part.splitlines()[2:] for part in result.stdout.split("\n\n"))
    assert len(first) == 1
    measured = first[0].split("|")
    assert measured[2].strip() == "50"
    assert float(measured[9]) > 0
    assert len(second) == 2
    for line in second:
        assert float(line.split("|")[4]) < 1e-3
