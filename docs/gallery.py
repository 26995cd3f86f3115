"""Make the pictures of gallery.md again, by the code that stands there: python docs/gallery.py."""

import os
import re
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main() -> None:
    page = Path(__file__).resolve().with_name("gallery.md")
    text = page.read_text(encoding="utf-8")
    os.chdir(page.parent / "images" / "gallery")
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        # Blank lines in front make a traceback name the line of the page.
        exec(compile("\n" * first_line + block[1], str(page), "exec"), namespace)


if __name__ == "__main__":
    main()
