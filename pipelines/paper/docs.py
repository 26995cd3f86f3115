"""The report in the documentation: the generated part of a page, its figures and its numbers.

``python -m pipelines.paper.docs --out results/paper`` copies the figures and the tables, as JSON,
of a finished run into ``docs/paper``, and writes the part of ``docs/paper.md`` between two marks.
The rest of the page is written by hand.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Option, Typer

from dsgp.cli.endings import run_app
from dsgp.errors import DataError
from dsgp.places import replace_text
from pipelines.paper.tables import NAMES
from pipelines.paper.text import markdown
from pipelines.reporting import REPORT, plain_errors

PAGE, FOLDER, FACTS = "paper.md", "paper", "facts.json"
BEGIN, END = "<!-- begin: written by pipelines.paper.docs -->", "<!-- end -->"

app = Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    out: Annotated[Path, Option(metavar="FOLDER", help="What a run of pipelines.paper wrote.")] = (
        Path("results/paper")
    ),
    docs: Annotated[Path, Option(metavar="FOLDER", help="With paper.md.")] = Path("docs"),
) -> None:
    """Put the results of a run into the documentation."""
    with plain_errors():
        report = json.loads((out / REPORT).read_text(encoding="utf-8"))
        page, folder = docs / PAGE, docs / FOLDER
        before, _, after = parts(page.read_text(encoding="utf-8"))  # refused before anything goes
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        for name in NAMES:
            for ending in (".json", ".png"):
                if (file := out / f"{name}{ending}").exists():
                    shutil.copy(file, folder / file.name)
        facts = {name: report[name] for name in ("command", "machine", "versions", "notes")}
        replace_text(folder / FACTS, json.dumps(facts, indent=1))
        replace_text(page, f"{before}{BEGIN}\n{generated(docs)}{END}{after}")


def parts(page: str) -> tuple[str, str, str]:
    """What is before the generated part of a page, that part, and what is after it.

    Raises
    ------
    DataError
        If a page has not both marks, once each.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise DataError(f"expected the lines {BEGIN!r} and {END!r} once each in {PAGE}")
    before, rest = page.split(BEGIN)
    middle, after = rest.split(END)
    return before, middle.removeprefix("\n"), after


def generated(docs: Path) -> str:
    """The generated part, of what is stored beside the page."""
    folder = docs / FOLDER
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    tables = {
        name: pd.DataFrame(json.loads(file.read_text(encoding="utf-8")))
        for name in NAMES
        if (file := folder / f"{name}.json").exists()
    }
    figures = [file.name for file in folder.glob("*.png")]
    return markdown(tables, figures, facts["notes"], facts, f"{FOLDER}/")


if __name__ == "__main__":
    run_app(app, "python -m pipelines.paper.docs")
