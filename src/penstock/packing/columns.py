"""How each field is written in each format: as what the format itself has, where nothing is lost by it, else as raw bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.packing.schema import Field, Schema

__all__ = ["SHAPE", "Column", "columns_of", "extension_of", "from_raw", "npy", "raw", "shaped"]

SHAPE = "/shape"
"""What is put behind the name of a ragged field, for the column of its shapes."""

_LISTS_OF_EXAMPLE = ("<f4", "<i8", "<i4")
_MAGIC = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"RIFF", "webp"), (b"GIF8", "gif"), (b"II*\x00", "tiff"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field in a file.

    Attributes:
        field: the field.
        name: its name in the file.
        stored: "bytes" and "str" as they are; "int", "float" or "list" as numbers of the format; "raw" as the bytes of the array,
            little-endian, in C order; in tar "text" or "npy".
        shapes: the name of the column of shapes, or "".
    """

    field: Field
    name: str
    stored: str
    shapes: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the manifest."""
        record = {**self.field.as_json(), "column": self.name, "stored": self.stored}
        return record | ({"shapes": self.shapes} if self.shapes else {})

    def words(self) -> str:
        """Say it in a few words."""
        kind = self.field.words()
        as_what = {"raw": " as raw bytes", "npy": " as .npy", "text": " as text"}.get(self.stored, "")
        return f"{self.name}: {kind}{as_what}"


def columns_of(schema: Schema, fmt: str, first: Sequence[Any]) -> tuple[Column, ...]:
    """Decide how the fields of a schema are written.

    Args:
        schema: the fields.
        fmt: "tfrecord", "tar" or "parquet".
        first: the values of one element, whose bytes tell the extension that they get in a tar.

    Raises:
        SpecError: two fields would have one name in the file, or one is a long double, whose bytes differ between machines.
    """
    for field in schema.fields:
        _check_portable(field)
    decide = {"tfrecord": _in_example, "parquet": _in_parquet, "tar": _in_tar}[fmt]
    columns = tuple(decide(field, value) for field, value in zip(schema.fields, first, strict=True))
    names = [name for column in columns for name in (column.name, column.shapes) if name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"two fields would be named {twice[0]!r} in the file", where="pack()", fix="rename one of them")
    return columns


def _check_portable(field: Field) -> None:
    # NumPy's longdouble and clongdouble, where these are more than a float64
    if field.kind != "array" or np.dtype(field.dtype).char not in "gG":
        return
    plain = "complex128" if np.dtype(field.dtype).kind == "c" else "float64"
    raise SpecError(
        f"field {field.name!r} is {field.words()}, a long double: its bytes differ between machines, so no packed format holds it",
        where="pack()",
        fix=f"map a function that makes it a {plain}: value.astype(np.{plain})",
    )


def _in_example(field: Field, _: Any) -> Column:
    shapes = field.name + SHAPE if field.is_ragged else ""
    if field.kind != "array":
        return Column(field=field, name=field.name, stored=field.kind)
    dtype = np.dtype(field.dtype)
    if field.shape:
        stored = "list" if field.dtype in _LISTS_OF_EXAMPLE else "raw"
    else:
        # tf.train.Example has no float but float32: what it would round is raw.
        stored = "float" if dtype.str in ("<f4", "<f2") else "int" if dtype.kind in "biu" and dtype.str != "<u8" else "raw"
    return Column(field=field, name=field.name, stored=stored, shapes=shapes)


def _in_parquet(field: Field, _: Any) -> Column:
    shapes = field.name + SHAPE if field.is_ragged else ""
    if field.kind != "array":
        return Column(field=field, name=field.name, stored=field.kind)
    kind = np.dtype(field.dtype).kind
    stored = "raw" if kind == "c" or len(field.shape) > 1 else "list" if field.shape else "float" if kind == "f" else "int"
    return Column(field=field, name=field.name, stored=stored, shapes=shapes)


def _in_tar(field: Field, value: Any) -> Column:
    name = field.name.replace("/", ".").lower()
    if field.kind == "str":
        return Column(field=field, name=f"{name}.txt", stored="str")
    if field.kind == "bytes":
        return Column(field=field, name=f"{name}.{extension_of(value)}", stored="bytes")
    if field.shape or np.dtype(field.dtype).kind == "c":
        return Column(field=field, name=f"{name}.npy", stored="npy")
    # The names that the webdataset package decodes: .cls is an int, .json anything that JSON has.
    return Column(field=field, name=f"{name}.{'cls' if np.dtype(field.dtype).kind in 'iu' else 'json'}", stored="text")


def extension_of(data: Any) -> str:
    """Return the usual extension of what bytes begin with; "bin" for anything unknown."""
    head = bytes(data[:16])
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "bin")


def raw(array: NDArray[Any]) -> bytes:
    """Return the bytes of an array in C order."""
    return array.tobytes()


def from_raw(column: Column, data: Any, shape: Sequence[int] | None) -> NDArray[Any]:
    """Return the array of raw bytes as `shaped` does, a copy of them that may be written to.

    Raises:
        SpecError: the bytes are too many or too few for it.
    """
    try:
        return shaped(column.field, np.frombuffer(data, np.dtype(column.field.dtype)).copy(), shape)
    except ValueError as error:
        raise SpecError(
            f"{len(data)} bytes are no {column.field.words()}: {error}",
            where=f"column {column.name!r} of a packed dataset",
            fix="verify it with `penstock inspect --verify`; pack it again",
        ) from error


def shaped(field: Field, numbers: NDArray[Any], shape: Sequence[int] | None) -> NDArray[Any]:
    """Return numbers in the shape of a field, or in the one that was stored beside them. A vector is as long as they are many.

    Raises:
        ValueError: they are too many or too few for it.
    """
    own = (None,) if len(field.shape) == 1 else field.shape
    return numbers.reshape(tuple(-1 if size is None else size for size in own) if shape is None else tuple(map(int, shape)))


def npy(array: NDArray[Any]) -> bytes:
    """Return an array as a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)
    return out.getvalue()
