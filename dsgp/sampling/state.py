"""States of chains as numbers and arrays: what travels between processes, and what is kept on disk.

A new chain of the same model and rows, into which a state is put, continues bit for bit as the
chain that the state came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsgp.sampling.slices import Adapted, Ellipse
from dsgp.terms import Floats

# Integers of a generator have 128 bits, more than all readers of JSON support.
_WORDS = ("state", "inc")


@dataclass(frozen=True)
class ChainState:
    """All that a chain has and its model does not.

    Attributes
    ----------
    numbers : dict
        Values that JSON can hold.
    arrays : dict of str to ndarray
    """

    numbers: dict[str, Any]
    arrays: dict[str, Floats]


def of_generator(random: np.random.Generator) -> dict[str, Any]:
    """Return the state of a PCG64 generator, in values that JSON can hold."""
    state: dict[str, Any] = dict(random.bit_generator.state)
    return state | {"state": {name: hex(state["state"][name]) for name in _WORDS}}


def put_into_generator(random: np.random.Generator, state: dict[str, Any]) -> None:
    """Undo ``of_generator``."""
    words = {name: int(state["state"][name], 16) for name in _WORDS}
    random.bit_generator.state = dict(state) | {"state": words}


def of_adapted(adapted: Adapted, name: str) -> dict[str, Floats]:
    """Return the arrays of an adapted ellipse, under names that begin with ``name``."""
    size = len(adapted.ellipse.mean)
    return {
        f"{name}.begun": adapted.begun,
        f"{name}.mean": adapted.ellipse.mean,
        f"{name}.covariance": adapted.ellipse.covariance,
        f"{name}.history": np.array(adapted.history, dtype=np.float64).reshape(
            len(adapted.history), size
        ),
    }


def adapted_of(arrays: dict[str, Floats], name: str) -> Adapted:
    """Undo ``of_adapted``."""
    begun, mean, covariance, history = (
        arrays[f"{name}.{part}"] for part in ("begun", "mean", "covariance", "history")
    )
    adapted = Adapted(mean, begun)
    adapted.ellipse = Ellipse(mean, covariance)
    adapted.history = list(history)
    return adapted
