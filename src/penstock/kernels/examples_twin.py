"""The parser of Examples in Python: what runs where the C library is missing, and what it is tested against.

Arguments are taken as `penstock.kernels.examples` left them. The same columns and reports as examples.c. From any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.examples_plan import COUNT, FILL, FIXED, SKIP, ExamplePlan, FeaturePlan
from penstock.kernels.wire import BYTES, Entry, Fault, WireFault, as_array, entries, lists_of, messages, values_of

__all__ = ["parse_examples_twin"]


def parse_examples_twin(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plan: ExamplePlan,
    table: NDArray[np.int64],
    outs: Sequence[NDArray[Any]],
    offsets: Sequence[NDArray[np.int64]] | None,
    report: NDArray[np.int64],
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
            report[:] = Fault.SPAN, -1, 0, 0
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
    record: bytes,
    start: int,
    entry: Entry | None,
    feature: FeaturePlan,
    mode: int,
    row: int,
    out: NDArray[Any],
    offsets: NDArray[np.int64] | None,
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
        raise WireFault(Fault.COUNT, at, found=len(values))
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
        raise WireFault(Fault.KIND, 0 if entry is None else entry[0], found=kind)
    if kind == 0 and mode != FILL and feature.default is None:
        raise WireFault(Fault.MISSING, 0)
    return kind, values


def _put_default(feature: FeaturePlan, out: NDArray[Any]) -> None:
    if feature.kind == BYTES:
        out[:, 0] = -1 - np.arange(len(out))
        out[:, 1] = 0
    else:
        assert feature.default is not None
        out[:, 0] = np.frombuffer(feature.default, feature.dtype)
