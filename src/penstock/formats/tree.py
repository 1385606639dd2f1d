"""One element as bytes and back, without pickle: the form in which a cache keeps it, in memory as on disk.

A record is a header and one field per leaf, little-endian:

    uint32 H, H bytes of JSON padded with spaces so that 4 + H is a multiple of 16, then the leaves in the order of `element.flatten`,
    each at the next multiple of 16 bytes from the start.

The header names the structure and the kind of every leaf; shapes and values stand behind it. So the elements of one dataset share one
header whatever their shapes, and reading is one look-up and one view per array: 2 us for a picture with its label.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from penstock._contracts.element import Structure, unflatten
from penstock.errors import SpecError

__all__ = ["pack", "unpack"]

_ALIGNED = 16
"""Bytes objects begin at a multiple of 16, so every array does too: C loops may read it with any instruction."""

_VIEWED_BYTES = 4096
"""From here on a view of the items costs less than a copy: 0.6 us."""

_PLAIN_KINDS = "biufcSUMm"
_LENGTH = struct.Struct("<I")
_COUNT = struct.Struct("<Q")
_NUMBERS = {"int": struct.Struct("<q"), "float": struct.Struct("<d"), "bool": struct.Struct("<?"), "complex": struct.Struct("<dd")}

_Reader = Callable[[bytes, int], tuple[Any, int]]
"""Reads one leaf at an offset: (value, the offset behind it)."""


def pack(element: Any) -> bytes:
    """Return an element as bytes of its own: nothing of the element stays referenced.

    Raises:
        SpecError: a leaf is nothing that an element may hold, or a container is of a type of its own.
    """
    parts: list[Any] = []
    header = _header(_schema(element, parts, ""))
    size = len(header)
    out = [header]
    for part in parts:
        gap = -size % _ALIGNED if part.begins else 0
        out.extend((bytes(gap), part.data))
        size += gap + len(part.data)
    return b"".join(out)


def unpack(data: bytes) -> Any:
    """Return the element of `pack`. Its arrays are read-only views of `data`; its containers are new."""
    (length,) = _LENGTH.unpack_from(data)
    structure, readers = _plan_of(data[: 4 + length])
    at, leaves = 4 + length, []
    for read in readers:
        value, at = read(data, at + -at % _ALIGNED)
        leaves.append(value)
    if structure is not None and structure[0] == "flat":
        return dict(zip(structure[1], leaves, strict=True))
    return unflatten(structure, iter(leaves))


class _Part:
    """Bytes of a leaf; `begins` tells that it is the first of the leaf, or the items of an array, and so is aligned."""

    __slots__ = ("begins", "data")

    def __init__(self, data: Any, begins: bool = True) -> None:
        self.data = data
        self.begins = begins


# -- writing ----------------------------------------------------------------------------------------------------------------------


def _schema(tree: Any, parts: list[Any], path: str) -> Any:
    """Return the header's words for a tree, as nested tuples, and append the bytes of its leaves to `parts`."""
    kind = type(tree)
    if kind is dict:
        for key in tree:
            if type(key) not in (str, int):
                raise _refused(path, f"a dict with the key {key!r} of type {type(key).__name__}", "use str or int keys")
        return ("dict", *[(key, _schema(value, parts, f"{path}[{key!r}]")) for key, value in tree.items()])
    if kind is tuple or kind is list:
        return (kind.__name__, *[_schema(value, parts, f"{path}[{index}]") for index, value in enumerate(tree)])
    if isinstance(tree, (dict, tuple, list)):
        raise _refused(path, f"a {kind.__name__}, a container of a type of its own", "return a plain dict, tuple or list")
    return _leaf(tree, parts, path)


def _leaf(leaf: Any, parts: list[Any], path: str) -> Any:
    kind = type(leaf)
    if kind in (bool, int, float, complex):
        return _number(leaf, kind.__name__, parts)
    if kind in (str, bytes):
        parts.append(_Part(_sized(_text(leaf))))
        return kind.__name__
    if kind is np.ndarray or isinstance(leaf, np.memmap):
        return _array(np.asarray(leaf), parts, path)
    if isinstance(leaf, np.generic):
        _check_dtype(leaf.dtype, path)
        parts.append(_Part(leaf.tobytes()))
        return ("scalar", leaf.dtype.str)
    fix = "return arrays, numbers, str or bytes; give None a number of its own, such as -1"
    raise _refused(path, f"a {kind.__name__}", fix)


def _number(value: Any, name: str, parts: list[Any]) -> str:
    if name == "int" and not -(2**63) <= value < 2**63:
        parts.append(_Part(_sized(str(hex(value)).encode())))
        return "long"
    fields = (value.real, value.imag) if name == "complex" else (value,)
    parts.append(_Part(_NUMBERS[name].pack(*fields)))
    return name


