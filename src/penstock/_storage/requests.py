"""Objects as they were found, the threads that make the requests for them, reads of several requests, and retries.

A read waits for its requests in the thread that reads. It ends early when one of them fails, at the deadline, when its feed ends and when
the storage is closed; then what is on its way is broken off, and no request writes into the memory of a read that has ended.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock._contracts.storage import StorageOptions
from penstock._storage.urls import Address
from penstock._system.process import breakable
from penstock._system.text import redacted
from penstock.errors import ObjectChanged, StorageError

if TYPE_CHECKING:
    from penstock._storage.buckets import BucketTransport
    from penstock._storage.web import WebTransport

RETRIED = frozenset({408, 421, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524})
"""Statuses after which the next try may succeed; those from 520 on are Cloudflare's for an origin that does not answer."""

CHECK_HOST = "check the host in the URL or endpoint, the name service and the certificate"
"""What to do about a name that is not known, or a certificate that is not good."""

_LATER = "look at the store and the network; a later run may succeed; StorageOptions has retries, timeout_s and deadline_s"
_JITTER = 0.25
_T = TypeVar("_T")


class RemoteObject(NamedTuple):
    """One object as it was when it was found.

    Attributes:
        key: path or key, as the transport sends it.
        shown: its URL without secrets.
        size: bytes.
        etag: its version as the store names it, or "".
        modified: when it was changed, as the store says it, or "".
        is_young: that was seconds before it was found: it may be changed again within one second.
    """

    key: str
    shown: str
    size: int
    etag: str
    modified: str
    is_young: bool = False

    @property
    def version(self) -> str:
        """Return the ETag, or else the time of change: the name of this version."""
        return self.etag or self.modified

    @property
    def strong_etag(self) -> str:
        """Return the ETag for If-Match, which never matches a weak one; or ""."""
        return "" if self.etag.startswith("W/") else self.etag


class Part:
    """Bytes to be fetched with one request. A retry asks only for the missing ones."""

    __slots__ = ("_view", "found", "num_got", "size", "start")

    def __init__(self, found: RemoteObject, start: int, view: memoryview) -> None:
        self.found = found
        self.start = start
        self.size = len(view)
        self.num_got = 0
        self._view = view

    @property
    def begin(self) -> int:
        """Return the offset of the first byte that is missing."""
        return self.start + self.num_got

    @property
    def end(self) -> int:
        """Return the offset behind the last byte."""
        return self.start + self.size

    @property
    def shown(self) -> str:
        """Name the missing bytes, for errors."""
        return f"bytes {self.begin} to {self.end - 1} of {self.found.shown!r}"

    def add(self, data: Any) -> None:
        """Put the next bytes in their place."""
        count = len(data)
        self._view[self.num_got : self.num_got + count] = data
        self.num_got += count


class AskAgain(Exception):
    """A try failed in a way that the next one may not: the reason, without secrets.

    Attributes:
        wait_s: how long the server wants to be left alone.
        fix: what to do about a failure that does not pass by waiting, which is asked again once; or "".
    """

    def __init__(self, reason: str, wait_s: float = 0.0, fix: str = "") -> None:
        super().__init__(redacted(reason))
        self.wait_s = wait_s
        self.fix = fix


class CredentialsRefused(AskAgain):
    """The store does not take the credentials: worth one more try with fresh ones."""


class Ended(Exception):
    """The read that a request belongs to has ended."""


