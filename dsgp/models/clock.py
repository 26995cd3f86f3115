"""Stages of a fit: the time they take, and how far reading has come."""

from __future__ import annotations

import time
from collections.abc import Callable

from dsgp.progress import Bar

# Called with the stage, and the number of rows read in it so far.
Watch = Callable[[str, int], None]


class Clock:
    """Wall seconds of each stage of a fit."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._name, self._since = "read", time.perf_counter()

    def stage(self, name: str) -> None:
        """End the stage before and begin another."""
        now = time.perf_counter()
        self.seconds[self._name] = self.seconds.get(self._name, 0.0) + now - self._since
        self._name, self._since = name, now

    def finish(self) -> dict[str, float]:
        """End the last stage."""
        self.stage("")
        return self.seconds


class Reading:
    """Reports the progress of reading to a bar and a clock."""

    def __init__(self, bar: Bar, clock: Clock) -> None:
        self.bar, self.clock, self.stage, self.rows = bar, clock, "", 0

    def __call__(self, stage: str, rows: int) -> None:
        if stage != self.stage:
            self.clock.stage(stage)
            if self.rows:  # the same rows are read again from the beginning
                self.bar.begin()
            self.stage, self.rows = stage, 0
        self.bar.update(rows - self.rows, stage=stage)
        self.rows = rows
