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
from dsgp.terms.dense import DenseCells
from dsgp.terms.grouped import GroupedAxis, GroupedDense
from dsgp.terms.levels import LevelCells
from dsgp.terms.line import Line
from dsgp.terms.multiplied import MultipliedCells

__all__ = [
    "LOG_2PI",
    "Axis",
    "AxisPosterior",
    "AxisSolver",
    "BinShift",
    "Cells",
    "Codes",
    "DenseCells",
    "Evidence",
    "Floats",
    "Function",
    "GroupedAxis",
    "GroupedDense",
    "KernelSum",
    "KernelSums",
    "LevelCells",
    "Line",
    "MultipliedCells",
    "Observations",
    "Posterior",
    "Scale",
    "Solver",
    "Sum",
    "VarianceFunction",
    "sum_by",
]
