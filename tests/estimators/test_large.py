"""Tables that stream: bins, sources, schedulers, memory, missing inputs, width."""

import json
import subprocess
import sys
import warnings

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pytest
import zarr

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import DataError, DataWarning, MemoryLimitError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72
from dsgp.models.gaussian import rows as gaussian_rows
from dsgp.models.rows import bins as bins_module
from dsgp.models.rows import budget

FITTED = ("noise_variance_", "log_marginal_likelihood_", "intercept_", "learner_trace_")


def rows(n=3000, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n),
            "dose": rng.exponential(0.01, n),
            "level": rng.integers(0, 5, n).astype(float),
        }
    )
    f = np.sin(X["age"] / 6) + 40 * X["dose"] * np.exp(-60 * X["dose"]) + 0.3 * X["level"]
    return X, (f + noise * rng.standard_normal(n)).rename("y")


def same(first, second):
    for name in FITTED:
        assert getattr(first, name) == getattr(second, name), name
    for ours, theirs in zip(first.terms_, second.terms_, strict=True):
        assert ours.kernel == theirs.kernel
        np.testing.assert_array_equal(ours.cells.points, theirs.cells.points)
        np.testing.assert_array_equal(ours.dual, theirs.dual)


# ---- bins


@pytest.mark.parametrize("make", [Matern52, Matern72])
@pytest.mark.parametrize("bins", [64, 256])
def test_bins_agree_with_every_distinct_value_within_the_stated_error(make, bins):
    X, y = rows()
    exact = AdditiveGPRegressor(make(), bins=None).fit(X, y)
    binned = AdditiveGPRegressor(make(), bins=bins).fit(X, y)
    assert exact.bin_error_ == exact.bin_noise_ == 0
    assert 0 < binned.bin_error_ < 0.1
    kept = AdditiveGPRegressor(
        terms=exact.kernels_, noise_variance=exact.noise_variance_, learner=None, bins=bins
    ).fit(X, y)
    mean, std = exact.predict(X, return_std=True)
    # What inputs within a bin add to the noise moves the mean by its share of the std, at most.
    allowed = binned.bin_error_ + np.sqrt(binned.bin_noise_)
    assert np.sqrt(np.mean((kept.predict(X) - mean) ** 2 / std**2)) < allowed
    assert binned.noise_variance_ == pytest.approx(exact.noise_variance_, rel=0.02)
    assert np.median(binned.predict(X, return_std=True)[1] / std) == pytest.approx(1, abs=0.07)


