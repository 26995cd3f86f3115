"""Likelihoods within a pursuit, against finite differences, dense algebra and normal noise."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError
from dsgp.kernels import Matern52
from dsgp.likelihoods import (
    Bernoulli,
    Binomial,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordered,
    Poisson,
    StudentT,
)
from dsgp.pursuit import levels as module
from dsgp.pursuit.hyperparameters import with_hyperparameters, with_parameters
from dsgp.pursuit.joint import Frame, State, improved, renewed, with_values
from dsgp.pursuit.levels import prepare_rows
from dsgp.pursuit.moments import deviance, moments
from dsgp.pursuit.response import Response, response_of
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import NO_WEIGHT, Block, MemoryRows, StreamedRows
from dsgp.pursuit.starts import best_start
from dsgp.rows.sources import Rows, source_of

N, D = 300, 3
LIKELIHOODS = [
    Bernoulli(),
    Bernoulli("probit"),
    Binomial(),
    Poisson(),
    NegativeBinomial(dispersion=0.4),
    Gamma(shape=2.0),
    Ordered(cutpoints=(-1.0, 0.5)),
    StudentT(scale=0.5),
    Gaussian(scale=0.7),
]


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with one_blas_thread():
        yield


def signal(inputs):
    return np.sin(inputs @ [0.9, -0.6, 0.0]) + 0.3 * inputs[:, 2]


def rows_of(likelihood, n=N, seed=0, weighted=True, unit=1.0):
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, D))
    offset = rng.uniform(-0.3, 0.3, n)
    trials = np.floor(rng.uniform(1, 6, n)) if likelihood.name == "binomial" else NO_WEIGHT
    latent = unit * (signal(inputs) + offset)
    target = likelihood.sample(latent, rng, trials if len(trials) else None)
    root = np.sqrt(rng.uniform(0.3, 2.0, n)) if weighted else NO_WEIGHT
    return MemoryRows(Block(inputs, np.asarray(target, float), root, offset, trials))


def frame_of(rows, relevance=False):
    return Frame.of(np.cov(rows.block.inputs.T, bias=True), relevance)


def state_of(rows, response, relevance=True, seed=1, scale=0.5, n_terms=2):
    rng = np.random.default_rng(seed)
    terms = []
    for m in range(n_terms):
        nodes = np.linspace(-4, 4, 9 + m)
        values = scale * rng.standard_normal(len(nodes))
        kernel = Matern52(lengthscale=1.0 + m, variance=0.5 + m)
        terms.append(Ridge(rng.standard_normal(D) / 2, nodes, values, kernel))
    frame = frame_of(rows, relevance)
    precision = rng.uniform(0.5, 3.0, frame.size)
    return State.of(rows, Ridges(tuple(terms), D), frame, precision, 1.0, True, response)


def at(rows, state, position):
    ridges, n = state.ridges, state.ridges.n_nodes
    values = np.concatenate(
        [f @ position[part] for f, part in zip(ridges.factors, ridges.parts, strict=True)]
    )
    coordinates = position[n:].reshape(len(ridges), -1)
    return state.at(rows, ridges.moved(coordinates @ state.frame.basis.T, values))


def position_of(state):
    return np.concatenate([state.whitened, state.coordinates.ravel()])


# ---- the linearised model


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_the_gradient_is_that_of_finite_differences(likelihood):
    rows = rows_of(likelihood)
    state = state_of(rows, Response(likelihood, 1.5))
    now = position_of(state)
    gradient = 2 * (state.prior * now - state.system[1])  # of the objective
    for k in range(0, len(now), 4):
        step = np.zeros(len(now))
        step[k] = 1e-5
        ends = [at(rows, state, now + sign * step).objective for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[k], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_moments_are_those_of_the_dense_model(likelihood):
    rows, response = rows_of(likelihood), Response(likelihood, 1.5)
    block = rows.block
    state = state_of(rows, response)
    ridges = state.ridges
    plain = moments(MemoryRows(Block(block.inputs, np.zeros(N))), ridges)  # of the design alone
    f, slope = ridges.evaluate(block.inputs)
    design = np.hstack([slope[:, [m]] * block.inputs for m in range(len(ridges))])
    latent = 1.5 * (f.sum(axis=1) + block.offset)
    trials = block.trials if len(block.trials) else None
    _, weight, _ = likelihood.derivatives(block.target, latent, trials)
    n = ridges.n_nodes
    expected = (design * (2.25 * block.weight * weight)[:, None]).T @ design
    assert_allclose(state.moments.matrix[n:-1, n:-1], expected, rtol=1e-6, atol=1e-3)
    assert plain.matrix.shape == state.moments.matrix.shape
    density = likelihood.log_density(block.target, latent, trials)
    total = -2 * float(block.weight @ density)
    assert state.moments.deviance == pytest.approx(total, rel=1e-12)
    assert deviance(rows, ridges, response) == pytest.approx(total, rel=1e-12)


def test_a_normal_likelihood_is_normal_noise():
    rows = rows_of(Gaussian(scale=0.7), weighted=False)
    state = state_of(rows, Response(Gaussian(scale=0.7)))
    block = rows.block
    usual = MemoryRows(Block(block.inputs, block.target - block.offset))
    other = State.of(usual, state.ridges, state.frame, state.precision, 0.49, True)
    assert state.evidence == pytest.approx(other.evidence, rel=1e-10)
    assert_allclose(state.inverse, other.inverse, rtol=1e-6, atol=1e-10)


def test_a_unit_changes_nothing():
    rows = rows_of(Gaussian(scale=0.7), weighted=False)
    block = rows.block
    state = with_values(rows, state_of(rows, Response(Gaussian(scale=0.7))))
    scaled = MemoryRows(replace(block, target=1e3 * block.target))
    other = state_of(scaled, Response(Gaussian(scale=700.0), 1e3))
    other = with_values(scaled, other)
    assert_allclose(other.ridges.values, state.ridges.values, rtol=1e-8)
    assert other.evidence == pytest.approx(state.evidence - N * np.log(1e3), rel=1e-10)


def test_weights_are_repetitions():
    likelihood = Poisson()
    rows = rows_of(likelihood, weighted=False)
    count = np.random.default_rng(3).integers(1, 4, N)
    weighted = MemoryRows(replace(rows.block, root_weight=np.sqrt(count)))
    repeated = MemoryRows(rows.block.part(np.repeat(np.arange(N), count)))
    first, second = (state_of(r, Response(likelihood)) for r in (weighted, repeated))
    assert first.evidence == pytest.approx(second.evidence, rel=1e-9)
    assert_allclose(
        first.moments.matrix[:-1, :-1], second.moments.matrix[:-1, :-1], rtol=1e-8, atol=1e-6
    )


def test_rows_that_are_as_good_as_certain_are_left_out_without_harm():
    inputs = np.random.default_rng(0).uniform(-1, 1, (2000, D))
    target = (inputs[:, 0] > 0).astype(float)
    rows = MemoryRows(Block(inputs, target, NO_WEIGHT, np.zeros(2000)))
    nodes = np.linspace(-1.1, 1.1, 16)
    kernel = Matern52(lengthscale=2.0, variance=900.0)
    ridge = Ridge(np.array([1.0, 0.0, 0.0]), nodes, 40 * nodes, kernel)
    state = State.of(
        rows, Ridges((ridge,), D), frame_of(rows), np.ones(D), 1.0, True, Response(Bernoulli())
    )
    f = 40 * inputs[:, 0]
    weight = np.exp(-np.abs(f)) / (1 + np.exp(-np.abs(f))) ** 2
    kept = state.moments.matrix[: len(nodes), : len(nodes)].sum()  # splines add up to 1
    assert kept == pytest.approx(weight.sum(), abs=1e-2)


# ---- evidence


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()], ids=repr)
def test_the_evidence_of_a_given_direction_is_laplaces(likelihood):
    """Against the dense model of f at all rows, its mode found by Newton's method."""
    rows = rows_of(likelihood, n=80, weighted=False)
    block = rows.block
    direction, held = np.array([0.8, -0.5, 0.1]), 1e10
    kernel = Matern52(lengthscale=1.3, variance=0.9)
    projection = block.inputs @ direction
    nodes = np.linspace(projection.min() - 0.1, projection.max() + 0.1, 60)
    ridges = Ridges((Ridge(direction, nodes, np.zeros(60), kernel),), D)
    frame = Frame.of(np.eye(D), False)
    state = State.of(rows, ridges, frame, np.full(D, held), 1.0, True, Response(likelihood))
    for _ in range(5):
        state = with_values(rows, state)
    found = state.evidence + 0.5 * held * float(np.sum(state.coordinates**2))

    prior = kernel.covariance(projection) + 1e-9 * np.eye(80)
    f = np.zeros(80)
    for _ in range(50):
        gradient, weight, _ = likelihood.derivatives(block.target, f + block.offset)
        system = np.eye(80) + prior * weight
        f = np.linalg.solve(system, prior @ (weight * f + gradient))
    _, weight, _ = likelihood.derivatives(block.target, f + block.offset)
    log_det = np.linalg.slogdet(np.eye(80) + prior * weight)[1]
    density = likelihood.log_density(block.target, f + block.offset).sum()
    expected = density - 0.5 * float(f @ np.linalg.solve(prior, f)) - 0.5 * log_det
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), StudentT(scale=0.3)], ids=repr)
def test_steps_raise_the_posterior_and_kernels_the_evidence(likelihood):
    rows = rows_of(likelihood, n=1000)
    state = with_values(rows, state_of(rows, Response(likelihood), scale=0.0))
    better = improved(rows, state, 300, 1e-9)
    assert better.objective < state.objective
    gradient = better.prior * position_of(better) - better.system[1]
    assert np.abs(gradient).max() < 0.1
    learned = better
    for _ in range(3):
        learned = improved(rows, with_hyperparameters(rows, learned, 8), 10, 1e-3)
    assert learned.evidence > better.evidence


