"""The remainder of a sum of terms: a GP of all inputs, by nearest neighbours (Vecchia)."""

from dsgp.remainder.function import NeighbourFunction
from dsgp.remainder.joint import Joint, RowTerm, solve
from dsgp.remainder.learning import LEAST_GAIN, NEIGHBOURS, SAMPLED, Learned, Problem, learn
from dsgp.remainder.metric import SMOOTHNESSES, Metric
from dsgp.remainder.precision import Precision
from dsgp.remainder.spec import Remainder

__all__ = [
    "LEAST_GAIN",
    "NEIGHBOURS",
    "SAMPLED",
    "SMOOTHNESSES",
    "Joint",
    "Learned",
    "Metric",
    "NeighbourFunction",
    "Precision",
    "Problem",
    "Remainder",
    "RowTerm",
    "learn",
    "solve",
]
