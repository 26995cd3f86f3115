"""One table as every kind of source takes it."""

from functools import partial

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import xarray as xr
import zarr

from dsgp.rows.sources import Rows

N_ROWS = 57


def example(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.standard_normal(n_rows) * 10.0 ** rng.integers(-200, 200, n_rows),
            "whole": rng.integers(-(2**62), 2**62, n_rows),
            "flag": rng.random(n_rows) < 0.5,
            "w": rng.exponential(size=n_rows),
            "y": rng.standard_normal(n_rows),
        }
    )


def collected(source) -> Rows:
    pieces = [load() for load in source.chunks()]
    assert source.n_rows in (None, sum(map(len, pieces)))
    return Rows.join(pieces)


def parquet_folder(table, folder, cuts):
    folder.mkdir()
    for number, piece in enumerate(np.split(np.arange(len(table)), cuts)):
        order = table.columns if number % 2 == 0 else table.columns[::-1]
        piece = table.iloc[piece][order]
        piece.to_parquet(folder / f"part.{number}.parquet", index=False, row_group_size=9)
    (folder / "_SUCCESS").touch()
    return folder


def csv_glob(table, folder, cuts):
    folder.mkdir()
    for number, piece in enumerate(np.split(np.arange(len(table)), cuts)):
        table.iloc[piece].to_csv(folder / f"p{number}.csv", index=False)
    return str(folder / "*.csv")


def one_csv(table, folder, cuts):
    folder.mkdir()
    table.to_csv(folder / "t.csv.gz", index=False)
    return folder / "t.csv.gz"


def zarr_store(table, folder, cuts, **options):
    group = zarr.open_group(str(folder), mode="w", **options)
    for size, name in enumerate(table, start=3):
        values = table[name].to_numpy()
        values = values.astype("U") if values.dtype == object else values
        group.create_array(name, data=values, chunks=(size,))
    return folder


def dask_folder(table, folder, cuts):
    dd.from_pandas(table, npartitions=len(cuts) + 1).to_parquet(folder)
    return folder


def xarray_store(table, folder, cuts):
    xr.Dataset.from_dataframe(table.rename_axis("row")).to_zarr(folder)
    return folder


ON_DISK = {
    "parquet folder": parquet_folder,
    "parquet folder of dask": dask_folder,
    "csv glob": csv_glob,
    "csv": one_csv,
    "zarr 3": zarr_store,
    "zarr 2": partial(zarr_store, zarr_format=2),
    "xarray": xarray_store,
}


def chunks_of(n_rows, cuts):
    return tuple(np.diff([0, *cuts, n_rows]).tolist())


def unknown(table, cuts):
    """Return a dask array that does not know its lengths."""
    array = da.from_array(table.to_numpy(np.float64), chunks={0: chunks_of(len(table), cuts)})
    return array.map_blocks(
        np.asarray, chunks=((np.nan,) * len(array.chunks[0]), *array.chunks[1:])
    )


def frame_in(table, cuts):
    pieces = [dask.delayed(table.iloc[rows]) for rows in np.split(np.arange(len(table)), cuts)]
    return dd.from_delayed(pieces, meta=table.iloc[:0])
