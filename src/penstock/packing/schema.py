"""The fields of a packed dataset, found from a sample and held against every element, and how each is written in each format.

A field is written as what the format itself has, where nothing is lost by it, else as raw bytes.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import ArraySpec, is_masked, parts_of, spec_of
from penstock._system.lazy import dataclass
from penstock.errors import SpecError

SINGLE = "value"
"""The name of the only field of an element that is no dict and no tuple."""

_DTYPES = "biufc"
_WHERE = "pack()"
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class NoSchema(ValueError):
    """What was given describes no fields. Internal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field, and how it is written.

    Attributes:
        name: keys of nested dicts are joined by "/"; places in a tuple or list are numbers.
        kind: "bytes", "str" or "array", the last also for a number.
        dtype: of an array, as `numpy.dtype.str`, little-endian; "" else.
        shape: of an array; None where the size differs between elements. () of a number, of bytes and str.
        single: the element is this value, and no dict that has a field of its name.
        column: its name in the file; "" until a format is chosen.
        stored: "bytes" and "str" as they are; "int", "float" or "list" as numbers of the format; "raw" as the bytes of the array,
            little-endian, in C order; in tar "text" or "npy"; tokens as the dtype that they have in the file.
        shapes: the name of the column of shapes, or "".
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int | None, ...] = ()
    single: bool = False
    column: str = ""
    stored: str = ""
    shapes: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what stands in the manifest."""
        record: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "array":
            record |= {"dtype": self.dtype, "shape": list(self.shape)}
        if self.single:
            record["single"] = True
        record |= {"column": self.column, "stored": self.stored}
        return {**record, "shapes": self.shapes} if self.shapes else record

    def type_words(self) -> str:
        """Say its type as `ds.spec()` does."""
        if self.kind != "array":
            return self.kind
        return np.dtype(self.dtype).name + (str(list(self.shape)) if self.shape else "")

    def words(self) -> str:
        """Say its name in the file, its type, and what it is written as."""
        as_what = {"raw": " as raw bytes", "npy": " as .npy", "text": " as text", "uint16": " as uint16", "int32": " as int32"}
        return f"{self.column}: {self.type_words()}{as_what.get(self.stored, '')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The fields in the order of the elements' own."""

    fields: tuple[Field, ...]

    def as_json(self) -> list[dict[str, Any]]:
        """Return what stands in the manifest."""
        return [field.as_json() for field in self.fields]

    @classmethod
    def from_json(cls, record: Any) -> Schema:
        """Read what `as_json` gave.

        Raises:
            NoSchema: it is something else; a TypeError, ValueError or KeyError says the same.
        """
        fields = []
        for part in record:
            shape = tuple(None if size is None else int(size) for size in part.get("shape", ()))
            kind, dtype = str(part["kind"]), str(part.get("dtype", ""))
            if kind not in ("bytes", "str", "array") or (kind == "array" and np.dtype(dtype).kind not in _DTYPES):
                raise NoSchema(f"kind {kind!r}, dtype {dtype!r}")
            if any(size is not None and size < 0 for size in shape):
                raise NoSchema(f"shape {shape}")
            name, stored, single = str(part["name"]), part["stored"], part.get("single", False) is True
            if stored not in _STORED:
                raise NoSchema(f"field {name!r} is stored as {stored!r}")
            written = {"column": str(part["column"]), "stored": stored, "shapes": str(part.get("shapes", ""))}
            fields.append(Field(name=name, kind=kind, dtype=dtype, shape=shape, single=single, **written))
        return cls(fields=tuple(fields))

    def values(self, element: Any) -> list[Any]:
        """Return the fields of an element, checked: bytes, str, and little-endian arrays in C order.

        Raises:
            SpecError: it has other fields, or one of another kind, dtype or shape.
        """
        found, names = fields_of(element), [field.name for field in self.fields]
        if len(found) != len(names) or not found.keys() >= set(names) or is_single(element) != self.fields[0].single:
            in_lists = any(name.rpartition("/")[2].isdigit() for name in set(names).symmetric_difference(found))
            raise SpecError(
                f"the element {_names(found, is_single(element))}; the sample {_names(names, self.fields[0].single)}",
                where=_WHERE,
                fix="a list has a field for each of its places: map a function that makes an array of it, np.asarray(values, dtype)"
                if in_lists
                else "map a function that gives all elements the same fields",
            )
        row = [_checked(field, found[field.name]) for field in self.fields]
        stored = self.fields[0].stored
        if stored in TOKENS and row[0].dtype != stored:
            held = np.iinfo(stored)
            outside = row[0][(row[0] < held.min) | (row[0] > held.max)]
            if outside.size:
                raise SpecError(
                    f"token {outside[0]} is beyond {stored}",
                    where=_WHERE,
                    fix="give dtype=np.int32; if that does not hold it either, look at what makes the tokens",
                )
        return row


