"""Methods that Gaussian processes of structure are compared with: exact, sparse, and an SVM.

Each is a frozen dataclass of its parameters. ``lacking()`` says what is not installed, and
``fit_predict(X, y, X_test)`` standardises, fits, predicts and times itself. ``FullGP`` and ``Spgp``
take a real target, the others labels 0 and 1; of these ``mean`` is the probability of 1.
"""

from pipelines.peers.gp.classifiers import Fic, FullGPLaplace, Ivm, Svm
from pipelines.peers.gp.contract import GPPeer
from pipelines.peers.gp.regressors import FullGP, Spgp

__all__ = ["Fic", "FullGP", "FullGPLaplace", "GPPeer", "Ivm", "Spgp", "Svm"]
