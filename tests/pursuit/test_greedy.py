"""Greedy projections: the truth is found, the number of terms is right, hard rows are taken."""

import threading

import numpy as np
import pytest
from dask import config

from dsgp.errors import ParameterError
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit import greedy as module
from dsgp.pursuit.greedy import greedy
from dsgp.pursuit.projection import Rows, projected_evidence

ONES = np.empty(0)


def two_waves(n=1500, n_inputs=4, noise=0.1, seed=0):
    """Rows of two ridge functions at right angles, and the function without noise."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, n_inputs))
    turn = np.linalg.qr(rng.standard_normal((n_inputs, n_inputs)))[0]
    signal = np.sin(2 * inputs @ turn[0]) + 0.5 * (inputs @ turn[1]) ** 2
    signal = (signal - signal.mean()) / signal.std()
    return Rows(inputs, signal + noise * rng.standard_normal(n), ONES), signal, turn[:2]


def seeded():
    return np.random.default_rng(0)


def test_two_terms_are_found_and_then_it_stops():
    rows, signal, truth = two_waves()
    seen = []
    found = greedy(rows, Matern52(), random=seeded(), watch=seen.append)
    assert found.trace == seen
    assert len(seen) <= len(found.kernels) + 2
    assert [step.terms for step in seen] == list(range(1, len(seen) + 1))
    np.testing.assert_allclose(rows.inputs.std(axis=0), 1.0, rtol=0.05)
    # Each true direction is that of a term, nearly.
    units = found.directions / np.linalg.norm(found.directions, axis=1)[:, None]
    assert (np.abs(truth @ units[:2].T).max(axis=1) > 0.98).all()
    assert np.mean((found.fitted - signal) ** 2) < 0.003
    assert found.noise_variance == pytest.approx(0.01, rel=0.2)
    scores = [step.validation for step in seen]
    assert scores[0] > 5 * min(scores)
    assert min(scores) < 0.02


def test_result_is_what_its_parameters_say():
    rows, _, _ = two_waves(400)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 400)
    rows = Rows(rows.inputs * [1.0, 2.0, 0.5, 1.0] + 3.0, rows.target, weight)
    before, found = (
        greedy(rows, Matern32(), n_projections=count, random=seeded()) for count in (2, 3)
    )
    assert found.directions.shape == (3, 4)
    assert len(found.kernels) == len(found.trace) == 3
    for direction, kernel in zip(found.directions, found.kernels, strict=True):
        assert isinstance(kernel, Matern32)
        projection = rows.inputs @ direction
        assert rows.share @ (projection - rows.share @ projection) ** 2 == pytest.approx(1.0)
    np.testing.assert_array_equal(found.directions[:2], before.directions)
    left = Rows(rows.inputs, rows.target - before.fitted, weight)
    last = projected_evidence(
        left, found.directions[2], found.kernels[2], noise_variance=found.noise_variance
    )
    np.testing.assert_allclose(before.fitted + last.fitted, found.fitted, atol=1e-8)
    assert last.value == pytest.approx(found.trace[2].evidence)
    evidence = [step.evidence for step in found.trace]
    assert evidence == sorted(evidence)
    assert all(np.isnan(step.validation) for step in found.trace)


def test_units_of_the_inputs_do_not_matter():
    rows, _, _ = two_waves(400)
    units = np.array([1e-3, 1.0, 10.0, 1e4])
    other = Rows(rows.inputs * units, rows.target, ONES)
    a = greedy(rows, Matern52(), n_projections=2, random=seeded())
    b = greedy(other, Matern52(), n_projections=2, random=seeded())
    np.testing.assert_allclose(b.directions * units, a.directions, atol=2e-3)


def test_a_fixed_variance_stays():
    rows, _, _ = two_waves(200)
    kernel = Matern52(variance=0.4, fixed="variance")
    found = greedy(rows, kernel, n_projections=2, random=seeded())
    assert [kernel.variance for kernel in found.kernels] == [0.4, 0.4]


@pytest.mark.parametrize("n", [30, 1000])
def test_noise_is_not_explained(n):
    rng = np.random.default_rng(3)
    rows = Rows(rng.standard_normal((n, 3)), rng.standard_normal(n), ONES)
    found = greedy(rows, Matern52(), random=rng)
    assert len(found.kernels) <= 1
    assert found.fitted.std() < 0.4
    assert found.noise_variance == pytest.approx(np.mean(rows.target**2), rel=0.2)


def test_a_target_without_linear_part_needs_random_starts():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((800, 3))
    projection = inputs @ [0.6, 0.8, 0.0]
    target = np.cos(2 * projection)
    target += 0.1 * rng.standard_normal(800) - target.mean()
    found = greedy(Rows(inputs, target, ONES), Matern52(), n_starts=6, random=rng)
    unit = found.directions[0] / np.linalg.norm(found.directions[0])
    assert abs(unit @ [0.6, 0.8, 0.0]) > 0.999


def test_one_input_takes_one_term():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((300, 1))
    target = np.sin(3 * inputs[:, 0]) + 0.1 * rng.standard_normal(300)
    found = greedy(Rows(inputs, target, ONES), Matern52(), random=rng)
    assert len(found.kernels) == 1
    assert abs(found.directions[0, 0]) == pytest.approx(1 / inputs.std())
    assert np.sqrt(np.mean((found.fitted - np.sin(3 * inputs[:, 0])) ** 2)) < 0.05


@pytest.mark.parametrize("n_projections", [None, 0, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_rows(n, n_projections):
    rng = np.random.default_rng(n)
    rows = Rows(rng.standard_normal((n, 2)), rng.standard_normal(n), ONES)
    found = greedy(rows, Matern52(), n_projections=n_projections, random=rng)
    assert found.directions.shape == (len(found.kernels), 2)
    assert np.isfinite(found.directions).all()
    assert np.isfinite(found.fitted).all()
    assert found.noise_variance > 0


@pytest.mark.parametrize("n_projections", [None, 2])
def test_nothing_to_explain(n_projections):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((50, 2))
    weightless = Rows(inputs, rng.standard_normal(50), np.zeros(50))
    for rows in (Rows(inputs, np.zeros(50), ONES), weightless):
        found = greedy(rows, Matern52(), n_projections=n_projections, random=rng)
        assert found.directions.shape == (0, 2)
        assert (found.fitted == 0).all()
    still = Rows(np.ones((50, 2)), rng.standard_normal(50), ONES)
    found = greedy(still, Matern52(), n_projections=n_projections, random=rng)
    assert np.isfinite(found.fitted).all()


def test_rows_of_weight_0_have_no_influence_but_a_fit():
    rows, signal, _ = two_waves(600)
    weight = np.ones(600)
    weight[400:] = 0.0
    spoilt = rows.target.copy()
    spoilt[400:] = 1e3
    found = greedy(Rows(rows.inputs, spoilt, weight), Matern52(), n_projections=2, random=seeded())
    part = Rows(rows.inputs[:400], rows.target[:400], ONES)
    alone = greedy(part, Matern52(), n_projections=2, random=seeded())
    np.testing.assert_allclose(found.directions, alone.directions, atol=1e-3)
    np.testing.assert_allclose(found.fitted[:400], alone.fitted, atol=1e-2)
    assert np.mean((found.fitted[400:] - signal[400:]) ** 2) < 0.05
    # nor are they held out
    chosen = module._held_out(Rows(rows.inputs, spoilt, weight), seeded())
    assert chosen.sum() == 40
    assert not chosen[400:].any()


def test_the_number_of_threads_does_not_matter():
    rows, _, _ = two_waves(600)
    results = []
    for threads in (1, 4):
        with config.set(num_workers=threads):
            results.append(greedy(rows, Matern52(), random=seeded()))
    # nor a thread of the caller's
    other = threading.Thread(
        target=lambda: results.append(greedy(rows, Matern52(), random=seeded()))
    )
    other.start()
    other.join()
    for result in results[1:]:
        np.testing.assert_array_equal(result.directions, results[0].directions)
        np.testing.assert_array_equal(result.fitted, results[0].fitted)
        assert result.trace == results[0].trace


def test_many_rows_are_binned(monkeypatch):
    rows, signal, _ = two_waves(2000)
    exact = greedy(rows, Matern52(), n_projections=2, n_starts=1, random=seeded())
    monkeypatch.setattr(module, "_MANY_ROWS", 1000)
    monkeypatch.setattr(module, "_BINS", 500)
    binned = greedy(rows, Matern52(), n_projections=2, n_starts=1, random=seeded())
    assert (binned.fitted != exact.fitted).any()
    np.testing.assert_allclose(binned.directions, exact.directions, atol=0.02)
    assert np.mean((binned.fitted - signal) ** 2) < 0.01


@pytest.mark.parametrize("option", [{"n_starts": 0}, {"patience": 0}, {"n_projections": -1}])
def test_what_cannot_be_used_is_refused(option):
    rows, _, _ = two_waves(20)
    with pytest.raises(ParameterError, match=next(iter(option))):
        greedy(rows, Matern52(), random=seeded(), **option)
