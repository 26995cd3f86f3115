"""Classifiers of two classes: exact and sparse Gaussian processes, and a support vector machine.

GPyTorch is imported when ``Fic`` fits.
"""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
import scipy.optimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.svm import SVC

from dsgp import memory
from dsgp.errors import DataError
from pipelines.datasets import Floats
from pipelines.peers.clock import Clock
from pipelines.peers.contract import PeerFit
from pipelines.peers.gp.contract import lacking_gpytorch, require
from pipelines.peers.gp.ivm import InformativeVectorMachine
from pipelines.peers.gp.standardised import Standardised

TEST_ROWS = 2000  # predicted at once


@dataclass(frozen=True)
class FullGPLaplace:
    """scikit-learn's ``GaussianProcessClassifier``: Laplace's approximation, logistic link.

    The kernel is the squared exponential with a lengthscale per column. scikit-learn holds its
    derivatives by all lengthscales at once, which limits the rows to some thousands.

    Attributes
    ----------
    iterations : int
        Of L-BFGS, at most.
    """

    iterations: int = 25

    def lacking(self) -> str | None:
        return None

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        data = Standardised.of_labels(X, y, X_test)
        n_rows, n_columns = data.X.shape
        memory.require(
            f"scikit-learn's Gaussian process classifier on {n_rows} rows and {n_columns} columns",
            8.0 * n_rows**2 * (3 * n_columns + 7),
            "use fewer training rows, or the sparse methods fic or ivm",
        )
        spent = {"evaluations": 0.0, "iterations": 0.0}

        def search(objective: Any, initial: Floats, bounds: Floats) -> tuple[Floats, float]:
            found = scipy.optimize.minimize(
                objective,
                initial,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": self.iterations},
            )
            spent.update(evaluations=float(found.nfev), iterations=float(found.nit))
            return found.x, found.fun

        lengthscales = np.full(n_columns, np.sqrt(n_columns))
        kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(lengthscales, (1e-2, 1e3))
        model = GaussianProcessClassifier(kernel, optimizer=search, copy_X_train=False)
        clock = Clock()
        clock.time("fit", lambda: model.fit(data.X, data.y))
        probability = clock.time("predict", lambda: _in_batches(model, data.X_test))
        details: dict[str, float | str] = {
            "scikit-learn": version("scikit-learn"),
            "log_likelihood": float(model.log_marginal_likelihood_value_),
            **spent,
        }
        return PeerFit(probability, None, None, clock.wall, clock.cpu, details=details)


@dataclass(frozen=True)
class Svm:
    """LIBSVM with radial basis functions, by scikit-learn, with Platt's probabilities.

    Cost and width are chosen on a grid of powers of two by cross-validation, as LIBSVM's guide for
    users has it. Probabilities come from a sigmoid fitted to the decision values of held-out folds.

    Attributes
    ----------
    grid_rows : int
        Rows, drawn in proportion to the classes, that the grid is searched on, at most.
    folds : int
        Of the grid search and of the decision values.
    seed : int
        Of rows and folds.
    """

    grid_rows: int = 4000
    folds: int = 5
    seed: int = 0

    def lacking(self) -> str | None:
        return None

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        data = Standardised.of_labels(X, y, X_test)
        smallest = int(min(data.y.sum(), len(data.y) - data.y.sum()))
        if smallest < self.folds:
            raise DataError(
                f"svm needs at least {self.folds} rows of each class for its {self.folds} folds, "
                f"got {smallest} of one; lower folds"
            )
        folds = StratifiedKFold(self.folds, shuffle=True, random_state=self.seed)
        clock = Clock()
        chosen = clock.time("choose", lambda: self._chosen(data.X, data.y, folds))
        # As LIBSVM: one machine on all rows, and a sigmoid from the folds' decision values.
        model = CalibratedClassifierCV(
            SVC(**chosen, cache_size=500), method="sigmoid", cv=folds, ensemble=False
        )
        clock.time("fit", lambda: model.fit(data.X, data.y))
        for spent in (clock.wall, clock.cpu):
            spent["fit"] += spent["choose"]
        probability = clock.time("predict", lambda: model.predict_proba(data.X_test)[:, 1])
        machine = model.calibrated_classifiers_[0].estimator
        details: dict[str, float | str] = {
            "scikit-learn": version("scikit-learn"),
            **{name: float(value) for name, value in chosen.items()},
            "support_vectors": float(machine.n_support_.sum()),
        }
        return PeerFit(probability, None, None, clock.wall, clock.cpu, details=details)

    def _chosen(self, X: Floats, y: Floats, folds: StratifiedKFold) -> dict[str, float]:
        if len(X) > self.grid_rows:
            X, _, y, _ = train_test_split(
                X, y, train_size=self.grid_rows, stratify=y, random_state=self.seed
            )
        # LIBSVM's grid is of inputs between −1 and 1; those here vary by 1, hence the columns.
        grid = {
            "C": [float(2.0**power) for power in range(-1, 9, 2)],
            "gamma": [float(2.0**power) / X.shape[1] for power in range(-5, 4, 2)],
        }
        search = GridSearchCV(SVC(cache_size=500), grid, cv=folds, refit=False)
        return dict(search.fit(X, y).best_params_)


