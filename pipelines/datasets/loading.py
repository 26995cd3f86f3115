"""From the name of a set to its split: for a regression, for labels and for counts."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.rows.sources import CsvFormat
from pipelines.datasets.columns import (
    chosen_inputs,
    counts_of,
    exposure_of,
    finite_target,
    labels_of,
    require_finite,
)
from pipelines.datasets.files import TABLE_SUFFIXES, names_in, read_file, read_named, read_npz
from pipelines.datasets.splits import (
    CountSplit,
    LabelledSplit,
    Rows,
    Split,
    Whole,
    parts,
    train_and_test_rows,
)
from pipelines.datasets.synthetic import (
    N_ROWS,
    N_TEST,
    synth8d,
    synth8d_binary,
    synth8d_poisson,
    synth32d,
)

DRAWN: dict[str, dict[str, Callable[[int, int, int], Whole]]] = {
    "regression": {"synth8d": synth8d, "synth32d": synth32d},
    "classification": {"synth8d-binary": synth8d_binary},
    "counts": {"synth8d-poisson": synth8d_poisson},
}
SHIPPED: dict[str, dict[str, Callable]] = {
    "regression": {"diabetes": load_diabetes},
    "classification": {
        "breast_cancer": load_breast_cancer,
        "digits": load_digits,
        "wine": load_wine,
    },
    "counts": {},
}
# Seeds of the splits that results on these sets are compared on; others have that of their task.
SEEDS = {"pumadyn8fm": 0, "pumadyn8nm": 0, "synth8d-binary": 3, "synth8d-poisson": 3}
TASK_SEEDS = {"regression": 2, "classification": 0, "counts": 0}


class Options(TypedDict, total=False):
    """What ``load``, ``load_labels`` and ``load_counts`` take, all by name and optional.

    Attributes
    ----------
    target : str
        Target column of a CSV or Parquet file; every other set comes with its own.
    columns : sequence of str
        Input columns, in this order; by default all but the target.
    drop : sequence of str
        Columns that are no inputs, instead of `columns`.
    data_dir : str or Path
        Folder of ``.npz`` sets with ``X``, ``y``, ``feature_names``, ``target_name`` and, where
        there is a published split, ``is_train``, or as two files, ``NAME_train.npz`` and
        ``NAME_test.npz``.
    n : int
        Number of training rows. Default: 8000 of the sets that are drawn (synth8d, …), 7168 of
        the pumadyn8 sets, 80 % of any other. A published split cannot be changed.
    n_test : int
        Number of test rows of the sets that are drawn (default 100 000); elsewhere the test rows
        are all that are not trained on.
    seed : int
        Of the rows drawn or split; by default ``default_seed`` of the set. Training rows are the
        first of ``default_rng(seed).permutation``.
    complete : bool
        Whether every input must be there (the default): rows of labels without one are left out,
        and others are refused.
    format : CsvFormat
        How a CSV file is written.
    """

    target: str | None
    columns: Sequence[str] | None
    drop: Sequence[str]
    data_dir: str | Path | None
    n: int | None
    n_test: int | None
    seed: int | None
    complete: bool
    format: CsvFormat


def load(data: str | Path, **options: Unpack[Options]) -> Split:
    """Load a regression set and split it.

    Parameters
    ----------
    data : str or Path
        ``synth8d``, ``diabetes``, the name of an ``.npz`` set in `data_dir`, or the path of a
        CSV, Parquet or ``.npz`` file.
    **options
        See ``Options``.

    Raises
    ------
    DataError
        When no such set, file or column is there, target or inputs are not numeric and finite, or
        `target`, `n` or `n_test` does not fit the set.
    ParameterError
        When both `columns` and `drop` are given.
    """
    whole = _whole(data, "regression", options)
    y = finite_target(whole.y, whole.source)
    whole = replace(whole, X=_inputs(whole, options))
    require_finite(whole.X if options.get("complete", True) else whole.X.fillna(0.0))
    return Split(**parts(whole, y, *_rows(data, "regression", whole, options)))


def load_labels(data: str | Path, **options: Unpack[Options]) -> LabelledSplit:
    """Load a classification set and split its complete rows.

    Parameters
    ----------
    data : str or Path
        ``synth8d-binary``, scikit-learn's ``breast_cancer``, ``digits`` or ``wine``, the name of
        an ``.npz`` set in `data_dir`, or the path of a CSV, Parquet or ``.npz`` file. Labels are
        whole numbers, truth values or text.
    **options
        See ``Options``.

    Warns
    -----
    DataWarning
        When rows are left out because an input or the label is missing.

    Raises
    ------
    DataError
        As ``load``, and when a label is a real number, all labels are the same, or a class has no
        training rows.
    ParameterError
        When both `columns` and `drop` are given.
    """
    whole = _whole(data, "classification", options)
    whole = replace(whole, X=_inputs(whole, options))
    whole, n_left_out = _complete(whole, options.get("complete", True))
    y = labels_of(whole.y, whole.source)
    train, test = _rows(data, "classification", whole, options)
    classes = _classes(y, y[train], whole)
    return LabelledSplit(**parts(whole, y, train, test), classes=classes, n_left_out=n_left_out)


def load_counts(
    data: str | Path, *, exposure: str | None = None, **options: Unpack[Options]
) -> CountSplit:
    """Load a set of counts and split it.

    Parameters
    ----------
    data : str or Path
        ``synth8d-poisson``, the name of an ``.npz`` set in `data_dir`, or the path of a CSV,
        Parquet or ``.npz`` file.
    exposure : str, optional
        Column that holds the exposures, which then is no input; ``synth8d-poisson`` has its own.
    **options
        See ``Options``.

    Raises
    ------
    DataError
        As ``load``, and when a count is negative or not whole, or an exposure is not positive.
    ParameterError
        When both `columns` and `drop` are given.
    """
    whole = _with_exposure(_whole(data, "counts", options), exposure)
    y, exposures = counts_of(whole.y, whole.source), np.ones(len(whole.y))
    if whole.exposure is not None:
        exposures = exposure_of(whole.exposure, whole.source)
    whole = replace(whole, X=_inputs(whole, options))
    require_finite(whole.X if options.get("complete", True) else whole.X.fillna(0.0))
    train, test = _rows(data, "counts", whole, options)
    return CountSplit(
        **parts(whole, y, train, test),
        exposure_train=exposures[train],
        exposure_test=exposures[test],
    )


def is_built_in(data: str | Path) -> bool:
    """Whether data is the name of a set that needs no file."""
    return any(str(data) in names for names in (*DRAWN.values(), *SHIPPED.values()))


def default_seed(data: str | Path, task: str = "regression") -> int:
    """Seed that a set is drawn or split by where none is given.

    0 of the pumadyn8 sets, whose training rows then are the first 7168 of
    ``default_rng(0).permutation(8192)``, and of labels and counts; 3 of synth8d-binary and
    synth8d-poisson; 2 of all else, as the definition of synth8d has it.
    """
    name = Path(data).name.removesuffix(".npz")
    return SEEDS.get(name, TASK_SEEDS[task])


# ---- finding a set


def _whole(data: str | Path, task: str, options: Options) -> Whole:
    """Find and read a set, and refuse options that are for others."""
    name, target, n_test = str(data), options.get("target"), options.get("n_test")
    is_table = name.lower().endswith(TABLE_SUFFIXES)
    if is_table:
        whole = read_file(Path(data), target, options.get("format") or CsvFormat())
    elif name.lower().endswith(".npz"):
        whole = read_npz(Path(data), task)
    elif name in DRAWN[task]:
        n = options.get("n")
        n, n_test_drawn = N_ROWS if n is None else n, N_TEST if n_test is None else n_test
        whole = DRAWN[task][name](n, n_test_drawn, _seed(data, task, options))
    elif name in SHIPPED[task]:
        whole = _shipped(name, task)
    else:
        whole = _stored(name, task, options.get("data_dir"))
    if target is not None and not is_table:
        raise DataError(
            f"{name} comes with its target, got --target {target}; leave --target out: it is for "
            "CSV and Parquet files"
        )
    if n_test is not None and name not in DRAWN[task]:
        raise DataError(
            f"n_test = {n_test} applies to {', '.join(DRAWN[task])} only; "
            f"{name} is tested on the rows it is not trained on: leave n_test out"
        )
    return whole


def _shipped(name: str, task: str) -> Whole:
    """Read a set that comes with scikit-learn; labels by their names where these are words."""
    loader = SHIPPED[task][name]
    bunch = loader(as_frame=True, **({"scaled": False} if name == "diabetes" else {}))
    y = bunch.target
    if task == "classification" and isinstance(bunch.target_names[0], str):
        y = pd.Series(np.asarray(bunch.target_names, dtype=object)[y], y.index, name=y.name)
    return Whole(name, name, bunch.data, y)


def _stored(name: str, task: str, data_dir: str | Path | None) -> Whole:
    """Read a set of the folder of sets."""
    whole = None if data_dir is None else read_named(Path(data_dir), name, task)
    if whole is not None:
        return whole
    other = next((other for other in DRAWN if name in {**DRAWN[other], **SHIPPED[other]}), None)
    known = [*DRAWN[task], *SHIPPED[task]]
    if other is not None:
        raise DataError(
            f"{name} is a set for {other}, and this is {task}; known here: {', '.join(known)}"
        )
    place = "for others give the folder that holds them with --data-dir"
    if data_dir is not None:
        known += names_in(Path(data_dir), task)
        place = f"--data-dir {data_dir} holds no {name}.npz"
    raise DataError(
        f"unknown data set {name!r}; known: {', '.join(known)}; {place}, "
        "or name a .csv, .parquet or .npz file"
    )


# ---- rows and columns


def _inputs(whole: Whole, options: Options) -> pd.DataFrame:
    columns, drop = options.get("columns"), options.get("drop", ())
    if columns is not None and drop:
        raise ParameterError("--columns already says which inputs are used; leave out --drop")
    return chosen_inputs(whole.X, columns, drop, whole.source)


def _complete(whole: Whole, inputs_too: bool) -> tuple[Whole, int]:
    """Leave out the rows in which the target or an input is missing, and warn of them."""
    # an empty field of a CSV file is text in a column of text
    unlabelled = whole.y.isna() | whole.y.isin([""])
    missing = pd.concat([whole.X.isna() & inputs_too, unlabelled], axis=1)
    kept = ~missing.to_numpy().any(axis=1)
    if kept.all():
        require_finite(whole.X if inputs_too else whole.X.fillna(0.0))
        return whole, 0
    require_finite(whole.X.fillna(0.0))  # infinity is refused, with its row in the source
    n_left_out = int(np.count_nonzero(~kept))
    names = ", ".join(repr(name) for name in missing.columns[missing.any()])
    if not kept.any():
        raise DataError(f"{whole.source}: no row is complete; values are missing in {names}")
    warnings.warn(
        f"{whole.name}: {n_left_out} of {len(kept)} rows are left out, with values missing in "
        f"{names}",
        DataWarning,
        stacklevel=3,
    )
    complete = replace(
        whole,
        X=whole.X[kept],
        y=whole.y[kept],
        is_train=None if whole.is_train is None else whole.is_train[kept],
    )
    return complete, n_left_out


def _classes(y: NDArray, y_train: NDArray, whole: Whole) -> NDArray:
    """Labels, ascending, each of which can be learnt."""
    classes, count = np.unique(y, return_counts=True)
    if len(classes) == 1:
        raise DataError(
            f"{whole.source}: every label in {whole.y.name!r} is {classes.tolist()[0]!r}; "
            "expected rows of two classes at least"
        )
    unseen = ~np.isin(classes, np.unique(y_train))
    if unseen.any():
        raise DataError(
            f"{whole.source}: the class {classes[unseen].tolist()[0]!r} of {whole.y.name!r} has "
            f"{count[unseen][0]} of {len(y)} rows and none of them is among the training rows; "
            "leave rare classes out, or choose another seed"
        )
    return classes


def _with_exposure(whole: Whole, exposure: str | None) -> Whole:
    """Take the exposures out of the inputs."""
    if exposure is None:
        return whole
    if whole.exposure is not None:
        raise DataError(
            f"{whole.name} comes with its exposure, got exposure {exposure!r}; leave it out"
        )
    if exposure not in whole.X.columns:
        raise DataError(
            f"{whole.source}: there is no column {exposure!r} to be the exposure; there are: "
            + ", ".join(map(str, whole.X.columns))
        )
    return replace(whole, X=whole.X.drop(columns=exposure), exposure=whole.X[exposure])


def _rows(data: str | Path, task: str, whole: Whole, options: Options) -> tuple[Rows, Rows]:
    drawn = str(data) in DRAWN[task]  # with n training rows already
    return train_and_test_rows(
        whole, None if drawn else options.get("n"), _seed(data, task, options)
    )


def _seed(data: str | Path, task: str, options: Options) -> int:
    seed = options.get("seed")
    return default_seed(data, task) if seed is None else seed
