"""Explanations of predictions, row by row: what each term contributes, the largest terms first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from dsgp.models.base import FittedModel
from dsgp.rows.sources import Rows, computed
from dsgp.terms import Floats


class Explanation:
    """What is answered of rows, and how it is put together as a dataset.

    Parameters
    ----------
    latent : FittedModel
    """

    def __init__(self, latent: FittedModel) -> None:
        self.latent = latent
        self.order = np.argsort(-np.array(latent.variances), kind="stable")
        """Positions of the terms, those that vary most over the training rows first."""

    @property
    def n_columns(self) -> int:
        """Numbers of each row: the prediction, then contributions, then their deviations."""
        return 1 + 2 * len(self.order)

    def __call__(self, rows: Rows) -> list[Floats]:
        """Answer some rows."""
        mean, _ = self.latent.moments(rows, False)
        contribution, std = self.latent.component_moments(rows)
        return [mean, *contribution.T[self.order], *std.T[self.order]]

    @property
    def names(self) -> list[str]:
        """What the numbers of each row are, as columns of a table."""
        terms = [self.latent.names[d] for d in self.order]
        return [
            "prediction",
            *(f"{what}_{term}" for what in ("contribution", "std") for term in terms),
        ]

    def dataset(self, answered: Any, index: Sequence[Any] | None, scale: str) -> xr.Dataset:
        """Put answers together.

        Parameters
        ----------
        answered : ndarray or dask array of shape (n_rows, n_columns)
        index : sequence, optional
            Labels of the rows; their numbers where there are none.
        scale : str
            What all numbers are on the scale of, for people.
        """
        if math.isnan(answered.shape[0]):  # a dask data frame does not know its rows
            answered = computed(answered)
        n_rows, last = answered.shape[0], 1 + len(self.order)
        attributes = {"scale": scale}
        return xr.Dataset(
            {
                "contribution": (
                    ("row", "term"),
                    answered[:, 1:last],
                    {"long_name": "effect of the term, less its mean over training rows"}
                    | attributes,
                ),
                "std": (
                    ("row", "term"),
                    answered[:, last:],
                    {"long_name": "standard deviation of the contribution"} | attributes,
                ),
                "intercept": (
                    (),
                    self.latent.intercept,
                    {"long_name": "prediction where every contribution is 0"} | attributes,
                ),
                "prediction": (
                    ("row",),
                    answered[:, 0],
                    {"long_name": "intercept plus all contributions"} | attributes,
                ),
            },
            coords={
                "row": np.arange(n_rows) if index is None else np.asarray(index),
                "term": [self.latent.names[d] for d in self.order],
                "kind": ("term", [self.latent.roles[d] for d in self.order]),
            },
        )


def of_classes(parts: Sequence[xr.Dataset], classes: Any) -> xr.Dataset:
    """Put the explanations of several classes together, terms in the order of the first."""
    together = xr.concat(
        [part.sel(term=parts[0]["term"].to_numpy()) for part in parts],
        dim="class",
        data_vars="all",
        coords="minimal",
        compat="override",
    )
    return together.assign_coords({"class": classes})
