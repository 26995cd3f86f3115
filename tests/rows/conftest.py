"""Short blocks, so that small tables have many."""

import pytest

from dsgp.rows.sources import parts, stream


@pytest.fixture(params=[5, 16, 1000])
def block_rows(request, monkeypatch):
    monkeypatch.setattr(parts, "BLOCK_ROWS", request.param)
    monkeypatch.setattr(stream, "BLOCK_ROWS", request.param)
    monkeypatch.setattr(parts, "CSV_BYTES", 60 * request.param)
    return request.param
