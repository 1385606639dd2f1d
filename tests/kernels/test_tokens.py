"""Windows of tokens from files, and failures by name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.errors import SpecError
from penstock.kernels import tokens

DTYPES = [np.dtype(code) for code in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")]
SIZE = 40_000


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path: Path = tmp_path_factory.mktemp("tokens") / "random.bin"
    path.write_bytes(np.random.default_rng(5).bytes(SIZE))
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def numbers(*values: int, dtype: Any = np.int64) -> NDArray[Any]:
    return np.array(values, dtype)


def read(descriptor: int, offset: int, length: int, dtype: str, bound: int = 0) -> tuple[list[int], tokens.TokenFailure | None]:
    out = np.zeros((1, length), np.int64)
    failure = tokens.read_windows(numbers(descriptor, dtype=np.int32), numbers(offset), np.dtype(dtype), bound, out)
    return out[0].tolist(), failure


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_hold_the_tokens_of_the_file(descriptor: int, dtype: Any) -> None:
    whole = np.frombuffer(os.pread(descriptor, SIZE, 0), dtype)
    starts = numbers(0, 7, len(whole) - 1000, 7)
    out = np.zeros((4, 1000), np.int64)
    assert tokens.read_windows(np.full(4, descriptor, np.int32), starts * dtype.itemsize, dtype, 0, out) is None
    expected = whole.view(np.int64) if dtype.itemsize == 8 else whole
    assert all(row.tolist() == expected[start : start + 1000].tolist() for row, start in zip(out, starts.tolist(), strict=True))


def test_offsets_need_not_be_multiples_of_the_item_size(descriptor: int) -> None:
    row, failure = read(descriptor, 3, 5, "u2")
    assert failure is None
    assert row == np.frombuffer(os.pread(descriptor, 10, 3), "u2").tolist()


def test_a_file_that_ends_too_soon_is_a_short_row_with_the_bytes_that_are_there(descriptor: int) -> None:
    assert read(descriptor, SIZE - 6, 4, "u2")[1] == (0, tokens.SHORT, 6)
    assert read(descriptor, SIZE + 100, 1, "u2")[1] == (0, tokens.SHORT, 0)
    assert read(descriptor, 0, SIZE, "u2")[1] == (0, tokens.SHORT, SIZE)


def test_an_error_of_the_system_is_reported_with_its_number(descriptor: int, tmp_path: Path) -> None:
    assert read(2**31 - 1, 0, 4, "u2")[1] == (0, tokens.FAILED, errno.EBADF)
    assert read(descriptor, -1, 4, "u2")[1] == (0, tokens.FAILED, errno.EINVAL)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read(folder, 0, 4, "u2")[1] == (0, tokens.FAILED, errno.EISDIR)
    finally:
        os.close(folder)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_a_token_outside_the_bound_is_named_by_its_place(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "bounded.bin"
    values = np.arange(100).astype(dtype)
    values[60] = np.iinfo(dtype).min if dtype[0] == "i" else np.iinfo(dtype).max
    path.write_bytes(values.tobytes())
    opened = os.open(path, os.O_RDONLY)
    try:
        assert read(opened, 0, 60, dtype, bound=60)[1] is None
        assert read(opened, 0, 60, dtype, bound=59)[1] == (0, tokens.OUTSIDE, 59)
        assert read(opened, 0, 100, dtype, bound=100)[1] == (0, tokens.OUTSIDE, 60)
        assert read(opened, 0, 100, dtype)[1] is None
    finally:
        os.close(opened)


def test_arguments_that_the_c_could_not_survive_are_refused(descriptor: int) -> None:
    one = numbers(descriptor, dtype=np.int32)
    with pytest.raises(SpecError, match="out has shape \\(2, 4\\), not \\(1, 4\\)"):
        tokens.read_windows(one, numbers(0), np.dtype("u2"), 0, np.zeros((2, 4), np.int64))
