"""Data sets: the same numbers as their definition, and errors that say what to do."""

import importlib.util
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from dsgp.errors import DataError, DataWarning
from dsgp.metrics import mnll
from pipelines.datasets import (
    additive_functions,
    default_seed,
    load,
    load_counts,
    load_labels,
    synth8d_moments,
)


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


def test_synth32d_has_the_functions_of_synth8d_and_more():
    split = load("synth32d", n=50, n_test=2000)
    assert list(split.X_test) == [f"x{j + 1}" for j in range(32)]
    assert split.noise_variance == 0.01
    np.testing.assert_array_equal(additive_functions(32)[1][:8], additive_functions(8)[1])
    grid, functions = additive_functions(32)
    total = sum(
        np.interp(split.X_test[f"x{j + 1}"], grid, function) for j, function in enumerate(functions)
    )
    np.testing.assert_allclose(split.f_test, total, atol=1e-3)
    np.testing.assert_allclose(np.std(split.y_test - split.f_test), 0.1, rtol=0.1)


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
    with pytest.raises(
        DataError, match=r"'kin41k'; known: synth8d, synth32d, diabetes; .*--data-dir"
    ):
        load("kin41k")


def test_an_unknown_name_lists_the_regression_sets_of_the_folder(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.eye(3), y=np.arange(3.0))
    np.savez(tmp_path / "labels.npz", X=np.eye(3), y=np.array([0, 1, 0]))
    np.savez(tmp_path / "field.npz", field=np.eye(3))
    with pytest.raises(DataError, match=r"known: synth8d, synth32d, diabetes, mine; --data-dir"):
        load("other", data_dir=tmp_path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file '.*absent\.csv'"):
        load(tmp_path / "absent.csv", target="y")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("respons", "no column 'respons'; it has 'age', 'dose', 'site', 'response'"),
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
    with pytest.raises(DataError, match="applies to synth8d, synth32d only"):
        load("diabetes", n_test=10)


# ---- labels


@pytest.mark.parametrize(("n", "n_test", "seed"), [(8000, 1000, 3), (300, 200, 7)])
def test_synth8d_binary_is_the_shared_definition(peerdata, n, n_test, seed):
    split = load_labels("synth8d-binary", n=n, n_test=n_test, seed=seed)
    expected = peerdata.j3(n, n_test=n_test, seed=seed)
    for ours, theirs in [("X_train", "X"), ("X_test", "Xt"), ("y_train", "y"), ("y_test", "yt")]:
        np.testing.assert_array_equal(getattr(split, ours), expected[theirs])
    for ours, theirs in [("f_train", "f"), ("f_test", "ft")]:
        np.testing.assert_allclose(getattr(split, ours), expected[theirs], rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        split.probability_test, 1 / (1 + np.exp(-expected["ft"])), rtol=0, atol=1e-11
    )
    assert split.y_train.dtype == np.int64
    assert split.classes.tolist() == [0, 1]


def test_synth8d_binary_has_seed_3_and_the_bayes_likelihood_of_its_truth():
    split = load_labels("synth8d-binary")
    assert split.X_train.equals(load_labels("synth8d-binary", n_test=5, seed=3).X_train)
    assert (len(split.y_train), len(split.y_test)) == (8000, 100_000)
    p = split.probability_test
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log(1 - p))
    assert mnll(split.y_test, p) == pytest.approx(entropy, abs=0.005)


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "n_columns", "n_left_out"),
    [("breast_cancer_wisconsin_original", 546, 137, 9, 16), ("magic_gamma", 15216, 3804, 10, 0)],
)
def test_stored_labels_are_split_by_default_rng_0(
    data_dir, name, n_train, n_test, n_columns, n_left_out
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        split = load_labels(name, data_dir=data_dir)
    assert split.X_train.shape == (n_train, n_columns)
    assert split.X_test.shape == (n_test, n_columns)
    assert split.n_left_out == n_left_out
    with np.load(data_dir / f"{name}.npz") as stored:
        complete = np.flatnonzero(~np.isnan(stored["X"]).any(axis=1))
        order = complete[np.random.default_rng(0).permutation(len(complete))]
        np.testing.assert_array_equal(split.X_train, stored["X"][order[:n_train]])
        np.testing.assert_array_equal(split.X_test, stored["X"][order[n_train:]])
        np.testing.assert_array_equal(split.y_test, stored["y"][split.X_test.index])
    assert split.f_test is None
    assert split.probability_train is None


def test_two_files_are_a_published_split(data_dir):
    split = load_labels("ijcnn1", data_dir=data_dir)
    for part, n_rows in (("train", 49990), ("test", 91701)):
        X, y = getattr(split, f"X_{part}"), getattr(split, f"y_{part}")
        assert X.shape == (n_rows, 22)
        with np.load(data_dir / f"ijcnn1_{part}.npz") as stored:
            np.testing.assert_array_equal(X, stored["X"])
            np.testing.assert_array_equal(y, stored["y"])
    with pytest.raises(DataError, match="ijcnn1 has a published split"):
        load_labels("ijcnn1", data_dir=data_dir, n=10)


def test_two_files_have_the_same_columns(tmp_path):
    y = np.array([0, 1, 0])
    np.savez(tmp_path / "s_train.npz", X=np.eye(3), y=y, feature_names=["a", "b", "c"])
    np.savez(tmp_path / "s_test.npz", X=np.eye(3), y=y, feature_names=["a", "c", "b"])
    with pytest.raises(DataError, match=r"expected the columns of s_train\.npz, a, b, c, got a, c"):
        load_labels("s", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "loader", "classes"),
    [
        ("breast_cancer", load_breast_cancer, ["benign", "malignant"]),
        ("digits", load_digits, list(range(10))),
        ("wine", load_wine, ["class_0", "class_1", "class_2"]),
    ],
)
def test_shipped_labels_keep_their_names(name, loader, classes):
    split, bunch = load_labels(name), loader(as_frame=True)
    order = np.random.default_rng(0).permutation(len(bunch.target))
    n_train = len(order) * 4 // 5
    pd.testing.assert_frame_equal(split.X_train, bunch.data.iloc[order[:n_train]])
    np.testing.assert_array_equal(
        split.y_test, np.asarray(bunch.target_names)[bunch.target[order[n_train:]]]
    )
    assert split.classes.tolist() == classes


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["no", "yes"], ["no", "yes"]),
        ([3, -1], [-1, 3]),
        ([2.0, 1.0], [1, 2]),
        ([True, False], [False, True]),
    ],
)
def test_a_table_of_labels_is_loaded_and_incomplete_rows_are_reported(
    table, tmp_path, suffix, labels, classes
):
    outcome = pd.Series(np.tile(labels, 25), dtype=object)
    outcome[7] = None
    table = table.assign(outcome=outcome.infer_objects())
    table.loc[[3, 7, 9], "age"] = np.nan
    path = tmp_path / f"trial.{suffix}"
    (table.to_parquet if suffix == "parquet" else table.to_csv)(path, index=False)
    options = {"target": "outcome", "drop": ["site", "response"]}
    with pytest.warns(DataWarning, match=r"trial: 3 of 50 rows are left out, .* 'age', 'outcome'"):
        split = load_labels(path, **options)
    assert split.n_left_out == 3
    assert split.classes.tolist() == classes
    complete = np.setdiff1d(np.arange(50), [3, 7, 9])
    order = complete[np.random.default_rng(0).permutation(47)]
    np.testing.assert_array_equal(split.X_train.index, order[:37])
    assert split.y_test.tolist() == [labels[row % 2] for row in order[37:]]


