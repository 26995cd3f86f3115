"""One axis against dense algebra in 50-digit arithmetic: float64 would not be a reference."""

import functools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.terms import Axis, Observations

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)
EPS = np.finfo(float).eps


def scenario(name):
    """Inputs and targets of one hard case; lengthscale 1."""
    rng = np.random.default_rng(3)
    x = {
        "plain": rng.uniform(0, 8, 28),
        "ties": np.round(rng.uniform(0, 3, 28), 1),
        "tiny steps": np.concatenate([rng.uniform(0, 3, 20), 1.5 + 1e-12 * np.arange(12)]),
        "long gaps": np.concatenate([rng.uniform(0, 2, 15), 1e6 + rng.uniform(0, 2, 15), [-1e6]]),
        "mixed": np.array([0.0, 0.0, 1e-12, 0.1, 0.1, 0.5, 2.0, 1e6, 1e6, 1e6 + 1e-9]),
        "one point": np.zeros(5),
        "one row": np.zeros(1),
    }[name]
    y = np.sin(x % 7) + rng.standard_normal(len(x))
    return x, y, rng.uniform(0.5, 2.0, len(x))


SCENARIOS = ("plain", "ties", "tiny steps", "long gaps", "mixed", "one point", "one row")
NEW = np.array([-3.0, 0.0, 0.05, 1.5, 1.5 + 5e-13, 2.9, 12.0, 1e6, 2e6])


@functools.cache
def mp_coefficients(order):
    p = order - 1
    return [
        mp.factorial(p)
        / mp.factorial(2 * p)
        * mp.factorial(2 * p - k)
        / (mp.factorial(p - k) * mp.factorial(k))
        * mp.mpf(2) ** k
        for k in range(order)
    ]


@functools.cache  # tables of all noises and both triangles ask for the same distances
def mp_matern(order, scaled):
    """Correlation at a distance scaled by sqrt(2ν)/ℓ, and its derivative by that distance."""
    decay = mp.exp(-scaled)
    coefficients = mp_coefficients(order)
    value = mp.fsum(c * scaled**k for k, c in enumerate(coefficients))
    slope = mp.fsum(k * c * scaled ** (k - 1) for k, c in enumerate(coefficients) if k > 0)
    return decay * value, decay * (slope - value)


@functools.cache
def reference(order, name, noise):
    """Every quantity by dense algebra with 50 digits; lengthscale 1, variance 1."""
    with mp.workdps(50):
        x, y, weight = scenario(name)
        n = len(x)
        rate = mp.sqrt(2 * order - 1)
        xs = [mp.mpf(float(v)) for v in x]
        points = [mp.mpf(float(v)) for v in np.unique(x)]
        new = [mp.mpf(float(v)) for v in NEW]

        def table(a, b, derivative=False):
            pairs = [[mp_matern(order, rate * abs(s - t)) for t in b] for s in a]
            if not derivative:
                return mp.matrix([[pair[0] for pair in row] for row in pairs])
            return mp.matrix(
                [
                    [-rate * abs(s - t) * pair[1] for t, pair in zip(b, row, strict=True)]
                    for s, row in zip(a, pairs, strict=True)
                ]
            )

        def slope_table(a, b):  # derivative by the first input
            return mp.matrix(
                [
                    [rate * mp.sign(s - t) * mp_matern(order, rate * abs(s - t))[1] for t in b]
                    for s in a
                ]
            )

        def along(a, b, i):
            """Product of two rows."""
            return mp.fdot((a[i, j], b[i, j]) for j in range(n))

        prior = table(xs, xs)
        noises = [mp.mpf(noise) / mp.mpf(float(w)) for w in weight]
        covariance = prior + mp.diag(noises)
        # mp.inverse and mp.det would factorise it twice.
        factors, order_of_rows = mp.mp.LU_decomp(covariance)
        inverse = mp.matrix(n, n)
        for column in range(n):
            unit = mp.matrix([mp.mpf(row == column) for row in range(n)])
            solved = mp.mp.U_solve(factors, mp.mp.L_solve(factors, unit, order_of_rows))
            for row in range(n):
                inverse[row, column] = solved[row]
        target = mp.matrix([mp.mpf(float(v)) for v in y])
        alpha = inverse * target
        log_det = mp.fsum(mp.log(abs(factors[i, i])) for i in range(n))
        value = -((target.T * alpha)[0] + log_det + n * mp.log(2 * mp.pi)) / 2

        def gradient(derivative):
            trace = mp.fsum(along(inverse, derivative, i) for i in range(n))  # all symmetric
            return ((alpha.T * derivative * alpha)[0] - trace) / 2

        def moments(inputs, gain):
            cross = table(inputs, xs)
            mean = cross * alpha
            variance = [1 - along(gain, cross, i) for i in range(len(inputs))]
            return np.array(mean, dtype=float).ravel(), np.array(variance, dtype=float)

        gain_at_points = table(points, xs) * inverse
        result = {
            "value": float(value),
            "gradient": [
                float(gradient(table(xs, xs, derivative=True))),
                float(gradient(prior)),
                float(gradient(mp.diag(noises))),
            ],
            "points": moments(points, gain_at_points),
            "new": moments(new, table(new, xs) * inverse),
        }
        if order > 1:
            cross = slope_table(points, xs)
            gain = cross * inverse
            prior_slope = rate**2 * {2: mp.mpf(1), 3: mp.mpf(1) / 3, 4: mp.mpf(1) / 5}[order]
            result["slope"] = np.array(cross * alpha, dtype=float).ravel()
            result["slope_variance"] = np.array(
                [prior_slope - along(gain, cross, i) for i in range(len(points))], dtype=float
            )
            # Cov(f, f') = −Σ_j (K (K + R)⁻¹)_ij ∂k(x_i, x_j)/∂x_i; a priori they are independent.
            result["slope_covariance"] = np.array(
                [-along(gain_at_points, cross, i) for i in range(len(points))], dtype=float
            )
        return result


