"""A result never goes onto an input, however the two are spelt."""

import os
import shutil

import pytest

from dsgp.errors import StorageError
from dsgp.places import made_aside, move_into_place, require_apart


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A file, a store and a folder of tables, with links to them; also the current folder."""
    (tmp_path / "a.nc").write_text("field")
    (tmp_path / "s.zarr" / "sst").mkdir(parents=True)
    (tmp_path / "s.zarr" / "zarr.json").write_text("{}")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "part.csv").write_text("x,y")
    os.symlink(tmp_path / "a.nc", tmp_path / "link.nc")
    os.link(tmp_path / "a.nc", tmp_path / "hard.nc")
    os.symlink(tmp_path / "s.zarr", tmp_path / "link.zarr")
    os.symlink(tmp_path, tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("out", "source", "how"),
    [
        ("a.nc", "a.nc", "is"),
        ("./a.nc", "a.nc", "is"),
        ("tables/../a.nc", "{}/a.nc", "is"),
        ("link.nc", "a.nc", "is"),
        ("a.nc", "link.nc", "is"),
        ("hard.nc", "a.nc", "is"),
        ("here/a.nc", "a.nc", "is"),
        ("a.nc", "file://{}/a.nc", "is"),
        ("a.nc", "*.nc", "is"),
        ("a.nc", "file://{}/*.nc", "is"),
        ("tables/part.csv", "{}/**/*.csv", "is"),
        ("s.zarr/", "s.zarr", "is"),
        ("link.zarr", "s.zarr/", "is"),
        ("s.zarr/new.zarr", "s.zarr", "lies in"),
        ("link.zarr/sst/new.nc", "here/s.zarr", "lies in"),
        ("tables/predictions.csv", "tables", "lies in"),
        ("s.zarr", "s.zarr/sst", "contains"),
        ("here", "a.nc", "contains"),
        ("s3://bucket/a.zarr", "s3://bucket/a.zarr/", "is"),
        ("s3://bucket/a.zarr/b.zarr", "s3://bucket/a.zarr", "lies in"),
    ],
)
def test_inputs_are_found_however_they_are_spelt(folder, out, source, how):
    with pytest.raises(StorageError, match=rf"--out '.*' {how} the input .* choose another path"):
        require_apart(out, ["absent.nc", None, source.format(folder)])


@pytest.mark.parametrize(
    ("out", "source"),
    [
        ("b.nc", "a.nc"),
        ("a.nc2", "a.nc"),
        ("new.zarr", "s.zarr"),
        ("s.zarr.out", "s.zarr"),
        ("tables/model.zarr", "tables"),
        ("absent/a.nc", "a.nc"),
        ("absent.nc", "absent.nc"),
        ("s3://bucket/b.zarr", "s3://bucket/a.zarr"),
        ("a.nc", "s3://bucket/a.nc"),
        ("b.nc", "*.nc"),
    ],
)
def test_other_places_are_free(folder, out, source):
    require_apart(out, [source])


def test_errors_of_the_work_are_not_taken_for_those_of_the_place(folder):
    with pytest.raises(StorageError, match=r"^there is no model$"), made_aside(folder / "p.csv"):
        raise StorageError("there is no model")
    assert not list(folder.glob(".*.part"))


def test_what_was_there_stays_where_the_move_fails(folder, monkeypatch):
    made = folder / "made"
    made.mkdir()
    with pytest.raises(OSError):
        move_into_place(folder / "absent", folder / "s.zarr", folder / "replaced")
    assert (folder / "s.zarr" / "zarr.json").exists()
    move_into_place(made, folder / "s.zarr", folder / "replaced")
    assert (folder / "replaced" / "zarr.json").exists()
    assert not (folder / "s.zarr" / "zarr.json").exists()
    shutil.rmtree(folder / "replaced")