@pytest.mark.parametrize("learner", ["marginal", None])
def test_bins_widen_standard_deviations_beside_noise_that_is_given(learner):
    # The posterior variance of binned rows is that of rows with the noise and the slopes in bins.
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (4000, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(4000)
    learned = AdditiveGPRegressor(bins=32).fit(X, y)
    assert learned.bin_noise_ > 0.1
    terms = None if learner else learned.kernels_
    options = {"terms": terms, "learner": learner, "fixed_noise": True, "bins": 32}
    given = AdditiveGPRegressor(noise_variance=learned.noise_variance_, **options).fit(X, y)
    assert given.bin_noise_ == pytest.approx(learned.bin_noise_, rel=0.03)
    assert given.noise_variance_ == pytest.approx(learned.noise_variance_, rel=1e-12)
    std = [model.predict(X[:200], return_std=True)[1] for model in (learned, given)]
    np.testing.assert_allclose(std[1], std[0], rtol=0.01)
    # Those of a new observation have the noise that was given, and no more.
    total = given.predict(X[:200], return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(total**2 - std[1] ** 2, learned.noise_variance_, rtol=1e-10)


def test_few_distinct_values_are_kept_whatever_the_bins():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 40, (2000, 3)) / 7
    y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(2000)
    exact = AdditiveGPRegressor(bins=None).fit(X, y)
    binned = AdditiveGPRegressor(bins=64).fit(X, y)
    assert binned.bin_error_ == 0
    np.testing.assert_allclose(binned.predict(X), exact.predict(X), atol=1e-3)
    assert "every distinct value is a point" in binned.summary()


def test_auto_takes_more_bins_until_their_error_is_small(monkeypatch):
    monkeypatch.setattr(gaussian_rows, "EXACT_INPUTS", 0)
    monkeypatch.setattr(bins_module, "AUTO_BINS", dict.fromkeys((1, 2, 3, 4), 16))
    X, y = rows()
    model = AdditiveGPRegressor().fit(X, y)
    assert max(len(term.cells) for term in model.terms_) > 16
    assert model.bin_error_ <= 0.1
    assert model.bin_noise_ <= 0.1  # asked for at most 0.05, from an estimate on 16 bins


def test_too_few_bins_are_warned_of():
    X, y = rows()
    with pytest.warns(DataWarning, match=r"bins change the function .* bins=None"):
        AdditiveGPRegressor(Matern32(), bins=6).fit(X, y)


def test_heavy_tails_do_not_eat_the_resolution(monkeypatch):
    monkeypatch.setattr(gaussian_rows, "EXACT_INPUTS", 0)
    rng = np.random.default_rng(0)
    x = rng.standard_t(1.2, 20_000)
    y = np.sin(2 * np.arctan(x) * 4) + 0.1 * rng.standard_normal(len(x))
    model = AdditiveGPRegressor(terms={"x0": Matern52(0.5, 1.0)}).fit(x[:, None], y)
    inner = np.linspace(-2, 2, 200)
    f = np.sin(2 * np.arctan(inner) * 4)
    assert np.sqrt(np.mean((model.predict(inner[:, None]) - f) ** 2)) < 0.02


@pytest.mark.parametrize("bins", [1, 0, 2**16, 3.5, True, "many"])
def test_bins_that_are_none(bins):
    X, y = rows(50)
    with pytest.raises(dsgp.errors.ParameterError, match='bins must be "auto", None or an integer'):
        AdditiveGPRegressor(bins=bins).fit(X, y)


# ---- sources, chunkings, schedulers


@pytest.fixture(scope="module")
def in_memory():
    X, y = rows()
    return AdditiveGPRegressor(bins=100).fit(X, y)


def stored(kind, folder, X, y):
    table = X.assign(y=y)
    if kind == "parquet":
        for part, start in enumerate(range(0, len(table), 700)):
            table[start : start + 700].to_parquet(folder / f"part.{part}.parquet", index=False)
        return folder
    if kind == "csv":
        for part, start in enumerate(range(0, len(table), 1100)):
            table[start : start + 1100].to_csv(folder / f"rows-{part}.csv", index=False)
        return str(folder / "*.csv")
    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    for name in table:
        group.create_array(name, data=table[name].to_numpy(), chunks=(613,))
    return folder / "rows.zarr"


@pytest.mark.parametrize("kind", ["parquet", "csv", "zarr"])
def test_a_table_on_disk_gives_the_same_model(in_memory, tmp_path, kind):
    path = stored(kind, tmp_path, *rows())
    model = AdditiveGPRegressor(bins=100).fit(path, "y")
    same(model, in_memory)
    assert list(model.feature_names_in_) == ["age", "dose", "level"]
    np.testing.assert_array_equal(model.predict(path), in_memory.predict(rows()[0]))


@pytest.mark.parametrize("chunk", [3000, 1000, 177])
def test_a_dask_collection_gives_the_same_model(in_memory, chunk):
    X, y = rows()
    array = da.from_array(X.to_numpy(), chunks=(chunk, 2))
    same(AdditiveGPRegressor(bins=100).fit(array, da.from_array(y.to_numpy(), chunk)), in_memory)
    frame = dd.from_pandas(X.assign(y=y), chunksize=chunk)
    same(AdditiveGPRegressor(bins=100).fit(frame, "y"), in_memory)


def test_logical_blocks_and_threads_change_no_digit(in_memory, monkeypatch):
    X, y = rows()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    monkeypatch.setattr("dsgp.additive.streaming.LOGICAL_BLOCK", 501)
    models = []
    for threads, chunk in ((1, 3000), (2, 400), (2, 777)):
        monkeypatch.setattr("dsgp.compute.CPU_COUNT", threads)
        monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0 if threads > 1 else np.inf)
        parts = [da.from_array(v, chunks=chunk) for v in (X.to_numpy(), y.to_numpy(), weight)]
        models.append(AdditiveGPRegressor(bins=100).fit(*parts))
    same(models[0], models[1])
    same(models[0], models[2])


