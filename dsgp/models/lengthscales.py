"""Lengthscales of fitted terms, for people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsgp.alike import format_alike
from dsgp.kernels import Kernel
from dsgp.models.base import FittedModel

# Largest number of lengthscales that are shown for a term: one per input of a surface.
_LENGTHSCALES = 2
# In distances of neighbouring values: with shorter lengthscales, neighbours have little in common.
_FINE = 1.001
# A column with at most as many distinct values is not a curve.
_FEW_VALUES = 10


def lengthscales_of(kernel: Kernel) -> list[float]:
    """Lengthscales of a kernel that are known, in the order of its inputs or parts."""
    values = (kernel.value(name) for name in kernel.parameters if name.startswith("lengthscale"))
    return [value for value in values if value is not None]


def written_lengthscales(kernels: Sequence[Kernel]) -> list[str]:
    """Write down the lengthscale of each function, or both of a surface, all in one format."""
    lengthscales = [lengthscales_of(kernel) for kernel in kernels]
    shown = [some if len(some) <= _LENGTHSCALES else [] for some in lengthscales]
    form = format_alike([value for some in shown for value in some])
    return [" × ".join(format(value, form) for value in some) or "–" for some in shown]


def lengthscale_of(kernel: Kernel) -> float:
    """The only lengthscale of a kernel; NaN where there is none, or several."""
    names = [name for name in kernel.parameters if name.startswith("lengthscale")]
    value = kernel.value(names[0]) if len(names) == 1 else None
    return np.nan if value is None else value


def fine_lines(latent: FittedModel) -> list[tuple[str, str]]:
    """Name the functions whose values at neighbouring points have little in common."""
    fine = []
    for term in latent.terms:
        is_curve = term.bound.kind == "Smooth" and term.bound.group is None
        is_curve &= len(term.cells) > _FEW_VALUES
        scale = term.cells.scale(term.weight) if is_curve else None
        lengthscale = lengthscale_of(term.kernel)
        if scale is not None and lengthscale <= _FINE * scale.spacing:
            fine.append(term.name)
    if not fine:
        return []
    text = "ℓ does not exceed the distance of neighbouring values, so that each has an effect of"
    return [
        ("rough terms", f"{', '.join(fine)}: {text}"),
        ("", "its own, which may be chance: term_tests(model) tests this"),
    ]
