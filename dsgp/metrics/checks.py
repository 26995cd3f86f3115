"""What the measures ask of their arguments: shapes that agree, finite values, shares."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsgp.errors import DataError


def require_share(level: float) -> None:
    """Raise ``DataError`` unless a level is between 0 and 1."""
    if not 0 < level < 1:
        raise DataError(f"level: expected a share between 0 and 1, such as 0.95, got {level!r}")


def aligned(y: ArrayLike, **others: ArrayLike) -> list[NDArray[np.float64]]:
    """Return float arrays of the shape of `y`, which the others share or are scalars."""
    target = np.asarray(y, dtype=float)
    if target.size == 0:
        raise DataError("y: expected at least one value, got none")
    arrays = {"y": target}
    for name, values in others.items():
        array = np.asarray(values, dtype=float)
        # numpy would stretch (n,) against (n, 1) to (n, n) and average over all pairs
        if array.ndim and array.shape != target.shape:
            raise DataError(
                f"{name}: expected the shape of y, {target.shape}, or a number, "
                f"got shape {array.shape}"
            )
        arrays[name] = np.broadcast_to(array, target.shape)
    for name, array in arrays.items():
        n_bad = int(np.count_nonzero(~np.isfinite(array)))
        if n_bad:
            raise DataError(
                f"{name}: expected finite values, got {n_bad} missing or infinite; "
                "leave those rows out first"
            )
    return list(arrays.values())
