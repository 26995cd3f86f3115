"""Peers in Python: pyGAM, splines with Bayesian ridge, boosted trees. They run in this process."""

import importlib.util
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from dsgp.errors import ParameterError
from pipelines.datasets import Floats
from pipelines.peers.clock import Clock
from pipelines.peers.contract import PeerFit


class PyGam:
    """``LinearGAM`` of SIZE splines per column, one smoothness for all from a grid of seven."""

    size_default: ClassVar[int | None] = 40
    # It forms the design matrix whole and weighted copies of it.
    max_rows: ClassVar[int] = 200_000

    def __init__(self, size: int | None) -> None:
        self.size = size

    def require(self) -> None:
        if importlib.util.find_spec("pygam") is None:
            raise ParameterError("peer pygam is not installed: pip install pygam")

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        import pygam  # noqa: PLC0415 — optional

        terms = pygam.s(0, n_splines=self.size)
        for column in range(1, X.shape[1]):
            terms += pygam.s(column, n_splines=self.size)
        clock = Clock()
        grid = np.logspace(-3, 3, 7)
        model = clock.time(
            "fit",
            lambda: pygam.LinearGAM(terms).gridsearch(X, y, lam=grid, progress=False),
        )
        mean, upper = clock.time(
            "predict",
            lambda: (
                model.predict(X_test),
                model.confidence_intervals(X_test, quantiles=[_ONE_SIGMA])[:, 0],
            ),
        )
        details = {"pygam": pygam.__version__, "smoothness": float(model.lam[0][0])}
        noise = float(model.distribution.scale) ** 2
        return PeerFit(mean, upper - mean, noise, clock.wall, clock.cpu, details=details)


class Splines:
    """Cubic splines on SIZE knots a column, ``BayesianRidge`` on all of them."""

    size_default: ClassVar[int | None] = 20
    max_rows: ClassVar[int] = 1_000_000  # the design matrix takes 170 bytes a knot and row

    def __init__(self, size: int | None) -> None:
        self.size = size

    def require(self) -> None:
        """scikit-learn is always there."""

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        splines = SplineTransformer(
            n_knots=self.size, degree=3, extrapolation="linear", include_bias=False
        )
        model = make_pipeline(splines, BayesianRidge())
        clock = Clock()
        clock.time("fit", lambda: model.fit(X, y))
        mean, std = clock.time("predict", lambda: model.predict(X_test, return_std=True))
        noise = 1 / float(model[-1].alpha_)
        std_f = np.sqrt(np.maximum(std**2 - noise, 0))
        return PeerFit(mean, std_f, noise, clock.wall, clock.cpu)


class Boosting:
    """``HistGradientBoostingRegressor`` without interactions, stopped early. It has no std."""

    size_default: ClassVar[int | None] = None
    max_rows: ClassVar[int] = 10_000_000

    def __init__(self, size: int | None) -> None:
        pass

    def require(self) -> None:
        """scikit-learn is always there."""

    def fit_predict(
        self, X: Floats, y: Floats, X_test: Floats, categorical: NDArray[np.bool_] | None = None
    ) -> PeerFit:
        """Fit and predict; `categorical` says which columns are codes of levels."""
        model = HistGradientBoostingRegressor(
            categorical_features=categorical,
            max_iter=1000,
            early_stopping=True,
            interaction_cst="no_interactions",
            random_state=0,
        )
        clock = Clock()
        clock.time("fit", lambda: model.fit(X, y))
        mean = clock.time("predict", lambda: model.predict(X_test))
        details: dict[str, float | str] = {"iterations": float(model.n_iter_)}
        return PeerFit(mean, None, None, clock.wall, clock.cpu, details=details)


_ONE_SIGMA = 0.8413447460685429  # Φ(1)
