"""Freed memory is used again where dask's setting gives it back to the system."""

import json
import os
import subprocess
import sys

import pytest

from dsgp import allocator

CODE = """
import json, resource
import numpy as np
from dsgp import allocator

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(500_000)  # 4 MB, and 977 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

due, before, done, after = allocator.is_due(), pages(), allocator.keep_freed_memory(), pages()
print(json.dumps([due, before, done, after, allocator.keep_freed_memory()]))
"""


def of_a_process(setting):
    environment = {name: text for name, text in os.environ.items() if name != allocator.VARIABLE}
    if setting is not None:
        environment[allocator.VARIABLE] = setting
    command = [sys.executable, "-c", CODE]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_pages_are_kept_once_the_setting_of_dask_is_taken_back():
    due, before, done, after, again = of_a_process("65536")
    assert due
    assert done
    assert before > 5000
    assert after < 3000  # those of the first array, and not of twenty
    assert not again


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
@pytest.mark.parametrize("setting", [None, "131072"])
def test_settings_that_are_not_of_dask_stay(setting):
    due, _, done, _, _ = of_a_process(setting)
    assert not due
    assert not done
