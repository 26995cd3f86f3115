"""Other additive regressions, fitted to the same rows as ours: mgcv, pyGAM, splines, trees.

Each peer says what it needs and how many rows it can take, and times itself. Comparing is the
business of the pipelines.
"""

from pipelines.peers.contract import Peer, PeerFit
from pipelines.peers.mgcv import Mgcv
from pipelines.peers.python import Boosting, PyGam, Splines
from pipelines.peers.registry import PEERS, peer_of

__all__ = ["PEERS", "Boosting", "Mgcv", "Peer", "PeerFit", "PyGam", "Splines", "peer_of"]
