"""synth8d of any size: eight Matérn 7/2 functions of normal inputs, and noise, block by block.

Every block of rows has a random stream of its own. So the first n rows are the same whatever the
size and the chunks, and no more than a chunk need be in memory.
"""

from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

from pipelines.datasets import Floats, _interpolate, additive_functions

BLOCK = 65_536  # rows of one stream; another number makes other data
CHUNK = 16 * BLOCK  # rows of a dask chunk: 75 MB
N_COLUMNS = 8
NOISE_VARIANCE = 0.01
TRAIN, TEST = 0, 1


def synth8d_arrays(
    n: int, seed: int, stream: int = TRAIN, start: int = 0
) -> tuple[Floats, Floats, Floats]:
    """Return rows `start` to `start + n`.

    Returns
    -------
    X : ndarray of shape (n, 8)
    y : ndarray of shape (n,)
    f : ndarray of shape (n,)
        Targets without noise.
    """
    grid, functions = _functions()
    X, y, f = np.empty((n, N_COLUMNS)), np.empty(n), np.zeros(n)
    stop = start + n
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = max(start, block * BLOCK)
        last = min(stop, (block + 1) * BLOCK)
        here = slice(first - start, last - start)
        # The noise is a ninth column: a block that is cut keeps the rows before the cut.
        normal = np.random.default_rng([seed, stream, block]).standard_normal(
            (last - block * BLOCK, N_COLUMNS + 1)
        )[first - block * BLOCK :]
        X[here] = normal[:, :N_COLUMNS]
        for j, function in enumerate(functions):
            f[here] += _interpolate(grid, function, normal[:, j])
        y[here] = f[here] + np.sqrt(NOISE_VARIANCE) * normal[:, N_COLUMNS]
    return X, y, f


def synth8d_blocks(n: int, seed: int, chunk: int = CHUNK) -> tuple[da.Array, da.Array]:
    """Return the training rows as dask arrays; a chunk is made when it is asked for.

    Returns
    -------
    X : dask array of shape (n, 8)
        In chunks of `chunk` rows, whole in the columns.
    y : dask array of shape (n,)
        In the same chunks. Asked for together, the two are made once.
    """
    make = delayed(synth8d_arrays, pure=True, nout=3)
    X, y = [], []
    for start in range(0, n, chunk):
        size = min(chunk, n - start)
        inputs, targets, _ = make(size, seed, TRAIN, start)
        X.append(da.from_delayed(inputs, (size, N_COLUMNS), np.float64))
        y.append(da.from_delayed(targets, (size,), np.float64))
    return da.concatenate(X), da.concatenate(y)


def bare_pass(y: da.Array) -> float:
    """Make every row once, keep none, and return the mean of the targets."""
    parts: list[Any] = y.to_delayed().ravel().tolist()
    return float(sum(dask.compute(*[delayed(np.sum)(part) for part in parts])) / len(y))


@cache
def _functions() -> tuple[Floats, Floats]:
    return additive_functions(N_COLUMNS)
