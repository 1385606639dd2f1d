"""Text indices of TFRecord files, as `tfrecord2idx` of DALI and NVTabular writes them: a line "offset size" for each record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from penstock.errors import IndexStale, RecordError
from penstock.formats.tfrecord_scan import Spans
from penstock.kernels.framing import FRAME_BYTES

__all__ = ["parse_text_index"]

_MOST_DIGITS = 18
_PIECE_BYTES = 1 << 18


def parse_text_index(text: bytes, *, name: str, file_name: str, file_size: int) -> Spans:
    """Read a text index and check it against its file: the frames stand side by side and fill the file.

    Args:
        text: of the index.
        name: of the index, for errors.
        file_name: of the described file.
        file_size: bytes of the described file.

    Raises:
        RecordError: the index is empty, or a line is no "offset size"; with its number.
        IndexStale: the records do not fill the file, so it is another one, or one of both was cut.
    """
    tables, num_rows = [], 0
    for piece in _pieces(text):
        table = _numbers(piece)
        tables.append(_numbers_by_line(piece, name, num_rows) if table is None else table)
        num_rows += len(tables[-1])
    if not num_rows:
        raise RecordError(
            f"the index {name!r} of {file_name!r} is empty",
            where=f"{name!r}",
            fix="write it again, or leave out index= for one of Penstock's",
        )
    offsets, lengths = (np.concatenate([table[:, column] for table in tables]) for column in (0, 1))
    ends = offsets + lengths
    wrong = np.flatnonzero((offsets != np.concatenate(([0], ends[:-1]))) | (lengths < FRAME_BYTES) | (ends > file_size))
    if wrong.size:
        row = int(wrong[0])
        before = f"the record before ends at {int(ends[row - 1])}" if row else "the first record is at 0"
        raise _stale(f"record {row} at {offsets[row]}, {lengths[row]} bytes; {before}", name, file_name, file_size, row)
    if ends[-1] != file_size:
        raise _stale(f"{num_rows} records that end at {ends[-1]}", name, file_name, file_size, num_rows - 1)
    return Spans(offsets, lengths)


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut the text behind line feeds: what is made of a piece on the way to its numbers takes many times its size."""
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + _PIECE_BYTES) + 1 or text.find(b"\n", begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _numbers(piece: bytes) -> NDArray[np.int64] | None:
    """Read lines that are exactly two numbers with a space between: int64 [lines, 2]; None where a line is anything else."""
    data = np.frombuffer(piece if piece.endswith(b"\n") else piece + b"\n", np.uint8)
    digits = data - np.uint8(ord("0"))  # all else is more than 9
    edges = np.flatnonzero(np.diff(digits < 10, prepend=False))
    starts, ends = edges[::2], edges[1::2]
    if len(starts) % 2 or not len(starts) or starts[0]:
        return None
    # Behind a first number a space, behind a second one the end of the line.
    spaces, line_ends = ends[::2], ends[1::2]
    line_ends = line_ends + (data[line_ends] == ord("\r"))
    nexts = np.append(starts[2::2], len(data))
    if line_ends[-1] >= len(data) or (data[spaces] != ord(" ")).any() or (data[line_ends] != ord("\n")).any():
        return None
    if (starts[1::2] != spaces + 1).any() or (nexts != line_ends + 1).any():
        return None
    sizes = ends - starts
    longest = int(sizes.max())
    if longest > _MOST_DIGITS:
        return None
    values = np.zeros(len(starts), np.int64)
    for place in range(longest):
        there = sizes > place
        values[there] = values[there] * 10 + digits[starts[there] + place]
    return values.reshape(-1, 2)


def _numbers_by_line(piece: bytes, name: str, before: int) -> NDArray[np.int64]:
    """Read lines that have other space in them, or are none; `before` others stand in front of them.

    Raises:
        RecordError: one is no "offset size".
    """
    rows = []
    for row, line in enumerate(piece.splitlines(), before):
        parts = line.split()
        if len(parts) != 2 or not all(part.isdigit() and len(part) <= _MOST_DIGITS for part in parts):
            raise RecordError(
                f"line {row + 1} of the index {name!r} is {line[:40]!r}, not an offset and a size",
                where=f"{name!r}, line {row + 1}",
                fix="write it again with tfrecord2idx, or leave out index= for an index of Penstock's own",
            )
        rows.append((int(parts[0]), int(parts[1])))
    return np.array(rows, np.int64)


def _stale(what: str, name: str, file_name: str, file_size: int, row: int) -> IndexStale:
    return IndexStale(
        f"the index {name!r} does not fit {file_name!r} of {file_size} bytes: it says {what}",
        where=f"{name!r}, line {row + 1}",
        fix="write the index again if the file is whole; if the file was cut, get another copy of it",
    )
