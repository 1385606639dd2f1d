"""Objects of stores and web servers, read by ranges; where objects are read in order, the next ranges are fetched ahead.

A block of records in order is a few requests, and a worker asks for the next block when it is free: a store that answers late would set
the pace. So reads that follow each other make a stream, and pieces of the objects ahead of it are fetched into memory: two blocks at
first, twice as much each time that a read has to wait, as long as pieces come within a second, and at most `read_ahead_bytes`. Bytes
fetched in vain are counted: above an eighth of the read bytes, reading ahead stops (decision 16).
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
import weakref
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock._contracts.storage import StorageOptions
from penstock._contracts.transform import Scratch
from penstock._storage.cache import BlockCache, Range, take
from penstock._storage.requests import Client, Part, RemoteObject, Turn, persist
from penstock._storage.urls import Address, expand_url, key_matcher, literal_prefix, missing_shards, parse_url
from penstock.errors import SourceError, StorageError
from penstock.kernels.library import Ints, Uint8s

_SIGNING = re.compile(
    r"(?i)(x-(amz|goog)-[^=]*|awsaccesskeyid|googleaccessid|key-pair-id|policy|expires|signature|token|sig|se|st|sp|sv|sr)="
)
"""What a signed URL adds to a query (S3, Google, CloudFront, Azure)."""
_SIGNED = re.compile(r"(?i)(^|&)(x-(amz|goog)-signature|signature|sig)=")

_Asked = tuple[Address, RemoteObject]

_LEAST_RANGE = 4 << 20
_LEAST_READS = 4
"""So many reads that go on from each other are an order; half as many, where what was fetched ahead has been of use."""
_NUM_STREAMS = 16
_SLACK = 8
"""So many blocks may be read out of turn, by workers side by side."""
_LEAST_BYTES, _MOST_BYTES = 256 << 10, 4 << 20
"""Of a piece: as many as of a block, in these bounds."""
_LEAST_PIECES = 4
"""`read_ahead_bytes` holds so many pieces at least."""
_LONG_S = 2.0
_VAIN_BYTES = 4 << 20
"""So much may be fetched in vain, and an eighth of what was read."""
_AT_ONCE = 4096
"""So many addresses are handed to the threads that ask, before they are waited for."""
_MANY = 100
"""A folder of which a list names so many objects is listed."""


def plan_ranges(
    files: Ints, offsets: Ints, lengths: Ints, max_gap: int, max_range: int, num_parallel: int
) -> tuple[list[tuple[int, int, int]], Ints]:
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

    Returns:
        (file, begin, length) of each range, in order, and int64 [n], where each span begins in the bytes of all of them.
    """
    runs, run_of = _join(files, offsets, lengths, max_gap)
    total = int(runs[2].sum())
    starts = np.zeros(len(files), np.int64)
    inside = run_of >= 0
    starts[inside] = (np.cumsum(runs[2]) - runs[2] - runs[1])[run_of[inside]] + offsets[inside]
    piece = max(1, min(max_range, max(-(-total // num_parallel), _LEAST_RANGE)))
    ends = (runs[1] + runs[2]).tolist()
    cut = [
        (file, place, min(piece, end - place))
        for file, begin, end in zip(runs[0].tolist(), runs[1].tolist(), ends, strict=True)
        for place in range(begin, end, piece)
    ]
    return cut, starts


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


class _Stream:
    """Reads that go on from each other.

    Attributes:
        first: where they began.
        position: the furthest place that one of them reached.
        num_reads: how many went further than those before.
        num_bytes: that they read.
        window: so much may be fetched ahead.
        took_s: how long the last piece took to come.
    """

    def __init__(self, position: int) -> None:
        self.first = self.position = position
        self.num_reads = self.num_bytes = self.window = 0
        self.took_s = 0.0

    def go_on(self, end: int, num_bytes: int) -> None:
        """Note a read."""
        self.num_reads += end > self.position
        self.num_bytes += num_bytes
        self.position = max(self.position, end)

    def is_order(self, least_reads: int) -> bool:
        """Tell whether there were so many reads, and nearly all bytes behind the position were read."""
        return self.num_reads >= least_reads and 4 * self.num_bytes >= 3 * (self.position - self.first)


class _Piece:
    """Bytes of an object that are there, or on their way.

    Attributes:
        stream: for which they were fetched.
        begin: their place in all objects, one behind the other.
        data: uint8 [n].
        turn: of the request.
        left: so many bytes are unread.
        waiting: tell the reads that wait for it.
        is_done: it has ended.
        error: why it did not come.
    """

    __slots__ = ("begin", "data", "error", "is_done", "left", "stream", "turn", "waiting")

    def __init__(self, stream: _Stream, begin: int, size: int, turn: Turn) -> None:
        self.stream, self.begin, self.turn = stream, begin, turn
        self.data = np.empty(size, np.uint8)
        self.left = size
        self.waiting: list[Callable[[None], object]] = []
        self.is_done = False
        self.error: BaseException | None = None

    @property
    def end(self) -> int:
        return self.begin + len(self.data)


class ReadAhead:
    """What is fetched ahead of the reads of a storage in one process. From any thread.

    Places are counted in all objects, one behind the other; pieces begin at multiples of their size in an object, and none overlap.

    Args:
        found: the objects, in their order.
        client: fetches.
    """

    def __init__(self, found: FoundObjects, client: Client) -> None:
        self._found, self._client = found, client
        self._most = client.options.read_ahead_bytes if client.options.cache_dir is None else 0
        self._width = 0  # of a piece, from the first order on
        self._bases = array("q", [0, *np.cumsum(found.sizes).tolist()])
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []  # the one that was used last stands first
        self._pieces: dict[int, _Piece] = {}  # by their beginnings, the oldest first
        self._num_read = self._num_used = self._num_vain = 0

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Fill ranges, in the order of the objects.

        A piece that did not come is asked for again here: its tries and its time are not those of this read.

        Raises:
            StorageError: they did not come.
            ObjectChanged: an object is another one now.
            ReadBrokenOff: the feed whose worker reads was closed.
        """
        turn = Turn(self._client, self._found[ranges[0].file][1].shown)
        shares: list[tuple[_Piece, Range]] = []
        direct: list[Range] = []
        with self._lock:
            for one in ranges:
                self._divide(one, shares, direct)
            waited = {id(piece): piece for piece, _ in shares if not piece.is_done}
            for piece in waited.values():
                piece.waiting.append(turn.outcomes.put)
            self._go_on(ranges, is_late=bool(waited or direct))
        self._fetch_now(turn, direct, len(waited))
        self._fetch_now(turn, [one for piece, one in shares if piece.error is not None])
        for piece, one in shares:
            if piece.error is None:
                place = self._bases[one.file] + one.begin - piece.begin
                np.copyto(one.target, piece.data[place : place + len(one.target)])

    def _fetch_now(self, turn: Turn, ranges: list[Range], num_others: int = 0) -> None:
        jobs = []
        for file, begin, target in ranges:
            address, item = self._found[file]
            jobs.append(partial(self._fetch_one, turn, address, Part(item, begin, target.data.cast("B")), file))
        turn.run(jobs, num_others)

    def _fetch_one(self, turn: Turn, address: Address, part: Part, file: int) -> None:
        try:
            self._client.fetch(turn, address, part)
        except SourceError as error:
            error.file = file
            raise

    def _divide(self, one: Range, shares: list[tuple[_Piece, Range]], direct: list[Range]) -> None:
        """Divide a range into shares of pieces, and what is to be fetched now."""
        file, begin, target = one
        base, end = self._bases[file], begin + len(target)
        place = begin
        for number in range(begin // self._width, -(-end // self._width)) if self._pieces else ():
            piece = self._pieces.get(base + number * self._width)
            if piece is None:
                continue
            low, high = max(begin, piece.begin - base), min(end, piece.end - base)
            if place < low:
                direct.append(Range(file, place, target[place - begin : low - begin]))
            shares.append((piece, Range(file, low, target[low - begin : high - begin])))
            piece.left -= high - low
            self._num_used += high - low
            place = high
        if place < end:
            direct.append(Range(file, place, target[place - begin :]))

    def _go_on(self, ranges: Sequence[Range], is_late: bool) -> None:
        """Find the stream of a read, and fetch ahead of it."""
        num_bytes = sum(len(one.target) for one in ranges)
        self._num_read += num_bytes
        begin = self._bases[ranges[0].file] + ranges[0].begin
        end = self._bases[ranges[-1].file] + ranges[-1].begin + len(ranges[-1].target)
        if not self._most or 4 * num_bytes < 3 * (end - begin):
            return
        stream = self._stream_of(begin, end, num_bytes)
        vain = self._num_vain + sum(max(0, piece.left) for piece in self._pieces.values() if piece.stream is not stream)
        least_reads = _LEAST_READS // 2 if self._num_used > 8 * vain + _VAIN_BYTES else _LEAST_READS
        if not stream.is_order(least_reads) or 8 * (vain - _VAIN_BYTES) > self._num_read:
            return
        long_s = min(_LONG_S, self._client.options.deadline_s / 8)
        factor = 0.5 if stream.took_s > long_s else 2 if is_late and stream.took_s < long_s / 2 else 1
        stream.window = min(self._most, max(2 * (end - begin), int(stream.window * factor)))
        if not self._width:
            most = min(_MOST_BYTES, self._client.options.max_range_bytes, self._most // _LEAST_PIECES)
            self._width = max(1, min(most, max(_LEAST_BYTES, end - begin)))
        self._extend(stream)

    def _stream_of(self, begin: int, end: int, num_bytes: int) -> _Stream:
        """Find the stream that a read goes on, and forget pieces that were read, and those too far behind to be read."""
        slack = max(self._client.options.max_gap_bytes, _SLACK * (end - begin))
        stream = next((one for one in self._streams if abs(begin - one.position) <= slack), None) or _Stream(begin)
        self._streams = [stream, *(one for one in self._streams if one is not stream)][:_NUM_STREAMS]
        stream.go_on(end, num_bytes)
        for piece in list(self._pieces.values()):
            if piece.left <= 0 or piece.stream not in self._streams or (piece.stream is stream and piece.end <= stream.position - slack):
                self._give_up(piece)
        return stream

    def _extend(self, stream: _Stream) -> None:
        place, end = stream.position, min(stream.position + stream.window, self._bases[-1])
        while place < end:
            file = bisect_right(self._bases, place) - 1
            base, behind = self._bases[file], self._bases[file + 1]
            begin = base - (base - place) // self._width * self._width
            place = min(begin + self._width, behind)
            if begin < min(behind, end) and begin not in self._pieces and not self._start(stream, file, begin, place - begin):
                return

    def _start(self, stream: _Stream, file: int, begin: int, size: int) -> bool:
        """Fetch a piece if there is room; the oldest of other streams make some."""
        most = self._client.options.max_requests
        others = (piece for piece in list(self._pieces.values()) if piece.stream is not stream)
        while sum(len(piece.data) for piece in self._pieces.values()) + size > self._most:
            other = next(others, None)
            if other is None:
                return False
            self._give_up(other)
        # Half of the requests that may be in flight: others must not wait behind those ahead.
        if len(self._pieces) >= 2 * most or sum(not piece.is_done for piece in self._pieces.values()) >= max(1, most // 2):
            return False
        piece = _Piece(stream, begin, size, Turn(self._client, self._found[file][1].shown))
        self._client.submit(partial(self._fetch_piece, piece, file))
        self._pieces[begin] = piece
        return True

    def _fetch_piece(self, piece: _Piece, file: int) -> None:
        """Fetch a piece, in a thread of the client. An error is not reported: each read that needs the bytes asks for them again."""
        address, item = self._found[file]
        began_s = time.monotonic()
        piece.turn.deadline = began_s + self._client.options.deadline_s
        part = Part(item, piece.begin - self._bases[file], piece.data.data.cast("B"))

        def fetch() -> None:
            with self._client.watching(piece.turn):
                self._client.fetch(piece.turn, address, part)

        error = piece.turn.outcome_of(fetch)
        with self._lock:
            piece.error, piece.is_done = error, True
            piece.stream.took_s = time.monotonic() - began_s
            if error is not None and self._pieces.get(piece.begin) is piece:
                del self._pieces[piece.begin]
            for tell in piece.waiting:
                tell(None)

    def _give_up(self, piece: _Piece) -> None:
        """Forget a piece that no read waits for, and break it off if it is on its way."""
        if piece.is_done or not piece.waiting:
            self._num_vain += max(0, piece.left)
            del self._pieces[piece.begin]
            piece.turn.end()


class FoundObjects:
    """Objects with addresses that lead there, in 20 bytes each and their texts: there may be a million."""

    def __init__(self, found: Sequence[_Asked]) -> None:
        numbers = dict[Address, int]()
        self._address_of = np.array([numbers.setdefault(address._replace(key=""), len(numbers)) for address, _ in found], np.int32)
        self._addresses = list(numbers)
        texts = [f"{item.key}\0{item.etag}\0{item.modified}\0{item.is_young:d}".encode() for _, item in found]
        self._texts, self._ends = b"".join(texts), np.cumsum([0, *map(len, texts)])
        self.sizes = np.array([item.size for _, item in found], np.int64)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, file: int) -> _Asked:
        """Return address and object."""
        key, etag, modified, is_young = self._texts[self._ends[file] : self._ends[file + 1]].decode().split("\0")
        address = self._addresses[self._address_of[file]]._replace(key=key)
        return address, RemoteObject(key, address.shown, int(self.sizes[file]), etag, modified, is_young == "1")


class RemoteStorage:
    """See `Storage`. Reads of several threads share the threads that make requests, which end with this object or `close()`.

    Pickled, or used behind a fork, it makes new connections.

    Args:
        found: the objects, in their order.
        client: as it found them.
        options: as the user gave them.
        caller: the function that the user called, for errors.
    """

    def __init__(self, found: FoundObjects, client: Client | None, options: StorageOptions, caller: str) -> None:
        self._found = found
        self._options = options
        self._caller = caller
        self._is_closed = False
        self._here: dict[int, tuple[Client, ReadAhead]] = {}  # by process
        self._cache = BlockCache(options) if options.cache_dir is not None else None
        for file in range(len(found)) if self._cache is not None else ():
            size, *proofs = self.identity(file).values()
            if size and not any(proofs):
                raise SourceError(
                    f"{self.name(file)!r} has neither a strong ETag nor a Last-Modified 5 s old: a cache could not tell when it changes",
                    where=self.name(file),
                    fix="leave cache_dir out, or open it again when it is older",
                )
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
        return int(self._found.sizes[file])

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
        planned, starts = plan_ranges(files, offsets, lengths, options.max_gap_bytes, options.max_range_bytes, options.max_requests)
        total = sum(length for _, _, length in planned)
        out, place, ranges = take(scratch, total), 0, list[Range]()
        for file, begin, length in planned:
            ranges.append(Range(file, begin, out[place : place + length]))
            place += length
        self.fetch(ranges)
        return out, starts

    def fetch(self, ranges: Sequence[Range]) -> None:
        """Fill ranges, in the order of the objects; not from the cache.

        Raises:
            StorageError, ObjectChanged: as `read_spans`.
        """
        if ranges:
            self._in_this_process()[1].fetch(ranges)

    def cache_key(self, file: int) -> str:
        """Return the name of this version of an object in a cache."""
        address, found = self._found[file]
        identity = self.identity(file)
        endpoint = str(self._options.store.get("endpoint", ""))
        place = (address.scheme, address.host, str(address.port), endpoint, found.key)
        return "\n".join((*place, identity["etag"], identity["modified"], str(found.size)))

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

    def find(transport: Any, address: Address, turn: Turn) -> list[RemoteObject]:
        if not address.in_bucket or literal_prefix(address.key) is None:
            return [transport.find(address.key, turn)]
        return _checked(transport.find_all(address.key, turn), address, caller)

    return _open(addresses, find, options, caller)[0]


def open_named(urls: Sequence[str], options: StorageOptions, caller: str) -> tuple[RemoteStorage, Ints]:
    """Find the objects of a list of URLs, none of which is a pattern: by a request each, or a listing of a folder with many of them.

    Args:
        urls: in any order, some perhaps several times.
        options: as the user gave them.
        caller: the function that the user called, for errors.

    Returns:
        The objects as `open_remote`; and int64 [urls]: the number of each there, -1 where there is no such object.

    Raises:
        PlanError, StorageError, MissingExtra: as `open_remote`.
    """
    addresses = [parse_url(url, options, caller) for url in urls]
    folders = defaultdict[Address, set[str]](set)
    for address in filter(lambda address: address.in_bucket, addresses):
        folders[_folder_of(address)].add(address.key)
    listed = {folder: keys for folder, keys in folders.items() if len(keys) >= _MANY}
    asked = [*listed, *dict.fromkeys(address for address in addresses if _folder_of(address) not in listed)]

    def find(transport: Any, address: Address, turn: Turn) -> list[RemoteObject]:
        if address in listed:
            return list(transport.find_all(address.key, turn, listed[address]))
        try:
            return [transport.find(address.key, turn)]
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return []

    storage, numbers = _open(asked, find, options, caller)
    return storage, np.array([numbers.get((address.origin, address.key, address.user), -1) for address in addresses], np.int64)


def _folder_of(address: Address) -> Address:
    """Return the pattern of all objects of a folder."""
    return address._replace(key=f"{address.key.rpartition('/')[0]}/*".lstrip("/"))


def _open(
    addresses: Sequence[Address],
    find: Callable[[Any, Address, Turn], list[RemoteObject]],
    options: StorageOptions,
    caller: str,
) -> tuple[RemoteStorage, dict[tuple[Any, str, str], int]]:
    """Ask for all addresses, many at a time, each with a deadline of its own. `find` asks, in a thread of the client.

    Returns:
        The objects, and the number of each by its origin, key and user.
    """
    client, found = Client(options), list[_Asked]()

    def ask(address: Address) -> None:
        turn, transport = Turn(client, address.shown), client.transport(address)
        with client.watching(turn):
            items = persist(lambda: find(transport, address, turn), transport, lambda: repr(address.shown), turn)
        found.extend([(address, item) for item in items])

    try:
        for first in range(0, len(addresses), _AT_ONCE):
            turn = Turn(client, addresses[first].shown)
            turn.deadline = threading.TIMEOUT_MAX
            turn.run([partial(ask, address) for address in addresses[first : first + _AT_ONCE]])
        unique = {(address.origin, item.key, address.user): (address, item) for address, item in found}
        ordered = sorted(unique, key=lambda place: (unique[place][1].shown.encode(), place[1].encode()))
        storage = RemoteStorage(FoundObjects([unique[place] for place in ordered]), client, options, caller)
        return storage, {place: number for number, place in enumerate(ordered)}
    except BaseException:
        client.close()
        raise


def _checked(listed: list[RemoteObject], address: Address, caller: str) -> list[RemoteObject]:
    """Return what a pattern found.

    Raises:
        SourceError: it is nothing, or not all shards of "-of-00010".
    """
    if not listed:
        raise SourceError(f"no object matches {address.shown!r}", where=caller, fix="check bucket, folder and pattern")
    for lacking in missing_shards([item.key for item in listed]):
        if key_matcher(address.key).fullmatch(lacking):
            raise SourceError(
                f"shard {lacking!r} is missing; {len(listed)} objects match {address.shown!r}",
                where=caller,
                fix="get the missing object, or name those that you want",
            )
    return listed
