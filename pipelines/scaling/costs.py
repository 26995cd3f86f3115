"""A cost model of streamed fits on workers, fitted to measured ones, that predicts larger ones.

Processor seconds, of which everything but the last line is fitted by non-negative least squares:

    workers  = compute · rows + read · bytes read + worker_task · tasks + worker_byte · bytes sent
    driver   = serial + block · blocks + driver_task · tasks + driver_byte · bytes sent
    tasks    = tasks_0 + tasks_1 · blocks,    bytes sent = sent_0 + sent_1 · blocks
    wall     = waiting · (serial + max(workers · rounds / blocks, driver − serial, both / cores))

In each of the rounds, blocks / w and rounded up, every worker has one block. The driver works on a
block while workers are at the next ones, so that the slower of the two counts; on one machine both
share its cores. Errors are those of the jackknife over the fits, and
how far measured wall times are from the model's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from dsgp.errors import ParameterError
from pipelines.scaling.cell import CHUNK, PASSES, ROW_BYTES

Cell = Mapping[str, Any]
Vector = NDArray[np.float64]

FEWEST_CELLS = 3
# Share of the largest measurement of its kind below which errors are not relative any more.
_FLOOR = 0.02


@dataclass(frozen=True)
class Costs:
    """Costs in processor seconds, and what a fit has of what costs them.

    Attributes
    ----------
    compute, read : float
        Of workers, for a row and for a byte that is read (twice for each row).
    worker_task, worker_byte, driver_task, driver_byte : float
        Of scheduling and running a task, and of a byte that workers send.
    serial : float
        Of the driver, for a fit whatever its rows: learning and solving.
    block : float
        Of the driver, for adding what comes of a block of rows.
    tasks_0, tasks_1, sent_0, sent_1 : float
        Tasks and bytes sent of a fit, and of each of its blocks.
    waiting : float
        Wall seconds for each that the model says.
    """

    compute: float
    read: float
    worker_task: float
    worker_byte: float
    serial: float
    block: float
    driver_task: float
    driver_byte: float
    tasks_0: float
    tasks_1: float
    sent_0: float
    sent_1: float
    waiting: float = 1.0

    def seconds(self, n: int) -> dict[str, float]:
        """Processor seconds of a fit to so many rows: of workers and driver, by what they do."""
        blocks = n_blocks(n)
        tasks, sent = self.tasks_0 + self.tasks_1 * blocks, self.sent_0 + self.sent_1 * blocks
        return {
            "computing": self.compute * n,
            "reading": self.read * PASSES * ROW_BYTES * n,
            "worker_tasks": self.worker_task * tasks,
            "worker_transfer": self.worker_byte * sent,
            "serial": self.serial,
            "adding": self.block * blocks,
            "scheduling": self.driver_task * tasks,
            "transfer": self.driver_byte * sent,
        }

    def of_workers(self, n: int) -> float:
        """Processor seconds of all workers."""
        seconds = self.seconds(n)
        names = ("computing", "reading", "worker_tasks", "worker_transfer")
        return sum(seconds[name] for name in names)

    def of_driver(self, n: int) -> float:
        """Processor seconds of the driver while rows stream: without the serial ones."""
        seconds = self.seconds(n)
        return sum(seconds[name] for name in ("adding", "scheduling", "transfer"))

    def wall(self, n: int, n_workers: int, cores: int | None = None) -> float:
        """Wall seconds on so many workers of one thread.

        ``cores`` are those that driver and workers share; None: each has its own.
        """
        workers, driver = self.of_workers(n), self.of_driver(n)
        shared = 0.0 if cores is None else (workers + driver) / cores
        blocks = n_blocks(n)
        rounds = -(-blocks // n_workers)
        return self.waiting * (self.serial + max(workers * rounds / blocks, driver, shared))

    def most_useful_workers(self, n: int) -> int:
        """Workers from which on the driver is what takes the time."""
        return max(1, int(np.ceil(self.of_workers(n) / max(self.of_driver(n), 1e-9))))


def n_blocks(n: int) -> int:
    """Blocks of so many rows: what workers sum at a time, and chunks that they read."""
    return -(-n // CHUNK)


def require_enough(sizes: Sequence[int]) -> None:
    """Refuse numbers of rows that cannot separate costs that grow with them from those that do not.

    Raises
    ------
    ParameterError
        If there are fewer than three, or all have as many blocks.
    """
    if len(sizes) < FEWEST_CELLS or len(set(map(n_blocks, sizes))) < 2:
        raise ParameterError(
            f"the cost model needs at least {FEWEST_CELLS} fits, with different numbers of blocks "
            f"of {CHUNK:,} rows; name more --sizes, such as 1e6,4e6, or more --workers"
        )


def fit_costs(cells: Sequence[Cell]) -> Costs:
    """Fit the model; equations count by how far they are off as a share of what was measured.

    Raises
    ------
    ParameterError
        As ``require_enough`` says.
    """
    require_enough([cell["settings"]["n"] for cell in cells])
    spent = [cell["spent"] for cell in cells]
    n = [cell["settings"]["n"] for cell in cells]
    compute = _solve([[rows] for rows in n], [each["computing"] for each in spent])
    read = _solve([[cell["read_bytes"]] for cell in cells], [each["reading"] for each in spent])
    probes = [cell["probes"][kind] for cell in cells for kind in ("tasks", "bytes")]
    tasks_and_bytes = [[each["tasks"], each["sent_bytes"]] for each in spent + probes]
    beside = [sum(each["workers"]) - each["computing"] - each["reading"] for each in spent + probes]
    of_worker = _solve(tasks_and_bytes, beside)
    blocks = [[1.0, n_blocks(rows)] for rows in n]
    rows_of_driver = [*blocks, *([0.0, 0.0] for _ in probes)]
    of_driver = _solve(
        [[*row, *more] for row, more in zip(rows_of_driver, tasks_and_bytes, strict=True)],
        [each["driver"] for each in spent + probes],
    )
    tasks = _solve(blocks, [each["tasks"] for each in spent])
    sent = _solve(blocks, [each["sent_bytes"] for each in spent])
    costs = Costs(*map(float, [*compute, *read, *of_worker, *of_driver, *tasks, *sent]))
    ratios = [[modelled(costs, cell)] for cell in cells]
    (waiting,) = _solve(ratios, [each["wall"] for each in spent])
    return replace(costs, waiting=float(waiting))


def _solve(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> Vector:
    """Non-negative least squares of relative errors, in units of the columns."""
    values = np.array(measured, dtype=float)
    # What is near 0 by chance does not count for more than what was measured well.
    units = np.maximum(values, _FLOOR * max(values.max(), np.finfo(float).tiny))
    matrix = np.array(rows, dtype=float) / units[:, None]
    scale = np.maximum(np.sqrt((matrix**2).sum(axis=0)), np.finfo(float).tiny)
    solution, _ = nnls(matrix / scale, values / units)
    found: Vector = solution / scale
    return found


def modelled(costs: Costs, cell: Cell) -> float:
    """Wall seconds that the model says of a fit that was measured."""
    settings = cell["settings"]
    return costs.wall(settings["n"], settings["cluster"]["workers"], cell["cores"])


@dataclass(frozen=True)
class Fitted:
    """The costs, those without each of the fits in turn, and how far the model is off.

    Attributes
    ----------
    costs : Costs
    without : list of Costs
    scatter : float
        Standard deviation of measured / modelled wall time around 1.
    """

    costs: Costs
    without: list[Costs]
    scatter: float

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> "Fitted":
        """Fit to all cells, and to all but each of them as far as those left are enough."""
        costs = fit_costs(cells)
        without = []
        for k in range(len(cells)):
            rest = [*cells[:k], *cells[k + 1 :]]
            try:
                without.append(fit_costs(rest))
            except ParameterError:
                continue
        off = [cell["spent"]["wall"] / modelled(costs, cell) - 1 for cell in cells]
        scatter = np.sqrt(np.sum(np.square(off)) / (len(cells) - 1))
        return cls(costs, without, float(scatter))

    def predict(self, n: int, n_workers: int, cores: int | None = None) -> tuple[float, float]:
        """Predict wall seconds; return them and their standard error."""

        def wall(costs: Costs) -> float:
            return costs.wall(n, n_workers, cores)

        value = wall(self.costs)
        return value, float(np.hypot(self._jackknife(wall), self.scatter * value))

    def _jackknife(self, quantity: Callable[[Costs], float]) -> float:
        if len(self.without) < 2:
            return float("nan")
        values = np.array([quantity(costs) for costs in self.without])
        return float(np.sqrt((len(values) - 1) * np.var(values)))

    def as_dict(self) -> dict[str, Any]:
        """What ``costs.json`` says: each cost with its standard error, and the scatter."""
        return {
            "costs": asdict(self.costs),
            "standard_errors": {
                name: self._jackknife(attrgetter(name)) for name in asdict(self.costs)
            },
            "scatter": self.scatter,
        }
