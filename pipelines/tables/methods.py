"""Methods by name. A new one is one entry."""

from dataclasses import dataclass

from pipelines.cells import installed
from pipelines.tables import ours
from pipelines.tables.contract import Method
from pipelines.tables.mgcv import Mgcv
from pipelines.tables.ours import Ours
from pipelines.tables.peers import Ebm, Ridge, Trees


@dataclass(frozen=True)
class Entry:
    """A method, and what it is called in reports."""

    label: str
    method: Method


METHODS = {
    "additive": Entry("additive", Ours(ours.additive, ours.additive_classes)),
    "interactions": Entry(
        'additive, interactions="auto"',
        Ours(ours.with_interactions, ours.classes_with_interactions),
    ),
    "remainder": Entry('interactions="auto", remainder=True', Ours(ours.with_remainder)),
    "pursuit": Entry(
        "projection pursuit", Ours(ours.pursuit, ours.pursuit_classes, fills_gaps=True)
    ),
    "trees": Entry("boosted trees (scikit-learn)", Trees()),
    "ebm": Entry("EBM (interpret)", Ebm()),
    "ridge": Entry("spline ridge, one-hot (scikit-learn)", Ridge()),
    "mgcv": Entry("mgcv, no interactions", Mgcv()),
}
# What the others are compared with, row by row.
REFERENCE = "additive"


def methods_named(names: list[str] | None) -> tuple[list[str], list[str]]:
    """Return methods to run, and a line for each that is left out, like ``installed``."""
    return installed(names, {name: entry.method.lacking for name, entry in METHODS.items()})
