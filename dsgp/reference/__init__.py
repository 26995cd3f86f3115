"""The paper's algorithms, written as the paper states them: short, dense and slow on purpose.

A reader finds here in a few lines of plain NumPy what ``jit``, ``terms``, ``additive`` and ``grid``
compute by faster and more careful ways, and the tests compare the two. No estimator uses them.

Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
Processes*; the names of sections, equations and algorithms are those of its source.
"""

from dsgp.reference.backfitting import Backfitted, backfit
from dsgp.reference.chain import GaussMarkovChain, chain_of
from dsgp.reference.kalman import Filtered, Smoothed, ffbs, kalman_filter, rts_smoother
from dsgp.reference.kron import GridLikelihood, grid_log_likelihood, kron_mvprod

__all__ = [
    "Backfitted",
    "Filtered",
    "GaussMarkovChain",
    "GridLikelihood",
    "Smoothed",
    "backfit",
    "chain_of",
    "ffbs",
    "grid_log_likelihood",
    "kalman_filter",
    "kron_mvprod",
    "rts_smoother",
]
