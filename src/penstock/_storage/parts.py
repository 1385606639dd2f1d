"""Objects as they were found, which ranges of them are requested, parts on their way, and retries.

Retries: which failures are asked again, after which wait, and until when.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage import StorageOptions
from penstock._storage.urls import redacted
from penstock.errors import ObjectChanged, StorageError
from penstock.kernels.library import Ints

if TYPE_CHECKING:
    import asyncio

_LEAST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
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

    def body(self, begin: int) -> memoryview:
        """Return the bytes that came, from offset `begin` of the object on."""
        return self._view[begin - self.start : self.num_got]


class KeptPart(Part):
    """A part whose bytes are kept as they come, in pieces, and copied when a read wants them."""

    __slots__ = ("_pieces", "_starts")

    def __init__(self, found: RemoteObject, start: int, size: int) -> None:
        super().__init__(found, start, memoryview(b""))
        self.size = size
        self._pieces: list[memoryview] = []
        self._starts: list[int] = []  # of the pieces, counted from the beginning of the part

    def add(self, data: Any) -> None:
        """Take the next bytes."""
        while self._starts and self._starts[-1] >= self.num_got:  # a try was given up, and its bytes do not count
            self._starts.pop()
            self._pieces.pop()
        self._starts.append(self.num_got)
        self._pieces.append(memoryview(data).cast("B"))
        self.num_got += len(self._pieces[-1])

    def body(self, begin: int) -> memoryview:
        """Return the bytes that came, from offset `begin` of the object on."""
        return memoryview(b"".join(self._pieces))[begin - self.start : self.num_got]

    def copy(self, begin: int, target: NDArray[np.uint8]) -> None:
        """Fill `target`, uint8 [n], with the bytes from offset `begin` of the object on; from any thread when all are there."""
        place, end, got = begin - self.start, begin - self.start + len(target), 0
        number = bisect_right(self._starts, place) - 1
        while place < end:
            piece = np.frombuffer(self._pieces[number], np.uint8)[place - self._starts[number] : end - self._starts[number]]
            np.copyto(target[got : got + len(piece)], piece)
            place, got, number = place + len(piece), got + len(piece), number + 1


class Plan(NamedTuple):
    """Ranges to fetch, one behind the other, and where the spans then begin.

    Attributes:
        files: int64 [r].
        begins: int64 [r], offset in the file.
        lengths: int64 [r], in bytes.
        starts: int64 [n], where span i begins in the bytes of all ranges.
    """

    files: Ints
    begins: Ints
    lengths: Ints
    starts: Ints


def plan_ranges(files: Ints, offsets: Ints, lengths: Ints, max_gap: int, max_range: int, num_parallel: int) -> Plan:
    """Join spans of one file that overlap or are at most `max_gap` bytes apart, and cut long ranges.

    A range is at most `max_range` bytes. When all ranges together are fewer than may be in flight, they are cut further, to 4 MB at least:
    one connection rarely carries all that a store can give.

    Args:
        files: int64 [n].
        offsets: int64 [n].
        lengths: int64 [n]; spans of no bytes belong to no range.
        max_gap: bytes.
        max_range: bytes.
        num_parallel: how many requests may be in flight.
    """
    runs, run_of = _join(files, offsets, lengths, max_gap)
    total = int(runs[2].sum())
    piece = max(1, min(max_range, max(-(-total // max(1, num_parallel)), min(_LEAST_BYTES, max_range))))
    run_starts = np.cumsum(runs[2]) - runs[2]
    starts = np.zeros(len(files), np.int64)
    inside = run_of >= 0
    starts[inside] = run_starts[run_of[inside]] + offsets[inside] - runs[1][run_of[inside]]
    counts = -(-runs[2] // piece)
    owner = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = runs[1][owner] + number * piece
    ends = np.minimum(begins + piece, runs[1][owner] + runs[2][owner])
    return Plan(runs[0][owner], begins, ends - begins, starts)


def _join(files: Ints, offsets: Ints, lengths: Ints, max_gap: int) -> tuple[tuple[Ints, Ints, Ints], Ints]:
    """Return (file, begin, length) of each run, and the run of each span: -1 for one of no bytes."""
    run_of = np.full(len(files), -1, np.int64)
    order = np.lexsort((offsets, files))
    order = order[lengths[order] > 0]
    if not len(order):
        none = np.zeros(0, np.int64)
        return (none, none, none), run_of
    file, begin, end = files[order], offsets[order], offsets[order] + lengths[order]
    # The furthest end so far, file by file: the files are made disjoint ranges of one axis, which 2^63 bytes hold in practice.
    base = np.concatenate(([0], np.cumsum(np.diff(file) != 0))) * (int(end.max()) + max_gap + 1)
    furthest = np.maximum.accumulate(end + base)
    is_new = np.concatenate(([True], begin[1:] + base[1:] > furthest[:-1] + max_gap))
    run_of[order] = np.cumsum(is_new) - 1
    firsts = np.flatnonzero(is_new)
    lasts = np.concatenate((firsts[1:], [len(order)])) - 1
    return (file[firsts], begin[firsts], furthest[lasts] - base[lasts] - begin[firsts]), run_of


RETRIED = frozenset({408, 421, 425, 429, 500, 502, 503, 504, 507, 509, 520, 521, 522, 523, 524})
"""Statuses after which the next try may succeed; those from 520 on are Cloudflare's for an origin that does not answer."""