def fields_of(element: Any) -> dict[str, Any]:
    """Return the leaves of an element by name: those of a dict by their keys, of a tuple or list by their place, else one, `SINGLE`.

    Raises:
        SpecError: two leaves have one name, or a key is no text, or there is no leaf.
    """
    out: dict[str, Any] = {}
    _collect(element, "", out)
    if not out:
        raise SpecError("the element has no fields", where=_WHERE, fix="map a function that returns a dict with at least one field")
    return out


def is_single(element: Any) -> bool:
    """Tell whether an element is one value, and nothing that has fields."""
    return not isinstance(element, (dict, tuple, list))


def _names(names: Iterable[str], single: bool) -> str:
    return "is a single value" if single else f"has the fields {', '.join(names)}"


def _collect(value: Any, prefix: str, out: dict[str, Any]) -> None:
    if not is_single(value) and not value and prefix:
        raise SpecError(
            f"field {prefix!r} is an empty {type(value).__name__}, of which nothing would be written",
            where=_WHERE,
            fix="map a function that makes an array of a list, np.asarray(values, dtype), and leaves an empty dict out",
        )
    if not is_single(value):
        for key, child in parts_of(value) or ():
            if isinstance(value, dict):
                if not isinstance(key, str) or not key:
                    raise SpecError(f"the field name {key!r} is no text", where=_WHERE, fix="name the fields by texts")
                _check_text(key, f"the field name {key!r}")
            _collect(child, f"{prefix}/{key}" if prefix else str(key), out)
        return
    name = prefix or SINGLE
    if name in out:
        raise SpecError(f"two fields have the name {name!r}", where=_WHERE, fix="rename one of them")
    out[name] = value


def schema_of(elements: Sequence[Any], declared: Any = None) -> Schema:
    """Find the fields of the elements of the kind that most of them are of, by their fields, dtypes and dimensions.

    Sizes that differ are None, and so is the length of every vector: others may differ. An element of another kind is an error, or left
    out, when it is written.

    Args:
        elements: the sample, at least one.
        declared: a tree of `ArraySpec` as in `map(output_spec=...)`, whose open sizes are open here too; None for nothing.

    Raises:
        SpecError: none of the elements can be written.
    """
    found: list[tuple[Field, ...]] = []
    problem: SpecError | None = None
    for element in elements:
        try:
            found.append(_fields(element))
        except SpecError as error:
            problem = problem or error
    if problem is not None and not found:
        raise problem
    full = [fields for fields in found if all(0 not in field.shape for field in fields)]
    usual = Counter(map(_kind, full or found)).most_common(1)[0][0]  # of several the one that came first
    alike = [fields for fields in found if _kind(fields) == usual]
    opened = {} if declared is None else _leaves(declared)
    merged = []
    for field in alike[0]:
        shapes = [other.shape for fields in alike for other in fields if other.name == field.name]
        shape = tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))
        merged.append(replace(field, shape=_open(shape, opened.get(field.name))))
    return Schema(fields=tuple(merged))


def _fields(element: Any) -> tuple[Field, ...]:
    single = is_single(element)
    return tuple(replace(_field(name, value), single=single) for name, value in fields_of(element).items())


def _kind(fields: tuple[Field, ...]) -> frozenset[Any]:
    """Return what must be the same in all elements."""
    return frozenset((field.name, field.kind, field.dtype, len(field.shape), field.single) for field in fields)


