"""Numbers and sizes of effects as a reader wants them: few digits, and factors where these fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dsgp.alike import format_alike
from dsgp.plotting.panels import link_of

# Digits that charts keep; more cannot be seen.
_DIGITS = 5
# All that a number has.
_ALL_DIGITS = 17
# Of the largest effect of a table at least, and the share of it that still has some.
_OF_EFFECTS, _LEAST = 3, 0.01
# Numbers that are written without a power of ten.
_SMALL, _LARGE = 1e-4, 1e7
# Numbers whose thousands are set apart; smaller ones may be years.
GROUPED = 1e4
# Names in a sentence.
_NAMED = 8
_FINE = 0.95  # per cent below which there are two decimals


def significant(value: float, digits: int = _DIGITS) -> float:
    """Round to significant digits.

    Examples
    --------
    >>> from dsgp.report.words import significant
    >>> significant(1234.5678), significant(0.000123456789), significant(0.0)
    (1234.6, 0.00012346, 0.0)
    """
    return float(f"{value:.{digits}g}")


def digits_of(values: Any, digits: int = _DIGITS) -> int:
    """Digits that write numbers apart: more where they are close together and far from zero.

    Examples
    --------
    >>> from dsgp.report.words import digits_of
    >>> digits_of([0.0, 2.0], 3), digits_of([1e6, 1e6 + 10], 3)
    (3, 8)
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    span = float(np.ptp(known)) if len(known) else 0.0
    if span == 0:
        return digits
    shared = math.floor(math.log10(float(np.abs(known).max()) / span))
    return min(digits + max(shared, 0), _ALL_DIGITS)


def fine(values: Any) -> list[float]:
    """Round numbers to what can be seen of all that they span, wherever zero is.

    Examples
    --------
    >>> from dsgp.report.words import fine
    >>> fine([0.123456789, 1.0]), fine([1_000_000.123456789, 1_000_001.0])
    ([0.12346, 1.0], [1000000.1235, 1000001.0])
    """
    digits = digits_of(values)
    return [significant(float(value), digits) for value in values]


def number(value: float, digits: int = 3) -> str:
    """Write a number with significant digits, thousands apart.

    Examples
    --------
    >>> from dsgp.report.words import number
    >>> number(1234567.0), number(-0.01234), number(3e-9), number(float("nan"))
    ('1,230,000', '−0.0123', '3e-09', '–')
    >>> number(1995.0, 4), number(12345.0, 5)
    ('1995', '12,345')
    """
    if math.isnan(value):
        return "–"
    if value == 0 or not _SMALL <= abs(value) < _LARGE:
        return f"{value:.{digits}g}".replace("-", "−", 1 if value < 0 else 0)
    rounded = significant(value, digits)
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:{',' if abs(rounded) >= GROUPED else ''}.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def with_minus(text: str) -> str:
    """Write minus signs instead of hyphens in front of numbers, except in exponents."""
    return re.sub(r"(?<!e)-(?=\d)", "−", text)


def signed_alike(values: Sequence[float]) -> list[str]:
    """Write effects with their signs, all in one format.

    Examples
    --------
    >>> from dsgp.report.words import signed_alike
    >>> signed_alike([388_000.0, -11_650.0, 2.5])
    ['+388,000', '−11,650', '+2']
    """
    form = format_alike(values, _OF_EFFECTS, _LEAST)
    return [with_minus(format(value, f"+{form}")) for value in values]


def listed_names(names: Iterable[str]) -> str:
    """Name the first of some things, and say how many more there are."""
    all_names = list(names)
    more = len(all_names) - _NAMED
    shown = ", ".join(all_names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def share_of(value: float) -> str:
    """Write a share as a percentage."""
    if math.isnan(value):
        return "–"
    percent = 100 * value
    decimals = 1 if abs(percent) >= _FINE else 2
    return f"{round(percent, decimals) + 0.0:.{decimals}f}%".replace("-", "−")


def p_value_of(value: float) -> str:
    """Write a p-value."""
    if math.isnan(value):
        return "–"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def factor_of(model: Any) -> str | None:
    """Say what an effect e multiplies by exp(e), where the scale is that of a logarithm."""
    link = link_of(model)
    if link == "log":
        return "the mean"
    if link == "logit":
        return "the odds"
    transform = getattr(model, "transform_", None)
    return "the target" if transform is not None and transform.name == "log" else None


def as_factors(model: Any, low: float, high: float) -> str:
    """Write a range of effects as factors, "" where they are none."""
    if factor_of(model) is None or not (abs(low) < 50 and abs(high) < 50):
        return ""
    return f"× {number(math.exp(low))} to × {number(math.exp(high))}"


def sentence(note: str) -> str:
    """Write a note as a sentence.

    Examples
    --------
    >>> from dsgp.report.words import sentence
    >>> sentence("none of 3 pairs gains")
    'None of 3 pairs gains.'
    """
    text = note[:1].upper() + note[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
