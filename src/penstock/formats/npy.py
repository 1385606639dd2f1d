"""The header of an .npy file: what array lies behind it, and where. Nothing is unpickled, and nothing of it is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import RecordError

__all__ = ["HEAD_BYTES", "MAGIC", "NpyHeader", "parse_npy"]

MAGIC = b"\x93NUMPY"
HEAD_BYTES = 16_384
"""How much of the beginning of a file `parse_npy` wants to see."""

_MAX_TEXT = 10_000
_MAX_SIDE = 1 << 62
_LENGTHS = {1: 2, 2: 4, 3: 4}
_KEYS = {"descr", "fortran_order", "shape"}
_SAVE = "write it with np.save"


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyHeader:
    """The array of an .npy file.

    Attributes:
        dtype: of its items; never one of objects.
        shape: of the array.
        fortran_order: whether the first index runs fastest.
        offset: byte of the file at which the first item stands.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int


def parse_npy(head: bytes, size: int, name: str) -> NpyHeader:
    """Read the header of an .npy file, versions 1 to 3.

    Args:
        head: the first `HEAD_BYTES` bytes of the file, or all of a smaller one.
        size: bytes of the file.
        name: of the file, for errors.

    Raises:
        RecordError: no .npy file, a header that is cut or damaged, an array of Python objects (it would have to be unpickled), of records
            or of sub-arrays, or a file with fewer or more bytes than the array.
    """
    if not head.startswith(MAGIC):
        raise _error(f"the file begins with {head[:8]!r}, not as an .npy file does", name, 0, _hint(head))
    if len(head) < 8 or head[6] not in _LENGTHS or head[7] != 0:
        version = f"{head[6]}.{head[7]}" if len(head) >= 8 else "missing"
        raise _error(f"its version is {version}; 1.0, 2.0 and 3.0 are known", name, 6, _SAVE)
    begin = 8 + _LENGTHS[head[6]]
    length = int.from_bytes(head[8:begin], "little")
    if len(head) < begin or begin + length > size:
        raise _error(f"the header says that it has {length} bytes, and the file has {size} in all", name, 8, "get the whole file again")
    if length > min(_MAX_TEXT, len(head) - begin):
        raise _error(f"the header says that it has {length} bytes; {_MAX_TEXT} are allowed", name, 8, _SAVE)
    record = _literal(head[begin : begin + length], head[6], name, begin)
    dtype = _dtype(record["descr"], name, begin)
    shape, fortran_order = record["shape"], record["fortran_order"]
    if not (
        isinstance(shape, tuple) and all(type(side) is int and 0 <= side <= _MAX_SIDE for side in shape) and type(fortran_order) is bool
    ):
        raise _error(f"shape {str(shape)[:80]} or fortran_order {str(fortran_order)[:80]} is none", name, begin, _SAVE)
    header = NpyHeader(dtype=dtype, shape=shape, fortran_order=fortran_order, offset=begin + length)
    _check_size(header, size, name)
    return header


def _literal(text: bytes, version: int, name: str, offset: int) -> dict[str, Any]:
    import ast  # only here, and only then

    try:
        record = ast.literal_eval(text.strip(b" \n").decode("utf-8" if version == 3 else "latin1"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise _error(f"the header is no Python literal ({type(error).__name__})", name, offset, _SAVE) from error
    if not isinstance(record, dict) or set(record) != _KEYS:
        raise _error("the header does not say descr, fortran_order and shape, and nothing else", name, offset, _SAVE)
    return record


def _dtype(description: Any, name: str, offset: int) -> np.dtype[Any]:
    if not isinstance(description, str):
        raise _error(
            f"the items are records ({str(description)[:80]}), not numbers", name, offset, "save each field as an array of its own"
        )
    try:
        # Only what np.save writes: of other spellings some warn.
        dtype = np.dtype(description if description[1:2] in tuple("biufcSUVMmO") else "none")
    except (TypeError, ValueError, SyntaxError) as error:
        raise _error(f"{description[:80]!r} is no dtype", name, offset, _SAVE) from error
    if dtype.hasobject:
        raise _error(
            "the array holds Python objects, which needs allow_pickle: reading them may run any code",
            name,
            offset,
            "save numbers: np.save(path, np.array(ids, np.uint16))",
        )
    if dtype.subdtype is not None or dtype.names is not None or dtype.itemsize == 0:
        raise _error(f"the items are {description[:80]!r}, not plain values", name, offset, _SAVE)
    return dtype


def _check_size(header: NpyHeader, size: int, name: str) -> None:
    wanted = header.offset + math.prod(header.shape) * header.dtype.itemsize
    if wanted > size:
        raise _error(
            f"the array of shape {header.shape} and dtype {header.dtype} ends at byte {wanted}, and the file has {size}: it is cut",
            name,
            size,
            "get the whole file again",
        )
    if wanted < size:
        raise _error(f"{size - wanted} bytes stand behind the array, which ends at byte {wanted}", name, wanted, "keep one array in a file")


def _hint(head: bytes) -> str:
    if head.startswith(b"PK"):
        return "this looks like an .npz archive: save each array with np.save, or read it with from_arrays(dict(np.load(path)))"
    if head.startswith(b"\x1f\x8b"):
        return "this looks like gzip: unpack it first"
    return "check the path; a raw binary file needs dtype=, and a name that does not end in .npy"


def _error(what: str, name: str, offset: int, fix: str) -> RecordError:
    return RecordError(what, where=f"{name!r}, offset {offset}", fix=fix)
