"""Learning: starts, what stays fixed, and hyperparameters at least as likely as the truth."""

from functools import reduce

import numpy as np
import pytest

from dsgp.grid import fit_cells
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.fit import (
    Hyperparameters,
    NoiseStart,
    learn_complete,
    likely_starts,
    maximise,
    starts,
)
from dsgp.grid.fit_cells import Piece, learn_cells, sample_rows
from dsgp.grid.kronecker import KroneckerSystem
from dsgp.kernels import Matern32, Matern52, Periodic
from tests.grid.dense import Dense, gaps, uneven

POINTS = [np.linspace(0, 10, 36), uneven(28, 0, 5)]
TRUTH = (Matern32(1.5, 2.0), Matern52(0.8, 1.0))
NOISE = 0.09
LEARNED = NoiseStart()


def drawn(terms=(TRUTH,), noise=NOISE, seed=0):
    """A field drawn from its prior, with noise."""
    random = np.random.default_rng(seed)
    total = np.sqrt(noise) * random.standard_normal([len(own) for own in POINTS])
    for term in terms:
        lower = [
            np.linalg.cholesky(Dense([own], [(kernel,)], 0.0).prior + 1e-10 * np.eye(len(own)))
            for own, kernel in zip(POINTS, term, strict=True)
        ]
        total += (reduce(np.kron, lower) @ random.standard_normal(total.size)).reshape(total.shape)
    return total


def likelihood(found, y, observed=None, noise=None):
    return Dense(
        POINTS, list(found.terms), found.noise if noise is None else noise, observed
    ).log_likelihood(y)


def true_likelihood(y, observed=None, noise=NOISE):
    return Dense(POINTS, [TRUTH], noise, observed).log_likelihood(y)


def near_the_truth(found, factor=1.8):
    (term,) = found.terms
    numbers = [(term[0].lengthscale, 1.5), (term[1].lengthscale, 0.8), (found.noise, NOISE)]
    assert all(true / factor < own < true * factor for own, true in numbers)
    assert 2.0 / 3 < term[0].variance < 2.0 * 3
    assert term[1].variance == 1.0


# ---------------------------------------------------------------------- starts


def test_starts_are_of_the_size_of_the_field():
    own = starts([(Matern32(), Periodic(360.0))], POINTS, 4.0, LEARNED)
    (term,) = own.terms
    assert isinstance(term[1], Periodic)
    assert term[0].lengthscale == pytest.approx(1.0)
    assert (term[0].variance, term[1].variance, own.noise) == (3.6, 1.0, 0.4)
    assert own.learn_noise
    assert own.mask().tolist() == [True] * 4


def test_several_terms_start_from_long_to_short():
    own = starts([(Matern32(),) * 2] * 3, POINTS, 4.0, NoiseStart(0.1, is_fixed=True))
    lengths = np.array([[kernel.lengthscale for kernel in term] for term in own.terms])
    assert (np.diff(lengths, axis=0) < 0).all()
    assert lengths[0].tolist() == [2.5, 1.25]
    assert np.all(np.diff([term[0].variance for term in own.terms]) < 0)
    assert own.noise == 0.1
    assert own.mask().tolist() == [True] * 9 + [False]


def test_given_parameters_are_starts():
    given = (Matern32(3.0), Matern52(lengthscale=2.0, variance=5.0))
    own = starts([given], POINTS, 4.0, NoiseStart(0.5, is_fixed=True))
    (term,) = own.terms
    assert [kernel.lengthscale for kernel in term] == [3.0, 2.0]
    assert [kernel.variance for kernel in term] == [5.0, 1.0]  # the amplitude is the first's


def test_an_axis_of_one_point_has_nothing_to_learn():
    own = starts([(Matern32(), Matern32())], [np.array([3.0]), np.arange(4.0)], 1.0, LEARNED)
    assert own.mask().tolist() == [False, True, True, True]


