"""Addresses of object stores are no paths: they are told as what they are."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import dsgp
from dsgp import cli, storage
from dsgp.errors import DataError, StorageError
from dsgp.grid.passes import StoredField, posterior_to_store
from dsgp.places import address_of
from dsgp.rows.sources import Stored, open_table, read_table

ADDRESSES = [
    "s3://bucket/*.parquet",
    "gs://bucket/folder/a.csv",
    "memory://a.zarr",
    "https://host.example/a.csv.gz",
    "abfs+x://a@b/c.pq",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("kind", [str, Path])
def test_inputs_at_addresses_are_refused_as_such(address, kind):
    assert address_of(kind(address)) == address
    for read in (read_table, open_table):
        with pytest.raises(DataError, match="is an address") as error:
            read(kind(address))
        assert address in str(error.value)
        assert "storage_options" in str(error.value)
    with pytest.raises(StorageError, match="is an address"):
        dsgp.load(kind(address))
    with pytest.raises(DataError, match="is an address"):
        dsgp.AdditiveGPRegressor().fit(Stored(kind(address)), y="y")


@pytest.mark.parametrize(
    "path", ["a.csv", "/a/b.csv", "C:/a.csv", "C:\\a.csv", "./s3/a.csv", "a:b"]
)
def test_paths_are_no_addresses(path):
    assert address_of(path) is None
    assert address_of(Path(path)) is None


def test_a_folder_that_is_there_is_no_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    (tmp_path / "s3:" / "a.csv").write_text("x\n1\n")
    assert address_of("s3:/a.csv") is None
    assert list(read_table("s3:/a.csv")) == ["x"]


@pytest.mark.parametrize("address", ["s3://bucket/a.zarr", "memory://a.zarr"])
def test_results_do_not_go_to_addresses(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="cannot write to the address") as error:
        storage.check_writable(address, overwrite=True)
    assert address in str(error.value)
    source = _field(tmp_path)
    bases = [_Basis(4), _Basis(3)]
    with pytest.raises(StorageError, match="cannot write to the address"):
        posterior_to_store(source, bases, 1.0, 0.0, address)
    assert [path.name for path in tmp_path.iterdir()] == ["field.zarr"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "s3://b/a.csv", "--target", "y", "--out", "m.zarr"],
        ["fit", "a.csv", "--target", "y", "--out", "s3://b/m.zarr"],
        ["predict", "s3://b/m.zarr", "a.csv", "--out", "p.csv"],
        ["predict", "m.zarr", "a.csv", "--out", "s3://b/p.csv"],
        ["predict", "m.zarr", "a.csv", "--out", "s3://b/parts"],
        ["smooth", "a.nc", "--out", "s3://b/o.zarr"],
        ["info", "s3://b/m.zarr"],
    ],
)
def test_commands_name_the_address(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 1
    message = capsys.readouterr().err
    assert next(one for one in arguments if "://" in one) in message
    assert "address" in message
    assert not list(tmp_path.iterdir())


class _Basis:
    def __init__(self, n):
        self.vectors, self.values = np.eye(n), np.ones(n)


def _field(folder):
    field = xr.DataArray(np.ones((4, 3)), dims=("lat", "lon"), name="t")
    field.to_dataset().to_zarr(folder / "field.zarr", zarr_format=3, consolidated=False)
    return StoredField(str(folder / "field.zarr"), "t")
