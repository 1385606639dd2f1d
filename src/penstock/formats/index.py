"""Indices: where the records of a file lie, and which file that is; those of many files as arrays. Byte table in docs/formats/index.md.

Pure: bytes in, arrays out. Nothing is allocated for a number that a header claims; every array is a view of the given bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._system.lazy import dataclass
from penstock.errors import RecordError
from penstock.kernels.framing import crc32c
from penstock.kernels.library import Array, Ints

SUFFIX = ".psidx"
"""Stands behind the name of the described file."""
FOLDER = ".penstock"
"""Holds the indices of the files that it lies beside."""

_MAGIC = b"PSINDEX\n"
_VERSION = 1
# magic, version, columns, bytes of JSON, bytes of the whole index, records, size of the described file, its check sum, that of its samples,
# that of everything behind the header; then the header's own.
_HEADER = struct.Struct("<8sIIQQQQIII")
_CHECK = struct.Struct("<I")
_START = _HEADER.size + _CHECK.size
_MOST_AHEAD = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Index:
    """The places of the records of one file.

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
    columns: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["offsets"])


def beside(path: str, *, old: bool = False) -> str:
    """Return where the index of a file stands beside it; with `old`, where earlier versions put it."""
    folder, name = os.path.split(path)
    return os.path.join(folder, "" if old else FOLDER, name + SUFFIX)


def is_seamless(index: Index) -> bool:
    """Tell whether between the records of a file there is one byte each and nothing else, from its first sampled block to its end."""
    ends = index.columns["offsets"] + index.columns["lengths"]
    begins = index.columns["offsets"]
    return len(ends) > 0 and begins[0] <= _MOST_AHEAD and ends[-1] >= index.size - 1 and bool((begins[1:] == ends[:-1] + 1).all())


def parts(index: Index) -> list[bytes | memoryview]:
    """Return the bytes of an index in pieces, the columns uncopied."""
    columns = {name: np.ascontiguousarray(values, values.dtype.newbyteorder("<")) for name, values in index.columns.items()}
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
    columns, start = dict[str, Array](), _START + num_text
    try:
        record = json.loads(bytes(view[_START:start]))
        for name, dtype, length in record["columns"]:
            columns[name] = np.frombuffer(view, dtype, length, start)
            start += columns[name].nbytes + -columns[name].nbytes % 8
        index = Index(
            kind=record["kind"],
            options=dict(record["options"]),
            size=size,
            crc32c=crc,
            samples=samples,
            identity=dict(record["identity"]),
            meta=dict(record["meta"]),
            columns=columns,
        )
        of_records = [values for name, values in columns.items() if not is_own_of_file(name)]
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise _damaged(f"the description does not fit the columns ({error})", where) from error
    if start != len(view) or len(columns) != num_columns or any(len(values) != count for values in of_records):
        raise _damaged("the columns are not those of the header", where)
    if not {"offsets", "lengths"} <= set(columns):
        raise _damaged("there are no offsets and lengths", where)
    _check_spans(index, where)
    return index


def is_own_of_file(column: str) -> bool:
    """Tell whether a column belongs to the file, and has not one entry per record."""
    return column.startswith("file_")


def is_index(data: bytes | bytearray | memoryview) -> bool:
    """Tell whether bytes begin as an index of this version does: one of another version, or another file, is no damage."""
    head = bytes(memoryview(data).cast("B")[:12])
    return head == _MAGIC + struct.pack("<I", _VERSION)


def _check_spans(index: Index, where: str) -> None:
    """Check that every record lies inside the described file: what follows reads without asking again."""
    offsets, lengths, size = index.columns["offsets"], index.columns["lengths"], index.size
    if offsets.dtype != np.int64 or lengths.dtype not in (np.dtype(np.uint32), np.dtype(np.int64)):
        raise _damaged("offsets or lengths have another type than they should", where)
    edges = [int(edge) for values in (offsets, lengths) if len(values) for edge in (values.min(), values.max())]
    outside = min(edges, default=0) < 0 or max(edges, default=0) > size or size >= 1 << 62
    if outside or (len(offsets) and int((offsets + lengths).max()) > size):
        raise _damaged("a record lies outside the described file", where)


def _damaged(what: str, where: str) -> RecordError:
    return RecordError(what, where=where, fix="remove the index, or let it be rebuilt")


# -- many files: no Python object for each, and one file on disk for all ----------------------------------------------------------