def fitted(make, name, noise, **options):
    x, y, weight = scenario(name)
    axis, codes = Axis.from_column(x)
    seen = Observations.from_rows(codes, len(axis), y, weight / noise)
    kernel = make(lengthscale=1.0, variance=1.0)
    return axis, kernel, seen, axis.posterior(kernel, seen, **options)


@every_kernel
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0, 1e4])
def test_everything_agrees_with_dense_algebra(make, name, noise):
    axis, kernel, seen, posterior = fitted(make, name, noise, slope=make is not Matern12)
    expected = reference(kernel.order, name, noise)
    # Rows at one place, or 1e-12 apart, measure it together, with less noise than each by itself.
    x, _, weight = scenario(name)
    together = (np.abs(x[:, None] - x) < 1e-9) @ weight
    tolerance = max(1e-8, 8 * EPS * together.max() / noise)

    def assert_close(actual, wanted, scale):
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * scale)

    evidence = posterior.evidence
    assert_close(evidence.value, expected["value"], 1.0)
    assert axis.log_marginal_likelihood(kernel, seen) == pytest.approx(evidence.value, rel=1e-13)
    actual = [evidence.by_log["lengthscale"], evidence.by_log["variance"], evidence.by_log_noise]
    # One vector: with noise far below the variance its parts are differences of far larger sums.
    size = np.abs(expected["gradient"]).max()
    assert_close(actual, expected["gradient"], size if noise < 1e-3 else min(size, 1.0))
    mean, variance = expected["points"]
    assert_close(posterior.mean, mean, np.abs(mean).max())
    assert_close(posterior.variance, variance, 0.0)
    mean, variance = expected["new"]
    predicted_mean, predicted_variance = posterior.predict(NEW)
    assert_close(predicted_mean, mean, np.abs(mean).max())
    assert_close(predicted_variance, variance, 1.0)
    if make is not Matern12:
        assert_close(posterior.slope, expected["slope"], kernel.rate * np.abs(mean).max())
        assert_close(posterior.slope_variance, expected["slope_variance"], kernel.rate**2)
        # The product of the standard deviations, small where the noise is, gives the scale.
        size = np.sqrt(expected["points"][1] * expected["slope_variance"])
        assert_close(posterior.slope_covariance / size, expected["slope_covariance"] / size, 1.0)
        new_slopes = axis.kernel_sum(kernel, posterior.dual).slope(axis.points)
        assert_close(new_slopes, expected["slope"], kernel.rate * np.abs(mean).max())


def long_inverse(matrix):
    """Inverse and log determinant of a positive definite matrix in extended precision."""
    lower = np.linalg.cholesky(matrix.astype(float)).astype(np.longdouble)
    # Newton on X ↦ 2X − XAX squares the error of the float64 inverse at each step.
    inverse = np.linalg.inv(matrix.astype(float)).astype(np.longdouble)
    for _ in range(3):
        inverse = 2 * inverse - inverse @ (matrix @ inverse)
    factor = np.zeros_like(matrix)
    for j in range(len(matrix)):
        column = matrix[j:, j] - factor[j:, :j] @ factor[j, :j]
        factor[j:, j] = column / np.sqrt(column[0])
    assert np.allclose(factor.astype(float), lower.astype(float), atol=1e-5)
    return inverse, 2 * np.log(np.diag(factor)).sum()


