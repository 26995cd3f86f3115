"""Pictures of fitted models: functions, predictions, classes, fields. Needs the extra ``plot``.

Every function draws on a ``matplotlib.figure.Figure`` of its own and returns it: no pyplot, hence
no global state, no display and no thread to mind. Notebooks show it as the value of a cell.
"""

from __future__ import annotations

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(
        'dsgp.plotting needs matplotlib: pip install ".[plot]" in a checkout of dsgp'
    ) from error

from dsgp.plotting.classification import plot_calibration, plot_classification, plot_roc
from dsgp.plotting.components import plot_components
from dsgp.plotting.forecasts import plot_forecast
from dsgp.plotting.grids import plot_field
from dsgp.plotting.importance import plot_importance
from dsgp.plotting.learning import plot_learning
from dsgp.plotting.predictions import plot_predictions
from dsgp.plotting.projections import plot_projections, plot_relevance
from dsgp.plotting.report import plot_report
from dsgp.plotting.slices import plot_slices
from dsgp.plotting.uncertainty import plot_calibration_report

__all__ = [
    "plot_calibration",
    "plot_calibration_report",
    "plot_classification",
    "plot_components",
    "plot_field",
    "plot_forecast",
    "plot_importance",
    "plot_learning",
    "plot_predictions",
    "plot_projections",
    "plot_relevance",
    "plot_report",
    "plot_roc",
    "plot_slices",
]
