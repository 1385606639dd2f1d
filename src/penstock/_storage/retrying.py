"""Retries: which failures are asked again, after which wait, and until when."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock._contracts.storage_options import StorageOptions
from penstock._storage.parts import Part, RemoteObject
from penstock._storage.urls import redacted
from penstock.errors import ObjectChanged, StorageError

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "RETRIED",
    "AskAgain",
    "CredentialsRefused",
    "Transport",
    "Turn",
    "backoff_s",
    "changed",
    "denied",
    "exhausted",
    "not_there",
    "persist",
]

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
