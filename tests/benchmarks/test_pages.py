"""What reports of benchmarks begin with."""

import platform

import pytest

from benchmarks import pages, pursuit


@pytest.mark.parametrize(
    "of", [lambda: pages.circumstances("benchmarks.x"), pursuit._circumstances]
)
def test_reports_name_no_build_of_a_kernel(of):
    found = of()["machine"]
    assert found["processors"] >= 1
    assert platform.release() not in found["system"]
