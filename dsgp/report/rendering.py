"""From specifications of charts to pictures for print, and what a browser needs to draw them."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from functools import cache

import vl_convert

from dsgp.report.marks import POINTER, WIDTH, Spec

_VERSION = "6.1"  # of Vega-Lite
# Pixels of a picture per pixel of its chart, where it is no vector graphic.
_SCALE = 1.5
_DIGITS = re.compile(r"(\d+\.\d)\d+")


@dataclass(frozen=True)
class Chart:
    """A chart of a page.

    Attributes
    ----------
    key : str
        By which scripts know it.
    picture : str
        ``data:`` address of what is seen without scripts, and in print.
    width, height : int
        Of the picture, in pixels.
    description : str
    """

    key: str
    picture: str
    width: int
    height: int
    description: str


@dataclass
class Charts:
    """The charts of a page, and their specifications."""

    specs: dict[str, Spec] = field(default_factory=dict)

    def add(self, spec: Spec, *, as_pixels: bool = False) -> Chart:
        """Draw a chart; ``as_pixels`` where a vector graphic would be large, like that of a map."""
        key = f"chart-{len(self.specs)}"
        names: dict[str, str] = {}
        self.specs[key] = {**_with_plain_tooltips(spec, names), "usermeta": {"names": names}}
        still = _without_pointer(spec)
        if as_pixels:
            drawn = vl_convert.vegalite_to_png(still, _VERSION, scale=_SCALE)
            kind = "png"
        else:
            drawn = _shorter(vl_convert.vegalite_to_svg(still, _VERSION)).encode()
            kind = "svg+xml"
        text = base64.b64encode(drawn).decode("ascii")
        picture = f"data:image/{kind};base64,{text}"
        return Chart(key, picture, WIDTH, int(spec["height"]), str(spec["description"]))


def _with_plain_tooltips(spec: Spec, names: dict[str, str]) -> Spec:
    """Put fields where tooltips have titles, and collect the titles by field in ``names``.

    Vega-Lite writes titles of tooltips into expressions, and names of columns must never be part of
    one; the script of the page puts them back as text.
    """
    out = dict(spec)
    if "layer" in spec:
        out["layer"] = [_with_plain_tooltips(one, names) for one in spec["layer"]]
    shown = spec.get("encoding", {}).get("tooltip", [])
    if shown:
        names |= {one["field"]: one["title"] for one in shown}
        plain = [{**one, "title": one["field"]} for one in shown]
        out["encoding"] = {**spec["encoding"], "tooltip": plain}
    return out


def _without_pointer(spec: Spec) -> Spec:
    """Leave out what only answers to a pointer: tooltips, and layers for them."""
    out = dict(spec)
    if "layer" in spec:
        kept = [one for one in spec["layer"] if one.get("name") != POINTER]
        out["layer"] = [_without_pointer(one) for one in kept]
    if "tooltip" in spec.get("encoding", {}):
        encoding = spec["encoding"]
        out["encoding"] = {name: encoding[name] for name in encoding if name != "tooltip"}
    return out


def _shorter(svg: str) -> str:
    """Leave out digits of coordinates that nobody sees; texts have none of so many."""
    return re.sub(r' (d|transform)="[^"]*"', lambda match: _DIGITS.sub(r"\1", match.group()), svg)


@cache
def scripts() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, which loads nothing."""
    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _VERSION))
    # What ends a script in a page, and what would begin one in a comment.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def versions() -> str:
    """Say what draws the charts."""
    return f"Vega {vl_convert.get_vega_version()} and Vega-Lite {_VERSION}"