@pytest.mark.parametrize("share", [0.3, 0.03])
def test_the_likeliest_start_is_taken(share):
    def evidence(own):
        gap = np.log(own.terms[0][0].lengthscale) - np.log(10 * share)
        return type("Evidence", (), {"value": -abs(gap)})

    chosen = likely_starts(evidence, (Matern32(), Matern32()), POINTS, 1.0, LEARNED)[0]
    assert chosen.terms[0][0].lengthscale == pytest.approx(10 * share)
    (given,) = likely_starts(evidence, (Matern32(7.0), Matern32(2.0)), POINTS, 1.0, LEARNED)
    assert given.terms[0][0].lengthscale == 7.0


def test_a_field_without_variance_starts_anywhere():
    own = starts([(Matern32(),)], [np.arange(3.0)], 0.0, LEARNED)
    assert np.isfinite(own.logs()).all()


# ---------------------------------------------------------------------- parameters as a vector


def test_the_vector_of_parameters_goes_there_and_back():
    terms = ((Matern32(0.1, 0.3), Matern52(0.7, 1.0)), (Matern52(3.3, 7.1), Matern32(9.9, 1.0)))
    own = Hyperparameters(terms, 0.04, True, (5, 5))
    assert own.with_logs(own.logs()) == own  # to the bit
    moved = own.with_logs(own.logs() + np.log(2.0) * np.eye(7)[5])
    assert moved.terms[1][0].variance == pytest.approx(14.2)
    assert moved.terms[0] == own.terms[0]
    assert (moved.terms[1][1], moved.noise) == (own.terms[1][1], own.noise)


FIXED = (
    Matern32(1.1, 1.7, fixed=("lengthscale", "variance")),
    Matern52(0.3),
)


def test_what_is_fixed_is_kept_to_the_bit():
    y = drawn()
    observed = gaps(y.shape)
    complete = learn_complete(FIXED, [(POINTS, y)], POINTS, NoiseStart(0.07, is_fixed=True))
    missing = learn_cells(
        [starts([FIXED], POINTS, 2.0, NoiseStart(0.07, is_fixed=True))],
        [Piece(POINTS, y, observed)],
        POINTS,
        n_neighbours=10,
        seed=0,
    )
    for found in (complete, missing):
        (term,) = found.terms
        assert term[0] == FIXED[0]
        assert found.noise == 0.07
        assert 0.4 < term[1].lengthscale < 1.6  # learnt


def test_nothing_free_is_nothing_to_learn():
    fixed = ("lengthscale", "variance")
    given = (Matern32(1.1, 1.7, fixed), Matern52(0.3, 1.0, fixed))
    found = learn_complete(given, [(POINTS, drawn())], POINTS, NoiseStart(0.07, is_fixed=True))
    assert found.terms == (given,)


# ---------------------------------------------------------------------- learning


def test_a_complete_field_gives_its_hyperparameters_back():
    y = drawn()
    found = learn_complete((Matern32(), Matern52()), [(POINTS, y)], POINTS, LEARNED)
    near_the_truth(found)
    assert likelihood(found, y) >= true_likelihood(y)


def test_what_is_learnt_is_a_maximum():
    y = drawn(seed=1)
    system = lambda own: KroneckerSystem(POINTS, own.terms[0], own.noise).evidence(y)  # noqa: E731
    start = starts([(Matern32(), Matern52())], POINTS, 2.0, LEARNED)
    found, value = maximise(system, start, POINTS, 2.0, y.size, gain=1e-9)
    assert value == pytest.approx(likelihood(found, y), rel=1e-9)
    for k in range(4):
        for size in (-0.02, 0.02):
            moved = found.with_logs(found.logs() + size * np.eye(4)[k])
            assert likelihood(moved, y) < value + 1e-6


def test_pieces_count_as_independent():
    y = drawn()
    pieces = [([own[part] for own in POINTS], y[part, part]) for part in (slice(14), slice(14, 28))]
    found = learn_complete((Matern32(), Matern52()), pieces, POINTS, LEARNED)

    def total(terms, noise):
        return sum(Dense(points, terms, noise).log_likelihood(own) for points, own in pieces)

    assert total(list(found.terms), found.noise) >= total([TRUTH], NOISE)


