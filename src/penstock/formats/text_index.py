"""Text indices of TFRecord files, as `tfrecord2idx` of DALI and NVTabular writes them: a line "offset size" for each record."""

from __future__ import annotations

import numpy as np

from penstock.errors import IndexStale, RecordError
from penstock.formats.tfrecord_scan import Spans
from penstock.kernels.framing import FRAME_BYTES

__all__ = ["parse_text_index"]

_MOST_DIGITS = 18


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
    lines = text.splitlines()
    numbers = [line.split() for line in lines]
    for row, (line, parts) in enumerate(zip(lines, numbers, strict=True)):
        if len(parts) != 2 or not all(part.isdigit() and len(part) <= _MOST_DIGITS for part in parts):
            raise RecordError(
                f"line {row + 1} of the index {name!r} is {line[:40]!r}, not an offset and a size",
                where=f"{name!r}, line {row + 1}",
                fix="write it again with tfrecord2idx, or leave out index= for an index of Penstock's own",
            )
    if not lines:
        raise RecordError(
            f"the index {name!r} of {file_name!r} is empty",
            where=f"{name!r}",
            fix="write it again, or leave out index= for one of Penstock's",
        )
    table = np.array(numbers, np.int64)
    offsets, lengths = table[:, 0].copy(), table[:, 1].copy()
    ends = offsets + lengths
    wrong = np.flatnonzero((offsets != np.concatenate(([0], ends[:-1]))) | (lengths < FRAME_BYTES) | (ends > file_size))
    if wrong.size:
        row = int(wrong[0])
        before = f"the record before ends at {int(ends[row - 1])}" if row else "the first record is at 0"
        raise _stale(f"record {row} at {offsets[row]}, {lengths[row]} bytes; {before}", name, file_name, file_size, row)
    if ends[-1] != file_size:
        raise _stale(f"{len(lines)} records that end at {ends[-1]}", name, file_name, file_size, len(lines) - 1)
    return Spans(offsets, lengths)


def _stale(what: str, name: str, file_name: str, file_size: int, row: int) -> IndexStale:
    return IndexStale(
        f"the index {name!r} does not fit {file_name!r} of {file_size} bytes: it says {what}",
        where=f"{name!r}, line {row + 1}",
        fix="write the index again if the file is whole; if the file was cut, get another copy of it",
    )
