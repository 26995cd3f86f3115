"""Terms of a model: their cells, and the algebra of a kernel on these."""

from dsgp.terms.axis import Axis, AxisPosterior, AxisSolver, KernelSum, KernelSums, VarianceFunction
from dsgp.terms.base import (
    LOG_2PI,
    BinShift,
    Cells,
    Codes,
    Evidence,
    Floats,
    Function,
    Observations,
    Posterior,
    Scale,
    Solver,
    Sum,
    sum_by,
)

__all__ = [
    "LOG_2PI",
    "Axis",
    "AxisPosterior",
    "AxisSolver",
    "BinShift",
    "Cells",
    "Codes",
    "Evidence",
    "Floats",
    "Function",
    "KernelSum",
    "KernelSums",
    "Observations",
    "Posterior",
    "Scale",
    "Solver",
    "Sum",
    "VarianceFunction",
    "sum_by",
]
