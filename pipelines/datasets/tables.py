"""Real tables with categories, dates and gaps: jobs of one target, one change and one split.

A job's split is the same for every method: 80 % of a permutation by seed 0, or the published split
of an ``.npz`` set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dsgp import Levels, Smooth
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Periodic
from pipelines.datasets.loading import default_seed, load
from pipelines.datasets.splits import LabelledSplit, Split

Change = Callable[[pd.DataFrame], pd.DataFrame]


def _as_it_is(table: pd.DataFrame) -> pd.DataFrame:
    return table


def _log(name: str) -> Change:
    return lambda table: table.assign(**{name: np.log(table[name].clip(lower=1))})


def _late(table: pd.DataFrame) -> pd.DataFrame:
    late = (table["arr_delay"] > 30).astype(int)
    return table.assign(late=late).drop(columns=["arr_delay", "dep_delay"])


@dataclass(frozen=True)
class TableJob:
    """A table, and what is asked of it.

    Attributes
    ----------
    file : str
        Of the table, without ``.parquet``.
    target : str
        Column, after the change. Of labels the last by the number of rows is the rare one, which
        becomes 1.
    change : callable
        Of the raw table.
    is_class : bool
        Whether the target is a label.
    terms : dict or None
        Of models of dsgp, where the defaults do not say what a column is.
    """

    file: str
    target: str
    change: Change = _as_it_is
    is_class: bool = False
    terms: dict[str, Any] | None = None


DATES = {"date": [Smooth(), Smooth(kernel=Periodic("year")), Levels(part="weekday")]}
TABLE_JOBS = {
    "diamonds": TableJob("diamonds", "price", _log("price")),
    "deliveries": TableJob("deliveries", "time_to_delivery"),
    "hotel_rates": TableJob("hotel_rates", "avg_price_per_room"),
    "ames": TableJob("ames", "Sale_Price", _log("Sale_Price")),
    "birthdays": TableJob("birthdays", "births", _log("births"), terms=DATES),
    "insteval": TableJob("insteval", "y"),
    "flights": TableJob("flights", "late", _late, is_class=True),
    "lending_club": TableJob("lending_club", "Class", is_class=True),
}
# Sets of numbers in ``.npz`` files, regressions all.
NUMBER_JOBS = ("kin40k", "elevators", "pumadyn8fm", "pumadyn8nm", "pumadyn32nm")
SHARE_TRAINED = 0.8


def path_of(name: str, data_dir: Path) -> Path:
    """File of a job: in the folder, or a table in its ``tables``.

    Raises
    ------
    ParameterError
        If there is no such job.
    DataError
        If the folder has no such file.
    """
    if name not in TABLE_JOBS and name not in NUMBER_JOBS:
        raise ParameterError(
            f"there is no job {name!r}; there are: {', '.join([*TABLE_JOBS, *NUMBER_JOBS])}"
        )
    file = f"{TABLE_JOBS[name].file}.parquet" if name in TABLE_JOBS else f"{name}.npz"
    for path in (data_dir / "tables" / file, data_dir / file):
        if path.is_file():
            return path
    raise DataError(f"job {name}: expected {file} in {data_dir} or in {data_dir / 'tables'}")


def load_job(name: str, data_dir: Path) -> Split:
    """Read and split the data of a job; missing inputs stay as they are.

    Parameters
    ----------
    name : str
        Of ``TABLE_JOBS`` or ``NUMBER_JOBS``.
    data_dir : Path
        See ``path_of``.

    Returns
    -------
    Split
        A ``LabelledSplit`` with classes 0 and 1 where the target is a label.
    """
    path = path_of(name, data_dir)
    if name in NUMBER_JOBS:
        return load(path, seed=default_seed(name))
    return split_table(name, TABLE_JOBS[name], pd.read_parquet(path))


def split_table(name: str, job: TableJob, table: pd.DataFrame) -> Split:
    """Change and split a raw table."""
    changed = job.change(table)
    known = changed[changed[job.target].notna()].reset_index(drop=True)
    y = known.pop(job.target)
    if not pd.api.types.is_numeric_dtype(y):
        y = (y == y.value_counts().index[-1]).astype(int)
    order = np.random.default_rng(0).permutation(len(known))
    train, test = np.split(order, [int(SHARE_TRAINED * len(order))])
    values = y.to_numpy()
    parts: dict[str, Any] = {
        "name": name,
        "X_train": known.iloc[train],
        "y_train": values[train],
        "X_test": known.iloc[test],
        "y_test": values[test],
        "f_train": None,
        "f_test": None,
        "target": job.target,
    }
    if not job.is_class:
        return Split(**parts)
    return LabelledSplit(**parts, classes=np.array([0, 1]), n_left_out=len(table) - len(known))
