"""The sidecar index: where the records of one file lie, and which file that is. Byte table in docs/formats/index.md.

Pure: bytes in, arrays out. Nothing is allocated for a number that a header claims; every array is a view of the given bytes.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.kernels.framing import crc32c

__all__ = ["SUFFIX", "Index", "decode", "encode", "is_index", "is_own_of_file", "parts"]

SUFFIX = ".psidx"
"""Stands behind the name of the described file."""

_MAGIC = b"PSINDEX\n"
_VERSION = 1
# magic, version, columns, bytes of JSON, bytes of the whole index, records, size of the described file, its check sum, that of its samples,
# that of everything behind the header; then the header's own.
_HEADER = struct.Struct("<8sIIQQQQIII")
_CHECK = struct.Struct("<I")
_START = _HEADER.size + _CHECK.size
_DTYPES = frozenset(("|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f4", "<f8"))
_MOST_JSON = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Index:
    """Where the records of one file lie.

    Attributes:
        kind: the format of the records, such as "tfrecord".
        options: what else decides where records begin and end, JSON-able; an index of other options is another one.
        size: bytes of the described file.
        crc32c: check sum of all of it; 0 when `meta` says that it was not read whole.
        samples: check sum of sampled blocks of it; 0 where there are none (remote files).
        identity: what the storage says of the file, such as size and modification time, or size and etag.
        meta: what the format notes of the file, JSON-able.
        columns: named arrays: "offsets" int64 [n] and "lengths" uint32 or int64 [n] in bytes, and the format's own, one entry per record.
            Columns whose name begins with "file_" belong to the file and may have any length.
    """

    kind: str
    options: Mapping[str, Any]
    size: int
    crc32c: int
    samples: int = 0
    identity: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["offsets"])


def encode(index: Index) -> bytes:
    """Return the bytes of an index."""
    return b"".join(parts(index))


def parts(index: Index) -> list[bytes | memoryview]:
    """Return the bytes of an index in pieces, the columns uncopied where the machine is little-endian."""
    columns = {name: _little(values) for name, values in index.columns.items()}
    record = {
        "kind": index.kind,
        "options": dict(index.options),
        "identity": dict(index.identity),
        "meta": dict(index.meta),
        "columns": [[name, values.dtype.str, len(values)] for name, values in columns.items()],
    }
    text = json.dumps(record, sort_keys=True, ensure_ascii=True, allow_nan=False).encode()
    text += b" " * (-(_START + len(text)) % 8)
    body: list[bytes | memoryview] = [text]
    for values in columns.values():
        body.append(values.view(np.uint8).data)
        body.append(bytes(-values.nbytes % 8))
    crc = 0
    for part in body:
        crc = crc32c(part, crc)
    total = _START + sum(len(part) for part in body)
    numbers = (len(columns), len(text), total, len(index), index.size, index.crc32c, index.samples, crc)
    header = _HEADER.pack(_MAGIC, _VERSION, *numbers)
    return [header + _CHECK.pack(crc32c(header)), *body]


def decode(data: bytes | bytearray | memoryview, where: str) -> Index:
    """Read an index; its columns are views of `data`.

    Args:
        data: the whole index file.
        where: names the file in errors.

    Raises:
        RecordError: it does not begin as an index does, is of another version, is cut, is longer than it says, or a check sum is wrong.
    """
    view = memoryview(data).cast("B")
    if view[: len(_MAGIC)] != _MAGIC:
        raise _damaged("the file does not begin as an index of Penstock does", where)
    if len(view) < _START:
        raise _damaged(f"the index has {len(view)} bytes, less than its header of {_START}", where)
    header = bytes(view[: _HEADER.size])
    _, version, num_columns, num_text, total, count, size, crc, samples, body = _HEADER.unpack(header)
    if crc32c(header) != _CHECK.unpack(view[_HEADER.size : _START])[0]:
        raise _damaged("the check sum of the header is wrong", where)
    if version != _VERSION:
        raise _damaged(f"it is an index of version {version}, not {_VERSION}", where)
    if total != len(view):
        raise _damaged(f"the index says that it has {total} bytes and has {len(view)}", where)
    if crc32c(view[_START:]) != body:
        raise _damaged("the check sum of the contents is wrong", where)
    if num_text > min(len(view) - _START, _MOST_JSON):
        raise _damaged(f"the description has {num_text} bytes", where)
    record = _record(bytes(view[_START : _START + num_text]), where)
    columns = _columns(view, _START + num_text, record["columns"], where)
    if len(columns) != num_columns or any(len(values) != count for name, values in columns.items() if not is_own_of_file(name)):
        raise _damaged("the columns are not those of the header", where)
    if not {"offsets", "lengths"} <= set(columns):
        raise _damaged("there are no offsets and lengths", where)
    index = Index(
        kind=record["kind"],
        options=record["options"],
        size=size,
        crc32c=crc,
        samples=samples,
        identity=record["identity"],
        meta=record["meta"],
        columns=columns,
    )
    _check_spans(index, where)
    return index


def is_own_of_file(column: str) -> bool:
    """Tell whether a column belongs to the file, and has not one entry per record."""
    return column.startswith("file_")


def is_index(data: bytes | bytearray | memoryview) -> bool:
    """Tell whether bytes begin as an index of this version does: one of another version, or another file, is no damage."""
    head = bytes(memoryview(data).cast("B")[:12])
    return head == _MAGIC + struct.pack("<I", _VERSION)


def _record(text: bytes, where: str) -> dict[str, Any]:
    def refuse(name: str) -> Any:
        raise _damaged(f"the description says {name}, which is no number", where)

    try:
        record = json.loads(text, parse_constant=refuse)
    except RecordError:
        raise
    except (ValueError, RecursionError) as error:
        raise _damaged(f"the description is no JSON ({error})", where) from error
    kinds = {"kind": str, "options": dict, "identity": dict, "meta": dict, "columns": list}
    if not isinstance(record, dict) or any(not isinstance(record.get(key), kind) for key, kind in kinds.items()):
        raise _damaged("the description lacks an entry", where)
    return record


def _columns(view: memoryview, start: int, described: list[Any], where: str) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    for item in described:
        if not (isinstance(item, list) and len(item) == 3 and isinstance(item[0], str) and item[1] in _DTYPES and type(item[2]) is int):
            raise _damaged("a column is not described by name, type and length", where)
        name, dtype, length = item[0], np.dtype(item[1]), item[2]
        if not 0 <= length <= (len(view) - start) // dtype.itemsize or name in columns:
            raise _damaged(f"column {name!r} of {length} entries does not fit", where)
        values = np.frombuffer(view, dtype, length, start)
        columns[name] = values if sys.byteorder == "little" else values.astype(dtype.newbyteorder("="))
        start += length * dtype.itemsize
        start += -start % 8
    if start != len(view):
        raise _damaged("the columns do not fill the index", where)
    return columns


def _check_spans(index: Index, where: str) -> None:
    """Check that every record lies inside the described file: what follows reads without asking again."""
    offsets, lengths = index.columns["offsets"], index.columns["lengths"]
    if offsets.dtype != np.int64 or lengths.dtype not in (np.dtype(np.uint32), np.dtype(np.int64)):
        raise _damaged("offsets or lengths have another type than they should", where)
    if index.size >= 1 << 62:
        raise _damaged(f"a described file of {index.size} bytes cannot be", where)
    if not len(offsets):
        return
    if offsets.min() < 0 or offsets.max() > index.size:
        raise _damaged("a record lies outside the described file", where)
    if lengths.dtype == np.int64 and (lengths.min() < 0 or lengths.max() > index.size):
        raise _damaged("a record is longer than the described file", where)
    if (offsets + lengths).max() > index.size:
        raise _damaged("a record reaches beyond the described file", where)


def _little(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<"))


def _damaged(what: str, where: str) -> RecordError:
    return RecordError(what, where=where, fix="remove the index, or let it be rebuilt")
