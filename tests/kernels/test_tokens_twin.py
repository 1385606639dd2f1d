"""The twin of the window reader by hand-made cases; `test_tokens.py` compares it with the C library."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.kernels import tokens_twin


@pytest.mark.parametrize(
    ("offset", "bound", "row", "report", "read"),
    [
        (2, 0, -1, [0, 0], [1, 2, 3]),
        (2, 4, -1, [0, 0], [1, 2, 3]),
        (2, 3, 0, [tokens_twin.OUTSIDE, 2], [1, 2, 3]),
        (16, 0, 0, [tokens_twin.SHORT, 4], [0, 0, 0]),
    ],
)
def test_one_row(tmp_path: Path, offset: int, bound: int, row: int, report: list[int], read: list[int]) -> None:
    path = tmp_path / "ten.bin"
    path.write_bytes(np.arange(10, dtype=np.uint16).tobytes())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        out, why = np.zeros((1, 3), np.int64), np.zeros(2, np.int64)
        arguments = (np.array([descriptor], np.int32), np.array([offset]), np.dtype(np.uint16), bound)
        assert tokens_twin.read_windows(*arguments, out, why) == row
    finally:
        os.close(descriptor)
    assert why.tolist() == report
    assert out[0].tolist() == read
