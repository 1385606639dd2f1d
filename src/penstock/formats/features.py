"""Declared features of a record, of fixed and of variable length, and their values as bytes of Feature messages.

Names and arguments are TensorFlow's. A message is put together as (size in bytes, its pieces in order), with each length known before what
it is of, and joined once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import is_masked
from penstock._system.failing import attempt
from penstock.errors import PlanError, SpecError
from penstock.kernels.library import FLOAT32_DTYPE, INT64_DTYPE, Array, Uint8s
from penstock.kernels.wire import BYTES, FLOAT, INT64

_MOST_VALUES: Final = 1 << 31
_BYTES_NAMES: Final = ("bytes", "string", "str")


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """A feature with the same number of values in every record.

    In an element: an array of `shape` and `dtype`; for shape () a NumPy scalar; of bytes an array of dtype object, and for shape ()
    Python bytes. In a batch: one array with the batch in front.

    Args:
        shape: sizes; () for a single value.
        dtype: "float32", "int64" or bytes, as a name, a NumPy dtype, a Python type or TensorFlow's (`string` is bytes).
        default_value: stands for the values of a record without this feature: one value for all of them, or an array of `shape`.
            None: such a record is an error.

    Raises:
        PlanError: a shape, dtype or default that cannot be.
    """

    shape: tuple[int, ...]
    dtype: Any
    default_value: Any = None

    if TYPE_CHECKING:

        def __init__(self, shape: Sequence[int], dtype: Any, default_value: Any = None) -> None: ...

    def __post_init__(self) -> None:
        _settle(self)
        where = f"FixedLenFeature(shape={self.shape}, dtype={dtype_name(self.dtype)}), argument 'default_value'"
        object.__setattr__(self, "default_value", _default(self.default_value, self.shape, self.dtype, where))


@dataclass(frozen=True, slots=True)
class VarLenFeature:
    """A feature with any number of values, which is empty in a record that does not have it.

    In an element: a 1-d array of its own length (of bytes: dtype object). In a batch: use `ragged_batch` or `padded_batch`.

    Args:
        dtype: as for FixedLenFeature.

    Raises:
        PlanError: a dtype that cannot be.
    """

    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype(self.dtype, "VarLenFeature"))


@dataclass(frozen=True, slots=True)
class FixedLenSequenceFeature:
    """A feature with any number of steps of one shape.

    In an element: an array [steps, *shape]. Nothing is padded here; use `ragged_batch` or `padded_batch`.

    Args:
        shape: of one step.
        dtype: as for FixedLenFeature.
        allow_missing: a record without this feature has 0 steps; else it is an error.
        default_value: None; TensorFlow pads with it.

    Raises:
        PlanError: a shape or dtype that cannot be, or a default.
    """

    shape: tuple[int, ...]
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None

    if TYPE_CHECKING:

        def __init__(self, shape: Sequence[int], dtype: Any, allow_missing: bool = False, default_value: Any = None) -> None: ...

    def __post_init__(self) -> None:
        _settle(self)
        if prod(self.shape) == 0:
            raise PlanError(
                f"a step of shape {self.shape} has no values, so the number of steps is not known",
                where="FixedLenSequenceFeature, argument 'shape'",
                fix="give a shape without 0, such as ()",
            )
        if self.default_value is not None:
            raise PlanError(
                f"default_value={self.default_value!r} pads steps, and steps are not padded here",
                where="FixedLenSequenceFeature, argument 'default_value'",
                fix="leave it out, and give the value to padded_batch",
            )


Feature: TypeAlias = FixedLenFeature | VarLenFeature | FixedLenSequenceFeature


def check_features(features: Any, caller: str, *, may_be_empty: bool = False) -> dict[str, Feature]:
    """Return a copy of a mapping of names to features.

    Raises:
        PlanError: it is none, or has no entry.
    """
    if not isinstance(features, Mapping) or (not features and not may_be_empty):
        raise PlanError(
            f"features is {'empty' if isinstance(features, Mapping) else type(features).__name__}",
            where=f"{caller}, argument 'features'",
            fix='give a dict such as {"label": ps.FixedLenFeature((), "int64")}',
        )
    for name, feature in features.items():
        if not isinstance(name, str) or attempt(name.encode) is None:
            raise PlanError(f"the name {name!r} is no text", where=f"{caller}, argument 'features'", fix="give names as str")
        if not isinstance(feature, Feature):
            raise PlanError(
                f"the feature {name!r} is {type(feature).__name__}",
                where=f"{caller}, argument 'features'",
                fix="give a FixedLenFeature, VarLenFeature or FixedLenSequenceFeature of penstock",
            )
    return dict(features)


def features_record(features: Mapping[str, Feature]) -> list[list[Any]]:
    """Return features as JSON-able lists, in their order: for fingerprints, and equal for equal ones only."""
    out: list[list[Any]] = []
    for name, feature in features.items():
        row: list[Any] = [name, type(feature).__name__, dtype_name(feature.dtype)]
        if not isinstance(feature, VarLenFeature):
            row.append(list(feature.shape))
        if isinstance(feature, FixedLenSequenceFeature):
            row.append(feature.allow_missing)
        if isinstance(feature, FixedLenFeature):
            value = default_of(feature)
            row.append(None if value is None else [item.hex() for item in value] if isinstance(value, list) else value.tobytes().hex())
        out.append(row)
    return out


def default_of(feature: FixedLenFeature) -> Any:
    """Return the default of a feature, flat: a float32 or int64 array, a list of bytes, or None."""
    if feature.default_value is None:
        return None
    flat = np.array(feature.default_value, object if feature.dtype is bytes else feature.dtype).reshape(-1)
    return flat.tolist() if feature.dtype is bytes else flat


def _settle(feature: Any) -> None:
    name = type(feature).__name__
    object.__setattr__(feature, "dtype", _dtype(feature.dtype, name))
    object.__setattr__(feature, "shape", _shape(feature.shape, name))


def _shape(shape: Any, name: str) -> tuple[int, ...]:
    try:
        sizes: tuple[int, ...] | None = tuple(index(size) for size in shape)
    except TypeError:
        sizes = None
    if sizes is None or min(sizes, default=0) < 0 or prod(sizes) >= _MOST_VALUES:
        raise PlanError(
            f"shape={shape!r} is no shape", where=f"{name}, argument 'shape'", fix="give sizes from 0 on, such as (), (256,) or (28, 28)"
        )
    return sizes


def _dtype(dtype: Any, name: str) -> Any:
    """Return `bytes`, float32 or int64."""
    given = getattr(dtype, "as_numpy_dtype", dtype)  # TensorFlow's
    if given in (bytes, str, object, np.object_, np.bytes_, np.str_) or (isinstance(given, str) and given in _BYTES_NAMES):
        return bytes
    try:
        kind = np.dtype(given)
    except TypeError:
        kind = None
    if kind in (FLOAT32_DTYPE, INT64_DTYPE):
        return FLOAT32_DTYPE if kind == FLOAT32_DTYPE else INT64_DTYPE
    shown = given if kind is None else kind.name
    raise PlanError(
        f"dtype={shown!r} is none that a record can hold",
        where=f"{name}, argument 'dtype'",
        fix='give "float32", "int64" or bytes, and convert it in a map',
    )


def dtype_name(dtype: Any) -> str:
    """Name a dtype of a feature."""
    return "bytes" if dtype is bytes else str(dtype)


def kind_of(dtype: Any) -> int:
    """Return BYTES, FLOAT or INT64: the list of a record that a feature of this dtype stands in."""
    return BYTES if dtype is bytes else FLOAT if dtype == FLOAT32_DTYPE else INT64


def _default(value: Any, shape: tuple[int, ...], dtype: Any, where: str) -> Any:
    """Return the default as a scalar or as nested tuples, so that features can be compared and hashed."""
    if value is None:
        return None
    fix, problem = f"give one {dtype_name(dtype)} value, or an array of shape {shape}", ""
    try:
        kind, given, items = values_of(value, where)
    except SpecError as error:
        raise PlanError(f"default_value={value!r} is not {dtype_name(dtype)}: {error.what}", where=where, fix=fix) from error
    if kind not in (0, kind_of(dtype)) and (kind, kind_of(dtype)) != (INT64, FLOAT):
        problem = f"default_value={value!r} is not {dtype_name(dtype)}"
    elif given not in ((), shape) and len(np.ravel(items)) != 1:
        problem = f"default_value has shape {given}, not {shape}"
    if problem:
        raise PlanError(problem, where=where, fix=fix)
    with np.errstate(over="ignore"):
        array = np.array(items, object if dtype is bytes else dtype)
    filled = array.reshape(shape) if given == shape else np.full(shape, array.reshape(-1)[0], array.dtype)
    return _tuples(filled.tolist())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


Message: TypeAlias = tuple[int, list[bytes]]
"""Size and pieces."""

_MOST_LOOPED: Final = 32
"""Up to so many integers are encoded one by one (0.15 us each); more with NumPy (25 us, and 0.03 us each)."""
_SMALL: Final = [bytes((value,)) for value in range(128)]
_EMPTY: Final = np.empty(0, np.int64)


def encode_features(element: Mapping[str, Any], features: Mapping[str, Feature] | None, caller: str) -> Message:
    """Return the Example (or the context of a SequenceExample) of an element.

    Raises:
        SpecError: a value that a record cannot hold, or that is not what `features` says.
    """
    check_names(element, features, caller, "element")
    written: dict[str, Message] = {}
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


def check_names(values: Any, features: Mapping[str, Feature] | None, caller: str, argument: str) -> None:
    """Check the names of what is to become a map: text, and known to `features`.

    Raises:
        SpecError: it is no mapping, or has another name.
    """
    where = f"{caller}, argument {argument!r}"
    if type(values) is not dict and not isinstance(values, Mapping):
        raise SpecError(f"{argument} is {type(values).__name__}, not a dict", where=where, fix="give a dict of names to values")
    for name in values:
        if not isinstance(name, str):
            raise SpecError(f"the name {name!r} is no str", where=where, fix="give names as str")
        if features is not None and name not in features:
            raise SpecError(
                f"features does not name {name!r}, which {argument} has", where=where, fix="leave it out, or name it in features"
            )
        if attempt(name.encode) is None:
            raise SpecError(f"the name {name!r} is no UTF-8: it has a surrogate", where=where, fix="give names that are text")


def encode_map(values: Mapping[str, Message]) -> Message:
    """Return the entries of a map field 1, in the order of the bytes of their names."""
    total, out = 0, []
    for name, (size, pieces) in sorted([(name.encode(), value) for name, value in values.items()]):
        key = b"".join((b"\x0a", varint(len(name)), name, b"\x12", varint(size)))
        head = b"\x0a" + varint(len(key) + size)
        total += len(head) + len(key) + size
        out += [head, key, *pieces]
    return total, out


def encode_feature(value: Any, feature: Feature | None, where: str) -> Message:
    """Return the Feature message of a value.

    Raises:
        SpecError: a value that a record cannot hold, or that is not what `feature` says.
    """
    kind, shape, items = values_of(value, where)
    if feature is None:
        if not kind:
            raise SpecError(
                "an empty list has no kind", where=where, fix="give an empty array with a dtype, or declare the feature with features="
            )
        return _feature(kind, items)
    declared = kind_of(feature.dtype)
    if kind not in (0, declared) and (kind, declared) != (INT64, FLOAT):
        name = dtype_name(feature.dtype)
        raise SpecError(
            f"the value is {getattr(items, 'dtype', 'bytes')}, and is declared {name}", where=where, fix=f"convert it to {name}"
        )
    if not isinstance(feature, VarLenFeature):
        _check_shape(shape, feature, where)
    return _feature(declared, items if kind else _EMPTY)


def _check_shape(shape: tuple[int, ...], feature: FixedLenFeature | FixedLenSequenceFeature, where: str) -> None:
    """Refuse another number of items, and another shape unless they come or are declared flat; axes of one do not count."""
    fixed = isinstance(feature, FixedLenFeature)
    count, size = prod(shape), prod(feature.shape)
    if count != size if fixed else count % size:
        raise SpecError(
            f"the value has {count} items, and is declared with shape {feature.shape}", where=where, fix="give so many, or declare it"
        )
    given, wanted = ([size for size in sizes if size != 1] for sizes in (shape if fixed else shape[1:], feature.shape))
    if len(shape) > 1 and given != wanted and not (fixed and len(wanted) < 2):
        raise SpecError(
            f"the value has shape {shape}, and is declared with shape {feature.shape}{'' if fixed else ' for a step'}",
            where=where,
            fix="transpose or reshape it, or declare its shape; a flat list of the items is taken too",
        )


def delimited(number: int, message: Message) -> Message:
    """Return a field of bytes, numbered below 16."""
    size, pieces = message
    head = _SMALL[number << 3 | 2] + varint(size)
    return len(head) + size, [head, *pieces]


def _feature(kind: int, items: Any) -> Message:
    """Return the Feature of an array of numbers, or of texts."""
    if kind == BYTES:
        pieces: list[bytes] = []
        for item in items:
            pieces += (b"\x0a" + varint(len(item)), item)
        return delimited(BYTES, (sum(map(len, pieces)), pieces))
    if kind == FLOAT:
        with np.errstate(over="ignore"):
            body = items.astype("<f4", copy=False).tobytes()
    else:
        body = _integers(items)
    return delimited(kind, delimited(1, (len(body), [body])) if body else (0, []))


def _integers(array: Array) -> bytes:
    if array.size <= _MOST_LOOPED:
        return b"".join([varint(number & 0xFFFFFFFFFFFFFFFF) for number in array.astype(np.int64, copy=False).reshape(-1).tolist()])
    return _varints(array.reshape(-1).astype(np.int64).view(np.uint64))


def varint(value: int) -> bytes:
    """Return a number >= 0 as protobuf writes it: seven bits in a byte, the lowest first."""
    if 0 <= value < 1 << 7:
        return _SMALL[value]
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
    kept: Uint8s = out[places < sizes[:, None]]
    return kept.tobytes()


# -- values as users write them to float32, int64 or bytes; nothing changes on the way --------------------------------------------

TEXTS: Final = (bytes, bytearray, memoryview, str)
_NESTS: Final = (list, tuple)
_PLAIN: Final = frozenset({bytes, str, int, float, bool, np.int64, np.float64, np.float32})
"""Types that are surely not masked."""


Values: TypeAlias = tuple[int, tuple[int, ...], Array | list[bytes]]
"""Kind (BYTES, FLOAT or INT64; 0 for an empty list, which may become any), shape, and the items: an array of numbers, or each text."""


def values_of(value: Any, where: str) -> Values:
    """Return the values of a number, a text, an array, or nested lists of them.

    Raises:
        SpecError: a value that none of the three lists can hold as it is.
    """
    if isinstance(value, TEXTS):
        return (BYTES, (), [_as_bytes(value, where)])
    if isinstance(value, _NESTS):
        return _listed(value, where)
    if isinstance(value, np.ndarray) and is_masked(value):
        raise _masked(where)
    return _of_array(np.asarray(value), where)


def _listed(value: Any, where: str) -> Values:
    leaves = list(_leaves(value))
    if any(is_masked(leaf) for leaf in leaves if type(leaf) not in _PLAIN):
        raise _masked(where)
    are_texts = [isinstance(leaf, TEXTS) for leaf in leaves]
    if leaves and all(are_texts):  # NumPy's own texts would lose the zero bytes at their ends
        shape = _shape_of(value)
        if shape is None:
            raise _ragged("its lists are not equally long", where)
        return (BYTES, shape, [_as_bytes(leaf, where) for leaf in leaves])
    if any(are_texts):
        raise _unfit(leaves, where)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _ragged(str(error), where) from error
    if not leaves:
        return (0, array.shape, [])
    kind, kinds = array.dtype.kind, (np.asarray(leaf).dtype.kind for leaf in leaves)
    if (kind == "f" and all(one in "iub" for one in kinds)) or (kind in "SU" and any(one not in "SU" for one in kinds)):
        raise _unfit(leaves, where)  # integers that no dtype of NumPy holds together, or numbers that it made texts of
    return _of_array(array, where)


def _of_array(array: Array, where: str) -> Values:
    kind = array.dtype.kind
    if kind == "f":
        return (FLOAT, array.shape, array)
    if kind in "iub":
        if kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 1 << 63:
            raise _too_large(int(array.max()), where)
        return (INT64, array.shape, array)
    if kind in "SUO":
        items = array.reshape(-1).tolist()
        if kind == "O" and not all(isinstance(item, TEXTS) for item in items):
            raise _unfit(items, where)
        return (BYTES, array.shape, [_as_bytes(item, where) for item in items])
    raise SpecError(f"dtype {array.dtype} has no place in a record", where=where, fix="convert it to float32, int64 or bytes")


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of nested lists, or None when they have none."""
    if not isinstance(value, _NESTS):
        return ()
    shapes = set(map(_shape_of, value)) or {()}
    inner = shapes.pop()
    return None if shapes or inner is None else (len(value), *inner)


