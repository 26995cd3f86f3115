"""Choosing the passes over a field: those that move the fewest bytes within the memory.

All ways to group the axes are tried; a plan is a few sums, and a pass may take hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from dsgp.errors import MemoryLimitError
from dsgp.grid.passes import regions
from dsgp.grid.passes.in_place import BLOCK_BYTES
from dsgp.grid.passes.plan import MEAN, VARIANCE, Pass, Plan
from dsgp.grid.passes.source import PIECE_BYTES, Layout

_MIB = 2.0**20
# A region of this size occupies a core for seconds; a larger one gains nothing …
REGION_BYTES = 2**28
# … unless chunks are small: reading or writing one more costs as much as this many bytes.
CHUNK_BYTES = 2**24
SMALL_CHUNK_BYTES = 2**22
_CHUNK_COST = 2**20
_RUN_COST = 2**12  # per run of neighbours in a file without chunks
# Smallest and largest chunks of the source that the result keeps.
_SENSIBLE_BYTES = (2**16, 2**26)
# Factor on the cost of a plan with a single task, for a field above the usual size of a region:
# several tasks are preferred even if it fits into memory.
_ONE_TASK = 1000.0
# With fewer columns than this, a product along another axis than the last is slow.
_FEW_COLUMNS = 256
# Regions that read the source need more memory for it, and may be this much smaller than others.
_SKEWS = (1, 2, 4, 8)
_MOST_BYTES = 2**40  # per region, however much memory there is
# All orders of all groups are tried up to this many axes (541 ways); beyond, groups of neighbours.
_ALL_GROUPS = 5


@dataclass(frozen=True)
class _Way:
    """What determines a plan."""

    groups: tuple[tuple[int, ...], ...]
    region_bytes: int
    skew: int  # factor by which regions that read the source and write the result are smaller

    def room(self, group: tuple[int, ...]) -> float:
        """Cells of the regions in which a group's axes are whole."""
        return self.region_bytes / 8 / (self.skew if group == self.groups[0] else 1)


def make_plan(
    layout: Layout,
    memory: float,
    *,
    dtype: str = "float64",
    intermediate_dtype: str = "float64",
) -> Plan:
    """Choose the passes that move the fewest bytes within the memory.

    Parameters
    ----------
    layout : Layout
        Of the field.
    memory : float
        Bytes that one task may take.
    dtype, intermediate_dtype : str

    Raises
    ------
    MemoryLimitError
        If no way fits, naming what the best one needs.

    Examples
    --------
    >>> from dsgp.grid.passes import Layout, make_plan
    >>> layout = Layout(("time", "lat", "lon"), (512, 1024, 1024), (1, 1024, 1024), 8)
    >>> plan = make_plan(layout, memory=500 * 2**20)
    >>> [one.block for one in plan.passes]
    [(32, 1024, 1024), (512, 64, 1024), (32, 1024, 1024)]
    """
    best: tuple[float, Plan] | None = None
    least = math.inf
    for plan, cost in candidates(layout, memory, dtype, intermediate_dtype):
        least = min(least, plan.task_bytes)
        if plan.task_bytes <= memory and (best is None or cost < best[0]):
            best = (cost, plan)
    if best is None:
        raise MemoryLimitError(
            f"a task of the passes over {layout.shape} needs at least {least / _MIB:.1f} MiB "
            f"of memory, and one may take {memory / _MIB:.1f} MiB: give workers more memory or "
            f"fewer threads, or store the field in smaller chunks than {layout.chunks}"
        )
    return best[1]


def candidates(
    layout: Layout, memory: float, dtype: str, intermediate_dtype: str
) -> Iterator[tuple[Plan, float]]:
    """Yield plans and their costs: for every way, the largest regions that fit and help."""
    usual = int(min(REGION_BYTES, max(memory, 64), 8 * math.prod(layout.shape)))
    for groups in _groups(len(layout.shape)):
        for skew in _SKEWS if len(groups) > 1 else (1,):
            size = usual
            while 8 <= size <= _MOST_BYTES:
                candidate = _by(_Way(groups, size, skew), layout, dtype, intermediate_dtype)
                yield candidate
                fits = candidate[0].task_bytes <= memory
                if len(groups) == 1 or (fits and size < usual):
                    break
                if not fits and size > usual:
                    break
                # Regions larger than usual serve only to make chunks larger.
                if fits and (size < REGION_BYTES or not _small(candidate[0].chunks)):
                    break
                size = 2 * size if fits else 3 * size // 4


