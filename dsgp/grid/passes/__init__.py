"""Staged passes over a field on disk that is larger than memory: posterior mean and deviation.

`planning` chooses what is read when, `tasks` is what a worker does, `driver` runs them; see there.
"""

from dsgp.grid.passes.driver import (
    PassesReport,
    gappy_posterior_to_store,
    posterior_to_store,
)
from dsgp.grid.passes.gappy import Tiles, halo_of
from dsgp.grid.passes.plan import Plan
from dsgp.grid.passes.planning import make_plan
from dsgp.grid.passes.source import Layout, StoredField
from dsgp.grid.passes.tiles import sample_tiles, tile_regions

__all__ = [
    "Layout",
    "PassesReport",
    "Plan",
    "StoredField",
    "Tiles",
    "gappy_posterior_to_store",
    "halo_of",
    "make_plan",
    "posterior_to_store",
    "sample_tiles",
    "tile_regions",
]