_JITTER = 0.25
_T = TypeVar("_T")


class Turn:
    """The limits of one read: options and deadline (a time of the loop); with the last failure."""

    __slots__ = ("deadline", "last", "options")

    def __init__(self, options: StorageOptions, deadline: float) -> None:
        self.options = options
        self.deadline = deadline
        self.last = ""


class AskAgain(Exception):
    """A try failed in a way that the next one may not: the reason, without secrets, and how long the server wants to be left alone."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(redacted(reason))
        self.wait_s = wait_s


class CredentialsRefused(Exception):
    """The store does not take the credentials: worth one more try with fresh ones."""

    def __init__(self, reason: str) -> None:
        super().__init__(redacted(reason))


class Transport(Protocol):
    """How objects of one host or bucket are asked for. Used in the event loop's thread alone."""

    async def find(self, key: str) -> RemoteObject:
        """Ask for size and version of an object."""

    async def fetch(self, part: Part) -> None:
        """Make one try to get the missing bytes of a part.

        Raises:
            AskAgain: the next try may succeed; bytes that came are in the part.
            CredentialsRefused: 401 or 403.
            StorageError: asking again is no use.
            ObjectChanged: it is another object now.
        """

    def refresh(self) -> None:
        """Get fresh credentials for the next requests."""

    async def close(self) -> None:
        """Close the connections."""


def backoff_s(options: StorageOptions, num_failed: int) -> float:
    """Return how long to wait after so many failed tries: exponential, a quarter more or less, so that many readers come back apart."""
    mean = min(options.max_backoff_s, options.backoff_s * 2.0 ** min(num_failed - 1, 60))
    return mean * random.uniform(1 - _JITTER, 1 + _JITTER)


async def persist(
    attempt: Callable[[], Coroutine[Any, Any, _T]], transport: Transport, gate: asyncio.Semaphore, shown: Callable[[], str], turn: Turn
) -> _T:
    """Make an attempt, and again, as often as the options allow. The deadline of the whole is the caller's to keep.

    Args:
        attempt: one try; see `Transport.fetch` for its errors.
        transport: where credentials are refreshed, once.
        gate: held by each try, and not while it waits for the next.
        shown: names the object or bytes, without secrets.
        turn: its limits.

    Raises:
        StorageError: all tries failed, or another is no use.
        ObjectChanged: it is another object now.
    """
    import asyncio

    num_tries, is_fresh = 0, False
    while True:
        try:
            async with gate:
                return await attempt()
        except CredentialsRefused as refused:
            if is_fresh:
                raise denied(shown(), str(refused)) from None
            is_fresh = True
            transport.refresh()
            continue
        except AskAgain as fault:
            num_tries += 1
            turn.last = str(fault)
            wait_s = fault.wait_s
        if num_tries > turn.options.retries:
            raise exhausted(shown(), _tries(num_tries), turn.last)
        if wait_s and asyncio.get_running_loop().time() + wait_s > turn.deadline:
            raise exhausted(
                shown(), f"{num_tries} tries", f"{turn.last}; the server asks for {wait_s:.0f} s, which end behind the deadline"
            )
        await asyncio.sleep(max(wait_s, backoff_s(turn.options, num_tries)))


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def exhausted(shown: str, tries: str, reason: str) -> StorageError:
    """Return the error of bytes that did not come."""
    return StorageError(
        f"{shown} did not come after {tries}: {reason or 'no answer yet'}",
        where=shown,
        fix="look at the store and the network; a later run may succeed; StorageOptions has retries, timeout_s and deadline_s",
    )


def denied(shown: str, reason: str) -> StorageError:
    """Return the error of credentials that are not taken, fresh ones neither."""
    return StorageError(
        f"{shown!r} may not be read: {reason}",
        where=shown,
        fix="check the credentials: the options of RemoteFiles, or where the store's own tools look",
    )


def not_there(shown: str, reason: str) -> StorageError:
    """Return the error of an object that is not there."""
    return StorageError(
        f"{shown!r} is not there: {reason}", where=shown, fix="check bucket, key and region, and whether it was deleted meanwhile"
    )


def changed(found: RemoteObject, now: str) -> ObjectChanged:
    """Return the error of an object that is another one now."""
    return ObjectChanged(
        f"{found.shown!r} was replaced while it was read: it was {found.version or found.size!r}, now {now}",
        where=found.shown,
        fix="do not change objects while they are read; build the dataset again",
    )
