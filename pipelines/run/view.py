"""What local scoring has for inputs: columns, the projections of a pursuit, or both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dsgp
from dsgp.errors import DataError
from pipelines.datasets import Floats
from pipelines.run.encoding import Encoded
from pipelines.run.folders import read_json
from pipelines.run.tables import BLOCK_ROWS, TRAIN


@dataclass(frozen=True, eq=False)
class View:
    """Columns, and projections of standardised columns.

    Attributes
    ----------
    columns : list of str
        Those that are inputs themselves.
    weights : DataFrame of shape (n_projections, n_columns)
    centre, scale : Series
        Of the columns that are projected.
    """

    columns: list[str]
    weights: pd.DataFrame
    centre: pd.Series
    scale: pd.Series

    @classmethod
    def of_columns(cls, encoded: Encoded) -> "View":
        """The columns as they are."""
        none = pd.Series(dtype=np.float64)
        return cls(encoded.inputs, pd.DataFrame(), none, none)

    @classmethod
    def made(cls, needs: dict[str, Path], encoded: Encoded) -> "View":
        """What the stages before have found."""
        if "pursuit" not in needs:
            return cls.of_columns(encoded)
        model = dsgp.load(needs["pursuit"] / "model.zarr")
        weights = model.projections_
        centre, scale = _moments(encoded, list(weights.columns))
        columns = encoded.inputs
        if "additive" not in needs:
            beside = model.terms_[model.n_projections_ :]
            columns = list(dict.fromkeys(name for term in beside for name in term.bound.columns))
        if clash := set(columns) & set(weights.index):
            raise DataError(f"input column {min(clash)!r} has the name of a projection; rename it")
        if not columns and len(weights) == 0:
            raise DataError("the pursuit found no projection, so there is nothing to score in")
        return cls(columns, weights, centre, scale)

    @classmethod
    def read(cls, path: Path) -> "View":
        """Undo ``settings``."""
        stored = read_json(path)
        assert stored is not None
        projected = stored["projected"]
        weights = pd.DataFrame(stored["weights"], stored["projections"], projected, np.float64)
        return cls(
            stored["columns"],
            weights,
            pd.Series(stored["centre"], projected, np.float64),
            pd.Series(stored["scale"], projected, np.float64),
        )

    def settings(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "columns": self.columns,
            "projections": self.weights.index.to_list(),
            "projected": self.weights.columns.to_list(),
            "weights": self.weights.to_numpy().tolist(),
            "centre": self.centre.to_list(),
            "scale": self.scale.to_list(),
        }

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are columns of the encoded table."""
        return len(self.weights) == 0

    @property
    def names(self) -> list[str]:
        return [*self.columns, *self.weights.index]

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Turn rows of the encoded table into the inputs."""
        if self.is_plain:
            return frame[self.columns]
        projected = list(self.weights.columns)
        standard = (frame[projected].astype(np.float64) - self.centre) / self.scale
        # Row by row the same sums, whatever the block.
        made = {
            name: (standard * self.weights.loc[name]).sum(axis=1, skipna=False)
            for name in self.weights.index
        }
        return frame[self.columns].assign(**made)


def _moments(encoded: Encoded, names: list[str]) -> tuple[pd.Series, pd.Series]:
    """Mean and standard deviation of columns over the training rows."""
    count, total, squares = 0, np.zeros(len(names)), np.zeros(len(names))
    origin: Floats | None = None
    for frame in encoded.blocks(TRAIN, BLOCK_ROWS):
        values = frame[names].to_numpy(np.float64)
        if origin is None:  # squares of large values with a small spread would cancel
            origin = values.mean(axis=0)
        values = values - origin
        count += len(values)
        total += values.sum(axis=0)
        squares += (values**2).sum(axis=0)
    assert origin is not None
    mean = total / count
    scale = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    # A constant column has weight 0 or none.
    scale[scale == 0] = 1.0
    return pd.Series(origin + mean, names), pd.Series(scale, names)
