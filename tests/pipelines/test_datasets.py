"""Data sets: the same numbers as their definition, and errors that say what to do."""

import importlib.util
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

from dsgp.errors import DataError
from pipelines.datasets import additive_functions, load


@pytest.fixture(scope="module")
def peerdata(shared):
    """The module that defines synth8d."""
    path = shared / "bench" / "peers" / "peerdata.py"
    if not path.is_file():
        pytest.skip("needs ../shared/bench/peers/peerdata.py")
    spec = importlib.util.spec_from_file_location("peerdata", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "age": rng.uniform(20, 80, 50),
            "dose": rng.standard_normal(50).astype(np.float32),
            "site": rng.choice(["a", "b"], 50),
            "response": rng.standard_normal(50),
        }
    )


# ---- synth8d


@pytest.mark.parametrize(("n", "n_test", "seed"), [(8000, 1000, 2), (300, 200, 7)])
def test_synth8d_is_the_shared_definition(peerdata, n, n_test, seed):
    split = load("synth8d", n=n, n_test=n_test, seed=seed)
    expected = peerdata.j2(n, n_test=n_test, seed=seed)
    np.testing.assert_array_equal(split.X_train, expected["X"])
    np.testing.assert_array_equal(split.X_test, expected["Xt"])
    # the functions are sums of 1400 cosines, in another order
    for ours, theirs in [("y_train", "y"), ("y_test", "yt"), ("f_train", "f"), ("f_test", "ft")]:
        np.testing.assert_allclose(getattr(split, ours), expected[theirs], rtol=0, atol=1e-11)
    assert split.noise_variance == expected["noise_var"]


def test_synth8d_functions_have_matern72_covariance():
    grid, functions = additive_functions(n_functions=400, seed=0)
    lag = 341  # about one lengthscale
    r = np.sqrt(7) * (grid[lag] - grid[0])
    matern = (1 + r + 0.4 * r**2 + r**3 / 15) * np.exp(-r)
    estimate = np.mean(functions[:, :-lag] * functions[:, lag:])
    # 400 paths of about 6 independent stretches: standard error about 0.02
    assert np.mean(functions**2) == pytest.approx(1, abs=0.08)
    assert estimate == pytest.approx(matern, abs=0.08)


def test_synth8d_defaults_and_noise():
    split = load("synth8d")
    assert split.X_train.shape == (8000, 8)
    assert split.X_test.shape == (100_000, 8)
    assert np.var(split.y_test - split.f_test) == pytest.approx(0.01, rel=0.03)
    assert split.target == "y"


# ---- shipped and stored sets


def test_diabetes_is_split_by_the_seeded_permutation():
    split = load("diabetes", seed=3)
    frame = load_diabetes(as_frame=True, scaled=False).frame
    order = np.random.default_rng(3).permutation(442)
    np.testing.assert_array_equal(split.y_train, frame["target"].to_numpy()[order[:353]])
    pd.testing.assert_frame_equal(split.X_test, frame.drop(columns="target").iloc[order[353:]])
    assert split.f_train is None
    assert split.noise_variance is None


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_columns"),
    [
        ("pumadyn8fm", 7168, 1024, 8),
        ("pumadyn8nm", 7168, 1024, 8),
        ("pumadyn32nm", 7168, 1024, 32),
        ("elevators", 8752, 7847, 18),
        ("kin40k", 10000, 30000, 8),
    ],
)
def test_stored_sets_have_the_paper_s_splits(data_dir, name, n_train, n_test, n_columns):
    split = load(name, data_dir=data_dir)
    assert split.name == name
    assert split.X_train.shape == (n_train, n_columns)
    assert split.X_test.shape == (n_test, n_columns)
    assert (split.X_train.dtypes == np.float64).all()
    assert split.y_train.dtype == split.y_test.dtype == np.float64
    # every row once, and each with its own target
    with np.load(data_dir / f"{name}.npz") as stored:
        whole = pd.concat([split.X_train, split.X_test]).sort_index()
        np.testing.assert_array_equal(whole, stored["X"])
        np.testing.assert_array_equal(split.y_test, stored["y"][split.X_test.index])
        assert split.target == str(stored["target_name"])


@pytest.mark.parametrize("name", ["pumadyn8fm", "pumadyn8nm"])
def test_the_pumadyn8_sets_are_split_as_elsewhere_unless_a_seed_is_given(data_dir, name):
    order = np.random.default_rng(0).permutation(8192)
    split = load(name, data_dir=data_dir)
    np.testing.assert_array_equal(split.X_train.index, order[:7168])
    np.testing.assert_array_equal(split.X_test.index, order[7168:])
    assert load(data_dir / f"{name}.npz").X_train.equals(split.X_train)
    other = load(name, data_dir=data_dir, seed=2)
    np.testing.assert_array_equal(
        other.X_train.index, np.random.default_rng(2).permutation(8192)[:7168]
    )


def test_without_a_seed_other_sets_have_2():
    assert load("diabetes").X_train.equals(load("diabetes", seed=2).X_train)


def test_training_rows_can_be_chosen_and_the_rest_is_the_test(data_dir):
    small = load("pumadyn8fm", data_dir=data_dir, n=1000)
    assert (len(small.y_train), len(small.y_test)) == (1000, 7192)
    usual = load("pumadyn8fm", data_dir=data_dir)
    pd.testing.assert_frame_equal(small.X_train, usual.X_train.iloc[:1000])


