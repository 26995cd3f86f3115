"""Filter, smoother and sampler against dense Gaussian conditioning, and the engine against them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsgp.errors import DataError
from dsgp.kernels import DampedOscillation, Matern12, Matern32, Matern52, Matern72
from dsgp.reference import (
    GaussMarkovChain,
    chain_of,
    ffbs,
    kalman_filter,
    rts_smoother,
)
from dsgp.terms import Axis, Observations

KERNELS = (Matern12, Matern32, Matern52, Matern72)
every_kernel = pytest.mark.parametrize("make", KERNELS)


def joint_prior(chain):
    """Mean (n m,) and covariance (n m, n m) of all states, from the system equations."""
    n, m = len(chain), len(chain.initial_mean)
    means, blocks = [chain.initial_mean], np.zeros((n, n, m, m))
    blocks[0, 0] = chain.initial_covariance
    for t in range(1, n):
        step = chain.transition[t]
        means.append(step @ means[-1])
        for s in range(t):
            blocks[t, s] = step @ blocks[t - 1, s]
            blocks[s, t] = blocks[t, s].T
        blocks[t, t] = step @ blocks[t - 1, t - 1] @ step.T + chain.process_noise[t]
    return np.concatenate(means), blocks.transpose(0, 2, 1, 3).reshape(n * m, n * m)


def dense(chain, target, noise):
    """Posterior mean (n, m), covariance (n, m, n, m) and log likelihood by conditioning."""
    n, m = len(chain), len(chain.initial_mean)
    mean, covariance = joint_prior(chain)
    seen = np.isfinite(target) & np.isfinite(noise)
    H = np.kron(np.eye(n), chain.observation)[seen]
    S = H @ covariance @ H.T + np.diag(noise[seen])
    error = target[seen] - H @ mean
    gain = np.linalg.solve(S, H @ covariance).T
    log_likelihood = -0.5 * (
        error @ np.linalg.solve(S, error) + np.linalg.slogdet(S)[1] + len(error) * np.log(2 * np.pi)
    )
    left = covariance - gain @ H @ covariance
    return (mean + gain @ error).reshape(n, m), left.reshape(n, m, n, m), log_likelihood


def problem(make, n=12, seed=0):
    """A chain of a kernel with ties, gaps and an input far away."""
    rng = np.random.default_rng(seed)
    points = np.sort(np.concatenate([np.round(rng.uniform(0, 3, n - 2), 1), [1.0, 30.0]]))
    target = np.sin(2 * points) + 0.3 * rng.standard_normal(n)
    noise = rng.uniform(0.05, 0.5, n)
    target[2], noise[5] = np.nan, np.inf
    return chain_of(make(lengthscale=0.8, variance=1.5), points), target, noise


def any_chain(seed=0, n=9, m=3):
    """A chain of no kernel: moved by anything, observed in all components, starting anywhere."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((n, m, m))
    roots[:, :, 0] = 0.0  # so that every Q is singular
    chain = GaussMarkovChain(
        transition=0.6 * rng.standard_normal((n, m, m)),
        process_noise=roots @ roots.transpose(0, 2, 1),
        initial_mean=rng.standard_normal(m),
        initial_covariance=np.cov(rng.standard_normal((m, 8))),
        observation=rng.standard_normal(m),
    )
    return chain, rng.standard_normal(n), rng.uniform(0.1, 1.0, n)


PROBLEMS = [*(problem(make) for make in KERNELS), any_chain()]
IDS = [*(make.__name__ for make in KERNELS), "any chain"]


@pytest.mark.parametrize(("chain", "target", "noise"), PROBLEMS, ids=IDS)
def test_smoothed_moments_and_likelihood_are_those_of_dense_conditioning(chain, target, noise):
    mean, covariance, log_likelihood = dense(chain, target, noise)
    filtered = kalman_filter(chain, target, noise)
    smoothed = rts_smoother(chain, filtered)
    assert filtered.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)
    np.testing.assert_allclose(smoothed.mean, mean, atol=1e-9)
    assert (smoothed.lag_one[0] == 0).all()
    for t in range(len(chain)):
        np.testing.assert_allclose(smoothed.covariance[t], covariance[t, :, t, :], atol=1e-9)
        if t > 0:
            np.testing.assert_allclose(smoothed.lag_one[t], covariance[t, :, t - 1, :], atol=1e-9)


@pytest.mark.parametrize(("chain", "target", "noise"), PROBLEMS, ids=IDS)
def test_filtered_and_predicted_moments_know_the_targets_so_far(chain, target, noise):
    filtered = kalman_filter(chain, target, noise)
    for t in (0, 3, 5, len(chain) - 1):
        for last, means, covariances in (
            (t, filtered.mean, filtered.covariance),
            (t - 1, filtered.predicted_mean, filtered.predicted_covariance),
        ):
            so_far = np.where(np.arange(len(chain)) <= last, target, np.nan)
            mean, covariance, _ = dense(chain, so_far, noise)
            np.testing.assert_allclose(means[t], mean[t], atol=1e-9)
            np.testing.assert_allclose(covariances[t], covariance[t, :, t, :], atol=1e-9)


@pytest.mark.parametrize(("chain", "target", "noise"), PROBLEMS, ids=IDS)
def test_drawn_paths_have_the_posterior_mean_and_covariance(chain, target, noise):
    mean, covariance, _ = dense(chain, target, noise)
    size, n_draws = mean.size, 8000
    covariance = covariance.reshape(size, size)
    filtered = kalman_filter(chain, target, noise)
    draws = ffbs(chain, filtered, np.random.default_rng(1), n_draws).reshape(n_draws, size)
    variance = np.diag(covariance)
    # Five standard errors of some hundred to a thousand sample moments.
    error = 5 * np.sqrt(variance / n_draws) + 1e-7
    assert (np.abs(draws.mean(axis=0) - mean.ravel()) <= error).all()
    error = 5 * np.sqrt((np.outer(variance, variance) + covariance**2) / n_draws) + 1e-7
    assert (np.abs(np.cov(draws.T) - covariance) <= error).all()


