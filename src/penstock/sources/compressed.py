"""Files that can only be read from their beginning: a stream over all of them, resumed by counting; and compressed files of records.

Nothing in a compressed file can be found without all before it. So its records are a stream, which one thread finds and others decode.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.transform import Own
from penstock._system.failing import add_note
from penstock._system.text import shown
from penstock.errors import RecordError, StateDamaged, StateUnavailable
from penstock.formats.compression import Decompressed, PlainPart, Readable, compression_of_head, compression_of_name
from penstock.formats.index import Index, joined
from penstock.formats.linescan import BY, FROM
from penstock.kernels.library import Uint8s
from penstock.sources.paths import FileNames, crc_of_files, local_files, words_of_files
from penstock.sources.records import RecordFormat, RecordTable

Block: TypeAlias = tuple[int, Callable[[int], Iterable[Any]]]
"""How many elements there are side by side, and a function that gives them from one of these on."""

_PIECE_BYTES = 1 << 20


class StoredFile:
    """One file of a storage, read from its beginning. Not thread-safe; nothing has to be closed."""

    def __init__(self, storage: Storage, file: int) -> None:
        self._storage, self._file, self._offset = storage, file, 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            SourceError, OSError: as the storage says it.
        """
        length = min(size, self._storage.size(self._file) - self._offset)
        data = self._storage.read(self._file, self._offset, length) if length else b""
        self._offset += length
        return data


class FileStream:
    """Serve the elements of files, in the order of their paths. See `StatefulStream`.

    Its state is (file, elements of it that were given): a resume reads at most one file again. Feeds may read it at the same time.

    Args:
        storage: the files.
        caller: the function that the user called.
        kind: format and compression, for the fingerprint.
        note: what the label says of the files.
    """

    _blocks: Callable[[int], Iterator[Block]]
    """Gives all elements of a file, by blocks: a method of each kind of stream."""

    def __init__(self, storage: Storage, caller: str, kind: str, note: str) -> None:
        self._storage, self._caller, self._kind, self._note = storage, caller, kind, note
        self._own: Any = Own()

    def open(self, pass_number: int) -> Iterator[Any]:
        """Start a pass; all are alike."""
        self._own.place = 0, 0
        return self._pass(0, 0)

    def state(self) -> list[int]:
        """Return [file, elements given of it] behind what this thread did last: got an element of any pass, or started one.

        Raises:
            StateUnavailable: it did neither.
        """
        place = getattr(self._own, "place", None)
        if place is None:
            raise StateUnavailable("this thread has not read", where=self.label(), fix="ask in the thread that reads")
        return list(place)

    def open_at(self, pass_number: int, state: Any) -> Iterator[Any]:
        """Start a pass behind a place.

        Raises:
            StateDamaged: it is no place in these files; that a file has fewer records shows when it is read.
        """
        file, number = state if isinstance(state, list) and len(state) == 2 else (None, None)
        if not (type(file) is int and type(number) is int and 0 <= file < len(self._storage) and number >= 0):
            raise StateDamaged(
                f"{state!r} is no place in {len(self._storage)} files", where=self.label(), fix="resume with a state of this dataset"
            )
        self._own.place = file, number
        return self._pass(file, number)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        return local_files(self._storage)

    def declared_length(self) -> None:
        """Return None: the elements are not counted."""

    def can_fast_forward(self) -> bool:
        """Return True: it gives the same in every pass."""
        return True

    def describe(self, index: int) -> str:
        """Name the element by its number, as only reading tells which file it comes from."""
        return f"record {index} of all, of {self._files()}"

    def fingerprint(self) -> dict[str, Any]:
        """Return kind and count of the files, and a check sum of names below the common folder, sizes and etags."""
        storage, num_files = self._storage, len(self._storage)
        facts = (f"{storage.size(file)} {storage.identity(file).get('etag', '')}" for file in range(num_files))
        return {"kind": f"stream/{self._kind}", "num_files": num_files, "files_crc32": crc_of_files(FileNames(storage), facts)}

    def label(self) -> str:
        """Return the call with files and compression."""
        return f"{self._caller}({self._files()}, {self._note})"

    def _files(self) -> str:
        return words_of_files(FileNames(self._storage))

    def _pass(self, file: int, skip: int) -> Generator[Any, None, None]:
        own = self._own  # bound to the object; its attributes to the thread that is in `next`
        for current in range(file, len(self._storage)):
            number = 0
            for count, elements in self._blocks(current):
                begin, number = number, number + count
                if number <= skip:
                    continue
                begin = max(begin, skip)
                for given, element in enumerate(elements(count - (number - begin)), begin + 1):
                    own.place = current, given
                    yield element
            if number < skip:
                raise StateDamaged(
                    f"{[current, skip]!r} is no place in {shown(self._storage.name(current))}, which has {number} records",
                    where=self.label(),
                    fix="resume with a state of this dataset; was the file written again?",
                )
            skip = 0


