"""The Python blocks of README and site run, page by page; the report's keys are all explained."""

import ast
import inspect
import json
import re
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor
from dsgp.errors import DataWarning
from pipelines.datasets import Split
from pipelines.regression import run

ROOT = Path(__file__).parents[1]
# A source distribution has no docs/.
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
# What people see first, whose examples do not warn.
FIRST = ("README.md", "index.md", "quickstart.md")
# Blocks marked ``py`` are code of other libraries: they run where these are installed.
BLOCK = re.compile(r"^```(python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Parts of a centred kernel, and what stores read kernels by.
NOT_ON_THE_PAGE = {"Margin", "from_settings", "kernel_of"}
NESTED_BY_NAME = {"fitted.terms"}  # its keys are columns


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name in FIRST:
        warnings.simplefilter("error", DataWarning)  # pytest restores filters after each test
    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        if block[1] == "py" and not _can_be_imported(block[2]):
            continue
        first_line = text.count("\n", 0, block.start(2))
        # Blank lines in front make a traceback name the line of the page.
        exec(compile("\n" * first_line + block[2], str(page), "exec"), namespace)


def _can_be_imported(source):
    """Whether the packages that a block imports are installed."""
    statements = list(ast.walk(ast.parse(source)))
    names = [node.module for node in statements if isinstance(node, ast.ImportFrom)]
    names += [one.name for node in statements if isinstance(node, ast.Import) for one in node.names]
    return all(find_spec(name.partition(".")[0]) for name in names)


def test_pictures_of_the_gallery_are_small_and_all_on_its_page():
    page = ROOT / "docs" / "gallery.md"
    if not page.exists():
        pytest.skip("no docs/ here")
    text = page.read_text(encoding="utf-8")
    pictures = {path.name: path.stat().st_size for path in page.parent.glob("images/gallery/*.png")}
    assert set(pictures) == set(re.findall(r'savefig\("([^"]+)"', text))
    assert set(pictures) == set(re.findall(r"\(images/gallery/([^)]+)\)", text))
    assert max(pictures.values()) < 120_000


@pytest.mark.parametrize("module", ["dsgp", "dsgp.kernels", "dsgp.metrics", "dsgp.plotting"])
def test_public_names_are_on_the_page_of_the_interface(module):
    page = ROOT / "docs" / "api.md"
    if not page.exists():
        pytest.skip("no docs/ here")
    public = import_module(module)
    documented = {
        name
        for name in public.__all__
        if inspect.isclass(one := getattr(public, name)) or inspect.isfunction(one)
    } - NOT_ON_THE_PAGE
    listed = set(re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert {f"{module}.{name}" for name in documented} <= listed


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