@pytest.mark.parametrize("dense", [2000, 0])
def test_pieces_with_gaps_count_as_independent(dense, monkeypatch):
    monkeypatch.setattr(fit_cells, "DENSE", dense)
    y = drawn()
    observed = gaps(y.shape)
    parts = [(slice(0, 15), slice(0, 20)), (slice(15, 36), slice(8, 28))]
    pieces = [
        Piece([own[part] for own, part in zip(POINTS, both, strict=True)], y[both], observed[both])
        for both in parts
    ]
    start = starts([(Matern32(), Matern52())], POINTS, 2.0, LEARNED)
    found = learn_cells([start], pieces, POINTS, n_neighbours=30, seed=0)

    def total(terms, noise):
        return sum(
            Dense(own.points, terms, noise, own.observed).log_likelihood(own.y) for own in pieces
        )

    assert total(list(found.terms), found.noise) >= total([TRUTH], NOISE) - (0 if dense else 1)


@pytest.mark.parametrize("dense", [2000, 0])
def test_a_field_with_gaps_gives_its_hyperparameters_back(dense, monkeypatch):
    monkeypatch.setattr(fit_cells, "DENSE", dense)  # 0: by Vecchia's likelihood
    y = drawn()
    observed = gaps(y.shape)
    hidden = np.where(observed, y, np.nan)
    start = starts([(Matern32(), Matern52())], POINTS, float(np.var(y[observed])), LEARNED)
    found = learn_cells([start], [Piece(POINTS, hidden, observed)], POINTS, n_neighbours=30, seed=0)
    near_the_truth(found)
    slack = 0.0 if dense else 1.0  # of a sampled likelihood's tolerance
    assert likelihood(found, y, observed) >= true_likelihood(y, observed) - slack


def test_a_sample_of_the_cells_learns_nearly_the_same(monkeypatch):
    monkeypatch.setattr(fit_cells, "DENSE", 0)
    monkeypatch.setattr(fit_cells, "_FIRST", (200, 15))
    monkeypatch.setattr(fit_cells, "_SECOND", (400, 30))
    monkeypatch.setattr(fit_cells, "_KEPT", 100)
    y = drawn()
    observed = gaps(y.shape)
    start = starts([(Matern32(), Matern52())], POINTS, 2.0, LEARNED)
    found = learn_cells([start], [Piece(POINTS, y, observed)], POINTS, n_neighbours=30, seed=0)
    near_the_truth(found, 2.5)
    assert likelihood(found, y, observed) >= true_likelihood(y, observed) - 10
    again = learn_cells([start], [Piece(POINTS, y, observed)], POINTS, n_neighbours=30, seed=0)
    assert again == found


@pytest.mark.parametrize("seed", [1, 2])
def test_scales_are_counted_with_the_same_neighbours(seed, monkeypatch):
    """Two scales have other neighbours than one, whose likelihoods are not comparable."""
    monkeypatch.setattr(fit_cells, "_FIRST", (300, 10))
    monkeypatch.setattr(fit_cells, "_SECOND", (600, 15))
    monkeypatch.setattr(fit_cells, "_KEPT", 100)
    random = np.random.default_rng(seed)
    points = [np.arange(float(n)) for n in (40, 12, 12)]
    terms = tuple(
        (Matern32(a, variance), Matern32(b, 1.0), Matern32(c, 1.0))
        for (a, b, c), variance in (((30.0, 20.0, 20.0), 50.0), ((2.0, 3.0, 6.0), 1.0))
    )
    y = SeparableSum(tuple(points), terms).sample(random)
    y += 0.05 * random.standard_normal(y.shape)
    y -= y.mean()
    seen = random.random(y.shape) > 0.05
    begin = [starts([(Matern32(),) * 3] * n, points, float(y.var()), LEARNED) for n in (1, 2)]
    found = learn_cells(begin, [Piece(points, y, seen)], points, n_neighbours=15, seed=0)
    assert len(found.terms) == 2


