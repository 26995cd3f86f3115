"""``da.dsgp``: smoothing, gap filling and interpolation as methods of xarray's objects.

The work is done by ``GridGP``. `methods` is what users call, `arrays` and `datasets` are what
`dsgp` registers; `at_once` fits a field in memory, and `lazy` makes one task of a fit of chunks.
"""

from dsgp.accessor.arrays import DataArrayAccessor
from dsgp.accessor.at_once import with_observed
from dsgp.accessor.datasets import DatasetAccessor

__all__ = ["DataArrayAccessor", "DatasetAccessor", "with_observed"]
