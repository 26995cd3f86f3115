"""The one place for compiler flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

# nogil: passes over different axes run on a thread pool. cache: code is compiled once per machine.
# No fastmath: the order of sums is part of the result, and NaN must stay visible.
compiled: Callable[..., Any] = numba.njit(nogil=True, cache=True, error_model="numpy")
