"""Objects of stores and web servers, read by ranges."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.storage_options import StorageOptions
from penstock._contracts.transform import Scratch
from penstock._storage.ahead import Range, ReadAhead
from penstock._storage.buckets import BucketTransport, Client, together
from penstock._storage.cache import BlockCache
from penstock._storage.parts import Part, RemoteObject, Turn, persist, plan_ranges
from penstock._storage.urls import Address, expand_url, key_matcher, literal_prefix, missing_shards, parse_url
from penstock.errors import SourceError

__all__ = ["RemoteStorage", "open_remote"]

_Asked = tuple[Address, RemoteObject]


class RemoteStorage:
    """See `Storage`. Reads of several threads share one thread with an event loop, which ends with this object or `close()`.

    Pickled, or used behind a fork, it makes new connections.

    Args:
        found: the objects, in their order.
        client: as it found them.
        options: as the user gave them.
        caller: the function that the user called, for errors.
    """

    def __init__(self, found: Sequence[_Asked], client: Client | None, options: StorageOptions, caller: str) -> None:
        self._found = list(found)
        self._options = options
        self._caller = caller
        self._is_closed = False
        self._here: dict[int, tuple[Client, ReadAhead]] = {}  # by process
        self._cache = BlockCache(options) if options.cache_dir is not None else None
        if self._cache is not None:
            for _, item in found:
                _check_version(item)
        if client is not None:
            self._adopt(client)

    def __len__(self) -> int:
        return len(self._found)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteStorage, (self._found, None, self._options, self._caller))

    @property
    def spans_at_once(self) -> int:
        """How many spans should be asked for at once, at least, to use all requests that may be in flight."""
        return 4 * self._options.max_requests

    def name(self, file: int) -> str:
        """Return the URL without secrets."""
        return self._found[file][1].shown

    def size(self, file: int) -> int:
        """Return the bytes."""
        return self._found[file][1].size

    def identity(self, file: int) -> dict[str, Any]:
        """Return size, ETag and time of change, as far as the store says them."""
        found = self._found[file][1]
        return {"size": found.size, "etag": found.etag, "modified": found.modified}

    def read(self, file: int, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            StorageError: they did not come, after all retries or at the deadline; or the storage was closed.
            ObjectChanged: it is another object now.
        """
        found = self._found[file][1]
        if offset < 0 or length < 0 or offset + length > found.size:
            raise SourceError(
                f"{found.shown!r} has {found.size} bytes, and not {length} at {offset}",
                where=f"{self._caller}, {found.shown!r}",
                fix="do not change objects while they are read; build the dataset again",
            )
        whole = np.array([file]), np.array([offset]), np.array([length])
        data, starts = self.read_spans(*whole, None)
        return data[int(starts[0]) : int(starts[0]) + length].tobytes()

    def read_spans(
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read many spans: neighbours with one request, and as many requests at once as the options allow.

        Raises:
            StorageError: they did not come, after all retries or at the deadline; or the storage was closed.
            ObjectChanged: an object is another one now.
        """
        options = self._options
        if self._cache is not None:
            return self._cache.read_spans(self, files, offsets, lengths, scratch)
        plan = plan_ranges(files, offsets, lengths, options.max_gap_bytes, options.max_range_bytes, options.max_requests)
        out = take(scratch, int(plan.lengths.sum()))
        if len(plan.files):
            ends = np.cumsum(plan.lengths)
            targets = zip(plan.files.tolist(), plan.begins.tolist(), np.split(out, ends[:-1]), strict=True)
            ranges = [Range(file, begin, target) for file, begin, target in targets]
            client, ahead = self._in_this_process()
            shown = self.name(ranges[0].file)
            for copy in client.run(lambda _, turn: ahead.fetch(turn, ranges), shown):
                copy.part.copy(copy.begin, copy.target)
        return out, plan.starts

    def fetch(self, files: list[int], begins: list[int], lengths: list[int], out: NDArray[np.uint8]) -> None:
        """Fetch ranges, one request each, to one behind the other in `out`; not from the cache.

        Raises:
            StorageError, ObjectChanged: as `read_spans`.
        """
        if not files:
            return
        view, place, asked = out.data.cast("B"), 0, []
        for file, begin, length in zip(files, begins, lengths, strict=True):
            address, found = self._found[file]
            asked.append((address, Part(found, begin, view[place : place + length])))
            place += length
        self.client().run(
            lambda client, turn: together([client.fetch(turn, address, part) for address, part in asked]), asked[0][1].found.shown
        )

    def cache_key(self, file: int) -> str:
        """Return the name of this version of an object in a cache."""
        address, found = self._found[file]
        endpoint = str(self._options.store.get("endpoint", ""))
        place = (address.scheme, address.host, str(address.port), endpoint, found.key)
        return "\n".join((*place, found.etag, found.modified, str(found.size)))

    def client(self) -> Client:
        """Return the client of this process.

        Raises:
            StorageError: a process that was forked from one that used obstore.
        """
        return self._in_this_process()[0]

    def close(self) -> None:
        """Break off reads, close the connections, and end the thread; a later read fails. A second call does nothing."""
        self._is_closed = True
        here = self._here.get(os.getpid())
        if here is not None:
            here[0].close()

    def _in_this_process(self) -> tuple[Client, ReadAhead]:
        here = self._here.get(os.getpid()) or self._adopt(Client(self._options))
        if self._is_closed:
            here[0].stop()
        return here

    def _adopt(self, client: Client) -> tuple[Client, ReadAhead]:
        """Keep a client of this process, unless another thread was quicker: then there is that one, and ours has not begun."""
        ours = client, ReadAhead(self._found, client)
        here = self._here.setdefault(client.pid, ours)
        if here is ours:
            weakref.finalize(self, client.stop)
        return here


def open_remote(urls: Sequence[str], options: StorageOptions, caller: str) -> RemoteStorage:
    """Find the objects that URLs and patterns name: sizes and versions by one listing a pattern, or one request a URL.

    Args:
        urls: URLs, with `{000..146}` or `@10` for many; of s3:// and gs:// also patterns with `*`, `?`, `[...]` and `**`.
        options: as the user gave them.
        caller: the function that the user called, for errors.

    Returns:
        The objects in the order of the bytes of their URLs, each once.

    Raises:
        PlanError: a URL that is not read, or options that make no sense.
        SourceError: a pattern finds nothing.
        StorageError: an object that is not there, or may not be read, or does not come.
        MissingExtra: obstore is not installed.
    """
    addresses = [parse_url(name, options, caller) for url in urls for name in expand_url(url, caller)]
    client = Client(options)
    try:
        found = client.run(lambda here, turn: _find_all(here, turn, addresses, caller), addresses[0].shown)
        unique = {(address.origin, item.key, address.user): (address, item) for address, item in found}
        ordered = sorted(unique.values(), key=lambda pair: (pair[1].shown.encode(), pair[1].key.encode()))
        return RemoteStorage(ordered, client, options, caller)
    except BaseException:
        client.close()
        raise


def _check_version(found: RemoteObject) -> None:
    if not found.version and found.size:
        raise SourceError(
            f"{found.shown!r} has neither ETag nor Last-Modified: a cache could not tell when it changes",
            where=found.shown,
            fix="leave cache_dir out",
        )


def take(scratch: Scratch | None, count: int) -> NDArray[np.uint8]:
    """Return room for bytes."""
    return np.empty(count, np.uint8) if scratch is None else scratch.take("spans", (count,), np.uint8)


async def _find_all(client: Client, turn: Turn, addresses: list[Address], caller: str) -> list[_Asked]:
    groups = await together([_find(client, turn, address, caller) for address in addresses])
    return [pair for group in groups for pair in group]


async def _find(client: Client, turn: Turn, address: Address, caller: str) -> list[_Asked]:
    transport, gate = client.transport(address), client.gate(address)
    key = address.key
    if isinstance(transport, BucketTransport) and literal_prefix(key) is not None:
        bucket, matcher = transport, key_matcher(key)
        found = await persist(lambda: bucket.find_all(key), transport, gate, lambda: repr(address.shown), turn)
        if not found:
            raise SourceError(f"no object matches {address.shown!r}", where=caller, fix="check bucket, folder and pattern")
        for lacking in missing_shards([item.key for item in found]):
            if matcher.fullmatch(lacking):
                raise SourceError(
                    f"shard {lacking!r} is missing; {len(found)} objects match {address.shown!r}",
                    where=caller,
                    fix="get the missing object, or name those that you want",
                )
        return [(address, item) for item in found]
    return [(address, await persist(lambda: transport.find(key), transport, gate, lambda: repr(address.shown), turn))]
