"""What rows of before count for in an update."""

from __future__ import annotations

import math

from dsgp.errors import ParameterError
from dsgp.models.checks import require_number, require_positive


def share_of_rows_before(half_life: float | None, elapsed: float | None) -> float:
    """Return what a row so far counts for, 2^(−elapsed / half_life); 1 without a half-life.

    Raises
    ------
    ParameterError
        If one of both is out of its range, or nothing would be left of the rows.
    """
    if half_life is None:
        if elapsed is not None:
            raise ParameterError(
                "elapsed is in the unit of half_life, which is None: nothing is forgotten; give "
                "half_life, or leave elapsed out"
            )
        return 1.0
    require_positive("half_life", half_life)
    passed = 1.0 if elapsed is None else elapsed
    require_number("elapsed", passed)
    if passed < 0:
        raise ParameterError(f"elapsed must not be negative, got {passed:g}")
    share = 2.0 ** (-float(passed) / float(half_life))
    if not share > 1e-12 or not math.isfinite(share):
        raise ParameterError(
            f"half_life={half_life:g} forgets all rows so far within elapsed={passed:g}: fit the "
            "model to the new rows"
        )
    return share
