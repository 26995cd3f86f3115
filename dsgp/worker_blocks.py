"""Prepared blocks of rows, which stay on the workers of a cluster between passes.

A block is the result of a task that reads the source of the rows. The worker that made it keeps it;
dask counts its memory and spills it to disk if memory is scarce; and if its worker is lost, the
scheduler lets another one make it again from the source. A pass is one task per block; its tables
travel once, and its results come in the order of the blocks: sums over them are the same wherever
they ran.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from dsgp.ahead import are_light
from dsgp.clients import active_client
from dsgp.compute import Chunk, Shared, key_of, pieces_of, run_alone, sender_of_block
from dsgp.waiting import RETRIES, in_order, n_threads, workers_of
from dsgp.watching import Watch

# Largest share of the memory of all workers for kept blocks: workers need the rest to process them.
_SHARE = 0.5


def workers_that_keep(n_bytes: float) -> Any | None:
    """Return the active client if its workers can keep so many bytes beside their tasks' memory.

    Returns
    -------
    distributed.Client or None
    """
    client = active_client()
    if client is None:
        return None
    limits = [worker["memory_limit"] or float("inf") for worker in workers_of(client).values()]
    return client if n_bytes <= _SHARE * sum(limits) else None


class WorkerBlocks:
    """Blocks kept by the workers; they are freed with this object.

    Parameters
    ----------
    client : distributed.Client
    blocks : list, optional
        In order; none at first.
    """

    def __init__(self, client: Any, blocks: list[_Kept] | None = None) -> None:
        self._client, self._blocks = client, [] if blocks is None else blocks

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def is_usable(self) -> bool:
        """Whether work may be sent from here to the workers that keep them."""
        return active_client() is self._client

    def __reduce__(self) -> Any:
        raise TypeError("blocks that workers keep cannot be pickled: they belong to one fit")

    def made(
        self,
        loaders: Iterable[Callable[[], Any]],
        lengths: Sequence[int],
        block: int,
        function: Callable[[Any], tuple[Any, Any]],
        name: str,
    ) -> Iterator[Any]:
        """Cut rows into logical blocks as ``over_blocks`` does, and keep a result for each.

        Parameters
        ----------
        loaders, lengths, block
            As for ``over_blocks``.
        function : callable
            Returns two results: one for the caller, and one that is kept.
        name : str
            What a dashboard calls the tasks, after ``dsgp-``.

        Yields
        ------
        What comes of every block, in their order.
        """
        light, loaders = are_light(loaders)
        chunks = (Chunk(self._client, loader) for loader in loaders)
        sends = (
            self._keeping(sender_of_block(self._client, name, function, pieces))
            for pieces in pieces_of(chunks, lengths, block)
        )
        yield from in_order(sends, 2 * n_threads(self._client), self._client, light=light)

    def _keeping(self, send: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that sends a block, keeps its second result and returns the first."""

        def second(both: Any) -> Any:
            return self._submit(operator.getitem, both, 1, name="kept")

        kept = _Kept(lambda: second(send()))
        self._blocks.append(kept)

        def send_and_keep() -> Any:
            both = send()
            kept.put(second(both))
            return self._submit(operator.getitem, both, 0, name="result")

        return send_and_keep

    def each(self, function: Callable[..., Any], *beside: WorkerBlocks, name: str) -> Iterator[Any]:
        """Apply a function to every block, where it is.

        Parameters
        ----------
        function : callable
            Takes a block, and those ``beside`` it. It is sent to the workers once.
        beside : WorkerBlocks
            As many blocks.
        name : str
            What a dashboard calls the tasks, after ``dsgp-``.

        Yields
        ------
        The results, in the order of the blocks; a few are on their way at a time.
        """
        sends = self._senders(function, beside, name)
        yield from in_order(sends, 2 * n_threads(self._client), self._client, light=True)

    def changed(
        self,
        function: Callable[..., Any],
        *beside: WorkerBlocks,
        name: str,
        again: Callable[..., Any] | None = None,
    ) -> WorkerBlocks:
        """Make other blocks from these, as in ``each``, which stay on the workers too.

        With ``again``, which makes them from those ``beside`` alone, the cluster may forget these.
        """
        senders = self._senders(function, beside, name)
        if again is None:
            return self._others(senders)
        resenders = beside[0]._senders(again, beside[1:], name)
        with Watch(self._client).speaking():
            kept = [_Kept(make, send()) for make, send in zip(resenders, senders, strict=True)]
        return WorkerBlocks(self._client, kept)

    def joined(self, ends: Sequence[int], function: Callable[..., Any], name: str) -> WorkerBlocks:
        """Join the blocks up to each of the ``ends`` to one by a function of all of them."""

        def sender(part: list[_Kept]) -> Callable[[], Any]:
            return lambda: self._submit(function, *(one.future for one in part), name=name)

        parts = [self._blocks[start:end] for start, end in pairwise([0, *ends])]
        return self._others(map(sender, parts))

    def with_parts(self, parts: Iterable[Any], name: str) -> WorkerBlocks:
        """Send a further part for every block, to be kept beside it.

        It is sent again where the cluster forgets it, and not copied for that: it must not change.
        """

        def sender(block: _Kept, part: Any) -> Callable[[], Any]:
            return lambda: self._submit(_second, block.future, part, name=name)

        pairs = zip(self._blocks, parts, strict=True)
        return self._others(sender(block, part) for block, part in pairs)

    def _others(self, senders: Iterable[Callable[[], Any]]) -> WorkerBlocks:
        with Watch(self._client).speaking():
            return WorkerBlocks(self._client, [_Kept(send, send()) for send in senders])

    def _senders(
        self, function: Callable[..., Any], beside: Sequence[WorkerBlocks], name: str
    ) -> Iterator[Callable[[], Any]]:
        # A separate task and not part of every other one, because it holds the tables of the pass.
        shared = Shared(self._client, function)

        def sender(blocks: tuple[_Kept, ...]) -> Callable[[], Any]:
            return lambda: self._submit(
                _applied, shared.future, *(block.future for block in blocks), name=name
            )

        for blocks in zip(self._blocks, *(other._blocks for other in beside), strict=True):
            yield sender(blocks)

    def _submit(self, function: Callable[..., Any], *arguments: Any, name: str) -> Any:
        return self._client.submit(
            function, *arguments, key=key_of(name), pure=False, retries=RETRIES
        )


class _Kept:
    """A block on the workers; it is made again where the cluster has forgotten it."""

    def __init__(self, send: Callable[[], Any], future: Any = None) -> None:
        self._send, self._future = send, future

    def put(self, future: Any) -> None:
        """Store a block that was made elsewhere."""
        self._future = future

    @property
    def future(self) -> Any:
        """The future that stands for it in tasks."""
        if self._future is None or self._future.cancelled():
            self._future = self._send()
        return self._future


def _second(_: Any, part: Any) -> Any:
    return part


def _applied(function: Callable[..., Any], *blocks: Any) -> Any:
    return run_alone(partial(function, *blocks))
