"""Rows are standardised and put into levels, the same in memory and as a stream."""

import warnings

import dask.array as da
import distributed
import numpy as np
import pytest

from dsgp.compute import one_blas_thread
from dsgp.errors import DataError, DataWarning
from dsgp.kernels import Matern52
from dsgp.pursuit import levels as module
from dsgp.pursuit.joint import Frame
from dsgp.pursuit.levels import prepare_rows
from dsgp.pursuit.rows import MemoryRows, StreamedRows
from dsgp.pursuit.search import Options, pursue
from dsgp.rows.sources import source_of


@pytest.fixture(autouse=True)
def one_thread_of_blas():
    with one_blas_thread():
        yield


def table(n=2000, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ [[1.0, 0.5, 0.0], [0.0, 2.0, 0.3], [0.0, 0.0, 10.0]]
    X += [5.0, -3.0, 1e4]
    y = 7 + np.sin(X[:, 0] - X[:, 1] / 2) + 0.1 * rng.standard_normal(n)
    weight = None
    if weighted:
        weight = rng.uniform(0.2, 3.0, n)
        weight[::9] = 0.0
    return X, y, weight


def prepared_from(X, y, weight=None, seed=0):
    return prepare_rows(source_of(X, y, weight), np.random.default_rng(seed))


@pytest.fixture
def stream(monkeypatch):
    """Streams instead of rows in memory, in small blocks."""
    monkeypatch.setattr(module, "KEPT_BYTES", 0.0)
    monkeypatch.setattr(module, "STREAM_BLOCK", 300)
    monkeypatch.setattr("dsgp.pursuit.rows.STREAM_BLOCK", 300)


@pytest.fixture(params=["memory", "stream"])
def kept(request):
    if request.param == "stream":
        request.getfixturevalue("stream")
    return request.param


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_and_target_are_standardised(weighted, kept):
    X, y, weight = table(weighted=weighted)
    found = prepared_from(X, y, weight)
    w = np.ones(len(y)) if weight is None else weight
    rows = w > 0
    standard = found.standard
    centre = np.average(X, axis=0, weights=w)
    std = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=w))
    np.testing.assert_allclose(standard.centre, centre, rtol=1e-10)
    np.testing.assert_allclose(standard.scale, std, rtol=1e-9)
    offset = np.average(y, weights=w)
    assert standard.offset == pytest.approx(offset)
    assert standard.spread == pytest.approx(np.sqrt(np.average((y - offset) ** 2, weights=w)))
    assert standard.weight_scale == pytest.approx(w[rows].mean())
    inputs = (X - centre) / std
    covariance = (inputs * w[:, None]).T @ inputs / w.sum()
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-9)
    assert (found.n_rows, found.constant, standard.varying) == (rows.sum(), [], [0, 1, 2])
    level = found.levels[-1]
    assert isinstance(level.rows, StreamedRows if kept == "stream" else MemoryRows)
    assert level.rows.n_rows == rows.sum()
    assert level.rows.log_weight == pytest.approx(
        np.sum(np.log(w[rows] / w[rows].mean())), abs=1e-8
    )
    blocks = level.rows.total(lambda block: [block], list.__add__, 0.0)
    np.testing.assert_allclose(
        np.concatenate([block.inputs for block in blocks]), inputs[rows], atol=1e-9
    )
    np.testing.assert_allclose(
        np.concatenate([block.weight for block in blocks]), w[rows] / w[rows].mean()
    )


@pytest.mark.usefixtures("kept")
def test_rows_without_weight_are_none():
    X, y, weight = table()
    gone = weight == 0
    X[gone], y[gone] = 1e6, -1e6
    with_zeros, without = (
        prepared_from(X, y, weight),
        prepared_from(X[~gone], y[~gone], weight[~gone]),
    )
    np.testing.assert_allclose(with_zeros.standard.centre, without.standard.centre, rtol=1e-10)
    np.testing.assert_allclose(with_zeros.standard.scale, without.standard.scale, rtol=1e-9)
    assert with_zeros.n_rows == without.n_rows
    assert np.abs(with_zeros.levels[0].search.inputs).max() < 100