@dataclass(frozen=True)
class Fic:
    """Sparse classification with a random active set that stays, by GPyTorch: variational, probit.

    The fully independent conditional (FIC) prior with Laplace's approximation or expectation
    propagation is in no library that is kept. This is its variational counterpart (Hensman,
    Matthews and Ghahramani, 2015), with the same active set and kernel: a bound of the likelihood
    is maximised by stochastic gradients, over the distribution of the active set's function values
    and the hyperparameters together.

    Attributes
    ----------
    size : int
        Rows of the active set; all of them where there are fewer.
    epochs : int
        Passes over the rows, at least; more until `steps` are done.
    steps : int
        Of Adam, at least.
    batch : int
        Rows per step.
    learning_rate : float
        Of Adam to begin with; it falls to a hundredth along a cosine.
    seed : int
        Of active set and batches.
    """

    size: int = 50
    epochs: int = 20
    steps: int = 1500
    batch: int = 512
    learning_rate: float = 0.03
    seed: int = 0

    def lacking(self) -> str | None:
        return lacking_gpytorch()

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        require("fic", self.lacking())
        from pipelines.peers.gp.hyperparameters import (  # noqa: PLC0415 — optional
            use_threads_of_environment,
        )
        from pipelines.peers.gp.variational import SparseClassifier  # noqa: PLC0415 — optional

        use_threads_of_environment()
        data = Standardised.of_labels(X, y, X_test)
        rng = np.random.default_rng(self.seed)
        size = min(self.size, len(data.X))
        active = data.X[np.sort(rng.choice(len(data.X), size, replace=False))]
        model = SparseClassifier(active, len(data.X))
        clock = Clock()
        learned = clock.time(
            "fit",
            lambda: model.learn(
                data.X,
                data.y,
                epochs=self.epochs,
                least_steps=self.steps,
                batch=self.batch,
                learning_rate=self.learning_rate,
                rng=rng,
            ),
        )
        probability = clock.time("predict", lambda: model.predict(data.X_test))
        details = {"gpytorch": version("gpytorch"), "size": float(size), **learned}
        return PeerFit(probability, None, None, clock.wall, clock.cpu, details=details)


@dataclass(frozen=True)
class Ivm:
    """The informative vector machine of Lawrence, Seeger and Herbrich (2003); see ``ivm.py``.

    Attributes
    ----------
    size : int
        Rows of the active set; all of them where there are fewer.
    rounds : int
        Of selection and learning in turn; one selection more ends it.
    iterations : int
        Of L-BFGS in all rounds together, at most.
    ard : bool
        Whether each column has a lengthscale of its own.
    learn_on : {"selected", "random"}
        Rows that hyperparameters are learned on: the active set, as its authors do, or as many
        drawn at random. The rows that reduce entropy most lie where classes meet. Their labels
        look like noise, from which a small active set learns that the classes do not differ:
        all probabilities are then near one half.
    seed : int
        Of the rows drawn.
    """

    size: int = 50
    rounds: int = 5
    iterations: int = 25
    ard: bool = True
    learn_on: Literal["selected", "random"] = "selected"
    seed: int = 0

    def lacking(self) -> str | None:
        return None

    def fit_predict(self, X: Floats, y: Floats, X_test: Floats) -> PeerFit:
        data = Standardised.of_labels(X, y, X_test)
        clock = Clock()
        model = clock.time(
            "fit",
            lambda: InformativeVectorMachine.learned(
                data.X,
                2 * data.y - 1,
                size=self.size,
                rounds=self.rounds,
                iterations=self.iterations,
                ard=self.ard,
                learn_on=self.learn_on,
                rng=np.random.default_rng(self.seed),
            ),
        )
        probability = clock.time("predict", lambda: model.probability(data.X_test))
        details: dict[str, float | str] = {
            "size": float(len(model.sites.rows)),
            "evaluations": float(model.evaluations),
            "log_likelihood": model.log_likelihood,
        }
        return PeerFit(probability, None, None, clock.wall, clock.cpu, details=details)


def _in_batches(model: GaussianProcessClassifier, X: Floats) -> Floats:
    """Return the probability of 1; each batch takes a matrix of all training rows."""
    starts = range(0, len(X), TEST_ROWS)
    return np.concatenate([model.predict_proba(X[i : i + TEST_ROWS])[:, 1] for i in starts])
