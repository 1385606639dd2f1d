"""Lines of text, in pieces of any size: the same as Python splits them, or RecordError."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import running
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.formats.linescan import BOM, Rules, line_number, scan_lines

_SKIPS = ("none", "empty", "blank")


def pieces(data: bytes, size: int) -> Iterator[NDArray[np.uint8]]:
    """Cut a file; the first piece shows what kind of file it is."""
    array = np.frombuffer(data, np.uint8)
    yield array[: max(size, 8)]
    for begin in range(max(size, 8), len(data), size):
        yield array[begin : begin + size]


def one_input(data: bytes) -> None:
    """Scan; the first byte says how."""
    if not data:
        return
    rules = Rules(skip=_SKIPS[data[0] % 3], max_line_bytes=40 if data[0] & 64 else 1 << 20)
    size, text = 1 + (data[0] >> 2) % 16, data[1:]
    try:
        found = scan_lines(pieces(text, size), "fuzz.txt", rules)
    except RecordError:
        return
    begin = len(BOM) if text.startswith(BOM) else 0
    expected, number = [], 0
    while begin < len(text):
        end = text.find(b"\n", begin)
        end = len(text) if end < 0 else end
        number += 1
        line = text[begin:end]
        if rules.skip == "none" or (line.strip() if rules.skip == "blank" else line not in (b"", b"\r")):
            expected.append((begin, end - begin, number))
        begin = end + 1
    numbers = [line_number(found, record) for record in range(len(found["offsets"]))]
    if list(zip(found["offsets"].tolist(), found["lengths"].tolist(), numbers, strict=True)) != expected:
        raise AssertionError(f"{found} is not {expected}")


if __name__ == "__main__":
    running.run(one_input)
