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
from dsgp.metrics.uncertainty import CalibrationReport, calibration_of

__all__ = [
    "CalibrationCurve",
    "CalibrationReport",
    "brier",
    "calibration_curve",
    "calibration_error",
    "calibration_of",
    "coverage",
    "error_rate",
    "mnll",
    "mnlp",
    "nmse",
    "roc_auc",
]
