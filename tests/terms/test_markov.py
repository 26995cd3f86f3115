"""Passes of any Gauss–Markov process against those of Matérn kernels and the plain references."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, load
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import (
    DampedOscillation,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    QuasiPeriodic,
    RationalQuadratic,
    SquaredExponential,
    Wiener,
)
from dsgp.reference import chain_of, kalman_filter, rts_smoother
from dsgp.terms import Axis, MarkovCells, Observations, Smooth, parse_term

SUM = DampedOscillation(0.7, 2.0, 1.0) + Matern52(3.0, 0.5)


def problem(n, noise, seed=0):
    """Points within one unit of the input, a wave, and weights that differ."""
    rng = np.random.default_rng(seed)
    x = np.unique(rng.uniform(0, 1, n))
    y = np.sin(3 * x) + np.sqrt(noise) * rng.standard_normal(len(x))
    return x, Observations(y, rng.uniform(0.5, 2.0, len(x)) / noise)


@pytest.mark.parametrize(("n", "noise"), [(400, 1e-2), (400, 1e-6), (1_000_000, 1e-2)])
def test_a_matern_kernel_is_as_along_an_axis(n, noise):
    x, seen = problem(n, noise)
    kernel = Matern52(1.0, 1.3)
    expected, found = (cells.posterior(kernel, seen) for cells in (Axis(x), MarkovCells(x)))
    digits = 1e-15 / noise  # docs/mathematics.md, "Digits"
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6, atol=digits)
    assert found.evidence.value == pytest.approx(expected.evidence.value, rel=1e-11)
    for name, slope in expected.evidence.by_log.items():
        assert found.evidence.by_log[name] == pytest.approx(slope, rel=1e-5), name
    assert found.evidence.by_log_noise == pytest.approx(expected.evidence.by_log_noise, rel=1e-6)


@pytest.mark.parametrize("kernel", [SUM, QuasiPeriodic(0.4, 0.1, 1.2, 3.0, error=1e-3)])
def test_the_plain_filter_and_smoother_agree(kernel):
    x, seen = problem(60, 1e-2)
    filtered = kalman_filter(chain_of(kernel, x), seen.target, 1 / seen.weight)
    smoothed = rts_smoother(chain_of(kernel, x), filtered)
    posterior = MarkovCells(x).posterior(kernel, seen)
    h = kernel.state_space().observation
    np.testing.assert_allclose(posterior.mean, smoothed.mean @ h, atol=1e-9)
    variance = np.einsum("i,tij,j->t", h, smoothed.covariance, h)
    np.testing.assert_allclose(posterior.variance, variance, atol=1e-9)
    assert posterior.evidence.value == pytest.approx(filtered.log_likelihood, abs=1e-7)


def test_far_from_the_points_the_prior_returns():
    x, seen = problem(50, 1e-2)
    cells = MarkovCells(x)
    mean, variance = cells.posterior(SUM, seen).predict(np.array([-1e9, -200.0, 200.0, 1e300]))
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.5, rtol=1e-12)


def test_a_slow_process_beside_a_quick_one_keeps_its_digits():
    x, seen = problem(40, 1e-2)
    quick = DampedOscillation(1e-9, 1e-9, 1e-4)
    cells = MarkovCells(x)
    posterior = cells.posterior(Matern52(1.0, 1.0) + quick, seen)
    # What forgets between the points is noise.
    noise = Observations(seen.target, 1 / (1 / seen.weight + 1e-4))
    expected = Axis(x).posterior(Matern52(1.0, 1.0), noise)
    assert posterior.evidence.value == pytest.approx(expected.evidence.value, abs=1e-8)
    slope = posterior.evidence.by_log["lengthscale_1"]
    assert slope == pytest.approx(expected.evidence.by_log["lengthscale"], abs=1e-6)


def test_sorting_many_inputs_and_pickling_change_no_bit(monkeypatch):
    x, seen = problem(300, 1e-2)
    cells = MarkovCells(x)
    posterior = cells.posterior(SUM, seen)
    new = np.random.default_rng(1).uniform(-1, 2, 200)
    expected = posterior.predict(new)
    one_by_one = np.array([posterior.predict(new[i : i + 1]) for i in range(20)])[:, :, 0]
    np.testing.assert_array_equal(one_by_one, np.transpose(expected)[:20])
    monkeypatch.setattr("dsgp.terms.passed._LONG", 1)
    np.testing.assert_array_equal(posterior.predict(new), expected)
    copied = pickle.loads(pickle.dumps(posterior))
    np.testing.assert_array_equal(copied.predict(new), expected)


def test_a_covariance_depends_on_its_own_inputs_only():
    kernel = QuasiPeriodic(0.4, 0.1, 1.2, 3.0, error=1e-3)
    cells = MarkovCells(np.linspace(0, 1, 9))
    new = np.random.default_rng(1).uniform(-1, 2, 7)
    whole = cells.prior(kernel, new, cells.points)
    rows = [cells.prior(kernel, new[i : i + 1], cells.points)[0] for i in range(7)]
    np.testing.assert_array_equal(whole, rows)
    both = np.concatenate([new, cells.points])
    np.testing.assert_allclose(cells.prior(kernel, both, both)[:7, 7:], whole, atol=1e-13)


def test_points_that_are_no_line_are_refused():
    for points in ([], [[0.0]], [0.0, np.nan], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(DataError):
            MarkovCells(np.array(points))


# ---------------------------------------------------------------------- how terms choose


class Numbers:
    is_date = False
    labels = ()


CHOICES = {
    "axis": [Smooth("x", Matern52())],
    "markov": [
        Smooth("x", DampedOscillation(3.0)),
        Smooth("x", DampedOscillation(3.0) + Matern52()),
        Smooth("x", Matern32() * DampedOscillation(3.0)),
        Smooth("x", SquaredExponential(error=1e-3)),
        Smooth("x", QuasiPeriodic(3.0, error=1e-3) + Matern12()),
        Smooth("x", SquaredExponential() * Matern12(), form="state-space"),
        parse_term("x: Smooth(Periodic(7, error=0.001) + Matern32)"),
        parse_term("x: Smooth(SquaredExponential, form='state-space')"),
    ],
    "dense": [
        Smooth("x", SquaredExponential()),
        Smooth("x", RationalQuadratic() + Matern12()),
        Smooth("x", SquaredExponential() + Periodic(3.0, error=1e-3)),
        Smooth("x", Matern52() * Matern52() * Matern32()),  # 18 components
        Smooth("x", DampedOscillation(3.0), form="dense"),
        Smooth("x", Matern52(), form="dense"),
    ],
}


@pytest.mark.parametrize("family", CHOICES)
def test_a_term_chooses_its_form_by_cost_and_by_what_is_asked(family):
    for term in CHOICES[family]:
        assert term.bind({"x": Numbers()}, Matern52()).family == family, term


def test_what_has_no_state_space_form_is_refused_by_name():
    columns = {"x": Numbers()}
    with pytest.raises(ParameterError, match=r"column 'x': RationalQuadratic.*no state-space form"):
        Smooth("x", Matern12() + RationalQuadratic(), form="state-space").bind(columns, Matern52())
    with pytest.raises(ParameterError, match="Wiener process has no lengthscale"):
        Smooth("x", Wiener(), form="state-space").bind(columns, Matern52())
    with pytest.raises(ParameterError, match="form must be one of"):
        Smooth("x", form="sparse")
    with pytest.raises(ParameterError, match="SquaredExponential: error must be a number"):
        SquaredExponential(error=-1.0)
    with pytest.raises(ParameterError, match="least error of the covariance"):
        MarkovCells(np.arange(3.0)).multiply(SquaredExponential(1.0, 1.0, error=1e-9), np.ones(3))


def test_settings_hold_the_error_only_where_there_is_one():
    for kernel in (SquaredExponential(1.0, 2.0), Periodic(3.0), QuasiPeriodic(3.0)):
        assert "error" not in kernel.to_settings()
        stated = type(kernel).from_settings({**_without_type(kernel), "error": 1e-3})
        assert stated.error == 1e-3
        assert type(kernel).from_settings(_without_type(stated)) == stated
        assert "error=0.001" in repr(stated)


def _without_type(kernel):
    return {name: value for name, value in kernel.to_settings().items() if name != "type"}


def test_a_table_of_times_has_a_wave_and_a_trend(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"t": np.sort(rng.uniform(0, 20, 400)), "z": rng.uniform(0, 1, 400)})
    y = np.sin(table["t"] * 2) + table["z"] ** 2 + 0.1 * rng.standard_normal(400)
    # Hyperparameters as given: searches may end elsewhere.
    kernel = DampedOscillation(np.pi, 5.0, 0.5) + Matern52(10.0, 0.5)
    fits = {
        form: AdditiveGPRegressor(
            terms=[Smooth("t", kernel, form=form), Smooth("z", Matern52(1.0, 1.0))],
            learner=None,
            noise_variance=0.01,
        ).fit(table, y)
        for form in (None, "dense")
    }
    new = pd.DataFrame({"t": [-5.0, 3.3, 19.9, 60.0], "z": [0.5, 0.1, 0.9, 0.5]})
    expected = fits["dense"].predict(new, return_std=True)
    found = fits[None].predict(new, return_std=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert fits[None].terms_[0].bound.family == "markov"
    assert "in state-space form" in fits[None].summary()
    fits[None].save(tmp_path / "wave.zarr")
    again = load(tmp_path / "wave.zarr")
    np.testing.assert_array_equal(again.predict(new, return_std=True), found)
    draws = again.sample(new, n_samples=2000, random_state=0)
    assert np.abs(draws.mean(axis=0) - found[0]).max() < 0.1 * np.max(found[1]) + 0.05


def test_a_form_that_is_cut_by_more_than_was_accepted_is_reported():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"t": rng.uniform(0, 3, 200)})
    kernel = Periodic(1.0, 0.002, 1.0, fixed=("lengthscale", "variance"), error=1e-3)
    model = AdditiveGPRegressor(terms=[Smooth("t", kernel)], bins=50)
    with pytest.warns(DataWarning, match=r"term 't \(season\)' is cut, within .* of its variance"):
        model.fit(table, rng.standard_normal(200))
    error = kernel.state_space_family()(kernel).error
    assert f"within {error:.2g} of its variance" in model.summary()


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(1.0, 1.0, error=1e-3),
        SquaredExponential(1.0, 1.0, error=5e-5),
        Matern72(1.0, 1.0) * Matern72(1.0, 1.0),
    ],
)
def test_where_rounding_eats_all_digits_it_says_so(kernel):
    x = np.linspace(0, 1e-3, 20_000)
    seen = Observations(np.sin(x), np.full(20_000, 1e10))
    with pytest.raises(ParameterError, match="form='dense'"):
        MarkovCells(x).posterior(kernel, seen)
    fewer = MarkovCells(x[::10]).posterior(kernel, Observations(np.sin(x[::10]), np.ones(2000)))
    assert (fewer.variance > 0).all()


def test_memory_of_the_states_is_counted():
    x = np.sort(np.random.default_rng(0).uniform(0, 100, 5000))
    kernel = SquaredExponential(1.0, 1.0, error=1e-3)
    seen = Observations(np.sin(x), np.ones(5000))
    MarkovCells(x[:50]).posterior(kernel, Observations(seen.target[:50], seen.weight[:50]))
    cells = MarkovCells(x)
    tracemalloc.start()
    try:
        cells.posterior(kernel, seen)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * cells.state_bytes(kernel) + 64 * len(cells)
    assert Axis(x).state_bytes(Matern52(1.0, 1.0)) == 0
