"""From the bytes of samples to their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.tar_errors import scan_error, tar_error
from penstock.kernels.tar import Table, scan_samples
from penstock.kernels.tar_codes import Column, Outcome, Place

__all__ = ["Names", "Sample", "split_samples"]

_KNOWN_FIELDS = 4096
_OTHER_BYTES = (
    "get another copy of the file; if it was changed on purpose, open the dataset again, "
    "and if it kept its time, build its index again (`penstock index --rebuild FILE`)"
)


class Sample(NamedTuple):
    """One sample, not yet copied."""

    key: str
    """Bytes that are no UTF-8 stand as surrogates, as in Python's own file names."""
    fields: dict[str, memoryview | bytes]
    """Extension in lower case (ASCII letters) -> read-only bytes, in the order of the file."""


class Names:
    """The names of fields that came before: there are few of them, and the text of each is made once. From any thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def __getitem__(self, name: bytes) -> str:
        text = self._known.get(name)
        if text is None:
            text = name.lower().decode("utf-8", "surrogateescape")
            if len(self._known) < _KNOWN_FIELDS:
                self._known[name] = text
        return text


def split_samples(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    crcs: NDArray[np.uint32] | None,
    names: Names,
    samples: list[Sample],
    place: Callable[[int], tuple[str, int]],
) -> RecordError | None:
    """Take samples apart.

    Args:
        data: uint8 [m].
        begins: int64 [n], where each sample begins in `data`.
        lengths: int64 [n], in bytes.
        crcs: uint32 [n], what the index says of each; None: not to be checked.
        names: of fields.
        samples: one per begin is appended, up to the first that is bad; their bytes are views of `data`.
        place: tells file and offset of a sample by its number among these, for errors.

    Returns:
        What is wrong with the first bad one, None when all are good.
    """
    table = Table(with_crc=crcs is not None)
    ends = np.empty(begins.size, np.int64)
    outcome = scan_samples(data, begins, lengths, table, ends)
    num_good = begins.size if outcome == Outcome.MORE else int(table.state[Place.SAMPLE])
    error = None
    if crcs is not None and num_good:
        wrong = np.flatnonzero(table.rows[ends[:num_good] - 1, Column.CRC] != crcs[:num_good])
        if wrong.size:
            num_good = int(wrong[0])
            error = tar_error(
                "the bytes of the sample are not those that the index was built of: their check sum differs",
                *place(num_good),
                fix=_OTHER_BYTES,
            )
    if error is None and num_good < begins.size:
        file, offset = place(num_good)
        table.state[Place.ERROR_AT] += offset
        error = scan_error(outcome, table, file, None)
    _append(data, table, ends[:num_good], names, samples)
    return error


def _append(data: NDArray[np.uint8], table: Table, ends: NDArray[np.int64], names: Names, samples: list[Sample]) -> None:
    num_rows = int(ends[-1]) if ends.size else 0
    rows = table.rows[:num_rows, [Column.DATA, Column.SIZE, Column.NAME_END, Column.KEY_LENGTH]].tolist()
    letters = table.names[: rows[-1][2] if rows else 0].tobytes()
    view = data.data.toreadonly()
    row = begin = 0
    for end in ends.tolist():
        key = letters[begin : begin + rows[row][3]].decode("utf-8", "surrogateescape")
        fields: dict[str, memoryview | bytes] = {}
        for start, size, name_end, key_length in rows[row:end]:
            fields[names[letters[begin + key_length + 1 : name_end]]] = view[start : start + size]
            begin = name_end
        samples.append(Sample(key, fields))
        row = end
