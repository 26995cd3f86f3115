"""Tasks give the same results, in order, wherever they run."""

import threading

import pytest

from dsgp import compute


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_results_come_in_the_order_of_the_tasks(monkeypatch, seconds):
    monkeypatch.setattr(compute, "CPU_COUNT", 2)
    assert compute.run([lambda k=k: k * k for k in range(20)], seconds) == [
        k * k for k in range(20)
    ]
    assert compute.run([], seconds) == []


def test_small_work_stays_in_the_caller(monkeypatch):
    monkeypatch.setattr(compute, "CPU_COUNT", 2)
    here = threading.get_ident()
    small = compute.run([threading.get_ident] * 3, compute.WORTH_A_GRAPH / 2)
    large = compute.run([threading.get_ident] * 3, compute.WORTH_A_GRAPH * 2)
    assert set(small) == {here}
    assert here not in large


def test_errors_of_a_task_reach_the_caller(monkeypatch):
    monkeypatch.setattr(compute, "CPU_COUNT", 2)

    def fail():
        raise ArithmeticError("no")

    for seconds in (0.0, 1.0):
        with pytest.raises(ArithmeticError, match="no"):
            compute.run([fail, lambda: 1], seconds)
