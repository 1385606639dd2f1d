"""Elements into the bytes of one shard: TFRecord, tar, Parquet, tokens, decoded. Its bytes depend on elements and options."""

from __future__ import annotations

import io
import json
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.formats.arrow import pyarrow
from penstock.formats.compression import Writable
from penstock.formats.example import encode_example
from penstock.formats.tar import TarWriter
from penstock.formats.tfrecord import RecordWriter
from penstock.packing.schema import TOKENS, Field, npy
from penstock.sources.decoded import DecodedFormat, DecodedWriter
from penstock.sources.megatron import encode_index

SUFFIXES = {
    "tfrecord": (".tfrecord",),
    "tar": (".tar",),
    "parquet": (".parquet",),
    "tokens": (".bin",),
    "megatron": (".bin", ".idx"),
    "decoded": (".bin", ".idx"),
}
"""The formats, and the endings of the files that a shard has."""
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "compression": {"tfrecord": ("GZIP",), "parquet": ("zstd",)},
    "dtype": {"tokens": TOKENS, "megatron": TOKENS},
}
"""What can be given for an option, by format."""

_GROUP_ROWS = 4096
_GROUP_BYTES = 16 << 20


def open_encoder(
    fmt: str, fields: Sequence[Field], compression: str | None, outs: Sequence[Writable], shard: int
) -> _Records | _Tar | _Parquet | _Tokens | DecodedWriter:
    """Return what writes the elements of a shard to its files, one for each ending in `SUFFIXES`.

    Raises:
        MissingExtra: Parquet without pyarrow.
    """
    if fmt == "tfrecord":
        return _Records(fields, compression, outs[0])
    if fmt == "tar":
        return _Tar(fields, outs[0], shard)
    if fmt == "decoded":
        parts = tuple((field.name, field.dtype or field.kind, len(field.shape) if field.dtype else 1) for field in fields)
        return DecodedWriter(DecodedFormat(parts, fields[0].single), *outs)
    return _Parquet(fields, compression, outs[0]) if fmt == "parquet" else _Tokens(fields, *outs)


class _Records:
    """A `tf.train.Example` for each element."""

    def __init__(self, fields: Sequence[Field], compression: str | None, out: Writable) -> None:
        self._fields = fields
        self._writer = RecordWriter(out, compression)

    def add(self, values: Sequence[Any]) -> None:
        features: dict[str, Any] = {}
        for field, value in zip(self._fields, values, strict=True):
            features[field.column] = _in_example(field, value)
            if field.shapes:
                features[field.shapes] = np.array(value.shape, np.int64)
        self._writer.write(encode_example(features))

    def finish(self) -> None:
        self._writer.close()


def _in_example(field: Field, value: Any) -> Any:
    if field.kind != "array":
        return value
    if field.stored == "raw":
        return value.tobytes()
    return value.astype(np.float32 if value.dtype.kind == "f" else np.int64, copy=False).reshape(-1)


class _Tar:
    """A group of members `KEY.NAME.EXTENSION` for each element; the key is made of the shard's number and the element's place in it."""

    def __init__(self, fields: Sequence[Field], out: Writable, shard: int) -> None:
        self._fields, self._shard = fields, shard
        self._writer = TarWriter(out)
        self._count = 0

    def add(self, values: Sequence[Any]) -> None:
        key = f"{self._shard:05d}-{self._count:07d}"
        self._writer.write_sample(key, {field.column: _in_tar(field, value) for field, value in zip(self._fields, values, strict=True)})
        self._count += 1

    def finish(self) -> None:
        self._writer.close()


def _in_tar(field: Field, value: Any) -> bytes:
    match field.stored:
        case "bytes":
            return value  # type: ignore[no-any-return]
        case "str":
            return value.encode()  # type: ignore[no-any-return]
        case "npy":
            return npy(value)
    return json.dumps(value.item()).encode()


class _Parquet:
    """Row groups of so many rows or bytes, whichever comes first."""

    def __init__(self, fields: Sequence[Field], compression: str | None, out: Writable) -> None:
        self._pyarrow, parquet = pyarrow()
        self._fields = fields
        self._schema = self._pyarrow.schema([made for field in fields for made in self._arrow_fields(field)])
        self._rows: list[list[Any]] = [[] for _ in self._schema]
        self._held = 0
        self._writer = parquet.ParquetWriter(
            self._pyarrow.PythonFile(_Unclosed(out), mode="w"),
            self._schema,
            compression=compression or "none",
            use_dictionary=False,
            write_page_checksum=True,
        )

    def add(self, values: Sequence[Any]) -> None:
        place = 0
        for field, value in zip(self._fields, values, strict=True):
            self._rows[place].append(_in_parquet(field, value))
            place += 1
            if field.shapes:
                self._rows[place].append(list(value.shape))
                place += 1
            self._held += len(value) if isinstance(value, (bytes, str)) else value.nbytes
        if len(self._rows[0]) == _GROUP_ROWS or self._held >= _GROUP_BYTES:
            self._write()

    def finish(self) -> None:
        if self._rows[0]:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        arrays = [self._pyarrow.array(rows, field.type) for rows, field in zip(self._rows, self._schema, strict=True)]
        self._writer.write_batch(self._pyarrow.record_batch(arrays, schema=self._schema), row_group_size=_GROUP_ROWS)
        self._rows, self._held = [[] for _ in self._schema], 0

    def _arrow_fields(self, field: Field) -> list[Any]:
        arrow = self._pyarrow
        match field.stored:
            case "bytes" | "raw":
                kind = arrow.binary()
            case "str":
                kind = arrow.string()
            case _:
                kind = arrow.from_numpy_dtype(np.dtype(field.dtype))
        made = [arrow.field(field.column, arrow.list_(kind) if field.stored == "list" else kind, nullable=False)]
        return [*made, arrow.field(field.shapes, arrow.list_(arrow.int64()), nullable=False)] if field.shapes else made


def _in_parquet(field: Field, value: Any) -> Any:
    if field.stored == "raw":
        return value.tobytes()
    return value[()] if field.stored in ("int", "float") else value


class _Unclosed(io.RawIOBase):
    """What pyarrow writes to: it closes what it was given, and the file must be synced first."""

    def __init__(self, out: Writable) -> None:
        self._out, self._size = out, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._out.write(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size


class _Tokens:
    """The tokens of all elements, one behind the other; where `index` is a file, also the index that Megatron-LM has of them."""

    def __init__(self, fields: Sequence[Field], out: Writable, index: Writable | None = None) -> None:
        self._out, self._index, self._dtype = out, index, np.dtype(fields[0].stored)
        self._lengths = array("i")

    def add(self, values: Sequence[Any]) -> None:
        self._out.write(values[0].astype(self._dtype, copy=False).data)
        self._lengths.append(len(values[0]))

    def finish(self) -> None:
        if self._index is not None:
            self._index.write(encode_index(self._lengths, self._dtype))