def test_equal_weights_are_no_weights():
    X, y, _ = table(weighted=False)
    plain, equal = prepared_from(X, y), prepared_from(X, y, np.full(len(y), 4.0))
    assert equal.standard.weight_scale == 4.0
    np.testing.assert_array_equal(plain.covariance, equal.covariance)
    assert len(equal.levels[0].search.root_weight) == 0


def test_levels_grow_to_all_rows(monkeypatch):
    X, y, weight = table(9000)
    assert len(prepared_from(X, y, weight).levels) == 1
    monkeypatch.setattr(module, "FIRST_ROWS", 200)
    found = prepared_from(X, y, weight)
    assert [level.rows.n_rows for level in found.levels] == [200, 1600, found.n_rows]
    for level in found.levels:
        assert level.search is found.levels[0].search
    largest = {tuple(row) for row in found.levels[-1].rows.block.inputs}
    for level in found.levels[:-1]:
        assert {tuple(row) for row in level.rows.block.inputs} <= largest
    again = prepared_from(X, y, weight)
    np.testing.assert_array_equal(again.levels[0].search.inputs, found.levels[0].search.inputs)


@pytest.mark.usefixtures("stream")
def test_levels_of_a_stream_begin_in_memory(monkeypatch):
    X, y, weight = table(9000)
    monkeypatch.setattr(module, "FIRST_ROWS", 200)
    found = prepared_from(X, y, weight)
    first, second, last = (level.rows for level in found.levels)
    assert isinstance(first, MemoryRows)
    assert isinstance(second, MemoryRows)
    assert (first.n_rows, last.n_rows) == (200, found.n_rows)
    assert second.n_rows == pytest.approx(1600 * 8 / 9, rel=0.1)
    assert second.block.inputs.mean(axis=0) == pytest.approx(np.zeros(3), abs=0.15)


@pytest.mark.usefixtures("stream")
def test_chunks_change_no_digit():
    X, y, weight = table()
    found = []
    for chunk in (2000, 700, 111):
        parts = [da.from_array(each, chunks=chunk) for each in (X, y, weight)]
        found.append(prepared_from(*parts))
    found.append(prepared_from(X, y, weight))
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as _:
        found.append(prepared_from(da.from_array(X, chunks=500), y, weight))
    for other in found[1:]:
        assert other.standard.spread == found[0].standard.spread
        np.testing.assert_array_equal(other.standard.centre, found[0].standard.centre)
        np.testing.assert_array_equal(other.covariance, found[0].covariance)
        np.testing.assert_array_equal(
            other.levels[0].search.inputs, found[0].levels[0].search.inputs
        )


def searched(prepared):
    return pursue(
        prepared.levels,
        Frame.of(prepared.covariance, True),
        Options(Matern52(), n_starts=4),
        np.random.default_rng(1),
    ).state


def test_a_stream_is_searched_as_well_as_rows_in_memory(monkeypatch, request):
    X, y, _ = table(4000, weighted=False)
    in_memory = searched(prepared_from(X, y))
    request.getfixturevalue("stream")
    monkeypatch.setattr(module, "FIRST_ROWS", 500)
    prepared = prepared_from(X, y)
    assert len(prepared.levels) == 3
    streamed = searched(prepared)
    assert streamed.n_rows == in_memory.n_rows == 4000
    assert streamed.noise_variance == pytest.approx(in_memory.noise_variance, rel=0.02)
    assert streamed.evidence == pytest.approx(in_memory.evidence, abs=15)
    assert len(streamed.ridges) == len(in_memory.ridges)


# ---- ugly tables


