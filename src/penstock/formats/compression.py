"""Compressed files of records: GZIP and ZLIB streams, written with the same bytes every time and read piece by piece."""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol

from penstock.errors import PlanError, RecordError

__all__ = ["COMPRESSIONS", "READ_BYTES", "Compressor", "Decompressed", "Readable", "check_compression", "looks_like"]

COMPRESSIONS: Final = (None, "GZIP", "ZLIB")
_WINDOW_BITS: Final = {"GZIP": 31, "ZLIB": 15}
_GZIP_MAGIC: Final = b"\x1f\x8b"
READ_BYTES: Final = 1 << 16
"""Of a compressed stream, read at a time."""
_GIVE_BYTES = 1 << 20


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


def check_compression(compression: Any, where: str, *more: str) -> None:
    """Refuse what is no compression.

    Raises:
        PlanError: with what it may be.
    """
    allowed = (*COMPRESSIONS, *more)
    if compression not in allowed:
        raise PlanError(
            f"compression={compression!r} is unknown",
            where=where,
            fix=f"give one of {', '.join(map(repr, allowed))}, upper case as in TFRecord",
        )


def looks_like(head: bytes) -> str | None:
    """Return "GZIP" or "ZLIB" when the first bytes of a file are those of one. Of other files, one in 1,000 looks like ZLIB."""
    if head[:3] == b"\x1f\x8b\x08":
        return "GZIP"
    if len(head) >= 2 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and not head[1] & 0x20 and (head[0] << 8 | head[1]) % 31 == 0:
        return "ZLIB"
    return None


class Compressor:
    """Compress a stream: no time stamp, no name; the same bytes from the same zlib. Not thread-safe."""

    def __init__(self, compression: str, level: int = 6) -> None:
        self._stream = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[compression])

    def add(self, data: bytes) -> bytes:
        """Return what is ready."""
        return self._stream.compress(data)

    def finish(self) -> bytes:
        """Return the rest."""
        return self._stream.flush()


class Decompressed:
    """Read a compressed stream piece by piece; memory stays within some MB, whatever it decompresses to.

    Several GZIP members behind each other are one stream, as gzip has it. Not thread-safe.

    Args:
        stream: compressed bytes.
        compression: "GZIP" or "ZLIB".
        name: of the file, for errors.
    """

    def __init__(self, stream: Readable, compression: str, name: str) -> None:
        self._stream = stream
        self._compression = compression
        self._name = name
        self._inflate = zlib.decompressobj(_WINDOW_BITS[compression])
        self._given: bytes = b""
        self._more, self._at_start = False, True
        self.num_in = 0
        """Compressed bytes taken so far."""
        self.num_out = 0
        """Bytes given so far."""

    def read(self, size: int) -> bytes:
        """Return up to `size` decompressed bytes; none at the end.

        Raises:
            RecordError: the stream is damaged, cut, or has something else behind it.
        """
        while True:
            if not self._given and not self._more:
                self._given = self._stream.read(READ_BYTES)
                self.num_in += len(self._given)
                if not self._given:
                    return self._end()
            if self._inflate.eof:
                self._next_member()
            out = self._some(min(size, _GIVE_BYTES))
            if out:
                self.num_out += len(out)
                return out

    def _some(self, size: int) -> bytes:
        try:
            out = self._inflate.decompress(self._given, size)
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        self._at_start = False
        # All input may be taken in while output still waits inside, because there was no room for it.
        self._more = len(out) == size and not self._inflate.eof
        self._given = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return out

    def _next_member(self) -> None:
        if self._compression != "GZIP" or (self._given[:2] != _GZIP_MAGIC[: len(self._given)]):
            raise self._damaged(f"it is complete, and {self._given[:8].hex(' ')} ... stands behind it")
        self._inflate = zlib.decompressobj(_WINDOW_BITS[self._compression])

    def _end(self) -> bytes:
        if not self._inflate.eof:
            raise self._damaged("it ends before its own end mark: the file is cut" if self.num_in else "the file has 0 bytes")
        return b""

    def _damaged(self, problem: str) -> RecordError:
        if self._given and self._at_start:
            kind = looks_like(self._given)
            if kind != self._compression:
                looks = f"this looks like {kind}" if kind else f"this does not look like {self._compression}"
                return RecordError(
                    f"{self._name!r} begins with {self._given[:4].hex(' ')}: {looks}",
                    where=f"{self._name!r}, offset 0",
                    fix=f'give compression={kind!r}, or "auto"',
                )
        return RecordError(
            f"the {self._compression} stream of {self._name!r} is damaged behind {self.num_out} decompressed bytes: {problem}",
            where=f"{self._name!r}, in the first {self.num_in} bytes",
            fix="write the file again, or get another copy of it; what stands before the damage can be read",
        )
