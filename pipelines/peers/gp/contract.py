"""What a method of this room is asked, and how it says that something is not installed."""

import importlib.util
from typing import Protocol

from dsgp.errors import ParameterError
from pipelines.datasets import Floats
from pipelines.peers.contract import PeerFit

REMEDY = 'pip install ".[baselines]"'


class GPPeer(Protocol):
    """A method whose parameters are the fields of a dataclass, each with a default."""

    def lacking(self) -> str | None:
        """Name what is not installed, with the remedy; None where all is there."""

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        """Fit (n_rows, n_columns) inputs and predict those of (n_test, n_columns)."""


def lacking_gpytorch() -> str | None:
    """Name GPyTorch with the remedy where it or PyTorch is not installed."""
    missing = [name for name in ("torch", "gpytorch") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: {REMEDY}" if missing else None


def require(name: str, lacking: str | None) -> None:
    """Raise ``ParameterError`` where something is lacking."""
    if lacking is not None:
        raise ParameterError(f"{name}: {lacking}")
