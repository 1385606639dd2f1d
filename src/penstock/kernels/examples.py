"""Blocks of serialized tf.train.Example into columns: the plan of a set of features, the checked calls, and the twin of examples.c.

The plan holds names, kinds, counts and defaults, as the C reads them. The twin gives the same columns and reports, from any thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from penstock._system.lazy import dataclass
from penstock.errors import SpecError
from penstock.kernels.library import (
    INT64_DTYPE,
    UINT8_DTYPE,
    Array,
    DType,
    Ints,
    Uint8s,
    block,
    chosen,
    chosen_library,
    place,
    require,
    require_shape,
    table_of_columns,
)
from penstock.kernels.spans import Taker
from penstock.kernels.wire import BYTES, FLOAT, INT64, Entry, WireFault, WireProblem, as_array, entries, lists_of, messages, values_of

FIXED: Final = 0
COUNT: Final = 1
FILL: Final = 2
SKIP: Final = 3

_DTYPES: Final[dict[int, DType]] = {BYTES: np.dtype(np.int64), FLOAT: np.dtype(np.float32), INT64: np.dtype(np.int64)}


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
    def dtype(self) -> DType:
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
    first: Ints
    second: Ints
    texts: Uint8s
    table: Ints
    has_variable: bool


def make_plan(features: Sequence[FeaturePlan]) -> ExamplePlan:
    """Lay out a plan of features with different names; each default has the bytes that its feature wants."""
    first = np.zeros((len(features), 6), np.int64)
    texts = bytearray()
    for number, one in enumerate(features):
        first[number, :2] = len(texts), len(one.name)
        texts += one.name
        first[number, 2:] = one.kind, one.mode, one.count, -1 if one.default is None else len(texts)
        if one.mode == FIXED and one.kind != BYTES:
            texts += one.default or b""
    second = first.copy()
    second[:, 3] = np.where(first[:, 3] == COUNT, FILL, SKIP)
    return ExamplePlan(
        features=tuple(features),
        first=first,
        second=second,
        texts=np.frombuffer(bytes(texts) or b"\0", np.uint8),
        table=_table([one.name for one in features]),
        has_variable=bool((first[:, 3] == COUNT).any()),
    )


def hash_of(name: bytes) -> int:
    """Return the 64 bit FNV-1a hash (Fowler, Noll, Vo) of a name."""
    value = 0xCBF29CE484222325
    for byte in name:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _table(names: Sequence[bytes]) -> Ints:
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


def parse_examples_twin(
    buffer: Uint8s,
    starts: Ints,
    lengths: Ints,
    plan: ExamplePlan,
    table: Ints,
    outs: Sequence[Array],
    offsets: Sequence[Ints] | None,
    report: Ints,
) -> int:
    """Parse records into columns; return -1, or the first bad row with its `report` (fault, feature, where, found).

    Args:
        buffer: bytes.
        starts: where each record begins.
        lengths: of each.
        plan: what is expected.
        table: `plan.first` or `plan.second`.
        outs: a column for each feature.
        offsets: for `plan.second`, where the values of each row go.
        report: int64 [4].
    """
    numbers = {feature.name: number for number, feature in enumerate(plan.features)}
    modes = table[:, 3].tolist()
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if start < 0 or length < 0 or start > buffer.size or length > buffer.size - start:
            report[:] = WireProblem.SPAN, -1, 0, 0
            return row
        record = buffer[start : start + length].tobytes()
        number = -1
        try:
            found = entries(record, messages(record, 0, length, 1))
            for number, feature in enumerate(plan.features):
                if modes[number] != SKIP:
                    where = None if offsets is None else offsets[number]
                    _put(record, start, found.get(feature.name), feature, modes[number], row, outs[number], where)
        except WireFault as fault:
            if fault.name is not None:
                number = numbers.get(fault.name, -1)
            report[:] = fault.fault, number, fault.at, fault.found
            return row
    return -1


def _put(
    record: bytes, start: int, entry: Entry | None, feature: FeaturePlan, mode: int, row: int, out: Array, offsets: Ints | None
) -> None:
    """Write one feature of one record."""
    at = 0 if entry is None else entry[0]
    kind, values = _read(record, entry, feature, mode)
    begin, end = row * feature.count, (row + 1) * feature.count
    if mode == FILL:
        assert offsets is not None
        begin, end = int(offsets[row]), int(offsets[row + 1])
    if kind == 0 and mode == FIXED:
        _put_default(feature, out.reshape(-1, feature.width)[begin:end])
        return
    if len(values) % feature.count if mode == COUNT else len(values) != end - begin:
        raise WireFault(WireProblem.COUNT, at, found=len(values))
    if mode == COUNT:
        out[row] = len(values)
        return
    column = as_array(feature.kind, values)
    if feature.kind == BYTES:
        column[:, 0] += start
    out.reshape(-1, feature.width)[begin:end] = column.reshape(-1, feature.width)


def _read(record: bytes, entry: Entry | None, feature: FeaturePlan, mode: int) -> tuple[int, list[Any]]:
    """Return the kind and the values of one feature of one record; kind 0 and no values where the default stands."""
    kind, values = (0, []) if entry is None else lists_of(record, values_of(record, entry), feature.kind)
    if kind not in (0, feature.kind):
        raise WireFault(WireProblem.KIND, 0 if entry is None else entry[0], found=kind)
    if kind == 0 and mode != FILL and feature.default is None:
        raise WireFault(WireProblem.MISSING, 0)
    return kind, values


def _put_default(feature: FeaturePlan, out: Array) -> None:
    if feature.kind == BYTES:
        out[:, 0] = -1 - np.arange(len(out))
        out[:, 1] = 0
    else:
        assert feature.default is not None
        out[:, 0] = np.frombuffer(feature.default, feature.dtype)


class BadRecord(NamedTuple):
    """The first record of a block that is no good.

    Attributes:
        row: its number in the block.
        fault: what is wrong.
        feature: the number of the feature concerned, -1 when that is not known.
        at: where in the record.
        found: the kind (0..3) or the number of values that was found, where that is what is wrong.
    """

    row: int
    fault: WireProblem
    feature: int
    at: int
    found: int


def parse_examples(buffer: Uint8s, starts: Ints, lengths: Ints, plan: ExamplePlan, outs: Sequence[Array]) -> BadRecord | None:
    """Parse record i = buffer[starts[i] : starts[i] + lengths[i]] of a block into row i of every column, with one call. From any thread.

    Args:
        buffer: uint8 [m].
        starts: int64 [n]; records may share bytes and stand in any order.
        lengths: int64 [n].
        plan: what is expected.
        outs: C-contiguous, one for each feature. Fixed: float32 or int64 of n * count values, of bytes int64 of n * count * 2 (where in
            `buffer` a value begins and its length; (-1 - i, 0) stands for item i of the default). Variable: int64 [n], which gets the
            number of values, for `fill_examples`.

    Returns:
        None, or the first bad record; what stands in the columns is then of no use.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    buffer, starts, lengths = _block(buffer, starts, lengths)
    for number, (feature, out) in enumerate(zip(plan.features, outs, strict=True)):
        dtype, values = (feature.dtype, feature.count * feature.width) if feature.mode == FIXED else (INT64_DTYPE, 1)
        _require_column(f"outs[{number}]", out, dtype, starts.shape[0] * values)
    return _run(buffer, starts, lengths, plan, plan.first, outs, None)


