"""A set whole, and split into train and test rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from dsgp.errors import DataError

Floats = NDArray[np.float64]

# Training rows of the sets without a published split where the literature names a number; the
# other sets train on 80 %.
TRAIN_ROWS = {"pumadyn8fm": 7168, "pumadyn8nm": 7168}


@dataclass(frozen=True, eq=False)
class Split:
    """One problem: inputs, targets and, where it is known, the truth.

    Attributes
    ----------
    name : str
    X_train, X_test : DataFrame of shape (n_rows, n_columns)
        With the row labels of their source.
    y_train, y_test : ndarray of shape (n_rows,)
    f_train, f_test : ndarray of shape (n_rows,) or None
        Targets without noise.
    target : str
        Name of the target.
    noise_variance : float or None
        Of the targets around ``f``.
    """

    name: str
    X_train: pd.DataFrame
    y_train: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[Any]
    f_train: Floats | None
    f_test: Floats | None
    target: str
    noise_variance: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledSplit(Split):
    """A classification problem.

    Attributes
    ----------
    y_train, y_test : ndarray of int64, bool or object (text) of shape (n_rows,)
    f_train, f_test : ndarray of shape (n_rows,) or None
        Logit of the probability of ``classes[1]``.
    classes : ndarray of shape (n_classes,)
        Labels, ascending; each has training rows.
    n_left_out : int
        Rows left out because a value of theirs is missing.
    """

    classes: NDArray[Any]
    n_left_out: int

    @property
    def probability_train(self) -> Floats | None:
        """True probability of ``classes[1]``, where it is known."""
        return None if self.f_train is None else expit(self.f_train)

    @property
    def probability_test(self) -> Floats | None:
        """True probability of ``classes[1]``, where it is known."""
        return None if self.f_test is None else expit(self.f_test)


@dataclass(frozen=True, eq=False, kw_only=True)
class CountSplit(Split):
    """A problem of counts.

    Attributes
    ----------
    y_train, y_test : ndarray of float64 of shape (n_rows,)
        Whole numbers.
    f_train, f_test : ndarray of shape (n_rows,) or None
        Logarithm of the rate per unit of exposure: counts have the mean ``exposure * exp(f)``.
    exposure_train, exposure_test : ndarray of shape (n_rows,)
        Ones where the set has none.
    """

    exposure_train: Floats
    exposure_test: Floats


@dataclass(frozen=True, eq=False)
class Whole:
    """A set before it is split.

    Attributes
    ----------
    name, source : str
        The latter is for messages: a path where there is one.
    X : DataFrame of shape (n_rows, n_columns)
    y : Series of length n_rows
        As found, with the name of the target.
    is_train : ndarray of bool of shape (n_rows,) or None
        A published split.
    exposure : Series of length n_rows or None
    f : ndarray of shape (n_rows,) or None
        The truth, as ``Split`` has it.
    noise_variance : float or None
    """

    name: str
    source: str
    X: pd.DataFrame
    y: pd.Series
    is_train: NDArray[np.bool_] | None = None
    exposure: pd.Series | None = None
    f: Floats | None = None
    noise_variance: float | None = None


Rows = slice | NDArray[np.intp]  # a slice copies nothing


def train_and_test_rows(whole: Whole, n: int | None, seed: int) -> tuple[Rows, Rows]:
    """Positions of the training and the test rows.

    Without a published split, training rows are the first of a seeded permutation.

    Raises
    ------
    DataError
        When `n` leaves no row to train on or to test, or contradicts a published split.
    """
    n_rows = len(whole.y)
    if whole.is_train is not None:
        if n is not None:
            raise DataError(
                f"{whole.name} has a published split, got n = {n}; leave n out to train on its "
                f"{np.count_nonzero(whole.is_train)} rows"
            )
        n_train = int(np.count_nonzero(whole.is_train))
        if whole.is_train[:n_train].all():
            return slice(0, n_train), slice(n_train, None)
        return np.flatnonzero(whole.is_train), np.flatnonzero(~whole.is_train)
    n_train = TRAIN_ROWS.get(whole.name, n_rows * 4 // 5) if n is None else n
    if not 0 < n_train < n_rows:
        raise DataError(
            f"{whole.name}: expected between 1 and {n_rows - 1} training rows, so that some of its "
            f"{n_rows} rows are left for the test, got {n_train}; choose another n"
        )
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[:n_train], order[n_train:]


def parts(whole: Whole, y: NDArray[Any], train: Rows, test: Rows) -> dict[str, Any]:
    """Fields that every ``Split`` has, of a whole with its targets checked."""
    f = whole.f
    return {
        "name": whole.name,
        "X_train": whole.X.iloc[train],
        "y_train": y[train],
        "X_test": whole.X.iloc[test],
        "y_test": y[test],
        "f_train": None if f is None else f[train],
        "f_test": None if f is None else f[test],
        "target": str(whole.y.name),
        "noise_variance": whole.noise_variance,
    }