class Turn:
    """One read: requests that run side by side in the threads of a client.

    Args:
        client: whose threads make them.
        shown: what is read, for errors.

    Attributes:
        deadline: a time of `time.monotonic`.
        last: the last failure.
        is_ended: everything is broken off.
        outcomes: an entry for each request that has ended, an error or None.
    """

    def __init__(self, client: Client, shown: str) -> None:
        self._client, self._shown = client, shown
        self.options = client.options
        self.deadline = time.monotonic() + self.options.deadline_s
        self.last = ""
        self.outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
        self._breaks: dict[int, Callable[[], object]] = {}
        self.is_ended = False

    def run(self, jobs: Sequence[Callable[[], object]], num_others: int = 0) -> None:
        """Make requests and wait for them, and for others that enter their outcomes here.

        Raises:
            StorageError: the deadline has passed, or the storage was closed; or the first error of a request.
            ReadBrokenOff: the feed whose worker reads was closed.
        """
        left = len(jobs) + num_others
        try:
            with self._client.watching(self), breakable(self.end, Ended, self._shown):
                for job in jobs:
                    self._client.submit(lambda job=job: self.outcomes.put(self.outcome_of(job)))  # type: ignore[misc]
                while left:
                    outcome = self.outcomes.get(timeout=max(0.0, self.deadline - time.monotonic()))
                    if outcome is not None:
                        try:
                            raise outcome
                        finally:
                            del outcome  # else this frame and the traceback hold each other
                    left -= 1
        except Empty:
            raise self.too_late() from None
        except Ended:
            what = f"{self._shown!r} was being read when the storage was closed"
            raise StorageError(what, where=self._shown, fix="close it behind the last read") from None
        finally:
            if left:
                self.end()
                while self._breaks:  # a request that has not seen the end yet may write into the caller's memory
                    self.outcomes.get()

    def too_late(self) -> StorageError:
        """Return the error of a read that is at its deadline."""
        return exhausted(repr(self._shown), f"{self.options.deadline_s:g} s, the deadline", self.last)

    def end(self) -> None:
        """Break off everything. Takes no lock: from any thread, in finalisers and signal handlers."""
        self.is_ended = True
        self.outcomes.put(Ended())
        for break_off in list(self._breaks.values()):
            break_off()

    @contextmanager
    def breaking(self, break_off: Callable[[], object]) -> Iterator[None]:
        """Have `break_off()` end what this thread does in the `with` block.

        Raises:
            Ended: the read has ended.
        """
        thread = threading.get_ident()
        self._breaks[thread] = break_off
        try:
            if self.is_ended:  # looked at behind the entry: `end` looks at the entries behind its mark
                raise Ended
            yield
        finally:
            del self._breaks[thread]

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            Ended: the read has ended.
        """
        wake: SimpleQueue[None] = SimpleQueue()
        with self.breaking(partial(wake.put, None)):
            try:
                wake.get(timeout=seconds)
            except Empty:
                return
        raise Ended

    def outcome_of(self, job: Callable[[], object]) -> BaseException | None:
        """Do a job, unless everything is broken off, and return its error."""
        try:
            if self.is_ended:
                raise Ended
            job()
        except BaseException as error:
            return error
        return None


class Client:
    """Threads that make the requests of a storage, at most `max_requests` at a time. Each process makes its own: no thread survives a fork.

    The threads start when there is work, and hold no reference to the storage, so that they end when the storage is collected.
    """

    def __init__(self, options: StorageOptions) -> None:
        self.options = options
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._num_jobs = 0  # waiting or running
        self._threads: list[threading.Thread] = []
        self._num_ended = 0
        self._turns: set[Turn] = set()
        self._is_closed = False
        self._transports: dict[tuple[str, str, int, str], BucketTransport | WebTransport] = {}

    @contextmanager
    def watching(self, turn: Turn) -> Iterator[None]:
        """End a read when the client is stopped.

        Raises:
            Ended: it was.
        """
        self._turns.add(turn)
        try:
            if self._is_closed:
                raise Ended
            yield
        finally:
            self._turns.discard(turn)

    def submit(self, job: Callable[[], object]) -> None:
        """Do a job, which raises nothing, in one of the threads."""
        with self._lock:
            self._num_jobs += 1
            self._jobs.put(job)
            if len(self._threads) < min(self._num_jobs, self.options.max_requests):
                # A daemon: a program that ends does not wait for a storage that was not closed.
                thread = threading.Thread(target=self._serve, name="penstock-remote", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more of them
                    if not self._threads:
                        raise
                else:
                    self._threads.append(thread)

    def stop(self) -> None:
        """Let the threads end and waiting reads fail, without waiting for them. Takes no lock: from any thread, also the collector's."""
        self._is_closed = True
        if self.pid == os.getpid():
            for turn in list(self._turns):
                turn.end()
            self._jobs.put(None)

    def close(self) -> None:
        """Stop and wait for the threads, then close the connections."""
        self.stop()
        for thread in list(self._threads):
            thread.join()

    def transport(self, address: Address) -> BucketTransport | WebTransport:
        """Return the transport of an address."""
        key = (*address.origin, address.user)
        with self._lock:
            if key not in self._transports:
                if address.in_bucket:
                    from penstock._storage.buckets import BucketTransport as Kind
                else:
                    from penstock._storage.web import WebTransport as Kind  # type: ignore[assignment]
                self._transports[key] = Kind(address, self.options)
            return self._transports[key]

    def fetch(self, turn: Turn, address: Address, part: Part) -> None:
        """Fetch one part with one request, and again as often as it may be; in one of the threads.

        Raises:
            StorageError: it did not come.
            ObjectChanged: it is another object now.
        """
        transport = self.transport(address)
        persist(lambda: transport.fetch(part, turn), transport, lambda: part.shown, turn, is_found=True)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # while this thread waits for the next, it holds none of the reader's memory
            with self._lock:
                self._num_jobs -= 1
        self._jobs.put(None)  # for the next thread
        with self._lock:
            self._num_ended += 1
            is_last = self._num_ended == len(self._threads)
        for transport in self._transports.values() if is_last else ():
            transport.close()


