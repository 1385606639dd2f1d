"""Where the records of an uncompressed TFRecord file lie, found by its headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.formats.compression import looks_like
from penstock.formats.tfrecord_errors import frame_error
from penstock.kernels.framing import HEADER_BYTES, FrameStatus, find_frame, scan_frames

__all__ = ["Spans", "scan_headers"]

_CAPACITY = 1 << 16


class Spans(NamedTuple):
    """Frames of a file: header, data and check sums."""

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def scan_headers(pieces: Iterable[NDArray[np.uint8]], size: int, name: str, *, resync: bool = False) -> Spans:
    """Find the frames of a file. Of each, only the length and its check sum are looked at: data are checked when they are read.

    Args:
        pieces: the bytes of the file in order, uint8 [some]; each is valid until the next is asked for.
        size: bytes of the file.
        name: of the file, for errors.
        resync: go on behind a header that is none. What stands there up to the next header is one span, which is no good frame.

    Raises:
        RecordError: a header that is none, or a frame that reaches beyond the end; with record number and offset. With `resync` only when
            the file begins as a GZIP file does.
    """
    scan = _Headers(size, name, resync)
    found: list[Spans] = []
    carried = np.empty(0, np.uint8)  # the first bytes of a header that reaches into the next piece
    begin = 0
    for piece in pieces:
        data = np.concatenate((carried, piece)) if carried.size else piece
        start, begin = begin - carried.size, begin + piece.size
        found.extend(scan.feed(data, start))
        carried = data[scan.position - start :].copy() if scan.position < begin else carried[:0]
    found.extend(scan.finish())
    empty = np.empty(0, np.int64)
    return Spans(*(np.concatenate([empty, *(spans[part] for spans in found)]) for part in (0, 1)))


class _Headers:
    """Goes from header to header. `position` is that of the next one, in the file; the bytes before it are not needed any more."""

    def __init__(self, size: int, name: str, resync: bool) -> None:
        self.position = 0
        self._size, self._name, self._resync = size, name, resync
        self._number = 0
        self._damaged_from = -1
        self._offsets, self._lengths = np.empty(_CAPACITY, np.int64), np.empty(_CAPACITY, np.int64)

    def feed(self, data: NDArray[np.uint8], start: int) -> Iterator[Spans]:
        """Go through the bytes of the file from `start` on, until it needs more."""
        while self.position < start + data.size:
            if self._damaged_from >= 0:
                place = find_frame(data, self.position - start, left=self._size - start)
                self.position = start + place
                if data.size - place < HEADER_BYTES:
                    return
                yield self._damage(self.position)
            rest = data[self.position - start :]
            scan = scan_frames(rest, self._offsets, self._lengths, left=self._size - self.position, whole=False, base=self.position)
            if scan.num_frames:
                yield Spans(self._offsets[: scan.num_frames].copy(), self._lengths[: scan.num_frames].copy())
            self._number += scan.num_frames
            self.position += scan.position
            if scan.status is FrameStatus.MORE:
                return
            if scan.status not in (FrameStatus.GOOD, FrameStatus.FULL):
                self._bad(scan.status, rest[scan.position : scan.position + HEADER_BYTES].tobytes())

    def finish(self) -> Iterator[Spans]:
        """Give what is left at the end of the file."""
        if self._damaged_from >= 0:
            yield self._damage(self._size)

    def _bad(self, status: FrameStatus, head: bytes) -> None:
        if not self._resync or (self.position == 0 and looks_like(head) == "GZIP"):
            left = self._size - self.position
            raise frame_error(status, head, name=self._name, record=self._number, offset=self.position, left=left)
        self._damaged_from = self.position
        self.position += 1

    def _damage(self, end: int) -> Spans:
        """Make what begins at the damage one span."""
        span = Spans(np.array([self._damaged_from]), np.array([end - self._damaged_from]))
        self._number += 1
        self._damaged_from = -1
        return span