def test_a_column_that_is_dropped_costs_no_rows(table, tmp_path):
    table.assign(empty=np.nan).to_parquet(tmp_path / "trial.parquet")
    split = load_labels(tmp_path / "trial.parquet", target="site", drop=["empty"])
    assert split.n_left_out == 0
    assert len(split.y_train) == 40


def test_categories_are_labels(table, tmp_path):
    table = table.assign(site=table["site"].astype("category"))
    table.to_parquet(tmp_path / "trial.parquet")
    assert load_labels(tmp_path / "trial.parquet", target="site").classes.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.0, 1.0, 0.0]), "expected integers or text as y, got float64; .*regression"),
        (np.array([1, 1, 1]), "every label in 'y' is 1; expected rows of two classes"),
        (  # the test row is of a class of its own
            (np.arange(3) == np.random.default_rng(0).permutation(3)[2]).astype(int),
            "the class 1 of 'y' has 1 of 3 rows and none",
        ),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(tmp_path, y, message):
    np.savez(tmp_path / "mine.npz", X=np.eye(3), y=y)
    with pytest.raises(DataError, match=message):
        load_labels("mine", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"site": np.linspace(0, 1, 50)}, r"'site' is 0\.0204.* in row 1; expected labels"),
        ({"site": ["a", 1] * 25}, r"'site' is 1 in row 1; expected labels, either"),
        ({"age": [*range(49), np.inf]}, r"'age' contains infinity in row 49"),
        ({"age": np.nan}, "no row is complete; values are missing in 'age'"),
    ],
)
def test_a_table_that_cannot_be_classified_is_refused(
    table, tmp_path, monkeypatch, change, message
):
    table.to_csv(tmp_path / "trial.csv", index=False)
    monkeypatch.setattr(
        "pipelines.datasets.files.read_table", lambda path, **form: table.assign(**change)
    )
    with pytest.raises(DataError, match=message):
        load_labels(tmp_path / "trial.csv", target="site")


# ---- counts


