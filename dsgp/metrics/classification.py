"""Measures of a classification: errors, the fit of the probabilities, calibration, ranking.

A probability is that of the second of two classes, or has a column a class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dsgp.errors import DataError
from dsgp.metrics.checks import require_share

Floats = NDArray[np.float64]

_SUM_TOLERANCE = 1e-5  # of the probabilities of a row; float32 with a hundred classes has 1e-5


def error_rate(y: ArrayLike, predicted: ArrayLike) -> float:
    r"""Share of labels that are predicted wrongly.

    .. math:: \frac1n \#\{i : \hat y_i \ne y_i\}

    Parameters
    ----------
    y : array-like of shape (n,)
        Observed labels: integers, booleans or text.
    predicted : array-like of shape (n,)
        Predicted labels.

    Returns
    -------
    float

    Raises
    ------
    DataError
        When there is no label, shapes differ, or one of the two is text and the other is not.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, "Multidimensional Classification" (error rate).

    Examples
    --------
    >>> from dsgp.metrics import error_rate
    >>> error_rate(["cat", "dog", "dog", "dog"], ["cat", "dog", "cat", "dog"])
    0.25
    """
    y, predicted = _labels(y, "y"), _labels(predicted, "predicted")
    if y.shape != predicted.shape:
        raise DataError(
            f"predicted: expected the shape of y, {y.shape}, got shape {predicted.shape}"
        )
    text = [
        any(isinstance(label, str) for label in labels[:1].tolist()) for labels in (y, predicted)
    ]
    if text[0] != text[1]:  # they would differ in every row
        raise DataError(
            f"y and predicted: expected labels of one kind, got {y.tolist()[0]!r} and "
            f"{predicted.tolist()[0]!r}; predict with a model fitted to labels like those of y"
        )
    return float(np.mean(y != predicted))


def mnll(
    y: ArrayLike, probability: ArrayLike, classes: Sequence[Any] | ArrayLike | None = None
) -> float:
    r"""Mean negative log likelihood of labels.

    .. math:: -\frac1n \sum_i \log p_{i, y_i}
        \qquad\Bigl(\text{two classes: } -\frac1n \sum_i
        \left[y_i \log p_i + (1 - y_i) \log (1 - p_i)\right]\Bigr)

    A probability of exactly 0 for a label that was observed makes it infinite, however good the
    other rows are. That is an error, which says in how many rows: nothing is clipped silently.

    Parameters
    ----------
    y : array-like of shape (n,)
        Test labels: those in `classes`.
    probability : array-like of shape (n,) or (n, n_classes)
        Probability of the second of two classes, or of every class. With both columns of two
        classes, small probabilities of the first one keep their digits.
    classes : sequence of n_classes labels, optional
        Labels of the columns (``classes_`` of a classifier); by default 0, 1, ….

    Returns
    -------
    float
        In nats per observation; smaller is better, and :math:`\log K` is the score of equal
        probabilities.

    Raises
    ------
    DataError
        When a label that was observed has probability 0, a probability is missing or not between 0
        and 1, a row does not add up to 1, shapes differ, or a label is not among the classes.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, "Multidimensional Classification" (MNLL; its formula lacks the minus sign).

    Examples
    --------
    >>> from dsgp.metrics import mnll
    >>> round(mnll([0, 1, 1], [0.1, 0.8, 0.6]), 4)
    0.2798
    >>> round(mnll(["b", "c"], [[0.1, 0.7, 0.2], [0.0, 0.5, 0.5]], classes=["a", "b", "c"]), 4)
    0.5249
    """
    codes, columns, _ = class_columns(y, probability, classes)
    observed = columns[np.arange(len(codes)), codes]
    impossible = np.flatnonzero(observed == 0)
    if len(impossible):
        raise DataError(
            f"probability: the label observed has probability 0 in {len(impossible)} of "
            f"{len(codes)} rows, first in row {impossible[0]}, so the MNLL is infinite; expected "
            "probabilities above 0: clip them, e.g. numpy.clip(probability, 1e-12, 1 - 1e-12), "
            "and state that with the score, or use the Brier score"
        )
    return float(-np.mean(np.log(observed)))


def brier(
    y: ArrayLike, probability: ArrayLike, classes: Sequence[Any] | ArrayLike | None = None
) -> float:
    r"""Brier score: mean squared error of the probabilities.

    .. math:: \frac1n \sum_i (p_i - y_i)^2 \text{ for two classes}, \qquad
        \frac1n \sum_i \sum_k (p_{ik} - [y_i = k])^2 \text{ for more}

    With two classes, the sum over both columns would be twice the first formula. The first formula
    is the usual one, and is used here for one column and for two.

    Parameters
    ----------
    y, probability, classes
        As for ``mnll``; probabilities of exactly 0 and 1 are allowed.

    Returns
    -------
    float
        Between 0 and 1 for two classes, and 2 for more; smaller is better.

    Raises
    ------
    DataError
        When a probability is missing or not between 0 and 1, a row does not add up to 1, shapes
        differ, or a label is not among the classes.

    Examples
    --------
    >>> from dsgp.metrics import brier
    >>> round(brier([0, 1, 1], [0.1, 0.8, 0.6]), 4)
    0.07
    """
    codes, columns, classes = class_columns(y, probability, classes)
    if len(classes) == 2:
        return float(np.mean((columns[:, 1] - codes) ** 2))
    observed = columns[np.arange(len(codes)), codes]
    # sum_k (p_k - [y = k])^2 without a table of indicators
    return float(np.mean(np.sum(columns**2, axis=1) - 2 * observed + 1))


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Predicted probabilities in bins, and how often the class occurred.

    Attributes
    ----------
    predicted : ndarray of shape (n_bins,)
        Mean probability of the rows of each bin, ascending.
    observed : ndarray of shape (n_bins,)
        Share of the rows of each bin that are of the class.
    low, high : ndarray of shape (n_bins,)
        Wilson interval of that share.
    count : ndarray of int of shape (n_bins,)
        Rows.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    count: NDArray[np.int64]


def calibration_curve(
    y: ArrayLike,
    probability: ArrayLike,
    classes: Sequence[Any] | ArrayLike | None = None,
    *,
    n_bins: int = 10,
    level: float = 0.95,
) -> CalibrationCurve:
    r"""How often the second of two classes occurred among rows with similar predicted probability.

    Rows are sorted by their probability into bins of equal count; equal probabilities stay in one
    bin, so that there may be fewer bins. A share :math:`k/n` has the Wilson interval

    .. math:: \frac{k + z^2/2 \pm z \sqrt{k (n - k)/n + z^2/4}}{n + z^2},
        \qquad \Phi(z) = (1 + level)/2.

    Parameters
    ----------
    y : array-like of shape (n,)
        Test labels. For one of many classes against the rest: ``y == label``.
    probability : array-like of shape (n,) or (n, 2)
        Probabilities of the second class, or of both.
    classes : sequence of 2 labels, optional
        By default 0 and 1.
    n_bins : int
        Maximum number of bins.
    level : float in (0, 1)
        Probability of the intervals.

    Returns
    -------
    CalibrationCurve

    Raises
    ------
    DataError
        As for ``brier``, and when there are more than two classes, `n_bins` is less than 1, or
        `level` is not between 0 and 1.

    References
    ----------
    Wilson, *Probable Inference, the Law of Succession, and Statistical Inference*, 1927.

    Examples
    --------
    >>> from dsgp.metrics import calibration_curve
    >>> curve = calibration_curve([0, 0, 1, 0, 1, 1], [0.1, 0.1, 0.2, 0.8, 0.9, 0.9], n_bins=2)
    >>> curve.observed.round(3), curve.count
    (array([0.333, 0.667]), array([3, 3]))
    """
    require_share(level)
    codes, columns, classes = class_columns(y, probability, classes)
    _require_two(classes, "the calibration curve")
    return _binned(codes == 1, columns[:, 1], n_bins, level)


def calibration_error(
    y: ArrayLike,
    probability: ArrayLike,
    classes: Sequence[Any] | ArrayLike | None = None,
    *,
    n_bins: int = 10,
) -> float:
    r"""Expected calibration error, over bins of equal count.

    .. math:: \sum_b \frac{n_b}{n} \left|\bar y_b - \bar p_b\right|

    with the mean probability and the observed share of the bins of ``calibration_curve``. With more
    than two classes it is the probability of the most probable class of each row that is binned,
    and the share of rows in which that class occurred.

    Even the true probabilities have a score above 0, about :math:`\sqrt{2 B\,\bar v/(\pi n)}` with
    :math:`B` bins and the mean :math:`\bar v` of :math:`p (1 - p)`: compare models on the same rows
    and bins.

    Parameters
    ----------
    y, probability, classes
        As for ``mnll``; probabilities of exactly 0 and 1 are allowed.
    n_bins : int
        Maximum number of bins.

    Returns
    -------
    float
        Between 0 and 1; smaller is better.

    Raises
    ------
    DataError
        As for ``brier``, and when `n_bins` is less than 1.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, *On Calibration of Modern Neural Networks*, 2017, equation 5.

    Examples
    --------
    >>> from dsgp.metrics import calibration_error
    >>> round(calibration_error([0, 1, 0, 1], [0.2, 0.2, 0.6, 0.6], n_bins=2), 4)
    0.2
    """
    codes, columns, classes = class_columns(y, probability, classes)
    if len(classes) == 2:
        curve = _binned(codes == 1, columns[:, 1], n_bins)
    else:
        top = columns.argmax(axis=1)
        curve = _binned(codes == top, columns[np.arange(len(top)), top], n_bins)
    return float(np.average(np.abs(curve.observed - curve.predicted), weights=curve.count))


def roc_auc(
    y: ArrayLike, probability: ArrayLike, classes: Sequence[Any] | ArrayLike | None = None
) -> float:
    r"""Area under the ROC curve, by the ranks of the probabilities (Mann and Whitney).

    .. math:: \frac{1}{n_1 n_0} \sum_{i : y_i = 1} \sum_{j : y_j = 0}
        \left([p_i > p_j] + \tfrac12 [p_i = p_j]\right)

    With more than two classes: the mean over the classes in `y`, each against the rest.

    Parameters
    ----------
    y, probability, classes
        As for ``mnll``; probabilities of exactly 0 and 1 are allowed.

    Returns
    -------
    float
        The probability that a row of the class has a higher probability of it than a row of the
        rest: 1 at best, 1/2 for guesses.

    Raises
    ------
    DataError
        As for ``brier``, and when all labels are the same.

    Examples
    --------
    >>> from dsgp.metrics import roc_auc
    >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    codes, columns, classes = class_columns(y, probability, classes)
    present = np.unique(codes)
    if len(present) == 1:
        raise DataError(
            f"y: every label is {classes.tolist()[present[0]]!r}, so there is nothing to rank it "
            "against; expected rows of two classes at least"
        )
    if len(classes) == 2:
        return _area(codes == 1, columns[:, 1])
    return float(np.mean([_area(codes == k, columns[:, k]) for k in present]))


