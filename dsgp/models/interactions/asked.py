"""The option ``interactions=``: its check, the columns that can interact, and their terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dsgp.errors import ParameterError
from dsgp.kernels import CentredProduct, Independent, Kernel, Matern52
from dsgp.learning.search import without_starts
from dsgp.terms import BoundTerm, Input
from dsgp.terms.interaction import FAMILIES


def require_interactions(value: Any, learner: str | None) -> None:
    """Raise ``ParameterError`` if it is not "auto", a number, or pairs of names, or not learned."""
    _require_form(value)
    if value and learner is None:
        raise ParameterError(
            "interactions are learned, and learner=None keeps the given values: use a learner, "
            "or give Tensor(column, other, kernel, other_kernel) among the terms"
        )


def _require_form(value: Any) -> None:
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value == "auto" if isinstance(value, str) else is_number and value >= 0:
        return
    pairs = isinstance(value, (list, tuple)) and all(
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and all(isinstance(name, str) for name in pair)
        for pair in value
    )
    if not pairs:
        raise ParameterError(
            'interactions must be "auto", a number of pairs, or a list of pairs of columns such as '
            f"[('hour', 'day')], got {value!r}"
        )
    named = [tuple(pair) for pair in value]
    for pair in named:
        if pair[0] == pair[1]:
            raise ParameterError(f"interactions has column {pair[0]!r} with itself")
        if named.count(pair) + named.count(pair[::-1]) > 1:
            raise ParameterError(f"interactions has {pair} twice")


def chosen_pairs(
    terms: list[BoundTerm], pairs: Sequence[Sequence[str]]
) -> list[tuple[BoundTerm, BoundTerm]]:
    """Return the terms that pairs name.

    Raises
    ------
    ParameterError
        If there is no such term, or it is none of a single column.
    """
    by_name = {term.name: term for term in candidates_of(terms)}
    for name in (name for pair in pairs for name in pair):
        if name not in by_name:
            raise ParameterError(
                f"interactions names {name!r}; there are terms of single columns {list(by_name)}"
            )
    return [(by_name[first], by_name[other]) for first, other in pairs]


def candidates_of(terms: list[BoundTerm]) -> list[BoundTerm]:
    """Terms of single columns that can interact, one for each input."""
    by_input: dict[Input, BoundTerm] = {}
    for term in terms:
        if term.family == "constant" and term.multiplier is not None:
            column = Input(term.multiplier.column)  # for a line, the function that it may become
            by_input.setdefault(column, BoundTerm(term.name, Matern52(), "axis", column))
            continue
        if len(term.inputs) == 1 and term.value is not None:
            by_input.setdefault(term.value, term)
    return list(by_input.values())


def interaction_of(first: BoundTerm, other: BoundTerm) -> BoundTerm:
    """Return the interaction of the columns of two terms."""
    # The levels of a curve come second.
    sides = sorted((first, other), key=lambda term: term.family == "levels")
    assert sides[0].value is not None
    kernel = CentredProduct((_kernel_of(sides[0]), _kernel_of(sides[1])))
    return BoundTerm(
        f"{first.name} × {other.name}",
        kernel,
        FAMILIES[sum(side.family == "levels" for side in sides)],
        sides[0].value,
        kind="Tensor",
        other=sides[1].value,
    )


def _kernel_of(term: BoundTerm) -> Kernel:
    if term.family == "levels":
        return Independent()
    kernel = term.kernel
    if [name for name in kernel.parameters if name.startswith("variance")] != ["variance"]:
        return Matern52()
    free = replace(kernel, fixed=(), priors={}) if kernel.priors else replace(kernel, fixed=())
    return without_starts(free)


def require_new(terms: list[BoundTerm], pairs: list[BoundTerm]) -> None:
    """Raise ``ParameterError`` if a pair that is named is among the terms already."""
    by_inputs = {frozenset(term.inputs): term.name for term in terms if term.other is not None}
    names = {term.name for term in terms}
    for pair in pairs:
        present = by_inputs.get(frozenset(pair.inputs))
        if present is None and pair.name in names:
            present = pair.name
        if present is not None:
            raise ParameterError(
                f"interactions names a pair that is among the terms already, as {present!r}: leave "
                "one of them out"
            )
