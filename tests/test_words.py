"""Public pages are in the standard English of the field (docs/contributing.md has the list)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Contributing quotes the expressions; the page on the paper is written by a pipeline.
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
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
    r"\b(?:is|are) as of\b": "as for",
    r"\bleft aside\b": "ignored",
    r"\bwithout a word\b": "silently",
    r"\bfor known\b": "treated as known",
    r"\banew\b": "again, from the beginning",
    r"\btaken off\b": "subtracted",
    r"\b(?:goes|go|went|going) on where\b": "resumes",
    r"\bby its ending\b": "by its extension",
    r"\brelied on\b": "used",
    r"(?:^|[.:;] )Of (?:more than|every|all but|some|effects|classes)\b": "With, For",
    rf"\b(?:{COUNTED}|[Oo]ne \w+) an? (?:{UNIT})\b": "per",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_standard_words(page):
    text = FENCED.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))
    problems = []
    for pattern, instead in EXPRESSIONS.items():
        for match in re.finditer(pattern, text.replace("\n", " ")):
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{page.name}:{line}: {match[0]!r}; write: {instead}")
    assert not problems, "\n".join(problems)


def test_sources_hold_no_control_characters():
    # A formula through whose backslashes somebody's string went has a tab for the t of \text.
    sources = [ROOT / "README.md"]
    for folder in ("dsgp", "docs", "benchmarks", "pipelines", "tests"):
        sources += [*ROOT.glob(f"{folder}/**/*.py"), *ROOT.glob(f"{folder}/**/*.md")]
    control = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
    found = [str(path.relative_to(ROOT)) for path in sources if control.search(path.read_bytes())]
    assert not found