_KIND = "catalogue"
_OWN, _OWN_ENDS = "file_own_", "file_ends_of_"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Indices:
    """The contents of the indices of several files.

    Attributes:
        starts: int64 [files + 1], the number of the first record of each file, and the number of all.
        columns: those of the records, of all files, one behind the other: "offsets" int64 [n], "lengths" uint32 or int64 [n], and the
            format's own.
        file_columns: those of the files, by name: the values of all files, and int64 [files], where each file's end.
        sizes: int64 [files], bytes of each.
        crcs, samples: uint32 [files], check sums as in `Index`.
        metas: what the format noted of files, each that is different once.
        meta_of: int32 [files], which of them is each file's.
        etags: of each file of a store, "" where there is none; None for files of this machine.
    """

    starts: Ints
    columns: Mapping[str, Array]
    file_columns: Mapping[str, tuple[Array, Ints]]
    sizes: Ints
    crcs: NDArray[np.uint32]
    samples: NDArray[np.uint32]
    metas: Sequence[Mapping[str, Any]]
    meta_of: NDArray[np.int32]
    etags: Sequence[str] | None

    def __len__(self) -> int:
        return len(self.sizes)

    def meta(self, file: int) -> Mapping[str, Any]:
        """Return what the format noted of a file."""
        return self.metas[int(self.meta_of[file])]

    def columns_of_file(self, file: int) -> dict[str, Array]:
        """Return those columns of a file that are not one entry per record; empty ones are left out."""
        out = {}
        for name, (values, ends) in self.file_columns.items():
            begin, end = int(ends[file - 1]) if file else 0, int(ends[file])
            if begin < end:
                out[name] = values[begin:end]
        return out


def joined(indices: Sequence[Index], names: Sequence[str]) -> Indices:
    """Put the indices of files together; `names` are those of the files, for errors.

    Raises:
        RecordError: files whose indices have other columns.
    """
    starts = np.cumsum([0, *map(len, indices)], dtype=np.int64)
    columns: dict[str, Array] = {}
    for key in indices[0].columns:
        if is_own_of_file(key):
            continue
        present = [index.columns[key] for index in indices if key in index.columns]
        if len(present) < len(indices):
            name = next(name for name, index in zip(names, indices, strict=True) if key not in index.columns)
            raise RecordError(f"the index of {name!r} has no column {key!r}", where=name, fix="build the index again")
        columns[key] = present[0] if len(present) == 1 else np.concatenate(present)
    metas: dict[str, int] = {}
    texts = [json.dumps(dict(index.meta), sort_keys=True) for index in indices]
    numbers = [metas.setdefault(text, len(metas)) for text in texts]
    etags = [str(index.identity.get("etag") or "") for index in indices]
    return Indices(
        starts=starts,
        columns=columns,
        file_columns=_file_columns(indices),
        sizes=np.array([index.size for index in indices], np.int64),
        crcs=np.array([index.crc32c for index in indices], np.uint32),
        samples=np.array([index.samples for index in indices], np.uint32),
        metas=[json.loads(text) for text in metas],
        meta_of=np.array(numbers, np.int32),
        etags=etags if any(etags) else None,
    )


def _file_columns(indices: Sequence[Index]) -> dict[str, tuple[Array, Ints]]:
    keys = {key: None for index in indices for key in index.columns if is_own_of_file(key)}
    out = {}
    for key in keys:
        values = [index.columns.get(key) for index in indices]
        ends = np.cumsum([0 if value is None else len(value) for value in values]).astype(np.int64, copy=False)
        if ends[-1]:
            out[key] = np.concatenate([value for value in values if value is not None]), ends
    return out


def catalogue_parts(indices: Indices, versions: Ints, kind: str, options: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return the bytes of one file that holds all of them, in pieces. It is an `Index` in form, of all records of all files.

    Args:
        indices: of files of this machine.
        versions: int64 [files], what tells one version of each from another, when it was found to fit its index; -1 where nothing does.
        kind: of the format.
        options: of the format.
    """
    columns: dict[str, Array] = dict(indices.columns)
    columns["file_starts"] = indices.starts
    columns |= {"file_sizes": indices.sizes, "file_versions": versions, "file_crcs": indices.crcs, "file_samples": indices.samples}
    columns["file_meta_of"] = indices.meta_of
    for name, (values, ends) in indices.file_columns.items():
        columns[_OWN + name], columns[_OWN_ENDS + name] = values, ends
    whole = Index(
        kind=_KIND,
        options={"kind": kind, "options": dict(options)},
        size=int(indices.sizes.max()),
        crc32c=0,
        meta={"metas": [dict(meta) for meta in indices.metas]},
        columns=columns,
    )
    return parts(whole)


def read_catalogue(data: Any, where: str, kind: str, options: Mapping[str, Any]) -> tuple[Indices, Ints]:
    """Read what `catalogue_parts` wrote: the indices and the versions. The arrays are views of `data`.

    Raises:
        RecordError: as `decode`, or it is none, or of another format, or does not fit together.
    """
    whole = decode(data, where)
    if (whole.kind, dict(whole.options)) != (_KIND, {"kind": kind, "options": dict(options)}):
        raise _no_fit("is of another kind", where)
    given, ends = whole.columns, {name.removeprefix(_OWN_ENDS): name for name in whole.columns if name.startswith(_OWN_ENDS)}
    try:
        indices = Indices(
            starts=given["file_starts"],
            columns={name: values for name, values in given.items() if not is_own_of_file(name)},
            file_columns={name: (given[_OWN + name], given[end]) for name, end in ends.items()},
            sizes=given["file_sizes"],
            crcs=given["file_crcs"],
            samples=given["file_samples"],
            metas=whole.meta["metas"],
            meta_of=given["file_meta_of"],
            etags=None,
        )
        return indices, given["file_versions"]
    except KeyError as error:
        raise _no_fit(f"has no {error}", where) from error


def _no_fit(what: str, where: str) -> RecordError:
    return RecordError(f"the catalogue {what}", where=where, fix="remove it: it is made again")
