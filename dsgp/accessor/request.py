"""The request to a method of the accessor, checked."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dsgp  # GridGP is imported when first used: what is behind it takes a second
from dsgp.errors import ParameterError


@dataclass(frozen=True)
class Request:
    """A request for results of a field.

    Attributes
    ----------
    options : dict
        Of ``GridGP``.
    include_noise : bool
    mask, domain : as ``GridGP.fit`` takes them
    keep_observed : bool
    coords : mapping of dim to array_like, or None
        Another grid; None: that of the field.
    quantiles : tuple of float
        Probabilities.
    variables : hashable or iterable of hashable, or None
        Of a Dataset: the fields; None: those that are found to be.
    fills : bool
        Whether only gaps are requested.
    """

    options: dict[str, Any]
    include_noise: bool
    mask: Any = None
    domain: Any = None
    keep_observed: bool = False
    coords: Mapping[str, Any] | None = None
    variables: Any = None
    quantiles: tuple[float, ...] = ()
    fills: bool = False

    def with_arrays(self, arrays: Mapping[str, Any]) -> Request:
        """Replace "mask", "domain", "noise_variance" or "mean"."""
        of_fit: dict[str, Any] = {
            name: arrays[name] for name in arrays if name in ("mask", "domain")
        }
        of_model = {name: arrays[name] for name in arrays if name in ("noise_variance", "mean")}
        return replace(self, options=self.options | of_model, **of_fit)


def known_options(
    options: Mapping[str, Any], method: str, dims: set[str] | None = None
) -> dict[str, Any]:
    """Return options that ``GridGP`` has, ``quantiles``, and ``variables`` of a Dataset."""
    names = ["variables", "quantiles", *inspect.signature(dsgp.GridGP).parameters]
    for name in options:
        if name not in names:
            among = names if dims is None else [*sorted(dims), *names]
            close = difflib.get_close_matches(name, among, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            kind = "an option" if dims is None else f"one of the dims {sorted(dims)}, or an option"
            raise ParameterError(
                f"{method}: {name!r} is not {kind}; options are {', '.join(names)}{hint}"
            )
    return dict(options)
