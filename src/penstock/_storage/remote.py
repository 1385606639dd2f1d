"""Objects of stores and web servers, read by ranges; where objects are read in order, the next ranges are fetched ahead.

A block of records in order is a few requests, and a worker asks for the next block when it is free: a store that answers late would set
the pace. So reads that follow each other make a stream, and ranges ahead of it are fetched into memory: two blocks at first, twice as much
each time that a read has to wait, as long as ranges come within a second, and at most `read_ahead_bytes`. Reads in no order make no
stream that lasts. Bytes fetched in vain are counted: above an eighth of the read bytes, reading ahead stops (decision 16).
"""

from __future__ import annotations

import os
import re
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._contracts.storage import StorageOptions
from penstock._contracts.transform import Scratch
from penstock._storage.buckets import BucketTransport, Client, together
from penstock._storage.cache import BlockCache
from penstock._storage.parts import KeptPart, Part, RemoteObject, Turn, persist, plan_ranges
from penstock._storage.urls import Address, expand_url, key_matcher, literal_prefix, missing_shards, parse_url
from penstock.errors import ObjectChanged, SourceError, StorageError
from penstock.kernels.library import Ints, Uint8s

if TYPE_CHECKING:
    import asyncio

_SIGNING = re.compile(
    r"(?i)(x-(amz|goog)-[^=]*|awsaccesskeyid|googleaccessid|key-pair-id|policy|expires|signature|token|sig|se|st|sp|sv|sr)="
)
"""What a signed URL adds to a query (S3, Google, CloudFront, Azure)."""
_SIGNED = re.compile(r"(?i)(^|&)(x-(amz|goog)-signature|signature|sig)=")

_LEAST_READS = 4
"""So many reads that go on from each other, and between them hardly a hole, are an order; two, where there was one before."""
_MOST_READS = 64
"""Twice as many as are remembered, when there are more."""
_NUM_STREAMS = 16
_SLACK = 8
"""So many blocks may be read out of turn, by workers side by side."""
_NUM_PIECES = 4
"""A window is so many requests, as far as they may be that small or that large."""
_LEAST_PIECE, _FIRST_PIECE = 256 << 10, 64 << 10
_LONG_S = 2.0
_VAIN_BYTES = 4 << 20
"""So much may be fetched in vain, and an eighth of what was read."""
_IDLE_S = 60.0


class Range(NamedTuple):
    """Bytes of an object from `begin` on, to fill `target`, uint8 [n]."""

    file: int
    begin: int
    target: Uint8s


class Copy(NamedTuple):
    """A copy that the caller makes when the bytes have come: `part.copy(begin, target)`."""

    part: KeptPart
    begin: int
    target: Uint8s


@dataclass(slots=True, eq=False)
class _Stream:
    """Reads that go on from each other, in places in all objects, one behind the other.

    Attributes:
        first: where they began.
        position: the furthest place that one of them reached.
        num_reads: how many went further than those before.
        num_bytes: that they read.
        window: so much may be fetched ahead.
        front: so far it has been.
        took_s: how long the last range took to come.
        pieces: ranges that are there, or on their way.
    """

    first: int
    position: int
    num_reads: int = 0
    num_bytes: int = 0
    window: int = 0
    front: int = 0
    took_s: float = 0.0
    pieces: list[_Piece] = field(default_factory=list)

    def go_on(self, begin: int, end: int, num_bytes: int) -> None:
        """Note a read."""
        self.num_reads += end > self.position or not self.num_reads
        self.first, self.position = min(self.first, begin), max(self.position, end)
        self.num_bytes += num_bytes
        if self.num_reads > _MOST_READS:  # old reads count less
            self.num_reads, self.num_bytes = self.num_reads // 2, self.num_bytes // 2
            self.first = self.position - (self.position - self.first) // 2

    def is_order(self, least_reads: int) -> bool:
        """Tell whether there were so many reads, and nearly all bytes behind the position were read."""
        return self.num_reads >= least_reads and 4 * self.num_bytes >= 3 * (self.position - self.first)


