"""Watching the cluster while waiting for its results: what it reports, and when to give up.

Dask survives many faults: what a dead worker had is computed again by others. After some it waits
for ever, and others appear as its internal errors. Here the driver looks at the cluster while it
waits: results come, with the same bits, or a ``ClusterError`` does within a stated time.

Two settings of dask's configuration say how long: ``distributed.scheduler.no-workers-timeout``, for
a cluster without workers, and ``dsgp.stall-timeout``, for a scheduler that does not answer, a
worker that does not respond, and workers that are out of memory. Both are 60 s by default.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any

import dask
from dask.utils import parse_timedelta

from dsgp.errors import ClusterError
from dsgp.faults import NO_WORKERS_TIMEOUT, SAFE, first_line, of_dask, translated
from dsgp.versions import Versions

STALL_TIMEOUT = "dsgp.stall-timeout"
_DEFAULT = 60.0  # seconds

# Between two queries of the cluster: a query costs its scheduler about 50 µs per worker.
_LONGEST_TICK = 2.0
# A worker reports its versions within this time, unless it is frozen.
_ANSWER = 10.0
# Number of times that work is sent again which the cluster has forgotten: each time all of it
# restarts.
_TIMES_SENT_AGAIN = 5
# After a frozen worker was dropped, results from other workers arrive within this time.
_GRACE = 1.0

# Sends work and returns its future; called again, it sends the same work again.
Send = Callable[[], Any]


def no_workers_timeout() -> float:
    """Seconds that a cluster may be without workers."""
    return _seconds(NO_WORKERS_TIMEOUT)


def stall_timeout() -> float:
    """Seconds that a scheduler or worker may be silent, or all workers out of memory."""
    return _seconds(STALL_TIMEOUT)


def _seconds(key: str) -> float:
    stated = dask.config.get(key, None)
    return _DEFAULT if stated is None else float(parse_timedelta(stated))


class Sent:
    """Submitted work; ``number`` counts the frozen workers that were dropped before it was sent."""

    def __init__(self, send: Send, watch: Watch | None) -> None:
        self._send, self._watch = send, watch
        self.again()

    def again(self) -> None:
        """Send it, for the first time or once more."""
        if self._watch is None:
            self.future = self._send()
            return
        with self._watch.speaking():
            self.future = self._send()
        self.number = self._watch.n_dropped

    def forget(self) -> None:
        """Let the cluster drop it, without waiting for that; wait for threads."""
        if not isinstance(self.future, Future):
            self.future.release()
            return
        self.future.cancel()
        if not self.future.cancelled():
            self.future.exception()  # a thread cannot be stopped: wait, and ignore its result


class _ForgottenError(Exception):
    """The cluster no longer knows the work."""


class Watch:
    """Monitors a cluster while the driver waits for results.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.n_dropped = 0
        self.workers: Mapping[str, Any] = {}
        """What the scheduler said last of each worker."""
        self._glanced = time.monotonic()
        self._stall, self._no_workers = stall_timeout(), no_workers_timeout()
        self._tick = max(min(_LONGEST_TICK, self._stall / 8, self._no_workers / 8), 0.05)
        self._versions = Versions.of(client)
        self._asked: tuple[float, Future[Any]] | None = None
        self._without_workers: float | None = None
        self._heard: dict[str, tuple[float, float]] = {}  # last heartbeat, and when it changed
        self._paused: dict[str, float] = {}
        self._dropping: Future[Any] | None = None
        self._dropped: list[str] = []
        self._see(self.identity(), patience=min(self._stall, _ANSWER))

    # ------------------------------------------------------------------ results

    def result(self, sent: Sent, others: Iterable[Sent] = ()) -> Any:
        """Wait for a result; send the work again where the cluster has forgotten it.

        ``others`` is work that was sent as well: if the cluster fails, and dask has already
        reported the reason for one of them, that error is raised.
        """
        for _ in range(_TIMES_SENT_AGAIN + 1):
            try:
                return self._waited(sent)
            except ClusterError as fault:
                reasons = (self._fault_of(other) for other in others)
                reason = next((reason for reason in reasons if reason is not None), None)
                if reason is None:
                    raise
                raise reason from fault
            except _ForgottenError:
                sent.forget()
                self._wait_for_connection()
                sent.again()
        raise ClusterError(
            f"the cluster at {self._address} has lost the same work "
            f"{_TIMES_SENT_AGAIN + 1} times: it is being restarted repeatedly; {SAFE}: start "
            "the job again on a cluster that stays"
        )

    def _waited(self, sent: Sent) -> Any:
        future = sent.future
        awaited = self._ask(_outcome(future))
        began = time.monotonic()
        try:
            while True:
                done = _done(awaited, self._tick)
                if done:
                    return awaited.result()
                self._look(time.monotonic() - began)
                late = time.monotonic() - began > _GRACE
                if sent.number < self.n_dropped and late:
                    raise _ForgottenError
        except CancelledError:
            raise _ForgottenError from None
        except (ClusterError, _ForgottenError):
            raise
        except Exception as error:
            if future.status == "error":
                raise translated(error) from error
            if future.status in ("cancelled", "lost") or isinstance(error, OSError):
                raise _ForgottenError from error  # the client may find its scheduler again
            raise self._lost(error) from error
        finally:
            awaited.cancel()

    def _fault_of(self, sent: Sent) -> BaseException | None:
        """Return dask's error for a task that it has abandoned, translated."""
        if sent.future.status != "error":
            return None
        asked = self._ask(_exception(sent.future))
        if not _done(asked, self._tick) or asked.cancelled() or asked.exception() is not None:
            return None
        error: BaseException = asked.result()
        return translated(error) if of_dask(error) else None

    def _wait_for_connection(self) -> None:
        """Wait until the client has found its scheduler again, or has given it up."""
        deadline = time.monotonic() + self._stall
        while True:
            try:
                identity = self.identity()
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            else:
                if self.client.status == "running":
                    break
                if time.monotonic() > deadline:
                    raise self._lost(None)
            if self.client.status not in ("running", "connecting"):
                raise self._lost(None)
            time.sleep(self._tick)
        # A restarted scheduler has no workers at first, which is not a fault.
        self._asked, self._without_workers = None, None
        self._see(identity)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Report a lost cluster, and not the errors that follow when work is sent to it."""
        try:
            yield
        except (OSError, TimeoutError, CancelledError, asyncio.CancelledError) as error:
            raise self._lost(error) from error
        except Exception as error:
            # A closed client raises errors of its missing parts.
            if self.client.status == "running" and not of_dask(error):
                raise
            raise self._lost(error) from error

    # ------------------------------------------------------------------ the cluster

    def identity(self) -> dict[str, Any]:
        """Ask the scheduler for what it knows of its workers."""
        if self.client.status not in ("running", "connecting"):
            raise self._lost(None)
        asked = self._ask(_of_scheduler(self.client, "identity", n_workers=-1))
        try:
            if not _done(asked, self._stall):
                raise self._silent(self._stall)
            known: dict[str, Any] = asked.result()
        except ClusterError:
            raise
        except (Exception, CancelledError) as error:
            raise self._lost(error) from error
        finally:
            asked.cancel()
        return known

    def glance(self) -> None:
        """Query the scheduler about its workers from time to time, without waiting for it."""
        now = time.monotonic()
        if now - self._glanced >= self._tick:
            self._glanced = now
            self._look(0.0)

    def _look(self, waited: float) -> None:
        """Evaluate the latest answer of the scheduler, and request the next one."""
        now = time.monotonic()
        if self._asked is not None:
            since, asked = self._asked
            if not asked.done():
                if now - since > self._stall:
                    raise self._silent(now - since)
                return
            self._asked = None
            if asked.cancelled() or asked.exception() is not None:
                # The client itself notices the loss of its scheduler, and forgets its work.
                return
            self._see(asked.result(), waited)
        self._asked = now, self._ask(_of_scheduler(self.client, "identity", n_workers=-1))

    def _see(self, identity: Mapping[str, Any], waited: float = 0.0, patience: float = 0.0) -> None:
        workers = self.workers = identity["workers"]
        now = time.monotonic()
        self._require_workers(workers, now)
        self._versions.require_same(workers, self._ask, patience)
        self._drop_frozen(workers, now)
        self._require_memory(workers, now, waited)

    def _require_workers(self, workers: Mapping[str, Any], now: float) -> None:
        if workers:
            self._without_workers = None
            return
        self._without_workers = self._without_workers or now
        if now - self._without_workers >= self._no_workers:
            frozen = f" ({self._dropped[-1]} stopped responding)" if self._dropped else ""
            raise ClusterError(
                f"the scheduler at {self._address} has had no worker for "
                f"{self._no_workers:.3g} s{frozen}; {SAFE}: start workers and the job again, or "
                f"let it wait longer ({NO_WORKERS_TIMEOUT} in dask's configuration)"
            )

    def _drop_frozen(self, workers: Mapping[str, Any], now: float) -> None:
        """Let the scheduler close workers without heartbeats, whose work others then do."""
        for address in set(self._heard) - set(workers):
            del self._heard[address]
        frozen = []
        for address, worker in workers.items():
            beat = worker["last_seen"]
            if self._heard.get(address, (None, 0.0))[0] != beat:
                self._heard[address] = beat, now
            elif now - self._heard[address][1] > self._stall:
                frozen.append(address)
        if not frozen or (self._dropping is not None and not self._dropping.done()):
            return
        warnings.warn(
            f"worker {', '.join(frozen)} has not responded for {self._stall:.3g} s: it is "
            "dropped, and other workers repeat its work",
            RuntimeWarning,
            stacklevel=2,
        )
        self._dropping = self._ask(
            _of_scheduler(
                self.client,
                "restart_workers",
                workers=frozen,
                timeout=self._stall,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"dsgp-frozen-{time.time()}",
            )
        )
        self.n_dropped += 1
        self._dropped += frozen

    def _require_memory(self, workers: Mapping[str, Any], now: float, waited: float) -> None:
        """Raise an error if workers are out of memory and have started no work for long."""
        paused = {name for name, worker in workers.items() if worker["status"] == "paused"}
        self._paused = {name: self._paused.get(name, now) for name in paused}
        stuck = [
            name
            for name, since in self._paused.items()
            if min(now - since, waited) > self._stall
            and (len(paused) == len(workers) or _holds_work(workers[name]))
        ]
        if stuck:
            raise ClusterError(
                f"worker {stuck[0]} is out of memory and has taken up no work for "
                f"{self._stall:.3g} s ({_memory_text(workers[stuck[0]])}); {SAFE}: give workers "
                "more memory (memory_limit) or room in their local_directory, or cut the rows into "
                "smaller chunks"
            )

    # ------------------------------------------------------------------ errors

    @property
    def _address(self) -> str:
        return str(getattr(self.client.scheduler, "address", None) or "its address")

    def _silent(self, seconds: float) -> ClusterError:
        if self.client.status != "running":  # the client has noticed the loss itself
            return self._lost(None)
        return ClusterError(
            f"the scheduler at {self._address} has not answered for {seconds:.3g} s; {SAFE}: check "
            f"that its process is running, and start the job again ({STALL_TIMEOUT} in dask's "
            "configuration is how long it may be silent)"
        )

    def _lost(self, error: BaseException | None) -> ClusterError:
        reason = "" if error is None else f" ({type(error).__name__}: {first_line(error)})"
        return ClusterError(
            f"the scheduler, or the connection to it, is lost{reason}; {SAFE}: start a scheduler "
            "with workers and then the job again"
        )

    def _ask(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)


async def _outcome(future: Any) -> Any:
    return await future


async def _exception(future: Any) -> Any:
    return await future.exception()


async def _of_scheduler(client: Any, operation: str, **arguments: Any) -> Any:
    call: Callable[..., Awaitable[Any]] = getattr(client.scheduler, operation)
    return await call(**arguments)


def _done(asked: Future[Any], seconds: float) -> bool:
    """Wait for that long at most."""
    try:
        asked.exception(seconds)
    except TimeoutError:
        return asked.done()
    except CancelledError:
        return True
    return True


def _holds_work(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker has tasks but runs none of them."""
    counts = worker["metrics"].get("task_counts", {})
    waiting = sum(counts.get(state, 0) for state in ("ready", "waiting", "fetch", "constrained"))
    return waiting > 0 and not counts.get("executing", 0)


def _memory_text(worker: Mapping[str, Any]) -> str:
    used = worker["metrics"].get("memory", 0) / 2**20
    limit = (worker.get("memory_limit") or 0) / 2**20
    spilled = worker["metrics"].get("spilled_bytes", {}).get("disk", 0) / 2**20
    return f"{used:.0f} of {limit:.0f} MiB in use, {spilled:.0f} MiB put on disk"
