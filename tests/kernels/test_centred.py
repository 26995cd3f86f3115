"""Kernels of interactions: no main effects, derivatives, settings, refusals."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.errors import ParameterError
from dsgp.kernels import (
    CentredProduct,
    Independent,
    Kernel,
    LogNormal,
    Margin,
    Matern12,
    Matern52,
    Periodic,
    SquaredExponential,
    from_settings,
)

MARGIN = Margin((0.0, 0.5, 2.0, 7.0), (4, 1, 3, 2))
LEVELS = Margin((0.0, 1.0, 3.0), (1, 5, 4))
CASES = [
    CentredProduct((Matern52(1.3, 2.0), Matern12(0.8)), (MARGIN, LEVELS)),
    CentredProduct((SquaredExponential(1.3, 2.0), Independent()), (MARGIN, LEVELS)),
    CentredProduct((Independent(0.3), Independent()), (LEVELS, LEVELS)),
    CentredProduct((Periodic(7.0, 0.4, 1.5), Matern52(30.0)), (MARGIN, LEVELS)),
]
each = pytest.mark.parametrize("kernel", CASES, ids=repr)


@dataclass(frozen=True, repr=False)
class _Alike(Kernel):
    """A user's own: 1 for inputs of one sign, as whole numbers that cannot be written to."""

    variance: float | None = 1.0
    fixed: Iterable[str] = field(default=("variance",))

    parameters: ClassVar[tuple[str, ...]] = ("variance",)

    def covariance(self, x, y=None):
        alike = np.equal.outer(np.sign(x), np.sign(x if y is None else y)).astype(int)
        alike.flags.writeable = False
        return alike


def test_arrays_of_users_own_kernels_are_not_written_to():
    margin = Margin((-1.0, 2.0), (1, 1))
    kernel = CentredProduct((_Alike(), Independent()), (margin, LEVELS))
    of_levels = CentredProduct((Independent(1.0), Independent()), (margin, LEVELS))
    inputs = np.array([[-1.0, 0.0], [2.0, 0.0], [2.0, 3.0]])
    np.testing.assert_allclose(kernel.covariance(inputs), of_levels.covariance(inputs))
    np.testing.assert_allclose(
        kernel.covariance(inputs, inputs[:2]), of_levels.covariance(inputs)[:, :2]
    )


@each
def test_averages_over_each_margin_are_zero(kernel):
    others = np.array([-1.0, 0.0, 0.3, 3.0, 9.0])
    for k, margin in enumerate(kernel.margins):
        points, shares = np.array(margin.points), np.array(margin.shares)
        for other in others:
            along = np.column_stack([points, np.full(len(points), other)][:: 1 - 2 * k])
            new = np.array([[0.4, 1.0], [2.0, 3.0], [-5.0, 0.0]])
            np.testing.assert_allclose(shares @ kernel.covariance(along, new), 0.0, atol=1e-12)


@each
def test_the_variance_is_the_mean_over_independent_inputs(kernel):
    first, second = kernel.margins
    pairs = np.array([[a, b] for a in first.points for b in second.points])
    shares = np.outer(first.shares, second.shares).ravel()
    assert shares @ kernel.diagonal(pairs) == pytest.approx(kernel.std**2, rel=1e-10)
    assert kernel.std**2 == pytest.approx(kernel.value("variance_1"))
    assert kernel.scaled(3.0).std == pytest.approx(3 * kernel.std)


def test_it_is_that_of_a_function_less_its_main_effects():
    """On all pairs of margins: the projections are those of an analysis of variance."""
    kernel = CASES[0]
    factors = []
    for part, margin in zip(kernel.parts, kernel.margins, strict=True):
        points, shares = np.array(margin.points), np.array(margin.shares)
        prior = part.covariance(points)
        # Conditioned on a mean of zero, as for a Gaussian vector.
        average = prior @ shares
        given_mean = prior - np.outer(average, average) / (shares @ average)
        factors.append(given_mean / (shares @ np.diag(given_mean)))
    first, second = kernel.margins
    pairs = np.array([[a, b] for a in first.points for b in second.points])
    expected = kernel.std**2 * np.kron(*factors)
    np.testing.assert_allclose(kernel.covariance(pairs), expected, atol=1e-12)


@given(st.floats(-2, 2), st.floats(-2, 2))
def test_derivatives_are_those_of_differences(log_first, log_second):
    kernel = CentredProduct(
        (Matern52(np.exp(log_first), 2.0), Matern12(np.exp(log_second))), (MARGIN, LEVELS)
    )
    x, y = np.array([[0.0, 0.0], [1.0, 2.5], [7.0, 3.0]]), np.array([[0.5, 1.0], [9.0, -1.0]])
    step = 1e-5
    for name in kernel.free:
        up, down = (
            kernel.with_parameters(**{name: kernel.value(name) * np.exp(s)}).covariance(x, y)
            for s in (step, -step)
        )
        scale = max(1.0, np.abs(up).max())
        np.testing.assert_allclose(
            kernel.by_log(name, x, y), (up - down) / (2 * step), atol=1e-5 * scale
        )


def test_long_lengthscales_keep_the_variance():
    """The factor of a lengthscale of many extents is that of a straight line through the mean."""
    kernel = CentredProduct((Matern52(70.0, 1.0), Independent()), (MARGIN, LEVELS))
    points, shares = np.array(MARGIN.points), np.array(MARGIN.shares)
    line = points - shares @ points
    expected = np.outer(line, line) / (shares @ line**2)
    np.testing.assert_allclose(kernel.factor(0, points, points), expected, atol=0.02)


@each
def test_settings_are_those_of_json(kernel):
    stored = json.loads(json.dumps(kernel.to_settings()))
    assert from_settings(stored) == kernel


def test_margins_that_are_read_back_are_the_same_bits():
    rng = np.random.default_rng(0)
    for _ in range(200):
        margin = Margin(tuple(range(24)), tuple(rng.uniform(0.1, 9.0, 24)))
        assert Margin(margin.points, margin.shares) == margin


def test_priors_of_its_parts_count():
    prior = LogNormal(1.0, 0.5)
    kernel = CentredProduct((Matern52(priors={"lengthscale": prior}), Matern52()))
    assert kernel.priors == {"lengthscale_1": prior}
    assert kernel.free == ("lengthscale_1", "variance_1", "lengthscale_2")


def test_what_is_no_interaction_is_refused():
    with pytest.raises(ParameterError, match="two kernels, got 3"):
        CentredProduct((Matern52(), Matern52(), Matern52()))
    with pytest.raises(ParameterError, match="2 variances"):
        CentredProduct((Matern52() + Matern12(), Matern52()))
    with pytest.raises(ParameterError, match="has no margins"):
        CentredProduct((Matern52(1.0, 1.0), Matern52(1.0))).covariance(np.zeros((1, 2)))
    with pytest.raises(ParameterError, match="rows of two numbers"):
        CASES[0].covariance(np.zeros(3))
    with pytest.raises(ParameterError, match="two margins"):
        CentredProduct((Matern52(), Matern52()), (MARGIN,))
    with pytest.raises(ParameterError, match="share for each"):
        Margin((0.0, 1.0), (1.0,))
    with pytest.raises(ParameterError, match="positive"):
        Margin((0.0, 1.0), (1.0, 0.0))