def test_a_distributed_client_changes_no_digit(in_memory):
    X, y = rows()
    with (
        distributed.Client(
            processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as _,
    ):
        array = da.from_array(X.to_numpy(), chunks=(450, 3))
        same(AdditiveGPRegressor(bins=100).fit(array, y.to_numpy()), in_memory)
        mean = in_memory.predict(array)
        np.testing.assert_array_equal(mean.compute(), in_memory.predict(X))


def test_predictions_of_a_dask_collection_are_lazy(in_memory):
    X, _ = rows()
    expected = in_memory.predict(X, return_std=True)
    for lazy in (
        da.from_array(X.to_numpy(), chunks=(800, 3)),
        dd.from_pandas(X, npartitions=3),
    ):
        found = in_memory.predict(lazy, return_std=True)
        for ours, theirs in zip(found, expected, strict=True):
            assert isinstance(ours, da.Array)
            np.testing.assert_allclose(ours.compute(), theirs, rtol=1e-12)


def test_codes_on_disk_give_the_same_model(monkeypatch):
    X, y = rows()
    monkeypatch.setattr(bins_module, "BIN_TABLE_BYTES", 0.0)
    in_memory = AdditiveGPRegressor(bins=100).fit(X, y)
    monkeypatch.setattr(bins_module, "plan_memory", lambda *_: True)
    on_disk = AdditiveGPRegressor(bins=100).fit(X, y)
    same(on_disk, in_memory)
    assert type(on_disk.model_.latent.equations.table.codes) is not np.ndarray
    np.testing.assert_array_equal(
        on_disk.sample(X[:5], 2, random_state=0), in_memory.sample(X[:5], 2, random_state=0)
    )


def test_a_model_with_codes_on_disk_is_saved(monkeypatch, tmp_path):
    X, y = rows()
    monkeypatch.setattr(bins_module, "BIN_TABLE_BYTES", 0.0)
    monkeypatch.setattr(bins_module, "plan_memory", lambda *_: True)
    model = AdditiveGPRegressor(bins=100).fit(X, y)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(
        loaded.predict(X, return_std=True), model.predict(X, return_std=True)
    )


@pytest.mark.parametrize("bins", [100, None])
def test_a_binned_model_is_saved_whole(tmp_path, bins):
    X, y = rows()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    model = AdditiveGPRegressor(bins=bins).fit(X, y, weight)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    same(loaded, model)
    assert loaded.summary() == model.summary()
    np.testing.assert_allclose(loaded.covariance(X[:4]), model.covariance(X[:4]), atol=1e-10)
    np.testing.assert_allclose(
        loaded.sample(X[:4], 2, random_state=0), model.sample(X[:4], 2, random_state=0)
    )


@pytest.mark.parametrize("bins", [60, None])
def test_samples_and_covariances_of_bins_agree_with_their_std(bins):
    X, y = rows(1000)
    model = AdditiveGPRegressor(bins=bins).fit(X, y)
    new = X[:6]
    std = model.predict(new, return_std=True)[1]
    covariance = model.covariance(new)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=0.03)
    drawn = model.sample(new, 600, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), model.predict(new), atol=0.2 * std.max())
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.15)


def test_loaded_bins_predict_to_the_bit(tmp_path):
    X, y = rows()
    model = AdditiveGPRegressor(bins=20).fit(X, y)
    model.save(tmp_path / "m.zarr")
    np.testing.assert_array_equal(
        dsgp.load(tmp_path / "m.zarr").predict(X, return_std=True),
        model.predict(X, return_std=True),
    )


