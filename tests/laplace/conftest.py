"""One BLAS thread, as in the library: more only spin on matrices of this size."""

import pytest

from dsgp.compute import one_blas_thread


@pytest.fixture(autouse=True)
def blas():
    with one_blas_thread():
        yield
