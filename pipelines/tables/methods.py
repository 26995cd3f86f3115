"""Methods by name. A new one is one entry."""

from dataclasses import dataclass

from dsgp.errors import ParameterError
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
    """Methods to run, and a line for each that is left out.

    Parameters
    ----------
    names : list of str or None
        None is all that are installed.

    Raises
    ------
    ParameterError
        If there is no such method, or one that is named is not installed.
    """
    chosen: list[str] = []
    notes: list[str] = []
    for name in names if names is not None else METHODS:
        if name not in METHODS:
            raise ParameterError(f"there is no model {name!r}; there are: {', '.join(METHODS)}")
        lacking = METHODS[name].method.lacking()
        if lacking is None:
            chosen.append(name)
        elif names is not None:
            raise ParameterError(f"model {name}: {lacking}")
        else:
            notes.append(f"{name} is left out: {lacking}")
    return chosen, notes
