"""Columns made of those of another source are the same wherever and however its rows come."""

import pickle
from contextlib import nullcontext
from dataclasses import dataclass

import dask.array as da
import distributed
import numpy as np
import pandas as pd
import pytest

from dsgp.additive import BinEquations, RowEquations
from dsgp.compute import over_blocks, over_chunks
from dsgp.errors import DataError
from dsgp.kernels import Matern52
from dsgp.models.gaussian import rows as gaussian_rows
from dsgp.models.gaussian.rows import prepare
from dsgp.models.rows.columns import plain_terms
from dsgp.rows.sources import MappedSource, Rows, Source, source_of

N_ROWS = 157
NAMES = ("u", "v", "w")


@dataclass(frozen=True)
class Projection:
    """Three combinations of two columns, each row by itself."""

    scale: float = 1.0

    def __call__(self, columns):
        a, b = columns
        return [self.scale * (a + b), self.scale * (a - b), self.scale * a]


def example():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.standard_normal((N_ROWS, 2)), columns=["a", "b"]).assign(
        y=rng.standard_normal(N_ROWS), weight=rng.uniform(0.0, 2.0, N_ROWS)
    )


def in_memory(table, tmp_path):
    return source_of(table, "y", "weight")


def of_arrays(table, tmp_path):
    return source_of(
        table[["a", "b"]].to_numpy(), table["y"].to_numpy(), table["weight"].to_numpy()
    )


def of_dask(table, tmp_path):
    values = table.to_numpy()
    return source_of(
        da.from_array(values[:, :2], chunks=(31, 1)),
        da.from_array(values[:, 2], chunks=50),
        values[:, 3],
    )


def of_parquet(table, tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    for number, rows in enumerate((slice(0, 40), slice(40, 41), slice(41, N_ROWS))):
        table[rows].to_parquet(folder / f"part.{number}.parquet", row_group_size=20)
    return source_of(folder, "y", "weight")


SOURCES = {
    "frame": in_memory,
    "arrays": of_arrays,
    "dask": of_dask,
    "parquet": of_parquet,
}


@pytest.fixture(params=SOURCES)
def mapped(request, tmp_path, monkeypatch):
    monkeypatch.setattr("dsgp.rows.sources.stream.BLOCK_ROWS", 64)
    monkeypatch.setattr("dsgp.rows.sources.parts.BLOCK_ROWS", 64)
    return MappedSource(SOURCES[request.param](example(), tmp_path), NAMES, Projection())


@pytest.fixture(scope="module", params=[None, False, True], ids=["here", "threads", "processes"])
def client(request):
    if request.param is None:
        yield None
        return
    with distributed.Client(
        processes=request.param, dashboard_address=None, n_workers=2, threads_per_worker=1,
        set_as_default=False,
    ) as client:  # fmt: skip
        yield client


@pytest.fixture
def anywhere(client):
    """In the caller, or on the workers of a cluster."""
    with nullcontext() if client is None else client.as_current():
        yield


def require_mapped(rows: Rows) -> None:
    table = example()
    for values, expected in zip(rows.columns, Projection()([table["a"], table["b"]]), strict=True):
        np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(rows.y, table["y"])
    np.testing.assert_array_equal(rows.weight, table["weight"])


def as_it_is(rows):
    return rows


def test_names_are_new_and_the_rest_is_that_of_the_source(mapped: Source):
    assert mapped.names == NAMES
    own = mapped.source
    for attribute in ("named", "n_rows", "target", "weighted", "in_memory"):
        assert getattr(mapped, attribute) == getattr(own, attribute)
    for _ in range(2):  # every pass gives the same
        require_mapped(Rows.join([load() for load in mapped.chunks()]))


def test_loaders_can_be_pickled_or_are_delayed(mapped):
    rows = [
        load.delayed.compute() if hasattr(load, "delayed") else pickle.loads(pickle.dumps(load))()
        for load in mapped.chunks()
    ]
    assert len(rows) > 2
    require_mapped(Rows.join(rows))


@pytest.mark.usefixtures("anywhere")
def test_chunks_and_blocks_are_mapped_where_they_are_loaded(mapped):
    chunks = list(over_chunks(mapped.chunks(), as_it_is))
    require_mapped(Rows.join(chunks))
    blocks = list(over_blocks(mapped.chunks(), list(map(len, chunks)), 50, as_it_is))
    assert [len(block) for block in blocks] == [50, 50, 50, 7]
    require_mapped(Rows.join(blocks))


def test_maps_of_maps(mapped):
    twice = MappedSource(mapped, ("u", "x"), lambda columns: [columns[0], columns[1] + columns[2]])
    rows = Rows.join(list(over_chunks(twice.chunks(), as_it_is)))
    table = example()
    u, v, w = Projection()([table["a"], table["b"]])
    for values, expected in zip(rows.columns, (u, v + w), strict=True):
        np.testing.assert_array_equal(values, expected)


def test_few_rows_in_memory_keep_every_distinct_value(mapped, monkeypatch):
    terms = plain_terms(dict.fromkeys(NAMES, Matern52()))
    few = prepare(mapped, terms, "auto")
    assert few.names == NAMES
    assert isinstance(few.equations, RowEquations) == mapped.in_memory
    monkeypatch.setattr(gaussian_rows, "EXACT_INPUTS", 3 * N_ROWS - 1)
    many = prepare(mapped, terms, "auto")
    assert isinstance(many.equations, BinEquations)


def test_no_column_at_all_is_still_so_many_rows():
    nothing = MappedSource(source_of(example(), "y"), (), lambda columns: [])
    (load,) = nothing.chunks()
    assert len(load()) == N_ROWS
    assert load().n_rows == N_ROWS


def test_what_float64_cannot_hold_is_named():
    source = source_of(np.array([[1e300, 0.0], [0.0, 1.0]]), [0.0, 1.0])
    (load,) = MappedSource(source, NAMES, Projection(1e10)).chunks()
    with np.errstate(over="ignore"), pytest.raises(DataError, match="'u' goes beyond"):
        load()


def test_a_missing_input_stays_missing():
    source = source_of(np.array([[np.nan, 0.0], [0.0, 1.0]]), [0.0, 1.0], missing="ignore")
    (load,) = MappedSource(source, NAMES, Projection()).chunks()
    np.testing.assert_array_equal(np.isnan(load().columns[1]), [True, False])
