"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python .ci/oldest.py plot netcdf > constraints.txt

Each requirement of the package and of the extras that are named is pinned to its lower bound.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def pins(extras: list[str]) -> Iterator[str]:
    """Pin each requirement to its lower bound; those of an extra of our own are those it names."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += optional[extra]
    while wanted:
        requirement = wanted.pop(0)
        if nested := re.fullmatch(rf"{project['name']}\[([\w,-]+)\]", requirement):
            wanted += [line for extra in nested[1].split(",") for line in optional[extra]]
        elif bound := re.match(r"([\w.-]+)(\[[\w,-]+\])?\s*>=\s*([\w.]+)", requirement):
            yield f"{bound[1]}=={bound[3]}"
        else:
            sys.exit(f"{requirement!r} has no lower bound in {PROJECT.name}: give it one")


if __name__ == "__main__":
    print("\n".join(dict.fromkeys(pins(sys.argv[1:]))))
