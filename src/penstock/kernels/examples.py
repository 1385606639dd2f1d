"""Blocks of serialized tf.train.Example straight into columns: the plan of a set of features, and the checked calls.

The C is examples.c; examples_twin.py gives the same columns and the same reports.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import examples_twin
from penstock.kernels.examples_plan import FIXED, ExamplePlan, FeaturePlan, make_plan
from penstock.kernels.library import block, chosen, chosen_library, place, require, require_shape, table_of_columns
from penstock.kernels.spans import Taker
from penstock.kernels.wire import Fault

__all__ = [
    "BadRecord",
    "ExamplePlan",
    "FeaturePlan",
    "fill_examples",
    "framed_taker",
    "make_plan",
    "parse_examples",
    "taker_of",
]

_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)


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
    fault: Fault
    feature: int
    at: int
    found: int


def parse_examples(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plan: ExamplePlan,
    outs: Sequence[NDArray[Any]],
) -> BadRecord | None:
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
        dtype, values = (feature.dtype, feature.count * feature.width) if feature.mode == FIXED else (_INT64, 1)
        _require_column(f"outs[{number}]", out, dtype, starts.shape[0] * values)
    return _run(buffer, starts, lengths, plan, plan.first, outs, None)


def fill_examples(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plan: ExamplePlan,
    counts: Sequence[NDArray[np.int64] | None],
) -> tuple[BadRecord | None, list[tuple[NDArray[Any], NDArray[np.int64]] | None]]:
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
    outs: list[NDArray[Any]] = []
    offsets: list[NDArray[np.int64]] = []
    for number, (feature, column) in enumerate(zip(plan.features, counts, strict=True)):
        where = np.zeros(1, np.int64)
        if feature.mode != FIXED:
            own = block("fill_examples", f"counts[{number}]", column, _INT64, starts.shape[0])  # type: ignore[arg-type]
            if own.size and int(own.min()) < 0:
                raise SpecError(
                    f"counts[{number}] has {int(own.min())}",
                    where=place("fill_examples", f"counts[{number}]"),
                    fix="pass the column that parse_examples wrote",
                )
            where = np.zeros(own.shape[0] + 1, np.int64)
            np.cumsum(own, out=where[1:])
        offsets.append(where)
        outs.append(np.empty((int(where[-1]), *([2] if feature.width == 2 else [])), feature.dtype))
    bad = _run(buffer, starts, lengths, plan, plan.second, outs, offsets)
    filled = [None if feature.mode == FIXED else (out, where) for feature, out, where in zip(plan.features, outs, offsets, strict=True)]
    return bad, filled


def framed_taker(plan: ExamplePlan, outs: Sequence[NDArray[Any]], num: int, *, check_data: bool) -> Taker | None:
    """Return what `stream_spans` is to do with frames of TFRecord: check them, and parse what is in them as `parse_examples` does.

    Args:
        plan: of fixed features of numbers only.
        outs: as for `parse_examples`, for `num` records: they go to the rows from the first on.
        num: how many records there will be at most.
        check_data: False: only the check sums of the lengths are checked.

    Returns:
        None where the C library is missing.

    Raises:
        SpecError: an array of another dtype, shape or layout, or another feature.
    """
    for number, (feature, out) in enumerate(zip(plan.features, outs, strict=True)):
        if feature.mode != FIXED or feature.width != 1:
            raise SpecError(
                f"feature {number} is not one of a fixed number of numbers",
                where=place("framed_taker", f"outs[{number}]"),
                fix="read the spans and call parse_examples",
            )
        _require_column(f"outs[{number}]", out, feature.dtype, num * feature.count)
    library = chosen_library()
    return None if library is None else taker_of(library, plan, outs, check_data=check_data)


def _block(
    buffer: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    starts = block("parse_examples", "starts", starts, _INT64)
    return (
        block("parse_examples", "buffer", buffer, _UINT8),
        starts,
        block("parse_examples", "lengths", lengths, _INT64, starts.shape[0]),
    )


def _require_column(argument: str, out: NDArray[Any], dtype: np.dtype[Any], size: int) -> None:
    if type(out) is not np.ndarray or out.dtype != dtype:
        require("parse_examples", argument, out, dtype, 1)
    if out.size != size:
        require_shape("parse_examples", argument, out.reshape(-1), (size,))
    if not out.flags.carray:
        raise SpecError(
            f"{argument} cannot be written as one block", where=place("parse_examples", argument), fix="pass a fresh array or whole rows"
        )


def _run(
    buffer: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    plan: ExamplePlan,
    table: NDArray[np.int64],
    outs: Sequence[NDArray[Any]],
    offsets: Sequence[NDArray[np.int64]] | None,
) -> BadRecord | None:
    report = np.zeros(4, np.int64)
    row = chosen("parse_examples", examples_twin.parse_examples_twin)(buffer, starts, lengths, plan, table, outs, offsets, report)
    if row < 0:
        return None
    fault, feature, at, found = report.tolist()
    return BadRecord(row, Fault(fault), feature, at, found)


def taker_of(library: SimpleNamespace, plan: ExamplePlan, outs: Sequence[NDArray[Any]], *, check_data: bool) -> Taker:
    """Return what checks the frames that spans are, and parses them into the rows of columns, one after the other."""
    function = ctypes.cast(library.library.penstock_take_framed_examples, ctypes.c_void_p).value
    assert function is not None
    num = len(plan.features)
    addresses, work = table_of_columns(outs, None), np.empty(max(1, 4 * num), np.int64)
    texts, table, wanted = plan.texts.ctypes.data, plan.table.ctypes.data, plan.first.ctypes.data
    numbers = [check_data, wanted, num, texts, table, plan.table.size - 1, addresses.ctypes.data, work.ctypes.data, 0]
    return Taker(function, np.array(numbers, np.int64), (plan, outs, addresses, work))
