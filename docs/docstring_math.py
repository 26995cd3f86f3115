"""Show the few formulas of the docstrings as Unicode text: no script and no font is needed.

A griffe extension, named in mkdocs.yml. A LaTeX command it does not know stops the build.
"""

import re
import textwrap
import unicodedata
from typing import Any

import griffe

SYMBOLS = {
    r"\varepsilon": "ε",
    r"\alpha": "α",
    r"\Gamma": "Γ",
    r"\Lambda": "Λ",
    r"\lambda": "λ",
    r"\sigma": "σ",
    r"\theta": "θ",
    r"\tau": "τ",
    r"\ell": "ℓ",
    r"\Phi": "Φ",
    r"\phi": "φ",
    r"\psi": "ψ",
    r"\int": "∫",
    r"\in": "∈",
    r"\approx": "≈",
    r"\mu": "μ",
    r"\nu": "ν",
    r"\pi": "π",
    r"\prod": "Π",
    r"\sum": "Σ",
    r"\otimes": "⊗",
    r"^\top": "ᵀ",
    r"\sim": "~",
    r"\cdot": "·",
    r"\exp": "exp",
    r"\log": "log",
    r"\sin": "sin ",
    r"\left": "",
    r"\right": "",
    r"\mathcal N": "N",
    r"\mathcal{GP}": "GP",
    r"\qquad": "   ",
    r"\quad": "  ",
    r"\Big": "",
    r"\Bigl": "",
    r"\Bigr": "",
    r"\le": "≤",
    r"\ne": "≠",
    r"\pm": "±",
    r"\mid": "|",
    r"\dots": "…",
    r"\infty": "∞",
    r"\,": " ",
    r"\#": "#",
    r"\{": "⦃",  # told from those that group, until the end
    r"\}": "⦄",
}
ACCENTS = {"hat": "\u0302", "bar": "\u0304"}


def to_unicode(latex: str) -> str:
    """Write a formula as text on one line."""
    text = " ".join(latex.split())
    text = re.sub(r"\s*\\,/\\,\s*", " / ", text)
    text = re.sub(r"\\(left|right)(?![a-z])", "", text)
    text = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[dt]?frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    for command in sorted(SYMBOLS, key=len, reverse=True):
        text = text.replace(command, SYMBOLS[command])
    text = re.sub(r"\\(hat|bar) ?(\w)", _accented, text)
    before = ""
    while text != before:  # from the innermost braces outwards
        before = text
        text = re.sub(r"\\sqrt\{([^{}]*)\}", r"√(\1)", text)
        text = re.sub(r"\\binom\{([^{}]*)\}\{([^{}]*)\}", r"binom(\1, \2)", text)
        text = re.sub(r"\\frac\{([^{}]*)\} ?\{([^{}]*)\}", _fraction, text)
        text = re.sub(r"([\^_])\{([^{}]*)\}", lambda found: found[1] + _grouped(found[2]), text)
    text = text.replace("^2", "²")
    text = re.sub(r"\{([^{}]*)\}", r"\1", text)
    text = text.replace("⦃", "{").replace("⦄", "}").replace("-", "−")
    if "\\" in text:
        raise ValueError(f"docs/docstring_math.py does not know a command of {latex!r}: add it")
    return text.strip()


def _accented(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", found[2] + ACCENTS[found[1]])


def _fraction(found: re.Match[str]) -> str:
    over, under = (part.strip() for part in found.groups())
    outside = re.sub(r"\([^()]*\)|\[[^][]*\]", "", over)
    over = f"({over})" if re.search(r"\S ?[-+±]", outside) else over
    single = re.fullmatch(r"\d+|[^\W\d](_\w+|\(\w+\))?", under)
    return f"{over} / {under if single else f'({under})'}"


def _grouped(script: str) -> str:
    return script if re.fullmatch(r"\w+", script) else f"({script})"


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