def _leaves(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, _NESTS):
            yield from _leaves(item)
        else:
            yield item


def _as_bytes(value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        return bytes(value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{value!r:.60} is no UTF-8", where=where, fix='encode it yourself, for example with "surrogateescape"') from error


def _unfit(items: list[Any], where: str) -> SpecError:
    """Return the error of items of which at least one cannot stand in a list, or not beside the others."""
    for item in items:
        if isinstance(item, (int, np.integer)) and not -(1 << 63) <= int(item) < 1 << 63:
            return _too_large(int(item), where)
    return SpecError(
        f"values of {', '.join(sorted({type(item).__name__ for item in items}))} have no place in one list of a record",
        where=where,
        fix="give numbers of one dtype, np.asarray(value, np.int64) or np.float32; or bytes and str alone",
    )


def _too_large(number: int, where: str) -> SpecError:
    shown = f"{number}" if number.bit_length() <= 128 else f"an int of {number.bit_length()} bits"
    return SpecError(f"{shown} does not fit int64", where=where, fix="store it as bytes, or as two integers")


def _ragged(reason: str, where: str) -> SpecError:
    return SpecError(f"the value is ragged: {reason}", where=where, fix="flatten it, and store its lengths as a feature")


def _masked(where: str) -> SpecError:
    return SpecError(
        "the value is a masked array, whose mask would be lost",
        where=where,
        fix="give value.filled(...), and the mask as a feature of its own",
    )
