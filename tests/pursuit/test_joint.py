"""All ridge functions at once, against finite differences, dense algebra and brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from dsgp.compute import one_blas_thread
from dsgp.kernels import Matern32, Matern52
from dsgp.pursuit.hyperparameters import with_hyperparameters
from dsgp.pursuit.joint import (
    Frame,
    State,
    direction_factor,
    improved,
    opened,
    renewed,
    with_values,
)
from dsgp.pursuit.ridges import Ridge, Ridges
from dsgp.pursuit.rows import NO_WEIGHT, Block, MemoryRows

N, D = 300, 3


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with one_blas_thread():
        yield


def rows_of(weighted=True, n=N, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    mix = np.array([[1.0, 0.4, 0.0], [0.0, 0.9, -0.3], [0.0, 0.0, 1.0]])
    inputs = rng.standard_normal((n, D)) @ mix
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    f = np.sin(2 * inputs @ [0.6, -0.5, 0.1]) + 0.5 * (inputs @ [0.2, 0.1, 0.8]) ** 2
    target = (f - f.mean()) / f.std() + noise * rng.standard_normal(n)
    root = np.sqrt(rng.uniform(0.3, 2.0, n)) if weighted else NO_WEIGHT
    return MemoryRows(Block(inputs, target, root))


def frame_of(rows, relevance):
    block = rows.block
    return Frame.of(np.cov(block.inputs.T, bias=True, aweights=block.weight), relevance)


def state_of(rows, relevance=True, seed=0, n_terms=2, noise=0.3, scale=1.0):
    """A state in which nothing is at an optimum."""
    rng = np.random.default_rng(seed)
    terms = []
    for m in range(n_terms):
        nodes = np.linspace(-4, 4, 9 + m)
        values = scale * rng.standard_normal(len(nodes))
        kernel = Matern52(lengthscale=1.0 + m, variance=0.5 + m)
        terms.append(Ridge(rng.standard_normal(D) / 2, nodes, values, kernel))
    frame = frame_of(rows, relevance)
    precision = rng.uniform(0.5, 3.0, frame.size)
    return State.of(rows, Ridges(tuple(terms), D), frame, precision, noise)


def settled(rows, relevance=True, steps=30):
    """A state at the optimum for its hyperparameters."""
    state = with_values(rows, state_of(rows, relevance, scale=0.0))
    # without functions there is no slope: values first
    return improved(rows, state, steps, 1e-10)


def position_of(state):
    return np.concatenate([state.whitened, state.coordinates.ravel()])


def at(rows, state, position):
    """The state of other whitened values and coordinates."""
    n = state.ridges.n_nodes
    values = np.concatenate(
        [f @ position[p] for f, p in zip(state.ridges.factors, state.ridges.parts, strict=True)]
    )
    coordinates = position[n:].reshape(-1, state.frame.size)
    return state.at(rows, state.ridges.moved(coordinates @ state.frame.basis.T, values))


def design_of(state, inputs):
    """Derivatives of the model by values and directions, by finite differences: dense and slow."""
    ridges = state.ridges
    values, directions = ridges.values, ridges.directions.ravel()

    def model(x):
        moved = ridges.moved(x[ridges.n_nodes :].reshape(-1, D), x[: ridges.n_nodes])
        return moved.evaluate(inputs)[0].sum(axis=1)

    x, columns = np.concatenate([values, directions]), []
    for j in range(len(x)):
        step = np.zeros(len(x))
        step[j] = 1e-5
        columns.append((model(x + step) - model(x - step)) / 2e-5)
    return np.column_stack(columns)


def prior_covariance(state):
    """Of values and directions."""
    size = state.ridges.n_parameters
    n = state.ridges.n_nodes
    prior = np.zeros((size, size))
    for term, part in zip(state.ridges.terms, state.ridges.parts, strict=True):
        prior[part, part] = term.kernel.covariance(term.nodes)
    one = state.frame.basis @ np.diag(1 / state.precision) @ state.frame.basis.T
    for m in range(len(state.ridges)):
        part = slice(n + m * D, n + (m + 1) * D)
        prior[part, part] = one
    return prior


both_frames = pytest.mark.parametrize("relevance", [True, False])


@both_frames
@pytest.mark.parametrize("weighted", [True, False])
def test_the_gradient_is_that_of_the_objective(relevance, weighted):
    rows = rows_of(weighted)
    state = state_of(rows, relevance)
    position = position_of(state)
    gradient = state.prior * position - state.system[1] / state.noise_variance
    numeric = approx_fprime(position, lambda x: 0.5 * at(rows, state, x).objective, 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=2e-4 * np.abs(numeric).max())


@both_frames
def test_squares_and_penalty_are_those_of_the_rows(relevance):
    rows = rows_of()
    state, block = state_of(rows, relevance), rows.block
    left = block.target - state.ridges.evaluate(block.inputs)[0].sum(axis=1)
    assert state.squares == pytest.approx(np.sum(block.weight * left**2))
    penalty = sum(
        term.values @ np.linalg.solve(term.kernel.covariance(term.nodes), term.values)
        for term in state.ridges.terms
    )
    one = state.frame.basis @ np.diag(1 / state.precision) @ state.frame.basis.T
    penalty += sum(w @ np.linalg.solve(one, w) for w in state.ridges.directions)
    assert state.penalty == pytest.approx(penalty, rel=1e-5)
    assert state.objective == pytest.approx(state.squares / 0.3 + state.penalty)


def test_without_relevance_the_prior_is_that_of_white_inputs():
    rows = rows_of()
    frame = frame_of(rows, False)
    white = frame.basis.T @ frame.covariance @ frame.basis
    np.testing.assert_allclose(white, np.eye(D), atol=1e-10)
    np.testing.assert_allclose(frame.inverse @ frame.basis, np.eye(D), atol=1e-10)
    w = np.array([0.3, -1.0, 2.0])
    assert frame.variance(w) == pytest.approx(np.sum((frame.inverse @ w) ** 2))


def test_directions_without_variance_have_no_coordinate():
    x = np.random.default_rng(0).standard_normal((100, 2))
    twice = np.column_stack([x, x[:, 0]])
    frame = Frame.of(np.cov(twice.T), relevance=False)
    assert frame.size == 2
    np.testing.assert_allclose(frame.basis[0], frame.basis[2], atol=1e-12)
    assert Frame.of(np.empty((0, 0)), relevance=False).size == 0
    assert Frame.of(np.empty((0, 0)), relevance=True).size == 0


@both_frames
def test_evidence_and_dof_are_laplaces(relevance):
    rows = rows_of()
    state, block = settled(rows, relevance), rows.block
    design = design_of(state, block.inputs)
    prior = prior_covariance(state)
    information = (design * block.weight[:, None]).T @ design / state.noise_variance
    # log det (1 + prior · information), whatever the coordinates
    _, log_det = np.linalg.slogdet(np.eye(len(prior)) + prior @ information)
    left = block.target - state.ridges.evaluate(block.inputs)[0].sum(axis=1)
    value = np.sum(
        -0.5 * np.log(2 * np.pi * state.noise_variance / block.weight)
        - 0.5 * block.weight * left**2 / state.noise_variance
    )
    value -= 0.5 * (state.penalty + log_det)
    if relevance:  # the Gamma prior, with regard to its mode
        ratio = state.precision * 1e-4 / 0.5
        value += 0.5 * np.sum(np.log(ratio) - ratio + 1)
    assert state.evidence == pytest.approx(value, rel=1e-5)
    dof = np.trace(np.linalg.solve(np.eye(len(prior)) + prior @ information, prior @ information))
    assert state.dof == pytest.approx(dof, rel=1e-4)


@both_frames
def test_the_evidence_of_nothing_is_that_of_the_noise(relevance):
    rows = rows_of()
    block = rows.block
    state = State.of(rows, Ridges((), D), frame_of(rows, relevance), np.full(D, 3.0), 1.0)
    state = state.weighed()
    noise = np.mean(block.weight * block.target**2)
    assert state.noise_variance == pytest.approx(noise)
    expected = -0.5 * np.sum(
        np.log(2 * np.pi * noise / block.weight) + block.weight * block.target**2 / noise
    )
    assert state.evidence == pytest.approx(expected)
    assert state.dof == 0


def test_evidence_of_given_directions_is_exact():
    """Where the directions are certain the model is linear: a Gaussian marginal likelihood."""
    rows = rows_of()
    block = rows.block
    state = state_of(rows)
    state = with_values(rows, replace(state, precision=np.full(D, 1e12)))
    certain = -0.5 * 1e12 * np.sum(state.ridges.directions**2)
    prior = prior_covariance(state)[: state.ridges.n_nodes, : state.ridges.n_nodes]
    design = design_of(state, block.inputs)[:, : state.ridges.n_nodes]
    covariance = design @ prior @ design.T + np.diag(state.noise_variance / block.weight)
    exact = multivariate_normal(np.zeros(N), covariance).logpdf(block.target)
    ratio = 1e12 * 1e-4 / 0.5
    hyper = D * 0.5 * (math.log(ratio) - ratio + 1)
    assert state.evidence - certain - hyper == pytest.approx(exact, abs=0.05)


def test_laplaces_evidence_is_near_the_integral():
    """One term, two inputs: the integral over the directions on a grid.

    With the kernel learned: the lengthscale then is the best for the length of the direction, which
    it trades against.
    """
    n, noise = 400, 0.01
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((n, 2))
    target = np.sin(1.5 * inputs @ [0.8, 0.6]) + np.sqrt(noise) * rng.standard_normal(n)
    rows = MemoryRows(Block(inputs, target))
    nodes, size = np.linspace(-6, 6, 17), 17
    kernel = Matern52(lengthscale=1.5, variance=1.0)
    frame = Frame.of(np.eye(2), relevance=True)
    ridges = Ridges((Ridge(np.array([0.8, 0.6]), nodes, np.zeros(size), kernel),), 2)
    state = State.of(rows, ridges, frame, np.ones(2), noise, fixed_noise=True)
    state = improved(rows, with_values(rows, state), 50, 1e-12)
    for _ in range(4):
        state = improved(rows, with_hyperparameters(rows, state, 50), 50, 1e-12)
    prior = state.ridges.terms[0].kernel.covariance(nodes)

    def log_joint(direction):
        """Density of the target for a direction, times that of the direction: exact."""
        moved = state.at(rows, state.ridges.moved(direction[None], np.zeros(size)))
        gram, b = moved.moments.matrix[:size, :size], moved.moments.matrix[:size, -1]
        fit = b @ np.linalg.solve(np.linalg.inv(prior) + gram / noise, b) / noise**2
        log_det = np.linalg.slogdet(np.eye(size) + gram @ prior / noise)[1]
        quadratic = moved.moments.matrix[-1, -1] / noise
        value = -0.5 * (n * np.log(2 * np.pi * noise) + log_det + quadratic - fit)
        return value - 0.5 * direction @ direction - np.log(2 * np.pi)

    mode = state.ridges.directions[0]
    lengths, axes = np.linalg.eigh(state.inverse[size:, size:])
    root = axes * np.sqrt(lengths)
    grid = np.linspace(-5, 5, 21)
    values = np.array([[log_joint(mode + root @ [s, t]) for s in grid] for t in grid])
    exact = logsumexp(values) + 2 * np.log(grid[1] - grid[0]) + 0.5 * np.sum(np.log(lengths))
    # f(x·w) and f(−x·w) are the same model: of the two modes the grid sees one, as Laplace does.
    hyper = 2 * 0.5 * (np.log(1e-4 / 0.5) - 1e-4 / 0.5 + 1)
    assert state.evidence - hyper == pytest.approx(exact, abs=1.0)
    # and exactly what a parabola around the mode gives
    parabola = log_joint(mode) + 0.5 * np.linalg.slogdet(2 * np.pi * root @ root.T)[1]
    assert state.evidence - hyper == pytest.approx(parabola, abs=1e-3)


@both_frames
def test_updates_end_at_a_fixed_point_of_greater_evidence(relevance):
    rows = rows_of()
    state = settled(rows, relevance)
    first = state.evidence
    seen = [first]
    for _ in range(60):
        state = improved(rows, state.weighed(), 20, 1e-9)
        seen.append(state.evidence)
    assert np.diff(seen).min() > -0.5
    assert seen[-1] > first + 10
    again = state.weighed()
    assert again.noise_variance == pytest.approx(state.noise_variance, rel=1e-3)
    np.testing.assert_allclose(again.precision, state.precision, rtol=0.02)
    assert state.noise_variance == pytest.approx(
        state.squares / (state.n_rows - state.dof), rel=1e-3
    )
    if relevance:
        # stationary: neither a little more nor a little less of any precision is better
        for j in range(D):
            for factor in (0.8, 1.25):
                precision = state.precision.copy()
                precision[j] *= factor
                moved = improved(rows, replace(state, precision=precision), 20, 1e-9)
                assert moved.evidence < state.evidence + 0.1


def test_fixed_noise_is_kept():
    rows = rows_of()
    state = replace(settled(rows), fixed_noise=True)
    assert state.weighed().noise_variance == 0.3
    assert with_hyperparameters(rows, state, 20).noise_variance == 0.3


def test_an_input_that_no_function_needs_is_given_up():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((500, D))
    target = np.tanh(2 * inputs[:, 0]) + 0.1 * rng.standard_normal(500)
    rows = MemoryRows(Block(inputs, target))
    nodes = np.linspace(-5, 5, 15)
    term = Ridge(np.array([1.0, 0.1, 0.1]), nodes, np.zeros(15), Matern52(1.0, 1.0))
    ridges = Ridges((term,), D)
    state = State.of(rows, ridges, Frame.of(np.eye(D), True), np.ones(D), 0.02)
    state = with_values(rows, state)
    for _ in range(10):
        state = improved(rows, state, 10, 1e-3).weighed()
    assert state.precision[0] < 5
    assert state.precision[1:].min() > 500
    assert np.abs(state.ridges.directions[0, 1:]).max() < 0.01
    # and can be taken back
    needed = opened(state.precision, np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(needed[[0, 2]], state.precision[[0, 2]])
    assert needed[1] < 5


@both_frames
def test_direction_factor_is_the_conditional_gaussian(relevance):
    """Variance of f under the joint Gaussian minus that for given directions."""
    rows = rows_of()
    state, block = settled(rows, relevance), rows.block
    n = state.ridges.n_nodes
    design = design_of(state, block.inputs)
    prior = prior_covariance(state)
    precision = np.linalg.inv(prior) + (design * block.weight[:, None]).T @ design / 0.3
    covariance = np.linalg.inv(precision)
    given = np.linalg.inv(precision[:n, :n])  # of the values, the directions known
    new = design_of(state, rows_of(n=40, seed=9).block.inputs)
    more = new @ covariance @ new.T - new[:, :n] @ given @ new[:, :n].T
    deviations = new @ direction_factor(state)
    assert deviations.shape == (40, 2 * state.frame.size)
    np.testing.assert_allclose(deviations @ deviations.T, more, atol=2e-4 * np.abs(more).max())


@both_frames
@pytest.mark.parametrize("seed", range(4))
def test_steps_never_raise_the_objective(relevance, seed):
    rows = rows_of()
    state = state_of(rows, relevance, seed)
    values = [state.objective]
    for _ in range(12):
        state = improved(rows, state, 1, 0.0)
        values.append(state.objective)
    assert np.diff(values).max() <= 0
    assert values[-1] < 0.5 * values[0]
    end = improved(rows, state, 200, 1e-9)
    decrement = end.prior * position_of(end) - end.system[1] / end.noise_variance
    assert decrement @ end.inverse @ decrement < 1e-2  # twice what a Newton step would gain


def test_no_steps_are_taken_where_there_are_none():
    rows = rows_of()
    state = state_of(rows)
    assert improved(rows, state, 0, 1.0) is state
    nothing = State.of(rows, Ridges((), D), frame_of(rows, True), np.ones(D), 1.0)
    assert improved(rows, nothing, 5, 1.0) is nothing
    assert with_hyperparameters(rows, nothing, 5) is nothing
    assert renewed(rows, nothing, rows.block.inputs).ridges == nothing.ridges


def test_best_values_for_given_directions_are_those_of_ridge_regression():
    rows = rows_of()
    state, block = with_values(rows, state_of(rows)), rows.block
    n = state.ridges.n_nodes
    design = design_of(state, block.inputs)[:, :n]
    prior = prior_covariance(state)[:n, :n]
    weighted = design * block.weight[:, None]
    expected = np.linalg.solve(
        weighted.T @ design + 0.3 * np.linalg.inv(prior), weighted.T @ block.target
    )
    np.testing.assert_allclose(state.ridges.values, expected, atol=1e-4)
    np.testing.assert_array_equal(state.ridges.directions, state_of(rows).ridges.directions)


@both_frames
def test_renewed_functions_are_the_same(relevance):
    rows = rows_of()
    state = settled(rows, relevance)
    found = renewed(rows, state, rows.block.inputs)
    assert len(found.ridges) == 2
    before, after = (
        each.ridges.evaluate(rows.block.inputs)[0].sum(axis=1) for each in (state, found)
    )
    np.testing.assert_allclose(found.squares, state.squares, rtol=0.05)
    assert np.sqrt(np.mean((after - before) ** 2)) < 0.02
    for old, new in zip(state.ridges.terms, found.ridges.terms, strict=True):
        assert found.frame.variance(new.direction) == pytest.approx(1.0)
        ratio = new.direction / old.direction
        np.testing.assert_allclose(ratio, ratio[0])
        assert new.kernel.lengthscale == pytest.approx(old.kernel.lengthscale * ratio[0])
        assert new.nodes[0] < (rows.block.inputs @ new.direction).min()


def test_terms_that_do_nothing_are_dropped():
    rows = rows_of()
    state = settled(rows)
    first, second = state.ridges.terms
    idle = first._replace(values=1e-6 * first.values)
    nowhere = second._replace(direction=np.zeros(D))
    both = replace(state.ridges, terms=(idle, second, nowhere))
    found = renewed(rows, state.at(rows, both), rows.block.inputs)
    assert len(found.ridges) == 1
    np.testing.assert_allclose(
        found.ridges.directions[0] / np.linalg.norm(found.ridges.directions[0]),
        second.direction / np.linalg.norm(second.direction),
    )


def test_hyperparameters_raise_the_likelihood_of_given_directions():
    rows = rows_of()
    block = rows.block
    state = settled(rows)

    def likelihood(state):
        covariance = np.diag(state.noise_variance / block.weight)
        for term in state.ridges.terms:
            covariance += term.kernel.covariance(block.inputs @ term.direction)
        return multivariate_normal(np.zeros(N), covariance).logpdf(block.target)

    found = with_hyperparameters(rows, state, 50)
    assert likelihood(found) > likelihood(state) + 10
    np.testing.assert_array_equal(found.ridges.directions, state.ridges.directions)
    # nothing nearby is better
    for m, term in enumerate(found.ridges.terms):
        for name in ("lengthscale", "variance"):
            for factor in (0.8, 1.25):
                kernel = term.kernel.with_parameters(**{name: factor * getattr(term.kernel, name)})
                terms = list(found.ridges.terms)
                terms[m] = term._replace(kernel=kernel)
                other = replace(found, ridges=replace(found.ridges, terms=tuple(terms)))
                assert likelihood(other) < likelihood(found) + 0.2


def test_the_kind_of_kernel_is_kept():
    rows = rows_of()
    state = state_of(rows)
    terms = tuple(term._replace(kernel=Matern32(1.0, 1.0)) for term in state.ridges.terms)
    state = with_values(rows, state.at(rows, replace(state.ridges, terms=terms)))
    found = with_hyperparameters(rows, improved(rows, state, 10, 0.1), 10)
    assert all(isinstance(term.kernel, Matern32) for term in found.ridges.terms)