def test_weights_whose_logs_cancel_count_in_the_likelihood():
    X, y = rows(1000)
    weight = np.tile([0.5, 2.0], 500)
    kernels = {"age": Matern52(10.0, 1.0), "dose": Matern52(0.02, 1.0), "level": Matern52(2.0, 1.0)}
    exact, binned = (
        AdditiveGPRegressor(terms=kernels, noise_variance=0.04, learner=None, bins=bins).fit(
            X, y, weight
        )
        for bins in (None, 1000)
    )
    assert binned.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, abs=0.1)


def test_fixed_noise_is_kept_with_bins():
    X, y = rows()
    model = AdditiveGPRegressor(bins=10, noise_variance=0.04, fixed_noise=True)
    assert model.fit(X, y).noise_variance_ == pytest.approx(0.04)


def test_too_little_noise_for_float64_is_refused():
    X, y = rows(100_000)
    with pytest.raises(dsgp.errors.ParameterError, match=r"float64 .* raise noise_variance"):
        AdditiveGPRegressor(
            Matern52(10.0, 1.0), bins=64, noise_variance=1e-13, fixed_noise=True
        ).fit(X, y)


def test_covariances_do_not_warn_beside_a_large_prior():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (4000, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.2 * rng.standard_normal(4000)
    model = AdditiveGPRegressor().fit(X, y)
    points = np.array([[0, 1, 0.2], [0.5, 0.5, 0.5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        covariance = model.covariance(points)
        drawn = model.sample(points, 400, random_state=0)
    std = model.predict(points, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=0.02)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.15)


def test_a_frame_and_its_target_read_from_parquet(in_memory, tmp_path):
    frame = dd.read_parquet(str(stored("parquet", tmp_path, *rows())))
    model = AdditiveGPRegressor(bins=100).fit(frame[["age", "dose", "level"]], frame["y"])
    same(model, in_memory)


def test_a_bad_block_is_named_with_its_column():
    X, y = rows()
    values = X.to_numpy().copy()
    values[1700, 1] = np.nan
    with pytest.raises(DataError, match=r"block 2 of the dask array.*x1.*row 100"):
        AdditiveGPRegressor(bins=50).fit(da.from_array(values, chunks=(800, 3)), y.to_numpy())


def test_an_empty_or_weightless_stream_is_refused():
    X, y = rows(100)
    array = da.from_array(X.to_numpy(), chunks=(30, 3))
    with pytest.raises(DataError, match="zero in every row"):
        AdditiveGPRegressor().fit(array, y.to_numpy(), da.zeros(100, chunks=30))
    frame = dd.from_pandas(X.assign(y=y), npartitions=2)
    with pytest.raises(DataError, match=r"0 sample\(s\)"):
        AdditiveGPRegressor().fit(frame[frame["age"] > 1e9], "y")


# ---- missing inputs


@pytest.mark.parametrize("bins", [None, 2000])
def test_a_missing_input_adds_nothing_through_its_term(bins):
    X, y = rows(300)
    gaps = np.random.default_rng(3).uniform(size=X.shape) < 0.2
    gaps[0] = True  # a row without any input
    X = X.mask(gaps)
    kernels = {
        "age": Matern52(10.0, 1.0),
        "dose": Matern32(0.02, 0.5),
        "level": Matern12(2.0, 0.3),
    }
    options = {"terms": kernels, "noise_variance": 0.01, "learner": None, "tol": 1e-8}
    with pytest.raises(DataError, match="'age' contains NaN"):
        AdditiveGPRegressor(**options).fit(X, y)
    model = AdditiveGPRegressor(**options, missing="ignore", bins=bins).fit(X, y)

    def prior(a, b):
        total = np.zeros((len(a), len(b)))
        for name, kernel in kernels.items():
            left, right = a[name].to_numpy(), b[name].to_numpy()
            seen = np.ix_(~np.isnan(left), ~np.isnan(right))
            total[seen] += kernel.covariance(left[~np.isnan(left)], right[~np.isnan(right)])
        return total

    new = rows(20, seed=5)[0]
    new.iloc[3, 0] = np.nan
    new.iloc[7] = np.nan
    marginal = prior(X, X) + 0.01 * np.eye(len(y))
    # The constant is one of the unknowns: generalised least squares.
    ones = np.linalg.solve(marginal, np.ones(len(y)))
    constant = ones @ y / ones.sum()
    mean = constant + prior(new, X) @ np.linalg.solve(marginal, y - constant)
    unseen = 1 - prior(new, X) @ ones
    covariance = prior(new, new) - prior(new, X) @ np.linalg.solve(marginal, prior(X, new))
    covariance += np.outer(unseen, unseen) / ones.sum()
    found, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(std, np.sqrt(np.maximum(np.diag(covariance), 0)), atol=2e-3)
    np.testing.assert_allclose(model.covariance(new), covariance, atol=1e-5)
    assert model.n_missing_ == {name: int(X[name].isna().sum()) for name in X}
    parts = model.components(new)
    total = parts["mean"].sum("term") + parts["intercept"]
    np.testing.assert_allclose(total, found, atol=1e-9)
    assert parts["std"].isel(row=7).max() == 0
    assert "missing inputs" in model.summary()


def test_a_column_without_any_value_is_left_out():
    X, y = rows(200)
    X = X.assign(nothing=np.nan)
    for bins in (None, 50):
        with pytest.warns(DataWarning, match="'nothing'"):
            model = AdditiveGPRegressor(missing="ignore", bins=bins).fit(X, y)
        assert model.constant_columns_ == ["nothing"]


# ---- memory, width, import

MEASURE = """
import sys, json
import numpy as np, dask.array as da
from dsgp import AdditiveGPRegressor

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

n, d, bins, chunk = json.loads(sys.argv[1])
def block(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((chunk, d + 1))
from dask import delayed
table = da.concatenate(
    [da.from_delayed(delayed(block)(i), (chunk, d + 1), float) for i in range(n // chunk)]
)
y = np.sin(table[:, 0]) + table[:, 1] / 2 + 0.1 * table[:, d]
model = AdditiveGPRegressor(bins=bins).fit(table[:, :d], y)
model.predict(np.zeros((10, d)), return_std=True)
print(peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("n", "d", "bins"),
    [(600_000, 6, "auto"), (100_000, 40, 256), (10_000, 8, None)],
    ids=["tables", "codes", "exact"],
)
def test_memory_stays_below_its_estimate(n, d, bins):
    chunk = min(n, 100_000)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURE, json.dumps([n, d, bins, chunk])],
        capture_output=True,
        text=True,
        check=True,
    )
    if bins is None:
        estimate = budget.exact_bytes(n, d)
    else:
        size = 512 if bins == "auto" else bins
        cuts = [range(size)] * d
        with_pairs = budget.pair_bytes(cuts) <= bins_module.BIN_TABLE_BYTES
        assert with_pairs == (bins == "auto")
        estimate = budget.stream_bytes(n, d, cuts, with_pairs, weighted=False)
    assert int(found.stdout) <= estimate


def test_what_cannot_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr("dsgp.memory.available", lambda: 10**8)
    X, y = rows(2000)
    read = []
    array = da.from_array(X.to_numpy(), chunks=(500, 3)).map_blocks(
        lambda block: read.append(1) or block, dtype=float, meta=np.empty((0, 0))
    )
    with pytest.raises(MemoryLimitError, match=r"needs about .* GiB .* available"):
        AdditiveGPRegressor(bins=50).fit(array, y.to_numpy())
    assert not read
    with pytest.raises(MemoryLimitError, match="bins='auto'"):
        AdditiveGPRegressor(bins=None).fit(X, y)


def test_a_hundred_columns():
    """Ten matter; the others shrink to nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 100))
    y = np.sin(2 * X[:, :10] + np.arange(10)).sum(axis=1) + 0.3 * rng.standard_normal(4000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AdditiveGPRegressor(bins=64).fit(X, y)
    share = np.array([term.explained_variance for term in model.terms_]) / model.target_variance_
    assert share[:10].min() > 0.02
    assert share[10:].max() < 2e-3
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.1)
    assert "nodes per term" in model.summary()


def test_importing_the_package_alone_is_light():
    code = "import sys, dsgp; print(*{'sklearn', 'zarr', 'dask'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
    assert "AdditiveGPRegressor" in dir(dsgp)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        dsgp.nonsense  # noqa: B018
