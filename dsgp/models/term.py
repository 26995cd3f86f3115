"""One fitted term of an additive model: its mean anywhere, in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dsgp.kernels import Kernel
from dsgp.terms import BoundTerm, Cells, Floats, Function


@dataclass(frozen=True)
class FittedTerm:
    """A fitted function of one column.

    Attributes
    ----------
    name : str
        The column, or what the term is called.
    kernel : kernel
    cells : Cells
        Distinct values of its inputs in the training rows, or means of bins.
    dual : ndarray of shape (n_points,)
        K⁻¹ f: the posterior mean anywhere is k(x, points) @ dual.
    weight : ndarray of shape (n_points,)
        Precision of the rows at each point.
    centre : float
        Weighted mean of the function over the training rows.
    explained_variance : float
        Weighted variance of the function over the training rows.
    effective_dof : float
        tr(V W), V the covariance of its smoother: how many free parameters the term amounts to.
    bound : BoundTerm
        What it reads of the columns.
    """

    name: str
    kernel: Kernel
    cells: Cells
    dual: Floats
    weight: Floats
    centre: float
    explained_variance: float
    effective_dof: float
    bound: BoundTerm

    @cached_property
    def mean(self) -> Function:
        """The posterior mean as a function of the input, not centred."""
        return self.cells.kernel_sum(self.kernel, self.dual)