def class_columns(
    y: ArrayLike, probability: ArrayLike, classes: Sequence[Any] | ArrayLike | None = None
) -> tuple[NDArray[np.int64], Floats, NDArray[Any]]:
    """Check labels and probabilities, and number the classes.

    Parameters
    ----------
    y, probability, classes
        As for ``mnll``.

    Returns
    -------
    codes : ndarray of int of shape (n,)
        Column of each label.
    columns : ndarray of shape (n, n_classes)
    classes : ndarray of shape (n_classes,)

    Raises
    ------
    DataError
        As for ``brier``.
    """
    y = _labels(y, "y")
    columns = _columns(np.asarray(probability, dtype=np.float64), len(y))
    n_classes = columns.shape[1]
    names = np.arange(n_classes) if classes is None else np.asarray(classes)
    if names.shape != (n_classes,) or len(set(names.tolist())) < n_classes:
        raise DataError(
            f"classes: expected {n_classes} different labels, one per column of probabilities, got "
            f"{_listed(names.ravel())}"
        )
    code_of = {label: code for code, label in enumerate(names.tolist())}
    try:
        labels, inverse = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise DataError(f"y: expected labels of one kind, text or numbers; {error}") from error
    unknown = [label for label in labels.tolist() if label not in code_of]
    if unknown:
        remedy = (
            "give the labels of the columns as classes, e.g. classes=model.classes_"
            if classes is None
            else "leave those rows out"
        )
        raise DataError(
            f"y: {unknown[0]!r} is not among the classes, which are {_listed(names)}; {remedy}"
        )
    return np.array([code_of[label] for label in labels.tolist()])[inverse], columns, names


