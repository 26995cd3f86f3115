"""The figure that every function of this package returns: notebooks show it."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class DisplayedFigure(Figure):
    """A figure that IPython shows as a picture, where it is the value of a cell.

    Without pyplot, IPython shows such a figure as text, unless ``%matplotlib inline`` makes it draw
    figures. Then it asks its own printer first, and this one is not called: there is one picture
    either way.
    """

    def _repr_png_(self) -> bytes:
        """Draw for IPython, with nothing cut off at the edges, at the requested size."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()
