"""Known numbers: a folder of columns, one number for each element of a dataset, which `penstock.dataset.measuring` wrote.

FOLDER/measures.json     form, what was measured, length, dtype and CRC32 of each column, how many elements failed; written last
FOLDER/NAME.i4           int32, little-endian; NAME.i8: int64, where a number needs it
FOLDER/NAME.bits         one bit for each element, the lowest first, where all values are booleans
FOLDER/failed.bits       which elements failed, where any did; their numbers are 0 and False
FOLDER/files.i8          of which files the elements are, where that is known: for the next measure(update=True)

An update writes files with a mark before the dot, which is in the record, and then removes the earlier ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._order.arithmetic import grouped
from penstock._system.lazy import dataclass
from penstock.errors import PlanError, SourceError
from penstock.kernels.library import Ints
from penstock.sources.numbers import NumberSource

FORM = 2
"""Of the folder; raised when an older reader would read it wrong."""
RECORD = "measures.json"
WORK = ".measuring"
"""The folder inside for what is not finished; it is removed at the end."""
FAILED, FILES = "failed", "files"
"""Names of columns of its own."""
_AGAIN = "compute it with ds.measure(folder, ...) or `penstock measure`"
_REMOVE = "give another folder, or remove this one and measure again"

Kind = Literal["i4", "i8", "bits"]


@dataclass(frozen=True)
class Column(NumberSource):
    """One number for each element, as a source of int64 scalars. The file is mapped where it is first read, in each process.

    The process that opened the folder compares the file with its CRC then, 1 ms for a million numbers. Those that it sends the column to
    do not.

    Attributes:
        path: of the file, absolute.
        name: of the column.
        kind: how a number is stored, which is the ending of the file.
        length: how many numbers there are.
        crc: CRC32 of the file when it was written.
        is_sent: whether another process has opened the folder.
    """

    path: str
    name: str
    kind: Kind
    length: int
    crc: int
    is_sent: bool = field(default=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, (self.path, self.name, self.kind, self.length, self.crc, True)

    def __len__(self) -> int:
        return self.length

    @property
    def is_bool(self) -> bool:
        """Whether all values are booleans; they are read as 0 and 1."""
        return self.kind == "bits"

    def values(self, indices: Ints) -> NDArray[Any]:
        """Return the numbers of elements, as they are stored.

        Raises:
            SourceError: the file is lost, was cut or is damaged.
            OSError: it cannot be read.
        """
        stored = self._stored
        return (stored[indices >> 3] >> (indices & 7)) & 1 if self.is_bool else stored[indices]

    def describe(self, index: int) -> str:
        """Name the number."""
        return f"number {index} of column {self.name!r}"

    def input_files(self) -> Iterator[str]:
        """Give the path of the file."""
        yield self.path

    def fingerprint(self) -> dict[str, Any]:
        """Return name, form, length and the check sum that was taken when the file was written; nothing is read."""
        return {"kind": "column", "name": self.name, "dtype": self.kind, "count": self.length, "crc32": self.crc}

    def label(self) -> str:
        """Return the name and the number of elements."""
        return f"column({self.name!r}, {self.length} elements)"

    def check(self) -> None:
        """Make sure that the file is there in its full length.

        Raises:
            SourceError: it is lost or was cut.
            OSError: it cannot be looked at.
        """
        wanted = -(-self.length // 8) if self.is_bool else self.length * np.dtype(self.kind).itemsize
        try:
            size = os.path.getsize(self.path)
        except FileNotFoundError:
            size = -1
        if size != wanted:
            raise self._wrong("is lost" if size < 0 else f"has {size} bytes, not {wanted}")

    @cached_property
    def _stored(self) -> NDArray[Any]:
        self.check()
        dtype = np.dtype(np.uint8 if self.is_bool else f"<{self.kind}")
        stored: NDArray[Any] = np.asarray(np.memmap(self.path, dtype, "r")) if self.length else np.empty(0, dtype)
        if not self.is_sent and zlib.crc32(stored.data) != self.crc:
            raise self._wrong("is damaged: its CRC32 is not what it was when it was written")
        return stored

    def _wrong(self, what: str) -> SourceError:
        fix = f"start again if another job has brought the folder up to date meanwhile; else remove it, and {_AGAIN}"
        return SourceError(f"the file of column {self.name!r} {what}", where=self.path, fix=fix)


NUMBERS = ".numbers"
"""The ending of a file of numbers beside a packed shard: int64, little-endian [columns, elements], the columns by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedColumn(NumberSource):
    """A number of each element of packed shards, as a source of int64 scalars. Files are mapped each time: 30 us.

    Attributes:
        name: of the column.
        place: of the column in the files.
        files: path, number of elements and SHA-256 of each.
    """

    name: str
    place: int
    files: tuple[tuple[str, int, str], ...]

    def __len__(self) -> int:
        return sum(count for _, count, _ in self.files)

    def values(self, indices: Ints) -> NDArray[Any]:
        """Return the numbers of elements.

        Raises:
            OSError: a file cannot be read.
            ValueError: it was cut.
        """
        starts = np.cumsum([0, *(count for _, count, _ in self.files)])
        out, files = np.empty(len(indices), np.int64), np.searchsorted(starts, indices, side="right") - 1
        for number, places in grouped(files):
            path, count, _ = self.files[number]
            out[places] = np.memmap(path, "<i8", "r", 8 * count * self.place, (count,))[indices[places] - starts[number]]
        return out

    def describe(self, index: int) -> str:
        """Name the number."""
        return f"number {index} of column {self.name!r}"

    def fingerprint(self) -> dict[str, Any]:
        """Return name, length and the check sums that the manifest has; nothing is read."""
        return {"kind": "packed column", "name": self.name, "count": len(self), "sha256": [sha256 for _, _, sha256 in self.files]}

    def label(self) -> str:
        """Return the name and the number of elements."""
        return f"column({self.name!r}, {len(self)} elements)"


