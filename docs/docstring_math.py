"""Show the few formulas of the docstrings as Unicode text: no script and no font is needed.

A griffe extension, named in mkdocs.yml. A LaTeX command it does not know stops the build.
"""

import re
import textwrap
from typing import Any

import griffe

SYMBOLS = {
    r"\varepsilon": "ε",
    r"\lambda": "λ",
    r"\sigma": "σ",
    r"\theta": "θ",
    r"\tau": "τ",
    r"\ell": "ℓ",
    r"\Phi": "Φ",
    r"\mu": "μ",
    r"\nu": "ν",
    r"\pi": "π",
    r"\sum": "Σ",
    r"\sim": "~",
    r"\cdot": "·",
    r"\log": "log",
    r"\left": "",
    r"\right": "",
    r"\mathcal N": "N",
    r"\mathcal{GP}": "GP",
    r"\qquad": "   ",
    r"\quad": "  ",
    r"\le": "≤",
    r"\bar y": "ȳ",
    r"\infty": "∞",
    r"\,": " ",
    r"\#": "#",
    r"\{": "{",
    r"\}": "}",
}


def to_unicode(latex: str) -> str:
    """Write a one-line LaTeX formula as text."""
    text = " ".join(latex.split())
    text = re.sub(r"\s*\\,/\\,\s*", " / ", text)
    text = re.sub(r"\\(left|right)(?![a-z])", "", text)
    text = re.sub(r"\\[dt]?frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    for command in sorted(SYMBOLS, key=len, reverse=True):
        if command not in (r"\{", r"\}"):
            text = text.replace(command, SYMBOLS[command])
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", _fraction, text)
    text = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", text)
    text = re.sub(r"\^\{([^{}]*)\}", lambda found: "^" + _grouped(found[1]), text)
    text = text.replace("^2", "²")
    text = re.sub(r"(?<!\\)_\{([^{}]*)\}", r"_\1", text)
    text = re.sub(r"(?<!\\)\{([^{}]*[^\\{}])\}", r"\1", text)
    text = text.replace(r"\{", "{").replace(r"\}", "}").replace("-", "−")
    if "\\" in text:
        raise ValueError(f"docs/docstring_math.py does not know a command of {latex!r}: add it")
    return text.strip()


def _fraction(found: re.Match[str]) -> str:
    over, under = found.groups()
    single = re.fullmatch(r"[^\W\d](_\w+)?", under)
    return f"{over} / {under if single else f'({under})'}"


def _grouped(exponent: str) -> str:
    return exponent if len(exponent) == 1 else f"({exponent})"


def translate(docstring: str) -> str:
    """Turn ``.. math::`` and ``:math:`` of a docstring into code."""

    def display(found: re.Match[str]) -> str:
        indent = found[1]
        return textwrap.indent(f"```text\n{to_unicode(found[2])}\n```", indent)

    docstring = re.sub(
        r"^( *)\.\. math:: ((?:.+\n?)(?:\1 +\S.*\n?)*)",
        lambda found: display(found) + "\n",
        docstring,
        flags=re.MULTILINE,
    )
    return re.sub(r":math:`([^`]*)`", lambda found: f"`{to_unicode(found[1])}`", docstring)


class DocstringMath(griffe.Extension):
    """Translate every docstring that holds a formula."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring and "math:" in obj.docstring.value:
            obj.docstring.value = translate(obj.docstring.value)
