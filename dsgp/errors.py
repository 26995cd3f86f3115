"""Named failures and warnings of the library, so that callers can catch one condition.

A model used before ``fit`` raises scikit-learn's ``NotFittedError``, not an error of this module.
"""


class DsgpError(Exception):
    """Base of all errors that dsgp raises itself."""


class DataError(DsgpError, ValueError):
    """Input data cannot be used as given.

    Raised when a column is absent or of the wrong type, a shape does not agree, or a value is
    missing, infinite or out of range. The message names the column, what was expected, what came
    and what to do.
    """


class ParameterError(DsgpError, ValueError):
    """A hyperparameter, option or combination of options is out of its range.

    The message names the parameter, what it can be and what came.
    """


class MemoryLimitError(DsgpError, MemoryError):
    """A job would not fit into memory; raised before it starts.

    The message gives the estimate, what is available and the remedy.
    """


class StorageError(DsgpError, OSError):
    """A stored model or checkpoint cannot be read or written.

    Raised when the path holds no dsgp model, its format version is not one this release reads, an
    array is missing or damaged, or the place cannot be written.
    """


class ClusterError(DsgpError, RuntimeError):
    """The workers or the scheduler of a dask cluster have failed.

    Raised when there is no worker, the scheduler is lost or does not answer, workers are out of
    memory, several workers ended while they ran the same task, or their versions differ from those
    here. The message says what happened, what is safe and what to do.
    """


# Not a subclass of scikit-learn's warning of the same name: importing that one loads all of
# scikit-learn, which takes six times as long as numpy, into the lowest layer.
class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit before reaching its tolerance.

    The message gives the residual or change reached, the tolerance and the remedy.
    """


class DataWarning(UserWarning):
    """Input data can be used, but part of it has no effect or is suspicious.

    Issued, for example, for a constant column, a constant target, or rows that are left out.
    """


class UnseenLevelsWarning(DataWarning):
    """Some rows to predict have a level of a term that no training row had.

    Parameters
    ----------
    message : str
    term : str
        Name of the term.
    count : int
        Number of these rows.
    """

    def __init__(self, message: str, term: str = "", count: int = 0) -> None:
        super().__init__(message)
        self.term = term
        self.count = count
