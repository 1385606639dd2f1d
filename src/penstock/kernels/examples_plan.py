"""What the parser of Examples is to look for: names, kinds, counts and defaults, as the C reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels.wire import BYTES, FLOAT, INT64

__all__ = ["COUNT", "FILL", "FIXED", "SKIP", "ExamplePlan", "FeaturePlan", "hash_of", "make_plan"]

FIXED: Final = 0
COUNT: Final = 1
FILL: Final = 2
SKIP: Final = 3

_DTYPES: Final[dict[int, np.dtype[Any]]] = {BYTES: np.dtype(np.int64), FLOAT: np.dtype(np.float32), INT64: np.dtype(np.int64)}


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """One feature.

    Attributes:
        name: its key, UTF-8.
        kind: BYTES, FLOAT or INT64.
        mode: FIXED (exactly `count` values) or COUNT (any multiple of `count`).
        count: see `mode`; 1 or more for COUNT.
        default: stands for the values of a record without this feature: of numbers the bytes of `count` values, of bytes and of COUNT
            anything. None refuses such a record.
    """

    name: bytes
    kind: int
    mode: int
    count: int
    default: bytes | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the column."""
        return _DTYPES[self.kind]

    @property
    def width(self) -> int:
        """Numbers of the column for each value."""
        return 2 if self.kind == BYTES else 1


@dataclass(frozen=True, slots=True, eq=False)
class ExamplePlan:
    """A set of features as the C reads it; made by `make_plan`, never changed, for any number of threads.

    Attributes:
        features: what is expected.
        first: int64 [n, 6], see examples.c: parses fixed features and counts the values of variable ones.
        second: the same for the second call, which fills in the variable ones.
        texts: uint8, names and defaults.
        table: int64, numbers of features by the hash of their names.
        has_variable: whether a second call is needed.
    """

    features: tuple[FeaturePlan, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    texts: NDArray[np.uint8]
    table: NDArray[np.int64]
    has_variable: bool


def make_plan(features: Sequence[FeaturePlan]) -> ExamplePlan:
    """Lay out a plan.

    Raises:
        SpecError: two features of one name, or numbers out of range.
    """
    first = np.zeros((len(features), 6), np.int64)
    texts = bytearray()
    for number, one in enumerate(features):
        good = one.kind in _DTYPES and one.mode in (FIXED, COUNT) and (1 if one.mode == COUNT else 0) <= one.count < 1 << 40
        if one.mode == FIXED and one.kind != BYTES and one.default is not None:
            good &= len(one.default) == one.count * one.dtype.itemsize
        if not good:
            raise SpecError(f"no such feature: {one!r}", where="penstock.kernels.make_plan", fix="report it as a fault of penstock")
        first[number, :2] = len(texts), len(one.name)
        texts += one.name
        first[number, 2:] = one.kind, one.mode, one.count, -1 if one.default is None else len(texts)
        if one.mode == FIXED and one.kind != BYTES:
            texts += one.default or b""
    second = first.copy()
    second[:, 3] = np.where(first[:, 3] == COUNT, FILL, SKIP)
    names = [one.name for one in features]
    if len(set(names)) < len(names):
        raise SpecError("two features have one name", where="penstock.kernels.make_plan", fix="give each name once")
    return ExamplePlan(
        features=tuple(features),
        first=first,
        second=second,
        texts=np.frombuffer(bytes(texts) or b"\0", np.uint8),
        table=_table(names),
        has_variable=bool((first[:, 3] == COUNT).any()),
    )


def hash_of(name: bytes) -> int:
    """Return the 64 bit FNV-1a hash (Fowler, Noll, Vo) of a name."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _table(names: Sequence[bytes]) -> NDArray[np.int64]:
    size = 4
    while size < 2 * len(names):
        size *= 2
    spots = [-1] * size
    for number, name in enumerate(names):
        spot = hash_of(name) & (size - 1)
        while spots[spot] >= 0:
            spot = (spot + 1) & (size - 1)
        spots[spot] = number
    return np.array(spots, np.int64)