@pytest.mark.parametrize("dense", [2000, 0])
def test_noise_given_for_each_cell_is_kept(dense, monkeypatch):
    monkeypatch.setattr(fit_cells, "DENSE", dense)
    random = np.random.default_rng(3)
    y = drawn(noise=1e-12)
    noise = random.uniform(0.01, 1.0, y.shape)
    y += np.sqrt(noise) * random.standard_normal(y.shape)
    observed = np.ones(y.shape, bool)
    start = starts([(Matern32(), Matern52())], POINTS, 2.0, NoiseStart(1.0, is_fixed=True))
    found = learn_cells(
        [start], [Piece(POINTS, y, observed, noise)], POINTS, n_neighbours=30, seed=0
    )
    assert found.noise == 1.0
    assert likelihood(found, y, noise=noise) >= true_likelihood(y, noise=noise) - 1.0
    assert 1.0 < found.terms[0][0].lengthscale < 2.3


def test_two_scales_are_distinguished():
    short = (Matern32(0.3, 0.3), Matern52(0.3, 1.0))
    long = (Matern32(4.0, 2.0), Matern52(2.5, 1.0))
    y = drawn([long, short], noise=0.01)
    observed = gaps(y.shape, share=0.2)
    start = starts([(Matern32(), Matern52())] * 2, POINTS, float(np.var(y[observed])), LEARNED)
    found = learn_cells([start], [Piece(POINTS, y, observed)], POINTS, n_neighbours=30, seed=0)
    truth = Dense(POINTS, [long, short], 0.01, observed).log_likelihood(y)
    assert likelihood(found, y, observed) >= truth
    (a, b), (c, d) = found.terms
    assert a.lengthscale > 2 * c.lengthscale
    assert b.lengthscale > 2 * d.lengthscale


@pytest.mark.parametrize("value", [0.0, 1e-300])
def test_a_constant_field_learns_something_finite(value):
    y = np.full((12, 9), value)
    points = [own[:n] for own, n in zip(POINTS, y.shape, strict=True)]
    kernels = (Matern32(), Matern52())
    complete = learn_complete(kernels, [(points, y)], points, LEARNED)
    missing = learn_cells(
        [starts([kernels], points, 0.0, LEARNED)],
        [Piece(points, y, gaps(y.shape))],
        points,
        n_neighbours=5,
        seed=0,
    )
    for found in (complete, missing):
        assert np.isfinite(found.logs()).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_unit_of_the_field_changes_nothing(scale):
    y = drawn()[:18, :18]
    points = [own[:18] for own in POINTS]
    kernels = (Matern32(), Matern52())
    plain, scaled = (
        learn_complete(kernels, [(points, unit * y)], points, LEARNED) for unit in (1.0, scale)
    )
    expected = plain.logs()
    expected[[2, 3]] += 2 * np.log(scale)
    np.testing.assert_allclose(scaled.logs(), expected, atol=0.05)


# ---------------------------------------------------------------------- samples of cells


def test_samples_of_cells_are_weighted_to_the_whole():
    rows, weight = sample_rows(50_000, 3000, seed=0)
    assert len(np.unique(rows)) == 3000
    np.testing.assert_array_equal(rows[:1000], np.arange(1000))
    assert weight.sum() == pytest.approx(50_000)
    assert (weight[:1000] == 1).all()
    # An average over such samples is that over all cells.
    values = np.log1p(np.arange(50_000.0))
    sums = [
        float(own @ values[chosen])
        for chosen, own in (sample_rows(50_000, 3000, seed) for seed in range(40))
    ]
    assert np.mean(sums) == pytest.approx(values.sum(), rel=1e-3)
    everything, ones = sample_rows(10, 3000, seed=0)
    assert (everything.tolist(), ones.tolist()) == (list(range(10)), [1.0] * 10)
