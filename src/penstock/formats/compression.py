"""Compressed streams: recognised by name and first bytes, written with the same bytes every time, and read piece by piece."""

from __future__ import annotations

import importlib
import os
import sys
import zlib
from typing import Any, Final, NamedTuple, Protocol, Self

from penstock.errors import MissingExtra, PlanError, RecordError
from penstock.kernels.library import Ints

COMPRESSIONS: Final = (None, "GZIP", "ZLIB")
"""Of TFRecord files."""
WINDOW_BITS: Final = {"GZIP": 31, "ZLIB": 15}
_MARKS: Final = {
    "GZIP": (b"\x1f\x8b",),
    "BZIP2": (b"BZh",),
    "XZ": (b"\xfd7zXZ\0",),
    # Frames that are to be skipped have 16 marks of their own; pzstd and the seekable format write them.
    "ZSTD": (b"\x28\xb5\x2f\xfd", *(bytes((number, 0x2A, 0x4D, 0x18)) for number in range(0x50, 0x60))),
}
_SUFFIXES: Final = {
    ".gz": "GZIP",
    ".tgz": "GZIP",
    ".zst": "ZSTD",
    ".tzst": "ZSTD",
    ".bz2": "BZIP2",
    ".tbz2": "BZIP2",
    ".xz": "XZ",
    ".txz": "XZ",
}
STREAM_FIX: Final = "or let its name say so (.gz, .zst, .bz2, .xz): then it is read as a stream"
READ_BYTES: Final = 1 << 16
"""Of a compressed stream, read at a time."""
_GIVE_BYTES = 1 << 20
_ZSTD_BYTES = 4096
"""Of input at a time: 128 MB of output at most, for zeros."""


class PlainPart(NamedTuple):
    """Records of a stream that were found side by side.

    Attributes:
        base: where `data` begins in the file.
        data: the bytes of these records, and what is between them.
        begins: where each record begins in the file.
        ends: where each ends.
        numbers: the line that each begins in, from 1 on; of other formats, which record it is.
    """

    base: int
    data: bytes
    begins: Ints
    ends: Ints
    numbers: Ints


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""


class Writable(Protocol):
    """A file that takes bytes."""

    def write(self, data: bytes, /) -> Any:
        """Take all of them."""


class FileWriter:
    """Writes to a file object, which it leaves open; `with` closes the writer.

    Attributes:
        num_bytes: bytes written, without what a compressor still holds.
    """

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._is_closed = False
        self.num_bytes = 0

    def close(self) -> None:
        """Write the end; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._put(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def _end(self) -> bytes:
        """Return what ends the file."""
        return b""

    def _put(self, data: Any) -> None:
        if len(data):
            self._file.write(data)
            self.num_bytes += len(data)


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


def compression_of_name(name: str) -> str | None:
    """Return the compression that a file's name says, such as "ZSTD" for a.jsonl.zst; None for none."""
    return _SUFFIXES.get(os.path.splitext(name)[1].lower())


def compression_of_head(head: bytes) -> str | None:
    """Return the compression that the first bytes of a file tell; None where they tell none. ZLIB has no mark."""
    return next((kind for kind, marks in _MARKS.items() if head.startswith(marks)), None)


class Decompressed:
    """Read a compressed stream piece by piece; memory stays within some MB, whatever it decompresses to.

    Several members behind each other are one stream, as the programs have it; not those of ZLIB. Not thread-safe.

    Args:
        stream: compressed bytes.
        compression: "GZIP", "ZLIB", "BZIP2", "XZ" or "ZSTD".
        name: of the file, for errors.
        fix: what to do where it begins as none of this compression does; None: what to give to read_tfrecord.

    Raises:
        MissingExtra: "ZSTD" needs Python 3.14 or the package zstandard.
    """

    def __init__(self, stream: Readable, compression: str, name: str, fix: str | None = None) -> None:
        self._stream = stream
        self._compression = compression
        self._name, self._fix = name, fix
        self._inflate = _decompressor(compression)
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
                    if not self._inflate.eof:
                        raise self._damaged("it ends before its own end mark: the file is cut" if self.num_in else "the file has 0 bytes")
                    return b""
            if self._inflate.eof:  # another member follows
                marks = _MARKS.get(self._compression, ())
                if not any(self._given[: len(mark)] == mark[: len(self._given)] for mark in marks):
                    raise self._damaged(f"it is complete, and {self._given[:8].hex(' ')} ... stands behind it")
                self._inflate = _decompressor(self._compression)
            out = self._some(min(size, _GIVE_BYTES))
            if out:
                self.num_out += len(out)
                return out

    def _some(self, size: int) -> bytes:
        try:
            out: bytes = self._inflate.decompress(self._given, size)
        except MemoryError:
            raise
        except Exception as error:  # each library has a class of its own, and bz2 an OSError
            raise self._damaged(str(error)) from error
        self._at_start = False
        # All input may be taken in while output still waits inside, because there was no room for it. zlib does not say so.
        waits = not self._inflate.needs_input if hasattr(self._inflate, "needs_input") else len(out) == size
        self._more = waits and not self._inflate.eof
        self._given = self._inflate.unused_data if self._inflate.eof else getattr(self._inflate, "unconsumed_tail", b"")
        return out

    def _damaged(self, problem: str) -> RecordError:
        if self._given and self._at_start:
            kind = compression_of_head(self._given) or looks_like(self._given)
            if kind != self._compression:
                looks = f"this looks like {kind}" if kind else f"this does not look like {self._compression}"
                return RecordError(
                    f"{self._name!r} begins with {self._given[:4].hex(' ')}: {looks}",
                    where=f"{self._name!r}, offset 0",
                    fix=self._fix or f'give compression={kind!r}, or "auto"',
                )
        return RecordError(
            f"the {self._compression} stream of {self._name!r} is damaged behind {self.num_out} decompressed bytes: {problem}",
            where=f"{self._name!r}, in the first {self.num_in} bytes",
            fix="write the file again, or get another copy of it; what stands before the damage can be read",
        )


def _decompressor(compression: str) -> Any:
    """Return what decompresses one member: `decompress(data, most)`, `eof` and `unused_data`, as those of bz2 and lzma."""
    if compression in WINDOW_BITS:
        return zlib.decompressobj(WINDOW_BITS[compression])
    if compression == "BZIP2":
        return importlib.import_module("bz2").BZ2Decompressor()
    if compression == "XZ":
        return importlib.import_module("lzma").LZMADecompressor()
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd").ZstdDecompressor()
    try:
        return _Zstandard(importlib.import_module("zstandard").ZstdDecompressor().decompressobj())
    except ImportError as error:
        raise MissingExtra(
            f"files of Zstandard need Python 3.14, or the package zstandard: {error}",
            where="reading a .zst file",
            fix='pip install "penstock[zstd]"',
        ) from error


class _Zstandard:
    """The decompressor of the package zstandard with the bounded output that others have; a piece of input at a time, for it has none."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._input, self._output = stream, b"", b""

    def decompress(self, data: bytes, most: int) -> bytes:
        parts, place, size = [self._output], 0, len(self._output)
        data = self._input + data
        while size < most and place < len(data) and not self._stream.eof:
            parts.append(self._stream.decompress(data[place : place + _ZSTD_BYTES]))
            place += _ZSTD_BYTES
            size += len(parts[-1])
        self._input, out = data[place:], b"".join(parts)
        self._output = out[most:]
        return out[:most]

    @property
    def needs_input(self) -> bool:
        return not self._output and not self._input

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof) and not self._output

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data) + self._input
