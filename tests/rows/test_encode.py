"""Axes, sketches and bins of a column against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dsgp.rows import encode as module
from dsgp.rows.encode import MISSING, Bins, Sketch, encode

odd = st.one_of(
    st.floats(allow_infinity=False, width=64),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 2.2e-308, 1.0, np.nan]),
    st.integers(-3, 3).map(float),
    st.integers(0, 100).map(lambda k: 1.7e9 + k * 2.4e-7),
)


def columns(min_size=1, max_size=60):
    return st.lists(odd, min_size=min_size, max_size=max_size).map(np.array)


# ------------------------------------------------------------------ encode


@given(columns())
def test_codes_give_the_column_back(column):
    axis, codes = encode(column)
    seen = ~np.isnan(column)
    assert codes.dtype.kind == "u"
    if not seen.any():
        assert axis is None
    else:
        np.testing.assert_array_equal(axis.points[codes[seen]], column[seen])
        assert len(axis) == len(set(column[seen]))
        assert (codes[~seen] >= len(axis)).all()


def test_codes_take_the_smallest_type():
    for n, kind in ((2**16 - 2, np.uint16), (2**16 - 1, np.uint32)):
        axis, codes = encode(np.append(np.arange(float(n)), np.nan))
        assert codes.dtype == kind
        assert len(axis) == n
        assert codes[-1] == np.iinfo(kind).max


# ------------------------------------------------------------------ sketches


def hashes(values):
    """Splitmix64 in Python's own integers."""
    found = []
    for bits in np.asarray(values).view(np.uint64).tolist():
        x = (bits + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(x ^ (x >> 31))
    return np.array(found, dtype=np.uint64)


def brute(column, size):
    """The values of the smallest hashes, and their counts."""
    values, counts = np.unique(column[~np.isnan(column)] + 0.0, return_counts=True)
    kept = np.sort(np.argsort(hashes(values))[:size])
    return values[kept], counts[kept], len(values) <= size


def same(a, b):
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(np.signbit(a.values), np.signbit(b.values))
    np.testing.assert_array_equal(a.counts, b.counts)
    assert (a.low, a.high, a.complete) == (b.low, b.high, b.complete)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "SKETCH", 16)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n", [1, 10, 17, 63, 64, 65, 130, 1000])
@pytest.mark.parametrize("distinct", [1, 3, 15, 16, 17, 40, 10**9])
def test_a_sketch_is_the_values_of_the_smallest_hashes(n, distinct):
    rng = np.random.default_rng(n + distinct)
    column = rng.integers(0, distinct, n) / 8 - 1.0
    column[rng.uniform(size=n) < 0.1] = np.nan
    column[rng.uniform(size=n) < 0.1] = -0.0
    sketch = Sketch.of(column)
    values, counts, complete = brute(column, 16)
    np.testing.assert_array_equal(sketch.values, values)
    np.testing.assert_array_equal(sketch.counts, counts)
    assert sketch.complete == complete
    assert sketch.low == np.nanmin(column, initial=np.inf)
    assert sketch.high == np.nanmax(column, initial=-np.inf)
    assert not np.signbit(sketch.values[sketch.values == 0]).any()


@given(
    column=st.one_of(
        columns(max_size=200),
        arrays(float, st.integers(1, 400), elements=st.integers(0, 60).map(float)),
    ),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    random=st.randoms(use_true_random=False),
)
def test_sketches_merge_in_any_order_and_grouping(column, cuts, random):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SKETCH", 16)
        pieces = np.split(column, sorted(c % len(column) for c in cuts))
        parts = [Sketch.of(piece) for piece in pieces]
        while len(parts) > 1:
            random.shuffle(parts)
            parts.append(parts.pop().merge(parts.pop()))
        same(parts[0], Sketch.of(column))
        values, counts, complete = brute(column, 16)
        np.testing.assert_array_equal(parts[0].values, values)
        np.testing.assert_array_equal(parts[0].counts, counts)
        assert parts[0].complete == complete


def test_a_sketch_of_its_real_size_is_one_of_blocks():
    rng = np.random.default_rng(0)
    column = np.concatenate([rng.standard_normal(150_000), rng.integers(0, 9, 50_000)])
    rng.shuffle(column)
    whole = Sketch.of(column)
    assert len(whole.values) == module.SKETCH
    merged = None
    for part in np.split(column, [7, 1000, 90_000, 90_001]):
        merged = Sketch.of(part) if merged is None else Sketch.of(part).merge(merged)
    same(whole, merged)
    values, counts, _ = brute(column, module.SKETCH)
    np.testing.assert_array_equal(whole.values, values)
    np.testing.assert_array_equal(whole.counts, counts)


