"""Peers by name."""

from dsgp.errors import ParameterError
from pipelines.peers.contract import Peer
from pipelines.peers.mgcv import Mgcv
from pipelines.peers.python import Boosting, PyGam, Splines

PEERS: dict[str, type[Peer]] = {
    "mgcv": Mgcv,
    "pygam": PyGam,
    "splines": Splines,
    "boosting": Boosting,
}


def peer_of(spec: str) -> tuple[str, Peer]:
    """Return the full name of a peer, and the peer.

    Parameters
    ----------
    spec : str
        A name of ``PEERS``, with a size where it has one: ``mgcv`` or ``mgcv:20``.

    Raises
    ------
    ParameterError
        If there is no such peer, or its size is not a number above 3.
    """
    name, colon, size = spec.partition(":")
    if name not in PEERS:
        raise ParameterError(f"peer must be one of {', '.join(PEERS)}, got {name!r}")
    kind = PEERS[name]
    if kind.size_default is None:
        if colon:
            raise ParameterError(f"peer {name} has no size, got {spec!r}; leave {colon}{size} out")
        return name, kind(None)
    if colon and not (size.isdecimal() and int(size) > 3):
        raise ParameterError(
            f"the size of peer {name} must be a whole number above 3, such as "
            f"{name}:{kind.size_default}, got {spec!r}"
        )
    chosen = int(size) if colon else kind.size_default
    return f"{name}:{chosen}", kind(chosen)
