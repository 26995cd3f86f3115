"""Measures of a regression: the error of the mean, the fit of the density, coverage."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from dsgp.errors import DataError
from dsgp.metrics.checks import aligned, require_share


def nmse(y: ArrayLike, mean: ArrayLike, y_train_mean: float) -> float:
    r"""Normalised mean squared error.

    .. math:: \sum_i (y_i - \mu_i)^2 \,/\, \sum_i (y_i - \bar y)^2

    One is the score of predicting the mean of the training targets everywhere.

    Parameters
    ----------
    y : array-like of shape (n,)
        Test targets.
    mean : array-like of shape (n,) or float
        Predictive means, in the units of `y`.
    y_train_mean : float
        Mean :math:`\bar y` of the *training* targets.

    Returns
    -------
    float

    Raises
    ------
    DataError
        When a value is not finite, shapes differ, or every target equals `y_train_mean`.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, "Multidimensional Regression" (NMSE).

    Examples
    --------
    >>> from dsgp.metrics import nmse
    >>> nmse([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], y_train_mean=2.0)
    0.5
    """
    y, mean, centre = aligned(y=y, mean=mean, y_train_mean=y_train_mean)
    scale = np.sum((y - centre) ** 2)
    if scale == 0:
        raise DataError(
            "every value of y equals y_train_mean, so the NMSE is undefined; "
            "expected targets that vary: use the mean squared error instead"
        )
    return float(np.sum((y - mean) ** 2) / scale)


def mnlp(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> float:
    r"""Mean negative log predictive probability under Gaussian predictions.

    .. math:: \frac{1}{2n} \sum_i \left[\frac{(y_i - \mu_i)^2}{v_i} + \log v_i + \log 2\pi\right]

    Parameters
    ----------
    y : array-like of shape (n,)
        Test targets.
    mean : array-like of shape (n,) or float
        Predictive means, in the units of `y`.
    variance : array-like of shape (n,) or float
        Predictive variances of the *observation*: latent variance plus noise variance.

    Returns
    -------
    float
        In nats per observation; smaller is better, and it depends on the units of `y`.

    Raises
    ------
    DataError
        When a value is not finite, shapes differ, or a variance is not positive.

    References
    ----------
    Gilboa, Saatçi and Cunningham, *Scaling Multidimensional Inference for Structured Gaussian
    Processes*, "Multidimensional Regression" (MNLP).

    Examples
    --------
    >>> from dsgp.metrics import mnlp
    >>> round(mnlp([0.0, 1.0], [0.0, 0.0], 1.0), 4)
    1.1689
    """
    y, mean, variance = aligned(y=y, mean=mean, variance=variance)
    if np.any(variance <= 0):
        raise DataError(
            f"variance: expected positive values, got {variance.min():g}; "
            "give the variance of the observation, latent plus noise"
        )
    return float(0.5 * np.mean((y - mean) ** 2 / variance + np.log(2 * np.pi * variance)))


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    r"""Share of targets inside their central predictive interval.

    .. math:: \frac1n \#\{i : |y_i - \mu_i| \le z\,s_i\}, \qquad \Phi(z) = (1 + level)/2

    Parameters
    ----------
    y : array-like of shape (n,)
        Test targets, or true function values.
    mean : array-like of shape (n,) or float
        Predictive means, in the units of `y`.
    std : array-like of shape (n,) or float
        Predictive standard deviations: including the noise if `y` has noise, without it if `y` is
        the function.
    level : float in (0, 1)
        Nominal coverage.

    Returns
    -------
    float
        Near `level` for a calibrated model.

    Raises
    ------
    DataError
        When a value is not finite, shapes differ, a standard deviation is negative, or `level` is
        not between 0 and 1.

    Examples
    --------
    >>> from dsgp.metrics import coverage
    >>> coverage([0.0, 1.9, 2.1, -1.0], 0.0, 1.0)
    0.75
    """
    require_share(level)
    y, mean, std = aligned(y=y, mean=mean, std=std)
    if np.any(std < 0):
        raise DataError(
            f"std: expected standard deviations, which are not negative, got {std.min():g}"
        )
    return float(np.mean(np.abs(y - mean) <= ndtri((1 + level) / 2) * std))
