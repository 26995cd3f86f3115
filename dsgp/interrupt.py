"""A request to end becomes an exception, so that what was written aside is removed."""

from __future__ import annotations

import signal
import sys
import threading


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def exit_on_termination() -> None:
    """Let SIGTERM, as job schedulers send it, raise ``SystemExit``; commands call this first.

    A handler that somebody has set already is left alone. Should the signal land in a finaliser,
    where Python drops exceptions, it has to be sent again.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
