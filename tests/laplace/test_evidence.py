"""Laplace's evidence at nodes against the dense one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import issparse

from dsgp.kernels import Matern32, Matern52
from dsgp.laplace import rows as response_rows
from dsgp.laplace.binned import BinnedRows
from dsgp.laplace.evidence import node_mode
from dsgp.laplace.parameters import better_likelihood
from dsgp.learning.nodes import open_variances
from tests.laplace.dense import LIKELIHOODS, Laplace, example

EVERY = pytest.mark.parametrize("name", LIKELIHOODS)
EITHER = pytest.mark.parametrize("alone", [False, True], ids=["joint", "alone"])


def mode_of(model, kernels, tol=1e-13):
    return node_mode(model, kernels, np.zeros(model.basis.size), tol=tol, max_iter=1000)


def exact(given):
    return mode_of(given.node_model(), given.kernels)


def terms_of(given, mode):
    """Functions at the points, without the constant."""
    return mode.model.at(mode.values)[0][: given.table.size]


# ------------------------------------------------------------------ with a node a value


@EVERY
@pytest.mark.parametrize("constant", [0.0, 100.0])
def test_with_a_node_a_value_it_is_the_dense_approximation(name, constant):
    given = example(name, constant=constant)
    found = exact(given)
    np.testing.assert_allclose(terms_of(given, found), given.functions(), atol=2e-7)
    # The jitter of the nodes is what is left.
    assert found.objective == pytest.approx(given.mode[2], rel=1e-8)
    assert found.evidence() == pytest.approx(given.evidence(), rel=1e-8, abs=1e-6)
    assert found.evidence(alone=True) == pytest.approx(given.evidence(alone=True), rel=1e-8)


PARAMETERS = ("lengthscale", "variance")


@EVERY
def test_gradient_is_that_of_the_dense_evidence(name):
    given = example(name, 100, seed=1, constant=0.0 if "ordered" in name else 100.0)
    found = exact(given)
    n = len(given.kernels)
    for alone, dense in zip((False, True), given.gradients(), strict=True):
        by_log = found.gradient(alone=alone)[:n]
        ours = [own[parameter] for parameter in PARAMETERS for own in by_log]
        np.testing.assert_allclose(ours, dense[: 2 * n], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("negative_binomial", 0.0),
        ("negative_binomial", 100.0),
        ("gamma", 100.0),
        ("ordered", 0.0),
        ("ordered_probit", 0.0),
        ("student_t", 0.0),
        ("student_t", 100.0),
    ],
)
def test_likelihood_moves_along_the_gradient_of_the_dense_evidence(name, constant):
    given = example(name, 80, seed=2, constant=constant)
    found = exact(given)
    radius = 1e-4
    gradients = given.gradients(slice(2 * len(given.kernels), None))
    for alone, dense in zip((False, True), gradients, strict=True):
        variance = found.variance_tables(alone=alone)
        moved, gain = better_likelihood(found, variance, found.moved(variance), radius, 1.0)
        # So near, the evidence is a plane, and its maximum in the box a corner.
        change = moved.unconstrained() - given.likelihood.unconstrained()
        np.testing.assert_allclose(change, radius * np.sign(dense), rtol=1e-4)
        assert gain == pytest.approx(radius * np.abs(dense).sum(), rel=2e-3)


@EITHER
def test_variances_of_the_rows_are_those_of_the_dense_posterior(alone):
    given = example("poisson", constant=100.0)
    found = exact(given)
    variances = given.rows.variances(found.variance_tables(alone=alone))
    priors = given.priors if alone else [given.prior]
    expected = np.zeros(len(given.y))
    for prior in priors:
        root, factor = given._factor(prior, given.curvature)
        seen = root[:, None] * prior
        expected += np.diag(prior - seen.T @ np.linalg.solve(factor @ factor.T, seen))
    np.testing.assert_allclose(variances, expected, rtol=1e-5, atol=1e-7)


def test_huge_tiny_and_zero_weights():
    rng = np.random.default_rng(5)
    given = example("logit", weighted=False)
    given.weight = 10 ** rng.uniform(-12, 4, len(given.y))
    given.weight[::7] = 0.0
    found = exact(given)
    np.testing.assert_allclose(terms_of(given, found), given.functions(), atol=1e-4)
    assert found.evidence() == pytest.approx(given.evidence(), rel=1e-6)


def test_a_row_of_weight_two_is_two_rows():
    given = example("negative_binomial", weighted=False)
    twice = replace(given, weight=np.full(len(given.y), 2.0))
    both = [np.concatenate([given.y] * 2), np.concatenate([given.offset] * 2)]
    doubled = replace(given, X=np.vstack([given.X] * 2), y=both[0], offset=both[1])
    assert exact(twice).evidence() == pytest.approx(exact(doubled).evidence(), rel=1e-12)
    rows = np.ones(len(given.y))
    rows[::2] = 0.0
    some = replace(given, X=given.X[1::2], y=given.y[1::2], offset=given.offset[1::2])
    without = exact(replace(given, weight=rows)).evidence()
    assert without == pytest.approx(exact(some).evidence(), rel=1e-9)


def test_a_start_anywhere_leads_to_the_same_mode():
    given = example("student_t", seed=3, constant=100.0)
    model = given.node_model()
    first = exact(given)
    near = np.random.default_rng(0).standard_normal(model.basis.size)
    other = node_mode(model, given.kernels, near, tol=1e-13, max_iter=1000)
    np.testing.assert_allclose(terms_of(given, other), terms_of(given, first), atol=1e-5)


def test_without_terms_the_constant_alone_is_found():
    given = example("poisson", kernels=[], constant=100.0)
    found = exact(given)
    assert found.evidence() == pytest.approx(given.evidence(), rel=1e-10)
    assert found.model.at(found.values)[1] == pytest.approx(given.level + given.mode[0][0])


def test_without_terms_and_constant_the_evidence_is_the_likelihood():
    given = example("ordered", kernels=[])
    found = exact(given)
    assert found.evidence() == pytest.approx(given.evidence(), rel=1e-12)


# ------------------------------------------------------------------ with fewer nodes, with bins


def prior_draw(name, n=300, seed=0, missing=0.0):
    """Targets of functions that the kernels make likely."""
    rng = np.random.default_rng(seed)
    kernels = [Matern52(0.7, 1.0), Matern32(1.5, 0.5)]
    empty = Laplace(rng.standard_normal((n, 2)), np.zeros(n), kernels, LIKELIHOODS[name])
    f = np.linalg.cholesky(empty.prior + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    return replace(empty, y=empty.likelihood.sample(f, rng))


@EITHER
@pytest.mark.parametrize("name", ["logit", "poisson", "gamma", "student_t"])
def test_fewer_nodes_change_the_evidence_by_about_what_is_reported(name, alone):
    given = prior_draw(name)
    errors = []
    for count in (8, 12, 20, 32, 60):
        model = given.node_model(count)
        found = mode_of(model, given.kernels, tol=1e-9)
        tables = model.tables(found.linearised, model.at(found.values)[0])
        left = open_variances(tables, model.basis, given.kernels, 1.0)
        reported = 0.5 * sum(v * w.sum() for v, w in zip(left, tables.weights, strict=True))
        errors.append(abs(found.evidence(alone=alone) - given.evidence(alone)))
        # The reported error is that of the determinant; the mode moves too.
        assert errors[-1] <= 1.5 * reported + 1e-3
    assert errors[-1] < 0.02 < 0.2 < errors[0]


@pytest.mark.parametrize("name", ["logit", "poisson"])
def test_narrower_bins_approach_the_evidence_of_the_rows(name):
    given = prior_draw(name)
    errors = []
    for wanted in (16, 32, 64, 128):
        binned = BinnedRows.of(given.rows, None, {2: wanted}, 2)
        assert max(len(axis) for axis in binned.rows.table.cells) <= wanted
        whole = given.node_model(40)
        bins = binned.rows.table
        narrow = replace(
            whole,
            rows=binned.rows,
            spreads=binned.spreads,
            basis=type(whole.basis)(
                list(bins.cells),
                [slice(*bins.offsets[d : d + 2]) for d in range(bins.n_terms)],
                [None] * bins.n_terms,
            ),
        )
        errors.append(abs(mode_of(narrow, given.kernels).evidence() - given.evidence()))
    assert errors[-1] < 0.3 * errors[0]
    assert errors[-1] < 0.5


@EVERY
def test_sparse_tables_of_pairs_are_those_of_dense_ones(name, monkeypatch):
    given = example(name, constant=100.0)
    dense = exact(given)
    monkeypatch.setattr(response_rows, "_DENSE_CELLS", 0)
    monkeypatch.setattr(response_rows, "_CELLS_PER_ROW", 0)
    sparse = exact(given)
    assert all(map(issparse, sparse.linearised.pairs.values()))
    np.testing.assert_allclose(sparse.values, dense.values, rtol=0, atol=1e-9)
    assert sparse.evidence() == pytest.approx(dense.evidence(), rel=1e-12, abs=1e-9)
    for ours, theirs in zip(sparse.gradient(), dense.gradient(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-8)
