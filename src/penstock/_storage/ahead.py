"""Reading ahead: where objects are read in order, what comes next is on its way before it is asked for.

A block of records in order is a few requests, and the next block is asked for when a worker is free: a store that answers late would set
the pace. So reads that follow each other make a stream, and ranges ahead of it are fetched into memory: few at first, twice as many each
time that a read has to wait, at most `read_ahead_bytes`. Reads in no order make no stream, and cost nothing but the look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._storage.client import Client, together
from penstock._storage.parts import KeptPart, Part, RemoteObject
from penstock._storage.retrying import Turn
from penstock._storage.urls import Address

if TYPE_CHECKING:
    import asyncio

__all__ = ["Copy", "Range", "ReadAhead"]

_LEAST_PIECE, _LEAST_WINDOW = 256 << 10, 1 << 20
_NUM_STREAMS = 16
_NUM_PIECES = 4
"""A window is so many requests, as far as they may be that small or that large."""
_SLACK = 8
"""So many blocks may be read out of turn, by workers side by side."""
_PAUSE = 64
"""So many reads of a stream go by without reading ahead when what was fetched was not wanted."""
_IDLE_S = 60.0


class Range(NamedTuple):
    """Bytes of an object from `begin` on, to fill `target`, uint8 [n]."""

    file: int
    begin: int
    target: NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class _Piece:
    """Bytes on their way, or there; places are those in all objects, one behind the other. `left` of them nobody has asked for."""

    begin: int
    part: KeptPart
    task: asyncio.Future[Any]
    left: int

    @property
    def size(self) -> int:
        return self.part.size

    @property
    def end(self) -> int:
        return self.begin + self.part.size


class Copy(NamedTuple):
    """What is still to be done when the bytes have come: `part.copy(begin, target)`."""

    part: KeptPart
    begin: int
    target: NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class _Stream:
    """Reads that follow each other: the furthest place that one of them reached, and what is fetched ahead of it."""

    position: int
    num_reads: int = 0
    window: int = 0
    front: int = 0
    pieces: deque[_Piece] = field(default_factory=deque)


class ReadAhead:
    """The streams of a storage in one process. All of it runs in the loop of the client, so nothing is locked.

    Args:
        found: the objects, in their order.
        client: fetches.
    """

    def __init__(self, found: Sequence[tuple[Address, RemoteObject]], client: Client) -> None:
        self._found, self._client = found, client
        self._bases = [0, *accumulate(item.size for _, item in found)]
        self._most = client.options.read_ahead_bytes
        self._streams: list[_Stream] = []  # the one that was used last stands last
        self._used_s = 0.0
        self._is_watched = False

    async def fetch(self, turn: Turn, ranges: Sequence[Range]) -> list[Copy]:
        """Fill ranges, in the order of the objects; return what the caller has to copy.

        Raises:
            StorageError, ObjectChanged: as `Client.fetch`; also of a range that was fetched ahead, when it is asked for.
        """
        import asyncio

        copies: list[Copy] = []
        works: list[Any] = []
        is_late = False
        for file, begin, target in ranges:
            base = self._bases[file]
            place, end = base + begin, base + begin + len(target)
            for piece in self._pieces_in(place, end):
                low, high = max(place, piece.begin), min(end, piece.end)
                works += self._direct(turn, file, place, target[place - base - begin : low - base - begin])
                copies.append(Copy(piece.part, low - base, target[low - base - begin : high - base - begin]))
                is_late = is_late or not piece.task.done()
                works.append(asyncio.shield(piece.task))
                piece.left -= high - low
                place = high
            rest = self._direct(turn, file, place, target[place - base - begin :])
            is_late, works = is_late or bool(rest), works + rest
        self._go_on(ranges, is_late)
        await together(works)
        return copies

    def _direct(self, turn: Turn, file: int, place: int, target: NDArray[np.uint8]) -> list[Any]:
        if not len(target):
            return []
        address, item = self._found[file]
        return [self._client.fetch(turn, address, Part(item, place - self._bases[file], target.data.cast("B")))]

    def _pieces_in(self, begin: int, end: int) -> list[_Piece]:
        """Return what lies between two places, by their beginnings; pieces do not overlap."""
        found = [piece for stream in self._streams for piece in stream.pieces if piece.begin < end and begin < piece.end]
        return sorted(found, key=lambda piece: piece.begin)

    def _go_on(self, ranges: Sequence[Range], is_late: bool) -> None:
        """Find the stream of a read, and see to what comes behind it."""
        places = [(self._bases[file] + begin, self._bases[file] + begin + len(target)) for file, begin, target in ranges]
        gap = self._client.options.max_gap_bytes
        if not self._most or any(not 0 <= later[0] - earlier[1] <= gap for earlier, later in pairwise(places)):
            return
        begin, end = places[0][0], places[-1][1]
        slack = max(gap, _SLACK * (end - begin))
        stream = next((one for one in reversed(self._streams) if abs(begin - one.position) <= slack), None)
        if stream is None:
            stream = _Stream(position=end)
        else:
            self._streams.remove(stream)
        self._streams = [*self._streams[-_NUM_STREAMS:], stream]
        if end > stream.position or not stream.num_reads:
            stream.num_reads += 1
        stream.position = max(stream.position, end)
        self._forget_behind(stream, stream.position - slack)
        if stream.num_reads > 1:
            least = min(self._most, max(_LEAST_WINDOW, 4 * (end - begin)))
            stream.window = min(self._most, max(least, stream.window * (2 if is_late else 1)))
            self._extend(stream)

    def _extend(self, stream: _Stream) -> None:
        options = self._client.options
        piece_bytes = min(options.max_range_bytes, max(stream.window // _NUM_PIECES, _LEAST_PIECE))
        place, end = max(stream.position, stream.front), min(stream.position + stream.window, self._bases[-1])
        file = int(np.searchsorted(self._bases, place, side="right")) - 1
        while place < end:
            while self._bases[file + 1] <= place:
                file += 1
            others = self._pieces_in(place, place + 1)
            if others:  # another stream's
                place = others[0].end
                continue
            size = min(piece_bytes, self._bases[file + 1] - place)
            size = min([size, *(piece.begin - place for piece in self._pieces_in(place, place + size))])
            if not self._make_room(stream, size):
                break
            stream.pieces.append(self._start(stream, file, place, size))
            place += size
        stream.front = place

    def _start(self, stream: _Stream, file: int, place: int, size: int) -> _Piece:
        import asyncio

        address, item = self._found[file]
        part = KeptPart(item, place - self._bases[file], size)
        task = asyncio.ensure_future(self._client.limited(lambda client, turn: client.fetch(turn, address, part), item.shown))
        piece = _Piece(begin=place, part=part, task=task, left=size)

        def look(done: asyncio.Future[Any]) -> None:
            # Who waits for it is told. Nobody else is: a read that comes to these bytes asks for them itself.
            if (done.cancelled() or done.exception() is not None) and piece in stream.pieces:
                stream.pieces.remove(piece)

        task.add_done_callback(look)
        self._watch()
        return piece

    def _make_room(self, stream: _Stream, size: int) -> bool:
        """Forget pieces of other streams, of those first that were used longest ago, until `size` bytes more may be held."""
        held = sum(piece.size for one in self._streams for piece in one.pieces)
        for other in self._streams:
            while held + size > self._most and other is not stream and other.pieces:
                held -= other.pieces.popleft().size
        return held + size <= self._most

    @staticmethod
    def _forget_behind(stream: _Stream, place: int) -> None:
        """Forget what was read, and what lies so far behind that nobody will. One of which nothing was read: this was no order."""
        behind = [piece for piece in stream.pieces if piece.end <= place]
        if any(piece.left == piece.size for piece in behind):
            stream.num_reads, stream.window = -_PAUSE, 0
        stream.pieces = deque(piece for piece in stream.pieces if piece.left > 0 and piece.end > place)

    def _watch(self) -> None:
        """Forget everything when nobody reads for a minute."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._used_s = loop.time()
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(_IDLE_S, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        left_s = self._used_s + _IDLE_S - loop.time()
        self._is_watched = left_s > 0
        if self._is_watched:
            loop.call_later(left_s, self._look, loop)
        else:
            self._streams.clear()
