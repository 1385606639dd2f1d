"""One thread with an event loop, in which all requests of a storage run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._contracts.breaking import breakable
from penstock._contracts.storage_options import StorageOptions
from penstock._storage.buckets import BucketTransport
from penstock._storage.parts import Part, Turn, exhausted, persist
from penstock._storage.urls import Address
from penstock._storage.web import WebTransport
from penstock.errors import StorageError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Client", "Work", "together"]

_T = TypeVar("_T")
Work = Callable[["Client", Turn], Coroutine[Any, Any, _T]]


class Client:
    """Runs requests of any number of threads. Each process makes its own: neither a thread nor a connection survives a fork.

    The thread starts with the first request and holds no reference to the storage, so that it ends when the storage is collected.
    """

    def __init__(self, options: StorageOptions) -> None:
        self.options = options
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._closed = False
        self._transports: dict[tuple[str, str, int, str], BucketTransport | WebTransport] = {}
        self._gates: dict[tuple[str, str, int], asyncio.Semaphore] = {}

    def run(self, work: Work[_T], shown: str) -> _T:
        """Run `work(self, turn)` in the loop and wait for it; from any thread. Ends at the deadline at the latest.

        Args:
            work: makes the coroutine.
            shown: what is read, for errors.

        Raises:
            StorageError: the deadline has passed, or the storage was closed; or an error of `work`.
            ReadBrokenOff: the feed whose worker calls was closed.
        """
        import asyncio
        from concurrent.futures import CancelledError

        loop = self._started(shown)
        coroutine = self.limited(work, shown)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:  # the loop has ended meanwhile
            coroutine.close()
            raise _closed(shown) from None
        try:
            with breakable(future.cancel, CancelledError, shown):
                return future.result()
        except CancelledError:
            raise _closed(shown) from None
        finally:
            future.cancel()  # does nothing after the result; after a KeyboardInterrupt the rest is of no use

    def stop(self) -> None:
        """Let the thread end and waiting reads fail, without waiting for it. From any thread, also the collector's."""
        self._closed = True
        if self._loop is None or self._end is None or self.pid != os.getpid():
            return
        try:
            self._loop.call_soon_threadsafe(self._end.set)
        except RuntimeError:
            return  # the loop has ended

    def close(self) -> None:
        """Stop and wait for the thread."""
        with self._lock:
            self.stop()
            thread = self._thread
        if thread is not None and self.pid == os.getpid() and thread is not threading.current_thread():
            thread.join()

    def transport(self, address: Address) -> BucketTransport | WebTransport:
        """Return the transport of an address; in the loop."""
        key = (*address.origin, address.user)
        if key not in self._transports:
            kind = BucketTransport if address.in_bucket else WebTransport
            self._transports[key] = kind(address, self.options)
        return self._transports[key]

    def gate(self, address: Address) -> asyncio.Semaphore:
        """Return the semaphore for requests in flight to the host of an address; in the loop."""
        import asyncio

        gate = self._gates.get(address.origin)
        if gate is None:
            gate = self._gates[address.origin] = asyncio.Semaphore(self.options.max_requests)
        return gate

    async def fetch(self, turn: Turn, address: Address, part: Part) -> None:
        """Fetch one part with one request, and again as often as it may be; in the loop.

        Raises:
            StorageError: it did not come.
            ObjectChanged: it is another object now.
        """
        transport = self.transport(address)
        await persist(lambda: transport.fetch(part), transport, self.gate(address), lambda: part.shown, turn)

    async def limited(self, work: Work[_T], shown: str) -> _T:
        """Do `work(self, turn)` until the deadline; in the loop.

        Raises:
            StorageError: the deadline has passed; or an error of `work`.
        """
        import asyncio

        turn = Turn(self.options, asyncio.get_running_loop().time() + self.options.deadline_s)
        try:
            async with asyncio.timeout_at(turn.deadline):
                return await work(self, turn)
        except TimeoutError:
            raise exhausted(repr(shown), f"{self.options.deadline_s:g} s, the deadline", turn.last) from None

    def _started(self, shown: str) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise _closed(shown)
            if self._loop is None:
                opened = threading.Event()
                # A daemon: a program that ends does not wait for a storage that was not closed.
                self._thread = threading.Thread(target=self._serve, args=(opened,), name="penstock-remote", daemon=True)
                self._thread.start()
                opened.wait()
            assert self._loop is not None
            return self._loop

    def _serve(self, opened: threading.Event) -> None:
        import asyncio

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(self._until_end(opened))

    async def _until_end(self, opened: threading.Event) -> None:
        import asyncio

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        opened.set()
        await self._end.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in self._transports.values():
            await transport.close()


async def together(works: list[Any]) -> list[Any]:
    """Run coroutines at once; the first error ends them all, and is raised when they have ended: they write into the caller's memory."""
    import asyncio

    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _closed(shown: str) -> StorageError:
    return StorageError(f"{shown!r} was being read when the storage was closed", where=shown, fix="close it behind the last read")