def _leaves(declared: Any) -> dict[str, Any]:
    try:
        return fields_of(declared)
    except SpecError:  # it speaks of other elements than came; that is an error where they are made
        return {}


def _open(shape: tuple[int | None, ...], spec: Any) -> tuple[int | None, ...]:
    """Return a shape with None for the sizes that may be others in elements outside the sample."""
    if len(shape) == 1:
        return (None,)
    if not isinstance(spec, ArraySpec) or len(spec.shape) != len(shape):
        return shape
    return tuple(None if wanted is None else size for size, wanted in zip(shape, spec.shape, strict=True))


def _field(name: str, value: Any) -> Field:
    if isinstance(value, str):
        _check_text(value, f"the text of field {name!r}")
        return Field(name=name, kind="str")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Field(name=name, kind="bytes")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise SpecError(
            f"field {name!r} is {value}, which int64 does not hold",
            where=_WHERE,
            fix="map a function that makes it a float, a str, or where it fits a np.uint64",
        )
    if is_masked(value):
        raise SpecError(
            f"field {name!r} is a masked array, and no packed format holds masks",
            where=_WHERE,
            fix="map a function that fills it, value.filled(0), or that gives value.data and np.ma.getmaskarray(value) as two fields",
        )
    spec = spec_of(value)
    if spec.dtype.kind not in _DTYPES or spec.dtype.char in "gG":  # the bytes of a long double differ between machines
        raise SpecError(
            f"field {name!r} is a {type(value).__name__}{f' of {spec.dtype}' if spec.shape else ''}, which no packed format holds",
            where=_WHERE,
            fix="map a function that makes it an int, a float64, an array of such numbers, bytes or str, or leaves the field out",
        )
    return Field(name=name, kind="array", dtype=spec.dtype.newbyteorder("<").str, shape=tuple(spec.shape))


def _check_text(text: str, what: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{what} is no Unicode text: {error}",
            where=_WHERE,
            fix='make it bytes: os.fsencode(name) or text.encode(errors="surrogateescape")',
        ) from error


def _plain(field: Field, value: Any) -> Any:
    """Return what is to be written of the most usual values, which need no closer look; None for all others."""
    kind = type(value)
    if kind is bytes:
        return value if field.kind == "bytes" else None
    if kind is str:
        return value if field.kind == "str" and value.isascii() else None
    if kind is int:
        return np.array(value, field.dtype) if field.dtype == "<i8" and field.shape == () and _LEAST <= value <= _MOST else None
    if kind is np.ndarray and field.shape in (value.shape, (None,) * value.ndim) and value.dtype.str == field.dtype:
        return value if value.flags.c_contiguous else None
    return None


def _checked(field: Field, value: Any) -> Any:
    plain = _plain(field, value)
    if plain is not None:
        return plain
    now = _field(field.name, value)
    if field.kind == "array":
        fits = len(now.shape) == len(field.shape) and all(size in (None, new) for size, new in zip(field.shape, now.shape, strict=True))
        is_empty = field.stored in TOKENS and now.shape == (0,)  # float64 from np.array([])
        if now.kind == "array" and (now.dtype == field.dtype or is_empty) and fits:
            return np.ascontiguousarray(value, np.dtype(field.dtype)).reshape(now.shape)
    elif now.kind == field.kind:
        return value if field.kind == "str" else bytes(value)
    raise SpecError(
        f"field {field.name!r} is {now.type_words()}; the sample had {field.type_words()}",
        where=_WHERE,
        fix="map a function that makes all elements alike; where sizes differ, declare them: "
        "ds.map(fn, output_spec={...: ps.ArraySpec((None, None, 3), 'uint8')})",
    )


SHAPE = "/shape"
"""What is put behind the name of a ragged field, for the column of its shapes."""

TOKENS = ("uint16", "int32")
"""The dtypes of token ids in files."""
_STORED = ("bytes", "str", "int", "float", "list", "raw", "text", "npy", *TOKENS)
_LISTS_OF_EXAMPLE = ("<f4", "<i8", "<i4")
_MAGIC = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG\r\n\x1a\n", "png"), (b"RIFF", "webp"), (b"GIF8", "gif"), (b"II*\x00", "tiff"))


