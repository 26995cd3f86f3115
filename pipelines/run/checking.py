"""Checks of a configuration before the first stage: what no run could do."""

from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from dsgp.addresses import address_of
from dsgp.errors import ParameterError
from dsgp.rows.sources import FILE_TYPES, open_table
from pipelines.datasets import is_built_in
from pipelines.run.config import Config
from pipelines.run.fitting import build_additive, build_pursuit, build_scoring
from pipelines.run.loading import input_names
from pipelines.run.sections import Additive, Kernel, Load, Pursuit, Scoring


def require_possible(config: Config) -> None:
    """Raise what the stages would raise of the options, and of the names of columns.

    Raises
    ------
    ParameterError
        If options of an estimator contradict each other, or ``terms`` names a column that is no
        input.
    DataError
        If a table has no column that is named.
    """
    inputs = _inputs_of(config.load)
    for name, model in config.models.items():
        stages: dict[str, tuple[Any, Any]] = {}
        try:
            if model.additive is not None:
                stages["additive"] = (model.additive, build_additive(model.additive, config.seed))
            if model.pursuit is not None:
                stages["pursuit"] = (model.pursuit, build_pursuit(model.pursuit, config.seed))
            if model.scoring is not None:
                scoring = build_scoring(model.scoring, config.task, config.seed)
                stages["scoring"] = (model.scoring, scoring)
        except ParameterError as error:
            raise ParameterError(f"models.{name}: {error}") from error
        for stage, (options, estimator) in stages.items():
            try:
                _require_parameters(estimator)
                _require_inputs(options, inputs)
                # Local scoring takes lengthscales of the stage before it.
                starts = stage == "scoring" and "additive" in stages
                if not isinstance(options, Pursuit) and not starts:
                    _require_complete(options)
            except ParameterError as error:
                raise ParameterError(f"models.{name}.{stage}: {error}") from error


def _require_parameters(estimator: Any) -> None:
    """Let an estimator check its parameters, which it does before it looks at rows."""
    try:
        clone(estimator).fit(np.empty((0, 1)), np.empty(0))
    except ParameterError:
        raise
    except ValueError:  # there is no row
        return


def _require_inputs(options: Additive | Pursuit | Scoring, inputs: list[str] | None) -> None:
    if inputs is not None and (unknown := [name for name in options.terms if name not in inputs]):
        raise ParameterError(f"terms names {unknown}, which are not among the columns {inputs}")


def _require_complete(options: Additive | Scoring) -> None:
    """Raise ``ParameterError`` if nothing is learned and a hyperparameter is not given."""
    if options.learner is not None:
        return
    default = Kernel() if options.kernel is None else options.kernel
    term_kernels = [term for term in options.terms.values() if isinstance(term, Kernel)]
    for kernel in (default, *term_kernels):
        if kernel.lengthscale is None or kernel.variance is None:
            raise ParameterError(
                "learner: none keeps the given hyperparameters, but a kernel has no lengthscale "
                "or no variance: give them"
            )
    if isinstance(options, Additive) and options.noise_variance is None:
        raise ParameterError("learner: none keeps noise_variance, but it is not given: give it")


def _inputs_of(load: Load) -> list[str] | None:
    """Return the inputs of a table on disk, whose other columns are there; None of other data."""
    for name in (load.data, load.test):
        if name is not None and (address := address_of(name)):
            raise ParameterError(
                f"load: {address!r} is an address, and a run can resume only with files on this "
                "machine, whose changes it can detect; copy the table here"
            )
    path = Path(load.data)
    is_table = path.is_file() and load.data.lower().endswith(FILE_TYPES)
    is_table |= path.is_dir() and load.data_dir is None  # else it is the name of a set
    is_table |= has_magic(load.data)
    if not is_table or is_built_in(load.data) or load.target is None:
        return None
    table = open_table(path, load.format)
    if not path.is_file():  # read by blocks, with errors of its own
        return input_names(list(table.names), load)
    exposure = [] if load.exposure is None else [load.exposure]
    table.require([load.target, *exposure, *(load.columns or ()), *load.drop])
    if load.columns is not None:
        return list(load.columns)
    apart = {load.target, *exposure, *load.drop}
    return [name for name in table.names if name not in apart]