def _array(array: Any, parts: list[Any], path: str) -> Any:
    parts.append(_Part(struct.pack(f"<{array.ndim}Q", *array.shape)))
    if array.dtype == np.dtype(object):
        for item in array.ravel().tolist():
            if type(item) not in (str, bytes):
                raise _refused(path, f"an object array with a {type(item).__name__} in it", "keep only str and bytes in object arrays")
            parts.append(_Part(b"s" if type(item) is str else b"b", begins=False))
            parts.append(_Part(_sized(_text(item)), begins=False))
        return ("objects", array.ndim)
    _check_dtype(array.dtype, path)
    if array.nbytes < _VIEWED_BYTES:
        parts.append(_Part(array.tobytes()))
    else:
        parts.append(_Part(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
    return ("array", array.dtype.str, array.ndim)


def _check_dtype(dtype: np.dtype[Any], path: str) -> None:
    if dtype.kind not in _PLAIN_KINDS or np.dtype(dtype.str) != dtype:
        raise _refused(path, f"an array of dtype {dtype}", "give each field of a structured array as an array of its own")


def _text(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _sized(data: bytes) -> bytes:
    return _COUNT.pack(len(data)) + data


@lru_cache(maxsize=256)
def _header(schema: Any) -> bytes:
    text = json.dumps(schema, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % _ALIGNED)
    return _LENGTH.pack(len(text)) + text


def _refused(path: str, what: str, fix: str) -> SpecError:
    return SpecError(f"a cache cannot keep {what}", where=f"cache(), leaf {path or 'the element itself'}", fix=fix)


# -- reading ----------------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _plan_of(header: bytes) -> tuple[Structure, tuple[_Reader, ...]]:
    """Return the structure and the reader of each leaf. A dict of leaves has the structure ("flat", keys)."""
    readers: list[_Reader] = []
    schema = json.loads(header[4:])
    structure = _structure(schema, readers)
    if structure is not None and structure[0] == "dict" and all(child is None for child in structure[2]):
        structure = ("flat", structure[1])
    return structure, tuple(readers)


def _structure(schema: Any, readers: list[_Reader]) -> Structure:
    name = schema if isinstance(schema, str) else schema[0]
    if name == "dict":
        keys = tuple(key for key, _ in schema[1:])
        return ("dict", keys, tuple(_structure(child, readers) for _, child in schema[1:]))
    if name == "list":
        return ("list", tuple(_structure(child, readers) for child in schema[1:]))
    if name == "tuple":
        return ("tuple", tuple, tuple(_structure(child, readers) for child in schema[1:]))
    readers.append(_reader(name, schema))
    return None


def _reader(name: str, schema: Any) -> _Reader:
    match name:
        case "array":
            return _array_reader(np.dtype(schema[1]), schema[2])
        case "scalar":
            return _scalar_reader(np.dtype(schema[1]))
        case "objects":
            return _objects_reader(schema[1])
        case "str":
            return _read_str
        case "bytes":
            return _read_bytes
        case "long":
            return _read_long
    return _number_reader(_NUMBERS[name], name == "complex")


def _array_reader(dtype: np.dtype[Any], ndim: int) -> _Reader:
    shapes = struct.Struct(f"<{ndim}Q")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        shape = shapes.unpack_from(data, at)
        at += shapes.size
        at += -at % _ALIGNED
        return np.ndarray(shape, dtype, data, at), at + math.prod(shape) * dtype.itemsize

    return read


def _scalar_reader(dtype: np.dtype[Any]) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        return np.ndarray((), dtype, data, at)[()], at + dtype.itemsize

    return read


def _objects_reader(ndim: int) -> _Reader:
    shapes = struct.Struct(f"<{ndim}Q")

    def read(data: bytes, at: int) -> tuple[Any, int]:
        shape = shapes.unpack_from(data, at)
        at += shapes.size
        array = np.empty(math.prod(shape), object)
        for place in range(len(array)):
            item = _read_str if data[at : at + 1] == b"s" else _read_bytes
            array[place], at = item(data, at + 1)
        array = array.reshape(shape)
        array.flags.writeable = False
        return array, at

    return read


def _number_reader(form: struct.Struct, is_complex: bool) -> _Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = form.unpack_from(data, at)
        return (complex(*values) if is_complex else values[0]), at + form.size

    return read


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    begin = at + 8
    end = begin + _COUNT.unpack_from(data, at)[0]
    return data[begin:end], end


def _read_str(data: bytes, at: int) -> tuple[str, int]:
    found, end = _read_bytes(data, at)
    return found.decode("utf-8", "surrogatepass"), end


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    found, end = _read_bytes(data, at)
    return int(found, 16), end
