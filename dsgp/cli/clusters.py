"""What ``--scheduler`` and ``--performance-report`` do: work on a cluster, and watch it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from dsgp.compute import connected
from dsgp.errors import ClusterError, ParameterError

_LINE = "%(asctime)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"


@contextmanager
def on_cluster(scheduler: str | None, performance_report: Path | None = None) -> Iterator[None]:
    """Use a cluster for what runs within, if one is named.

    Where stderr is no terminal, as in a job, each stage is a line there.

    Parameters
    ----------
    scheduler : str or None
    performance_report : Path, optional
        HTML page that dask writes of what its workers did.

    Raises
    ------
    ParameterError
        If no scheduler answers, or there cannot be a report.
    """
    if performance_report is not None:
        _require_report(scheduler, performance_report)
    with connected(scheduler), _stages_shown(scheduler is not None):
        if performance_report is None:
            watched = nullcontext()
        else:
            watched = import_module("distributed").performance_report(str(performance_report))
        lost: ClusterError | None = None
        try:
            with watched:
                try:
                    yield
                except ClusterError as error:
                    lost = error
                    raise
        except Exception:
            # A report of a cluster that is gone fails too, and says less.
            if lost is not None:
                raise lost from None
            raise


def _require_report(scheduler: str | None, path: Path) -> None:
    if scheduler is None:
        raise ParameterError("--performance-report needs a cluster: name one by --scheduler")
    if find_spec("bokeh") is None:
        raise ParameterError(
            "--performance-report needs the package bokeh: pip install 'dsgp[cluster]'"
        )
    if path.suffix != ".html":
        raise ParameterError(f"--performance-report writes a page, such as work.html; got {path}")
    if not path.absolute().parent.is_dir():
        raise ParameterError(f"--performance-report: there is no folder {path.absolute().parent}")


@contextmanager
def _stages_shown(wanted: bool) -> Iterator[None]:
    """Write a line to stderr for each stage that begins or ends, where no bar can be shown."""
    if not wanted or sys.stderr is None or sys.stderr.isatty():
        yield
        return
    log = logging.getLogger("dsgp")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_LINE, _TIME))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
