"""Data checked and standardised, as the methods of this room take them."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dsgp.errors import DataError
from pipelines.datasets import Floats


@dataclass(frozen=True, eq=False)
class Standardised:
    """Inputs and target of mean 0 and variance 1 on the training rows, without constant columns.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_varying)
    y : ndarray of shape (n_rows,)
    X_test : ndarray of shape (n_test, n_varying)
    centre, scale : float
        Of the target; 0 and 1 for labels.
    """

    X: Floats
    y: Floats
    X_test: Floats
    centre: float
    scale: float

    @classmethod
    def of_numbers(cls, X: Floats, y: Floats, X_test: Floats) -> Self:
        """Standardise inputs and target.

        Raises
        ------
        DataError
            If shapes do not fit, a value is not finite, or no column or not the target varies.
        """
        X, y, X_test = _checked(X, y, X_test)
        centre, scale = float(y.mean()), float(y.std())
        if y.min() == y.max():
            raise DataError(f"the target is {y[0]:g} in all {len(y)} rows; there is nothing to fit")
        X, X_test = _inputs(X, X_test)
        return cls(X, (y - centre) / scale, X_test, centre, scale)

    @classmethod
    def of_labels(cls, X: Floats, y: NDArray, X_test: Floats) -> Self:
        """Standardise inputs; labels stay 0 and 1.

        Raises
        ------
        DataError
            As ``of_numbers``, and if labels are not 0 and 1, both of them.
        """
        X, y, X_test = _checked(X, y, X_test)
        labels = np.unique(y)
        if not np.array_equal(labels, [0, 1]):
            shown = ", ".join(f"{label:g}" for label in labels[:5])
            raise DataError(f"labels must be 0 and 1, both of them; got {shown}")
        X, X_test = _inputs(X, X_test)
        return cls(X, y, X_test, 0.0, 1.0)

    def in_units(
        self, mean: Floats, variance: Floats, noise_variance: float
    ) -> tuple[Floats, Floats, float]:
        """Return mean, standard deviation of the function, and noise in units of the target."""
        std = self.scale * np.sqrt(np.maximum(variance, 0.0))
        return self.centre + self.scale * mean, std, self.scale**2 * noise_variance


def _checked(X: Floats, y: NDArray, X_test: Floats) -> tuple[Floats, Floats, Floats]:
    X, y, X_test = (np.asarray(each, np.float64) for each in (X, y, X_test))
    if X.ndim != 2 or X_test.ndim != 2 or X.shape[1] != X_test.shape[1] or y.shape != X.shape[:1]:
        raise DataError(
            "expected X of (n_rows, n_columns), y of (n_rows,) and X_test of (n_test, n_columns); "
            f"got {X.shape}, {y.shape} and {X_test.shape}"
        )
    if len(X) < 2:
        raise DataError(f"at least 2 rows are needed to fit, got {len(X)}")
    for name, values in (("X", X), ("X_test", X_test)):
        columns = np.flatnonzero(~np.isfinite(values).all(axis=0))
        if len(columns):
            raise DataError(
                f"column {columns[0]} of {name} has values that are missing or infinite; leave "
                "those rows out or fill them"
            )
    if not np.isfinite(y).all():
        raise DataError("the target has values that are missing or infinite; leave those rows out")
    return X, y, X_test


def _inputs(X: Floats, X_test: Floats) -> tuple[Floats, Floats]:
    varies = X.min(axis=0) < X.max(axis=0)
    if not varies.any():
        raise DataError(f"all {X.shape[1]} columns of X are constant; there is nothing to fit")
    X = X[:, varies]
    centre, scale = X.mean(axis=0), X.std(axis=0)
    return (X - centre) / scale, (X_test[:, varies] - centre) / scale
