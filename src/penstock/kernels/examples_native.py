"""The parser of Examples in C, called through ctypes. Arguments are taken as `penstock.kernels.examples` left them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.kernels.examples_plan import ExamplePlan
from penstock.kernels.spans import Taker

__all__ = ["NativeExamples"]

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64


class NativeExamples:
    """The functions of an open library, with the argument lists of `penstock.kernels.examples_twin`. Any thread; never closed."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._taker = ctypes.cast(library.penstock_take_framed_examples, ctypes.c_void_p).value
        self._parse = library.penstock_parse_examples
        self._parse.restype = _INT64
        self._parse.argtypes = [_POINTER, _INT64, _POINTER, _POINTER, _INT64, _POINTER, _INT64, *[_POINTER] * 2, _INT64, *[_POINTER] * 3]

    def parse_examples(
        self,
        buffer: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        plan: ExamplePlan,
        table: NDArray[np.int64],
        outs: Sequence[NDArray[Any]],
        offsets: Sequence[NDArray[np.int64]] | None,
        report: NDArray[np.int64],
    ) -> int:
        """See `examples_twin`."""
        num = len(plan.features)
        addresses, work = _addresses(outs, offsets), np.empty(max(1, 4 * num), np.int64)
        records = (buffer.ctypes.data, buffer.size, starts.ctypes.data, lengths.ctypes.data, starts.size)
        wanted = (table.ctypes.data, num, plan.texts.ctypes.data, plan.table.ctypes.data, plan.table.size - 1)
        row: int = self._parse(*records, *wanted, addresses.ctypes.data, work.ctypes.data, report.ctypes.data)
        return row

    def taker(self, plan: ExamplePlan, outs: Sequence[NDArray[Any]], check_data: bool) -> Taker:
        """Return what checks the frames that spans are, and parses them into the rows of columns, one after the other."""
        num = len(plan.features)
        addresses, work = _addresses(outs, None), np.empty(max(1, 4 * num), np.int64)
        texts, table, wanted = plan.texts.ctypes.data, plan.table.ctypes.data, plan.first.ctypes.data
        numbers = [check_data, wanted, num, texts, table, plan.table.size - 1, addresses.ctypes.data, work.ctypes.data, 0]
        assert self._taker is not None
        return Taker(self._taker, np.array(numbers, np.int64), (plan, outs, addresses, work))


def _addresses(outs: Sequence[NDArray[Any]], offsets: Sequence[NDArray[np.int64]] | None) -> NDArray[np.int64]:
    """Return [features, 2]: the addresses of column and offsets."""
    addresses = np.zeros((len(outs), 2), np.int64)
    for number, out in enumerate(outs):
        addresses[number, 0] = out.ctypes.data
        if offsets is not None:
            addresses[number, 1] = offsets[number].ctypes.data
    return addresses
