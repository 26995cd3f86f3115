"""Scores of a term against dense algebra, and their p-values against simulated targets."""

import numpy as np
import pytest
from scipy.stats import cauchy

from dsgp.additive import RowEquations
from dsgp.kernels import Independent, Matern12, Matern52, Periodic
from dsgp.learning.score_tests import (
    LENGTHSCALES,
    MOST_NODES,
    combined,
    kernel_test,
    kernels_tried,
    score_of,
)
from dsgp.rows.table import RowTable
from dsgp.terms import Axis, GroupedAxis, LevelCells
from tests.additive.dense import bins_of, covariance, problem


def dense(made, term, kernel):
    """P of the model without a term, and the covariance of the term at the rows."""
    others = [d for d in range(len(made.kernels)) if d != term]
    marginal = np.diag(made.noise / made.weight)
    for d in others:
        marginal += covariance(made.kernels[d], made.X[:, d], made.X[:, d])
    inverse = np.linalg.inv(marginal)
    ones = inverse.sum(axis=1)
    projection = inverse - np.outer(ones, ones) / ones.sum()
    return projection, covariance(kernel, made.X[:, term], made.X[:, term])


@pytest.mark.parametrize("in_bins", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_statistic_is_that_of_dense_algebra(in_bins, missing):
    made = problem(120, correlation=0.5, noise=0.3, digits=1, missing=missing)
    made.X[:, 1] = np.round(2 * made.X[:, 1]) / 2
    made.__post_init__()
    kernel = Matern52(1.3, 1.0)
    equations = bins_of(made.equations) if in_bins else made.equations
    others = [made.kernels[0], made.kernels[2]]
    score = score_of(equations, 1, kernel, others, made.noise)
    projection, prior = dense(made, 1, kernel)
    projected = projection @ made.y
    at_nodes = covariance(kernel, score.nodes.points, score.nodes.points)
    np.testing.assert_allclose(
        score.score @ at_nodes @ score.score, projected @ prior @ projected, rtol=1e-5
    )
    np.testing.assert_allclose(score.squares, made.y @ projected, rtol=1e-5)
    np.testing.assert_allclose(
        np.sum(score.information * at_nodes), np.sum(projection * prior), rtol=1e-5
    )
    result = kernel_test(score, kernel, known_noise=False)
    ratio = (projected @ prior @ projected) / (made.y @ projected)
    np.testing.assert_allclose(
        result.statistic, ratio * 119 / np.sum(projection * prior), rtol=1e-5
    )
    known = kernel_test(score, kernel, known_noise=True)
    np.testing.assert_allclose(
        known.statistic, projected @ prior @ projected / np.sum(projection * prior), rtol=1e-5
    )


@pytest.mark.parametrize("known_noise", [False, True])
def test_p_values_are_tails_of_simulated_statistics(known_noise):
    made = problem(60, correlation=0.5, noise=0.3, digits=1)
    kernel = Matern52(1.0, 1.0)
    projection, prior = dense(made, 0, kernel)
    rng = np.random.default_rng(5)
    values, vectors = np.linalg.eigh(projection)
    draws = (vectors * np.sqrt(np.maximum(values, 0))) @ rng.standard_normal((60, 40_000))
    scores = np.sum(draws * (prior @ draws), axis=0)
    if not known_noise:
        # P y with y normal of covariance V: y' P y = (P y)' V (P y).
        marginal = np.linalg.pinv(projection, rcond=1e-10)
        scores /= np.sum(draws * (marginal @ draws), axis=0)
    root = np.linalg.cholesky(made.marginal - covariance(made.kernels[0], *[made.X[:, 0]] * 2))
    for size in (0.0, 0.3, 0.5):
        y = root @ rng.standard_normal(60) + size * np.sin(2 * made.X[:, 0])
        equations = RowEquations.of(made.table, y, made.weight)
        score = score_of(equations, 0, kernel, made.kernels[1:], made.noise)
        p_value = kernel_test(score, kernel, known_noise=known_noise).p_value
        projected = projection @ y
        seen = projected @ prior @ projected / (1.0 if known_noise else y @ projected)
        above = np.mean(scores > seen)
        assert abs(above - p_value) < 4 * np.sqrt(p_value * (1 - p_value) / 40_000) + 1e-4


def test_noise_and_units_of_the_target_do_not_count_where_the_noise_is_unknown():
    made = problem(80, noise=0.3)
    kernel = Matern52(1.0, 1.0)
    first = kernel_test(
        score_of(made.equations, 0, kernel, made.kernels[1:], 0.3), kernel, known_noise=False
    )
    scaled = RowEquations.of(made.table, 10 * made.y + 3, made.weight)
    others = [own.scaled(7.0) for own in made.kernels[1:]]
    second = kernel_test(
        score_of(scaled, 0, kernel, others, 49 * 0.3), kernel.scaled(2.0), known_noise=False
    )
    np.testing.assert_allclose(second[1:], first[1:], rtol=1e-4)


def test_the_only_term_is_tested_against_the_constant():
    made = problem(80, noise=0.3, n_terms=1)
    kernel = Matern12(1.0, 1.0)
    score = score_of(made.equations, 0, kernel, [], made.noise)
    projection, _ = dense(made, 0, kernel)
    np.testing.assert_allclose(score.squares, made.y @ projection @ made.y, rtol=1e-9)
    assert kernel_test(score, kernel, known_noise=False).p_value < 1e-6


def test_a_term_that_cannot_be_tested_has_no_p_value():
    # One level in all rows: the constant takes all of it.
    table = RowTable(("g",), (LevelCells(np.zeros(1)),), np.zeros((1, 30), dtype=np.uint16))
    equations = RowEquations.of(table, np.random.default_rng(0).standard_normal(30))
    kernel = Independent(1.0)
    result = kernel_test(score_of(equations, 0, kernel, [], 1.0), kernel, known_noise=False)
    assert np.isnan(result.p_value)
    assert np.isnan(result.statistic)


def test_kernels_do_not_depend_on_what_was_learned():
    axis, weight = Axis(np.linspace(0, 10, 50)), np.ones(50)
    first = kernels_tried(Matern52(0.1, 5.0), axis, weight)
    assert first == kernels_tried(Matern52(3.0, 1.0), axis, weight)
    lengths = np.array([kernel.lengthscale for kernel in first])
    np.testing.assert_allclose(lengths / lengths[0], np.divide(LENGTHSCALES, LENGTHSCALES[0]))
    (kept,) = kernels_tried(Matern52(0.1, 5.0, fixed="lengthscale"), axis, weight)
    assert kept.lengthscale == 0.1
    assert len(kernels_tried(Independent(2.0), LevelCells(np.arange(5.0)), np.ones(5))) == 1
    periods = kernels_tried(Periodic(7.0, lengthscale=1.0, variance=1.0), axis, weight)
    assert {kernel.period for kernel in periods} == {7.0}


def test_many_levels_and_curves_are_those_with_most_rows():
    rng = np.random.default_rng(1)
    n_levels = MOST_NODES + 100
    codes = np.concatenate([np.arange(n_levels), np.arange(MOST_NODES)])
    cells = LevelCells(np.arange(n_levels, dtype=float))
    table = RowTable(("g",), (cells,), codes[None].astype(np.uint16))
    equations = RowEquations.of(table, rng.standard_normal(len(codes)))
    score = score_of(equations, 0, Independent(1.0), [], 1.0)
    np.testing.assert_array_equal(score.nodes.points, np.arange(MOST_NODES))
    assert 0 < kernel_test(score, Independent(1.0), known_noise=False).p_value < 1

    groups = np.repeat(np.arange(100.0), 5)
    cells = GroupedAxis(np.column_stack([groups, np.tile(np.arange(5.0), 100)]))
    codes = np.concatenate([np.arange(500), np.arange(300)])
    table = RowTable(("x by g",), (cells,), codes[None].astype(np.uint16))
    score = score_of(
        RowEquations.of(table, rng.standard_normal(800)), 0, Matern52(1.0, 1.0), [], 1.0
    )
    assert set(score.nodes.points[:, 0]) == set(range(60))
    assert 0 < kernel_test(score, Matern52(1.0, 1.0), known_noise=False).p_value < 1


def test_combined_p_values_are_those_of_a_mean_of_cauchy_quantiles():
    p_values = [0.01, 0.4, 0.9]
    mean = np.mean(cauchy.isf(p_values))
    np.testing.assert_allclose(combined(p_values), cauchy.sf(mean), rtol=1e-9)
    np.testing.assert_allclose(combined([0.2, 0.2]), 0.2, rtol=1e-9)
    np.testing.assert_allclose(combined([1e-200, 0.3, 0.5]), 3e-200, rtol=1e-9)
