"""What the bytes of a field mean, by the last part of its extension; nothing here runs what it reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import RecordError

__all__ = ["decode_field", "stays_bytes"]

_MOST_HEADER = 4096


def decode_field(field: str, data: memoryview | bytes) -> Any:
    """Return the value of a field: int, str, what JSON says, an array; bytes of those that nothing is known of, images among them.

    Raises:
        RecordError: the bytes are not what the extension says, or could only be read with pickle.
    """
    extension = field.rpartition(".")[2]
    decoder = _DECODERS.get(extension)
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
    shown = bytes(data[:40])
    return RecordError(
        f"field {field!r} of {len(data)} bytes is not what its name says: {why}",
        where=f"field {field!r}, which begins with {shown!r}",
        fix="write it again, or read it as bytes with decode=None",
    )


def _integer(data: memoryview | bytes) -> int:
    return int(bytes(data))


def _text(data: memoryview | bytes) -> str:
    return str(data, "utf-8")


def _json(data: memoryview | bytes) -> Any:
    return json.loads(bytes(data))


def _array(data: memoryview | bytes) -> Any:
    """Return the array of a .npy file, a copy. Its header is matched, not evaluated; its size must be that of the bytes."""
    head = _HEADER.match(bytes(data[:_MOST_HEADER]))
    if head is None:
        if _OBJECTS.match(bytes(data[:_MOST_HEADER])):
            raise _refused("npy", "it holds Python objects", _NO_PICKLE)
        raise _refused("npy", "it has no header of a plain array", "write it with np.save, without structured types")
    version, descr, columns, sides = head.group(1, 3, 4, 5)
    begin = head.end(2) + int.from_bytes(head.group(2), "little")
    if (version == b"\1") != (len(head.group(2)) == 2) or not head.end() <= begin <= len(data):
        raise _refused("npy", "its header has another length than it says", "write it again with np.save")
    try:
        dtype = np.dtype(descr.decode())
    except TypeError as error:
        raise _refused("npy", f"its type is {descr.decode()!r}", "write it again with np.save") from error
    shape = tuple(int(side) for side in sides.split(b",") if side.strip())
    needed = math.prod(shape) * dtype.itemsize
    if len(shape) > _MOST_SIDES or len(data) - begin != needed:
        raise _refused(
            "npy", f"an array of shape {shape} and dtype {dtype} has {needed} bytes, and {len(data) - begin} are there", "write it again"
        )
    array = np.frombuffer(data, dtype, offset=begin) if needed else np.empty(0, dtype)
    return array.reshape(shape, order="F" if columns == b"True" else "C").copy(order="K")


_MOST_SIDES = 32
_HEADER = re.compile(
    rb"\x93NUMPY(\x01|\x02)\x00((?:..)|(?:....))\{'descr': '([<>|=][?biufcSU]\d{1,6}|[<>][mM]8(?:\[\d{0,6}[A-Za-z]{1,2}\])?)', "
    rb"'fortran_order': (True|False), 'shape': \(((?:\d{1,18}, ?)*(?:\d{1,18})?)\),? ?\}",
    re.DOTALL,
)
_OBJECTS = re.compile(rb"\x93NUMPY..(?:..|....)\{[^{}]*'descr': (?:'\|?O|\[.*'\|?O)", re.DOTALL)


def _pickled(data: memoryview | bytes) -> Any:
    raise _refused("pickle", "it is a pickle", _NO_PICKLE)


_NO_PICKLE = (
    "it needs allow_pickle, which would run what is written in it: Penstock never does. Write it as .npy, .json or .txt; if you trust it, "
    "read bytes with decode=None and unpickle them in a map function of your own"
)


def _refused(kind: str, what: str, fix: str) -> RecordError:
    return RecordError(f"{what}, which is not read", where=f"a field of kind {kind}", fix=fix)


_DECODERS: dict[str, Callable[[memoryview | bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _integer),
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("json", "jsn"), _json),
    **dict.fromkeys(("pkl", "pickle", "pyd", "pth", "pt"), _pickled),
    "npy": _array,
}
