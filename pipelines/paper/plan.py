"""Which cells each table and figure of the paper needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.paper.cell import CORNERS, IMAGE, Settings, digest_of
from pipelines.paper.methods import CLASSIFICATION as CLASSIFICATION_TASK
from pipelines.paper.methods import METHODS, Method
from pipelines.paper.methods import REGRESSION as REGRESSION_TASK
from pipelines.paper.sets import CLASSIFICATION, REGRESSION, set_named

# Sections of the evaluation, by what they show.
RUNTIME, SPEEDUP, COMPARISON = "runtime", "speedup", "regression"
CLASS_RUNTIME, CLASSES_COMPARED = "class-runtime", "classification"
KRONECKER, IMAGES = "kronecker", "image"
SECTIONS = (RUNTIME, SPEEDUP, COMPARISON, CLASS_RUNTIME, CLASSES_COMPARED, KRONECKER, IMAGES)

SIZES = (2000, 4000, 6000, 8000, 10_000, 20_000, 30_000, 40_000, 50_000)
SPEEDUP_ROWS, QUICK_ROWS = 8000, 300
QUICK_SIZES = (QUICK_ROWS, 1000)  # the first are cells of the comparisons, too
FULL_MOST = 8000  # rows of a Full-GP in the figures of runtime
THREADS = (1, 2)
SPEEDUP_SETS = ("synth-8d", "synth-32d")
SPEEDUP_METHODS = ("full-gp", "spgp", "additive-vb", "ppgpr-greedy", "additive", "pursuit")
CORNER_DIMS, QUICK_CORNER_DIMS = 20, 12
PIXELS, QUICK_PIXELS = 200, 64
GRID = "grid"  # the method of corners and image


@dataclass(frozen=True)
class Choice:
    """What is run.

    Attributes
    ----------
    sections : tuple of str
    sets : tuple of str
        Of the comparisons; empty is all.
    methods : frozenset of (str, str)
        Tasks and names of methods; empty is all.
    runs : int
        Of a method that draws.
    quick : bool
    data_dir : Path
    """

    sections: tuple[str, ...]
    sets: tuple[str, ...]
    methods: frozenset[tuple[str, str]]
    runs: int
    quick: bool
    data_dir: Path

    def takes(self, task: str, name: str) -> bool:
        """Whether a method of a task is among those chosen."""
        return not self.methods or (task, name) in self.methods

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the files that were asked for so far, each read once."""
        return {}

    def digest(self, data: str) -> str:
        """Digest of the files of a data set."""
        if data not in self.digests:
            self.digests[data] = digest_of(data, self.data_dir)
        return self.digests[data]

    def takes_set(self, name: str) -> bool:
        return not self.sets or name in self.sets


def planned(choice: Choice) -> list[Settings]:
    """Plan all cells, each once; first runs come first, so that an early end leaves a whole."""
    cells = [cell for section in choice.sections for cell in _SECTIONS[section](choice)]
    return sorted(dict.fromkeys(cells), key=lambda cell: cell.run)


def _runtime(choice: Choice) -> Iterator[Settings]:
    yield from _sizes(choice, "synth-8d")


def _class_runtime(choice: Choice) -> Iterator[Settings]:
    yield from _sizes(choice, "synth-8d-binary")


def _sizes(choice: Choice, data: str) -> Iterator[Settings]:
    task = set_named(data).task
    sizes = QUICK_SIZES if choice.quick else SIZES
    for n in sizes:
        for name, method in METHODS[task].items():
            if choice.takes(task, name) and n <= _most(name, method):
                yield _cell(choice, data, name, n)


def of_speedup(choice: Choice) -> Iterator[Settings]:
    """Cells of the figure of speedups, if it is asked for."""
    if SPEEDUP not in choice.sections:
        return
    n = QUICK_ROWS if choice.quick else SPEEDUP_ROWS
    for data in SPEEDUP_SETS:
        for name in SPEEDUP_METHODS:
            if choice.takes(REGRESSION_TASK, name):
                for threads in THREADS:
                    yield _cell(choice, data, name, n, threads=threads)


def compared(choice: Choice) -> dict[str, int]:
    """Data sets that are compared, with their training rows."""
    sections = {COMPARISON: REGRESSION, CLASSES_COMPARED: CLASSIFICATION}
    return {
        data: min(chosen.n, QUICK_ROWS) if choice.quick else chosen.n
        for section, sets in sections.items()
        if section in choice.sections
        for data, chosen in sets.items()
        if choice.takes_set(data)
    }


def _regression(choice: Choice) -> Iterator[Settings]:
    yield from _compared(choice, list(REGRESSION))


def _classification(choice: Choice) -> Iterator[Settings]:
    yield from _compared(choice, list(CLASSIFICATION))


def _compared(choice: Choice, sets: Sequence[str]) -> Iterator[Settings]:
    rows = compared(choice)
    for data in filter(rows.get, sets):
        chosen, n = set_named(data), rows[data]
        for name, method in METHODS[chosen.task].items():
            if not choice.takes(chosen.task, name):
                continue
            if method.most_rows is not None and n > method.most_rows:
                continue
            many = method.stochastic or chosen.resplit
            for run in range(choice.runs if many else 1):
                yield _cell(choice, data, name, n, run)


def left_out(choice: Choice) -> list[str]:
    """Say which methods end at a number of rows that others of their comparison pass."""
    notes = []
    for data, n in compared(choice).items():
        task = set_named(data).task
        for name, method in METHODS[task].items():
            if choice.takes(task, name) and method.most_rows is not None and n > method.most_rows:
                notes.append(
                    f"{method.label} is not run on {data}: with more than {method.most_rows} rows "
                    "it takes too long, or too much memory."
                )
    for section, task in ((RUNTIME, REGRESSION_TASK), (CLASS_RUNTIME, CLASSIFICATION_TASK)):
        if section in choice.sections and not choice.quick:
            notes += [
                f"{method.label} ({task}) ends at {_most(name, method)} rows of the figure of "
                "seconds against rows."
                for name, method in METHODS[task].items()
                if choice.takes(task, name) and _most(name, method) < SIZES[-1]
            ]
    return notes


def _most(name: str, method: Method) -> int:
    """Most rows in the figures of seconds against rows."""
    most = FULL_MOST if name == "full-gp" else SIZES[-1]
    return max(n for n in SIZES if n <= min(most, method.most_rows or most))


def _kronecker(choice: Choice) -> Iterator[Settings]:
    yield Settings(CORNERS, GRID, QUICK_CORNER_DIMS if choice.quick else CORNER_DIMS)


def _image(choice: Choice) -> Iterator[Settings]:
    yield Settings(IMAGE, GRID, QUICK_PIXELS if choice.quick else PIXELS)


def _cell(
    choice: Choice, data: str, method: str, n: int, run: int = 0, threads: int = 1
) -> Settings:
    place = str(choice.data_dir.absolute())
    return Settings(data, method, n, run, threads, choice.quick, place, choice.digest(data))


_SECTIONS = {
    RUNTIME: _runtime,
    SPEEDUP: of_speedup,
    COMPARISON: _regression,
    CLASS_RUNTIME: _class_runtime,
    CLASSES_COMPARED: _classification,
    KRONECKER: _kronecker,
    IMAGES: _image,
}
