"""Tar files made by hand, so that anything can be wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

END = bytes(1024)


def header(
    name: bytes,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    checksum: bytes | None = None,
    signed: bool = False,
) -> bytes:
    """One block of header; `size` as bytes is the field itself."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    start = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field + b"00000000000\0"
    end = kind + bytes(100) + magic.ljust(8, b"\0") + bytes(80) + prefix.ljust(155, b"\0") + bytes(12)
    total = sum(byte - 256 * (signed and byte > 127) for byte in start + b" " * 8 + end)
    return start + (b"%06o\0 " % total if checksum is None else checksum) + end


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def member(name: bytes, data: bytes = b"", kind: bytes = b"0", **how: object) -> bytes:
    return header(name, len(data), kind, **how) + padded(data)  # type: ignore[arg-type]


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    """An extended header with "LENGTH key=value" lines."""
    lines = b""
    for key, value in records:
        rest = b" " + key + b"=" + value + b"\n"
        length = next(number for number in range(10**6) if len(str(number)) + len(rest) == number)
        lines += str(length).encode() + rest
    return member(b"././@PaxHeader", lines, kind)


def sample(key: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    return b"".join(member(key + b"." + field, data) for field, data in fields.items())


def pieces(data: bytes, size: int = 1 << 22) -> list[NDArray[np.uint8]]:
    """The bytes in pieces that are arrays of their own."""
    return [np.frombuffer(data[start : start + size], np.uint8).copy() for start in range(0, len(data), size)]
