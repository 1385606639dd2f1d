"""Where the records of an uncompressed TFRecord file lie, found by its headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.formats.tfrecord_errors import frame_error
from penstock.kernels.framing import HEADER_BYTES, FrameStatus, scan_frames

__all__ = ["Spans", "scan_headers"]

_CAPACITY = 1 << 16
_INT64 = np.int64


class Spans(NamedTuple):
    """Frames of a file: header, data and check sums."""

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def scan_headers(pieces: Iterable[NDArray[np.uint8]], size: int, name: str) -> Spans:
    """Find the frames of a file. Of each, only the length and its check sum are looked at: data are checked when they are read.

    Args:
        pieces: the bytes of the file in order, uint8 [some]; each is valid until the next is asked for.
        size: bytes of the file.
        name: of the file, for errors.

    Raises:
        RecordError: a header that is none, or a frame that reaches beyond the end; with record number and offset.
    """
    found = list(_spans(pieces, size, name))
    empty = np.empty(0, _INT64)
    return Spans(*(np.concatenate([empty, *(spans[part] for spans in found)]) for part in (0, 1)))


def _spans(pieces: Iterable[NDArray[np.uint8]], size: int, name: str) -> Iterator[Spans]:
    offsets, lengths = np.empty(_CAPACITY, _INT64), np.empty(_CAPACITY, _INT64)
    position = number = begin = 0  # of the next frame; number of it; of the piece
    carried = np.empty(0, np.uint8)  # the first bytes of a header that reaches into the next piece
    for piece in pieces:
        data, start = piece, begin
        begin += piece.size
        if carried.size:
            data, start = np.concatenate((carried, piece)), start - carried.size
        while position < begin:
            rest = data[position - start :]
            scan = scan_frames(rest, offsets, lengths, left=size - position, whole=False, base=position)
            if scan.num_frames:
                yield Spans(offsets[: scan.num_frames].copy(), lengths[: scan.num_frames].copy())
            number += scan.num_frames
            position += scan.position
            if scan.status not in (FrameStatus.GOOD, FrameStatus.MORE, FrameStatus.FULL):
                head = rest[scan.position : scan.position + HEADER_BYTES].tobytes()
                raise frame_error(scan.status, head, name=name, record=number, offset=position, left=size - position)
            if scan.status is FrameStatus.MORE:
                break
        carried = data[max(0, position - start) :].copy() if position < begin else carried[:0]