def test_a_function_of_rows_that_are_certain_is_not_dropped():
    """Where weights vanish a large function seems to change nothing."""
    inputs = np.random.default_rng(0).uniform(0.5, 1, (400, D)) * [[1, 0.1, 0.1]]
    inputs[::2, 0] *= -1
    target = (inputs[:, 0] > 0).astype(float)
    rows = MemoryRows(Block(inputs, target, NO_WEIGHT, np.zeros(400)))
    nodes = np.linspace(-1.1, 1.1, 16)
    kernel = Matern52(lengthscale=2.0, variance=2500.0)
    ridge = Ridge(np.array([1.0, 0.0, 0.0]), nodes, 60 * nodes, kernel)
    idle = Ridge(np.array([0.0, 1.0, 0.0]), nodes, 1e-9 * nodes, kernel)
    state = State.of(
        rows, Ridges((ridge, idle), D), frame_of(rows), np.ones(D), 1.0, True, Response(Bernoulli())
    )
    part = state.ridges.parts[0]
    assert ridge.values @ state.moments.matrix[part, part] @ ridge.values < 0.01
    kept = renewed(rows, state, inputs).ridges
    assert len(kept) == 1
    assert kept.directions[0, 0] > 0


def test_other_nodes_take_over_what_rows_know_well():
    """Splines through few nodes are far from the function before, by the likelihood's measure."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((1000, D))
    direction = np.array([0.8, -0.5, 0.1])
    target = rng.poisson(np.exp(8 + np.sin(9 * inputs @ direction))).astype(float)
    rows = MemoryRows(Block(inputs, target, NO_WEIGHT, np.full(1000, 8.0)))
    nodes = np.linspace(-5, 5, 120)
    kernel = Matern52(lengthscale=0.5, variance=1.0)
    ridge = Ridge(direction, nodes, np.sin(9 * nodes), kernel)
    frame = Frame.of(np.cov(inputs.T, bias=True), False)
    state = State.of(rows, Ridges((ridge,), D), frame, np.ones(D), 1.0, True, Response(Poisson()))
    state = with_values(rows, state)
    found = renewed(rows, state, inputs)
    assert found.ridges.n_nodes < 60
    best = with_values(rows, with_values(rows, found))
    # Nearly as good as the best for these nodes, after one step.
    assert found.objective - best.objective < 0.2 * abs(best.objective - state.objective)


# ---- parameters


@pytest.mark.parametrize(
    ("likelihood", "start", "name"),
    [
        (NegativeBinomial(dispersion=0.4), NegativeBinomial(dispersion=2.0), "dispersion"),
        (Gamma(shape=4.0), Gamma(shape=1.0), "shape"),
        (Gaussian(scale=0.2), Gaussian(scale=1.0), "scale"),
        (StudentT(scale=0.2), StudentT(scale=1.0), "scale"),
    ],
    ids=repr,
)
def test_free_parameters_are_learned(likelihood, start, name):
    rows = rows_of(likelihood, n=3000, weighted=False)
    state = with_values(rows, state_of(rows, Response(start), scale=0.0))
    for _ in range(5):
        state = improved(rows, state, 20, 0.1)
        state = with_parameters(rows, with_hyperparameters(rows, state, 8), rows.block)
    assert getattr(state.response.likelihood, name) == pytest.approx(
        getattr(likelihood, name), rel=0.2
    )


def test_the_scale_counts_degrees_of_freedom():
    """What σ² = r² / (n − dof) has for normal noise."""
    rows = rows_of(Gaussian(scale=0.5), n=60, weighted=False)
    state = state_of(rows, Response(Gaussian(scale=0.5)), scale=0.3)
    for _ in range(200):
        state = with_parameters(rows, with_values(rows, state), rows.block)
    scale = state.response.likelihood.scale
    squares = state.moments.matrix[-1, -1] * scale**2
    assert scale**2 == pytest.approx(squares / (60 - state.dof), rel=1e-3)


def test_first_parameters_are_those_of_a_constant():
    rng = np.random.default_rng(0)
    y = 1e5 + 3e4 * rng.standard_normal(4000)
    response, level = response_of(Gaussian(), Rows([], y))
    assert level == pytest.approx(y.mean(), rel=1e-6)
    assert response.likelihood.scale == pytest.approx(y.std(), rel=1e-2)
    assert response.unit == pytest.approx(y.std(), rel=0.1)
    y = np.floor(3 * rng.random(1000))
    response, level = response_of(Ordered(), Rows([], y))
    assert level == 0.0
    assert len(response.likelihood.cutpoints) == 2
    response, _ = response_of(Ordered(), Rows([], y), highest=4.0)  # in other rows
    assert len(response.likelihood.cutpoints) == 4
    response, level = response_of(
        Poisson(), Rows([], np.ones(9), extra={"exposure": np.full(9, 2.0)})
    )
    assert level == pytest.approx(-np.log(2.0))


# ---- starts and levels


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()], ids=repr)
def test_a_start_finds_the_direction_beside_offsets(likelihood):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((3000, 4))
    offset = 2 * inputs[:, 3]  # known, and not to be found
    latent = 2 * np.sin(inputs @ [1.2, -0.9, 0.0, 0.0]) + offset
    target = likelihood.sample(latent, rng)
    block = Block(inputs, target, NO_WEIGHT, offset)
    frame = Frame.of(np.eye(4), True)
    found = best_start(
        block, frame, np.ones(4), Matern52(), 5, rng, Response(likelihood)
    ).directions[0]
    assert abs(found @ [0.8, -0.6, 0, 0]) / np.linalg.norm(found) > 0.99


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 0.0)
    monkeypatch.setattr(module, "STREAM_BLOCK", 300)
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 300)


def table(n=1000):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1]
    weight = np.floor(rng.uniform(0, 3, n))
    extra = {"exposure": rng.uniform(0.5, 2, n), "offset": rng.uniform(-0.1, 0.1, n)}
    y = rng.poisson(extra["exposure"] * np.exp(0.5 + extra["offset"])).astype(float)
    return X, y, weight, extra


def prepared(extra=None, y=None):
    X, own, weight, further = table()
    source = source_of(X, own if y is None else y, weight, extra=extra or further)
    return prepare_rows(source, np.random.default_rng(0), likelihood=Poisson())


def listed(rows):
    blocks = rows.total(lambda block: [block], list.__add__, 0.0)
    names = ("inputs", "target", "root_weight", "offset", "trials")
    return [np.concatenate([getattr(block, name) for block in blocks]) for name in names]


def test_targets_weights_and_offsets_stay_as_they_are(request):
    X, y, weight, extra = table()
    kept = weight > 0
    first = prepared()
    inputs, target, root, offset, _ = listed(first.levels[-1].rows)
    np.testing.assert_array_equal(target, y[kept])
    assert_allclose(root**2, weight[kept])
    level = first.standard.offset
    assert_allclose(offset, level + extra["offset"][kept] + np.log(extra["exposure"][kept]))
    assert level == pytest.approx(0.5, abs=0.1)
    assert_allclose(np.average(inputs, axis=0, weights=weight[kept]), 0, atol=1e-12)
    request.getfixturevalue("stream")
    second = prepared()
    assert isinstance(second.levels[-1].rows, StreamedRows)
    assert second.standard.offset == pytest.approx(level)
    for ours, theirs in zip(
        listed(second.levels[-1].rows), listed(first.levels[-1].rows), strict=True
    ):
        assert_allclose(ours, theirs, atol=0.05)
    assert_allclose(second.covariance, first.covariance, atol=0.05)


@pytest.mark.parametrize("kept", ["memory", "stream"])
def test_targets_and_exposures_that_cannot_be_are_refused(kept, request):
    if kept == "stream":
        request.getfixturevalue("stream")
    _, y, weight, extra = table()
    bad = np.flatnonzero(weight)[5]
    wrong = y.copy()
    wrong[bad] = 1.5
    with pytest.raises(DataError, match="whole"):
        prepared(y=wrong)
    wrong = extra["exposure"].copy()
    wrong[bad] = 0.0
    with pytest.raises(DataError, match="exposure must be positive in every row, got 0 in row 5"):
        prepared(extra={"exposure": wrong})