# ---- files


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_file_with_a_named_target_is_loaded(table, tmp_path, suffix):
    path = tmp_path / f"trial.v2.{suffix}"
    write = table.to_parquet if suffix == "parquet" else table.to_csv
    write(path, index=False)
    split = load(path, target="response", drop=["site"], seed=1)
    assert split.name == "trial.v2"
    assert list(split.X_train) == list(split.X_test) == ["age", "dose"]
    assert split.X_train["dose"].dtype == np.float64
    order = np.random.default_rng(1).permutation(50)
    # pandas 2 reads the last digit of a CSV inexactly
    np.testing.assert_allclose(split.y_train, table["response"][order[:40]], rtol=1e-14)
    np.testing.assert_allclose(split.y_test, table["response"][order[40:]], rtol=1e-14)


def test_an_npz_outside_any_folder_is_loaded(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, X=np.eye(10, 3), y=np.arange(10.0))
    split = load(path)
    assert list(split.X_train) == ["x1", "x2", "x3"]
    assert (len(split.y_train), len(split.y_test)) == (8, 2)


def test_inputs_of_any_set_are_chosen(tmp_path):
    whole, chosen = load("diabetes"), load("diabetes", columns=["s5", "bmi"])
    for part in ("X_train", "X_test"):
        pd.testing.assert_frame_equal(getattr(chosen, part), getattr(whole, part)[["s5", "bmi"]])
    np.testing.assert_array_equal(chosen.y_train, whole.y_train)
    assert list(load("synth8d", n=5, n_test=5, drop=["x2", "x8"]).X_test) == [
        "x1", "x3", "x4", "x5", "x6", "x7"
    ]  # fmt: skip
    np.savez(tmp_path / "mine.npz", X=np.eye(10, 3), y=np.arange(10.0))
    assert list(load(tmp_path / "mine.npz", drop=["x2"]).X_train) == ["x1", "x3"]


# ---- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"'site' is not numeric.* in row 0 .*\(--drop site, or --columns with the others\)"),
        ({"columns": ["age", "site"]}, "'site' is not numeric"),
        ({"drop": ["sites"]}, "no input column 'sites'; there are: age, dose, site"),
        ({"columns": ["response"]}, "no input column 'response'"),
        ({"drop": ["age", "dose", "site"]}, "no input column is left"),
    ],
)
def test_inputs_that_cannot_be_used_are_named(table, tmp_path, options, message):
    table.to_csv(tmp_path / "trial.csv", index=False)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "trial.csv", target="response", **options)


def test_a_set_with_its_own_target_takes_no_other(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.eye(10, 3), y=np.arange(10.0))
    for data in ("synth8d", "diabetes", "mine", tmp_path / "mine.npz"):
        with pytest.raises(DataError, match=r"comes with its target, got --target x1; leave"):
            load(data, target="x1", data_dir=tmp_path)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(DataError, match=r"'kin41k'; known: synth8d, diabetes; .*--data-dir"):
        load("kin41k")


def test_an_unknown_name_lists_the_regression_sets_of_the_folder(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.eye(3), y=np.arange(3.0))
    np.savez(tmp_path / "labels.npz", X=np.eye(3), y=np.array([0, 1, 0]))
    np.savez(tmp_path / "field.npz", field=np.eye(3))
    with pytest.raises(DataError, match=r"known: synth8d, diabetes, mine; --data-dir"):
        load("other", data_dir=tmp_path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file '.*absent\.csv'"):
        load(tmp_path / "absent.csv", target="y")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("respons", "no column 'respons'; .*--target: age, dose, site, response"),
        (None, "no target was named; .*--target: age, dose, site, response"),
        ("site", "'site' is not numeric"),
        ("gap", r"'gap' contains NaN \(missing\) in row 0"),
    ],
)
def test_an_unusable_target_is_named(table, tmp_path, target, message):
    if target == "gap":
        table = table.assign(gap=[np.nan, *range(49)])
    table.to_csv(tmp_path / "trial.csv", index=False)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "trial.csv", target=target)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"field": np.eye(3)}, "found no X and no y; .*grid"),
        ({"X": np.eye(3), "y": np.array([0, 1, 0])}, "real-valued y, got int64; .*classification"),
        ({"X": np.eye(3), "y": np.array([0.0, np.inf, 0.0])}, "contains infinity in row 1"),
    ],
)
def test_an_npz_for_another_purpose_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load("mine", data_dir=tmp_path)


def test_a_damaged_npz_is_refused(tmp_path):
    np.savez(tmp_path / "whole.npz", X=np.eye(3), y=np.arange(3.0))
    shutil.copy(tmp_path / "whole.npz", tmp_path / "cut.npz")
    with (tmp_path / "cut.npz").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataError, match=r"cut\.npz: expected an \.npz"):
        load(tmp_path / "cut.npz")


@pytest.mark.parametrize("n", [0, 442])
def test_training_rows_must_leave_a_test(n):
    with pytest.raises(DataError, match="between 1 and 441 training rows"):
        load("diabetes", n=n)


def test_a_published_split_is_not_changed(tmp_path):
    np.savez(tmp_path / "s.npz", X=np.eye(4), y=np.arange(4.0), is_train=np.arange(4) < 3)
    with pytest.raises(DataError, match=r"published split, got n = 2; leave n out .* 3 rows"):
        load("s", data_dir=tmp_path, n=2)


def test_test_rows_are_chosen_for_synth8d_only():
    with pytest.raises(DataError, match="applies to synth8d only"):
        load("diabetes", n_test=10)