def columns_of(schema: Schema, fmt: str, first: Sequence[Any], dtype: str | None = None) -> Schema:
    """Decide how the fields of a schema are written.

    Args:
        schema: the fields.
        fmt: as in `PackOptions`.
        first: the values of one element, whose bytes tell the extension that they get in a tar.
        dtype: of tokens in the file, as in `PackOptions`.

    Raises:
        SpecError: two fields would have one name in the file; the elements are no documents of tokens, for a format of these.
    """
    others = partial(_as_tokens, len(schema.fields), dtype)
    decide = {"tfrecord": _in_example, "parquet": _in_parquet, "tar": _in_tar, "decoded": _as_it_is}.get(fmt, others)
    fields = []
    for field, value in zip(schema.fields, first, strict=True):
        column, stored = decide(field, value)
        shapes = column + SHAPE if fmt not in ("tar", "decoded") and None in field.shape and len(field.shape) > 1 else ""
        fields.append(replace(field, column=column, stored=stored, shapes=shapes))
    names = [name for field in fields for name in (field.column, field.shapes) if name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"two fields would be named {twice[0]!r} in the file", where="pack()", fix="rename one of them")
    return Schema(fields=tuple(fields))


def _in_example(field: Field, _: Any) -> tuple[str, str]:
    """Return the name of a field in the file, and what it is stored as."""
    dtype = np.dtype(field.dtype or "u1")
    if field.kind != "array":
        stored = field.kind
    elif field.shape:
        stored = "list" if field.dtype in _LISTS_OF_EXAMPLE else "raw"
    else:
        # tf.train.Example has no float but float32: what it would round is raw.
        stored = "float" if dtype.str in ("<f4", "<f2") else "int" if dtype.kind in "biu" and dtype.str != "<u8" else "raw"
    return field.name, stored


def _in_parquet(field: Field, _: Any) -> tuple[str, str]:
    if field.kind != "array":
        return field.name, field.kind
    kind = np.dtype(field.dtype).kind
    return field.name, "raw" if kind == "c" or len(field.shape) > 1 else "list" if field.shape else "float" if kind == "f" else "int"


def _in_tar(field: Field, value: Any) -> tuple[str, str]:
    name = field.name.replace("/", ".").lower()
    if field.kind == "str":
        return f"{name}.txt", "str"
    if field.kind == "bytes":
        return f"{name}.{extension_of(value)}", "bytes"
    if field.shape or np.dtype(field.dtype).kind == "c":
        return f"{name}.npy", "npy"
    # The names that the webdataset package decodes: .cls is an int, .json anything that JSON has.
    return f"{name}.{'cls' if np.dtype(field.dtype).kind in 'iu' else 'json'}", "text"


def _as_it_is(field: Field, _: Any) -> tuple[str, str]:
    return field.name, "raw" if field.dtype else field.kind


def _as_tokens(num_fields: int, dtype: str | None, field: Field, _: Any) -> tuple[str, str]:
    if num_fields > 1 or len(field.shape) != 1 or np.dtype(field.dtype).kind not in "iu":
        raise SpecError(
            f"the elements have {num_fields} fields, the first {field.name!r} of {field.type_words()}; a document of tokens is one array "
            "of integers, of one dimension",
            where=_WHERE,
            fix="map a function that returns the tokens alone, as an array: np.asarray(ids, np.int32)",
        )
    return "tokens", dtype or ("uint16" if field.dtype in ("|u1", "<u2") else "int32")


def extension_of(data: Any) -> str:
    """Return the usual extension of what bytes begin with; "bin" for anything unknown."""
    head = bytes(data[:16])
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "bin")


def from_raw(field: Field, data: Any, shape: Sequence[int] | None) -> NDArray[Any]:
    """Return the array of raw bytes as `shaped` does, a copy of them that may be written to.

    Raises:
        SpecError: the bytes are too many or too few for it.
    """
    try:
        return shaped(field, np.frombuffer(data, np.dtype(field.dtype)).copy(), shape)
    except ValueError as error:
        raise SpecError(
            f"{len(data)} bytes are no {field.type_words()}: {error}",
            where=f"column {field.column!r} of a packed dataset",
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
