"""The search finds what made the data, stops where there is nothing left, and repeats itself."""

from dataclasses import replace

import numpy as np
import pytest

from dsgp.compute import one_blas_thread
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.rows import Block, MemoryRows
from dsgp.pursuit.search import (
    Level,
    Log,
    Options,
    from_directions,
    ordered,
    polished,
    pursue,
    relevance,
)

TRUTH = np.array([[0.6, 0.8, 0.0, 0.0], [0.0, 0.48, -0.64, 0.6]])


def signal_of(inputs):
    u, v = (inputs @ TRUTH.T).T
    return np.sin(2 * u) + v**2 - 1


def level_of(n=2000, noise=0.1, seed=0, signal=signal_of):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, 4))
    target = signal(inputs) + noise * rng.standard_normal(n)
    block = Block(inputs, target)
    return Level(MemoryRows(block), block)


def frame_of(level, with_relevance=True):
    return Frame.of(np.cov(level.search.inputs.T, bias=True), with_relevance)


def found_in(*levels, with_relevance=True, **options):
    random = options.pop("random", None) or np.random.default_rng(0)
    watch = options.pop("watch", lambda terms, evidence: None)
    asked = Options(**{"kernel": Matern52(), "n_starts": 5, **options})
    with one_blas_thread():
        return pursue(levels, frame_of(levels[0], with_relevance), asked, random, watch)


def mean_of(state, inputs):
    return state.ridges.evaluate(inputs)[0].sum(axis=1)


def error_of(state, signal=signal_of):
    inputs = np.random.default_rng(99).standard_normal((2000, 4))
    f = signal(inputs)
    return np.mean((mean_of(state, inputs) - f) ** 2) / np.var(f)


@pytest.fixture(scope="module")
def two_waves():
    level = level_of()
    return level, found_in(level)


def test_a_wave_and_a_parabola_are_found(two_waves):
    _, found = two_waves
    state = found.state
    assert error_of(state) < 0.002
    assert state.noise_variance == pytest.approx(0.01, rel=0.15)
    assert 2 <= len(state.ridges) <= 3
    units = state.ridges.directions / np.linalg.norm(state.ridges.directions, axis=1)[:, None]
    assert (np.abs(TRUTH @ units.T).max(axis=1) > 0.999).all()


def test_the_evidence_grows_along_the_trace(two_waves):
    level, found = two_waves
    terms, values = np.array(found.trace).T
    assert terms[0] == 0
    assert (terms[-1], values[-1]) == (len(found.state.ridges), found.state.evidence)
    assert values[-1] > values[0] + 1000
    assert values[-1] > values.max() - 3  # what gained less was not kept
    first = np.argmax(terms > 0)
    assert values[first] > values[0]


def test_without_relevance_the_same_is_found():
    assert error_of(found_in(level_of(), with_relevance=False).state) < 0.002


def test_an_interaction_is_found():
    def signal(x):
        return x[:, 0] * x[:, 1] + x[:, 2]

    state = found_in(level_of(signal=signal)).state
    assert error_of(state, signal) < 0.01
    assert len(state.ridges) <= 4


@pytest.mark.parametrize("with_relevance", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_noise_alone_gives_no_projection(with_relevance, seed):
    level = level_of(n=400, noise=1.0, seed=seed, signal=lambda x: 0 * x[:, 0])
    found = found_in(level, with_relevance=with_relevance)
    assert len(found.state.ridges) == 0
    assert found.state.noise_variance == pytest.approx(1.0, rel=0.2)
    assert found.trace[-1][0] == 0


@pytest.mark.parametrize("count", [1, 2])
def test_no_more_projections_than_asked_for(count):
    state = found_in(level_of(), n_projections=count).state
    assert len(state.ridges) == count


def test_every_kernel_is_of_the_kind_asked_for(two_waves):
    level, _ = two_waves
    with one_blas_thread():
        options = Options(Matern32(), n_projections=2, n_starts=3)
        found = pursue([level], frame_of(level), options, np.random.default_rng(0))
    assert all(isinstance(term.kernel, Matern32) for term in found.state.ridges.terms)


def test_fixed_noise_is_kept():
    assert found_in(level_of(), noise_variance=0.04, fixed_noise=True).state.noise_variance == 0.04


def test_the_same_seed_gives_the_same_model_with_any_number_of_threads(monkeypatch):
    level = level_of(n=5000)
    monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)
    models = []
    for threads in (1, 3):
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", threads)
        models.append(found_in(level, n_projections=3))
    one, other = models
    assert other.trace == one.trace
    np.testing.assert_array_equal(other.state.ridges.values, one.state.ridges.values)
    np.testing.assert_array_equal(other.state.ridges.directions, one.state.ridges.directions)


