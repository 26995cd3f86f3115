"""One projection against dense algebra and finite differences; its search against the truth."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.pursuit.projection import Rows, projected_evidence
from dsgp.pursuit.projection_fit import fit_projection, linear_start, random_starts

SMOOTH = (Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", SMOOTH)
ONES = np.empty(0)


def scenario(name):
    """Rows and a direction."""
    rng = np.random.default_rng(4)
    inputs = rng.standard_normal((60, 3))
    direction = np.array([0.7, -1.1, 0.4])
    weight = rng.uniform(0.5, 2.0, 60)
    if name == "unweighted":
        weight = ONES
    elif name == "ties":  # equal rows stay together, the others part as the direction turns
        inputs = np.round(inputs)
        direction = np.array([1.0, 1.0, 0.0])
    elif name == "weights of 0":
        weight[::3] = 0.0
    elif name == "one row":
        inputs, weight = inputs[:1], weight[:1]
    elif name == "one input":
        inputs, direction = inputs[:, :1], direction[:1]
    elif name == "far apart":
        direction = 1e12 * direction
    elif name == "no direction":
        direction = np.zeros(3)
    target = np.sin(2 * inputs[:, 0]) + 0.5 * rng.standard_normal(len(inputs))
    return Rows(inputs, target, weight), direction


SCENARIOS = (
    "plain",
    "unweighted",
    "ties",
    "weights of 0",
    "one row",
    "one input",
    "far apart",
    "no direction",
)


def waves(n, n_inputs, seed=0):
    """Rows of y = sin(3 x·w) + noise, and w."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, n_inputs))
    w = rng.standard_normal(n_inputs)
    w /= np.linalg.norm(w)
    target = np.sin(3 * inputs @ w) + 0.1 * rng.standard_normal(n)
    return Rows(inputs, target, ONES), w


@every_kernel
@pytest.mark.parametrize("name", SCENARIOS)
def test_value_and_fit_agree_with_dense_algebra(make, name):
    rows, direction = scenario(name)
    kernel, noise = make(lengthscale=1.3, variance=0.8), 0.2
    result = projected_evidence(rows, direction, kernel, noise)
    weight = rows.weight if rows.weight.size else np.ones(len(rows))
    seen = weight > 0
    projected = rows.inputs @ direction
    prior = kernel.covariance(projected, projected[seen])
    covariance = prior[seen] + np.diag(noise / weight[seen])
    expected = multivariate_normal(cov=covariance).logpdf(rows.target[seen])
    assert result.value == pytest.approx(expected, rel=1e-10)
    fitted = prior @ np.linalg.solve(covariance, rows.target[seen])
    np.testing.assert_allclose(result.fitted, fitted, atol=1e-10)


@every_kernel
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("noise", [1e-3, 0.2, 1e2])
def test_gradient_agrees_with_finite_differences(make, name, noise):
    rows, direction = scenario(name)
    parameters = np.append(direction, np.log([1.3, 0.8, noise]))

    def evidence(p):
        lengthscale, variance, noise = np.exp(p[-3:])
        return projected_evidence(rows, p[:-3], make(lengthscale, variance), noise)

    result = evidence(parameters)
    gradient = np.append(
        result.by_direction,
        [result.by_log_lengthscale, result.by_log_variance, result.by_log_noise],
    )

    def difference(h, step):
        return (evidence(parameters + h * step).value - evidence(parameters - h * step).value) / (
            2 * h
        )

    # Richardson's: the error of differences falls with the fourth power of the step.
    numbers = [
        (4 * difference(5e-5, step) - difference(1e-4, step)) / 3
        for step in np.eye(len(parameters))
    ]
    # Matérn 3/2 has a kink in the third derivative wherever two rows meet.
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, numbers, rtol=1e-6, atol=1e-6 * scale + 1e-9)


@every_kernel
def test_a_longer_direction_is_a_shorter_lengthscale(make):
    rows, direction = scenario("plain")
    kernel = make(lengthscale=1.0, variance=0.8)
    result = projected_evidence(rows, direction, kernel, 0.2)
    other = projected_evidence(rows, 3 * direction, make(lengthscale=3.0, variance=0.8), 0.2)
    assert other.value == pytest.approx(result.value, rel=1e-12)
    np.testing.assert_allclose(3 * other.by_direction, result.by_direction, rtol=1e-9)
    assert result.by_log_lengthscale == pytest.approx(-direction @ result.by_direction, rel=1e-9)


def test_turning_inputs_and_direction_together_changes_nothing():
    rows, direction = scenario("plain")
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    turned = Rows(rows.inputs @ turn, rows.target, rows.weight)
    kernel = Matern52(lengthscale=1.0, variance=0.8)
    before = projected_evidence(rows, direction, kernel, 0.2)
    after = projected_evidence(turned, direction @ turn, kernel, 0.2)
    assert after.value == pytest.approx(before.value, rel=1e-12)
    np.testing.assert_allclose(after.by_direction, before.by_direction @ turn, rtol=1e-9)


