"""Wall and processor seconds of the stages of a peer."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class Clock:
    """Wall and processor seconds by stage; processor time counts all threads."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def time(self, stage: str, work: Callable[[], Result]) -> Result:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.cpu[stage] = time.process_time() - cpu
        self.wall[stage] = time.perf_counter() - wall
        return result