def _by(way: _Way, layout: Layout, dtype: str, intermediate_dtype: str) -> tuple[Plan, float]:
    """Return the plan of one way, and its cost in bytes."""
    shape, groups = layout.shape, way.groups
    unit = layout.chunks or (1,) * len(shape)
    # Axes that are whole when the source is read and the result written can be cut in any way.
    units = tuple(1 if axis in groups[0] else unit[axis] for axis in range(len(shape)))
    chunks = _chunks(shape, units, way)
    passes = []
    for p in range(2 * len(groups) - 1):
        axes = groups[min(p, 2 * len(groups) - 2 - p)]
        block = _block(shape, axes, chunks, units, way.room(axes))
        chains = (MEAN,) if p < len(groups) - 1 else (MEAN, VARIANCE)
        passes.append(Pass(axes, block, chains))
    output_chunks = _output_chunks(layout, chunks, passes[-1])
    size, between = np.dtype(dtype).itemsize, np.dtype(intermediate_dtype).itemsize
    source, n_touched = _source_reads(layout, passes[0].block)
    cells, n_chunks = math.prod(shape), math.prod(regions.n_blocks(shape, chunks))
    # Stages that are written: the mean after each pass but the last, the variance from the middle
    # on.
    n_stages = 3 * (len(groups) - 1)
    stages = n_stages * cells * between
    result = 2 * cells * size
    n_output = math.prod(regions.n_blocks(shape, output_chunks))
    plan = Plan(
        shape=shape,
        groups=groups,
        chunks=chunks,
        output_chunks=output_chunks,
        passes=tuple(passes),
        dtype=dtype,
        intermediate_dtype=intermediate_dtype,
        task_bytes=max(
            _task_bytes(layout, chunks, output_chunks, one, p == 0) for p, one in enumerate(passes)
        ),
        bytes_read=source + stages,
        bytes_written=stages + result,
        disk_bytes=_disk_bytes(cells, len(groups), between, result),
    )
    pieces = n_touched + 2 * n_stages * n_chunks + 2 * n_output
    cost = plan.bytes_read + plan.bytes_written + _CHUNK_COST * pieces
    cost += 8 * cells * sum(_n_slow(one) * len(one.chains) for one in passes)
    if len(groups) == 1 and 8 * cells > REGION_BYTES:
        cost *= _ONE_TASK
    return plan, cost


