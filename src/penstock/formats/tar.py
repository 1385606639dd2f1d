"""Tar files in WebDataset's convention: where samples lie, their fields, and how they are written. Byte table in docs/formats/tar.md.

Members whose names are equal up to the first dot of the last part of the path, the key, are one sample when they lie side by side; what is
behind the dot is the name of a field. Nothing is ever extracted, and names are only data.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._system.text import shown
from penstock.errors import RecordError, SpecError
from penstock.formats.compression import STREAM_FIX, FileWriter, PlainPart, Writable, compression_of_head
from penstock.formats.values import integer_in, json_decoder, npy_header, text_in
from penstock.kernels.library import Ints, Uint8s
from penstock.kernels.tar import (
    MAX_BYTES,
    MAX_EXTENDED,
    MAX_NAME,
    MAX_PARTS,
    UNIT,
    MemberColumn,
    MemberTable,
    ScanOutcome,
    StatePlace,
    scan_members,
    scan_samples,
)

LEFT_OUT = {
    "directories": StatePlace.DIRECTORIES,
    "links": StatePlace.LINKS,
    "special": StatePlace.SPECIAL,
    "global_headers": StatePlace.GLOBALS,
    "meta": StatePlace.META,
    "nameless": StatePlace.NAMELESS,
}
"""Members that are no part of a sample, as they are counted in the meta of an index."""

_END_BYTES = 2 * UNIT
_HEAD_BYTES = 8
_UNKNOWN = 1 << 62
"""The size of a file that is read as a stream, until it ends."""


def find_samples(pieces: Iterator[Uint8s], size: int, name: str) -> dict[str, Any]:
    """Find the samples of one file.

    Args:
        pieces: the file's bytes, in order, uint8 [some]; each is valid until the next is asked for. All are used.
        size: bytes of the file.
        name: path or URL, for errors.

    Returns:
        "offsets" int64 [n] and "lengths" int64 [n]: a sample's bytes from the first header of its first member to the end of the padding of
        its last one; "crc32c" uint32 [n] of its members' headers, data and padding; "meta": "end" ("blocks", or "missing" when there are
        no two blocks of zeros at the end), the counts of `LEFT_OUT`, "first_odd": place of the first link or special file or -1.

    Raises:
        RecordError: the file is cut, is no tar file, or holds what is not read; see docs/formats/tar.md.
    """
    scan = _Scan(size, name)
    for piece in pieces:
        scan.take(piece)
    return scan.finish()


def stream_samples(pieces: Iterator[Uint8s], name: str, check: Callable[[Mapping[str, Any]], None]) -> Iterator[PlainPart]:
    """Find the samples of one file as `find_samples` does, and give them as they are found.

    Args:
        pieces: likewise.
        name: likewise.
        check: called with the "meta" of what came so far, before its samples are given, and at the end; may raise.

    Raises:
        RecordError: as `find_samples`; the samples before have been given.
    """
    scan = _Scan(_UNKNOWN, name)
    held: list[bytes] = []
    base = count = 0
    for piece in chain(pieces, [None]):
        if piece is None:
            meta = scan.finish()["meta"]
        else:
            held.append(piece.tobytes())
            scan.take(piece)
            meta = scan.meta()
        check(meta)
        found = scan.taken()
        if len(found):
            data, begins, ends = b"".join(held), found[:, 0], found[:, 1]
            yield PlainPart(base, data, begins, ends, np.arange(count, count + len(found)))
            count += len(found)
            held, base = [data[int(ends[-1]) - base :]], int(ends[-1])


class _Scan:
    """One file on its way through."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._table = MemberTable(with_crc=True)
        self._taken = 0  # bytes of the file that came
        self._position = 0  # of the next header, in the file
        self._tail = np.empty(0, np.uint8)  # bytes before `taken` that are needed once more
        self._head = b""
        self._ended = False
        self._found: list[Ints] = []
        self._num_taken = 0

    def take(self, piece: Uint8s) -> None:
        """Go on with the next bytes."""
        self._head = (self._head + piece[:_HEAD_BYTES].tobytes())[:_HEAD_BYTES]
        base, data = self._taken - self._tail.size, piece
        self._taken += piece.size
        if self._ended:
            self._check_zeros(data, base)
            return
        if self._tail.size:
            data = np.concatenate((self._tail, piece))
        state = self._table.state
        state[StatePlace.POSITION] = self._position - base
        outcome = scan_members(data, base, self._size, self._table)
        self._position = base + int(state[StatePlace.POSITION])
        if outcome < 0:
            raise scan_error(outcome, self._table, self._name, self._head)
        self._collect(int(state[StatePlace.SAMPLE]))
        here = min(self._position - base, data.size)
        if outcome == ScanOutcome.END:
            self._ended = True
            self._tail = np.empty(0, np.uint8)
            self._check_zeros(data[here:], self._position)
        else:
            self._tail = data[here:].copy()

    def finish(self) -> dict[str, Any]:
        """Return what was found, when all bytes came."""
        state = self._table.state
        if self._size == _UNKNOWN:
            self._size = self._taken
        if not self._ended and self._position > self._taken:
            raise tar_error(_WORDS[ScanOutcome.CUT][0], self._name, self._taken, fix=WRITE_AGAIN)
        if not self._ended and (self._tail.size or self._size == 0):
            what = "unexpected end: the file is cut in a header" if self._size else "the file is empty, which a tar file never is"
            cut = tar_error(what, self._name, self._position, fix=WRITE_AGAIN)
            raise cut if self._position else compressed_error(self._name, self._head) or cut
        self._collect(int(state[StatePlace.NUM_ROWS]))
        found = np.concatenate(self._found) if self._found else np.empty((0, 5), np.int64)
        offsets, ends, crcs = found[:, 0], found[:, 1], found[:, 2]
        self._check_keys(offsets, found[:, 3:])
        return {"offsets": offsets, "lengths": ends - offsets, "crc32c": crcs.astype(np.uint32), "meta": self.meta()}

    def meta(self) -> dict[str, Any]:
        """Return what is noted of the file, or of what came of it."""
        state = self._table.state
        meta: dict[str, Any] = {key: int(state[place]) for key, place in LEFT_OUT.items()}
        meta["end"] = "blocks" if self._ended and self._size - self._position >= _END_BYTES else "missing"
        meta["first_odd"] = int(state[StatePlace.FIRST_ODD])
        return meta

    def taken(self) -> Ints:
        """Return what was found since the last call, as `_collect` notes it."""
        found = self._found[self._num_taken :]
        self._num_taken = len(self._found)
        return np.concatenate(found) if found else np.empty((0, 5), np.int64)

    def _collect(self, num_rows: int) -> None:
        """Note the samples of the first rows, which are complete, and forget these."""
        if num_rows <= 0:
            return
        rows = self._table.rows[:num_rows]
        firsts = np.flatnonzero(rows[:, MemberColumn.FIRST])
        lasts = rows[np.append(firsts[1:], num_rows) - 1]
        ends = lasts[:, MemberColumn.DATA] + (lasts[:, MemberColumn.SIZE] + (UNIT - 1)) // UNIT * UNIT
        first = rows[firsts]
        self._found.append(
            np.stack(
                (
                    first[:, MemberColumn.START],
                    ends,
                    lasts[:, MemberColumn.CRC],
                    first[:, MemberColumn.KEY_HASH],
                    first[:, MemberColumn.OTHER_HASH],
                ),
                axis=1,
            )
        )
        self._table.drop(num_rows)

    def _check_zeros(self, data: Uint8s, offset: int) -> None:
        """Refuse anything behind the end of the archive: what other readers would not see, or only they would."""
        if data.any():
            place = offset + int((data != 0).argmax())
            raise tar_error(
                "there are bytes behind the first block of zeros, which ends an archive",
                self._name,
                place,
                fix="if these are several archives in one file, take them apart (`tar --ignore-zeros`) and write one",
            )

    def _check_keys(self, offsets: Ints, hashes: Ints) -> None:
        """Refuse two samples of one key: parts of one that do not lie side by side, or a name that comes twice."""
        order = np.lexsort((offsets, hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
        same = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
        if same.size:
            first = same[np.argmin(offsets[order[same + 1]])]
            one, other = offsets[order[first : first + 2]].tolist()
            more = "" if same.size == 1 else f" ({same.size} such pairs in this file)"
            raise tar_error(
                f"members of one key stand at offset {one} and, with others between, at {other}{more}",
                self._name,
                other,
                fix="a sample's members must lie side by side, once: write the archive sorted by name, as `tar --sort=name` does",
            )


# -- from the bytes of samples to their fields ------------------------------------------------------------------------------------

_KNOWN_FIELDS = 4096
_OTHER_BYTES = (
    "get another copy of the file; if it was changed on purpose, open the dataset again, "
    "and if it kept its time, build its index again (`penstock index --rebuild FILE`)"
)


class TarSample(NamedTuple):
    """One sample, not yet copied."""

    key: str
    """Bytes that are no UTF-8 stand as surrogates, as in Python's own file names."""
    fields: dict[str, memoryview | bytes]
    """Extension in lower case (ASCII letters) -> read-only bytes, in the order of the file."""


@lru_cache(maxsize=_KNOWN_FIELDS)
def _field_of(name: bytes) -> str:
    """Return the text of a field's name: there are few, and each is made once."""
    return name.lower().decode("utf-8", "surrogateescape")


def split_samples(
    data: Uint8s,
    begins: Ints,
    lengths: Ints,
    crcs: NDArray[np.uint32] | None,
    samples: list[TarSample],
    place: Callable[[int], tuple[str, int]],
) -> RecordError | None:
    """Take samples apart.

    Args:
        data: uint8 [m].
        begins: int64 [n], where each sample begins in `data`.
        lengths: int64 [n], in bytes.
        crcs: uint32 [n], what the index says of each; None: not to be checked.
        samples: one per begin is appended, up to the first that is bad; their bytes are views of `data`.
        place: tells file and offset of a sample by its number among these, for errors.

    Returns:
        What is wrong with the first bad one, None when all are good.
    """
    table = MemberTable(with_crc=crcs is not None)
    ends = np.empty(begins.size, np.int64)
    outcome = scan_samples(data, begins, lengths, table, ends)
    num_good = begins.size if outcome == ScanOutcome.MORE else int(table.state[StatePlace.SAMPLE])
    error = None
    if crcs is not None and num_good:
        wrong = np.flatnonzero(table.rows[ends[:num_good] - 1, MemberColumn.CRC] != crcs[:num_good])
        if wrong.size:
            num_good = int(wrong[0])
            error = tar_error(
                "the bytes of the sample are not those that the index was built of: their check sum differs",
                *place(num_good),
                fix=_OTHER_BYTES,
            )
    if error is None and num_good < begins.size:
        file, offset = place(num_good)
        table.state[StatePlace.ERROR_AT] += offset
        error = scan_error(outcome, table, file, None)
    _append(data, table, ends[:num_good], samples)
    return error


def _append(data: Uint8s, table: MemberTable, ends: Ints, samples: list[TarSample]) -> None:
    num_rows = int(ends[-1]) if ends.size else 0
    rows = table.rows[:num_rows, [MemberColumn.DATA, MemberColumn.SIZE, MemberColumn.NAME_END, MemberColumn.KEY_LENGTH]].tolist()
    letters = table.names[: rows[-1][2] if rows else 0].tobytes()
    view = data.data.toreadonly()
    row = begin = 0
    for end in ends.tolist():
        key = letters[begin : begin + rows[row][3]].decode("utf-8", "surrogateescape")
        fields: dict[str, memoryview | bytes] = {}
        for start, size, name_end, key_length in rows[row:end]:
            fields[_field_of(letters[begin + key_length + 1 : name_end])] = view[start : start + size]
            begin = name_end
        samples.append(TarSample(key, fields))
        row = end


# -- what the bytes of a field mean, by the last part of its extension; nothing here runs what it reads ---------------------------

_MOST_HEADER = 1 << 16


def decode_field(field: str, data: memoryview | bytes, *, allow_nan: bool = False) -> Any:
    """Return the value of a field: int, str, what JSON says, an array; bytes of those that nothing is known of, images among them.

    `allow_nan` takes NaN and infinite numbers, which are no JSON but which Python's json writes.

    Raises:
        RecordError: the bytes are not what the extension says, or could only be read with pickle.
    """
    extension = field.rpartition(".")[2]
    decoder = _any_json if allow_nan and extension == "json" else _DECODERS.get(extension)
    if decoder is None:
        return bytes(data)
    try:
        return decoder(data)
    except RecursionError as error:
        raise _wrong(field, data, "it is nested too deeply") from error
    except RecordError:
        raise
    except ValueError as error:
        raise _wrong(field, data, str(error)) from error


def stays_bytes(field: str) -> bool:
    """Tell whether `decode_field` gives the bytes of a field as they are."""
    return field.rpartition(".")[2] not in _DECODERS


def _wrong(field: str, data: memoryview | bytes, why: str) -> RecordError:
    return RecordError(
        f"field {field!r} of {len(data)} bytes is not what its name says: {why}",
        where=f"field {field!r}, which begins with {bytes(data[:40])!r}",
        fix="write it again, or read it as bytes with decode=None",
    )


def _array(data: memoryview | bytes) -> Any:
    """Return the array of a .npy file, a copy. NumPy reads the header; the size must be that of the bytes."""
    stream = io.BytesIO(data[:_MOST_HEADER])
    try:
        shape, by_columns, dtype = npy_header(stream)
    except Exception as error:  # NumPy's parser of headers raises those of Python's tokenizer too
        raise _unreadable("npy", f"it has no header of an array ({error})", "write it again with np.save") from error
    if dtype.hasobject:
        raise _unreadable("npy", "it holds Python objects", _NO_PICKLE)
    needed, there = math.prod(shape) * dtype.itemsize, len(data) - stream.tell()
    if dtype.kind == "V" or there != needed:
        what = f"an array of shape {shape} and dtype {dtype} has {needed} bytes, and {there} are there"
        raise _unreadable("npy", what, "write it again with np.save, without structured types")
    array = np.frombuffer(data, dtype, offset=stream.tell()) if needed else np.empty(0, dtype)
    return array.reshape(shape, order="F" if by_columns else "C").copy(order="K")


def _pickled(data: memoryview | bytes) -> Any:
    raise _unreadable("pickle", "it is a pickle", _NO_PICKLE)


_NO_PICKLE = (
    "it needs allow_pickle, which would run what is written in it: Penstock never does. Write it as .npy, .json or .txt; if you trust it, "
    "read bytes with decode=None and unpickle them in a map function of your own"
)


def _any_json(data: memoryview | bytes) -> Any:
    return json_decoder(allow_nan=True).decode(text_in(data))


def _unreadable(kind: str, what: str, fix: str) -> RecordError:
    return RecordError(f"{what}, which is not read", where=f"a field of kind {kind}", fix=fix)


_DECODERS: dict[str, Callable[[memoryview | bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), lambda data: integer_in(text_in(data))),
    **dict.fromkeys(("txt", "text", "transcript"), text_in),
    **dict.fromkeys(("json", "jsn"), lambda data: json_decoder().decode(text_in(data))),
    **dict.fromkeys(("pkl", "pickle", "pyd", "pth", "pt"), _pickled),
    "npy": _array,
}


# -- writing: the same samples give the same bytes, anywhere and at any time ------------------------------------------------------

_MODE: Final = b"0000444\0"
_NOBODY: Final = b"0000000\0"
_NO_TIME: Final = b"00000000000\0"
_USTAR: Final = b"ustar\x0000"
_RECORD_BYTES: Final = 20 * UNIT
"""Archives are padded to a multiple of this, as tar programs do."""
_NAME_BYTES, _PREFIX_BYTES = 100, 155
_RESERVED = ("__key__", "__url__", "__local_path__")


class TarWriter(FileWriter):
    """Write samples to a binary file object. Not thread-safe.

    Headers have no time, no owner and mode 0444, and are plain ustar; a PAX header stands before a member only where its name asks for one.
    `webdataset`, Python's tarfile and tar programs read it. Each member is a few `write` calls; give a buffered file.
    `close` writes the end of the archive and leaves the file open. A `with` block that ends with an error does not write the end.

    Args:
        file: an object with `write(bytes)`.
    """

    def __init__(self, file: Writable) -> None:
        super().__init__(file)
        self._keys: set[str] = set()

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
            raise _unwritable(key, f"it has {len(parts)} fields", f"give 1 to {MAX_PARTS} fields")
        heads = [_headers(f"{key}.{field}", len(data)) for field, data in parts]
        length = sum(len(head) + len(data) + -len(data) % UNIT for head, (_, data) in zip(heads, parts, strict=True))
        if length > MAX_BYTES:
            raise _unwritable(key, f"it has {length} bytes", f"split it: a sample has at most {MAX_BYTES} bytes")
        offset = self.num_bytes
        for head, (_, data) in zip(heads, parts, strict=True):
            self._put(head)
            self._put(data)
            self._put(bytes(-len(data) % UNIT))
        self._keys.add(key)
        return offset, length

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def _end(self) -> bytes:
        return bytes(2 * UNIT + -(self.num_bytes + 2 * UNIT) % _RECORD_BYTES)

    def _check_key(self, key: str) -> None:
        if self._is_closed:
            raise _unwritable(key, "the archive is closed", "write before close()")
        name = key.rpartition("/")[2] if isinstance(key, str) else ""
        if not name or "." in name or "\0" in key:
            raise _unwritable(
                key, "readers take a name up to its first dot for the key", 'give a str such as "train/000042": no dot, not empty'
            )
        first = key.partition("/")[0]
        if len(first) >= 4 and first.startswith("__") and first.endswith("__"):
            raise _unwritable(key, "names that begin with __so__ are skipped by readers", "give another key")
        if key in self._keys:
            raise _unwritable(
                key, "it was written before: readers take both for one sample, or refuse them", "give each sample a key of its own"
            )


def _check_field(key: str, field: str) -> str:
    if not isinstance(field, str) or not field or "/" in field or "\0" in field or field in _RESERVED:
        raise _unwritable(key, f"{field!r} is no extension", 'give a str such as "jpg" or "seg.png"')
    if field != field.lower():
        raise _unwritable(key, f"extension {field!r} is not in lower case, as readers give it back", f"give {field.lower()!r}")
    return field


def _bytes_of(key: str, field: str, value: Any) -> Any:
    if type(value) is bytes:
        return value
    try:
        return memoryview(value).cast("B")
    except (TypeError, ValueError) as error:
        raise _unwritable(
            key, f"field {field!r} is a {type(value).__name__}: {error}", "give bytes; encode numbers and texts first"
        ) from error


def _unwritable(key: Any, what: str, fix: str) -> SpecError:
    return SpecError(f"the sample cannot be written: {what}", where=f"TarWriter.write_sample, key {key!r}", fix=fix)


def _headers(name: str, size: int) -> bytes:
    """Return the header blocks of a member."""
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise _unwritable(name, f"the name is no Unicode text: {error}", "give a key without lone surrogates") from error
    if len(raw) > MAX_NAME:
        raise _unwritable(name, f"the name has {len(raw)} bytes", f"give a shorter one: readers take {MAX_NAME}")
    split = _split(raw) if name.isascii() else None
    if split is not None:
        return _header(*split, size, b"0")
    record = _pax_record(raw)
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


def _pax_record(name: bytes) -> bytes:
    """Return the record of a name, "LENGTH path=NAME" and a line feed, whose length counts itself."""
    rest = b" path=" + name + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


_BEFORE_SIZE, _AFTER_SIZE = _MODE + _NOBODY + _NOBODY, _NO_TIME
# Link name, magic and version, user, group, device: all but the magic empty.
_AFTER_KIND = bytes(100) + _USTAR + bytes(32 + 32 + 8 + 8)
_LAYOUT: Final = b"%b" + _BEFORE_SIZE + b"%b" + _AFTER_SIZE + b"%06o\0 %b" + _AFTER_KIND + b"%b" + bytes(12)
_CONSTANT: Final = sum(_BEFORE_SIZE) + sum(_AFTER_SIZE) + sum(_AFTER_KIND) + 8 * ord(" ")


# -- errors -----------------------------------------------------------------------------------------------------------------------

WRITE_AGAIN = "get another copy of the file or write it again"

_WORDS: dict[ScanOutcome, tuple[str, str]] = {
    ScanOutcome.BAD_CHECKSUM: ("there is no tar header: its check sum does not fit its bytes", WRITE_AGAIN),
    ScanOutcome.BAD_SIZE: ("the size of the member is no number, is negative or has more than 63 bits", WRITE_AGAIN),
    ScanOutcome.CUT: ("unexpected end: the member says that it has more bytes than the file has left", WRITE_AGAIN),
    ScanOutcome.CUT_PADDING: ("unexpected end: the file is cut in the padding behind the member's data", WRITE_AGAIN),
    ScanOutcome.LONG_NAME: (f"the name of the member has more than {MAX_NAME} bytes", "write it with shorter names"),
    ScanOutcome.BAD_EXTENDED: ("the extended header (PAX or GNU long name) is not as it should be", WRITE_AGAIN),
    ScanOutcome.LARGE_EXTENDED: (f"the extended header (PAX or GNU long name) has more than {MAX_EXTENDED} bytes", WRITE_AGAIN),
    ScanOutcome.SPARSE: ("the member is stored sparse, with its zeros left out", "write the archive without --sparse"),
    ScanOutcome.TWO_NAMES: (
        "two headers give the member a name, a size or attributes; readers differ in which one they believe",
        WRITE_AGAIN,
    ),
    ScanOutcome.ORPHAN: ("unexpected end: an extended header stands before the end of the archive, without its member", WRITE_AGAIN),
    ScanOutcome.GLOBAL_NAME: ("a global PAX header sets the name or size of all members behind it", "write the archive without it"),
    ScanOutcome.SEVERAL_VOLUMES: ("the member goes on in another volume or has an old GNU name table", "write the archive in one volume"),
    ScanOutcome.LARGE_MEMBER: (f"the member has more than {MAX_BYTES} bytes", "split it into several samples"),
    ScanOutcome.LARGE_SAMPLE: (f"the sample has more than {MAX_BYTES} bytes", "split it into several samples"),
    ScanOutcome.MANY_PARTS: (
        f"the sample has more than {MAX_PARTS} members",
        "give each sample a key of its own: the name up to its first dot",
    ),
    ScanOutcome.SAME_FIELD: (
        "the sample has two members with the same extension",
        "give each sample a key of its own: the name up to its first dot",
    ),
    ScanOutcome.NOT_ONE: ("the bytes are not one sample: the file is not the one that its index was built of", "build the index again"),
    ScanOutcome.OUTSIDE: ("the sample does not lie in the bytes that were read", "build the index again"),
}


def scan_error(outcome: ScanOutcome, table: MemberTable, name: str, head: bytes | None) -> RecordError:
    """Return the error for what stopped the scan of a file.

    Args:
        outcome: a negative one.
        table: as the scan left it.
        name: of the file.
        head: its first bytes; None: not the whole file was scanned.
    """
    offset = int(table.state[StatePlace.ERROR_AT])
    if outcome == ScanOutcome.BAD_CHECKSUM and offset == 0 and head is not None:
        no_tar = tar_error("this is no tar file: its first 512 bytes are no header", name, 0, fix="check the pattern")
        return compressed_error(name, head) or no_tar
    what, fix = _WORDS[outcome]
    member = table.names[int(table.state[StatePlace.NUM_NAME_BYTES]) :][: int(table.state[StatePlace.ERROR_NAME])].tobytes()
    return tar_error(what, name, offset, member=member, fix=fix)


def compressed_error(name: str, head: bytes) -> RecordError | None:
    """Return the error for an archive that is compressed as a whole, by its first bytes; None for any other file."""
    kind = compression_of_head(head)
    if kind is None:
        return None
    return tar_error(
        f"the file is compressed with {kind} as a whole, so nothing in it can be read without all before it",
        name,
        0,
        fix=f"decompress it once, {STREAM_FIX}; compress members, if at all",
    )


def tar_error(what: str, name: str, offset: int, *, fix: str, member: bytes = b"") -> RecordError:
    """Return an error about a place in a file."""
    whose = f", member {shown(member)}" if member else ""
    return RecordError(f"{what}{whose}", where=f"{name!r}, offset {offset}", fix=fix)
