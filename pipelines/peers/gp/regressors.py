"""Exact and sparse regression. GPyTorch is imported when they fit."""

from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from pipelines.datasets import Floats
from pipelines.peers.clock import Clock
from pipelines.peers.contract import PeerFit
from pipelines.peers.gp.contract import lacking_gpytorch, require
from pipelines.peers.gp.standardised import Standardised


@dataclass(frozen=True)
class FullGP:
    """Exact regression, squared-exponential kernel with a lengthscale per column.

    Attributes
    ----------
    subset : int
        Rows drawn to learn on first, to convergence.
    iterations : int
        At most, of that search.
    full_evaluations : int
        Of likelihood and gradient on all rows after it, at most. With no more rows than `subset`
        there is one search of all rows.
    seed : int
        Of the subset.
    """

    subset: int = 1500
    iterations: int = 100
    full_evaluations: int = 5
    seed: int = 0

    def lacking(self) -> str | None:
        return lacking_gpytorch()

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        require("full-gp", self.lacking())
        from pipelines.peers.gp.exact import ExactGP  # noqa: PLC0415 — optional
        from pipelines.peers.gp.hyperparameters import (  # noqa: PLC0415 — optional
            use_threads_of_environment,
        )

        use_threads_of_environment()
        data = Standardised.of_numbers(X, y, X_test)
        rows = _drawn(len(data.X), self.subset, self.seed)
        model = ExactGP.of_columns(data.X.shape[1])
        clock = Clock()
        log_likelihood = model.learn(
            data.X, data.y, rows, self.iterations, self.full_evaluations, clock
        )
        mean, variance = clock.time("predict", lambda: model.predict(data.X, data.y, data.X_test))
        noise = model.hyperparameters.likelihood.noise.item()
        details: dict[str, float | str] = {
            "gpytorch": version("gpytorch"),
            "log_likelihood": log_likelihood,
            "evaluations_of_subset": float(model.evaluations["subset"]),
            "evaluations": float(model.evaluations["all"]),
        }
        in_units = data.in_units(mean, variance, noise)
        return PeerFit(*in_units, clock.wall, clock.cpu, details=details)


@dataclass(frozen=True)
class Spgp:
    """Sparse pseudo-input regression (FITC) whose active set is drawn from the rows.

    Snelson and Ghahramani (2006) learn the active set as well; here it stays.

    Attributes
    ----------
    size : int
        Rows of the active set; all of them where there are fewer.
    iterations : int
        At most, of L-BFGS on the marginal likelihood.
    seed : int
        Of the active set.
    """

    size: int = 500
    iterations: int = 50
    seed: int = 0

    def lacking(self) -> str | None:
        return lacking_gpytorch()

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        require("spgp", self.lacking())
        from pipelines.peers.gp.fitc import FitcGP  # noqa: PLC0415 — optional
        from pipelines.peers.gp.hyperparameters import (  # noqa: PLC0415 — optional
            use_threads_of_environment,
        )

        use_threads_of_environment()
        data = Standardised.of_numbers(X, y, X_test)
        active = data.X[_drawn(len(data.X), self.size, self.seed)]
        model = FitcGP(data.X, data.y, active)
        clock = Clock()
        learned = clock.time("fit", lambda: model.learn(self.iterations))
        mean, variance = clock.time("predict", lambda: model.predict(data.X_test))
        details = {"gpytorch": version("gpytorch"), "size": float(len(active)), **learned}
        in_units = data.in_units(mean, variance, model.likelihood.noise.item())
        return PeerFit(*in_units, clock.wall, clock.cpu, details=details)


def _drawn(n_rows: int, size: int, seed: int) -> np.ndarray:
    """Return at most `size` of the rows, ascending."""
    if size >= n_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False))
