"""Requests to end become exceptions, so that temporary results are removed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AT_ONCE = (
    b"\nInterrupted twice: ended at once. Unfinished output may be left as files '.*.part'.\n"
)
_INTERRUPTED = 128 + signal.SIGINT


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def exit_on_termination() -> None:
    """Let SIGTERM, as job schedulers send it, raise ``SystemExit``; commands call this first.

    A handler that is already set is not replaced. Should the signal land in a finaliser,
    where Python drops exceptions, it has to be sent again.
    """
    if _in_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


@contextmanager
def second_interrupt_ends() -> Iterator[None]:
    """Let the first Ctrl-C within raise ``KeyboardInterrupt``, and the next end the process.

    Python would raise again, wherever it is then: during the clean-up, or while it waits for
    threads at its end, with a traceback. After a first interrupt, this holds until the process
    ends.
    """
    if not (_in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGINT, _leave_at_once)
    raise KeyboardInterrupt


def _leave_at_once(_number: int, _frame: object) -> None:
    os.write(2, _AT_ONCE)
    os._exit(_INTERRUPTED)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