@every_kernel
@pytest.mark.parametrize("noise", [1e-7, 1e-2, 1e4])
@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs 80-bit long doubles")
def test_hundreds_of_points_agree_with_dense_algebra(make, noise):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(0, 40, 190), np.round(rng.uniform(0, 40, 30)), [1e6, 1e6 + 1]])
    x = np.concatenate([x, x[:10], x[10:20] + 1e-12])
    n = len(x)
    y, weight = np.sin(x) + rng.standard_normal(n), rng.uniform(0.5, 2, n)
    kernel = make(lengthscale=1.0, variance=1.0)
    axis, codes = Axis.from_column(x)
    seen = Observations.from_rows(codes, len(axis), y, weight / noise)
    posterior = axis.posterior(kernel, seen)
    scaled = np.sqrt(np.longdouble(2 * kernel.order - 1)) * np.abs(
        np.subtract.outer(x.astype(np.longdouble), x.astype(np.longdouble))
    )
    long = np.longdouble
    coefficients = {
        1: [long(1)],
        2: [long(1), long(1)],
        3: [long(1), long(1), long(1) / 3],
        4: [long(1), long(1), long(2) / 5, long(1) / 15],
    }[kernel.order]
    powers = [scaled**k * np.exp(-scaled) for k in range(kernel.order)]
    prior = sum(c * power for c, power in zip(coefficients, powers, strict=True))
    by_scaled = -prior + sum(
        k * c * scaled ** (k - 1) * np.exp(-scaled) for k, c in enumerate(coefficients) if k
    )
    noises = np.diag((noise / weight).astype(long))
    inverse, log_det = long_inverse(prior + noises)
    alpha = inverse @ y.astype(long)
    value = -0.5 * (y @ alpha + log_det + n * np.log(2 * long(np.pi)))
    gradient = [
        float(0.5 * (alpha @ d @ alpha - np.sum(inverse * d)))
        for d in (-scaled * by_scaled, prior, noises)
    ]
    points = np.unique(x, return_index=True)[1]
    mean = (prior @ alpha)[points].astype(float)
    # K − K (K + R)⁻¹ K = R − R (K + R)⁻¹ R, which does not cancel where the noise is small.
    left = noises if noise < 1 else prior
    variance = (np.diag(left - left @ inverse @ left))[points].astype(float)
    together = (np.abs(x[:, None] - x) < 1e-9) @ weight
    tolerance = max(1e-8, 8 * EPS * together.max() / noise)
    evidence = posterior.evidence
    assert evidence.value == pytest.approx(float(value), rel=tolerance)
    np.testing.assert_allclose(
        [evidence.by_log["lengthscale"], evidence.by_log["variance"], evidence.by_log_noise],
        gradient,
        rtol=tolerance,
        atol=tolerance * (np.abs(gradient).max() if noise < 1e-2 else 1.0),
    )
    np.testing.assert_allclose(posterior.mean, mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(posterior.variance, variance, rtol=tolerance)


@every_kernel
def test_variance_at_a_point_is_that_of_the_prediction_there(make):
    axis, kernel, seen, posterior = fitted(make, "ties", 0.1)
    np.testing.assert_allclose(posterior.predict(axis.points)[1], posterior.variance, rtol=1e-10)


@every_kernel
@pytest.mark.parametrize("noise", [1e-8, 1e-2, 1e4])
def test_solver_and_products_agree_with_the_posterior(make, noise):
    axis, kernel, seen, posterior = fitted(make, "mixed", noise)
    mean, dual = axis.solver(kernel, seen.weight).solve(seen.weight * seen.target)
    scale = np.abs(posterior.dual).max()
    np.testing.assert_allclose(dual, posterior.dual, atol=max(1e-10, 8 * EPS / noise) * scale)
    np.testing.assert_allclose(mean, posterior.mean, atol=max(1e-10, 8 * EPS / noise))
    dense = kernel.covariance(axis.points)
    vector = np.random.default_rng(1).standard_normal(len(axis))
    np.testing.assert_allclose(axis.multiply(kernel, vector), dense @ vector, atol=1e-13)
    np.testing.assert_allclose(
        axis.kernel_sum(kernel, vector)(NEW),
        kernel.covariance(NEW, axis.points) @ vector,
        atol=1e-13,
    )


@every_kernel
def test_points_without_weight_are_predictions(make):
    axis, kernel, seen, posterior = fitted(make, "plain", 0.2)
    new = np.array([-1.0, 3.3, 20.0])
    joint = Axis(np.sort(np.concatenate([axis.points, new])))
    known = np.isin(joint.points, axis.points)
    target, weight = np.zeros(len(joint)), np.zeros(len(joint))
    target[known], weight[known] = seen.target, seen.weight
    with_new = joint.posterior(kernel, Observations(target, weight))
    mean, variance = posterior.predict(new)
    np.testing.assert_allclose(with_new.mean[~known], mean, atol=1e-12)
    np.testing.assert_allclose(with_new.variance[~known], variance, rtol=1e-10)
    # and solves do not divide by the vanishing weights
    solved, _ = joint.solver(kernel, weight).solve(weight * target)
    np.testing.assert_allclose(solved, with_new.mean, atol=1e-12)


def test_weights_that_nearly_vanish_keep_their_precision():
    kernel = Matern52(lengthscale=1.0, variance=1.0)
    axis = Axis(np.linspace(0, 3, 12))
    weight = np.logspace(-300, 2, 12)
    information = np.linspace(-1, 1, 12)
    solved, dual = axis.solver(kernel, weight).solve(information)
    dense = kernel.covariance(axis.points)
    expected = np.linalg.solve(np.eye(12) + dense * weight, dense @ information)
    np.testing.assert_allclose(solved, expected, rtol=1e-11)
    np.testing.assert_allclose(axis.multiply(kernel, dual), solved, atol=1e-12)


@every_kernel
def test_merging_ties_is_exact(make):
    """Ties as they are: a dense likelihood of the rows, not of their means."""
    _, kernel, seen, posterior = fitted(make, "ties", 0.3)
    x, y, weight = scenario("ties")
    covariance = kernel.covariance(x) + np.diag(0.3 / weight)
    sign, log_det = np.linalg.slogdet(covariance)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + log_det + len(x) * np.log(2 * np.pi))
    assert sign == 1.0
    assert posterior.evidence.value == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("n", [1_000_000])
