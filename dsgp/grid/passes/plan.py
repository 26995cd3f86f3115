"""The plan of the passes over a field, made before they start: regions, chunks, bytes.

Axes are put into groups. A pass rotates the axes of one group, which are whole in each of its
regions; the others are cut. Groups 1 … k-1 are rotated forth, group k forth and back, and groups
k-1 … 1 back: 2k-1 passes. `planning` chooses the best ones.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

from dsgp.grid.passes import regions
from dsgp.grid.passes.regions import Region

MEAN, VARIANCE = "mean", "variance"
_MIB = 2.0**20


@dataclass(frozen=True)
class Pass:
    """One pass: which axes are whole, and the shape of its regions."""

    axes: tuple[int, ...]
    block: tuple[int, ...]
    chains: tuple[str, ...]  # its results: the mean, or the mean and the variance


@dataclass(frozen=True)
class Plan:
    """What the passes over one field read, write and hold, known before they start.

    Parameters
    ----------
    shape : tuple of int
    groups : tuple of tuple of int
        Axes that are rotated together.
    chunks : tuple of int
        Chunks of the intermediate stores; regions of all passes consist of whole chunks.
    output_chunks : tuple of int
    passes : tuple of Pass
    dtype, intermediate_dtype : str
        Types that are stored; everything is computed in double precision.
    task_bytes : int
        Memory that the largest task takes.
    bytes_read, bytes_written : int
        Uncompressed bytes of all passes.
    disk_bytes : int
        Maximum disk space at any time, including the result.
    """

    shape: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    chunks: tuple[int, ...]
    output_chunks: tuple[int, ...]
    passes: tuple[Pass, ...]
    dtype: str
    intermediate_dtype: str
    task_bytes: int
    bytes_read: int
    bytes_written: int
    disk_bytes: int

    @property
    def middle(self) -> int:
        """The pass in which the spectrum is divided."""
        return len(self.groups) - 1

    @property
    def n_tasks(self) -> int:
        """Tasks of all passes."""
        return sum(len(one.chains) * self.n_regions(p) for p, one in enumerate(self.passes))

    def n_regions(self, p: int) -> int:
        """Regions of one pass."""
        return math.prod(regions.n_blocks(self.shape, self.passes[p].block))

    def region(self, p: int, index: int) -> Region:
        """One region of one pass."""
        return regions.region(index, self.shape, self.passes[p].block)

    def describe(self) -> str:
        """Return a few lines of text that describe the plan."""
        steps = " → ".join(
            f"{one.block} of {self.n_regions(p)}" for p, one in enumerate(self.passes)
        )
        return (
            f"{len(self.passes)} passes, regions {steps}; chunks {self.chunks} between them, "
            f"{self.output_chunks} of the result\n"
            f"{self.task_bytes / _MIB:.0f} MiB of memory per task; reads "
            f"{self.bytes_read / _MIB:.0f} MiB, writes {self.bytes_written / _MIB:.0f} MiB, takes "
            f"up to {self.disk_bytes / _MIB:.0f} MiB of disk"
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain settings."""
        return asdict(self)

    @classmethod
    def from_json(cls, settings: dict[str, Any]) -> Self:
        """Return the plan that ``as_json`` described."""
        passes = tuple(
            Pass(tuple(p["axes"]), tuple(p["block"]), tuple(p["chains"]))
            for p in settings["passes"]
        )
        groups = tuple(map(tuple, settings["groups"]))
        tuples = {name: tuple(settings[name]) for name in ("shape", "chunks", "output_chunks")}
        return cls(**{**settings, **tuples, "groups": groups, "passes": passes})