def fill_examples(
    buffer: Uint8s, starts: Ints, lengths: Ints, plan: ExamplePlan, counts: Sequence[Ints | None]
) -> tuple[BadRecord | None, list[tuple[Array, Ints] | None]]:
    """Gather the values of the variable features of a block whose counts `parse_examples` gave. From any thread.

    Args:
        buffer: as `parse_examples` had it.
        starts: likewise.
        lengths: likewise.
        plan: likewise.
        counts: for each variable feature the column of `parse_examples`, None for the others.

    Returns:
        (None, or a record that is not what it was when it was counted; for each variable feature the values of all records one after the
        other, and int64 [n + 1]: where those of each record begin; None for the others). Values of bytes are int64 [values, 2].

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    buffer, starts, lengths = _block(buffer, starts, lengths)
    none = np.zeros(0, np.int64)
    offsets = [np.concatenate(([0], np.cumsum(none if column is None else column))) for column in counts]
    outs = [
        np.empty((int(where[-1]), *([2] if feature.width == 2 else [])), feature.dtype)
        for feature, where in zip(plan.features, offsets, strict=True)
    ]
    bad = _run(buffer, starts, lengths, plan, plan.second, outs, offsets)
    filled = [None if feature.mode == FIXED else (out, where) for feature, out, where in zip(plan.features, outs, offsets, strict=True)]
    return bad, filled


def framed_taker(plan: ExamplePlan, outs: Sequence[Array], num: int, *, check_data: bool) -> Taker | None:
    """Return what `stream_spans` is to do with frames of TFRecord: check them, and parse what is in them as `parse_examples` does.

    Args:
        plan: of fixed features of numbers only.
        outs: as for `parse_examples`, for `num` records: they go to the rows from the first on.
        num: how many records there will be at most.
        check_data: False: only the check sums of the lengths are checked.

    Returns:
        None where the C library is missing.

    Raises:
        SpecError: an array of another dtype, shape or layout.
    """
    for number, (feature, out) in enumerate(zip(plan.features, outs, strict=True)):
        _require_column(f"outs[{number}]", out, feature.dtype, num * feature.count)
    library = chosen_library()
    return None if library is None else taker_of(library, plan, outs, check_data=check_data)


def _block(buffer: Uint8s, starts: Ints, lengths: Ints) -> tuple[Uint8s, Ints, Ints]:
    starts = block("parse_examples", "starts", starts, INT64_DTYPE)
    lengths = block("parse_examples", "lengths", lengths, INT64_DTYPE, starts.shape[0])
    return block("parse_examples", "buffer", buffer, UINT8_DTYPE), starts, lengths


def _require_column(argument: str, out: Array, dtype: DType, size: int) -> None:
    if type(out) is not np.ndarray or out.dtype != dtype:
        require("parse_examples", argument, out, dtype, 1)
    if out.size != size:
        require_shape("parse_examples", argument, out.reshape(-1), (size,))
    if not out.flags.carray:
        raise SpecError(
            f"{argument} cannot be written as one block", where=place("parse_examples", argument), fix="pass a fresh array or whole rows"
        )


def _run(
    buffer: Uint8s,
    starts: Ints,
    lengths: Ints,
    plan: ExamplePlan,
    table: Ints,
    outs: Sequence[Array],
    offsets: Sequence[Ints] | None,
) -> BadRecord | None:
    report = np.zeros(4, np.int64)
    row = chosen("parse_examples", parse_examples_twin)(buffer, starts, lengths, plan, table, outs, offsets, report)
    if row < 0:
        return None
    fault, feature, at, found = report.tolist()
    return BadRecord(row, WireProblem(fault), feature, at, found)


def taker_of(library: SimpleNamespace, plan: ExamplePlan, outs: Sequence[Array], *, check_data: bool) -> Taker:
    """Return what checks the frames that spans are, and parses them into the rows of columns, one after the other."""
    function = ctypes.cast(library.library.penstock_take_framed_examples, ctypes.c_void_p).value
    assert function is not None
    num = len(plan.features)
    addresses, work = table_of_columns(outs, None), np.empty(max(1, 4 * num), np.int64)
    texts, table, wanted = plan.texts.ctypes.data, plan.table.ctypes.data, plan.first.ctypes.data
    numbers = [check_data, wanted, num, texts, table, plan.table.size - 1, addresses.ctypes.data, work.ctypes.data, 0]
    return Taker(function, np.array(numbers, np.int64), (plan, outs, addresses, work))
