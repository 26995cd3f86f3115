"""What a method is asked, and what it answers."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd

from pipelines.datasets import Floats, Split
from pipelines.scaling.run import Clock


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions for the test rows of a job.

    Attributes
    ----------
    mean : ndarray of shape (n_test,)
        Of the target; of labels the probability of class 1.
    std : ndarray of shape (n_test,) or None
        Of a new observation of a number, in units of the target; None where the method has none.
    shares : DataFrame or None
        Of the variance: ``term``, ``kind`` (such as Smooth or Tensor) and ``share``.
    details : dict
        Numbers of iterations, pairs that were found and the like.
    peak_memory_mb : float or None
        Of a process of its own; None where the method runs in the caller's.
    """

    mean: Floats
    std: Floats | None = None
    shares: pd.DataFrame | None = None
    details: dict[str, Any] = field(default_factory=dict)
    peak_memory_mb: float | None = None


class Method(Protocol):
    """A way to predict the target of a table.

    Attributes
    ----------
    tasks : tuple of str
        Of "regression" and "classification" those that it can do.
    """

    @property
    def tasks(self) -> tuple[str, ...]: ...

    def lacking(self) -> str | None:
        """Say what is not installed, with the remedy; None if nothing."""

    def fit_predict(self, split: Split, terms: Any, clock: Clock) -> Predicted:
        """Fit and predict; stages ``fit`` and ``predict`` of the clock are timed.

        Parameters
        ----------
        split : Split
            Of labels a ``LabelledSplit`` with the classes 0 and 1.
        terms : dict or None
            What the columns are, for models of dsgp.
        clock : Clock
        """