def test_a_weight_is_a_number_of_rows():
    rows, direction = scenario("plain")
    kernel = Matern52(lengthscale=1.0, variance=0.8)
    twice = Rows(np.tile(rows.inputs, (2, 1)), np.tile(rows.target, 2), ONES)
    double = Rows(rows.inputs, rows.target, np.full(len(rows), 2.0))
    a = projected_evidence(twice, direction, kernel, 0.2)
    b = projected_evidence(double, direction, kernel, 0.2)
    np.testing.assert_allclose(a.by_direction, b.by_direction, rtol=1e-10)
    np.testing.assert_allclose(a.fitted[: len(rows)], b.fitted, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("make", "tolerance"), [(Matern32, 3e-3), (Matern52, 3e-4)])
def test_bins_agree_with_sorted_rows(make, tolerance, weighted):
    rows, w = waves(20_000, 4)
    if weighted:
        weight = np.random.default_rng(1).uniform(0, 2, len(rows))
        weight[::5] = 0.0
        rows = Rows(rows.inputs, rows.target, weight)
    kernel, noise = make(lengthscale=1.0, variance=1.0), 0.02
    direction = 2 * w + 0.02
    exact = projected_evidence(rows, direction, kernel, noise)
    binned = projected_evidence(rows, direction, kernel, noise, n_bins=2000)
    assert len(binned.posterior.cells) <= 2000
    assert binned.value == pytest.approx(exact.value, abs=300 * tolerance)
    size = np.linalg.norm(exact.by_direction)
    np.testing.assert_allclose(binned.by_direction, exact.by_direction, atol=tolerance * size)
    np.testing.assert_allclose(binned.fitted, exact.fitted, atol=10 * tolerance)
    assert binned.by_log_noise == pytest.approx(exact.by_log_noise, abs=300 * tolerance)
    assert binned.by_log_variance == pytest.approx(exact.by_log_variance, abs=100 * tolerance)
    # The value is that of the gradient, but for jumps that short steps would blow up.
    step = np.array([1e-3, -2e-3, 1e-3, 1e-3])
    ahead, behind = (
        projected_evidence(rows, direction + side * step, kernel, noise, n_bins=2000).value
        for side in (1, -1)
    )
    error = (ahead - behind) / 2 - binned.by_direction @ step
    assert abs(error) < 3 * tolerance * size * np.linalg.norm(step)


@pytest.mark.parametrize("n_bins", [1, 2, 30])
def test_few_bins_are_made_narrower_than_the_lengthscale(n_bins):
    rows, w = waves(5000, 3)
    kernel = Matern52(lengthscale=1.0, variance=1.0)
    few = projected_evidence(rows, 2 * w, kernel, 0.02, n_bins=n_bins)
    exact = projected_evidence(rows, 2 * w, kernel, 0.02)
    assert few.value == pytest.approx(exact.value, abs=1.0)
    # and rows too far apart for bins are sorted
    far = projected_evidence(rows, 1e9 * w, kernel, 0.02, n_bins=n_bins)
    assert far.value == projected_evidence(rows, 1e9 * w, kernel, 0.02).value


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_bins_take_what_is_hard_for_them(offset):
    kernel = Matern52(lengthscale=1.0, variance=1.0)
    rng = np.random.default_rng(0)
    for column in (
        np.zeros(500),
        np.repeat([0.0, 1e-9, 3.0], [200, 100, 200]),
        np.append(rng.standard_normal(499), 1e5),
        rng.standard_cauchy(500),
        1e-300 * rng.standard_normal(500),
    ):
        rows = Rows(column[:, None] + offset, rng.standard_normal(500), ONES)
        exact = projected_evidence(rows, [1.0], kernel, 0.5)
        binned = projected_evidence(rows, [1.0], kernel, 0.5, n_bins=400)
        assert binned.value == pytest.approx(exact.value, abs=1e-2)
        np.testing.assert_allclose(binned.fitted, exact.fitted, atol=1e-3)


def test_the_posterior_predicts_from_its_origin():
    rows, w = waves(5000, 3)
    kernel = Matern52(lengthscale=1.0, variance=1.0)
    for n_bins in (None, 2000):
        result = projected_evidence(rows, 2 * w, kernel, 0.02, n_bins=n_bins)
        mean, _ = result.posterior.predict(rows.inputs @ (2 * w) - result.origin)
        np.testing.assert_allclose(mean, result.fitted, atol=1e-4)