@every_kernel
def test_a_million_points_stay_finite(make, n):
    rng = np.random.default_rng(0)
    step = np.where(rng.uniform(size=n) < 0.3, 1e-12, rng.exponential(0.1, n))
    # 1e-12 steps far from 0 would not change a float; restart the axis at 0 by sorting uniforms
    points = np.unique(np.concatenate([np.cumsum(step), 1e-9 * rng.uniform(size=1000)]))
    y = np.sin(points) + rng.standard_normal(len(points))
    axis = Axis(points)
    for noise in (1e-8, 1.0, 1e4):
        seen = Observations(y, np.full(len(points), 1 / noise))
        posterior = axis.posterior(make(lengthscale=1.0, variance=1.0), seen)
        evidence = posterior.evidence
        assert np.isfinite(
            [evidence.value, evidence.by_log["lengthscale"], evidence.by_log["variance"]]
        ).all()
        assert np.isfinite(posterior.mean).all()
        assert (posterior.variance > 0).all()
        assert (posterior.variance <= 1 + 1e-12).all()


inputs = st.lists(
    st.one_of(
        st.floats(-5, 5),
        st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 1e6, -1e300, 1e300, 5e-324]),
    ),
    min_size=1,
    max_size=12,
)


@given(
    x=inputs,
    order=st.sampled_from(KERNELS),
    log_lengthscale=st.floats(-200, 200),
    log_noise=st.floats(-6, 4),
    new=inputs,
)
def test_any_axis_agrees_with_dense_algebra(x, order, log_lengthscale, log_noise, new):
    x = np.array(x)
    noise = 10.0**log_noise
    kernel = order(lengthscale=float(np.exp(log_lengthscale)), variance=1.0)
    y = np.cos(np.arange(len(x)))
    axis, codes = Axis.from_column(x)
    seen = Observations.from_rows(codes, len(axis), y, np.full(len(x), 1 / noise))
    posterior = axis.posterior(kernel, seen)
    covariance = kernel.covariance(x) + noise * np.eye(len(x))
    sign, log_det = np.linalg.slogdet(covariance)
    alpha = np.linalg.solve(covariance, y)
    expected = -0.5 * (y @ alpha + log_det + len(x) * np.log(2 * np.pi))
    tolerance = 1e-9 + 1e3 * EPS / noise
    assert posterior.evidence.value == pytest.approx(expected, rel=tolerance, abs=tolerance)
    mean, variance = posterior.predict(new)
    cross = kernel.covariance(np.array(new), x)
    np.testing.assert_allclose(mean, cross @ alpha, atol=tolerance)
    np.testing.assert_allclose(
        variance,
        1 - np.einsum("ij,ij->i", cross, np.linalg.solve(covariance, cross.T).T),
        atol=tolerance,
    )


