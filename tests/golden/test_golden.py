"""Stores of earlier releases are read, and say what they said then."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import dsgp
from tests.golden import make

ARCHIVE = Path(__file__).with_name("stores.zip")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    shutil.unpack_archive(ARCHIVE, folder)
    return folder


def said(stores, name):
    with np.load(stores / f"{name}.npz") as kept:  # no pickles
        return dict(kept)


def compare(answers, kept):
    assert set(answers) == set(kept)
    for key, expected in kept.items():
        if expected.dtype.kind == "U":
            np.testing.assert_array_equal(answers[key], expected)
        else:
            # To the bit on the machine that made them; libraries of linear algebra differ by more.
            scale = np.nanmax(np.abs(expected))
            np.testing.assert_allclose(answers[key], expected, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("name", make.tables())
def test_models_of_tables(stores, name):
    model = dsgp.load(stores / f"{name}.zarr")
    assert type(model) is type(make.tables()[name][0])
    compare(make.answers_of_table(model, make.new_rows(make.table()[0])), said(stores, name))


@pytest.mark.parametrize("name", make.fields())
def test_models_of_fields(stores, name):
    compare(make.answers_of_field(dsgp.load(stores / f"{name}.zarr")), said(stores, name))


def test_every_kind_of_model_has_a_store():
    kept = {type(model) for model, _ in (*make.tables().values(), *make.fields().values())}
    assert kept == set(dsgp.estimators._MODELS.values())
