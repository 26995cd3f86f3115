"""Recipes in the process of the tests."""

import copy

import dask
import pytest


@pytest.fixture(autouse=True)
def settings_of_dask():
    """Recipes set dask's configuration, as scripts do: also in its inner mappings."""
    before = copy.deepcopy(dask.config.config)
    yield
    dask.config.config.clear()
    dask.config.config.update(before)
