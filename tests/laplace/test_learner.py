"""What the learner finds: an optimum of Laplace's evidence, the same in all circumstances."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from dsgp import compute
from dsgp.kernels import Matern32, Matern52
from dsgp.laplace import learner, parameters
from dsgp.laplace import rows as laplace_rows
from dsgp.laplace.binned import BINS, BinnedRows
from dsgp.laplace.evidence import node_mode
from dsgp.laplace.learner import learn
from dsgp.laplace.rows import ResponseRows
from dsgp.learning.search import search_for
from dsgp.likelihoods import Bernoulli, Gamma, NegativeBinomial, Ordered, Poisson, StudentT
from dsgp.rows import table as row_tables
from tests.additive.dense import table_of
from tests.laplace.dense import LIKELIHOODS, Laplace, example

MAKES = (Matern32, Matern52)
ALONE = pytest.mark.parametrize("alone", [False, True], ids=["joint", "alone"])


def learned(rows, likelihood, kernels=None, *, constant=1.0, alone=False, tol=0.1, level=None):
    kernels = [make() for make in MAKES[: rows.table.n_terms]] if kernels is None else kernels
    order = min((kernel.order for kernel in kernels), default=4)
    binned = BinnedRows.of(rows, None, BINS, order)
    searches = [
        search_for(kernel, axis, counts, len(kernels))
        for kernel, axis, counts in zip(
            kernels, binned.rows.table.cells, binned.counts, strict=True
        )
    ]
    return learn(
        binned,
        likelihood,
        searches,
        rows.level(likelihood) if level is None else level,
        constant=constant,
        alone=alone,
        tol=tol,
        max_iter=50,
        random=np.random.default_rng(0),
    )


def problem(name, n=250, seed=0):
    """Few distinct values: nodes are all of them, and the evidence is exact."""
    kernels = [make(1.0, 1.0) for make in MAKES]
    return example(name, n, seed, kernels=kernels, missing=0.05)


def dense(given, found):
    """The reference at what was found."""
    constant = 100.0 if found.mode.model.constant else 0.0
    return replace(
        given,
        kernels=found.kernels,
        likelihood=found.likelihood,
        level=found.mode.model.level,
        constant=constant,
    )


# ------------------------------------------------------------------ an optimum


@ALONE
@pytest.mark.parametrize(
    "name", ["logit", "binomial", "poisson", "negative_binomial", "gamma", "ordered", "student_t"]
)
def test_it_ends_where_the_dense_evidence_is_stationary(name, alone):
    given = problem(name, 120)
    found = learned(given.rows, given.likelihood, alone=alone, tol=1e-5)
    assert found.converged
    reference = dense(given, found)
    assert found.trace[-1] == pytest.approx(reference.evidence(alone), rel=1e-6)
    gradient = reference.gradients()[int(alone)]
    # A parameter at the end of its range may still want to go on.
    searched = np.array([k.lengthscale for k in found.kernels])
    inside = np.ones(len(gradient), dtype=bool)
    inside[: len(searched)] = searched < 9 * np.ptp(np.nan_to_num(given.X), axis=0)
    assert np.abs(gradient[inside]).max() < 0.1


@ALONE
@pytest.mark.parametrize("name", ["logit", "poisson", "gamma", "student_t"])
def test_nothing_around_the_end_is_better(name, alone):
    given = problem(name, 400, seed=1)
    tol = 0.1
    found = learned(given.rows, given.likelihood, alone=alone, tol=tol)
    assert found.converged
    best = found.mode.evidence(alone=alone)
    assert best == found.trace[-1]

    def value(kernels, likelihood):
        model = replace(found.mode.model, likelihood=likelihood)
        mode = node_mode(model, kernels, found.mode.values, tol=1e-8, max_iter=500)
        return mode.evidence(alone=alone)

    for d, name_ in [(d, n) for d in range(2) for n in ("lengthscale", "variance")]:
        for factor in (0.5, 0.8, 1.25, 2.0):
            kernels = list(found.kernels)
            moved = factor * getattr(kernels[d], name_)
            kernels[d] = kernels[d].with_parameters(**{name_: moved})
            assert value(kernels, found.likelihood) <= best + 2 * tol
    start = found.likelihood.unconstrained()
    for step in 0.1 * np.eye(len(start)):
        for sign in (-1, 1):
            moved = found.likelihood.from_unconstrained(start + sign * step)
            assert value(found.kernels, moved) <= best + 2 * tol


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("negative_binomial", [NegativeBinomial(dispersion=d) for d in (0.01, 1.0, 100.0)]),
        ("gamma", [Gamma(shape=s) for s in (1e-2, 1.0, 1e3)]),
        ("student_t", [StudentT(scale=s) for s in (1e-2, 1.0, 1e2)]),
        ("ordered", [Ordered(cutpoints=c) for c in ((-1.0, 0.0, 1.0), (-0.1, 0.0, 3.0))]),
    ],
)
def test_the_start_of_a_likelihood_does_not_matter(name, starts):
    given = problem(name, 300)
    ends = [learned(given.rows, start, tol=1e-3) for start in starts]
    assert all(end.converged for end in ends)
    assert max(end.evaluations for end in ends) < 20
    assert np.ptp([end.trace[-1] for end in ends]) < 0.02
    first, *others = [settled(end) for end in ends]
    for other in others:
        np.testing.assert_allclose(other, first, atol=0.03)


def settled(found):
    """Parameters of a likelihood; cutpoints say where f is cut only beside the constant."""
    if isinstance(found.likelihood, Ordered):
        return np.array(found.likelihood.cutpoints) - found.level
    return found.likelihood.unconstrained()


@pytest.mark.parametrize(
    "likelihood", [Bernoulli(), Poisson(), StudentT(scale=0.1), Gamma(shape=2.0)], ids=repr
)
def test_the_mode_is_exact_where_there_is_nothing_else_to_learn(likelihood):
    """Its constant becomes the level of the fit."""
    rng = np.random.default_rng(0)
    X = np.round(2 * rng.standard_normal((80, 2))) / 2
    y = likelihood.sample(np.sin(X[:, 0]) + 1.5, rng)
    fixed = [Matern52(1.0, 1.0, fixed=("lengthscale", "variance"))] * 2
    given = Laplace(X, y, fixed, likelihood)
    found = learned(given.rows, likelihood, fixed, tol=1e-3)
    reference = dense(given, found)
    # Newton may leave a hundredth of what the learner may.
    assert found.mode.gain < 1e-4
    assert found.trace[-1] == pytest.approx(reference.evidence(), abs=1e-3)
    constant = reference.constant * reference.mode[1].sum()
    assert found.level == pytest.approx(reference.level + constant, abs=0.02)


def test_fixed_parameters_stay():
    given = problem("poisson")
    kernels = [Matern32(0.5, 2.0, fixed=("lengthscale",)), Matern52(1.0, 0.5, fixed=("variance",))]
    found = learned(given.rows, given.likelihood, kernels)
    assert found.kernels[0].lengthscale == 0.5
    assert found.kernels[1].variance == 0.5
    assert found.kernels[0].variance != 2.0


def test_a_column_that_says_nothing_shrinks():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2000, 2))
    y = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0]))).astype(float)
    found = learned(ResponseRows(table_of(X), y), Poisson(), tol=0.01)
    table = found.mode.model.rows.table
    flat = found.mode.model.at(found.mode.values)[0][:-1]
    assert np.ptp(table.part(flat, 0)) > 1 > 10 * np.ptp(table.part(flat, 1))
    assert found.kernels[1].variance < 0.02 * found.kernels[0].variance


@pytest.mark.parametrize("size", [0.0, 1.0])
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_separable_classes(link, size):
    """The variance of the column that separates them runs to a large but finite value."""
    X = np.random.default_rng(4).standard_normal((200, 2))
    y = (X[:, 0] > 0.1).astype(float)
    offset = size * X[:, 1]
    rows = ResponseRows(table_of(X), y, offset=offset)
    found = learned(rows, Bernoulli(link))
    assert found.converged
    assert np.isfinite(found.trace).all()
    assert found.kernels[0].variance > 10
    assert all(math.isfinite(k.variance) for k in found.kernels)


# ------------------------------------------------------------------ edges


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Ordered(cutpoints=(-1.0, 1.0)), np.repeat([0.0, 1.0, 2.0], [5, 20, 15])),
        (Poisson(), np.repeat([0.0, 1.0, 4.0], [5, 20, 15])),
        (Gamma(shape=1.0), np.linspace(0.5, 4.0, 40)),
        (StudentT(scale=1.0), np.linspace(-2.0, 2.0, 40)),
    ],
    ids=["ordered", "poisson", "gamma", "student_t"],
)
@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_without_any_column(likelihood, y, constant):
    rows = Laplace(np.empty((40, 0)), y, [], likelihood).rows
    found = learned(rows, likelihood, [], constant=constant, tol=1e-4)
    assert found.converged
    assert found.kernels == []
    if likelihood.name == "ordered":
        # The shares of the categories, exactly.
        shares = found.likelihood.class_probabilities([found.level], [0.0])
        np.testing.assert_allclose(shares.ravel(), [5 / 40, 20 / 40, 15 / 40], atol=0.01)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_rows_that_say_nothing_leave_the_start(constant):
    """All their weights W underflow to 0."""
    X = np.random.default_rng(5).standard_normal((60, 2))
    rows = ResponseRows(table_of(X), np.zeros(60), offset=np.full(60, -1e5))
    found = learned(rows, Poisson(), constant=constant, level=0.0)
    assert found.converged
    assert found.trace[-1] == pytest.approx(0.0, abs=1e-9)
    assert found.open_variance == [0.0, 0.0]


@drawn(
    st.sampled_from(sorted(LIKELIHOODS)),
    st.integers(2, 8),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
@settings(max_examples=40)
def test_any_few_rows(name, n, n_terms, seed, same):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, n_terms)), 1)
    X[0] = X[1] + 1.0  # no column is constant
    likelihood = LIKELIHOODS[name]
    trials = rng.integers(1, 5, n) * 1.0 if name == "binomial" else np.empty(0)
    y = likelihood.sample(rng.standard_normal(n), rng, trials if len(trials) else None)
    if same:
        y, trials = np.full(n, y[0]), trials[:1].repeat(n)
    rows = replace(Laplace(X, y, [], likelihood).rows, trials=trials)
    if n_terms == 0:
        rows = replace(rows, table=Laplace(X[:, :0], y, [], likelihood).table)
    found = learned(rows, likelihood)
    assert np.isfinite(found.trace).all()
    assert np.isfinite(found.mode.values).all()
    assert np.isfinite(found.level)
    assert np.all(np.diff(found.trace) > 0)


# ------------------------------------------------------------------ the same in all circumstances


def same(one, other):
    return (
        one.kernels == other.kernels
        and one.likelihood == other.likelihood
        and one.level == other.level
        and one.trace == other.trace
    )


@pytest.fixture
def in_small_tasks(monkeypatch):
    monkeypatch.setattr(compute, "WORTH_A_GRAPH", 0.0)
    monkeypatch.setattr(laplace_rows, "_TASK_ROWS", 64)
    monkeypatch.setattr(parameters, "_TASK_ROWS", 64)


class OnDisk:
    """Codes that come by blocks only, as those of a zarr array do."""

    def __init__(self, codes):
        self.codes, self.shape = codes, codes.shape

    def __getitem__(self, index):
        rows = index[1]
        assert rows.stop - rows.start <= row_tables.BLOCK
        return self.codes[:, rows].copy()


@pytest.mark.usefixtures("in_small_tasks")
@pytest.mark.parametrize("name", ["logit", "negative_binomial", "student_t"])
def test_threads_and_repetition_change_nothing(name, monkeypatch):
    given = problem(name, 500)
    results = []
    for cpus in (1, 2, 2):
        monkeypatch.setattr(compute, "CPU_COUNT", cpus)
        results.append(learned(given.rows, given.likelihood))
    assert same(results[0], results[1])
    assert same(results[1], results[2])


@pytest.mark.usefixtures("in_small_tasks")
@pytest.mark.parametrize("subset", [False, True])
def test_blocks_of_codes_on_disk_change_nothing(subset, monkeypatch):
    given = problem("gamma", 500)
    if subset:
        monkeypatch.setattr(learner, "FIRST_ROWS", 200)
    whole = learned(given.rows, given.likelihood)
    monkeypatch.setattr(row_tables, "BLOCK", 150)
    in_memory = learned(given.rows, given.likelihood)
    assert in_memory.trace == pytest.approx(whole.trace, rel=1e-10)
    table = replace(given.table, codes=OnDisk(given.table.codes))
    assert same(in_memory, learned(given.rows.on(table), given.likelihood))


@pytest.mark.parametrize("name", ["logit", "negative_binomial"])
def test_a_first_level_of_few_rows_ends_at_the_same_optimum(name, monkeypatch):
    given = problem(name, 1500)
    at_once = learned(given.rows, given.likelihood, tol=1e-3)
    monkeypatch.setattr(learner, "FIRST_ROWS", 300)
    by_levels = learned(given.rows, given.likelihood, tol=1e-3)
    assert by_levels.evaluations != at_once.evaluations
    assert by_levels.trace[-1] == pytest.approx(at_once.trace[-1], abs=5e-3)
    logs = [np.concatenate([dense(given, found).logs]) for found in (at_once, by_levels)]
    np.testing.assert_allclose(logs[0], logs[1], atol=0.1)
    assert by_levels.level == pytest.approx(at_once.level, abs=0.1)


# ------------------------------------------------------------------ rows on bins


@drawn(st.integers(0, 2**32 - 1), st.integers(16, 80), st.booleans(), st.floats(-1e6, 1e6))
@settings(max_examples=30)
def test_bins_hold_means_and_variances_of_their_rows(seed, wanted, weighted, shift):
    rng = np.random.default_rng(seed)
    X = shift + rng.standard_normal((200, 2))
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    weight = rng.integers(0, 3, 200) * 1.0 if weighted else np.empty(0)
    rows = ResponseRows(table_of(X), np.zeros(200), weight)
    binned = BinnedRows.of(rows, None, {2: wanted}, 2)
    ones = weight if weighted else np.ones(200)
    table = binned.rows.table
    for d, axis in enumerate(table.cells):
        code = table.codes[d]
        assert np.array_equal(code >= len(axis), np.isnan(X[:, d]))
        assert len(axis) <= wanted
        for b in range(len(axis)):
            own, w = X[code == b, d], ones[code == b]
            assert binned.counts[d][b] == pytest.approx(w.sum())
            if w.sum() == 0:
                assert own.min() <= axis.points[b] <= own.max()
                continue
            mean = np.average(own, weights=w)
            assert axis.points[b] == pytest.approx(mean, rel=1e-12)
            spread = np.average((own - mean) ** 2, weights=w)
            assert binned.spreads[d][b] == pytest.approx(spread, abs=1e-8)


def test_few_values_are_their_own_bins():
    given = problem("poisson", 200)
    binned = BinnedRows.of(given.rows, None, BINS, 2)
    for d, axis in enumerate(given.table.cells):
        assert np.array_equal(binned.rows.table.cells[d].points, axis.points)
        assert not binned.spreads[d].any()
    seen = binned.rows.table.gather(np.ones(given.table.size))
    assert np.array_equal(seen, np.isfinite(given.X).sum(axis=1))
