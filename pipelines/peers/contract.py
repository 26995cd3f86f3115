"""What a peer is asked, and what it answers."""

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pipelines.datasets import Floats


@dataclass(frozen=True, eq=False)
class PeerFit:
    """Predictions of a fitted peer and what they cost.

    Attributes
    ----------
    mean : ndarray of shape (n_test,)
    std : ndarray of shape (n_test,) or None
        Of the function, without the noise; None where the peer has no uncertainty.
    noise_variance : float or None
    seconds, cpu_seconds : dict of str to float
        Of ``fit`` and ``predict``, and of others that the peer reports; processor time counts all
        threads.
    peak_memory_mb : float or None
        Of a process of its own; None where the peer runs in the caller's.
    details : dict
        Versions, effective degrees of freedom and the like.
    """

    mean: Floats
    std: Floats | None
    noise_variance: float | None
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    peak_memory_mb: float | None = None
    details: dict[str, float | str] = field(default_factory=dict)


class Peer(Protocol):
    """A method with one parameter, its size: basis functions per column, or the like.

    Attributes
    ----------
    size_default : int or None
        None where the peer has no such parameter.
    max_rows : int
        With more it is skipped: it would take too much memory, or hours.
    """

    size_default: ClassVar[int | None]
    max_rows: ClassVar[int]

    def __init__(self, size: int | None) -> None: ...

    def require(self) -> None:
        """Raise ``ParameterError`` with the remedy where the peer is not installed."""

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit: ...