def _columns(probability: Floats, n_rows: int) -> Floats:
    """Return one column per class, (n, n_classes)."""
    if probability.ndim not in (1, 2) or len(probability) != n_rows:
        raise DataError(
            f"probability: expected the shape ({n_rows},) or ({n_rows}, n_classes), as y has "
            f"{n_rows} rows, got {probability.shape}"
        )
    if probability.ndim == 2 and probability.shape[1] < 2:
        raise DataError(
            f"probability: expected two columns at least, got shape {probability.shape}; "
            "for one column, of the second of two classes, give shape (n,)"
        )
    bad = ~((probability >= 0) & (probability <= 1))  # NaN is neither
    if bad.any():
        raise DataError(
            f"probability: expected values between 0 and 1, got {probability[bad][0]:g} in row "
            f"{np.argwhere(bad)[0, 0]}; {np.count_nonzero(bad)} are not"
        )
    if probability.ndim == 1:
        return np.column_stack([1 - probability, probability])
    total = probability.sum(axis=1)
    off = np.flatnonzero(np.abs(total - 1) > _SUM_TOLERANCE)
    if len(off):
        raise DataError(
            f"probability: expected rows that add up to 1, got {total[off[0]]:g} in row {off[0]}; "
            f"{len(off)} do not"
        )
    return probability


