"""The comparison of smoothing splines runs, and both find the function."""

import typer
from typer.testing import CliRunner

from benchmarks import spline


def test_both_programs_are_measured():
    app = typer.Typer()
    app.command()(spline.main)
    result = CliRunner().invoke(app, ["--rows", "200", "--rows", "300", "--peer-rows", "200"])
    assert result.exit_code == 0, result.output
    rows = [line.split("|")[1:5] for line in result.stdout.splitlines()[2:]]
    assert [(row[0].strip(), row[1].strip()) for row in rows] == [
        ("200", "dsgp"),
        ("200", "scipy"),
        ("300", "dsgp"),
    ]
    assert all(float(row[3]) < 0.2 for row in rows)
