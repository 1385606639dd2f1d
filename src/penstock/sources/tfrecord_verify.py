"""Checks every byte of a TFRecord file, and its count against those who say what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock._storage import open_storage
from penstock.errors import RecordError, SourceError
from penstock.formats.compression import Decompressed, Readable, check_compression
from penstock.formats.index import SUFFIX, decode
from penstock.formats.tfrecord import MAX_RECORD_BYTES, read_blocks
from penstock.kernels.framing import FRAME_BYTES
from penstock.sources.reading import read_file
from penstock.sources.tfrecord_opening import found_compression
from penstock.sources.tfrecord_stream import StoredFile

__all__ = ["NO_COUNT", "Problem", "Verified", "verify"]

NO_COUNT = "no count to check against: had the file been cut between two records, nothing in it would show that"
_CALLER = "verify"
_MOST_PROBLEMS = 100


class Problem(NamedTuple):
    """One thing that is wrong."""

    record: int
    """Number of the record; -1: of the file as a whole."""
    offset: int
    """Where it begins, in bytes of the decompressed file; -1: of the file as a whole."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What is in a TFRecord file, and what is wrong with it.

    Attributes:
        path: as given.
        compression: None, "GZIP" or "ZLIB".
        file_bytes: size of the file.
        num_records: records whose check sums are right.
        num_bad: records that are not; damage whose end is not known counts as one.
        data_bytes: of the good records, without framing.
        longest: bytes of the longest good record.
        problems: the first 100.
        counts: (who, number of records) of each index that says how many there should be; the number is -1 where it cannot be read.
    """

    path: str
    compression: str | None
    file_bytes: int
    num_records: int
    num_bad: int
    data_bytes: int
    longest: int
    problems: tuple[Problem, ...]
    counts: tuple[tuple[str, int], ...]

    @property
    def good(self) -> bool:
        """Tell whether nothing is wrong that can be seen from here."""
        return not self.problems

    @property
    def note(self) -> str:
        """Return what the verdict does not cover; empty when there is nothing."""
        return "" if self.counts else NO_COUNT


def verify(path: str, *, compression: str | None = "auto", max_record_bytes: int = MAX_RECORD_BYTES) -> Verified:
    """Read one file from its beginning to its end and check everything; memory is bounded by its largest record. Blocks while it reads.

    Counts are those of `PATH.psidx` and `PATH.idx` where they lie beside the file.

    Raises:
        PlanError: another compression.
        SourceError, OSError: the file cannot be read, or is more than one.
    """
    check_compression(compression, f"{_CALLER}, argument 'compression'", "auto")
    storage = open_storage([path], _CALLER)
    if len(storage) != 1:
        raise SourceError(f"{path!r} stands for {len(storage)} files", where=_CALLER, fix="give one file at a time")
    kind = found_compression(storage) if compression == "auto" else compression
    size, name, problems = storage.size(0), storage.name(0), _Problems()
    stored = StoredFile(storage, 0)
    stream: Readable = stored if kind is None else Decompressed(stored, kind, name)
    num_records = data_bytes = longest = 0
    try:
        for block in read_blocks(
            stream, name=name, max_record_bytes=max_record_bytes, size=size if kind is None else None, on_bad=problems.add_record
        ):
            num_records += len(block.starts)
            data_bytes += int(block.lengths.sum()) - FRAME_BYTES * len(block.starts)
            longest = max(longest, int(block.lengths.max()) - FRAME_BYTES)
    except RecordError as error:  # of the compressed stream itself: nothing behind it can be read
        problems.add_file(error.what)
    if size == 0:
        problems.add_file("the file has 0 bytes")
    counts = tuple(_counts(name))
    for who, count in counts:
        if count != num_records + problems.num_bad:
            says = "cannot be read" if count < 0 else f"says {count} records"
            problems.add_file(f"{who!r} {says}, and the file has {num_records + problems.num_bad}")
    return Verified(
        path=path,
        compression=kind,
        file_bytes=size,
        num_records=num_records,
        num_bad=problems.num_bad,
        data_bytes=data_bytes,
        longest=longest,
        problems=tuple(problems.found),
        counts=counts,
    )


class _Problems:
    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.num_bad = 0

    def add_record(self, record: int, offset: int, error: RecordError) -> None:
        self.num_bad += 1
        self._add(Problem(record, offset, error.what))

    def add_file(self, what: str) -> None:
        self._add(Problem(-1, -1, what))

    def _add(self, problem: Problem) -> None:
        if len(self.found) < _MOST_PROBLEMS:
            self.found.append(problem)


def _counts(name: str) -> Iterator[tuple[str, int]]:
    """Say how many records the indices beside a file count."""
    path = name + SUFFIX
    try:
        yield path, len(decode(read_file(path), path))
    except FileNotFoundError:
        pass
    except RecordError:
        yield path, -1
    path = name + ".idx"
    try:
        yield path, sum(1 for line in read_file(path).splitlines() if line.strip())
    except FileNotFoundError:
        pass
