"""The Python blocks of README and site run, page by page; the report's keys are all explained."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from pipelines.datasets import Split
from pipelines.regression import run

ROOT = Path(__file__).parents[1]
# A source distribution has no docs/.
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NESTED_BY_NAME = {"fitted.terms"}  # its keys are columns


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        # Blank lines in front make a traceback name the line of the page.
        exec(compile("\n" * first_line + block[1], str(page), "exec"), namespace)


@pytest.mark.parametrize(
    "model",
    [AdditiveGPRegressor(), ProjectionPursuitGPRegressor(n_projections=1, random_state=0)],
    ids=["additive", "pursuit"],
)
def test_every_key_of_the_report_is_explained(tmp_path, model):
    page = ROOT / "docs" / "howto" / "pipeline.md"
    if not page.exists():
        pytest.skip("no docs/ here")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["a", "b"])
    f = np.sin(6 * X["a"].to_numpy())
    y = f + 0.1 * rng.standard_normal(60)
    split = Split("tiny", X[:40], y[:40], X[40:], y[40:], f[:40], f[40:], "y", 0.01)
    run(split, model, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    explained = set(re.findall(r"`([a-z_.]+)`", page.read_text(encoding="utf-8")))
    assert set(_keys(report)) <= explained


def _keys(report, prefix=""):
    for key, value in report.items():
        name = prefix + key
        if name in NESTED_BY_NAME:
            yield name
            yield from next(iter(value.values()))
        elif isinstance(value, dict) and key in ("data", "metrics", "fitted"):
            yield from _keys(value, name + ".")
        else:
            yield name