def test_few_rows_first_give_what_all_rows_give(two_waves):
    level, whole = two_waves
    some = level.search.part(slice(0, 500))
    seen = []
    found = found_in(
        Level(MemoryRows(some), some),
        replace(level, search=some),
        watch=lambda terms, evidence: seen.append((terms, evidence)),
    )
    assert found.state.n_rows == 2000
    assert error_of(found.state) < 0.002
    assert found.state.evidence > whole.state.evidence - 30
    assert seen[-1] == found.trace[-1]
    assert found.trace[0][0] >= 2  # the last level begins with what the first one found


def test_polishing_never_lowers_the_evidence(two_waves):
    level, found = two_waves
    with one_blas_thread():
        log = Log(lambda terms, evidence: None)
        assert polished(level, found.state, log).evidence >= found.state.evidence


def test_terms_are_put_in_order_with_their_largest_weight_positive(two_waves):
    level, found = two_waves
    terms = found.state.ridges.terms
    turned = [
        term._replace(direction=-term.direction, nodes=-term.nodes[::-1], values=term.values[::-1])
        for term in terms
    ]
    mixed = replace(found.state.ridges, terms=tuple(turned[::-1]))
    before = found.state.at(level.rows, mixed)
    after = ordered(level, before)
    np.testing.assert_allclose(
        mean_of(after, level.search.inputs), mean_of(before, level.search.inputs), atol=1e-9
    )
    # Only the prior of the directions sees how long they are, and does not mind much.
    assert after.evidence == pytest.approx(before.evidence, abs=0.1)
    squares = [
        np.sum(each**2) for each in after.ridges.evaluate(level.search.inputs)[0].T
    ]  # explained by each
    assert (np.diff(squares) <= 1e-6).all()
    for direction in after.ridges.directions:
        assert direction[np.argmax(np.abs(direction))] > 0


def test_relevance_is_the_share_in_the_squared_gradient(two_waves):
    level, found = two_waves
    share = relevance(level, found.state)
    assert share.sum() == pytest.approx(1)
    inputs = level.search.inputs
    u, v = (inputs @ TRUTH.T).T
    gradient = 2 * np.cos(2 * u)[:, None] * TRUTH[0] + 2 * v[:, None] * TRUTH[1]
    expected = np.mean(gradient**2, axis=0)
    np.testing.assert_allclose(share, expected / expected.sum(), atol=0.01)
    nothing = found_in(level, n_projections=1).state
    nothing = nothing.at(level.rows, nothing.ridges.kept(np.array([False])))
    np.testing.assert_array_equal(relevance(level, nothing), np.zeros(4))


def test_directions_found_otherwise_get_the_functions_that_fit(two_waves):
    level, _ = two_waves
    state = from_directions(
        level, frame_of(level), TRUTH, [Matern52(1.0, 1.0), Matern52(2.0, 3.0)], 0.01, False
    )
    assert error_of(state) < 0.002
    np.testing.assert_array_equal(state.ridges.directions, TRUTH)
    none = from_directions(level, frame_of(level), np.empty((0, 4)), [], 0.5, False)
    assert len(none.ridges) == 0
