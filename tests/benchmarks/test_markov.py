"""The comparison of forms runs, and both find the function."""

import typer
from typer.testing import CliRunner

from benchmarks import markov


def test_both_forms_are_measured():
    app = typer.Typer()
    app.command()(markov.main)
    result = CliRunner().invoke(
        app, ["--inputs", "200", "--inputs", "300", "--dense-inputs", "200"]
    )
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("|")[1:8]] for line in result.stdout.splitlines()]
    assert [tuple(row[:2]) for row in rows[2:]] == [
        ("200", "state space"),
        ("200", "dense"),
        ("300", "state space"),
    ]
    assert rows[2][6] == rows[3][6]  # the same posterior mean
    assert float(rows[2][6]) < 0.3