def test_synth8d_poisson_counts_have_the_rate_of_the_truth():
    split = load_counts("synth8d-poisson", n=50_000, n_test=1000)
    for part in ("train", "test"):
        y, f = getattr(split, f"y_{part}"), getattr(split, f"f_{part}")
        exposure = getattr(split, f"exposure_{part}")
        assert ((exposure > 0.5) & (exposure < 4)).all()
        rate = exposure * np.exp(f)
        residual = (y - rate) / np.sqrt(rate)
        assert np.mean(residual) == pytest.approx(0, abs=4 / np.sqrt(len(y)))
        assert np.mean(residual**2) == pytest.approx(1, abs=8 / np.sqrt(len(y)))
    assert np.std(split.f_train) == pytest.approx(0.5, rel=0.03)
    centre, scale = synth8d_moments(3)
    total = load("synth8d", n=50_000, n_test=1, seed=3).f_train
    np.testing.assert_allclose(split.f_train, 0.5 * (total - centre) / scale, atol=1e-12)


def test_synth8d_poisson_is_drawn_by_its_seed():
    first, again = (load_counts("synth8d-poisson", n=100, n_test=50) for _ in range(2))
    other = load_counts("synth8d-poisson", n=200, n_test=50)
    np.testing.assert_array_equal(first.y_train, again.y_train)
    np.testing.assert_array_equal(first.y_test, other.y_test)
    np.testing.assert_array_equal(first.exposure_test, other.exposure_test)
    assert not np.array_equal(first.X_train, other.X_train[:100])


def test_counts_of_a_file_have_their_exposure(table, tmp_path):
    table = table.assign(claims=np.arange(50) % 4, years=np.linspace(1, 2, 50))
    table.to_parquet(tmp_path / "claims.parquet")
    options = {"target": "claims", "drop": ["site"]}
    split = load_counts(tmp_path / "claims.parquet", exposure="years", **options)
    assert list(split.X_train) == ["age", "dose", "response"]
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(split.y_test, order[40:] % 4)
    np.testing.assert_array_equal(split.exposure_train, table["years"][order[:40]])
    assert split.y_train.dtype == np.float64
    without = load_counts(tmp_path / "claims.parquet", **options)
    assert "years" in without.X_train
    np.testing.assert_array_equal(without.exposure_train, np.ones(40))


@pytest.mark.parametrize(
    ("change", "exposure", "message"),
    [
        ({"claims": -1}, None, "'claims' is -1 in row 0; expected counts 0, 1, 2"),
        ({"claims": [1.0, 2.5] * 25}, None, "'claims' is 2.5 in row 1; expected counts"),
        ({"claims": 1, "years": 0.0}, "years", "'years' is 0 in row 0; expected exposures above 0"),
        ({"claims": 1}, "year", "no column 'year' to be the exposure; there are: age, "),
    ],
)
def test_counts_that_cannot_be_used_are_named(table, tmp_path, change, exposure, message):
    table.assign(**change).to_parquet(tmp_path / "claims.parquet")
    with pytest.raises(DataError, match=message):
        load_counts(tmp_path / "claims.parquet", target="claims", exposure=exposure, drop=["site"])


def test_a_set_with_its_own_exposure_takes_no_other():
    with pytest.raises(DataError, match="synth8d-poisson comes with its exposure"):
        load_counts("synth8d-poisson", n=5, n_test=5, exposure="x1")


# ---- a set for another task


@pytest.mark.parametrize(
    ("loader", "name", "message"),
    [
        (
            load,
            "digits",
            "digits is a set for classification, and this is regression; known here: ",
        ),
        (load_labels, "diabetes", "diabetes is a set for regression, and this is classification"),
        (
            load_counts,
            "synth8d-binary",
            "for classification, and this is counts; known here: synth",
        ),
    ],
)
def test_a_set_for_another_task_is_reported(loader, name, message):
    with pytest.raises(DataError, match=message):
        loader(name)


def test_the_sets_of_a_folder_are_listed_by_task_and_two_files_once(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.eye(3), y=np.arange(3.0))
    np.savez(tmp_path / "only_test.npz", X=np.eye(3), y=np.arange(3))
    for part in ("test", "train"):
        np.savez(tmp_path / f"pair_{part}.npz", X=np.eye(3), y=np.arange(3))
    with pytest.raises(DataError, match="breast_cancer, digits, wine, only_test, pair; --data-dir"):
        load_labels("other", data_dir=tmp_path)


def test_training_rows_are_not_those_of_the_test():
    with pytest.raises(DataError, match="n = 999 would draw the training rows from the stream"):
        load("synth8d", n=999)


def test_seeds_by_set_and_task():
    assert [default_seed(name) for name in ("kin40k", "pumadyn8nm.npz", "synth8d")] == [2, 0, 2]
    assert default_seed("magic_gamma", "classification") == 0
    assert default_seed("synth8d-binary", "classification") == 3
