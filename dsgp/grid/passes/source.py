"""A variable in a zarr store or netCDF file, whose regions are read where they are needed.

xarray decodes what is stored (packed integers, scales, fill values). Nothing is written here.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.addresses import Place, is_remote, require_there, signatures, zarr_options
from dsgp.errors import DataError, ParameterError
from dsgp.grid.coded import Codes
from dsgp.grid.passes.regions import Region, filled, lengths, pieces, relative

# Bytes that are decoded at a time, of which several copies are made on the way.
PIECE_BYTES = 2**24


@dataclass(frozen=True)
class Layout:
    """How a variable is stored."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None  # None: not in chunks
    itemsize: int  # bytes per stored value


@dataclass(frozen=True)
class StoredField:
    """A field on disk or at an address, of two or more readers at once; travels to workers as such.

    Parameters
    ----------
    path : str, Path or UPath
        A zarr store, or a file that ``xarray.open_dataset`` reads. Workers must see it under the
        same path. A place of fsspec must be a zarr store.
    variable : str
        Its dims are the axes of the grid, in their order.
    flips : sequence of bool, optional
        Axes that are stored in descending order of their coordinates; none by default.
    gaps : bool
        Missing values are read as NaN instead of refused.

    Raises
    ------
    DataError
        If there is no such path or variable, or it does not hold numbers.
    ParameterError
        If ``flips`` has not one entry per axis.

    Examples
    --------
    >>> import tempfile, xarray as xr
    >>> path = tempfile.mkdtemp() + "/field.zarr"
    >>> data = xr.DataArray([[1.0, 2.0], [3.0, 4.0]], dims=("lat", "lon"))
    >>> _ = data.to_dataset(name="t").to_zarr(path, zarr_format=3, consolidated=False)
    >>> from dsgp.grid.passes import StoredField
    >>> StoredField(path, "t", flips=(True, False)).read((slice(0, 1), slice(0, 2)))
    array([[3., 4.]])
    """

    path: str | Place
    variable: str
    flips: Sequence[bool] = ()
    gaps: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.path, (str, Path)):
            object.__setattr__(self, "path", Path(os.path.abspath(self.path)))
        flips = tuple(map(bool, self.flips)) or (False,) * len(self.layout.dims)
        if len(flips) != len(self.layout.dims):
            raise ParameterError(
                f"flips must have an entry for each of the dims {self.layout.dims}; "
                f"got {len(flips)}"
            )
        object.__setattr__(self, "flips", flips)

    @cached_property
    def layout(self) -> Layout:
        """Dims, shape and chunks as stored."""
        with self.open() as dataset:
            if self.variable not in dataset.variables:
                raise DataError(
                    f"{str(self.path)!r} has no variable {self.variable!r}; it has "
                    f"{', '.join(map(repr, dataset.data_vars)) or 'none'}"
                )
            variable = dataset.variables[self.variable]
            if variable.dtype.kind not in "iuf":
                raise DataError(
                    f"variable {self.variable!r} must hold numbers, but is of type {variable.dtype}"
                )
            if variable.size == 0 or variable.ndim == 0:
                raise DataError(
                    f"variable {self.variable!r} must have one or more dims, none of length 0; "
                    f"it has {dict(variable.sizes)}"
                )
            encoding = variable.encoding
            chunks = encoding.get("chunks") or encoding.get("chunksizes")
            stored = np.dtype(encoding.get("dtype", variable.dtype))
            return Layout(
                tuple(map(str, variable.dims)),
                variable.shape,
                tuple(map(int, chunks)) if chunks else None,
                stored.itemsize,
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.layout.shape

    def open(self, **options: Any) -> xr.Dataset:
        """Open what is at the path: lazily, and with no more decoded than the numbers."""
        place = self._place
        require_there(place, DataError)
        options = {
            "decode_times": False, "decode_timedelta": False, "decode_coords": False
        } | options  # fmt: skip
        if is_remote(place) or place.is_dir():
            options |= zarr_options(place)
        try:
            return xr.open_dataset(str(place), chunks=None, cache=False, **options)
        # xarray's engines raise many types of errors; all mean the same here.
        except Exception as error:
            raise DataError(f"xarray cannot read {str(place)!r}: {error}") from error

    @property
    def _place(self) -> Place:
        assert not isinstance(self.path, str)
        return self.path

    def read(self, region: Sequence[slice]) -> NDArray[np.float64]:
        """Read a region, in ascending order.

        Parameters
        ----------
        region : sequence of slice
            Counted in ascending order; a step must be positive.

        Returns
        -------
        ndarray of the region's shape

        Raises
        ------
        DataError
            If a value in it is missing or infinite, naming where.
        """
        stored, back = [], []
        for part, n, flip in zip(region, self.shape, self.flips, strict=True):
            start, stop, step = part.indices(n)
            count = len(range(start, stop, step))
            if flip and count:
                last = start + (count - 1) * step
                start, stop = n - 1 - last, n - start
            stored.append(slice(start, max(stop, start), step))
            back.append(slice(None, None, -1 if flip else 1))
        return np.ascontiguousarray(self.read_stored(tuple(stored))[tuple(back)])

    def read_stored(
        self, region: Region, counts: Counter[str] | None = None
    ) -> NDArray[np.float64]:
        """Read a region in the order in which it is stored; otherwise as `read`.

        ``counts`` receives how many cells are missing by attributes, by reason.
        """
        with self.open() as dataset:
            variable = dataset.variables[self.variable]
            codes = Codes.of(variable)

            def read(part: Region) -> NDArray[np.float64]:
                values = codes.decoded(self._stored(variable, part))
                blanks = codes.blank(values)
                if counts is not None:
                    counts.update(blanks)
                self._require_complete(values, part)
                return values

            if any(part.step not in (None, 1) for part in region):
                return read(region)
            out = np.empty(lengths(region))
            for part in pieces(region, self.piece()):
                values = read(part)
                out[relative(part, region)] = values
            return out

    def _stored(self, variable: Any, region: Region) -> Any:
        try:
            return variable[region].values
        except MemoryError:
            raise
        # Codecs raise many types of errors for damaged data; all mean the same here.
        except Exception as error:
            where = ", ".join(f"{part.start}:{part.stop}" for part in region)
            raise DataError(
                f"variable {self.variable!r} of {str(self.path)!r} cannot be read in the cells "
                f"[{where}] ({type(error).__name__}: {error}): a chunk there is damaged; write "
                "the store again"
            ) from error

    def require_same(self, fingerprint: Mapping[str, Any]) -> None:
        """Raise ``DataError`` if the field has changed since that fingerprint was taken of it."""
        if self.fingerprint() != fingerprint:
            raise DataError(
                f"{str(self.path)!r} has changed since the job began: variable {self.variable!r} "
                "is read piece by piece, and a result would mix two fields; start from the "
                "beginning (resume=False) when the store no longer changes"
            )

    def piece(self) -> tuple[int, ...]:
        """Shape of what is read at a time: whole chunks."""
        unit = self.layout.chunks or (1,) * len(self.shape)
        return filled(self.shape, unit, max(PIECE_BYTES // 8, math.prod(unit)))

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies this field, and changes if the field does."""
        digest = hashlib.sha256()
        for line in _signatures(self._place, self.variable):
            digest.update(f"{line}\n".encode())
        layout = self.layout
        return {
            "path": str(self.path),
            "variable": self.variable,
            "flips": list(self.flips),
            "shape": list(layout.shape),
            "chunks": list(layout.chunks or ()),
            "itemsize": layout.itemsize,
            "files": digest.hexdigest(),
        }

    def _require_complete(self, values: NDArray[np.float64], region: Region) -> None:
        good = np.isfinite(values) | (self.gaps & np.isnan(values))
        if good.all():
            return
        dims = self.layout.dims
        first = np.argwhere(~good)[0]
        where = ", ".join(
            f"{dim}[{part.start}:{part.stop}]" for dim, part in zip(dims, region, strict=True)
        )
        cell = ", ".join(
            f"{dim}[{part.start + k * (part.step or 1)}]"
            for dim, part, k in zip(dims, region, first, strict=True)
        )
        raise DataError(
            f"variable {self.variable!r} of {str(self.path)!r} has {int(good.size - good.sum())} "
            f"missing or infinite values in {where}, the first at {cell}; expected a complete "
            "field: say that it has gaps (gaps=True), choose a part without any, or replace "
            "infinite values"
        )


def _signatures(place: Place, variable: str) -> list[str]:
    """Names, sizes and times of the files that hold a variable."""
    folder = place / variable
    if not isinstance(folder, Path):
        return signatures(folder)
    path = folder.parent
    files = _files(folder) if folder.is_dir() else [path] if path.is_file() else _files(path)
    states = ((file, file.stat()) for file in files)
    return [f"{file}\0{status.st_size}\0{status.st_mtime_ns}" for file, status in states]


def _files(folder: Path) -> list[Path]:
    return sorted(Path(root) / name for root, _, names in os.walk(folder) for name in names)
