"""Values to the bytes of Feature messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.formats.features import Feature, FixedLenFeature, FixedLenSequenceFeature
from penstock.kernels.messages import BYTES, FLOAT, INT64

__all__ = ["delimited", "encode_feature", "encode_features", "encode_map"]

_MOST_LOOPED: Final = 32
"""Up to so many integers are encoded one by one (0.15 us each); more with NumPy (25 us, and 0.03 us each)."""
_SMALL: Final = [bytes((value,)) for value in range(128)]
_TEXTS: Final = (bytes, bytearray, memoryview, str)


def encode_features(element: Mapping[str, Any], features: Mapping[str, Feature] | None, caller: str) -> bytes:
    """Return the Example (or the context of a SequenceExample) of an element.

    Raises:
        SpecError: a value that a record cannot hold, or that is not what `features` says.
    """
    where = f"{caller}, argument 'element'"
    if not isinstance(element, Mapping):
        raise SpecError(f"the element is {type(element).__name__}, not a dict", where=where, fix="give a dict of names to values")
    for name in element:
        if not isinstance(name, str) or (features is not None and name not in features):
            raise SpecError(
                f"the element has {name!r}, which {'is no str' if not isinstance(name, str) else 'features does not name'}",
                where=where,
                fix="leave it out, or name it in features",
            )
    written: dict[str, bytes] = {}
    for name in element if features is None else features:
        feature = None if features is None else features[name]
        where = f"{caller}, feature {name!r}"
        if name in element:
            written[name] = encode_feature(element[name], feature, where)
        elif isinstance(feature, FixedLenFeature) and feature.default_value is None:
            raise SpecError(f"the element has no {name!r}", where=where, fix="give it a value, or the feature a default_value")
        elif isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            raise SpecError(f"the element has no {name!r}", where=where, fix="give it a value, or the feature allow_missing=True")
    return delimited(1, encode_map(written))


def encode_map(values: Mapping[str, bytes]) -> bytes:
    """Return the entries of a map field 1, in the order of the bytes of their names."""
    pairs = sorted((name.encode(), value) for name, value in values.items())
    parts: list[bytes] = []
    for name, value in pairs:
        key = b"\x0a" + _varint(len(name)) + name + b"\x12" + _varint(len(value))
        parts += (b"\x0a" + _varint(len(key) + len(value)), key, value)
    return b"".join(parts)


def encode_feature(value: Any, feature: Feature | None, where: str) -> bytes:
    """Return the Feature message of a value.

    Raises:
        SpecError: a value that a record cannot hold, or that is not what `feature` says.
    """
    kind, body, count = _encoded(value, where)
    if feature is None:
        if not kind:
            raise SpecError(
                "an empty list has no kind", where=where, fix="give an empty array with a dtype, or declare the feature with features="
            )
        return delimited(kind, body)
    declared = BYTES if feature.dtype is bytes else FLOAT if feature.dtype == np.float32 else INT64
    if kind == INT64 and declared == FLOAT:
        kind, body, count = _floats(np.asarray(value), where)
    if kind not in (0, declared):
        raise SpecError(
            f"the value is {'bytes' if kind == BYTES else np.asarray(value).dtype}, and is declared {_name(feature)}",
            where=where,
            fix=f"convert it to {_name(feature)}",
        )
    shape = getattr(feature, "shape", ())
    size = prod(shape)
    good = count == size if isinstance(feature, FixedLenFeature) else count % size == 0
    if not good:
        raise SpecError(f"the value has {count} items, and is declared with shape {shape}", where=where, fix="give so many, or declare it")
    return delimited(declared, body)


def delimited(number: int, data: bytes) -> bytes:
    """Return a field of bytes, numbered below 16."""
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _encoded(value: Any, where: str) -> tuple[int, bytes, int]:
    """Return (kind, body of the list, number of values); the kind of an empty list is 0."""
    if isinstance(value, _TEXTS):
        return BYTES, delimited(1, _as_bytes(value, where)), 1
    if isinstance(value, (list, tuple)):
        if not value:
            return 0, b"", 0
        if isinstance(value[0], _TEXTS):
            return _texts(value, where)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SpecError(f"the value is ragged: {error}", where=where, fix="flatten it, and store its lengths as a feature") from error
    if array.dtype.kind == "f":
        return _floats(array, where)
    if array.dtype.kind in "iub":
        return _integers(array, where)
    if array.dtype.kind in "SUO":
        return _texts(array.reshape(-1).tolist(), where)
    raise SpecError(f"dtype {array.dtype} has no place in a record", where=where, fix="convert it to float32, int64 or bytes")


def _floats(array: NDArray[Any], where: str) -> tuple[int, bytes, int]:
    with np.errstate(over="ignore"):
        body = array.astype("<f4", copy=False).tobytes()
    return FLOAT, delimited(1, body) if body else b"", array.size


def _integers(array: NDArray[Any], where: str) -> tuple[int, bytes, int]:
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 1 << 63:
        raise SpecError(f"{int(array.max())} does not fit int64", where=where, fix="store it as bytes, or as two integers")
    if array.size <= _MOST_LOOPED:
        body = b"".join([_varint(number & 0xFFFFFFFFFFFFFFFF) for number in array.astype(np.int64).reshape(-1).tolist()])
    else:
        body = _varints(array.reshape(-1).astype(np.int64).view(np.uint64))
    return INT64, delimited(1, body) if array.size else b"", array.size


def _texts(values: Iterable[Any], where: str) -> tuple[int, bytes, int]:
    parts = [delimited(1, _as_bytes(value, where)) for value in values]
    return BYTES, b"".join(parts), len(parts)


def _as_bytes(value: Any, where: str) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SpecError(f"{value!r} is no UTF-8", where=where, fix='encode it yourself, for example with "surrogateescape"') from error
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SpecError(f"{type(value).__name__} has no place in a record", where=where, fix="give numbers, bytes, str, or arrays of them")


def _varint(value: int) -> bytes:
    if 0 <= value < 1 << 7:
        return _SMALL[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(values: NDArray[np.uint64]) -> bytes:
    """Encode many numbers: all as ten groups of seven bits, of which those that count are kept."""
    groups = values[:, None] >> np.arange(0, 70, 7, dtype=np.uint64).clip(max=63)
    groups[:, 9] = values >> np.uint64(63)
    sizes = np.maximum(1, 10 - (groups != 0)[:, ::-1].argmax(1))
    sizes[values == 0] = 1
    places = np.arange(10)
    more = places < (sizes - 1)[:, None]
    out = (groups & np.uint64(127)).astype(np.uint8) | (more.astype(np.uint8) << 7)
    kept: NDArray[np.uint8] = out[places < sizes[:, None]]
    return kept.tobytes()


def _name(feature: Feature) -> str:
    return "bytes" if feature.dtype is bytes else str(feature.dtype)
