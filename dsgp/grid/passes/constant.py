"""How much of an error of the constant shows in a region of a field on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from dsgp.grid.passes.regions import Region
from dsgp.grid.products import kron_mvprod

Floats = NDArray[np.float64]

# Limits of the numbers of the eigenbasis by which a constant is expressed. Most eigenvectors of an
# axis are waves, in which it has next to no share: they are left out if the share of its square is
# below the first number, or so that at most as many numbers as the second are left.
_LEAST_SHARE, _MOST = 1e-12, 2**21


def constant_share(
    vectors: Sequence[Floats], values: Sequence[Floats], noise_variance: float, region: Region
) -> Floats:
    """Return σ² (K + σ² I)⁻¹ 1 in a region of the grid, K = Q Λ Qᵀ.

    Parameters
    ----------
    vectors, values : sequence of D ndarrays of shapes (G_d, G_d), (G_d,)
    noise_variance : float
    region : tuple of D slices

    Examples
    --------
    >>> import numpy as np
    >>> from dsgp.grid.passes.constant import constant_share
    >>> constant_share([np.eye(2)], [np.array([1.0, 3.0])], 1.0, (slice(0, 2),))
    array([0.5 , 0.25])
    """
    parts = [columns.sum(axis=0) for columns in vectors]  # Qᵀ 1 of each axis
    energy = [part**2 / len(part) for part in parts]
    least = _LEAST_SHARE
    while math.prod(int(np.count_nonzero(shares > least)) for shares in energy) > _MOST:
        least *= 2.0
    kept = [np.flatnonzero(shares > least) for shares in energy]
    heights = reduce(np.multiply.outer, [v[k] for v, k in zip(values, kept, strict=True)])
    core = reduce(np.multiply.outer, [p[k] for p, k in zip(parts, kept, strict=True)])
    core = core * (noise_variance / (heights + noise_variance))
    rows = [np.ascontiguousarray(q[r][:, k]) for q, r, k in zip(vectors, region, kept, strict=True)]
    return np.asarray(kron_mvprod(rows, core))
