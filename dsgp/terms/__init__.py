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
    Neighbours,
    Observations,
    Posterior,
    Scale,
    Solver,
    Sum,
    sum_by,
)
from dsgp.terms.bound import BoundTerm
from dsgp.terms.chain import ExpectedChain, ExpectedDensity
from dsgp.terms.dense import DenseCells
from dsgp.terms.grouped import GroupedAxis, GroupedDense, GroupedMarkov
from dsgp.terms.inputs import Input
from dsgp.terms.interaction import Tensor
from dsgp.terms.levels import LevelCells
from dsgp.terms.line import Line
from dsgp.terms.markov import MarkovCells
from dsgp.terms.multiplied import MultipliedCells
from dsgp.terms.spec import TERMS, Default, Levels, Linear, Smooth, Term
from dsgp.terms.tensor import LevelPairs, SmoothByLevels, TensorCells
from dsgp.terms.written import parse_term, term_of

__all__ = [
    "LOG_2PI",
    "TERMS",
    "Axis",
    "AxisPosterior",
    "AxisSolver",
    "BinShift",
    "BoundTerm",
    "Cells",
    "Codes",
    "Default",
    "DenseCells",
    "Evidence",
    "ExpectedChain",
    "ExpectedDensity",
    "Floats",
    "Function",
    "GroupedAxis",
    "GroupedDense",
    "GroupedMarkov",
    "Input",
    "KernelSum",
    "KernelSums",
    "LevelCells",
    "LevelPairs",
    "Levels",
    "Line",
    "Linear",
    "MarkovCells",
    "MultipliedCells",
    "Neighbours",
    "Observations",
    "Posterior",
    "Scale",
    "Smooth",
    "SmoothByLevels",
    "Solver",
    "Sum",
    "Tensor",
    "TensorCells",
    "Term",
    "VarianceFunction",
    "parse_term",
    "sum_by",
    "term_of",
]
