"""A line of JSON becomes a value, or declared fields, or RecordError."""

from __future__ import annotations

import numpy as np
import running

from penstock.errors import RecordError
from penstock.formats.index import Index, joined
from penstock.sources.records import RecordTable
from penstock.sources.text import JsonLines

_DTYPES = (None, np.dtype(np.float32), np.dtype(np.int16), np.dtype(np.uint64), np.dtype(bool))
_ONE = {"offsets": np.zeros(1, np.int64), "lengths": np.zeros(1, np.int64)}


def one_input(data: bytes) -> None:
    """Decode; the first byte says what is declared."""
    if not data:
        return
    kind = data[0] % 6
    format = JsonLines(None if kind == 5 else (("a", _DTYPES[kind]), ("b", None)), bool(data[0] & 128), 1 << 20)
    index = Index(kind="jsonl", options={}, size=len(data), crc32c=0, columns=_ONE)
    table = RecordTable(indices=joined([index], ["fuzz.jsonl"]), names=["fuzz.jsonl"])
    try:
        format.decode(memoryview(data)[1:], table, 0)
    except RecordError as error:
        if "line 1 of" not in error.where:
            raise AssertionError("the error names no line") from error


if __name__ == "__main__":
    running.run(one_input)