def backoff_s(options: StorageOptions, num_failed: int) -> float:
    """Return how long to wait after so many failed tries: exponential, a quarter more or less, so that many readers come back apart."""
    mean = min(options.max_backoff_s, options.backoff_s * 2.0 ** min(num_failed - 1, 60))
    return mean * random.uniform(1 - _JITTER, 1 + _JITTER)


def persist(
    attempt: Callable[[], _T], transport: BucketTransport | WebTransport, shown: Callable[[], str], turn: Turn, is_found: bool = False
) -> _T:
    """Make an attempt, and again, as often as the options allow.

    Args:
        attempt: one try, which raises AskAgain or CredentialsRefused where another may succeed.
        transport: where credentials are refreshed, once.
        shown: names the object or bytes, without secrets.
        turn: its limits.
        is_found: the host has answered before: waiting may help against any failure, as of a name that is suddenly not known.

    Raises:
        StorageError: all tries failed, or another is no use.
        ObjectChanged: it is another object now.
        Ended: the read has ended.
    """
    num_tries, num_lasting, is_fresh = 0, 0, False
    while True:
        if time.monotonic() > turn.deadline:
            raise turn.too_late()
        try:
            return attempt()
        except CredentialsRefused as refused:
            if is_fresh:
                fix = "check the credentials: the options of RemoteFiles, or where the store's own tools look"
                raise StorageError(f"{shown()!r} may not be read: {refused}", where=shown(), fix=fix) from None
            is_fresh = True
            transport.refresh()
            continue
        except AskAgain as fault:
            num_tries += 1
            turn.last = str(fault)
            wait_s, fix = fault.wait_s, "" if is_found else fault.fix
            num_lasting += bool(fix)
        tries = "1 try" if num_tries == 1 else f"{num_tries} tries"
        if num_tries > turn.options.retries or num_lasting > 1:
            raise exhausted(shown(), tries, turn.last, fix or _LATER)
        if wait_s and time.monotonic() + wait_s > turn.deadline:
            raise exhausted(shown(), tries, f"{turn.last}; the server asks for {wait_s:.0f} s, which end behind the deadline")
        turn.sleep(max(wait_s, backoff_s(turn.options, num_tries)))


def exhausted(shown: str, tries: str, reason: str, fix: str = _LATER) -> StorageError:
    """Return the error of bytes that did not come."""
    return StorageError(f"{shown} did not come after {tries}: {reason or 'no answer yet'}", where=shown, fix=fix)


def not_there(shown: str, reason: str) -> StorageError:
    """Return the error of an object that is not there, with `errno`."""
    fix = "check bucket, key and region, and whether it was deleted meanwhile"
    error = StorageError(f"{shown!r} is not there: {reason}", where=shown, fix=fix)
    error.errno = errno.ENOENT
    return error


def changed(found: RemoteObject, now: str) -> ObjectChanged:
    """Return the error of an object that is another one now."""
    return ObjectChanged(
        f"{found.shown!r} was replaced while it was read: it was {found.version or found.size!r}, now {now}",
        where=found.shown,
        fix="do not change objects while they are read; build the dataset again",
    )
