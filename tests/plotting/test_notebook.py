"""Figures show themselves in a notebook, once."""

import base64
import sys

import pytest
from matplotlib.figure import Figure

import dsgp
from dsgp.plotting import plot_components

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

FITTED = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
import numpy as np
import dsgp
from dsgp.plotting import plot_components
X = np.linspace(0, 1, 40)[:, None]
kernel = dsgp.kernels.Matern52(0.3, 1.0)
model = dsgp.AdditiveGPRegressor(kernel, noise_variance=0.01, learner=None)
_ = model.fit(X, np.sin(6 * X[:, 0]))
"""
CELLS = [
    "plot_components(model)",
    "fig = plot_components(model)\nfig",
    "fig = plot_components(model)",
    "from IPython.display import display\ndisplay(fig)",
]
N_PICTURES = [1, 1, 0, 1]


def pictures(cell):
    return [
        output.data["image/png"]
        for output in cell.outputs
        if output.output_type in ("display_data", "execute_result") and "image/png" in output.data
    ]


@pytest.mark.parametrize("magic", ["", "%matplotlib inline"], ids=["plain", "inline"])
def test_every_figure_is_shown_once(magic):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in (FITTED, magic, *CELLS)]
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    shown = [pictures(cell) for cell in notebook.cells[2:]]
    assert [len(each) for each in shown] == N_PICTURES
    for each in shown:
        for picture in each:
            assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_a_figure_is_one_of_matplotlib():
    X = [[0.0], [0.5], [1.0]]
    kernel = dsgp.kernels.Matern52(0.3, 1.0)
    model = dsgp.AdditiveGPRegressor(kernel, noise_variance=0.01, learner=None)
    fig = plot_components(model.fit(X, [0.0, 1.0, 0.0]))
    assert isinstance(fig, Figure)
    assert fig._repr_png_().startswith(b"\x89PNG")