@pytest.mark.usefixtures("kept")
def test_constant_columns_are_left_out():
    X, y, weight = table()
    X[:, 1] = 4.0
    X[weight == 0, 1] = 9.0  # of rows that do not count
    with pytest.warns(DataWarning, match="'x1'"):
        found = prepared_from(X, y, weight)
    assert (found.constant, found.standard.varying) == (["x1"], [0, 2])
    assert found.covariance.shape == (2, 2)
    with pytest.warns(DataWarning, match="'x0', 'x1', 'x2'"):
        nothing = prepared_from(0 * X, y, weight)
    assert nothing.covariance.shape == (0, 0)
    assert nothing.levels[-1].search.inputs.shape == (nothing.n_rows, 0)
    assert len(searched(nothing).ridges) == 0


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("value", [0.0, 3.5, -1e20])
def test_a_constant_target_is_reported(value):
    X, _, _ = table(100)
    with pytest.warns(DataWarning, match="target is constant"):
        found = prepared_from(X, np.full(100, value))
    assert found.standard.offset == value
    assert found.standard.spread > 0
    np.testing.assert_array_equal(found.levels[-1].search.target, np.zeros(100))
    assert len(searched(found).ridges) == 0


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("factor", "shift"),
    [(1e130, 0.0), (1e-130, 0.0), (1.0, 1e9), (1e20, 1e30), (1e-20, 0.0)],
)
def test_units_and_offsets_do_not_matter(factor, shift):
    X, y, weight = table()
    X = X - X.mean(axis=0)
    plain = prepared_from(X, y, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = prepared_from(X * factor + shift, y, weight)
    lost = 1e-15 * shift / factor  # of what the columns themselves hold
    for ours, theirs in zip(found.levels, plain.levels, strict=True):
        np.testing.assert_allclose(
            ours.search.inputs, theirs.search.inputs, rtol=1e-9, atol=1e-9 + 3 * lost
        )
    np.testing.assert_allclose(found.covariance, plain.covariance, atol=1e-8 + 3 * lost)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("factor", [1e50, 1e-50])
def test_units_of_the_target_do_not_matter(factor):
    X, y, weight = table()
    plain, found = prepared_from(X, y, weight), prepared_from(X, y * factor, weight)
    np.testing.assert_allclose(
        found.levels[0].search.target, plain.levels[0].search.target, rtol=1e-8, atol=1e-10
    )


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": 1e-310}, "column 'x0' spans .* rescale it"),
        ({"X": 1e303}, "column 'x0' spans .* rescale it"),
        ({"y": 1e300}, "target reaches .* rescale it"),
        ({"y": 1e-155}, "target has a standard deviation of .* rescale it"),
    ],
)
def test_what_float64_cannot_square_is_refused(change, message):
    X, y, _ = table(50)
    X = X - X.mean(axis=0)
    with pytest.raises(DataError, match=message):
        prepared_from(X * change.get("X", 1.0), (y - y.mean()) * change.get("y", 1.0))


@pytest.mark.usefixtures("kept")
def test_nothing_that_counts_is_refused():
    X, y, _ = table(50)
    with pytest.raises(DataError, match="zero in every row"):
        prepared_from(X, y, np.zeros(50))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_rows(n):
    X, y, _ = table(n, weighted=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = prepared_from(X, y)
    assert found.n_rows == n
    assert np.isfinite(found.covariance).all()
    if n > 1:
        assert np.isfinite(searched(found).evidence)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "columns", [[0, 0, 1], [0], [0, 1, 2, 0, 1, 2]], ids=["duplicates", "one", "twice"]
)
def test_columns_that_repeat_or_are_alone(columns):
    X, y, _ = table(600, weighted=False)
    state = searched(prepared_from(X[:, columns], y))
    assert np.isfinite(state.evidence)
    if len(columns) > 1:
        assert state.noise_variance < 0.1


@pytest.mark.usefixtures("kept")
def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((15, 40))
    for with_relevance in (True, False):
        found = prepared_from(X, X[:, 0])
        state = pursue(
            found.levels,
            Frame.of(found.covariance, with_relevance),
            Options(Matern52(), n_starts=3),
            np.random.default_rng(1),
        ).state
        assert np.isfinite(state.evidence)


@pytest.mark.usefixtures("stream")
def test_few_rows_of_weight_in_a_long_stream(monkeypatch):
    """A sample of all rows would have none of them."""
    monkeypatch.setattr(module, "FIRST_ROWS", 20)
    X, y, _ = table(4000)
    weight = np.zeros(4000)
    weight[[10, 3000, 3007, 3999]] = [1.0, 2.0, 1.0, 2.0]
    found = prepared_from(X, y, weight)
    (level,) = found.levels
    assert found.n_rows == level.rows.n_rows == len(level.search) == 4
    np.testing.assert_allclose(level.search.weight, weight[weight > 0] / 1.5)
    np.testing.assert_allclose(
        np.average(level.search.target, weights=level.search.weight), 0, atol=1e-12
    )
