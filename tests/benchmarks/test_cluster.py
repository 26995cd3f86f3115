"""The benchmark of a cluster reports what a fit takes."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import cluster


@pytest.mark.parametrize("model", ["regression", "classes"])
def test_a_fit_on_threads_is_measured(model, monkeypatch):
    monkeypatch.setattr(cluster, "WARM_UP_ROWS", 500)
    monkeypatch.setattr(cluster, "CHUNK", 500)
    done = CliRunner().invoke(
        cluster.app, ["share", "--model", model, "--rows", "1000", "--threads"]
    )
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["rows"] == 1000
    assert record["driver_cpu_seconds"] > 0
    assert record["workers_cpu_seconds"] == record["share_on_workers"] == 0
    assert len(record["digest"]) == 12
