"""Reports of fitted models as single pages of HTML. Needs the extra ``report``.

A page has everything in it: text by Jinja2, charts as pictures (for print, and where scripts are
off) and as specifications of Vega-Lite, which its scripts draw for the screen. It loads nothing.
"""

from __future__ import annotations

try:
    import jinja2 as _jinja2  # noqa: F401
    import matplotlib as _matplotlib  # noqa: F401
    import vl_convert as _vl_convert  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'a report needs {error.name}: pip install ".[report]" in a checkout of dsgp'
    ) from error

from dsgp.report.page import (
    MADE_BY,
    grid_report_page,
    report_page,
    require_ending,
    write_grid_report,
    write_report,
)

__all__ = [
    "MADE_BY",
    "grid_report_page",
    "report_page",
    "require_ending",
    "write_grid_report",
    "write_report",
]