@pytest.mark.parametrize("n_bins", [None, 500])
def test_the_direction_of_a_wave_is_found_from_random_starts(n_bins):
    rows, w = waves(1000, 5)
    fits = [
        fit_projection(rows, start, Matern52(), 0.1, n_bins=n_bins)
        for start in random_starts(5, 6, np.random.default_rng(0))
    ]
    best = max(fits, key=lambda fit: fit.value)
    assert abs(best.direction @ w) / np.linalg.norm(best.direction) > 0.9999
    assert best.noise_variance == pytest.approx(0.01, rel=0.15)
    assert best.kernel.lengthscale == 1.0
    assert best.evaluations > 3
    signal = np.sin(3 * rows.inputs @ w)
    assert np.sqrt(np.mean((best.fitted - signal) ** 2)) < 0.03
    # An optimum: the curvature by the direction is 10⁵ and more.
    assert np.abs(best.evidence.by_direction).max() < (0.1 if n_bins is None else 10.0)
    assert abs(best.evidence.by_log_variance) < 0.1


def test_units_of_the_inputs_do_not_matter():
    rows, _ = waves(1000, 3)
    units = np.array([1e-4, 1.0, 1e5])
    other = Rows(rows.inputs * units + [0.0, 5.0, 0.0], rows.target, ONES)
    start = np.array([0.4, 0.5, 0.6])
    a = fit_projection(rows, start, Matern52(), 0.1)
    b = fit_projection(other, start / units, Matern52(), 0.1)
    assert b.value == pytest.approx(a.value, abs=1e-2)
    np.testing.assert_allclose(linear_start(other) * units, linear_start(rows), rtol=1e-6)


def test_relevance_holds_inputs_back():
    rows, w = waves(300, 4)
    start = w + 0.1
    free = fit_projection(rows, start, Matern52(), 0.1)
    held = fit_projection(rows, start, Matern52(), 0.1, relevance=[1e-3, 1e-3, 1e-3, 1e9])
    assert abs(held.direction[3]) < 1e-3 < abs(free.direction[3])
    assert held.value <= held.evidence.value < free.value


def test_what_is_fixed_stays_and_bounds_hold():
    rows, w = waves(300, 3)
    kernel = Matern52(variance=0.3, fixed="variance")
    fit = fit_projection(rows, w + 0.1, kernel, 0.1, noise_bounds=(0.05, 1.0))
    assert fit.kernel.variance == 0.3
    assert fit.noise_variance == pytest.approx(0.05)
    start = projected_evidence(rows, w + 0.1, Matern52(1.0, 0.3), 0.1)
    assert fit.value > start.value
    short = fit_projection(rows, w + 0.1, kernel, 0.1, max_iter=1)
    assert start.value < short.value
    assert short.evaluations < fit.evaluations


@pytest.mark.parametrize("name", SCENARIOS)
def test_searches_end_on_hard_rows(name):
    rows, direction = scenario(name)
    fit = fit_projection(rows, direction, Matern32(), 0.2, max_iter=20)
    assert np.isfinite(fit.value)
    assert np.isfinite(fit.fitted).all()


def test_starts():
    rows, w = waves(400, 3)
    line = Rows(rows.inputs, rows.inputs @ w, np.linspace(0, 2, 400))
    start = linear_start(line)
    assert start @ w / np.linalg.norm(start) > 0.99999
    share = line.weight / line.weight.sum()
    projected = line.inputs @ start
    assert share @ (projected - share @ projected) ** 2 == pytest.approx(1.0)
    # A constant input, a target without a linear part, no input that varies.
    constant = Rows(np.column_stack([rows.inputs[:, 0], np.full(400, 0.1)]), rows.target, ONES)
    assert linear_start(constant)[1] == 0.0
    assert np.isfinite(linear_start(Rows(rows.inputs, np.zeros(400), ONES))).all()
    assert np.isfinite(linear_start(Rows(np.ones((400, 2)), rows.target, ONES))).all()
    assert np.isfinite(linear_start(Rows(rows.inputs, rows.target, np.zeros(400)))).all()
    random = np.random.default_rng(0)
    np.testing.assert_allclose(np.linalg.norm(random_starts(4, 3, random), axis=1), 1.0)
    drawn = random_starts(2, 20_000, random, relevance=[4.0, 100.0])
    np.testing.assert_allclose(drawn.std(axis=0), [0.5, 0.1], rtol=0.03)


def test_what_cannot_be_used_is_refused():
    rows, direction = scenario("plain")
    kernel = Matern52(1.0, 1.0)
    with pytest.raises(ParameterError, match="no derivative"):
        projected_evidence(rows, direction, Matern12(1.0, 1.0), 0.1)
    with pytest.raises(ParameterError, match="shape"):
        projected_evidence(rows, direction[:2], kernel, 0.1)
    with pytest.raises(ParameterError, match="noise_variance"):
        projected_evidence(rows, direction, kernel, 0.0)
    with pytest.raises(ParameterError, match="beyond float64"):
        projected_evidence(rows, 1e308 * direction, kernel, 0.1)
    with pytest.raises(ParameterError, match="relevance"):
        fit_projection(rows, direction, kernel, 0.1, relevance=[1.0])
    with pytest.raises(DataError, match="as many targets"):
        Rows(np.zeros((3, 2)), np.zeros(2), ONES)
    with pytest.raises(DataError, match="weight"):
        Rows(np.zeros((3, 2)), np.zeros(3), np.ones(2))
