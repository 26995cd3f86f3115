"""Sums over rows that stream: brute force, and the same bits however the rows come."""

import sys

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from dsgp import allocator, compute
from dsgp.additive import RowEquations, kept_rows, streaming
from dsgp.additive.block_sums import BlockSums
from dsgp.additive.streaming import statistics
from dsgp.additive.survey import survey
from dsgp.errors import DataError
from dsgp.kernels import Matern32
from dsgp.rows import table as rows_table
from dsgp.rows.coding import TermCut
from dsgp.rows.encode import Bins, Cells, encode
from dsgp.rows.sources import source_of
from dsgp.rows.table import RowTable
from dsgp.terms.bound import BoundTerm

N = 3000
CHUNKS = [(N,), (1000,) * 3, (1, 2999), (700, 1, 1299, 1000), tuple([100] * 30), (2000, 1000)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(streaming, "LOGICAL_BLOCK", 512)


@pytest.fixture(scope="module")
def rows():
    """Continuous, few values, constant, far from 0; missing values and weights of 0."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.standard_normal(N),
            rng.integers(0, 5, N),
            np.full(N, 7.0),
            1.7e9 + rng.uniform(0, 86400, N),
        ]
    )
    y = 1e3 + np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(N)
    X[rng.uniform(size=N) < 0.1, 0] = np.nan
    weight = rng.uniform(0.5, 2.0, N)
    weight[::13] = 0.0
    return X, y, weight


def source(rows, chunks, weighted=True):
    """Numpy for no chunks at all, dask otherwise."""
    X, y, weight = rows
    weight = weight if weighted else None
    if chunks is not None:
        X, y = da.from_array(X, (chunks, -1)), da.from_array(y, (chunks,))
        weight = None if weight is None else da.from_array(weight, (chunks,))
    return source_of(X, y, weight, missing="ignore")


VARYING = [0, 1, 3]
PILOT = (1e3, 2.0)


def summed(given, found, bins, columns, pilot, **options):
    """Sums of functions of single columns."""
    cuts = [
        TermCut(BoundTerm.of_column(f"x{j}", Matern32()), own)
        for j, own in zip(columns, bins, strict=True)
    ]
    inputs = [slice(j, j + 1) for j in columns]
    return statistics(given, found.lengths, cuts, inputs, pilot, **options)


def fit(given, n_bins=64, **options):
    found = survey(given)
    bins = [Bins.of(found.sketches[j], n_bins) for j in VARYING]
    return found, bins, summed(given, found, bins, VARYING, PILOT, **options)


def same(a, b):
    """To the bit."""
    equations, others = a.equations, b.equations
    for mine, theirs in zip(equations.layout.cells, others.layout.cells, strict=True):
        np.testing.assert_array_equal(mine.points, theirs.points)
    for name in ("weight", "information"):
        np.testing.assert_array_equal(getattr(equations, name), getattr(others, name))
    for name in ("quadratic", "n_rows", "log_weight"):
        assert getattr(equations, name) == getattr(others, name)
    assert (a.offset, a.scale, a.weight_scale) == (b.offset, b.scale, b.weight_scale)
    for mine, theirs in zip(a.spreads, b.spreads, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if isinstance(equations, RowEquations):
        codes = [np.asarray(own.table.codes[:, :]) for own in (equations, others)]
        np.testing.assert_array_equal(*codes)
        np.testing.assert_array_equal(equations.row_weight, others.row_weight)
    else:
        for key, pair in equations.bins.pairs.items():
            np.testing.assert_array_equal(pair, others.bins.pairs[key])


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("with_pairs", [True, False])
def test_sums_are_those_of_brute_force(rows, weighted, with_pairs):
    X, y, weight = rows
    weight = weight if weighted else np.ones(N)
    found, bins, got = fit(source(rows, None, weighted), with_pairs=with_pairs)
    kept = weight > 0
    X, y, weight = X[kept], y[kept], weight[kept]
    assert found.lengths == [N]
    assert found.n_rows == N
    np.testing.assert_array_equal(found.n_missing, np.isnan(X).sum(axis=0))
    assert len(found.sketches[2].values) == 1
    assert found.target.low == y.min()
    equations, layout = got.equations, got.equations.layout
    assert equations.n_rows == kept.sum()
    assert got.weight_scale == pytest.approx(weight.mean())
    assert got.offset == pytest.approx(np.average(y, weights=weight))
    assert got.scale == pytest.approx(np.sqrt(np.average((y - got.offset) ** 2, weights=weight)))
    z, w = (y - got.offset) / got.scale, weight / weight.mean()
    assert equations.quadratic == pytest.approx(w @ z**2)
    assert equations.log_weight == pytest.approx(np.log(w).sum(), abs=1e-9)
    picks = []
    for d, (j, cut) in enumerate(zip(VARYING, bins, strict=True)):
        x = X[:, j]
        codes = np.where(np.isnan(x), len(cut), np.searchsorted(cut.edges, x, side="right"))
        pick = np.eye(len(cut) + 1)[codes][:, :-1]
        pick = pick[:, w @ pick > 0]
        picks.append(pick)
        total = w @ pick
        seen = np.nan_to_num(x)
        origin = np.nanmin(x)
        away = np.where(np.isnan(x), 0.0, seen - origin)
        mean = (w * away) @ pick / total
        np.testing.assert_allclose(layout.cells[d].points - origin, mean, rtol=1e-6, atol=1e-7)
        within = (away - pick @ mean) * pick.sum(axis=1)
        np.testing.assert_allclose(
            got.spreads[d], (w * within**2) @ pick / total, rtol=1e-6, atol=1e-9
        )
        np.testing.assert_allclose(layout.part(equations.weight, d), total)
        np.testing.assert_allclose(layout.part(equations.information, d), (w * z) @ pick, atol=1e-9)
    Z = np.hstack(picks)
    vector = np.random.default_rng(0).standard_normal(layout.size)
    np.testing.assert_allclose(equations.multiply(vector), Z.T @ (w * (Z @ vector)), atol=1e-9)


def test_few_values_are_the_exact_equations():
    rng = np.random.default_rng(0)
    X, y, weight = rng.integers(0, 9, (N, 2)) / 8, rng.standard_normal(N), rng.uniform(1, 2, N)
    given = source_of(X, y, weight)
    found = survey(given)
    bins = [Bins.of(sketch, 64) for sketch in found.sketches]
    got = summed(given, found, bins, [0, 1], (0.1, 2.0), with_pairs=True)
    axes, codes = zip(*[encode(x) for x in X.T], strict=True)
    z, w = (y - got.offset) / got.scale, weight / got.weight_scale
    expected = RowEquations.of(RowTable(("x0", "x1"), axes, np.array(codes)), z, w)
    for mine, theirs in zip(got.equations.layout.cells, axes, strict=True):
        np.testing.assert_array_equal(mine.points, theirs.points)
    np.testing.assert_allclose(got.equations.information, expected.information, atol=1e-10)
    np.testing.assert_allclose(got.equations.weight, expected.weight)
    vector = rng.standard_normal(expected.layout.size)
    np.testing.assert_allclose(got.equations.multiply(vector), expected.multiply(vector))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("with_pairs", [True, False])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_and_threads_change_no_bit(monkeypatch, rows, weighted, with_pairs, chunks):
    expected = fit(source(rows, None, weighted), with_pairs=with_pairs)[2]
    monkeypatch.setattr(compute, "WORTH_A_GRAPH", 0.0)
    for cpus in (1, 2):
        monkeypatch.setattr(compute, "CPU_COUNT", cpus)
        found, _, got = fit(source(rows, chunks, weighted), with_pairs=with_pairs)
        assert found.lengths == list(chunks)
        same(got, expected)


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_cluster_changes_no_bit(rows, n_workers):
    expected = [fit(source(rows, None), with_pairs=pairs)[2] for pairs in (True, False)]
    with Client(processes=False, dashboard_address=None, n_workers=n_workers, threads_per_worker=1):
        for chunks in (None, CHUNKS[1], CHUNKS[3]):
            for pairs, alone in zip((True, False), expected, strict=True):
                same(fit(source(rows, chunks), with_pairs=pairs)[2], alone)


def test_worker_processes_change_no_bit(rows):
    expected = {kind: fit(source(rows, None, kind), with_pairs=True)[2] for kind in (True, False)}
    with Client(dashboard_address=None, n_workers=2, threads_per_worker=1) as client:
        assert set(client.run(allocator.is_due).values()) == {sys.platform == "linux"}
        for chunks in (None, CHUNKS[3]):
            for weighted, alone in expected.items():
                same(fit(source(rows, chunks, weighted), with_pairs=True)[2], alone)
        assert not any(client.run(allocator.is_due).values())


@pytest.mark.parametrize(
    ("table", "itemsize"),
    [
        ([[0, 255], [3, 1]], 1),
        ([[0, 256], [3, 1]], 2),
        ([[0, 2**16], [3, 1]], 4),
        ([[0, 2.0**32], [3, 1]], 8),
        ([[0, 2.5], [3, 1]], 8),
        ([[0, -1], [3, 1]], 8),
        ([[0, np.nan], [3, 1]], 8),
        (np.empty((0, 3)), 8),
    ],
)
def test_tables_travel_in_the_smallest_type_that_holds_them(table, itemsize):
    cut = TermCut(BoundTerm.of_column("x", Matern32()), Bins.of_values(np.arange(2.0)))
    sums = BlockSums.zeros([cut] * 2, [Cells.none()] * 2, with_pairs=True)
    sums.pairs[0, 1] = np.array(table, dtype=float)
    before = sys.getsizeof(sums)
    sums.pack()
    assert sums.pairs[0, 1].dtype.itemsize == itemsize
    np.testing.assert_array_equal(sums.pairs[0, 1], table)
    assert before - sys.getsizeof(sums) == (8 - itemsize) * np.size(table)


@pytest.mark.parametrize("weighted", [True, False])
def test_codes_on_disk_are_those_in_memory(monkeypatch, rows, weighted):
    for module in (kept_rows, rows_table):
        monkeypatch.setattr(module, "BLOCK", 700)
    _, _, here = fit(source(rows, None, weighted), with_pairs=False)
    _, _, there = fit(source(rows, CHUNKS[3], weighted), with_pairs=False, codes_on_disk=True)
    same(here, there)
    a, b = here.equations, there.equations
    vectors = np.random.default_rng(0).standard_normal((2, a.layout.size))
    np.testing.assert_array_equal(a.multiply(vectors), b.multiply(vectors))
    np.testing.assert_array_equal(a.table.gather(vectors[0]), b.table.gather(vectors[0]))
    np.testing.assert_array_equal(
        a.noise(np.random.default_rng(1)), b.noise(np.random.default_rng(1))
    )
    np.testing.assert_array_equal(a.tables(32).pairs[0, 2], b.tables(32).pairs[0, 2])
    sweeps = []
    for own in (a, b):
        swept = own.fitted(vectors[0])
        swept.add(1, np.ones(len(own.layout.cells[1])))
        sweeps.append(np.concatenate([swept.residual(d) for d in range(3)]))
    np.testing.assert_array_equal(*sweeps)


def test_codes_on_disk_go_with_the_equations(monkeypatch, tmp_path, rows):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _, _, got = fit(source(rows, None), with_pairs=False, codes_on_disk=True)
    assert len(list(tmp_path.iterdir())) == 1
    del got
    assert list(tmp_path.iterdir()) == []


def test_watching_counts_all_rows(rows):
    told = []
    given = source(rows, CHUNKS[1])
    found = survey(given, told.append)
    assert told == [0, 1000, 2000, 3000]
    told.clear()
    bins = [Bins.of(found.sketches[0], 16)]
    summed(given, found, bins, [0], PILOT, with_pairs=True, watch=told.append)
    assert told[0] == 0
    assert told[-1] == N
    assert told == sorted(told)


def test_no_row_that_counts(rows):
    X, y, _ = rows
    zeros = np.zeros(N)
    with pytest.raises(DataError, match="sample_weight"):
        survey(source((X, y, zeros), CHUNKS[1]))
    with pytest.raises(DataError, match=r"0 sample\(s\)"):
        survey(source_of(da.zeros((0, 2)), da.zeros(0)))


def test_neighbouring_bins_stay_apart():
    """Values one rounding apart, whose means round to one another."""
    x = np.repeat(np.nextafter(1.0, 2.0) + 2.3e-16 * np.arange(40), 20)
    given = source_of(x[:, None], np.arange(800.0))
    found = survey(given)
    for n_bins in (4, 10, 39, 40, 41):
        bins = [Bins.of(found.sketches[0], n_bins)]
        got = summed(given, found, bins, [0], (400.0, 1.0), with_pairs=True)
        points = got.equations.layout.cells[0].points
        assert (np.diff(points) > 0).all()
