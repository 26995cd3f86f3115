"""Gridded fields by name or file, as labelled arrays, and cells of them held out for a test.

Values stay in their own units; times become datetimes, or dates of the calendar they are in.
"""

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import DataError, ParameterError

Bools = NDArray[np.bool_]

SUFFIXES = (".npz", ".nc", ".zarr")
# What an .npz file may hold besides the values, their dims and a coordinate of each dim.
MASK = "sea_mask"
LONG_NAMES = {"lat": "latitude", "lon": "longitude"}
DEGREES = {"lat": "degrees_north", "lon": "degrees_east"}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Cells of a field: those to fit on, and two kinds of those held out.

    Attributes
    ----------
    fit : ndarray of bool, of the field's shape
        Observed cells that are not held out.
    points : ndarray of bool
        Single cells at random.
    clouds : ndarray of bool
        Cells of square blocks, as a cloud hides them, that are not among the points.
    """

    fit: Bools
    points: Bools
    clouds: Bools

    @property
    def held(self) -> Bools:
        return self.points | self.clouds


def load_field(
    data: str | Path, *, data_dir: str | Path | None = None, variable: str | None = None
) -> xr.DataArray:
    """Load a gridded field.

    Parameters
    ----------
    data : str or Path
        Name of an ``.npz`` set in `data_dir`, or the path of an ``.npz``, netCDF or zarr store. An
        ``.npz`` has ``field`` (NaN where missing), ``dims``, an array for each dim and, where they
        are known, ``units``, ``time_units`` as CF has them (a calendar may follow in brackets) and
        ``sea_mask``.
    data_dir : str or Path, optional
        Folder of ``.npz`` sets.
    variable : str, optional
        Of a netCDF or zarr store of several; an ``.npz`` has one.

    Returns
    -------
    DataArray
        float64, in the order of the file. A ``sea_mask`` is a coordinate without a dim of its own.

    Raises
    ------
    DataError
        When there is no such set, file or variable, or it is no field.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> np.savez(folder / "f.npz", field=np.zeros((2, 3)), dims=["time", "lat"], time=[0.0, 1.0],
    ...          lat=[50.0, 48.0, 46.0], units="K", time_units="days since 2020-01-01")
    >>> field = load_field("f", data_dir=folder)
    >>> field.dims, field.attrs["units"], str(field["time"].values[1])[:10]
    (('time', 'lat'), 'K', '2020-01-02')
    """
    path = _path(data, data_dir)
    if path.suffix == ".npz":
        if variable is not None:
            raise DataError(f"{path} holds one field, got variable {variable!r}; leave it out")
        return _read_npz(path)
    return _read_store(path, variable)


def hold_out(
    field: xr.DataArray,
    *,
    share: float = 0.05,
    blocks: int = 12,
    side: int = 20,
    seed: int = 1,
) -> HeldOut:
    """Choose cells to hold out of a field of (time, two dims of space), in the order it is in.

    Parameters
    ----------
    field : DataArray of three dims
    share : float
        Of the observed cells held out one by one.
    blocks : int
        Squares held out at each step of the first dim; they may overlap.
    side : int
        Cells along a side of a square.
    seed : int

    Raises
    ------
    DataError
        When the field has not three dims, or a square does not fit.
    """
    if field.ndim != 3 or min(field.shape[1:]) <= side:
        raise DataError(
            f"expected a field of three dims, the last two longer than side = {side}, got "
            f"{dict(field.sizes)}; transpose it, or use smaller squares (--side)"
        )
    if not 0 <= share < 1 or blocks < 0 or side < 1:
        raise ParameterError(
            "expected share from 0 to below 1, blocks from 0 and side from 1 on, got "
            f"{share}, {blocks}, {side}"
        )
    rng = np.random.default_rng(seed)
    observed = np.isfinite(field.to_numpy())
    points = observed & (rng.random(field.shape) < share)
    cover = np.zeros(field.shape, dtype=bool)
    _, n_rows, n_columns = field.shape
    for step in cover:
        for _ in range(blocks):
            # The order of the draws is part of the definition: results are compared on them.
            row = rng.integers(0, n_rows - side)
            column = rng.integers(0, n_columns - side)
            step[row : row + side, column : column + side] = True
    clouds = observed & cover & ~points
    return HeldOut(observed & ~points & ~clouds, points, clouds)


# ---- files


def _path(data: str | Path, data_dir: str | Path | None) -> Path:
    if str(data).rstrip("/").endswith(SUFFIXES):
        path = Path(data)
        if path.exists():
            return path
        raise DataError(f"there is no {path}")
    if data_dir is None:
        raise DataError(
            f"{data} is the name of a field; give the folder that holds {data}.npz with "
            f"--data-dir, or the path of a file ({', '.join(SUFFIXES)})"
        )
    path = Path(data_dir) / f"{data}.npz"
    if not path.is_file():
        known = [file.stem for file in sorted(Path(data_dir).glob("*.npz")) if _is_field(file)]
        raise DataError(
            f"--data-dir {data_dir} holds no {data}.npz; fields there: {', '.join(known) or 'none'}"
        )
    return path


def _is_field(path: Path) -> bool:
    with np.load(path) as arrays:
        return {"field", "dims"} <= set(arrays.files)


def _read_npz(path: Path) -> xr.DataArray:
    try:
        with np.load(path) as arrays:
            stored = {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an .npz of plain arrays; {error}") from error
    dims = [str(dim) for dim in stored.get("dims", ())]
    absent = [key for key in ("field", "dims", *dims) if key not in stored]
    if absent:
        raise DataError(
            f"{path}: expected a field with arrays field, dims and one for each dim, found no "
            f"{' and no '.join(absent)}"
        )
    coords = {dim: _coordinate(dim, stored) for dim in dims}
    if MASK in stored:
        coords[MASK] = xr.Variable(dims[-stored[MASK].ndim :], stored[MASK])
    attrs = {"units": str(stored["units"])} if "units" in stored else {}
    dataset = xr.Dataset(
        {path.stem: (dims, stored["field"].astype(np.float64), attrs)}, coords=coords
    )
    return xr.decode_cf(dataset)[path.stem]


def _coordinate(dim: str, stored: dict[str, NDArray]) -> xr.Variable:
    values = stored[dim]
    units = str(stored.get(f"{dim}_units", DEGREES.get(dim, "")))
    attrs = {"units": units} if units else {}
    if dim in LONG_NAMES:
        attrs["long_name"] = LONG_NAMES[dim]
    if dim == "time" and units:
        since, _, calendar = units.partition("(")
        # CF wants years of four digits; elsewhere they are written as they are.
        since = re.sub(r"since (\d{1,3})-", lambda m: f"since {int(m[1]):04d}-", since)
        attrs["units"] = since.strip()
        attrs["calendar"] = calendar.split(")")[0].removesuffix("calendar").strip() or "standard"
    if values.dtype == np.float32:
        # 34.01 was meant, not its nearest float32: the steps of the grid are equal then.
        values = np.array([float(str(value)) for value in values])
    return xr.Variable((dim,), values, attrs)


def _read_store(path: Path, variable: str | None) -> xr.DataArray:
    try:
        dataset = xr.open_zarr(path) if path.suffix == ".zarr" else xr.open_dataset(path)
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path}: cannot be read; {error}") from error
    names = [str(name) for name in dataset.data_vars]
    if variable is None and len(names) == 1:
        variable = names[0]
    if variable not in names:
        asked = "no variable was named" if variable is None else f"there is no {variable!r}"
        raise DataError(f"{path}: {asked}; it holds {', '.join(names) or 'nothing'}")
    return dataset[variable].astype(np.float64)
