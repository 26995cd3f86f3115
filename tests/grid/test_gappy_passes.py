"""Fields with gaps on disk: tiles with halos that see everything are the field at once."""

import numpy as np
import pytest
import xarray as xr

from dsgp.errors import ConvergenceWarning, MemoryLimitError, StorageError
from dsgp.grid.covariance import SeparableSum
from dsgp.grid.missing import CellSystem
from dsgp.grid.passes import StoredField, Tiles, gappy, gappy_posterior_to_store, halo_of, tasks
from dsgp.grid.passes.gappy import plan_tiles
from dsgp.grid.passes.source import Layout
from dsgp.kernels import Matern12, Matern32, Periodic

SHAPE, CHUNKS = (8, 9, 10), (4, 3, 5)
POINTS = tuple(np.arange(float(n)) for n in SHAPE)
TERMS = (
    (Matern32(3.0, 2.0), Matern32(4.0, 1.0), Matern32(4.0, 1.0)),
    (Matern12(1.0, 0.2), Matern12(1.0, 1.0), Matern12(1.0, 1.0)),
)
NOISE = 0.1


@pytest.fixture
def y():
    random = np.random.default_rng(0)
    values = random.standard_normal(SHAPE)
    values[random.random(SHAPE) < 0.4] = np.nan
    values[:, :2, :2] = np.nan
    return values


def put(path, y):
    xr.Dataset({"v": (("a", "b", "c"), y)}).to_zarr(
        path, encoding={"v": {"chunks": CHUNKS}}, consolidated=False
    )
    return str(path)


def tiles(halo, points=POINTS):
    return Tiles(points, TERMS, NOISE, halo, n_neighbours=400, tol=1e-10, max_iter=500, seed=0)


def at_once(y):
    system = CellSystem(
        SeparableSum(POINTS, TERMS), ~np.isnan(y), NOISE, n_neighbours=400, tol=1e-10
    )
    mean = system.mean(system.dual(np.nan_to_num(y - 1.0)).solution) + 1.0
    return mean, np.sqrt(system.local_variance())


def small_memory():
    return 5000 * np.prod(SHAPE) * 2


def test_halos_that_see_all_give_the_field_at_once(tmp_path, y):
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    report = gappy_posterior_to_store(
        source, tiles(SHAPE), 1.0, tmp_path / "out.zarr", memory=small_memory()
    )
    mean, std = at_once(y)
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as out:
        np.testing.assert_allclose(out["mean"], mean, atol=1e-6)
        np.testing.assert_allclose(out["std"], std, rtol=0.05)  # other candidates of neighbours
    assert report.tile_error["mean"] == pytest.approx(0.0, abs=1e-6)


def test_an_axis_stored_from_its_end_is_one_of_negated_points(tmp_path, y):
    flipped = StoredField(put(tmp_path / "in.zarr", y[:, ::-1]), "v", (False, True, False), True)
    points = (POINTS[0], -POINTS[1][::-1], POINTS[2])
    gappy_posterior_to_store(
        flipped, tiles(SHAPE, points), 1.0, tmp_path / "out.zarr", memory=small_memory()
    )
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as out:
        np.testing.assert_allclose(out["mean"].values[:, ::-1], at_once(y)[0], atol=1e-6)


def test_a_small_halo_is_reported_and_the_domain_stays_empty(tmp_path, y):
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    inside = ~np.isnan(y).all(axis=0, keepdims=True)
    report = gappy_posterior_to_store(
        source,
        tiles((1, 1, 1)),
        1.0,
        tmp_path / "out.zarr",
        domain=inside,
        memory=5000 * 6 * 5 * 7,
        include_noise=True,
    )
    assert 0.0 < report.tile_error["mean"] < 1.0
    assert report.plan.n_tasks > 8
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as out:
        np.testing.assert_array_equal(np.isnan(out["mean"].values), np.broadcast_to(~inside, SHAPE))
        assert float(out["std"].min()) > np.sqrt(NOISE)


