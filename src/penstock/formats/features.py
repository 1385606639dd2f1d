"""Declared features of a record, of fixed and of variable length. Names and arguments are TensorFlow's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from penstock.errors import PlanError

__all__ = ["Feature", "FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "check_features", "default_of", "features_record"]

_MOST_VALUES: Final = 1 << 31
_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
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
        where = f"FixedLenFeature(shape={self.shape}, dtype={_dtype_name(self.dtype)}), argument 'default_value'"
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
        if not isinstance(name, str) or _surrogates(name):
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
        row: list[Any] = [name, type(feature).__name__, _dtype_name(feature.dtype)]
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
    if kind in (_FLOAT32, _INT64):
        return _FLOAT32 if kind == _FLOAT32 else _INT64
    shown = given if kind is None else kind.name
    raise PlanError(
        f"dtype={shown!r} is none that a record can hold",
        where=f"{name}, argument 'dtype'",
        fix='give "float32", "int64" or bytes, and convert it in a map',
    )


def _dtype_name(dtype: Any) -> str:
    return "bytes" if dtype is bytes else str(dtype)


def _default(value: Any, shape: tuple[int, ...], dtype: Any, where: str) -> Any:
    """Return the default as a scalar or as nested tuples, so that features can be compared and hashed."""
    if value is None:
        return None
    fix = f"give one {_dtype_name(dtype)} value, or an array of shape {shape}"
    if dtype is bytes:
        array = np.array(value, object)
        good = all(isinstance(item, bytes) for item in array.reshape(-1).tolist())
    else:
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(value)
                good = array.dtype.kind in "biuf" and np.can_cast(array.dtype, dtype, "same_kind")
                array = array.astype(dtype) if good else array
                good = good and (dtype != _INT64 or bool((array == np.asarray(value)).all()))
        except (TypeError, ValueError, OverflowError):
            good, array = False, np.zeros(shape)
    if not good:
        raise PlanError(f"default_value={value!r} is not {_dtype_name(dtype)}", where=where, fix=fix)
    if array.shape not in ((), shape) and array.size != 1:
        raise PlanError(f"default_value has shape {array.shape}, not {shape}", where=where, fix=fix)
    filled = array if array.shape == shape else np.full(shape, array.reshape(-1)[0], array.dtype)
    return _tuples(filled.tolist())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _surrogates(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False
