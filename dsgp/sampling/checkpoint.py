"""Chains on disk: from them an interrupted run resumes, and a finished one is continued."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsgp import storage
from dsgp.addresses import Place, exists
from dsgp.errors import StorageError
from dsgp.sampling.parameters import HyperModel
from dsgp.sampling.state import ChainState
from dsgp.terms import Floats

KIND = "chains"


@dataclass(frozen=True)
class Kept:
    """A chain's state and the draws it has made.

    Attributes
    ----------
    state : ChainState or None
        None before the chain has begun.
    theta : list of ndarray of shape (n_parameters,)
    log_likelihood : list of float
    sweeps : int
        Done, those of the warm-up among them.
    """

    state: ChainState | None = None
    theta: list[Floats] = field(default_factory=list)
    log_likelihood: list[float] = field(default_factory=list)
    sweeps: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A store of the chains of one run.

    Attributes
    ----------
    place : str or Path
    identity : mapping of str to str
        What must be the same when the run is resumed, by the names that users know.
    """

    place: str | Place
    identity: Mapping[str, str]

    def load(self) -> list[Kept] | None:
        """Return the chains as they were saved; None if there is no store yet.

        Raises
        ------
        StorageError
            If the place holds something else, or the store is damaged or of another run.
        """
        if not exists(storage.place_of(self.place)):
            return None
        settings, tree = _read(self.place)
        differing = [
            name for name, value in self.identity.items() if settings["identity"].get(name) != value
        ]
        if differing:
            raise StorageError(
                f"{str(self.place)!r} has chains of another run: {' and '.join(differing)} differ "
                "from what is fitted now; fit with the same settings and rows as it, or choose "
                "another path"
            )
        states = [
            ChainState(chain["numbers"], _unpacked(tree[f"state{k}"], chain["shapes"]))
            for k, chain in enumerate(settings["chains"])
        ]
        return [
            Kept(state, list(theta), [float(value) for value in values], int(settings["sweeps"]))
            for state, theta, values in zip(
                states, tree["theta"], tree["log_likelihood"], strict=True
            )
        ]

    def save(self, chains: Sequence[Kept]) -> None:
        """Write all chains, at the same sweep, to a temporary place, and move them into place."""
        states = [each.state for each in chains if each.state is not None]
        settings = {
            "identity": dict(self.identity),
            "sweeps": chains[0].sweeps,
            "chains": [
                {
                    "numbers": state.numbers,
                    "shapes": {name: values.shape for name, values in state.arrays.items()},
                }
                for state in states
            ],
        }
        # One array per chain, because each costs a file and some milliseconds.
        tree: dict[str, Any] = {
            f"state{k}": np.concatenate([values.ravel() for values in state.arrays.values()])
            for k, state in enumerate(states)
        }
        n_draws = len(chains[0].theta)
        # Without draws the number of parameters is not known.
        size = len(chains[0].theta[0]) if n_draws else 1
        tree["theta"] = np.array([each.theta for each in chains]).reshape(
            len(chains), n_draws, size
        )
        tree["log_likelihood"] = np.array([each.log_likelihood for each in chains])
        storage.write(self.place, KIND, settings, tree, overwrite=True)


def _unpacked(vector: Floats, shapes: Mapping[str, Sequence[int]]) -> dict[str, Floats]:
    """Cut a vector into arrays of some shapes, in their order."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(vector, ends[:-1])
    return {
        name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def require_place(place: str | Place) -> None:
    """Raise ``StorageError`` unless chains are at a path already, or can be written there."""
    if exists(storage.place_of(place)):
        _read(place)
    storage.check_writable(place, overwrite=True)


def seed_of(place: str | Place) -> int | None:
    """Return the seed of the chains at a path; None where there are none."""
    if not exists(storage.place_of(place)):
        return None
    return int(_read(place)[0]["identity"]["random_state"])


def identity_of(model: HyperModel, method: str, n_warmup: int, n_chains: int, seed: int) -> Any:
    """Return what distinguishes a run from others: what users may have changed."""
    equations = model.equations
    layout = equations.layout
    kernels = [(repr(term.kernel), term.names) for term in model.terms]
    bounds = [bound for term in model.terms for bound in (term.lower, term.upper)]
    priors = [part for term in model.terms for part in (term.centre, term.std)]
    numbers = [(term.shape, term.rate) for term in model.terms]
    return {
        "the rows": _digest(
            *(cells.points for cells in layout.cells),
            equations.weight,
            equations.information,
            np.array([equations.n_rows, equations.quadratic, equations.log_weight]),
        ),
        "terms, kernels or how they are learned": _digest(
            np.frombuffer(repr((layout.names, kernels)).encode(), dtype=np.uint8),
            model.start,
            *bounds,
            np.array([model.noise.lower, model.noise.upper]),
        ),
        "priors": _digest(
            *priors, np.array([*numbers, (model.noise.shape, model.noise.rate)], dtype=np.float64)
        ),
        "method": method,
        "n_warmup": str(n_warmup),
        "n_chains": str(n_chains),
        "random_state": str(seed),
    }


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        digest.update(repr((values.shape, values.dtype.str)).encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _read(place: str | Place) -> tuple[dict[str, Any], dict[str, Any]]:
    kind, settings, tree = storage.read(place)
    if kind != KIND:
        raise StorageError(
            f"{str(place)!r} is a stored {kind}, not chains of a fit; choose another path"
        )
    return settings, tree
