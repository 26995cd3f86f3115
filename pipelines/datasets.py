"""Regression data by name or file, split into train and test rows.

Only loading and splitting: values stay in their own units, and nothing is standardised.
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from dsgp import read_table
from dsgp.errors import DataError, ParameterError
from dsgp.rows.sources import columns_of, target_of

Floats = NDArray[np.float64]

BUILT_IN = ("synth8d", "diabetes")
TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
NPZ_KEYS = ("X", "y", "feature_names", "target_name", "is_train")

# Training rows of the sets without a published split where the literature names a number; the
# other sets train on 80 %.
TRAIN_ROWS = {"pumadyn8fm": 7168, "pumadyn8nm": 7168}
# Seeds of the splits that results on these sets are compared on; of the other sets it is SEED.
SEEDS = {"pumadyn8fm": 0, "pumadyn8nm": 0}
SEED = 2


@dataclass(frozen=True, eq=False)
class Split:
    """One regression problem: inputs, targets and, where it is known, the truth.

    Attributes
    ----------
    name : str
    X_train, X_test : DataFrame of shape (n_rows, n_columns)
    y_train, y_test : ndarray of shape (n_rows,)
    f_train, f_test : ndarray of shape (n_rows,) or None
        Targets without noise.
    target : str
        Name of the target.
    noise_variance : float or None
        Of the targets around ``f``.
    """

    name: str
    X_train: pd.DataFrame
    y_train: Floats
    X_test: pd.DataFrame
    y_test: Floats
    f_train: Floats | None
    f_test: Floats | None
    target: str
    noise_variance: float | None


def load(
    data: str | Path,
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    data_dir: str | Path | None = None,
    n: int | None = None,
    n_test: int | None = None,
    seed: int | None = None,
) -> Split:
    """Load a regression set and split it.

    Parameters
    ----------
    data : str or Path
        ``synth8d``, ``diabetes``, the name of an ``.npz`` set in `data_dir`, or the path of a
        CSV, parquet or ``.npz`` file.
    target : str, optional
        Target column of a CSV or parquet file; every other set comes with its own.
    columns : sequence of str, optional
        Input columns, in this order; by default all but the target.
    drop : sequence of str
        Columns that are no inputs, instead of `columns`.
    data_dir : str or Path, optional
        Folder of ``.npz`` sets with ``X``, ``y``, ``feature_names``, ``target_name`` and, where
        there is a published split, ``is_train``.
    n : int, optional
        Number of training rows. Default: 8000 for ``synth8d``, 7168 for the pumadyn8 sets, 80 %
        of any other. A published split cannot be changed.
    n_test : int, optional
        Number of test rows of ``synth8d`` (default 100 000); elsewhere the test rows are all that
        are not trained on.
    seed : int, optional
        Of the rows drawn or split; by default ``default_seed`` of the set: 0 for the pumadyn8 sets,
        whose training rows then are the first 7168 of ``default_rng(0).permutation(8192)``, and 2
        for all others, as the definition of ``synth8d`` has it.

    Raises
    ------
    DataError
        When no such set, file or column is there, target or inputs are not numeric and finite, or
        `target`, `n` or `n_test` does not fit the set.
    ParameterError
        When both `columns` and `drop` are given.
    """
    if columns is not None and drop:
        raise ParameterError("--columns says which inputs are used already; leave out --drop")
    name = str(data)
    seed = default_seed(data) if seed is None else seed
    if name.lower().endswith(TABLE_SUFFIXES):
        _refuse_n_test(name, n_test)
        return _split_table(Path(data), target, columns, drop, n, seed)
    split = _load_set(name, target, data_dir, n, n_test, seed)
    X_train = _inputs(split.X_train, columns, drop, name)
    return replace(split, X_train=X_train, X_test=split.X_test[list(X_train)])


def default_seed(data: str | Path) -> int:
    """Seed that a set is drawn or split by where none is given."""
    name = Path(data).name.removesuffix(".npz")
    return SEEDS.get(name, SEED)


def _load_set(
    name: str,
    target: str | None,
    data_dir: str | Path | None,
    n: int | None,
    n_test: int | None,
    seed: int,
) -> Split:
    """Load a set that comes with its target."""
    path = Path(name) if name.lower().endswith(".npz") else None
    if path is None and name not in BUILT_IN:
        path = None if data_dir is None else Path(data_dir) / f"{name}.npz"
        if path is None or not path.is_file():
            raise DataError(_unknown_name(name, data_dir))
    if target is not None:
        raise DataError(
            f"{name} comes with its target, got --target {target}; leave --target out: it is for "
            "CSV and Parquet files"
        )
    if name == "synth8d":
        return _synth8d(8000 if n is None else n, 100_000 if n_test is None else n_test, seed)
    _refuse_n_test(name, n_test)
    if path is not None:
        return _split_npz(path, n, seed)
    frame = load_diabetes(as_frame=True, scaled=False).frame
    y = _finite_target(frame["target"], "target", name)
    return _random_split(name, frame.drop(columns="target"), y, "target", n, seed)


def _refuse_n_test(name: str, n_test: int | None) -> None:
    if n_test is not None:
        raise DataError(
            f"n_test = {n_test} applies to synth8d only; "
            f"{name} is tested on the rows it is not trained on: leave n_test out"
        )


# ---- synth8d: a sum of eight Matern-7/2 functions, normal inputs


def _synth8d(n: int, n_test: int, seed: int) -> Split:
    """y = sum_d f_d(x_d) + noise; the functions are fixed, rows and noise depend on the seed.

    The training stream depends on `n` and the test stream does not, so models trained on
    different numbers of rows are compared on the same points.
    """
    if min(n, n_test) < 1:
        raise DataError(f"synth8d: expected at least one row, got n = {n}, n_test = {n_test}")
    noise_variance = 0.01
    grid, functions = additive_functions()
    columns = [f"x{j + 1}" for j in range(len(functions))]

    def rows(n_rows: int, stream: int) -> tuple[pd.DataFrame, Floats, Floats]:
        rng = np.random.default_rng([seed, stream])
        X = rng.standard_normal((n_rows, len(functions)))
        f = np.zeros(n_rows)
        for j, function in enumerate(functions):
            f += _interpolate(grid, function, X[:, j])
        y = f + np.sqrt(noise_variance) * rng.standard_normal(n_rows)
        return pd.DataFrame(X, columns=columns), y, f

    X_train, y_train, f_train = rows(n, stream=n)
    X_test, y_test, f_test = rows(n_test, stream=999)
    return Split("synth8d", X_train, y_train, X_test, y_test, f_train, f_test, "y", noise_variance)


def additive_functions(
    n_functions: int = 8, lengthscale: float = 1.0, seed: int = 11
) -> tuple[Floats, Floats]:
    """Draw Matern-7/2 functions of unit variance on a regular grid of [-6, 6].

    Returns
    -------
    grid : ndarray of shape (4096,)
    functions : ndarray of shape (n_functions, 4096)
    """
    rng = np.random.default_rng(seed)
    grid = np.linspace(-6.0, 6.0, 4096)
    # A Fourier series on a circle so long that a path does not feel its other end.
    step = 2 * np.pi / (24.0 + 32.0 * lengthscale)
    rate = np.sqrt(7.0) / lengthscale
    frequency = step * np.arange(int(np.clip(60 * rate / step, 400, 6000)) + 1)
    power = (rate**2 + frequency**2) ** -4.0
    power[0] *= 0.5  # the zero frequency has no negative twin
    amplitude = np.sqrt(power / power.sum())
    cosine, sine = (rng.standard_normal((n_functions, 2, len(frequency))) * amplitude).transpose(
        1, 2, 0
    )  # (n_frequencies, n_functions)

    functions = np.empty((len(grid), n_functions))
    for start in range(0, len(grid), 512):  # all phases at once would take 50 MB
        phase = grid[start : start + 512, None] * frequency
        functions[start : start + 512] = np.cos(phase) @ cosine + np.sin(phase) @ sine
    return grid, functions.T


def _interpolate(grid: Floats, values: Floats, x: Floats) -> Floats:
    """Catmull-Rom cubic through `values` on a regular grid; the end cubics reach beyond it."""
    position = (x - grid[0]) / (grid[1] - grid[0])
    i = np.clip(np.floor(position).astype(np.int64), 1, len(grid) - 3)
    t = position - i
    p0, p1, p2, p3 = values[i - 1], values[i], values[i + 1], values[i + 2]
    slope, bend, twist = p2 - p0, 2 * p0 - 5 * p1 + 4 * p2 - p3, 3 * (p1 - p2) + p3 - p0
    return p1 + 0.5 * t * (slope + t * (bend + t * twist))


# ---- files


def _split_npz(path: Path, n: int | None, seed: int) -> Split:
    try:
        with np.load(path) as arrays:
            stored = {key: arrays[key] for key in arrays.files if key in NPZ_KEYS}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an .npz of plain arrays; {error}") from error
    absent = [key for key in ("X", "y") if key not in stored]
    if absent:
        raise DataError(
            f"{path}: expected a table with arrays X and y, found no {' and no '.join(absent)}; "
            "a gridded field is for the grid pipeline"
        )
    if not np.issubdtype(stored["y"].dtype, np.floating):
        raise DataError(
            f"{path}: expected a real-valued y, got {stored['y'].dtype}; "
            "labels are for the classification pipeline"
        )
    columns = stored.get("feature_names", [f"x{j + 1}" for j in range(stored["X"].shape[1])])
    target = str(stored.get("target_name", "y"))
    X = pd.DataFrame(stored["X"].astype(np.float64), columns=[str(name) for name in columns])
    y = _finite_target(pd.Series(stored["y"]), target, str(path))
    if "is_train" not in stored:
        return _random_split(path.stem, X, y, target, n, seed)
    if n is not None:
        raise DataError(
            f"{path.stem} has a published split, got n = {n}; leave n out to train on its "
            f"{np.count_nonzero(stored['is_train'])} rows"
        )
    train = np.flatnonzero(stored["is_train"])
    return _split_at(path.stem, X, y, target, train, np.flatnonzero(~stored["is_train"]))


def _split_table(
    path: Path,
    target: str | None,
    columns: Sequence[str] | None,
    drop: Sequence[str],
    n: int | None,
    seed: int,
) -> Split:
    frame = read_table(path)
    if target is None or target not in frame.columns:
        came = "no target was named" if target is None else f"there is no column {target!r}"
        raise DataError(
            f"{path}: {came}; name one of its columns with --target: "
            + ", ".join(map(str, frame.columns))
        )
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    y = _finite_target(frame[target], target, str(path))
    X = _inputs(frame.drop(columns=target), columns, drop, str(path))
    return _random_split(name, X, y, target, n, seed)


def _unknown_name(name: str, data_dir: str | Path | None) -> str:
    known = [*BUILT_IN, *(_regression_names(Path(data_dir)) if data_dir is not None else ())]
    place = (
        "for others give the folder that holds them with --data-dir"
        if data_dir is None
        else f"--data-dir {data_dir} holds no {name}.npz"
    )
    return (
        f"unknown data set {name!r}; known: {', '.join(known)}; {place}, "
        "or name a .csv, .parquet or .npz file"
    )


def _regression_names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            if {"X", "y"} <= set(arrays.files) and np.issubdtype(arrays["y"].dtype, np.floating):
                yield path.stem


# ---- splitting


def _inputs(
    X: pd.DataFrame, columns: Sequence[str] | None, drop: Sequence[str], source: str
) -> pd.DataFrame:
    """Choose the input columns, all numeric and finite.

    This is done before rows are drawn, so that a message counts them as the source does.
    """
    unknown = [name for name in columns or drop if name not in X.columns]
    if unknown:
        raise DataError(
            f"{source}: there is no input column {unknown[0]!r}; there are: "
            + ", ".join(map(str, X.columns))
        )
    X = X.drop(columns=list(drop)) if columns is None else X[list(dict.fromkeys(columns))]
    if X.shape[1] == 0:
        raise DataError(f"{source}: no input column is left")
    text = {name: error for name in X if (error := _not_numeric(X[[name]])) is not None}
    if text:
        names = ",".join(map(str, text))
        raise DataError(
            f"{source}: {next(iter(text.values()))} (--drop {names}, or --columns with the others)"
        )
    numbers = columns_of(X)
    for name in numbers.names:
        numbers.finite_column(name)
    narrow = X.select_dtypes(include="float32").columns
    return X.astype(dict.fromkeys(narrow, np.float64))


def _not_numeric(column: pd.DataFrame) -> DataError | None:
    try:
        columns_of(column)
    except DataError as error:
        return error
    return None


def _finite_target(column: pd.Series, target: str, source: str) -> Floats:
    try:
        return target_of(column.rename(target), len(column))
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def _random_split(
    name: str, X: pd.DataFrame, y: Floats, target: str, n: int | None, seed: int
) -> Split:
    """Train on the first rows of a seeded permutation, test on the rest."""
    n_train = TRAIN_ROWS.get(name, len(y) * 4 // 5) if n is None else n
    if not 0 < n_train < len(y):
        raise DataError(
            f"{name}: expected between 1 and {len(y) - 1} training rows, so that some of its "
            f"{len(y)} rows are left for the test, got {n_train}; choose another n"
        )
    order = np.random.default_rng(seed).permutation(len(y))
    return _split_at(name, X, y, target, order[:n_train], order[n_train:])


def _split_at(
    name: str,
    X: pd.DataFrame,
    y: Floats,
    target: str,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
) -> Split:
    """Split by row positions; the frames keep the row labels of their source."""
    return Split(name, X.iloc[train], y[train], X.iloc[test], y[test], None, None, target, None)
