"""Formulas of pages and docstrings as MathML, which browsers draw without a script or a font.

A hook of MkDocs, for fenced blocks of ``math`` and what stands between dollars on pages, and an
extension of griffe, for ``.. math::`` and ``:math:`` of docstrings; both are named in mkdocs.yml.
LaTeX that cannot be converted stops the build.
"""

import html
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

_DISPLAY = re.compile(
    r"^( *)\.\. math::[ \n]((?:\n?.*\S.*)(?:\n\1 +\S.*)*)$",
    flags=re.MULTILINE,
)
_MARKED = re.compile(r'<(div|span) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)
_INLINE = re.compile(r":math:`([^`]*)`")


def mathml(latex: str, display: str) -> str:
    """Convert a formula; ``display`` is "block" or "inline".

    Raises
    ------
    ValueError
        If a command is left as text.
    """
    converted = convert(" ".join(latex.split()), display=display)
    unknown = re.findall(r"\\[a-zA-Z]+", html.unescape(converted))
    if unknown:
        raise ValueError(f"docs/formulas.py cannot convert {unknown} of {latex!r}")
    return converted


def block(source: str, *args: Any, **kwargs: Any) -> str:
    """Format a fenced block of ``math``: a formula for each paragraph."""
    formulas = [part for part in source.split("\n\n") if part.strip()]
    lines = "".join(f"<div>{mathml(part, 'block')}</div>" for part in formulas)
    return f'<div class="formula">{lines}</div>'


def translate(docstring: str) -> str:
    """Turn ``.. math::`` of a docstring into fenced blocks and ``:math:`` into MathML."""

    def display(found: re.Match[str]) -> str:
        indent, latex = found[1], " ".join(found[2].split())
        return f"{indent}```math\n{indent}{latex}\n{indent}```\n"

    def inline(found: re.Match[str]) -> str:
        return f'<span class="formula">{mathml(found[1], "inline")}</span>'

    return _INLINE.sub(inline, _DISPLAY.sub(display, docstring))


class DocstringMath(griffe.Extension):
    """Translate every docstring that holds a formula."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring and "math:" in obj.docstring.value:
            obj.docstring.value = translate(obj.docstring.value)


def on_page_content(content: str, **kwargs: Any) -> str:
    """Convert what stands between dollars on a page; pymdownx.arithmatex has marked it."""

    def convert_one(found: re.Match[str]) -> str:
        tag, latex = found[1], html.unescape(found[2])
        display = "block" if tag == "div" else "inline"
        return f'<{tag} class="formula">{mathml(latex, display)}</{tag}>'

    return _MARKED.sub(convert_one, content)


def on_config(config: Any) -> Any:
    """Let fenced blocks of ``math`` be formulas, on all pages."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "formula", "format": block}]
    return config