# -- compressed files of records --------------------------------------------------------------------------------------------------


@runtime_checkable
class StreamFormat(RecordFormat, Protocol):
    """A format whose records can be found piece by piece."""

    def stream(self, pieces: Iterator[Uint8s], name: str) -> Iterator[PlainPart]:
        """Find the records of one file, as `scan` does.

        Raises:
            RecordError: as `scan`; what was found before has been given.
        """


class RawRecord(NamedTuple):
    """An element of a `RecordStream`: bytes of a record, not decoded, and where it is."""

    data: bytes
    file: int
    number: int
    offset: int


class RecordStream(FileStream):
    """Serve the records of files some of which are compressed, undecoded; `decoder` is the function that decodes them.

    Args:
        storage: the files.
        format: finds and decodes records.
        caller: the function that the user called.
    """

    def __init__(self, storage: Storage, format: StreamFormat, caller: str) -> None:
        super().__init__(storage, caller, format.kind, "compressed")
        self._format = format

    @property
    def decoder(self) -> RecordDecoder:
        """Return the function for a `map` that makes elements of records."""
        return RecordDecoder(self._format, FileNames(self._storage))

    def fingerprint(self) -> dict[str, Any]:
        """Return what a stream of files does, and how records are found."""
        return {**super().fingerprint(), "options": self._format.options}

    def _blocks(self, file: int) -> Iterator[Block]:
        for part in self._format.stream(pieces_of(self._storage, file), self._storage.name(file)):
            yield len(part.begins), partial(_raw_records, part, file)


def _raw_records(part: PlainPart, file: int, begin: int) -> Iterator[RawRecord]:
    spans = zip(*(column[begin:].tolist() for column in (part.begins, part.ends, part.numbers)), strict=True)
    return (RawRecord(part.data[at - part.base : end - part.base], file, number, at) for at, end, number in spans)


def is_compressed(storage: Storage) -> bool:
    """Tell whether the name of one of the files says that it is compressed."""
    return any(compression_of_name(storage.name(file)) for file in range(len(storage)))


def pieces_of(storage: Storage, file: int) -> Iterator[Uint8s]:
    """Give the decompressed bytes of a file: by its first bytes if these tell a compression, else by its name.

    Raises:
        RecordError: the stream is damaged or cut.
        SourceError, OSError: as the storage says it.
    """
    name, size = storage.name(file), storage.size(file)
    by_name = compression_of_name(name)
    kind = compression_of_head(storage.read(file, 0, min(size, 8))) or by_name if by_name else None
    stream: Readable = StoredFile(storage, file)
    if kind is not None:
        stream = Decompressed(stream, kind, name, "get another copy of the file; if it is not compressed, take the suffix off its name")
    while piece := b"".join(_reads(stream)):
        yield np.frombuffer(piece, np.uint8)


def _reads(stream: Readable) -> Iterator[bytes]:
    """Read a whole piece, of which a stream of small members gives little at a time."""
    left = _PIECE_BYTES
    while left and (data := stream.read(left)):
        yield data
        left -= len(data)


class RecordDecoder:
    """The function that makes elements of raw records. From any thread; it can be pickled."""

    def __init__(self, format: RecordFormat, names: FileNames) -> None:
        self._format, self._names = format, names
        self._table = _table(format, "", 1, 0)

    def __call__(self, record: RawRecord) -> Any:
        """Return the element.

        Raises:
            RecordError: as the format; with file, line or record, and offset in the decompressed file.
        """
        data = memoryview(record.data)
        try:
            return self._format.decode(data, self._table, 0)
        except RecordError:
            table = _table(self._format, self._names[record.file], record.number, record.offset)
        try:
            return self._format.decode(data, table, 0)  # the same error, with its place
        except RecordError as error:
            add_note(error, f"decoding record {record.number} of {shown(table.names[0])}, offset {record.offset} when decompressed")
            raise


def _table(format: RecordFormat, name: str, number: int, offset: int) -> RecordTable:
    """Return the table of one record."""
    columns = {"offsets": np.array([offset]), "lengths": np.zeros(1, np.int64), FROM: np.zeros(1, np.int64), BY: np.array([number - 1])}
    index = Index(kind=format.kind, options={}, size=0, crc32c=0, columns=columns)
    return RecordTable(indices=joined([index], [name]), names=[name])