def test_draws_of_tied_inputs_are_equal():
    chain = chain_of(Matern52(1.0, 1.0), [0.0, 1.0, 1.0, 2.0])
    filtered = kalman_filter(chain, np.array([0.0, 1.0, np.nan, 0.5]), 0.1)
    draws = ffbs(chain, filtered, np.random.default_rng(0), 50)
    np.testing.assert_allclose(draws[:, 1], draws[:, 2], atol=1e-6)


def test_targets_without_noise_are_met():
    chain = chain_of(Matern32(1.0, 1.0), [0.0, 0.5, 0.5, 1.5])
    target = np.array([1.0, 2.0, np.nan, -1.0])
    smoothed = rts_smoother(chain, kalman_filter(chain, target, 0.0))
    np.testing.assert_allclose(smoothed.mean[:, 0], [1.0, 2.0, 2.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(smoothed.covariance[:, 0, 0], 0.0, atol=1e-12)


@every_kernel
def test_chain_of_a_kernel_has_its_covariance(make):
    kernel = make(lengthscale=0.7, variance=2.0)
    points = np.array([0.0, 0.1, 0.1, 0.8, 3.0])
    chain = chain_of(kernel, points)
    mean, covariance = joint_prior(chain)
    H = np.kron(np.eye(5), chain.observation)
    np.testing.assert_allclose(H @ covariance @ H.T, kernel.covariance(points), atol=1e-12)
    assert (mean == 0).all()
    for t in range(5):
        own = covariance.reshape(5, kernel.order, 5, kernel.order)[t, :, t, :]
        np.testing.assert_allclose(own, kernel.stationary_covariance(), atol=1e-12)


@every_kernel
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    digits=st.sampled_from([0, 1, 6]),
    noise=st.sampled_from([1e-4, 1e-2, 1.0]),
    lengthscale=st.sampled_from([0.1, 1.0, 20.0]),
    gaps=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_engine_agrees(make, seed, n, digits, noise, lengthscale, gaps):
    """Ties are one point of an ``Axis``; here they are steps of 0, and gaps are NaN."""
    rng = np.random.default_rng(seed)
    x = np.sort(np.round(rng.uniform(0, 5, n), digits))
    y = np.sin(x) + np.sqrt(noise) * rng.standard_normal(n)
    y[rng.uniform(size=n) < gaps] = np.nan
    weight = np.where(np.isnan(y), 0.0, rng.uniform(0.5, 2.0, n) / noise)
    kernel = make(lengthscale=lengthscale, variance=1.3)

    axis, codes = Axis.from_column(x)
    posterior = axis.posterior(
        kernel, Observations.from_rows(codes, len(axis), np.nan_to_num(y), weight)
    )
    chain = chain_of(kernel, x)
    with np.errstate(divide="ignore"):
        filtered = kalman_filter(chain, y, 1 / weight)
    smoothed = rts_smoother(chain, filtered)
    scale = 1 + np.abs(y[np.isfinite(y)]).max(initial=0.0)
    np.testing.assert_allclose(posterior.mean[codes], smoothed.mean[:, 0], atol=1e-9 * scale)
    np.testing.assert_allclose(
        posterior.variance[codes], smoothed.covariance[:, 0, 0], rtol=1e-6, atol=1e-9
    )
    assert posterior.evidence.value == pytest.approx(filtered.log_likelihood, abs=1e-7, rel=1e-9)


def test_points_out_of_order_and_targets_of_another_length_are_refused():
    with pytest.raises(DataError, match="ascending"):
        chain_of(Matern12(1.0, 1.0), [1.0, 0.0])
    with pytest.raises(DataError, match="finite"):
        chain_of(Matern12(1.0, 1.0), [0.0, np.inf])
    with pytest.raises(DataError, match="2 states need 2 targets"):
        kalman_filter(chain_of(Matern12(1.0, 1.0), [0.0, 1.0]), np.zeros(3), 1.0)


OTHERS = {
    "oscillation": DampedOscillation(1.5, 2.0, 1.3),
    "sum": Matern32(1.0, 0.6) + DampedOscillation(1.5, 2.0, 1.3),
    "product": Matern52(2.0, 0.6) * DampedOscillation(1.5, 2.0, 1.3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_against_their_dense_covariance(name):
    kernel = OTHERS[name]
    rng = np.random.default_rng(0)
    points = np.sort(rng.uniform(0, 6, 30))
    target, noise = rng.standard_normal(30), rng.uniform(0.1, 0.5, 30)
    chain = chain_of(kernel, points)
    filtered = kalman_filter(chain, target, noise)
    smoothed = rts_smoother(chain, filtered)
    covariance = kernel.covariance(points)
    gain = np.linalg.solve(covariance + np.diag(noise), covariance).T
    np.testing.assert_allclose(smoothed.mean @ chain.observation, gain @ target, atol=1e-9)
    variance = chain.observation @ smoothed.covariance @ chain.observation
    np.testing.assert_allclose(variance, np.diag(covariance - gain @ covariance), atol=1e-9)
    whole = covariance + np.diag(noise)
    expected = -0.5 * (
        target @ np.linalg.solve(whole, target)
        + np.linalg.slogdet(whole)[1]
        + 30 * np.log(2 * np.pi)
    )
    assert filtered.log_likelihood == pytest.approx(expected, abs=1e-9)