@dataclass(slots=True, eq=False)
class _Piece:
    """Bytes on their way, or there: `left` of them are unread, and `num_waiting` reads wait for the piece."""

    stream: _Stream
    begin: int
    part: KeptPart
    task: asyncio.Future[Any]
    left: int
    num_waiting: int = 0

    @property
    def size(self) -> int:
        return self.part.size

    @property
    def end(self) -> int:
        return self.begin + self.part.size


def _begin_of(piece: _Piece) -> int:
    return piece.begin


class ReadAhead:
    """The streams of a storage in one process. All of it runs in the loop of the client, so nothing is locked.

    Args:
        found: the objects, in their order.
        client: fetches.
    """

    def __init__(self, found: Sequence[tuple[Address, RemoteObject]], client: Client) -> None:
        self._found, self._client = found, client
        self._most = client.options.read_ahead_bytes
        self._bases: list[int] = []
        self._streams: list[_Stream] = []  # the one that was used last stands last
        self._pieces: list[_Piece] = []  # by their beginnings; none overlap
        self._num_read = self._num_used = self._num_vain = 0
        self._window = 0  # of the order that was read last: in the next epoch it is one again
        self._gate: asyncio.Semaphore | None = None
        self._used_s = 0.0
        self._is_watched = False

    async def fetch(self, turn: Turn, ranges: Sequence[Range]) -> list[Copy]:
        """Fill ranges, in the order of the objects; return the copies that the caller has to make.

        A range that was fetched ahead and did not come is asked for again here: its tries and its time are not those of this read.

        Raises:
            StorageError, ObjectChanged: as `Client.fetch`.
        """
        import asyncio

        self._used_s = asyncio.get_running_loop().time()
        self._bases = self._bases or [0, *accumulate(item.size for _, item in self._found)]
        copies: list[Copy] = []
        works: list[Any] = []
        awaited: list[_Piece] = []
        is_late = False
        for file, begin, target in ranges:
            base = self._bases[file]
            place, end = base + begin, base + begin + len(target)
            for piece in self._pieces_in(place, end):
                low, high = max(place, piece.begin), min(end, piece.end)
                works += self._direct(turn, file, place, target[place - base - begin : low - base - begin])
                works.append(self._of_piece(turn, file, piece, low, target[low - base - begin : high - base - begin], copies))
                is_late = is_late or not piece.task.done()
                piece.left -= high - low
                self._num_used += high - low
                piece.num_waiting += 1
                awaited.append(piece)
                place = high
            rest = self._direct(turn, file, place, target[place - base - begin :])
            is_late, works = is_late or bool(rest), works + rest
        try:
            self._go_on(ranges, is_late)
            await together(works)
        finally:
            for piece in awaited:
                piece.num_waiting -= 1
        return copies

    def _direct(self, turn: Turn, file: int, place: int, target: Uint8s) -> list[Any]:
        if not len(target):
            return []
        address, item = self._found[file]
        return [self._client.fetch(turn, address, Part(item, place - self._bases[file], target.data.cast("B")))]

    async def _of_piece(self, turn: Turn, file: int, piece: _Piece, place: int, target: Uint8s, copies: list[Copy]) -> None:
        import asyncio

        try:
            await asyncio.shield(piece.task)
        except ObjectChanged:
            raise
        except StorageError:
            await together(self._direct(turn, file, place, target))
        else:
            copies.append(Copy(piece.part, place - self._bases[file], target))

    def _pieces_in(self, begin: int, end: int) -> list[_Piece]:
        """Return the pieces between two places, in order."""
        first = bisect_right(self._pieces, begin, key=_begin_of)
        if first and self._pieces[first - 1].end > begin:
            first -= 1
        return self._pieces[first : bisect_left(self._pieces, end, lo=first, key=_begin_of)]

    def _go_on(self, ranges: Sequence[Range], is_late: bool) -> None:
        """Find the stream of a read, and fetch ahead of it."""
        num_bytes = sum(len(one.target) for one in ranges)
        self._num_read += num_bytes
        begin, end = self._hull(ranges)
        if not self._most or begin == end:
            return
        slack = max(self._client.options.max_gap_bytes, _SLACK * (end - begin))
        stream = next((one for one in reversed(self._streams) if abs(begin - one.position) <= slack), None)
        if stream is None:
            self._forget_a_stream()
            stream = _Stream(first=begin, position=end)
        else:
            self._streams.remove(stream)
        self._streams.append(stream)
        stream.go_on(begin, end, num_bytes)
        self._forget_behind(stream, stream.position - slack)
        is_proven = self._num_used > 8 * self._in_vain(stream) + _VAIN_BYTES
        if not stream.is_order(2 if is_proven else _LEAST_READS):
            stream.window = 0
        elif 8 * max(0, self._in_vain(stream) - _VAIN_BYTES) <= self._num_read:
            grown = stream.window * (2 if is_late and stream.took_s < self._long_s / 2 else 1)
            least = max(2 * (end - begin), self._window // 2 if is_proven and not stream.window else 0)
            stream.window = self._window = min(self._most, max(least, grown))
            self._extend(stream)

    def _in_vain(self, stream: _Stream) -> int:
        """Return the bytes fetched in vain, the unread ones of other streams included."""
        return self._num_vain + sum(max(0, piece.left) for piece in self._pieces if piece.stream is not stream)

    def _hull(self, ranges: Sequence[Range]) -> tuple[int, int]:
        """Return where ranges begin and end that have hardly a gap between them; (0, 0) for others."""
        gap = self._client.options.max_gap_bytes
        first = last = self._bases[ranges[0].file] + ranges[0].begin
        for file, begin, target in ranges:
            place = self._bases[file] + begin
            if not 0 <= place - last <= gap:
                return 0, 0
            last = place + len(target)
        return first, last

    @property
    def _long_s(self) -> float:
        return min(_LONG_S, self._client.options.deadline_s / 8)

    def _extend(self, stream: _Stream) -> None:
        wanted = min(
            self._client.options.max_range_bytes, max(stream.window // _NUM_PIECES, _LEAST_PIECE), max(stream.window, _FIRST_PIECE)
        )
        place, total = max(stream.position, stream.front), self._bases[-1]
        end = min(stream.position + stream.window, total)
        while place < end:
            others = self._pieces_in(place, place + wanted)
            if others and others[0].begin <= place:  # another stream's
                place = others[0].end
                continue
            if place > stream.position and place + wanted > end < total:
                break  # not in crumbs: there will be room for a whole one
            file = bisect_right(self._bases, place) - 1
            size = min(wanted, self._bases[file + 1] - place, *(piece.begin - place for piece in others))
            if not self._make_room(stream, size):
                break
            self._start(stream, file, place, size)
            place += size
        stream.front = place

    def _start(self, stream: _Stream, file: int, place: int, size: int) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        address, item = self._found[file]
        part = KeptPart(item, place - self._bases[file], size)
        task = asyncio.ensure_future(self._fetched(address, part))
        piece = _Piece(stream=stream, begin=place, part=part, task=task, left=size)
        insort(self._pieces, piece, key=_begin_of)
        stream.pieces.append(piece)
        began_s = loop.time()

        def look(done: asyncio.Future[Any]) -> None:
            stream.took_s = loop.time() - began_s
            if stream.took_s > self._long_s:
                stream.window //= 2
            # An error is not reported: each read that needs these bytes asks for them again.
            if done.cancelled() or done.exception() is not None:
                self._remove(piece)

        task.add_done_callback(look)
        self._watch(loop)

    async def _fetched(self, address: Address, part: KeptPart) -> None:
        """Fetch a part; ranges ahead take half of the requests that may be in flight, as others must not wait behind them."""
        import asyncio

        self._gate = self._gate or asyncio.Semaphore(max(1, self._client.options.max_requests // 2))
        async with self._gate:
            await self._client.limited(lambda client, turn: client.fetch(turn, address, part), part.found.shown)

    def _make_room(self, stream: _Stream, size: int) -> bool:
        """Give up pieces of other streams, of those first that were used longest ago, until `size` bytes more may be held."""
        for other in self._streams:
            for piece in list(other.pieces if other is not stream else ()):
                if self._has_room(size):
                    return True
                self._give_up(piece)
        return self._has_room(size)

    def _has_room(self, size: int) -> bool:
        held = sum(piece.size for piece in self._pieces)
        return held + size <= self._most and len(self._pieces) < 2 * self._client.options.max_requests

    def _forget_behind(self, stream: _Stream, place: int) -> None:
        """Forget pieces that were read, and those too far behind to be read."""
        for piece in [one for one in stream.pieces if one.left <= 0 or one.end <= place]:
            self._give_up(piece)

    def _forget_a_stream(self) -> None:
        if len(self._streams) >= _NUM_STREAMS:
            idle = next((one for one in self._streams if not any(piece.num_waiting for piece in one.pieces)), None)
            if idle is not None:
                self._forget_behind(idle, self._bases[-1])
                self._streams.remove(idle)

    def _give_up(self, piece: _Piece) -> None:
        """Forget a piece that no read waits for, and break it off if it is on its way."""
        if piece.num_waiting:
            return
        self._num_vain += max(0, piece.left)
        self._remove(piece)
        piece.task.cancel()

    def _remove(self, piece: _Piece) -> None:
        if piece in piece.stream.pieces:
            piece.stream.pieces.remove(piece)
            self._pieces.remove(piece)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget everything after a minute without a read."""
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(_IDLE_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        left_s = self._used_s + _IDLE_S - loop.time()
        self._is_watched = left_s > 0
        if self._is_watched:
            loop.call_later(left_s, self._look, loop)
            return
        for piece in list(self._pieces):
            self._give_up(piece)
        self._streams = [stream for stream in self._streams if stream.pieces]


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
            for file in range(len(found)):
                self._check_version(file)
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
        """Return size, ETag and time of change, as far as the store says them and no other version can have the same."""
        found = self._found[file][1]
        return {"size": found.size, "etag": found.strong_etag, "modified": "" if found.is_young else found.modified}

    def place(self, file: int) -> str:
        """Return the URL without secrets, and what its query asks for: not what signs or dates the request."""
        address, found = self._found[file]
        query = "" if address.in_bucket else found.key.partition("?")[2]
        signing = _SIGNING.match if _SIGNED.search(query) else lambda item: None
        asked = "&".join(item for item in query.split("&") if item and not signing(item))
        return f"{found.shown}\n{asked}" if asked else found.shown

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

    def read_spans(self, files: Ints, offsets: Ints, lengths: Ints, scratch: Scratch | None) -> tuple[Uint8s, Ints]:
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

    def fetch(self, files: list[int], begins: list[int], lengths: list[int], out: Uint8s) -> None:
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
        identity = self.identity(file)
        endpoint = str(self._options.store.get("endpoint", ""))
        place = (address.scheme, address.host, str(address.port), endpoint, found.key)
        return "\n".join((*place, identity["etag"], identity["modified"], str(found.size)))

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

    def _check_version(self, file: int) -> None:
        size, *proofs = self.identity(file).values()
        if size and not any(proofs):
            raise SourceError(
                f"{self.name(file)!r} has neither a strong ETag nor a Last-Modified 5 s old: a cache could not tell when it changes",
                where=self.name(file),
                fix="leave cache_dir out, or open it again when it is older",
            )

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


def take(scratch: Scratch | None, count: int) -> Uint8s:
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
        listed = await persist(lambda: bucket.find_all(key), transport, gate, lambda: repr(address.shown), turn)
        by_key: dict[str, RemoteObject | None] = {item.key: item for item in listed}
        # obstore lists "a/", a folder that a console made, and "/a" as "a": whether there is an "a", and which, only asking for it tells.
        unsure = {item.key: item.shown for item in listed if not item.size or by_key[item.key] is not item}
        asks = [persist(partial(bucket.find_listed, name), transport, gate, partial(repr, shown), turn) for name, shown in unsure.items()]
        by_key |= zip(unsure, await together(asks), strict=True)
        found = [item for item in by_key.values() if item is not None]
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
