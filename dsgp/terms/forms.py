"""The form of algebra that a kernel is computed with, which decides the kind of cells."""

from __future__ import annotations

from collections.abc import Iterator

from dsgp.errors import ParameterError
from dsgp.kernels import Kernel, Matern

FORMS = ("state-space", "dense")
# Number of components of a state up to which its passes take less time than a dense factor.
MOST_STATES = 16


def family_of(kernel: Kernel, form: str | None, column: str) -> str:
    """Return the kind of cells of a kernel, by cost if no form is specified."""
    if form == "dense":
        return "dense"
    if isinstance(kernel, Matern):
        return "axis"
    parts = list(leaves_of(kernel))
    if form == "state-space":
        for part in parts:
            if type(part).state_space is Kernel.state_space:
                raise ParameterError(
                    f"form='state-space' of column {column!r}: {part!r} has no state-space form; "
                    "leave the form out, or use another kernel"
                )
        return "markov"
    if any(part.error is not None for part in parts):
        has_form = all(part.error is not None or part.n_states is not None for part in parts)
        return "markov" if has_form else "dense"
    return "markov" if (kernel.n_states or MOST_STATES + 1) <= MOST_STATES else "dense"


def leaves_of(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernels that sums and products are made of."""
    parts = getattr(kernel, "parts", None)
    if parts is None:
        yield kernel
    else:
        for part in parts:
            yield from leaves_of(part)