@given(new=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), split=st.integers(1, 29))
def test_a_prediction_does_not_depend_on_its_company(new, split):
    _, _, _, posterior = fitted(Matern72, "ties", 0.1)
    mean, variance = posterior.predict(new)
    parts = [posterior.predict(part) for part in (new[:split], new[split:]) if part]
    assert np.array_equal(mean, np.concatenate([part[0] for part in parts]))
    assert np.array_equal(variance, np.concatenate([part[1] for part in parts]))


def test_outside_the_data_predictions_revert_to_the_prior():
    _, _, _, posterior = fitted(Matern52, "plain", 0.1)
    mean, variance = posterior.predict([-1e5, 1e5, 1e308])
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(variance, 1.0)


def test_bad_axes_are_refused():
    with pytest.raises(DataError, match="increase strictly"):
        Axis([0.0, 0.0])
    with pytest.raises(DataError, match="finite"):
        Axis([0.0, np.nan])
    with pytest.raises(DataError, match="shape"):
        Axis([])
    axis = Axis([0.0, 1.0])
    seen = Observations(np.zeros(2), np.ones(2))
    with pytest.raises(ParameterError, match="no derivative"):
        axis.posterior(Matern12(1.0, 1.0), seen, slope=True)
    with pytest.raises(ParameterError, match="no derivative"):
        axis.kernel_sum(Matern12(1.0, 1.0), np.ones(2)).slope([0.5])


@every_kernel
def test_several_kernel_sums_are_single_ones(make):
    rng = np.random.default_rng(0)
    axis, kernel = Axis(np.sort(rng.uniform(0, 8, 50))), make(1.3, 2.0)
    vectors = rng.standard_normal((3, 50))
    inputs = np.concatenate([rng.uniform(-2, 10, 40), axis.points[::7]])
    out = np.ones((len(inputs), 3))
    axis.kernel_sums(kernel, vectors).add_to(inputs, out)
    expected = 1 + kernel.covariance(inputs, axis.points) @ vectors.T
    np.testing.assert_allclose(out, expected, atol=1e-12)


@every_kernel
def test_draws_of_the_prior_have_its_covariance(make):
    points = np.array([0.0, 1e-9, 0.3, 0.31, 1.0, 5.0, 100.0])
    axis, kernel, random = Axis(points), make(0.8, 2.0), np.random.default_rng(0)
    draws = np.array([axis.sample(kernel, random) for _ in range(20_000)])
    error = (draws.T @ draws / len(draws) - kernel.covariance(points)) / 2.0
    # Five standard errors of a variance.
    assert np.abs(error).max() < 5 * np.sqrt(2 / len(draws))


@every_kernel
def test_sorting_many_inputs_of_a_long_axis_changes_no_bit(make, monkeypatch):
    rng = np.random.default_rng(0)
    axis, kernel = Axis(np.arange(500.0)), make(3.0, 1.0)
    inputs = rng.uniform(-10, 510, 300)
    total = axis.kernel_sum(kernel, rng.standard_normal(500))
    variance = axis.variance_function(kernel, np.ones(500))
    expected = total(inputs), variance(inputs)
    monkeypatch.setattr("dsgp.terms.passed._LONG", 1)
    np.testing.assert_array_equal(total(inputs), expected[0])
    np.testing.assert_array_equal(variance(inputs), expected[1])
    if make is not Matern12:
        monkeypatch.undo()
        slope = total.slope(inputs)
        monkeypatch.setattr("dsgp.terms.passed._LONG", 1)
        np.testing.assert_array_equal(total.slope(inputs), slope)


@pytest.mark.parametrize("make", [Matern12, Matern32, Matern52, Matern72])
@pytest.mark.parametrize("lengthscale", [0.05, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("n", [1000, 4000])
def test_draws_on_dense_axes_are_whitened_by_the_likelihood(make, lengthscale, n):
    """yᵀ(K + R)⁻¹y of draws plus a little noise is chi-square with n degrees of freedom."""
    rng = np.random.default_rng(0)
    axis = Axis(np.unique(rng.uniform(-3, 3, n)))
    kernel = make(lengthscale, 1.0)
    noise = 1e-6
    total = []
    for _ in range(5):
        target = axis.sample(kernel, rng) + np.sqrt(noise) * rng.standard_normal(len(axis))
        solved = axis.solver(kernel, np.full(len(axis), 1 / noise)).solve(target / noise)[1]
        total.append(target @ solved / len(axis))
    assert np.mean(total) == pytest.approx(1.0, abs=0.1)
