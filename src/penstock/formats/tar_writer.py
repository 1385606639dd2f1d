"""Writes tar files in WebDataset's convention: the same samples give the same bytes, anywhere and at any time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from penstock.errors import SpecError
from penstock.kernels.tar_codes import MAX_BYTES, MAX_NAME, MAX_PARTS, UNIT

__all__ = ["TarWriter"]

_MODE: Final = b"0000444\0"
_NOBODY: Final = b"0000000\0"
_NO_TIME: Final = b"00000000000\0"
_USTAR: Final = b"ustar\x0000"
_RECORD_BYTES: Final = 20 * UNIT
"""What tar programs pad an archive to."""
_NAME_BYTES, _PREFIX_BYTES = 100, 155
_RESERVED = ("__key__", "__url__", "__local_path__")


class Writable(Protocol):
    """What is asked of the file."""

    def write(self, data: bytes, /) -> Any:
        """Take all of the bytes."""


class TarWriter:
    """Write samples to a binary file object. Not thread-safe.

    Headers have no time, no owner and mode 0444, and are plain ustar; a PAX header stands before a member only where its name asks for one.
    `webdataset`, Python's tarfile and tar programs read it. Each member is a few `write` calls; give a buffered file.
    `close` writes the end of the archive and leaves the file open. A `with` block that ends with an error does not write the end.

    Args:
        file: an object with `write(bytes)`.
    """

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._keys: set[str] = set()
        self._closed = False
        self.num_bytes = 0
        """Bytes written."""

    @property
    def num_samples(self) -> int:
        """Count the samples written."""
        return len(self._keys)

    def write_sample(self, key: str, fields: Mapping[str, Any]) -> tuple[int, int]:
        """Append one sample. Nothing of it is written when it is refused.

        Args:
            key: what its members' names have before the first dot; may have folders in front, of which nothing is ever made.
            fields: extension in lower case, such as "jpg" or "seg.png" -> bytes, or what else has a contiguous buffer; in this order.

        Returns:
            Offset and length in bytes, as an index has them.

        Raises:
            SpecError: a key or an extension that readers would take for another one, a key for the second time, no field, a value that is
                no bytes, or too many bytes.
        """
        self._check_key(key)
        parts = [(_check_field(key, field), _bytes_of(key, field, value)) for field, value in fields.items()]
        if not 1 <= len(parts) <= MAX_PARTS:
            raise _refused(key, f"it has {len(parts)} fields", f"give 1 to {MAX_PARTS} fields")
        heads = [_headers(f"{key}.{field}", len(data)) for field, data in parts]
        length = sum(len(head) + len(data) + -len(data) % UNIT for head, (_, data) in zip(heads, parts, strict=True))
        if length > MAX_BYTES:
            raise _refused(key, f"it has {length} bytes", f"split it: a sample has at most {MAX_BYTES} bytes")
        offset = self.num_bytes
        for head, (_, data) in zip(heads, parts, strict=True):
            self._put(head)
            self._put(data)
            self._put(bytes(-len(data) % UNIT))
        self._keys.add(key)
        return offset, length

    def close(self) -> None:
        """Write the end of the archive; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._put(bytes(2 * UNIT + -(self.num_bytes + 2 * UNIT) % _RECORD_BYTES))

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _put(self, data: Any) -> None:
        if len(data):
            self._file.write(data)
            self.num_bytes += len(data)

    def _check_key(self, key: str) -> None:
        if self._closed:
            raise _refused(key, "the archive is closed", "write before close()")
        name = key.rpartition("/")[2] if isinstance(key, str) else ""
        if not name or "." in name or "\0" in key:
            raise _refused(
                key, "readers take a name up to its first dot for the key", 'give a str such as "train/000042": no dot, not empty'
            )
        first = key.partition("/")[0]
        if len(first) >= 4 and first.startswith("__") and first.endswith("__"):
            raise _refused(key, "names that begin with __so__ are skipped by readers", "give another key")
        if key in self._keys:
            raise _refused(
                key, "it was written before: readers take both for one sample, or refuse them", "give each sample a key of its own"
            )


def _check_field(key: str, field: str) -> str:
    if not isinstance(field, str) or not field or "/" in field or "\0" in field or field in _RESERVED:
        raise _refused(key, f"{field!r} is no extension", 'give a str such as "jpg" or "seg.png"')
    if field != field.lower():
        raise _refused(key, f"extension {field!r} is not in lower case, as readers give it back", f"give {field.lower()!r}")
    return field


def _bytes_of(key: str, field: str, value: Any) -> Any:
    if type(value) is bytes:
        return value
    try:
        return memoryview(value).cast("B")
    except (TypeError, ValueError) as error:
        raise _refused(
            key, f"field {field!r} is a {type(value).__name__}: {error}", "give bytes; encode numbers and texts first"
        ) from error


def _refused(key: Any, what: str, fix: str) -> SpecError:
    return SpecError(f"the sample cannot be written: {what}", where=f"TarWriter.write_sample, key {key!r}", fix=fix)


def _headers(name: str, size: int) -> bytes:
    """Return the header blocks of a member."""
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise _refused(name, f"the name is no Unicode text: {error}", "give a key without lone surrogates") from error
    if len(raw) > MAX_NAME:
        raise _refused(name, f"the name has {len(raw)} bytes", f"give a shorter one: readers take {MAX_NAME}")
    split = _split(raw) if name.isascii() else None
    if split is not None:
        return _header(*split, size, b"0")
    record = _pax_record(b"path", raw)
    short = name.encode("ascii", "replace")[:_NAME_BYTES]
    return b"".join(
        (_header(b"", b"././@PaxHeader", len(record), b"x"), record, bytes(-len(record) % UNIT), _header(b"", short, size, b"0"))
    )


def _split(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return prefix and name of a plain header, None when the name does not fit."""
    if len(raw) <= _NAME_BYTES:
        return b"", raw
    place = raw.find(b"/", max(1, len(raw) - _NAME_BYTES - 1))
    if not 1 <= place <= _PREFIX_BYTES:
        return None
    return raw[:place], raw[place + 1 :]


def _header(prefix: bytes, name: bytes, size: int, kind: bytes) -> bytes:
    texts = (name.ljust(_NAME_BYTES, b"\0"), b"%011o\0" % size, prefix.ljust(_PREFIX_BYTES, b"\0"))
    check = _CONSTANT + sum(texts[0]) + sum(texts[1]) + sum(texts[2]) + kind[0]
    return _LAYOUT % (texts[0], texts[1], check, kind, texts[2])


def _pax_record(key: bytes, value: bytes) -> bytes:
    """Return one record, "LENGTH key=value" and a line feed, whose length counts itself."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


_BEFORE_SIZE, _AFTER_SIZE = _MODE + _NOBODY + _NOBODY, _NO_TIME
# Link name, magic and version, user, group, device: all but the magic empty.
_AFTER_KIND = bytes(100) + _USTAR + bytes(32 + 32 + 8 + 8)
_LAYOUT: Final = b"%b" + _BEFORE_SIZE + b"%b" + _AFTER_SIZE + b"%06o\0 %b" + _AFTER_KIND + b"%b" + bytes(12)
_CONSTANT: Final = sum(_BEFORE_SIZE) + sum(_AFTER_SIZE) + sum(_AFTER_KIND) + 8 * ord(" ")