def _groups(n_axes: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the ways to put axes into ordered groups, those of few groups first."""
    if n_axes <= _ALL_GROUPS:
        ways = {
            tuple(
                tuple(axis for axis in range(n_axes) if label[axis] == group)
                for group in range(max(label) + 1)
            )
            for label in product(range(n_axes), repeat=n_axes)
            if set(label) == set(range(max(label) + 1))
        }
    else:
        ways = set()
        for cuts in product((False, True), repeat=n_axes - 1):
            groups = [[0]]
            for axis, cut in enumerate(cuts, start=1):
                if cut:
                    groups.append([])
                groups[-1].append(axis)
            ways.add(tuple(map(tuple, groups)))
            ways.add(tuple(map(tuple, groups[::-1])))
    # Among equal ways, the last axes, which lie together in memory, are rotated first.
    yield from sorted(
        ways, key=lambda groups: (len(groups), [sorted(-a for a in g) for g in groups])
    )


def _small(chunks: tuple[int, ...]) -> bool:
    return 8 * math.prod(chunks) < SMALL_CHUNK_BYTES


def _n_slow(one: Pass) -> int:
    """Count the rotations whose columns are few: strided, and turned around."""
    return sum(1 < math.prod(one.block[axis + 1 :]) < _FEW_COLUMNS for axis in one.axes)


def _chunks(shape: tuple[int, ...], units: tuple[int, ...], way: _Way) -> tuple[int, ...]:
    """Choose the chunks between passes: the intersection of the regions of all.

    A region of group g has N_g B / β_g cells, where β_g are those of a chunk along the group's
    axes, B of a chunk and N_g of the group's axes. With room for R_g cells each, β_g = N_g B / R_g
    and B^(k-1) = Π R_g / N, or less where chunks would be too large.
    """
    k, cells = len(way.groups), math.prod(shape)
    if k == 1:
        return regions.filled(shape, units, CHUNK_BYTES / 8)
    rooms = [way.room(group) for group in way.groups]
    largest = (math.prod(rooms) / cells) ** (1 / (k - 1))
    within = min(largest, CHUNK_BYTES / 8, cells)
    scale = (math.prod(rooms) / cells / within ** (k - 1)) ** (1 / k)
    chunks = [1] * len(shape)
    for group, room in zip(way.groups, rooms, strict=True):
        lengths = [shape[axis] for axis in group]
        share = math.prod(lengths) * within / room * scale
        chunk_lengths = regions.filled(lengths, [units[axis] for axis in group], max(share, 1))
        for axis, length in zip(group, chunk_lengths, strict=True):
            chunks[axis] = length
    return tuple(chunks)


def _block(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    chunks: tuple[int, ...],
    units: tuple[int, ...],
    cells: float,
) -> tuple[int, ...]:
    """Choose the region of a pass: as many chunks as make a large one."""
    cut = [axis for axis in range(len(shape)) if axis not in axes]
    room = cells / math.prod(shape[axis] for axis in axes)
    steps = [_common(chunks[axis], units[axis], shape[axis]) for axis in cut]
    if math.prod(steps) > room:
        steps = [chunks[axis] for axis in cut]
    if math.prod(steps) > room:
        lengths = tuple(steps)
    else:
        lengths = regions.filled([shape[axis] for axis in cut], steps, room)
    block = list(shape)
    for axis, length in zip(cut, lengths, strict=True):
        block[axis] = length
    return tuple(block)


def _common(chunk: int, unit: int, length: int) -> int:
    """Return the shortest multiple of a chunk that is whole in units of the source as well."""
    return min(math.lcm(chunk, unit), length) if math.lcm(chunk, unit) < 2 * length else chunk


def _output_chunks(layout: Layout, chunks: tuple[int, ...], last: Pass) -> tuple[int, ...]:
    """Keep the chunks of the source where they are sensible and a task can write whole ones."""
    if layout.chunks is None:
        return chunks
    kept = tuple(min(c, n) for c, n in zip(layout.chunks, layout.shape, strict=True))
    if not _SENSIBLE_BYTES[0] <= 8 * math.prod(kept) <= _SENSIBLE_BYTES[1] and (
        8 * math.prod(layout.shape) > _SENSIBLE_BYTES[0]
    ):
        return chunks
    return tuple(
        c if last.block[axis] == n or last.block[axis] % c == 0 else chunks[axis]
        for axis, (c, n) in enumerate(zip(kept, layout.shape, strict=True))
    )


def _source_reads(layout: Layout, block: tuple[int, ...]) -> tuple[int, float]:
    """Return the bytes that reading the source takes, and chunks (or runs that cost the same)."""
    cells = math.prod(layout.shape)
    if layout.chunks is None:
        run = 1  # number of neighbours in the file that belong to one region
        for n, b in zip(layout.shape[::-1], block[::-1], strict=True):
            run *= b
            if b < n:
                break
        return cells * layout.itemsize, cells / run * _RUN_COST / _CHUNK_COST
    touched, read = 1, 1
    for n, b, c in zip(layout.shape, block, layout.chunks, strict=True):
        spans = [(start // c, -(-min(start + b, n) // c)) for start in range(0, n, b)]
        touched *= sum(stop - start for start, stop in spans)
        read *= sum(min(stop * c, n) - start * c for start, stop in spans)
    return read * layout.itemsize, touched


def _task_bytes(
    layout: Layout,
    chunks: tuple[int, ...],
    output_chunks: tuple[int, ...],
    one: Pass,
    reads_source: bool,
) -> int:
    region = 8 * math.prod(one.block)
    matrices = 8 * sum(layout.shape[axis] ** 2 for axis in one.axes)
    # A block's product, the transposed block, and eigenvalues.
    longest = max(layout.shape[axis] for axis in one.axes)
    largest = [3 * min(max(BLOCK_BYTES, 8 * longest * 64), region)]
    # A chunk on its way: a copy of its cells, as bytes, with its checksum, compressed.
    largest.append(4 * min(8 * max(math.prod(chunks), math.prod(output_chunks)), region))
    if reads_source:  # as chunks, compressed and decompressed; in pieces, decoded
        unit = math.prod(layout.chunks or (1,))
        decoded = min(max(PIECE_BYTES, 8 * unit), region)
        largest.append(2 * layout.itemsize * unit + 3 * decoded)
    return region + matrices + max(largest)


def _disk_bytes(cells: int, k: int, between: int, result: int) -> int:
    """Return the most that lies on disk at a time: what a pass reads and what it writes."""
    if k == 1:
        return result
    stage = cells * between
    middle = 3 * stage  # the mean is read; the mean and the variance are written
    back = 4 * stage if k > 2 else 0
    return max(middle, back, 2 * stage + result)
