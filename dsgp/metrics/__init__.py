"""Measures of predictions: of a regression, and of the probabilities of classes.

Plain arrays in, a float out, save for the calibration curve. Missing values are the caller's to
leave out.
"""

from dsgp.metrics.classification import (
    CalibrationCurve,
    brier,
    calibration_curve,
    calibration_error,
    error_rate,
    mnll,
    roc_auc,
)
from dsgp.metrics.regression import coverage, mnlp, nmse

__all__ = [
    "CalibrationCurve",
    "brier",
    "calibration_curve",
    "calibration_error",
    "coverage",
    "error_rate",
    "mnll",
    "mnlp",
    "nmse",
    "roc_auc",
]
