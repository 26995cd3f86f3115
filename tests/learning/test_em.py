"""EM with expected statistics: monotony, the optimum of the bound, and what it refuses."""

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, Smooth
from dsgp.additive import SOLVERS, RowEquations
from dsgp.errors import ConvergenceWarning, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72, SquaredExponential
from dsgp.learning.em import em, maximise_expected
from dsgp.learning.search import search_for
from dsgp.learning.vbem import vbem
from dsgp.rows.encode import encode
from dsgp.rows.table import RowTable
from dsgp.terms import Axis, Observations

OPTIONS = {"noise_bounds": (1e-6, 1e2), "max_iter": 500}


def solve(system, start):
    return SOLVERS["multigrid"](system, tol=1e-7, max_iter=500, start=start)


def problem(n=40, noise=0.01, n_terms=2, seed=1):
    rng = np.random.default_rng(seed)
    X = np.round(rng.uniform(-3, 3, (n, n_terms)), 2)
    y = np.sin(X[:, 0]) + np.sin(2 * X[:, 1]) + np.sqrt(noise) * rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    axes, codes = zip(*[encode(x) for x in X.T], strict=True)
    table = RowTable(tuple(f"x{d}" for d in range(n_terms)), axes, np.array(codes))
    return RowEquations.of(table, y, rng.uniform(0.5, 2.0, n))


def searches_of(equations, kernels):
    cells = equations.layout.cells
    return [
        search_for(kernel, axis, np.ones(len(axis)), len(kernels))
        for kernel, axis in zip(kernels, cells, strict=True)
    ]


@pytest.mark.parametrize(
    ("kernel", "n", "noise"),
    [
        (Matern12(), 40, 0.01),
        (Matern32(), 40, 0.01),
        (Matern52(), 25, 0.001),
        (Matern72(2.0, 1.0), 25, 0.001),
    ],
)
def test_its_optimum_is_that_of_vbem(kernel, n, noise):
    """The bound within 0.002 nats, hyperparameters within 5 %, from another start."""
    equations = problem(n, noise)
    searches = searches_of(equations, [kernel] * 2)
    exact = vbem(equations, searches, 0.1, solve, tol=1e-6, **OPTIONS)
    learned = em(equations, searches, 0.01, solve, tol=0.02, **OPTIONS)
    assert learned.converged
    assert learned.trace[-1] == pytest.approx(exact.trace[-1], abs=2e-3)
    assert learned.noise_variance == pytest.approx(exact.noise_variance, rel=0.05)
    for own, other in zip(learned.kernels, exact.kernels, strict=True):
        assert own.lengthscale == pytest.approx(other.lengthscale, rel=0.05)
        assert own.variance == pytest.approx(other.variance, rel=0.05)


@pytest.mark.parametrize("solver", ["multigrid", "backfitting"])
def test_the_bound_never_falls(solver):
    equations = problem(n=200, noise=0.1, n_terms=3)

    def rough(system, start):
        return SOLVERS[solver](system, tol=1e-2, max_iter=20, start=start)

    searches = searches_of(equations, [Matern52()] * 3)
    options = {**OPTIONS, "max_iter": 25}
    learned = em(equations, searches, 0.1, rough, tol=1e-9, **options)
    assert len(learned.trace) > 3
    assert np.diff(learned.trace).min() >= 0.0
    assert not learned.converged


def test_small_gains_are_not_taken_for_an_optimum():
    equations = problem(n=300, noise=0.1)
    searches = searches_of(equations, [Matern52()] * 2)
    learned = em(equations, searches, 0.1, solve, tol=0.1, **{**OPTIONS, "max_iter": 15})
    exact = vbem(equations, searches, 0.1, solve, tol=1e-3, **OPTIONS)
    assert learned.trace[-1] - learned.trace[-2] < 0.1
    assert exact.trace[-1] - learned.trace[-1] > 0.1
    assert not learned.converged


def test_fixed_and_given_parameters_stay_or_start():
    equations = problem()
    kernels = [Matern32(lengthscale=0.7, variance=0.6, fixed=("lengthscale", "variance"))]
    kernels.append(Matern32(lengthscale=0.9, fixed="lengthscale"))
    searches = searches_of(equations, kernels)
    options = {**OPTIONS, "noise_bounds": (0.03, 0.03)}
    learned = em(equations, searches, 0.03, solve, tol=1e-3, **options)
    assert learned.converged
    assert (learned.kernels[0].lengthscale, learned.kernels[0].variance) == (0.7, 0.6)
    assert learned.kernels[1].lengthscale == 0.9
    assert learned.noise_variance == 0.03
    exact = vbem(equations, searches, 0.03, solve, tol=1e-8, **options)
    assert learned.kernels[1].variance == pytest.approx(exact.kernels[1].variance, rel=1e-2)


@pytest.mark.parametrize("fixed", [(), ("lengthscale",), ("variance",)])
def test_the_m_step_ends_where_the_expected_density_is_flat(fixed):
    rng = np.random.default_rng(0)
    axis = Axis(np.sort(rng.uniform(0, 9, 80)))
    seen = Observations(np.sin(axis.points) + 0.2 * rng.standard_normal(80), np.full(80, 25.0))
    search = search_for(Matern52(1.7, 1.4, fixed=fixed), axis, np.ones(80), 1)
    chain = axis.expected_chain(search.start, seen)
    kernel = maximise_expected(search, chain)
    before, after = chain.log_density(search.start), chain.log_density(kernel)
    assert after.value > before.value
    for name in search.names:
        assert abs(after.by_log[name]) <= 0.3 * abs(before.by_log[name])


def test_the_m_step_keeps_to_its_bounds():
    rng = np.random.default_rng(0)
    axis = Axis(np.sort(rng.uniform(0, 9, 30)))
    seen = Observations(np.zeros(30), np.full(30, 25.0))  # wants no variance at all
    search = search_for(Matern32(1.0, 2e-8), axis, np.ones(30), 1)
    for _ in range(20):
        kernel = maximise_expected(search, axis.expected_chain(search.start, seen))
        assert search.allows("variance", kernel.variance * (1 + 1e-12))
        assert search.allows("lengthscale", kernel.lengthscale)


def table(n=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0, 5, n), "g": rng.choice(["x", "y"], n)})
    return frame, np.sin(frame["a"].to_numpy()) + 0.1 * rng.standard_normal(n)


def test_an_estimator_learns_by_it():
    frame, y = table()
    with pytest.warns(ConvergenceWarning, match=r"'em' stopped after 3 iterations.*vbem"):
        short = AdditiveGPRegressor(learner="em", learner_max_iter=3).fit(frame[["a"]], y)
    assert not short.converged_
    model = AdditiveGPRegressor(learner="em", learner_max_iter=500).fit(frame[["a"]], y)
    assert model.converged_
    assert model.learner_ == "em"
    assert model.n_iter_ == len(model.learner_trace_) - 1
    other = AdditiveGPRegressor(learner="vbem").fit(frame[["a"]], y)
    assert model.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, abs=0.1)


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        ({}, "g"),
        ([Smooth("a"), Smooth("a", by="g")], "a by g"),
        ({"a": SquaredExponential()}, "a"),
    ],
)
def test_terms_without_a_chain_are_refused_by_name(terms, name):
    frame, y = table()
    with pytest.raises(ParameterError, match=rf"{name}.*learner=\"vbem\""):
        AdditiveGPRegressor(learner="em", terms=terms).fit(frame, y)