def test_interrupted_it_goes_on_to_the_same_bits(tmp_path, y, monkeypatch):
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    options = {"memory": 5000 * 6 * 5 * 7}
    model = tiles((1, 1, 1))
    gappy_posterior_to_store(source, model, 1.0, tmp_path / "whole.zarr", **options)
    done = []
    write = tasks._write

    def breaking(*args):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(args)
        write(*args)

    monkeypatch.setattr(tasks, "_write", breaking)
    with pytest.raises(KeyboardInterrupt):
        gappy_posterior_to_store(source, model, 1.0, tmp_path / "out.zarr", **options)
    monkeypatch.setattr(tasks, "_write", write)
    other = Tiles(POINTS, TERMS[:1], NOISE, (1, 1, 1), 400, 1e-10, 500, 0)
    with pytest.raises(StorageError, match="kernels"):
        gappy_posterior_to_store(source, other, 1.0, tmp_path / "out.zarr", **options)
    report = gappy_posterior_to_store(source, model, 1.0, tmp_path / "out.zarr", **options)
    assert report.n_resumed > 0
    with (
        xr.open_zarr(tmp_path / "whole.zarr", consolidated=False) as one,
        xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as two,
    ):
        xr.testing.assert_identical(one, two)


def test_a_tile_without_an_observation_is_the_prior(tmp_path, y):
    y[:] = np.nan
    y[0, 0, 0] = 5.0
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    gappy_posterior_to_store(
        source, tiles((0, 0, 0)), 1.0, tmp_path / "out.zarr", memory=5000 * np.prod(CHUNKS)
    )
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as out:
        assert float(out["mean"][-1, -1, -1]) == 1.0
        assert float(out["std"][-1, -1, -1]) == pytest.approx(np.sqrt(2.2))
        assert float(out["mean"][0, 0, 0]) > 4.0


def test_tiles_are_whole_chunks_within_the_memory():
    layout = Layout(("a", "b", "c"), (400, 300, 300), (10, 50, 50), 8)
    plan = plan_tiles(layout, (4, 8, 8), 2e8, "float32")
    assert plan.task_bytes <= 2e8
    assert all(b % c == 0 for b, c in zip(plan.passes[0].block, (10, 50, 50), strict=True))
    with pytest.raises(MemoryLimitError, match="a tile of one chunk"):
        plan_tiles(layout, (4, 8, 8), 1e6, "float32")


def test_halos_reach_over_the_longest_lengthscale_within_limits():
    assert halo_of(POINTS, TERMS) == (3, 4, 4)
    long = tuple(np.arange(100.0) * step for step in (1.0, 0.1, 0.01))
    assert halo_of(long, TERMS) == (3, 24, 24)


def test_tiles_of_land_alone_are_written_and_stay_empty(tmp_path, y):
    y[:, 3:, 5:] = np.nan
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    inside = ~np.isnan(y).all(axis=0, keepdims=True)
    gappy_posterior_to_store(
        source, tiles((1, 1, 1)), 1.0, tmp_path / "out.zarr", domain=inside, memory=5000 * 6 * 5 * 7
    )
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as out:
        np.testing.assert_array_equal(np.isnan(out["mean"]), np.broadcast_to(~inside, SHAPE))


def test_a_tile_that_does_not_converge_is_reported(tmp_path, y):
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    model = Tiles(POINTS, TERMS, NOISE, (1, 1, 1), n_neighbours=2, tol=1e-12, max_iter=1, seed=0)
    with pytest.warns(ConvergenceWarning, match="tiles"):
        report = gappy_posterior_to_store(source, model, 1.0, tmp_path / "out.zarr")
    assert report.residual > 1e-12


def test_a_periodic_axis_is_seen_whole():
    round_a_circle = Periodic(10.0, 2.0, 1.0)
    terms = [(TERMS[0][0], TERMS[0][1], round_a_circle)]
    halo = halo_of(POINTS, terms)
    assert halo[2] == 9
    layout = Layout(("a", "b", "c"), SHAPE, CHUNKS, 8)
    assert plan_tiles(layout, halo, 1e6, "float64").passes[0].block[2] == 10


def test_the_check_of_a_tile_takes_no_more_than_a_task(tmp_path, y):
    source = StoredField(put(tmp_path / "in.zarr", y), "v", gaps=True)
    model = tiles((2, 1, 1))
    plan = plan_tiles(source.layout, model.halo, 5000.0 * 8 * 5 * 7, "float64", 400)
    region = gappy._checked(source, model, plan)
    assert np.isfinite(source.read_stored(region)).any()
    wide = [min(p.stop - p.start + 4 * h, n) for p, h, n in zip(region, (2, 1, 1), SHAPE)]  # noqa: B905
    assert np.prod(wide) * 4920 <= plan.task_bytes
