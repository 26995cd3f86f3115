"""Methods that Gaussian processes of structure are compared with: exact, sparse, and an SVM.

Each is a frozen dataclass of its parameters. ``lacking()`` says what is not installed, and
``fit_predict(X, y, X_test)`` standardises, fits, predicts and times itself. ``REGRESSORS`` take a
real target, ``CLASSIFIERS`` labels 0 and 1; of these ``mean`` is the probability of 1.
"""

from pipelines.peers.gp.classifiers import Fic, FullGPLaplace, Ivm, Svm
from pipelines.peers.gp.contract import GPPeer
from pipelines.peers.gp.regressors import FullGP, Spgp

REGRESSORS: dict[str, type[GPPeer]] = {"full-gp": FullGP, "spgp": Spgp}
CLASSIFIERS: dict[str, type[GPPeer]] = {
    "full-gp-laplace": FullGPLaplace,
    "fic": Fic,
    "ivm": Ivm,
    "svm": Svm,
}

__all__ = [
    "CLASSIFIERS",
    "REGRESSORS",
    "Fic",
    "FullGP",
    "FullGPLaplace",
    "GPPeer",
    "Ivm",
    "Spgp",
    "Svm",
]