class Measures(NamedTuple):
    """The numbers of a dataset.

    Attributes:
        columns: by name, in the order in which they were asked for.
        num_failed: how many elements could not be measured and were left out.
        failed: 1 for each of these; None when there is none.
        files: numbers that tell the files of the elements; None where these are not known.
    """

    columns: dict[str, Column]
    num_failed: int
    failed: Column | None
    files: Column | None


def read_measures(
    folder: str | os.PathLike[str], identity: Mapping[str, Any], length: int | None, functions: Mapping[str, str] | None = None
) -> Measures:
    """Open a folder of numbers. Looks at the length of each file and reads none.

    Args:
        folder: as `measure` wrote it.
        identity: what `penstock._plan.facts.identity` says of the dataset.
        length: elements of the dataset; None: the data may be others, and the rest is compared.
        functions: columns that must be there, and what identifies the function of each; None: any.

    Raises:
        SourceError: nothing was measured here, or not all; a file is lost, was cut, or cannot be understood.
        PlanError: it was measured for another dataset, another length or with other functions.
        OSError: a file cannot be read.
    """
    path = os.path.abspath(os.fsdecode(folder))
    if not os.path.exists(os.path.join(path, RECORD)):
        begun = os.path.isdir(os.path.join(path, WORK))
        raise SourceError(
            "the numbers here are not complete: measuring was begun, and has not ended" if begun else "no numbers of a dataset are here",
            where=path,
            fix=f"{_AGAIN}; it goes on where it ended" if begun else _AGAIN,
        )
    record = read_record(os.path.join(path, RECORD))
    wanted = digests(identity)
    if length is None:
        length, wanted["dataset"] = int(record["length"]), record["identity"]["dataset"]
    others = different(record["identity"], wanted)
    if others:
        update = "measure(..., update=True) measures the files that changed; or " if others == ["dataset"] else ""
        raise PlanError(f"the numbers were measured for another dataset: other {' and '.join(others)}", where=path, fix=update + _REMOVE)
    if record["length"] != length:
        raise PlanError(f"numbers of {record['length']} elements are here, and the dataset has {length}", where=path, fix=_REMOVE)
    _check_functions(record["columns"], functions or {}, path)
    every = {
        name: Column(
            os.path.join(path, f"{name}{record['mark']}.{stored['dtype']}"),
            name,
            stored["dtype"],
            stored.get("length", length),
            stored["crc32"],
        )
        for name, stored in {**record["columns"], **record["others"]}.items()
    }
    for column in every.values():
        column.check()
    failed, files = every.pop(FAILED, None), every.pop(FILES, None)
    return Measures(every, record["num_failed"], failed, files)


def _check_functions(columns: Mapping[str, Any], functions: Mapping[str, str], path: str) -> None:
    for name, function in functions.items():
        if name not in columns:
            raise PlanError(
                f"there is no column {name!r}, only {', '.join(columns)}",
                where=path,
                fix="measure it into another folder: call measure() twice, one behind the other",
            )
        was = columns[name]["function"]
        if was != function:
            raise PlanError(f"column {name!r} was measured with another function: {was}, now {function}", where=path, fix=_REMOVE)


def digests(identity: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest for each part of a JSON-able record, so that an error can say which part differs."""
    return {key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32] for key, value in identity.items()}


def different(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the keys that do not have the same value in both."""
    return [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]


def read_record(path: str) -> dict[str, Any]:
    """Read one of the small files of the folder.

    Raises:
        SourceError: it is none of this form.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        record = json.loads(data)
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("form") != FORM:
        raise SourceError(
            f"the file is no record of numbers in form {FORM}, the one that this release reads",
            where=path,
            fix=f"remove the folder, and {_AGAIN}",
        )
    return record
