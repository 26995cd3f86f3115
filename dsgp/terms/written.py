"""Terms from other things that users pass: a kernel, or text of the command line and of YAML."""

from __future__ import annotations

import ast
import re
from inspect import signature
from typing import Any

from dsgp.errors import ParameterError
from dsgp.kernels import REGISTRY as KERNELS
from dsgp.kernels import Kernel, kernel_of
from dsgp.terms.spec import TERMS, Default, Smooth, Term


def term_of(candidate: Any, column: str | None = None) -> Term:
    """Return a term as it is, and a kernel as that of a smooth function.

    Raises
    ------
    ParameterError
        If it is neither.
    """
    if isinstance(candidate, type):
        raise ParameterError(f"{candidate!r} is a class (did you forget the brackets?)")
    if isinstance(candidate, str):
        candidate = expression_of(candidate)
    made = candidate if isinstance(candidate, Term) else Smooth(None, kernel_of(candidate))
    return made if column is None else made.of_column(column)


# ---------------------------------------------------------------- from text

_COLUMN = re.compile(r"""\s*(?:"([^"]+)"|'([^']+)'|([^:]+?))\s*(?::\s*(.+))?\s*""", re.DOTALL)


def parse_term(text: str) -> Term:
    """Parse a term from its text on the command line or in YAML.

    Parameters
    ----------
    text : str
        ``COLUMN`` (its term is that of its type), or ``COLUMN: TERM`` with a kernel or a kind of
        term, e.g. ``color: Levels``, ``carat: Smooth(by=clarity)``, ``date: Periodic(year)``,
        ``x: Matern32(lengthscale=2) + Periodic(7)``. A column with a colon in its name is in
        quotes. A kind of term that names its columns needs no other: ``Tensor(hour, day)``.

    Raises
    ------
    ParameterError
        If it is not a term.

    Examples
    --------
    >>> from dsgp.terms import parse_term
    >>> parse_term("date: Levels(part=weekday)")
    Levels('date', part='weekday')
    """
    if _names_columns(text):
        return term_of(expression_of(text))
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ParameterError(f"{text!r} is not a term; write COLUMN: TERM, e.g. 'color: Levels'")
    quoted, single, plain, expression = match.groups()
    column = quoted or single or plain
    if expression is None:
        return Default(column)
    return term_of(expression_of(expression), column)


def _names_columns(text: str) -> bool:
    """Whether text is a term with its columns in brackets, and not the name of a column."""
    match = re.fullmatch(r"\s*(\w+)\s*\(.*\)\s*", text, re.DOTALL)
    return match is not None and match.group(1) in TERMS


def expression_of(text: str) -> Any:
    """Read a kernel or a term without its column."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ParameterError(f"{text!r} is not a term or a kernel: {error.msg}") from error
    return _evaluated(tree, text, top=True)


def _evaluated(node: ast.expr, text: str, top: bool = False) -> Any:
    """Evaluate names of kernels and terms, calls of these, sums and products, numbers and text."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _evaluated(node.operand, text)
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_evaluated(element, text) for element in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        sides = [_evaluated(operand, text, top=True) for operand in (node.left, node.right)]
        if not all(isinstance(side, Kernel) for side in sides):
            raise ParameterError(f"{text!r}: + and * combine kernels; give several terms as a list")
        return sides[0] + sides[1] if isinstance(node.op, ast.Add) else sides[0] * sides[1]
    if isinstance(node, ast.Name):
        return _made(node.id, text) if top else node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        values = [_evaluated(argument, text) for argument in node.args]
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg in named:  # Python's own parser would use the last one
                raise ParameterError(f"{text!r} has {keyword.arg}= more than once")
            named[str(keyword.arg)] = _evaluated(keyword.value, text)
        if values and node.func.id in TERMS and _is_kernel(values[0]):
            if "kernel" in named:
                raise ParameterError(
                    f"{text!r} has two kernels: {ast.unparse(node.args[0])} and kernel="
                )
            named, values = {"kernel": values[0], **named}, values[1:]
        for kernel in ("kernel", "other_kernel"):
            if isinstance(named.get(kernel), str):
                named[kernel] = _made(named[kernel], text)
        return _made(node.func.id, text, *values, **named)
    raise ParameterError(
        f"{text!r} is not a term or a kernel, e.g. Levels or Matern32(lengthscale=2)"
    )


def _is_kernel(value: Any) -> bool:
    return isinstance(value, Kernel) or (isinstance(value, str) and value in _written())


def _written() -> dict[str, Any]:
    """Kernels that text can name: sums and products are made by operators, Custom of objects."""
    return {
        name: kernel_class
        for name, kernel_class in KERNELS.items()
        if name not in ("CentredProduct", "Custom", "Product", "Sum")
    }


def _made(name: str, text: str, /, *values: Any, **named: Any) -> Any:
    kernels = _written()
    term_or_kernel = TERMS.get(name) or kernels.get(name)
    if term_or_kernel is None:
        raise ParameterError(
            f"{text!r}: there is no term or kernel {name!r}; terms are {', '.join(sorted(TERMS))}, "
            f"kernels {', '.join(sorted(kernels))}"
        )
    try:
        signature(term_or_kernel).bind(*values, **named)
    except TypeError as error:
        takes = ", ".join(signature(term_or_kernel).parameters)
        raise ParameterError(f"{text!r}: {error}; {name} takes {takes}") from error
    return term_or_kernel(*values, **named)
