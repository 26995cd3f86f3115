"""Try an installed wheel as a stranger would: README's first example, the command, a file.

Runs with the Python of the environment that has the wheel, in a folder outside the checkout:
    cd "$(mktemp -d)" && /path/of/venv/bin/python /path/of/checkout/.ci/try_wheel.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import files, version
from pathlib import Path

import dsgp

CHECKOUT = Path(__file__).parents[1]
COMMAND = Path(sys.executable).with_name("dsgp")


def run(*arguments: str) -> str:
    """Run the command; return what it writes, and end if it fails."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"dsgp {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Raise or end with a message where something does not work."""
    here = Path(dsgp.__file__).resolve()
    if CHECKOUT in here.parents and Path(sys.prefix).resolve() not in here.parents:
        sys.exit(f"dsgp is that of the checkout, {here}, and not that of the wheel")
    shipped = {str(path) for path in files("dsgp") or []}
    if missing := {"dsgp/py.typed", "dsgp/jit/__init__.py"} - shipped:
        sys.exit(f"the wheel lacks {sorted(missing)}")
    if further := {name.split("/")[0] for name in shipped} & {"tests", "pipelines", "docs"}:
        sys.exit(f"the wheel has {sorted(further)}, which are no part of it")

    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    names: dict[str, object] = {}
    exec(compile(example[1], "README.md", "exec"), names)

    assert run("--version").split() == ["dsgp", version("dsgp")]
    assert "predict" in run("--help")
    names["X"].assign(rent=names["y"]).to_csv("rents.csv", index=False)  # type: ignore[attr-defined]
    run("fit", "rents.csv", "--target", "rent", "--out", "rents.zarr")
    run("predict", "rents.zarr", "rents.csv", "--out", "predicted.csv")
    n_lines = len(Path("predicted.csv").read_text(encoding="utf-8").splitlines())
    assert n_lines == 901, n_lines  # 900 rows and the names
    print(f"the wheel of dsgp {version('dsgp')} works in {sys.prefix}")


if __name__ == "__main__":
    main()