# ------------------------------------------------------------------ bins


def check(bins, column):
    """Every code is what ``searchsorted`` says, and no bin is out of order."""
    seen = ~np.isnan(column)
    codes = bins.codes(column)
    expected = np.searchsorted(bins.edges, column[seen], side="right")
    np.testing.assert_array_equal(codes[seen], expected)
    assert (codes[~seen] == MISSING).all()
    assert (np.diff(bins.edges) > 0).all()
    assert np.isfinite(bins.edges).all()
    assert len(bins) == len(bins.origin) == (len(bins.edges) + 1 if seen.any() else 0)
    if seen.any():
        # An origin is in its bin.
        np.testing.assert_array_equal(bins.codes(bins.origin), np.arange(len(bins)))
    if bins.exact:
        np.testing.assert_array_equal(bins.origin[codes[seen]], column[seen])
    return codes


@given(columns(max_size=150), st.integers(2, 40))
def test_bins_of_odd_values(column, n_bins):
    bins = Bins.of(Sketch.of(column), n_bins)
    check(bins, column)
    assert len(bins) <= n_bins
    seen = column[~np.isnan(column)]
    assert bins.exact == (len(np.unique(seen)) <= n_bins)


@given(columns(max_size=60), columns(max_size=60), st.integers(1, 20))
def test_values_that_no_sketch_has_seen_find_their_bin(column, others, n_bins):
    if np.isnan(column).all():
        return
    bins = Bins.of(Sketch.of(column), max(n_bins, 2))
    seen = others[~np.isnan(others)]
    np.testing.assert_array_equal(bins.codes(seen), np.searchsorted(bins.edges, seen, side="right"))


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(0).standard_t(1, 300_000),
        np.append(np.random.default_rng(0).standard_normal(300_000), [1e12, -1e9]),
        np.exp(5 * np.random.default_rng(0).standard_normal(300_000)),
        1.7e9 + np.random.default_rng(0).uniform(0, 86400, 300_000),
        1.7e9 + np.random.default_rng(0).uniform(0, 1e-3, 300_000),
        5e-324 * np.random.default_rng(0).integers(0, 100_000, 300_000),
        1.7e308 * np.random.default_rng(0).uniform(-1, 1, 300_000),
    ],
    ids=["t(1)", "outliers", "log-normal", "a day", "a millisecond", "subnormal", "huge"],
)
def test_no_bin_holds_a_large_share_of_the_rows(column):
    bins = Bins.of(Sketch.of(column), 512)
    codes = check(bins, column)
    counts = np.bincount(codes, minlength=len(bins))
    assert counts.max() < 0.01 * len(column)
    # Half of the bins at least are where the rows are, and none is far from full.
    assert 256 < len(bins) <= 512


def test_tails_are_cut_by_distance():
    rng = np.random.default_rng(0)
    column = np.append(rng.standard_normal(10**5), np.linspace(10, 20, 200))
    bins = Bins.of(Sketch.of(column), 512)
    # Half of the bins by distance, and these have two fifths of it.
    assert 90 < np.sum(bins.edges > 10) < 120


@pytest.mark.parametrize(
    "values", [[3.0], [3.0] * 5, [1.0, 2.0], [5e-324, 0.0], [1.7e9, np.nextafter(1.7e9, 2e9)]]
)
def test_few_values_are_exact(values):
    column = np.array(values * 3)
    bins = Bins.of(Sketch.of(column), 512)
    assert bins.exact
    assert len(bins) == len(set(values))
    check(bins, column)


@pytest.mark.parametrize("n", [100, 40_000])
def test_bins_do_not_depend_on_the_blocks(n):
    column = np.random.default_rng(0).standard_normal(n)
    parts = np.split(column, [n // 7, n // 3])
    found = [
        Bins.of(Sketch.of(a).merge(Sketch.of(b)).merge(Sketch.of(c)), 64)
        for a, b, c in itertools.permutations(parts)
    ]
    for bins in found[1:]:
        np.testing.assert_array_equal(bins.edges, found[0].edges)
        np.testing.assert_array_equal(bins.origin, found[0].origin)
