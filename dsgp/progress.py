"""One progress bar on stderr, for people at a terminal; lines of a log anywhere else.

The lines are of level INFO, of the logger ``dsgp``, and so seen by those only who ask for them, as
commands do on a cluster.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Held by the bar on display. A bar that is opened within it, or from another thread, finds it
# locked and stays quiet: a terminal has room for one live display.
_display = threading.Lock()

REFRESH_SECONDS = 0.1

_log = logging.getLogger("dsgp")


class Bar:
    """What `progress` yields: advances a bar, or does nothing when quiet.

    Parameters
    ----------
    display : rich.progress.Progress or None
        The live display; None makes every method do nothing.
    task : int
        The task within it.
    """

    def __init__(self, display: Progress | None, task: TaskID) -> None:
        self._display = display
        self._task = task
        self._next_refresh = 0.0

    @property
    def quiet(self) -> bool:
        """Whether nothing is shown, so that a costly field need not be computed."""
        return self._display is None

    def begin(self) -> None:
        """Begin at step 0 again, for another stage of as many steps."""
        if self._display is not None:
            self._display.reset(self._task)

    def update(self, advance: float = 1, **fields: object) -> None:
        """Advance by `advance` steps and show `fields`, such as ``residual=1e-3``, at the end."""
        if self._display is None:
            return
        self._display.advance(self._task, advance)
        if fields:
            self._display.update(self._task, fields_text=_fields_text(fields))
        now = time.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            self._display.refresh()


@contextmanager
def progress(
    description: str, total: float | None = None, *, enabled: bool = True
) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs, and remove it afterwards.

    Where stderr is not a terminal, its begin and end are logged instead. Quiet when `enabled` is
    False, and while another bar is shown (so the outermost of nested bars is the visible one).

    Parameters
    ----------
    description : str
        Text before the bar.
    total : float, optional
        Number of steps; None when it is unknown.
    enabled : bool
        False keeps it quiet everywhere.

    Yields
    ------
    Bar
        With ``update(advance=1, **fields)``.

    Examples
    --------
    >>> from dsgp.progress import progress
    >>> with progress("solving", total=3) as bar:
    ...     for residual in (1.0, 1e-2, 1e-5):
    ...         bar.update(residual=residual)
    """
    if not enabled:
        yield Bar(None, TaskID(0))
        return
    if not _stderr_is_terminal():
        began = time.monotonic()
        _log.info("%s ...", description)
        yield Bar(None, TaskID(0))
        _log.info("%s: done in %.1f s", description, time.monotonic() - began)
        return
    if not _display.acquire(blocking=False):
        yield Bar(None, TaskID(0))
        return
    try:
        display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[fields_text]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            # `update` draws: rich's own thread would outlive the block and could be forked
            auto_refresh=False,
            # rich would send what the block prints to stderr, and not to the user's pipe
            redirect_stdout=False,
        )
        with display:
            yield Bar(display, display.add_task(description, total=total, fields_text=""))
    finally:
        _display.release()


def _stderr_is_terminal() -> bool:
    # stderr is None under pythonw
    return sys.stderr is not None and sys.stderr.isatty()


def _fields_text(fields: dict[str, object]) -> str:
    return "  ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in fields.items()
    )