def _labels(values: ArrayLike, name: str) -> NDArray[Any]:
    labels = np.asarray(values)
    if labels.ndim != 1 or len(labels) == 0:
        raise DataError(f"{name}: expected labels, one per row, got shape {labels.shape}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise DataError(
            f"{name}: expected labels, got {np.count_nonzero(np.isnan(labels))} missing; "
            "leave those rows out first"
        )
    return labels


def _listed(names: NDArray[Any]) -> str:
    shown = ", ".join(repr(label) for label in names[:10].tolist())
    return f"{shown}, …" if len(names) > 10 else shown


def _require_two(classes: NDArray[Any], what: str) -> None:
    if len(classes) != 2:
        raise DataError(
            f"{what} is for two classes, got {len(classes)}; expected one class against the rest: "
            "give y == label and the column of that label"
        )


def _binned(
    came: NDArray[np.bool_], p: Floats, n_bins: int, level: float = 0.95
) -> CalibrationCurve:
    """Bins of equal count, without parting equal probabilities."""
    if n_bins < 1:
        raise DataError(f"n_bins: expected one bin at least, got {n_bins!r}")
    firsts = np.arange(1, n_bins) * len(p) // n_bins
    edges = np.unique(np.sort(p)[firsts])
    bin_of = np.searchsorted(edges, p, side="right")
    count = np.bincount(bin_of, minlength=len(edges) + 1)
    filled = count > 0
    n = count[filled]
    k = np.bincount(bin_of, weights=came, minlength=len(count))[filled]
    predicted = np.bincount(bin_of, weights=p, minlength=len(count))[filled] / n
    z = ndtri((1 + level) / 2)
    centre = (k + z**2 / 2) / (n + z**2)
    reach = z * np.sqrt(k * (n - k) / n + z**2 / 4) / (n + z**2)
    # 0 and 1 are exact ends of the interval where no row or every row is of the class
    low, high = np.where(k == 0, 0.0, centre - reach), np.where(k == n, 1.0, centre + reach)
    return CalibrationCurve(predicted, k / n, low, high, n)


def _area(came: NDArray[np.bool_], p: Floats) -> float:
    _, inverse, count = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[inverse]  # tied rows share their mean rank
    n_one = int(np.count_nonzero(came))
    return float((rank[came].sum() - n_one * (n_one + 1) / 2) / (n_one * (len(p) - n_one)))
