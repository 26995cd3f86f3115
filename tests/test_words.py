"""Public pages are in the standard English of the field (docs/contributing.md has the list)."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Contributing quotes the expressions; the page on the paper is written by a pipeline.
PAGES = [
    page
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if page.name != "contributing.md"
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COUNTED = "bytes|seconds|tasks|nodes|evaluations|solves|passes|functions|lengthscales|kernels"
UNIT = "row|column|term|cell|point|bin|axis|worker|class|level|group|pair|draw|core|input|number"
# Pattern: what to write instead.
EXPRESSIONS = {
    r"\btold\b": "reported, distinguished",
    r"\btells? (?:of|nothing|little|most|less|how|which|both|them apart)\b": "reports, says",
    r"\bfelt\b": "found, observed",
    r"\b[Aa]s of\b(?! \d)": "as for, like",
    r"\bleft aside\b": "ignored",
    r"\bwithout a word\b": "silently",
    r"\bfor known\b": "treated as known",
    r"\banew\b": "again, from the beginning",
    r"\btaken off\b": "subtracted",
    r"\b(?:goes|go|went|going) on where\b": "resumes",
    r"\bby its ending\b": "by its extension",
    r"\brelied on\b": "used",
    r"(?:^|[.:;] )Of (?:more than|every|all but|some|effects|classes)\b": "With, For",
    rf"\b(?:{COUNTED}|[Oo]ne(?: \w+)?) an? (?:{UNIT})\b": "per",
}
SOURCES = [path for room in ("dsgp", "pipelines") for path in sorted((ROOT / room).rglob("*.py"))]
# Pages may still quote earlier messages; docstrings and messages have none of these either.
IN_CODE = EXPRESSIONS | {
    r"\btells?\b": "report, show, determine, distinguish",
    r"\bheed(?:s|ed)?\b": "use",
}
# Words that are right neither in comments nor as names.
NEVER = r"\b(?:[Tt]old|[Tt]ells?|[Tt]elling|[Uu]ntold|[Uu]nfelt|[Aa]new|[Hh]eed(?:s|ed)?)\b"
# Code in text, parameters of docstrings and doctests are not prose.
CODE = re.compile(r"``[^`]*``|`[^`]*`|^ *[\w, ]+ : |^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)
# Where a string of a message ends and the next one begins.
JOINT = re.compile(r"""["']\s*\n\s*[fr]?["']""")


def compiled(expressions):
    """Return patterns in which a space is any white space, and what to write instead."""
    return [(re.compile(key.replace(" ", r"\s+")), instead) for key, instead in expressions.items()]


def problems_of(text, expressions, first_line, name):
    """Return the places of expressions that are never right, and what to write instead."""
    return [
        f"{name}:{first_line + text.count(chr(10), 0, match.start())}: {match[0]!r}; write: {value}"
        for key, value in expressions
        for match in key.finditer(text)
    ]


def blank(block):
    return "…" + "\n" * block[0].count("\n")


def texts_of(tree):
    """Return line and text of docstrings and messages; what an f-string inserts is left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_standard_words(page):
    text = FENCED.sub(blank, page.read_text(encoding="utf-8"))
    problems = problems_of(text, compiled(EXPRESSIONS), 1, page.name)
    assert not problems, "\n".join(problems)


def test_docstrings_and_messages_use_standard_words():
    expressions = compiled(IN_CODE)
    problems = []
    for path in SOURCES:
        code = path.read_text(encoding="utf-8")
        # Most files have no such expression even in their code, and need not be parsed.
        joined = JOINT.sub("", code)
        if any(key.search(joined) for key, _ in expressions):
            name = path.relative_to(ROOT)
            for line, text in texts_of(ast.parse(code)):
                problems += problems_of(CODE.sub(blank, text), expressions, line, name)
    assert not problems, "\n".join(problems)


def test_comments_and_names_use_standard_words():
    never = re.compile(NEVER)
    found = []
    for path in sorted((ROOT / "dsgp").rglob("*.py")):
        name = path.relative_to(ROOT)
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{name}:{n}: {line}" for n, line in enumerate(lines, 1) if never.search(line)]
    assert not found, "\n".join(found)


def test_no_line_of_the_changelog_is_there_twice():
    # Branches that change an entry, each in its own way, can be merged into both versions of it.
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    begun = [line[:60] for line in lines if line.startswith("- ")]
    assert [line for line in set(begun) if begun.count(line) > 1] == []
    # The first version of an entry then ends in the middle of a sentence, or the second begins so.
    after_end = [b for a, b in pairwise(lines) if a.endswith(".") and re.match(r"  [a-z]", b)]
    assert after_end == []


def test_sources_hold_no_control_characters():
    # A formula through whose backslashes somebody's string went has a tab for the t of \text.
    sources = [ROOT / "README.md"]
    for folder in ("dsgp", "docs", "benchmarks", "pipelines", "tests"):
        sources += [*ROOT.glob(f"{folder}/**/*.py"), *ROOT.glob(f"{folder}/**/*.md")]
    control = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
    found = [str(path.relative_to(ROOT)) for path in sources if control.search(path.read_bytes())]
    assert not found
